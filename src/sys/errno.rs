// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The calling thread's errno: part of the C contract, so it is read, set and kept with care.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;

use rustix::io::Errno;

/// The calling thread's errno.
#[inline]
pub(crate) fn get() -> c_int {
    // SAFETY: the C library gives each thread a valid location for as long as the thread lives.
    unsafe { *libc::__errno_location() }
}

/// The same, as what a failed call of the C library leaves.
#[inline]
pub(crate) fn last() -> Errno {
    Errno::from_raw_os_error(get())
}

/// Sets the calling thread's errno.
#[inline]
pub(crate) fn set(value: c_int) {
    // SAFETY: as in `get`.
    unsafe { *libc::__errno_location() = value }
}

/// Restores errno when it goes out of scope: around work that must not disturb what the
/// provider's failing call left for the caller (logging, cleaning up).
pub(crate) struct Preserve {
    saved: c_int,
}

impl Preserve {
    pub(crate) fn new() -> Self {
        Preserve { saved: get() }
    }
}

impl Drop for Preserve {
    fn drop(&mut self) {
        set(self.saved);
    }
}

/// An errno value that prints as the C library's text for it. Allocates nothing.
#[derive(Clone, Copy)]
pub(crate) struct Text(pub(crate) c_int);

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut buffer = [0 as c_char; 128];
        // Providers return errno values with either sign.
        let value = self.0.checked_abs().unwrap_or(0);
        // SAFETY: the buffer is valid for its length.
        let failed = unsafe { libc::strerror_r(value, buffer.as_mut_ptr(), buffer.len()) };
        if failed != 0 {
            return write!(f, "errno {value}");
        }
        // SAFETY: strerror_r succeeded and left a string that ends within the buffer.
        let text = unsafe { CStr::from_ptr(buffer.as_ptr()) };
        match text.to_str() {
            Ok(text) => f.write_str(text),
            Err(_) => write!(f, "errno {value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preserve_puts_errno_back() {
        set(libc::ENODATA);
        {
            let _kept = Preserve::new();
            set(libc::EPERM);
        }
        assert_eq!(get(), libc::ENODATA);
    }

    #[test]
    fn text_is_the_c_librarys_whatever_the_sign() {
        assert_eq!(Text(libc::ENOMEM).to_string(), "Cannot allocate memory");
        assert_eq!(Text(-libc::ENOMEM).to_string(), "Cannot allocate memory");
        assert_eq!(Text(c_int::MIN).to_string(), "Success");
    }
}
