// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Peers that do not keep to the protocol.

use super::*;
use rdma_sys::rdma_cm_event_type::*;

/// A connection of honest peers to the same listener still works.
fn still_works(listener: &Listener) {
    let events = Events::new();
    let client = End::new(
        Home::new(),
        events,
        resolve(events, listener.address),
        Options::default(),
    );
    assert_eq!(client.connect(b"honest"), 0);
    let seen = listener.events.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_eq!(seen.private, b"honest");
    let own = Events::new();
    let server = End::new(Home::new(), own, seen.id, Options::default());
    assert_eq!(server.accept(b""), 0);
    events.expect(RDMA_CM_EVENT_ESTABLISHED);
    listener.events.expect(RDMA_CM_EVENT_ESTABLISHED);
    assert_eq!(server.post_recv(1, &mut []), 0);
    let mut wr = request(2, ibv_wr_opcode::IBV_WR_SEND, &mut []);
    assert_eq!(client.post(&mut wr), 0);
    assert_eq!(server.received(1), [(1, 0)]);
    assert_eq!(client.sent(1), [(2, 0)]);
    for end in [client, server] {
        let (home, events) = (end.home, end.events);
        end.close();
        home.close();
        events.close();
    }
}

/// A cheap source of bytes that are the same in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

#[test]
fn garbage_instead_of_a_greeting() {
    let listener = Listener::new();
    let mut noise = Noise(42);
    for len in [1, 31, 32, 33, 5000] {
        let mut raw = Raw::dial(listener.address);
        let _ = raw.0.write_all(&noise.bytes(len));
        if len >= wire::GREETING_LEN {
            assert!(raw.is_ended());
        }
    }
    // A reply or reject where a request belongs, and another version.
    for (at, value) in [(10, 2), (10, 3), (8, 9)] {
        let mut bytes = Raw::request();
        bytes[at] = value;
        let mut raw = Raw::dial(listener.address);
        raw.0.write_all(&bytes).unwrap();
        if at == 8 {
            assert_eq!(raw.greeting().kind, GreetingKind::Reject);
        }
        assert!(raw.is_ended());
    }
    still_works(&listener);
    listener.close();
}

#[test]
fn greetings_in_pieces() {
    let listener = Listener::new();
    let mut raw = Raw::dial(listener.address);
    for byte in Raw::request() {
        assert!(!listener.events.is_readable(0));
        raw.0.write_all(&[byte]).unwrap();
    }
    let seen = listener.events.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    destroy_id(seen.id);
    assert_eq!(raw.greeting().kind, GreetingKind::Received);
    assert_eq!(raw.greeting().kind, GreetingKind::Reject);
    listener.close();
}

/// More silent connections than a listener keeps: the oldest go, and honest ones get through.
#[test]
fn silent_connections_do_not_hurt() {
    let listener = Listener::new();
    let mut silent: Vec<_> = (0..1100).map(|_| Raw::dial(listener.address)).collect();
    assert!(silent[0].is_ended());
    still_works(&listener);
    drop(silent);
    listener.close();
}

/// Frames at their extremes on an established connection: whatever happens, the process goes on.
#[test]
fn hostile_frames() {
    let listener = Listener::new();
    let home = Home::new();
    let memory = Memory::filled(home, 4096, 1);
    let mut noise = Noise(7);
    let extremes = [0u32, 1, 7, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];
    for round in 0..400 {
        let (mut raw, end) = Raw::connect(&listener, home, Options::default());
        assert_eq!(end.post_recv(1, &mut [memory.sge(0, 16)]), 0);
        let frames = 1 + noise.next() % 4;
        for _ in 0..frames {
            let mut bytes = [0u8; wire::HEADER_LEN];
            bytes[0] = [1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 32, 33, 34, 35]
                [(noise.next() % 16) as usize];
            bytes[1] = if round % 2 == 0 {
                3
            } else {
                noise.next() as u8 & 7
            };
            bytes[2] = (noise.next() % 5) as u8;
            let seq = if round % 3 == 0 {
                0
            } else {
                extremes[(noise.next() % 6) as usize]
            };
            bytes[4..8].copy_from_slice(&seq.to_le_bytes());
            let addr = memory.addr().wrapping_add(noise.next() % 5000);
            bytes[8..16].copy_from_slice(&addr.to_le_bytes());
            for at in [16, 20] {
                let value = extremes[(noise.next() % 6) as usize];
                bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
            let key = memory.key() ^ (noise.next() % 2) as u32;
            bytes[24..28].copy_from_slice(&key.to_le_bytes());
            let _ = raw.0.write_all(&bytes);
            let _ = raw.0.write_all(&noise.bytes(8));
        }
        drop(raw);
        // The end of the connection reaches the program whatever came before it.
        end.events.expect(RDMA_CM_EVENT_DISCONNECTED);
        let events = end.events;
        end.close();
        events.close();
    }
    still_works(&listener);
    drop(memory);
    home.close();
    listener.close();
}

/// A bad frame ends its connection at once.
#[test]
fn a_violation_ends_the_connection() {
    let listener = Listener::new();
    let home = Home::new();
    let out_of_order = {
        let mut header = Header::bare(Kind::Send, 5);
        header.flags = wire::FLAG_FIRST | wire::FLAG_LAST;
        header
    };
    for header in [
        out_of_order,
        Header::bare(Kind::Ack, 1),
        Header::bare(Kind::RnrNak, 0),
        Header {
            len: 1,
            ..Header::bare(Kind::ReadData, 0)
        },
        Header {
            code: 1,
            ..Header::bare(Kind::Nak, 0)
        },
    ] {
        let (mut raw, end) = Raw::connect(&listener, home, Options::default());
        raw.send(&header);
        assert!(raw.is_ended(), "{header:?}");
        end.events.expect(RDMA_CM_EVENT_DISCONNECTED);
        let events = end.events;
        end.close();
        events.close();
    }
    home.close();
    listener.close();
}

/// A peer that asks for data and does not take them holds nobody else up.
#[test]
fn a_peer_that_stops_reading() {
    let listener = Listener::new();
    let home = Home::new();
    let memory = Memory::filled(home, 8 << 20, 1);
    let (mut raw, end) = Raw::connect(&listener, home, Options::default());
    for seq in 0..16 {
        let mut header = Header::bare(Kind::Read, seq);
        header.flags = wire::FLAG_FIRST | wire::FLAG_LAST;
        header.addr = memory.addr();
        header.rkey = memory.key();
        header.total = 8 << 20;
        raw.send(&header);
    }
    still_works(&listener);
    // The first answer is right nevertheless.
    let mut data = Vec::new();
    while data.len() < 8 << 20 {
        let (header, payload) = raw.frame();
        assert_eq!((header.kind, header.seq), (Kind::ReadData, 0));
        data.extend(payload);
    }
    assert!(data == memory.bytes);
    assert_eq!(raw.frame().0.kind, Kind::Ack);
    // Deregistering while the rest is being sent does not wait for the peer.
    drop(memory);
    drop(raw);
    end.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    let events = end.events;
    end.close();
    events.close();
    home.close();
    listener.close();
}

/// More reads than were agreed on end the connection.
#[test]
fn too_many_reads() {
    let listener = Listener::new();
    let home = Home::new();
    let memory = Memory::filled(home, 64 << 20, 1);
    let options = Options {
        reads: 4,
        ..Options::default()
    };
    let (mut raw, end) = Raw::connect(&listener, home, options);
    let mut header = Header::bare(Kind::Read, 0);
    header.flags = wire::FLAG_FIRST | wire::FLAG_LAST;
    header.addr = memory.addr();
    header.rkey = memory.key();
    header.total = 64 << 20;
    for seq in 0..8 {
        header.seq = seq;
        let _ = raw.0.write_all(&header.encode());
    }
    end.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    assert!(raw.is_ended());
    drop(memory);
    let events = end.events;
    end.close();
    events.close();
    home.close();
    listener.close();
}

/// Every disconnect would be owed an answer, and the peer need not fetch any.
#[test]
fn disconnecting_twice_ends_the_connection() {
    let listener = Listener::new();
    let home = Home::new();
    let (mut raw, end) = Raw::connect(&listener, home, Options::default());
    raw.send(&Header::bare(Kind::Disconnect, 0));
    assert_eq!(raw.frame().0.kind, Kind::DisconnectReply);
    raw.send(&Header::bare(Kind::Disconnect, 0));
    assert!(raw.is_ended());
    end.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    let events = end.events;
    end.close();
    events.close();
    home.close();
    listener.close();
}

/// What the peer has sent counts, even if it closes the connection right after that while a
/// request is still being sent.
#[test]
fn a_refusal_is_not_lost_with_the_connection() {
    let listener = Listener::new();
    let home = Home::new();
    let memory = Memory::filled(home, 16 << 20, 3);
    for round in 0..20 {
        let (mut raw, end) = Raw::connect(&listener, home, Options::default());
        for wr_id in [1, 2] {
            let mut sges = [memory.sge(0, 16 << 20)];
            let wr = request(wr_id, ibv_wr_opcode::IBV_WR_RDMA_WRITE, &mut sges);
            assert_eq!(end.post(&mut remote(wr, 0x1000, 5)), 0);
        }
        let mut bytes = [0; wire::HEADER_LEN];
        raw.0.read_exact(&mut bytes).unwrap();
        let first = Header::decode(&bytes).unwrap();
        let mut refusal = Header::bare(Kind::Nak, first.seq);
        refusal.code = wire::NakCode::RemoteAccess as u8;
        raw.send(&refusal);
        drop(raw);
        let seen = end.sent(2);
        assert_eq!(seen, [(1, 10), (2, 5)], "round {round}");
        end.events.expect(RDMA_CM_EVENT_DISCONNECTED);
        let events = end.events;
        end.close();
        events.close();
    }
    drop(memory);
    home.close();
    listener.close();
}

/// A peer that does not wait to be told that there is a receive, but asks again and again: it is noted
/// once.
#[test]
fn asking_again_for_a_shared_receive_costs_nothing() {
    let listener = Listener::new();
    let home = Home::new();
    let srq = home.shared_queue(10);
    let options = Options {
        shared: srq,
        ..Options::default()
    };
    let (mut raw, end) = Raw::connect(&listener, home, options);
    let mut send = Header::bare(Kind::Send, 0);
    send.flags = wire::FLAG_FIRST | wire::FLAG_LAST;
    let mut frames = send.encode().repeat(1000);
    frames.extend(Header::bare(Kind::Disconnect, 0).encode());
    raw.0.write_all(&frames).unwrap();
    while raw.frame().0.kind != Kind::DisconnectReply {}
    // SAFETY: a queue of ours.
    let waiting = unsafe { &(*srq.cast::<crate::soft::recvq::CSrq>()).inner }
        .queue
        .lock()
        .count_waiting();
    assert_eq!(waiting, 1);
    end.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    let events = end.events;
    end.close();
    events.close();
    // SAFETY: not in use any more.
    unsafe { assert_eq!((fabric().ibv_destroy_srq)(srq), 0) };
    home.close();
    listener.close();
}
