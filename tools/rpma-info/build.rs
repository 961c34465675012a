// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The library comes with its versioned C symbols, which GNU ld takes for second definitions.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg=-fuse-ld=lld");
}
