// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Shared receive queue: receive requests that several connections take from.

use crate::conn_cfg::clip;
use crate::cq::CompletionQueue;
use crate::error::{Error, FirstError};
use crate::mr::{LocalRange, element_of};
use crate::peer::Peer;
use crate::srq_cfg::SrqConfig;
use crate::sys::alloc::Shared;
use crate::verbs::srq::RawSharedReceiveQueue;

/// A shared receive queue. Safe to use from several threads at once.
pub struct SharedReceiveQueue {
    raw: RawSharedReceiveQueue,
    rcq: Option<CompletionQueue>,
    /// Kept alive for the queue, which uses its protection domain.
    _peer: Shared<Peer>,
}

impl SharedReceiveQueue {
    /// Creates a shared receive queue, with a completion queue of its own if so configured.
    ///
    /// Errors: PROVIDER if the provider refuses.
    pub(crate) fn new(peer: Shared<Peer>, config: &SrqConfig) -> Result<Self, Error> {
        let raw =
            RawSharedReceiveQueue::create(peer.pd(), config.rq_size(), c"rpma_peer_create_srq")?;
        let entries = clip(config.rcq_size());
        let rcq = if entries == 0 {
            None
        } else {
            Some(CompletionQueue::with_own_channel(peer.device(), entries)?)
        };
        Ok(SharedReceiveQueue {
            raw,
            rcq,
            _peer: peer,
        })
    }

    pub(crate) fn raw(&self) -> &RawSharedReceiveQueue {
        &self.raw
    }

    /// The completion queue for receives through this queue, if it has one of its own.
    pub fn rcq(&self) -> Option<&CompletionQueue> {
        self.rcq.as_ref()
    }

    /// Posts a receive request; `None` for a message without bytes.
    ///
    /// Errors: INVAL for more bytes than one request can take; PROVIDER if the provider refuses,
    /// as it does when the queue is full.
    #[inline(always)]
    pub fn recv(&self, into: Option<LocalRange<'_>>, wr_id: u64) -> Result<(), Error> {
        let element = element_of(into, c"rpma_mr_srq_recv")?;
        self.raw.post(wr_id, element, c"rpma_mr_srq_recv")
    }

    /// Releases the queue and its completion queue and gives the first error back. With
    /// `others_use_it`, a refusal is retried when the last of them is gone.
    pub(crate) fn release(&self, others_use_it: bool) -> Result<(), Error> {
        let mut first = FirstError::default();
        if let Some(rcq) = &self.rcq {
            first.note(rcq.release(others_use_it));
        }
        first.note(self.raw.release(c"rpma_srq_delete", others_use_it));
        first.into_result()
    }
}
