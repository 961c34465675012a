// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Connection: its events, its operations, its end.

use std::ffi::{CStr, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rdma_sys::{ibv_sge, ibv_wr_opcode, rdma_cm_event_type as cm};

use crate::conn_req::Queues;
use crate::cq::CompletionQueue;
use crate::error::{Error, FirstError};
use crate::fault;
use crate::flush::{Flush, FlushRequest, FlushType};
use crate::log::{log_error, log_notice, log_warning};
use crate::mr::{LocalRange, RemoteRegion, element_of};
use crate::peer::Peer;
use crate::peer_cfg::PeerConfig;
use crate::private_data::PrivateData;
use crate::sys::alloc::Shared;
use crate::sys::errno;
use crate::verbs::cm::{EventChannel, QpId};
use crate::verbs::qp::{Element, FENCE, INLINE, RemoteAddress, SIGNALED, SendRequest};

/// What happened to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnEvent {
    /// It is there.
    Established,
    /// It has ended: either side asked for it, or the other side or the way to it is gone.
    Closed,
    /// It could not be set up, or the device was removed.
    Lost,
    /// The other side, or the fabric, refused it.
    Rejected,
    /// The other side did not answer.
    Unreachable,
}

impl ConnEvent {
    /// The number in the C interface.
    pub const fn number(self) -> c_int {
        match self {
            ConnEvent::Established => 0,
            ConnEvent::Closed => 1,
            ConnEvent::Lost => 2,
            ConnEvent::Rejected => 3,
            ConnEvent::Unreachable => 4,
        }
    }

    /// A text for a number of the C interface, of an event or not.
    pub const fn text_of(number: c_int) -> &'static CStr {
        match number {
            -1 => c"Undefined connection event",
            0 => c"Connection established",
            1 => c"Connection closed",
            2 => c"Connection lost",
            3 => c"Connection rejected",
            4 => c"Connection unreachable",
            _ => c"Unsupported connection event",
        }
    }

    /// What a status that comes with the event means, for the log.
    fn cause(self, status: c_int) -> &'static str {
        /// Reasons for a rejection, as InfiniBand numbers them.
        const NO_LISTENER: c_int = 8;
        const BY_PROGRAM: c_int = 28;
        const REFUSED: c_int = -libc::ECONNREFUSED;
        const TIMED_OUT: c_int = -libc::ETIMEDOUT;
        match (self, status) {
            (ConnEvent::Rejected, NO_LISTENER | REFUSED) => {
                ": nobody listens at this address and port"
            }
            (ConnEvent::Rejected, BY_PROGRAM) => {
                ": the other side's program turned it down, or is gone"
            }
            (ConnEvent::Unreachable, TIMED_OUT) => ": no answer in time",
            _ => "",
        }
    }

    fn from_cm(kind: cm::Type) -> Option<Self> {
        Some(match kind {
            cm::RDMA_CM_EVENT_ESTABLISHED => ConnEvent::Established,
            cm::RDMA_CM_EVENT_CONNECT_ERROR | cm::RDMA_CM_EVENT_DEVICE_REMOVAL => ConnEvent::Lost,
            cm::RDMA_CM_EVENT_DISCONNECTED | cm::RDMA_CM_EVENT_TIMEWAIT_EXIT => ConnEvent::Closed,
            cm::RDMA_CM_EVENT_REJECTED => ConnEvent::Rejected,
            cm::RDMA_CM_EVENT_UNREACHABLE => ConnEvent::Unreachable,
            _ => return None,
        })
    }
}

/// When an operation produces a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// Only if it fails.
    OnError,
    /// In any case.
    Always,
}

impl Completion {
    #[inline]
    fn send_flags(self) -> u32 {
        match self {
            Completion::OnError => 0,
            Completion::Always => SIGNALED,
        }
    }
}

/// What identifies an operation in its completion, and when it has one.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// Comes back as `wr_id` of the completion.
    pub wr_id: u64,
    /// When there is a completion.
    pub completion: Completion,
}

/// A connection. Safe to use from several threads at once, but for its end.
pub struct Connection {
    // Released in this order; see `delete`.
    flush: Flush,
    id: QpId,
    queues: Queues,
    events: EventChannel,
    /// Set once: by the request, or by the event ESTABLISHED.
    private_data: OnceLock<PrivateData>,
    direct_write_to_pmem: AtomicBool,
    /// Kept alive for the queue pair, which uses its protection domain.
    _peer: Shared<Peer>,
}

/// Releases what a connection that did not come about was to be made of. A failure on the way is
/// logged; what the caller needs to know is the one that led here.
fn abandon(id: QpId, queues: Queues) {
    let _kept = errno::Preserve::new();
    let id = id.destroy_queue_pair();
    let _ = queues.release_completion_queues();
    drop(id);
    drop(queues);
}

impl Connection {
    /// Makes the connection of a request that is still to be sent, or granted. Gives the identifier
    /// an event channel of its own, and the connection its way to flush.
    pub(crate) fn new(id: QpId, queues: Queues, peer: Shared<Peer>) -> Result<Self, Error> {
        const FUNCTION: &CStr = c"rpma_conn_new";
        let events = match EventChannel::create(peer.device().provider(), FUNCTION) {
            Ok(events) => events,
            Err(error) => {
                abandon(id, queues);
                return Err(error);
            }
        };
        let prepared = id
            .migrate(&events, FUNCTION)
            .and_then(|()| Flush::new(&peer, id.qp()));
        match prepared {
            Ok(flush) => Ok(Connection {
                flush,
                id,
                queues,
                events,
                private_data: OnceLock::new(),
                direct_write_to_pmem: AtomicBool::new(false),
                _peer: peer,
            }),
            Err(error) => {
                // The identifier may be on the channel, which ends after it.
                abandon(id, queues);
                Err(error)
            }
        }
    }

    /// Sends the connect request. If the provider refuses, the connection has to be deleted.
    pub(crate) fn request(&self, private_data: &[u8]) -> Result<(), Error> {
        self.id.connect(private_data, c"rpma_conn_new_connect")
    }

    /// Grants the other side's request. If the provider refuses, the connection has to be deleted.
    pub(crate) fn accept(&self, private_data: &[u8]) -> Result<(), Error> {
        self.id.accept(private_data, c"rpma_conn_new_accept")
    }

    /// Takes over the private data that came with the request.
    pub(crate) fn set_private_data(&self, private_data: PrivateData) {
        if !private_data.is_empty() {
            // It is set by whoever comes first, for good: callers hold its address.
            let _ = self.private_data.set(private_data);
        }
    }

    /// The descriptor that becomes readable when an event is there. It stays the connection's.
    pub fn event_fd(&self) -> c_int {
        self.events.fd()
    }

    /// Takes the next event; waits for one unless the descriptor is non-blocking.
    ///
    /// Errors: NO_EVENT if there is none; UNKNOWN for an event without meaning here; NOMEM;
    /// PROVIDER.
    pub fn next_event(&self) -> Result<ConnEvent, Error> {
        const FUNCTION: &CStr = c"rpma_conn_next_event";
        let event = self.events.next_event(FUNCTION)?;
        let kind = event.kind();
        let (name, status) = (event.name(), event.status());
        let arrived = if kind == cm::RDMA_CM_EVENT_ESTABLISHED && self.private_data.get().is_none()
        {
            PrivateData::copy_of(event.private_data())?
        } else {
            PrivateData::default()
        };
        event.acknowledge(FUNCTION)?;
        self.set_private_data(arrived);
        let Some(event) = ConnEvent::from_cm(kind) else {
            log_warning!(FUNCTION, "unexpected event: {name} (status {status})");
            return Err(Error::Unknown);
        };
        log_notice!(
            FUNCTION,
            "{}{} (QP {}, {name}, status {status})",
            ConnEvent::text_of(event.number()).to_str().unwrap_or("?"),
            event.cause(status),
            self.qp_num()
        );
        Ok(event)
    }

    /// What the other side sent along with its request or its answer.
    pub fn private_data(&self) -> &[u8] {
        self.private_data.get().map_or(&[], PrivateData::bytes)
    }

    /// Takes over what the other side says about itself.
    pub fn apply_remote_peer_config(&self, config: &PeerConfig) {
        let supported = config.direct_write_to_pmem();
        self.direct_write_to_pmem
            .store(supported, Ordering::Relaxed);
    }

    /// The number of the connection's queue pair, which completions carry.
    pub fn qp_num(&self) -> u32 {
        self.id.qp().number()
    }

    /// The main completion queue.
    pub fn cq(&self) -> &CompletionQueue {
        &self.queues.cq
    }

    /// The separate receive completion queue, if there is one.
    pub fn rcq(&self) -> Option<&CompletionQueue> {
        self.queues.rcq.as_ref()
    }

    /// The descriptor of the shared completion channel. It stays the connection's.
    ///
    /// Errors: NOT_SHARED_CHNL if there is no shared channel.
    pub fn completion_fd(&self) -> Result<c_int, Error> {
        let channel = self.queues.channel.as_ref();
        channel
            .map(|channel| channel.fd())
            .ok_or(Error::NotSharedChannel)
    }

    /// Waits until a completion is announced on the shared channel, unless its descriptor is
    /// non-blocking.
    ///
    /// Errors: NOT_SHARED_CHNL if there is no shared channel; NO_COMPLETION if nothing is
    /// announced; UNKNOWN if the announcement is of no queue of this connection.
    #[inline]
    pub fn wait(&self) -> Result<Announced<'_>, Error> {
        let channel = self.queues.channel.as_ref();
        let channel = channel.ok_or(Error::NotSharedChannel)?;
        fault::point(c"rpma_conn_wait", Error::NoCompletion)?;
        let event = channel.next_event().ok_or(Error::NoCompletion)?;
        let announced = if self.queues.cq.raw().raised(&event) {
            Announced {
                queue: &self.queues.cq,
                is_rcq: false,
            }
        } else {
            match &self.queues.rcq {
                Some(rcq) if rcq.raw().raised(&event) => Announced {
                    queue: rcq,
                    is_rcq: true,
                },
                _ => {
                    log_error!(c"rpma_conn_wait", "an event of an unknown completion queue");
                    channel.acknowledge_stray(&event);
                    return Err(Error::Unknown);
                }
            }
        };
        announced.queue.raw().acknowledge();
        Ok(announced)
    }

    /// Reads remote memory. With `None`, reads nothing, in order with the other operations.
    ///
    /// Errors of this and the operations below: INVAL for more bytes than one operation can
    /// move; PROVIDER if the provider refuses, as it does when the queue is full.
    #[inline(always)]
    pub fn read(&self, transfer: Option<Transfer<'_>>, operation: Operation) -> Result<(), Error> {
        self.transfer(
            ibv_wr_opcode::IBV_WR_RDMA_READ,
            transfer,
            0,
            operation,
            c"rpma_mr_read",
        )
    }

    /// Writes remote memory. With `None`, writes nothing, in order with the other operations.
    #[inline(always)]
    pub fn write(&self, transfer: Option<Transfer<'_>>, operation: Operation) -> Result<(), Error> {
        self.transfer(
            ibv_wr_opcode::IBV_WR_RDMA_WRITE,
            transfer,
            0,
            operation,
            c"rpma_mr_write",
        )
    }

    /// Writes remote memory and tells the other side, which takes a receive request of it.
    #[inline(always)]
    pub fn write_with_imm(
        &self,
        transfer: Option<Transfer<'_>>,
        immediate: u32,
        operation: Operation,
    ) -> Result<(), Error> {
        self.transfer(
            ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
            transfer,
            immediate,
            operation,
            c"rpma_mr_write",
        )
    }

    #[inline(always)]
    fn transfer(
        &self,
        opcode: ibv_wr_opcode::Type,
        transfer: Option<Transfer<'_>>,
        immediate: u32,
        operation: Operation,
        function: &CStr,
    ) -> Result<(), Error> {
        let (remote, element) = match transfer {
            None => (RemoteAddress::default(), Element::NONE),
            Some(Transfer {
                local,
                remote,
                remote_offset,
            }) => {
                let element = element_of(Some(local), function)?;
                (remote.at(remote_offset, local.len(), function), element)
            }
        };
        self.post(opcode, remote, element, immediate, operation, function)
    }

    /// Writes 8 bytes so that no observer sees only some of them. `offset` is a multiple of 8.
    #[inline(always)]
    pub fn atomic_write(
        &self,
        dst: &RemoteRegion,
        offset: usize,
        value: &[u8; 8],
        operation: Operation,
    ) -> Result<(), Error> {
        const FUNCTION: &CStr = c"rpma_mr_atomic_write";
        let remote = dst.at(offset, value.len(), FUNCTION);
        let qp = self.id.qp();
        let wr_id = operation.wr_id;
        // The fence keeps the write behind a read that stands in for a flush.
        let fence = || if self.flush.may_read() { FENCE } else { 0 };
        let flags = operation.completion.send_flags();
        if let Some(posted) =
            qp.post_atomic_write(remote, value, wr_id, || flags | fence(), FUNCTION)
        {
            return posted;
        }
        let request = SendRequest {
            opcode: ibv_wr_opcode::IBV_WR_RDMA_WRITE,
            wr_id,
            flags: flags | INLINE | FENCE,
            immediate: 0,
            remote,
            element: Element::one(ibv_sge {
                addr: value.as_ptr() as u64,
                length: 8,
                lkey: 0,
            }),
        };
        qp.post_send(request, FUNCTION)
    }

    /// Makes all earlier writes to a part of a region visible or persistent.
    ///
    /// Errors: also NOSUPP if the region was not registered for this type of flush, or if it is
    /// to be persistent and the remote peer did not say that its memory can be.
    #[inline(always)]
    pub fn flush(
        &self,
        dst: &RemoteRegion,
        offset: usize,
        len: usize,
        kind: FlushType,
        operation: Operation,
    ) -> Result<(), Error> {
        const FUNCTION: &CStr = c"rpma_flush";
        fault::point(FUNCTION, Error::NoSupp)?;
        if kind == FlushType::Persistent && !self.direct_write_to_pmem.load(Ordering::Relaxed) {
            log_error!(
                FUNCTION,
                "the remote peer did not declare direct write to persistent memory (see rpma_conn_apply_remote_peer_cfg)"
            );
            return Err(Error::NoSupp);
        }
        if !dst.usage().contains(kind.usage()) {
            log_error!(
                FUNCTION,
                "the remote region was not registered for a flush of type {kind:?}"
            );
            return Err(Error::NoSupp);
        }
        let request = FlushRequest {
            dst,
            offset,
            len,
            kind,
            wr_id: operation.wr_id,
            send_flags: operation.completion.send_flags(),
        };
        self.flush.post(self.id.qp(), &request, FUNCTION)
    }

    /// Sends a message; `None` for one without bytes.
    #[inline(always)]
    pub fn send(&self, message: Option<LocalRange<'_>>, operation: Operation) -> Result<(), Error> {
        self.message(ibv_wr_opcode::IBV_WR_SEND, message, 0, operation)
    }

    /// Sends a message with immediate data; `None` for one without bytes.
    #[inline(always)]
    pub fn send_with_imm(
        &self,
        message: Option<LocalRange<'_>>,
        immediate: u32,
        operation: Operation,
    ) -> Result<(), Error> {
        let opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
        self.message(opcode, message, immediate, operation)
    }

    #[inline(always)]
    fn message(
        &self,
        opcode: ibv_wr_opcode::Type,
        message: Option<LocalRange<'_>>,
        immediate: u32,
        operation: Operation,
    ) -> Result<(), Error> {
        const FUNCTION: &CStr = c"rpma_mr_send";
        let element = element_of(message, FUNCTION)?;
        let nowhere = RemoteAddress::default();
        self.post(opcode, nowhere, element, immediate, operation, FUNCTION)
    }

    #[inline(always)]
    fn post(
        &self,
        opcode: ibv_wr_opcode::Type,
        remote: RemoteAddress,
        element: Element,
        immediate: u32,
        operation: Operation,
        function: &CStr,
    ) -> Result<(), Error> {
        let request = SendRequest {
            opcode,
            wr_id: operation.wr_id,
            flags: operation.completion.send_flags(),
            immediate: immediate.to_be(),
            remote,
            element,
        };
        self.id.qp().post_send(request, function)
    }

    /// Posts a receive request; `None` for a message without bytes.
    #[inline(always)]
    pub fn recv(&self, into: Option<LocalRange<'_>>, wr_id: u64) -> Result<(), Error> {
        const FUNCTION: &CStr = c"rpma_mr_recv";
        let element = element_of(into, FUNCTION)?;
        self.id.qp().post_recv(wr_id, element, FUNCTION)
    }

    /// Starts to end the connection; the event CLOSED tells when both sides know.
    ///
    /// Errors: PROVIDER if the provider refuses.
    pub fn disconnect(&self) -> Result<(), Error> {
        const FUNCTION: &CStr = c"rpma_conn_disconnect";
        self.id.disconnect(FUNCTION)?;
        log_notice!(
            FUNCTION,
            "requesting the end of the connection (QP {})",
            self.qp_num()
        );
        Ok(())
    }

    /// Releases everything and gives the first error back.
    pub(crate) fn delete(self) -> Result<(), Error> {
        const FUNCTION: &CStr = c"rpma_conn_delete";
        let mut first = FirstError::default();
        first.note(self.flush.release());
        let id = self.id.destroy_queue_pair();
        first.note(self.queues.release_completion_queues());
        first.note(id.release(FUNCTION));
        first.note(self.queues.release_channel(FUNCTION));
        first.into_result()
    }
}

/// A completion queue that announced a completion on the shared channel.
pub struct Announced<'a> {
    queue: &'a CompletionQueue,
    is_rcq: bool,
}

impl<'a> Announced<'a> {
    /// Whether it is the receive completion queue.
    #[inline]
    pub fn is_rcq(&self) -> bool {
        self.is_rcq
    }

    /// Asks for the queue's next announcement and gives the queue, to fetch from.
    ///
    /// Errors: PROVIDER if the provider refuses.
    #[inline]
    pub fn request_next(self) -> Result<&'a CompletionQueue, Error> {
        self.queue.raw().request_notification(c"rpma_conn_wait")?;
        Ok(self.queue)
    }
}

/// The two ends of a read or a write: as many bytes as the local part has.
#[derive(Clone, Copy)]
pub struct Transfer<'a> {
    /// The part of this side's memory.
    pub local: LocalRange<'a>,
    /// The region of the other side's memory.
    pub remote: &'a RemoteRegion,
    /// Where in it the part starts.
    pub remote_offset: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cm_events_become_connection_events() {
        for (kind, event) in [
            (cm::RDMA_CM_EVENT_ESTABLISHED, Some(ConnEvent::Established)),
            (cm::RDMA_CM_EVENT_CONNECT_ERROR, Some(ConnEvent::Lost)),
            (cm::RDMA_CM_EVENT_DEVICE_REMOVAL, Some(ConnEvent::Lost)),
            (cm::RDMA_CM_EVENT_DISCONNECTED, Some(ConnEvent::Closed)),
            (cm::RDMA_CM_EVENT_TIMEWAIT_EXIT, Some(ConnEvent::Closed)),
            (cm::RDMA_CM_EVENT_REJECTED, Some(ConnEvent::Rejected)),
            (cm::RDMA_CM_EVENT_UNREACHABLE, Some(ConnEvent::Unreachable)),
            (cm::RDMA_CM_EVENT_ADDR_CHANGE, None),
            (cm::RDMA_CM_EVENT_CONNECT_REQUEST, None),
            (cm::Type::MAX, None),
        ] {
            assert_eq!(ConnEvent::from_cm(kind), event, "CM event {kind}");
        }
    }

    #[test]
    fn every_number_has_a_text() {
        assert_eq!(ConnEvent::text_of(-1), c"Undefined connection event");
        assert_eq!(
            ConnEvent::text_of(ConnEvent::Lost.number()),
            c"Connection lost"
        );
        assert_eq!(ConnEvent::text_of(5), c"Unsupported connection event");
        assert_eq!(
            ConnEvent::text_of(c_int::MIN),
            c"Unsupported connection event"
        );
    }
}
