// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The environment, read without allocating: it is asked when memory may have run out.

use std::ffi::CStr;
use std::fmt;

/// A variable's value, cut to a length that no value of interest has.
pub(crate) struct Value {
    bytes: [u8; 64],
    len: usize,
}

/// A variable's value; `None` if it is not set, or if the process runs with more rights than its
/// user has.
pub(crate) fn var(name: &CStr) -> Option<Value> {
    // SAFETY: no preconditions.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return None;
    }
    // SAFETY: `name` is a valid string.
    let found = unsafe { libc::getenv(name.as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: what is not null is a string; it is copied at once, since changing the environment
    // may end it.
    Some(Value::new(unsafe { CStr::from_ptr(found) }))
}

/// A variable's whole value, for a caller who may allocate: as [`var`], but of any length. What is
/// no text comes with marks in place of what cannot be read.
pub(crate) fn text(name: &CStr) -> Option<String> {
    // SAFETY: no preconditions.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return None;
    }
    // SAFETY: `name` is a valid string.
    let found = unsafe { libc::getenv(name.as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: as in `var`.
    let found = unsafe { CStr::from_ptr(found) };
    Some(found.to_string_lossy().into_owned())
}

impl Value {
    pub(crate) fn new(text: &CStr) -> Self {
        let mut value = Value {
            bytes: [0; 64],
            len: 0,
        };
        for (to, from) in value.bytes.iter_mut().zip(text.to_bytes()) {
            *to = *from;
            value.len += 1;
        }
        value
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()).ok()
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str().unwrap_or("?"))
    }
}
