// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The decoders of the software fabric's wire format on any bytes: what is taken means the same
//! when it is sent again, nothing panics.
//!
//! `fuzz/run frames`

#![no_main]

use libfuzzer_sys::fuzz_target;
use rpma::soft::wire::{Greeting, Header};

fuzz_target!(|bytes: &[u8]| {
    if let Some(fixed) = bytes.first_chunk() {
        if let Ok(header) = Header::decode(fixed) {
            assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
    }
    if let Some(fixed) = bytes.first_chunk() {
        if let Ok(len) = Greeting::full_len(fixed) {
            assert!(len >= fixed.len());
        }
    }
    if let Ok(greeting) = Greeting::decode(bytes) {
        let mut again = Vec::new();
        greeting.encode(&mut again);
        assert_eq!(Greeting::decode(&again), Ok(greeting));
    }
});
