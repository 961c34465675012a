// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What is left for later: for the engine's thread, for the next poll, or until the clock tells.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::Timespec;
use rustix::io::read;
use rustix::time::{Itimerspec, TimerfdTimerFlags, timerfd_settime};

use super::{Engine, Source};

/// After so long it is looked whether there was a leader, and whether what is delayed has gone by
/// itself; if not for the second time, it is over.
const CLOCK_NANOS: i64 = 150_000;

/// Sources that have something to send that others may join.
#[derive(Default)]
pub(super) struct PutOff {
    /// Threads poll so often that it will not be long.
    is_possible: bool,
    sources: Vec<Arc<dyn Source>>,
}

impl Engine {
    /// Has `source` called from the engine's thread, where no lock is held.
    pub(in crate::soft) fn kick(&self, source: Arc<dyn Source>) {
        self.kicks.lock().push_back(source);
        self.wake();
    }

    pub(super) fn run_kicks(&self) {
        // One at a time: if this one takes long, the others are for whoever stands in.
        let count = self.kicks.lock().len();
        for _ in 0..count {
            let next = self.kicks.lock().pop_front();
            let Some(source) = next else { return };
            source.kicked();
        }
    }

    /// Has `source` called when a thread polls the next time; false if none does so at the moment.
    pub(in crate::soft) fn put_off(&self, source: Arc<dyn Source>) -> bool {
        let mut put_off = self.put_off.lock();
        if put_off.is_possible {
            put_off.sources.push(source);
            self.any_put_off.store(true, Ordering::Relaxed);
        }
        put_off.is_possible
    }

    pub(super) fn allow_to_put_off(&self, is_possible: bool) {
        self.is_standing_down.store(is_possible, Ordering::Relaxed);
        self.put_off.lock().is_possible = is_possible;
        self.resume();
    }

    pub(super) fn resume(&self) {
        if self.any_put_off.swap(false, Ordering::Relaxed) {
            let sources = std::mem::take(&mut self.put_off.lock().sources);
            for source in sources {
                source.resumed();
            }
        }
    }

    /// Asks `source` a little later whether it has something to send still.
    pub(in crate::soft) fn delay(&self, source: Arc<dyn Source>) {
        self.delayed.lock().push(source);
        self.set_clock();
    }

    pub(super) fn set_clock(&self) {
        if !self.is_clock_set.swap(true, Ordering::SeqCst) {
            let mut once = Itimerspec {
                it_interval: Timespec::default(),
                it_value: Timespec::default(),
            };
            once.it_value.tv_nsec = CLOCK_NANOS;
            // Cannot fail: the timer is our own.
            let _ = timerfd_settime(&self.clock, TimerfdTimerFlags::empty(), &once);
        }
    }

    /// The clock has told.
    pub(super) fn run_clock(&self) {
        let _ = read(&self.clock, &mut [0; 8]);
        // First: what comes up meanwhile has the clock set again.
        self.is_clock_set.swap(false, Ordering::SeqCst);
        let is_left = self.run_delayed(false);
        let lease = self.seat.is_lease_over(|| self.watch_seat(true));
        if is_left || lease == Some(false) {
            self.set_clock();
        }
    }

    /// Returns whether something is still delayed.
    pub(super) fn run_delayed(&self, now: bool) -> bool {
        let mut sources = std::mem::take(&mut *self.delayed.lock());
        if sources.is_empty() {
            return false;
        }
        // Unlocked: they may have something to send, and more may be delayed meanwhile.
        sources.retain(|source| Arc::clone(source).delayed(now));
        let mut delayed = self.delayed.lock();
        // Into the older list, whose memory is kept.
        sources.append(&mut delayed);
        *delayed = sources;
        !delayed.is_empty()
    }
}
