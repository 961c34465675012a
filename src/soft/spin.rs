// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Whether to look for something for a moment before sleeping until it comes, and whether to do other
//! things that may be in vain.
//!
//! An answer on its way is here sooner than a sleeper is awake, so it pays to look; but not where what
//! is looked for needs the same processor, or takes longer. After some times in vain without one success
//! in between it is to sleep at once, and only now and then tried again, more and more seldom.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long to look.
const LOOK: Duration = Duration::from_micros(50);
/// How long when it is tried again: where both sides sleep, an answer takes longer than it would otherwise.
const LOOK_AGAIN: Duration = Duration::from_micros(150);
/// How often in vain until it is given up.
const FAILURES: u32 = 8;
/// How often it is left out until it is tried again, at first.
const LEFT_OUT: u32 = 64;
/// How often that doubles.
const DOUBLINGS: u32 = 4;

/// How well something has paid so far that may be in vain. Any thread may use it; what two threads
/// learn at the same time may get lost.
#[derive(Default)]
pub(super) struct Habit {
    /// In vain, since the last success.
    failures: AtomicU32,
    /// Since it was tried last.
    left_out: AtomicU32,
}

/// What to do about it this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Do,
    /// It has not paid for a while.
    TryAgain,
    LeaveOut,
}

impl Habit {
    /// [`Habit::came_out`] wants to know what came of it unless it was left out.
    pub(super) fn choose(&self) -> Choice {
        let failures = self.failures.load(Ordering::Relaxed);
        let Some(retries) = failures.checked_sub(FAILURES) else {
            return Choice::Do;
        };
        if self.left_out.fetch_add(1, Ordering::Relaxed) + 1 < LEFT_OUT << retries {
            return Choice::LeaveOut;
        }
        self.left_out.store(0, Ordering::Relaxed);
        Choice::TryAgain
    }

    /// It was not in vain, which does not make up for all the times before. But it is to be tried again
    /// at once: if it goes on like this, it is soon made up for.
    pub(super) fn make_up(&self) {
        let failures = self.failures.load(Ordering::Relaxed);
        self.failures
            .store(failures.saturating_sub(1), Ordering::Relaxed);
        if failures > FAILURES {
            self.left_out
                .store(LEFT_OUT << DOUBLINGS, Ordering::Relaxed);
        }
    }

    pub(super) fn came_out(&self, in_vain: bool) {
        let before = self.failures.load(Ordering::Relaxed);
        let failures = if in_vain {
            (before + 1).min(FAILURES + DOUBLINGS)
        } else if before >= FAILURES {
            // When it is tried again, that may be luck: the next time is to show.
            FAILURES - 1
        } else {
            0
        };
        self.failures.store(failures, Ordering::Relaxed);
    }
}

/// How well it has paid so far to look for one kind of thing.
#[derive(Default)]
pub(super) struct Spin(Habit);

impl Spin {
    /// How long to look this time; [`Spin::looked`] wants to know what came of it.
    pub(super) fn time(&self) -> Duration {
        match self.0.choose() {
            Choice::Do => LOOK,
            Choice::TryAgain => LOOK_AGAIN,
            Choice::LeaveOut => Duration::ZERO,
        }
    }

    /// It was looked for so long at most, and something has come meanwhile, or not.
    pub(super) fn looked(&self, time: Duration, in_vain: bool) {
        if !time.is_zero() {
            self.0.came_out(in_vain);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits so often, in vain each time but the last of so many; how often it looked.
    fn looks(spin: &Spin, waits: u32, success_each: u32) -> usize {
        (1..=waits)
            .filter(|wait| {
                let time = spin.time();
                spin.looked(time, wait % success_each != 0);
                !time.is_zero()
            })
            .count()
    }

    #[test]
    fn goes_on_as_long_as_there_are_successes() {
        assert_eq!(looks(&Spin::default(), 640, 1), 640);
        assert_eq!(looks(&Spin::default(), 640, FAILURES), 640);
    }

    #[test]
    fn gives_up_and_tries_again_more_and_more_seldom() {
        let spin = Spin::default();
        assert_eq!(looks(&spin, FAILURES, u32::MAX), FAILURES as usize);
        for doublings in [0, 1, 2, 3, 4, 4, 4] {
            // What comes while nobody looks is no success.
            assert_eq!(looks(&spin, (LEFT_OUT << doublings) - 1, 1), 0);
            assert_eq!(looks(&spin, 1, u32::MAX), 1);
        }
        // One success is not enough, but two are.
        assert_eq!(looks(&spin, LEFT_OUT << DOUBLINGS, 1), 1);
        assert_eq!(looks(&spin, LEFT_OUT, u32::MAX), 1);
        assert_eq!(looks(&spin, 1, 1), 1);
        assert_eq!(looks(&spin, 100, 1), 100);
    }
}
