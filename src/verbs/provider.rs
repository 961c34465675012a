// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The provider table: every control function of libibverbs and librdmacm that the core uses.
//!
//! A fabric is one filled [`Provider`]. Only the control functions need a table: posting and
//! polling go through the function pointers that each `ibv_context` brings along, so the data
//! path is the same machine code whatever the fabric is.
//!
//! What lives here: the table's type and how the system's libraries fill it. What may not: any
//! knowledge of librpma's objects, or of the software fabric's insides.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;

use rdma_sys::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_mr, ibv_pd, ibv_qp,
    ibv_qp_ex, ibv_qp_init_attr_ex, ibv_srq, ibv_srq_init_attr, rdma_addrinfo, rdma_cm_event,
    rdma_cm_event_type, rdma_cm_id, rdma_conn_param, rdma_event_channel, rdma_port_space,
};

use crate::log::c_string;
use crate::sys::dl::{Library, LoaderText};

/// One of the two libraries that make up the system's RDMA stack.
#[derive(Debug, Clone, Copy)]
enum Lib {
    Verbs,
    RdmaCm,
}

impl Lib {
    fn file(self) -> &'static CStr {
        match self {
            Lib::Verbs => c"libibverbs.so.1",
            Lib::RdmaCm => c"librdmacm.so.1",
        }
    }

    fn open(self) -> Result<Library, LoadError> {
        Library::open(self.file()).map_err(|said| LoadError { lib: self, said })
    }
}

macro_rules! provider_table {
    ($($lib:ident $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => {
        /// The control functions of one fabric, with the exact C signatures of libibverbs and
        /// librdmacm.
        ///
        /// Thread safety: the table never changes after it was made; the functions behind it are
        /// as thread-safe as the manual pages of rdma-core say.
        pub struct Provider {
            $(#[doc = concat!("`", stringify!($name), "(3)`")] pub $name: unsafe extern "C" fn($($arg: $ty),*) $(-> $ret)?,)*
        }

        impl Provider {
            /// Looks every function up in the two open libraries.
            fn from_libraries(verbs: Library, rdmacm: Library) -> Result<Self, LoadError> {
                Ok(Provider { $($name: {
                    let library = match Lib::$lib { Lib::Verbs => verbs, Lib::RdmaCm => rdmacm };
                    let name = const { c_string(concat!(stringify!($name), "\0").as_bytes()) };
                    let symbol = library
                        .symbol(name)
                        .map_err(|said| LoadError { lib: Lib::$lib, said })?;
                    // SAFETY: the function behind this name has had this prototype since the
                    // first version of the library's interface, and the library stays open.
                    unsafe {
                        std::mem::transmute::<
                            std::ptr::NonNull<c_void>,
                            unsafe extern "C" fn($($ty),*) $(-> $ret)?,
                        >(symbol)
                    }
                },)* })
            }
        }
    };
}

provider_table! {
    Verbs ibv_get_device_list(num: *mut c_int) -> *mut *mut ibv_device;
    Verbs ibv_free_device_list(list: *mut *mut ibv_device);
    Verbs ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
    Verbs ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
    Verbs ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    Verbs ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    Verbs ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
    Verbs ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
    Verbs ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    Verbs ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    Verbs ibv_create_cq(context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void, channel: *mut ibv_comp_channel, comp_vector: c_int) -> *mut ibv_cq;
    Verbs ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    Verbs ibv_get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void) -> c_int;
    Verbs ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint);
    Verbs ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    Verbs ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    Verbs ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    Verbs ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
    RdmaCm rdma_create_event_channel() -> *mut rdma_event_channel;
    RdmaCm rdma_destroy_event_channel(channel: *mut rdma_event_channel);
    RdmaCm rdma_create_id(channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id, context: *mut c_void, ps: rdma_port_space::Type) -> c_int;
    RdmaCm rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
    RdmaCm rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int;
    RdmaCm rdma_getaddrinfo(node: *const c_char, service: *const c_char, hints: *const rdma_addrinfo, res: *mut *mut rdma_addrinfo) -> c_int;
    RdmaCm rdma_freeaddrinfo(res: *mut rdma_addrinfo);
    RdmaCm rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut libc::sockaddr) -> c_int;
    RdmaCm rdma_resolve_addr(id: *mut rdma_cm_id, src: *mut libc::sockaddr, dst: *mut libc::sockaddr, timeout_ms: c_int) -> c_int;
    RdmaCm rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int;
    RdmaCm rdma_create_qp_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> c_int;
    RdmaCm rdma_destroy_qp(id: *mut rdma_cm_id);
    RdmaCm rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
    RdmaCm rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    RdmaCm rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    RdmaCm rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int;
    RdmaCm rdma_disconnect(id: *mut rdma_cm_id) -> c_int;
    RdmaCm rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int;
    RdmaCm rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;
    RdmaCm rdma_event_str(event: rdma_cm_event_type::Type) -> *const c_char;
}

/// Why the system's RDMA stack cannot be used.
#[derive(Clone, Copy)]
pub(crate) struct LoadError {
    lib: Lib,
    said: LoaderText,
}

impl LoadError {
    /// Whether the library is there, only not as it should be.
    pub(crate) fn is_installed(&self) -> bool {
        self.lib.open().is_ok()
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.lib.file().to_str().unwrap_or("?");
        write!(f, "{file} (of rdma-core) cannot be used: {}", self.said)
    }
}

/// Loads libibverbs and librdmacm and fills the table from them.
pub(crate) fn load_system() -> Result<Provider, LoadError> {
    Provider::from_libraries(Lib::Verbs.open()?, Lib::RdmaCm.open()?)
}

impl Provider {
    /// Whether the fabric lists at least one device.
    pub(crate) fn has_device(&self) -> bool {
        let mut count = 0;
        // SAFETY: the place for the count is valid; the list is freed with its own function.
        unsafe {
            let list = (self.ibv_get_device_list)(&raw mut count);
            if list.is_null() {
                return false;
            }
            (self.ibv_free_device_list)(list);
        }
        count > 0
    }
}
