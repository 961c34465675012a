// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What is to be done at a certain time.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::Timespec;

use super::{Engine, Source};

pub(super) struct Timer {
    source: Weak<dyn Source>,
    purpose: u32,
}

/// Names a timer that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::soft) struct TimerKey {
    at: Instant,
    order: u64,
}

impl TimerKey {
    pub(in crate::soft) fn is_due(self) -> bool {
        self.at <= Instant::now()
    }
}

impl Engine {
    /// Calls `source` after a time, unless it is gone by then.
    pub(in crate::soft) fn after(
        &self,
        delay: Duration,
        source: Weak<dyn Source>,
        purpose: u32,
    ) -> TimerKey {
        static ORDER: AtomicU64 = AtomicU64::new(0);
        let key = TimerKey {
            at: Instant::now() + delay,
            order: ORDER.fetch_add(1, Ordering::Relaxed),
        };
        let mut timers = self.timers.lock();
        let earliest = timers
            .first_key_value()
            .is_none_or(|(first, _)| key < *first);
        timers.insert(key, Timer { source, purpose });
        drop(timers);
        if earliest {
            self.wake();
        }
        key
    }

    /// Takes a timer back. It may be running already.
    pub(in crate::soft) fn cancel(&self, key: TimerKey) {
        let cancelled = self.timers.lock().remove(&key);
        drop(cancelled);
    }

    pub(super) fn is_timer_due(&self) -> bool {
        let timers = self.timers.lock();
        let first = timers.first_key_value();
        first.is_some_and(|(key, _)| key.at <= Instant::now())
    }

    /// Runs what is due; returns how long until the next.
    pub(super) fn run_timers(&self) -> Option<Timespec> {
        loop {
            let now = Instant::now();
            let mut timers = self.timers.lock();
            let first = timers.first_entry()?;
            let at = first.key().at;
            if at > now {
                let left = at - now;
                return Some(Timespec {
                    tv_sec: left.as_secs() as i64,
                    tv_nsec: i64::from(left.subsec_nanos()),
                });
            }
            let due = first.remove();
            drop(timers);
            if let Some(source) = due.source.upgrade() {
                source.expired(due.purpose);
            }
        }
    }
}
