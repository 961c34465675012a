// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! An open device: what it can do, and the extended operations that hang on it.

use std::ffi::{CStr, c_int};
use std::mem::{MaybeUninit, offset_of};
use std::ptr::NonNull;

use rdma_sys::{
    ibv_context, ibv_device_attr, ibv_device_attr_ex, ibv_odp_general_caps,
    ibv_odp_transport_cap_bits, ibv_transport_type, verbs_context,
};

use super::provider::Provider;
use super::{check_and_set_errno, list};
use crate::error::Error;

/// Capability bits of `device_cap_flags_ex` (as the kernel defines them).
pub(crate) const CAP_FLUSH_GLOBAL: u64 = 1 << 38;
pub(crate) const CAP_FLUSH_PERSISTENT: u64 = 1 << 39;
pub(crate) const CAP_ATOMIC_WRITE: u64 = 1 << 40;

/// A device that the fabric opened. Borrowed: the fabric keeps it open for the process's life.
#[derive(Clone, Copy)]
pub(crate) struct DeviceContext {
    raw: NonNull<ibv_context>,
    provider: &'static Provider,
}

// SAFETY: verbs contexts may be used from any thread (rdma-core's thread-safety rules).
unsafe impl Send for DeviceContext {}
// SAFETY: as above.
unsafe impl Sync for DeviceContext {}

/// What a device can do, as far as librpma asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Capabilities {
    /// On-demand paging for reads and writes over reliable connections.
    pub(crate) on_demand_paging: bool,
    /// Native flush, for both visibility and persistence.
    pub(crate) flush: bool,
    /// Native atomic write.
    pub(crate) atomic_write: bool,
}

impl DeviceContext {
    /// # Safety
    /// `raw` is an open context of the fabric that `provider` stands for, and stays open for as
    /// long as any object made from this one lives.
    pub(crate) unsafe fn new(raw: NonNull<ibv_context>, provider: &'static Provider) -> Self {
        DeviceContext { raw, provider }
    }

    pub(crate) fn as_ptr(self) -> *mut ibv_context {
        self.raw.as_ptr()
    }

    pub(crate) fn provider(self) -> &'static Provider {
        self.provider
    }

    /// Whether the device speaks iWARP, where a read writes to the requester's memory remotely.
    pub(crate) fn is_iwarp(self) -> bool {
        // SAFETY: an open context has a valid device for its whole life.
        unsafe {
            let device = (*self.as_ptr()).device;
            !device.is_null() && (*device).transport_type == ibv_transport_type::IBV_TRANSPORT_IWARP
        }
    }

    /// Asks the device what it can do.
    pub(crate) fn capabilities(self, function: &CStr) -> Result<Capabilities, Error> {
        Ok(Capabilities::from_attributes(&self.attributes(function)?))
    }

    /// All that the device says of itself.
    pub(crate) fn attributes(self, function: &CStr) -> Result<ibv_device_attr_ex, Error> {
        let mut attr = MaybeUninit::<ibv_device_attr_ex>::zeroed();
        let result = self.query(&mut attr);
        check_and_set_errno(function, "ibv_query_device_ex", result)?;
        // SAFETY: plain data, zeroed and then filled by the provider.
        Ok(unsafe { attr.assume_init() })
    }

    /// The device's name.
    pub(crate) fn name(self) -> String {
        // SAFETY: an open context has a valid device for its whole life.
        list::name_of(self.provider, unsafe { (*self.as_ptr()).device })
    }

    /// The extended query, or the old one where the provider has no other.
    fn query(self, attr: &mut MaybeUninit<ibv_device_attr_ex>) -> c_int {
        let ctx = self.as_ptr();
        if let Some(extended) = self.extended(offset_of!(verbs_context, query_device_ex)) {
            // SAFETY: `extended` is the live extension of this context and reaches this field;
            // `attr` is valid for the size given.
            let result = unsafe {
                (*extended.as_ptr()).query_device_ex.map(|query| {
                    query(
                        ctx,
                        std::ptr::null(),
                        attr.as_mut_ptr(),
                        size_of::<ibv_device_attr_ex>(),
                    )
                })
            };
            match result {
                None | Some(libc::EOPNOTSUPP | libc::ENOSYS) => {}
                Some(result) => return result,
            }
        }
        *attr = MaybeUninit::zeroed();
        // The plain attributes are the first member of the extended ones.
        let plain = attr.as_mut_ptr().cast::<ibv_device_attr>();
        // SAFETY: the context is open and `plain` valid for a write.
        unsafe { (self.provider.ibv_query_device)(ctx, plain) }
    }

    /// The extended part of the context, if it has one that reaches down to the field at
    /// `offset`: extensions grow at their front, so an older library's is shorter.
    pub(crate) fn extended(self, offset: usize) -> Option<NonNull<verbs_context>> {
        let ctx = self.as_ptr();
        // SAFETY: the context is open; `abi_compat` of all ones marks that the context is the
        // last member of a `verbs_context`.
        unsafe {
            if (*ctx).abi_compat as usize != usize::MAX {
                return None;
            }
            let extended = ctx
                .byte_sub(offset_of!(verbs_context, context))
                .cast::<verbs_context>();
            // `sz` stands right before the context, in every version.
            if (*extended).sz < size_of::<verbs_context>() - offset {
                return None;
            }
            NonNull::new(extended)
        }
    }
}

impl Capabilities {
    pub(crate) fn from_attributes(attr: &ibv_device_attr_ex) -> Self {
        let odp = &attr.odp_caps;
        let general = u64::from(ibv_odp_general_caps::IBV_ODP_SUPPORT.0);
        let needed = ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_WRITE.0
            | ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_READ.0;
        let flush = CAP_FLUSH_GLOBAL | CAP_FLUSH_PERSISTENT;
        Capabilities {
            on_demand_paging: odp.general_caps & general != 0
                && odp.per_transport_caps.rc_odp_caps & needed == needed,
            flush: attr.device_cap_flags_ex & flush == flush,
            atomic_write: attr.device_cap_flags_ex & CAP_ATOMIC_WRITE != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capabilities(change: impl FnOnce(&mut ibv_device_attr_ex)) -> Capabilities {
        // SAFETY: plain data, for which zero is a valid value.
        let mut attr: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
        change(&mut attr);
        Capabilities::from_attributes(&attr)
    }

    #[test]
    fn nothing_is_assumed_of_a_device_that_says_nothing() {
        assert_eq!(capabilities(|_| {}), Capabilities::default());
    }

    #[test]
    fn native_flush_needs_both_kinds() {
        assert!(!capabilities(|a| a.device_cap_flags_ex = 1 << 38).flush);
        assert!(!capabilities(|a| a.device_cap_flags_ex = 1 << 39).flush);
        let both = capabilities(|a| a.device_cap_flags_ex = 3 << 38);
        assert!(both.flush && !both.atomic_write);
        assert!(capabilities(|a| a.device_cap_flags_ex = 1 << 40).atomic_write);
    }

    #[test]
    fn on_demand_paging_needs_reads_and_writes_over_rc() {
        let odp = |general, rc| {
            capabilities(|a| {
                a.odp_caps.general_caps = general;
                a.odp_caps.per_transport_caps.rc_odp_caps = rc;
            })
            .on_demand_paging
        };
        let write = ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_WRITE.0;
        let read = ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_READ.0;
        assert!(odp(1, read | write));
        assert!(!odp(0, read | write));
        assert!(!odp(1, read));
        assert!(!odp(1, write));
    }
}
