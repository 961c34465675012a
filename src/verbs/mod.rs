// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Owning types over the `ibv_*` and `rdma_*` objects of a fabric.
//!
//! Each type owns one object of the provider and releases it when dropped, or through an explicit
//! `release` that gives the provider's error back. Nothing here knows librpma's rules; nothing
//! outside holds a pointer of the provider (but for the C interface, whose callers may bring an
//! `ibv_context`). All control calls go through one [`provider::Provider`].
//!
//! Errors: a failed call is logged here, with the arguments that matter, under the name of the
//! function that the C interface's users know, and becomes an [`Error`].

pub(crate) mod addr;
pub(crate) mod cm;
pub(crate) mod context;
pub(crate) mod cq;
mod failed;
mod hint;
pub(crate) mod list;
pub(crate) mod mr;
pub(crate) mod pd;
pub(crate) mod probe;
pub mod provider;
pub(crate) mod qp;
pub(crate) mod srq;

use crate::error::Error;
use crate::log::log_error;
use crate::sys::errno;

use std::ffi::{CStr, c_int};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// For calls that return 0, or an errno value, and whose C callers found it in errno too.
fn check_and_set_errno(function: &CStr, call: &str, result: c_int) -> Result<(), Error> {
    if result == 0 {
        return Ok(());
    }
    errno::set(result);
    log_failure(function, call, format_args!(""), result);
    Err(Error::Provider)
}

/// For calls that return 0, or another value and errno.
fn check(function: &CStr, call: &str, result: c_int) -> Result<(), Error> {
    if result == 0 {
        return Ok(());
    }
    log_failure(function, call, format_args!(""), errno::get());
    Err(Error::Provider)
}

/// The record of a failed call: with the arguments that matter (in parentheses, or nothing), the
/// text of the errno value, and what is usually behind it.
#[cold]
fn log_failure(function: &CStr, call: &str, arguments: fmt::Arguments<'_>, number: c_int) {
    log_error!(
        function,
        "{call}{arguments} failed: {}{}",
        errno::Text(number),
        hint::of(call, number)
    );
}

/// Whether an object was released already: explicitly, or because the provider refused and nobody
/// is left to try again.
struct Released(AtomicBool);

impl Released {
    fn not_yet() -> Self {
        Released(AtomicBool::new(false))
    }

    /// Claims the right to release the object; `false` if somebody did before.
    fn claim(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Whether the object was released.
    fn is_claimed(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Leaves the release to whoever comes last.
    fn defer(&self) {
        self.0.store(false, Ordering::Release);
    }
}
