// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Finds out that the leader does not get on, because a signal's handler keeps it: then the engine
//! takes the work back.
//!
//! It is looked for now and then, and only while there are leaders, in programs that have handlers.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use rustix::event::Timespec;

use super::Engine;
use crate::soft::diag;

/// How often the leader is looked after. If it has left something undone for as long, it is relieved.
const PERIOD: Duration = Duration::from_millis(100);
/// How often there may be no leader before nothing is looked for any more.
const IDLE_MAX: u32 = 10;

/// What a look finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// There is no leader.
    Nobody,
    /// One that gets on, or has nothing to do.
    Fine,
    /// One that has something to do, and has done nothing since the last look.
    Idle,
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    GoOn,
    /// The engine takes the work back.
    Relieve,
    /// There is nobody to look after.
    Rest,
}

/// What the engine's thread keeps from one look to the next.
#[derive(Default)]
pub(super) struct Guard {
    /// When to look next; while there is nothing to look for, `None`.
    next: Option<Instant>,
    /// What was found last was a leader that did nothing.
    was_idle: bool,
    /// How often there was no leader.
    looks_in_vain: u32,
}

impl Engine {
    /// Looks after the leader if it is time. Returns how long the engine's thread may sleep, if not for
    /// `timeout`, which it would otherwise.
    pub(super) fn look_after_leader(
        &self,
        guard: &mut Guard,
        now: Instant,
        timeout: Option<Timespec>,
    ) -> Option<Timespec> {
        if !self.seat.is_guarded() {
            *guard = Guard::default();
            return timeout;
        }
        let mut next = *guard.next.get_or_insert(now + PERIOD);
        if next <= now {
            self.check_leader(guard);
            next = now + PERIOD;
            guard.next = Some(next);
        }
        let left = next.duration_since(now);
        let left = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        Some(match timeout {
            Some(sooner) if (sooner.tv_sec, sooner.tv_nsec) < (left.tv_sec, left.tv_nsec) => sooner,
            _ => left,
        })
    }

    fn check_leader(&self, guard: &mut Guard) {
        let seat = &self.seat;
        let found = if !seat.is_taken() {
            Found::Nobody
        } else {
            // In this order: a leader that has just done what there was has moved.
            // What is in shared memory does not come up at the seat while the carriers are looked at.
            let has_work = seat.is_leased() && (seat.has_something() || self.has_awake_carriers());
            let has_moved = seat.has_moved();
            if has_work && !has_moved {
                Found::Idle
            } else {
                Found::Fine
            }
        };
        match guard.consider(found) {
            Verdict::GoOn => {}
            Verdict::Relieve => {
                diag::debug(format_args!(
                    "a thread that waits does not get on: a signal's handler keeps it"
                ));
                self.end_lease();
            }
            Verdict::Rest => {
                seat.set_guarded(false);
                // Pairs with the fence of one that has taken the seat: if it has not seen this, it is seen
                // here.
                fence(Ordering::SeqCst);
                if seat.is_taken() {
                    seat.set_guarded(true);
                }
            }
        }
    }
}

impl Guard {
    fn consider(&mut self, found: Found) -> Verdict {
        let was_idle = std::mem::replace(&mut self.was_idle, found == Found::Idle);
        let vain = match found {
            Found::Nobody => self.looks_in_vain + 1,
            Found::Fine | Found::Idle => 0,
        };
        self.looks_in_vain = vain % IDLE_MAX;
        if self.was_idle && was_idle {
            Verdict::Relieve
        } else if vain == IDLE_MAX {
            Verdict::Rest
        } else {
            Verdict::GoOn
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_relieved_that_leaves_something_undone_twice() {
        let mut guard = Guard::default();
        assert_eq!(guard.consider(Found::Idle), Verdict::GoOn);
        assert_eq!(guard.consider(Found::Fine), Verdict::GoOn);
        assert_eq!(guard.consider(Found::Idle), Verdict::GoOn);
        assert_eq!(guard.consider(Found::Nobody), Verdict::GoOn);
        assert_eq!(guard.consider(Found::Idle), Verdict::GoOn);
        assert_eq!(guard.consider(Found::Idle), Verdict::Relieve);
    }

    #[test]
    fn without_leaders_there_is_an_end() {
        let mut guard = Guard::default();
        for _ in 0..2 {
            for _ in 1..IDLE_MAX {
                assert_eq!(guard.consider(Found::Nobody), Verdict::GoOn);
            }
            assert_eq!(guard.consider(Found::Fine), Verdict::GoOn);
            for _ in 1..IDLE_MAX {
                assert_eq!(guard.consider(Found::Nobody), Verdict::GoOn);
            }
            assert_eq!(guard.consider(Found::Nobody), Verdict::Rest);
        }
    }
}
