// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What carries the frames of a connection: an ordered byte stream in each direction.
//!
//! This is the seam for faster ways between two processes of one machine; the protocol above
//! does not know which carrier it uses.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;

pub(super) mod tcp;

/// An ordered, reliable byte stream that never blocks.
pub trait Carrier: Send + Sync {
    /// Sends bytes from a gather list; returns how many were taken, `AGAIN` if none can be now,
    /// and `FAULT` if none were because a part of the list cannot be read.
    ///
    /// # Safety
    /// Whoever owns the memory in the list must tolerate that it is read during the call. It
    /// need not be mapped.
    unsafe fn send(&self, list: &[libc::iovec]) -> Result<usize, Errno>;

    /// Receives bytes into a scatter list; 0 is the end of the stream, errors as for sending.
    ///
    /// # Safety
    /// Whoever owns the memory in the list must tolerate that it is written during the call. It
    /// need not be mapped.
    unsafe fn receive(&self, list: &[libc::iovec]) -> Result<usize, Errno>;

    /// Readable when bytes (or the end) can be received, writable when some can be sent.
    fn fd(&self) -> BorrowedFd<'_>;

    /// The peer may (or may not any more) stop receiving for long: it has to write to a disk first.
    fn be_patient(&self, patient: bool);

    /// Ends both directions.
    fn shutdown(&self);
}
