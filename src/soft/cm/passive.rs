// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The passive side: listens, lets in whom it may, and answers as the program decides.

use std::fmt::Arguments;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rdma_sys::rdma_cm_event_type as event_type;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, listen, sockopt};

use super::handshake::{
    Refused, carrier_choice, crossed, end, greet, local_address, own_params, peer_address,
    read_greeting, refuse, tcp,
};
use super::{
    ConnectParams, Event, Id, NO_LOCAL, Phase, REASON_CONSUMER, REASON_VERSION, State,
    TIMER_ACCEPT, TIMER_PHASE,
};
use crate::soft::admission::Admission;
use crate::soft::carrier::Carrier;
use crate::soft::carrier::local::offer::{Choice, Found};
use crate::soft::carrier::tcp::Tcp;
use crate::soft::diag::{self, Shown};
use crate::soft::engine::{Driver, Readiness, Source, TimerKey, Token, engine};
use crate::soft::sync::Lock;
use crate::soft::wire::{
    BadFrame, Greeting, GreetingKind, Params, PrivateData, REJECT_PRIVATE_MAX, REPLY_PRIVATE_MAX,
};

/// How long the active side may take to say that it has the reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an accepted socket may take to say what it wants.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Undecided requests of one listener, if the program does not say.
const BACKLOG_DEFAULT: usize = 1024;
/// Pause of a listener when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Id {
    pub(in crate::soft) fn listen(&self, backlog: i32) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.phase != Phase::Bound {
            return Err(Errno::INVAL);
        }
        state.admission = Admission::from_environment().map_err(|bad| {
            diag::error(format_args!("not listening: {bad}"));
            Errno::INVAL
        })?;
        let backlog = usize::try_from(backlog).unwrap_or(0);
        state.backlog = if backlog == 0 {
            BACKLOG_DEFAULT
        } else {
            backlog
        };
        let socket = state.bound.as_ref().ok_or(Errno::INVAL)?;
        listen(socket, BACKLOG_DEFAULT as i32)?;
        let this = self.this.upgrade().ok_or(Errno::INVAL)?;
        let token = engine()?.watch(socket, this, false)?;
        state.token = Some(token);
        state.phase = Phase::Listening;
        Ok(())
    }

    pub(in crate::soft) fn accept(&self, given: ConnectParams<'_>) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.phase != Phase::Undecided {
            return Err(Errno::INVAL);
        }
        let qp = state.qp.clone().ok_or(Errno::INVAL)?;
        let choice = carrier_choice()?;
        state.own = own_params(&given.params, &qp);
        let socket = state.socket.take().ok_or(Errno::INVAL)?;
        let private = PrivateData::new(given.private)
            .filter(|private| private.as_slice().len() <= REPLY_PRIVATE_MAX);
        let Some(private) = private else {
            // As with hardware, the other side is not left waiting.
            state.phase = Phase::Over;
            refuse(&socket, REASON_CONSUMER, PrivateData::default());
            return Err(Errno::INVAL);
        };
        // Who is elsewhere does not get to say what is opened here.
        let offer = state
            .peer_meeting
            .filter(|_| choice != Choice::Tcp && state.is_one_host());
        let found = offer.and_then(|offer| {
            Found::look(&offer)
                .inspect_err(|e| {
                    diag::debug(format_args!("the peer's memory cannot be shared: {e}"))
                })
                .ok()
        });
        if found.is_none() && choice == Choice::Local {
            diag::error(format_args!("{NO_LOCAL}"));
            state.phase = Phase::Over;
            refuse(&socket, REASON_CONSUMER, PrivateData::default());
            return Err(Errno::OPNOTSUPP);
        }
        let greeting = Greeting {
            kind: GreetingKind::Reply,
            params: state.own,
            reason: 0,
            private,
            meeting: found.as_ref().map(Found::meeting),
        };
        if let Err(e) = greet(&socket, &greeting) {
            // The other side gave up meanwhile; the program learns it as with hardware.
            diag::debug(format_args!("accepting: the peer is gone: {e}"));
            state.phase = Phase::Over;
            self.emit(
                &state,
                event_type::RDMA_CM_EVENT_REJECTED,
                i32::from(REASON_CONSUMER),
            );
            drop(state);
            qp.fail();
            return Ok(());
        }
        let peer = state.peer;
        self.set_timer(&mut state, REPLY_TIMEOUT)?;
        let carrier: Arc<dyn Carrier> = match found {
            Some(found) => Arc::new(found.with(socket)),
            None => Arc::new(tcp(&state, socket, &peer)),
        };
        self.hand_over(&mut state, &qp, carrier, &peer, None)?;
        state.phase = Phase::Accepted;
        Ok(())
    }

    pub(in crate::soft) fn reject(&self, private: &[u8]) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.phase != Phase::Undecided || private.len() > REJECT_PRIVATE_MAX {
            return Err(Errno::INVAL);
        }
        let private = PrivateData::new(private).ok_or(Errno::INVAL)?;
        state.phase = Phase::Over;
        diag::debug(format_args!(
            "the request of QP {} at {} is turned down",
            state.peer.qp_num,
            Shown(state.destination)
        ));
        if let Some(socket) = state.socket.take() {
            refuse(&socket, REASON_CONSUMER, private);
        }
        Ok(())
    }

    /// A connect request was handed to the program.
    pub(in crate::soft) fn request_delivered(&self) {
        let mut state = self.state.lock();
        state.undelivered = state.undelivered.saturating_sub(1);
    }

    /// New sockets wait at the listener.
    pub(super) fn accept_sockets(&self) {
        // A bound, so that a flood does not starve connections.
        for _ in 0..64 {
            let mut state = self.state.lock();
            if state.phase != Phase::Listening {
                return;
            }
            let (Some(bound), Some(token)) = (&state.bound, state.token) else {
                return;
            };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match accept_with(bound, flags) {
                Ok(socket) => socket,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    if let (Ok(engine), Some(this)) = (engine(), self.this.upgrade()) {
                        engine.unwatch(bound, token);
                        state.token = None;
                        let this = this as Arc<dyn Source>;
                        engine.after(ACCEPT_PAUSE, Arc::downgrade(&this), TIMER_ACCEPT);
                    }
                    self.pauses.warn(format_args!(
                        "no descriptor for a new connection: accepting pauses until there is one"
                    ));
                    return;
                }
                Err(Errno::AGAIN) => return,
                // That connection is gone already.
                Err(_) => continue,
            };
            if !self.is_allowed(&state, &socket) {
                drop(state);
                refuse(&socket, REASON_CONSUMER, PrivateData::default());
                end(Some(socket));
                continue;
            }
            let _ = sockopt::set_tcp_nodelay(&socket, true);
            Tcp::watch_for_silence(&socket);
            let oldest = if state.greetings.len() >= state.admission.handshakes() {
                state.greetings.pop_front()
            } else {
                None
            };
            let incoming = Incoming::new(Weak::clone(&self.this));
            state.greetings.push_back(Arc::clone(&incoming));
            drop(state);
            if let Some(oldest) = oldest {
                oldest.abort();
            }
            if incoming.start(socket).is_err() {
                self.forget_greeting(&incoming);
            }
        }
    }

    /// Whether the operator lets the other end of a new socket in; the log is told if not.
    fn is_allowed(&self, state: &State, socket: &OwnedFd) -> bool {
        let Some(peer) = peer_address(socket) else {
            // It is gone already.
            return false;
        };
        if state.admission.allows(peer.ip()) {
            return true;
        }
        self.refusals.warn(format_args!(
            "a connection from {} was refused: not in RPMA_SOFT_ALLOW",
            peer.ip()
        ));
        false
    }

    pub(super) fn resume_accepting(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Listening
            && state.token.is_none()
            && let (Some(bound), Some(this), Ok(engine)) =
                (&state.bound, self.this.upgrade(), engine())
        {
            let timer = Arc::downgrade(&(Arc::clone(&this) as Arc<dyn Source>));
            match engine.watch(bound, this, false) {
                Ok(token) => state.token = Some(token),
                Err(_) => {
                    engine.after(ACCEPT_PAUSE, timer, TIMER_ACCEPT);
                }
            }
        }
    }

    fn forget_greeting(&self, incoming: &Arc<Incoming>) {
        let mut state = self.state.lock();
        state.greetings.retain(|i| !Arc::ptr_eq(i, incoming));
    }

    /// A request came in on a new socket.
    fn requested(&self, socket: OwnedFd, greeting: &Greeting) {
        let mut state = self.state.lock();
        if state.phase != Phase::Listening {
            return;
        }
        if state.undelivered >= state.backlog {
            drop(state);
            self.refusals.warn(format_args!(
                "a connection request was dropped: backlog is full"
            ));
            refuse(&socket, REASON_CONSUMER, PrivateData::default());
            return;
        }
        let Some(admitted) = state.admission.admit() else {
            drop(state);
            self.refusals.warn(format_args!(
                "a connection request was refused: there are RPMA_SOFT_MAX_CONNECTIONS already"
            ));
            refuse(&socket, REASON_CONSUMER, PrivateData::default());
            return;
        };
        let received = Greeting {
            kind: GreetingKind::Received,
            params: Params::default(),
            reason: 0,
            private: PrivateData::default(),
            meeting: None,
        };
        // If the other side is gone, the program learns it when it decides.
        let _ = greet(&socket, &received);
        let id = Self::with_phase(Arc::clone(&state.channel), Phase::Undecided);
        {
            let mut fresh = id.state.lock();
            fresh.source = local_address(&socket).ok();
            fresh.destination = peer_address(&socket);
            fresh.admitted = Some(admitted);
            fresh.peer = greeting.params;
            fresh.peer_meeting = greeting.meeting;
            fresh.socket = Some(socket);
            diag::debug(format_args!(
                "a request for a connection from QP {} at {}",
                greeting.params.qp_num,
                Shown(fresh.destination)
            ));
        }
        state.undelivered += 1;
        state.channel.push(Event {
            kind: event_type::RDMA_CM_EVENT_CONNECT_REQUEST,
            status: 0,
            id,
            listener: self.this.upgrade(),
            params: crossed(&greeting.params),
            private: greeting.private,
        });
    }
}

/// An accepted socket that has not said yet what it wants.
pub(super) struct Incoming {
    listener: Weak<Id>,
    state: Lock<IncomingState>,
    this: Weak<Incoming>,
}

#[derive(Default)]
struct IncomingState {
    socket: Option<OwnedFd>,
    token: Option<Token>,
    timer: Option<TimerKey>,
    inbox: Vec<u8>,
}

impl Incoming {
    fn new(listener: Weak<Id>) -> Arc<Self> {
        Arc::new_cyclic(|this| Incoming {
            listener,
            state: Lock::default(),
            this: Weak::clone(this),
        })
    }

    fn start(&self, socket: OwnedFd) -> Result<(), Errno> {
        let engine = engine()?;
        let this = self.this.upgrade().ok_or(Errno::INVAL)?;
        let mut state = self.state.lock();
        state.token = Some(engine.watch(&socket, Arc::clone(&this) as Arc<dyn Source>, false)?);
        state.socket = Some(socket);
        let this = this as Arc<dyn Source>;
        state.timer = Some(engine.after(GREETING_TIMEOUT, Arc::downgrade(&this), TIMER_PHASE));
        Ok(())
    }

    /// Takes the socket out of the engine's hands.
    fn take(&self, state: &mut IncomingState) -> Option<OwnedFd> {
        let socket = state.socket.take()?;
        if let Ok(engine) = engine() {
            if let Some(token) = state.token.take() {
                engine.unwatch(&socket, token);
            }
            if let Some(timer) = state.timer.take() {
                engine.cancel(timer);
            }
        }
        Some(socket)
    }

    pub(super) fn abort(&self) {
        let socket = self.take(&mut self.state.lock());
        end(socket);
    }

    fn finish(&self) {
        if let (Some(listener), Some(this)) = (self.listener.upgrade(), self.this.upgrade()) {
            listener.forget_greeting(&this);
        }
    }
}

impl Source for Incoming {
    fn ready(self: Arc<Self>, _readiness: Readiness, _driver: Driver) {
        let mut state = self.state.lock();
        let IncomingState { socket, inbox, .. } = &mut *state;
        let Some(open) = socket else {
            return;
        };
        let result = match read_greeting(open, inbox) {
            Ok(None) => return,
            result => result,
        };
        let socket = self.take(&mut state);
        drop(state);
        self.finish();
        let warn = |what: Arguments<'_>| {
            if let Some(listener) = self.listener.upgrade() {
                listener.refusals.warn(what);
            }
        };
        match (result, socket) {
            (Ok(Some(greeting)), Some(socket)) if greeting.kind == GreetingKind::Request => {
                if let Some(listener) = self.listener.upgrade() {
                    listener.requested(socket, &greeting);
                }
            }
            (Err(Refused::Bad(bad)), Some(socket)) => {
                warn(format_args!("a connection was refused: {bad}"));
                if matches!(bad, BadFrame::Version(_)) {
                    refuse(&socket, REASON_VERSION, PrivateData::default());
                }
            }
            (Ok(_), _) => warn(format_args!("a connection did not begin with a request")),
            _ => {}
        }
    }

    fn expired(self: Arc<Self>, _purpose: u32) {
        // When this process was held up, the greeting may be here in spite of the time.
        let readable = Readiness {
            readable: true,
            writable: false,
        };
        Arc::clone(&self).ready(readable, Driver::Engine);
        self.abort();
        self.finish();
    }
}
