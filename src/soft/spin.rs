// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! For how long to look for something before sleeping.
//!
//! An answer on its way is here sooner than a sleeper is awake, so it pays to look; but not where what
//! is looked for needs the same processor, or takes longer. That is learned: each time in vain halves
//! the time, down to none, and each success brings it back. Now and then it is tried again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long to look at most, in nanoseconds.
const MAX: u32 = 50_000;
/// Less is not worth it.
const MIN: u32 = 2_000;
/// Sleeps after which it is tried again.
const RETRY: u32 = 64;

/// How well it has paid so far to look for one kind of thing. Any thread may use it; what two threads
/// learn at the same time may get lost.
pub(super) struct Spin {
    nanos: AtomicU32,
    sleeps: AtomicU32,
}

impl Spin {
    pub(super) const fn new() -> Self {
        Spin {
            nanos: AtomicU32::new(MAX),
            sleeps: AtomicU32::new(0),
        }
    }

    /// How long to look this time.
    pub(super) fn time(&self) -> Duration {
        let nanos = self.nanos.load(Ordering::Relaxed);
        if nanos >= MIN {
            return Duration::from_nanos(nanos.into());
        }
        let sleeps = self.sleeps.fetch_add(1, Ordering::Relaxed);
        if sleeps % RETRY == RETRY - 1 {
            Duration::from_nanos(MAX.into())
        } else {
            Duration::ZERO
        }
    }

    /// Something came while it was looked for.
    pub(super) fn succeeded(&self) {
        self.nanos.store(MAX, Ordering::Relaxed);
    }

    /// Nothing came in the time that [`Spin::time`] gave.
    pub(super) fn failed(&self) {
        let nanos = self.nanos.load(Ordering::Relaxed);
        self.nanos.store(nanos / 2, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learns_from_failure_and_success() {
        let spin = Spin::new();
        let max = Duration::from_nanos(MAX.into());
        assert_eq!(spin.time(), max);
        let mut times = Vec::new();
        while spin.time() > Duration::ZERO {
            times.push(spin.time());
            spin.failed();
        }
        assert!(times.is_sorted_by(|a, b| *a == 2 * *b), "{times:?}");
        assert_eq!(times.last(), Some(&Duration::from_nanos(3125)));
        spin.succeeded();
        assert_eq!(spin.time(), max);
    }

    #[test]
    fn tries_again_now_and_then() {
        let spin = Spin::new();
        for _ in 0..8 {
            spin.failed();
        }
        let tries = (0..3 * RETRY)
            .filter(|_| {
                let time = spin.time();
                spin.failed();
                time > Duration::ZERO
            })
            .count();
        assert_eq!(tries, 3);
    }
}
