// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Trying out which native abilities queue pairs can really be created with.
//!
//! The kernel's capability bits speak for the device only. The libibverbs in use may be older and
//! refuse, or have no extended interface; where that shows as late as with the first connection,
//! regions were registered already with rights that the fallback cannot use.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int};
use std::mem::offset_of;
use std::ptr::{NonNull, null_mut};

use rdma_sys::{
    ibv_access_flags, ibv_cq, ibv_qp_init_attr_ex, ibv_qp_init_attr_mask, ibv_qp_type,
    verbs_context,
};

use super::pd::ProtectionDomain;
use super::qp::{NativeOps, QueuePair};
use crate::log::log_info;
use crate::sys::errno;

/// The smallest completion queue there is.
const ONE: c_int = 1;

/// Memory to see what the device says of; nobody reads or writes it. A page of its own, since
/// registration may set the whole page aside in forks.
#[repr(align(4096))]
struct Probed(UnsafeCell<[u8; 4096]>);

// SAFETY: only its address is used.
unsafe impl Sync for Probed {}

static PROBED: Probed = Probed(UnsafeCell::new([0; 4096]));

/// Which of the abilities in `offered` a queue pair can be created with. An answer, not an error:
/// whatever goes wrong means that they are not used, and is told at INFO.
pub(crate) fn native_ops(pd: &ProtectionDomain, offered: NativeOps, function: &CStr) -> NativeOps {
    let _kept = errno::Preserve::new();
    let device = pd.device();
    let provider = device.provider();
    // SAFETY: the context is open.
    let cq = unsafe { (provider.ibv_create_cq)(device.as_ptr(), ONE, null_mut(), null_mut(), 0) };
    if cq.is_null() {
        log_info!(
            function,
            "no native flush and atomic write: trying them failed: {}",
            errno::Text(errno::get())
        );
        return NativeOps::default();
    }
    let found = tried(pd, cq, offered, function);
    // SAFETY: the queue was created above, and the queue pairs on it are gone.
    unsafe { (provider.ibv_destroy_cq)(cq) };
    found
}

/// Whether ordinary memory can be registered to be flushed to persistence. soft-RoCE takes nothing
/// but persistent memory, and a program that has none asks for it all the same.
///
/// An answer, not an error: what cannot be tried out is taken to work, so that the registration
/// itself says why not.
pub(crate) fn persistent_flush(pd: &ProtectionDomain, function: &CStr) -> bool {
    let _kept = errno::Preserve::new();
    let Ok(domain) = pd.get() else {
        return true;
    };
    let provider = pd.device().provider();
    let rights = ibv_access_flags::IBV_ACCESS_FLUSH_PERSISTENT.0 as c_int;
    // SAFETY: the domain is alive, and the memory is there for ever.
    let region =
        unsafe { (provider.ibv_reg_mr)(domain.as_ptr(), PROBED.0.get().cast(), 8, rights) };
    if region.is_null() {
        if errno::get() != libc::EINVAL {
            return true;
        }
        log_info!(
            function,
            "no native flush to persistence: this device does it for persistent memory only; an RDMA read after the writes serves instead"
        );
        return false;
    }
    // SAFETY: the region was just registered and is not used after this call.
    unsafe { (provider.ibv_dereg_mr)(region) };
    true
}

/// Both abilities together, or else each by itself.
fn tried(pd: &ProtectionDomain, cq: *mut ibv_cq, offered: NativeOps, function: &CStr) -> NativeOps {
    let found = create(pd, cq, offered, function);
    if found == offered || !(offered.flush && offered.atomic_write) {
        return found;
    }
    let alone = |wanted| create(pd, cq, wanted, function);
    NativeOps {
        flush: alone(NativeOps {
            flush: true,
            atomic_write: false,
        })
        .flush,
        atomic_write: alone(NativeOps {
            flush: false,
            atomic_write: true,
        })
        .atomic_write,
    }
}

/// Creates a small queue pair with the abilities in `wanted`, sees which of them it has, and
/// destroys it again.
fn create(pd: &ProtectionDomain, cq: *mut ibv_cq, wanted: NativeOps, function: &CStr) -> NativeOps {
    let device = pd.device();
    let provider = device.provider();
    let Ok(domain) = pd.get() else {
        return NativeOps::default();
    };
    let Some(extended) = device.extended(offset_of!(verbs_context, create_qp_ex)) else {
        return NativeOps::default();
    };
    // SAFETY: the extension is alive and reaches this field.
    let Some(create_qp_ex) = (unsafe { (*extended.as_ptr()).create_qp_ex }) else {
        return NativeOps::default();
    };
    // SAFETY: plain data, for which zero is a valid value.
    let mut attr: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
    attr.send_cq = cq;
    attr.recv_cq = cq;
    attr.cap.max_send_wr = 1;
    attr.cap.max_recv_wr = 1;
    attr.cap.max_send_sge = 1;
    attr.cap.max_recv_sge = 1;
    attr.qp_type = ibv_qp_type::IBV_QPT_RC;
    attr.pd = domain.as_ptr();
    attr.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0
        | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
    attr.send_ops_flags = wanted.create_flags();
    // SAFETY: all that the attributes name is alive.
    let created = NonNull::new(unsafe { create_qp_ex(device.as_ptr(), &raw mut attr) });
    let Some(raw) = created else {
        log_info!(
            function,
            "the device offers more than this libibverbs: a queue pair with {wanted:?} is refused: {}",
            errno::Text(errno::get())
        );
        return NativeOps::default();
    };
    // SAFETY: the queue pair was just created with these abilities and outlives `qp`.
    let qp = unsafe { QueuePair::new(raw, provider, wanted) };
    let found = NativeOps {
        flush: qp.can_flush(),
        atomic_write: qp.can_write_atomically(),
    };
    // SAFETY: the queue pair is alive and not used after this call.
    unsafe { (provider.ibv_destroy_qp)(raw.as_ptr()) };
    found
}
