// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! How connections begin and end.

use super::*;
use rdma_sys::rdma_cm_event_type::*;

#[test]
fn both_sides_see_one_disconnection() {
    for server_first in [false, true] {
        let pair = Pair::new();
        let (first, second) = if server_first {
            (&pair.server, &pair.client)
        } else {
            (&pair.client, &pair.server)
        };
        assert_eq!(first.post_recv(1, &mut []), 0);
        assert_eq!(first.disconnect(), 0);
        assert_eq!(first.received(1), [(1, ibv_wc_status::IBV_WC_WR_FLUSH_ERR)]);
        first.events.expect(RDMA_CM_EVENT_DISCONNECTED);
        second.events.expect(RDMA_CM_EVENT_DISCONNECTED);
        assert_eq!(second.disconnect(), 0);
        assert_eq!(first.disconnect(), 0);
        assert!(!first.events.is_readable(0));
        assert!(!second.events.is_readable(0));
        pair.close();
    }
}

#[test]
fn destroying_an_end_disconnects_the_other() {
    let pair = Pair::new();
    assert_eq!(pair.server.post_recv(1, &mut []), 0);
    let (home, events) = (pair.client.home, pair.client.events);
    pair.client.close();
    pair.server.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    assert_eq!(
        pair.server.received(1),
        [(1, ibv_wc_status::IBV_WC_WR_FLUSH_ERR)]
    );
    home.close();
    events.close();
    let (home, events) = (pair.server.home, pair.server.events);
    pair.server.close();
    home.close();
    events.close();
    pair.listener.close();
}

#[test]
fn rejection_carries_private_data() {
    let listener = Listener::new();
    let events = Events::new();
    let client = End::new(
        Home::new(),
        events,
        resolve(events, listener.address),
        Options::default(),
    );
    assert_eq!(client.connect(&[1; 57]), -1);
    assert_eq!(errno::get(), libc::EINVAL);
    assert_eq!(client.connect(&[2; 56]), 0);
    let seen = listener.events.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_eq!(seen.private, [2; 56]);
    // SAFETY: an id of ours.
    unsafe {
        assert_eq!(
            (fabric().rdma_reject)(seen.id, [3u8; 149].as_ptr().cast(), 149),
            -1
        );
        assert_eq!(
            (fabric().rdma_reject)(seen.id, [3u8; 148].as_ptr().cast(), 148),
            0
        );
    }
    let told = client.events.next();
    assert_eq!((told.kind, told.status), (RDMA_CM_EVENT_REJECTED, 28));
    assert_eq!(told.private, [3; 148]);
    destroy_id(seen.id);
    let home = client.home;
    client.close();
    home.close();
    events.close();
    listener.close();
}

#[test]
fn nobody_listens() {
    let listener = Listener::new();
    let address = listener.address;
    listener.close();
    let events = Events::new();
    let client = End::new(
        Home::new(),
        events,
        resolve(events, address),
        Options::default(),
    );
    assert_eq!(client.connect(b""), 0);
    let told = events.next();
    assert_eq!((told.kind, told.status), (RDMA_CM_EVENT_REJECTED, 8));
    let home = client.home;
    client.close();
    home.close();
    events.close();
}

/// Undecided requests are refused when the listener goes, whether the program has seen them or not.
#[test]
fn a_listener_that_goes_refuses_its_clients() {
    for seen_by_program in [false, true] {
        let listener = Listener::new();
        let events = Events::new();
        let client = End::new(
            Home::new(),
            events,
            resolve(events, listener.address),
            Options::default(),
        );
        assert_eq!(client.connect(b""), 0);
        assert!(listener.events.is_readable(PATIENCE.as_millis() as i32));
        if seen_by_program {
            let seen = listener.events.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
            destroy_id(seen.id);
        }
        listener.close();
        assert_eq!(events.next().kind, RDMA_CM_EVENT_REJECTED);
        let home = client.home;
        client.close();
        home.close();
        events.close();
    }
}

/// The silent socket from resolving the route has been given up by the listener meanwhile.
#[test]
fn late_connect_dials_again() {
    let first = Listener::new();
    let events = Events::new();
    let id = resolve(events, first.address);
    let address = first.address;
    first.close();
    let second = Listener::at(address, 0);
    let client = End::new(Home::new(), events, id, Options::default());
    assert_eq!(client.connect(b"late"), 0);
    let seen = second.events.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_eq!(seen.private, b"late");
    destroy_id(seen.id);
    assert_eq!(events.next().kind, RDMA_CM_EVENT_REJECTED);
    let home = client.home;
    client.close();
    home.close();
    events.close();
    second.close();
}

#[test]
fn backlog_bounds_undelivered_requests() {
    let listener = Listener::at("127.0.0.1:0".parse().unwrap(), 2);
    let mut clients = Vec::new();
    for _ in 0..3 {
        let events = Events::new();
        let client = End::new(
            Home::new(),
            events,
            resolve(events, listener.address),
            Options::default(),
        );
        assert_eq!(client.connect(b""), 0);
        clients.push(client);
    }
    // One of the three is refused without the program having done anything.
    let start = Instant::now();
    let refused = loop {
        let refused = clients.iter().filter(|c| c.events.is_readable(0)).count();
        if refused > 0 {
            break refused;
        }
        assert!(start.elapsed() < PATIENCE);
    };
    assert_eq!(refused, 1);
    listener.close();
    for client in clients {
        assert_eq!(client.events.next().kind, RDMA_CM_EVENT_REJECTED);
        let (home, events) = (client.home, client.events);
        client.close();
        home.close();
        events.close();
    }
}

#[test]
fn ipv6_and_the_wildcard() {
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        eprintln!("not tested: this host has no IPv6");
        return;
    }
    let listener = Listener::at("[::]:0".parse().unwrap(), 0);
    // SAFETY: an id of ours.
    assert!(unsafe { (*listener.id).verbs }.is_null());
    for host in ["127.0.0.1", "[::1]"] {
        let address: SocketAddr = format!("{host}:{}", listener.address.port())
            .parse()
            .unwrap();
        let events = Events::new();
        let id = resolve(events, address);
        // SAFETY: an id of ours.
        assert!(!unsafe { (*id).verbs }.is_null());
        let client = End::new(Home::new(), events, id, Options::default());
        assert_eq!(client.connect(b""), 0);
        let seen = listener.events.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        destroy_id(seen.id);
        assert_eq!(events.next().kind, RDMA_CM_EVENT_REJECTED);
        let home = client.home;
        client.close();
        home.close();
        events.close();
    }
    listener.close();
}

#[test]
fn steps_out_of_order_are_refused() {
    let events = Events::new();
    let id = new_id(events);
    // SAFETY: an id of ours.
    unsafe {
        for result in [
            (fabric().rdma_listen)(id, 0),
            (fabric().rdma_resolve_route)(id, 10),
            (fabric().rdma_connect)(id, null_mut()),
            (fabric().rdma_accept)(id, null_mut()),
            (fabric().rdma_reject)(id, null(), 0),
            (fabric().rdma_disconnect)(id),
        ] {
            assert_eq!((result, errno::get()), (-1, libc::EINVAL));
        }
        let mut unix: libc::sockaddr_storage = std::mem::zeroed();
        unix.ss_family = libc::AF_UNIX as u16;
        assert_eq!((fabric().rdma_bind_addr)(id, (&raw mut unix).cast()), -1);
        assert_eq!(errno::get(), libc::EAFNOSUPPORT);
        let mut elsewhere = sockaddr("192.0.2.1:0".parse().unwrap());
        assert_eq!(
            (fabric().rdma_bind_addr)(id, (&raw mut elsewhere).cast()),
            -1
        );
        assert_eq!(errno::get(), libc::EADDRNOTAVAIL);
    }
    destroy_id(id);
    events.close();
}

/// Completion events: one for each arming, and none is lost.
#[test]
fn completion_events() {
    let options = Options {
        channel: true,
        ..Options::default()
    };
    let pair = Pair::with(Options::default(), options);
    let (client, server) = (&pair.client, &pair.server);
    // SAFETY: objects of ours.
    unsafe {
        let arm = (*server.home.context).ops.req_notify_cq.unwrap();
        for round in 0..100 {
            assert_eq!(arm(server.recv_cq, 0), 0);
            assert_eq!(server.post_recv(round, &mut []), 0);
            assert_eq!(
                client.post(&mut request(round, ibv_wr_opcode::IBV_WR_SEND, &mut [])),
                0
            );
            let (mut cq, mut context) = (null_mut(), null_mut());
            assert_eq!(
                (fabric().ibv_get_cq_event)(server.channel, &mut cq, &mut context),
                0
            );
            assert_eq!(cq, server.recv_cq);
            (fabric().ibv_ack_cq_events)(cq, 1);
            assert_eq!(server.received(1), [(round, 0)]);
            assert_eq!(client.sent(1), [(round, 0)]);
        }
        assert_eq!(
            (fabric().ibv_destroy_comp_channel)(server.channel),
            libc::EBUSY
        );
    }
    pair.close();
}

/// 16 threads connect, talk and part over and over.
#[test]
fn many_threads() {
    let threads: Vec<_> = (0..16)
        .map(|_| {
            std::thread::spawn(|| {
                for _ in 0..10 {
                    let pair = Pair::new();
                    let source = Memory::filled(pair.client.home, 5000, 2);
                    let target = Memory::new(pair.server.home, 5000, ALL_RIGHTS);
                    let mut sges = [source.sge(0, 5000)];
                    let wr = request(1, ibv_wr_opcode::IBV_WR_RDMA_WRITE, &mut sges);
                    let wr = &mut remote(wr, target.addr(), target.key());
                    assert_eq!(pair.client.post(wr), 0);
                    assert_eq!(pair.client.sent(1), [(1, 0)]);
                    assert!(target.read() == source.bytes);
                    drop((source, target));
                    pair.close();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}
