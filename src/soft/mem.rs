// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Touching the program's memory without trusting it to be there.
//!
//! A program may unmap memory that it has registered. Wherever the kernel does the copying it
//! says so (`EFAULT`) instead of killing the process; so payload is moved by the kernel. Only the
//! 8-byte atomic store, which the kernel cannot do, is done here after a look; and short payloads
//! that are sent may be read elsewhere after one ([`is_readable_short`]).

use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::process::{Resource, getrlimit};

use super::sync::Lock;
use crate::sys::errno;
use crate::sys::fork::PerProcess;

/// Memory that was registered is not mapped (any more), or not with the needed protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault;

/// Size of a receive buffer: many small frames fit, and little of a large one has to be copied.
pub(super) const SCRATCH_LEN: usize = 16 * 1024;

/// A receive buffer whose contents the kernel can copy into the program's memory.
///
/// Its pages belong to a memory file, one for all buffers. Reading that file at an offset makes
/// the kernel copy from the buffer and check the destination, at a fraction of the price of
/// `process_vm_writev`.
pub(super) struct Scratch {
    base: *mut u8,
    /// The file, if the system has such, and where in it the buffer is.
    file: Option<(&'static OwnedFd, u64)>,
}

// SAFETY: the mapping belongs to this object alone, and any thread may use it.
unsafe impl Send for Scratch {}

/// Maps memory of a file from `offset` on, shared with whoever else maps it.
pub(super) fn map_shared(file: &OwnedFd, offset: u64, len: usize) -> Result<NonNull<u8>, Errno> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses affects nothing else.
    let base = unsafe { mmap(null_mut(), len, prot, MapFlags::SHARED, file, offset) }?;
    NonNull::new(base.cast()).ok_or(Errno::NOMEM)
}

/// Whether a file may become so long: writing beyond the limit would be answered by a signal.
pub(super) fn may_file_be(len: u64) -> bool {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX) >= len
}

/// A place for a new buffer in the common file.
fn place_in_file() -> Option<(&'static OwnedFd, u64)> {
    static FILE: PerProcess<OnceLock<Option<OwnedFd>>> = PerProcess::new();
    static USED: PerProcess<Lock<u64>> = PerProcess::new();
    let file = FILE
        .get()
        .get_or_init(|| memfd_create("rpma-soft", MemfdFlags::CLOEXEC).ok())
        .as_ref()?;
    let mut used = USED.get().lock();
    let offset = *used;
    if !may_file_be(offset + SCRATCH_LEN as u64) {
        return None;
    }
    ftruncate(file, offset + SCRATCH_LEN as u64).ok()?;
    *used = offset + SCRATCH_LEN as u64;
    Some((file, offset))
}

impl Scratch {
    fn new(file: Option<(&'static OwnedFd, u64)>) -> Option<Self> {
        let mapped = file.and_then(|(file, offset)| map_shared(file, offset, SCRATCH_LEN).ok());
        let file = file.filter(|_| mapped.is_some());
        let base = match mapped {
            Some(base) => base.as_ptr(),
            None => {
                let prot = ProtFlags::READ | ProtFlags::WRITE;
                // SAFETY: a new mapping at an address that the kernel chooses affects nothing else.
                unsafe { mmap_anonymous(null_mut(), SCRATCH_LEN, prot, MapFlags::PRIVATE) }
                    .ok()?
                    .cast()
            }
        };
        Some(Scratch { base, file })
    }

    /// The buffer as the last element of a scatter list.
    pub(super) fn iovec(&mut self) -> libc::iovec {
        libc::iovec {
            iov_base: self.base.cast(),
            iov_len: SCRATCH_LEN,
        }
    }

    /// The first `len` bytes.
    pub(super) fn bytes(&self, len: usize) -> &[u8] {
        // SAFETY: the mapping is SCRATCH_LEN bytes long and initialised (zero pages or received
        // data), and nothing writes to it while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.base, len.min(SCRATCH_LEN)) }
    }

    /// Copies `len` bytes at `offset` of the buffer to `addr`.
    pub(super) fn copy_out(&self, offset: usize, addr: u64, len: usize) -> Result<(), Fault> {
        let mut done = 0;
        if offset > SCRATCH_LEN || len > SCRATCH_LEN - offset {
            return Err(Fault);
        }
        while done < len {
            let n = match &self.file {
                // SAFETY: the kernel checks the destination; that the range is registered and
                // in use by the caller makes it the program's to be written.
                Some((file, start)) => unsafe {
                    libc::pread(
                        file.as_raw_fd(),
                        (addr as usize + done) as *mut libc::c_void,
                        len - done,
                        (*start as usize + offset + done) as libc::off_t,
                    )
                },
                None => {
                    let local = libc::iovec {
                        // SAFETY: offset + done < SCRATCH_LEN, checked above.
                        iov_base: unsafe { self.base.add(offset + done) }.cast(),
                        iov_len: len - done,
                    };
                    let remote = libc::iovec {
                        iov_base: (addr as usize + done) as *mut libc::c_void,
                        iov_len: len - done,
                    };
                    // SAFETY: as above, for this process itself.
                    unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) }
                }
            };
            match usize::try_from(n) {
                Ok(n) if n > 0 => done += n,
                _ => return Err(Fault),
            }
        }
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` and nothing refers to it any more.
        let _ = unsafe { munmap(self.base.cast(), SCRATCH_LEN) };
    }
}

/// Receive buffers that are not in use; there are never more than threads that drive the fabric.
static POOL: PerProcess<Lock<Vec<Scratch>>> = PerProcess::new();

/// A receive buffer on loan from the pool.
pub(super) struct Borrowed(Option<Scratch>);

impl Borrowed {
    /// `None` if the system is out of memory or descriptors.
    pub(super) fn take() -> Option<Self> {
        let spare = POOL.get().lock().pop();
        spare
            .or_else(|| Scratch::new(place_in_file()))
            .map(|s| Borrowed(Some(s)))
    }

    pub(super) fn get(&mut self) -> Option<&mut Scratch> {
        self.0.as_mut()
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(scratch) = self.0.take() {
            POOL.get().lock().push(scratch);
        }
    }
}

pub(super) fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// Whether every page of a range belongs to some mapping.
pub(super) fn is_mapped(addr: u64, len: u64) -> bool {
    if len == 0 {
        return true;
    }
    let start = addr & !(page_size() - 1);
    let Some(len) = addr.checked_add(len).map(|end| end - start) else {
        return false;
    };
    // One byte for each page.
    let mut resident = [0u8; 4096];
    let step = resident.len() as u64 * page_size();
    let mut done = 0;
    while done < len {
        let part = step.min(len - done);
        // SAFETY: mincore changes no memory but the bytes that it is given, one for each page of
        // the range, which may be any.
        let result = unsafe {
            libc::mincore(
                (start + done) as *mut libc::c_void,
                part as usize,
                resident.as_mut_ptr(),
            )
        };
        match result {
            0 => done += part,
            _ if errno::get() == libc::EAGAIN => {}
            _ => return false,
        }
    }
    true
}

/// Whether a range can be registered: mapped as a whole, and readable or writable where it
/// begins. A range with holes in its protection is found out when it is used.
pub(super) fn is_registrable(addr: u64, len: u64, writable: bool) -> bool {
    addr != 0 && is_mapped(addr, len) && touch(addr, 1, writable) != Some(false)
}

/// Gives the kernel advice about the pages of a range that changes none of their content, such as
/// to fault them in as an access would. The answer is errno's.
pub(super) fn advise(addr: u64, len: u64, advice: libc::c_int) -> Result<(), libc::c_int> {
    let start = addr & !(page_size() - 1);
    let Some(end) = addr.checked_add(len) else {
        return Err(libc::ENOMEM);
    };
    // SAFETY: the kinds of advice that are given here change no content; the kernel checks the
    // range.
    match unsafe { libc::madvise(start as *mut libc::c_void, (end - start) as usize, advice) } {
        0 => Ok(()),
        _ => Err(errno::get()),
    }
}

/// Has the kernel touch the pages of a range as an access would, without changing them: whether
/// that went well; `None` if the kernel cannot be asked (before 5.14).
pub(super) fn touch(addr: u64, len: u64, for_writing: bool) -> Option<bool> {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    let advice = if for_writing {
        libc::MADV_POPULATE_WRITE
    } else {
        libc::MADV_POPULATE_READ
    };
    match advise(addr, len, advice) {
        Ok(()) => Some(true),
        // The protection forbids the access, or the kernel does not know the advice: then it
        // fails on our own data, too.
        Err(libc::EINVAL) => {
            let ours = (&raw const KNOWN) as u64;
            let known = KNOWN.get_or_init(|| advise(ours, 1, libc::MADV_POPULATE_READ).is_ok());
            known.then_some(false)
        }
        Err(_) => Some(false),
    }
}

/// Whether the pages of a range can be accessed, as well as the kernel can tell.
pub(super) fn is_accessible(addr: u64, len: u64, for_writing: bool) -> bool {
    touch(addr, len, for_writing).unwrap_or_else(|| is_mapped(addr, len))
}

/// As [`touch`] for writing, by a way that every kernel knows: an atomic addition of nothing.
fn touch_by_futex(addr: u64) -> bool {
    const FUTEX_WAKE_OP_PRIVATE: libc::c_int = 5 | 128;
    const ADD_NOTHING: libc::c_int = 1 << 28;
    // SAFETY: wakes nobody (both counts are 0) and adds 0 to the aligned word at `addr`, which the
    // kernel checks; it answers EFAULT where an access would be a fault.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            addr as *mut u32,
            FUTEX_WAKE_OP_PRIVATE,
            0,
            std::ptr::null::<libc::timespec>(),
            addr as *mut u32,
            ADD_NOTHING,
        ) >= 0
    }
}

/// Whether a range can be read; used to find the culprit after the kernel refused a gather list.
pub(super) fn is_readable(addr: u64, len: u64) -> bool {
    let mut sink = [0u8; 4096];
    let mut done = 0;
    while done < len {
        let part = (len - done).min(sink.len() as u64);
        let local = libc::iovec {
            iov_base: sink.as_mut_ptr().cast(),
            iov_len: part as usize,
        };
        let remote = libc::iovec {
            iov_base: addr.wrapping_add(done) as *mut libc::c_void,
            iov_len: part as usize,
        };
        // SAFETY: writes at most `part` bytes to `sink`; the kernel checks the source.
        let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        if u64::try_from(n) != Ok(part) {
            return false;
        }
        done += part;
    }
    true
}

/// Whether a range of a few pages can be read: by the cheapest of all system calls that read memory,
/// one for each page. An unknown operation on the signal mask is refused, but only after the mask that it
/// comes with was read.
pub(super) fn is_readable_short(addr: u64, len: u64) -> bool {
    const WORD: u64 = 8;
    const NO_OPERATION: libc::c_long = -1;
    let can_read = |addr: u64| {
        // An aligned word is in one page.
        let word = (addr & !(WORD - 1)) as *const u64;
        // SAFETY: changes nothing; the kernel checks the address.
        let result = unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                NO_OPERATION,
                word,
                std::ptr::null_mut::<u64>(),
                WORD,
            )
        };
        result == 0 || errno::get() != libc::EFAULT
    };
    let Some(last) = addr.checked_add(len.saturating_sub(1)) else {
        return false;
    };
    // A null pointer would mean that there is no mask.
    if addr < WORD || !can_read(addr) {
        return false;
    }
    let page = page_size();
    let mut next = (addr & !(page - 1)).saturating_add(page);
    while next <= last {
        if !can_read(next) {
            return false;
        }
        next = next.saturating_add(page);
    }
    true
}

/// Stores 8 bytes at an aligned address in one go.
///
/// The page is touched by the kernel first, since it may be read-only, beyond its file's end, or
/// gone. A program that takes it away between that and the store dies as it would if it stored
/// there itself; deregistering first is safe, because the caller holds the region's use.
pub(super) fn store_atomic(addr: u64, value: u64) -> Result<(), Fault> {
    if !addr.is_multiple_of(8) || addr == 0 {
        return Err(Fault);
    }
    if !touch(addr, 8, true).unwrap_or_else(|| touch_by_futex(addr)) {
        return Err(Fault);
    }
    // SAFETY: aligned, and writable as the kernel has just found; registered for remote writing,
    // so shared with the program only as memory that a device may change at any time.
    let cell = unsafe { AtomicU64::from_ptr(addr as *mut u64) };
    cell.store(value, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(prot: ProtFlags) -> u64 {
        // SAFETY: a new private mapping.
        unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                page_size() as usize,
                prot,
                MapFlags::PRIVATE,
            )
        }
        .unwrap() as u64
    }

    fn unmap(addr: u64) {
        // SAFETY: the page is this test's.
        unsafe { munmap(addr as *mut _, page_size() as usize) }.unwrap();
    }

    #[test]
    fn copies_and_reports_faults() {
        for file in [true, false] {
            let place = if file { place_in_file() } else { None };
            assert_eq!(place.is_some(), file);
            let mut scratch = Scratch::new(place).unwrap();
            let iov = scratch.iovec();
            for i in 0..iov.iov_len {
                // SAFETY: inside the buffer.
                unsafe { iov.iov_base.cast::<u8>().add(i).write(i as u8) };
            }
            let mut out = [0u8; 300];
            assert_eq!(
                scratch.copy_out(SCRATCH_LEN - 300, out.as_mut_ptr() as u64, 300),
                Ok(())
            );
            assert_eq!(out, scratch.bytes(SCRATCH_LEN)[SCRATCH_LEN - 300..]);
            let to = out.as_mut_ptr() as u64;
            assert_eq!(scratch.copy_out(SCRATCH_LEN - 299, to, 300), Err(Fault));
            assert_eq!(scratch.copy_out(usize::MAX, to, 1), Err(Fault));
            let gone = page(ProtFlags::READ | ProtFlags::WRITE);
            unmap(gone);
            assert_eq!(scratch.copy_out(0, gone, 8), Err(Fault));
            let fixed = page(ProtFlags::READ);
            assert_eq!(scratch.copy_out(0, fixed, 8), Err(Fault));
            unmap(fixed);
        }
    }

    #[test]
    fn registrable_memory() {
        let rw = page(ProtFlags::READ | ProtFlags::WRITE);
        let ro = page(ProtFlags::READ);
        let size = page_size();
        assert!(is_registrable(rw, size, true));
        assert!(is_registrable(rw + 8, 1, true));
        assert!(is_registrable(ro, size, false));
        assert!(!is_registrable(ro, size, true));
        assert!(!is_registrable(rw, 1 << 46, true));
        assert!(!is_registrable(u64::MAX - 10, 20, false));
        assert!(!is_registrable(0, 8, false));
        assert!(is_readable(rw, size));
        unmap(rw);
        assert!(!is_registrable(rw, size, false));
        assert!(!is_readable(rw, 1));
        unmap(ro);
    }

    #[test]
    fn short_ranges_are_readable_or_not() {
        let size = page_size();
        // SAFETY: a new private mapping, half of which is taken away again.
        let two = unsafe {
            let prot = ProtFlags::READ;
            let two = mmap_anonymous(
                std::ptr::null_mut(),
                2 * size as usize,
                prot,
                MapFlags::PRIVATE,
            )
            .unwrap() as u64;
            assert!(is_readable_short(two + size - 4, 8));
            munmap((two + size) as *mut _, size as usize).unwrap();
            two
        };
        assert!(is_readable_short(two, size));
        assert!(!is_readable_short(two, size + 1));
        assert!(!is_readable_short(two - 3 * size, 4 * size + 1));
        assert!(is_readable_short(two + size - 1, 1));
        assert!(!is_readable_short(two + size - 4, 8));
        assert!(!is_readable_short(two + size, 1));
        assert!(!is_readable_short(0, 1));
        assert!(!is_readable_short(u64::MAX, 8));
        unmap(two);
        assert!(!is_readable_short(two, 8));
    }

    #[test]
    fn atomic_store() {
        let mut cell = 0u64;
        let addr = (&raw mut cell) as u64;
        assert_eq!(store_atomic(addr, 0x1122_3344_5566_7788), Ok(()));
        assert_eq!(cell, 0x1122_3344_5566_7788);
        assert_eq!(store_atomic(addr + 4, 1), Err(Fault));
        let gone = page(ProtFlags::READ | ProtFlags::WRITE);
        unmap(gone);
        assert_eq!(store_atomic(gone, 1), Err(Fault));
    }

    #[test]
    fn atomic_store_where_a_store_would_be_a_signal() {
        let constant = page(ProtFlags::READ);
        assert_eq!(store_atomic(constant, 1), Err(Fault));
        unmap(constant);
        // A file that is shorter than its mapping.
        let file = memfd_create("short", MemfdFlags::CLOEXEC).unwrap();
        // SAFETY: a new mapping.
        let beyond = unsafe {
            mmap(
                std::ptr::null_mut(),
                page_size() as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        }
        .unwrap() as u64;
        assert_eq!(store_atomic(beyond, 1), Err(Fault));
        ftruncate(&file, 8).unwrap();
        assert_eq!(store_atomic(beyond, 1), Ok(()));
        unmap(beyond);
    }

    #[test]
    fn both_ways_to_touch_a_page_agree() {
        let writable = page(ProtFlags::READ | ProtFlags::WRITE);
        let constant = page(ProtFlags::READ);
        assert!(touch_by_futex(writable));
        assert_eq!(touch(writable, 1, true), Some(true));
        assert!(!touch_by_futex(constant));
        assert_eq!(touch(constant, 1, true), Some(false));
        assert_eq!(touch(constant, 1, false), Some(true));
        unmap(writable);
        unmap(constant);
        assert!(!touch_by_futex(writable));
        assert_eq!(touch(writable, 1, true), Some(false));
    }
}
