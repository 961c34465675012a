// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The values of environment variables, and addresses.
//!
//! `fuzz/run settings`

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| rpma::soft::tests::settings::read(bytes));
