// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The system log.

use std::ffi::{CStr, c_int};

/// Names the program's log stream `rpma`, with the process id, in facility LOCAL7.
pub(crate) fn open() {
    // SAFETY: the identification string is static, as syslog requires.
    unsafe { libc::openlog(c"rpma".as_ptr(), libc::LOG_PID, libc::LOG_LOCAL7) };
}

/// Closes the log stream.
pub(crate) fn close() {
    // SAFETY: no preconditions.
    unsafe { libc::closelog() };
}

/// Writes one line. `severity` is one of the `LOG_*` severities.
pub(crate) fn write(severity: c_int, line: &CStr) {
    // SAFETY: the format takes one string, and `line` is one.
    unsafe { libc::syslog(severity, c"%s".as_ptr(), line.as_ptr()) };
}
