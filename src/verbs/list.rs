// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! All devices of a fabric, each opened for a look. A program that uses librpma never needs that:
//! the connection manager opens the device behind an address.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

use rdma_sys::{ibv_context, ibv_device, ibv_transport_type};

use super::context::DeviceContext;
use super::provider::Provider;
use crate::soft;
use crate::sys::dl::{Library, LoaderText};
use crate::sys::errno;

type Open = unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context;
type Close = unsafe extern "C" fn(*mut ibv_context) -> c_int;

/// What opens and closes the devices of one fabric.
#[derive(Clone, Copy)]
pub(crate) struct Opener {
    provider: &'static Provider,
    open: Open,
    close: Close,
}

impl Opener {
    /// For the software fabric.
    pub(crate) fn soft() -> Self {
        Opener {
            provider: soft::provider(),
            open: soft::verbs::ibv_open_device,
            close: soft::verbs::ibv_close_device,
        }
    }

    /// For the system's libraries, which are those of `provider`.
    pub(crate) fn system(provider: &'static Provider) -> Result<Self, LoaderText> {
        let library = Library::open(c"libibverbs.so.1")?;
        let (open, close) = (
            library.symbol(c"ibv_open_device")?,
            library.symbol(c"ibv_close_device")?,
        );
        // SAFETY: the functions behind these names have had these prototypes since the first
        // version of the library's interface, and the library stays open.
        let (open, close) = unsafe {
            (
                std::mem::transmute::<NonNull<c_void>, Open>(open),
                std::mem::transmute::<NonNull<c_void>, Close>(close),
            )
        };
        Ok(Opener {
            provider,
            open,
            close,
        })
    }

    /// Calls `look` for each device with its name, its transport, and the open device, or the
    /// errno value with which it cannot be opened. The device is closed afterwards.
    pub(crate) fn for_each(
        self,
        mut look: impl FnMut(String, &'static str, Result<DeviceContext, c_int>),
    ) {
        let mut count = 0;
        // SAFETY: the place for the count is valid.
        let list = unsafe { (self.provider.ibv_get_device_list)(&raw mut count) };
        if list.is_null() {
            return;
        }
        for index in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the list has as many devices as it says, and is freed below.
            let device = unsafe { *list.add(index) };
            let name = name_of(self.provider, device);
            // SAFETY: the device is in the list.
            let transport = transport(unsafe { (*device).transport_type });
            errno::set(0);
            // SAFETY: as above.
            let context = NonNull::new(unsafe { (self.open)(device) });
            match context {
                None => look(name, transport, Err(errno::get())),
                Some(raw) => {
                    // SAFETY: the context is open until the call below, and `look` keeps nothing.
                    let context = unsafe { DeviceContext::new(raw, self.provider) };
                    look(name, transport, Ok(context));
                    // SAFETY: the context was opened above and is not used after this call.
                    unsafe { (self.close)(raw.as_ptr()) };
                }
            }
        }
        // SAFETY: the list was made above.
        unsafe { (self.provider.ibv_free_device_list)(list) };
    }
}

/// A device's name.
pub(super) fn name_of(provider: &Provider, device: *mut ibv_device) -> String {
    // SAFETY: the device is valid; its name is a string that lives as long.
    unsafe {
        let name = (provider.ibv_get_device_name)(device);
        if name.is_null() {
            return String::from("?");
        }
        CStr::from_ptr(name).to_string_lossy().into_owned()
    }
}

fn transport(number: ibv_transport_type::Type) -> &'static str {
    match number {
        ibv_transport_type::IBV_TRANSPORT_IB => "InfiniBand or RoCE",
        ibv_transport_type::IBV_TRANSPORT_IWARP => "iWARP",
        _ => "other",
    }
}
