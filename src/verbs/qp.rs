// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Queue pair: posting work requests.
//!
//! A queue pair is created and destroyed through its CM id (see [`cm`](super::cm)); what lives
//! here is what is done with it in between, which is the data path: a work request is built on
//! the stack and handed to the device's own function.

use std::ffi::{CStr, c_int, c_uint};
use std::ptr::{NonNull, null_mut};

use rdma_sys::{
    IBV_FLUSH_RANGE, bind_mw_tso_union_t, ibv_qp, ibv_qp_ex, ibv_recv_wr, ibv_send_flags,
    ibv_send_wr, ibv_sge, ibv_wr_opcode, imm_data_invalidated_rkey_union_t, qp_type_t, rdma_t,
    tso_t, wr_t, xrc_t,
};

use super::provider::Provider;
use crate::error::Error;
use crate::log::log_error;
use crate::sys::errno;

pub(crate) const SIGNALED: c_uint = ibv_send_flags::IBV_SEND_SIGNALED.0;
pub(crate) const FENCE: c_uint = ibv_send_flags::IBV_SEND_FENCE.0;
pub(crate) const INLINE: c_uint = ibv_send_flags::IBV_SEND_INLINE.0;

/// What a queue pair was created to do beyond the basics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct NativeOps {
    pub(crate) flush: bool,
    pub(crate) atomic_write: bool,
}

impl NativeOps {
    pub(crate) fn any(self) -> bool {
        self.flush || self.atomic_write
    }
}

/// Memory on the other side.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RemoteAddress {
    pub(crate) address: u64,
    pub(crate) key: u32,
}

/// One request for the send queue.
pub(crate) struct SendRequest {
    pub(crate) opcode: ibv_wr_opcode::Type,
    pub(crate) wr_id: u64,
    pub(crate) flags: c_uint,
    /// In network byte order.
    pub(crate) immediate: u32,
    pub(crate) remote: RemoteAddress,
    pub(crate) element: Option<ibv_sge>,
}

/// One request for a receive queue.
pub(crate) struct ReceiveRequest {
    pub(crate) wr_id: u64,
    pub(crate) element: Option<ibv_sge>,
}

impl ReceiveRequest {
    /// Builds the provider's form of the request and posts it through `post`.
    #[inline]
    pub(super) fn post_with(
        self,
        function: &CStr,
        call: &str,
        post: impl FnOnce(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    ) -> Result<(), Error> {
        let mut element = self.element;
        let (sg_list, num_sge) = list_of(&mut element);
        let mut wr = ibv_recv_wr {
            wr_id: self.wr_id,
            next: null_mut(),
            sg_list,
            num_sge,
        };
        let mut bad = null_mut();
        match post(&raw mut wr, &raw mut bad) {
            0 => Ok(()),
            number => {
                log_error!(
                    function,
                    "{call}(wr_id={:#x}) failed: {}",
                    wr.wr_id,
                    errno::Text(number)
                );
                Err(Error::Provider)
            }
        }
    }
}

#[inline]
fn list_of(element: &mut Option<ibv_sge>) -> (*mut ibv_sge, c_int) {
    match element {
        Some(element) => (element, 1),
        None => (null_mut(), 0),
    }
}

type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
type PostRecv = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;

/// A queue pair. Whoever holds it is a [`QpId`](super::cm::QpId), which keeps it alive.
pub(crate) struct QueuePair {
    raw: NonNull<ibv_qp>,
    post_send: Option<PostSend>,
    post_recv: Option<PostRecv>,
    /// The extended interface, and what of it the queue pair was created to do.
    extended: Option<NonNull<ibv_qp_ex>>,
    native: NativeOps,
}

// SAFETY: posting from several threads is allowed by the verbs interface, except through the
// extended interface: that is serialised by the provider between start and complete.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// # Safety
    /// `raw` is a live queue pair of `provider`, was created with at least the abilities in
    /// `native`, and outlives the object.
    pub(super) unsafe fn new(
        raw: NonNull<ibv_qp>,
        provider: &'static Provider,
        native: NativeOps,
    ) -> Self {
        // SAFETY: a live queue pair has a valid context, whose operations never change.
        let ops = unsafe { &(*(*raw.as_ptr()).context).ops };
        let extended = if native.any() {
            // SAFETY: the queue pair is alive.
            NonNull::new(unsafe { (provider.ibv_qp_to_qp_ex)(raw.as_ptr()) })
        } else {
            None
        };
        QueuePair {
            raw,
            post_send: ops.post_send,
            post_recv: ops.post_recv,
            extended,
            native: if extended.is_some() {
                native
            } else {
                NativeOps::default()
            },
        }
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair is alive; its number never changes.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    /// What the queue pair can do beyond the basics.
    #[inline]
    pub(crate) fn native(&self) -> NativeOps {
        self.native
    }

    /// Posts one request to the send queue.
    #[inline]
    pub(crate) fn post_send(&self, request: SendRequest, function: &CStr) -> Result<(), Error> {
        let mut element = request.element;
        let (sg_list, num_sge) = list_of(&mut element);
        let mut wr = ibv_send_wr {
            wr_id: request.wr_id,
            next: null_mut(),
            sg_list,
            num_sge,
            opcode: request.opcode,
            send_flags: request.flags,
            imm_data_invalidated_rkey_union: imm_data_invalidated_rkey_union_t {
                imm_data: request.immediate,
            },
            wr: wr_t {
                rdma: rdma_t {
                    remote_addr: request.remote.address,
                    rkey: request.remote.key,
                },
            },
            qp_type: qp_type_t {
                xrc: xrc_t { remote_srqn: 0 },
            },
            bind_mw_tso_union: bind_mw_tso_union_t {
                tso: tso_t {
                    hdr: null_mut(),
                    hdr_sz: 0,
                    mss: 0,
                },
            },
        };
        let mut bad = null_mut();
        let Some(post) = self.post_send else {
            return Err(Error::NoSupp);
        };
        // SAFETY: the queue pair is alive; the request and its element are valid for the call.
        let number = unsafe { post(self.raw.as_ptr(), &raw mut wr, &raw mut bad) };
        if number == 0 {
            return Ok(());
        }
        report_post_send(function, &request, number);
        Err(Error::Provider)
    }

    /// Posts one request to the receive queue.
    #[inline]
    pub(crate) fn post_recv(
        &self,
        wr_id: u64,
        element: Option<ibv_sge>,
        function: &CStr,
    ) -> Result<(), Error> {
        let Some(post) = self.post_recv else {
            return Err(Error::NoSupp);
        };
        // SAFETY: the queue pair is alive, and the request valid for the call.
        ReceiveRequest { wr_id, element }.post_with(function, "ibv_post_recv", |wr, bad| unsafe {
            post(self.raw.as_ptr(), wr, bad)
        })
    }

    /// Posts a native flush of `len` bytes. `kind` is one of the provider's placement types.
    #[inline]
    pub(crate) fn post_flush(
        &self,
        remote: RemoteAddress,
        len: usize,
        kind: c_uint,
        wr_id: u64,
        flags: c_uint,
        function: &CStr,
    ) -> Result<(), Error> {
        if !self.native.flush {
            return Err(Error::NoSupp);
        }
        self.post_extended(wr_id, flags, function, |qp| {
            // SAFETY: `qp` is alive; a library that created it with native flush (checked above)
            // lays its structure out with this field, an older one would not.
            let flush = unsafe { (*qp).wr_flush }.ok_or(Error::NoSupp)?;
            // SAFETY: the batch is open.
            unsafe {
                flush(
                    qp,
                    remote.key,
                    remote.address,
                    len,
                    kind as u8,
                    IBV_FLUSH_RANGE as u8,
                );
            }
            Ok(())
        })
    }

    /// Posts a native atomic write.
    #[inline]
    pub(crate) fn post_atomic_write(
        &self,
        remote: RemoteAddress,
        value: &[u8; 8],
        wr_id: u64,
        flags: c_uint,
        function: &CStr,
    ) -> Result<(), Error> {
        if !self.native.atomic_write {
            return Err(Error::NoSupp);
        }
        self.post_extended(wr_id, flags, function, |qp| {
            // SAFETY: as in `post_flush`, for native atomic write.
            let write = unsafe { (*qp).wr_atomic_write }.ok_or(Error::NoSupp)?;
            // SAFETY: the batch is open; the provider copies the value during the call.
            unsafe { write(qp, remote.key, remote.address, value.as_ptr().cast()) };
            Ok(())
        })
    }

    /// Runs `build` between the start and the completion of a batch of the extended interface.
    #[inline]
    fn post_extended(
        &self,
        wr_id: u64,
        flags: c_uint,
        function: &CStr,
        build: impl FnOnce(*mut ibv_qp_ex) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let qp = self.extended.ok_or(Error::NoSupp)?.as_ptr();
        // SAFETY: the queue pair is alive, and these fields are there in every version of the
        // extended interface.
        let (start, complete, abort) =
            unsafe { ((*qp).wr_start, (*qp).wr_complete, (*qp).wr_abort) };
        let (Some(start), Some(complete), Some(abort)) = (start, complete, abort) else {
            return Err(Error::NoSupp);
        };
        // SAFETY: start opens a batch, in which this thread alone may touch the fields until it
        // completes or aborts it.
        unsafe {
            start(qp);
            (*qp).wr_id = wr_id;
            (*qp).wr_flags = flags;
        }
        if let Err(error) = build(qp) {
            // SAFETY: the batch is open.
            unsafe { abort(qp) };
            return Err(error);
        }
        // SAFETY: the batch is open.
        let number = unsafe { complete(qp) };
        if number == 0 {
            return Ok(());
        }
        log_error!(
            function,
            "ibv_wr_complete(wr_id={wr_id:#x}) failed: {}",
            errno::Text(number)
        );
        Err(Error::Provider)
    }
}

#[cold]
fn report_post_send(function: &CStr, request: &SendRequest, number: c_int) {
    let hint = if number == libc::ENOMEM {
        " (the send queue is full: take completions, or ask for a larger one)"
    } else {
        ""
    };
    log_error!(
        function,
        "ibv_post_send(opcode={}, wr_id={:#x}, remote_addr={:#x}, length={}, send_flags={:#x}) failed: {}{hint}",
        request.opcode,
        request.wr_id,
        request.remote.address,
        request.element.map_or(0, |element| element.length),
        request.flags,
        errno::Text(number)
    );
}
