// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The engine's own thread, and one that stands in for it.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use rustix::event::Timespec;

use super::guard::Guard;
use super::polling::is_polling;
use super::{Driver, Engine};
use crate::soft::spin::Spin;

/// How often, in nanoseconds, a stand-in looks whether it is still needed.
const STAND_IN_LOOK: i64 = 20_000_000;
/// For how long it is watched how often threads look.
const POLL_WINDOW: Duration = Duration::from_micros(20);

impl Engine {
    pub(super) fn run(&self) {
        let spin = Spin::default();
        // How long to look since when.
        let mut looking: Option<(Duration, Instant)> = None;
        let mut since = Instant::now();
        let mut polls = 0;
        let mut guard = Guard::default();
        loop {
            let timeout = self.run_timers();
            self.run_kicks();
            let now = Instant::now();
            let timeout = self.look_after_leader(&mut guard, now, timeout);
            let looked = self.polls.load(Ordering::Relaxed);
            let time = now.duration_since(since);
            if time >= POLL_WINDOW {
                let looks = looked.wrapping_sub(polls);
                let is_polled = is_polling(looks, time) || (looks > 0 && self.is_being_polled());
                (since, polls) = (now, looked);
                if is_polled {
                    self.allow_to_put_off(true);
                    let goes_on = self.stand_down();
                    self.allow_to_put_off(false);
                    // Nothing was waited for meanwhile.
                    looking = None;
                    if !goes_on {
                        (since, polls) = (Instant::now(), self.polls.load(Ordering::Relaxed));
                    }
                    continue;
                }
            }
            let looks = looking.is_some_and(|(time, begin)| now.duration_since(begin) < time);
            if !looks && let Some((time, _)) = looking.take() {
                spin.looked(time, true);
            }
            let timeout = if looks || !self.may_sleep() {
                Some(Timespec::default())
            } else {
                timeout
            };
            if self.dispatch(timeout, Driver::Engine) {
                if let Some((time, _)) = looking {
                    spin.looked(time, false);
                }
                // More may come right after.
                looking = Some((spin.time(), Instant::now()));
            }
        }
    }

    /// Whether a thread of the engine may sleep: carriers are at rest, or somebody else's.
    pub(super) fn may_sleep(&self) -> bool {
        if !self.seat.is_leased() {
            return self.rest();
        }
        // Pairs with the fence of a leader that is about to sleep: if it has not seen that there are
        // carriers to be looked at, it is seen here that it sleeps.
        fence(Ordering::SeqCst);
        if self.has_awake_carriers() {
            self.seat.rouse_any();
        }
        true
    }

    /// Has another thread do the engine's work until the result is dropped, as the caller, which
    /// may be the engine's thread, will be busy for long. `None` if there can be no more threads.
    pub(in crate::soft) fn stand_in(&'static self) -> Option<StandIn> {
        let mut stand_ins = self.stand_ins.lock();
        if stand_ins.needed == stand_ins.running {
            let all = SignalsBlocked::new();
            let started = std::thread::Builder::new()
                .name("rpma-soft-2".into())
                .spawn(|| self.run_while_needed());
            drop(all);
            started.ok()?;
            stand_ins.running += 1;
        }
        stand_ins.needed += 1;
        Some(StandIn(self))
    }

    fn run_while_needed(&self) {
        loop {
            let next = self.run_timers();
            self.run_kicks();
            // Here, where nothing is left undone that this thread was woken for.
            if self.stand_ins.lock().let_go() {
                break;
            }
            let timeout = match next {
                _ if !self.may_sleep() => 0,
                Some(next) if next.tv_sec == 0 => next.tv_nsec.min(STAND_IN_LOOK),
                _ => STAND_IN_LOOK,
            };
            self.dispatch(
                Some(Timespec {
                    tv_sec: 0,
                    tv_nsec: timeout,
                }),
                Driver::Engine,
            );
        }
        // The engine's thread may not know of the next timer.
        self.wake();
    }
}

/// Threads that stand in for the engine's.
#[derive(Default)]
pub(super) struct StandIns {
    needed: usize,
    running: usize,
}

impl StandIns {
    /// Whether the thread that asks is one too many, and ends. Until it asks, it may be needed again.
    fn let_go(&mut self) -> bool {
        let over = self.running > self.needed;
        self.running -= usize::from(over);
        over
    }
}

/// As long as it lives, another thread does the engine's work.
pub(in crate::soft) struct StandIn(&'static Engine);

impl Drop for StandIn {
    fn drop(&mut self) {
        self.0.stand_ins.lock().needed -= 1;
    }
}

/// Blocks all signals for the calling thread; a thread that it starts inherits that.
pub(super) struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    pub(super) fn new() -> Self {
        // SAFETY: both sets are plain values that the calls fill.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            SignalsBlocked(before)
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: restores the mask that was read before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut());
        }
    }
}
