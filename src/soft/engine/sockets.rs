// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Descriptors that the kernel watches: which there are, and what comes up there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, read};

use super::awake::LOOKS_PER_SOCKETS;
use super::{CLOCK, Driver, Engine, Readiness, SEAT, Source, Token, WAKE};
use crate::soft::diag;

const EVENTS: usize = 64;
/// Pause when the sockets cannot be waited for.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);
/// How often the sockets of connections are looked at for each time that the others are.
pub(super) const SEATS_PER_SOCKETS: u64 = 16;

pub(super) struct Slot {
    generation: u32,
    pub(super) source: Option<Arc<dyn Source>>,
}

#[derive(Default)]
pub(super) struct Slots {
    pub(super) all: Vec<Slot>,
    free: Vec<u32>,
}

impl Engine {
    /// Starts to watch a descriptor for bytes to read, and for room to write if asked.
    pub(in crate::soft) fn watch(
        &self,
        fd: impl AsFd,
        source: Arc<dyn Source>,
        write: bool,
    ) -> Result<Token, Errno> {
        self.watch_somewhere(fd, source, write, false)
    }

    /// Starts to watch a descriptor for bytes that a thread may be waiting for.
    pub(in crate::soft) fn watch_at_seat(
        &self,
        fd: impl AsFd,
        source: Arc<dyn Source>,
    ) -> Result<Token, Errno> {
        self.watch_somewhere(fd, source, false, true)
    }

    fn watch_somewhere(
        &self,
        fd: impl AsFd,
        source: Arc<dyn Source>,
        write: bool,
        at_seat: bool,
    ) -> Result<Token, Errno> {
        let token = {
            let mut slots = self.slots.lock();
            let index = slots.free.pop().unwrap_or_else(|| {
                slots.all.push(Slot {
                    generation: 0,
                    source: None,
                });
                (slots.all.len() - 1) as u32
            });
            match slots.all.get_mut(index as usize) {
                Some(slot) => {
                    slot.source = Some(source);
                    let number = u64::from(slot.generation) << 32 | u64::from(index);
                    Token { number, at_seat }
                }
                None => return Err(Errno::NOMEM),
            }
        };
        let data = epoll::EventData::new_u64(token.number);
        let added = epoll::add(self.place(token), fd, data, flags(write));
        if added.is_err() {
            self.forget(token);
        }
        added.map(|()| token)
    }

    /// Where it is watched.
    fn place(&self, token: Token) -> &OwnedFd {
        if token.at_seat {
            self.seat.epoll()
        } else {
            &self.epoll
        }
    }

    /// Changes whether room to write is of interest.
    pub(in crate::soft) fn rewatch(&self, fd: impl AsFd, token: Token, write: bool) {
        let data = epoll::EventData::new_u64(token.number);
        let _ = epoll::modify(self.place(token), fd, data, flags(write));
    }

    /// Does not look for bytes to read until [`Engine::rewatch`]; reports at most an end.
    pub(in crate::soft) fn mute(&self, fd: impl AsFd, token: Token) {
        let data = epoll::EventData::new_u64(token.number);
        let _ = epoll::modify(self.place(token), fd, data, epoll::EventFlags::ONESHOT);
    }

    /// Stops watching a descriptor; its source may still get an event that is under way.
    pub(in crate::soft) fn unwatch(&self, fd: impl AsFd, token: Token) {
        let _ = epoll::delete(self.place(token), fd);
        self.forget(token);
    }

    fn forget(&self, token: Token) {
        let mut slots = self.slots.lock();
        let index = token.number as u32;
        let mut dropped = None;
        if let Some(slot) = slots.all.get_mut(index as usize)
            && u64::from(slot.generation) == token.number >> 32
        {
            slot.generation = slot.generation.wrapping_add(1);
            dropped = slot.source.take();
            slots.free.push(index);
        }
        drop(slots);
        // Outside the lock: dropping the last reference may close sockets.
        drop(dropped);
    }

    fn find(&self, token: u64) -> Option<Arc<dyn Source>> {
        let slots = self.slots.lock();
        let slot = slots.all.get(token as u32 as usize)?;
        if u64::from(slot.generation) != token >> 32 {
            return None;
        }
        slot.source.clone()
    }

    /// Handles what carriers and sockets have, after waiting for the latter. Returns whether there
    /// was anything.
    pub(super) fn dispatch(&self, timeout: Option<Timespec>, driver: Driver) -> bool {
        let mut handled = false;
        if driver == Driver::Engine && !self.seat.is_leased() {
            for _ in 0..LOOKS_PER_SOCKETS {
                handled |= self.look(driver);
            }
        }
        let count = self.dispatches.fetch_add(1, Ordering::Relaxed);
        let now = timeout.filter(|time| *time == Timespec::default());
        let result = match &now {
            // The shorter way to what matters most.
            Some(now)
                if driver == Driver::Engine
                    && !count.is_multiple_of(SEATS_PER_SOCKETS)
                    && !self.seat.is_leased() =>
            {
                self.handle_seat(Some(now), driver)
            }
            _ => self.handle(&self.epoll, timeout.as_ref(), driver),
        };
        match result {
            Ok(any) => handled | any,
            Err(Errno::INTR) => handled,
            Err(e) => {
                static TOLD: AtomicBool = AtomicBool::new(false);
                if !TOLD.swap(true, Ordering::Relaxed) {
                    diag::warn(format_args!("waiting for sockets failed: {e}"));
                }
                if driver == Driver::Engine {
                    // Somebody has closed our descriptors; that must not cost a CPU as well.
                    std::thread::sleep(FAILURE_PAUSE);
                }
                handled
            }
        }
    }

    /// Handles what comes up at the seat. Returns whether there was anything.
    pub(super) fn handle_seat(
        &self,
        timeout: Option<&Timespec>,
        driver: Driver,
    ) -> Result<bool, Errno> {
        self.handle(self.seat.epoll(), timeout, driver)
    }

    /// Handles what sockets have, after waiting for them. Returns whether there was anything.
    fn handle(
        &self,
        epoll: &OwnedFd,
        timeout: Option<&Timespec>,
        driver: Driver,
    ) -> Result<bool, Errno> {
        let mut handled = false;
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        for event in epoll::wait(epoll, &mut events, timeout)?.0 {
            let token = { event.data }.u64();
            match token {
                WAKE => {
                    // Polling threads leave kicks to the engine's thread.
                    if driver == Driver::Engine {
                        let _ = read(&self.wake, &mut [0; 8]);
                    }
                    continue;
                }
                CLOCK => {
                    // To the engine's thread: when the lease is over, it has to look at carriers.
                    if driver == Driver::Engine {
                        self.run_clock();
                    }
                    continue;
                }
                SEAT => {
                    let now = Timespec::default();
                    handled |= self.handle_seat(Some(&now), driver).unwrap_or(false);
                    continue;
                }
                _ => {}
            }
            let flags = { event.flags };
            let gone = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            if let Some(source) = self.find(token) {
                handled = true;
                source.ready(
                    Readiness {
                        readable: gone || flags.contains(epoll::EventFlags::IN),
                        writable: gone || flags.contains(epoll::EventFlags::OUT),
                    },
                    driver,
                );
            }
        }
        Ok(handled)
    }
}

fn flags(write: bool) -> epoll::EventFlags {
    if write {
        epoll::EventFlags::IN | epoll::EventFlags::OUT
    } else {
        epoll::EventFlags::IN
    }
}
