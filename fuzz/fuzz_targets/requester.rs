// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! A whole requester of the software fabric with requests under way, fed with a peer's answers after
//! an honest handshake.
//!
//! `fuzz/run requester`

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    rpma::soft::tests::feed::feed_requests(bytes);
});
