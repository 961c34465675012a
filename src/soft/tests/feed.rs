// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! A whole responder, and a whole requester, fed with a peer's bytes: what the fuzzer does, and what
//! replays its corpus.

use super::*;
use rdma_sys::rdma_cm_event_type::*;

/// Stands for the key of the region in the bytes, which is another one in each run.
const KEY: &[u8; 4] = b"KEY!";
/// Stands for the address of the region.
const ADDRESS: &[u8; 8] = b"ADDRESS!";

/// The bytes with each mark replaced by what it stands for, which has the same length.
pub(super) fn bound(bytes: &[u8], marks: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut bound = bytes.to_vec();
    for (mark, real) in marks {
        let mut from = 0;
        while let Some(at) = bound
            .get(from..)
            .and_then(|rest| rest.windows(mark.len()).position(|w| w == *mark))
        {
            bound[from + at..from + at + mark.len()].copy_from_slice(real);
            from += at + mark.len();
        }
    }
    bound
}

/// Feeds a peer's bytes to an established connection with a region of 4 KiB and two receives
/// posted, and sees it to its end: whatever the bytes are, the program learns that the connection
/// is over, and nothing else of the process is touched.
pub fn feed(bytes: &[u8]) {
    let listener = Listener::new();
    let home = Home::new();
    let memory = Memory::filled(home, 4096, 1);
    let untouched = Memory::filled(home, 4096, 2);
    let before = untouched.bytes.clone();
    let (mut raw, end) = Raw::connect(&listener, home, Options::default());
    for wr_id in 0..2 {
        assert_eq!(end.post_recv(wr_id, &mut [memory.sge(0, 64)]), 0);
    }
    let (key, addr) = (memory.key().to_le_bytes(), memory.addr().to_le_bytes());
    let bytes = bound(bytes, &[(KEY, &key), (ADDRESS, &addr)]);
    // The other side may end the connection in the middle.
    let _ = raw.0.write_all(&bytes);
    let _ = raw.0.shutdown(std::net::Shutdown::Write);
    end.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    let events = end.events;
    end.close();
    events.close();
    assert_eq!(untouched.bytes, before);
    drop((memory, untouched));
    home.close();
    listener.close();
}

/// Feeds a peer's bytes to an established connection that has requests under way: whatever is
/// answered, each request completes once and in order, nothing succeeds behind a failure, and what
/// a read fetches goes nowhere else. Returns how many of the requests succeeded.
pub fn feed_requests(bytes: &[u8]) -> usize {
    use ibv_wr_opcode::*;
    const REQUESTS: [(u32, usize, usize); 6] = [
        (IBV_WR_RDMA_WRITE, 0, 32),
        (IBV_WR_RDMA_READ, 1024, 64),
        (IBV_WR_SEND, 0, 5),
        (IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0),
        (IBV_WR_RDMA_READ, 2048, 16),
        (IBV_WR_SEND, 64, 0),
    ];
    let listener = Listener::new();
    let home = Home::new();
    let memory = Memory::filled(home, 4096, 1);
    let before = memory.bytes.clone();
    let (mut raw, end) = Raw::connect(&listener, home, Options::default());
    for (wr_id, (opcode, at, len)) in (0..).zip(REQUESTS) {
        let mut sges = [memory.sge(at, len)];
        let wr = request(wr_id, opcode, &mut sges);
        assert_eq!(end.post(&mut remote(wr, 0x1000, 5)), 0);
    }
    // The other side may end the connection in the middle.
    let _ = raw.0.write_all(bytes);
    let _ = raw.0.shutdown(std::net::Shutdown::Write);
    end.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    let sent = end.sent(REQUESTS.len());
    assert!(sent.iter().map(|(wr_id, _)| *wr_id).eq(0..6), "{sent:?}");
    let statuses: Vec<_> = sent.iter().map(|(_, status)| *status).collect();
    let good = statuses.iter().take_while(|status| **status == 0).count();
    for status in statuses.iter().skip(good + 1) {
        assert_eq!(*status, ibv_wc_status::IBV_WC_WR_FLUSH_ERR, "{sent:?}");
    }
    assert!(end.poll(end.send_cq, 1).unwrap().is_empty());
    assert!(end.poll(end.recv_cq, 1).unwrap().is_empty());
    let events = end.events;
    end.close();
    events.close();
    let (after, mut expected) = (memory.read(), before);
    for (opcode, at, len) in REQUESTS {
        if opcode == IBV_WR_RDMA_READ {
            expected[at..at + len].copy_from_slice(&after[at..at + len]);
        }
    }
    assert_eq!(after, expected);
    drop(memory);
    home.close();
    listener.close();
    good
}

#[cfg(test)]
fn seed_folder(target: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/seeds")
        .join(target)
}

/// What a target of the fuzzer begins with.
#[cfg(test)]
pub(super) fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = seed_folder(target);
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

#[test]
fn the_responder_survives_its_corpus() {
    for seed in seeds("responder") {
        feed(&seed);
    }
}

#[test]
fn the_requester_survives_its_corpus() {
    for seed in seeds("requester") {
        feed_requests(&seed);
    }
    for (name, good) in [
        ("all", 6),
        ("all-at-once", 6),
        ("one-by-one", 6),
        ("read-in-pieces", 2),
        ("read-too-much", 1),
        ("ack-read-without-data", 1),
        ("ack-too-far", 0),
        ("nak-operation", 3),
    ] {
        let bytes = std::fs::read(seed_folder("requester").join(name)).unwrap();
        assert_eq!(feed_requests(&bytes), good, "{name}");
    }
    // What a peer asks is no answer.
    for seed in seeds("responder") {
        feed_requests(&seed);
    }
}

/// Seeds that are cut short, and seeds after one another.
#[test]
fn the_responder_survives_pieces_of_its_corpus() {
    let seeds = seeds("responder");
    for seed in &seeds {
        for len in [1, wire::HEADER_LEN - 1, wire::HEADER_LEN, seed.len() - 1] {
            feed(seed.get(..len).unwrap_or(seed));
        }
    }
    feed(&seeds.concat());
}
