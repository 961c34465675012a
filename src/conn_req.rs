// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Connection request: a connection that is not decided yet, with its queues already in place.

use std::ffi::CStr;

use crate::conn::Connection;
use crate::conn_cfg::{ConnConfig, clip};
use crate::cq::CompletionQueue;
use crate::error::{Error, FirstError};
use crate::log::{log_error, log_notice};
use crate::mr::{LocalRange, element_of};
use crate::peer::{ConnQueues, Peer};
use crate::private_data::PrivateData;
use crate::srq::SharedReceiveQueue;
use crate::sys::alloc::Shared;
use crate::sys::errno;
use crate::verbs::addr::{AddressInfo, Side};
use crate::verbs::cm::{CmEvent, CmId, EventChannel, QpId};
use crate::verbs::cq::CompletionChannel;

/// Which side asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// This side asks the other one.
    Active,
    /// The other side asked this one.
    Passive,
}

/// A connection request. Receives may be posted to it before it is decided.
pub struct ConnRequest {
    role: Role,
    // Released in this order: the identifier uses the channel.
    id: QpId,
    queues: Queues,
    private_data: PrivateData,
    /// The endpoint's event channel, which the identifier of an incoming request is still on.
    _channel: Option<Shared<EventChannel>>,
    peer: Shared<Peer>,
}

/// The queues of a connection, which live from its request to its end.
pub(crate) struct Queues {
    // Released in this order: queues use the channel.
    pub(crate) rcq: Option<CompletionQueue>,
    pub(crate) cq: CompletionQueue,
    pub(crate) channel: Option<CompletionChannel>,
    /// Kept alive for the queue pair, which takes its receives from there.
    pub(crate) srq: Option<Shared<SharedReceiveQueue>>,
}

impl Queues {
    fn create(
        id: &CmId,
        config: &ConnConfig,
        srq: Option<Shared<SharedReceiveQueue>>,
    ) -> Result<Self, Error> {
        let device = id.device().ok_or(Error::Unknown)?;
        let srq_rcq = srq.as_ref().is_some_and(|srq| srq.rcq().is_some());
        if config.shared_channel() && srq_rcq {
            log_error!(
                c"rpma_conn_req_new_from_id",
                "a shared completion channel cannot be had with a shared receive queue that has its own completion queue"
            );
            return Err(Error::Inval);
        }
        let channel = if config.shared_channel() {
            let function = c"rpma_conn_req_new_from_id";
            Some(CompletionChannel::create(device, function)?)
        } else {
            None
        };
        let create = |size| {
            let entries = clip(size);
            match &channel {
                Some(channel) => CompletionQueue::with_shared_channel(device, entries, channel),
                None => CompletionQueue::with_own_channel(device, entries),
            }
        };
        let cq = create(config.cq_size())?;
        let rcq = if srq_rcq || config.rcq_size() == 0 {
            None
        } else {
            Some(create(config.rcq_size())?)
        };
        Ok(Queues {
            rcq,
            cq,
            channel,
            srq,
        })
    }

    /// Releases both completion queues, which may not be used any more.
    pub(crate) fn release_completion_queues(&self) -> Result<(), Error> {
        let mut first = FirstError::default();
        if let Some(rcq) = &self.rcq {
            first.note(rcq.release(false));
        }
        first.note(self.cq.release(false));
        first.into_result()
    }

    /// Releases the shared channel, if there is one; to be done after its queues.
    pub(crate) fn release_channel(&self, function: &CStr) -> Result<(), Error> {
        self.channel
            .as_ref()
            .map_or(Ok(()), |channel| channel.release(function))
    }
}

impl ConnRequest {
    /// Prepares to ask the peer at an address and a port or service name.
    ///
    /// Errors: PROVIDER if the address or the way to it cannot be found in time, or a queue
    /// cannot be created; INVAL for a configuration that contradicts itself.
    pub fn outgoing(
        peer: Shared<Peer>,
        addr: &CStr,
        port: &CStr,
        config: &ConnConfig,
        srq: Option<Shared<SharedReceiveQueue>>,
    ) -> Result<Self, Error> {
        const FUNCTION: &CStr = c"rpma_conn_req_new";
        let provider = peer.device().provider();
        let address = AddressInfo::look_up(provider, addr, Some(port), Side::Active)?;
        let id = CmId::create(provider, None, FUNCTION)?;
        id.resolve_address(&address, addr, config.timeout_ms())?;
        id.resolve_route(addr, config.timeout_ms(), FUNCTION)?;
        let request =
            Self::new(Role::Active, peer, id, config, srq).map_err(|(_id, error)| error)?;
        drop(address);
        log_notice!(
            FUNCTION,
            "requesting a connection to {}:{} (QP {})",
            addr.to_str().unwrap_or("?"),
            port.to_str().unwrap_or("?"),
            request.id.qp().number()
        );
        Ok(request)
    }

    /// Takes a connect request of the other side from its event, which is acknowledged. If that
    /// fails, the other side is told so.
    pub(crate) fn incoming(
        peer: &Shared<Peer>,
        channel: &Shared<EventChannel>,
        event: CmEvent,
        config: &ConnConfig,
        srq: Option<Shared<SharedReceiveQueue>>,
    ) -> Result<Self, Error> {
        const FUNCTION: &CStr = c"rpma_ep_next_conn_req";
        let (event, id) = event.take_request().ok_or(Error::Unknown)?;
        let private_data = match PrivateData::copy_of(event.private_data()) {
            Ok(data) => data,
            Err(error) => return Err(turn_down(id, event, error)),
        };
        let mut request = match Self::new(Role::Passive, peer.clone(), id, config, srq) {
            Ok(request) => request,
            Err((id, error)) => return Err(turn_down(id, event, error)),
        };
        request.private_data = private_data;
        request._channel = Some(channel.clone());
        if let Err(error) = event.acknowledge(FUNCTION) {
            // What the caller needs to know is the failure that led here.
            let _kept = errno::Preserve::new();
            let _ = request.delete();
            return Err(error);
        }
        Ok(request)
    }

    fn new(
        role: Role,
        peer: Shared<Peer>,
        id: CmId,
        config: &ConnConfig,
        srq: Option<Shared<SharedReceiveQueue>>,
    ) -> Result<Self, (CmId, Error)> {
        let queues = match Queues::create(&id, config, srq) {
            Ok(queues) => queues,
            Err(error) => return Err((id, error)),
        };
        let srq = queues.srq.as_deref();
        let of_queue_pair = ConnQueues {
            cq: &queues.cq,
            rcq: srq.and_then(|srq| srq.rcq()).or(queues.rcq.as_ref()),
            srq,
            sq_size: config.sq_size(),
            rq_size: config.rq_size(),
        };
        let id = peer.create_queue_pair(id, &of_queue_pair)?;
        Ok(ConnRequest {
            role,
            id,
            queues,
            private_data: PrivateData::default(),
            _channel: None,
            peer,
        })
    }

    /// What the other side sent along with its request; empty for a request of this side.
    pub fn private_data(&self) -> &[u8] {
        self.private_data.bytes()
    }

    /// Posts a receive request, so that no message can come too early.
    ///
    /// Errors: INVAL for more bytes than one request can take; PROVIDER if the provider refuses.
    pub fn recv(&self, into: LocalRange<'_>, wr_id: u64) -> Result<(), Error> {
        const FUNCTION: &CStr = c"rpma_mr_recv";
        let element = element_of(Some(into), FUNCTION)?;
        self.id.qp().post_recv(wr_id, element, FUNCTION)
    }

    /// Asks for the connection, or grants it to the other side, with this side's private data.
    /// The outcome arrives as an event of the connection.
    ///
    /// Errors: NOMEM; PROVIDER if the provider refuses, for instance private data that is too
    /// long for it.
    pub fn connect(self, private_data: &[u8]) -> Result<Connection, Error> {
        // First, so that what comes of it is for the connection, and for nobody who waits for
        // further requests at the endpoint.
        let connection = Connection::new(self.id, self.queues, self.peer)?;
        connection.set_private_data(self.private_data);
        let outcome = match self.role {
            Role::Active => connection.request(private_data),
            Role::Passive => connection.accept(private_data),
        };
        match outcome {
            Ok(()) => Ok(connection),
            Err(error) => {
                // The refusal is what the caller needs to know.
                let _kept = errno::Preserve::new();
                let _ = connection.delete();
                Err(error)
            }
        }
    }

    /// Gives the request up, which rejects the other side's, and gives the first error back.
    pub fn delete(self) -> Result<(), Error> {
        let mut first = FirstError::default();
        let id = self.id.destroy_queue_pair();
        first.note(self.queues.release_completion_queues());
        if self.role == Role::Passive {
            first.note(id.reject(c"rpma_conn_req_reject"));
        }
        first.note(id.release(c"rpma_conn_req_destroy"));
        first.note(self.queues.release_channel(c"rpma_conn_req_delete"));
        first.into_result()
    }
}

/// Rejects a connect request that cannot be served, so that the other side knows at once.
fn turn_down(id: CmId, event: CmEvent, error: Error) -> Error {
    let _kept = errno::Preserve::new();
    // The event has to be acknowledged before its identifier can be destroyed.
    let _ = id.reject(c"rpma_ep_next_conn_req");
    drop(event);
    drop(id);
    error
}
