// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The one device of the fabric, its contexts, and what it says about itself.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rdma_sys::{
    ibv_context, ibv_device, ibv_device_attr, ibv_device_attr_ex, ibv_mtu, ibv_node_type,
    ibv_port_attr, ibv_port_state, ibv_transport_type, verbs_context,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;

use super::cm::MAX_READS;
use super::link::SGE_MAX;
use crate::verbs::context::{CAP_ATOMIC_WRITE, CAP_FLUSH_GLOBAL, CAP_FLUSH_PERSISTENT};

/// Name of the device.
pub(super) const NAME: &str = "rpma_soft0";
/// Largest send, receive or shared receive queue.
pub(super) const MAX_WR: u32 = 1 << 16;
/// Largest completion queue.
pub(super) const MAX_CQE: c_int = (1 << 22) - 1;
/// Most bytes that a request may carry inline.
pub(super) const MAX_INLINE: u32 = 1024;

const ODP_SUPPORT: u64 = 1;
const ODP_SEND_RECV_WRITE_READ: u32 = 0b1111;

/// Count of objects of each kind; memory is the real limit.
const MANY: c_int = 1 << 20;

/// Tells an `ibv_context` with an extended part from one without.
const EXTENDED: usize = usize::MAX;

/// The address of the device, once it was made.
static DEVICE: OnceLock<usize> = OnceLock::new();

/// Whether this is the fabric's device. Makes none.
pub(super) fn is_own(device: *mut ibv_device) -> bool {
    DEVICE.get().is_some_and(|own| *own == device as usize)
}

/// The device, made at the first use.
pub(super) fn device() -> *mut ibv_device {
    *DEVICE.get_or_init(|| {
        // SAFETY: all zeros is a valid device: no functions, empty names.
        let mut device: Box<ibv_device> = Box::new(unsafe { std::mem::zeroed() });
        device.node_type = ibv_node_type::IBV_NODE_CA;
        device.transport_type = ibv_transport_type::IBV_TRANSPORT_IB;
        for name in [&mut device.name, &mut device.dev_name] {
            for (to, from) in name.iter_mut().zip(NAME.bytes()) {
                *to = from as _;
            }
        }
        Box::into_raw(device) as usize
    }) as *mut ibv_device
}

/// A context as C sees it; the program gets the address of `verbs.context`.
#[repr(C)]
pub(super) struct CContext {
    pub verbs: verbs_context,
    /// Asynchronous events come from here; there are none.
    _async: OwnedFd,
}

/// Makes a context whose functions `fill` sets.
pub(super) fn open(fill: fn(&mut verbs_context)) -> Result<*mut ibv_context, Errno> {
    let events = eventfd(0, EventfdFlags::CLOEXEC)?;
    // SAFETY: all zeros is a valid context without functions.
    let mut verbs: verbs_context = unsafe { std::mem::zeroed() };
    verbs.sz = size_of::<verbs_context>();
    verbs.context.device = device();
    verbs.context.cmd_fd = -1;
    verbs.context.async_fd = events.as_raw_fd();
    verbs.context.num_comp_vectors = 1;
    verbs.context.abi_compat = EXTENDED as *mut _;
    fill(&mut verbs);
    let context = Box::into_raw(Box::new(CContext {
        verbs,
        _async: events,
    }));
    // SAFETY: just made.
    Ok(unsafe { &raw mut (*context).verbs.context })
}

/// Frees a context.
///
/// # Safety
/// The context was made by [`open`] and nothing uses it any more.
pub(super) unsafe fn close(context: *mut ibv_context) {
    let start = context.wrapping_byte_sub(std::mem::offset_of!(verbs_context, context));
    // SAFETY: `open` has made it so.
    drop(unsafe { Box::from_raw(start.cast::<CContext>()) });
}

/// The context of all connection identifiers; it lives as long as the process.
pub(super) fn shared(fill: fn(&mut verbs_context)) -> Result<*mut ibv_context, Errno> {
    static SHARED: AtomicUsize = AtomicUsize::new(0);
    let known = SHARED.load(Ordering::Acquire);
    if known != 0 {
        return Ok(known as *mut ibv_context);
    }
    let fresh = open(fill)?;
    match SHARED.compare_exchange(0, fresh as usize, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(fresh),
        Err(other) => {
            // SAFETY: nobody else has seen it.
            unsafe { close(fresh) };
            Ok(other as *mut ibv_context)
        }
    }
}

pub(super) fn attributes() -> ibv_device_attr {
    // SAFETY: all zeros is a valid value.
    let mut attr: ibv_device_attr = unsafe { std::mem::zeroed() };
    for (to, from) in attr
        .fw_ver
        .iter_mut()
        .zip(env!("CARGO_PKG_VERSION").bytes())
    {
        *to = from as _;
    }
    attr.max_mr_size = u64::MAX;
    attr.page_size_cap = !(super::mem::page_size() - 1);
    attr.max_qp = MANY;
    attr.max_qp_wr = MAX_WR as c_int;
    attr.max_sge = SGE_MAX as c_int;
    attr.max_sge_rd = SGE_MAX as c_int;
    attr.max_cq = MANY;
    attr.max_cqe = MAX_CQE;
    attr.max_mr = MANY;
    attr.max_pd = MANY;
    attr.max_qp_rd_atom = c_int::from(MAX_READS);
    attr.max_res_rd_atom = MANY;
    attr.max_qp_init_rd_atom = c_int::from(MAX_READS);
    attr.max_srq = MANY;
    attr.max_srq_wr = MAX_WR as c_int;
    attr.max_srq_sge = SGE_MAX as c_int;
    attr.max_pkeys = 1;
    attr.phys_port_cnt = 1;
    attr
}

pub(super) fn attributes_ex() -> ibv_device_attr_ex {
    // SAFETY: all zeros is a valid value.
    let mut attr: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
    attr.orig_attr = attributes();
    attr.device_cap_flags_ex = CAP_FLUSH_GLOBAL | CAP_FLUSH_PERSISTENT | CAP_ATOMIC_WRITE;
    // Nothing is pinned, so all memory is paged in on demand.
    attr.odp_caps.general_caps = ODP_SUPPORT;
    attr.odp_caps.per_transport_caps.rc_odp_caps = ODP_SEND_RECV_WRITE_READ;
    attr.phys_port_cnt_ex = 1;
    attr
}

pub(super) fn port_attributes() -> ibv_port_attr {
    // SAFETY: all zeros is a valid value.
    let mut attr: ibv_port_attr = unsafe { std::mem::zeroed() };
    attr.state = ibv_port_state::IBV_PORT_ACTIVE;
    attr.max_mtu = ibv_mtu::IBV_MTU_4096;
    attr.active_mtu = ibv_mtu::IBV_MTU_4096;
    attr.gid_tbl_len = 1;
    attr.max_msg_sz = u32::MAX;
    attr.pkey_tbl_len = 1;
    // LinkUp, and Ethernet as link layer: addresses are IP addresses.
    attr.phys_state = 5;
    attr.link_layer = 2;
    attr
}
