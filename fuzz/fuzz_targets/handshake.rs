// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The connection manager of the software fabric: a peer's bytes as a request, and as the answer to
//! one.
//!
//! `fuzz/run handshake`

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| rpma::soft::tests::handshake::feed(bytes));
