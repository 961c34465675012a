// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Receive queues: the buffers that a program has posted, in order.
//!
//! The same queue serves one queue pair, or many when it is shared ([`SharedQueue`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use rdma_sys::ibv_srq;

use super::mr::DomainUse;
use super::qp::Qp;
use super::sync::Lock;

/// One element of a scatter/gather list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    pub addr: u64,
    pub len: u32,
    pub lkey: u32,
}

/// Why work was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue is full.
    Full,
    /// The request is not a valid one.
    Invalid,
}

#[derive(Clone, Copy)]
struct Slot {
    wr_id: u64,
    sges: usize,
}

/// The posted receives.
pub struct RecvQueue {
    slots: VecDeque<Slot>,
    /// Lists of all slots, one after the other, in posting order.
    lists: VecDeque<Sge>,
    capacity: usize,
    max_sge: usize,
}

/// A receive that was taken off a queue to be filled.
#[derive(Default)]
pub struct Receive {
    pub wr_id: u64,
    pub sges: Vec<Sge>,
}

impl Receive {
    /// Bytes that fit.
    pub fn room(&self) -> u64 {
        self.sges.iter().map(|s| u64::from(s.len)).sum()
    }
}

impl RecvQueue {
    pub fn new(capacity: usize, max_sge: usize) -> Self {
        RecvQueue {
            slots: VecDeque::with_capacity(capacity.min(256)),
            lists: VecDeque::with_capacity(capacity.min(256)),
            capacity,
            max_sge,
        }
    }

    pub fn post(
        &mut self,
        wr_id: u64,
        sges: impl ExactSizeIterator<Item = Sge>,
    ) -> Result<(), PostError> {
        if sges.len() > self.max_sge {
            return Err(PostError::Invalid);
        }
        if self.slots.len() >= self.capacity {
            return Err(PostError::Full);
        }
        self.slots.push_back(Slot {
            wr_id,
            sges: sges.len(),
        });
        self.lists.extend(sges);
        Ok(())
    }

    /// Moves the oldest receive into `into`, whose list's storage is reused.
    pub fn take(&mut self, into: &mut Receive) -> bool {
        let Some(slot) = self.slots.pop_front() else {
            return false;
        };
        into.wr_id = slot.wr_id;
        into.sges.clear();
        into.sges.extend(self.lists.drain(..slot.sges));
        true
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

/// A shared receive queue.
pub struct SharedQueue {
    pub queue: Lock<Shared>,
    /// Until the queue is destroyed.
    domain: Lock<Option<DomainUse>>,
    /// Queue pairs that receive from it.
    users: AtomicU32,
}

pub struct Shared {
    pub queue: RecvQueue,
    /// Queue pairs whose peer was told to wait for a receive, with the number of its request: each once,
    /// until it is destroyed at most.
    waiting: VecDeque<(Weak<Qp>, u32)>,
}

impl Shared {
    /// Notes that a peer waits, once, however often it asks: what it asks for stays the same until it
    /// gets it.
    pub fn wait(&mut self, qp: &Qp, seq: u32) {
        if !qp.waits_for_shared.swap(true, Ordering::Relaxed) {
            self.waiting.push_back((Weak::clone(&qp.this), seq));
        }
    }

    /// A queue pair does not wait any more.
    pub fn forget(&mut self, qp: &Weak<Qp>) {
        self.waiting.retain(|(waiting, _)| !waiting.ptr_eq(qp));
    }

    /// How many peers wait.
    #[cfg(any(test, fuzzing))]
    pub fn count_waiting(&self) -> usize {
        self.waiting.len()
    }

    fn next_waiting(&mut self) -> Option<(Arc<Qp>, u32)> {
        if self.queue.is_empty() {
            return None;
        }
        while let Some((qp, seq)) = self.waiting.pop_front() {
            if let Some(qp) = qp.upgrade() {
                qp.waits_for_shared.store(false, Ordering::Relaxed);
                return Some((qp, seq));
            }
        }
        None
    }
}

impl SharedQueue {
    pub fn new(domain: DomainUse, capacity: usize, max_sge: usize) -> Arc<Self> {
        Arc::new(SharedQueue {
            queue: Lock::new(Shared {
                queue: RecvQueue::new(capacity, max_sge),
                waiting: VecDeque::new(),
            }),
            domain: Lock::new(Some(domain)),
            users: AtomicU32::new(0),
        })
    }

    /// The queue is destroyed: its domain may go, whoever still holds the queue for a moment.
    pub fn retire(&self) {
        let domain = self.domain.lock().take();
        drop(domain);
    }

    pub fn attach(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    pub fn detach(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }

    pub fn is_in_use(&self) -> bool {
        self.users.load(Ordering::Acquire) != 0
    }

    pub fn post(
        &self,
        wr_id: u64,
        sges: impl ExactSizeIterator<Item = Sge>,
    ) -> Result<(), PostError> {
        self.queue.lock().queue.post(wr_id, sges)?;
        self.wake_waiting();
        Ok(())
    }

    /// Tells everybody who waits that there are receives now. Those who come too late ask to
    /// wait again. Not only as many as there are receives: a peer that was told and does not come
    /// would keep a receive from the others.
    pub fn wake_waiting(&self) {
        let mut budget = self.queue.lock().waiting.len();
        while budget > 0 {
            let Some((qp, seq)) = self.queue.lock().next_waiting() else {
                break;
            };
            qp.receive_ready(seq);
            budget -= 1;
        }
    }
}

/// A shared receive queue as C sees it.
#[repr(C)]
pub(super) struct CSrq {
    pub raw: ibv_srq,
    pub inner: Arc<SharedQueue>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sge(addr: u64) -> Sge {
        Sge {
            addr,
            len: 10,
            lkey: 1,
        }
    }

    #[test]
    fn order_lists_and_limits() {
        let mut queue = RecvQueue::new(2, 2);
        let mut receive = Receive::default();
        assert!(!queue.take(&mut receive));
        assert_eq!(queue.post(1, [sge(1), sge(2)].into_iter()), Ok(()));
        assert_eq!(queue.post(2, [].into_iter()), Ok(()));
        assert_eq!(queue.post(3, [sge(3)].into_iter()), Err(PostError::Full));
        assert!(queue.take(&mut receive));
        assert_eq!(receive.wr_id, 1);
        assert_eq!(receive.sges, [sge(1), sge(2)]);
        assert_eq!(receive.room(), 20);
        assert_eq!(
            queue.post(3, [sge(1), sge(2), sge(3)].into_iter()),
            Err(PostError::Invalid)
        );
        assert_eq!(queue.post(3, [sge(3)].into_iter()), Ok(()));
        assert!(queue.take(&mut receive));
        assert_eq!((receive.wr_id, receive.room()), (2, 0));
        assert!(queue.take(&mut receive));
        assert_eq!((receive.wr_id, receive.sges.as_slice()), (3, &[sge(3)][..]));
        assert!(queue.is_empty());
    }
}
