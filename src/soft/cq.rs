// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Completion queues and completion channels.
//!
//! An event is for the next completion after it was asked for. What came between the last event and
//! that makes none, as verbs have it, but many devices make one for it all the same, and programs rely
//! on it that wait, ask for the next event, and then take one completion for each event. So if such a
//! program leaves a completion behind that came in between, there is an event for it; one that takes
//! all is not woken for nothing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar};
use std::time::Instant;

use rdma_sys::{ibv_cq, ibv_wc};
use rustix::io::Errno;

use super::engine::{Engine, engine};
use super::eventq::EventQueue;
use super::leader::Leader;
use super::spin::Spin;
use super::sync::{Lock, wait_until};
use crate::sys::cancel::NotNow;

/// The queue was full: completions were lost, and everything that completes here is in error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun;

/// When a completion makes an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    /// Only for messages that the sender marked, and for errors.
    Solicited,
    Any,
}

struct State {
    entries: VecDeque<ibv_wc>,
    overrun: bool,
    armed: Armed,
    /// Something came when no event was asked for, and none was made since.
    unannounced: bool,
    /// The same, when an event was asked for again.
    left_over: bool,
    /// There is an event for what was left behind, which nobody needs who takes that now.
    reminded: bool,
}

/// Events that were handed out and those that were acknowledged.
#[derive(Default)]
struct Events {
    delivered: u64,
    acknowledged: u64,
}

/// A completion queue.
pub struct Cq {
    capacity: usize,
    state: Lock<State>,
    /// Whether there is something to poll, for who only wants to know that.
    any: AtomicBool,
    channel: Option<Arc<Channel>>,
    events: Lock<Events>,
    all_acknowledged: Condvar,
    /// Queue pairs that complete here.
    users: AtomicU32,
    /// Address of the C object, for events.
    handle: AtomicUsize,
}

// SAFETY: `ibv_wc` holds no pointer.
unsafe impl Send for State {}

impl Cq {
    pub fn new(capacity: usize, channel: Option<Arc<Channel>>) -> Arc<Self> {
        Arc::new(Cq {
            capacity,
            state: Lock::new(State {
                entries: VecDeque::with_capacity(capacity.min(256)),
                overrun: false,
                armed: Armed::No,
                unannounced: false,
                left_over: false,
                reminded: false,
            }),
            any: AtomicBool::new(false),
            channel,
            events: Lock::default(),
            all_acknowledged: Condvar::new(),
            users: AtomicU32::new(0),
            handle: AtomicUsize::new(0),
        })
    }

    /// Address of the C object that stands for this queue; 0 until it was set.
    pub fn handle(&self) -> usize {
        self.handle.load(Ordering::Acquire)
    }

    pub fn set_handle(&self, address: usize) {
        self.handle.store(address, Ordering::Release);
    }

    /// Adds a completion and makes an event if one was asked for.
    pub fn push(self: &Arc<Self>, wc: ibv_wc, solicited: bool) -> Result<(), Overrun> {
        let mut state = self.state.lock();
        if state.entries.len() >= self.capacity || state.overrun {
            state.overrun = true;
        } else {
            state.entries.push_back(wc);
        }
        self.any.store(true, Ordering::Release);
        let wanted = match state.armed {
            Armed::No => false,
            Armed::Any => true,
            Armed::Solicited => solicited || wc.status != 0 || state.overrun,
        };
        state.unannounced = !wanted;
        if wanted {
            state.armed = Armed::No;
            state.left_over = false;
        }
        let result = if state.overrun { Err(Overrun) } else { Ok(()) };
        drop(state);
        if wanted {
            self.announce();
        }
        result
    }

    fn announce(self: &Arc<Self>) {
        if let Some(channel) = &self.channel {
            channel.queue.push(Arc::clone(self));
            Engine::rouse(channel.address());
        }
    }

    /// Moves up to `out.len()` completions out. An overrun queue reports [`Overrun`] once it is
    /// empty, so that a program that polls learns of the loss.
    pub fn poll(self: &Arc<Self>, mut put: impl FnMut(&ibv_wc) -> bool) -> Result<usize, Overrun> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(0);
        }
        let mut state = self.state.lock();
        let mut moved = 0;
        while let Some(wc) = state.entries.front() {
            if !put(wc) {
                break;
            }
            state.entries.pop_front();
            moved += 1;
        }
        let any = !state.entries.is_empty() || state.overrun;
        self.any.store(any, Ordering::Release);
        if state.left_over || state.reminded {
            self.remind(&mut state);
        }
        if moved == 0 && state.overrun && state.entries.is_empty() {
            return Err(Overrun);
        }
        Ok(moved)
    }

    /// Makes an event for what is left behind, or takes it back if nothing is.
    #[cold]
    fn remind(self: &Arc<Self>, state: &mut State) {
        if state.entries.is_empty() {
            state.unannounced = false;
            state.left_over = false;
            // With the queue locked, so that it is there if it is to be taken back.
            if std::mem::take(&mut state.reminded)
                && let Some(channel) = &self.channel
                && let Some(event) = channel.queue.take_back(|cq| Arc::ptr_eq(cq, self))
            {
                drop(event);
                state.armed = Armed::Any;
            }
        } else if std::mem::take(&mut state.left_over) {
            state.armed = Armed::No;
            // The event stands for one of them.
            state.unannounced = state.entries.len() > 1;
            state.reminded = true;
            self.announce();
        }
    }

    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Asks for an event with the next completion.
    pub fn arm(&self, solicited_only: bool) {
        let mut state = self.state.lock();
        state.left_over = !solicited_only && state.unannounced && !state.entries.is_empty();
        state.reminded = false;
        state.armed = match (solicited_only, state.armed) {
            (true, Armed::No) => Armed::Solicited,
            (true, armed) => armed,
            (false, _) => Armed::Any,
        };
    }

    /// Acknowledges events that [`Channel::wait`] handed out.
    pub fn acknowledge(&self, count: u64) {
        let mut events = self.events.lock();
        events.acknowledged += count;
        drop(events);
        self.all_acknowledged.notify_all();
    }

    pub fn attach(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    pub fn detach(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether queue pairs complete here, so that the queue cannot go yet.
    pub fn is_in_use(&self) -> bool {
        self.users.load(Ordering::Acquire) != 0
    }

    /// Drops events nobody fetched and waits until the others are acknowledged.
    pub fn retire(self: &Arc<Self>) {
        if let Some(channel) = &self.channel {
            drop(channel.queue.remove(|cq| Arc::ptr_eq(cq, self)));
        }
        let events = self.events.lock();
        drop(wait_until(&self.all_acknowledged, events, |e| {
            e.acknowledged >= e.delivered
        }));
    }
}

/// How often a leader is woken by what is for others before it leaves that to the engine: it is to be
/// found asleep by a signal, and to be cancelled.
const IN_VAIN: u32 = 16;

/// What came of leading.
enum Led<F> {
    Found(Arc<Cq>),
    Interrupted,
    /// There is something at the descriptor, or it is to be waited for there.
    GoOn(F),
}

/// A completion channel.
pub struct Channel {
    queue: EventQueue<Arc<Cq>>,
    spin: Spin,
}

impl Channel {
    pub fn new() -> Result<Arc<Self>, Errno> {
        Ok(Arc::new(Channel {
            queue: EventQueue::new()?,
            spin: Spin::default(),
        }))
    }

    pub fn raw_fd(&self) -> i32 {
        self.queue.raw_fd()
    }

    /// Waits for an event; the queue it names must get an acknowledgment for it. The queue
    /// cannot be destroyed before that.
    pub fn wait(&self) -> Result<Arc<Cq>, Errno> {
        let take = |cq: Arc<Cq>| {
            cq.events.lock().delivered += 1;
            cq
        };
        let Ok(engine) = engine() else {
            return self.queue.pop(take);
        };
        if !self.queue.is_empty() {
            return self.queue.pop(take);
        }
        if !self.queue.is_blocking() {
            // Who does not want to wait does not want to look for long either.
            engine.poll();
            return self.queue.pop(take);
        }
        // While it drives connections, the thread holds locks of all kinds.
        let not_now = NotNow::new();
        let leader = engine.lead();
        let time = self.spin.time();
        let start = Instant::now();
        let look = || {
            match &leader {
                // Going to sleep finds the same.
                Some(_) if time.is_zero() => {}
                Some(leader) => leader.look(),
                None => engine.poll(),
            }
            start.elapsed() < time
        };
        let found = self.queue.look_out(look, take);
        self.spin.looked(time, found.is_err());
        let take = match (found, &leader) {
            (Ok(cq), _) => return Ok(cq),
            (Err(take), None) => {
                engine.take_back_from_itself();
                take
            }
            (Err(take), Some(leader)) => match self.lead(leader, &not_now, take) {
                Led::Found(cq) => return Ok(cq),
                Led::Interrupted => return Err(Errno::INTR),
                Led::GoOn(take) => take,
            },
        };
        // Whoever sleeps at the descriptor does not handle anything.
        if let Some(leader) = leader {
            leader.resign();
        }
        drop(not_now);
        self.queue.pop(take)
    }

    /// Handles what comes until there is an event.
    fn lead<F: FnOnce(Arc<Cq>) -> Arc<Cq>>(
        &self,
        leader: &Leader,
        not_now: &NotNow,
        mut take: F,
    ) -> Led<F> {
        let is_empty = || self.queue.is_empty();
        for _ in 0..IN_VAIN {
            match leader.sleep(self.address(), is_empty, not_now) {
                Ok(()) => {}
                Err(Errno::INTR) => return Led::Interrupted,
                Err(_) => return Led::GoOn(take),
            }
            // What the thread finds by itself need not go through the descriptor.
            let look = || {
                leader.look();
                false
            };
            take = match self.queue.look_out(look, take) {
                Ok(cq) => return Led::Found(cq),
                Err(take) if is_empty() => take,
                Err(take) => return Led::GoOn(take),
            };
        }
        Led::GoOn(take)
    }

    /// Names the channel, as long as it is there.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Whether no event waits.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }
}

/// A completion queue as C sees it.
#[repr(C)]
pub(super) struct CCq {
    pub raw: ibv_cq,
    pub inner: Arc<Cq>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wc(id: u64, status: u32) -> ibv_wc {
        // SAFETY: all zeros is a valid completion.
        let mut wc: ibv_wc = unsafe { std::mem::zeroed() };
        wc.wr_id = id;
        wc.status = status;
        wc
    }

    fn ids(cq: &Arc<Cq>, max: usize) -> Result<Vec<u64>, Overrun> {
        let mut out = Vec::new();
        cq.poll(|wc| {
            if out.len() == max {
                return false;
            }
            out.push(wc.wr_id);
            true
        })?;
        Ok(out)
    }

    #[test]
    fn order_and_overrun() {
        let cq = Cq::new(2, None);
        assert_eq!(ids(&cq, 4), Ok(vec![]));
        assert_eq!(cq.push(wc(1, 0), false), Ok(()));
        assert_eq!(cq.push(wc(2, 0), false), Ok(()));
        assert_eq!(ids(&cq, 1), Ok(vec![1]));
        assert_eq!(cq.push(wc(3, 0), false), Ok(()));
        assert_eq!(cq.push(wc(4, 0), false), Err(Overrun));
        assert_eq!(cq.push(wc(5, 0), false), Err(Overrun));
        assert_eq!(ids(&cq, 4), Ok(vec![2, 3]));
        assert_eq!(ids(&cq, 4), Err(Overrun));
    }

    #[test]
    fn one_event_for_each_arming() {
        let channel = Channel::new().unwrap();
        let cq = Cq::new(10, Some(Arc::clone(&channel)));
        assert_eq!(cq.push(wc(1, 0), false), Ok(()));
        assert!(channel.is_idle());
        cq.arm(false);
        assert_eq!(cq.push(wc(2, 0), false), Ok(()));
        assert_eq!(cq.push(wc(3, 0), false), Ok(()));
        assert!(Arc::ptr_eq(&channel.wait().unwrap(), &cq));
        assert!(channel.is_idle());
        cq.arm(true);
        assert_eq!(cq.push(wc(4, 0), false), Ok(()));
        assert!(channel.is_idle());
        assert_eq!(cq.push(wc(5, 0), true), Ok(()));
        assert!(!channel.is_idle());
        cq.arm(true);
        assert_eq!(cq.push(wc(6, 5), false), Ok(()));
        cq.acknowledge(1);
        // Two events are still queued, none is out: retiring does not wait.
        cq.retire();
        assert!(channel.is_idle());
    }

    #[test]
    fn what_is_left_behind_has_an_event() {
        let channel = Channel::new().unwrap();
        let cq = Cq::new(10, Some(Arc::clone(&channel)));
        let wait = || {
            assert!(Arc::ptr_eq(&channel.wait().unwrap(), &cq));
            cq.acknowledge(1);
        };
        let push = |id| assert_eq!(cq.push(wc(id, 0), false), Ok(()));
        cq.arm(false);
        push(1);
        push(2);
        push(3);
        wait();
        cq.arm(false);
        // One for each event.
        for id in [1, 2, 3] {
            assert_eq!(ids(&cq, 1), Ok(vec![id]));
            assert_eq!(channel.is_idle(), id == 3);
            if id < 3 {
                wait();
                cq.arm(false);
            }
        }
        // All of it, in one go or not: no event remains.
        for takes in [1, 3] {
            push(1);
            push(2);
            push(3);
            wait();
            cq.arm(false);
            let mut left = 3;
            while left > 0 {
                left -= ids(&cq, 3 / takes).unwrap().len();
                assert_eq!(channel.is_idle(), left == 0);
            }
        }
        // It counts as asked for still.
        push(4);
        assert!(!channel.is_idle());
        assert_eq!(ids(&cq, 9), Ok(vec![4]));
        wait();
        // What came after it was asked for has its event, taken before that or not.
        cq.arm(false);
        push(5);
        push(6);
        assert_eq!(ids(&cq, 1), Ok(vec![5]));
        wait();
        assert_eq!(ids(&cq, 9), Ok(vec![6]));
        assert!(channel.is_idle());
        cq.arm(true);
        push(7);
        cq.arm(true);
        assert_eq!(ids(&cq, 1), Ok(vec![7]));
        assert!(channel.is_idle());
        cq.retire();
    }

    #[test]
    fn retiring_waits_for_acknowledgments() {
        let channel = Channel::new().unwrap();
        let cq = Cq::new(10, Some(Arc::clone(&channel)));
        cq.arm(false);
        cq.push(wc(1, 0), false).unwrap();
        channel.wait().unwrap();
        let waiter = {
            let cq = Arc::clone(&cq);
            std::thread::spawn(move || cq.retire())
        };
        std::thread::yield_now();
        assert!(!waiter.is_finished());
        cq.acknowledge(1);
        waiter.join().unwrap();
    }
}
