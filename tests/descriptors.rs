// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Properties of the two descriptors, which cross the wire between old and new peers.

use proptest::prelude::*;
use rpma::error::Error;
use rpma::mr::{RemoteRegion, Usage};
use rpma::peer_cfg::PeerConfig;

/// A region's descriptor, put together here as its documentation says.
fn descriptor(address: u64, size: u64, key: u32, usage: u8) -> Vec<u8> {
    let mut bytes = address.to_le_bytes().to_vec();
    bytes.extend(size.to_le_bytes());
    bytes.extend(key.to_le_bytes());
    bytes.push(usage);
    bytes
}

proptest! {
    #[test]
    fn a_regions_descriptor_survives_the_way_there_and_back(
        address: u64, size: u64, key: u32, usage in 1..=u8::MAX, tail: Vec<u8>
    ) {
        let sent = descriptor(address, size, key, usage);
        let received = [sent.clone(), tail].concat();
        let region = RemoteRegion::from_descriptor(&received).expect("a valid descriptor");
        prop_assert_eq!(region.size(), size);
        prop_assert_eq!(region.usage().bits(), usage);
        prop_assert_eq!(region.descriptor().to_vec(), sent);
    }

    #[test]
    fn any_bytes_are_either_a_region_or_refused(bytes: Vec<u8>) {
        let valid = bytes.get(RemoteRegion::DESCRIPTOR_SIZE - 1).is_some_and(|usage| *usage != 0);
        match RemoteRegion::from_descriptor(&bytes) {
            Ok(region) => {
                prop_assert!(valid);
                prop_assert!(bytes.starts_with(&region.descriptor()));
            }
            Err(error) => {
                prop_assert!(!valid);
                prop_assert_eq!(error, Error::Inval);
            }
        }
    }

    #[test]
    fn any_bytes_are_a_peer_configuration_unless_there_are_none(bytes: Vec<u8>) {
        match (PeerConfig::from_descriptor(&bytes), bytes.first()) {
            (Ok(config), Some(first)) => {
                prop_assert_eq!(config.direct_write_to_pmem(), *first != 0);
            }
            (Err(error), None) => prop_assert_eq!(error, Error::Inval),
            (got, first) => prop_assert!(false, "{got:?} for first byte {first:?}"),
        }
    }
}

#[test]
fn every_length_is_judged_by_itself() {
    let whole = [0xff; 3 * RemoteRegion::DESCRIPTOR_SIZE];
    for len in 0..=whole.len() {
        let judged = RemoteRegion::from_descriptor(whole.get(..len).unwrap_or_default());
        assert_eq!(
            judged.is_ok(),
            len >= RemoteRegion::DESCRIPTOR_SIZE,
            "{len}"
        );
    }
}

#[test]
fn every_usage_byte_but_zero_is_taken_as_it_is() {
    for usage in 0..=u8::MAX {
        let region = RemoteRegion::from_descriptor(&descriptor(1, 2, 3, usage));
        assert_eq!(
            region.map(|r| r.usage()).ok(),
            Usage::from_bits(usage.into())
        );
    }
}
