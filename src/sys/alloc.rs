// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Allocation that can fail, and the shared ownership built on it.
//!
//! `Box::new` and `Arc::new` end the process when memory runs out. A C library has to answer
//! `RPMA_E_NOMEM` instead, so each object that a caller can ask for is allocated here.

use std::alloc::Layout;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::error::Error;

/// Moves a value to the heap, or answers [`Error::NoMem`].
pub(crate) fn try_box<T>(value: T) -> Result<Box<T>, Error> {
    const {
        assert!(
            size_of::<T>() != 0,
            "a zero-sized object needs no allocation"
        )
    };
    let layout = Layout::new::<T>();
    // SAFETY: the layout's size is not zero (asserted above).
    let raw = unsafe { std::alloc::alloc(layout) }.cast::<T>();
    if raw.is_null() {
        return Err(Error::NoMem);
    }
    // SAFETY: `raw` is valid for a write of `T`, comes from the global allocator with T's
    // layout, and has no other owner.
    unsafe {
        raw.write(value);
        Ok(Box::from_raw(raw))
    }
}

/// Copies bytes to the heap, or answers [`Error::NoMem`].
pub(crate) fn try_copy(bytes: &[u8]) -> Result<Box<[u8]>, Error> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())
        .map_err(|_| Error::NoMem)?;
    copy.extend_from_slice(bytes);
    Ok(copy.into_boxed_slice())
}

struct Counted<T> {
    owners: AtomicUsize,
    value: T,
}

/// A reference-counted object whose creation can fail: `Arc` without the abort.
///
/// Thread safety: as `Arc`'s.
pub struct Shared<T> {
    counted: NonNull<Counted<T>>,
}

// SAFETY: a `Shared` gives out only `&T` and may drop the `T` on any thread, like `Arc`.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Moves a value to the heap with one owner.
    pub(crate) fn try_new(value: T) -> Result<Self, Error> {
        let counted = try_box(Counted {
            owners: AtomicUsize::new(1),
            value,
        })?;
        Ok(Shared {
            counted: NonNull::from(Box::leak(counted)),
        })
    }

    /// Whether this is the only owner. Exact only while no other thread can clone the object.
    pub(crate) fn is_sole_owner(&self) -> bool {
        self.inner().owners.load(Ordering::Acquire) == 1
    }

    /// The address of the value: what a C caller holds as its handle.
    pub(crate) fn as_ptr(&self) -> *const T {
        // SAFETY: the allocation is alive. No reference is made on the way, so that the address
        // stays good for the whole allocation, to which `from_raw` goes back.
        unsafe { &raw const (*self.counted.as_ptr()).value }
    }

    /// Gives the ownership away as an address, for a C caller to hold.
    pub(crate) fn into_raw(self) -> *const T {
        let address = self.as_ptr();
        std::mem::forget(self);
        address
    }

    /// Takes back the ownership that [`Shared::into_raw`] gave away.
    ///
    /// # Safety
    /// `address` came from `into_raw` of the same type and was not taken back before.
    pub(crate) unsafe fn from_raw(address: *const T) -> Self {
        let offset = std::mem::offset_of!(Counted<T>, value);
        // SAFETY: `address` points at the `value` field of a live `Counted<T>` (the contract).
        let counted = unsafe { address.byte_sub(offset) }.cast::<Counted<T>>();
        // SAFETY: an address inside an allocation is not null.
        let counted = unsafe { NonNull::new_unchecked(counted.cast_mut()) };
        Shared { counted }
    }

    /// Adds an owner through an address that a C caller holds.
    ///
    /// # Safety
    /// `address` came from `into_raw` of the same type and was not taken back yet.
    pub(crate) unsafe fn clone_from_raw(address: *const T) -> Self {
        // SAFETY: the contract; the caller's own ownership is kept by forgetting the temporary.
        let callers = unsafe { Self::from_raw(address) };
        let clone = callers.clone();
        std::mem::forget(callers);
        clone
    }

    fn inner(&self) -> &Counted<T> {
        // SAFETY: the allocation lives as long as any owner does, and `self` is one.
        unsafe { self.counted.as_ref() }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner().value
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        // Relaxed: a new owner is made from an existing one, which orders it already.
        self.inner().owners.fetch_add(1, Ordering::Relaxed);
        Shared {
            counted: self.counted,
        }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        if self.inner().owners.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        // SAFETY: the last owner is gone, nobody else can reach the allocation, and it was made
        // by `try_box`.
        drop(unsafe { Box::from_raw(self.counted.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn shared_drops_its_value_once_with_the_last_owner() {
        let witness = Arc::new(());
        let first = Shared::try_new(witness.clone()).unwrap();
        let second = first.clone();
        assert!(!first.is_sole_owner());
        drop(first);
        assert_eq!(Arc::strong_count(&witness), 2);
        assert!(second.is_sole_owner());
        drop(second);
        assert_eq!(Arc::strong_count(&witness), 1);
    }

    #[test]
    fn shared_survives_the_way_through_a_c_caller() {
        let witness = Arc::new(7);
        let address = Shared::try_new(witness.clone()).unwrap().into_raw();
        // SAFETY: `address` was just given away and is taken back once, below.
        let inside = unsafe { Shared::clone_from_raw(address) };
        assert_eq!(inside.as_ptr(), address);
        assert_eq!(**inside, 7);
        // SAFETY: as above.
        drop(unsafe { Shared::from_raw(address) });
        assert_eq!(Arc::strong_count(&witness), 2);
        drop(inside);
        assert_eq!(Arc::strong_count(&witness), 1);
    }

    #[test]
    fn boxes_and_copies_hold_what_was_given() {
        assert_eq!(*try_box([1_u64, 2, 3]).unwrap(), [1, 2, 3]);
        assert_eq!(&*try_copy(b"private data").unwrap(), b"private data");
        assert_eq!(&*try_copy(b"").unwrap(), b"");
    }
}
