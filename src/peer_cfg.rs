// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Peer configuration: what one side has to tell the other about itself.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;
use crate::log::{log_error, log_info};

/// A peer's configuration. Safe to use from several threads at once.
#[derive(Debug, Default)]
pub struct PeerConfig {
    direct_write_to_pmem: AtomicBool,
}

impl PeerConfig {
    /// How many bytes a descriptor has.
    pub const DESCRIPTOR_SIZE: usize = 1;

    /// Reads a configuration from the first byte of a descriptor; the rest is ignored.
    ///
    /// Errors: INVAL for an empty descriptor.
    pub fn from_descriptor(descriptor: &[u8]) -> Result<Self, Error> {
        let Some(first) = descriptor.first() else {
            log_error!(
                c"rpma_peer_cfg_from_descriptor",
                "the descriptor has 0 bytes, at least {} are needed",
                Self::DESCRIPTOR_SIZE
            );
            return Err(Error::Inval);
        };
        let config = PeerConfig::default();
        config.set_direct_write_to_pmem(*first != 0);
        log_info!(
            c"rpma_peer_cfg_from_descriptor",
            "remote peer: direct write to persistent memory {}",
            if *first != 0 {
                "supported"
            } else {
                "not supported"
            }
        );
        Ok(config)
    }

    /// The configuration in the form that crosses the wire.
    pub fn descriptor(&self) -> [u8; Self::DESCRIPTOR_SIZE] {
        [u8::from(self.direct_write_to_pmem())]
    }

    /// Whether a write that reached this peer's memory is persistent once flushed.
    pub fn direct_write_to_pmem(&self) -> bool {
        self.direct_write_to_pmem.load(Ordering::SeqCst)
    }

    /// Declares whether a write that reached this peer's memory is persistent once flushed.
    pub fn set_direct_write_to_pmem(&self, supported: bool) {
        self.direct_write_to_pmem.store(supported, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_byte_but_zero_is_true_and_the_rest_is_ignored() {
        for byte in 0..=u8::MAX {
            for tail in [&[][..], &[0], &[1, 2, 3]] {
                let descriptor = [&[byte], tail].concat();
                let config = PeerConfig::from_descriptor(&descriptor).unwrap();
                assert_eq!(config.direct_write_to_pmem(), byte != 0);
                assert_eq!(config.descriptor(), [u8::from(byte != 0)]);
            }
        }
    }

    #[test]
    fn an_empty_descriptor_is_refused() {
        assert_eq!(PeerConfig::from_descriptor(&[]).unwrap_err(), Error::Inval);
    }
}
