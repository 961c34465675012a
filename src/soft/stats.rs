// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Statistics that can be read from outside while the process runs.
//!
//! They are in a memory file of the process, [`NAME`], which whoever may look at the process's
//! descriptors finds in `/proc/PID/fd`: its user and the administrator, also from outside of a
//! container. There is no file to choose a place for, and nothing to clean up.
//!
//! The file is words of 64 bits in the machine's order: a page about the process, then a slot for
//! each connection. A slot's counters are grouped by who writes them, each group in a cache line
//! of its own: the holder of the sending side's lock, of the receiving side's, of the receive
//! queue's. So counting is a load and a store in a line that the writer owns already.

use std::net::{IpAddr, SocketAddr};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fd::OwnedFd;
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::io::Errno;

use super::mem::{map_shared, may_file_be};
use super::requester::Status;
use super::sync::Lock;
use super::wire::Kind;
use crate::sys::fork::PerProcess;

/// The memory file's name.
pub(crate) const NAME: &str = "rpma-statistics";
/// What it begins with; the last digit is the version of the layout.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"rpmasta1");
/// Bytes of the part about the process, where the first slot begins.
pub(crate) const HEAD_LEN: usize = 4096;
/// Words of a slot.
pub(crate) const WORDS: usize = 64;
const SLOT_LEN: usize = WORDS * 8;
/// Connections that are shown. More go uncounted.
const SLOTS: usize = 8192;
const FILE_LEN: usize = HEAD_LEN + SLOTS * SLOT_LEN;

/// Words about the process.
pub(crate) mod head {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const PID: usize = 1;
    /// Slots that were ever in use: the first so many.
    pub(crate) const SLOTS: usize = 2;
    pub(crate) const REGIONS: usize = 3;
    pub(crate) const REGION_BYTES: usize = 4;
    /// Queue pairs made so far.
    pub(crate) const MADE: usize = 5;
    /// Queue pairs that have no slot.
    pub(crate) const UNSHOWN: usize = 6;
}

/// Words of a slot.
pub(crate) mod word {
    pub(crate) const STATE: usize = 0;
    pub(crate) const QP: usize = 1;
    pub(crate) const PEER_QP: usize = 2;
    pub(crate) const SEND_SIZE: usize = 3;
    pub(crate) const RECEIVE_SIZE: usize = 4;
    /// Two words each: an IPv6 address, or an IPv4 one mapped to it.
    pub(crate) const LOCAL: usize = 5;
    pub(crate) const PEER: usize = 7;
    pub(crate) const LOCAL_PORT: usize = 9;
    pub(crate) const PEER_PORT: usize = 10;
    /// Two words of text.
    pub(crate) const CARRIER: usize = 11;
    /// The status with which it came to the error state.
    pub(crate) const ERROR: usize = 13;
    /// Operations that failed.
    pub(crate) const FAILED: usize = 14;

    /// From here, under the sending side's lock: the operations that were posted, by kind.
    pub(crate) const OUT: usize = 16;
    /// Bytes of writes and messages.
    pub(crate) const OUT_BYTES: usize = 21;
    /// Bytes that were asked for by reads.
    pub(crate) const READ_BYTES: usize = 22;
    /// Operations that have come to an end.
    pub(crate) const DONE: usize = 23;

    /// From here, under the receiving side's lock: the peer's operations that were executed.
    pub(crate) const IN: usize = 24;
    pub(crate) const IN_BYTES: usize = 29;
    pub(crate) const SERVED_BYTES: usize = 30;
    pub(crate) const RECEIVES_USED: usize = 31;

    /// From here, under the receive queue's lock.
    pub(crate) const RECEIVES: usize = 32;
}

/// Values of [`word::STATE`].
pub(crate) mod state {
    /// The slot is free.
    pub(crate) const FREE: u64 = 0;
    pub(crate) const CREATED: u64 = 1;
    pub(crate) const CONNECTED: u64 = 2;
    pub(crate) const ERROR: u64 = 3;
    pub(crate) const CLOSED: u64 = 4;
}

/// Kinds of operations as they are counted, at this distance from [`word::OUT`] and [`word::IN`].
fn kind_index(kind: Kind) -> usize {
    match kind {
        Kind::Write | Kind::WriteImm => 0,
        Kind::Read => 1,
        Kind::Flush => 2,
        Kind::AtomicWrite => 3,
        _ => 4,
    }
}

type Words = [AtomicU64; WORDS];

/// The memory file, mapped for good.
struct Memory {
    base: NonNull<AtomicU64>,
    places: Lock<Places>,
    /// Kept open, as it is found by its descriptor.
    _file: OwnedFd,
}

// SAFETY: the mapping is there for ever, and all of it is atomics.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

#[derive(Default)]
struct Places {
    free: Vec<u32>,
    used: u32,
}

/// Made at the first use; `None` if the system does not give it.
fn memory() -> Option<&'static Memory> {
    static MEMORY: PerProcess<OnceLock<Option<Memory>>> = PerProcess::new();
    MEMORY.get().get_or_init(|| Memory::make().ok()).as_ref()
}

impl Memory {
    fn make() -> Result<Self, Errno> {
        // Miri, which runs the pure parts, knows no memory files.
        if cfg!(miri) {
            return Err(Errno::NOSYS);
        }
        if !may_file_be(FILE_LEN as u64) {
            return Err(Errno::FBIG);
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create(NAME, flags)?;
        ftruncate(&file, FILE_LEN as u64)?;
        reserve(&file, 0, HEAD_LEN)?;
        let base = map_shared(&file, 0, FILE_LEN)?.cast();
        // Who opens it cannot make our accesses fault, nor, where the kernel knows that, write.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let _ = fcntl_add_seals(&file, SealFlags::FUTURE_WRITE);
        let memory = Memory {
            base,
            places: Lock::default(),
            _file: file,
        };
        memory
            .head(head::PID)
            .store(std::process::id().into(), Ordering::Relaxed);
        memory.head(head::MAGIC).store(MAGIC, Ordering::Release);
        Ok(memory)
    }

    /// A word about the process.
    fn head(&self, word: usize) -> &AtomicU64 {
        let word = word.min(HEAD_LEN / 8 - 1);
        // SAFETY: inside the first page of the mapping, which is reserved.
        unsafe { self.base.add(word).as_ref() }
    }

    /// A slot that nobody uses, with its number.
    fn take(&self) -> Option<(NonNull<Words>, u32)> {
        let mut places = self.places.lock();
        let index = match places.free.pop() {
            Some(index) => index,
            None => {
                let index = places.used;
                let at = HEAD_LEN + index as usize * SLOT_LEN;
                if at + SLOT_LEN > FILE_LEN || reserve(&self._file, at, SLOT_LEN).is_err() {
                    return None;
                }
                places.used += 1;
                self.head(head::SLOTS)
                    .store(places.used.into(), Ordering::Release);
                index
            }
        };
        let word = HEAD_LEN / 8 + index as usize * WORDS;
        // SAFETY: inside the mapping, as was looked at before the slot was first taken.
        let words = unsafe { self.base.add(word) };
        Some((words.cast(), index))
    }

    fn give_back(&self, index: u32) {
        self.places.lock().free.push(index);
    }
}

/// Makes sure that there is memory behind a part of the file: touching it must not fail.
fn reserve(file: &OwnedFd, at: usize, len: usize) -> Result<(), Errno> {
    fallocate(file, FallocateFlags::empty(), at as u64, len as u64)
}

/// A region was registered.
pub(super) fn region_added(bytes: u64) {
    if let Some(memory) = memory() {
        memory.head(head::REGIONS).fetch_add(1, Ordering::Relaxed);
        memory
            .head(head::REGION_BYTES)
            .fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A region was deregistered.
pub(super) fn region_removed(bytes: u64) {
    if let Some(memory) = memory() {
        memory.head(head::REGIONS).fetch_sub(1, Ordering::Relaxed);
        memory
            .head(head::REGION_BYTES)
            .fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The counters of one connection.
pub(super) struct Slot {
    words: NonNull<Words>,
    /// Its number in the file; none if it is memory of its own, which nobody sees.
    index: Option<u32>,
}

// SAFETY: the words are there as long as the slot, and atomics.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    pub(super) fn new(qp: u32, send_size: usize, receive_size: usize) -> Self {
        if let Some(memory) = memory() {
            memory.head(head::MADE).fetch_add(1, Ordering::Relaxed);
        }
        let (words, index) = match memory().and_then(Memory::take) {
            Some((words, index)) => (words, Some(index)),
            None => {
                if let Some(memory) = memory() {
                    memory.head(head::UNSHOWN).fetch_add(1, Ordering::Relaxed);
                }
                let own: Box<Words> = Box::new([const { AtomicU64::new(0) }; WORDS]);
                (NonNull::from(Box::leak(own)), None)
            }
        };
        let slot = Slot { words, index };
        for word in slot.words() {
            word.store(0, Ordering::Relaxed);
        }
        slot.set(word::QP, qp.into());
        slot.set(word::SEND_SIZE, send_size as u64);
        slot.set(word::RECEIVE_SIZE, receive_size as u64);
        slot.change_state(state::CREATED);
        slot
    }

    #[inline]
    fn words(&self) -> &Words {
        // SAFETY: the words are there as long as the slot: in the mapping, or of its own.
        unsafe { self.words.as_ref() }
    }

    fn set(&self, word: usize, value: u64) {
        if let Some(word) = self.words().get(word) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Adds to a word that only the caller may write meanwhile.
    #[inline]
    fn add(&self, word: usize, n: u64) {
        if let Some(word) = self.words().get(word) {
            let before = word.load(Ordering::Relaxed);
            word.store(before.wrapping_add(n), Ordering::Relaxed);
        }
    }

    fn change_state(&self, to: u64) {
        if let Some(word) = self.words().get(word::STATE) {
            word.store(to, Ordering::Release);
        }
    }

    /// The handshake is over.
    pub(super) fn connected(
        &self,
        local: Option<SocketAddr>,
        peer: Option<SocketAddr>,
        peer_qp: u32,
        carrier: &str,
    ) {
        for (address, words, port) in [
            (local, word::LOCAL, word::LOCAL_PORT),
            (peer, word::PEER, word::PEER_PORT),
        ] {
            let Some(address) = address else { continue };
            let bytes = match address.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            self.set_bytes(words, &bytes);
            self.set(port, address.port().into());
        }
        let mut name = [0; 16];
        for (to, from) in name.iter_mut().zip(carrier.bytes()) {
            *to = from;
        }
        self.set_bytes(word::CARRIER, &name);
        self.set(word::PEER_QP, peer_qp.into());
        self.change_state(state::CONNECTED);
    }

    fn set_bytes(&self, word: usize, bytes: &[u8; 16]) {
        for (offset, part) in bytes.as_chunks::<8>().0.iter().enumerate() {
            self.set(word + offset, u64::from_ne_bytes(*part));
        }
    }

    /// It came to the error state.
    pub(super) fn in_error(&self, status: Status) {
        self.set(word::ERROR, status as u64);
        self.change_state(state::ERROR);
    }

    pub(super) fn closed(&self) {
        self.change_state(state::CLOSED);
    }

    /// An operation failed.
    #[cold]
    pub(super) fn failed(&self) {
        if let Some(word) = self.words().get(word::FAILED) {
            word.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An operation was posted. Under the sending side's lock.
    #[inline]
    pub(super) fn posted(&self, kind: Kind, len: u64) {
        self.add(word::OUT + kind_index(kind), 1);
        match kind {
            Kind::Flush => {}
            Kind::AtomicWrite => self.add(word::OUT_BYTES, 8),
            Kind::Read => self.add(word::READ_BYTES, len),
            _ => self.add(word::OUT_BYTES, len),
        }
    }

    /// So many operations have come to an end since the beginning. Under the sending side's lock.
    #[inline]
    pub(super) fn done(&self, count: u64) {
        self.set(word::DONE, count);
    }

    /// An operation of the peer's was executed. Under the receiving side's lock.
    #[inline]
    pub(super) fn executed(&self, kind: Kind, len: u32) {
        self.add(word::IN + kind_index(kind), 1);
        match kind {
            Kind::Flush => {}
            Kind::AtomicWrite => self.add(word::IN_BYTES, 8),
            Kind::Read => self.add(word::SERVED_BYTES, len.into()),
            _ => self.add(word::IN_BYTES, len.into()),
        }
        if matches!(kind, Kind::Send | Kind::SendImm | Kind::WriteImm) {
            self.add(word::RECEIVES_USED, 1);
        }
    }

    /// A receive was posted. Under the receive queue's lock.
    #[inline]
    pub(super) fn receive_posted(&self) {
        self.add(word::RECEIVES, 1);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.change_state(state::FREE);
        match self.index {
            Some(index) => {
                if let Some(memory) = memory() {
                    memory.give_back(index);
                }
            }
            // SAFETY: without a number it was leaked by `new`, and this is its only owner.
            None => drop(unsafe { Box::from_raw(self.words.as_ptr()) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(slot: &Slot, word: usize) -> u64 {
        slot.words().get(word).unwrap().load(Ordering::Relaxed)
    }

    #[test]
    fn operations_are_counted_by_kind() {
        let slot = Slot::new(7, 8, 9);
        slot.posted(Kind::Write, 100);
        slot.posted(Kind::WriteImm, 20);
        slot.posted(Kind::Send, 3);
        slot.posted(Kind::Read, 1000);
        slot.posted(Kind::Flush, 4096);
        slot.posted(Kind::AtomicWrite, 0);
        slot.done(5);
        let out: Vec<u64> = (word::OUT..=word::DONE).map(|w| value(&slot, w)).collect();
        assert_eq!(out, [2, 1, 1, 1, 1, 131, 1000, 5]);
        slot.executed(Kind::SendImm, 6);
        slot.executed(Kind::WriteImm, 50);
        slot.executed(Kind::Read, 70);
        slot.executed(Kind::AtomicWrite, 0);
        slot.executed(Kind::Flush, 9);
        let got: Vec<u64> = (word::IN..=word::RECEIVES_USED)
            .map(|w| value(&slot, w))
            .collect();
        assert_eq!(got, [1, 1, 1, 1, 1, 64, 70, 2]);
        assert_eq!(value(&slot, word::QP), 7);
        assert_eq!(value(&slot, word::STATE), state::CREATED);
    }

    #[test]
    fn a_slot_that_is_used_again_begins_at_zero() {
        for _ in 0..3 {
            let slot = Slot::new(1, 1, 1);
            assert_eq!(value(&slot, word::OUT), 0);
            assert_eq!(value(&slot, word::FAILED), 0);
            slot.posted(Kind::Write, 1);
            slot.failed();
            assert_eq!(value(&slot, word::FAILED), 1);
        }
    }
}
