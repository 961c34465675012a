// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The sending side: which frame is next, where its payload is, and how much of it the carrier has
//! taken.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

use super::iolist::IoList;
use super::{RNR_FOREVER, SGE_MAX};
use crate::soft::carrier::Carrier;
use crate::soft::carrier::lending::{Purpose, Reference};
use crate::soft::engine::Token;
use crate::soft::mem;
use crate::soft::mr::{Region, RegionUse};
use crate::soft::recvq::Sge;
use crate::soft::requester::{RequestFrame, Requester, Source as Piece, Status};
use crate::soft::responder::Replies;
use crate::soft::wire::{self, HEADER_LEN, Header, Kind, REFERENCE_LEN};

/// Frames that are prepared for one call of the carrier.
const OUT_MAX: usize = 64;
/// Parts of the gather list of one call.
const IOV_MAX: usize = 192;
/// A flush of so much may take the peer longer than it may otherwise be silent.
const PATIENT_FLUSH: u64 = 4 << 10;
/// Payload up to this length is not worth a system call that copies it, where one is not needed.
const SHORT: u64 = LEND_MIN as u64;
/// Looks whether such payload is there that cost less than to have the kernel copy all.
const SHORT_LOOKS: u32 = 3;
/// Payload from this length on is fetched by the receiver where it can.
const LEND_MIN: u32 = 16 << 10;

const ZEROS: [u8; 4096] = [0; 4096];

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
pub(in crate::soft) struct Tx {
    pub(in crate::soft) requester: Requester,
    pub(in crate::soft) replies: Replies,
    pub(super) control: VecDeque<Header>,
    out: VecDeque<OutFrame>,
    pub(super) carrier: Option<Arc<dyn Carrier>>,
    pub(super) token: Option<Token>,
    /// The carrier takes nothing now; the engine says when it does again.
    pub(super) blocked: bool,
    /// A frame that was begun cannot be finished, so the stream cannot go on.
    pub(super) broken: bool,
    /// The carrier takes nothing any more. What has arrived before is still read; its end ends the
    /// connection.
    pub(super) deaf: bool,
    /// The peer has said that it leaves: requests cannot be executed any more.
    pub(super) peer_left: bool,
    /// In error: the requests complete, the first with this status, once no frame of theirs is
    /// half sent.
    pub(super) flush_with: Option<Status>,
    /// Request of the peer whose memory went away while it was answered.
    pub(super) reply_fault: Option<u32>,
    /// Check memory before it goes into a list, because the carrier met a fault.
    probe: bool,
    /// Data for a read were prepared last: a request may come next.
    requests_next: bool,
    pub(super) rnr_retry: u8,
    pub(super) rnr_deadline: Option<Instant>,
    /// The newest flush that may take the peer long.
    pub(super) long_flush: Option<u64>,
    list: IoList,
    uses: Vec<RegionUse>,
}

/// What became of an attempt to send.
pub(super) enum Sent {
    Some(usize),
    Blocked,
    Broken,
    /// The first frame's memory is not there.
    Fault,
}

impl Tx {
    pub(in crate::soft) fn new(requester: Requester) -> Self {
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
    pub(in crate::soft) fn is_sending_dear(&self) -> bool {
        self.carrier
            .as_ref()
            .is_some_and(|carrier| !carrier.is_polled())
    }

    pub(in crate::soft) fn is_flush_pending(&self) -> bool {
        self.flush_with.is_some()
    }

    /// Whether nothing is to be sent but, at most, an acknowledgment.
    pub(super) fn is_acknowledgment_all(&self) -> bool {
        self.out.is_empty()
            && self.control.is_empty()
            && self.requester.is_all_sent()
            && self.replies.is_acknowledgment_all()
    }

    /// Whether a frame of a request is half sent, so that its memory is still needed.
    pub(super) fn is_request_half_sent(&self) -> bool {
        self.out
            .front()
            .is_some_and(|f| f.is_started() && matches!(f.payload, Payload::Request(..)))
    }

    /// Prepares frames, answers and requests in turn.
    pub(super) fn fill(&mut self, error: bool, domain: u64) {
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
    pub(super) fn transmit(&mut self, carrier: &dyn Carrier, domain: u64) -> Sent {
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
    pub(super) fn front_fault(&mut self) {
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

    /// Whether there is nothing left to hand to the carrier.
    pub(super) fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Drops all that is prepared: the carrier is gone, or going.
    pub(super) fn drop_frames(&mut self) {
        self.out.clear();
    }

    /// Drops prepared requests for good, since nothing of their memory is to be touched any more. If one is half
    /// sent, the stream cannot go on.
    pub(super) fn abandon_requests(&mut self) {
        self.broken |= self.is_request_half_sent();
        self.drop_requests();
        self.out
            .retain(|f| f.is_started() && !matches!(f.payload, Payload::Request(..)));
        self.take_back_requests();
    }

    /// The program may use the memory of its requests for something else now.
    pub(super) fn take_back_requests(&self) {
        let carrier = self.carrier.as_ref();
        if let Some(lending) = carrier.and_then(|carrier| carrier.lending()) {
            lending.take_back_requests();
        }
    }

    /// Drops prepared requests that are not begun; they are prepared again, or never.
    pub(super) fn drop_requests(&mut self) {
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

/// Whether a request may have the target write to its disk, and as much as this.
fn is_disk_flush(header: &Header, len: u64) -> bool {
    header.kind == Kind::Flush
        && header.code & wire::FLUSH_PERSISTENT != 0
        && (header.code & wire::FLUSH_WHOLE_REGION != 0 || header.wide() >= len)
}
