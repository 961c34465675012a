// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Where the fabric reports what an operator should know: the library's log.
//!
//! Called with locks of the fabric held, which is why a log function must not call the library.

use std::ffi::CStr;
use std::fmt::{self, Arguments};
use std::net::SocketAddr;

use super::mr::Denied;
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

/// The peer may not access memory of ours; its queue pair and ours are in error then.
#[cold]
pub(super) fn denied(qp: u32, key: u32, addr: u64, len: u64, why: Denied) {
    log_warning!(
        FUNCTION,
        "QP {qp}: the peer asked for {len} bytes at {addr:#x} by key {key:#x}, and was refused: {why}"
    );
}

/// An address, as far as it is known.
pub(super) struct Shown(pub(super) Option<SocketAddr>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("an unknown address"),
        }
    }
}
