// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Declares the version nodes of both libraries; `.symver` directives put the functions in.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=softverbs.map");
    let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| String::from("."));
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={root}/softverbs.map");
    // One name of its own: the loader finds it by those of the symbolic links.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsoftverbs.so");
    // Only lld accepts named nodes beside rustc's own anonymous version script.
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=lld");
}
