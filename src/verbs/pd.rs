// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Protection domain: what memory regions and queue pairs must share to work together.

use std::ffi::CStr;
use std::ptr::NonNull;

use rdma_sys::ibv_pd;

use super::context::DeviceContext;
use super::{Released, check_and_set_errno, log_failure};
use crate::error::Error;
use crate::fault;
use crate::sys::errno;

// SAFETY: the provider's calls on a domain may come from any thread.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Sync for ProtectionDomain {}

/// A protection domain of one device.
pub(crate) struct ProtectionDomain {
    raw: NonNull<ibv_pd>,
    device: DeviceContext,
    released: Released,
}

impl ProtectionDomain {
    pub(crate) fn alloc(device: DeviceContext, function: &CStr) -> Result<Self, Error> {
        fault::point(function, Error::Provider)?;
        // The manual promises no errno, but there is one: zeroed first, to tell whether it is new.
        errno::set(0);
        // SAFETY: the context is open.
        let raw = unsafe { (device.provider().ibv_alloc_pd)(device.as_ptr()) };
        if let Some(raw) = NonNull::new(raw) {
            return Ok(ProtectionDomain {
                raw,
                device,
                released: Released::not_yet(),
            });
        }
        match errno::get() {
            libc::ENOMEM => Err(Error::NoMem),
            0 => Err(Error::Unknown),
            number => {
                log_failure(function, "ibv_alloc_pd", format_args!(""), number);
                Err(Error::Provider)
            }
        }
    }

    pub(crate) fn device(&self) -> DeviceContext {
        self.device
    }

    /// The domain for use in a call; INVAL once it was released.
    pub(crate) fn get(&self) -> Result<NonNull<ibv_pd>, Error> {
        if self.released.is_claimed() {
            return Err(Error::Inval);
        }
        Ok(self.raw)
    }

    /// Releases the domain. If the provider refuses and `others_use_it`, it is released when the
    /// last of them is gone.
    pub(crate) fn release(&self, function: &CStr, others_use_it: bool) -> Result<(), Error> {
        if !self.released.claim() {
            return Ok(());
        }
        // SAFETY: the domain is this object's own, and the claim made this its only release.
        let result = unsafe { (self.device.provider().ibv_dealloc_pd)(self.raw.as_ptr()) };
        let released = check_and_set_errno(function, "ibv_dealloc_pd", result);
        if released.is_err() && others_use_it {
            self.released.defer();
        }
        released
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        let _kept = errno::Preserve::new();
        // A failure was logged; nobody is left to hear of it.
        let _ = self.release(c"rpma_peer_delete", false);
    }
}
