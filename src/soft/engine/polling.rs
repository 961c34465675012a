// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Threads that poll, and how the engine's thread leaves the sockets to them.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::read;

use super::sockets::SEATS_PER_SOCKETS;
use super::{Driver, Engine};

/// How long it leaves the sockets to a polling thread before it looks whether that still polls.
const LEASE_MIN: Duration = Duration::from_micros(50);
const LEASE_MAX: Duration = Duration::from_millis(1);
/// A thread that looks less often than this does not count as polling.
const POLL_PERIOD_MICROS: u64 = 10;

impl Engine {
    /// As [`Engine::poll`], for a program that looks for completions: after a wait it finds out that
    /// there is no further one, and waits again; that is no polling.
    pub(in crate::soft) fn poll_unless_waited(&self) {
        if !self.seat.was_left_just_now() {
            self.poll();
        }
    }

    /// Handles what is ready without waiting. For threads that poll.
    pub(in crate::soft) fn poll(&self) {
        if self.any_put_off.load(Ordering::Relaxed) {
            self.resume();
        }
        if let Some(_guard) = self.polling.try_lock() {
            // Not counted when another thread looks: that one may be held up, and then the
            // engine's thread must not leave the sockets to it.
            let polls = self.polls.fetch_add(1, Ordering::Relaxed);
            // Without any, each number is a multiple of 1.
            let looks = u64::from(self.looks.load(Ordering::Relaxed).max(1));
            if polls.is_multiple_of(looks.max(SEATS_PER_SOCKETS)) {
                self.dispatch(Some(Timespec::default()), Driver::Poller);
                if self.seat.is_leased() {
                    // Of which the engine's sockets do not tell then.
                    let _ = self.handle_seat(Some(&Timespec::default()), Driver::Poller);
                }
            } else if polls.is_multiple_of(looks) {
                // A failure shows with the others.
                let _ = self.handle_seat(Some(&Timespec::default()), Driver::Poller);
            } else {
                self.look(Driver::Poller);
            }
        }
    }

    /// For a thread that has polled and goes to sleep now: the engine need not find that out.
    pub(in crate::soft) fn take_over(&self) {
        if self.is_standing_down.load(Ordering::Relaxed) {
            self.takes_over.store(true, Ordering::Relaxed);
            self.wake();
        }
    }

    /// Leaves the sockets to a thread that polls, for as long as it does; otherwise both would
    /// wake up for everything. False if nobody polls any more; else there is something to do.
    pub(super) fn stand_down(&self) -> bool {
        let mut lease = LEASE_MIN;
        let mut polls = self.polls.load(Ordering::Relaxed);
        loop {
            if !self.rest_for(lease) {
                return !self.takes_over.swap(false, Ordering::Relaxed);
            }
            let before = std::mem::replace(&mut polls, self.polls.load(Ordering::Relaxed));
            let looks = polls.wrapping_sub(before);
            // Who handles one thing for so long (a flush, or without a processor) keeps others waiting.
            let is_held_up = looks == 0 && lease == LEASE_MAX;
            if !is_polling(looks, lease) && (is_held_up || !self.is_being_polled()) {
                return false;
            }
            if self.is_timer_due() {
                return true;
            }
            lease = (lease * 2).min(LEASE_MAX);
        }
    }

    /// Does nothing for a time but what the clock is for. False if it was woken before the end.
    fn rest_for(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut fds = [
                PollFd::new(&self.wake, PollFlags::IN),
                PollFd::new(&self.clock, PollFlags::IN),
            ];
            let timeout = Timespec {
                tv_sec: 0,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let result = poll(&mut fds, Some(&timeout));
            let [wake, clock] = fds.map(|fd| !fd.revents().is_empty());
            if clock {
                self.run_clock();
            }
            if wake || result.is_err() {
                let _ = read(&self.wake, &mut [0; 8]);
                return false;
            }
            if left.is_zero() || !clock {
                return true;
            }
        }
    }

    /// Whether a polling thread is looking at this moment, or handling what it has found: that is
    /// not to be done by two, and may take longer than polls are counted.
    pub(super) fn is_being_polled(&self) -> bool {
        self.polling.try_lock().is_none()
    }
}

/// Whether so many looks in that time are polling, not just what a program does after an event.
pub(super) fn is_polling(looks: u64, time: Duration) -> bool {
    looks > 2 && u128::from(looks) * u128::from(POLL_PERIOD_MICROS) >= time.as_micros()
}
