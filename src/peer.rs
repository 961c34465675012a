// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Peer: one device as one side of connections, with the protection domain that its memory
//! regions and queue pairs share.

use std::ffi::CStr;

use crate::cq::CompletionQueue;
use crate::device::{self, Location};
use crate::error::Error;
use crate::fault;
use crate::log::log_info;
use crate::srq::SharedReceiveQueue;
use crate::sys::alloc::Shared;
use crate::verbs::cm::{CmId, QpId, QueuePairAttributes};
use crate::verbs::context::DeviceContext;
use crate::verbs::pd::ProtectionDomain;
use crate::verbs::probe;
use crate::verbs::qp::NativeOps;

/// Scatter/gather elements of a work request.
const MAX_ELEMENTS: u32 = 1;
/// Bytes that a work request can carry in itself: one atomic write.
const MAX_INLINE: u32 = 8;

/// A peer. Safe to use from several threads at once.
pub struct Peer {
    pd: ProtectionDomain,
    on_demand_paging: bool,
    native: NativeOps,
    persistent_flush: bool,
}

impl Peer {
    /// Creates a peer on an open device.
    pub(crate) fn new(device: DeviceContext) -> Result<Self, Error> {
        let able = device.capabilities(c"rpma_utils_ibv_context_is_odp_capable")?;
        let offered = NativeOps {
            flush: able.flush,
            atomic_write: able.atomic_write,
        };
        if !offered.atomic_write {
            log_info!(
                c"rpma_peer_new",
                "no native atomic write: an inline RDMA write serves instead"
            );
        }
        if !offered.flush {
            log_info!(
                c"rpma_peer_new",
                "no native flush: an RDMA read after the writes serves instead"
            );
        }
        let pd = ProtectionDomain::alloc(device, c"rpma_peer_new")?;
        // The kernel's word is not enough: an older libibverbs may not be able to use it, and
        // whether it can decides the rights that regions for flushing need.
        let native = if offered.any() {
            probe::native_ops(&pd, offered, c"rpma_peer_new")
        } else {
            offered
        };
        let persistent_flush = native.flush && probe::persistent_flush(&pd, c"rpma_peer_new");
        Ok(Peer {
            pd,
            on_demand_paging: able.on_demand_paging,
            native,
            persistent_flush,
        })
    }

    /// Creates a peer on the device of an address: one of this machine's, or the other side's that
    /// it leads to.
    ///
    /// Errors: NOMEM; PROVIDER if the address cannot be found, or no device belongs to it.
    pub fn at(addr: &CStr, location: Location) -> Result<Shared<Self>, Error> {
        let device = device::find(addr, location)?.ok_or(Error::Provider)?;
        Shared::try_new(Peer::new(device)?)
    }

    pub(crate) fn device(&self) -> DeviceContext {
        self.pd.device()
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    pub(crate) fn on_demand_paging(&self) -> bool {
        self.on_demand_paging
    }

    pub(crate) fn native(&self) -> NativeOps {
        self.native
    }

    /// Whether native flush makes data persistent as well, in whatever memory.
    pub(crate) fn flushes_persistently(&self) -> bool {
        self.persistent_flush
    }

    /// Creates the queue pair of a connection.
    pub(crate) fn create_queue_pair(
        &self,
        id: CmId,
        queues: &ConnQueues<'_>,
    ) -> Result<QpId, (CmId, Error)> {
        let attributes = QueuePairAttributes {
            pd: &self.pd,
            send_cq: queues.cq.raw(),
            receive_cq: queues.rcq.unwrap_or(queues.cq).raw(),
            srq: queues.srq.map(SharedReceiveQueue::raw),
            send_requests: queues.sq_size,
            receive_requests: queues.rq_size,
            elements: MAX_ELEMENTS,
            inline_bytes: MAX_INLINE,
            native: self.native,
        };
        id.create_queue_pair(&attributes, c"rpma_peer_setup_qp")
    }

    /// Releases the protection domain; with `others_use_it`, a refusal is retried when the last
    /// of them is gone.
    pub(crate) fn release(&self, others_use_it: bool) -> Result<(), Error> {
        let released = self.pd.release(c"rpma_peer_delete", others_use_it);
        fault::after(released, c"rpma_peer_delete")
    }
}

/// The queues that a connection's queue pair is made of.
pub(crate) struct ConnQueues<'a> {
    pub(crate) cq: &'a CompletionQueue,
    pub(crate) rcq: Option<&'a CompletionQueue>,
    pub(crate) srq: Option<&'a SharedReceiveQueue>,
    pub(crate) sq_size: u32,
    pub(crate) rq_size: u32,
}
