// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! A thread that waits for a completion and does the engine's work meanwhile.
//!
//! If the engine's thread is woken by what arrives, and then wakes the thread that waits for it, two
//! threads are woken one after the other. So one thread that waits may take the lead: it looks and
//! sleeps at the seat, an epoll descriptor that has the sockets of all connections, and handles what
//! comes up there. The engine watches the seat as a whole, but not while it is let to leaders.
//!
//! The lease does not end when a leader goes, since a program that has waited once mostly waits again
//! soon, and nothing is gained if the engine is told of everything in between. It ends when there was
//! no leader for a while, as the engine's clock finds out.
//!
//! A process with memory that takes long to make durable (a file's, or much of it), and that peers may
//! have made so, has no leaders: whoever waits for something else is not to wait for that.
//!
//! A thread that sleeps in a system call for descriptors is interrupted by each signal that has a
//! handler, even one that is to restart system calls. Reading a completion channel's descriptor, which
//! is what a program expects of waiting, is not. So the leader asks how the program's handlers are.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

use libc::c_void;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, read, write};

use super::engine::Engine;
use super::sync::Lock;
use crate::sys::cancel::NotNow;
use crate::sys::fork::{Home, PerProcess};
use crate::sys::signals::Handlers;

/// For how long it is taken for granted that the program's handlers are what they were.
const HANDLERS_AGE: Duration = Duration::from_millis(100);

/// Where the leader sleeps.
pub(super) struct Seat {
    epoll: OwnedFd,
    rouse: OwnedFd,
    is_taken: AtomicBool,
    /// Who has it, as the C library names threads; 0 if nobody does.
    holder: AtomicUsize,
    /// The engine is not told of what comes up here.
    is_leased: AtomicBool,
    /// There was a leader since this was looked at last.
    is_used: AtomicBool,
    /// A leader has gone, and nobody has polled since.
    is_left: AtomicBool,
    /// The queue that is waited for by a leader that sleeps, or is about to; 0 without one.
    waits_for: AtomicUsize,
    /// How the program's handlers were when. For who has the seat.
    handlers: Lock<(Handlers, Instant)>,
    /// There were some: they may keep the leader.
    has_handlers: AtomicBool,
    /// The engine looks after the leader.
    is_guarded: AtomicBool,
    /// The leader has looked since the engine has looked after it.
    has_moved: AtomicBool,
    /// There were some of both kinds: which one has run cannot be told.
    is_barred: AtomicBool,
}

impl Seat {
    pub(super) fn new() -> Result<Self, Errno> {
        let handlers = Handlers::now();
        Ok(Seat {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            rouse: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_taken: AtomicBool::new(false),
            holder: AtomicUsize::new(0),
            is_leased: AtomicBool::new(false),
            is_used: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            waits_for: AtomicUsize::new(0),
            handlers: Lock::new((handlers, Instant::now())),
            has_handlers: AtomicBool::new(handlers.are_any()),
            is_guarded: AtomicBool::new(false),
            has_moved: AtomicBool::new(false),
            is_barred: AtomicBool::new(handlers.are_mixed()),
        })
    }

    /// Takes the seat if it is free; `lease` is called if it was the engine's until now.
    fn take(&self, lease: impl FnOnce()) -> bool {
        if self.is_barred.load(Ordering::Relaxed) || LongFlushes::are_expected() || !self.occupy() {
            return false;
        }
        if !self.is_leased() {
            if self.handlers.lock().1.elapsed() >= HANDLERS_AGE {
                self.update_handlers();
                if self.is_barred.load(Ordering::Relaxed) {
                    self.leave();
                    return false;
                }
            }
            lease();
            self.is_leased.store(true, Ordering::SeqCst);
        }
        self.is_used.store(true, Ordering::Relaxed);
        true
    }

    fn occupy(&self) -> bool {
        let taken = &self.is_taken;
        if taken.load(Ordering::Relaxed) || taken.swap(true, Ordering::SeqCst) {
            return false;
        }
        self.holder.store(this_thread(), Ordering::Relaxed);
        true
    }

    /// Gives it back.
    pub(super) fn leave(&self) {
        self.has_woken_up();
        self.is_left.store(true, Ordering::Relaxed);
        self.vacate();
    }

    fn vacate(&self) {
        self.holder.store(0, Ordering::Relaxed);
        self.is_taken.store(false, Ordering::SeqCst);
    }

    /// Looks at the program's handlers again. Returns whether one of them that ends system calls may
    /// have run since the last time.
    fn update_handlers(&self) -> bool {
        let now = Handlers::now();
        let (before, _) = std::mem::replace(&mut *self.handlers.lock(), (now, Instant::now()));
        self.has_handlers.store(now.are_any(), Ordering::Relaxed);
        if now.are_mixed() {
            self.is_barred.store(true, Ordering::Relaxed);
        }
        now.may_have_interrupted(before)
    }

    /// Whether somebody leads.
    pub(super) fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::SeqCst)
    }

    /// Whether the engine looks after the leader.
    pub(super) fn is_guarded(&self) -> bool {
        self.is_guarded.load(Ordering::Relaxed)
    }

    pub(super) fn set_guarded(&self, is_guarded: bool) {
        self.is_guarded.store(is_guarded, Ordering::Relaxed);
    }

    /// Whether a leader has looked since this was asked the last time.
    pub(super) fn has_moved(&self) -> bool {
        self.has_moved.swap(false, Ordering::Relaxed)
    }

    /// Whether something has come up here that nobody has handled.
    pub(super) fn has_something(&self) -> bool {
        let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())) == Ok(1)
    }

    /// Whether the engine has to leave the seat, and the carriers that are looked at, alone.
    pub(super) fn is_leased(&self) -> bool {
        self.is_leased.load(Ordering::SeqCst)
    }

    /// Ends the lease, with `end`, if there was no leader since this was asked before. False if there
    /// was; `None` if one is there, who will have this asked again, or if nothing is leased.
    pub(super) fn is_lease_over(&self, end: impl FnOnce()) -> Option<bool> {
        if !self.occupy() {
            return None;
        }
        let over = if !self.is_leased() {
            None
        } else if self.is_used.swap(false, Ordering::Relaxed) {
            Some(false)
        } else {
            self.is_leased.store(false, Ordering::SeqCst);
            end();
            Some(true)
        };
        self.vacate();
        over
    }

    /// Whether the calling thread leads; then it is in a signal's handler. If it cannot be told who does,
    /// because that thread is just coming or going, it may be the caller.
    pub(super) fn may_be_held_by_caller(&self) -> bool {
        match self.holder.load(Ordering::Relaxed) {
            0 => self.is_taken(),
            holder => holder == this_thread(),
        }
    }

    /// Ends the lease before its time, whoever has the seat. Returns whether there was one.
    pub(super) fn end_lease(&self) -> bool {
        self.is_leased.swap(false, Ordering::SeqCst)
    }

    pub(super) fn epoll(&self) -> &OwnedFd {
        &self.epoll
    }

    fn has_woken_up(&self) {
        self.waits_for.store(0, Ordering::Relaxed);
    }

    /// Wakes the leader if it sleeps until there is something in this queue. What there is was put
    /// there, with the queue locked, before.
    pub(super) fn rouse(&self, queue: usize) {
        let waits_for = &self.waits_for;
        if waits_for.load(Ordering::Relaxed) == queue
            && waits_for
                .compare_exchange(queue, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            let _ = write(&self.rouse, &1u64.to_ne_bytes());
        }
    }

    /// Wakes the leader if it sleeps.
    pub(super) fn rouse_any(&self) {
        match self.waits_for.load(Ordering::Relaxed) {
            0 => {}
            queue => self.rouse(queue),
        }
    }

    /// Whether a leader has gone since this was asked the last time.
    pub(super) fn was_left_just_now(&self) -> bool {
        self.is_left.load(Ordering::Relaxed) && self.is_left.swap(false, Ordering::Relaxed)
    }

    /// Sleeps until something comes up here, or the leader is woken.
    pub(super) fn sleep(&self) -> Result<(), Errno> {
        // Not at the seat itself: others may look there, and must not take the waking away.
        let mut fds = [
            PollFd::new(&self.epoll, PollFlags::IN),
            PollFd::new(&self.rouse, PollFlags::IN),
        ];
        let result = poll(&mut fds, None);
        self.has_woken_up();
        result?;
        let [seat, rouse] = fds.map(|fd| fd.revents());
        if !(seat | rouse).difference(PollFlags::IN).is_empty() {
            // Somebody has closed our descriptors.
            return Err(Errno::BADF);
        }
        if !rouse.is_empty() {
            let _ = read(&self.rouse, &mut [0; 8]);
        }
        Ok(())
    }
}

/// Names the calling thread.
fn this_thread() -> usize {
    // SAFETY: only asks.
    unsafe { libc::pthread_self() as usize }
}

/// As long as one of these lives, peers may ask for flushes that take long.
pub(super) struct LongFlushes(Home);

static LONG_FLUSHES: PerProcess<AtomicUsize> = PerProcess::new();

impl LongFlushes {
    pub(super) fn expect() -> Self {
        let home = Home::here();
        LONG_FLUSHES.get().fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence of a leader that is about to sleep.
        fence(Ordering::SeqCst);
        Engine::rouse_any();
        LongFlushes(home)
    }

    pub(super) fn are_expected() -> bool {
        LONG_FLUSHES.get().load(Ordering::Relaxed) != 0
    }
}

impl Drop for LongFlushes {
    fn drop(&mut self) {
        // A child does not count its parent's.
        if self.0.is_here() {
            LONG_FLUSHES.get().fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The thread that leads ends in the middle of its sleep.
extern "C" fn lose_leader(_: *mut c_void) {
    Engine::lose_leader();
}

/// The calling thread leads as long as this lives.
pub(super) struct Leader<'a> {
    engine: &'a Engine,
    seat: &'a Seat,
    looks: Cell<u32>,
}

impl<'a> Leader<'a> {
    /// Takes the seat if it is free; `lease` is called if it was the engine's until now.
    pub(super) fn new(engine: &'a Engine, seat: &'a Seat, lease: impl FnOnce()) -> Option<Self> {
        if !seat.take(lease) {
            return None;
        }
        if seat.has_handlers.load(Ordering::Relaxed) {
            // Pairs with the fence of the guard that finds no leader.
            fence(Ordering::SeqCst);
            if !seat.is_guarded() {
                engine.guard_leader();
            }
        }
        Some(Leader {
            engine,
            seat,
            looks: Cell::new(0),
        })
    }

    /// Handles what is ready without waiting.
    pub(super) fn look(&self) {
        self.seat.has_moved.store(true, Ordering::Relaxed);
        // A failure shows when it comes to sleeping.
        let _ = self.engine.look_as_leader(self.looks.get());
        self.looks.set(self.looks.get().wrapping_add(1));
    }

    /// Sleeps until something has come, unless there is something in this queue already (`is_empty`
    /// locks it). Ends with `INTR` as a read that the program's signals interrupt, and with `BUSY` if
    /// nobody is to lead any more.
    pub(super) fn sleep(
        &self,
        queue: usize,
        is_empty: impl FnOnce() -> bool,
        not_now: &NotNow,
    ) -> Result<(), Errno> {
        // The next look is to see all.
        self.looks.set(0);
        let may_sleep = self.engine.may_leader_sleep();
        // In this order: whoever fills the queue after this look at it sees that there is a sleeper.
        self.seat.waits_for.store(queue, Ordering::Relaxed);
        // Before the look at what is expected, and at carriers (see `Engine::may_sleep`), as well.
        fence(Ordering::SeqCst);
        if LongFlushes::are_expected() {
            self.seat.has_woken_up();
            return Err(Errno::BUSY);
        }
        if !may_sleep || !is_empty() || self.engine.has_awake_carriers() {
            self.seat.has_woken_up();
            return Ok(());
        }
        match not_now.except(lose_leader, || self.seat.sleep()) {
            Err(Errno::INTR) if !self.seat.update_handlers() => Ok(()),
            Ok(()) if LongFlushes::are_expected() => Err(Errno::BUSY),
            result => result,
        }
    }

    /// Leaves the seat to the engine, at once: what comes up is for others.
    pub(super) fn resign(self) {
        self.engine.end_lease();
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        // In this order: the engine's clock, when it tells, has to find the seat free.
        self.seat.leave();
        self.engine.give_up_lead();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_roused(seat: &Seat) -> bool {
        let mut fds = [PollFd::new(&seat.rouse, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())) == Ok(1)
    }

    #[test]
    fn a_lease_lasts_as_long_as_leaders_come() {
        let seat = Seat::new().unwrap();
        let never = || panic!("not now");
        assert_eq!(seat.is_lease_over(never), None);
        let mut leases = 0;
        assert!(seat.take(|| leases += 1) && seat.is_leased());
        assert!(!seat.take(never));
        // Whoever is there sees to it that the clock tells again.
        assert_eq!(seat.is_lease_over(never), None);
        seat.leave();
        assert_eq!(seat.is_lease_over(never), Some(false));
        assert!(seat.take(never));
        seat.leave();
        assert_eq!(seat.is_lease_over(never), Some(false));
        let mut ends = 0;
        assert_eq!(seat.is_lease_over(|| ends += 1), Some(true));
        assert_eq!(seat.is_lease_over(never), None);
        assert!(!seat.is_leased());
        assert!(seat.take(|| leases += 1));
        assert_eq!((leases, ends), (2, 1));
    }

    #[test]
    fn who_waits_for_a_queue_is_roused_for_that_once() {
        let seat = Seat::new().unwrap();
        seat.rouse(7);
        seat.rouse_any();
        assert!(!is_roused(&seat));
        seat.waits_for.store(7, Ordering::Relaxed);
        seat.rouse(8);
        assert!(!is_roused(&seat));
        seat.rouse(7);
        assert!(is_roused(&seat));
        seat.sleep().unwrap();
        assert!(!is_roused(&seat));
        seat.rouse(7);
        assert!(!is_roused(&seat));
        seat.waits_for.store(8, Ordering::Relaxed);
        seat.rouse_any();
        assert!(is_roused(&seat));
    }
}
