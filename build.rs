// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Gives the shared library its SONAME and its symbol-version node.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/librpma.map");
    let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| String::from("."));
    if env::var_os("CARGO_FEATURE_CAPI").is_none() {
        // Used as a part of another library, which would inherit the arguments.
        return;
    }
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librpma.so.0");
    // The software fabric has a thread, whose code must stay when a program closes the library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The script only declares the node; `.symver` directives in src/capi put the functions into it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={root}/src/librpma.map");
    // Only lld accepts a named node beside rustc's own anonymous version script; and GNU ld takes a versioned symbol in a program,
    // such as a test, for a second definition. Some distributions' rustc would use that.
    println!("cargo:rustc-link-arg=-fuse-ld=lld");
}
