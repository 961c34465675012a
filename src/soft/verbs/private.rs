// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What libibverbs keeps for itself about a context: for most of it, the functions of the device's driver.
//!
//! A program may give the fabric's context to functions of libibverbs that are not defined in its
//! header. They call such a function of the driver, and the place of each is another one in each version of
//! libibverbs. So each place has the same function, which tells by its arguments what it is asked for.
//! It can answer questions about the device, which programs ask most; all else is not supported.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use rdma_sys::{
    ibv_context, ibv_device_attr, ibv_device_attr_ex, ibv_query_device_ex_input, verbs_ex_private,
};
use rustix::io::Errno;

use super::{number, query_device_ex};

/// In words; no version has needed half of it.
const LEN: usize = 512;

/// The private part of every context. It is filled in once, and libibverbs may write to it.
pub(super) fn part() -> *mut verbs_ex_private {
    static PART: OnceLock<usize> = OnceLock::new();
    let part = PART.get_or_init(|| {
        let words = Box::new([any_function as *const () as usize; LEN]);
        Box::into_raw(words) as usize
    });
    *part as *mut verbs_ex_private
}

/// Stands for all functions of a driver. Those with fewer parameters leave any values in the others.
unsafe extern "C" fn any_function(
    context: *mut ibv_context,
    input: *const c_void,
    attr: *mut c_void,
    attr_size: usize,
) -> c_int {
    // That is how `ibv_query_device` asks; no other function has a size of that kind.
    if input.is_null() && !attr.is_null() && attr_size == size_of::<ibv_device_attr>() {
        let input = input.cast::<ibv_query_device_ex_input>();
        // SAFETY: the caller's variable, of the size that it says.
        return unsafe {
            query_device_ex(context, input, attr.cast::<ibv_device_attr_ex>(), attr_size)
        };
    }
    number(Err(Errno::OPNOTSUPP))
}
