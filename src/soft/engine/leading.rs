// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! A thread that waits and does the engine's work meanwhile, as the engine sees it.

use std::sync::atomic::Ordering;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::{Driver, ENGINE, Engine, SEAT};
use crate::soft::leader::Leader;

impl Engine {
    /// Whether the engine is told of what comes up at the seat.
    pub(super) fn watch_seat(&self, watch: bool) {
        let flags = if watch {
            epoll::EventFlags::IN
        } else {
            epoll::EventFlags::ONESHOT
        };
        let data = epoll::EventData::new_u64(SEAT);
        let _ = epoll::modify(&self.epoll, self.seat.epoll(), data, flags);
    }

    /// Has the engine told of what comes up at the seat, whoever has it: that thread is busy, or leaves.
    pub(in crate::soft) fn end_lease(&self) {
        if self.seat.end_lease() {
            self.watch_seat(true);
            self.wake();
        }
    }

    /// For a thread that has polled or led, and waits for something else now: the engine need not find
    /// that out by its clock.
    pub(in crate::soft) fn take_back(&self) {
        self.take_over();
        // Also where there is a leader: that may be this thread, which a signal has led astray.
        self.end_lease();
    }

    /// As [`Engine::take_back`], unless another thread leads.
    pub(in crate::soft) fn take_back_from_itself(&self) {
        self.take_over();
        if self.seat.may_be_held_by_caller() {
            self.end_lease();
        }
    }

    /// Takes the lead, unless another thread has it.
    pub(in crate::soft) fn lead(&self) -> Option<Leader<'_>> {
        self.resume();
        Leader::new(self, &self.seat, || self.watch_seat(false))
    }

    /// The thread that leads ends without having given up the lead.
    pub(in crate::soft) fn lose_leader() {
        if let Some(engine) = ENGINE.get().get() {
            engine.seat.leave();
            engine.give_up_lead();
        }
    }

    /// A leader has gone. If there is no other one soon, the seat is the engine's again.
    pub(in crate::soft) fn give_up_lead(&self) {
        self.set_clock();
    }

    /// For a leader that a signal's handler may keep: has the engine look after it from now on.
    pub(in crate::soft) fn guard_leader(&self) {
        self.seat.set_guarded(true);
        self.wake();
    }

    /// Wakes the leader if it sleeps until there is something in this queue.
    pub(in crate::soft) fn rouse(queue: usize) {
        if let Some(engine) = ENGINE.get().get() {
            engine.seat.rouse(queue);
        }
    }

    /// Wakes the leader if it sleeps.
    pub(in crate::soft) fn rouse_any() {
        if let Some(engine) = ENGINE.get().get() {
            engine.seat.rouse_any();
        }
    }

    /// Looks as the leader does, for the so many-th time, and handles what is there.
    pub(in crate::soft) fn look_as_leader(&self, count: u32) -> Result<(), Errno> {
        self.look(Driver::Leader);
        let looks = self.looks.load(Ordering::Relaxed).max(1);
        if count.is_multiple_of(looks) {
            self.handle_seat(Some(&Timespec::default()), Driver::Leader)?;
        }
        Ok(())
    }

    /// For a leader that is going to sleep. Returns whether it may.
    pub(in crate::soft) fn may_leader_sleep(&self) -> bool {
        self.take_over();
        self.resume();
        // The program, if it is this thread that would, sends nothing that they could go with.
        self.run_delayed(true);
        self.rest()
    }
}
