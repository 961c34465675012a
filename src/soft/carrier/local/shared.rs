// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The memory that two processes of one machine share for a connection: a ring of bytes in each
//! direction, and the words by which each side tells the other how far it is.
//!
//! It is a memory file of one user, whose size is sealed, so that neither side can make the other's accesses
//! fault. All that is read from it may have been written by anybody of the same user: it is
//! checked at each use, and never used as an address.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::mm::munmap;
use rustix::process::{Resource, getrlimit};

use super::super::super::mem::{map_shared, may_file_be};
use crate::sys::errno;

/// Bytes that may be under way in each direction.
pub(super) const RING_LEN: usize = 256 << 10;
/// Payloads that may wait to be fetched at a time.
pub(super) const LOANS: usize = 64;
/// Where the first ring begins; the control words are before it.
const RINGS_AT: usize = 4096;
const FILE_LEN: usize = RINGS_AT + 2 * RING_LEN;

const MAGIC: u64 = u64::from_le_bytes(*b"rpmaring");

/// A word that does not share its cache line with others.
#[repr(C, align(64))]
pub(super) struct Line<T>(pub T);

/// One end of the connection: what its process lets the other know.
#[repr(C)]
pub(super) struct Side {
    /// Bytes that it has put into its outgoing ring, since the beginning.
    pub written: Line<AtomicU64>,
    /// Bytes that it has taken out of its incoming ring.
    pub read: Line<AtomicU64>,
    /// Looks at this memory by itself; otherwise it has to be woken.
    pub awake: Line<AtomicU32>,
    /// Sleeps until there is room in its outgoing ring.
    pub starved: Line<AtomicU32>,
    /// Can read the other process's memory.
    pub can_fetch: Line<AtomicU32>,
    /// What the other side may fetch: 0, or the number of a loan.
    pub loans: [AtomicU64; LOANS],
}

#[repr(C)]
pub(super) struct Control {
    magic: AtomicU64,
    /// What whoever made the memory has put there.
    offered: [AtomicU64; 2],
    /// What whoever found it has put there.
    found: [AtomicU64; 2],
    sides: [Side; 2],
}

/// Which end a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Offering = 0,
    Finding = 1,
}

/// The memory as one process has it.
pub(super) struct Shared {
    base: *mut u8,
    file: OwnedFd,
    end: End,
}

// SAFETY: the mapping belongs to this object, and all access is by atomic words, or to bytes that
// the words say are this side's at the moment.
unsafe impl Send for Shared {}
// SAFETY: as above; who fills and who empties a ring holds a lock of the queue pair.
unsafe impl Sync for Shared {}

impl Shared {
    /// Makes memory for a new connection.
    pub(super) fn make(nonce: &[u8; 16]) -> Result<Self, Errno> {
        if !may_file_be(FILE_LEN as u64) {
            return Err(Errno::FBIG);
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("rpma-soft-connection", flags)?;
        is_affordable(&file)?;
        ftruncate(&file, FILE_LEN as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let shared = Self::map(file, End::Offering)?;
        store(&shared.control().offered, nonce);
        shared.control().magic.store(MAGIC, Ordering::Release);
        Ok(shared)
    }

    /// Uses memory that another process of this user has made, if it is what it promised.
    pub(super) fn find(file: OwnedFd, nonce: &[u8; 16], proof: &[u8; 16]) -> Result<Self, Errno> {
        is_affordable(&file)?;
        // Only memory files have seals. First, so that what is seen then stays.
        if !fcntl_get_seals(&file)?.contains(SealFlags::SHRINK | SealFlags::SEAL) {
            return Err(Errno::PERM);
        }
        let len = fstat(&file)?.st_size;
        if !may_file_be(FILE_LEN as u64) || usize::try_from(len) != Ok(FILE_LEN) {
            return Err(Errno::FBIG);
        }
        let shared = Self::map(file, End::Finding)?;
        let control = shared.control();
        if control.magic.load(Ordering::Acquire) != MAGIC || load(&control.offered) != *nonce {
            return Err(Errno::INVAL);
        }
        store(&control.found, proof);
        Ok(shared)
    }

    /// Whether the other side has left this proof that it found the memory.
    pub(super) fn was_found(&self, proof: &[u8; 16]) -> bool {
        load(&self.control().found) == *proof
    }

    fn map(file: OwnedFd, end: End) -> Result<Self, Errno> {
        let base = map_shared(&file, 0, FILE_LEN)?.as_ptr();
        Ok(Shared { base, file, end })
    }

    /// Where the memory is in this process.
    pub(super) fn address(&self) -> u64 {
        self.base as u64
    }

    /// Whether this process can read the memory of the other, which has the same memory at that
    /// address.
    pub(super) fn try_fetch(&self, pid: u32, address: u64) -> bool {
        const OFFERED: usize = std::mem::offset_of!(Control, offered);
        let mut seen = [0u8; 16];
        let local = libc::iovec {
            iov_base: seen.as_mut_ptr().cast(),
            iov_len: seen.len(),
        };
        let remote = libc::iovec {
            iov_base: address.wrapping_add(OFFERED as u64) as *mut libc::c_void,
            iov_len: seen.len(),
        };
        // SAFETY: writes at most 16 bytes to `seen`; the kernel checks the source.
        let n = unsafe { libc::process_vm_readv(pid as libc::pid_t, &local, 1, &remote, 1, 0) };
        n == 16 && seen == load(&self.control().offered)
    }

    pub(super) fn raw_fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    fn control(&self) -> &Control {
        const { assert!(size_of::<Control>() <= RINGS_AT) };
        // SAFETY: the mapping is longer, page-aligned, and lives as long as `self`; all fields are
        // atomic, for which any bytes are valid.
        unsafe { &*self.base.cast::<Control>() }
    }

    fn side(&self, end: End) -> &Side {
        let [offering, finding] = &self.control().sides;
        match end {
            End::Offering => offering,
            End::Finding => finding,
        }
    }

    pub(super) fn mine(&self) -> &Side {
        self.side(self.end)
    }

    pub(super) fn other(&self) -> &Side {
        self.side(match self.end {
            End::Offering => End::Finding,
            End::Finding => End::Offering,
        })
    }

    /// Where in the file the byte with this number is, and how many follow it without a break.
    fn place(&self, outgoing: bool, number: u64) -> (usize, usize) {
        let at = (number % RING_LEN as u64) as usize;
        let ring = (self.end == End::Offering) != outgoing;
        (RINGS_AT + usize::from(ring) * RING_LEN + at, RING_LEN - at)
    }

    /// Copies bytes of our own into the outgoing ring, from byte number `number` on.
    pub(super) fn put(&self, number: u64, bytes: &[u8]) {
        debug_assert!(bytes.len() <= RING_LEN);
        let (at, room) = self.place(true, number);
        let (head, tail) = bytes.split_at(bytes.len().min(room));
        let (start, _) = self.place(true, number + head.len() as u64);
        // SAFETY: both places are inside the mapping for the lengths that `place` gives; the
        // sources are not, as it is not borrowed from anywhere. The other side reads there only
        // once it is told that they are filled; if it does not keep to that, it gets any bytes.
        unsafe {
            self.base
                .add(at)
                .copy_from_nonoverlapping(head.as_ptr(), head.len());
            self.base
                .add(start)
                .copy_from_nonoverlapping(tail.as_ptr(), tail.len().min(RING_LEN));
        }
    }

    /// Copies from the incoming ring, from byte number `number` on, to memory of our own.
    ///
    /// # Safety
    /// `to` is valid for writing `len` bytes, and not part of the ring.
    pub(super) unsafe fn get(&self, number: u64, to: *mut u8, len: usize) {
        let len = len.min(RING_LEN);
        let (at, room) = self.place(false, number);
        let head = len.min(room);
        let (start, _) = self.place(false, number + head as u64);
        // SAFETY: as in `put`; the destination is the caller's promise. The other side writes
        // there only once it is told that they are free; if it does not keep to that, we get any
        // bytes, which are checked like all that it sends.
        unsafe {
            to.copy_from_nonoverlapping(self.base.add(at), head);
            to.add(head)
                .copy_from_nonoverlapping(self.base.add(start), len - head);
        }
    }

    /// Has the kernel copy a list of memory that may be unmapped into the outgoing ring. The
    /// outcome is errno's.
    ///
    /// # Safety
    /// Whoever owns the memory in the list must tolerate that it is read during the call.
    pub(super) unsafe fn put_list(
        &self,
        number: u64,
        list: &[libc::iovec],
        max: usize,
    ) -> Result<usize, Errno> {
        let (at, room) = self.place(true, number);
        clipped(list, max.min(room), |list, len| {
            let count = list.len() as libc::c_int;
            // SAFETY: the kernel checks the memory; the caller vouches for its use.
            let n =
                unsafe { libc::pwritev(self.raw_fd(), list.as_ptr(), count, at as libc::off_t) };
            match usize::try_from(n) {
                Err(_) => Err(errno::last()),
                // Nothing but a fault ends it early.
                Ok(n) if n < len => Err(Errno::FAULT),
                Ok(n) => Ok(n),
            }
        })
    }

    /// Has the kernel copy from the incoming ring to memory that may be unmapped.
    ///
    /// # Safety
    /// Whoever owns the memory in the list must tolerate that it is written during the call.
    pub(super) unsafe fn get_list(
        &self,
        number: u64,
        list: &[libc::iovec],
        max: usize,
    ) -> Result<usize, Errno> {
        let (at, room) = self.place(false, number);
        clipped(list, max.min(room), |list, _| {
            let count = list.len() as libc::c_int;
            // SAFETY: the kernel checks the memory; the caller vouches for its use.
            let n = unsafe { libc::preadv(self.raw_fd(), list.as_ptr(), count, at as libc::off_t) };
            match usize::try_from(n) {
                Err(_) => Err(errno::last()),
                // The file does not end here.
                Ok(0) => Err(Errno::FAULT),
                Ok(n) => Ok(n),
            }
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` and nothing refers to it any more.
        let _ = unsafe { munmap(self.base.cast(), FILE_LEN) };
    }
}

/// Parts of a list that are passed on at a time.
const PARTS_MAX: usize = 192;

/// Hands on the beginning of a list, `max` bytes at most, with its length.
fn clipped<R>(list: &[libc::iovec], max: usize, f: impl FnOnce(&[libc::iovec], usize) -> R) -> R {
    let len = list.iter().map(|part| part.iov_len).sum();
    if len <= max && list.len() <= PARTS_MAX {
        return f(list, len);
    }
    let none = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    };
    let mut parts = [none; PARTS_MAX];
    let (mut count, mut len) = (0, 0);
    for (to, from) in parts.iter_mut().zip(list) {
        if len == max {
            break;
        }
        *to = *from;
        to.iov_len = from.iov_len.min(max - len);
        len += to.iov_len;
        count += 1;
    }
    f(parts.get(..count).unwrap_or_default(), len)
}

/// Descriptors that the program may need are not taken for what works without them.
fn is_affordable(file: &OwnedFd) -> Result<(), Errno> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if file.as_raw_fd() as u64 >= limit / 2 {
        return Err(Errno::MFILE);
    }
    Ok(())
}

fn store(words: &[AtomicU64; 2], bytes: &[u8; 16]) {
    for (word, part) in words.iter().zip(bytes.as_chunks::<8>().0) {
        word.store(u64::from_ne_bytes(*part), Ordering::Release);
    }
}

fn load(words: &[AtomicU64; 2]) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (part, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *part = word.load(Ordering::Acquire).to_ne_bytes();
    }
    bytes
}
