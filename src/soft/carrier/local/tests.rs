// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Both ends of a carrier in one process.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::offer::{Found, Offer};
use super::*;

/// The two ends, and their sockets.
fn pair() -> (Local, Local) {
    let (a, b) = UnixStream::pair().unwrap();
    a.set_nonblocking(true).unwrap();
    b.set_nonblocking(true).unwrap();
    let offer = Offer::make().unwrap();
    let found = Found::look(&offer.meeting()).unwrap();
    let reply = found.meeting();
    let passive = found.with(b.into());
    let Ok(active) = offer.accepted(&reply, a.into()) else {
        panic!("the memory was not found");
    };
    (active, passive)
}

fn iovec(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

fn send(from: &Local, bytes: &[u8], own: bool) -> Result<usize, Errno> {
    // SAFETY: memory of the test's, which lives during the call.
    unsafe { from.send(&[iovec(bytes)], own) }
}

/// Receives up to `direct` bytes into the program's memory, or up to `room` into the fabric's own.
fn receive(at: &Local, direct: usize, room: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; direct + room];
    let (program, own) = bytes.split_at(direct);
    let list = [iovec(program), iovec(own)];
    let list = if direct > 0 { &list[..] } else { &list[1..] };
    // SAFETY: memory of the test's, which lives during the call.
    let n = unsafe { at.receive(list) }?;
    bytes.truncate(n);
    Ok(bytes)
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i + seed) * 7 / 3) as u8).collect()
}

#[test]
fn bytes_arrive_in_order_through_many_rounds_of_the_ring() {
    let (a, b) = pair();
    let sent = pattern(RING_LEN * 5 + 1234, 0);
    let mut got = Vec::new();
    let mut at = 0;
    let mut turn = 0usize;
    while got.len() < sent.len() {
        turn += 1;
        // Odd lengths, so that the end of the ring falls into the middle of everything.
        let len = (turn * 7919 % 100_000 + 1).min(sent.len() - at);
        match send(&a, &sent[at..at + len], turn.is_multiple_of(2)) {
            Ok(n) => at += n,
            Err(e) => assert!(e == Errno::AGAIN || len == 0),
        }
        let (direct, room) = if turn.is_multiple_of(3) {
            (50_001, 1)
        } else {
            (0, 70_001)
        };
        match receive(&b, direct, room) {
            Ok(bytes) => got.extend(bytes),
            Err(e) => assert_eq!(e, Errno::AGAIN),
        }
    }
    assert!(got == sent);
    assert_eq!(receive(&b, 0, 1), Err(Errno::AGAIN));
}

#[test]
fn a_full_ring_takes_nothing_until_there_is_room() {
    let (a, b) = pair();
    let bytes = pattern(RING_LEN, 1);
    let mut taken = 0;
    while taken < RING_LEN {
        taken += send(&a, &bytes[taken..], false).unwrap();
        assert!(!a.look().1);
    }
    assert_eq!(send(&a, &[1], true), Err(Errno::AGAIN));
    assert_eq!(a.look(), (false, false));
    assert_eq!(b.look(), (true, false));
    assert!(a.rest());
    let mut got = Vec::new();
    // It is not woken for each byte, but early enough.
    while got.len() < RING_LEN {
        got.extend(receive(&b, 0, RING_LEN / 8).unwrap());
        let woken = got.len() >= RING_LEN / 2;
        assert_eq!(a.shared.mine().awake.0.load(Ordering::Relaxed) == 1, woken);
    }
    assert!(got == bytes);
    assert_eq!(a.look(), (false, true));
    assert_eq!(send(&a, &[1], true), Ok(1));
    assert_eq!(a.look(), (false, false));
}

#[test]
fn who_pauses_with_little_room_left_is_woken_for_more() {
    let (a, b) = pair();
    let bytes = pattern(RING_LEN - ROOM_MIN as usize / 2, 1);
    let mut taken = 0;
    while taken < bytes.len() {
        taken += send(&a, &bytes[taken..], false).unwrap();
    }
    a.pause();
    assert_eq!(a.look(), (false, false));
    assert!(a.rest());
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        got.extend(receive(&b, 0, RING_LEN).unwrap());
    }
    assert!(got == bytes);
    assert_eq!(a.shared.mine().awake.0.load(Ordering::Relaxed), 1);
    assert_eq!(a.look(), (false, true));
    assert!(!a.rest());
    // With nothing left to send, room is not worth staying awake for.
    a.go_on();
    assert_eq!(a.look(), (false, false));
    assert!(a.rest());
}

#[test]
fn only_who_sleeps_is_woken_and_only_once() {
    let (a, b) = pair();
    let pending = |local: &Local| {
        let mut fds = [rustix::event::PollFd::new(
            &local.socket,
            rustix::event::PollFlags::IN,
        )];
        rustix::event::poll(&mut fds, Some(&Default::default())).unwrap() > 0
    };
    b.stay_awake();
    send(&a, b"one", true).unwrap();
    assert!(!pending(&b));
    // There is something already.
    assert!(!b.rest());
    assert_eq!(receive(&b, 0, 10).unwrap(), b"one");
    assert!(b.rest());
    send(&a, b"two", true).unwrap();
    send(&a, b"three", true).unwrap();
    assert!(pending(&b));
    b.woken();
    assert!(!pending(&b));
    assert_eq!(receive(&b, 0, 10).unwrap(), b"twothree");
    assert_eq!(receive(&b, 0, 10), Err(Errno::AGAIN));
}

#[test]
fn what_was_sent_before_the_end_arrives_before_it() {
    let (a, b) = pair();
    send(&a, b"last words", true).unwrap();
    drop(a);
    // The byte that wakes, then the end; the engine asks as long as there is something.
    b.woken();
    b.woken();
    assert_eq!(receive(&b, 0, 4).unwrap(), b"last");
    assert_eq!(receive(&b, 0, 40).unwrap(), b" words");
    assert_eq!(receive(&b, 0, 1).unwrap(), b"");
}

#[test]
fn memory_that_is_not_there_is_a_fault_and_sends_nothing() {
    let (a, b) = pair();
    let nowhere = libc::iovec {
        iov_base: std::ptr::null_mut::<u8>().wrapping_add(4096).cast(),
        iov_len: 100,
    };
    let header = [7u8; 32];
    // SAFETY: what is not mapped need not be.
    let result = unsafe { a.send(&[iovec(&header), nowhere], false) };
    assert_eq!(result, Err(Errno::FAULT));
    assert_eq!(b.look(), (false, false));
    send(&a, b"payload", true).unwrap();
    let mut own = [0u8; 8];
    // SAFETY: as above.
    let result = unsafe { b.receive(&[nowhere, iovec(&own)]) };
    assert_eq!(result, Err(Errno::FAULT));
    assert_eq!(receive(&b, 0, 10).unwrap(), b"payload");
    own.fill(0);
}

#[test]
fn lent_memory_is_fetched_once_or_taken_back() {
    let (a, b) = pair();
    let source = pattern(100_000, 3);
    let fetch = |reference, len: usize| {
        let (one, two) = (vec![0u8; len / 3], vec![0u8; len - len / 3]);
        // SAFETY: memory of the test's.
        unsafe { b.fetch(reference, &[iovec(&one), iovec(&two)]) }.map(|()| [one, two].concat())
    };
    let addr = source.as_ptr() as u64;
    assert!(b.can_fetch());
    let loan = a.lend(addr, Purpose::Answer).unwrap();
    assert!(a.is_open(loan.loan));
    assert!(fetch(loan, source.len()) == Ok(source.clone()));
    assert!(!a.is_open(loan.loan));
    assert_eq!(fetch(loan, 10), Err(Errno::CANCELED));

    let loan = a.lend(addr, Purpose::Answer).unwrap();
    a.take_back(loan.loan);
    assert_eq!(fetch(loan, 10), Err(Errno::CANCELED));

    let [answer, request] =
        [Purpose::Answer, Purpose::Request].map(|purpose| a.lend(addr, purpose).unwrap());
    a.take_back_requests();
    assert_eq!(fetch(request, 10), Err(Errno::CANCELED));
    assert_eq!(fetch(answer, 10).unwrap(), source[..10]);

    let nowhere = a.lend(4096, Purpose::Request).unwrap();
    assert_eq!(fetch(nowhere, 10), Err(Errno::FAULT));
    // Whoever cannot fetch it says so.
    assert!(a.is_open(nowhere.loan));
    b.decline(nowhere);
    assert!(!a.is_open(nowhere.loan));
}

#[test]
fn loans_are_limited() {
    let (a, b) = pair();
    let loans: Vec<_> = (0..LOANS)
        .map(|_| a.lend(8, Purpose::Request).unwrap())
        .collect();
    assert_eq!(a.lend(8, Purpose::Request), None);
    b.decline(loans[0]);
    let next = a.lend(8, Purpose::Request).unwrap();
    assert!(loans.iter().all(|loan| loan.loan != next.loan));
}

#[test]
fn nothing_is_fetched_from_a_process_that_may_be_another() {
    let (a, b) = pair();
    let loan = a.lend((&raw const b) as u64, Purpose::Answer).unwrap();
    // As if it had died: the number may belong to somebody else since then.
    a.shutdown();
    let mut own = [0u8; 8];
    // SAFETY: memory of the test's.
    let result = unsafe { b.fetch(loan, &[iovec(&own)]) };
    assert_eq!(result, Err(Errno::SRCH));
    own.fill(0);
}

#[test]
fn counts_that_cannot_be_are_refused() {
    let (a, b) = pair();
    let other = b.shared.other();
    other
        .written
        .0
        .store(RING_LEN as u64 + 1, Ordering::Release);
    assert_eq!(receive(&b, 0, 10), Err(Errno::PROTO));
    assert!(!b.rest());
    other.read.0.store(1, Ordering::Release);
    b.waiting.store(true, Ordering::Relaxed);
    // As if the ring had been full, so that it looks for room.
    let full = 0u64.wrapping_sub(RING_LEN as u64);
    b.other_read.store(full, Ordering::Relaxed);
    assert_eq!(send(&b, b"x", true), Err(Errno::PROTO));
    drop(a);
}

#[test]
fn only_the_memory_that_was_promised_is_used() {
    let offer = Offer::make().unwrap();
    let meeting = offer.meeting();
    let refused = |meeting| Found::look(&meeting).err();
    let mut other = meeting;
    other.nonce[3] ^= 1;
    assert_eq!(refused(other), Some(Errno::INVAL));
    other = meeting;
    other.fd = 100_000;
    assert_eq!(refused(other), Some(Errno::NOENT));
    other = meeting;
    other.pid = u32::MAX;
    assert_eq!(refused(other), Some(Errno::NOENT));
    // Of another kind, of another size, or one that could still shrink.
    let (mut pipe, writer) = std::io::pipe().unwrap();
    use rustix::fd::AsRawFd;
    other = meeting;
    other.fd = writer.as_raw_fd() as u32;
    assert_eq!(refused(other), Some(Errno::INVAL));
    (&writer).write_all(b"x").unwrap();
    pipe.read_exact(&mut [0]).unwrap();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("other", flags).unwrap();
    let size = rustix::fs::fstat(offer_file(&meeting)).unwrap().st_size as u64;
    other.fd = file.as_raw_fd() as u32;
    ftruncate(&file, size).unwrap();
    assert_eq!(refused(other), Some(Errno::PERM));
    ftruncate(&file, size - 1).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL).unwrap();
    assert_eq!(refused(other), Some(Errno::FBIG));
    // A reply that proves nothing.
    let found = Found::look(&meeting).unwrap();
    let mut reply = found.meeting();
    reply.nonce[0] ^= 1;
    let (socket, _) = UnixStream::pair().unwrap();
    assert!(offer.accepted(&reply, socket.into()).is_err());
}

fn offer_file(meeting: &Meeting) -> std::fs::File {
    std::fs::File::open(format!("/proc/self/fd/{}", meeting.fd)).unwrap()
}

#[test]
fn reading_another_memory_is_tried_out() {
    let (a, _b) = pair();
    assert!(a.shared.try_fetch(std::process::id(), a.shared.address()));
    assert!(
        !a.shared
            .try_fetch(std::process::id(), a.shared.address() + 64)
    );
    assert!(!a.shared.try_fetch(std::process::id(), 0));
    assert!(!a.shared.try_fetch(0x7fff_fff0, a.shared.address()));
}
