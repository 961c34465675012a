// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Endpoint: where a peer listens for connect requests.

use std::ffi::{CStr, c_int};

use rdma_sys::rdma_cm_event_type;

use crate::conn_cfg::ConnConfig;
use crate::conn_req::ConnRequest;
use crate::error::Error;
use crate::log::{log_error, log_notice};
use crate::peer::Peer;
use crate::srq::SharedReceiveQueue;
use crate::sys::alloc::Shared;
use crate::verbs::addr::{AddressInfo, Side};
use crate::verbs::cm::{CmId, EventChannel};

/// Lets the provider decide how many connect requests may wait.
const DEFAULT_BACKLOG: c_int = 0;

/// A listening endpoint. Safe to use from several threads at once.
pub struct Endpoint {
    // Released in this order: the identifier uses the channel.
    id: CmId,
    /// Requests that were taken stay on it until they are decided.
    channel: Shared<EventChannel>,
    peer: Shared<Peer>,
}

impl Endpoint {
    /// Listens at an address and a port or service name.
    ///
    /// Errors: PROVIDER if the address cannot be found, bound or listened at.
    pub fn listen(peer: Shared<Peer>, addr: &CStr, port: &CStr) -> Result<Self, Error> {
        const FUNCTION: &CStr = c"rpma_ep_listen";
        let provider = peer.device().provider();
        let channel = Shared::try_new(EventChannel::create(provider, FUNCTION)?)?;
        let id = CmId::create(provider, Some(&channel), FUNCTION)?;
        let address = AddressInfo::look_up(provider, addr, Some(port), Side::Passive)?;
        id.bind(&address, addr)?;
        id.listen(DEFAULT_BACKLOG, (addr, port), FUNCTION)?;
        drop(address);
        log_notice!(
            FUNCTION,
            "waiting for connect requests on {}:{}",
            addr.to_str().unwrap_or("?"),
            port.to_str().unwrap_or("?")
        );
        Ok(Endpoint { id, channel, peer })
    }

    /// The descriptor that becomes readable when a connect request is there. It stays the
    /// endpoint's.
    pub fn fd(&self) -> c_int {
        self.channel.fd()
    }

    /// Takes the next connect request; waits for one unless the descriptor is non-blocking.
    ///
    /// Errors: NO_EVENT if there is none; INVAL if another event is there (it is taken); and what
    /// [`ConnRequest`] may fail with, in which case the other side is rejected.
    pub fn next_request(
        &self,
        config: &ConnConfig,
        srq: Option<Shared<SharedReceiveQueue>>,
    ) -> Result<ConnRequest, Error> {
        const FUNCTION: &CStr = c"rpma_ep_next_conn_req";
        let event = self.channel.next_event(FUNCTION)?;
        if event.kind() != rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST {
            log_error!(FUNCTION, "unexpected event: {}", event.name());
            return Err(Error::Inval);
        }
        ConnRequest::incoming(&self.peer, &self.channel, event, config, srq)
    }

    /// Stops listening and gives the provider's error back.
    pub(crate) fn shut_down(self) -> Result<(), Error> {
        self.id.release(c"rpma_ep_shutdown")
    }
}
