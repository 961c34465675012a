// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Makes the manual pages in `man/` from the header, whose comments come from the sources, and
//! checks that the committed ones are up to date.
//!
//! `RPMA_UPDATE_MAN=1 cargo test --test man` (or `make man`) writes them. What the header has not
//! is in `tests/man`: the overview, librpma(7), and C functions that show how to use one of ours.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const COPYING: &str = ".\\\" SPDX-License-Identifier: BSD-3-Clause
.\\\" Copyright 2026, The rpma developers
.\\\"
.\\\" Made from the comments in src/capi (see tests/man.rs): change those, not this file.
";
/// Letters in a line of the sources.
const WIDTH: usize = 78;
const DATE: &str = "November 30, 2026";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// One function as the header has it.
struct Function {
    name: String,
    /// What comes before the name.
    result: String,
    parameters: Vec<String>,
    description: Vec<String>,
    /// What it returns if all is well, and what else there is to say about it.
    success: String,
    /// Each error code with when it is returned.
    errors: Vec<(String, String)>,
    thread_safety: String,
}

/// The names that begin in this way, each with the comment before it, without its full stop.
fn commented(part: &str, start: &str) -> Vec<(String, String)> {
    let name_and_text = |piece: &str| {
        let (comment, rest) = piece.split_once("*/\n")?;
        let rest = rest.trim_start();
        let name = rest.strip_prefix("#define ").unwrap_or(rest);
        let end = name.find(|c: char| c != '_' && !c.is_alphanumeric())?;
        let text = paragraphs(comment).join(" ");
        rest.starts_with(start).then(|| {
            (
                name[..end].to_string(),
                text.trim_end_matches('.').to_string(),
            )
        })
    };
    part.split("/**\n")
        .skip(1)
        .filter_map(name_and_text)
        .collect()
}

/// The texts of the error codes themselves, for functions that say no more.
fn code_texts(header: &str) -> BTreeMap<String, String> {
    commented(header, "#define RPMA_E_")
        .into_iter()
        .map(|(name, text)| (name, lower(&text)))
        .collect()
}

/// What a parameter may be, if the header has names for it: names with their texts.
fn values_of(parameter: &str, header: &str) -> Vec<(String, String)> {
    let mut values = match parameter {
        // Bits; what they are bits of is said before the text.
        "int usage" => commented(header, "#define RPMA_MR_USAGE_"),
        "int flags" => commented(header, "#define RPMA_F_"),
        _ => {
            let Some(rest) = parameter.strip_prefix("enum ") else {
                return Vec::new();
            };
            let name = rest.split(' ').next().unwrap();
            let (_, body) = header.split_once(&format!("enum {name} {{")).unwrap();
            commented(body.split_once("};").unwrap().0, "")
        }
    };
    assert!(!values.is_empty(), "{parameter}");
    // These say how many there are.
    values.retain(|(name, _)| !name.ends_with("_MAX"));
    for (_, text) in &mut values {
        let bit = text
            .split_once(": ")
            .filter(|_| parameter.starts_with("int "));
        *text = format!("{}.", capital(bit.map_or(text.as_str(), |(_, text)| text)));
    }
    values
}

fn paragraphs(comment: &str) -> Vec<String> {
    let plain: Vec<&str> = comment
        .lines()
        .map(|line| line.trim().trim_start_matches('*').trim())
        .collect();
    plain
        .split(|line| line.is_empty())
        .filter(|lines| !lines.is_empty())
        .map(|lines| lines.join(" "))
        .collect()
}

fn functions(header: &str) -> Vec<Function> {
    let texts = code_texts(header);
    let declarations = header.split("extern \"C\" {").nth(1).unwrap();
    let mut found = Vec::new();
    for piece in declarations.split("/**\n").skip(1) {
        let (comment, rest) = piece.split_once("*/\n").unwrap();
        let prototype = rest.split(';').next().unwrap();
        let prototype = prototype.split_whitespace().collect::<Vec<_>>().join(" ");
        let (before, after) = prototype.split_once('(').unwrap();
        let at = before.rfind([' ', '*']).unwrap() + 1;
        let mut description = paragraphs(comment);
        let safety = description.pop().unwrap();
        let returns = description.pop().unwrap();
        let (success, errors) = outcome(&returns, &texts);
        found.push(Function {
            name: before[at..].to_string(),
            result: before[..at].trim().to_string(),
            parameters: after
                .trim_end_matches(')')
                .split(", ")
                .map(String::from)
                .collect(),
            description,
            success,
            errors,
            thread_safety: safety
                .strip_prefix("Thread safety: ")
                .expect("the last paragraph is about thread safety")
                .to_string(),
        });
    }
    found
}

/// Takes "Returns 0; CODE if this; CODE if that. And this." apart.
fn outcome(returns: &str, texts: &BTreeMap<String, String>) -> (String, Vec<(String, String)>) {
    let returns = returns
        .strip_prefix("Returns ")
        .expect("the last paragraph but one is about what is returned");
    let Some(first) = returns
        .find("RPMA_E_")
        .filter(|_| !returns.starts_with("a static"))
    else {
        return (returns.to_string(), Vec::new());
    };
    let success = returns[..first]
        .trim_end_matches("or ")
        .trim_end_matches([' ', ';', ',']);
    let (list, more) = match returns[first..].split_once(". ") {
        Some((list, more)) => (list, more),
        None => (returns[first..].trim_end_matches('.'), ""),
    };
    let mut errors: Vec<(String, String)> = Vec::new();
    for part in list.split("; ") {
        match part.strip_prefix("RPMA_E_") {
            Some(rest) => {
                let (code, when) = rest.split_once(' ').unwrap_or((rest, ""));
                let code = format!("RPMA_E_{code}");
                let when = if when.is_empty() {
                    texts[&code].clone()
                } else {
                    when.to_string()
                };
                errors.push((code, when));
            }
            None => {
                let last = &mut errors.last_mut().unwrap().1;
                let _ = write!(last, "; {part}");
            }
        }
    }
    let mut said = format!("{success}, or one of the error codes below.");
    if !more.is_empty() {
        let _ = write!(said, " {more}");
    }
    (said, errors)
}

fn with_first<C: Iterator<Item = char>>(text: &str, change: impl Fn(char) -> C) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| change(first).chain(letters).collect())
        .unwrap_or_default()
}

fn lower(text: &str) -> String {
    with_first(text, |first| first.to_lowercase())
}

/// What a function does, as short as a list of pages wants it.
fn brief(function: &Function) -> String {
    let text = &function.description[0];
    let end = text
        .find([';', ':', '.', ','])
        .into_iter()
        .chain(text.find(" and asks"))
        .min()
        .unwrap_or(text.len());
    lower(text[..end].split(" (").next().unwrap())
}

/// A paragraph as roff takes it: a line for each sentence, and nothing that roff would act on.
fn roff(text: &str) -> String {
    let mut out = String::new();
    let letters: Vec<char> = text.chars().collect();
    let is_letter = |i: usize| letters.get(i).is_some_and(|c| c.is_alphabetic());
    for (i, &c) in letters.iter().enumerate() {
        match c {
            '\\' => out.push_str("\\e"),
            // A hyphen between letters is one; elsewhere it is a minus.
            '-' if !(i > 0 && is_letter(i - 1) && is_letter(i + 1)) => out.push_str("\\-"),
            _ => out.push(c),
        }
    }
    let mut lines = String::new();
    for sentence in out.split_inclusive(". ") {
        let mut line = String::new();
        for word in sentence.split_whitespace() {
            if let Some((name, after)) = word.split_once("()") {
                // A function, marked as one; punctuation goes along.
                lines.push_str(&line);
                if !line.is_empty() {
                    lines.push('\n');
                }
                line.clear();
                let _ = writeln!(lines, "{}", format!(".Fn {name} {after}").trim_end());
                continue;
            }
            if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
                lines.push_str(&line);
                lines.push('\n');
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            } else if word.starts_with(['.', '\'']) {
                line.push_str("\\&");
            }
            line.push_str(word);
        }
        if !line.is_empty() {
            lines.push_str(&line);
            lines.push('\n');
        }
    }
    lines
}

/// The functions that belong to the same object.
fn family(name: &str) -> &'static str {
    const FAMILIES: [&str; 12] = [
        "rpma_conn_cfg_",
        "rpma_conn_req_",
        "rpma_peer_cfg_",
        "rpma_srq_cfg_",
        "rpma_conn_",
        "rpma_cq_",
        "rpma_ep_",
        "rpma_log_",
        "rpma_mr_",
        "rpma_peer_",
        "rpma_srq_",
        "rpma_utils_",
    ];
    FAMILIES
        .into_iter()
        .find(|family| name.starts_with(family))
        // Operations of a connection, and rpma_err_2str.
        .unwrap_or(if name == "rpma_err_2str" {
            "rpma_utils_conn_"
        } else {
            ""
        })
}

fn see_also(function: &Function, all: &[Function]) -> Vec<String> {
    let own = family(&function.name);
    let mut related: BTreeSet<&str> = all
        .iter()
        .map(|other| other.name.as_str())
        .filter(|other| {
            family(other) == own || (own.ends_with("utils_conn_") && other.starts_with(own))
        })
        .collect();
    let text = format!(
        "{} {} {:?}",
        function.description.join(" "),
        function.success,
        function.errors
    );
    for other in all {
        if text.contains(&format!("{}()", other.name)) {
            related.insert(&other.name);
        }
    }
    related.remove(function.name.as_str());
    let pages = related.into_iter().map(|name| format!("{name} 3"));
    pages.chain(["librpma 7".to_string()]).collect()
}

fn example(name: &str) -> Option<String> {
    let text = fs::read_to_string(root().join(format!("tests/man/{name}.c"))).ok()?;
    let shown = text.split_once("\n\n").unwrap().1;
    Some(shown.replace('\\', "\\e").replace('-', "\\-"))
}

fn page(function: &Function, all: &[Function], header: &str) -> String {
    let mut page = String::from(COPYING);
    let name = &function.name;
    let _ = write!(
        page,
        ".Dd {DATE}\n.Dt {} 3\n.Os\n.Sh NAME\n.Nm {name}\n.Nd {}\n.Sh SYNOPSIS\n.In librpma.h\n.Ft \"{}\"\n.Fo {name}\n",
        name.to_uppercase(),
        brief(function),
        function.result
    );
    for parameter in &function.parameters {
        let _ = writeln!(page, ".Fa \"{parameter}\"");
    }
    page.push_str(".Fc\n.Sh DESCRIPTION\n");
    for (i, paragraph) in function.description.iter().enumerate() {
        if i > 0 {
            page.push_str(".Pp\n");
        }
        page.push_str(&roff(paragraph));
    }
    for parameter in &function.parameters {
        let values = values_of(parameter, header);
        if values.is_empty() {
            continue;
        }
        let name = parameter.rsplit([' ', '*']).next().unwrap();
        let _ = writeln!(page, ".Pp\nThe values of\n.Fa {name} :\n.Bl -tag -width 4n");
        for (value, text) in &values {
            let _ = write!(page, ".It Dv {value}\n{}", roff(text));
        }
        page.push_str(".El\n");
    }
    let _ = write!(
        page,
        ".Sh RETURN VALUES\n{}",
        roff(&capital(&function.success))
    );
    if let Some(example) = example(name) {
        let _ = write!(page, ".Sh EXAMPLES\n.Bd -literal\n{example}.Ed\n");
    }
    page.push_str(".Sh ERRORS\n");
    if function.errors.is_empty() {
        page.push_str("This function cannot fail.\n");
    } else {
        page.push_str(".Bl -tag -width 4n\n");
        for (code, when) in &function.errors {
            let _ = write!(
                page,
                ".It Dv {code}\n{}",
                roff(&format!("{}.", capital(when)))
            );
        }
        page.push_str(".El\n");
    }
    let _ = write!(
        page,
        ".Sh THREAD SAFETY\n{}",
        roff(&capital(&function.thread_safety))
    );
    page.push_str(".Sh SEE ALSO\n");
    let related = see_also(function, all);
    for (i, other) in related.iter().enumerate() {
        let comma = if i + 1 < related.len() { " ," } else { "" };
        let _ = writeln!(page, ".Xr {other}{comma}");
    }
    page
}

fn capital(text: &str) -> String {
    // Names keep their letters.
    if text.starts_with("rpma") || text.starts_with("cfg") || text.starts_with("pdata") {
        return text.to_string();
    }
    with_first(text, |first| first.to_uppercase())
}

/// The overview, with the list of all functions.
fn overview(all: &[Function]) -> String {
    let template = fs::read_to_string(root().join("tests/man/librpma.7")).unwrap();
    let mut sorted: Vec<&Function> = all.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let mut list = String::from(".Bl -tag -width 4n\n");
    for function in &sorted {
        let _ = write!(
            list,
            ".It Xr {} 3\n{}",
            function.name,
            roff(&brief(function))
        );
    }
    list.push_str(".El");
    assert_eq!(template.matches("@FUNCTIONS@").count(), 1);
    template
        .replace("@FUNCTIONS@", &list)
        .replace("@DATE@", DATE)
}

fn made() -> BTreeMap<PathBuf, String> {
    let header = fs::read_to_string(root().join("include/librpma.h")).unwrap();
    let all = functions(&header);
    let mut pages: BTreeMap<PathBuf, String> = all
        .iter()
        .map(|f| {
            (
                PathBuf::from(format!("{}.3", f.name)),
                page(f, &all, &header),
            )
        })
        .collect();
    pages.insert(PathBuf::from("librpma.7"), overview(&all));
    pages
}

#[test]
fn the_committed_pages_are_what_the_sources_say() {
    let folder = root().join("man");
    let pages = made();
    if std::env::var_os("RPMA_UPDATE_MAN").is_some() {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        for (name, text) in &pages {
            fs::write(folder.join(name), text).unwrap();
        }
    }
    let committed: BTreeMap<PathBuf, String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = PathBuf::from(path.file_name().unwrap());
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    let names = |pages: &BTreeMap<PathBuf, String>| pages.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&committed), names(&pages), "run `make man`");
    for (name, text) in &pages {
        let there = &committed[name];
        assert!(
            there == text,
            "man/{} is out of date: run `make man`",
            name.display()
        );
    }
}

#[test]
fn each_exported_function_has_a_page_with_every_section() {
    let pages = made();
    let mut exported = 0;
    for entry in fs::read_dir(root().join("src/capi")).unwrap() {
        let source = fs::read_to_string(entry.unwrap().path()).unwrap();
        let Some(list) = source.split_once("versioned! {") else {
            continue;
        };
        for name in list.1.split('}').next().unwrap().split_whitespace() {
            if !name.starts_with("rpma_") {
                continue;
            }
            exported += 1;
            let page = &pages[Path::new(&format!("{name}.3"))];
            for section in [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "RETURN VALUES",
                "ERRORS",
                "THREAD SAFETY",
                "SEE ALSO",
            ] {
                assert!(
                    page.contains(&format!(".Sh {section}\n")),
                    "{name}: {section}"
                );
            }
        }
    }
    assert_eq!(exported, 84);
    assert_eq!(pages.len(), exported + 1);
}

#[test]
fn every_error_has_a_condition() {
    let header = fs::read_to_string(root().join("include/librpma.h")).unwrap();
    let known = code_texts(&header);
    assert_eq!(known.len(), 10);
    for function in functions(&header) {
        for (code, when) in &function.errors {
            assert!(known.contains_key(code), "{}: {code}", function.name);
            assert!(when.len() > 4, "{}: {code}: {when}", function.name);
        }
    }
}

#[test]
fn the_examples_compile() {
    for entry in fs::read_dir(root().join("tests/man")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "c") {
            continue;
        }
        let status = Command::new("cc")
            .args([
                "-std=c11",
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                "-fsyntax-only",
            ])
            .arg("-I")
            .arg(root().join("include"))
            .arg(&path)
            .status()
            .unwrap();
        assert!(status.success(), "{}", path.display());
    }
}
