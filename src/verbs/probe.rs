// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Trying out whether queue pairs with native abilities can really be created.
//!
//! The kernel's capability bits speak for the device only. The libibverbs in use may be older and
//! refuse; where that shows as late as with the first connection, regions were registered already
//! with rights that the fallback cannot use.

use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr::null_mut;

use rdma_sys::{
    ibv_qp_create_send_ops_flags, ibv_qp_init_attr_ex, ibv_qp_init_attr_mask, ibv_qp_type,
    verbs_context,
};

use super::pd::ProtectionDomain;
use super::qp::NativeOps;
use crate::sys::errno;

/// The smallest completion queue and queue pair there are.
const ONE: c_int = 1;

/// Creates a small queue pair with the abilities in `wanted` and destroys it again. An answer,
/// not an error: whatever goes wrong means no.
pub(crate) fn queue_pair_can(pd: &ProtectionDomain, wanted: NativeOps) -> bool {
    let _kept = errno::Preserve::new();
    let device = pd.device();
    let provider = device.provider();
    let Ok(domain) = pd.get() else {
        return false;
    };
    let Some(extended) = device.extended(offset_of!(verbs_context, create_qp_ex)) else {
        return false;
    };
    // SAFETY: the extension is alive and reaches this field.
    let Some(create_qp_ex) = (unsafe { (*extended.as_ptr()).create_qp_ex }) else {
        return false;
    };
    // SAFETY: the context is open.
    let cq = unsafe { (provider.ibv_create_cq)(device.as_ptr(), ONE, null_mut(), null_mut(), 0) };
    if cq.is_null() {
        return false;
    }
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
    if wanted.flush {
        attr.send_ops_flags |= u64::from(ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_FLUSH.0);
    }
    if wanted.atomic_write {
        attr.send_ops_flags |=
            u64::from(ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_ATOMIC_WRITE.0);
    }
    // SAFETY: all that the attributes name is alive; both objects are destroyed in order.
    unsafe {
        let qp = create_qp_ex(device.as_ptr(), &raw mut attr);
        let created = !qp.is_null();
        if created {
            (provider.ibv_destroy_qp)(qp);
        }
        (provider.ibv_destroy_cq)(cq);
        created
    }
}
