// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Shared receive queue: one pool of receive requests for several queue pairs.

use std::ffi::{CStr, c_int};
use std::ptr::{NonNull, null_mut};

use rdma_sys::{ibv_recv_wr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr};

use super::context::DeviceContext;
use super::pd::ProtectionDomain;
use super::qp::{Element, ReceiveRequest};
use super::{Released, check_and_set_errno, log_failure};
use crate::error::Error;
use crate::fault;
use crate::sys::errno;

// SAFETY: the provider's calls on a queue may come from any thread.
unsafe impl Send for RawSharedReceiveQueue {}
// SAFETY: as above.
unsafe impl Sync for RawSharedReceiveQueue {}

/// A shared receive queue of the provider.
pub(crate) struct RawSharedReceiveQueue {
    raw: NonNull<ibv_srq>,
    device: DeviceContext,
    released: Released,
    post: unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
}

impl RawSharedReceiveQueue {
    pub(crate) fn create(
        pd: &ProtectionDomain,
        requests: u32,
        function: &CStr,
    ) -> Result<Self, Error> {
        fault::point(function, Error::Provider)?;
        let domain = pd.get()?;
        let device = pd.device();
        let mut attr = ibv_srq_init_attr {
            srq_context: null_mut(),
            attr: ibv_srq_attr {
                max_wr: requests,
                max_sge: 1,
                srq_limit: 0,
            },
        };
        // SAFETY: the domain is alive and the attributes valid for the call.
        let raw = unsafe { (device.provider().ibv_create_srq)(domain.as_ptr(), &raw mut attr) };
        let Some(raw) = NonNull::new(raw) else {
            log_failure(
                function,
                "ibv_create_srq",
                format_args!("(max_wr={requests})"),
                errno::get(),
            );
            return Err(Error::Provider);
        };
        // SAFETY: a queue's context is valid, and its operations never change.
        let post = unsafe { (*(*raw.as_ptr()).context).ops.post_srq_recv }.unwrap_or(no_post);
        Ok(RawSharedReceiveQueue {
            raw,
            device,
            released: Released::not_yet(),
            post,
        })
    }

    /// The queue for use in a call; INVAL once it was released.
    pub(crate) fn get(&self) -> Result<NonNull<ibv_srq>, Error> {
        if self.released.is_claimed() {
            return Err(Error::Inval);
        }
        Ok(self.raw)
    }

    /// Posts one receive request.
    #[inline(always)]
    pub(crate) fn post(&self, wr_id: u64, element: Element, function: &CStr) -> Result<(), Error> {
        // SAFETY: the queue is alive, and the request valid for the call.
        ReceiveRequest { wr_id, element }.post_with(
            function,
            "ibv_post_srq_recv",
            |wr, bad| unsafe { (self.post)(self.raw.as_ptr(), wr, bad) },
        )
    }

    /// Releases the queue. If the provider refuses and `others_use_it`, it is released when the
    /// last of them is gone.
    pub(crate) fn release(&self, function: &CStr, others_use_it: bool) -> Result<(), Error> {
        if !self.released.claim() {
            return Ok(());
        }
        // SAFETY: the queue is this object's own, and the claim made this its only release.
        let result = unsafe { (self.device.provider().ibv_destroy_srq)(self.raw.as_ptr()) };
        let released = check_and_set_errno(function, "ibv_destroy_srq", result);
        if released.is_err() && others_use_it {
            self.released.defer();
        }
        released
    }
}

impl Drop for RawSharedReceiveQueue {
    fn drop(&mut self) {
        let _kept = errno::Preserve::new();
        // A failure was logged; nobody is left to hear of it.
        let _ = self.release(c"rpma_srq_delete", false);
    }
}

/// What stands in for posting on a device that cannot.
unsafe extern "C" fn no_post(
    _srq: *mut ibv_srq,
    _wr: *mut ibv_recv_wr,
    _bad: *mut *mut ibv_recv_wr,
) -> c_int {
    libc::EOPNOTSUPP
}
