// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Both descriptor decoders on any bytes: what is taken is taken as it is, nothing panics.
//!
//! `fuzz/run descriptors`

#![no_main]

use libfuzzer_sys::fuzz_target;
use rpma::mr::RemoteRegion;
use rpma::peer_cfg::PeerConfig;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(region) = RemoteRegion::from_descriptor(bytes) {
        assert!(bytes.starts_with(&region.descriptor()));
    }
    if let Ok(config) = PeerConfig::from_descriptor(bytes) {
        assert_eq!(config.descriptor()[0] != 0, bytes[0] != 0);
    }
});
