// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Handles: how the core's objects look to a C caller, and how their pointers come and go.

use std::ffi::CStr;
use std::ffi::c_char;

use crate::error::Error;
use crate::fault;
use crate::sys::alloc::{Shared, try_box};

/// A C type that stands for an object of the core: the handle is the object's address.
///
/// # Safety
/// Handles of the type are only made from an `Object` that outlives them: by [`Out::give`] or
/// [`Out::share`], or, for an object that another one keeps, from a reference to it.
pub(super) unsafe trait Handle {
    type Object;
}

/// The object behind a handle; INVAL for null.
///
/// # Safety
/// The C contract.
#[inline(always)]
pub(super) unsafe fn object<'a, H: Handle>(handle: *const H) -> Result<&'a H::Object, Error> {
    // SAFETY: a handle is the address of a live object of this type.
    unsafe { handle.cast::<H::Object>().as_ref() }.ok_or(Error::Inval)
}

/// The object behind a handle that may be null.
///
/// # Safety
/// The C contract.
#[inline(always)]
pub(super) unsafe fn object_or_none<'a, H: Handle>(handle: *const H) -> Option<&'a H::Object> {
    // SAFETY: as in `object`.
    unsafe { handle.cast::<H::Object>().as_ref() }
}

/// One more owner of the shared object behind a handle; INVAL for null.
///
/// # Safety
/// The C contract, and the handle was given out by [`Out::share`].
pub(super) unsafe fn co_owner<H: Handle>(handle: *const H) -> Result<Shared<H::Object>, Error> {
    if handle.is_null() {
        return Err(Error::Inval);
    }
    // SAFETY: a handle given out by `share` is the address that `Shared::into_raw` returned.
    Ok(unsafe { Shared::clone_from_raw(handle.cast()) })
}

/// A place for an answer in the caller's memory.
pub(super) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// INVAL for null.
    ///
    /// # Safety
    /// The C contract: what is not null is valid for a write while the call lasts.
    #[inline(always)]
    pub(super) unsafe fn new(place: *mut T) -> Result<Self, Error> {
        fault::point(c"rpma", Error::Inval)?;
        if place.is_null() {
            Err(Error::Inval)
        } else {
            Ok(Out(place))
        }
    }

    /// The place, if it is not null: for an answer that a caller may do without.
    ///
    /// # Safety
    /// As for [`Out::new`].
    #[inline(always)]
    pub(super) unsafe fn optional(place: *mut T) -> Option<Self> {
        (!place.is_null()).then_some(Out(place))
    }

    #[inline(always)]
    pub(super) fn set(self, value: T) {
        // SAFETY: the place is valid for a write (the contract of `new`). It may be unaligned as
        // far as this library is concerned, and its old content is not looked at.
        unsafe { self.0.write_unaligned(value) };
    }
}

impl<H: Handle> Out<*mut H> {
    /// Gives an object to the caller.
    pub(super) fn give(self, object: H::Object) -> Result<(), Error> {
        fault::point(c"rpma", Error::NoMem)?;
        let object = try_box(object)?;
        self.set(Box::into_raw(object).cast());
        Ok(())
    }

    /// As [`Out::give`]; without memory for that, the caller's pointer becomes null.
    pub(super) fn give_or_null(self, object: H::Object) -> Result<(), Error> {
        let place = Out(self.0);
        let given = self.give(object);
        if given.is_err() {
            place.set(std::ptr::null_mut());
        }
        given
    }

    /// As [`Out::share`]; without memory for that, the caller's pointer becomes null.
    pub(super) fn share_or_null(self, object: H::Object) -> Result<(), Error> {
        let place = Out(self.0);
        let shared = self.share(object);
        if shared.is_err() {
            place.set(std::ptr::null_mut());
        }
        shared
    }

    /// Gives an object to the caller that the library may go on to use as well.
    pub(super) fn share(self, object: H::Object) -> Result<(), Error> {
        fault::point(c"rpma", Error::NoMem)?;
        let object = Shared::try_new(object)?;
        self.set(object.into_raw().cast_mut().cast());
        Ok(())
    }
}

/// Takes a handle back from the caller, whose pointer becomes null. `None` if it was null
/// already; INVAL if there is no pointer.
///
/// # Safety
/// The C contract.
unsafe fn take_handle<H>(place: *mut *mut H) -> Result<Option<*mut H>, Error> {
    // SAFETY: the C contract.
    let place = unsafe { place.as_mut() }.ok_or(Error::Inval)?;
    let handle = std::mem::replace(place, std::ptr::null_mut());
    Ok((!handle.is_null()).then_some(handle))
}

/// Takes an object back that was given by [`Out::give`].
///
/// # Safety
/// The C contract, and nobody else uses the object.
pub(super) unsafe fn take<H: Handle>(place: *mut *mut H) -> Result<Option<H::Object>, Error> {
    // SAFETY: the C contract.
    let handle = unsafe { take_handle(place) }?;
    // SAFETY: the handle is the address that `Box::into_raw` returned in `give`, and it is taken
    // back once, because the caller's pointer is null now.
    Ok(handle.map(|handle| *unsafe { Box::from_raw(handle.cast::<H::Object>()) }))
}

/// Deletes an object that was given by [`Out::give`] and holds nothing of the provider.
///
/// # Safety
/// As for [`take`].
pub(super) unsafe fn delete<H: Handle>(place: *mut *mut H) -> Result<(), Error> {
    // SAFETY: the contract.
    unsafe { take(place) }.map(|_| ())
}

/// Takes an object back that was given by [`Out::share`].
///
/// # Safety
/// The C contract.
pub(super) unsafe fn take_shared<H: Handle>(
    place: *mut *mut H,
) -> Result<Option<Shared<H::Object>>, Error> {
    // SAFETY: the C contract.
    let handle = unsafe { take_handle(place) }?;
    // SAFETY: the handle is the address that `Shared::into_raw` returned in `share`, and it is
    // taken back once.
    Ok(handle.map(|handle| unsafe { Shared::from_raw(handle.cast()) }))
}

/// A caller's string; INVAL for null.
///
/// # Safety
/// The C contract: what is not null is a string that stays as it is while the call lasts.
pub(super) unsafe fn string<'a>(string: *const c_char) -> Result<&'a CStr, Error> {
    if string.is_null() {
        return Err(Error::Inval);
    }
    // SAFETY: the C contract.
    Ok(unsafe { CStr::from_ptr(string) })
}

/// A caller's bytes; INVAL for null.
///
/// # Safety
/// The C contract: what is not null is valid for reading `len` bytes while the call lasts.
pub(super) unsafe fn bytes<'a>(
    bytes: *const std::ffi::c_void,
    len: usize,
) -> Result<&'a [u8], Error> {
    if bytes.is_null() {
        return Err(Error::Inval);
    }
    // No object is larger; a caller that does not know the size may say so.
    let len = len.min(isize::MAX as usize);
    // SAFETY: the C contract.
    Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), len) })
}
