// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What both sides of a handshake use: sockets, greetings on them, and the parameters in those.

use std::net::SocketAddr;

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, getpeername,
    getsockname, recv, send, shutdown, socket_with,
};

use super::{MAX_READS, State};
use crate::soft::carrier::local::offer::Choice;
use crate::soft::carrier::tcp::Tcp;
use crate::soft::diag;
use crate::soft::qp::Qp;
use crate::soft::wire::{BadFrame, GREETING_LEN, Greeting, GreetingKind, Params, PrivateData};

/// "As many as the device can", in connection parameters.
const READS_DEFAULT: u8 = 0xff;

pub(super) fn new_socket(address: &SocketAddr, kind: SocketType) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, kind, flags, None)
}

pub(super) fn local_address(fd: impl AsFd) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(getsockname(fd)?)
}

pub(super) fn peer_address(fd: impl AsFd) -> Option<SocketAddr> {
    SocketAddr::try_from(getpeername(fd).ok()??).ok()
}

/// Ends a socket for all who hold it: a child that was forked may have it, too.
pub(super) fn end(socket: Option<OwnedFd>) {
    if let Some(socket) = socket {
        // It may never have been connected.
        let _ = shutdown(&socket, Shutdown::Both);
    }
}

/// Sends a greeting. Greetings are the first that is sent, so they fit the socket's buffer.
pub(super) fn greet(socket: &OwnedFd, greeting: &Greeting) -> Result<(), Errno> {
    let mut bytes = Vec::new();
    greeting.encode(&mut bytes);
    match send(socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(n) if n == bytes.len() => Ok(()),
        Ok(_) => Err(Errno::NOBUFS),
        Err(e) => Err(e),
    }
}

pub(super) fn refuse(socket: &OwnedFd, reason: u16, private: PrivateData) {
    let greeting = Greeting {
        kind: GreetingKind::Reject,
        params: Params::default(),
        reason,
        private,
        meeting: None,
    };
    // If it does not arrive, the end of the connection says the same.
    let _ = greet(socket, &greeting);
}

/// Why there will be no greeting.
pub(super) enum Refused {
    Closed(Errno),
    Bad(BadFrame),
}

/// Reads no more than the greeting; what follows belongs to the queue pair.
pub(super) fn read_greeting(
    socket: &OwnedFd,
    inbox: &mut Vec<u8>,
) -> Result<Option<Greeting>, Refused> {
    loop {
        let wanted = match inbox.first_chunk::<GREETING_LEN>() {
            None => GREETING_LEN,
            Some(fixed) => Greeting::full_len(fixed).map_err(Refused::Bad)?,
        };
        if inbox.len() == wanted {
            return Greeting::decode(inbox).map(Some).map_err(Refused::Bad);
        }
        let mut bytes = [0; 512];
        let room = (wanted - inbox.len()).min(bytes.len());
        let into = bytes.get_mut(..room).unwrap_or_default();
        match recv(socket, into, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(Refused::Closed(Errno::CONNRESET)),
            Ok((_, n)) => inbox.extend_from_slice(bytes.get(..n).unwrap_or_default()),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(e) => return Err(Refused::Closed(e)),
        }
    }
}

pub(super) fn effective_reads(asked: u8) -> u8 {
    if asked == READS_DEFAULT {
        MAX_READS
    } else {
        asked.min(MAX_READS)
    }
}

pub(super) fn own_params(given: &Params, qp: &Qp) -> Params {
    Params {
        responder_resources: effective_reads(given.responder_resources),
        initiator_depth: effective_reads(given.initiator_depth),
        retry_count: given.retry_count.min(7),
        rnr_retry_count: given.rnr_retry_count.min(7),
        qp_num: qp.num,
        ..*given
    }
}

/// The peer's parameters as the program sees them: what the peer initiates is what it responds to.
pub(super) fn crossed(peer: &Params) -> Params {
    Params {
        responder_resources: peer.initiator_depth,
        initiator_depth: peer.responder_resources,
        ..*peer
    }
}

/// The carrier that the program's user wants.
pub(super) fn carrier_choice() -> Result<Choice, Errno> {
    let choice = Choice::get();
    if choice.is_err() {
        diag::error(format_args!(
            "RPMA_SOFT_CARRIER is none of auto, tcp, local"
        ));
    }
    choice
}

pub(super) fn tcp(state: &State, socket: OwnedFd, peer: &Params) -> Tcp {
    Tcp::new(socket, state.own.retry_count.max(peer.retry_count))
}
