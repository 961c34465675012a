// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Where the fabric reports what an operator should know: the library's log.
//!
//! Called with locks of the fabric held, which is why a log function must not call the library.

use std::ffi::CStr;
use std::fmt::Arguments;

use crate::log::{log_debug, log_error, log_warning};

/// The name under which the fabric's records appear in the log.
const FUNCTION: &CStr = c"rpma_soft";

/// What the program asked for cannot be done.
pub(crate) fn error(text: Arguments<'_>) {
    log_error!(FUNCTION, "{text}");
}

/// Something went wrong on one connection, or a limit was hit.
pub(crate) fn warn(text: Arguments<'_>) {
    log_warning!(FUNCTION, "{text}");
}

/// What a developer wants to see when a connection misbehaves.
pub(crate) fn debug(text: Arguments<'_>) {
    log_debug!(FUNCTION, "{text}");
}
