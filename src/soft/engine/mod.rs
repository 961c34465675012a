// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What keeps the fabric going: one thread per process that waits for sockets and timers.
//!
//! The thread starts with the first use of the fabric, has all signals blocked, and sleeps while
//! nothing happens (but for a look now and then after a thread that waits, if the program has handlers
//! of signals). Threads that poll a completion queue drive the same sockets themselves
//! ([`Engine::poll`]), so that a busy program needs no hand-off.
//!
//! Carriers in shared memory are looked at by whoever looks at the sockets, as long as they are
//! in use; when that ends they are put to rest, and then wake the engine, or the leader, through a
//! socket.
//!
//! How it finds out what there is to do: [`sockets`] that are watched, carriers that are [`awake`] and
//! looked at, [`timers`], and what was left for [`later`]. Who does it: the engine's own [`thread`], one
//! that is [`polling`], or one that is [`leading`], which a [`guard`] looks after.
//!
//! The sockets of connections are watched at the seat (`leader.rs`), which the engine watches as one
//! descriptor, and leaves to a thread that waits for completions, together with the carriers.

mod awake;
mod guard;
mod later;
mod leading;
mod polling;
mod sockets;
mod source;
mod thread;
mod timers;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Duration;

use once_cell::sync::OnceCell;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, write};
use rustix::process::{Pid, getpid};
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

pub(super) use source::{Driver, Readiness, Source, Token};
pub(super) use timers::TimerKey;

use awake::Watched;
use later::PutOff;
use sockets::Slots;
use thread::{SignalsBlocked, StandIns};
use timers::Timer;

use super::leader::Seat;
use super::rarely::Rarely;
use super::sync::Lock;
use crate::sys::fork::{self, PerProcess};

/// Token of the descriptor that wakes the engine's thread.
const WAKE: u64 = u64::MAX;
/// Token of the clock.
const CLOCK: u64 = u64::MAX - 1;
/// Token of the seat, as a whole.
const SEAT: u64 = u64::MAX - 2;

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
    stand_ins: Lock<StandIns>,
    /// What the log is told of a lack of memory.
    shortages: Rarely,
    slots: Lock<Slots>,
    timers: Lock<BTreeMap<TimerKey, Timer>>,
    kicks: Lock<VecDeque<Arc<dyn Source>>>,
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

/// How often the log is told of a lack of memory.
const SHORTAGE_TOLD_EVERY: Duration = Duration::from_secs(60);
/// Pause of the engine's thread then.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(10);

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
            stand_ins: Lock::default(),
            shortages: Rarely::new(SHORTAGE_TOLD_EVERY),
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

    /// What has come cannot be handled for lack of memory; it is still there.
    pub(super) fn lacks_memory(&self, driver: Driver, what_for: &str) {
        self.shortages.warn(format_args!("no memory {what_for}"));
        if driver == Driver::Engine {
            // It would find the same at once.
            std::thread::sleep(SHORTAGE_PAUSE);
        }
    }

    fn wake(&self) {
        let _ = write(&self.wake, &1u64.to_ne_bytes());
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
}
