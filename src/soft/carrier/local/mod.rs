// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The carrier for two processes of one machine: rings of bytes in shared memory.
//!
//! While a side is awake, it looks at the rings by itself, and nothing but memory is touched. A
//! side that goes to sleep says so in the shared memory, and is then woken by a byte over the TCP
//! connection that the two have met by. That connection also tells when the other side is gone.
//!
//! The program's memory is copied by the kernel, from and to the memory file, since it may have
//! been unmapped. What is the fabric's own (headers, inline data), and short payloads of which the
//! kernel has just been asked whether they can be read, are copied here. Large payloads do not go
//! through the rings if the receiver may read the sender's memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::super::wire::Meeting;
use super::Carrier;
use super::lending::{Lending, Purpose, Reference};
use crate::sys::errno;
use shared::{LOANS, RING_LEN, Shared};

pub(crate) mod offer;
mod shared;
#[cfg(test)]
mod tests;

/// Bytes that are copied in one go: the other side works at them while the next are copied.
const CHUNK: usize = RING_LEN / 4;
/// Room that is worth going on for.
const ROOM_MIN: u64 = RING_LEN as u64 / 4;
/// Room that is worth waking the other side for.
const ROOM_TO_WAKE: u64 = RING_LEN as u64 / 2;
/// Calls that it takes at most to read the bytes by which this side is woken.
const WAKES_MAX: usize = 16;

pub(crate) struct Local {
    shared: Shared,
    socket: OwnedFd,
    /// Own counts; those in shared memory are for the other side only.
    written: AtomicU64,
    read: AtomicU64,
    /// What the other side had read when it was last looked at.
    other_read: AtomicU64,
    /// Sending has to wait for room.
    waiting: AtomicBool,
    /// The connection is over; what is in the ring can still be received.
    over: AtomicBool,
    /// The other process, if its memory can be read.
    source: Option<libc::pid_t>,
    /// Number of the newest loan.
    lent: AtomicU64,
}

impl Local {
    fn new(shared: Shared, socket: OwnedFd, other: &Meeting) -> Self {
        let source = shared
            .try_fetch(other.pid, other.addr)
            .then_some(other.pid as libc::pid_t);
        let can_fetch = &shared.mine().can_fetch.0;
        can_fetch.store(u32::from(source.is_some()), Ordering::Release);
        Local {
            shared,
            socket,
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            other_read: AtomicU64::new(0),
            waiting: AtomicBool::new(false),
            over: AtomicBool::new(false),
            source,
            lent: AtomicU64::new(0),
        }
    }

    fn wake_other(&self) {
        let awake = &self.shared.other().awake.0;
        if awake.load(Ordering::Relaxed) == 0 && awake.swap(1, Ordering::Relaxed) == 0 {
            // If it does not arrive, the other side learns of an end instead.
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let _ = send(&self.socket, &[0], flags);
        }
    }

    /// Bytes that there is room for if the other side has read so many.
    fn room_after(&self, read: u64) -> Result<u64, Errno> {
        let used = self.written.load(Ordering::Relaxed).wrapping_sub(read);
        (RING_LEN as u64).checked_sub(used).ok_or(Errno::PROTO)
    }

    /// Bytes that there is room for, looked up if those known of are fewer than wanted. For who
    /// sends.
    fn room(&self, wanted: u64) -> Result<u64, Errno> {
        let known = self.room_after(self.other_read.load(Ordering::Relaxed))?;
        if known >= wanted {
            return Ok(known);
        }
        let read = self.shared.other().read.0.load(Ordering::Acquire);
        self.other_read.store(read, Ordering::Relaxed);
        self.room_after(read)
    }

    /// Bytes that have arrived.
    fn available(&self) -> Result<u64, Errno> {
        let read = self.read.load(Ordering::Relaxed);
        let written = self.shared.other().written.0.load(Ordering::Acquire);
        let available = written.wrapping_sub(read);
        if available > RING_LEN as u64 {
            return Err(Errno::PROTO);
        }
        Ok(available)
    }

    fn publish(&self, n: usize) {
        let written = self.written.load(Ordering::Relaxed) + n as u64;
        self.written.store(written, Ordering::Relaxed);
        self.shared
            .mine()
            .written
            .0
            .store(written, Ordering::Release);
        // Pairs with the fence in `rest`.
        fence(Ordering::SeqCst);
        self.wake_other();
    }

    fn release(&self, n: usize) {
        let read = self.read.load(Ordering::Relaxed) + n as u64;
        self.read.store(read, Ordering::Relaxed);
        self.shared.mine().read.0.store(read, Ordering::Release);
        // Pairs with the fence in `rest`.
        fence(Ordering::SeqCst);
        let other = self.shared.other();
        if other.starved.0.load(Ordering::Relaxed) != 0
            && self
                .available()
                .is_ok_and(|left| RING_LEN as u64 - left >= ROOM_TO_WAKE)
        {
            other.starved.0.store(0, Ordering::Relaxed);
            self.wake_other();
        }
    }
}

impl Carrier for Local {
    fn name(&self) -> &'static str {
        "shared memory"
    }

    unsafe fn send(&self, list: &[libc::iovec], own: bool) -> Result<usize, Errno> {
        let wanted: usize = list.iter().map(|part| part.iov_len).sum();
        let room = self.room(wanted as u64)?;
        if room == 0 {
            self.waiting.store(true, Ordering::Relaxed);
            return Err(Errno::AGAIN);
        }
        self.waiting.store(false, Ordering::Relaxed);
        let written = self.written.load(Ordering::Relaxed);
        let max = wanted.min(room as usize).min(CHUNK);
        let n = if own {
            let mut n = 0;
            for part in list {
                let len = part.iov_len.min(max - n);
                // SAFETY: the caller says that the memory is there.
                let bytes = unsafe { std::slice::from_raw_parts(part.iov_base.cast(), len) };
                self.shared.put(written + n as u64, bytes);
                n += len;
            }
            n
        } else {
            // SAFETY: the caller vouches for the memory's use.
            unsafe { self.shared.put_list(written, list, max)? }
        };
        self.publish(n);
        Ok(n)
    }

    unsafe fn receive(&self, list: &[libc::iovec]) -> Result<usize, Errno> {
        // In this order: what was sent before the end is received before it.
        let over = self.over.load(Ordering::Acquire);
        let available = self.available()? as usize;
        let Some((buffer, parts)) = list.split_last() else {
            return Err(Errno::INVAL);
        };
        if available == 0 {
            return if over { Ok(0) } else { Err(Errno::AGAIN) };
        }
        let read = self.read.load(Ordering::Relaxed);
        let n = if parts.is_empty() {
            let n = available.min(buffer.iov_len);
            // SAFETY: the last part is the fabric's own and so long.
            unsafe { self.shared.get(read, buffer.iov_base.cast(), n) };
            n
        } else {
            // SAFETY: the caller vouches for the memory's use.
            unsafe { self.shared.get_list(read, parts, available.min(CHUNK))? }
        };
        self.release(n);
        Ok(n)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn be_patient(&self, _patient: bool) {
        // Nobody loses patience with a process that the kernel says is there.
    }

    fn shutdown(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    fn lending(&self) -> Option<&dyn Lending> {
        Some(self)
    }

    fn is_polled(&self) -> bool {
        true
    }

    fn woken(&self) {
        for _ in 0..WAKES_MAX {
            let mut bytes = [0; 64];
            match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((_, n)) if n == bytes.len() => {}
                Ok((_, n)) if n > 0 => return,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The end, or a failure that means the same.
                _ => {
                    self.over.store(true, Ordering::Release);
                    return;
                }
            }
        }
    }

    fn look(&self) -> (bool, bool) {
        // While another thread sends or receives, what is seen here need not be consistent, but
        // then that thread has seen to it. A side that breaks the rules is found out there.
        let room = self.waiting.load(Ordering::Relaxed) && {
            let read = self.shared.other().read.0.load(Ordering::Acquire);
            self.room_after(read).map_or(true, |room| room >= ROOM_MIN)
        };
        (self.available() != Ok(0), room)
    }

    fn pause(&self) {
        self.waiting.store(true, Ordering::Relaxed);
    }

    fn go_on(&self) {
        self.waiting.store(false, Ordering::Relaxed);
    }

    fn stay_awake(&self) {
        self.shared.mine().awake.0.store(1, Ordering::Relaxed);
    }

    fn rest(&self) -> bool {
        let mine = self.shared.mine();
        if self.waiting.load(Ordering::Relaxed) {
            // Whether there was no room, or sending has paused before that: it must be told of more.
            mine.starved.0.store(1, Ordering::Relaxed);
        }
        mine.awake.0.store(0, Ordering::Relaxed);
        // The other side stores what it has written or read, then looks at the flags; here it is the
        // other way round. So one of the two sees the other's.
        fence(Ordering::SeqCst);
        let asleep = self.look() == (false, false);
        if !asleep {
            self.stay_awake();
        }
        asleep
    }
}

/// Marks the numbers of loans for requests.
const FOR_REQUEST: u64 = 1;

/// Where a loan's number is kept.
fn slot(loans: &[AtomicU64; LOANS], loan: u64) -> Option<&AtomicU64> {
    loans.get((loan >> 1) as usize % LOANS)
}

/// Ends a loan. False if it had ended before.
fn end_loan(loans: &[AtomicU64; LOANS], loan: u64) -> bool {
    slot(loans, loan).is_some_and(|slot| {
        slot.compare_exchange(loan, 0, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    })
}

impl Lending for Local {
    fn lend(&self, addr: u64, purpose: Purpose) -> Option<Reference> {
        if self.shared.other().can_fetch.0.load(Ordering::Acquire) == 0 {
            return None;
        }
        let number = self.lent.load(Ordering::Relaxed) + 1;
        let loan = number << 1
            | match purpose {
                Purpose::Request => FOR_REQUEST,
                Purpose::Answer => 0,
            };
        let slot = slot(&self.shared.mine().loans, loan)?;
        if slot.load(Ordering::Relaxed) != 0 {
            return None;
        }
        slot.store(loan, Ordering::SeqCst);
        self.lent.store(number, Ordering::Relaxed);
        Some(Reference { addr, loan })
    }

    fn is_open(&self, loan: u64) -> bool {
        let slot = slot(&self.shared.mine().loans, loan);
        slot.is_some_and(|slot| slot.load(Ordering::Relaxed) == loan)
    }

    fn take_back(&self, loan: u64) {
        end_loan(&self.shared.mine().loans, loan);
    }

    fn take_back_requests(&self) {
        for slot in &self.shared.mine().loans {
            let loan = slot.load(Ordering::SeqCst);
            if loan & FOR_REQUEST != 0 {
                let _ = slot.compare_exchange(loan, 0, Ordering::SeqCst, Ordering::SeqCst);
            }
        }
    }

    fn can_fetch(&self) -> bool {
        self.source.is_some()
    }

    unsafe fn fetch(&self, reference: Reference, list: &[libc::iovec]) -> Result<(), Errno> {
        let pid = self.source.ok_or(Errno::PERM)?;
        let mut addr = reference.addr;
        for part in list {
            let mut done = 0;
            while done < part.iov_len {
                let left = part.iov_len - done;
                let local = libc::iovec {
                    iov_base: part.iov_base.wrapping_byte_add(done),
                    iov_len: left,
                };
                let remote = libc::iovec {
                    iov_base: addr as *mut libc::c_void,
                    iov_len: left,
                };
                // SAFETY: the kernel checks both; the caller vouches for the use of what is ours.
                let n = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
                match usize::try_from(n) {
                    Ok(n) if n > 0 => {
                        done += n;
                        addr = addr.wrapping_add(n as u64);
                    }
                    Ok(_) => return Err(Errno::FAULT),
                    Err(_) => {
                        return Err(errno::last());
                    }
                }
            }
        }
        // What was read is what was lent only if the loan was open until here, and if the process
        // still was the one that it was.
        if !end_loan(&self.shared.other().loans, reference.loan) {
            return Err(Errno::CANCELED);
        }
        match recv(
            &self.socket,
            &mut [0],
            RecvFlags::DONTWAIT | RecvFlags::PEEK,
        ) {
            Ok((_, n)) if n > 0 => Ok(()),
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            _ => Err(Errno::SRCH),
        }
    }

    fn decline(&self, reference: Reference) {
        end_loan(&self.shared.other().loans, reference.loan);
    }
}
