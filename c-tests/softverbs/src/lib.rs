// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The software fabric under the names of libibverbs and librdmacm.
//!
//! For tests only: programs that were built against rdma-core, among them other builds of
//! librpma, run on the fabric when this library is found in place of both. It is one file under
//! two names (symbolic links), so that both names share one fabric.
//!
//! What lives here: the names, their versions, and functions that such programs import although
//! librpma does not need them. The fabric itself is `rpma::soft`.

#![allow(clippy::missing_safety_doc)]

use std::ffi::{c_char, c_int, c_uint, c_void};

use rdma_sys::*;

mod extra;

macro_rules! export {
    ($($version:literal $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => {$(
        std::arch::global_asm!(concat!(
            ".symver ", stringify!($name), ", ", stringify!($name), "@@", $version
        ));

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) $(-> $ret)? {
            // SAFETY: the same function with the same arguments.
            unsafe { (rpma::soft::provider().$name)($($arg),*) }
        }
    )*};
}

export! {
    "IBVERBS_1.1" ibv_get_device_list(num: *mut c_int) -> *mut *mut ibv_device;
    "IBVERBS_1.1" ibv_free_device_list(list: *mut *mut ibv_device);
    "IBVERBS_1.1" ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
    "IBVERBS_1.1" ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
    "IBVERBS_1.1" ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    "IBVERBS_1.1" ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    "IBVERBS_1.1" ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
    "IBVERBS_1.1" ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
    "IBVERBS_1.0" ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    "IBVERBS_1.0" ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    "IBVERBS_1.1" ibv_create_cq(context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void, channel: *mut ibv_comp_channel, comp_vector: c_int) -> *mut ibv_cq;
    "IBVERBS_1.1" ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    "IBVERBS_1.1" ibv_get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void) -> c_int;
    "IBVERBS_1.1" ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint);
    "IBVERBS_1.1" ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    "IBVERBS_1.1" ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    "IBVERBS_1.1" ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    "IBVERBS_1.6" ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
    "RDMACM_1.0" rdma_create_event_channel() -> *mut rdma_event_channel;
    "RDMACM_1.0" rdma_destroy_event_channel(channel: *mut rdma_event_channel);
    "RDMACM_1.0" rdma_create_id(channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id, context: *mut c_void, ps: rdma_port_space::Type) -> c_int;
    "RDMACM_1.0" rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
    "RDMACM_1.0" rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int;
    "RDMACM_1.0" rdma_getaddrinfo(node: *const c_char, service: *const c_char, hints: *const rdma_addrinfo, res: *mut *mut rdma_addrinfo) -> c_int;
    "RDMACM_1.0" rdma_freeaddrinfo(res: *mut rdma_addrinfo);
    "RDMACM_1.0" rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut libc::sockaddr) -> c_int;
    "RDMACM_1.0" rdma_resolve_addr(id: *mut rdma_cm_id, src: *mut libc::sockaddr, dst: *mut libc::sockaddr, timeout_ms: c_int) -> c_int;
    "RDMACM_1.0" rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int;
    "RDMACM_1.0" rdma_create_qp_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> c_int;
    "RDMACM_1.0" rdma_destroy_qp(id: *mut rdma_cm_id);
    "RDMACM_1.0" rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
    "RDMACM_1.0" rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    "RDMACM_1.0" rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    "RDMACM_1.0" rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int;
    "RDMACM_1.0" rdma_disconnect(id: *mut rdma_cm_id) -> c_int;
    "RDMACM_1.0" rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int;
    "RDMACM_1.0" rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;
    "RDMACM_1.0" rdma_event_str(event: rdma_cm_event_type::Type) -> *const c_char;
}
