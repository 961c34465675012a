// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Protection domain: what memory regions and queue pairs must share to work together.

use std::ffi::CStr;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use rdma_sys::ibv_pd;

use super::context::DeviceContext;
use crate::error::Error;
use crate::log::log_error;
use crate::sys::errno;

/// A protection domain of one device.
pub(crate) struct ProtectionDomain {
    /// Null once it was released.
    raw: AtomicPtr<ibv_pd>,
    device: DeviceContext,
}

impl ProtectionDomain {
    pub(crate) fn alloc(device: DeviceContext, function: &CStr) -> Result<Self, Error> {
        // The manual promises no errno, but there is one: zeroed first, to tell whether it is new.
        errno::set(0);
        // SAFETY: the context is open.
        let raw = unsafe { (device.provider().ibv_alloc_pd)(device.as_ptr()) };
        if !raw.is_null() {
            return Ok(ProtectionDomain {
                raw: AtomicPtr::new(raw),
                device,
            });
        }
        match errno::get() {
            libc::ENOMEM => Err(Error::NoMem),
            0 => Err(Error::Unknown),
            number => {
                log_error!(function, "ibv_alloc_pd failed: {}", errno::Text(number));
                Err(Error::Provider)
            }
        }
    }

    pub(crate) fn device(&self) -> DeviceContext {
        self.device
    }

    /// The domain for use in a call; INVAL once it was released.
    pub(crate) fn get(&self) -> Result<NonNull<ibv_pd>, Error> {
        NonNull::new(self.raw.load(Ordering::Acquire)).ok_or(Error::Inval)
    }

    /// Releases the domain. If the provider refuses and `others_use_it`, it is released when the
    /// last of them is gone.
    pub(crate) fn release(&self, function: &CStr, others_use_it: bool) -> Result<(), Error> {
        let raw = self.raw.swap(null_mut(), Ordering::AcqRel);
        if raw.is_null() {
            return Ok(());
        }
        // SAFETY: the domain was allocated by this provider and the swap made this the only
        // place that can release it.
        let result = unsafe { (self.device.provider().ibv_dealloc_pd)(raw) };
        if result == 0 {
            return Ok(());
        }
        log_error!(function, "ibv_dealloc_pd failed: {}", errno::Text(result));
        if others_use_it {
            self.raw.store(raw, Ordering::Release);
        }
        Err(Error::Provider)
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        let _kept = errno::Preserve::new();
        // A failure was logged; nobody is left to hear of it.
        let _ = self.release(c"rpma_peer_delete", false);
    }
}
