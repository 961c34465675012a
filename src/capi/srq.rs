// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Shared receive queue.

use std::ffi::{c_int, c_void};

use super::conn::local_range;
use super::handle::{self, Handle, Out, co_owner, object, object_or_none};
use super::{answer, rpma_cq, rpma_mr_local, rpma_peer, rpma_srq_cfg};
use crate::srq::SharedReceiveQueue;
use crate::srq_cfg::SrqConfig;

super::symbols::versioned! {
    rpma_srq_new
    rpma_srq_delete
    rpma_srq_recv
    rpma_srq_get_rcq
}

/// A shared receive queue: receive requests that several connections take from.
pub struct rpma_srq {
    _opaque: (),
}

// SAFETY: the only way to a handle of this type is `Out::share` with this object.
unsafe impl Handle for rpma_srq {
    type Object = SharedReceiveQueue;
}

/// Creates a shared receive queue; a NULL cfg means the defaults. It is deleted with
/// rpma_srq_delete(), after the connections that use it.
///
/// Returns 0; RPMA_E_INVAL if peer or srq_ptr is NULL; RPMA_E_PROVIDER if the queue or its
/// completion queue cannot be created (errno says why); RPMA_E_NOMEM.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_srq_new(
    peer: *mut rpma_peer,
    cfg: *mut rpma_srq_cfg,
    srq_ptr: *mut *mut rpma_srq,
) -> c_int {
    static DEFAULTS: SrqConfig = SrqConfig::new();
    answer(|| {
        // SAFETY: the C contract; handles of a peer are given out by `Out::share`.
        let (peer, out) = unsafe { (co_owner(peer)?, Out::new(srq_ptr)?) };
        // SAFETY: the C contract.
        let config = unsafe { object_or_none(cfg) }.unwrap_or(&DEFAULTS);
        out.share_or_null(SharedReceiveQueue::new(peer, config)?)
    })
}

/// Deletes a shared receive queue and its completion queue; *srq_ptr becomes NULL, also on
/// failure. A NULL *srq_ptr is success.
///
/// Returns 0; RPMA_E_INVAL if srq_ptr is NULL; RPMA_E_PROVIDER if a queue cannot be released, as
/// is the case while connections use it (errno says why).
///
/// Thread safety: safe on different queues.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_srq_delete(srq_ptr: *mut *mut rpma_srq) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        match unsafe { handle::take_shared(srq_ptr) }? {
            Some(srq) => srq.release(!srq.is_sole_owner()),
            None => Ok(()),
        }
    })
}

/// Posts a receive request for a message of up to len bytes to offset of dst, which has the usage
/// RPMA_MR_USAGE_RECV. dst may be NULL, with offset and len 0, for a message without bytes.
/// op_context comes back as wr_id of the completion.
///
/// Returns 0; RPMA_E_INVAL if srq is NULL, dst is NULL with offset or len not 0, or len is above
/// 4 GiB - 1; RPMA_E_PROVIDER if the provider refuses, as it does when the queue is full.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_srq_recv(
    srq: *mut rpma_srq,
    dst: *mut rpma_mr_local,
    offset: usize,
    len: usize,
    op_context: *const c_void,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (srq, into) = unsafe { (object(srq)?, local_range(dst, offset, len)?) };
        srq.recv(into, op_context as u64)
    })
}

/// Gives the completion queue for receives through the shared queue; NULL if it has none of its
/// own. It belongs to the shared queue.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_srq_get_rcq(
    srq: *const rpma_srq,
    rcq_ptr: *mut *mut rpma_cq,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (srq, out) = unsafe { (object(srq)?, Out::new(rcq_ptr)?) };
        out.set(rpma_cq::borrowed(srq.rcq()));
        Ok(())
    })
}
