// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Configuration of a shared receive queue.

use std::sync::atomic::{AtomicU32, Ordering};

/// The sizes of a shared receive queue. Safe to use from several threads at once.
#[derive(Debug)]
pub struct SrqConfig {
    rq_size: AtomicU32,
    rcq_size: AtomicU32,
}

impl SrqConfig {
    const DEFAULT_SIZE: u32 = 20;

    /// A configuration with the defaults.
    pub const fn new() -> Self {
        SrqConfig {
            rq_size: AtomicU32::new(Self::DEFAULT_SIZE),
            rcq_size: AtomicU32::new(Self::DEFAULT_SIZE),
        }
    }

    /// How many receive requests the queue holds.
    pub fn rq_size(&self) -> u32 {
        self.rq_size.load(Ordering::SeqCst)
    }

    /// Sets how many receive requests the queue holds.
    pub fn set_rq_size(&self, size: u32) {
        self.rq_size.store(size, Ordering::SeqCst);
    }

    /// How many entries the queue's own completion queue has; 0 means that it has none.
    pub fn rcq_size(&self) -> u32 {
        self.rcq_size.load(Ordering::SeqCst)
    }

    /// Sets how many entries the queue's own completion queue has; 0 means none of its own.
    pub fn set_rcq_size(&self, size: u32) {
        self.rcq_size.store(size, Ordering::SeqCst);
    }
}

impl Default for SrqConfig {
    fn default() -> Self {
        Self::new()
    }
}
