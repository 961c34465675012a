// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Connection management: event channels, events, and the identifiers of connections.
//!
//! An identifier is a [`CmId`] until a queue pair is created with it and a [`QpId`] from then on,
//! so that no queue pair can be used after it was destroyed.

use std::ffi::{CStr, c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{NonNull, null, null_mut};

use rdma_sys::{
    ibv_qp_init_attr_ex, ibv_qp_init_attr_mask, ibv_qp_type, rdma_cm_event, rdma_cm_event_type,
    rdma_cm_id, rdma_conn_param, rdma_event_channel, rdma_port_space,
};

use super::addr::AddressInfo;
use super::context::DeviceContext;
use super::cq::RawCompletionQueue;
use super::pd::ProtectionDomain;
use super::provider::Provider;
use super::qp::{NativeOps, QueuePair};
use super::srq::RawSharedReceiveQueue;
use super::{check, log_failure};
use crate::error::Error;
use crate::fault;
use crate::log::{log_error, log_info};
use crate::sys::errno;

/// The most outstanding reads a side can take (`RDMA_MAX_RESP_RES`) and start
/// (`RDMA_MAX_INIT_DEPTH`): the provider takes what the device has.
const MAX_READS: u8 = 0xff;
/// Retries are a 3-bit number; for a receiver that is not ready, 7 means for ever.
const MAX_RETRIES: u8 = 7;

/// Bytes of private data that fit a connect request and the answer to one: as on InfiniBand,
/// where an address takes part of the request's.
const REQUEST_FITS: usize = 56;
const ANSWER_FITS: usize = 196;

/// Where the events of connections arrive.
pub(crate) struct EventChannel {
    raw: NonNull<rdma_event_channel>,
    provider: &'static Provider,
}

// SAFETY: the provider's calls on a channel may come from any thread.
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}

impl EventChannel {
    pub(crate) fn create(provider: &'static Provider, function: &CStr) -> Result<Self, Error> {
        fault::point(function, Error::Provider)?;
        // SAFETY: no preconditions.
        let raw = unsafe { (provider.rdma_create_event_channel)() };
        NonNull::new(raw)
            .map(|raw| EventChannel { raw, provider })
            .ok_or_else(|| {
                let call = "rdma_create_event_channel";
                log_failure(function, call, format_args!(""), errno::get());
                Error::Provider
            })
    }

    /// The descriptor that becomes readable when an event is there. It stays the channel's.
    pub(crate) fn fd(&self) -> c_int {
        // SAFETY: the channel is alive; its descriptor never changes.
        unsafe { (*self.raw.as_ptr()).fd }
    }

    /// Takes the next event; waits for one unless the descriptor is non-blocking.
    pub(crate) fn next_event(&self, function: &CStr) -> Result<CmEvent, Error> {
        fault::point(function, Error::Provider)?;
        let mut event = null_mut();
        // SAFETY: the channel is alive and the place for the answer valid.
        let result =
            unsafe { (self.provider.rdma_get_cm_event)(self.raw.as_ptr(), &raw mut event) };
        match NonNull::new(event) {
            Some(raw) if result == 0 => Ok(CmEvent {
                raw,
                provider: self.provider,
            }),
            _ => match errno::get() {
                // Nothing there is an answer, not a failure.
                libc::ENODATA | libc::EAGAIN => Err(Error::NoEvent),
                number => {
                    log_failure(function, "rdma_get_cm_event", format_args!(""), number);
                    Err(Error::Provider)
                }
            },
        }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        let _kept = errno::Preserve::new();
        // SAFETY: the channel is this object's own, which ends here; identifiers that used it are
        // gone or moved away, because their owners release them first.
        unsafe { (self.provider.rdma_destroy_event_channel)(self.raw.as_ptr()) };
    }
}

/// An event of an event channel, acknowledged when dropped or explicitly.
pub(crate) struct CmEvent {
    raw: NonNull<rdma_cm_event>,
    provider: &'static Provider,
}

impl CmEvent {
    pub(crate) fn kind(&self) -> rdma_cm_event_type::Type {
        // SAFETY: the event is alive until it is acknowledged.
        unsafe { (*self.raw.as_ptr()).event }
    }

    /// Zero, or why: an errno value, negative, or a number of the connection manager's.
    pub(crate) fn status(&self) -> c_int {
        // SAFETY: as above.
        unsafe { (*self.raw.as_ptr()).status }
    }

    /// The provider's name for the kind of event.
    pub(crate) fn name(&self) -> &'static str {
        // SAFETY: the answer is a static string.
        let name = unsafe {
            let name = (self.provider.rdma_event_str)(self.kind());
            if name.is_null() {
                c"?"
            } else {
                CStr::from_ptr(name)
            }
        };
        name.to_str().unwrap_or("?")
    }

    /// The private data that came with the event; empty if there was none.
    pub(crate) fn private_data(&self) -> &[u8] {
        use rdma_cm_event_type::{RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_ESTABLISHED};
        let carrying = [RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_ESTABLISHED];
        if !carrying.contains(&self.kind()) {
            return &[];
        }
        // SAFETY: these events carry connection parameters; the data is valid until the event is
        // acknowledged.
        unsafe {
            let param = &(*self.raw.as_ptr()).param.conn;
            let data = param.private_data.cast::<u8>();
            if data.is_null() {
                return &[];
            }
            std::slice::from_raw_parts(data, usize::from(param.private_data_len))
        }
    }

    /// The identifier of a connect request, beside its event; `None` for another event.
    pub(crate) fn take_request(self) -> Option<(CmEvent, CmId)> {
        if self.kind() != rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST {
            return None;
        }
        // SAFETY: the event is alive.
        let raw = NonNull::new(unsafe { (*self.raw.as_ptr()).id })?;
        let id = CmId {
            raw,
            provider: self.provider,
        };
        Some((self, id))
    }

    /// Acknowledges the event, which frees it.
    pub(crate) fn acknowledge(self, function: &CStr) -> Result<(), Error> {
        let event = ManuallyDrop::new(self);
        // SAFETY: the event is this object's own, which is not used after this call.
        let result = unsafe { (event.provider.rdma_ack_cm_event)(event.raw.as_ptr()) };
        fault::after(check(function, "rdma_ack_cm_event", result), function)
    }
}

impl Drop for CmEvent {
    fn drop(&mut self) {
        let _kept = errno::Preserve::new();
        // SAFETY: as in `acknowledge`.
        unsafe { (self.provider.rdma_ack_cm_event)(self.raw.as_ptr()) };
    }
}

/// An identifier without a queue pair: of a listener, or of a connection in the making.
pub(crate) struct CmId {
    raw: NonNull<rdma_cm_id>,
    provider: &'static Provider,
}

// SAFETY: the provider's calls on an identifier may come from any thread.
unsafe impl Send for CmId {}
// SAFETY: as above.
unsafe impl Sync for CmId {}

/// What a queue pair is created with.
pub(crate) struct QueuePairAttributes<'a> {
    pub(crate) pd: &'a ProtectionDomain,
    pub(crate) send_cq: &'a RawCompletionQueue,
    pub(crate) receive_cq: &'a RawCompletionQueue,
    pub(crate) srq: Option<&'a RawSharedReceiveQueue>,
    pub(crate) send_requests: u32,
    pub(crate) receive_requests: u32,
    pub(crate) elements: u32,
    pub(crate) inline_bytes: u32,
    pub(crate) native: NativeOps,
}

impl QueuePairAttributes<'_> {
    /// The provider's form, with or without the native abilities.
    fn to_raw(&self, native: NativeOps) -> Result<ibv_qp_init_attr_ex, Error> {
        // SAFETY: plain data, for which zero is a valid value.
        let mut attr: ibv_qp_init_attr_ex = unsafe { MaybeUninit::zeroed().assume_init() };
        attr.send_cq = self.send_cq.as_ptr();
        attr.recv_cq = self.receive_cq.as_ptr();
        if let Some(srq) = self.srq {
            attr.srq = srq.get()?.as_ptr();
        }
        attr.cap.max_send_wr = self.send_requests;
        attr.cap.max_recv_wr = self.receive_requests;
        attr.cap.max_send_sge = self.elements;
        attr.cap.max_recv_sge = self.elements;
        attr.cap.max_inline_data = self.inline_bytes;
        attr.qp_type = ibv_qp_type::IBV_QPT_RC;
        attr.sq_sig_all = 0;
        attr.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0;
        attr.pd = self.pd.get()?.as_ptr();
        if native.any() {
            attr.comp_mask |= ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
        }
        attr.send_ops_flags = native.create_flags();
        Ok(attr)
    }
}

/// Whether a failed creation says that the provider does not know the native abilities.
fn is_refusal(number: c_int) -> bool {
    matches!(number, libc::EOPNOTSUPP | libc::ENOSYS)
}

impl CmId {
    /// Creates an identifier whose events go to `channel`; without one its calls wait.
    pub(crate) fn create(
        provider: &'static Provider,
        channel: Option<&EventChannel>,
        function: &CStr,
    ) -> Result<Self, Error> {
        fault::point(function, Error::Provider)?;
        let mut raw = null_mut();
        // SAFETY: the channel is alive, and the place for the answer valid.
        let result = unsafe {
            (provider.rdma_create_id)(
                channel.map_or(null_mut(), |channel| channel.raw.as_ptr()),
                &raw mut raw,
                null_mut(),
                rdma_port_space::RDMA_PS_TCP,
            )
        };
        match NonNull::new(raw) {
            Some(raw) if result == 0 => Ok(CmId { raw, provider }),
            _ => {
                log_failure(function, "rdma_create_id", format_args!(""), errno::get());
                Err(Error::Provider)
            }
        }
    }

    /// The device that the identifier was bound to by resolving or binding an address.
    pub(crate) fn device(&self) -> Option<DeviceContext> {
        // SAFETY: the identifier is alive; its context is one that the provider opened and keeps.
        unsafe {
            let context = NonNull::new((*self.raw.as_ptr()).verbs)?;
            Some(DeviceContext::new(context, self.provider))
        }
    }

    /// Binds the identifier to an address of this machine.
    pub(crate) fn bind(&self, address: &AddressInfo, shown: &CStr) -> Result<(), Error> {
        fault::point(c"rpma_info_bind_addr", Error::Provider)?;
        // SAFETY: identifier and address are alive.
        let result = unsafe { (self.provider.rdma_bind_addr)(self.raw.as_ptr(), address.source()) };
        if result == 0 {
            return Ok(());
        }
        log_failure(
            c"rpma_info_bind_addr",
            "rdma_bind_addr",
            format_args!("(addr={})", shown.to_str().unwrap_or("?")),
            errno::get(),
        );
        Err(Error::Provider)
    }

    /// Finds the device that leads to an address.
    pub(crate) fn resolve_address(
        &self,
        address: &AddressInfo,
        shown: &CStr,
        timeout_ms: c_int,
    ) -> Result<(), Error> {
        fault::point(c"rpma_info_resolve_addr", Error::Provider)?;
        // SAFETY: identifier and addresses are alive.
        let result = unsafe {
            (self.provider.rdma_resolve_addr)(
                self.raw.as_ptr(),
                address.source(),
                address.destination(),
                timeout_ms,
            )
        };
        if result == 0 {
            return Ok(());
        }
        let shown = shown.to_str().unwrap_or("?");
        log_failure(
            c"rpma_info_resolve_addr",
            "rdma_resolve_addr",
            format_args!("(dst={shown}, timeout_ms={timeout_ms})"),
            errno::get(),
        );
        Err(Error::Provider)
    }

    /// Finds the way to the address that was resolved.
    pub(crate) fn resolve_route(
        &self,
        shown: &CStr,
        timeout_ms: c_int,
        function: &CStr,
    ) -> Result<(), Error> {
        fault::point(function, Error::Provider)?;
        // SAFETY: the identifier is alive.
        let result = unsafe { (self.provider.rdma_resolve_route)(self.raw.as_ptr(), timeout_ms) };
        if result == 0 {
            return Ok(());
        }
        let shown = shown.to_str().unwrap_or("?");
        log_failure(
            function,
            "rdma_resolve_route",
            format_args!("(dst={shown}, timeout_ms={timeout_ms})"),
            errno::get(),
        );
        Err(Error::Provider)
    }

    /// Starts to take connect requests, at the address and port that it is bound to.
    pub(crate) fn listen(
        &self,
        backlog: c_int,
        shown: (&CStr, &CStr),
        function: &CStr,
    ) -> Result<(), Error> {
        fault::point(function, Error::Provider)?;
        // SAFETY: the identifier is alive.
        let result = unsafe { (self.provider.rdma_listen)(self.raw.as_ptr(), backlog) };
        if result == 0 {
            return Ok(());
        }
        let (addr, port) = shown;
        log_failure(
            function,
            "rdma_listen",
            format_args!(
                "(addr={}, port={})",
                addr.to_str().unwrap_or("?"),
                port.to_str().unwrap_or("?")
            ),
            errno::get(),
        );
        Err(Error::Provider)
    }

    /// Turns a connect request down.
    pub(crate) fn reject(&self, function: &CStr) -> Result<(), Error> {
        // SAFETY: the identifier is alive; there is no private data.
        let result = unsafe { (self.provider.rdma_reject)(self.raw.as_ptr(), null(), 0) };
        fault::after(check(function, "rdma_reject", result), function)
    }

    /// Creates the identifier's queue pair. If the provider refuses the native abilities, the
    /// queue pair is created without them. On failure the identifier comes back.
    pub(crate) fn create_queue_pair(
        self,
        attributes: &QueuePairAttributes<'_>,
        function: &CStr,
    ) -> Result<QpId, (CmId, Error)> {
        if let Err(error) = fault::point(function, Error::Provider) {
            return Err((self, error));
        }
        let mut native = attributes.native;
        loop {
            let mut attr = match attributes.to_raw(native) {
                Ok(attr) => attr,
                Err(error) => return Err((self, error)),
            };
            // SAFETY: the identifier and all that the attributes name are alive.
            let result =
                unsafe { (self.provider.rdma_create_qp_ex)(self.raw.as_ptr(), &raw mut attr) };
            if result == 0 {
                break;
            }
            let number = errno::get();
            if native.any() && is_refusal(number) {
                log_info!(
                    function,
                    "the device offers native flush or atomic write, but this libibverbs does not ({}): going on without",
                    errno::Text(number)
                );
                native = NativeOps::default();
                continue;
            }
            log_failure(
                function,
                "rdma_create_qp_ex",
                format_args!(
                    "(max_send_wr={}, max_recv_wr={}, max_sge={}, max_inline_data={})",
                    attributes.send_requests,
                    attributes.receive_requests,
                    attributes.elements,
                    attributes.inline_bytes
                ),
                number,
            );
            return Err((self, Error::Provider));
        }
        // SAFETY: the identifier is alive and has a queue pair now.
        let raw = NonNull::new(unsafe { (*self.raw.as_ptr()).qp });
        let Some(raw) = raw else {
            return Err((self, Error::Unknown));
        };
        // SAFETY: the queue pair was just created with these abilities, and `QpId` keeps it alive.
        let qp = unsafe { QueuePair::new(raw, self.provider, native) };
        Ok(QpId {
            qp,
            id: ManuallyDrop::new(self),
        })
    }

    /// Destroys the identifier and gives the provider's error back.
    pub(crate) fn release(self, function: &CStr) -> Result<(), Error> {
        let id = ManuallyDrop::new(self);
        // SAFETY: the identifier is this object's own, which is not used after this call.
        let result = unsafe { (id.provider.rdma_destroy_id)(id.raw.as_ptr()) };
        fault::after(check(function, "rdma_destroy_id", result), function)
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        let _kept = errno::Preserve::new();
        // SAFETY: as in `release`.
        unsafe { (self.provider.rdma_destroy_id)(self.raw.as_ptr()) };
    }
}

/// An identifier with its queue pair: a connection, or one about to be.
pub(crate) struct QpId {
    qp: QueuePair,
    id: ManuallyDrop<CmId>,
}

impl QpId {
    #[inline]
    pub(crate) fn qp(&self) -> &QueuePair {
        &self.qp
    }

    /// Moves the identifier's events to a channel.
    pub(crate) fn migrate(&self, channel: &EventChannel, function: &CStr) -> Result<(), Error> {
        fault::point(function, Error::Provider)?;
        // SAFETY: identifier and channel are alive.
        let result = unsafe {
            (self.id.provider.rdma_migrate_id)(self.id.raw.as_ptr(), channel.raw.as_ptr())
        };
        check(function, "rdma_migrate_id", result)
    }

    /// Asks the other side for a connection.
    pub(crate) fn connect(&self, private_data: &[u8], function: &CStr) -> Result<(), Error> {
        fault::point(function, Error::Provider)?;
        let mut param = parameters(private_data);
        // SAFETY: the identifier and the parameters are valid for the call.
        let result =
            unsafe { (self.id.provider.rdma_connect)(self.id.raw.as_ptr(), &raw mut param) };
        check_handshake(function, "rdma_connect", result, private_data, REQUEST_FITS)
    }

    /// Grants the other side the connection it asked for.
    pub(crate) fn accept(&self, private_data: &[u8], function: &CStr) -> Result<(), Error> {
        fault::point(function, Error::Provider)?;
        let mut param = parameters(private_data);
        // SAFETY: the identifier and the parameters are valid for the call.
        let result =
            unsafe { (self.id.provider.rdma_accept)(self.id.raw.as_ptr(), &raw mut param) };
        check_handshake(function, "rdma_accept", result, private_data, ANSWER_FITS)
    }

    /// Starts to end the connection.
    pub(crate) fn disconnect(&self, function: &CStr) -> Result<(), Error> {
        fault::point(function, Error::Provider)?;
        // SAFETY: the identifier is alive.
        let result = unsafe { (self.id.provider.rdma_disconnect)(self.id.raw.as_ptr()) };
        check(function, "rdma_disconnect", result)
    }

    /// Destroys the queue pair; the identifier stays.
    pub(crate) fn destroy_queue_pair(self) -> CmId {
        let mut this = ManuallyDrop::new(self);
        this.destroy_qp();
        // SAFETY: `this` is never dropped nor used again, so the identifier has one owner.
        unsafe { ManuallyDrop::take(&mut this.id) }
    }

    fn destroy_qp(&self) {
        // SAFETY: the identifier and its queue pair are alive, and the queue pair is not used
        // after this call.
        unsafe { (self.id.provider.rdma_destroy_qp)(self.id.raw.as_ptr()) };
    }
}

impl Drop for QpId {
    fn drop(&mut self) {
        let _kept = errno::Preserve::new();
        self.destroy_qp();
        // SAFETY: the identifier is not used again.
        unsafe { ManuallyDrop::drop(&mut self.id) };
    }
}

fn parameters(private_data: &[u8]) -> rdma_conn_param {
    // The callers' lengths come from a field of this width.
    let len = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
    let data = if private_data.is_empty() {
        null()
    } else {
        private_data.as_ptr().cast::<c_void>()
    };
    rdma_conn_param {
        private_data: data,
        private_data_len: len,
        responder_resources: MAX_READS,
        initiator_depth: MAX_READS,
        flow_control: 1,
        retry_count: MAX_RETRIES,
        rnr_retry_count: MAX_RETRIES,
        srq: 0,
        qp_num: 0,
    }
}

fn check_handshake(
    function: &CStr,
    call: &str,
    result: c_int,
    private_data: &[u8],
    fits: usize,
) -> Result<(), Error> {
    if result == 0 {
        return Ok(());
    }
    let (number, len) = (errno::get(), private_data.len());
    if number == libc::EINVAL && len > fits {
        log_error!(
            function,
            "{call}(private_data_len={len}) failed: {} (the private data is too long: {fits} bytes fit here)",
            errno::Text(number)
        );
    } else {
        log_failure(
            function,
            call,
            format_args!("(private_data_len={len})"),
            number,
        );
    }
    Err(Error::Provider)
}
