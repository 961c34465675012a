// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Memory region: memory of the program that a device may read and write.

use std::ffi::{CStr, c_int, c_void};
use std::mem::{ManuallyDrop, offset_of};
use std::ptr::NonNull;

use rdma_sys::{ibv_access_flags, ibv_mr, ibv_sge, verbs_context};

use super::context::DeviceContext;
use super::pd::ProtectionDomain;
use super::{check_and_set_errno, log_failure};
use crate::error::Error;
use crate::fault;
use crate::sys::errno;

/// A registered memory region.
///
/// The memory stays the caller's: the provider guards against access through stale keys, so no
/// memory safety of this process hangs on how long it stays mapped.
pub(crate) struct MemoryRegion {
    raw: NonNull<ibv_mr>,
    device: DeviceContext,
}

// SAFETY: the provider's calls on a region may come from any thread.
unsafe impl Send for MemoryRegion {}
// SAFETY: shared use only reads the region's attributes, which never change.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers memory. If the device refuses this kind of memory (EOPNOTSUPP) and
    /// `on_demand_paging` says that it could do with it on demand, tries again that way.
    pub(crate) fn register(
        pd: &ProtectionDomain,
        address: *mut c_void,
        len: usize,
        access: ibv_access_flags,
        on_demand_paging: bool,
        function: &CStr,
    ) -> Result<Self, Error> {
        fault::point(function, Error::Provider)?;
        let domain = pd.get()?;
        let register = |access: ibv_access_flags| {
            // SAFETY: the domain is alive; the provider checks the range itself.
            let raw = unsafe {
                (pd.device().provider().ibv_reg_mr)(
                    domain.as_ptr(),
                    address,
                    len,
                    access.0 as c_int,
                )
            };
            NonNull::new(raw)
        };
        let first = register(access);
        let raw = match first {
            Some(raw) => raw,
            None if errno::get() == libc::EOPNOTSUPP && on_demand_paging => {
                match register(access | ibv_access_flags::IBV_ACCESS_ON_DEMAND) {
                    Some(raw) => raw,
                    None => {
                        return Err(refused(
                            function,
                            address,
                            len,
                            access,
                            " with on-demand paging",
                        ));
                    }
                }
            }
            None => return Err(refused(function, address, len, access, "")),
        };
        Ok(MemoryRegion {
            raw,
            device: pd.device(),
        })
    }

    /// Where the region starts, in this process.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        // SAFETY: the region is alive; its attributes never change.
        unsafe { (*self.raw.as_ptr()).addr }
    }

    /// How many bytes it has.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // SAFETY: as above.
        unsafe { (*self.raw.as_ptr()).length }
    }

    /// The key for the other side.
    pub(crate) fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.raw.as_ptr()).rkey }
    }

    /// A scatter/gather element for a part of the region. The device checks the bounds.
    #[inline]
    pub(crate) fn element(&self, offset: usize, len: u32) -> ibv_sge {
        // SAFETY: as above.
        let (address, lkey) = unsafe { ((*self.raw.as_ptr()).addr, (*self.raw.as_ptr()).lkey) };
        ibv_sge {
            addr: (address as u64).wrapping_add(offset as u64),
            length: len,
            lkey,
        }
    }

    /// Tells the device how a part of the region is going to be used.
    pub(crate) fn advise(
        &self,
        offset: usize,
        len: u32,
        advice: c_int,
        flags: u32,
        function: &CStr,
    ) -> Result<(), Error> {
        fault::point(function, Error::Provider)?;
        let mut element = self.element(offset, len);
        let extended = self.device.extended(offset_of!(verbs_context, advise_mr));
        let result = extended
            // SAFETY: the extension is alive and reaches this field.
            .and_then(|extended| unsafe { (*extended.as_ptr()).advise_mr })
            .map_or(libc::EOPNOTSUPP, |advise| {
                // SAFETY: the region and its domain are alive, the element is valid for the call.
                unsafe {
                    let domain = (*self.raw.as_ptr()).pd;
                    advise(domain, advice as u32, flags, &raw mut element, 1)
                }
            });
        if result == 0 {
            return Ok(());
        }
        log_failure(
            function,
            "ibv_advise_mr",
            format_args!(
                "(addr={:#x}, length={len}, advice={advice}, flags={flags:#x})",
                element.addr
            ),
            result,
        );
        Err(match result {
            libc::EOPNOTSUPP => Error::NoSupp,
            libc::EFAULT | libc::EINVAL => Error::Inval,
            _ => Error::Provider,
        })
    }

    /// Ends the registration and gives the provider's error back.
    pub(crate) fn release(self, function: &CStr) -> Result<(), Error> {
        fault::after(ManuallyDrop::new(self).deregister(function), function)
    }

    fn deregister(&self, function: &CStr) -> Result<(), Error> {
        // SAFETY: the region is this object's own, which is not used after this call.
        let result = unsafe { (self.device.provider().ibv_dereg_mr)(self.raw.as_ptr()) };
        check_and_set_errno(function, "ibv_dereg_mr", result)
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        let _kept = errno::Preserve::new();
        // A failure was logged; nobody is left to hear of it.
        let _ = self.deregister(c"rpma_mr_dereg");
    }
}

fn refused(
    function: &CStr,
    address: *mut c_void,
    len: usize,
    access: ibv_access_flags,
    how: &str,
) -> Error {
    log_failure(
        function,
        "ibv_reg_mr",
        format_args!(
            "(addr={address:p}, length={len}, access={:#x}){how}",
            access.0
        ),
        errno::get(),
    );
    Error::Provider
}
