// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What carries the frames of a connection: an ordered byte stream in each direction.
//!
//! The protocol above does not know which carrier it uses. TCP works between any two hosts;
//! inside one machine there is a faster way.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;

pub(super) mod lending;
pub(super) mod local;
pub(super) mod tcp;

/// An ordered, reliable byte stream that never blocks.
pub trait Carrier: Send + Sync {
    /// What it is, for the log.
    fn name(&self) -> &'static str;

    /// Sends bytes from a gather list; returns how many were taken, `AGAIN` if none can be now,
    /// and `FAULT` if none were because a part of the list cannot be read. `own` says that all
    /// of the list is known to be there: it is the fabric's, or the kernel has just been asked.
    ///
    /// # Safety
    /// Whoever owns the memory in the list must tolerate that it is read during the call. It
    /// need not be mapped, unless `own` says that it is.
    unsafe fn send(&self, list: &[libc::iovec], own: bool) -> Result<usize, Errno>;

    /// Receives bytes into a scatter list, whose last part is the fabric's own; 0 is the end of
    /// the stream, errors as for sending.
    ///
    /// # Safety
    /// Whoever owns the memory in the list must tolerate that it is written during the call. It
    /// need not be mapped, except for the last part.
    unsafe fn receive(&self, list: &[libc::iovec]) -> Result<usize, Errno>;

    /// Readable when bytes (or the end) can be received, writable when some can be sent; if
    /// [`Carrier::is_polled`], only readable, and only after [`Carrier::rest`].
    fn fd(&self) -> BorrowedFd<'_>;

    /// The peer may (or may not any more) stop receiving for long: it has to write to a disk first.
    fn be_patient(&self, patient: bool);

    /// Ends both directions.
    fn shutdown(&self);

    /// For payloads that the receiver fetches itself.
    fn lending(&self) -> Option<&dyn lending::Lending> {
        None
    }

    /// Whether the other functions here are of use: somebody has to look whether there is
    /// something to do, unless the carrier was told that nobody does.
    fn is_polled(&self) -> bool {
        false
    }

    /// The descriptor was readable.
    fn woken(&self) {}

    /// Looks whether something can be received, and whether there is room to go on sending after
    /// there was none.
    fn look(&self) -> (bool, bool) {
        (false, false)
    }

    /// Sending is put off though there may be room: looking says so.
    fn pause(&self) {}

    /// Sending goes on after a pause, if there is something to send.
    fn go_on(&self) {}

    /// Somebody is going to look.
    fn stay_awake(&self) {}

    /// Nobody is going to look any more: the descriptor shall tell. False if there is something
    /// already; then the carrier counts on being looked at.
    fn rest(&self) -> bool {
        true
    }
}
