// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The symbol version of the exported functions.
//!
//! Programs that were linked against the original ask for `NAME@LIBRPMA_1.0`. rustc exports the
//! functions with a version script of its own, which knows no versions; these directives give
//! each function its version, and a second script (`src/librpma.map`) declares the version's
//! node. A directive has to stand in the same object file as the function, so each file lists
//! its own.

/// Gives functions of the same module the version `LIBRPMA_1.0`.
macro_rules! versioned {
    ($($name:ident)*) => {
        $(core::arch::global_asm!(concat!(
            ".symver ", stringify!($name), ", ", stringify!($name), "@@LIBRPMA_1.0"
        ));)*
    };
}

pub(super) use versioned;
