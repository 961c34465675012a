// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Finding and asking devices.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};

use rdma_sys::ibv_context;

use super::conn::rpma_conn_event;
use super::handle::{Out, string};
use super::{answer, log::enum_number};
use crate::conn::ConnEvent;
use crate::device::{self, Location};
use crate::error::Error;
use crate::fabric;
use crate::verbs::context::DeviceContext;

super::symbols::versioned! {
    rpma_utils_get_ibv_context
    rpma_utils_ibv_context_is_odp_capable
    rpma_utils_conn_event_2str
}

/// How long looking for a device may take, in milliseconds; also how long, by default, finding the
/// other side's address and the way to it may take.
pub const RPMA_DEFAULT_TIMEOUT_MS: c_int = 1000;

const _: () = assert!(RPMA_DEFAULT_TIMEOUT_MS == crate::conn_cfg::DEFAULT_TIMEOUT_MS);

/// Waits for a completion; kept for compatibility, no function takes it.
pub const RPMA_W_WAIT_FOR_COMPLETION: c_int = 1;

/// Which kind of address a device is looked for by.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum rpma_util_ibv_context_type {
    /// an address of this machine
    RPMA_UTIL_IBV_CONTEXT_LOCAL,
    /// an address of the other side
    RPMA_UTIL_IBV_CONTEXT_REMOTE,
}

/// Finds the device that has a local address, or that leads to a remote one. The context belongs
/// to the library and stays valid until the process ends; it is NULL for a wildcard address and for one
/// of this machine that is on no device. A context of the software fabric is for this library, and
/// for asking about the device with ibv_query_device(), ibv_query_device_ex() and ibv_query_port().
///
/// Returns 0; RPMA_E_INVAL if addr or ibv_ctx_ptr is NULL or the type is none; RPMA_E_PROVIDER if
/// the address cannot be found or no device belongs to it (errno says more where it can).
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_utils_get_ibv_context(
    addr: *const c_char,
    r#type: MaybeUninit<rpma_util_ibv_context_type>,
    ibv_ctx_ptr: *mut *mut ibv_context,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (addr, out) = unsafe { (string(addr)?, Out::new(ibv_ctx_ptr)?) };
        let location = Location::from_number(enum_number(r#type)).ok_or(Error::Inval)?;
        let found = device::find(addr, location)?;
        out.set(found.map_or(null_mut(), DeviceContext::as_ptr));
        Ok(())
    })
}

/// Tells whether a device can page registered memory in on demand, for the reads and writes that
/// this library does: *is_odp_capable becomes 1 or 0.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL; RPMA_E_PROVIDER if the device cannot be asked
/// (errno says why).
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_utils_ibv_context_is_odp_capable(
    ibv_ctx: *mut ibv_context,
    is_odp_capable: *mut c_int,
) -> c_int {
    answer(|| {
        let context = NonNull::new(ibv_ctx).ok_or(Error::Inval)?;
        // SAFETY: the C contract.
        let out = unsafe { Out::new(is_odp_capable) }?;
        // SAFETY: the C contract: an open context.
        let able = unsafe { fabric::device(context) }
            .and_then(|device| device.capabilities(c"rpma_utils_ibv_context_is_odp_capable"));
        // What a failed question leaves is no.
        out.set(c_int::from(able.is_ok_and(|able| able.on_demand_paging)));
        able.map(|_| ())
    })
}

/// Gives the text for a connection event.
///
/// Returns a static string for any value, named or not. Cannot fail.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub extern "C" fn rpma_utils_conn_event_2str(
    conn_event: MaybeUninit<rpma_conn_event>,
) -> *const c_char {
    ConnEvent::text_of(enum_number(conn_event)).as_ptr()
}
