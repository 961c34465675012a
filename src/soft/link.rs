// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The traffic of a queue pair: frames out of its queues onto the carrier, and from the carrier
//! into the program's memory.
//!
//! Sending happens in whatever thread has something to send, straight from registered memory;
//! receiving happens in the engine's thread or in one that polls or leads, straight into registered
//! memory, except for small payloads that came along with a header.
//!
//! Locks are taken in the order: receiving side, sending side, receive queue, completion queue.

use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::carrier::Carrier;
use super::carrier::lending::{Purpose, Reference};
use super::cq::Overrun;
use super::delayed::Due;
use super::diag;
use super::engine::{Driver, Readiness, Source, Token, engine};
use super::leader::LongFlushes;
use super::mem::{self, Borrowed, Scratch};
use super::mr::{Region, RegionUse, access};
use super::persist::LONG_FLUSH;
use super::qp::{Qp, state};
use super::recvq::{Receive, Sge};
use super::requester::{RequestFrame, Requester, Source as Piece, Status, Violation, clip};
use super::responder::{Inbound, ReadJob, Replies, Verdict};
use super::wire::{self, HEADER_LEN, Header, Kind, NakCode, REFERENCE_LEN};

/// Frames that are prepared for one call of the carrier.
const OUT_MAX: usize = 64;
/// Parts of a gather or scatter list.
const IOV_MAX: usize = 192;
/// Largest scatter/gather list of a work request.
pub(super) const SGE_MAX: usize = 32;
/// Bytes that are sent in one go before others get their turn, in the program and in the engine.
const PUMP_MAX: usize = 8 << 20;
/// A flush of so much may take the peer longer than it may otherwise be silent.
const PATIENT_FLUSH: u64 = 4 << 10;
/// How often a timer that expires during such a flush looks for its end.
const FLUSH_LOOK: Duration = Duration::from_millis(100);
/// Rounds of receiving before other connections get their turn.
const ROUNDS: usize = 16;
/// How long a target may lack a receive, for each retry that the requester grants; the timer
/// value that the connection manager sets on hardware means this.
const RNR_TIMER: Duration = Duration::from_micros(655_360);
/// "For ever", as RNR retry count.
const RNR_FOREVER: u8 = 7;

/// Payload up to this length is not worth a system call that copies it, where one is not needed.
const SHORT: u64 = LEND_MIN as u64;
/// Looks whether such payload is there that cost less than to have the kernel copy all.
const SHORT_LOOKS: u32 = 3;
/// Payload from this length on is fetched by the receiver where it can.
const LEND_MIN: u32 = 16 << 10;

const ZEROS: [u8; 4096] = [0; 4096];

/// A gather or scatter list that is kept to be filled again.
#[derive(Default)]
struct IoList(Vec<libc::iovec>);

// SAFETY: the pointers are used only between filling the list and the call right after it.
unsafe impl Send for IoList {}

impl IoList {
    fn push(&mut self, addr: u64, len: usize) {
        self.0.push(libc::iovec {
            iov_base: addr as *mut libc::c_void,
            iov_len: len,
        });
    }

    /// Adds registered memory and holds its region; false if it is not there.
    fn push_held(
        &mut self,
        uses: &mut Vec<RegionUse>,
        region: Option<Arc<Region>>,
        addr: u64,
        len: u64,
        probe: bool,
    ) -> bool {
        let Some(guard) = region.and_then(|r| r.enter()) else {
            return false;
        };
        if probe && !mem::is_readable(addr, len) {
            return false;
        }
        uses.push(guard);
        self.push(addr, len as usize);
        true
    }
}

/// Where a frame's payload comes from.
enum Payload {
    None,
    /// Part of a request, from an offset in it.
    Request(u64, u64),
    /// A region of ours that the peer reads.
    Region(Arc<Region>, u64),
    /// The region went away in mid-frame; a failure follows the frame.
    Zeros,
}

/// A frame on its way out.
struct OutFrame {
    bytes: [u8; HEADER_LEN + REFERENCE_LEN],
    /// How many of them there are: the header, and a reference if there is one.
    head: usize,
    kind: Kind,
    seq: u32,
    last: bool,
    payload: Payload,
    len: usize,
    /// Memory that the receiver fetches by itself.
    loan: Option<u64>,
    /// Bytes of header and payload that the carrier has taken.
    sent: usize,
    /// Index of the request, unless it has to be sent again anyway.
    request: Option<u64>,
}

impl OutFrame {
    fn new(header: &Header, payload: Payload, request: Option<u64>) -> Self {
        let mut bytes = [0; HEADER_LEN + REFERENCE_LEN];
        if let Some(start) = bytes.first_chunk_mut() {
            *start = header.encode();
        }
        OutFrame {
            bytes,
            head: HEADER_LEN,
            kind: header.kind,
            seq: header.seq,
            last: header.is_last(),
            payload,
            len: header.payload_len() as usize,
            loan: None,
            sent: 0,
            request,
        }
    }

    /// A frame whose payload the receiver fetches.
    fn by_reference(mut header: Header, reference: Reference, request: Option<u64>) -> Self {
        header.code = wire::BY_REFERENCE;
        let mut frame = OutFrame::new(&header, Payload::None, request);
        if let Some(end) = frame.bytes.last_chunk_mut() {
            *end = reference.encode();
        }
        frame.head = frame.bytes.len();
        frame.len = 0;
        frame.loan = Some(reference.loan);
        frame
    }

    fn is_started(&self) -> bool {
        self.sent > 0
    }
}

/// The sending side.
pub(super) struct Tx {
    pub(super) requester: Requester,
    pub(super) replies: Replies,
    control: VecDeque<Header>,
    out: VecDeque<OutFrame>,
    carrier: Option<Arc<dyn Carrier>>,
    token: Option<Token>,
    /// The carrier takes nothing now; the engine says when it does again.
    blocked: bool,
    /// A frame that was begun cannot be finished, so the stream cannot go on.
    broken: bool,
    /// The carrier takes nothing any more. What has arrived before is still read; its end ends the
    /// connection.
    deaf: bool,
    /// The peer has said that it leaves: requests cannot be executed any more.
    peer_left: bool,
    /// In error: the requests complete, the first with this status, once no frame of theirs is
    /// half sent.
    flush_with: Option<Status>,
    /// Request of the peer whose memory went away while it was answered.
    reply_fault: Option<u32>,
    /// Check memory before it goes into a list, because the carrier met a fault.
    probe: bool,
    /// Data for a read were prepared last: a request may come next.
    requests_next: bool,
    rnr_retry: u8,
    rnr_deadline: Option<Instant>,
    /// The newest flush that may take the peer long.
    long_flush: Option<u64>,
    list: IoList,
    uses: Vec<RegionUse>,
}

/// What became of an attempt to send.
enum Sent {
    Some(usize),
    Blocked,
    Broken,
    /// The first frame's memory is not there.
    Fault,
}

impl Tx {
    pub(super) fn new(requester: Requester) -> Self {
        Tx {
            requester,
            replies: Replies::default(),
            control: VecDeque::new(),
            out: VecDeque::new(),
            carrier: None,
            token: None,
            blocked: false,
            broken: false,
            deaf: false,
            peer_left: false,
            flush_with: None,
            reply_fault: None,
            probe: false,
            requests_next: false,
            rnr_retry: RNR_FOREVER,
            rnr_deadline: None,
            long_flush: None,
            list: IoList::default(),
            uses: Vec::new(),
        }
    }

    /// Whether a call of the carrier costs so much that small requests had better share one.
    pub(super) fn is_sending_dear(&self) -> bool {
        self.carrier
            .as_ref()
            .is_some_and(|carrier| !carrier.is_polled())
    }

    pub(super) fn is_flush_pending(&self) -> bool {
        self.flush_with.is_some()
    }

    /// Whether nothing is to be sent but, at most, an acknowledgment.
    fn is_acknowledgment_all(&self) -> bool {
        self.out.is_empty()
            && self.control.is_empty()
            && self.requester.is_all_sent()
            && self.replies.is_acknowledgment_all()
    }

    /// Whether a frame of a request is half sent, so that its memory is still needed.
    fn is_request_half_sent(&self) -> bool {
        self.out
            .front()
            .is_some_and(|f| f.is_started() && matches!(f.payload, Payload::Request(..)))
    }

    /// Prepares frames, answers and requests in turn.
    fn fill(&mut self, error: bool, domain: u64) {
        while self.out.len() < OUT_MAX {
            if let Some(header) = self.control.front().copied() {
                // The end of a connection comes after what is still owed, its beginning first.
                if header.kind == Kind::ReadyToUse || !self.fill_reply() {
                    self.control.pop_front();
                    self.out
                        .push_back(OutFrame::new(&header, Payload::None, None));
                }
                continue;
            }
            // An acknowledgment comes before anything that the program posts after it has seen
            // what is acknowledged. Data that were asked for share the stream with requests.
            let request_first = std::mem::take(&mut self.requests_next);
            let pushed = (request_first && self.fill_request(error, domain))
                || self.fill_reply()
                || self.fill_request(error, domain);
            if !pushed {
                return;
            }
        }
    }

    fn fill_reply(&mut self) -> bool {
        let Some(frame) = self.replies.next_frame() else {
            return false;
        };
        let mut payload = Payload::None;
        if let Some((region, addr)) = frame.source {
            self.requests_next = true;
            if let Some(reference) = self.lend(&frame.header, &region, addr, Purpose::Answer) {
                self.out
                    .push_back(OutFrame::by_reference(frame.header, reference, None));
                return true;
            }
            payload = Payload::Region(region, addr);
        }
        self.out
            .push_back(OutFrame::new(&frame.header, payload, None));
        true
    }

    /// Lends a frame's payload, if it is worth while and the receiver can fetch it.
    fn lend(
        &self,
        header: &Header,
        region: &Arc<Region>,
        addr: u64,
        purpose: Purpose,
    ) -> Option<Reference> {
        if header.len < LEND_MIN {
            return None;
        }
        let carrier = self.carrier.as_ref()?;
        let lending = carrier.lending()?;
        let guard = region.enter()?;
        let reference = lending.lend(addr, purpose)?;
        region.lent(&guard, carrier, reference.loan);
        Some(reference)
    }

    /// The same for a request's payload, which must be in one piece.
    fn lend_request(&self, frame: &RequestFrame, domain: u64) -> Option<Reference> {
        let len = frame.header.len;
        if len < LEND_MIN || self.carrier.as_ref()?.lending().is_none() {
            return None;
        }
        let mut whole = None;
        self.requester
            .pieces(frame.index, frame.offset, u64::from(len), |piece| {
                whole = match piece {
                    Piece::Registered(sge) if sge.len == len => Some(sge),
                    _ => None,
                };
                false
            });
        let Sge { addr, lkey, .. } = whole?;
        let region = Region::find(lkey, domain, addr, u64::from(len), 0).ok()?;
        self.lend(&frame.header, &region, addr, Purpose::Request)
    }

    fn fill_request(&mut self, error: bool, domain: u64) -> bool {
        if error || self.peer_left {
            return false;
        }
        let Some(frame) = self.requester.next_frame() else {
            return false;
        };
        if is_disk_flush(&frame.header, PATIENT_FLUSH)
            && self.long_flush.replace(frame.index).is_none()
            && let Some(carrier) = &self.carrier
        {
            carrier.be_patient(true);
        }
        if let Some(reference) = self.lend_request(&frame, domain) {
            let frame = OutFrame::by_reference(frame.header, reference, Some(frame.index));
            self.out.push_back(frame);
            return true;
        }
        let payload = if frame.header.payload_len() > 0 {
            Payload::Request(frame.index, frame.offset)
        } else {
            Payload::None
        };
        self.out
            .push_back(OutFrame::new(&frame.header, payload, Some(frame.index)));
        true
    }

    /// Hands prepared frames to the carrier.
    fn transmit(&mut self, carrier: &dyn Carrier, domain: u64) -> Sent {
        let Tx {
            requester,
            out,
            list,
            uses,
            probe,
            ..
        } = self;
        list.0.clear();
        uses.clear();
        let mut usable = true;
        // All of the list is known to be there, so that it can be copied without the kernel.
        let mut own = true;
        let mut looks = if carrier.is_polled() { SHORT_LOOKS } else { 0 };
        let mut is_short = |addr, len| {
            own &= looks > 0 && len <= SHORT && mem::is_readable_short(addr, len);
            looks -= u32::from(own);
            own
        };
        for frame in out.iter() {
            if list.0.len() + 1 + SGE_MAX > IOV_MAX {
                break;
            }
            let (parts, held) = (list.0.len(), uses.len());
            if let Some(rest) = frame.bytes.get(frame.sent..frame.head) {
                list.push(rest.as_ptr() as u64, rest.len());
            }
            let skip = frame.sent.saturating_sub(frame.head);
            let left = (frame.len - skip) as u64;
            match &frame.payload {
                Payload::None => {}
                Payload::Request(index, offset) => {
                    requester.pieces(*index, offset + skip as u64, left, |piece| {
                        usable = match piece {
                            Piece::Registered(sge) => {
                                let len = u64::from(sge.len);
                                let region = Region::find(sge.lkey, domain, sge.addr, len, 0);
                                let probe = !is_short(sge.addr, len) && *probe;
                                list.push_held(uses, region.ok(), sge.addr, len, probe)
                            }
                            Piece::Inline(at, len) => {
                                list.push(at as u64, len);
                                true
                            }
                        };
                        usable
                    });
                }
                Payload::Region(region, addr) => {
                    let region = Some(Arc::clone(region));
                    let addr = addr + skip as u64;
                    let probe = !is_short(addr, left) && *probe;
                    usable &= list.push_held(uses, region, addr, left, probe);
                }
                Payload::Zeros => {
                    // Not all at once: that may be more than the list holds.
                    list.push(ZEROS.as_ptr() as u64, ZEROS.len().min(left as usize));
                    if left as usize > ZEROS.len() {
                        break;
                    }
                }
            }
            if !usable {
                list.0.truncate(parts);
                uses.truncate(held);
                break;
            }
        }
        if list.0.is_empty() {
            uses.clear();
            return if usable { Sent::Some(0) } else { Sent::Fault };
        }
        // SAFETY: every part is a header or inline data of ours, or registered memory whose use is
        // held in `uses`; if `own` is set, the kernel has just found that it can be read. A program
        // that takes it away in between without deregistering it dies as if it had copied itself.
        let result = unsafe { carrier.send(&list.0, own) };
        uses.clear();
        match result {
            Ok(n) => {
                *probe = false;
                self.consume(n);
                Sent::Some(n)
            }
            Err(Errno::AGAIN) => Sent::Blocked,
            Err(Errno::INTR) => Sent::Some(0),
            Err(Errno::FAULT) if !*probe => {
                // Somewhere in the list; look at each part in the next attempt.
                *probe = true;
                Sent::Some(0)
            }
            Err(_) => Sent::Broken,
        }
    }

    /// Takes note of bytes that the carrier has taken.
    fn consume(&mut self, mut n: usize) {
        while n > 0 {
            let Some(front) = self.out.front_mut() else {
                return;
            };
            let left = front.head + front.len - front.sent;
            if n < left {
                front.sent += n;
                return;
            }
            n -= left;
            if let Some(index) = front.request
                && front.last
            {
                self.requester.mark_sent(index);
            }
            self.out.pop_front();
        }
    }

    /// The memory of the first prepared frame is not there.
    fn front_fault(&mut self) {
        self.probe = false;
        let Some(front) = self.out.front_mut() else {
            return;
        };
        let started = front.is_started();
        match front.payload {
            Payload::Request(index, _) => {
                self.requester.fail(index, Status::LocalProtection);
                if started {
                    // What the peer was promised cannot be sent.
                    self.broken = true;
                } else {
                    self.drop_requests();
                }
            }
            Payload::Region(..) => {
                let seq = front.seq;
                front.payload = Payload::Zeros;
                self.replies.abandon_reads(seq);
                self.reply_fault = Some(seq);
                let mut first = started;
                self.out.retain(|f| {
                    // The half-sent frame stays; answers after it are not true any more.
                    std::mem::take(&mut first) || !matches!(f.kind, Kind::ReadData | Kind::Ack)
                });
            }
            _ => {}
        }
    }

    /// The program may use the memory of its requests for something else now.
    fn take_back_requests(&self) {
        let carrier = self.carrier.as_ref();
        if let Some(lending) = carrier.and_then(|carrier| carrier.lending()) {
            lending.take_back_requests();
        }
    }

    /// Drops prepared requests that are not begun; they are prepared again, or never.
    fn drop_requests(&mut self) {
        let carrier = self.carrier.as_ref();
        let lending = carrier.and_then(|carrier| carrier.lending());
        self.out.retain(|f| {
            let keep = f.is_started() || f.request.is_none();
            if let (false, Some(loan), Some(lending)) = (keep, f.loan, lending) {
                lending.take_back(loan);
            }
            keep
        });
        if let Some(front) = self.out.front_mut() {
            front.request = None;
        }
    }
}

/// What is done with the payload of the current frame.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Target {
    #[default]
    Drop,
    Place,
}

/// A part of registered memory that payload goes to.
struct Part {
    region: Arc<Region>,
    addr: u64,
    len: u64,
}

/// The receiving side.
#[derive(Default)]
pub(super) struct Rx {
    stash: [u8; HEADER_LEN],
    stashed: usize,
    header: Option<Header>,
    /// Payload bytes of the current frame that were not received, and that were.
    left: usize,
    done: u64,
    target: Target,
    /// The program was given a message.
    delivered: bool,
    /// Frames may have references.
    can_fetch: bool,
    /// The current frame has a reference instead of its payload.
    lent: bool,
    reference: [u8; REFERENCE_LEN],
    parts: Vec<Part>,
    inbound: Inbound,
    receive: Receive,
    /// `receive` belongs to the current message.
    receiving: bool,
    /// The connection is over.
    closed: bool,
    list: IoList,
    uses: Vec<RegionUse>,
}

impl Rx {
    /// What is left of the current frame's payload is dropped.
    fn drop_payload(&mut self) {
        self.target = Target::Drop;
        self.parts.clear();
    }

    /// The current frame comes to nothing.
    fn drop_frame(&mut self) {
        self.header = None;
        self.drop_payload();
    }

    /// Makes the parts that come after the first `done` bytes the list, and holds their regions.
    /// Returns the list's length; `None`, with nothing held, if one of them is gone.
    fn hold_parts(&mut self, done: u64) -> Option<usize> {
        self.list.0.clear();
        self.uses.clear();
        let mut len = 0;
        for part in clip_parts(&self.parts, done) {
            let Some(guard) = part.region.enter() else {
                self.uses.clear();
                return None;
            };
            self.uses.push(guard);
            self.list.push(part.addr, part.len as usize);
            len += part.len as usize;
        }
        Some(len)
    }
}

/// What a call of the carrier has brought.
enum Received {
    Nothing,
    /// Something, and there is no more at the moment.
    Some,
    /// So much that there may be more.
    Full,
}

/// Why a connection has to end.
enum End {
    Closed,
    Violation(Violation),
    Frame(wire::BadFrame),
    Overrun,
}

impl From<Violation> for End {
    fn from(violation: Violation) -> Self {
        End::Violation(violation)
    }
}

impl From<wire::BadFrame> for End {
    fn from(bad: wire::BadFrame) -> Self {
        End::Frame(bad)
    }
}

impl From<Overrun> for End {
    fn from(_: Overrun) -> Self {
        End::Overrun
    }
}

/// What the two ends have agreed on when they connected.
pub struct Agreement {
    pub peer_num: u32,
    /// Reads that this end may have under way.
    pub initiator_depth: u8,
    /// Reads that it accepts.
    pub responder_resources: u8,
    pub rnr_retry: u8,
}

impl Qp {
    /// Connects the queue pair: requests may be posted from now on.
    pub fn connect(
        &self,
        carrier: Arc<dyn Carrier>,
        agreement: &Agreement,
        first: Option<Header>,
    ) -> Result<(), Errno> {
        let this = self.this.upgrade().ok_or(Errno::NODEV)?;
        let mut rx = self.rx.lock();
        let mut tx = self.tx.lock();
        if self.state() != state::INIT || tx.carrier.is_some() {
            return Err(Errno::INVAL);
        }
        self.peer_num.store(agreement.peer_num, Ordering::Relaxed);
        tx.requester
            .set_max_reads(u32::from(agreement.initiator_depth));
        tx.replies
            .set_max_reads(usize::from(agreement.responder_resources));
        tx.rnr_retry = agreement.rnr_retry;
        rx.can_fetch = carrier.lending().is_some_and(|lending| lending.can_fetch());
        tx.control.extend(first);
        tx.token = Some(engine()?.watch_at_seat(carrier.fd(), this)?);
        tx.carrier = Some(carrier);
        self.state.store(state::READY, Ordering::Release);
        self.pump_and_kick(&mut tx);
        Ok(())
    }

    /// Asks the peer for the end of the connection; outstanding work completes as flushed.
    pub fn disconnect(&self) {
        let mut rx = self.rx.lock();
        let mut tx = self.tx.lock();
        self.enter_error(&mut rx, &mut tx, Status::Flushed, false);
        tx.control.push_back(Header::bare(Kind::Disconnect, 0));
        self.pump_and_kick(&mut tx);
        // The answer is an event that this thread is going to wait for.
        if let Ok(engine) = engine() {
            engine.take_back();
        }
    }

    /// Ends the connection at once.
    pub fn close(&self) {
        let mut rx = self.rx.lock();
        let mut tx = self.tx.lock();
        self.drop_carrier(&mut rx, &mut tx);
    }

    /// Sends what can be sent. Returns whether [`Qp::attend`] has something to do.
    pub(super) fn pump(&self, tx: &mut Tx) -> bool {
        let error = self.state() != state::READY;
        if let Some(carrier) = tx.carrier.clone() {
            let mut budget = PUMP_MAX;
            while !tx.blocked && !tx.broken && !tx.deaf {
                tx.fill(error, self.domain);
                if tx.out.is_empty() {
                    break;
                }
                let go_on = match tx.transmit(&*carrier, self.domain) {
                    Sent::Some(n) => {
                        budget = budget.saturating_sub(n);
                        budget > 0
                    }
                    Sent::Fault => {
                        tx.front_fault();
                        true
                    }
                    Sent::Broken => {
                        // Whatever the reason: the receiving side now finds an end.
                        tx.deaf = true;
                        carrier.shutdown();
                        true
                    }
                    Sent::Blocked => false,
                };
                if !go_on {
                    tx.blocked = true;
                    self.await_room(&carrier, tx.token);
                }
            }
        }
        self.needs_attention(tx)
    }

    /// Has the engine tell when the carrier takes more.
    fn await_room(&self, carrier: &Arc<dyn Carrier>, token: Option<Token>) {
        // During a flush nobody could take the event; the end of the flush sees to it.
        if self.flushing.load(Ordering::Acquire) {
            return;
        }
        let (Ok(engine), Some(token)) = (engine(), token) else {
            return;
        };
        if !carrier.is_polled() {
            // In this order: whoever puts the carrier to rest does not know that there is a wait.
            engine.neglect(carrier);
            engine.rewatch(carrier.fd(), token, true);
        } else if let Some(this) = self.this.upgrade() {
            carrier.pause();
            engine.attend(&this, carrier, Driver::Poller);
        }
    }

    fn needs_attention(&self, tx: &Tx) -> bool {
        if tx.flush_with.is_some() {
            return tx.broken || tx.deaf || !tx.is_request_half_sent();
        }
        (tx.broken && tx.carrier.is_some())
            || tx.reply_fault.is_some()
            || (self.state() == state::READY
                && (tx.requester.head_failure().is_some()
                    || (tx.peer_left && !tx.requester.is_empty())))
    }

    /// Does what needs both sides locked.
    fn attend(&self, rx: &mut Rx, tx: &mut Tx) {
        // Each round removes its cause.
        while self.needs_attention(tx) {
            if tx.broken {
                self.lose(rx, tx);
                return;
            }
            if let Some(seq) = tx.reply_fault.take() {
                tx.replies.refuse(seq, NakCode::RemoteAccess);
                self.enter_error(rx, tx, Status::Flushed, false);
            } else if tx.flush_with.is_some() {
                self.flush_requests(tx);
            } else if let Some(status) = tx.requester.head_failure() {
                self.enter_error(rx, tx, status, true);
            } else if tx.peer_left {
                self.enter_error(rx, tx, Status::RetryExceeded, false);
            }
            self.pump(tx);
        }
    }

    /// Enters the error state: the oldest request completes with `first`, everything else as
    /// flushed. `tell` lets the peer know, whose requests will not be answered.
    pub(super) fn enter_error(&self, rx: &mut Rx, tx: &mut Tx, first: Status, tell: bool) {
        if self.state() == state::ERROR || self.state() == state::RESET {
            return;
        }
        {
            // Under the receive queue's lock, so that no receive is posted past the flush.
            let mut own = self.own.lock();
            self.state.store(state::ERROR, Ordering::Release);
            own.waiting = None;
            if std::mem::take(&mut rx.receiving) {
                let wc = self.recv_wc(rx.receive.wr_id, Status::Flushed);
                let _ = self.recv_cq.push(wc, true);
            }
            let mut receive = Receive::default();
            while own.queue.take(&mut receive) {
                let wc = self.recv_wc(receive.wr_id, Status::Flushed);
                let _ = self.recv_cq.push(wc, true);
            }
        }
        rx.drop_frame();
        tx.replies.silence();
        tx.drop_requests();
        tx.take_back_requests();
        tx.rnr_deadline = None;
        tx.flush_with = Some(first);
        diag::debug(format_args!("QP {}: in error ({first:?})", self.num));
        self.stats.in_error(first);
        if tell {
            tx.control.push_back(Header::bare(Kind::Terminate, 0));
        }
        if !tx.is_request_half_sent() {
            self.flush_requests(tx);
        }
    }

    fn flush_requests(&self, tx: &mut Tx) {
        if let Some(first) = tx.flush_with.take() {
            // An overrun changes nothing any more; the queue remembers it.
            tx.requester.flush(first, &mut |c| {
                let _ = self.push_sent(c);
            });
            self.stats.done(tx.requester.done());
        }
    }

    /// The connection is gone without having been agreed on.
    fn lose(&self, rx: &mut Rx, tx: &mut Tx) {
        let first = if self.state() == state::READY && !tx.requester.is_empty() {
            tx.requester.head_failure().unwrap_or(Status::RetryExceeded)
        } else {
            Status::Flushed
        };
        tx.out.clear();
        self.enter_error(rx, tx, first, false);
        self.flush_requests(tx);
        if self.drop_carrier(rx, tx)
            && let Some(observer) = self.observer()
        {
            observer.lost();
        }
    }

    fn drop_carrier(&self, rx: &mut Rx, tx: &mut Tx) -> bool {
        rx.closed = true;
        rx.drop_payload();
        tx.out.clear();
        tx.control.clear();
        let Some(carrier) = tx.carrier.take() else {
            return false;
        };
        self.stats.closed();
        if let (Ok(engine), Some(token)) = (engine(), tx.token.take()) {
            engine.unwatch(carrier.fd(), token);
            engine.neglect(&carrier);
        }
        carrier.shutdown();
        if tx.flush_with.is_some() {
            self.flush_requests(tx);
        }
        true
    }

    /// For a queue pair that is destroyed: nothing of its memory is touched any more.
    pub(super) fn abandon(&self, rx: &mut Rx, tx: &mut Tx, tell: bool) {
        rx.receiving = false;
        rx.drop_frame();
        tx.replies.silence();
        if tx.is_request_half_sent() {
            // The frame cannot be finished, so the stream cannot go on.
            tx.broken = true;
        }
        tx.drop_requests();
        tx.out
            .retain(|f| f.is_started() && !matches!(f.payload, Payload::Request(..)));
        tx.take_back_requests();
        tx.requester.flush(Status::Flushed, &mut |_| ());
        tx.flush_with = None;
        let mut own = self.own.lock();
        let mut receive = Receive::default();
        while own.queue.take(&mut receive) {}
        drop(own);
        if tell && tx.carrier.is_some() {
            tx.control.push_back(Header::bare(Kind::Terminate, 0));
        }
        self.pump(tx);
        self.attend(rx, tx);
    }

    /// Receives and handles what has arrived. Returns whether there was anything.
    fn receive_all(&self, rx: &mut Rx, driver: Driver) -> bool {
        let Some(carrier) = self.tx.lock().carrier.clone() else {
            return false;
        };
        let Some(mut borrowed) = Borrowed::take() else {
            diag::warn(format_args!("no memory for a receive buffer"));
            return false;
        };
        let Some(scratch) = borrowed.get() else {
            return false;
        };
        let mut result = Ok(());
        let mut any = false;
        rx.delivered = false;
        for _ in 0..ROUNDS {
            match self.receive_some(rx, &*carrier, scratch) {
                Ok(Received::Full) => any = true,
                Ok(Received::Some) => {
                    any = true;
                    break;
                }
                Ok(Received::Nothing) => break,
                Err(end) => {
                    result = Err(end);
                    break;
                }
            }
        }
        if result.is_ok() && !any {
            return false;
        }
        let mut tx = self.tx.lock();
        match result {
            Ok(())
                if rx.delivered
                    && tx.is_acknowledgment_all()
                    && !self.needs_attention(&tx)
                    && self.leaves_to_program(&*carrier, driver) =>
            {
                return true;
            }
            Ok(()) => {}
            Err(End::Overrun) => {
                diag::warn(format_args!("completion queue of QP {} overrun", self.num));
                self.enter_error(rx, &mut tx, Status::Flushed, true);
            }
            Err(end) => {
                match end {
                    End::Violation(Violation(what)) => {
                        diag::warn(format_args!("QP {}: peer sent {what}", self.num))
                    }
                    End::Frame(bad) => {
                        diag::warn(format_args!("QP {}: bad frame: {bad}", self.num))
                    }
                    _ => {}
                }
                // What was still to be sent (an acknowledgment of the last requests) may go.
                self.pump(&mut tx);
                self.lose(rx, &mut tx);
                return true;
            }
        }
        if self.pump(&mut tx) {
            self.attend(rx, &mut tx);
        }
        true
    }

    /// Leaves an acknowledgment to the program, which may have an answer that it can go with.
    fn leaves_to_program(&self, carrier: &dyn Carrier, driver: Driver) -> bool {
        match driver {
            Driver::Poller => !carrier.is_polled() && self.put_off(),
            // A thread that is busy with a disk asks late.
            Driver::Engine | Driver::Leader => !LongFlushes::are_expected() && self.delay(),
        }
    }

    /// One call of the carrier.
    fn receive_some(
        &self,
        rx: &mut Rx,
        carrier: &dyn Carrier,
        scratch: &mut Scratch,
    ) -> Result<Received, End> {
        rx.list.0.clear();
        let mut direct = 0;
        if rx.target == Target::Place && !rx.lent {
            match rx.hold_parts(rx.done) {
                Some(len) => direct = len,
                None => {
                    self.payload_fault(rx)?;
                    return Ok(Received::Full);
                }
            }
        }
        let buffer = scratch.iovec();
        let room = direct + buffer.iov_len;
        rx.list.0.push(buffer);
        // SAFETY: every part is registered memory whose use is held, or the buffer.
        let result = unsafe { carrier.receive(&rx.list.0) };
        rx.uses.clear();
        let n = match result {
            Ok(0) => return Err(End::Closed),
            Ok(n) => n,
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            Err(Errno::INTR) => return Ok(Received::Full),
            Err(Errno::FAULT) if direct > 0 => {
                self.payload_fault(rx)?;
                return Ok(Received::Full);
            }
            Err(_) => return Err(End::Closed),
        };
        let placed = n.min(direct);
        if placed > 0 {
            self.advance(rx, placed)?;
        }
        self.parse(rx, scratch, n - placed)?;
        Ok(if n == room {
            Received::Full
        } else {
            Received::Some
        })
    }

    /// Handles the first `len` bytes of the buffer.
    fn parse(&self, rx: &mut Rx, scratch: &Scratch, len: usize) -> Result<(), End> {
        let bytes = scratch.bytes(len);
        let mut at = 0;
        while at < len {
            if rx.left > 0 {
                let take = rx.left.min(len - at);
                if rx.lent {
                    let from = bytes.get(at..at + take).unwrap_or_default();
                    let done = rx.done as usize;
                    if let Some(to) = rx.reference.get_mut(done..done + take) {
                        to.copy_from_slice(from);
                    }
                } else if rx.target == Target::Place && !self.copy_out(rx, scratch, at, take) {
                    self.payload_fault(rx)?;
                }
                at += take;
                self.advance(rx, take)?;
                continue;
            }
            let take = (HEADER_LEN - rx.stashed).min(len - at);
            let from = bytes.get(at..at + take).unwrap_or_default();
            if let Some(to) = rx.stash.get_mut(rx.stashed..rx.stashed + take) {
                to.copy_from_slice(from);
            }
            at += take;
            rx.stashed += take;
            if rx.stashed == HEADER_LEN {
                rx.stashed = 0;
                let header = Header::decode(&rx.stash)?;
                self.begin(rx, header)?;
            }
        }
        Ok(())
    }

    /// Copies payload out of the buffer; false if the memory is not there.
    fn copy_out(&self, rx: &mut Rx, scratch: &Scratch, at: usize, len: usize) -> bool {
        let mut from = at;
        let mut left = len as u64;
        for part in clip_parts(&rx.parts, rx.done) {
            let Some(_guard) = part.region.enter() else {
                return false;
            };
            let n = part.len.min(left);
            if scratch.copy_out(from, part.addr, n as usize).is_err() {
                return false;
            }
            from += n as usize;
            left -= n;
            if left == 0 {
                break;
            }
        }
        true
    }

    fn advance(&self, rx: &mut Rx, n: usize) -> Result<(), End> {
        rx.left -= n.min(rx.left);
        rx.done += n as u64;
        if rx.left > 0 {
            return Ok(());
        }
        let lent = std::mem::take(&mut rx.lent);
        if lent {
            self.fetch(rx)?;
        }
        self.finish(rx)?;
        if lent {
            // Much has been done for a few bytes, and there may be more of them: not at the end.
            self.pump(&mut self.tx.lock());
        }
        Ok(())
    }

    /// A reference has arrived: fetches what it names, or declines.
    fn fetch(&self, rx: &mut Rx) -> Result<(), End> {
        let reference = Reference::decode(&rx.reference);
        let carrier = self.tx.lock().carrier.clone().ok_or(End::Closed)?;
        let lending = carrier.lending().ok_or(End::Closed)?;
        if rx.target != Target::Place {
            lending.decline(reference);
            return Ok(());
        }
        if rx.hold_parts(0).is_none() {
            lending.decline(reference);
            return self.payload_fault(rx);
        }
        // SAFETY: every part is registered memory whose use is held.
        let result = unsafe { lending.fetch(reference, &rx.list.0) };
        rx.uses.clear();
        match result {
            Ok(()) => Ok(()),
            Err(Errno::FAULT) => {
                lending.decline(reference);
                let ours = rx
                    .parts
                    .iter()
                    .all(|part| mem::is_accessible(part.addr, part.len, true));
                if ours {
                    self.source_fault(rx)
                } else {
                    self.payload_fault(rx)
                }
            }
            Err(Errno::CANCELED) => self.source_fault(rx),
            Err(_) => Err(End::Closed),
        }
    }

    /// The payload is not where the peer says.
    fn source_fault(&self, rx: &mut Rx) -> Result<(), End> {
        match rx.header {
            Some(header) if header.kind == Kind::ReadData => {
                rx.drop_frame();
                self.answer_fault(rx, header.seq, Status::RemoteAccess)
            }
            Some(header) => {
                // It is the peer's fault, or the peer is in error and says why right behind: that
                // is what this side's requests have to end with.
                rx.drop_frame();
                rx.inbound.stop();
                let mut tx = self.tx.lock();
                tx.replies.refuse(header.seq, NakCode::RequesterMemory);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// A frame's header has arrived.
    fn begin(&self, rx: &mut Rx, header: Header) -> Result<(), End> {
        if header.is_by_reference() && !rx.can_fetch {
            return Err(wire::BadFrame::UnknownCode(header.code).into());
        }
        rx.lent = header.is_by_reference();
        rx.header = Some(header);
        rx.left = header.payload_len() as usize;
        rx.done = 0;
        rx.drop_payload();
        if header.kind.is_request() {
            self.begin_request(rx, &header)?;
        } else {
            self.handle_reply(rx, &header)?;
        }
        if rx.left == 0 {
            self.finish(rx)?;
        }
        Ok(())
    }

    fn begin_request(&self, rx: &mut Rx, header: &Header) -> Result<(), End> {
        if self.state() != state::READY {
            rx.header = None;
            return Ok(());
        }
        let offset = match rx.inbound.admit(header)? {
            Verdict::Ignore => {
                rx.header = None;
                return Ok(());
            }
            Verdict::Begin => {
                if header.kind.consumes_receive() && !self.begin_receive(rx, header) {
                    return Ok(());
                }
                0
            }
            Verdict::Continue(offset) => u64::from(offset),
        };
        if rx.left == 0 {
            return Ok(());
        }
        rx.target = Target::Place;
        match header.kind {
            Kind::Write | Kind::WriteImm => {
                // All of a message's range is checked before its first byte is written.
                let (from, len) = if offset == 0 {
                    (header.addr, u64::from(header.total))
                } else {
                    (header.addr.wrapping_add(offset), u64::from(header.len))
                };
                match self.remote_region(header.rkey, from, len, access::REMOTE_WRITE) {
                    Some(region) => rx.parts.push(Part {
                        region,
                        addr: from,
                        len: u64::from(header.len),
                    }),
                    None => self.refuse(rx, header.seq, NakCode::RemoteAccess, None),
                }
            }
            Kind::Send | Kind::SendImm => {
                let len = u64::from(header.len);
                let sges = std::mem::take(&mut rx.receive.sges);
                let placed = self.place(rx, clip(sges.iter().copied(), offset, len));
                rx.receive.sges = sges;
                if !placed {
                    let status = Some(Status::LocalProtection);
                    self.refuse(rx, header.seq, NakCode::RemoteOperation, status);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes a receive for the message that begins. False if the message is not to go on.
    fn begin_receive(&self, rx: &mut Rx, header: &Header) -> bool {
        let mut tx = self.tx.lock();
        // With the sending side locked, so that "ready" cannot overtake "not ready".
        if !self.take_receive(&mut rx.receive, header.seq) {
            tx.replies.not_ready(header.seq);
            rx.inbound.not_ready();
            rx.header = None;
            return false;
        }
        drop(tx);
        rx.receiving = true;
        if header.kind != Kind::WriteImm && rx.receive.room() < u64::from(header.total) {
            let status = Some(Status::LocalLength);
            self.refuse(rx, header.seq, NakCode::InvalidRequest, status);
            return false;
        }
        true
    }

    fn remote_region(&self, rkey: u32, addr: u64, len: u64, rights: u32) -> Option<Arc<Region>> {
        Region::find(rkey, self.domain, addr, len, rights)
            .inspect_err(|denied| diag::denied(self.num, rkey, addr, len, *denied))
            .ok()
    }

    /// Makes local memory the target of the payload.
    fn place(&self, rx: &mut Rx, sges: impl Iterator<Item = Sge>) -> bool {
        for sge in sges {
            let len = u64::from(sge.len);
            match Region::find(sge.lkey, self.domain, sge.addr, len, access::LOCAL_WRITE) {
                Ok(region) => rx.parts.push(Part {
                    region,
                    addr: sge.addr,
                    len,
                }),
                Err(_) => return false,
            }
        }
        true
    }

    /// Refuses a request; that puts both queue pairs into the error state.
    fn refuse(&self, rx: &mut Rx, seq: u32, code: NakCode, receive: Option<Status>) {
        let mut tx = self.tx.lock();
        if let Some(status) = receive
            && std::mem::take(&mut rx.receiving)
        {
            let _ = self
                .recv_cq
                .push(self.recv_wc(rx.receive.wr_id, status), true);
        }
        tx.replies.refuse(seq, code);
        self.enter_error(rx, &mut tx, Status::Flushed, false);
        rx.drop_frame();
    }

    /// Payload cannot be stored where it belongs.
    fn payload_fault(&self, rx: &mut Rx) -> Result<(), End> {
        let Some(header) = rx.header else {
            rx.target = Target::Drop;
            return Ok(());
        };
        match header.kind {
            Kind::ReadData => {
                rx.drop_frame();
                self.local_fault(rx, header.seq)?;
            }
            Kind::Send | Kind::SendImm => self.refuse(
                rx,
                header.seq,
                NakCode::RemoteOperation,
                Some(Status::LocalProtection),
            ),
            _ => self.refuse(rx, header.seq, NakCode::RemoteAccess, None),
        }
        Ok(())
    }

    /// The memory for a read's answer is not ours to write.
    fn local_fault(&self, rx: &mut Rx, seq: u32) -> Result<(), End> {
        self.answer_fault(rx, seq, Status::LocalProtection)
    }

    /// A read's answer has arrived, but not its data.
    fn answer_fault(&self, rx: &mut Rx, seq: u32, status: Status) -> Result<(), End> {
        let mut tx = self.tx.lock();
        let mut overrun = Ok(());
        tx.requester.refused(seq, status, &mut |c| {
            overrun = overrun.and(self.push_sent(c));
        })?;
        self.attend(rx, &mut tx);
        Ok(overrun?)
    }

    /// A frame has arrived as a whole.
    fn finish(&self, rx: &mut Rx) -> Result<(), End> {
        let Some(header) = rx.header.take() else {
            return Ok(());
        };
        rx.drop_payload();
        if !header.kind.is_request() || !header.is_last() {
            return Ok(());
        }
        self.stats.executed(header.kind, header.total);
        let len = header.wide();
        match header.kind {
            Kind::Send | Kind::SendImm | Kind::WriteImm => {
                rx.receiving = false;
                // Before the program sees it, so that the acknowledgment goes before an answer.
                let next = rx.inbound.executed();
                self.tx.lock().replies.executed(next);
                let mut wc = self.recv_wc(rx.receive.wr_id, Status::Success);
                wc.byte_len = header.total;
                if header.kind == Kind::WriteImm {
                    wc.opcode = rdma_sys::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;
                }
                if header.kind.has_immediate() {
                    wc.wc_flags = rdma_sys::ibv_wc_flags::IBV_WC_WITH_IMM.0;
                    wc.imm_data_invalidated_rkey_union.imm_data = u32::from_ne_bytes(header.imm);
                }
                // The payload is visible before the completion is.
                fence(Ordering::SeqCst);
                let solicited = header.flags & wire::FLAG_SOLICITED != 0;
                self.recv_cq.push(wc, solicited)?;
                rx.delivered = true;
                return Ok(());
            }
            Kind::Read => return self.execute_read(rx, &header),
            Kind::AtomicWrite => {
                let region = header
                    .addr
                    .is_multiple_of(8)
                    .then(|| self.remote_region(header.rkey, header.addr, 8, access::REMOTE_WRITE));
                let code = match region {
                    None => Some(NakCode::InvalidRequest),
                    Some(region) => match region.and_then(|r| r.enter()) {
                        Some(_guard) if mem::store_atomic(header.addr, len).is_ok() => None,
                        _ => Some(NakCode::RemoteAccess),
                    },
                };
                if let Some(code) = code {
                    self.refuse(rx, header.seq, code, None);
                    return Ok(());
                }
            }
            Kind::Flush => {
                if let Err(code) = self.execute_flush(&header) {
                    self.refuse(rx, header.seq, code, None);
                    return Ok(());
                }
            }
            _ => fence(Ordering::SeqCst),
        }
        let next = rx.inbound.executed();
        self.tx.lock().replies.executed(next);
        Ok(())
    }

    fn execute_read(&self, rx: &mut Rx, header: &Header) -> Result<(), End> {
        let (addr, len) = (header.addr, header.total);
        let region = if len == 0 {
            None
        } else {
            match self.remote_region(header.rkey, addr, u64::from(len), access::REMOTE_READ) {
                Some(region) => Some(region),
                None => {
                    self.refuse(rx, header.seq, NakCode::RemoteAccess, None);
                    return Ok(());
                }
            }
        };
        let mut tx = self.tx.lock();
        if !tx.replies.accepts_reads() {
            drop(tx);
            self.refuse(rx, header.seq, NakCode::InvalidRequest, None);
            return Ok(());
        }
        if let Some(region) = region {
            tx.replies.read(ReadJob {
                seq: header.seq,
                region,
                addr,
                left: len,
            })?;
        }
        let next = rx.inbound.executed();
        tx.replies.executed(next);
        Ok(())
    }

    fn execute_flush(&self, header: &Header) -> Result<(), NakCode> {
        fence(Ordering::SeqCst);
        let mut rights = 0;
        if header.code & wire::FLUSH_GLOBAL != 0 {
            rights |= access::FLUSH_GLOBAL;
        }
        if header.code & wire::FLUSH_PERSISTENT != 0 {
            rights |= access::FLUSH_PERSISTENT;
        }
        let whole = header.code & wire::FLUSH_WHOLE_REGION != 0;
        let (addr, len) = (header.addr, header.wide());
        if len == 0 && !whole {
            return Ok(());
        }
        let checked = if whole { 0 } else { len };
        let region = self
            .remote_region(header.rkey, addr, checked, rights)
            .ok_or(NakCode::RemoteAccess)?;
        let _guard = region.enter().ok_or(NakCode::RemoteAccess)?;
        if header.code & wire::FLUSH_PERSISTENT != 0 {
            // In place: what comes after this flush must wait for it.
            let (addr, len) = if whole { region.range() } else { (addr, len) };
            let persist = || region.extents().persist(addr, len);
            let result = if len >= LONG_FLUSH {
                self.while_others_go_on(persist)
            } else {
                persist()
            };
            result.map_err(|_| NakCode::RemoteOperation)?;
        }
        Ok(())
    }

    /// Runs what takes long with the receiving side locked, while another thread serves the other
    /// connections.
    fn while_others_go_on<R>(&self, run: impl FnOnce() -> R) -> R {
        let Ok(engine) = engine() else {
            return run();
        };
        {
            let tx = self.tx.lock();
            self.flushing.store(true, Ordering::Release);
            if let (Some(carrier), Some(token)) = (&tx.carrier, tx.token) {
                // In this order: whoever puts the carrier to rest would undo it.
                engine.neglect(carrier);
                engine.mute(carrier.fd(), token);
            }
        }
        // Else nobody would look at the seat if this thread leads.
        engine.end_lease();
        let stand_in = engine.stand_in();
        let result = run();
        drop(stand_in);
        let tx = self.tx.lock();
        self.flushing.store(false, Ordering::Release);
        if let (Some(carrier), Some(token)) = (&tx.carrier, tx.token) {
            engine.rewatch(carrier.fd(), token, tx.blocked && !carrier.is_polled());
            if let (true, Some(this)) = (carrier.is_polled(), self.this.upgrade()) {
                if tx.blocked {
                    carrier.pause();
                }
                engine.attend(&this, carrier, Driver::Poller);
            }
        }
        result
    }

    /// Handles a frame that is no request; may make local memory the target of its payload.
    fn handle_reply(&self, rx: &mut Rx, header: &Header) -> Result<(), End> {
        let ready = self.state() == state::READY;
        let mut overrun = Ok(());
        let mut complete = |c| overrun = overrun.and(self.push_sent(c));
        let mut tx = self.tx.lock();
        match header.kind {
            Kind::Ack if ready => {
                tx.requester.acknowledge(header.seq, &mut complete)?;
                self.stats.done(tx.requester.done());
                if let Some(index) = tx.long_flush
                    && tx.requester.is_done(index)
                    && let Some(carrier) = &tx.carrier
                {
                    carrier.be_patient(false);
                    tx.long_flush = None;
                }
            }
            Kind::Nak if ready => {
                let code = NakCode::from_byte(header.code).unwrap_or(NakCode::RemoteOperation);
                tx.requester
                    .refused(header.seq, code.into(), &mut complete)?;
                if let Some(status) = tx.requester.head_failure() {
                    // Unless the fault is here, the peer is in error as well and need not be told.
                    let tell = code == NakCode::RequesterMemory;
                    self.enter_error(rx, &mut tx, status, tell);
                }
            }
            Kind::ReadData if ready => {
                let (index, offset) = tx.requester.answer(header.seq, header.len)?;
                let mut sges = [Sge::default(); SGE_MAX];
                let mut places = sges.iter_mut();
                let mut used = 0;
                let len = u64::from(header.len);
                tx.requester.pieces(index, offset, len, |piece| {
                    if let (Piece::Registered(sge), Some(place)) = (piece, places.next()) {
                        *place = sge;
                        used += 1;
                    }
                    true
                });
                drop(tx);
                if self.place(rx, sges.into_iter().take(used)) {
                    rx.target = Target::Place;
                } else {
                    rx.header = None;
                    rx.parts.clear();
                    self.local_fault(rx, header.seq)?;
                }
                return Ok(());
            }
            Kind::RnrNak if ready => {
                tx.requester.not_ready(header.seq)?;
                tx.drop_requests();
                self.start_rnr_timer(&mut tx);
            }
            Kind::RnrReady if ready => {
                tx.requester.ready();
                tx.rnr_deadline = None;
            }
            Kind::Terminate => {
                self.enter_error(rx, &mut tx, Status::RetryExceeded, false);
            }
            Kind::ReadyToUse => {
                drop(tx);
                if let Some(observer) = self.observer() {
                    observer.established();
                }
            }
            Kind::Disconnect => {
                if std::mem::replace(&mut tx.peer_left, true) {
                    return Err(Violation("a second disconnect").into());
                }
                tx.control.push_back(Header::bare(Kind::DisconnectReply, 0));
                self.pump(&mut tx);
                self.attend(rx, &mut tx);
                drop(tx);
                if let Some(observer) = self.observer() {
                    observer.disconnect_requested();
                }
            }
            Kind::DisconnectReply => {
                drop(tx);
                if let Some(observer) = self.observer() {
                    observer.disconnected();
                }
                return Err(End::Closed);
            }
            _ => {}
        }
        Ok(overrun?)
    }

    fn start_rnr_timer(&self, tx: &mut Tx) {
        if tx.rnr_retry == RNR_FOREVER || tx.rnr_deadline.is_some() {
            return;
        }
        let delay = RNR_TIMER * u32::from(tx.rnr_retry);
        tx.rnr_deadline = Some(Instant::now() + delay);
        if let (Ok(engine), Some(this)) = (engine(), self.this.upgrade()) {
            let this = this as Arc<dyn Source>;
            engine.after(delay, Arc::downgrade(&this), 0);
        }
    }

    /// The receiving side, for whoever has something to receive; `None` if another thread is
    /// working at it and `driver` does not wait, or if that takes long.
    fn receiver(&self, driver: Driver) -> Option<MutexGuard<'_, Rx>> {
        if driver.waits() && !self.flushing.load(Ordering::Acquire) {
            Some(self.rx.lock())
        } else {
            self.rx.try_lock()
        }
    }

    /// Returns whether something was sent or received.
    fn progress(&self, rx: &mut Rx, readiness: Readiness, driver: Driver) -> bool {
        let mut done = readiness.writable;
        if readiness.writable {
            let mut tx = self.tx.lock();
            if std::mem::take(&mut tx.blocked)
                && let (Ok(engine), Some(token)) = (engine(), tx.token)
                && let Some(carrier) = tx.carrier.clone()
            {
                // There may be nothing left to find out by that there is room.
                carrier.go_on();
                if self.pump(&mut tx) {
                    self.attend(rx, &mut tx);
                }
                if !tx.blocked && tx.token == Some(token) && !carrier.is_polled() {
                    engine.rewatch(carrier.fd(), token, false);
                }
            }
        }
        if readiness.readable && !rx.closed {
            done |= self.receive_all(rx, driver);
        }
        done
    }
}

impl Source for Qp {
    fn ready(self: Arc<Self>, mut readiness: Readiness, driver: Driver) {
        let Some(mut rx) = self.receiver(driver) else {
            return;
        };
        // Locked until it is settled who tells of the carrier: if sending finds no room, that changes.
        let tx = self.tx.lock();
        if let (Some(carrier), Some(token), Ok(engine)) = (&tx.carrier, tx.token, engine()) {
            if carrier.is_polled() {
                carrier.woken();
                engine.attend(&self, carrier, driver);
                readiness.writable = carrier.look().1;
            } else if driver == Driver::Poller && !tx.blocked {
                engine.ask_directly(&self, carrier, token);
            }
        }
        drop(tx);
        self.progress(&mut rx, readiness, driver);
    }

    fn looked(self: Arc<Self>, readiness: Readiness, driver: Driver) -> bool {
        match self.receiver(driver) {
            Some(mut rx) => self.progress(&mut rx, readiness, driver),
            // Another thread is at it.
            None => true,
        }
    }

    fn expired(self: Arc<Self>, purpose: u32) {
        if self.flushing.load(Ordering::Acquire)
            && let Ok(engine) = engine()
        {
            let this = Arc::clone(&self) as Arc<dyn Source>;
            engine.after(FLUSH_LOOK, Arc::downgrade(&this), purpose);
            return;
        }
        let mut rx = self.rx.lock();
        let mut tx = self.tx.lock();
        if tx.rnr_deadline.is_some_and(|at| at <= Instant::now()) && tx.requester.is_paused() {
            tx.rnr_deadline = None;
            self.enter_error(&mut rx, &mut tx, Status::RnrRetryExceeded, true);
            self.pump_and_kick(&mut tx);
        }
    }

    fn resumed(self: Arc<Self>) {
        // First, so that what comes up from now on is put off anew.
        self.put_off.store(false, Ordering::Release);
        self.pump_and_kick(&mut self.tx.lock());
    }

    fn delayed(self: Arc<Self>, now: bool) -> bool {
        match self.delayed.is_due(now) {
            Due::Soon => return true,
            Due::Now => self.pump_and_kick(&mut self.tx.lock()),
            Due::Gone => {}
        }
        false
    }

    fn ends(self: Arc<Self>) {
        if let Some(mut tx) = self.tx.lock_soon() {
            self.pump(&mut tx);
        }
    }

    fn kicked(self: Arc<Self>) {
        // First, so that what comes up from now on asks again.
        self.kicked.store(false, Ordering::Release);
        if self.flushing.load(Ordering::Acquire) {
            // Whoever flushes attends when it is done.
            return;
        }
        let mut rx = self.rx.lock();
        let mut tx = self.tx.lock();
        self.pump(&mut tx);
        self.attend(&mut rx, &mut tx);
    }
}

/// Whether a request may have the target write to its disk, and as much as this.
fn is_disk_flush(header: &Header, len: u64) -> bool {
    header.kind == Kind::Flush
        && header.code & wire::FLUSH_PERSISTENT != 0
        && (header.code & wire::FLUSH_WHOLE_REGION != 0 || header.wide() >= len)
}

/// The parts that come after the first `done` bytes.
fn clip_parts(parts: &[Part], done: u64) -> impl Iterator<Item = Part> {
    let mut skip = done;
    parts.iter().filter_map(move |part| {
        if skip >= part.len {
            skip -= part.len;
            return None;
        }
        let clipped = Part {
            region: Arc::clone(&part.region),
            addr: part.addr + skip,
            len: part.len - skip,
        };
        skip = 0;
        Some(clipped)
    })
}
