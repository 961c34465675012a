// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The initiating half of a queue pair: the send queue and what becomes of its requests.
//!
//! A pure state machine. Requests stay in the queue until the target has acknowledged them. The
//! number of a request on the wire is the low half of its index, which counts from the queue
//! pair's beginning.

use super::recvq::{PostError, Sge};
use super::wire::{self, Header, Kind, SEGMENT_MAX};

/// How a request ends, as in `ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Status {
    Success = 0,
    LocalLength = 1,
    LocalProtection = 4,
    Flushed = 5,
    RemoteInvalidRequest = 9,
    RemoteAccess = 10,
    RemoteOperation = 11,
    RetryExceeded = 12,
    RnrRetryExceeded = 13,
}

impl From<wire::NakCode> for Status {
    fn from(code: wire::NakCode) -> Self {
        match code {
            wire::NakCode::InvalidRequest => Status::RemoteInvalidRequest,
            wire::NakCode::RemoteAccess => Status::RemoteAccess,
            wire::NakCode::RemoteOperation => Status::RemoteOperation,
            wire::NakCode::RequesterMemory => Status::LocalProtection,
        }
    }
}

/// A work request, as it is posted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    pub wr_id: u64,
    pub kind: Kind,
    pub signaled: bool,
    pub fence: bool,
    pub solicited: bool,
    pub addr: u64,
    pub rkey: u32,
    pub imm: [u8; 4],
    /// Value of an atomic write, length of a flush.
    pub wide: u64,
    /// Placement of a flush.
    pub code: u8,
}

impl Request {
    pub fn new(wr_id: u64, kind: Kind) -> Self {
        Request {
            wr_id,
            kind,
            signaled: false,
            fence: false,
            solicited: false,
            addr: 0,
            rkey: 0,
            imm: [0; 4],
            wide: 0,
            code: 0,
        }
    }
}

/// Where a request's payload comes from, or its answer goes to.
pub enum Data<'a, I> {
    /// Registered memory.
    Registered(I),
    /// Bytes that are copied when the request is posted.
    Inline(&'a [&'a [u8]]),
}

/// One request in the queue.
#[derive(Clone, Copy)]
struct Wqe {
    request: Request,
    sges: usize,
    /// Bytes of the payload or the answer.
    len: u64,
    inline: bool,
    /// Bytes of the answer that have arrived.
    received: u64,
    /// Why it cannot be sent.
    failure: Option<Status>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Completion {
    pub wr_id: u64,
    pub kind: Kind,
    pub status: Status,
    pub len: u32,
}

/// The target broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Violation(pub &'static str);

/// A frame to send; `offset` is where its payload begins in that of request `index`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RequestFrame {
    pub header: Header,
    pub index: u64,
    pub offset: u64,
}

/// Where bytes of a request's payload are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Registered(Sge),
    /// Address of inline bytes, which are in the queue itself.
    Inline(*const u8, usize),
}

/// Requests that may wait for each other before they are sent.
const WAITING_MAX: u64 = 32;

pub(super) struct Requester {
    wqes: Vec<Wqe>,
    /// Scatter/gather lists, `max_sge` for each slot.
    lists: Vec<[u64; 2]>,
    /// Inline data, `max_inline` for each slot.
    inline: Vec<u8>,
    capacity: u64,
    max_sge: usize,
    max_inline: usize,
    signal_all: bool,
    /// Oldest request that is not acknowledged.
    head: u64,
    /// All before it were sent as a whole, so acknowledgments can be believed.
    sent: u64,
    /// Next request to frame, and how much of it was.
    cursor: u64,
    offset: u64,
    /// One after the newest request.
    tail: u64,
    /// Reads that were framed and are not answered.
    reads: u32,
    max_reads: u32,
    /// The target waits for a receive before it goes on with `head`.
    paused: bool,
}

impl Requester {
    pub(super) fn new(
        capacity: usize,
        max_sge: usize,
        max_inline: usize,
        signal_all: bool,
    ) -> Self {
        Requester {
            wqes: Vec::with_capacity(capacity.min(256)),
            // Zeroed memory costs nothing until it is used.
            lists: vec![[0; 2]; capacity * max_sge],
            inline: vec![0; capacity * max_inline],
            capacity: capacity as u64,
            max_sge,
            max_inline,
            signal_all,
            head: 0,
            sent: 0,
            cursor: 0,
            offset: 0,
            tail: 0,
            reads: 0,
            max_reads: 0,
            paused: false,
        }
    }

    /// Sets how many reads the two ends have agreed to have under way at a time.
    pub(super) fn set_max_reads(&mut self, max: u32) {
        self.max_reads = max;
    }

    fn slot(&self, index: u64) -> usize {
        (index % self.capacity.max(1)) as usize
    }

    fn wqe(&self, index: u64) -> Option<&Wqe> {
        if index < self.head || index >= self.tail {
            return None;
        }
        self.wqes.get(self.slot(index))
    }

    fn wqe_mut(&mut self, index: u64) -> Option<&mut Wqe> {
        if index < self.head || index >= self.tail {
            return None;
        }
        let slot = self.slot(index);
        self.wqes.get_mut(slot)
    }

    /// Whether a request was acknowledged.
    pub(super) fn is_done(&self, index: u64) -> bool {
        index < self.head
    }

    /// Requests that have come to an end since the beginning.
    pub(super) fn done(&self) -> u64 {
        self.head
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Room in the queue.
    pub(super) fn room(&self) -> u64 {
        self.capacity - (self.tail - self.head)
    }

    /// Whether nothing is left to send.
    pub(super) fn is_all_sent(&self) -> bool {
        self.cursor == self.tail
    }

    /// Requests that were sent and are not acknowledged, if the newest may wait for them: there are
    /// few that do.
    pub(super) fn due_before_sending(&self) -> u64 {
        if self.paused || self.tail - self.cursor >= WAITING_MAX {
            return 0;
        }
        self.sent.saturating_sub(self.head)
    }

    /// Appends a request.
    ///
    /// Returns the length of its payload or answer.
    pub(super) fn post<I>(&mut self, request: Request, data: Data<'_, I>) -> Result<u64, PostError>
    where
        I: ExactSizeIterator<Item = Sge>,
    {
        if self.room() == 0 {
            return Err(PostError::Full);
        }
        let slot = self.slot(self.tail);
        let mut wqe = Wqe {
            request,
            sges: 0,
            len: 0,
            inline: false,
            received: 0,
            failure: None,
        };
        match data {
            Data::Registered(sges) => {
                if sges.len() > self.max_sge {
                    return Err(PostError::Invalid);
                }
                wqe.sges = sges.len();
                let lists = self.lists.iter_mut().skip(slot * self.max_sge);
                for (place, sge) in lists.zip(sges) {
                    *place = [sge.addr, u64::from(sge.len) << 32 | u64::from(sge.lkey)];
                    wqe.len += u64::from(sge.len);
                }
            }
            Data::Inline(parts) => {
                if request.kind == Kind::Read
                    || parts.iter().map(|p| p.len()).sum::<usize>() > self.max_inline
                {
                    return Err(PostError::Invalid);
                }
                wqe.inline = true;
                let mut at = slot * self.max_inline;
                for part in parts {
                    if let Some(place) = self.inline.get_mut(at..at + part.len()) {
                        place.copy_from_slice(part);
                    }
                    at += part.len();
                    wqe.len += part.len() as u64;
                }
            }
        }
        if wqe.len > u64::from(u32::MAX) {
            wqe.failure = Some(Status::LocalLength);
        }
        match self.wqes.get_mut(slot) {
            Some(place) => *place = wqe,
            // The first round through the ring: slots come into being in order.
            None => self.wqes.push(wqe),
        }
        self.tail += 1;
        Ok(wqe.len)
    }

    /// The next frame, if one may be sent now.
    pub(super) fn next_frame(&mut self) -> Option<RequestFrame> {
        if self.paused {
            return None;
        }
        let index = self.cursor;
        let (offset, reads, max_reads) = (self.offset, self.reads, self.max_reads);
        let wqe = self.wqe_mut(index)?;
        if wqe.failure.is_some() {
            return None;
        }
        let request = wqe.request;
        if request.fence && offset == 0 && reads > 0 {
            return None;
        }
        if request.kind == Kind::Read {
            if max_reads == 0 {
                // No resources were agreed on: the target would refuse it.
                wqe.failure = Some(Status::RemoteInvalidRequest);
                return None;
            }
            if reads >= max_reads {
                return None;
            }
            wqe.received = 0;
        }
        let mut header = Header::bare(request.kind, index as u32);
        header.addr = request.addr;
        header.rkey = request.rkey;
        header.imm = request.imm;
        let len = wqe.len;
        let part = (len - offset).min(u64::from(SEGMENT_MAX));
        if offset == 0 {
            header.flags |= wire::FLAG_FIRST;
        }
        if !request.kind.is_segmented() || offset + part == len {
            header.flags |= wire::FLAG_LAST;
        }
        match request.kind {
            Kind::AtomicWrite => header.set_wide(request.wide),
            Kind::Flush => {
                header.code = request.code;
                header.set_wide(request.wide);
            }
            Kind::Read => {
                header.total = len as u32;
                self.reads += 1;
            }
            _ => {
                if request.solicited && request.kind.consumes_receive() {
                    header.flags |= wire::FLAG_SOLICITED;
                }
                header.len = part as u32;
                header.total = len as u32;
            }
        }
        if header.is_last() {
            self.cursor += 1;
            self.offset = 0;
        } else {
            self.offset = offset + part;
        }
        Some(RequestFrame {
            header,
            index,
            offset,
        })
    }

    /// Notes that a request has been sent as a whole.
    pub(super) fn mark_sent(&mut self, index: u64) {
        self.sent = self.sent.max(index + 1).min(self.cursor);
    }

    /// Calls `piece` for the parts of `len` bytes at `offset` of a request's payload or answer,
    /// until it returns false.
    pub(super) fn pieces(
        &self,
        index: u64,
        offset: u64,
        len: u64,
        mut piece: impl FnMut(Source) -> bool,
    ) {
        let Some(wqe) = self.wqe(index) else {
            return;
        };
        let slot = self.slot(index);
        if wqe.inline {
            let from = slot * self.max_inline + offset as usize;
            if let Some(bytes) = self.inline.get(from..from + len as usize) {
                piece(Source::Inline(bytes.as_ptr(), bytes.len()));
            }
            return;
        }
        let lists = self.lists.iter().skip(slot * self.max_sge).take(wqe.sges);
        for part in clip(lists.map(unpack), offset, len) {
            if !piece(Source::Registered(part)) {
                return;
            }
        }
    }

    /// A request cannot be sent: it fails when its turn to complete comes, and nothing after it
    /// is sent.
    pub(super) fn fail(&mut self, index: u64, status: Status) {
        if let Some(wqe) = self.wqe_mut(index) {
            wqe.failure.get_or_insert(status);
            self.rewind(index);
        }
    }

    /// The failure of the oldest request, if it can only fail.
    pub(super) fn head_failure(&self) -> Option<Status> {
        self.wqe(self.head)?.failure
    }

    /// Index of a request that the other side names, if it was sent.
    fn sent_index(&self, seq: u32) -> Result<u64, Violation> {
        let index = self.head + u64::from(seq.wrapping_sub(self.head as u32));
        if index >= self.sent {
            return Err(Violation("answer to a request that was not sent"));
        }
        Ok(index)
    }

    fn pop(&mut self, status: Status, complete: &mut impl FnMut(Completion)) {
        let Some(wqe) = self.wqe(self.head).copied() else {
            return;
        };
        if wqe.request.kind == Kind::Read && self.head < self.cursor {
            self.reads = self.reads.saturating_sub(1);
        }
        self.head += 1;
        if status != Status::Success || wqe.request.signaled || self.signal_all {
            complete(Completion {
                wr_id: wqe.request.wr_id,
                kind: wqe.request.kind,
                status,
                len: wqe.len as u32,
            });
        }
    }

    /// All requests before `seq` are done.
    pub(super) fn acknowledge(
        &mut self,
        seq: u32,
        complete: &mut impl FnMut(Completion),
    ) -> Result<(), Violation> {
        let until = self.head + u64::from(seq.wrapping_sub(self.head as u32));
        if until > self.sent {
            return Err(Violation("acknowledgment of a request that was not sent"));
        }
        while self.head < until {
            if let Some(wqe) = self.wqe(self.head)
                && wqe.request.kind == Kind::Read
                && wqe.received != wqe.len
            {
                return Err(Violation("read acknowledged without its data"));
            }
            self.pop(Status::Success, complete);
        }
        Ok(())
    }

    /// Request `seq` failed at the target: everything before it is done.
    pub(super) fn refused(
        &mut self,
        seq: u32,
        status: Status,
        complete: &mut impl FnMut(Completion),
    ) -> Result<(), Violation> {
        // A target may refuse a message at its first segment, before all were sent.
        let index = self.head + u64::from(seq.wrapping_sub(self.head as u32));
        if index >= self.cursor.max(self.sent) && !(index == self.cursor && self.offset > 0) {
            return Err(Violation("refusal of a request that was not sent"));
        }
        self.acknowledge(seq, complete)?;
        self.fail(index, status);
        Ok(())
    }

    /// The target found no receive for request `seq` and dropped it and all after it.
    pub(super) fn not_ready(&mut self, seq: u32) -> Result<(), Violation> {
        let index = self.head + u64::from(seq.wrapping_sub(self.head as u32));
        if index > self.cursor || (index == self.cursor && self.offset == 0) {
            return Err(Violation("not-ready for a request that was not sent"));
        }
        self.paused = true;
        self.rewind(index);
        Ok(())
    }

    /// The target has a receive now. Returns false if nothing waited for it.
    pub(super) fn ready(&mut self) -> bool {
        std::mem::replace(&mut self.paused, false)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Everything from `index` on has to be sent again.
    fn rewind(&mut self, index: u64) {
        let end = (self.cursor + u64::from(self.offset > 0)).min(self.tail);
        for i in index..end {
            if let Some(wqe) = self.wqe(i)
                && wqe.request.kind == Kind::Read
                && i < self.cursor
            {
                self.reads = self.reads.saturating_sub(1);
            }
        }
        if index <= self.cursor {
            self.cursor = index;
            self.offset = 0;
            self.sent = self.sent.min(index);
        }
    }

    /// Takes note of `len` bytes of the answer to read `seq`; returns its index and where in
    /// the answer they belong.
    pub(super) fn answer(&mut self, seq: u32, len: u32) -> Result<(u64, u64), Violation> {
        let index = self.sent_index(seq)?;
        let wqe = self
            .wqe_mut(index)
            .filter(|w| w.request.kind == Kind::Read)
            .ok_or(Violation("data for a request that is no read"))?;
        let offset = wqe.received;
        if u64::from(len) > wqe.len - offset {
            return Err(Violation("more data than were asked for"));
        }
        wqe.received += u64::from(len);
        Ok((index, offset))
    }

    /// Completes everything: the oldest request with `first`, the others as flushed.
    pub(super) fn flush(&mut self, first: Status, complete: &mut impl FnMut(Completion)) {
        let mut status = first;
        while !self.is_empty() {
            self.pop(status, complete);
            status = Status::Flushed;
        }
        self.cursor = self.tail;
        self.sent = self.tail;
        self.offset = 0;
        self.reads = 0;
        self.paused = false;
    }
}

fn unpack(packed: &[u64; 2]) -> Sge {
    let [addr, rest] = *packed;
    Sge {
        addr,
        len: (rest >> 32) as u32,
        lkey: rest as u32,
    }
}

/// The parts of a scatter/gather list that hold `len` bytes at `offset`.
pub(super) fn clip(
    list: impl Iterator<Item = Sge>,
    offset: u64,
    len: u64,
) -> impl Iterator<Item = Sge> {
    let mut skip = offset;
    let mut left = len;
    list.filter_map(move |sge| {
        let have = u64::from(sge.len);
        if skip >= have {
            skip -= have;
            return None;
        }
        let part = (have - skip).min(left);
        let addr = sge.addr.wrapping_add(skip);
        skip = 0;
        left -= part;
        (part > 0).then_some(Sge {
            addr,
            len: part as u32,
            lkey: sge.lkey,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(wr_id: u64) -> Request {
        Request {
            signaled: true,
            ..Request::new(wr_id, Kind::Write)
        }
    }

    fn data(len: u32) -> Data<'static, std::array::IntoIter<Sge, 1>> {
        Data::Registered(
            [Sge {
                addr: 0x1000,
                len,
                lkey: 5,
            }]
            .into_iter(),
        )
    }

    fn send_all(r: &mut Requester) -> Vec<Header> {
        let mut frames = Vec::new();
        while let Some(frame) = r.next_frame() {
            if frame.header.is_last() {
                r.mark_sent(frame.index);
            }
            frames.push(frame.header);
        }
        frames
    }

    fn seqs(frames: &[Header]) -> Vec<u32> {
        frames.iter().map(|f| f.seq).collect()
    }

    type Done = Vec<(u64, Status)>;

    fn ack(r: &mut Requester, seq: u32) -> Result<Done, Violation> {
        let mut done = Vec::new();
        r.acknowledge(seq, &mut |c| done.push((c.wr_id, c.status)))?;
        Ok(done)
    }

    fn flush(r: &mut Requester, status: Status) -> Done {
        let mut done = Vec::new();
        r.flush(status, &mut |c| done.push((c.wr_id, c.status)));
        done
    }

    #[test]
    fn acknowledgments_are_cumulative_and_free_slots() {
        let mut r = Requester::new(3, 1, 0, false);
        for id in 0..3 {
            let mut request = write(id);
            request.signaled = id != 1;
            assert_eq!(r.post(request, data(10)), Ok(10));
        }
        assert_eq!(r.post(write(9), data(10)), Err(PostError::Full));
        assert_eq!(seqs(&send_all(&mut r)), [0, 1, 2]);
        assert_eq!(ack(&mut r, 0), Ok(vec![]));
        assert_eq!(ack(&mut r, 2), Ok(vec![(0, Status::Success)]));
        assert_eq!(r.room(), 2);
        assert_eq!(
            ack(&mut r, 4),
            Err(Violation("acknowledgment of a request that was not sent"))
        );
        assert_eq!(ack(&mut r, 3), Ok(vec![(2, Status::Success)]));
        assert!(r.is_empty());
    }

    #[test]
    fn long_messages_are_cut() {
        let mut r = Requester::new(1, 1, 0, false);
        r.post(write(1), data(2 * SEGMENT_MAX + 1)).unwrap();
        let frames = send_all(&mut r);
        let flags: Vec<_> = frames.iter().map(|f| (f.flags, f.len, f.total)).collect();
        let total = 2 * SEGMENT_MAX + 1;
        assert_eq!(
            flags,
            [
                (wire::FLAG_FIRST, SEGMENT_MAX, total),
                (0, SEGMENT_MAX, total),
                (wire::FLAG_LAST, 1, total)
            ]
        );
    }

    #[test]
    fn fence_and_depth_hold_requests_back() {
        let mut r = Requester::new(8, 1, 0, false);
        r.set_max_reads(2);
        for id in 0..3 {
            r.post(Request::new(id, Kind::Read), data(4)).unwrap();
        }
        let mut fenced = write(3);
        fenced.fence = true;
        r.post(fenced, data(4)).unwrap();
        assert_eq!(seqs(&send_all(&mut r)), [0, 1]);
        assert_eq!(r.answer(0, 4), Ok((0, 0)));
        ack(&mut r, 1).unwrap();
        assert_eq!(seqs(&send_all(&mut r)), [2]);
        assert_eq!(r.answer(1, 3), Ok((1, 0)));
        assert_eq!(
            ack(&mut r, 2),
            Err(Violation("read acknowledged without its data"))
        );
        assert_eq!(r.answer(1, 1), Ok((1, 3)));
        assert_eq!(
            r.answer(1, 1),
            Err(Violation("more data than were asked for"))
        );
        ack(&mut r, 2).unwrap();
        assert_eq!(seqs(&send_all(&mut r)), []);
        r.answer(2, 4).unwrap();
        ack(&mut r, 3).unwrap();
        assert_eq!(seqs(&send_all(&mut r)), [3]);
        assert!(r.answer(3, 0).is_err());
        assert!(r.answer(77, 0).is_err());
    }

    #[test]
    fn without_resources_a_read_fails() {
        let mut r = Requester::new(1, 1, 0, false);
        r.post(Request::new(1, Kind::Read), data(4)).unwrap();
        assert_eq!(r.next_frame(), None);
        assert_eq!(r.head_failure(), Some(Status::RemoteInvalidRequest));
    }

    #[test]
    fn not_ready_goes_back() {
        let mut r = Requester::new(8, 1, 0, false);
        r.set_max_reads(8);
        r.post(write(0), data(1)).unwrap();
        r.post(Request::new(1, Kind::Send), data(1)).unwrap();
        r.post(Request::new(2, Kind::Read), data(1)).unwrap();
        assert_eq!(seqs(&send_all(&mut r)), [0, 1, 2]);
        assert!(r.not_ready(3).is_err());
        assert_eq!(r.not_ready(1), Ok(()));
        assert_eq!(ack(&mut r, 1), Ok(vec![(0, Status::Success)]));
        assert!(ack(&mut r, 2).is_err());
        r.post(write(3), data(1)).unwrap();
        assert_eq!(r.next_frame(), None);
        assert!(r.ready());
        assert!(!r.ready());
        assert_eq!(seqs(&send_all(&mut r)), [1, 2, 3]);
        r.answer(2, 1).unwrap();
        assert_eq!(ack(&mut r, 4), Ok(vec![(3, Status::Success)]));
        assert_eq!(r.reads, 0);
    }

    #[test]
    fn local_failures_complete_in_order() {
        let mut r = Requester::new(8, 1, 0, false);
        for id in 0..4 {
            r.post(write(id), data(1)).unwrap();
        }
        let first = r.next_frame().unwrap();
        r.mark_sent(first.index);
        let second = r.next_frame().unwrap();
        r.fail(second.index, Status::LocalProtection);
        assert_eq!(r.next_frame(), None);
        assert_eq!(r.head_failure(), None);
        assert_eq!(ack(&mut r, 1), Ok(vec![(0, Status::Success)]));
        assert_eq!(r.head_failure(), Some(Status::LocalProtection));
        assert_eq!(
            flush(&mut r, Status::LocalProtection),
            [
                (1, Status::LocalProtection),
                (2, Status::Flushed),
                (3, Status::Flushed)
            ]
        );
    }

    #[test]
    fn refusal_completes_what_came_before() {
        let mut r = Requester::new(8, 1, 0, false);
        for id in 0..3 {
            r.post(write(id), data(1)).unwrap();
        }
        send_all(&mut r);
        let mut done = Vec::new();
        r.refused(1, Status::RemoteAccess, &mut |c| {
            done.push((c.wr_id, c.status))
        })
        .unwrap();
        assert_eq!(done, [(0, Status::Success)]);
        assert_eq!(r.head_failure(), Some(Status::RemoteAccess));
        assert_eq!(
            flush(&mut r, Status::RemoteAccess),
            [(1, Status::RemoteAccess), (2, Status::Flushed)]
        );
    }

    #[test]
    fn inline_data_are_copied_and_bounded() {
        let mut r = Requester::new(2, 1, 8, false);
        let none: Data<'_, std::array::IntoIter<Sge, 0>> = Data::Inline(&[b"123456789"]);
        assert_eq!(r.post(write(1), none), Err(PostError::Invalid));
        let two: Data<'_, std::array::IntoIter<Sge, 0>> = Data::Inline(&[b"1234", b"5678"]);
        assert_eq!(r.post(write(1), two), Ok(8));
        let mut bytes = Vec::new();
        r.pieces(0, 2, 5, |source| {
            if let Source::Inline(at, len) = source {
                // SAFETY: the requester's own storage.
                bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(at, len) });
            }
            true
        });
        assert_eq!(bytes, b"34567");
    }

    #[test]
    fn lists_are_clipped() {
        let list = [(100, 10), (200, 0), (300, 5), (400, 10)].map(|(addr, len)| Sge {
            addr,
            len,
            lkey: 1,
        });
        let parts = |offset, len| -> Vec<_> {
            clip(list.into_iter(), offset, len)
                .map(|s| (s.addr, s.len))
                .collect()
        };
        assert_eq!(parts(0, 25), [(100, 10), (300, 5), (400, 10)]);
        assert_eq!(parts(9, 7), [(109, 1), (300, 5), (400, 1)]);
        assert_eq!(parts(15, 1), [(400, 1)]);
        assert_eq!(parts(10, 0), []);
    }

    #[test]
    fn numbers_wrap() {
        let mut r = Requester::new(4, 1, 0, false);
        let near = u64::from(u32::MAX) - 1;
        (r.head, r.sent, r.cursor, r.tail) = (near, near, near, near);
        // Slots come into being in order, so start at a slot boundary of an empty ring.
        let start = near.next_multiple_of(4);
        (r.head, r.sent, r.cursor, r.tail) = (start - 4, start - 4, start - 4, start - 4);
        for id in 0..4 {
            r.post(write(id), data(1)).unwrap();
        }
        send_all(&mut r);
        assert_eq!(ack(&mut r, start as u32).map(|d| d.len()), Ok(4));
        for id in 0..4 {
            r.post(write(id), data(1)).unwrap();
        }
        let frames = seqs(&send_all(&mut r));
        assert_eq!(frames, [0, 1, 2, 3]);
        assert_eq!(ack(&mut r, 4).map(|d| d.len()), Ok(4));
    }
}
