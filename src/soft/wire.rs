// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What the two ends of a connection say to each other: pure encoding and decoding.
//!
//! A connection starts with a [`Greeting`] in each direction (a request; that it was received, then a
//! reply or reject).
//! After that both directions carry frames: a [`Header`] of 32 bytes, followed by its payload
//! if its kind has one. Everything is little-endian, except immediate data, which travels as the
//! four bytes that the program supplied.
//!
//! A message longer than [`SEGMENT_MAX`] is cut into segments, so that answers to the other
//! direction can go between them. `seq` numbers the requests of one direction; all segments of
//! a message bear its number. An acknowledgment's `seq` is the first request that is *not*
//! covered by it.
//!
//! No I/O and no state here; every byte that is decoded is hostile until checked.

/// Length of every frame's header.
pub const HEADER_LEN: usize = 32;
/// Length of what takes the place of a payload that the receiver fetches itself.
pub const REFERENCE_LEN: usize = 16;
/// Longest payload of one frame.
pub const SEGMENT_MAX: u32 = 1 << 20;
/// Length of a greeting without private data and extension.
pub const GREETING_LEN: usize = 32;
/// Longest private data in a request, as on InfiniBand.
pub const REQUEST_PRIVATE_MAX: usize = 56;
/// Longest private data in a reply.
pub const REPLY_PRIVATE_MAX: usize = 196;
/// Longest private data in a reject.
pub const REJECT_PRIVATE_MAX: usize = 148;
/// Longest extension that a greeting may carry: items of a tag, a length and so many bytes. Items
/// that are not known are for later versions, and are skipped.
pub const EXTENSION_MAX: usize = 256;
/// Tag of a [`Meeting`] in an extension.
const TAG_MEETING: u8 = 1;
/// Length of a [`Meeting`]'s bytes.
const MEETING_LEN: usize = 32;

const MAGIC: [u8; 8] = *b"rpmasoft";
const VERSION: u16 = 1;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Message into the next posted receive.
    Send = 1,
    /// The same, with immediate data.
    SendImm = 2,
    /// Payload into a region of the target.
    Write = 3,
    /// The same; its end consumes a receive and delivers immediate data.
    WriteImm = 4,
    /// Asks for `total` bytes of a region of the target.
    Read = 5,
    /// One aligned 8-byte store; the value takes the place of the lengths.
    AtomicWrite = 6,
    /// Makes earlier writes visible or durable; the length is 64 bits wide.
    Flush = 7,
    /// All requests before `seq` are done.
    Ack = 16,
    /// All requests before `seq` are done, `seq` itself failed with `code`.
    Nak = 17,
    /// Part of the answer to read `seq`.
    ReadData = 18,
    /// Request `seq` found no receive; it and all after it were dropped.
    RnrNak = 19,
    /// A receive is there now; start again with request `seq`.
    RnrReady = 20,
    /// The active side has seen the reply: the connection is established.
    ReadyToUse = 32,
    /// Asks for the end of the connection.
    Disconnect = 33,
    /// Agrees to the end of the connection.
    DisconnectReply = 34,
    /// The sender's queue pair is in error; it will answer nothing any more.
    Terminate = 35,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Kind::Send,
            2 => Kind::SendImm,
            3 => Kind::Write,
            4 => Kind::WriteImm,
            5 => Kind::Read,
            6 => Kind::AtomicWrite,
            7 => Kind::Flush,
            16 => Kind::Ack,
            17 => Kind::Nak,
            18 => Kind::ReadData,
            19 => Kind::RnrNak,
            20 => Kind::RnrReady,
            32 => Kind::ReadyToUse,
            33 => Kind::Disconnect,
            34 => Kind::DisconnectReply,
            35 => Kind::Terminate,
            _ => return None,
        })
    }

    /// Whether frames of this kind are numbered requests.
    pub fn is_request(self) -> bool {
        (self as u8) < Kind::Ack as u8
    }

    /// Whether a message of this kind may span several frames.
    pub fn is_segmented(self) -> bool {
        matches!(
            self,
            Kind::Send | Kind::SendImm | Kind::Write | Kind::WriteImm
        )
    }

    /// Whether a request of this kind consumes a receive at the target.
    pub fn consumes_receive(self) -> bool {
        matches!(self, Kind::Send | Kind::SendImm | Kind::WriteImm)
    }

    /// Whether it carries immediate data.
    pub fn has_immediate(self) -> bool {
        matches!(self, Kind::SendImm | Kind::WriteImm)
    }
}

/// First segment of a message.
pub const FLAG_FIRST: u8 = 1;
/// Last segment of a message.
pub const FLAG_LAST: u8 = 2;
/// The receiver asked to be notified of messages like this.
pub const FLAG_SOLICITED: u8 = 4;

/// Flush placement: visible to every reader at the target.
pub const FLUSH_GLOBAL: u8 = 1;
/// Flush placement: safe from power loss.
pub const FLUSH_PERSISTENT: u8 = 2;
/// Flush extent: the whole region, not only the given range.
pub const FLUSH_WHOLE_REGION: u8 = 4;

/// Code of a frame with payload: a reference to the sender's memory takes the place of the payload.
/// Only between processes that share memory.
pub const BY_REFERENCE: u8 = 1;

/// Why a request failed at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NakCode {
    /// The request does not fit, or is not one that the target takes.
    InvalidRequest = 1,
    /// The key, the range or the rights are not good for it.
    RemoteAccess = 2,
    /// The target could not do it.
    RemoteOperation = 3,
    /// The payload was not where the request said: in the requester's own memory.
    RequesterMemory = 4,
}

impl NakCode {
    /// The code with this number.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => NakCode::InvalidRequest,
            2 => NakCode::RemoteAccess,
            3 => NakCode::RemoteOperation,
            4 => NakCode::RequesterMemory,
            _ => return None,
        })
    }
}

/// Why bytes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFrame {
    /// No frame or greeting has this kind.
    UnknownKind(u8),
    /// Flags that its kind does not have, or lacks.
    UnknownFlags(u8),
    /// A code that its kind does not have.
    UnknownCode(u8),
    /// A field that must be zero is not.
    Reserved,
    /// Lengths that contradict each other or a limit.
    Length,
    /// The greeting is of another protocol.
    Magic,
    /// The greeting is of another version.
    Version(u16),
    /// More private data than its kind of greeting carries.
    PrivateData(u8),
    /// A longer extension than a greeting may have.
    Extension(u16),
}

impl std::fmt::Display for BadFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadFrame::UnknownKind(k) => write!(f, "unknown frame kind {k}"),
            BadFrame::UnknownFlags(x) => write!(f, "unexpected frame flags {x:#x}"),
            BadFrame::UnknownCode(c) => write!(f, "unknown code {c}"),
            BadFrame::Reserved => f.write_str("reserved field is not zero"),
            BadFrame::Length => f.write_str("impossible length"),
            BadFrame::Magic => f.write_str("not this protocol"),
            BadFrame::Version(v) => write!(f, "protocol version {v} is not supported"),
            BadFrame::PrivateData(n) => write!(f, "{n} bytes of private data are too many"),
            BadFrame::Extension(n) => write!(f, "an extension of {n} bytes is too long"),
        }
    }
}

/// Header of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// `FLAG_` bits.
    pub flags: u8,
    /// Failure code of a NAK, placement bits of a flush, [`BY_REFERENCE`] or 0 with a payload,
    /// else 0.
    pub code: u8,
    /// Number of the request.
    pub seq: u32,
    /// Start of the remote range, the same in all segments of a message.
    pub addr: u64,
    /// Payload bytes of this frame, also if there is only a reference to them.
    pub len: u32,
    /// Bytes of the whole message.
    pub total: u32,
    /// Key of the remote region.
    pub rkey: u32,
    /// Immediate data as the program supplied it.
    pub imm: [u8; 4],
}

impl Header {
    /// A frame that has no fields but its number.
    pub fn bare(kind: Kind, seq: u32) -> Self {
        Header {
            kind,
            flags: 0,
            code: 0,
            seq,
            addr: 0,
            len: 0,
            total: 0,
            rkey: 0,
            imm: [0; 4],
        }
    }

    fn has_payload(&self) -> bool {
        self.kind.is_segmented() || self.kind == Kind::ReadData
    }

    /// Whether a reference takes the place of the payload.
    pub fn is_by_reference(&self) -> bool {
        self.has_payload() && self.code == BY_REFERENCE
    }

    /// Bytes that follow the header.
    pub fn payload_len(&self) -> u32 {
        if self.is_by_reference() {
            REFERENCE_LEN as u32
        } else if self.has_payload() {
            self.len
        } else {
            0
        }
    }

    /// Whether it begins a message.
    pub fn is_first(&self) -> bool {
        self.flags & FLAG_FIRST != 0
    }

    /// Whether it ends a message.
    pub fn is_last(&self) -> bool {
        self.flags & FLAG_LAST != 0
    }

    /// The two length fields as one: the value of an atomic write, the length of a flush.
    pub fn wide(&self) -> u64 {
        u64::from(self.len) | u64::from(self.total) << 32
    }

    /// Stores a 64-bit value in the two length fields.
    pub fn set_wide(&mut self, value: u64) {
        self.len = value as u32;
        self.total = (value >> 32) as u32;
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut writer = Writer::new();
        writer.put(&[self.kind as u8, self.flags, self.code, 0]);
        writer.put(&self.seq.to_le_bytes());
        writer.put(&self.addr.to_le_bytes());
        writer.put(&self.len.to_le_bytes());
        writer.put(&self.total.to_le_bytes());
        writer.put(&self.rkey.to_le_bytes());
        writer.put(&self.imm);
        writer.bytes
    }

    /// Decodes a header and checks everything that can be checked without knowing the state of
    /// the connection.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, BadFrame> {
        let mut reader = Reader(bytes);
        let [kind, flags, code, reserved] = reader.array();
        let header = Header {
            kind: Kind::from_byte(kind).ok_or(BadFrame::UnknownKind(kind))?,
            flags,
            code,
            seq: u32::from_le_bytes(reader.array()),
            addr: u64::from_le_bytes(reader.array()),
            len: u32::from_le_bytes(reader.array()),
            total: u32::from_le_bytes(reader.array()),
            rkey: u32::from_le_bytes(reader.array()),
            imm: reader.array(),
        };
        if reserved != 0 {
            return Err(BadFrame::Reserved);
        }
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), BadFrame> {
        let allowed = if self.kind.consumes_receive() {
            FLAG_FIRST | FLAG_LAST | FLAG_SOLICITED
        } else if self.kind.is_request() {
            FLAG_FIRST | FLAG_LAST
        } else {
            0
        };
        if self.flags & !allowed != 0 {
            return Err(BadFrame::UnknownFlags(self.flags));
        }
        if self.kind.is_request() && !self.kind.is_segmented() {
            // These fit one frame always.
            if self.flags != FLAG_FIRST | FLAG_LAST {
                return Err(BadFrame::UnknownFlags(self.flags));
            }
        }
        match self.kind {
            Kind::Nak => {
                NakCode::from_byte(self.code).ok_or(BadFrame::UnknownCode(self.code))?;
            }
            Kind::Flush => {
                let placement = self.code & (FLUSH_GLOBAL | FLUSH_PERSISTENT);
                let known = FLUSH_GLOBAL | FLUSH_PERSISTENT | FLUSH_WHOLE_REGION;
                if placement == 0 || self.code & !known != 0 {
                    return Err(BadFrame::UnknownCode(self.code));
                }
            }
            _ if self.is_by_reference() && self.len > 0 => {}
            _ if self.code != 0 => return Err(BadFrame::UnknownCode(self.code)),
            _ => {}
        }
        match self.kind {
            Kind::Send | Kind::SendImm | Kind::Write | Kind::WriteImm => {
                let whole = self.is_first() && self.is_last();
                if self.len > SEGMENT_MAX
                    || self.len > self.total
                    || (whole && self.len != self.total)
                    || (!whole && self.len == 0)
                {
                    return Err(BadFrame::Length);
                }
            }
            Kind::ReadData if self.len == 0 || self.len > SEGMENT_MAX => {
                return Err(BadFrame::Length);
            }
            Kind::Read if self.len != 0 => return Err(BadFrame::Length),
            _ => {}
        }
        Ok(())
    }
}

/// Private data of a connection request, reply or reject.
#[derive(Clone, Copy)]
pub struct PrivateData {
    len: u8,
    bytes: [u8; REPLY_PRIVATE_MAX],
}

impl Default for PrivateData {
    fn default() -> Self {
        PrivateData {
            len: 0,
            bytes: [0; REPLY_PRIVATE_MAX],
        }
    }
}

impl PrivateData {
    /// Copies `data`, or `None` if it is longer than any message carries.
    pub fn new(data: &[u8]) -> Option<Self> {
        let mut this = PrivateData::default();
        this.bytes.get_mut(..data.len())?.copy_from_slice(data);
        this.len = u8::try_from(data.len()).ok()?;
        Some(this)
    }

    /// The data.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl std::fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl PartialEq for PrivateData {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

/// What a greeting is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GreetingKind {
    /// The active side wants a connection.
    Request = 1,
    /// The passive side's program accepts.
    Reply = 2,
    /// It does not.
    Reject = 3,
    /// The request has arrived, and the program will decide about it.
    Received = 4,
}

impl GreetingKind {
    fn private_max(self) -> usize {
        match self {
            GreetingKind::Request => REQUEST_PRIVATE_MAX,
            GreetingKind::Reply => REPLY_PRIVATE_MAX,
            GreetingKind::Reject => REJECT_PRIVATE_MAX,
            GreetingKind::Received => 0,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => GreetingKind::Request,
            2 => GreetingKind::Reply,
            3 => GreetingKind::Reject,
            4 => GreetingKind::Received,
            _ => return None,
        })
    }
}

/// The parameters of one end of a connection, as in `rdma_conn_param`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// Reads and atomics that the sender accepts at a time.
    pub responder_resources: u8,
    /// Reads and atomics that the sender wants to issue at a time.
    pub initiator_depth: u8,
    /// Not used; the other side's program can see it.
    pub flow_control: u8,
    /// How often a request that the network loses is sent again.
    pub retry_count: u8,
    /// How often a request that finds no receive is sent again; 7 is for ever.
    pub rnr_retry_count: u8,
    /// Whether the sender receives from a shared queue.
    pub srq: u8,
    /// Number of the sender's queue pair.
    pub qp_num: u32,
}

/// Where two processes of one machine can find memory that both use: in a request what the sender
/// offers, in a reply that it was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meeting {
    /// The sender's process, as it knows itself.
    pub pid: u32,
    /// The memory's descriptor there; in a request only.
    pub fd: u32,
    /// The memory's address there.
    pub addr: u64,
    /// What the sender has put there, so that nothing else is taken for it.
    pub nonce: [u8; 16],
}

/// The first message of each direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Greeting {
    /// What it is.
    pub kind: GreetingKind,
    /// The sender's parameters.
    pub params: Params,
    /// Reason of a reject, else 0.
    pub reason: u16,
    /// The program's own data.
    pub private: PrivateData,
    /// A faster way than the stream that the greeting came by.
    pub meeting: Option<Meeting>,
}

impl Greeting {
    /// Encodes the greeting; `out` holds exactly the message afterwards.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let private = self.private.as_slice();
        let p = &self.params;
        out.clear();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[self.kind as u8, private.len() as u8]);
        let extension = self.meeting.map_or(0, |_| 2 + MEETING_LEN);
        out.extend_from_slice(&(extension as u16).to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&p.qp_num.to_le_bytes());
        out.extend_from_slice(&[
            p.responder_resources,
            p.initiator_depth,
            p.flow_control,
            p.retry_count,
            p.rnr_retry_count,
            p.srq,
        ]);
        out.extend_from_slice(&self.reason.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(private);
        if let Some(meeting) = &self.meeting {
            out.extend_from_slice(&[TAG_MEETING, MEETING_LEN as u8]);
            out.extend_from_slice(&meeting.pid.to_le_bytes());
            out.extend_from_slice(&meeting.fd.to_le_bytes());
            out.extend_from_slice(&meeting.addr.to_le_bytes());
            out.extend_from_slice(&meeting.nonce);
        }
    }

    /// Length of the whole message, from its fixed part; refuses at once what cannot become a
    /// greeting.
    pub fn full_len(fixed: &[u8; GREETING_LEN]) -> Result<usize, BadFrame> {
        let mut reader = Reader(fixed);
        if reader.array::<8>() != MAGIC {
            return Err(BadFrame::Magic);
        }
        let version = u16::from_le_bytes(reader.array());
        if version != VERSION {
            return Err(BadFrame::Version(version));
        }
        let [kind, private] = reader.array();
        let kind = GreetingKind::from_byte(kind).ok_or(BadFrame::UnknownKind(kind))?;
        if usize::from(private) > kind.private_max() {
            return Err(BadFrame::PrivateData(private));
        }
        let extension = u16::from_le_bytes(reader.array());
        if usize::from(extension) > EXTENSION_MAX {
            return Err(BadFrame::Extension(extension));
        }
        Ok(GREETING_LEN + usize::from(private) + usize::from(extension))
    }

    /// Decodes a complete greeting.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadFrame> {
        let (fixed, rest) = bytes
            .split_first_chunk::<GREETING_LEN>()
            .ok_or(BadFrame::Length)?;
        if Self::full_len(fixed)? != bytes.len() {
            return Err(BadFrame::Length);
        }
        let mut reader = Reader(fixed);
        reader.array::<10>();
        let [kind, private_len] = reader.array();
        reader.array::<2>();
        if reader.array() != [0, 0] {
            return Err(BadFrame::Reserved);
        }
        let qp_num = u32::from_le_bytes(reader.array());
        let [
            responder_resources,
            initiator_depth,
            flow_control,
            retry_count,
            rnr_retry_count,
            srq,
        ] = reader.array();
        let reason = u16::from_le_bytes(reader.array());
        let private = rest
            .get(..usize::from(private_len))
            .and_then(PrivateData::new)
            .ok_or(BadFrame::PrivateData(private_len))?;
        let extension = rest.get(usize::from(private_len)..).unwrap_or_default();
        Ok(Greeting {
            kind: GreetingKind::from_byte(kind).ok_or(BadFrame::UnknownKind(kind))?,
            params: Params {
                responder_resources,
                initiator_depth,
                flow_control,
                retry_count: retry_count & 7,
                rnr_retry_count: rnr_retry_count & 7,
                srq,
                qp_num,
            },
            reason,
            private,
            meeting: find_meeting(extension),
        })
    }
}

/// Looks a meeting up in an extension.
fn find_meeting(mut extension: &[u8]) -> Option<Meeting> {
    loop {
        let ([tag, len], rest) = extension.split_first_chunk()?;
        let (item, rest) = rest.split_at_checked(usize::from(*len))?;
        if *tag == TAG_MEETING && item.len() == MEETING_LEN {
            let mut reader = Reader(item);
            return Some(Meeting {
                pid: u32::from_le_bytes(reader.array()),
                fd: u32::from_le_bytes(reader.array()),
                addr: u64::from_le_bytes(reader.array()),
                nonce: reader.array(),
            });
        }
        extension = rest;
    }
}

/// Fills a header front to back.
struct Writer {
    bytes: [u8; HEADER_LEN],
    used: usize,
}

impl Writer {
    fn new() -> Self {
        Writer {
            bytes: [0; HEADER_LEN],
            used: 0,
        }
    }

    fn put(&mut self, part: &[u8]) {
        if let Some(to) = self.bytes.get_mut(self.used..self.used + part.len()) {
            to.copy_from_slice(part);
        }
        self.used += part.len();
    }
}

/// Takes fixed-size pieces off the front; gives zeros past the end.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.0 = tail;
                *head
            }
            None => [0; N],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Kind; 16] = [
        Kind::Send,
        Kind::SendImm,
        Kind::Write,
        Kind::WriteImm,
        Kind::Read,
        Kind::AtomicWrite,
        Kind::Flush,
        Kind::Ack,
        Kind::Nak,
        Kind::ReadData,
        Kind::RnrNak,
        Kind::RnrReady,
        Kind::ReadyToUse,
        Kind::Disconnect,
        Kind::DisconnectReply,
        Kind::Terminate,
    ];

    fn sample(kind: Kind) -> Header {
        let mut header = Header::bare(kind, 0xfedc_ba98);
        header.addr = 0x0123_4567_89ab_cdef;
        header.rkey = 0x8765_4321;
        header.imm = [9, 8, 7, 6];
        if kind.is_request() {
            header.flags = FLAG_FIRST | FLAG_LAST;
        }
        match kind {
            Kind::Nak => header.code = NakCode::RemoteAccess as u8,
            Kind::Flush => {
                header.code = FLUSH_PERSISTENT;
                header.set_wide(1 << 33);
            }
            Kind::Read => header.total = 77,
            Kind::ReadData => header.len = 77,
            k if k.is_segmented() => {
                header.len = 77;
                header.total = 77;
            }
            _ => {}
        }
        header
    }

    #[test]
    fn headers_survive_the_wire() {
        for kind in ALL {
            let header = sample(kind);
            assert_eq!(Header::decode(&header.encode()), Ok(header), "{kind:?}");
        }
    }

    #[test]
    fn header_layout_is_fixed() {
        let header = sample(Kind::SendImm);
        assert_eq!(
            header.encode(),
            [
                2, 3, 0, 0, 0x98, 0xba, 0xdc, 0xfe, 0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01,
                77, 0, 0, 0, 77, 0, 0, 0, 0x21, 0x43, 0x65, 0x87, 9, 8, 7, 6
            ]
        );
    }

    #[test]
    fn every_byte_at_its_extremes_is_decoded_or_refused() {
        for kind in ALL {
            let good = sample(kind).encode();
            for at in 0..HEADER_LEN {
                for value in 0..=255 {
                    let mut bytes = good;
                    bytes[at] = value;
                    if let Ok(header) = Header::decode(&bytes) {
                        assert!(header.payload_len() <= SEGMENT_MAX);
                        assert_eq!(header.encode(), bytes);
                    }
                }
            }
        }
    }

    #[test]
    fn impossible_segments_are_refused() {
        let mut header = sample(Kind::Write);
        header.len = SEGMENT_MAX + 1;
        header.total = SEGMENT_MAX + 1;
        assert_eq!(Header::decode(&header.encode()), Err(BadFrame::Length));
        header.len = 10;
        header.total = 9;
        assert_eq!(Header::decode(&header.encode()), Err(BadFrame::Length));
        header.flags = FLAG_FIRST;
        header.len = 0;
        assert_eq!(Header::decode(&header.encode()), Err(BadFrame::Length));
    }

    fn greeting(kind: GreetingKind, private: &[u8]) -> Greeting {
        Greeting {
            kind,
            params: Params {
                responder_resources: 16,
                initiator_depth: 15,
                flow_control: 1,
                retry_count: 7,
                rnr_retry_count: 6,
                srq: 1,
                qp_num: 0x00ab_cdef,
            },
            reason: 28,
            private: PrivateData::new(private).unwrap(),
            meeting: None,
        }
    }

    #[test]
    fn greetings_survive_the_wire() {
        let data: Vec<u8> = (0..196).collect();
        for (kind, max) in [
            (GreetingKind::Request, REQUEST_PRIVATE_MAX),
            (GreetingKind::Reply, REPLY_PRIVATE_MAX),
            (GreetingKind::Reject, REJECT_PRIVATE_MAX),
            (GreetingKind::Received, 0),
        ] {
            for len in 0..=max {
                let sent = greeting(kind, &data[..len]);
                let mut bytes = Vec::new();
                sent.encode(&mut bytes);
                assert_eq!(bytes.len(), GREETING_LEN + len);
                let fixed = bytes.first_chunk().unwrap();
                assert_eq!(Greeting::full_len(fixed), Ok(bytes.len()));
                assert_eq!(Greeting::decode(&bytes), Ok(sent));
            }
            if max < REPLY_PRIVATE_MAX {
                let mut bytes = Vec::new();
                greeting(kind, &data[..=max]).encode(&mut bytes);
                assert_eq!(
                    Greeting::decode(&bytes),
                    Err(BadFrame::PrivateData(max as u8 + 1))
                );
            }
        }
        assert!(PrivateData::new(&[0; REPLY_PRIVATE_MAX + 1]).is_none());
    }

    #[test]
    fn meetings_survive_the_wire_among_unknown_items() {
        let sent = Greeting {
            meeting: Some(Meeting {
                pid: 0x0102_0304,
                fd: 7,
                addr: 0x0506_0708_090a_0b0c,
                nonce: *b"sixteen bytes...",
            }),
            ..greeting(GreetingKind::Request, b"data")
        };
        let mut bytes = Vec::new();
        sent.encode(&mut bytes);
        assert_eq!(Greeting::decode(&bytes), Ok(sent));
        let extension = bytes.split_off(GREETING_LEN + 4);
        let with = |extension: &[u8]| {
            let mut bytes = bytes.clone();
            bytes[12..14].copy_from_slice(&(extension.len() as u16).to_le_bytes());
            bytes.extend_from_slice(extension);
            Greeting::decode(&bytes).unwrap().meeting
        };
        let later = [&[9, 3, 1, 2, 3], &extension[..], &[8, 0]].concat();
        assert_eq!(with(&later), sent.meeting);
        // Cut short, of another length, or not there.
        assert_eq!(with(&extension[..extension.len() - 1]), None);
        assert_eq!(with(&[TAG_MEETING, 3, 1, 2, 3]), None);
        assert_eq!(with(&[9]), None);
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn foreign_greetings_are_refused() {
        let mut bytes = Vec::new();
        greeting(GreetingKind::Request, b"x").encode(&mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(Greeting::decode(&bytes[..cut]), Err(BadFrame::Length));
        }
        let mut other = bytes.clone();
        other[0] = b'R';
        assert_eq!(Greeting::decode(&other), Err(BadFrame::Magic));
        let mut other = bytes.clone();
        other[8] = 2;
        assert_eq!(Greeting::decode(&other), Err(BadFrame::Version(2)));
        let mut other = bytes.clone();
        other[10] = 0;
        assert_eq!(Greeting::decode(&other), Err(BadFrame::UnknownKind(0)));
        let mut other = bytes;
        other[13] = 255;
        assert_eq!(Greeting::decode(&other), Err(BadFrame::Extension(0xff00)));
    }
}
