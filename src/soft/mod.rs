// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The software fabric: verbs with the semantics of a reliable connected queue pair, over TCP or,
//! inside one machine, shared memory.
//!
//! From the wire to the program:
//!
//! - `wire`: frames and greetings, pure.
//! - `carrier`: the byte stream between two processes.
//! - `requester`, `responder`: the two halves of a queue pair as pure state machines.
//! - `mr`, `mem`, `persist`: whose memory it is, touching it, making it durable.
//! - `eventq`, `cq`, `recvq`: descriptors with queues behind them, completions, receives.
//! - `qp`, `link`: a queue pair, and its traffic; `delayed`: an acknowledgment that waits for company.
//! - `cm`, `addrinfo`: connections as librdmacm has them; `admission`: who may connect.
//! - `stats`: counters that can be read from outside; `diag`, `rarely`: what the log is told.
//! - `engine`: the thread that keeps it all going; `leader`: a waiting thread that does so instead.
//! - `device`, `verbs`: what C sees.
//!
//! Locks are taken in this order, and a lock further down never waits for one further up: a queue
//! pair's receiving side, its sending side, its (or a shared) receive queue; an id; completion
//! queues, channels; the engine's tables. The seat of a leader comes before all of these, and is never
//! waited for. A region's use count is no lock, but who waits for it
//! (deregistration) holds none.

mod addrinfo;
mod admission;
mod carrier;
mod cm;
mod cq;
mod delayed;
mod device;
pub mod diag;
mod engine;
mod eventq;
mod leader;
mod link;
mod mem;
mod mr;
mod persist;
mod qp;
mod rarely;
mod recvq;
mod requester;
mod responder;
mod spin;
pub(crate) mod stats;
mod sync;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
pub mod tests;
pub mod verbs;
pub mod wire;

use crate::verbs::provider::Provider;

/// Whether a device context is this fabric's.
///
/// # Safety
/// The context is open, of whatever fabric.
pub(crate) unsafe fn owns(context: std::ptr::NonNull<rdma_sys::ibv_context>) -> bool {
    // SAFETY: an open context has a device for its whole life.
    device::is_own(unsafe { (*context.as_ptr()).device })
}

/// For the end of the process, while other threads may be anywhere still: what peers wait for is sent.
pub(crate) fn end() {
    engine::Engine::end();
}

/// How a persistent flush of a mapped range works: how many of its bytes are persistent memory,
/// whose cache lines are written back, and the CPU's instruction for that. The rest gets `msync`.
pub(crate) fn durability(addr: u64, len: u64) -> (u64, &'static str) {
    let direct = persist::Extents::of(addr, len).direct_bytes(addr, len);
    (direct, persist::instruction())
}

/// The fabric as a table of functions.
pub fn provider() -> &'static Provider {
    use verbs::*;
    static PROVIDER: Provider = Provider {
        ibv_get_device_list,
        ibv_free_device_list,
        ibv_get_device_name,
        ibv_query_device,
        ibv_alloc_pd,
        ibv_dealloc_pd,
        ibv_reg_mr,
        ibv_dereg_mr,
        ibv_create_comp_channel,
        ibv_destroy_comp_channel,
        ibv_create_cq,
        ibv_destroy_cq,
        ibv_get_cq_event,
        ibv_ack_cq_events,
        ibv_create_srq,
        ibv_destroy_srq,
        ibv_destroy_qp,
        ibv_qp_to_qp_ex,
        rdma_create_event_channel,
        rdma_destroy_event_channel,
        rdma_create_id,
        rdma_destroy_id,
        rdma_migrate_id,
        rdma_getaddrinfo,
        rdma_freeaddrinfo,
        rdma_bind_addr,
        rdma_resolve_addr,
        rdma_resolve_route,
        rdma_create_qp_ex,
        rdma_destroy_qp,
        rdma_listen,
        rdma_connect,
        rdma_accept,
        rdma_reject,
        rdma_disconnect,
        rdma_get_cm_event,
        rdma_ack_cm_event,
        rdma_event_str,
    };
    &PROVIDER
}
