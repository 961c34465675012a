// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The handshake fed with a peer's bytes, on both sides: what the fuzzer does, and what replays its
//! corpus.
//!
//! What has to come of the bytes is known: the decoder says what greetings they are, and a greeting
//! in its place has one outcome. Whether the decoder is right is the business of its own tests.

use super::feed::bound;
use super::*;
use crate::soft::carrier::Carrier;
use crate::soft::carrier::local::offer::{Found, Offer};
use crate::soft::wire::{BadFrame, GREETING_LEN, Meeting};
use rdma_sys::rdma_cm_event_type::*;
use std::net::{Shutdown, TcpListener};
use std::os::fd::OwnedFd;

/// Reject reason of a program's own decision.
const REASON_CONSUMER: i32 = 28;

/// What stands in the bytes for a meeting that is possible: process, descriptor, address, secret.
fn meet(bytes: &[u8], meeting: &Meeting) -> Vec<u8> {
    bound(
        bytes,
        &[
            (b"PID!", &meeting.pid.to_le_bytes()),
            (b"DSC!", &meeting.fd.to_le_bytes()),
            (b"ADDRESS!", &meeting.addr.to_le_bytes()),
            (b"SIXTEEN SECRETS!", &meeting.nonce),
        ],
    )
}

/// The greeting at the front with the bytes behind it, as a reader of a stream sees it; `None` if
/// the stream ends before.
fn greeting_of(bytes: &[u8]) -> Option<Result<(Greeting, &[u8]), BadFrame>> {
    let len = match Greeting::full_len(bytes.first_chunk()?) {
        Ok(len) => len,
        Err(bad) => return Some(Err(bad)),
    };
    let (greeting, rest) = bytes.split_at_checked(len)?;
    Some(Greeting::decode(greeting).map(|greeting| (greeting, rest)))
}

/// What a program does about a request.
#[derive(Clone, Copy, PartialEq)]
enum Decision {
    Accept,
    Reject,
    /// The id is destroyed without a word.
    Drop,
}

/// A handshake with the bytes behind the first one, which says on what side, and what the program
/// does there.
pub fn feed(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else {
        return;
    };
    match choice % 4 {
        0 => request_with(Decision::Accept, bytes),
        1 => request_with(Decision::Reject, bytes),
        2 => request_with(Decision::Drop, bytes),
        _ => answer_with(bytes),
    }
}

/// The bytes come to a listener.
fn request_with(decision: Decision, bytes: &[u8]) {
    let listener = Listener::new();
    let offer = Offer::make().unwrap();
    let bytes = meet(bytes, &offer.meeting());
    let mut raw = Raw::dial(listener.address);
    match greeting_of(&bytes) {
        Some(Ok((request, rest))) if request.kind == GreetingKind::Request => {
            let (first, _) = bytes.split_at(bytes.len() - rest.len());
            raw.0.write_all(first).unwrap();
            let seen = listener.events.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
            assert_eq!(seen.private, request.private.as_slice());
            let greeting = raw.greeting();
            assert_eq!(greeting.kind, GreetingKind::Received);
            match decision {
                Decision::Accept => accept(&listener, raw, seen.id, offer, rest),
                Decision::Reject => {
                    // SAFETY: an id of ours, and private data of that length.
                    let result =
                        unsafe { (super::fabric().rdma_reject)(seen.id, b"no".as_ptr().cast(), 2) };
                    assert_eq!(result, 0, "errno {}", errno::get());
                    refused(&mut raw, b"no");
                    destroy_id(seen.id);
                }
                Decision::Drop => {
                    destroy_id(seen.id);
                    refused(&mut raw, b"");
                }
            }
        }
        other => {
            // The other side may end the connection in the middle.
            let _ = raw.0.write_all(&bytes);
            let _ = raw.0.shutdown(Shutdown::Write);
            // What waits unread at the end may take the answer with it.
            if let Some(Err(BadFrame::Version(_))) = other
                && bytes.len() == GREETING_LEN
            {
                let answer = raw.greeting();
                assert_eq!((answer.kind, answer.reason), (GreetingKind::Reject, 31));
            }
            assert!(raw.is_ended());
        }
    }
    assert!(!listener.events.is_readable(0));
    listener.close();
}

fn refused(raw: &mut Raw, private: &[u8]) {
    let answer = raw.greeting();
    assert_eq!(answer.kind, GreetingKind::Reject);
    assert_eq!(i32::from(answer.reason), REASON_CONSUMER);
    assert_eq!(answer.private.as_slice(), private);
    assert!(raw.is_ended());
}

/// The program accepts; what follows the request goes the way that the two have agreed on.
fn accept(listener: &Listener, mut raw: Raw, id: *mut rdma_cm_id, offer: Offer, rest: &[u8]) {
    let own = Events::new();
    let home = Home::new();
    let end = End::new(home, own, id, Options::default());
    assert_eq!(end.post_recv(1, &mut []), 0);
    assert_eq!(end.accept(b"yes"), 0);
    // SAFETY: an id and a channel of ours.
    unsafe { assert_eq!((super::fabric().rdma_migrate_id)(id, own.0), 0) };
    let reply = raw.greeting();
    assert_eq!(reply.kind, GreetingKind::Reply);
    assert_eq!(reply.private.as_slice(), b"yes");
    if let Some(meeting) = reply.meeting {
        let local = offer.accepted(&meeting, OwnedFd::from(raw.0)).ok().unwrap();
        let list = [libc::iovec {
            iov_base: rest.as_ptr().cast_mut().cast(),
            iov_len: rest.len(),
        }];
        // SAFETY: the bytes live as long as the call. More than fits is not sent.
        let _ = unsafe { local.send(&list, true) };
        local.shutdown();
    } else {
        let _ = raw.0.write_all(rest);
        let _ = raw.0.shutdown(Shutdown::Write);
    }
    // What comes first is in the traffic's hands: only a frame that says so makes a connection.
    let seen = own.next();
    match seen.kind {
        RDMA_CM_EVENT_ESTABLISHED => drop(own.expect(RDMA_CM_EVENT_DISCONNECTED)),
        kind => assert_eq!(
            (kind, seen.status),
            (RDMA_CM_EVENT_REJECTED, REASON_CONSUMER)
        ),
    }
    end.close();
    assert!(!own.is_readable(0) && !listener.events.is_readable(0));
    own.close();
    home.close();
}

/// The bytes come as the answer to a request.
fn answer_with(bytes: &[u8]) {
    let host = TcpListener::bind("127.0.0.1:0").unwrap();
    let events = Events::new();
    let id = resolve(events, host.local_addr().unwrap());
    let mut raw = Raw(host.accept().unwrap().0);
    raw.0.set_read_timeout(Some(PATIENCE)).unwrap();
    let home = Home::new();
    let end = End::new(home, events, id, Options::default());
    assert_eq!(end.post_recv(1, &mut []), 0);
    assert_eq!(end.connect(b"please"), 0);
    let request = raw.greeting();
    assert_eq!(request.kind, GreetingKind::Request);
    assert_eq!(request.private.as_slice(), b"please");
    let found = request
        .meeting
        .map(|meeting| Found::look(&meeting).unwrap());
    let meeting = found.as_ref().map(Found::meeting);
    let bytes = match &meeting {
        Some(meeting) => meet(bytes, meeting),
        None => bytes.to_vec(),
    };
    let _ = raw.0.write_all(&bytes);
    let _ = raw.0.shutdown(Shutdown::Write);

    let expected = outcome_of(&bytes, meeting.as_ref());
    if expected.again {
        drop(host.accept().unwrap());
    }
    let seen = events.next();
    assert_eq!((seen.kind, seen.status), (expected.kind, expected.status));
    assert_eq!(seen.private, expected.private);
    if seen.kind == RDMA_CM_EVENT_ESTABLISHED {
        events.expect(RDMA_CM_EVENT_DISCONNECTED);
    }
    end.close();
    assert!(!events.is_readable(0));
    events.close();
    home.close();
}

/// What comes of an answer.
struct Outcome {
    kind: u32,
    status: i32,
    private: Vec<u8>,
    /// The socket may have been too old when the request was sent, so there is a second try.
    again: bool,
}

/// `real` is the meeting that the requesting side agrees to.
fn outcome_of(mut bytes: &[u8], real: Option<&Meeting>) -> Outcome {
    let outcome = |kind, status| Outcome {
        kind,
        status,
        private: Vec::new(),
        again: false,
    };
    let nonsense = outcome(RDMA_CM_EVENT_CONNECT_ERROR, -libc::EPROTO);
    let mut received = false;
    loop {
        let greeting = match greeting_of(bytes) {
            None => {
                return Outcome {
                    again: !received,
                    ..outcome(RDMA_CM_EVENT_REJECTED, REASON_CONSUMER)
                };
            }
            Some(Err(_)) => return nonsense,
            Some(Ok((greeting, rest))) => {
                bytes = rest;
                greeting
            }
        };
        let (kind, status) = match greeting.kind {
            GreetingKind::Received => {
                received = true;
                continue;
            }
            GreetingKind::Request => return nonsense,
            GreetingKind::Reject => (RDMA_CM_EVENT_REJECTED, i32::from(greeting.reason)),
            GreetingKind::Reply => match (real, greeting.meeting) {
                (Some(real), Some(named)) if named.nonce != real.nonce => return nonsense,
                _ => (RDMA_CM_EVENT_ESTABLISHED, 0),
            },
        };
        return Outcome {
            private: greeting.private.as_slice().to_vec(),
            ..outcome(kind, status)
        };
    }
}

#[test]
fn the_handshake_survives_its_corpus() {
    for seed in super::feed::seeds("handshake") {
        feed(&seed);
    }
}

/// Each seed in each place: what is a reply there is an unasked one here.
#[test]
fn the_handshake_survives_its_corpus_in_the_wrong_place() {
    for mut seed in super::feed::seeds("handshake") {
        for choice in 0..4 {
            seed[0] = choice;
            feed(&seed);
            feed(&seed[..seed.len() / 2]);
        }
    }
}
