// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Payloads that stay where they are until the receiver fetches them.
//!
//! Between two processes of one machine the receiver can have the kernel copy a large payload
//! straight from the sender's memory to where it belongs. What travels instead is a
//! [`Reference`]. Nobody writes to another process's memory, and nobody has to wait for another
//! process: the sender can take a loan back at any time (because its program deregisters the
//! memory, or is told that the request has failed), and the receiver finds out after it has
//! copied.

use rustix::io::Errno;

use super::super::wire::REFERENCE_LEN;

/// Names memory of the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    pub addr: u64,
    /// Never 0, and never used again on the connection.
    pub loan: u64,
}

impl Reference {
    pub fn encode(&self) -> [u8; REFERENCE_LEN] {
        (u128::from(self.addr) | u128::from(self.loan) << 64).to_le_bytes()
    }

    pub fn decode(bytes: &[u8; REFERENCE_LEN]) -> Self {
        let both = u128::from_le_bytes(*bytes);
        Reference {
            addr: both as u64,
            loan: (both >> 64) as u64,
        }
    }
}

/// Whose payload is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Request,
    Answer,
}

/// What a carrier offers for that.
pub trait Lending: Send + Sync {
    /// Lends memory; `None` if the other side cannot fetch it, or has too much to fetch already.
    fn lend(&self, addr: u64, purpose: Purpose) -> Option<Reference>;

    /// Whether a loan was neither fetched nor taken back.
    fn is_open(&self, loan: u64) -> bool;

    /// Takes a loan back: what the other side copies from now on, it will not use.
    fn take_back(&self, loan: u64);

    /// Takes back all that was lent for requests.
    fn take_back_requests(&self);

    /// Whether this side can fetch.
    fn can_fetch(&self) -> bool;

    /// Fetches what the other side lends. `FAULT` if its memory or ours is not there, `CANCELED`
    /// if it was taken back; then what was copied means nothing.
    ///
    /// # Safety
    /// Whoever owns the memory in the list must tolerate that it is written during the call. It
    /// need not be mapped.
    unsafe fn fetch(&self, reference: Reference, list: &[libc::iovec]) -> Result<(), Errno>;

    /// Will not fetch it.
    fn decline(&self, reference: Reference);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_survive_the_wire() {
        let sent = Reference {
            addr: 0x0102_0304_0506_0708,
            loan: 0x1112_1314_1516_1718,
        };
        let bytes = sent.encode();
        assert_eq!(bytes[..3], [8, 7, 6]);
        assert_eq!(bytes[8..11], [0x18, 0x17, 0x16]);
        assert_eq!(Reference::decode(&bytes), sent);
    }
}
