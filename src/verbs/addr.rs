// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Address look-up: host and service names to socket addresses.

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null, null_mut};

use libc::sockaddr;
use rdma_sys::{ibv_qp_type, rdma_addrinfo, rdma_port_space};

use super::provider::Provider;
use super::{hint, log_failure};
use crate::error::Error;
use crate::fault;
use crate::log::log_error;
use crate::sys::errno;

/// The flag for an address to listen at (`RAI_PASSIVE`).
const RAI_PASSIVE: c_int = 1;

/// Which end of a connection an address is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// To connect to.
    Active,
    /// To listen at.
    Passive,
}

/// The result of a look-up.
pub(crate) struct AddressInfo {
    raw: NonNull<rdma_addrinfo>,
    provider: &'static Provider,
}

impl AddressInfo {
    /// Looks a host and a service up, for reliable connections. A missing service is port 0.
    pub(crate) fn look_up(
        provider: &'static Provider,
        host: &CStr,
        service: Option<&CStr>,
        side: Side,
    ) -> Result<Self, Error> {
        fault::point(c"rpma_info_new", Error::Provider)?;
        let mut hints = MaybeUninit::<rdma_addrinfo>::zeroed();
        let hints_ptr = hints.as_mut_ptr();
        // SAFETY: plain data, zeroed, with these fields set.
        unsafe {
            if side == Side::Passive {
                (*hints_ptr).ai_flags = RAI_PASSIVE;
            }
            (*hints_ptr).ai_qp_type = ibv_qp_type::IBV_QPT_RC as c_int;
            (*hints_ptr).ai_port_space = rdma_port_space::RDMA_PS_TCP as c_int;
        }
        let mut found = null_mut();
        // SAFETY: strings and hints are valid for the call, and so is the place for the answer.
        let result = unsafe {
            (provider.rdma_getaddrinfo)(
                host.as_ptr(),
                service.map_or(null(), CStr::as_ptr),
                hints_ptr,
                &raw mut found,
            )
        };
        match NonNull::new(found) {
            Some(raw) if result == 0 => Ok(AddressInfo { raw, provider }),
            _ => {
                report(host, service, side, result);
                Err(Error::Provider)
            }
        }
    }

    /// The address on this machine, or null.
    pub(super) fn source(&self) -> *mut sockaddr {
        // SAFETY: the answer is alive until it is dropped.
        unsafe { (*self.raw.as_ptr()).ai_src_addr }
    }

    /// The address on the other side, or null.
    pub(super) fn destination(&self) -> *mut sockaddr {
        // SAFETY: as above.
        unsafe { (*self.raw.as_ptr()).ai_dst_addr }
    }
}

impl Drop for AddressInfo {
    fn drop(&mut self) {
        let _kept = errno::Preserve::new();
        // SAFETY: the answer is this object's own, which ends here.
        unsafe { (self.provider.rdma_freeaddrinfo)(self.raw.as_ptr()) };
    }
}

#[cold]
fn report(host: &CStr, service: Option<&CStr>, side: Side, result: c_int) {
    let host = host.to_str().unwrap_or("?");
    let service = service.map_or("none", |service| service.to_str().unwrap_or("?"));
    if result == -1 || result == libc::EAI_SYSTEM {
        log_failure(
            c"rpma_info_new",
            "rdma_getaddrinfo",
            format_args!("(node={host}, service={service}, {side:?})"),
            errno::get(),
        );
        return;
    }
    // SAFETY: the answer is a static string, or null for a number that is none.
    let text = unsafe {
        let text = libc::gai_strerror(result);
        if text.is_null() {
            c"?"
        } else {
            CStr::from_ptr(text)
        }
    };
    log_error!(
        c"rpma_info_new",
        "rdma_getaddrinfo(node={host}, service={service}, {side:?}) failed: {}{}",
        text.to_str().unwrap_or("?"),
        hint::of_look_up(result)
    );
}
