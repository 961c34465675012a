// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Configuration of a connection.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};

use crate::srq::SharedReceiveQueue;

/// How long to wait for an address or a route, unless configured otherwise.
pub const DEFAULT_TIMEOUT_MS: c_int = 1000;

const DEFAULT_QUEUE_SIZE: u32 = 10;

/// The sizes and the shape of a connection's queues. Safe to use from several threads at once.
pub struct ConnConfig {
    timeout_ms: AtomicI32,
    cq_size: AtomicU32,
    rcq_size: AtomicU32,
    sq_size: AtomicU32,
    rq_size: AtomicU32,
    shared_channel: AtomicBool,
    /// Only the address: the queue is of interest, and has to be alive, when a connection is made.
    srq: AtomicPtr<SharedReceiveQueue>,
}

impl ConnConfig {
    /// A configuration with the defaults.
    pub const fn new() -> Self {
        ConnConfig {
            timeout_ms: AtomicI32::new(DEFAULT_TIMEOUT_MS),
            cq_size: AtomicU32::new(DEFAULT_QUEUE_SIZE),
            rcq_size: AtomicU32::new(0),
            sq_size: AtomicU32::new(DEFAULT_QUEUE_SIZE),
            rq_size: AtomicU32::new(DEFAULT_QUEUE_SIZE),
            shared_channel: AtomicBool::new(false),
            srq: AtomicPtr::new(null_mut()),
        }
    }

    /// How long to wait for an address, and then for a route, in milliseconds.
    pub fn timeout_ms(&self) -> c_int {
        self.timeout_ms.load(Ordering::SeqCst)
    }

    /// Sets the time to wait for an address, and then for a route.
    pub fn set_timeout_ms(&self, timeout_ms: c_int) {
        self.timeout_ms.store(timeout_ms, Ordering::SeqCst);
    }

    /// How many entries the main completion queue has.
    pub fn cq_size(&self) -> u32 {
        self.cq_size.load(Ordering::SeqCst)
    }

    /// Sets the size of the main completion queue.
    pub fn set_cq_size(&self, size: u32) {
        self.cq_size.store(size, Ordering::SeqCst);
    }

    /// How many entries the separate receive completion queue has; 0 means that there is none.
    pub fn rcq_size(&self) -> u32 {
        self.rcq_size.load(Ordering::SeqCst)
    }

    /// Sets the size of the separate receive completion queue; 0 means none.
    pub fn set_rcq_size(&self, size: u32) {
        self.rcq_size.store(size, Ordering::SeqCst);
    }

    /// How many requests the send queue holds.
    pub fn sq_size(&self) -> u32 {
        self.sq_size.load(Ordering::SeqCst)
    }

    /// Sets the size of the send queue.
    pub fn set_sq_size(&self, size: u32) {
        self.sq_size.store(size, Ordering::SeqCst);
    }

    /// How many requests the receive queue holds.
    pub fn rq_size(&self) -> u32 {
        self.rq_size.load(Ordering::SeqCst)
    }

    /// Sets the size of the receive queue.
    pub fn set_rq_size(&self, size: u32) {
        self.rq_size.store(size, Ordering::SeqCst);
    }

    /// Whether both completion queues announce their completions through one channel.
    pub fn shared_channel(&self) -> bool {
        self.shared_channel.load(Ordering::SeqCst)
    }

    /// Sets whether both completion queues announce their completions through one channel.
    pub fn set_shared_channel(&self, shared: bool) {
        self.shared_channel.store(shared, Ordering::SeqCst);
    }

    /// The address of the shared receive queue, or null for none.
    pub(crate) fn srq(&self) -> *mut SharedReceiveQueue {
        self.srq.load(Ordering::SeqCst)
    }

    pub(crate) fn set_srq(&self, srq: *mut SharedReceiveQueue) {
        self.srq.store(srq, Ordering::SeqCst);
    }
}

impl Default for ConnConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// A queue size for the provider, which counts in `int`.
pub(crate) fn clip(size: u32) -> c_int {
    c_int::try_from(size).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_the_provider_cannot_count_are_clipped() {
        assert_eq!(clip(0), 0);
        assert_eq!(clip(0x7fff_ffff), c_int::MAX);
        assert_eq!(clip(0x8000_0000), c_int::MAX);
        assert_eq!(clip(u32::MAX), c_int::MAX);
    }
}
