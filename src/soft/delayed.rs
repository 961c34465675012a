// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! An acknowledgment that waits for a moment, since the program may send something that it can go with.
//!
//! To whoever waits for an answer, an acknowledgment that comes before it is no use, and costs both
//! sides a system call, or the other side a wake-up. Programs that do not answer, or take longer, are
//! found out: then acknowledgments go at once.

use std::sync::atomic::{AtomicU8, Ordering};

use super::spin::{Choice, Habit};

/// Nothing waits, and nobody is going to ask.
const NOTHING: u8 = 0;
/// It waits; when asked for the first time it goes on.
const FRESH: u8 = 1;
/// It was asked for once.
const AGED: u8 = 2;
/// It has gone. Somebody is still going to ask.
const GONE: u8 = 3;

/// What to do about it when the time for it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Soon,
    Now,
    Gone,
}

/// Whether a queue pair's acknowledgment waits.
#[derive(Default)]
pub(super) struct Delayed {
    state: AtomicU8,
    pays: Habit,
}

impl Delayed {
    /// Has it wait, if that pays. `ask` has somebody ask [`Delayed::is_due`] in a while.
    pub(super) fn begin(&self, ask: impl FnOnce() -> bool) -> bool {
        if self.pays.choose() == Choice::LeaveOut {
            return false;
        }
        // One that waits already keeps its time.
        let fresh = |state| matches!(state, NOTHING | GONE).then_some(FRESH);
        let before = self
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, fresh);
        if before != Ok(NOTHING) || ask() {
            return true;
        }
        self.state.store(NOTHING, Ordering::Release);
        false
    }

    /// The program has sent something, and the acknowledgment with it.
    pub(super) fn is_sent(&self) {
        let state = self.state.load(Ordering::Relaxed);
        if matches!(state, FRESH | AGED)
            && self
                .state
                .compare_exchange(state, GONE, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        {
            self.pays.make_up();
        }
    }

    /// For who asks, or says that it is to be now. The answer `Due::Soon` wants to be asked again.
    pub(super) fn is_due(&self, now: bool) -> Due {
        let waits_on = |state| state == FRESH && !now;
        let next = |state| Some(if waits_on(state) { AGED } else { NOTHING });
        // Never fails: there is a next one for each.
        match self
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next)
        {
            Ok(state) if waits_on(state) => Due::Soon,
            Ok(FRESH | AGED) => {
                // To wait in vain costs more than company saves.
                self.pays.came_out(true);
                self.pays.came_out(true);
                Due::Now
            }
            _ => Due::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_with_what_is_sent_in_time() {
        let delayed = Delayed::default();
        for _ in 0..100 {
            assert!(delayed.begin(|| true));
            assert_eq!(delayed.is_due(false), Due::Soon);
            // A second message does not give the first more time.
            assert!(delayed.begin(|| false));
            delayed.is_sent();
            assert_eq!(delayed.is_due(false), Due::Gone);
            // Nothing waits.
            delayed.is_sent();
            assert_eq!(delayed.is_due(false), Due::Gone);
        }
    }

    #[test]
    fn does_not_wait_for_a_program_that_does_not_answer() {
        let delayed = Delayed::default();
        let mut waits = 0;
        for _ in 0..200 {
            if delayed.begin(|| true) {
                waits += 1;
                assert_eq!(delayed.is_due(false), Due::Soon);
                assert_eq!(delayed.is_due(false), Due::Now);
                assert_eq!(delayed.is_due(false), Due::Gone);
            }
        }
        // A few times at first, then now and then.
        assert_eq!(waits, 4 + 1);
        // It answers again: after the first time that is seen at once.
        while !delayed.begin(|| true) {}
        for _ in 0..10 {
            delayed.is_sent();
            assert_eq!(delayed.is_due(false), Due::Gone);
            assert!(delayed.begin(|| true));
        }
    }

    #[test]
    fn does_not_wait_for_long_however_many_messages_come() {
        let delayed = Delayed::default();
        assert!(delayed.begin(|| true));
        assert_eq!(delayed.is_due(false), Due::Soon);
        assert!(delayed.begin(|| false));
        assert_eq!(delayed.is_due(false), Due::Now);
    }

    #[test]
    fn finds_out_that_half_of_the_answers_is_not_enough() {
        let delayed = Delayed::default();
        let mut waits = 0;
        for _ in 0..100 {
            // One that needs its acknowledgment before the program goes on, one that is answered.
            if delayed.begin(|| true) {
                waits += 1;
                assert_eq!(delayed.is_due(true), Due::Now);
            }
            if delayed.begin(|| true) {
                delayed.is_sent();
                assert_eq!(delayed.is_due(false), Due::Gone);
            }
        }
        assert!(waits < 12, "{waits}");
    }

    #[test]
    fn does_not_wait_if_nobody_can_ask() {
        let delayed = Delayed::default();
        assert!(!delayed.begin(|| false));
        assert_eq!(delayed.is_due(false), Due::Gone);
    }
}
