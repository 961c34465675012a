// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The libraries that the loader finds, and their versions.

use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};

use rpma::info;
use serde::Serialize;

use crate::finding::{Finding, Severity};

#[derive(Serialize)]
pub(crate) struct Library {
    pub(crate) name: String,
    /// Where it is; none if it cannot be used.
    pub(crate) path: Option<PathBuf>,
    /// As its file's name says it; the third number of rdma-core's libraries is its release.
    pub(crate) version: Option<String>,
    pub(crate) problem: Option<String>,
    /// For librpma: whether it is this project's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) is_ours: Option<bool>,
}

const LIBRPMA: &CStr = c"librpma.so.0";

/// A name that only this project's library reads from the environment.
const MARK: &[u8] = b"RPMA_FABRIC";

pub(crate) fn look(findings: &mut Vec<Finding>) -> Vec<Library> {
    let mut all: Vec<Library> = [c"libibverbs.so.1", c"librdmacm.so.1", LIBRPMA]
        .into_iter()
        .map(find)
        .collect();
    if let Some(librpma) = all.last_mut()
        && let Some(path) = &librpma.path
    {
        let ours = is_ours(path);
        librpma.is_ours = Some(ours);
        if !ours {
            findings.push(Finding::new(
                "other-librpma",
                Severity::Warning,
                format!("programs are given {}, which is another librpma than this project's", path.display()),
                "install this one over it (make install, or the Debian packages), or start programs with LD_PRELOAD=.../librpma.so",
            ));
        }
    }
    all
}

fn find(name: &'static CStr) -> Library {
    let shown = name.to_string_lossy().into_owned();
    match info::open_library(name) {
        Ok(()) => {
            let path =
                loaded_from(shown.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'));
            Library {
                version: path.as_deref().and_then(version),
                path,
                name: shown,
                problem: None,
                is_ours: None,
            }
        }
        Err(said) => Library {
            name: shown,
            path: None,
            version: None,
            problem: Some(said),
            is_ours: None,
        },
    }
}

/// The file of this process's memory whose name begins like that.
fn loaded_from(name: &str) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let path = Path::new(line.get(line.find('/')?..)?);
        let file = path.file_name()?.to_str()?;
        file.starts_with(name).then(|| path.to_path_buf())
    })
}

/// `libibverbs.so.1.14.44.0` is version 1.14.44.0.
fn version(path: &Path) -> Option<String> {
    let (_, version) = path.file_name()?.to_str()?.split_once(".so.")?;
    version.contains('.').then(|| String::from(version))
}

fn is_ours(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.windows(MARK.len()).any(|part| part == MARK))
}
