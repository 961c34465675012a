// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Registered memory that the library allocates itself, for Rust programs.
//!
//! The other side may change registered memory at any moment, so no reference to its bytes is
//! given out: they are atomics, and are copied in and out.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::Error;
use crate::mr::{LocalRange, LocalRegion, Usage};
use crate::peer::Peer;
use crate::sys::alloc::Shared;

/// As long as a cache line, so that what is aligned in a buffer is aligned in memory.
const LINE: usize = 64;

#[repr(align(64))]
struct Line([AtomicU8; LINE]);

/// Memory that is zero at first, and registered until it is dropped.
pub struct Buffer {
    // Released in this order: no operation touches the memory once it is not registered.
    region: LocalRegion,
    lines: Box<[Line]>,
    len: usize,
}

impl Buffer {
    /// Allocates and registers `len` bytes.
    ///
    /// Errors: INVAL for no byte; NOMEM; PROVIDER if the provider refuses (errno says why).
    pub fn new(peer: &Shared<Peer>, len: usize, usage: Usage) -> Result<Self, Error> {
        if len == 0 {
            return Err(Error::Inval);
        }
        let count = len.div_ceil(LINE);
        let mut lines = Vec::new();
        lines.try_reserve_exact(count).map_err(|_| Error::NoMem)?;
        lines.resize_with(count, || Line([const { AtomicU8::new(0) }; LINE]));
        let lines = lines.into_boxed_slice();
        let address = lines.as_ptr().cast_mut().cast();
        Ok(Buffer {
            region: LocalRegion::register(peer, address, len, usage)?,
            lines,
            len,
        })
    }

    /// Copies bytes into the buffer.
    ///
    /// Errors: INVAL if they do not fit there, in which case nothing is copied.
    pub fn store(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        for (to, from) in self.part(offset, bytes.len())?.zip(bytes) {
            to.store(*from, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Copies bytes out of the buffer.
    ///
    /// Errors: INVAL if there are not as many there, in which case nothing is copied.
    pub fn load(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Error> {
        for (from, to) in self.part(offset, bytes.len())?.zip(bytes) {
            *to = from.load(Ordering::Relaxed);
        }
        Ok(())
    }

    /// A part of the buffer, for an operation.
    pub fn range(&self, offset: usize, len: usize) -> LocalRange<'_> {
        self.region.range(offset, len)
    }

    /// The registration, whose descriptor is for the other side.
    pub fn region(&self) -> &LocalRegion {
        &self.region
    }

    fn part(&self, offset: usize, len: usize) -> Result<impl Iterator<Item = &AtomicU8>, Error> {
        let end = offset.checked_add(len).ok_or(Error::Inval)?;
        if end > self.len {
            return Err(Error::Inval);
        }
        let lines = self.lines.get(offset / LINE..).unwrap_or_default();
        let bytes = lines.iter().flat_map(|line| line.0.iter());
        Ok(bytes.skip(offset % LINE).take(len))
    }
}
