// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Makes `include/librpma.h` from the sources and checks that the committed one is up to date.
//!
//! `RPMA_UPDATE_HEADER=1 cargo test --test header` (or `make header`) writes it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

/// What cbindgen cannot say: it knows neither variadic functions nor typedefs of functions (users
/// declare pointers to this one, so a typedef of a function pointer would not do). And the original's
/// guard has a value, which programs may test.
const REPLACED: [(&str, &str); 3] = [
    ("#define LIBRPMA_H\n", "#define LIBRPMA_H 1\n"),
    (
        "struct Option_rpma_log_function;",
        "/**
 * A function that takes log records: the level, the source file, line and function they come
 * from, and a printf(3) format with its arguments, whose text ends with a line feed (this
 * library gives the text as a whole, by the format \"%s\"). It may be called from any thread that is
 * inside the library, and from one of the library's own. Locks may be held meanwhile: of the
 * library's functions it may call rpma_log_get_threshold() and rpma_err_2str() only.
 */
typedef void rpma_log_function(enum rpma_log_level level, const char *file_name,
                               const int line_no, const char *function_name,
                               const char *message_format, ...);",
    ),
    (
        "int rpma_log_set_function(struct Option_rpma_log_function log_function);",
        "int rpma_log_set_function(rpma_log_function *log_function);",
    ),
];

fn generate() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_src(root.join("src/capi/mod.rs"))
        .generate()
        .unwrap()
        .write(&mut made);
    let mut header = String::from_utf8(made).unwrap();
    for (cbindgens, ours) in REPLACED {
        assert_eq!(header.matches(cbindgens).count(), 1, "{cbindgens}");
        header = header.replace(cbindgens, ours);
    }
    header.lines().map(parenthesised).collect()
}

/// A macro for a negative number needs parentheses, to be safe in any expression.
fn parenthesised(line: &str) -> String {
    match line
        .strip_prefix("#define ")
        .and_then(|l| l.split_once(' '))
    {
        Some((name, value)) if value.starts_with('-') => format!("#define {name} ({value})\n"),
        _ => format!("{line}\n"),
    }
}

#[test]
fn the_committed_header_is_what_the_sources_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/librpma.h");
    let made = generate();
    if std::env::var_os("RPMA_UPDATE_HEADER").is_some() {
        // Never half-written for a compiler that runs meanwhile.
        let whole = path.with_extension("h.new");
        fs::write(&whole, &made).unwrap();
        fs::rename(&whole, &path).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "include/librpma.h is out of date: run `make header`"
    );
}
