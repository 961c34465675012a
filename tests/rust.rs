// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What only Rust programs use of the library.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::CString;
use std::net::TcpListener;
use std::process::Command;

use rpma::Shared;
use rpma::buffer::Buffer;
use rpma::conn::{Completion, ConnEvent, Operation, Transfer};
use rpma::conn_cfg::ConnConfig;
use rpma::conn_req::ConnRequest;
use rpma::device::Location;
use rpma::ep::Endpoint;
use rpma::error::Error;
use rpma::mr::{RemoteRegion, Usage};
use rpma::peer::Peer;

/// The fabric is chosen once a process, by the environment: so the tests proper, which are
/// ignored here, run in a process of their own.
#[test]
fn on_the_software_fabric() {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--nocapture"])
        .env("RPMA_FABRIC", "soft")
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "runs on the software fabric only"]
fn buffers_keep_their_bounds() {
    let peer = Peer::at(c"127.0.0.1", Location::Local).unwrap();
    assert_eq!(Buffer::new(&peer, 0, Usage::SEND).err(), Some(Error::Inval));
    // Across a line's end, with a last line that is not whole.
    let buffer = Buffer::new(&peer, 100, Usage::SEND).unwrap();
    assert_eq!(buffer.region().size(), 100);
    assert_eq!(buffer.region().address() as usize % 64, 0);
    assert_eq!(buffer.store(60, b"eight by"), Ok(()));
    let mut bytes = [1; 10];
    assert_eq!(buffer.load(59, &mut bytes), Ok(()));
    assert_eq!(&bytes, b"\0eight by\0");
    assert_eq!(buffer.store(99, b"z"), Ok(()));
    assert_eq!(buffer.store(100, b""), Ok(()));
    for (offset, len) in [(99, 2), (100, 1), (101, 0), (usize::MAX, 1)] {
        assert_eq!(buffer.store(offset, &vec![7; len]), Err(Error::Inval));
        assert_eq!(buffer.load(offset, &mut vec![7; len]), Err(Error::Inval));
    }
    let mut last = [0; 1];
    assert_eq!(buffer.load(99, &mut last), Ok(()));
    assert_eq!(&last, b"z");
}

/// An endpoint at a port that was free, and another one if somebody was faster.
fn listen(peer: Shared<Peer>) -> (Endpoint, CString) {
    let attempt = || {
        let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = CString::new(free.local_addr().unwrap().port().to_string()).unwrap();
        drop(free);
        match Endpoint::listen(peer.clone(), c"127.0.0.1", &port) {
            Ok(endpoint) => Some((endpoint, port)),
            Err(error) => {
                assert_eq!(error, Error::Provider);
                None
            }
        }
    };
    (0..100).find_map(|_| attempt()).unwrap()
}

#[test]
#[ignore = "runs on the software fabric only"]
fn completions_tell_what_came() {
    let here = Peer::at(c"127.0.0.1", Location::Local).unwrap();
    let inbox = Buffer::new(&here, 16, Usage::RECV).unwrap();
    let (endpoint, port) = listen(here);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let there = Peer::at(c"127.0.0.1", Location::Remote).unwrap();
            let source = Buffer::new(&there, 16, Usage::SEND.union(Usage::WRITE_SRC)).unwrap();
            source.store(0, b"hello").unwrap();
            let config = ConnConfig::new();
            let connection = ConnRequest::outgoing(there, c"127.0.0.1", &port, &config, None)
                .and_then(|request| request.connect(b"from here"))
                .unwrap();
            assert_eq!(connection.next_event(), Ok(ConnEvent::Established));
            let operation = |wr_id| Operation {
                wr_id,
                completion: Completion::Always,
            };
            connection
                .send_with_imm(Some(source.range(0, 5)), 0x0102_0304, operation(1))
                .unwrap();
            let sent = connection.cq().wait_next().unwrap();
            assert_eq!((sent.wr_id, sent.status, sent.immediate), (1, 0, None));
            assert_eq!(connection.cq().next(), Err(Error::NoCompletion));
            // A region that is not for writing: the operation fails, with a status.
            let target = RemoteRegion::from_descriptor(connection.private_data()).unwrap();
            let transfer = Transfer {
                local: source.range(0, 5),
                remote: &target,
                remote_offset: 0,
            };
            connection.write(Some(transfer), operation(2)).unwrap();
            let refused = connection.cq().wait_next().unwrap();
            assert_eq!((refused.wr_id, refused.status), (2, 10));
        });
        let request = endpoint.next_request(&ConnConfig::new(), None).unwrap();
        assert_eq!(request.private_data(), b"from here");
        request.recv(inbox.range(0, 16), 7).unwrap();
        let connection = request.connect(&inbox.region().descriptor()).unwrap();
        assert_eq!(connection.next_event(), Ok(ConnEvent::Established));
        let got = connection.cq().wait_next().unwrap();
        assert_eq!((got.wr_id, got.status, got.len), (7, 0, 5));
        assert_eq!(got.immediate, Some(0x0102_0304));
        let mut bytes = [0; 5];
        inbox.load(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");
        // The other side has work to do until it ends the connection.
        assert_eq!(connection.next_event(), Ok(ConnEvent::Closed));
    });
}
