// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What requests do, how they end, and what happens when they cannot.

use super::*;
use rdma_sys::ibv_wc_status::*;
use rdma_sys::ibv_wr_opcode::*;

const OK: u32 = IBV_WC_SUCCESS;
const FLUSHED: u32 = IBV_WC_WR_FLUSH_ERR;

#[test]
fn write_and_read_move_bytes() {
    let pair = Pair::new();
    let (client, server) = (&pair.client, &pair.server);
    for len in [0, 1, 7, 8, 4096, 100_000, 3 << 20] {
        let source = Memory::filled(client.home, len.max(1), 3);
        let target = Memory::new(server.home, len.max(1), ALL_RIGHTS);
        let back = Memory::new(client.home, len.max(1), ALL_RIGHTS);
        let mut sges = [source.sge(0, len / 2), source.sge(len / 2, len - len / 2)];
        let wr = request(1, IBV_WR_RDMA_WRITE, &mut sges);
        assert_eq!(client.post(&mut remote(wr, target.addr(), target.key())), 0);
        let mut sges = [back.sge(0, len / 3), back.sge(len / 3, len - len / 3)];
        let wr = request(2, IBV_WR_RDMA_READ, &mut sges);
        assert_eq!(client.post(&mut remote(wr, target.addr(), target.key())), 0);
        let write = client.wait(client.send_cq);
        assert_eq!(
            (write.wr_id, write.status, write.opcode),
            (1, OK, ibv_wc_opcode::IBV_WC_RDMA_WRITE)
        );
        let read = client.wait(client.send_cq);
        assert_eq!(
            (read.wr_id, read.status, read.opcode, read.byte_len),
            (2, OK, ibv_wc_opcode::IBV_WC_RDMA_READ, len as u32)
        );
        if len > 0 {
            assert!(target.read() == source.bytes);
            assert!(back.read() == source.bytes);
        }
    }
    pair.close();
}

#[test]
fn messages_carry_immediate_data_and_numbers() {
    let pair = Pair::new();
    let (client, server) = (&pair.client, &pair.server);
    let source = Memory::filled(client.home, 100, 9);
    let target = Memory::new(server.home, 100, ALL_RIGHTS);
    let imm = 0x0102_0304u32.to_be();
    for id in 0..3 {
        let mut sges = [target.sge(0, 10), target.sge(50, 50)];
        assert_eq!(server.post_recv(id, &mut sges), 0);
    }
    let mut sges = [source.sge(0, 30)];
    assert_eq!(client.post(&mut request(1, IBV_WR_SEND, &mut sges)), 0);
    let wc = server.wait(server.recv_cq);
    // SAFETY: queue pairs of ours.
    let (own, peer) = unsafe { ((*server.qp).qp_num, (*client.qp).qp_num) };
    assert_ne!(own, peer);
    assert_eq!(
        (wc.wr_id, wc.status, wc.opcode, wc.byte_len, wc.wc_flags),
        (0, OK, ibv_wc_opcode::IBV_WC_RECV, 30, 0)
    );
    assert_eq!((wc.qp_num, wc.src_qp), (own, peer));
    assert_eq!(target.read()[..10], source.bytes[..10]);
    assert_eq!(target.read()[50..70], source.bytes[10..30]);
    let mut wr = request(2, IBV_WR_SEND_WITH_IMM, &mut []);
    wr.imm_data_invalidated_rkey_union.imm_data = imm;
    assert_eq!(client.post(&mut wr), 0);
    let wc = server.wait(server.recv_cq);
    assert_eq!((wc.wr_id, wc.status, wc.byte_len), (1, OK, 0));
    assert_eq!(wc.wc_flags, ibv_wc_flags::IBV_WC_WITH_IMM.0);
    // SAFETY: the flag says so.
    assert_eq!(unsafe { wc.imm_data_invalidated_rkey_union.imm_data }, imm);
    let mut sges = [source.sge(0, 20)];
    let mut wr = remote(
        request(3, IBV_WR_RDMA_WRITE_WITH_IMM, &mut sges),
        target.addr() + 20,
        target.key(),
    );
    wr.imm_data_invalidated_rkey_union.imm_data = !imm;
    assert_eq!(client.post(&mut wr), 0);
    let wc = server.wait(server.recv_cq);
    assert_eq!(
        (wc.wr_id, wc.opcode, wc.byte_len),
        (2, ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM, 20)
    );
    // SAFETY: the flag says so.
    assert_eq!(unsafe { wc.imm_data_invalidated_rkey_union.imm_data }, !imm);
    assert_eq!(target.read()[20..40], source.bytes[..20]);
    assert_eq!(client.sent(3), [(1, OK), (2, OK), (3, OK)]);
    drop((source, target));
    pair.close();
}

/// Every way in which a target refuses a request, and what both sides see.
#[test]
fn refused_requests() {
    struct Case {
        opcode: u32,
        rights: u32,
        shift: i64,
        len: usize,
        key: u32,
        status: u32,
    }
    let good = |opcode| Case {
        opcode,
        rights: ALL_RIGHTS,
        shift: 0,
        len: 64,
        key: 0,
        status: IBV_WC_REM_ACCESS_ERR,
    };
    let cases = [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ].map(|opcode| {
        let lacking = if opcode == IBV_WR_RDMA_READ {
            0b011
        } else {
            0b101
        };
        [
            Case {
                key: 1,
                ..good(opcode)
            },
            Case {
                shift: -1,
                ..good(opcode)
            },
            Case {
                shift: 1,
                ..good(opcode)
            },
            Case {
                len: 65,
                ..good(opcode)
            },
            Case {
                rights: lacking,
                ..good(opcode)
            },
        ]
    });
    for case in cases.iter().flatten() {
        let pair = Pair::new();
        let (client, server) = (&pair.client, &pair.server);
        let local = Memory::filled(client.home, 128, 1);
        let target = Memory::new(server.home, 64, case.rights);
        let spare = Memory::new(server.home, 64, ALL_RIGHTS);
        assert_eq!(server.post_recv(70, &mut [spare.sge(0, 64)]), 0);
        assert_eq!(client.post_recv(80, &mut [local.sge(0, 64)]), 0);
        let mut sges = [local.sge(0, 64)];
        let wr = request(1, IBV_WR_RDMA_WRITE, &mut sges);
        assert_eq!(client.post(&mut remote(wr, spare.addr(), spare.key())), 0);
        let mut sges = [local.sge(0, case.len)];
        let wr = request(2, case.opcode, &mut sges);
        let addr = target.addr().wrapping_add_signed(case.shift);
        assert_eq!(
            client.post(&mut remote(wr, addr, target.key() ^ case.key)),
            0
        );
        let mut sges = [local.sge(0, 1)];
        let wr = request(3, IBV_WR_RDMA_WRITE, &mut sges);
        assert_eq!(client.post(&mut remote(wr, spare.addr(), spare.key())), 0);
        assert_eq!(client.sent(3), [(1, OK), (2, case.status), (3, FLUSHED)]);
        assert_eq!(server.received(1), [(70, FLUSHED)]);
        assert_eq!(client.received(1), [(80, FLUSHED)]);
        assert_eq!(target.read(), [0; 64]);
        // Both are in error: what is posted now is flushed.
        let mut sges = [local.sge(0, 1)];
        let wr = request(4, IBV_WR_RDMA_WRITE, &mut sges);
        assert_eq!(client.post(&mut remote(wr, spare.addr(), spare.key())), 0);
        assert_eq!(client.sent(1), [(4, FLUSHED)]);
        assert_eq!(server.post(&mut request(5, IBV_WR_SEND, &mut [])), 0);
        assert_eq!(server.sent(1), [(5, FLUSHED)]);
        assert_eq!(server.post_recv(6, &mut []), 0);
        assert_eq!(server.received(1), [(6, FLUSHED)]);
        drop((local, target, spare));
        pair.close();
    }
}

/// A region of another protection domain is as good as none.
#[test]
fn protection_domains_are_separate() {
    let pair = Pair::new();
    let (client, server) = (&pair.client, &pair.server);
    let other = Home::new();
    let local = Memory::filled(client.home, 8, 1);
    let foreign = Memory::new(other, 8, ALL_RIGHTS);
    let mut sges = [local.sge(0, 8)];
    let wr = request(1, IBV_WR_RDMA_WRITE, &mut sges);
    assert_eq!(
        client.post(&mut remote(wr, foreign.addr(), foreign.key())),
        0
    );
    assert_eq!(client.sent(1), [(1, IBV_WC_REM_ACCESS_ERR)]);
    // SAFETY: a domain of ours, which is in use.
    unsafe { assert_eq!((fabric().ibv_dealloc_pd)(other.pd), libc::EBUSY) };
    let _ = server;
    drop((local, foreign));
    other.close();
    pair.close();
}

/// Keys that are not the poster's.
#[test]
fn local_protection_errors_complete_in_order() {
    for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND] {
        let pair = Pair::new();
        let (client, server) = (&pair.client, &pair.server);
        let local = Memory::filled(client.home, 1 << 20, 1);
        // A read needs the right to write locally.
        let no_write = Memory::new(client.home, 8, access::REMOTE_READ);
        let target = Memory::new(server.home, 1 << 20, ALL_RIGHTS);
        assert_eq!(server.post_recv(70, &mut [target.sge(0, 64)]), 0);
        let mut big = [local.sge(0, 1 << 20)];
        let wr = request(1, IBV_WR_RDMA_WRITE, &mut big);
        assert_eq!(client.post(&mut remote(wr, target.addr(), target.key())), 0);
        let mut sges = if opcode == IBV_WR_RDMA_READ {
            [no_write.sge(0, 8)]
        } else {
            [ibv_sge {
                lkey: local.key() ^ 1,
                ..local.sge(0, 8)
            }]
        };
        let wr = request(2, opcode, &mut sges);
        assert_eq!(client.post(&mut remote(wr, target.addr(), target.key())), 0);
        let wr = request(3, IBV_WR_RDMA_WRITE, &mut []);
        assert_eq!(client.post(&mut remote(wr, 0, 0)), 0);
        assert_eq!(
            client.sent(3),
            [(1, OK), (2, IBV_WC_LOC_PROT_ERR), (3, FLUSHED)]
        );
        // The target learns that nothing will come any more.
        assert_eq!(server.received(1), [(70, FLUSHED)]);
        drop((local, no_write, target));
        pair.close();
    }
}

#[test]
fn receives_that_do_not_fit() {
    // Too short, with a key that is none, and without the right to write.
    for case in 0..3 {
        let pair = Pair::new();
        let (client, server) = (&pair.client, &pair.server);
        let local = Memory::filled(client.home, 64, 1);
        let target = Memory::new(server.home, 64, ALL_RIGHTS);
        let readable = Memory::new(server.home, 64, access::REMOTE_READ);
        let mut sges = match case {
            0 => [target.sge(0, 63)],
            1 => [ibv_sge {
                lkey: target.key() ^ 1,
                ..target.sge(0, 64)
            }],
            _ => [readable.sge(0, 64)],
        };
        assert_eq!(server.post_recv(70, &mut sges), 0);
        assert_eq!(server.post_recv(71, &mut []), 0);
        let mut sges = [local.sge(0, 64)];
        assert_eq!(client.post(&mut request(1, IBV_WR_SEND, &mut sges)), 0);
        let (sender, receiver) = if case == 0 {
            (IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR)
        } else {
            (IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR)
        };
        assert_eq!(client.sent(1), [(1, sender)]);
        assert_eq!(server.received(2), [(70, receiver), (71, FLUSHED)]);
        assert_eq!(target.read(), [0; 64]);
        drop((local, target, readable));
        pair.close();
    }
}

/// Both sides send before either has posted a receive, with other traffic going on meanwhile.
#[test]
fn waiting_for_receives_holds_nothing_else_up() {
    let pair = Pair::new();
    let (client, server) = (&pair.client, &pair.server);
    let memories = [client, server].map(|end| {
        (
            Memory::filled(end.home, 4096, 5),
            Memory::new(end.home, 4096, ALL_RIGHTS),
        )
    });
    for (end, (source, _)) in [client, server].into_iter().zip(&memories) {
        for id in 0..4 {
            let mut sges = [source.sge(id as usize * 100, 100)];
            assert_eq!(end.post(&mut request(id, IBV_WR_SEND, &mut sges)), 0);
        }
    }
    // The client's sends wait, and so does this write behind them.
    let mut sges = [memories[0].0.sge(0, 8)];
    let wr = request(4, IBV_WR_RDMA_WRITE, &mut sges);
    let target = &memories[1].1;
    assert_eq!(
        client.post(&mut remote(wr, target.addr() + 2048, target.key())),
        0
    );
    // The server serves its own receives first: its peer's sends arrive although its own wait.
    for id in 0..4 {
        let mut sges = [target.sge(id as usize * 100, 100)];
        assert_eq!(server.post_recv(100 + id, &mut sges), 0);
    }
    assert_eq!(
        client.sent(5),
        [(0, OK), (1, OK), (2, OK), (3, OK), (4, OK)]
    );
    assert_eq!(
        server.received(4),
        [(100, OK), (101, OK), (102, OK), (103, OK)]
    );
    assert_eq!(target.read()[..400], memories[0].0.bytes[..400]);
    assert_eq!(target.read()[2048..2056], memories[0].0.bytes[..8]);
    assert!(server.poll(server.send_cq, 8).unwrap().is_empty());
    for id in 0..4 {
        let mut sges = [memories[0].1.sge(id as usize * 100, 100)];
        assert_eq!(client.post_recv(100 + id, &mut sges), 0);
        assert_eq!(server.sent(1), [(id, OK)]);
    }
    assert_eq!(memories[0].1.read()[..400], memories[1].0.bytes[..400]);
    drop(memories);
    pair.close();
}

#[test]
fn limited_patience_for_receives() {
    let server = Options {
        rnr_retry: 0,
        ..Options::default()
    };
    let pair = Pair::with(Options::default(), server);
    let client = &pair.client;
    assert_eq!(client.post(&mut request(1, IBV_WR_SEND, &mut [])), 0);
    assert_eq!(client.post(&mut request(2, IBV_WR_SEND, &mut [])), 0);
    assert_eq!(
        client.sent(2),
        [(1, IBV_WC_RNR_RETRY_EXC_ERR), (2, FLUSHED)]
    );
    pair.close();
}

#[test]
fn queues_are_bounded() {
    let pair = Pair::with(
        Options {
            send: 3,
            ..Options::default()
        },
        Options {
            recv: 2,
            ..Options::default()
        },
    );
    let (client, server) = (&pair.client, &pair.server);
    // Without a receive at the target the requests stay.
    for id in 0..3 {
        assert_eq!(client.post(&mut request(id, IBV_WR_SEND, &mut [])), 0);
    }
    assert_eq!(
        client.post(&mut request(3, IBV_WR_SEND, &mut [])),
        libc::ENOMEM
    );
    assert_eq!(server.post_recv(0, &mut []), 0);
    assert_eq!(client.sent(1), [(0, OK)]);
    assert_eq!(client.post(&mut request(3, IBV_WR_SEND, &mut [])), 0);
    for id in 1..4 {
        assert_eq!(server.post_recv(id, &mut []), 0);
        assert_eq!(client.sent(1), [(id, OK)]);
    }
    assert_eq!(server.post_recv(4, &mut []), 0);
    assert_eq!(server.post_recv(5, &mut []), 0);
    assert_eq!(server.post_recv(6, &mut []), libc::ENOMEM);
    // More elements, or inline bytes, than asked for.
    let memory = Memory::new(client.home, 64, ALL_RIGHTS);
    let mut sges = [memory.sge(0, 1); 3];
    assert_eq!(
        client.post(&mut request(7, IBV_WR_SEND, &mut sges)),
        libc::EINVAL
    );
    let mut sges = [memory.sge(0, 33)];
    let mut wr = request(7, IBV_WR_SEND, &mut sges);
    wr.send_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
    assert_eq!(client.post(&mut wr), libc::EINVAL);
    let mut wr = request(7, IBV_WR_ATOMIC_FETCH_AND_ADD, &mut []);
    assert_eq!(client.post(&mut wr), libc::EINVAL);
    drop(memory);
    pair.close();
}

#[test]
fn an_overrun_completion_queue_is_an_error() {
    let server = Options {
        cqe: 2,
        ..Options::default()
    };
    let pair = Pair::with(Options::default(), server);
    let (client, server) = (&pair.client, &pair.server);
    for id in 0..4 {
        assert_eq!(server.post_recv(id, &mut []), 0);
    }
    for id in 0..4 {
        assert_eq!(client.post(&mut request(id, IBV_WR_SEND, &mut [])), 0);
    }
    let sent = client.sent(4);
    assert_eq!(sent[..2], [(0, OK), (1, OK)]);
    assert_ne!(sent[3].1, OK);
    assert_eq!(server.received(2), [(0, OK), (1, OK)]);
    assert!(server.poll(server.recv_cq, 1).is_err());
    pair.close();
}

/// Inline data are taken at once: the buffer may change right after posting.
#[test]
fn inline_data_need_no_registration() {
    let pair = Pair::new();
    let (client, server) = (&pair.client, &pair.server);
    let target = Memory::new(server.home, 32, ALL_RIGHTS);
    let mut text = *b"sixteen bytes...";
    let mut sges = [ibv_sge {
        addr: text.as_ptr() as u64,
        length: 16,
        lkey: 0,
    }];
    let wr = request(1, IBV_WR_RDMA_WRITE, &mut sges);
    let mut wr = remote(wr, target.addr(), target.key());
    wr.send_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
    assert_eq!(client.post(&mut wr), 0);
    text.fill(0);
    assert_eq!(client.sent(1), [(1, OK)]);
    assert_eq!(target.read()[..16], *b"sixteen bytes...");
    drop(target);
    pair.close();
}

/// 10,000 unsignaled writes and one signaled read: one completion, all there.
#[test]
fn unsignaled_requests_free_their_slots() {
    let pair = Pair::new();
    let (client, server) = (&pair.client, &pair.server);
    let source = Memory::new(client.home, 8, ALL_RIGHTS);
    let target = Memory::new(server.home, 8, ALL_RIGHTS);
    for round in 0..10_000u64 {
        // SAFETY: inside the vector; the fabric reads it only for a request of this loop.
        let value = round.to_ne_bytes();
        let mut sges = [ibv_sge {
            addr: value.as_ptr() as u64,
            length: 8,
            lkey: 0,
        }];
        let wr = request(round, IBV_WR_RDMA_WRITE, &mut sges);
        let mut wr = remote(wr, target.addr(), target.key());
        wr.send_flags = ibv_send_flags::IBV_SEND_INLINE.0;
        let start = Instant::now();
        loop {
            match client.post(&mut wr) {
                0 => break,
                e => assert_eq!(e, libc::ENOMEM),
            }
            assert!(client.poll(client.send_cq, 1).unwrap().is_empty());
            assert!(start.elapsed() < PATIENCE);
        }
    }
    let mut sges = [source.sge(0, 8)];
    let wr = request(77, IBV_WR_RDMA_READ, &mut sges);
    let mut wr = remote(wr, target.addr(), target.key());
    while client.post(&mut wr) != 0 {
        assert!(client.poll(client.send_cq, 1).unwrap().is_empty());
    }
    assert_eq!(client.sent(1), [(77, OK)]);
    assert_eq!(source.read(), 9_999u64.to_ne_bytes());
    drop((source, target));
    pair.close();
}

/// The peer's memory is unmapped, or ours is: an error, not the end of the process.
#[test]
fn unmapped_memory_gives_errors() {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    const LEN: usize = 4 << 20;
    // Small and large; write to it, read from it, write from it, read into it.
    for (len, case) in [8, LEN]
        .into_iter()
        .flat_map(|l| (0..4).map(move |c| (l, c)))
    {
        let pair = Pair::new();
        let (client, server) = (&pair.client, &pair.server);
        let (good_home, bad_home) = if case < 2 {
            (client.home, server.home)
        } else {
            (server.home, client.home)
        };
        let good = Memory::filled(good_home, LEN, 1);
        // SAFETY: a new mapping, registered, and then taken away again.
        let (gone, mr) = unsafe {
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            let gone = mmap_anonymous(null_mut(), LEN, prot, MapFlags::PRIVATE).unwrap();
            let mr = (fabric().ibv_reg_mr)(bad_home.pd, gone, LEN, ALL_RIGHTS as i32);
            assert!(!mr.is_null());
            munmap(gone, LEN).unwrap();
            (gone as u64, mr)
        };
        // SAFETY: registered.
        let bad_key = unsafe { (*mr).rkey };
        let opcode = if case % 2 == 0 {
            IBV_WR_RDMA_WRITE
        } else {
            IBV_WR_RDMA_READ
        };
        let (mut sges, addr, key) = if case < 2 {
            ([good.sge(0, len)], gone, bad_key)
        } else {
            let sge = ibv_sge {
                addr: gone,
                length: len as u32,
                lkey: bad_key,
            };
            ([sge], good.addr(), good.key())
        };
        let wr = request(1, opcode, &mut sges);
        assert_eq!(client.post(&mut remote(wr, addr, key)), 0);
        let (id, status) = client.sent(1)[0];
        assert_eq!(id, 1);
        assert_ne!(status, OK, "case {case} with {len} bytes");
        if case >= 2 {
            assert_eq!(status, IBV_WC_LOC_PROT_ERR, "case {case} with {len} bytes");
        }
        // SAFETY: registered.
        unsafe { assert_eq!((fabric().ibv_dereg_mr)(mr), 0) };
        drop(good);
        pair.close();
    }
}

/// Regions are deregistered while the peer reads and writes them.
#[test]
fn deregistration_in_mid_transfer() {
    const LEN: usize = 8 << 20;
    for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
        let pair = Pair::new();
        let (client, server) = (&pair.client, &pair.server);
        let local = Memory::filled(client.home, LEN, 1);
        let target = Memory::new(server.home, LEN, ALL_RIGHTS);
        for id in 0..8 {
            let mut sges = [local.sge(0, LEN)];
            let wr = request(id, opcode, &mut sges);
            assert_eq!(client.post(&mut remote(wr, target.addr(), target.key())), 0);
        }
        assert_eq!(client.sent(1), [(0, OK)]);
        let (addr, key) = (target.addr(), target.key());
        // Frees the memory as well: nobody may touch it any more.
        drop(target);
        let mut sges = [local.sge(0, LEN)];
        assert_eq!(
            client.post(&mut remote(request(8, opcode, &mut sges), addr, key)),
            0
        );
        // Those that were done by then, and no others.
        let rest = client.sent(8);
        let done = rest.iter().take_while(|(_, status)| *status == OK).count();
        assert!(done < 8);
        assert!(rest[done..].iter().all(|(_, status)| *status != OK));
        drop(local);
        pair.close();
    }
}

/// A message waits for a receive, and its memory is not registered any more when there is one: the
/// bytes are what they were, or there are none.
#[test]
fn deregistration_before_a_receive_is_there() {
    const LEN: usize = 1 << 20;
    let pair = Pair::new();
    let (client, server) = (&pair.client, &pair.server);
    let source = Memory::filled(client.home, LEN, 1);
    let bytes = source.bytes.clone();
    let target = Memory::new(server.home, LEN, ALL_RIGHTS);
    let mut sges = [source.sge(0, LEN)];
    assert_eq!(client.post(&mut request(1, IBV_WR_SEND, &mut sges)), 0);
    drop(source);
    assert_eq!(server.post_recv(2, &mut [target.sge(0, LEN)]), 0);
    match client.sent(1)[..] {
        // It was on its way already.
        [(1, OK)] => {
            assert_eq!(server.received(1), [(2, OK)]);
            assert!(target.read() == bytes);
        }
        [(1, IBV_WC_LOC_PROT_ERR)] => {
            assert_eq!(server.received(1), [(2, IBV_WC_WR_FLUSH_ERR)]);
        }
        ref other => panic!("{other:?}"),
    }
    drop(target);
    pair.close();
}

/// Large transfers in both directions at a time do not block each other.
#[test]
fn both_directions_at_full_size() {
    const LEN: usize = 16 << 20;
    let pair = Pair::new();
    let ends = [&pair.client, &pair.server];
    let sources = ends.map(|end| Memory::filled(end.home, LEN, 7));
    let targets = ends.map(|end| Memory::new(end.home, LEN, ALL_RIGHTS));
    let backs = ends.map(|end| Memory::new(end.home, LEN, ALL_RIGHTS));
    for i in 0..2 {
        let other = 1 - i;
        let mut sges = [sources[i].sge(0, LEN)];
        let wr = request(1, IBV_WR_RDMA_WRITE, &mut sges);
        let wr = &mut remote(wr, targets[other].addr(), targets[other].key());
        assert_eq!(ends[i].post(wr), 0);
        let mut sges = [backs[i].sge(0, LEN)];
        let wr = request(2, IBV_WR_RDMA_READ, &mut sges);
        let wr = &mut remote(wr, sources[other].addr(), sources[other].key());
        assert_eq!(ends[i].post(wr), 0);
    }
    for end in ends {
        assert_eq!(end.sent(2), [(1, OK), (2, OK)]);
    }
    for i in 0..2 {
        assert!(targets[1 - i].read() == sources[i].bytes);
        assert!(backs[i].read() == sources[1 - i].bytes);
    }
    drop((sources, targets, backs));
    pair.close();
}

#[test]
fn extended_posting_flushes_and_writes_atomically() {
    let pair = Pair::new();
    let (client, server) = (&pair.client, &pair.server);
    let target = Memory::new(server.home, 4096, ALL_RIGHTS);
    let unflushable = Memory::new(server.home, 4096, 0b111);
    let base = target.addr().next_multiple_of(8);
    // SAFETY: a queue pair of ours, made with these operations.
    unsafe {
        let ex = (fabric().ibv_qp_to_qp_ex)(client.qp);
        assert!((*ex).wr_rdma_read.is_none() && (*ex).wr_send.is_none());
        let signaled = ibv_send_flags::IBV_SEND_SIGNALED.0;
        (*ex).wr_start.unwrap()(ex);
        ((*ex).wr_id, (*ex).wr_flags) = (1, 0);
        (*ex).wr_rdma_write.unwrap()(ex, target.key(), base + 64);
        let mut text = *b"inline";
        (*ex).wr_set_inline_data.unwrap()(ex, text.as_mut_ptr().cast(), 6);
        ((*ex).wr_id, (*ex).wr_flags) = (2, signaled);
        let value = 0x1122_3344_5566_7788u64;
        (*ex).wr_atomic_write.unwrap()(ex, target.key(), base + 8, (&raw const value).cast());
        for (id, placement) in [(3, 1), (4, 2)] {
            (*ex).wr_id = id;
            (*ex).wr_flush.unwrap()(ex, target.key(), base, 128, placement, 0);
        }
        (*ex).wr_id = 5;
        (*ex).wr_flush.unwrap()(ex, target.key(), base, 0, 2, 1);
        assert_eq!((*ex).wr_complete.unwrap()(ex), 0);
        let done: Vec<_> = (0..4)
            .map(|_| client.wait(client.send_cq))
            .map(|wc| (wc.wr_id, wc.status, wc.opcode))
            .collect();
        use ibv_wc_opcode::{IBV_WC_ATOMIC_WRITE, IBV_WC_FLUSH};
        assert_eq!(
            done,
            [
                (2, OK, IBV_WC_ATOMIC_WRITE),
                (3, OK, IBV_WC_FLUSH),
                (4, OK, IBV_WC_FLUSH),
                (5, OK, IBV_WC_FLUSH)
            ]
        );
        let at = (base - target.addr()) as usize;
        assert_eq!(target.read()[at + 8..at + 16], value.to_ne_bytes());
        assert_eq!(target.read()[at + 64..at + 70], *b"inline");
        // Nothing of an aborted batch is posted; a batch that is too large neither.
        (*ex).wr_start.unwrap()(ex);
        (*ex).wr_atomic_write.unwrap()(ex, target.key(), base, (&raw const value).cast());
        (*ex).wr_abort.unwrap()(ex);
        (*ex).wr_start.unwrap()(ex);
        for _ in 0..21 {
            (*ex).wr_atomic_write.unwrap()(ex, target.key(), base, (&raw const value).cast());
        }
        assert_eq!((*ex).wr_complete.unwrap()(ex), libc::ENOMEM);
        // A region without the right to be flushed.
        (*ex).wr_start.unwrap()(ex);
        (*ex).wr_id = 6;
        (*ex).wr_flush.unwrap()(ex, unflushable.key(), unflushable.addr(), 8, 1, 0);
        assert_eq!((*ex).wr_complete.unwrap()(ex), 0);
        assert_eq!(client.sent(1), [(6, IBV_WC_REM_ACCESS_ERR)]);
        assert_eq!(target.read()[at..at + 8], [0; 8]);
    }
    drop((target, unflushable));
    pair.close();
}

/// Flushes of a size that has another thread serve the connections meanwhile, with requests behind
/// them and messages in the other direction.
#[test]
fn large_flushes_are_followed_by_what_comes_after_them() {
    const LEN: usize = 9 << 20;
    let pair = Pair::new();
    let (client, server) = (&pair.client, &pair.server);
    let target = Memory::new(server.home, LEN, ALL_RIGHTS);
    let base = target.addr().next_multiple_of(8);
    let at = (base - target.addr()) as usize;
    for round in 1..=10u64 {
        assert_eq!(client.post_recv(3 * round, &mut []), 0);
        // SAFETY: a queue pair of ours, made with these operations.
        unsafe {
            let ex = (fabric().ibv_qp_to_qp_ex)(client.qp);
            (*ex).wr_start.unwrap()(ex);
            (*ex).wr_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            (*ex).wr_id = 3 * round;
            (*ex).wr_flush.unwrap()(ex, target.key(), base, LEN - 8, 2, 0);
            (*ex).wr_id = 3 * round + 1;
            (*ex).wr_atomic_write.unwrap()(ex, target.key(), base, (&raw const round).cast());
            (*ex).wr_id = 3 * round + 2;
            (*ex).wr_flush.unwrap()(ex, target.key(), base, 0, 2, 1);
            assert_eq!((*ex).wr_complete.unwrap()(ex), 0);
        }
        assert_eq!(server.post(&mut request(round, IBV_WR_SEND, &mut [])), 0);
        let done = [3 * round, 3 * round + 1, 3 * round + 2].map(|id| (id, OK));
        assert_eq!(client.sent(3), done);
        assert_eq!(target.read()[at..at + 8], round.to_ne_bytes());
        assert_eq!(client.received(1), [(3 * round, OK)]);
        assert_eq!(server.sent(1), [(round, OK)]);
    }
    drop(target);
    pair.close();
}

/// Many queue pairs on one shared receive queue, all of which have to wait.
#[test]
fn shared_receives_wake_everybody_who_waits() {
    let home = Home::new();
    let srq = home.shared_queue(100);
    let server = Options {
        shared: srq,
        ..Options::default()
    };
    let pairs: Vec<_> = (0..8)
        .map(|_| Pair::at_home(Options::default(), home, server, |_| ()))
        .collect();
    for pair in &pairs {
        for id in 0..5 {
            assert_eq!(pair.client.post(&mut request(id, IBV_WR_SEND, &mut [])), 0);
        }
    }
    // Receives on the queue pair itself are refused.
    assert_eq!(pairs[0].server.post_recv(0, &mut []), libc::EINVAL);
    // SAFETY: a queue of ours.
    unsafe {
        assert_eq!((fabric().ibv_destroy_srq)(srq), libc::EBUSY);
        for id in 0..40 {
            let mut wr: ibv_recv_wr = std::mem::zeroed();
            wr.wr_id = id;
            let mut bad = null_mut();
            let post = (*home.context).ops.post_srq_recv.unwrap();
            assert_eq!(post(srq, &mut wr, &mut bad), 0);
        }
    }
    let mut used = std::collections::BTreeSet::new();
    for pair in &pairs {
        let all: Vec<_> = (0..5).map(|id| (id, OK)).collect();
        assert_eq!(pair.client.sent(5), all);
        for (id, status) in pair.server.received(5) {
            assert_eq!(status, OK);
            assert!(used.insert(id));
        }
    }
    assert_eq!(used.len(), 40);
    for pair in pairs {
        let (server_events, client_home) = (pair.server.events, pair.client.home);
        let client_events = pair.client.events;
        pair.client.close();
        pair.server.close();
        client_home.close();
        client_events.close();
        server_events.close();
        pair.listener.close();
    }
    // SAFETY: not in use any more.
    unsafe { assert_eq!((fabric().ibv_destroy_srq)(srq), 0) };
    home.close();
}

use super::super::mr::access;
