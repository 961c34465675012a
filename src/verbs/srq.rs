// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Shared receive queue: one pool of receive requests for several queue pairs.

use std::ffi::{CStr, c_int};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use rdma_sys::{ibv_recv_wr, ibv_sge, ibv_srq, ibv_srq_attr, ibv_srq_init_attr};

use super::check_and_set_errno;
use super::context::DeviceContext;
use super::pd::ProtectionDomain;
use super::qp::ReceiveRequest;
use crate::error::Error;
use crate::log::log_error;
use crate::sys::errno;

/// A shared receive queue of the provider.
pub(crate) struct RawSharedReceiveQueue {
    /// Null once it was released.
    raw: AtomicPtr<ibv_srq>,
    device: DeviceContext,
    post: Option<
        unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    >,
}

impl RawSharedReceiveQueue {
    pub(crate) fn create(
        pd: &ProtectionDomain,
        requests: u32,
        function: &CStr,
    ) -> Result<Self, Error> {
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
        if raw.is_null() {
            log_error!(
                function,
                "ibv_create_srq(max_wr={requests}) failed: {}",
                errno::Text(errno::get())
            );
            return Err(Error::Provider);
        }
        // SAFETY: a queue's context is valid, and its operations never change.
        let post = unsafe { (*(*raw).context).ops.post_srq_recv };
        Ok(RawSharedReceiveQueue {
            raw: AtomicPtr::new(raw),
            device,
            post,
        })
    }

    /// The queue for use in a call; INVAL once it was released.
    pub(crate) fn get(&self) -> Result<NonNull<ibv_srq>, Error> {
        NonNull::new(self.raw.load(Ordering::Acquire)).ok_or(Error::Inval)
    }

    /// Posts one receive request.
    #[inline]
    pub(crate) fn post(
        &self,
        wr_id: u64,
        element: Option<ibv_sge>,
        function: &CStr,
    ) -> Result<(), Error> {
        let queue = self.get()?;
        let Some(post) = self.post else {
            return Err(Error::NoSupp);
        };
        // SAFETY: the queue is alive, and the request valid for the call.
        ReceiveRequest { wr_id, element }.post_with(
            function,
            "ibv_post_srq_recv",
            |wr, bad| unsafe { post(queue.as_ptr(), wr, bad) },
        )
    }

    /// Releases the queue. If the provider refuses and `others_use_it`, it is released when the
    /// last of them is gone.
    pub(crate) fn release(&self, function: &CStr, others_use_it: bool) -> Result<(), Error> {
        let raw = self.raw.swap(null_mut(), Ordering::AcqRel);
        if raw.is_null() {
            return Ok(());
        }
        // SAFETY: the queue was created by this provider and the swap made this the only place
        // that can release it.
        let result = unsafe { (self.device.provider().ibv_destroy_srq)(raw) };
        let released = check_and_set_errno(function, "ibv_destroy_srq", result);
        if released.is_err() && others_use_it {
            self.raw.store(raw, Ordering::Release);
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
