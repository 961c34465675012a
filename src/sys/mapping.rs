// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! A file mapped for a look at what the kernel makes of it. Nobody reads or writes the memory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

use libc::c_void;

/// A shared mapping of the beginning of a file, unmapped when dropped.
pub(crate) struct Mapping {
    address: *mut c_void,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes. With `direct`, only if what is written is in the file as soon as it has
    /// left the CPU's caches (`MAP_SYNC`).
    pub(crate) fn new(file: &File, len: usize, direct: bool) -> io::Result<Self> {
        let flags = if direct {
            libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC
        } else {
            libc::MAP_SHARED
        };
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing.
        let address = unsafe {
            libc::mmap(
                null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { address, len })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address as u64
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's own and is not used after this call.
        unsafe { libc::munmap(self.address, self.len) };
    }
}
