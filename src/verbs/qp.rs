// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Queue pair: posting work requests.
//!
//! A queue pair is created and destroyed through its CM id (see [`cm`](super::cm)); what lives
//! here is what is done with it in between, which is the data path: a work request is built on
//! the stack and handed to the device's own function.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr::{NonNull, null_mut};

use rdma_sys::{
    IBV_FLUSH_RANGE, bind_mw_tso_union_t, ibv_qp, ibv_qp_create_send_ops_flags, ibv_qp_ex,
    ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wr_opcode,
    imm_data_invalidated_rkey_union_t, qp_type_t, rdma_t, tso_t, wr_t, xrc_t,
};

use super::log_failure;
use super::provider::Provider;
use crate::error::Error;
use crate::fault;

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

    /// The flags that ask for these abilities when a queue pair is created.
    pub(super) fn create_flags(self) -> u64 {
        use ibv_qp_create_send_ops_flags as Flags;
        let mut flags = 0;
        if self.flush {
            flags |= u64::from(Flags::IBV_QP_EX_WITH_FLUSH.0);
        }
        if self.atomic_write {
            flags |= u64::from(Flags::IBV_QP_EX_WITH_ATOMIC_WRITE.0);
        }
        flags
    }
}

/// Memory on the other side.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RemoteAddress {
    pub(crate) address: u64,
    pub(crate) key: u32,
}

/// The scatter/gather list of a request: one element, or none.
pub(crate) struct Element {
    sge: ibv_sge,
    count: c_int,
}

impl Element {
    /// No memory at all.
    pub(crate) const NONE: Element = Element {
        sge: ibv_sge {
            addr: 0,
            length: 0,
            lkey: 0,
        },
        count: 0,
    };

    #[inline(always)]
    pub(crate) fn one(sge: ibv_sge) -> Self {
        Element { sge, count: 1 }
    }

    /// The list as the provider wants it.
    #[inline(always)]
    fn list(&mut self) -> *mut ibv_sge {
        if self.count == 0 {
            null_mut()
        } else {
            &raw mut self.sge
        }
    }
}

/// One request for the send queue.
pub(crate) struct SendRequest {
    pub(crate) opcode: ibv_wr_opcode::Type,
    pub(crate) wr_id: u64,
    pub(crate) flags: c_uint,
    /// In network byte order.
    pub(crate) immediate: u32,
    pub(crate) remote: RemoteAddress,
    pub(crate) element: Element,
}

/// One request for a receive queue.
pub(crate) struct ReceiveRequest {
    pub(crate) wr_id: u64,
    pub(crate) element: Element,
}

impl ReceiveRequest {
    /// Builds the provider's form of the request and posts it through `post`.
    #[inline(always)]
    pub(super) fn post_with(
        self,
        function: &CStr,
        call: &str,
        post: impl FnOnce(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    ) -> Result<(), Error> {
        fault::point(function, Error::Provider)?;
        let mut element = self.element;
        let mut wr = ibv_recv_wr {
            wr_id: self.wr_id,
            next: null_mut(),
            sg_list: element.list(),
            num_sge: element.count,
        };
        let mut bad = null_mut();
        match post(&raw mut wr, &raw mut bad) {
            0 => Ok(()),
            number => {
                report_post_recv(function, call, self.wr_id, number);
                Err(Error::Provider)
            }
        }
    }
}

#[cold]
fn report_post_recv(function: &CStr, call: &str, wr_id: u64, number: c_int) {
    log_failure(function, call, format_args!("(wr_id={wr_id:#x})"), number);
}

type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
type PostRecv = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;

/// A queue pair. Whoever holds it is a [`QpId`](super::cm::QpId), which keeps it alive.
pub(crate) struct QueuePair {
    raw: NonNull<ibv_qp>,
    post_send: PostSend,
    post_recv: PostRecv,
    native: Option<Native>,
}

/// The extended interface of a queue pair, for the native operations. The functions are looked up
/// once, because a library that is too old for one of them has no place for it either.
struct Native {
    qp: NonNull<ibv_qp_ex>,
    start: unsafe extern "C" fn(*mut ibv_qp_ex),
    complete: unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int,
    flush: Option<WrFlush>,
    atomic_write: Option<WrAtomicWrite>,
}

type WrFlush = unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, usize, u8, u8);
type WrAtomicWrite = unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, *const c_void);

impl Native {
    /// The extended interface of a queue pair that was created with `created_with`.
    ///
    /// # Safety
    /// As for [`QueuePair::new`].
    unsafe fn of(
        raw: NonNull<ibv_qp>,
        provider: &'static Provider,
        created_with: NativeOps,
    ) -> Option<Self> {
        if !created_with.any() {
            return None;
        }
        // SAFETY: the queue pair is alive.
        let qp = NonNull::new(unsafe { (provider.ibv_qp_to_qp_ex)(raw.as_ptr()) })?;
        let extended = qp.as_ptr();
        // SAFETY: the first two fields are there in every version of the extended interface; the
        // others in each version that could create the queue pair with that ability.
        unsafe {
            Some(Native {
                qp,
                start: (*extended).wr_start?,
                complete: (*extended).wr_complete?,
                flush: if created_with.flush {
                    (*extended).wr_flush
                } else {
                    None
                },
                atomic_write: if created_with.atomic_write {
                    (*extended).wr_atomic_write
                } else {
                    None
                },
            })
        }
    }

    /// Posts one request of the extended interface, which `build` makes.
    #[inline(always)]
    fn post(
        &self,
        wr_id: u64,
        flags: c_uint,
        function: &CStr,
        build: impl FnOnce(*mut ibv_qp_ex),
    ) -> Result<(), Error> {
        fault::point(function, Error::Provider)?;
        let qp = self.qp.as_ptr();
        // SAFETY: the queue pair is alive. Start opens a batch, in which this thread alone may
        // touch the fields until it completes it.
        let number = unsafe {
            (self.start)(qp);
            (*qp).wr_id = wr_id;
            (*qp).wr_flags = flags;
            build(qp);
            (self.complete)(qp)
        };
        if number == 0 {
            return Ok(());
        }
        report_complete(function, wr_id, number);
        Err(Error::Provider)
    }
}

#[cold]
fn report_complete(function: &CStr, wr_id: u64, number: c_int) {
    let arguments = format_args!("(wr_id={wr_id:#x})");
    log_failure(function, "ibv_wr_complete", arguments, number);
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
        QueuePair {
            raw,
            post_send: ops.post_send.unwrap_or(no_post_send),
            post_recv: ops.post_recv.unwrap_or(no_post_recv),
            // SAFETY: the contract.
            native: unsafe { Native::of(raw, provider, native) },
        }
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair is alive; its number never changes.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    /// Whether it can write atomically natively.
    pub(super) fn can_write_atomically(&self) -> bool {
        self.native
            .as_ref()
            .is_some_and(|n| n.atomic_write.is_some())
    }

    /// Whether it can flush natively.
    #[inline(always)]
    pub(crate) fn can_flush(&self) -> bool {
        self.native.as_ref().is_some_and(|n| n.flush.is_some())
    }

    /// Posts one request to the send queue.
    #[inline(always)]
    pub(crate) fn post_send(&self, request: SendRequest, function: &CStr) -> Result<(), Error> {
        fault::point(function, Error::Provider)?;
        let mut element = request.element;
        let mut wr = ibv_send_wr {
            wr_id: request.wr_id,
            next: null_mut(),
            sg_list: element.list(),
            num_sge: element.count,
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
        // SAFETY: the queue pair is alive; the request and its element are valid for the call.
        let number = unsafe { (self.post_send)(self.raw.as_ptr(), &raw mut wr, &raw mut bad) };
        if number == 0 {
            return Ok(());
        }
        report_post_send(function, &wr, element.sge.length, number);
        Err(Error::Provider)
    }

    /// Posts one request to the receive queue.
    #[inline(always)]
    pub(crate) fn post_recv(
        &self,
        wr_id: u64,
        element: Element,
        function: &CStr,
    ) -> Result<(), Error> {
        // SAFETY: the queue pair is alive, and the request valid for the call.
        ReceiveRequest { wr_id, element }.post_with(function, "ibv_post_recv", |wr, bad| unsafe {
            (self.post_recv)(self.raw.as_ptr(), wr, bad)
        })
    }

    /// Posts a native flush of `len` bytes; `None` if the queue pair cannot. `kind` is one of the
    /// provider's placement types.
    #[inline(always)]
    pub(crate) fn post_flush(
        &self,
        remote: RemoteAddress,
        len: usize,
        kind: c_uint,
        wr_id: u64,
        flags: c_uint,
        function: &CStr,
    ) -> Option<Result<(), Error>> {
        let native = self.native.as_ref()?;
        let flush = native.flush?;
        Some(native.post(wr_id, flags, function, |qp| {
            let (kind, level) = (kind as u8, IBV_FLUSH_RANGE as u8);
            // SAFETY: the batch is open.
            unsafe { flush(qp, remote.key, remote.address, len, kind, level) };
        }))
    }

    /// Posts a native atomic write, with the flags that `flags` gives; `None` if the queue pair
    /// cannot.
    #[inline(always)]
    pub(crate) fn post_atomic_write(
        &self,
        remote: RemoteAddress,
        value: &[u8; 8],
        wr_id: u64,
        flags: impl FnOnce() -> c_uint,
        function: &CStr,
    ) -> Option<Result<(), Error>> {
        let native = self.native.as_ref()?;
        let write = native.atomic_write?;
        Some(native.post(wr_id, flags(), function, |qp| {
            // SAFETY: the batch is open; the provider copies the value during the call.
            unsafe { write(qp, remote.key, remote.address, value.as_ptr().cast()) };
        }))
    }
}

#[cold]
fn report_post_send(function: &CStr, wr: &ibv_send_wr, length: u32, number: c_int) {
    // SAFETY: this module fills the RDMA variant in every request.
    let remote = unsafe { wr.wr.rdma.remote_addr };
    log_failure(
        function,
        "ibv_post_send",
        format_args!(
            "(opcode={}, wr_id={:#x}, remote_addr={remote:#x}, length={length}, send_flags={:#x})",
            wr.opcode, wr.wr_id, wr.send_flags
        ),
        number,
    );
}

/// What stands in for an operation that a device does not have.
unsafe extern "C" fn no_post_send(
    _qp: *mut ibv_qp,
    _wr: *mut ibv_send_wr,
    _bad: *mut *mut ibv_send_wr,
) -> c_int {
    libc::EOPNOTSUPP
}

/// As above.
unsafe extern "C" fn no_post_recv(
    _qp: *mut ibv_qp,
    _wr: *mut ibv_recv_wr,
    _bad: *mut *mut ibv_recv_wr,
) -> c_int {
    libc::EOPNOTSUPP
}
