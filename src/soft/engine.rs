// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What keeps the fabric going: one thread per process that waits for sockets and timers.
//!
//! The thread starts with the first use of the fabric, has all signals blocked, and sleeps while
//! nothing happens. Threads that poll a completion queue drive the same sockets themselves
//! ([`Engine::poll`]), so that a busy program needs no hand-off.
//!
//! Carriers in shared memory are looked at by whoever looks at the sockets, as long as they are
//! in use; when that ends they are put to rest, and then wake the engine, or the leader, through a
//! socket.
//!
//! The sockets of connections are watched at the seat (`leader.rs`), which the engine watches as one
//! descriptor, and leaves to a thread that waits for completions, together with the carriers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, read, write};
use rustix::process::{Pid, getpid};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::carrier::Carrier;
use super::diag;
use super::leader::{Leader, Seat};
use super::spin::Spin;
use super::sync::Lock;
use crate::sys::fork::{self, PerProcess};

/// What a descriptor is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Readiness {
    pub readable: bool,
    pub writable: bool,
}

/// Whose thread handles what is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// The engine's own, or one that stands in for it.
    Engine,
    /// One that waits for a completion and has the lead.
    Leader,
    /// One that polls, and may not come back.
    Poller,
}

impl Driver {
    /// Whether it waits for what another thread is working at.
    pub(super) fn waits(self) -> bool {
        self != Driver::Poller
    }
}

/// Something that the engine watches or calls.
pub(super) trait Source: Send + Sync {
    /// Its descriptor is ready. The source may skip what another thread is working at already if
    /// `driver` does not wait.
    fn ready(self: Arc<Self>, readiness: Readiness, driver: Driver);

    /// Its carrier was looked at and is ready, or may be; skipping as above. Returns whether there
    /// was something.
    fn looked(self: Arc<Self>, readiness: Readiness, driver: Driver) -> bool {
        let _ = (readiness, driver);
        false
    }

    /// A timer that was set with this purpose has expired.
    fn expired(self: Arc<Self>, purpose: u32) {
        let _ = purpose;
    }

    /// Somebody asked for attention with [`Engine::kick`].
    fn kicked(self: Arc<Self>) {}

    /// What was put off with [`Engine::put_off`] is due.
    fn resumed(self: Arc<Self>) {}

    /// Some time has gone by since [`Engine::delay`], or it is to be now. Returns whether it wants to be
    /// asked again.
    fn delayed(self: Arc<Self>, now: bool) -> bool {
        let _ = now;
        false
    }

    /// The process ends. Nobody may be waited for but for a moment: whoever holds a lock may not run any
    /// more.
    fn ends(self: Arc<Self>) {}
}

/// Names a watched descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    number: u64,
    /// It is watched at the seat, not by the engine itself.
    at_seat: bool,
}

struct Slot {
    generation: u32,
    source: Option<Arc<dyn Source>>,
}

#[derive(Default)]
struct Slots {
    all: Vec<Slot>,
    free: Vec<u32>,
}

/// Sources that have something to send that others may join.
#[derive(Default)]
struct PutOff {
    /// Threads poll so often that it will not be long.
    is_possible: bool,
    sources: Vec<Arc<dyn Source>>,
}

/// A carrier that is looked at.
struct Watched {
    source: Arc<dyn Source>,
    carrier: Arc<dyn Carrier>,
    /// For a socket, which is asked directly: what names it while it is not.
    socket: Option<Token>,
    /// How often it was looked at since there was something.
    idle: AtomicU32,
}

struct Timer {
    source: std::sync::Weak<dyn Source>,
    purpose: u32,
}

/// Names a timer that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TimerKey {
    at: Instant,
    order: u64,
}

impl TimerKey {
    pub(super) fn is_due(self) -> bool {
        self.at <= Instant::now()
    }
}

pub(super) struct Engine {
    /// Whose it is.
    process: Pid,
    epoll: OwnedFd,
    wake: OwnedFd,
    seat: Seat,
    /// Tells when the lease of the seat is over, and when to ask what is delayed.
    clock: OwnedFd,
    /// It is going to.
    is_clock_set: AtomicBool,
    /// Sources that may have something to send soon anyway, and otherwise later.
    delayed: Lock<Vec<Arc<dyn Source>>>,
    slots: Lock<Slots>,
    timers: Lock<BTreeMap<TimerKey, Timer>>,
    kicks: Lock<Vec<Arc<dyn Source>>>,
    /// Carriers that are looked at; whoever does so works on a copy.
    awake: Lock<Arc<Vec<Arc<Watched>>>>,
    /// How often threads that poll or lead look at them for each time that they look at the other
    /// sockets; 0 if there are none.
    looks: AtomicU32,
    put_off: Lock<PutOff>,
    /// Whether something was put off.
    any_put_off: AtomicBool,
    /// Held by a polling thread, so that one at a time looks for events.
    polling: Lock<()>,
    /// How often sockets were looked at.
    dispatches: AtomicU64,
    /// How often polling threads have looked.
    polls: AtomicU64,
    /// The engine's thread leaves the sockets to them.
    is_standing_down: AtomicBool,
    /// It shall not do so any more.
    takes_over: AtomicBool,
}

static ENGINE: PerProcess<OnceCell<Engine>> = PerProcess::new();

/// Token of the descriptor that wakes the engine's thread.
const WAKE: u64 = u64::MAX;
/// Token of the clock.
const CLOCK: u64 = u64::MAX - 1;
/// Token of the seat, as a whole.
const SEAT: u64 = u64::MAX - 2;
const EVENTS: usize = 64;
/// After so long it is looked whether there was a leader, and whether what is delayed has gone by
/// itself; if not for the second time, it is over.
const CLOCK_NANOS: i64 = 150_000;
/// How long it leaves the sockets to a polling thread before it looks whether that still polls.
const LEASE_MIN: Duration = Duration::from_micros(50);
const LEASE_MAX: Duration = Duration::from_millis(1);
/// How often, in nanoseconds, a stand-in looks whether it is still needed.
const STAND_IN_LOOK: i64 = 20_000_000;
/// Pause when the sockets cannot be waited for.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);
/// How often carriers are looked at for each time that sockets are: one that is a socket itself costs
/// as much as that.
const LOOKS_PER_SOCKETS: u32 = 16;
/// The same for threads that poll, where all carriers are in shared memory.
const CHEAP_LOOKS_PER_SOCKETS: u32 = 64;
/// How often the sockets of connections are looked at for each time that the others are.
const SEATS_PER_SOCKETS: u64 = 16;
/// How often a carrier is looked at in vain before it is put to rest while others are in use.
const LOOKS_IN_VAIN: u32 = 1 << 16;
/// Sockets that are asked directly at a time.
const DIRECT_MAX: usize = 1;
/// A thread that looks less often than this does not count as polling.
const POLL_PERIOD_MICROS: u64 = 10;
/// For how long that is watched.
const POLL_WINDOW: Duration = Duration::from_micros(20);

/// This process's engine, started if it is not running yet.
pub(super) fn engine() -> Result<&'static Engine, Errno> {
    ENGINE.get().get_or_try_init(Engine::start)
}

impl Engine {
    fn start() -> Result<Self, Errno> {
        let engine = Engine {
            process: getpid(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            seat: Seat::new()?,
            clock: timerfd_create(
                TimerfdClockId::Monotonic,
                TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
            )?,
            is_clock_set: AtomicBool::new(false),
            delayed: Lock::default(),
            slots: Lock::default(),
            timers: Lock::default(),
            kicks: Lock::default(),
            awake: Lock::default(),
            looks: AtomicU32::new(0),
            put_off: Lock::default(),
            any_put_off: AtomicBool::new(false),
            polling: Lock::new(()),
            dispatches: AtomicU64::new(0),
            polls: AtomicU64::new(0),
            is_standing_down: AtomicBool::new(false),
            takes_over: AtomicBool::new(false),
        };
        for (fd, token) in [
            (&engine.wake, WAKE),
            (&engine.clock, CLOCK),
            (engine.seat.epoll(), SEAT),
        ] {
            let data = epoll::EventData::new_u64(token);
            epoll::add(&engine.epoll, fd, data, epoll::EventFlags::IN)?;
        }
        if !fork::watch() {
            return Err(Errno::NOMEM);
        }
        let cell = ENGINE.get();
        let all = SignalsBlocked::new();
        std::thread::Builder::new()
            .name("rpma-soft".into())
            .spawn(|| {
                // Waits until `start` has finished.
                cell.wait().run();
            })
            .map_err(|_| Errno::AGAIN)?;
        drop(all);
        Ok(engine)
    }

    /// Starts to watch a descriptor for bytes to read, and for room to write if asked.
    pub(super) fn watch(
        &self,
        fd: impl AsFd,
        source: Arc<dyn Source>,
        write: bool,
    ) -> Result<Token, Errno> {
        self.watch_somewhere(fd, source, write, false)
    }

    /// Starts to watch a descriptor for bytes that a thread may be waiting for.
    pub(super) fn watch_at_seat(
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
    pub(super) fn rewatch(&self, fd: impl AsFd, token: Token, write: bool) {
        let data = epoll::EventData::new_u64(token.number);
        let _ = epoll::modify(self.place(token), fd, data, flags(write));
    }

    /// Does not look for bytes to read until [`Engine::rewatch`]; reports at most an end.
    pub(super) fn mute(&self, fd: impl AsFd, token: Token) {
        let data = epoll::EventData::new_u64(token.number);
        let _ = epoll::modify(self.place(token), fd, data, epoll::EventFlags::ONESHOT);
    }

    /// Has another thread do the engine's work until the result is dropped, as the caller, which
    /// may be the engine's thread, will be busy for long. `None` if there can be no more threads.
    pub(super) fn stand_in(&'static self) -> Option<StandIn> {
        let done = Arc::new(AtomicBool::new(false));
        let guard = StandIn(Arc::clone(&done));
        let all = SignalsBlocked::new();
        let started = std::thread::Builder::new()
            .name("rpma-soft-2".into())
            .spawn(move || self.run_until(&done));
        drop(all);
        started.ok().map(|_| guard)
    }

    fn run_until(&self, done: &AtomicBool) {
        loop {
            let next = self.run_timers();
            self.run_kicks();
            // Here, where nothing is left undone that this thread was woken for.
            if done.load(Ordering::Acquire) {
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

    /// Stops watching a descriptor; its source may still get an event that is under way.
    pub(super) fn unwatch(&self, fd: impl AsFd, token: Token) {
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

    /// Calls `source` after a time, unless it is gone by then.
    pub(super) fn after(
        &self,
        delay: Duration,
        source: std::sync::Weak<dyn Source>,
        purpose: u32,
    ) -> TimerKey {
        static ORDER: AtomicU64 = AtomicU64::new(0);
        let key = TimerKey {
            at: Instant::now() + delay,
            order: ORDER.fetch_add(1, Ordering::Relaxed),
        };
        let mut timers = self.timers.lock();
        let earliest = timers
            .first_key_value()
            .is_none_or(|(first, _)| key < *first);
        timers.insert(key, Timer { source, purpose });
        drop(timers);
        if earliest {
            self.wake();
        }
        key
    }

    /// Takes a timer back. It may be running already.
    pub(super) fn cancel(&self, key: TimerKey) {
        let cancelled = self.timers.lock().remove(&key);
        drop(cancelled);
    }

    /// Has `source` called from the engine's thread, where no lock is held.
    pub(super) fn kick(&self, source: Arc<dyn Source>) {
        self.kicks.lock().push(source);
        self.wake();
    }

    fn wake(&self) {
        let _ = write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Has `source` called when a thread polls the next time; false if none does so at the moment.
    pub(super) fn put_off(&self, source: Arc<dyn Source>) -> bool {
        let mut put_off = self.put_off.lock();
        if put_off.is_possible {
            put_off.sources.push(source);
            self.any_put_off.store(true, Ordering::Relaxed);
        }
        put_off.is_possible
    }

    fn allow_to_put_off(&self, is_possible: bool) {
        self.is_standing_down.store(is_possible, Ordering::Relaxed);
        self.put_off.lock().is_possible = is_possible;
        self.resume();
    }

    fn resume(&self) {
        if self.any_put_off.swap(false, Ordering::Relaxed) {
            let sources = std::mem::take(&mut self.put_off.lock().sources);
            for source in sources {
                source.resumed();
            }
        }
    }

    /// Asks `source` a little later whether it has something to send still.
    pub(super) fn delay(&self, source: Arc<dyn Source>) {
        self.delayed.lock().push(source);
        self.set_clock();
    }

    fn set_clock(&self) {
        if !self.is_clock_set.swap(true, Ordering::SeqCst) {
            let mut once = Itimerspec {
                it_interval: Timespec::default(),
                it_value: Timespec::default(),
            };
            once.it_value.tv_nsec = CLOCK_NANOS;
            // Cannot fail: the timer is our own.
            let _ = timerfd_settime(&self.clock, TimerfdTimerFlags::empty(), &once);
        }
    }

    /// The clock has told.
    fn run_clock(&self) {
        let _ = read(&self.clock, &mut [0; 8]);
        // First: what comes up meanwhile has the clock set again.
        self.is_clock_set.swap(false, Ordering::SeqCst);
        let is_left = self.run_delayed(false);
        let lease = self.seat.is_lease_over(|| self.watch_seat(true));
        if is_left || lease == Some(false) {
            self.set_clock();
        }
    }

    /// Returns whether something is still delayed.
    fn run_delayed(&self, now: bool) -> bool {
        let mut sources = std::mem::take(&mut *self.delayed.lock());
        if sources.is_empty() {
            return false;
        }
        // Unlocked: they may have something to send, and more may be delayed meanwhile.
        sources.retain(|source| Arc::clone(source).delayed(now));
        let mut delayed = self.delayed.lock();
        // Into the older list, whose memory is kept.
        sources.append(&mut delayed);
        *delayed = sources;
        !delayed.is_empty()
    }

    /// For the end of the process: has sent what can be without waiting for a peer. An acknowledgment that got
    /// lost would tell the peer that its message had.
    pub(super) fn end() {
        let Some(engine) = ENGINE.get().get() else {
            return;
        };
        // A child that was made past the C library has the parent's sockets, and takes them for its own.
        if engine.process != getpid() {
            return;
        }
        let Some(slots) = engine.slots.lock_soon() else {
            return;
        };
        let sources: Vec<_> = slots.all.iter().filter_map(|s| s.source.clone()).collect();
        drop(slots);
        for source in sources {
            source.ends();
        }
    }

    /// Whether the engine is told of what comes up at the seat.
    fn watch_seat(&self, watch: bool) {
        let flags = if watch {
            epoll::EventFlags::IN
        } else {
            epoll::EventFlags::ONESHOT
        };
        let data = epoll::EventData::new_u64(SEAT);
        let _ = epoll::modify(&self.epoll, self.seat.epoll(), data, flags);
    }

    /// Has the engine told of what comes up at the seat, whoever has it: that thread is busy, or leaves.
    pub(super) fn end_lease(&self) {
        if self.seat.end_lease() {
            self.watch_seat(true);
            self.wake();
        }
    }

    /// For a thread that has polled or led, and waits for something else now: the engine need not find
    /// that out by its clock.
    pub(super) fn take_back(&self) {
        self.take_over();
        // Also where there is a leader: that may be this thread, which a signal has led astray.
        self.end_lease();
    }

    /// As [`Engine::take_back`], unless another thread leads.
    pub(super) fn take_back_from_itself(&self) {
        self.take_over();
        if self.seat.is_held_by_caller() {
            self.end_lease();
        }
    }

    /// Takes the lead, unless another thread has it.
    pub(super) fn lead(&self) -> Option<Leader<'_>> {
        self.resume();
        Leader::new(self, &self.seat, || self.watch_seat(false))
    }

    /// The thread that leads ends without having given up the lead.
    pub(super) fn lose_leader() {
        if let Some(engine) = ENGINE.get().get() {
            engine.seat.leave();
            engine.give_up_lead();
        }
    }

    /// A leader has gone. If there is no other one soon, the seat is the engine's again.
    pub(super) fn give_up_lead(&self) {
        self.set_clock();
    }

    /// Wakes the leader if it sleeps until there is something in this queue.
    pub(super) fn rouse(queue: usize) {
        if let Some(engine) = ENGINE.get().get() {
            engine.seat.rouse(queue);
        }
    }

    /// Wakes the leader if it sleeps.
    pub(super) fn rouse_any() {
        if let Some(engine) = ENGINE.get().get() {
            engine.seat.rouse_any();
        }
    }

    /// Looks as the leader does, for the so many-th time, and handles what is there.
    pub(super) fn look_as_leader(&self, count: u32) -> Result<(), Errno> {
        self.look(Driver::Leader);
        let looks = self.looks.load(Ordering::Relaxed).max(1);
        if count.is_multiple_of(looks) {
            self.handle_seat(Some(&Timespec::default()), Driver::Leader)?;
        }
        Ok(())
    }

    pub(super) fn has_awake_carriers(&self) -> bool {
        self.looks.load(Ordering::Relaxed) != 0
    }

    /// For a leader that is going to sleep. Returns whether it may.
    pub(super) fn may_leader_sleep(&self) -> bool {
        self.take_over();
        self.resume();
        // The program, if it is this thread that would, sends nothing that they could go with.
        self.run_delayed(true);
        self.rest()
    }

    /// As [`Engine::poll`], for a program that looks for completions: after a wait it finds out that
    /// there is no further one, and waits again; that is no polling.
    pub(super) fn poll_unless_waited(&self) {
        if !self.seat.was_left_just_now() {
            self.poll();
        }
    }

    /// Handles what is ready without waiting. For threads that poll.
    pub(super) fn poll(&self) {
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

    /// Has a carrier looked at from now on: by the engine, if the caller may not come back to it. A leader
    /// does, or else the engine's clock finds out.
    pub(super) fn attend(
        &self,
        source: &Arc<impl Source + 'static>,
        carrier: &Arc<dyn Carrier>,
        driver: Driver,
    ) {
        carrier.stay_awake();
        if self.add_awake(source, carrier, None) && driver == Driver::Poller {
            // Whoever polls may stop; then the engine has to look.
            self.wake();
        }
    }

    /// Has threads that poll ask a socket directly, unless they have enough to ask already: that is
    /// cheaper than to have the kernel watch it.
    pub(super) fn ask_directly(
        &self,
        source: &Arc<impl Source + 'static>,
        carrier: &Arc<dyn Carrier>,
        token: Token,
    ) {
        if self.add_awake(source, carrier, Some(token)) {
            self.wake();
        }
    }

    /// False if it is looked at already, or cannot be.
    fn add_awake(
        &self,
        source: &Arc<impl Source + 'static>,
        carrier: &Arc<dyn Carrier>,
        socket: Option<Token>,
    ) -> bool {
        let mut awake = self.awake.lock();
        if awake.iter().any(|w| Arc::ptr_eq(&w.carrier, carrier)) {
            return false;
        }
        if let Some(token) = socket {
            if awake.iter().filter(|w| w.socket.is_some()).count() >= DIRECT_MAX {
                return false;
            }
            self.mute(carrier.fd(), token);
        }
        Arc::make_mut(&mut awake).push(Arc::new(Watched {
            source: Arc::clone(source) as Arc<dyn Source>,
            carrier: Arc::clone(carrier),
            socket,
            idle: AtomicU32::new(0),
        }));
        self.looks.store(looks(&awake), Ordering::Relaxed);
        true
    }

    /// Has a carrier tell by itself, if it has nothing to do.
    fn put_to_rest(&self, watched: &Watched) -> bool {
        match watched.socket {
            // It tells at once if there is something.
            Some(token) => {
                self.rewatch(watched.carrier.fd(), token, false);
                true
            }
            None => watched.carrier.rest(),
        }
    }

    /// Does not have a carrier looked at any more.
    pub(super) fn neglect(&self, carrier: &Arc<dyn Carrier>) {
        self.retain_awake(|w| !Arc::ptr_eq(&w.carrier, carrier));
    }

    fn retain_awake(&self, mut keep: impl FnMut(&Watched) -> bool) {
        let mut awake = self.awake.lock();
        let kept: Vec<_> = awake.iter().filter(|w| keep(w)).cloned().collect();
        let mut before = None;
        if kept.len() != awake.len() {
            self.looks.store(looks(&kept), Ordering::Relaxed);
            before = Some(std::mem::replace(&mut *awake, Arc::new(kept)));
        }
        drop(awake);
        // Outside the lock: dropping the last reference may close sockets.
        drop(before);
    }

    /// Looks at the carriers that are in use, and handles what is there. Returns whether there
    /// was something.
    fn look(&self, driver: Driver) -> bool {
        if self.looks.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let all = Arc::clone(&self.awake.lock());
        let mut found = false;
        let mut in_vain = false;
        for watched in all.iter() {
            let (readable, writable) = match watched.socket {
                Some(_) => (true, false),
                None => watched.carrier.look(),
            };
            let readiness = Readiness { readable, writable };
            if (readable || writable) && Arc::clone(&watched.source).looked(readiness, driver) {
                found = true;
                watched.idle.store(0, Ordering::Relaxed);
            } else {
                in_vain |= watched.idle.fetch_add(1, Ordering::Relaxed) >= LOOKS_IN_VAIN;
            }
        }
        if in_vain {
            self.retain_awake(|w| {
                w.idle.load(Ordering::Relaxed) < LOOKS_IN_VAIN || !self.put_to_rest(w)
            });
        }
        found
    }

    /// Puts the carriers to rest that have nothing to do. Returns whether that was all.
    fn rest(&self) -> bool {
        if self.looks.load(Ordering::Relaxed) == 0 {
            return true;
        }
        self.retain_awake(|w| !self.put_to_rest(w));
        self.looks.load(Ordering::Relaxed) == 0
    }

    /// Whether a thread of the engine may sleep: carriers are at rest, or somebody else's.
    fn may_sleep(&self) -> bool {
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

    fn run(&self) {
        let spin = Spin::default();
        // How long to look since when.
        let mut looking: Option<(Duration, Instant)> = None;
        let mut since = Instant::now();
        let mut polls = 0;
        loop {
            let timeout = self.run_timers();
            self.run_kicks();
            let now = Instant::now();
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

    /// Leaves the sockets to a thread that polls, for as long as it does; otherwise both would
    /// wake up for everything. False if nobody polls any more; else there is something to do.
    fn stand_down(&self) -> bool {
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
    fn is_being_polled(&self) -> bool {
        self.polling.try_lock().is_none()
    }

    /// For a thread that has polled and goes to sleep now: the engine need not find that out.
    pub(super) fn take_over(&self) {
        if self.is_standing_down.load(Ordering::Relaxed) {
            self.takes_over.store(true, Ordering::Relaxed);
            self.wake();
        }
    }

    fn is_timer_due(&self) -> bool {
        let timers = self.timers.lock();
        let first = timers.first_key_value();
        first.is_some_and(|(key, _)| key.at <= Instant::now())
    }

    fn run_kicks(&self) {
        let kicks = std::mem::take(&mut *self.kicks.lock());
        for source in kicks {
            source.kicked();
        }
    }

    /// Handles what carriers and sockets have, after waiting for the latter. Returns whether there
    /// was anything.
    fn dispatch(&self, timeout: Option<Timespec>, driver: Driver) -> bool {
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
    fn handle_seat(&self, timeout: Option<&Timespec>, driver: Driver) -> Result<bool, Errno> {
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

    /// Runs what is due; returns how long until the next.
    fn run_timers(&self) -> Option<Timespec> {
        loop {
            let now = Instant::now();
            let mut timers = self.timers.lock();
            let first = timers.first_entry()?;
            let at = first.key().at;
            if at > now {
                let left = at - now;
                return Some(Timespec {
                    tv_sec: left.as_secs() as i64,
                    tv_nsec: i64::from(left.subsec_nanos()),
                });
            }
            let due = first.remove();
            drop(timers);
            if let Some(source) = due.source.upgrade() {
                source.expired(due.purpose);
            }
        }
    }
}

/// How often these carriers are looked at for each time that sockets are.
fn looks(awake: &[Arc<Watched>]) -> u32 {
    match awake {
        [] => 0,
        some if some.iter().any(|w| w.socket.is_some()) => LOOKS_PER_SOCKETS,
        _ => CHEAP_LOOKS_PER_SOCKETS,
    }
}

/// Whether so many looks in that time are polling, not just what a program does after an event.
fn is_polling(looks: u64, time: Duration) -> bool {
    looks > 2 && u128::from(looks) * u128::from(POLL_PERIOD_MICROS) >= time.as_micros()
}

/// As long as it lives, another thread does the engine's work.
pub(super) struct StandIn(Arc<AtomicBool>);

impl Drop for StandIn {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn flags(write: bool) -> epoll::EventFlags {
    if write {
        epoll::EventFlags::IN | epoll::EventFlags::OUT
    } else {
        epoll::EventFlags::IN
    }
}

/// Blocks all signals for the calling thread; a thread that it starts inherits that.
struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn new() -> Self {
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
