// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Memory regions.

use std::ffi::{c_int, c_void};

use super::answer;
use super::handle::{self, Handle, Out, co_owner, object};
use crate::error::Error;
use crate::mr::{LocalRegion, RemoteRegion, Usage};

super::symbols::versioned! {
    rpma_mr_reg
    rpma_mr_dereg
    rpma_mr_get_descriptor
    rpma_mr_remote_from_descriptor
    rpma_mr_get_descriptor_size
    rpma_mr_get_ptr
    rpma_mr_get_size
    rpma_mr_remote_get_size
    rpma_mr_remote_get_flush_type
    rpma_mr_remote_delete
    rpma_mr_advise
}

/// A registered region of this process's memory.
pub struct rpma_mr_local {
    _opaque: (),
}

// SAFETY: the only way to a handle of this type is `Out::give` with this object.
unsafe impl Handle for rpma_mr_local {
    type Object = LocalRegion;
}

/// A region of the other side's memory.
pub struct rpma_mr_remote {
    _opaque: (),
}

// SAFETY: the only way to a handle of this type is `Out::give` with this object.
unsafe impl Handle for rpma_mr_remote {
    type Object = RemoteRegion;
}

/// Usage of a memory region: source of a read by the other side.
pub const RPMA_MR_USAGE_READ_SRC: c_int = 1 << 0;
/// Usage of a memory region: destination of a read by this side.
pub const RPMA_MR_USAGE_READ_DST: c_int = 1 << 1;
/// Usage of a memory region: source of a write by this side.
pub const RPMA_MR_USAGE_WRITE_SRC: c_int = 1 << 2;
/// Usage of a memory region: destination of a write by the other side.
pub const RPMA_MR_USAGE_WRITE_DST: c_int = 1 << 3;
/// Usage of a memory region: flushed by the other side, for visibility.
pub const RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY: c_int = 1 << 4;
/// Usage of a memory region: flushed by the other side, for persistence.
pub const RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT: c_int = 1 << 5;
/// Usage of a memory region: source of messages.
pub const RPMA_MR_USAGE_SEND: c_int = 1 << 6;
/// Usage of a memory region: destination of messages.
pub const RPMA_MR_USAGE_RECV: c_int = 1 << 7;

// The constants above are what the header shows; the core knows the same numbers.
const _: () = {
    assert!(RPMA_MR_USAGE_READ_SRC == Usage::READ_SRC.bits() as c_int);
    assert!(RPMA_MR_USAGE_READ_DST == Usage::READ_DST.bits() as c_int);
    assert!(RPMA_MR_USAGE_WRITE_SRC == Usage::WRITE_SRC.bits() as c_int);
    assert!(RPMA_MR_USAGE_WRITE_DST == Usage::WRITE_DST.bits() as c_int);
    assert!(RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY == Usage::FLUSH_VISIBILITY.bits() as c_int);
    assert!(RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT == Usage::FLUSH_PERSISTENT.bits() as c_int);
    assert!(RPMA_MR_USAGE_SEND == Usage::SEND.bits() as c_int);
    assert!(RPMA_MR_USAGE_RECV == Usage::RECV.bits() as c_int);
};

/// Registers size bytes of memory at ptr for the uses in usage, a set of RPMA_MR_USAGE_* bits.
/// The memory stays the caller's, who keeps it mapped until the region is deregistered with
/// rpma_mr_dereg(). Memory that the device cannot pin, such as a file on DAX, is registered with
/// on-demand paging if the device can do that.
///
/// Returns 0; RPMA_E_INVAL if a pointer is NULL, size or usage is 0, or usage has an unknown bit;
/// RPMA_E_NOMEM; RPMA_E_PROVIDER if the provider refuses (errno says why).
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_reg(
    peer: *mut super::rpma_peer,
    ptr: *mut c_void,
    size: usize,
    usage: c_int,
    mr_ptr: *mut *mut rpma_mr_local,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract; handles of a peer are given out by `Out::share`.
        let (peer, out) = unsafe { (co_owner(peer)?, Out::new(mr_ptr)?) };
        if ptr.is_null() || size == 0 {
            return Err(Error::Inval);
        }
        let usage = Usage::from_bits(usage).ok_or(Error::Inval)?;
        out.give(LocalRegion::register(&peer, ptr, size, usage)?)
    })
}

/// Deregisters a region; *mr_ptr becomes NULL, also on failure. A NULL *mr_ptr is success. No
/// operation that uses the region may be outstanding.
///
/// Returns 0; RPMA_E_INVAL if mr_ptr is NULL; RPMA_E_PROVIDER if the provider fails (errno says
/// why).
///
/// Thread safety: safe on different regions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_dereg(mr_ptr: *mut *mut rpma_mr_local) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        match unsafe { handle::take(mr_ptr) }? {
            Some(region) => region.release(),
            None => Ok(()),
        }
    })
}

/// Writes the region's descriptor, which the other side reads with
/// rpma_mr_remote_from_descriptor(). The buffer has the size that rpma_mr_get_descriptor_size()
/// tells.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_get_descriptor(
    mr: *const rpma_mr_local,
    desc: *mut c_void,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract; the buffer has the descriptor's size.
        let (region, out) = unsafe { (object(mr)?, Out::new(desc.cast())?) };
        out.set(region.descriptor());
        Ok(())
    })
}

/// Creates a remote region from the descriptor that its owner sent. Bytes after the descriptor
/// are ignored. It is deleted with rpma_mr_remote_delete().
///
/// Returns 0; RPMA_E_INVAL if desc or mr_ptr is NULL, the descriptor is too short or names no
/// usage; RPMA_E_NOMEM.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_remote_from_descriptor(
    desc: *const c_void,
    desc_size: usize,
    mr_ptr: *mut *mut rpma_mr_remote,
) -> c_int {
    answer(|| {
        if desc.is_null() {
            return Err(Error::Inval);
        }
        // SAFETY: the C contract.
        let (desc, out) = unsafe { (handle::bytes(desc, desc_size)?, Out::new(mr_ptr)?) };
        out.give(RemoteRegion::from_descriptor(desc)?)
    })
}

/// Tells how many bytes a region's descriptor has.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_get_descriptor_size(
    mr: *const rpma_mr_local,
    desc_size: *mut usize,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (_, out) = unsafe { (object(mr)?, Out::new(desc_size)?) };
        out.set(RemoteRegion::DESCRIPTOR_SIZE);
        Ok(())
    })
}

/// Tells where a region starts.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_get_ptr(mr: *const rpma_mr_local, ptr: *mut *mut c_void) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (region, out) = unsafe { (object(mr)?, Out::new(ptr)?) };
        out.set(region.address());
        Ok(())
    })
}

/// Tells how many bytes a region has.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_get_size(mr: *const rpma_mr_local, size: *mut usize) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (region, out) = unsafe { (object(mr)?, Out::new(size)?) };
        out.set(region.size());
        Ok(())
    })
}

/// Tells how many bytes a remote region has.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_remote_get_size(
    mr: *const rpma_mr_remote,
    size: *mut usize,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (region, out) = unsafe { (object(mr)?, Out::new(size)?) };
        // The other side may count with more bits than this one.
        out.set(usize::try_from(region.size()).unwrap_or(usize::MAX));
        Ok(())
    })
}

/// Tells for which types of flush a remote region was registered: a set of the
/// RPMA_MR_USAGE_FLUSH_TYPE_* bits, possibly 0.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_remote_get_flush_type(
    mr: *const rpma_mr_remote,
    flush_type: *mut c_int,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (region, out) = unsafe { (object(mr)?, Out::new(flush_type)?) };
        let both = Usage::FLUSH_VISIBILITY.union(Usage::FLUSH_PERSISTENT);
        out.set(c_int::from(region.usage().common(both)));
        Ok(())
    })
}

/// Deletes a remote region; *mr_ptr becomes NULL. A NULL *mr_ptr is success. The other side's
/// memory is not touched.
///
/// Returns 0; RPMA_E_INVAL if mr_ptr is NULL.
///
/// Thread safety: safe on different regions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_remote_delete(mr_ptr: *mut *mut rpma_mr_remote) -> c_int {
    // SAFETY: the C contract.
    answer(|| unsafe { handle::delete(mr_ptr) })
}

/// Tells the device how len bytes at offset of a region are going to be used; advice and flags
/// are those of ibv_advise_mr(3). It is of use for regions with on-demand paging.
///
/// Returns 0; RPMA_E_INVAL if mr is NULL, len is above 4 GiB - 1, or the provider does not accept
/// the range or the advice; RPMA_E_NOSUPP if the device takes no such advice; RPMA_E_PROVIDER if
/// the provider fails for another reason.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_advise(
    mr: *mut rpma_mr_local,
    offset: usize,
    len: usize,
    advice: c_int,
    flags: u32,
) -> c_int {
    // SAFETY: the C contract.
    answer(|| unsafe { object(mr) }?.advise(offset, len, advice, flags))
}
