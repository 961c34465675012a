// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! A whole responder of the software fabric, fed with a peer's bytes after an honest handshake.
//!
//! `fuzz/run responder`

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| rpma::soft::tests::feed::feed(bytes));
