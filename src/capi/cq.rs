// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Completion queue.

use std::ffi::c_int;
use std::ptr::null_mut;

use rdma_sys::ibv_wc;

use super::answer;
use super::handle::{Handle, Out, object};
use crate::cq::CompletionQueue;
use crate::error::Error;

super::symbols::versioned! {
    rpma_cq_get_fd
    rpma_cq_wait
    rpma_cq_get_wc
}

/// A completion queue. It belongs to the connection, or the shared receive queue, that gave it.
pub struct rpma_cq {
    _opaque: (),
}

// SAFETY: the only way to a handle of this type is `borrowed`, with this object.
unsafe impl Handle for rpma_cq {
    type Object = CompletionQueue;
}

impl rpma_cq {
    /// The handle of a queue that its owner keeps; null for none.
    #[inline]
    pub(super) fn borrowed(queue: Option<&CompletionQueue>) -> *mut rpma_cq {
        queue.map_or(null_mut(), |queue| {
            std::ptr::from_ref(queue).cast_mut().cast()
        })
    }
}

/// Gives the descriptor that becomes readable when a completion is announced. It belongs to the
/// library; the program may poll it and make it non-blocking, and then calls rpma_cq_wait().
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_cq_get_fd(cq: *const rpma_cq, fd: *mut c_int) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (queue, out) = unsafe { (object(cq)?, Out::new(fd)?) };
        out.set(queue.fd());
        Ok(())
    })
}

/// Waits until a completion is announced and asks for the next announcement. The completions are
/// then fetched with rpma_cq_get_wc(), all of them, since several may have one announcement.
///
/// Returns 0; RPMA_E_INVAL if cq is NULL; RPMA_E_SHARED_CHANNEL if the queue's channel is shared,
/// for which there is rpma_conn_wait(); RPMA_E_NO_COMPLETION if nothing is announced (the
/// descriptor is non-blocking, or the wait was interrupted); RPMA_E_PROVIDER if the next
/// announcement cannot be asked for (errno says why).
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_cq_wait(cq: *mut rpma_cq) -> c_int {
    // SAFETY: the C contract.
    answer(|| unsafe { object(cq) }?.wait())
}

/// Marks the way to a refusal as one that is rarely taken.
#[cold]
fn invalid() -> Error {
    Error::Inval
}

/// Fetches up to num_entries completions to wc; *num_entries_got, which may be NULL if
/// num_entries is 1, becomes the number that there were.
///
/// Returns 0 if there was at least one; RPMA_E_INVAL if cq or wc is NULL, num_entries is below 1,
/// or num_entries_got is NULL with num_entries above 1; RPMA_E_NO_COMPLETION if there is none;
/// RPMA_E_PROVIDER if the provider fails; RPMA_E_UNKNOWN if it claims more than it was asked for.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_cq_get_wc(
    cq: *mut rpma_cq,
    num_entries: c_int,
    wc: *mut ibv_wc,
    num_entries_got: *mut c_int,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let queue = unsafe { object(cq) }?;
        if num_entries != 1 && (num_entries < 1 || num_entries_got.is_null()) {
            return Err(invalid());
        }
        if wc.is_null() {
            return Err(invalid());
        }
        // SAFETY: the C contract: `wc` has room for `num_entries` completions.
        let got = unsafe { queue.poll(num_entries, wc) }?;
        // SAFETY: the C contract.
        if let Some(place) = unsafe { Out::optional(num_entries_got) } {
            place.set(got);
        }
        Ok(())
    })
}
