// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Queue pairs: what they consist of, their states, and posting to them.
//!
//! The traffic itself is in `link`. A queue pair has a sending side ([`Tx`]: requests, and
//! answers to the peer's requests, share one stream) and a receiving side (`Rx`). Every change to
//! the error state happens with both locked, so that nothing is moved for a request after it was
//! reported as flushed.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use rdma_sys::{ibv_qp_state, ibv_wc};

use super::cq::{Cq, Overrun};
use super::delayed::Delayed;
use super::diag;
use super::engine::{Source, engine};
use super::link::{Rx, Tx};
use super::mr::DomainUse;
use super::recvq::{PostError, Receive, RecvQueue, Sge, SharedQueue};
use super::requester::{Completion, Data, Request, Requester, Status};
use super::stats::Slot;
use super::sync::Lock;
use super::wire::Kind;

/// States of a queue pair, as in `ibv_qp_state`.
pub(super) mod state {
    use super::ibv_qp_state;

    pub(crate) const RESET: u8 = ibv_qp_state::IBV_QPS_RESET as u8;
    pub(crate) const INIT: u8 = ibv_qp_state::IBV_QPS_INIT as u8;
    pub(crate) const READY: u8 = ibv_qp_state::IBV_QPS_RTS as u8;
    pub(crate) const ERROR: u8 = ibv_qp_state::IBV_QPS_ERR as u8;
}

/// What the connection manager wants to know about a connection's traffic.
pub trait Observer: Send + Sync {
    /// The active side is ready.
    fn established(&self);
    /// The peer wants to disconnect, and was answered.
    fn disconnect_requested(&self);
    /// The peer has agreed to disconnect.
    fn disconnected(&self);
    /// The connection is gone, whether that was agreed on or not.
    fn lost(&self);
}

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    pub send: usize,
    pub recv: usize,
    pub send_sge: usize,
    pub recv_sge: usize,
    pub inline: usize,
}

/// What a queue pair is made from.
pub struct Attributes {
    pub domain: DomainUse,
    pub send_cq: Arc<Cq>,
    pub recv_cq: Arc<Cq>,
    pub shared: Option<Arc<SharedQueue>>,
    pub capacity: Capacity,
    pub signal_all: bool,
}

/// A queue pair's own receive queue.
pub(super) struct OwnQueue {
    pub(super) queue: RecvQueue,
    /// The peer was told to wait for a receive for this request.
    pub(super) waiting: Option<u32>,
}

pub struct Qp {
    pub num: u32,
    pub(super) domain: u64,
    /// Until the queue pair is destroyed.
    domain_use: Lock<Option<DomainUse>>,
    pub(super) send_cq: Arc<Cq>,
    pub(super) recv_cq: Arc<Cq>,
    pub(super) shared: Option<Arc<SharedQueue>>,
    /// It is among those that wait at the shared queue. With that one locked.
    pub(super) waits_for_shared: AtomicBool,
    pub(super) state: AtomicU8,
    /// The engine was asked to attend and has not begun to.
    pub(super) kicked: AtomicBool,
    /// Something to send was put off until a thread polls.
    pub(super) put_off: AtomicBool,
    pub(super) delayed: Delayed,
    /// A long flush is under way, with the receiving side locked: the engine must not wait for it.
    pub(super) flushing: AtomicBool,
    pub(super) peer_num: AtomicU32,
    pub(super) tx: Lock<Tx>,
    pub(super) rx: Lock<Rx>,
    pub(super) own: Lock<OwnQueue>,
    pub(super) observer: Lock<Option<Weak<dyn Observer>>>,
    pub(super) this: Weak<Qp>,
    pub(super) stats: Slot,
}

/// Numbers are 24 bits wide, as on InfiniBand; 0 and 1 mean something else there. They begin at
/// random, so that the two ends of a connection can be told apart in a log.
fn next_number() -> u32 {
    static NEXT: OnceLock<AtomicU32> = OnceLock::new();
    let next = NEXT.get_or_init(|| AtomicU32::new(super::mr::random_key().unwrap_or(2)));
    loop {
        let num = next.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff;
        if num > 1 {
            return num;
        }
    }
}

impl Qp {
    /// Makes a queue pair to which receives can be posted.
    pub fn new(attributes: Attributes) -> Arc<Self> {
        let capacity = attributes.capacity;
        attributes.send_cq.attach();
        attributes.recv_cq.attach();
        if let Some(shared) = &attributes.shared {
            shared.attach();
        }
        let num = next_number();
        Arc::new_cyclic(|this| Qp {
            num,
            stats: Slot::new(num, capacity.send, capacity.recv),
            domain: attributes.domain.id(),
            domain_use: Lock::new(Some(attributes.domain)),
            send_cq: attributes.send_cq,
            recv_cq: attributes.recv_cq,
            shared: attributes.shared,
            state: AtomicU8::new(state::INIT),
            waits_for_shared: AtomicBool::new(false),
            kicked: AtomicBool::new(false),
            put_off: AtomicBool::new(false),
            delayed: Delayed::default(),
            flushing: AtomicBool::new(false),
            peer_num: AtomicU32::new(0),
            tx: Lock::new(Tx::new(Requester::new(
                capacity.send,
                capacity.send_sge,
                capacity.inline,
                attributes.signal_all,
            ))),
            rx: Lock::new(Rx::default()),
            own: Lock::new(OwnQueue {
                queue: RecvQueue::new(capacity.recv, capacity.recv_sge),
                waiting: None,
            }),
            observer: Lock::new(None),
            this: Weak::clone(this),
        })
    }

    pub fn state(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }

    pub fn is_destroyed(&self) -> bool {
        self.state() == state::RESET
    }

    pub fn set_observer(&self, observer: Weak<dyn Observer>) {
        *self.observer.lock() = Some(observer);
    }

    pub(super) fn observer(&self) -> Option<Arc<dyn Observer>> {
        self.observer.lock().as_ref()?.upgrade()
    }

    /// Starts a batch of requests; they are sent when the batch ends.
    pub fn batch(&self) -> Result<Batch<'_>, PostError> {
        let tx = self.tx.lock();
        match self.state() {
            state::READY | state::ERROR => Ok(Batch {
                qp: self,
                tx,
                prompt: false,
                signaled: false,
            }),
            _ => Err(PostError::Invalid),
        }
    }

    pub fn post_recv(
        &self,
        wr_id: u64,
        sges: impl ExactSizeIterator<Item = Sge>,
    ) -> Result<(), PostError> {
        if self.shared.is_some() {
            return Err(PostError::Invalid);
        }
        let mut own = self.own.lock();
        match self.state() {
            state::RESET => return Err(PostError::Invalid),
            state::ERROR => {
                // As the state is set before the queue is flushed under this lock, nothing that
                // comes now would be flushed with it.
                let _ = self
                    .recv_cq
                    .push(self.recv_wc(wr_id, Status::Flushed), true);
                return Ok(());
            }
            _ => {}
        }
        own.queue.post(wr_id, sges)?;
        self.stats.receive_posted();
        let waiting = own.waiting.take();
        drop(own);
        if let Some(seq) = waiting {
            self.receive_ready(seq);
        }
        Ok(())
    }

    /// Tells the peer, which had to wait with request `seq`, that there is a receive.
    pub fn receive_ready(&self, seq: u32) {
        let mut tx = self.tx.lock();
        tx.replies.ready(seq);
        self.pump_and_kick(&mut tx);
    }

    /// Takes a receive for request `seq` into `receive`, or notes that the peer waits for one.
    pub(super) fn take_receive(&self, receive: &mut Receive, seq: u32) -> bool {
        match &self.shared {
            Some(shared) => {
                let mut queue = shared.queue.lock();
                let taken = queue.queue.take(receive);
                if !taken {
                    queue.wait(self, seq);
                }
                taken
            }
            None => {
                let mut own = self.own.lock();
                let taken = own.queue.take(receive);
                if !taken {
                    own.waiting = Some(seq);
                }
                taken
            }
        }
    }

    /// Moves the queue pair to the error state; outstanding work completes as flushed.
    pub fn fail(&self) {
        let mut rx = self.rx.lock();
        let mut tx = self.tx.lock();
        self.enter_error(&mut rx, &mut tx, Status::Flushed, true);
        self.pump_and_kick(&mut tx);
    }

    /// Takes the queue pair out of use: nothing completes any more afterwards.
    pub fn destroy(&self) {
        let mut rx = self.rx.lock();
        let mut tx = self.tx.lock();
        if self.state() != state::RESET {
            let tell = self.state() == state::READY;
            self.state.store(state::RESET, Ordering::Release);
            self.abandon(&mut rx, &mut tx, tell);
            diag::debug(format_args!("QP {}: destroyed", self.num));
        }
        drop(tx);
        drop(rx);
        // Whoever still holds the queue pair for a moment must not keep these in use.
        if self.domain_use.lock().take().is_some() {
            self.send_cq.detach();
            self.recv_cq.detach();
            if let Some(shared) = &self.shared {
                shared.detach();
            }
        }
        if let Some(shared) = &self.shared {
            shared.queue.lock().forget(&self.this);
            // A receive that was meant for this queue pair may serve another.
            shared.wake_waiting();
        }
    }

    pub(super) fn blank_wc(&self, wr_id: u64, status: Status) -> ibv_wc {
        // SAFETY: all zeros is a valid completion.
        let mut wc: ibv_wc = unsafe { std::mem::zeroed() };
        wc.wr_id = wr_id;
        wc.status = status as u32;
        wc.qp_num = self.num;
        wc.src_qp = self.peer_num.load(Ordering::Relaxed);
        wc
    }

    pub(super) fn recv_wc(&self, wr_id: u64, status: Status) -> ibv_wc {
        let mut wc = self.blank_wc(wr_id, status);
        wc.opcode = rdma_sys::ibv_wc_opcode::IBV_WC_RECV;
        wc
    }

    pub(super) fn push_sent(&self, completion: Completion) -> Result<(), Overrun> {
        use rdma_sys::ibv_wc_opcode::*;
        if self.state() == state::RESET {
            return Ok(());
        }
        if !matches!(completion.status, Status::Success | Status::Flushed) {
            self.stats.failed();
        }
        let mut wc = self.blank_wc(completion.wr_id, completion.status);
        wc.opcode = match completion.kind {
            Kind::Write | Kind::WriteImm => IBV_WC_RDMA_WRITE,
            Kind::Read => IBV_WC_RDMA_READ,
            Kind::Flush => IBV_WC_FLUSH,
            Kind::AtomicWrite => IBV_WC_ATOMIC_WRITE,
            _ => IBV_WC_SEND,
        };
        wc.byte_len = completion.len;
        self.send_cq.push(wc, false)
    }

    /// Leaves what is to be sent to the next thread that polls, if that is soon. Then it may share a
    /// call of the carrier with what comes up until then.
    pub(super) fn put_off(&self) -> bool {
        if self.put_off.swap(true, Ordering::AcqRel) {
            return true;
        }
        let possible = match (engine(), self.this.upgrade()) {
            (Ok(engine), Some(this)) => engine.put_off(this as Arc<dyn Source>),
            _ => false,
        };
        if !possible {
            self.put_off.store(false, Ordering::Release);
        }
        possible
    }

    /// Has an acknowledgment wait for what the program sends, if that is to be expected.
    pub(super) fn delay(&self) -> bool {
        self.delayed
            .begin(|| match (engine(), self.this.upgrade()) {
                (Ok(engine), Some(this)) => {
                    engine.delay(this as Arc<dyn Source>);
                    true
                }
                _ => false,
            })
    }

    /// Sends what can be sent; leaves what needs the receiving side's lock to the engine.
    pub(super) fn pump_and_kick(&self, tx: &mut Tx) {
        if self.pump(tx)
            && let Ok(engine) = engine()
            && let Some(this) = self.this.upgrade()
            && !self.kicked.swap(true, Ordering::AcqRel)
        {
            engine.kick(this as Arc<dyn Source>);
        }
    }
}

/// Payload up to this length counts as small.
const SMALL: u64 = 1024;

/// Requests under way with which one more can wait though the program is told of it.
const DUE_ENOUGH: u64 = 4;

/// Requests that are posted together. Sends them when it goes.
pub struct Batch<'a> {
    qp: &'a Qp,
    tx: std::sync::MutexGuard<'a, Tx>,
    /// One of them is to be sent at once.
    prompt: bool,
    /// The program is told of one of them.
    signaled: bool,
}

impl Batch<'_> {
    /// Requests that fit.
    pub fn room(&self) -> u64 {
        self.tx.requester.room()
    }

    pub fn post<I>(&mut self, request: Request, data: Data<'_, I>) -> Result<(), PostError>
    where
        I: ExactSizeIterator<Item = Sge>,
    {
        if self.qp.state() == state::ERROR && !self.tx.is_flush_pending() {
            let _ = self.qp.push_sent(Completion {
                wr_id: request.wr_id,
                kind: request.kind,
                status: Status::Flushed,
                len: 0,
            });
            return Ok(());
        }
        let len = self.tx.requester.post(request, data)?;
        self.qp.stats.posted(request.kind, len);
        // A small write can go together with what comes next.
        self.prompt |= request.kind != Kind::Write || len > SMALL;
        self.signaled |= request.signaled;
        Ok(())
    }
}

impl Batch<'_> {
    /// Whether the requests can wait for others without harm: an acknowledgment that has them sent
    /// is due, or a thread polls, which has them sent as well.
    fn may_wait(&self) -> bool {
        if self.prompt || self.qp.state() != state::READY || !self.tx.is_sending_dear() {
            return false;
        }
        let due = self.tx.requester.due_before_sending();
        let enough = if self.signaled { DUE_ENOUGH } else { 1 };
        due >= enough || (due > 0 && self.qp.put_off())
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if !self.may_wait() {
            self.qp.pump_and_kick(&mut self.tx);
            self.qp.delayed.is_sent();
        }
    }
}
