// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The active side: finds a way to the other host, asks for a connection, and takes the answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rdma_sys::rdma_cm_event_type as event_type;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SocketType, bind, connect, sockopt};

use super::handshake::{
    Refused, carrier_choice, crossed, greet, local_address, new_socket, own_params, read_greeting,
    tcp,
};
use super::{
    ConnectParams, Id, NO_LOCAL, Phase, REASON_CONSUMER, REASON_NO_LISTENER, State, negated, say_of,
};
use crate::soft::carrier::Carrier;
use crate::soft::carrier::local::offer::{Choice, Offer};
use crate::soft::carrier::tcp::Tcp;
use crate::soft::diag::{self, Shown};
use crate::soft::engine::engine;
use crate::soft::wire::{
    Greeting, GreetingKind, Header, Kind, Params, PrivateData, REQUEST_PRIVATE_MAX,
};

/// How long the active side waits for a sign of life of the other side's fabric.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it then waits for the other side's program to decide.
const DECISION_TIMEOUT: Duration = Duration::from_secs(600);

impl Id {
    pub(in crate::soft) fn resolve_address(
        &self,
        source: Option<SocketAddr>,
        destination: SocketAddr,
    ) -> Result<(), Errno> {
        if let Some(source) = source
            && self.state.lock().phase == Phase::Idle
        {
            self.bind(source)?;
        }
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Idle | Phase::Bound) {
            return Err(Errno::INVAL);
        }
        match source_for(state.source.as_ref(), &destination) {
            Ok(source) => {
                state.source = Some(source);
                state.destination = Some(destination);
                state.phase = Phase::AddressResolved;
                self.emit(&state, event_type::RDMA_CM_EVENT_ADDR_RESOLVED, 0);
            }
            Err(e) => self.emit(&state, event_type::RDMA_CM_EVENT_ADDR_ERROR, negated(e)),
        }
        Ok(())
    }

    /// Finds out, within the time given, whether the other host can be reached.
    pub(in crate::soft) fn resolve_route(&self, timeout: Duration) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.phase != Phase::AddressResolved {
            return Err(Errno::INVAL);
        }
        state.phase = Phase::ResolvingRoute;
        self.set_timer(&mut state, timeout)?;
        self.dial(&mut state);
        Ok(())
    }

    /// Asks the other side for a connection.
    pub(in crate::soft) fn connect(&self, given: ConnectParams<'_>) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.phase != Phase::RouteResolved || given.private.len() > REQUEST_PRIVATE_MAX {
            return Err(Errno::INVAL);
        }
        let qp = state.qp.clone().ok_or(Errno::INVAL)?;
        carrier_choice()?;
        state.own = own_params(&given.params, &qp);
        state.own_private = PrivateData::new(given.private).ok_or(Errno::INVAL)?;
        diag::debug(format_args!(
            "QP {}: connecting to {}",
            qp.num,
            Shown(state.destination)
        ));
        self.set_timer(&mut state, CONNECT_TIMEOUT)?;
        if state.socket.is_some() {
            self.request(&mut state);
        } else {
            state.phase = Phase::Dialing;
            self.dial(&mut state);
        }
        Ok(())
    }

    /// Starts the transport connection. Its outcome may be there at once.
    fn dial(&self, state: &mut State) {
        match self.try_dial(state) {
            Ok(()) => self.dialed(state, Ok(())),
            Err(Errno::INPROGRESS) => {}
            Err(e) => self.dialed(state, Err(e)),
        }
    }

    fn try_dial(&self, state: &mut State) -> Result<(), Errno> {
        let destination = state.destination.ok_or(Errno::INVAL)?;
        let socket = new_socket(&destination, SocketType::STREAM)?;
        if let (true, Some(source)) = (state.pinned, state.source) {
            // The socket that kept the address gives way to the one that is used.
            state.bound = None;
            sockopt::set_socket_reuseaddr(&socket, true)?;
            bind(&socket, &source)?;
        }
        sockopt::set_tcp_nodelay(&socket, true)?;
        Tcp::watch_for_silence(&socket);
        let mut result = connect(&socket, &destination);
        if result == Err(Errno::INPROGRESS) && is_writable(&socket) {
            // Inside one machine it is done already, and the engine need not be waited for.
            result = sockopt::socket_error(&socket).and_then(|outcome| outcome);
        }
        if result == Err(Errno::INPROGRESS) {
            let this = self.this.upgrade().ok_or(Errno::INVAL)?;
            state.token = Some(engine()?.watch(&socket, this, true)?);
        }
        state.socket = Some(socket);
        result
    }

    /// The transport connection was made, or not.
    fn dialed(&self, state: &mut State, mut result: Result<(), Errno>) {
        self.unwatch(state);
        let from = state.socket.as_ref().and_then(|s| local_address(s).ok());
        if result.is_ok() && from.is_some() && from == state.destination {
            // Nobody listens: the socket was given the very port that it dials, and has met itself.
            result = Err(Errno::CONNREFUSED);
        }
        if result.is_err() {
            state.socket = None;
        } else if let Some(address) = from {
            state.source = Some(address);
        }
        match (state.phase, result) {
            // Refused: the host is there, and whether somebody listens is asked again later.
            (Phase::ResolvingRoute, Ok(()) | Err(Errno::CONNREFUSED)) => {
                self.stop_timer(state);
                state.early = state.socket.is_some();
                state.phase = Phase::RouteResolved;
                self.emit(state, event_type::RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
            }
            (Phase::ResolvingRoute, Err(e)) => {
                self.stop_timer(state);
                state.phase = Phase::AddressResolved;
                self.emit(state, event_type::RDMA_CM_EVENT_ROUTE_ERROR, negated(e));
            }
            (Phase::Dialing, Ok(())) => self.request(state),
            (Phase::Dialing, Err(Errno::CONNREFUSED)) => {
                self.give_up(
                    state,
                    event_type::RDMA_CM_EVENT_REJECTED,
                    i32::from(REASON_NO_LISTENER),
                );
            }
            (Phase::Dialing, Err(e)) => {
                self.give_up(state, event_type::RDMA_CM_EVENT_UNREACHABLE, negated(e));
            }
            _ => {}
        }
    }

    /// The handshake comes to nothing.
    fn fail(&self, state: &mut State, error: Errno) {
        self.give_up(
            state,
            event_type::RDMA_CM_EVENT_CONNECT_ERROR,
            negated(error),
        );
    }

    /// Takes note of what the handshake's socket has to say, if anything.
    pub(super) fn progress(&self, state: &mut State) {
        match state.phase {
            Phase::ResolvingRoute | Phase::Dialing => {
                let outcome = match &state.socket {
                    // Looked at, as the event may have been meant for an earlier socket.
                    Some(socket) if is_writable(socket) => {
                        sockopt::socket_error(socket).and_then(|outcome| outcome)
                    }
                    _ => return,
                };
                self.dialed(state, outcome);
            }
            Phase::Requested => self.read_answer(state),
            _ => {}
        }
    }

    /// Sends the request.
    fn request(&self, state: &mut State) {
        if state.socket.is_some()
            && carrier_choice() != Ok(Choice::Tcp)
            && state.offer.is_none()
            && state.is_one_host()
        {
            match Offer::make() {
                Ok(offer) => state.offer = Some(offer),
                Err(e) => diag::debug(format_args!("no memory can be shared with the peer: {e}")),
            }
        }
        let greeting = Greeting {
            kind: GreetingKind::Request,
            params: state.own,
            reason: 0,
            private: state.own_private,
            meeting: state.offer.as_ref().map(Offer::meeting),
        };
        state.phase = Phase::Requested;
        state.inbox.clear();
        let result = match &state.socket {
            Some(socket) => greet(socket, &greeting).and_then(|()| {
                let this = self.this.upgrade().ok_or(Errno::INVAL)?;
                engine()?.watch(socket, this, false)
            }),
            None => Err(Errno::INVAL),
        };
        match result {
            Ok(token) => state.token = Some(token),
            Err(e) => self.request_failed(state, e),
        }
    }

    /// The other side closed the connection without an answer.
    fn request_failed(&self, state: &mut State, error: Errno) {
        self.unwatch(state);
        state.socket = None;
        if std::mem::take(&mut state.early) {
            // The socket was opened a while ago, and the listener may have lost patience.
            state.phase = Phase::Dialing;
            self.dial(state);
            return;
        }
        diag::debug(format_args!("connection request failed: {error}"));
        self.give_up(
            state,
            event_type::RDMA_CM_EVENT_REJECTED,
            i32::from(REASON_CONSUMER),
        );
    }

    /// The answer to the request arrives.
    fn read_answer(&self, state: &mut State) {
        let Some(socket) = &state.socket else {
            return;
        };
        match read_greeting(socket, &mut state.inbox) {
            Ok(None) => {}
            Ok(Some(greeting)) if greeting.kind == GreetingKind::Received => {
                state.inbox.clear();
                state.early = false;
                // The rest of the answer is there already, or wakes the engine again.
                let _ = self.set_timer(state, DECISION_TIMEOUT);
            }
            Ok(Some(greeting)) => self.answered(state, &greeting),
            Err(Refused::Closed(e)) => self.request_failed(state, e),
            Err(Refused::Bad(bad)) => {
                diag::warn(format_args!("answer to a connection request: {bad}"));
                self.fail(state, Errno::PROTO);
            }
        }
    }

    fn answered(&self, state: &mut State, greeting: &Greeting) {
        match greeting.kind {
            GreetingKind::Reply => {}
            GreetingKind::Reject => {
                self.stop_timer(state);
                self.unwatch(state);
                state.socket = None;
                state.offer = None;
                state.phase = Phase::Over;
                say_of(
                    state,
                    format_args!("rejected by the peer (reason {})", greeting.reason),
                );
                self.emit_with(
                    state,
                    event_type::RDMA_CM_EVENT_REJECTED,
                    i32::from(greeting.reason),
                    Params::default(),
                    greeting.private,
                );
                return;
            }
            GreetingKind::Request | GreetingKind::Received => {
                diag::warn(format_args!("a connection request was answered by another"));
                self.fail(state, Errno::PROTO);
                return;
            }
        }
        self.stop_timer(state);
        self.unwatch(state);
        let (Some(socket), Some(qp)) = (state.socket.take(), state.qp.clone()) else {
            self.fail(state, Errno::INVAL);
            return;
        };
        let carrier: Arc<dyn Carrier> = match (state.offer.take(), greeting.meeting) {
            (Some(offer), Some(meeting)) => match offer.accepted(&meeting, socket) {
                Ok(local) => Arc::new(local),
                Err(_) => {
                    // The peer counts on memory that is not ours.
                    diag::warn(format_args!("a reply names memory that was not offered"));
                    self.fail(state, Errno::PROTO);
                    return;
                }
            },
            _ if carrier_choice() == Ok(Choice::Local) => {
                diag::error(format_args!("{NO_LOCAL}"));
                self.fail(state, Errno::OPNOTSUPP);
                return;
            }
            _ => Arc::new(tcp(state, socket, &greeting.params)),
        };
        state.peer = greeting.params;
        let ready = Some(Header::bare(Kind::ReadyToUse, 0));
        match self.hand_over(state, &qp, carrier, &greeting.params, ready) {
            Ok(()) => {
                state.phase = Phase::Connected;
                say_of(state, format_args!("established"));
                self.emit_with(
                    state,
                    event_type::RDMA_CM_EVENT_ESTABLISHED,
                    0,
                    crossed(&greeting.params),
                    greeting.private,
                );
            }
            Err(e) => self.fail(state, e),
        }
    }
}

/// The address that the system would send from.
fn source_for(source: Option<&SocketAddr>, destination: &SocketAddr) -> Result<SocketAddr, Errno> {
    // A datagram socket is routed when it is connected, and sends nothing.
    let probe = new_socket(destination, SocketType::DGRAM)?;
    if let Some(source) = source {
        let mut source = *source;
        source.set_port(0);
        bind(&probe, &source)?;
    }
    connect(&probe, destination)?;
    let mut found = local_address(&probe)?;
    found.set_port(source.map_or(0, SocketAddr::port));
    Ok(found)
}

/// Whether a non-blocking connect has come to an end.
fn is_writable(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec::default())) == Ok(1)
}
