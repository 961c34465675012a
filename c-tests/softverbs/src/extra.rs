// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Functions of rdma-core that programs other than librpma import.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use rdma_sys::*;

macro_rules! versioned {
    ($($version:literal $name:ident,)*) => {$(
        std::arch::global_asm!(concat!(
            ".symver ", stringify!($name), ", ", stringify!($name), "@@", $version
        ));
    )*};
}

versioned! {
    "IBVERBS_1.1" ibv_open_device,
    "IBVERBS_1.1" ibv_close_device,
    "IBVERBS_1.1" ibv_query_port,
    "IBVERBS_1.1" ibv_query_gid,
    "IBVERBS_1.1" ibv_query_pkey,
    "IBVERBS_1.1" ibv_get_device_guid,
    "IBVERBS_1.1" ibv_wc_status_str,
    "IBVERBS_1.1" ibv_node_type_str,
    "IBVERBS_1.1" ibv_port_state_str,
    "IBVERBS_1.1" ibv_event_type_str,
    "IBVERBS_1.1" ibv_fork_init,
    "IBVERBS_1.1" ibv_get_async_event,
    "IBVERBS_1.1" ibv_ack_async_event,
    "IBVERBS_1.1" ibv_create_qp,
    "IBVERBS_1.1" ibv_modify_qp,
    "IBVERBS_1.1" ibv_query_qp,
    "IBVERBS_1.8" ibv_reg_mr_iova2,
    "RDMACM_1.0" rdma_create_qp,
    "RDMACM_1.0" rdma_get_devices,
    "RDMACM_1.0" rdma_free_devices,
    "RDMACM_1.0" rdma_get_src_port,
    "RDMACM_1.0" rdma_get_dst_port,
    "RDMACM_1.0" rdma_set_option,
    "RDMACM_1.0" rdma_notify,
    "RDMACM_1.0" rpoll,
    "RDMACM_1.2" rdma_establish,
    "RDMACM_1.2" rdma_init_qp_attr,
}

fn fail(error: c_int) -> c_int {
    // SAFETY: the calling thread's own errno.
    unsafe { *libc::__errno_location() = error };
    -1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the same function.
    unsafe { rpma::soft::verbs::ibv_open_device(device) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: the same function.
    unsafe { rpma::soft::verbs::ibv_close_device(context) }
}

/// As in the library, the structure is the short one of old headers; newer programs call the
/// context's function and come here only with an old context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut c_void,
) -> c_int {
    const OLD_LEN: usize = std::mem::offset_of!(ibv_port_attr, port_cap_flags2);
    // SAFETY: the caller's structure, as long as the old one at least.
    unsafe { rpma::soft::verbs::query_port(context, port, attr.cast(), OLD_LEN) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid(
    _context: *mut ibv_context,
    _port: u8,
    index: c_int,
    gid: *mut [u8; 16],
) -> c_int {
    if index != 0 {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller's variable.
    unsafe { *gid = [0; 16] };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_pkey(
    _context: *mut ibv_context,
    _port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    if index != 0 {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller's variable.
    unsafe { *pkey = 0xffff };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_guid(_device: *mut ibv_device) -> u64 {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_wc_status_str(status: c_uint) -> *const c_char {
    let texts = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory management operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
    ];
    texts
        .get(status as usize)
        .map_or(c"unknown".as_ptr(), |t| t.as_ptr())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_node_type_str(_kind: c_int) -> *const c_char {
    c"InfiniBand channel adapter".as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_port_state_str(_state: c_uint) -> *const c_char {
    c"active".as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_event_type_str(_event: c_uint) -> *const c_char {
    c"unknown".as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// Waits for ever, or fails with EAGAIN: there are no asynchronous events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    _event: *mut c_void,
) -> c_int {
    let mut count = 0u64;
    // SAFETY: a descriptor of the context, and 8 bytes to read into.
    unsafe { libc::read((*context).async_fd, (&raw mut count).cast(), 8) };
    -1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_async_event(_event: *mut c_void) {}

/// Queue pairs are connected by the connection manager only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(
    _pd: *mut ibv_pd,
    _attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    fail(libc::EOPNOTSUPP);
    null_mut()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(
    _qp: *mut ibv_qp,
    _attr: *mut ibv_qp_attr,
    _mask: c_int,
) -> c_int {
    libc::EOPNOTSUPP
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    _qp: *mut ibv_qp,
    _attr: *mut ibv_qp_attr,
    _mask: c_int,
    _init: *mut ibv_qp_init_attr,
) -> c_int {
    libc::EOPNOTSUPP
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    if iova != addr as u64 {
        fail(libc::EOPNOTSUPP);
        return null_mut();
    }
    // SAFETY: the same function without an address of its own.
    unsafe { (rpma::soft::provider().ibv_reg_mr)(pd, addr, length, access as c_int) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: all zeros is a valid value; the caller's structures.
    unsafe {
        let mut ex: ibv_qp_init_attr_ex = std::mem::zeroed();
        ex.qp_context = (*attr).qp_context;
        ex.send_cq = (*attr).send_cq;
        ex.recv_cq = (*attr).recv_cq;
        ex.srq = (*attr).srq;
        ex.cap = (*attr).cap;
        ex.qp_type = (*attr).qp_type;
        ex.sq_sig_all = (*attr).sq_sig_all;
        ex.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0;
        ex.pd = pd;
        let result = (rpma::soft::provider().rdma_create_qp_ex)(id, &mut ex);
        (*attr).cap = ex.cap;
        result
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_devices(num: *mut c_int) -> *mut *mut ibv_context {
    // SAFETY: the fabric's device.
    let context = unsafe { rpma::soft::verbs::ibv_open_device(null_mut()) };
    if context.is_null() {
        return null_mut();
    }
    if !num.is_null() {
        // SAFETY: the caller's variable.
        unsafe { *num = 1 };
    }
    Box::into_raw(Box::new([context, null_mut()])).cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    if !list.is_null() {
        // SAFETY: made by `rdma_get_devices`.
        unsafe {
            rpma::soft::verbs::ibv_close_device(*list);
            drop(Box::from_raw(list.cast::<[*mut ibv_context; 2]>()));
        }
    }
}

/// The port, in network order, that stands at the same place in both address families.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: an id of ours.
    unsafe { (*id).route.addr.src_addr_union.src_sin.sin_port }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: an id of ours.
    unsafe { (*id).route.addr.dst_addr_union.dst_sin.sin_port }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_option(
    _id: *mut rdma_cm_id,
    _level: c_int,
    _name: c_int,
    _value: *mut c_void,
    _len: usize,
) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_notify(_id: *mut rdma_cm_id, _event: c_uint) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_establish(_id: *mut rdma_cm_id) -> c_int {
    fail(libc::EINVAL)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_init_qp_attr(
    _id: *mut rdma_cm_id,
    _attr: *mut ibv_qp_attr,
    _mask: *mut c_int,
) -> c_int {
    fail(libc::EOPNOTSUPP)
}

/// The library's sockets are not here; what is left are ordinary descriptors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpoll(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: c_int,
) -> c_int {
    // SAFETY: the same function.
    unsafe { libc::poll(fds, count, timeout) }
}
