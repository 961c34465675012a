// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The answering half of a queue pair: which requests may be executed, and what is owed for them.
//!
//! Pure state machines. [`Inbound`] belongs to the receiving side of the stream and decides
//! about each request; [`Replies`] belongs to the sending side and puts answers in order.

use std::collections::VecDeque;
use std::sync::Arc;

use super::mr::Region;
use super::requester::Violation;
use super::wire::{Header, Kind, NakCode, SEGMENT_MAX};

/// A message that has begun and not ended.
#[derive(Clone, Copy)]
struct Message {
    kind: Kind,
    total: u32,
    offset: u32,
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Drop it and its payload.
    Ignore,
    /// It begins a message, or is one.
    Begin,
    /// It continues the current message at this offset.
    Continue(u32),
}

/// Order of the requests that come in.
#[derive(Default)]
pub(super) struct Inbound {
    expected: u32,
    message: Option<Message>,
    /// `expected` found no receive: everything is dropped until it comes again.
    not_ready: bool,
    /// Nothing is executed any more.
    over: bool,
}

impl Inbound {
    /// Decides about the next request in the stream.
    pub(super) fn admit(&mut self, header: &Header) -> Result<Verdict, Violation> {
        if self.over {
            return Ok(Verdict::Ignore);
        }
        if self.not_ready {
            if header.seq != self.expected || !header.is_first() {
                return Ok(Verdict::Ignore);
            }
            self.not_ready = false;
        }
        if header.seq != self.expected {
            return Err(Violation("request out of order"));
        }
        let Some(message) = &mut self.message else {
            if !header.is_first() {
                return Err(Violation("message without a beginning"));
            }
            if !header.is_last() {
                self.message = Some(Message {
                    kind: header.kind,
                    total: header.total,
                    offset: header.len,
                });
            }
            return Ok(Verdict::Begin);
        };
        let offset = message.offset;
        let end = u64::from(offset) + u64::from(header.len);
        if header.is_first()
            || header.kind != message.kind
            || header.total != message.total
            || end > u64::from(message.total)
            || header.is_last() != (end == u64::from(message.total))
        {
            return Err(Violation("segments that do not fit together"));
        }
        message.offset = end as u32;
        Ok(Verdict::Continue(offset))
    }

    /// The request that was just admitted found no receive.
    pub(super) fn not_ready(&mut self) {
        self.not_ready = true;
        self.message = None;
    }

    /// The request that was just admitted cannot be executed, nor can those behind it.
    pub(super) fn stop(&mut self) {
        self.over = true;
        self.message = None;
    }

    /// The request was executed as a whole. Returns the number of the next one.
    pub(super) fn executed(&mut self) -> u32 {
        self.message = None;
        self.expected = self.expected.wrapping_add(1);
        self.expected
    }
}

/// A read that is being answered.
pub(super) struct ReadJob {
    pub seq: u32,
    pub region: Arc<Region>,
    pub addr: u64,
    pub left: u32,
}

/// A frame to send, with the memory that its payload comes from.
pub(super) struct ReplyFrame {
    pub header: Header,
    pub source: Option<(Arc<Region>, u64)>,
}

/// What is owed to the other side.
#[derive(Default)]
pub(super) struct Replies {
    reads: VecDeque<ReadJob>,
    max_reads: usize,
    /// All requests before it were executed.
    executed: u32,
    /// All before it were acknowledged.
    acknowledged: u32,
    nak: Option<(u32, NakCode)>,
    not_ready: Option<u32>,
    ready: Option<u32>,
}

impl Replies {
    /// Sets how many reads the two ends have agreed to have under way at a time.
    pub(super) fn set_max_reads(&mut self, max: usize) {
        self.max_reads = max;
        self.reads.reserve(max);
    }

    pub(super) fn executed(&mut self, next: u32) {
        self.executed = next;
    }

    /// Queues the answer to a read. `Err` if the other side has more under way than agreed.
    pub(super) fn read(&mut self, job: ReadJob) -> Result<(), Violation> {
        if self.reads.len() >= self.max_reads {
            return Err(Violation("more reads than agreed on"));
        }
        self.reads.push_back(job);
        Ok(())
    }

    pub(super) fn accepts_reads(&self) -> bool {
        self.max_reads > 0
    }

    /// Request `seq` failed; the earliest failure is the one that is told.
    pub(super) fn refuse(&mut self, seq: u32, code: NakCode) {
        match self.nak {
            Some((earlier, _)) if !is_before(seq, earlier) => {}
            _ => self.nak = Some((seq, code)),
        }
    }

    pub(super) fn not_ready(&mut self, seq: u32) {
        self.not_ready = Some(seq);
        self.ready = None;
    }

    pub(super) fn ready(&mut self, seq: u32) {
        self.ready = Some(seq);
    }

    /// A read's memory went away: reads from `seq` on are not answered any more.
    pub(super) fn abandon_reads(&mut self, seq: u32) {
        self.reads.retain(|job| is_before(job.seq, seq));
        if is_before(seq, self.executed) {
            self.executed = seq;
        }
    }

    /// The queue pair is in error: nothing is sent any more, except a refusal and what comes
    /// before it.
    pub(super) fn silence(&mut self) {
        self.not_ready = None;
        self.ready = None;
        match self.nak {
            Some((seq, _)) => self.abandon_reads(seq),
            None => {
                // The last acknowledgment says what was still done.
                if let Some(job) = self.reads.front() {
                    self.executed = job.seq;
                }
                self.reads.clear();
            }
        }
    }

    /// Whether nothing is to be sent but, at most, an acknowledgment.
    pub(super) fn is_acknowledgment_all(&self) -> bool {
        self.reads.is_empty()
            && self.nak.is_none()
            && self.not_ready.is_none()
            && self.ready.is_none()
    }

    pub(super) fn next_frame(&mut self) -> Option<ReplyFrame> {
        let bare = |kind, seq| {
            Some(ReplyFrame {
                header: Header::bare(kind, seq),
                source: None,
            })
        };
        if let Some(seq) = self.not_ready.take() {
            return bare(Kind::RnrNak, seq);
        }
        if let Some(seq) = self.ready.take() {
            return bare(Kind::RnrReady, seq);
        }
        // What comes before the oldest unanswered read is done.
        let done = self.reads.front().map_or(self.executed, |job| job.seq);
        if done != self.acknowledged {
            self.acknowledged = done;
            return bare(Kind::Ack, done);
        }
        if let Some(job) = self.reads.front_mut() {
            let part = job.left.min(SEGMENT_MAX);
            let mut header = Header::bare(Kind::ReadData, job.seq);
            header.len = part;
            let source = Some((Arc::clone(&job.region), job.addr));
            job.addr += u64::from(part);
            job.left -= part;
            if job.left == 0 {
                self.reads.pop_front();
            }
            return Some(ReplyFrame { header, source });
        }
        if let Some((seq, code)) = self.nak.take() {
            let mut header = Header::bare(Kind::Nak, seq);
            header.code = code as u8;
            self.acknowledged = seq;
            return Some(ReplyFrame {
                header,
                source: None,
            });
        }
        None
    }
}

/// Whether request number `a` comes before `b`; numbers wrap.
fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::super::mr::{Domain, access};
    use super::super::wire::{FLAG_FIRST, FLAG_LAST};
    use super::*;

    fn segment(seq: u32, flags: u8, len: u32, total: u32) -> Header {
        Header {
            flags,
            len,
            total,
            ..Header::bare(Kind::Send, seq)
        }
    }

    #[test]
    fn requests_come_in_order() {
        let mut inbound = Inbound::default();
        let whole = FLAG_FIRST | FLAG_LAST;
        assert_eq!(inbound.admit(&segment(0, whole, 1, 1)), Ok(Verdict::Begin));
        assert_eq!(inbound.executed(), 1);
        assert!(inbound.admit(&segment(0, whole, 1, 1)).is_err());
        assert!(inbound.admit(&segment(2, whole, 1, 1)).is_err());
        assert!(inbound.admit(&segment(1, FLAG_LAST, 1, 1)).is_err());
        assert_eq!(
            inbound.admit(&segment(1, FLAG_FIRST, 2, 5)),
            Ok(Verdict::Begin)
        );
        assert!(inbound.admit(&segment(1, FLAG_FIRST, 2, 5)).is_err());
        assert!(inbound.admit(&segment(1, FLAG_LAST, 2, 5)).is_err());
        assert!(inbound.admit(&segment(1, 0, 4, 5)).is_err());
        assert!(inbound.admit(&segment(1, 0, 1, 6)).is_err());
        assert_eq!(
            inbound.admit(&segment(1, 0, 2, 5)),
            Ok(Verdict::Continue(2))
        );
        assert_eq!(
            inbound.admit(&segment(1, FLAG_LAST, 1, 5)),
            Ok(Verdict::Continue(4))
        );
        assert_eq!(inbound.executed(), 2);
    }

    #[test]
    fn everything_is_dropped_until_the_request_comes_again() {
        let mut inbound = Inbound::default();
        let whole = FLAG_FIRST | FLAG_LAST;
        assert_eq!(
            inbound.admit(&segment(0, FLAG_FIRST, 1, 2)),
            Ok(Verdict::Begin)
        );
        inbound.not_ready();
        for header in [
            segment(0, FLAG_LAST, 1, 2),
            segment(1, whole, 1, 1),
            segment(2, whole, 1, 1),
        ] {
            assert_eq!(inbound.admit(&header), Ok(Verdict::Ignore));
        }
        assert_eq!(
            inbound.admit(&segment(0, FLAG_FIRST, 1, 2)),
            Ok(Verdict::Begin)
        );
        assert_eq!(
            inbound.admit(&segment(0, FLAG_LAST, 1, 2)),
            Ok(Verdict::Continue(1))
        );
    }

    fn frames(replies: &mut Replies) -> Vec<(Kind, u32, u32)> {
        std::iter::from_fn(|| replies.next_frame())
            .map(|f| (f.header.kind, f.header.seq, f.header.len))
            .collect()
    }

    #[test]
    fn acknowledgments_wait_for_earlier_reads() {
        let domain = Domain::new();
        let region = Region::register(&domain, 0x1000, 1 << 30, access::REMOTE_READ).unwrap();
        let job = |seq, left| ReadJob {
            seq,
            region: Arc::clone(&region),
            addr: 0x1000,
            left,
        };
        let mut replies = Replies::default();
        assert!(!replies.accepts_reads());
        assert!(replies.read(job(0, 1)).is_err());
        replies.set_max_reads(2);
        replies.executed(3);
        assert_eq!(frames(&mut replies), [(Kind::Ack, 3, 0)]);
        assert_eq!(frames(&mut replies), []);
        replies.read(job(3, SEGMENT_MAX + 1)).unwrap();
        replies.executed(5);
        replies.read(job(5, 7)).unwrap();
        assert!(replies.read(job(6, 7)).is_err());
        replies.executed(6);
        replies.refuse(6, NakCode::RemoteAccess);
        assert_eq!(
            frames(&mut replies),
            [
                (Kind::ReadData, 3, SEGMENT_MAX),
                (Kind::ReadData, 3, 1),
                (Kind::Ack, 5, 0),
                (Kind::ReadData, 5, 7),
                (Kind::Ack, 6, 0),
                (Kind::Nak, 6, 0)
            ]
        );
        replies.not_ready(9);
        replies.ready(9);
        assert_eq!(
            frames(&mut replies),
            [(Kind::RnrNak, 9, 0), (Kind::RnrReady, 9, 0)]
        );
        region.deregister();
    }

    #[test]
    fn abandoned_reads_are_not_acknowledged() {
        let domain = Domain::new();
        let region = Region::register(&domain, 0x1000, 4096, access::REMOTE_READ).unwrap();
        let mut replies = Replies::default();
        replies.set_max_reads(4);
        for seq in 0..3 {
            replies
                .read(ReadJob {
                    seq,
                    region: Arc::clone(&region),
                    addr: 0x1000,
                    left: 1,
                })
                .unwrap();
            replies.executed(seq + 1);
        }
        replies.abandon_reads(1);
        replies.refuse(1, NakCode::RemoteAccess);
        assert_eq!(
            frames(&mut replies),
            [(Kind::ReadData, 0, 1), (Kind::Ack, 1, 0), (Kind::Nak, 1, 0)]
        );
        region.deregister();
    }
}
