// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The connection manager: addresses, listening, and the handshake, as librdmacm has them.
//!
//! An [`Id`] goes through the phases of a connection; what happens to it comes as events through
//! its channel. Until the handshake is over the socket belongs to the id; afterwards it carries
//! the traffic of the id's queue pair, which reports back through [`Observer`].
//!
//! An id's lock is taken after a queue pair's locks and before a channel's. So no function of a
//! queue pair that takes its locks is called with an id locked, except for connecting it: then
//! nobody else can be inside it.

use std::collections::VecDeque;
use std::fmt::Arguments;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Weak};
use std::time::{Duration, Instant};

use rdma_sys::rdma_cm_event_type as event_type;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, accept_with, bind,
    connect, getpeername, getsockname, listen, recv, send, shutdown, socket_with, sockopt,
};

use super::admission::{Admission, Admitted};
use super::carrier::Carrier;
use super::carrier::local::offer::{Choice, Found, Offer, is_one_host};
use super::carrier::tcp::Tcp;
use super::diag::{self, Shown};
use super::engine::{Driver, Readiness, Source, TimerKey, Token, engine};
use super::eventq::EventQueue;
use super::link::Agreement;
use super::qp::{Observer, Qp};
use super::sync::{Lock, wait_until};
use super::wire::{
    BadFrame, GREETING_LEN, Greeting, GreetingKind, Header, Kind, Meeting, Params, PrivateData,
    REJECT_PRIVATE_MAX, REPLY_PRIVATE_MAX, REQUEST_PRIVATE_MAX,
};

/// Most reads that a queue pair may have under way, in either direction.
pub(super) const MAX_READS: u8 = 128;
/// "As many as the device can", in connection parameters.
const READS_DEFAULT: u8 = 0xff;
/// How long the active side waits for a sign of life of the other side's fabric.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it then waits for the other side's program to decide.
const DECISION_TIMEOUT: Duration = Duration::from_secs(600);
/// How long the active side may take to say that it has the reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an accepted socket may take to say what it wants.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Undecided requests of one listener, if the program does not say.
const BACKLOG_DEFAULT: usize = 1024;
/// How long the peer may take to agree to the end of a connection.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause of a listener when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often the log is told of such pauses.
const PAUSE_TOLD_EVERY: Duration = Duration::from_secs(60);
/// How often the log is told of connections that are not allowed: whoever is not wanted shall not
/// fill it.
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
    /// When the log was told last that there is no descriptor for new connections.
    told_of_pause: Option<Instant>,
    /// When it was told last that a connection is not allowed, and of how many it was not told.
    told_of_refusal: Option<Instant>,
    untold_refusals: u64,
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

fn effective_reads(asked: u8) -> u8 {
    if asked == READS_DEFAULT {
        MAX_READS
    } else {
        asked.min(MAX_READS)
    }
}

fn new_socket(address: &SocketAddr, kind: SocketType) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, kind, flags, None)
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

fn local_address(fd: impl AsFd) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(getsockname(fd)?)
}

fn peer_address(fd: impl AsFd) -> Option<SocketAddr> {
    SocketAddr::try_from(getpeername(fd).ok()??).ok()
}

/// Ends a socket for all who hold it: a child that was forked may have it, too.
fn end(socket: Option<OwnedFd>) {
    if let Some(socket) = socket {
        // It may never have been connected.
        let _ = shutdown(&socket, Shutdown::Both);
    }
}

fn negated(error: Errno) -> i32 {
    -error.raw_os_error()
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
                told_of_pause: None,
                told_of_refusal: None,
                untold_refusals: 0,
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

    pub(super) fn resolve_address(
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
    pub(super) fn resolve_route(&self, timeout: Duration) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.phase != Phase::AddressResolved {
            return Err(Errno::INVAL);
        }
        state.phase = Phase::ResolvingRoute;
        self.set_timer(&mut state, timeout)?;
        self.dial(&mut state);
        Ok(())
    }

    pub(super) fn listen(&self, backlog: i32) -> Result<(), Errno> {
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

    /// Asks the other side for a connection.
    pub(super) fn connect(&self, given: ConnectParams<'_>) -> Result<(), Errno> {
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

    pub(super) fn accept(&self, given: ConnectParams<'_>) -> Result<(), Errno> {
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

    pub(super) fn reject(&self, private: &[u8]) -> Result<(), Errno> {
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

    /// A connect request was handed to the program.
    pub(super) fn request_delivered(&self) {
        let mut state = self.state.lock();
        state.undelivered = state.undelivered.saturating_sub(1);
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

    fn give_up(&self, state: &mut State, kind: u32, status: i32) {
        self.stop_timer(state);
        self.unwatch(state);
        end(state.socket.take());
        state.offer = None;
        state.phase = Phase::Over;
        say_of(state, format_args!("not connected (status {status})"));
        self.emit(state, kind, status);
    }

    /// Takes note of what the handshake's socket has to say, if anything.
    fn progress(&self, state: &mut State) {
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
                self.give_up(
                    state,
                    event_type::RDMA_CM_EVENT_CONNECT_ERROR,
                    negated(Errno::PROTO),
                );
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
                self.give_up(
                    state,
                    event_type::RDMA_CM_EVENT_CONNECT_ERROR,
                    negated(Errno::PROTO),
                );
                return;
            }
        }
        self.stop_timer(state);
        self.unwatch(state);
        let (Some(socket), Some(qp)) = (state.socket.take(), state.qp.clone()) else {
            self.give_up(
                state,
                event_type::RDMA_CM_EVENT_CONNECT_ERROR,
                negated(Errno::INVAL),
            );
            return;
        };
        let carrier: Arc<dyn Carrier> = match (state.offer.take(), greeting.meeting) {
            (Some(offer), Some(meeting)) => match offer.accepted(&meeting, socket) {
                Ok(local) => Arc::new(local),
                Err(_) => {
                    // The peer counts on memory that is not ours.
                    diag::warn(format_args!("a reply names memory that was not offered"));
                    self.give_up(
                        state,
                        event_type::RDMA_CM_EVENT_CONNECT_ERROR,
                        negated(Errno::PROTO),
                    );
                    return;
                }
            },
            _ if carrier_choice() == Ok(Choice::Local) => {
                diag::error(format_args!("{NO_LOCAL}"));
                self.give_up(
                    state,
                    event_type::RDMA_CM_EVENT_CONNECT_ERROR,
                    negated(Errno::OPNOTSUPP),
                );
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
            Err(e) => self.give_up(state, event_type::RDMA_CM_EVENT_CONNECT_ERROR, negated(e)),
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

    /// New sockets wait at the listener.
    fn accept_sockets(&self) {
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
                    let now = Instant::now();
                    let told = state.told_of_pause;
                    if told.is_none_or(|told| now.duration_since(told) >= PAUSE_TOLD_EVERY) {
                        state.told_of_pause = Some(now);
                        diag::warn(format_args!(
                            "no descriptor for a new connection: accepting pauses until there is one"
                        ));
                    }
                    return;
                }
                Err(Errno::AGAIN) => return,
                // That connection is gone already.
                Err(_) => continue,
            };
            if !self.is_allowed(&mut state, &socket) {
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
    fn is_allowed(&self, state: &mut State, socket: &OwnedFd) -> bool {
        let Some(peer) = peer_address(socket) else {
            // It is gone already.
            return false;
        };
        if state.admission.allows(peer.ip()) {
            return true;
        }
        let now = Instant::now();
        let told = state.told_of_refusal;
        if told.is_some_and(|told| now.duration_since(told) < REFUSAL_TOLD_EVERY) {
            state.untold_refusals += 1;
            return false;
        }
        state.told_of_refusal = Some(now);
        let more = std::mem::take(&mut state.untold_refusals);
        diag::warn(format_args!(
            "a connection from {} was refused: not in RPMA_SOFT_ALLOW ({more} more since the last such record)",
            peer.ip()
        ));
        false
    }

    fn resume_accepting(&self) {
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
            diag::warn(format_args!(
                "a connection request was dropped: backlog is full"
            ));
            refuse(&socket, REASON_CONSUMER, PrivateData::default());
            return;
        }
        let Some(admitted) = state.admission.admit() else {
            drop(state);
            diag::warn(format_args!(
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

/// An accepted socket that has not said yet what it wants.
struct Incoming {
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

    fn abort(&self) {
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
        match (result, socket) {
            (Ok(Some(greeting)), Some(socket)) if greeting.kind == GreetingKind::Request => {
                if let Some(listener) = self.listener.upgrade() {
                    listener.requested(socket, &greeting);
                }
            }
            (Err(Refused::Bad(bad)), Some(socket)) => {
                diag::warn(format_args!("a connection was refused: {bad}"));
                if matches!(bad, BadFrame::Version(_)) {
                    refuse(&socket, REASON_VERSION, PrivateData::default());
                }
            }
            (Ok(_), _) => diag::warn(format_args!("a connection did not begin with a request")),
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

fn own_params(given: &Params, qp: &Qp) -> Params {
    Params {
        responder_resources: effective_reads(given.responder_resources),
        initiator_depth: effective_reads(given.initiator_depth),
        retry_count: given.retry_count.min(7),
        rnr_retry_count: given.rnr_retry_count.min(7),
        qp_num: qp.num,
        ..*given
    }
}

/// The carrier that the program's user wants.
fn carrier_choice() -> Result<Choice, Errno> {
    let choice = Choice::get();
    if choice.is_err() {
        diag::error(format_args!(
            "RPMA_SOFT_CARRIER is none of auto, tcp, local"
        ));
    }
    choice
}

fn tcp(state: &State, socket: OwnedFd, peer: &Params) -> Tcp {
    Tcp::new(socket, state.own.retry_count.max(peer.retry_count))
}

/// The peer's parameters as the program sees them: what the peer initiates is what it responds to.
fn crossed(peer: &Params) -> Params {
    Params {
        responder_resources: peer.initiator_depth,
        initiator_depth: peer.responder_resources,
        ..*peer
    }
}

/// Sends a greeting. Greetings are the first that is sent, so they fit the socket's buffer.
fn greet(socket: &OwnedFd, greeting: &Greeting) -> Result<(), Errno> {
    let mut bytes = Vec::new();
    greeting.encode(&mut bytes);
    match send(socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(n) if n == bytes.len() => Ok(()),
        Ok(_) => Err(Errno::NOBUFS),
        Err(e) => Err(e),
    }
}

fn refuse(socket: &OwnedFd, reason: u16, private: PrivateData) {
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
enum Refused {
    Closed(Errno),
    Bad(BadFrame),
}

/// Reads no more than the greeting; what follows belongs to the queue pair.
fn read_greeting(socket: &OwnedFd, inbox: &mut Vec<u8>) -> Result<Option<Greeting>, Refused> {
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
