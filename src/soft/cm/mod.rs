// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The connection manager: addresses, listening, and the handshake, as librdmacm has them.
//!
//! An [`Id`] goes through the phases of a connection; what happens to it comes as events through
//! its channel. Until the handshake is over the socket belongs to the id; afterwards it carries
//! the traffic of the id's queue pair, which reports back through [`Observer`].
//!
//! The two sides go through the handshake in their own ways ([`active`], [`passive`]) with the same
//! means ([`handshake`]). Here is what an id is, and how a connection ends.
//!
//! An id's lock is taken after a queue pair's locks and before a channel's. So no function of a
//! queue pair that takes its locks is called with an id locked, except for connecting it: then
//! nobody else can be inside it.

mod active;
mod handshake;
mod passive;

use std::collections::VecDeque;
use std::fmt::Arguments;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Weak};
use std::time::Duration;

use rdma_sys::rdma_cm_event_type as event_type;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SocketType, bind, sockopt};

use handshake::{end, local_address, new_socket, refuse};
use passive::Incoming;

use super::admission::{Admission, Admitted};
use super::carrier::Carrier;
use super::carrier::local::offer::{Offer, is_one_host};
use super::diag::{self, Shown};
use super::engine::{Driver, Readiness, Source, TimerKey, Token, engine};
use super::eventq::EventQueue;
use super::link::{Agreement, FLUSH_LOOK};
use super::qp::{Observer, Qp};
use super::rarely::Rarely;
use super::sync::{Lock, wait_until};
use super::wire::{Header, Meeting, Params, PrivateData};

/// Most reads that a queue pair may have under way, in either direction.
pub(super) const MAX_READS: u8 = 128;
/// How long the peer may take to agree to the end of a connection.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the log is told that a listener pauses.
const PAUSE_TOLD_EVERY: Duration = Duration::from_secs(60);
/// How often it is told of connections that do not come about: whoever is not wanted shall not fill it.
const REFUSAL_TOLD_EVERY: Duration = Duration::from_secs(1);

/// Reject reasons as on InfiniBand.
const REASON_NO_LISTENER: u16 = 8;
const REASON_CONSUMER: u16 = 28;
const REASON_VERSION: u16 = 31;

/// Why a connection is not made though the two have found each other.
const NO_LOCAL: &str = "RPMA_SOFT_CARRIER=local, but the two processes cannot share memory";

/// Purposes of timers.
const TIMER_PHASE: u32 = 1;
const TIMER_ACCEPT: u32 = 2;

/// What happened to an id.
pub(super) struct Event {
    pub kind: u32,
    pub status: i32,
    pub id: Arc<Id>,
    /// Where a connect request came in.
    pub listener: Option<Arc<Id>>,
    pub params: Params,
    pub private: PrivateData,
}

impl Event {
    /// Whom an acknowledgment is owed to.
    pub(super) fn owner(&self) -> &Arc<Id> {
        self.listener.as_ref().unwrap_or(&self.id)
    }
}

pub(super) type EventChannel = EventQueue<Event>;

/// Where an id is in the life of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Bound,
    Listening,
    AddressResolved,
    /// Finding out whether the host can be reached.
    ResolvingRoute,
    RouteResolved,
    /// Making the transport connection.
    Dialing,
    /// The request is sent.
    Requested,
    /// A request came in; the program has to decide.
    Undecided,
    /// The reply is sent.
    Accepted,
    Connected,
    /// The program asked for the end.
    Leaving,
    /// The connection was refused, broken or ended.
    Over,
    Destroyed,
}

struct State {
    phase: Phase,
    channel: Arc<EventChannel>,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
    /// Whom a listener lets in.
    admission: Admission,
    /// The place of a connection that came in.
    admitted: Option<Admitted>,
    /// The program chose the own address.
    pinned: bool,
    /// Bound, and listening if the id is.
    bound: Option<OwnedFd>,
    /// Handshake under way.
    socket: Option<OwnedFd>,
    token: Option<Token>,
    timer: Option<TimerKey>,
    /// The socket was opened before it was needed; the other side may have given it up.
    early: bool,
    /// What has arrived of the other side's greeting.
    inbox: Vec<u8>,
    own: Params,
    own_private: PrivateData,
    /// Shared memory that the request offers.
    offer: Option<Offer>,
    peer: Params,
    /// Shared memory that the peer's request offers.
    peer_meeting: Option<Meeting>,
    qp: Option<Arc<Qp>>,
    /// The queue pair whose traffic the connection carries, even after it was destroyed.
    link: Option<Arc<Qp>>,
    greetings: VecDeque<Arc<Incoming>>,
    backlog: usize,
    undelivered: usize,
}

impl State {
    fn is_one_host(&self) -> bool {
        match (&self.source, &self.destination) {
            (Some(source), Some(destination)) => is_one_host(source, destination),
            _ => false,
        }
    }
}

/// Events that were handed out and those that were acknowledged.
#[derive(Default)]
struct Counts {
    delivered: u64,
    acknowledged: u64,
}

/// A communication identifier.
pub(super) struct Id {
    state: Lock<State>,
    /// What the log is told of a listener: that there is no descriptor for new connections, and which
    /// connections do not come about.
    pauses: Rarely,
    refusals: Rarely,
    counts: Lock<Counts>,
    all_acknowledged: Condvar,
    /// Address of the C object, 0 while there is none.
    handle: AtomicUsize,
    this: Weak<Id>,
}

/// What the program gives for connecting or accepting.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectParams<'a> {
    pub params: Params,
    pub private: &'a [u8],
}

impl Id {
    pub(super) fn new(channel: Arc<EventChannel>) -> Arc<Self> {
        Self::with_phase(channel, Phase::Idle)
    }

    fn with_phase(channel: Arc<EventChannel>, phase: Phase) -> Arc<Self> {
        Arc::new_cyclic(|this| Id {
            state: Lock::new(State {
                phase,
                channel,
                source: None,
                destination: None,
                admission: Admission::default(),
                admitted: None,
                pinned: false,
                bound: None,
                socket: None,
                token: None,
                timer: None,
                early: false,
                inbox: Vec::new(),
                own: Params::default(),
                own_private: PrivateData::default(),
                offer: None,
                peer: Params::default(),
                peer_meeting: None,
                qp: None,
                link: None,
                greetings: VecDeque::new(),
                backlog: 0,
                undelivered: 0,
            }),
            pauses: Rarely::new(PAUSE_TOLD_EVERY),
            refusals: Rarely::new(REFUSAL_TOLD_EVERY),
            counts: Lock::default(),
            all_acknowledged: Condvar::new(),
            handle: AtomicUsize::new(0),
            this: Weak::clone(this),
        })
    }

    pub(super) fn handle(&self) -> usize {
        self.handle.load(Ordering::Acquire)
    }

    pub(super) fn set_handle(&self, address: usize) {
        self.handle.store(address, Ordering::Release);
    }

    /// Own and peer's address, as far as they are known.
    pub(super) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let state = self.state.lock();
        (state.source, state.destination)
    }

    /// Gives the id a queue pair to connect.
    pub(super) fn attach_qp(&self, qp: Arc<Qp>) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.qp.as_ref().is_some_and(|old| !old.is_destroyed()) {
            return Err(Errno::INVAL);
        }
        state.qp = Some(qp);
        Ok(())
    }

    pub(super) fn detach_qp(&self) -> Option<Arc<Qp>> {
        self.state.lock().qp.take()
    }

    /// Binds the id to an own address.
    pub(super) fn bind(&self, address: SocketAddr) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.phase != Phase::Idle {
            return Err(Errno::INVAL);
        }
        let socket = new_socket(&address, SocketType::STREAM)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &address)?;
        state.source = Some(local_address(&socket)?);
        state.bound = Some(socket);
        state.pinned = true;
        state.phase = Phase::Bound;
        Ok(())
    }

    pub(super) fn disconnect(&self) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let link = state.link.clone();
        match state.phase {
            Phase::Connected | Phase::Accepted => {
                state.phase = Phase::Leaving;
                say_of(&state, format_args!("disconnecting, as this side asks"));
                let timer = self.set_timer(&mut state, DISCONNECT_TIMEOUT);
                drop(state);
                if let Some(link) = link {
                    link.disconnect();
                }
                timer
            }
            Phase::Leaving | Phase::Over => {
                let qp = state.qp.clone();
                drop(state);
                if let Some(qp) = qp {
                    qp.fail();
                }
                Ok(())
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// Moves the id and its events to another channel.
    pub(super) fn migrate(&self, channel: Arc<EventChannel>) {
        let mut state = self.state.lock();
        let old = std::mem::replace(&mut state.channel, Arc::clone(&channel));
        for event in old.remove(|e| std::ptr::eq(&**e.owner(), self)) {
            if !std::ptr::eq(&*event.id, self) {
                // What else comes for a request comes where the request does.
                event.id.state.lock().channel = Arc::clone(&channel);
            }
            channel.push(event);
        }
    }

    /// Ends whatever the id is at, drops events nobody fetched, and waits until the others are
    /// acknowledged.
    pub(super) fn destroy(&self) {
        let mut state = self.state.lock();
        let phase = std::mem::replace(&mut state.phase, Phase::Destroyed);
        self.stop_timer(&mut state);
        self.unwatch(&mut state);
        state.admitted = None;
        let socket = state.socket.take();
        let bound = state.bound.take();
        let link = state.link.take();
        let greetings = std::mem::take(&mut state.greetings);
        let qp = state.qp.take();
        let channel = Arc::clone(&state.channel);
        drop(state);
        if phase == Phase::Undecided
            && let Some(socket) = &socket
        {
            refuse(socket, REASON_CONSUMER, PrivateData::default());
        }
        end(socket);
        end(bound);
        drop(qp);
        for incoming in greetings {
            incoming.abort();
        }
        if let Some(link) = link {
            if matches!(phase, Phase::Connected | Phase::Accepted) {
                link.disconnect();
            }
            link.close();
        }
        let purged = channel.remove(|e| {
            std::ptr::eq(&*e.id, self)
                || e.listener.as_deref().is_some_and(|l| std::ptr::eq(l, self))
        });
        for event in purged {
            if event.listener.is_some() && !std::ptr::eq(&*event.id, self) {
                // A request that nobody will see.
                event.id.destroy();
            }
        }
        let counts = self.counts.lock();
        drop(wait_until(&self.all_acknowledged, counts, |c| {
            c.acknowledged >= c.delivered
        }));
    }

    /// Counts an event that is handed to the program. Called while it is taken off its channel.
    pub(super) fn delivered(&self) {
        self.counts.lock().delivered += 1;
    }

    pub(super) fn acknowledged(&self) {
        self.counts.lock().acknowledged += 1;
        self.all_acknowledged.notify_all();
    }

    fn emit(&self, state: &State, kind: u32, status: i32) {
        self.emit_with(
            state,
            kind,
            status,
            Params::default(),
            PrivateData::default(),
        );
    }

    fn emit_with(
        &self,
        state: &State,
        kind: u32,
        status: i32,
        params: Params,
        private: PrivateData,
    ) {
        if state.phase == Phase::Destroyed {
            return;
        }
        if let Some(id) = self.this.upgrade() {
            state.channel.push(Event {
                kind,
                status,
                id,
                listener: None,
                params,
                private,
            });
        }
    }

    fn set_timer(&self, state: &mut State, delay: Duration) -> Result<(), Errno> {
        self.stop_timer(state);
        let this = self.this.upgrade().ok_or(Errno::INVAL)? as Arc<dyn Source>;
        state.timer = Some(engine()?.after(delay, Arc::downgrade(&this), TIMER_PHASE));
        Ok(())
    }

    fn stop_timer(&self, state: &mut State) {
        if let (Some(timer), Ok(engine)) = (state.timer.take(), engine()) {
            engine.cancel(timer);
        }
    }

    fn unwatch(&self, state: &mut State) {
        let fd = state.socket.as_ref().or(state.bound.as_ref());
        if let (Some(token), Some(fd), Ok(engine)) = (state.token.take(), fd, engine()) {
            engine.unwatch(fd, token);
        }
    }

    /// Gives the carrier to the queue pair: the handshake is over.
    fn hand_over(
        &self,
        state: &mut State,
        qp: &Arc<Qp>,
        carrier: Arc<dyn Carrier>,
        peer: &Params,
        first: Option<Header>,
    ) -> Result<(), Errno> {
        let agreement = Agreement {
            peer_num: peer.qp_num,
            initiator_depth: state.own.initiator_depth.min(peer.responder_resources),
            responder_resources: state.own.responder_resources,
            rnr_retry: peer.rnr_retry_count,
        };
        let observer: Weak<Id> = Weak::clone(&self.this);
        qp.set_observer(observer);
        let name = carrier.name();
        diag::debug(format_args!(
            "QP {}: connected to QP {} of the peer, by {}",
            qp.num, peer.qp_num, name
        ));
        qp.stats
            .connected(state.source, state.destination, peer.qp_num, name);
        qp.connect(carrier, &agreement, first)?;
        state.link = Some(Arc::clone(qp));
        Ok(())
    }

    fn give_up(&self, state: &mut State, kind: u32, status: i32) {
        self.stop_timer(state);
        self.unwatch(state);
        end(state.socket.take());
        state.offer = None;
        state.phase = Phase::Over;
        say_of(state, format_args!("not connected (status {status})"));
        self.emit(state, kind, status);
    }

    fn phase_expired(&self) {
        let mut state = self.state.lock();
        // A timer that was under way when it was taken back means an earlier phase.
        if !state.timer.is_some_and(TimerKey::is_due) {
            return;
        }
        // When this process was held up, the answer may be here in spite of the time.
        self.progress(&mut state);
        if !state.timer.is_some_and(TimerKey::is_due) {
            return;
        }
        state.timer = None;
        // Whoever would close the link would wait for the end of its flush, and this may be the only
        // thread that serves the others meanwhile.
        if state.link.as_ref().is_some_and(|link| link.is_flushing()) {
            let _ = self.set_timer(&mut state, FLUSH_LOOK);
            return;
        }
        match state.phase {
            Phase::ResolvingRoute => {
                self.unwatch(&mut state);
                state.socket = None;
                state.phase = Phase::AddressResolved;
                self.emit(
                    &state,
                    event_type::RDMA_CM_EVENT_ROUTE_ERROR,
                    negated(Errno::TIMEDOUT),
                );
            }
            Phase::Dialing | Phase::Requested => self.give_up(
                &mut state,
                event_type::RDMA_CM_EVENT_UNREACHABLE,
                negated(Errno::TIMEDOUT),
            ),
            Phase::Accepted => {
                let link = state.link.clone();
                self.give_up(
                    &mut state,
                    event_type::RDMA_CM_EVENT_UNREACHABLE,
                    negated(Errno::TIMEDOUT),
                );
                drop(state);
                if let Some(link) = link {
                    link.fail();
                    link.close();
                }
            }
            Phase::Leaving => {
                let link = state.link.clone();
                state.phase = Phase::Over;
                self.emit(&state, event_type::RDMA_CM_EVENT_DISCONNECTED, 0);
                drop(state);
                if let Some(link) = link {
                    link.close();
                }
            }
            _ => {}
        }
    }

    /// The connection has ended, one way or the other.
    fn ended(&self, why: &str) {
        let mut state = self.state.lock();
        if matches!(
            state.phase,
            Phase::Accepted | Phase::Connected | Phase::Leaving
        ) {
            say_of(&state, format_args!("disconnected: {why}"));
        }
        match state.phase {
            Phase::Accepted => {
                self.stop_timer(&mut state);
                state.phase = Phase::Over;
                self.emit(
                    &state,
                    event_type::RDMA_CM_EVENT_REJECTED,
                    i32::from(REASON_CONSUMER),
                );
            }
            Phase::Connected | Phase::Leaving => {
                self.stop_timer(&mut state);
                state.phase = Phase::Over;
                self.emit(&state, event_type::RDMA_CM_EVENT_DISCONNECTED, 0);
            }
            _ => {}
        }
    }
}

impl Source for Id {
    fn ready(self: Arc<Self>, _readiness: Readiness, driver: Driver) {
        let mut state = if driver.waits() {
            self.state.lock()
        } else {
            match self.state.try_lock() {
                Some(state) => state,
                None => return,
            }
        };
        match state.phase {
            Phase::Listening => {
                drop(state);
                self.accept_sockets();
            }
            _ => self.progress(&mut state),
        }
    }

    fn expired(self: Arc<Self>, purpose: u32) {
        match purpose {
            TIMER_ACCEPT => self.resume_accepting(),
            _ => self.phase_expired(),
        }
    }
}

impl Observer for Id {
    fn established(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Accepted {
            self.stop_timer(&mut state);
            state.phase = Phase::Connected;
            say_of(&state, format_args!("established"));
            self.emit(&state, event_type::RDMA_CM_EVENT_ESTABLISHED, 0);
        }
    }

    fn disconnect_requested(&self) {
        self.ended("the peer asks for it");
    }

    fn disconnected(&self) {
        self.ended("the peer has agreed");
    }

    fn lost(&self) {
        self.ended("the peer, or the way to it, is gone");
    }
}

/// Tells what happens to a connection.
fn say_of(state: &State, what: Arguments<'_>) {
    let num = state
        .link
        .as_ref()
        .or(state.qp.as_ref())
        .map_or(0, |qp| qp.num);
    diag::debug(format_args!(
        "QP {num}: {what} (peer: QP {} at {})",
        state.peer.qp_num,
        Shown(state.destination)
    ));
}

fn negated(error: Errno) -> i32 {
    -error.raw_os_error()
}
