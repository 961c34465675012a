// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The receiving side: takes the carrier's bytes apart into frames, and has the payload go to where
//! it belongs.

use std::sync::Arc;

use rustix::io::Errno;

use super::iolist::IoList;
use crate::soft::carrier::Carrier;
use crate::soft::carrier::lending::Reference;
use crate::soft::cq::Overrun;
use crate::soft::diag;
use crate::soft::engine::{Driver, engine};
use crate::soft::leader::LongFlushes;
use crate::soft::mem::{self, Borrowed, Scratch};
use crate::soft::mr::{Region, RegionUse, access};
use crate::soft::qp::Qp;
use crate::soft::recvq::{Receive, Sge};
use crate::soft::requester::{Status, Violation};
use crate::soft::responder::Inbound;
use crate::soft::wire::{self, HEADER_LEN, Header, Kind, NakCode, REFERENCE_LEN};

/// Rounds of receiving before other connections get their turn.
const ROUNDS: usize = 16;

/// What is done with the payload of the current frame.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Target {
    #[default]
    Drop,
    Place,
}

/// A part of registered memory that payload goes to.
pub(super) struct Part {
    pub(super) region: Arc<Region>,
    pub(super) addr: u64,
    pub(super) len: u64,
}

/// The receiving side.
#[derive(Default)]
pub(in crate::soft) struct Rx {
    stash: [u8; HEADER_LEN],
    stashed: usize,
    pub(super) header: Option<Header>,
    /// Payload bytes of the current frame that were not received, and that were.
    pub(super) left: usize,
    done: u64,
    pub(super) target: Target,
    /// The program was given a message.
    pub(super) delivered: bool,
    /// Frames may have references.
    pub(super) can_fetch: bool,
    /// The current frame has a reference instead of its payload.
    lent: bool,
    reference: [u8; REFERENCE_LEN],
    pub(super) parts: Vec<Part>,
    pub(super) inbound: Inbound,
    pub(super) receive: Receive,
    /// `receive` belongs to the current message.
    pub(super) receiving: bool,
    /// The connection is over.
    pub(super) closed: bool,
    list: IoList,
    uses: Vec<RegionUse>,
}

impl Rx {
    /// What is left of the current frame's payload is dropped.
    pub(super) fn drop_payload(&mut self) {
        self.target = Target::Drop;
        self.parts.clear();
    }

    /// The current frame comes to nothing.
    pub(super) fn drop_frame(&mut self) {
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
pub(super) enum End {
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

impl Qp {
    /// Receives and handles what has arrived. Returns whether there was anything.
    pub(super) fn receive_all(&self, rx: &mut Rx, driver: Driver) -> bool {
        let Some(carrier) = self.tx.lock().carrier.clone() else {
            return false;
        };
        let Some(mut borrowed) = Borrowed::take() else {
            if let Ok(engine) = engine() {
                engine.lacks_memory(driver, "for a receive buffer");
            }
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

    /// Makes local memory the target of the payload.
    pub(super) fn place(&self, rx: &mut Rx, sges: impl Iterator<Item = Sge>) -> bool {
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
    pub(super) fn local_fault(&self, rx: &mut Rx, seq: u32) -> Result<(), End> {
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
        self.execute(rx, &header)
    }
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
