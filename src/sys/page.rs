// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! One private page of memory to register with a device.
//!
//! A page of its own, because registration works on whole pages and some providers mark them as
//! not inherited by a fork: nothing else of the program may live there. Shared with a forked
//! child rather than copied on write, so that the device keeps writing to what the parent sees.

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::error::Error;
use crate::log::log_fatal;
use crate::sys::errno;

/// A mapped page, unmapped when dropped or released.
pub(crate) struct Page {
    address: NonNull<c_void>,
    len: usize,
}

// SAFETY: the page is plain memory that this type never reads or writes itself.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    pub(crate) fn map() -> Result<Self, Error> {
        // SAFETY: sysconf has no preconditions.
        let len = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let Ok(len) = usize::try_from(len) else {
            log_fatal!(
                c"rpma_flush_apm_new",
                "the page size is unknown: {}",
                errno::Text(errno::get())
            );
            return Err(Error::Provider);
        };
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(Error::NoMem);
        }
        NonNull::new(address)
            .map(|address| Page { address, len })
            .ok_or(Error::NoMem)
    }

    pub(crate) fn address(&self) -> NonNull<c_void> {
        self.address
    }

    /// Unmaps the page and says whether that worked.
    pub(crate) fn release(self) -> Result<(), Error> {
        let result = self.unmap();
        std::mem::forget(self);
        result
    }

    fn unmap(&self) -> Result<(), Error> {
        // SAFETY: the mapping is this object's own and is not used after this call.
        match unsafe { libc::munmap(self.address.as_ptr(), self.len) } {
            0 => Ok(()),
            _ => Err(Error::Inval),
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _kept = errno::Preserve::new();
        // Nothing can be done about a page that cannot be unmapped.
        let _ = self.unmap();
    }
}
