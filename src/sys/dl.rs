// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The dynamic loader: opening a library for the rest of the process's life.
//!
//! `dlopen` is called directly, because the wrappers for it allocate in ways that end the process
//! when memory runs out, and a missing library has to stay an ordinary error.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::ptr::NonNull;

/// An open library. Never closed: its objects outlive any scope that could own the handle.
#[derive(Clone, Copy)]
pub(crate) struct Library {
    handle: NonNull<c_void>,
}

impl Library {
    /// Opens a library by its file name, found the way the program's own libraries are.
    pub(crate) fn open(file: &CStr) -> Result<Self, LoaderText> {
        // SAFETY: `file` is a valid string; the libraries opened here (rdma-core's) have no
        // initialisation routine with preconditions.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle)
            .map(|handle| Library { handle })
            .ok_or_else(LoaderText::take)
    }

    /// The address of a symbol.
    pub(crate) fn symbol(self, name: &CStr) -> Result<NonNull<c_void>, LoaderText> {
        // SAFETY: the handle is open and `name` a valid string.
        let address = unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) };
        NonNull::new(address).ok_or_else(LoaderText::take)
    }
}

/// What the loader said about its last failure, cut to a fixed length.
#[derive(Clone, Copy)]
pub(crate) struct LoaderText {
    text: [u8; 96],
    len: usize,
}

impl LoaderText {
    fn take() -> Self {
        let mut taken = LoaderText {
            text: [0; 96],
            len: 0,
        };
        // SAFETY: `dlerror` has no preconditions.
        let said = unsafe { libc::dlerror() };
        if said.is_null() {
            return taken;
        }
        // SAFETY: a non-null answer is a string that is valid until this thread's next call into
        // the loader; it is copied at once.
        let said = unsafe { CStr::from_ptr(said) }.to_bytes();
        for (to, from) in taken.text.iter_mut().zip(said) {
            *to = *from;
            taken.len += 1;
        }
        taken
    }
}

impl fmt::Display for LoaderText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = self.text.get(..self.len).unwrap_or_default();
        // The text may have been cut inside a character.
        match said.utf8_chunks().next() {
            Some(text) if !text.valid().is_empty() => f.write_str(text.valid()),
            _ => f.write_str("the loader gave no reason"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named() {
        let Err(text) = Library::open(c"libno-such-library.so.9") else {
            panic!("a library that does not exist was opened");
        };
        assert!(text.to_string().contains("libno-such-library.so.9"));
    }

    #[test]
    fn symbols_are_found_and_missed() {
        let Ok(libc) = Library::open(c"libc.so.6") else {
            panic!("no C library");
        };
        assert!(libc.symbol(c"strlen").is_ok());
        let Err(text) = libc.symbol(c"no_such_function_here") else {
            panic!("a function that does not exist was found");
        };
        assert!(text.to_string().contains("no_such_function_here"));
    }
}
