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
//! A thread that sleeps in a system call for descriptors is interrupted by each signal that has a
//! handler, even one that is to restart system calls. Reading a completion channel's descriptor, which
//! is what a program expects of waiting, is not. So the leader asks how the program's handlers are.

use std::cell::Cell;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, read, write};

use super::engine::{Engine, ROUSE};
use super::sync::Lock;
use crate::sys::signals::{self, Handlers};

/// Where the leader sleeps.
pub(super) struct Seat {
    epoll: OwnedFd,
    rouse: OwnedFd,
    taken: Lock<()>,
    /// The engine is not told of what comes up here.
    is_leased: AtomicBool,
    /// There was a leader since this was looked at last.
    is_used: AtomicBool,
    /// The queue that is waited for by a leader that sleeps, or is about to; 0 without one.
    waits_for: AtomicUsize,
    /// The program has handlers of both kinds: which one has run cannot be told.
    is_barred: AtomicBool,
}

impl Seat {
    pub(super) fn new() -> Result<Self, Errno> {
        let seat = Seat {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            rouse: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            taken: Lock::new(()),
            is_leased: AtomicBool::new(false),
            is_used: AtomicBool::new(false),
            waits_for: AtomicUsize::new(0),
            is_barred: AtomicBool::new(signals::handlers() == Handlers::Mixed),
        };
        let data = epoll::EventData::new_u64(ROUSE);
        epoll::add(&seat.epoll, &seat.rouse, data, epoll::EventFlags::IN)?;
        Ok(seat)
    }

    /// Takes the seat if it is free; `lease` is called if it was the engine's until now.
    pub(super) fn take(&self, lease: impl FnOnce()) -> Option<MutexGuard<'_, ()>> {
        if self.is_barred.load(Ordering::Relaxed) {
            return None;
        }
        let place = self.taken.try_lock()?;
        if !self.is_leased.swap(true, Ordering::SeqCst) {
            lease();
        }
        self.is_used.store(true, Ordering::Relaxed);
        Some(place)
    }

    /// Whether the engine has to leave the seat, and the carriers that are looked at, alone.
    pub(super) fn is_leased(&self) -> bool {
        self.is_leased.load(Ordering::SeqCst)
    }

    /// Ends the lease before its time. Returns whether there was one.
    pub(super) fn end_lease(&self) -> bool {
        self.is_leased.swap(false, Ordering::SeqCst)
    }

    /// Ends the lease, with `end`, if there was no leader since this was asked before. False if there
    /// was; `None` if one is there, who will have this asked again, or if nothing was leased.
    pub(super) fn is_lease_over(&self, end: impl FnOnce()) -> Option<bool> {
        let _place = self.taken.try_lock()?;
        if !self.is_leased() {
            return None;
        }
        if self.is_used.swap(false, Ordering::Relaxed) {
            return Some(false);
        }
        self.is_leased.store(false, Ordering::SeqCst);
        end();
        Some(true)
    }

    pub(super) fn epoll(&self) -> &OwnedFd {
        &self.epoll
    }

    pub(super) fn has_woken_up(&self) {
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

    /// The descriptor that wakes the leader has done so.
    pub(super) fn is_roused(&self) {
        let _ = read(&self.rouse, &mut [0; 8]);
    }
}

/// The calling thread leads as long as this lives.
pub(super) struct Leader<'a> {
    engine: &'a Engine,
    seat: &'a Seat,
    place: Option<MutexGuard<'a, ()>>,
    looks: Cell<u32>,
}

impl<'a> Leader<'a> {
    pub(super) fn new(engine: &'a Engine, seat: &'a Seat, place: MutexGuard<'a, ()>) -> Self {
        Leader {
            engine,
            seat,
            place: Some(place),
            looks: Cell::new(0),
        }
    }

    /// Handles what is ready without waiting.
    pub(super) fn look(&self) {
        self.looks.set(self.looks.get().wrapping_add(1));
        // A failure shows when it comes to sleeping.
        let _ = self.engine.look_as_leader(self.looks.get());
    }

    /// Sleeps until something has come, and handles it, unless there is something in this queue
    /// already (`is_empty` locks it). Ends with `INTR` as a read that the program's signals interrupt.
    pub(super) fn sleep(&self, queue: usize, is_empty: impl FnOnce() -> bool) -> Result<(), Errno> {
        // In this order: whoever fills the queue after this look at it sees that there is a sleeper.
        self.seat.waits_for.store(queue, Ordering::Relaxed);
        // Before the look at the carriers as well: see `Engine::may_sleep`.
        fence(Ordering::SeqCst);
        if !is_empty() {
            self.seat.has_woken_up();
            return Ok(());
        }
        match self.engine.sleep_as_leader() {
            Err(Errno::INTR) => match signals::handlers() {
                Handlers::Restarting => Ok(()),
                Handlers::Interrupting => Err(Errno::INTR),
                Handlers::Mixed => {
                    self.seat.is_barred.store(true, Ordering::Relaxed);
                    Err(Errno::INTR)
                }
            },
            result => result,
        }
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        // In this order: the engine's clock, when it tells, has to find the seat free.
        drop(self.place.take());
        self.engine.give_up_lead();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn is_roused(seat: &Seat) -> bool {
        let mut fds = [PollFd::new(&seat.epoll, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())) == Ok(1)
    }

    #[test]
    fn a_lease_lasts_as_long_as_leaders_come() {
        let seat = Seat::new().unwrap();
        let never = || panic!("not now");
        assert_eq!(seat.is_lease_over(never), None);
        let mut leases = 0;
        let first = seat.take(|| leases += 1);
        assert!(first.is_some() && seat.is_leased());
        assert!(seat.take(never).is_none());
        // Whoever is there sees to it that the clock tells again.
        assert_eq!(seat.is_lease_over(never), None);
        drop(first);
        assert_eq!(seat.is_lease_over(never), Some(false));
        assert!(seat.take(never).is_some());
        assert_eq!(seat.is_lease_over(never), Some(false));
        let mut ends = 0;
        assert_eq!(seat.is_lease_over(|| ends += 1), Some(true));
        assert_eq!(seat.is_lease_over(never), None);
        assert!(!seat.is_leased());
        assert!(seat.take(|| leases += 1).is_some());
        assert_eq!((leases, ends), (2, 1));
        assert!(seat.end_lease());
        assert!(!seat.end_lease());
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
        seat.is_roused();
        assert!(!is_roused(&seat));
        seat.rouse(7);
        assert!(!is_roused(&seat));
        seat.waits_for.store(8, Ordering::Relaxed);
        seat.rouse_any();
        assert!(is_roused(&seat));
    }
}
