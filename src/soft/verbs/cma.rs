// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The functions of librdmacm.
//!
//! An id that was created without a channel is synchronous, as there: it has a channel of its
//! own, and each step waits for its event.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use rdma_sys::{
    ibv_qp_init_attr_ex, ibv_qp_init_attr_mask, ibv_qp_state, ibv_qp_type, rdma_addrinfo,
    rdma_cm_event, rdma_cm_event_type as event_type, rdma_cm_id, rdma_conn_param,
    rdma_event_channel, rdma_port_space,
};
use rustix::io::Errno;

use super::super::addrinfo;
use super::super::cm::{ConnectParams, Event, EventChannel, Id};
use super::super::engine::engine;
use super::super::wire::{Params, PrivateData};
use super::{give, made_here, made_here_or_null, post, shared_context, take_back};
use crate::sys::errno;

#[repr(C)]
pub struct CEventChannel {
    raw: rdma_event_channel,
    inner: Arc<EventChannel>,
}

#[repr(C)]
pub struct CId {
    raw: rdma_cm_id,
    inner: Arc<Id>,
    /// Has a channel of its own and waits in each step.
    synchronous: bool,
}

/// An event with what it points to.
#[repr(C)]
struct CEvent {
    raw: rdma_cm_event,
    private: PrivateData,
    owner: Arc<Id>,
}

/// Parameters that stand for "none given": everything at its most.
const DEFAULTS: Params = Params {
    responder_resources: 0xff,
    initiator_depth: 0xff,
    flow_control: 1,
    retry_count: 7,
    rnr_retry_count: 7,
    srq: 0,
    qp_num: 0,
};

/// The result of a function of librdmacm.
fn status(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(e) => {
            errno::set(e.raw_os_error());
            -1
        }
    }
}

/// # Safety
/// `id` is an id of ours.
unsafe fn inner<'a>(id: *mut rdma_cm_id) -> &'a Arc<Id> {
    // SAFETY: the caller's promise.
    unsafe { &(*id.cast::<CId>()).inner }
}

/// # Safety
/// `channel` is a channel of ours.
unsafe fn channel_of<'a>(channel: *mut rdma_event_channel) -> &'a Arc<EventChannel> {
    // SAFETY: the caller's promise.
    unsafe { &(*channel.cast::<CEventChannel>()).inner }
}

fn new_channel() -> Result<*mut rdma_event_channel, Errno> {
    engine()?;
    let inner = Arc::new(EventChannel::new()?);
    Ok(give(CEventChannel {
        raw: rdma_event_channel { fd: inner.raw_fd() },
        inner,
    }))
}

pub unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    super::pointer(new_channel())
}

pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: null or made by `new_channel`.
    if !channel.is_null() && unsafe { made_here::<CEventChannel, _>(channel) }.is_ok() {
        // SAFETY: made by `new_channel`.
        drop(unsafe { take_back::<CEventChannel, _>(channel) });
    }
}

/// Gives an id to C.
fn give_id(
    inner: Arc<Id>,
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    port_space: rdma_port_space::Type,
    synchronous: bool,
) -> *mut rdma_cm_id {
    // SAFETY: all zeros is a valid id without objects.
    let mut raw: rdma_cm_id = unsafe { std::mem::zeroed() };
    raw.channel = channel;
    raw.context = context;
    raw.ps = port_space;
    raw.qp_type = ibv_qp_type::IBV_QPT_RC;
    let id: *mut rdma_cm_id = give(CId {
        raw,
        inner: Arc::clone(&inner),
        synchronous,
    });
    inner.set_handle(id as usize);
    id
}

pub unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    port_space: rdma_port_space::Type,
) -> c_int {
    let create = || {
        engine()?;
        // SAFETY: null or a channel of ours.
        unsafe { made_here_or_null::<CEventChannel, _>(channel) }?;
        if !matches!(
            port_space,
            rdma_port_space::RDMA_PS_TCP | rdma_port_space::RDMA_PS_IB
        ) {
            return Err(Errno::PROTONOSUPPORT);
        }
        let synchronous = channel.is_null();
        let channel = if synchronous { new_channel()? } else { channel };
        // SAFETY: a channel of ours.
        let inner = Id::new(Arc::clone(unsafe { channel_of(channel) }));
        // SAFETY: the caller's variable.
        unsafe { *id = give_id(inner, channel, context, port_space, synchronous) };
        Ok(())
    };
    status(create())
}

pub unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: an id of ours.
    status(unsafe { made_here::<CId, _>(id) }.map(|()| {
        // SAFETY: an id of ours.
        let raw = unsafe { &mut *id };
        if !raw.event.is_null() {
            // SAFETY: an event of ours that the id still holds.
            unsafe { rdma_ack_cm_event(raw.event) };
            raw.event = std::ptr::null_mut();
        }
        // First: it waits for whoever still has an event of the id, and so the id itself.
        // SAFETY: an id of ours.
        unsafe { inner(id) }.destroy();
        // SAFETY: made by `give_id`.
        let id = unsafe { take_back::<CId, _>(id) };
        if id.synchronous {
            // SAFETY: the id's own channel.
            unsafe { rdma_destroy_event_channel(id.raw.channel) };
        }
    }))
}

pub unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    let migrate = || {
        // SAFETY: an id of ours, and null or a channel of ours.
        unsafe {
            made_here::<CId, _>(id)?;
            made_here_or_null::<CEventChannel, _>(channel)?;
        }
        let synchronous = channel.is_null();
        let channel = if synchronous { new_channel()? } else { channel };
        // SAFETY: an id and a channel of ours.
        let (id, target) = unsafe { (&mut *id.cast::<CId>(), channel_of(channel)) };
        id.inner.migrate(Arc::clone(target));
        if std::mem::replace(&mut id.synchronous, synchronous) {
            // SAFETY: the channel that was the id's own.
            unsafe { rdma_destroy_event_channel(id.raw.channel) };
        }
        id.raw.channel = channel;
        Ok(())
    };
    status(migrate())
}

pub unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    result: *mut *mut rdma_addrinfo,
) -> c_int {
    if node.is_null() && service.is_null() && hints.is_null() {
        errno::set(libc::EINVAL);
        return -1;
    }
    // SAFETY: the caller's strings and hints.
    match unsafe { addrinfo::resolve(node, service, hints) } {
        Ok(info) => {
            // SAFETY: the caller's variable.
            unsafe { *result = info };
            0
        }
        Err(code) => code,
    }
}

pub unsafe extern "C" fn rdma_freeaddrinfo(info: *mut rdma_addrinfo) {
    // SAFETY: made by `rdma_getaddrinfo`.
    unsafe { addrinfo::free(info) };
}

/// Copies the id's addresses to where C looks for them.
fn show_addresses(raw: &mut rdma_cm_id, inner: &Id) {
    let (source, destination) = inner.addresses();
    if let Some(source) = source {
        raw.route.addr.src_addr_union.src_storage = addrinfo::to_storage(&source);
    }
    if let Some(destination) = destination {
        raw.route.addr.dst_addr_union.dst_storage = addrinfo::to_storage(&destination);
    }
}

/// Ties the id to the device.
fn show_device(raw: &mut rdma_cm_id) -> Result<(), Errno> {
    raw.verbs = shared_context()?;
    raw.port_num = 1;
    Ok(())
}

pub unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut libc::sockaddr) -> c_int {
    let bind = || {
        // SAFETY: an id of ours.
        unsafe { made_here::<CId, _>(id) }?;
        // SAFETY: the caller's address.
        let address = unsafe { addrinfo::read_address(addr) }.ok_or(Errno::AFNOSUPPORT)?;
        // SAFETY: an id of ours.
        let (raw, inner) = unsafe { (&mut *id, inner(id)) };
        inner.bind(address)?;
        show_addresses(raw, inner);
        // The wildcard address belongs to no device.
        if !address.ip().is_unspecified() {
            show_device(raw)?;
        }
        Ok(())
    };
    status(bind())
}

/// For a synchronous id: waits for the event that ends a step.
unsafe fn complete(id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: an id of ours.
    if !unsafe { (*id.cast::<CId>()).synchronous } {
        return Ok(());
    }
    // SAFETY: as above; the events are the id's own.
    unsafe {
        if !(*id).event.is_null() {
            rdma_ack_cm_event((*id).event);
            (*id).event = std::ptr::null_mut();
        }
        let mut event = std::ptr::null_mut();
        if rdma_get_cm_event((*id).channel, &mut event) != 0 {
            return Err(errno::last());
        }
        (*id).event = event;
        match (*event).status {
            0 => Ok(()),
            s if s < 0 => Err(Errno::from_raw_os_error(-s)),
            _ if (*event).event == event_type::RDMA_CM_EVENT_REJECTED => Err(Errno::CONNREFUSED),
            _ => Err(Errno::PROTO),
        }
    }
}

pub unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src: *mut libc::sockaddr,
    dst: *mut libc::sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    let resolve = || {
        // SAFETY: an id of ours.
        unsafe { made_here::<CId, _>(id) }?;
        // SAFETY: the caller's addresses.
        let (source, destination) =
            unsafe { (addrinfo::read_address(src), addrinfo::read_address(dst)) };
        let destination = destination.ok_or(Errno::AFNOSUPPORT)?;
        // SAFETY: an id of ours.
        let (raw, inner) = unsafe { (&mut *id, inner(id)) };
        let context = shared_context()?;
        inner.resolve_address(source, destination)?;
        show_addresses(raw, inner);
        if inner.addresses().1.is_some() {
            raw.verbs = context;
            raw.port_num = 1;
        }
        // SAFETY: as above.
        unsafe { complete(id) }
    };
    status(resolve())
}

pub unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int {
    let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    // SAFETY: an id of ours.
    status(unsafe { made_here::<CId, _>(id) }.and_then(|()| unsafe {
        inner(id).resolve_route(timeout)?;
        complete(id)
    }))
}

pub unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    let create = || {
        // SAFETY: an id of ours.
        unsafe { made_here::<CId, _>(id) }?;
        // SAFETY: an id of ours and the caller's variable.
        let (raw, attr) = unsafe { (&mut *id, &mut *attr) };
        if raw.verbs.is_null() || !raw.qp.is_null() {
            return Err(Errno::INVAL);
        }
        if attr.comp_mask & ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0 == 0 || attr.pd.is_null() {
            attr.comp_mask |= ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0;
            attr.pd = raw.pd;
        }
        if attr.send_cq.is_null() {
            attr.send_cq = raw.send_cq;
        }
        if attr.recv_cq.is_null() {
            attr.recv_cq = raw.recv_cq;
        }
        if attr.srq.is_null() {
            attr.srq = raw.srq;
        }
        // SAFETY: the caller's objects.
        let made = unsafe { post::create_qp(attr) }?;
        // SAFETY: just made.
        let qp = unsafe { post::qp(made) };
        // SAFETY: an id of ours.
        if let Err(e) = unsafe { inner(id) }.attach_qp(Arc::clone(&qp.inner)) {
            // SAFETY: nobody else knows it.
            unsafe { post::destroy_qp(made) };
            return Err(e);
        }
        raw.qp = made;
        raw.pd = attr.pd;
        raw.send_cq = attr.send_cq;
        raw.recv_cq = attr.recv_cq;
        Ok(())
    };
    status(create())
}

pub unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: an id of ours.
    if unsafe { made_here::<CId, _>(id) }.is_err() {
        return;
    }
    // SAFETY: an id of ours.
    unsafe {
        let qp = std::mem::replace(&mut (*id).qp, std::ptr::null_mut());
        if !qp.is_null() {
            inner(id).detach_qp();
            post::destroy_qp(qp);
        }
    }
}

pub unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    // SAFETY: an id of ours.
    status(unsafe { made_here::<CId, _>(id) }.and_then(|()| {
        // Requests will need it, and a request that cannot be shown would be lost.
        shared_context()?;
        // SAFETY: an id of ours.
        unsafe { inner(id) }.listen(backlog)
    }))
}

/// Reads the caller's connection parameters.
///
/// # Safety
/// `param` is null or valid, as is the private data in it.
unsafe fn read_params<'a>(param: *const rdma_conn_param) -> ConnectParams<'a> {
    // SAFETY: the caller's promise.
    let Some(param) = (unsafe { param.as_ref() }) else {
        return ConnectParams {
            params: DEFAULTS,
            private: &[],
        };
    };
    let private = if param.private_data.is_null() || param.private_data_len == 0 {
        &[]
    } else {
        // SAFETY: the caller's promise.
        unsafe {
            std::slice::from_raw_parts(
                param.private_data.cast::<u8>(),
                usize::from(param.private_data_len),
            )
        }
    };
    ConnectParams {
        params: Params {
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            flow_control: param.flow_control,
            retry_count: param.retry_count,
            rnr_retry_count: param.rnr_retry_count,
            srq: param.srq,
            qp_num: param.qp_num,
        },
        private,
    }
}

unsafe fn set_qp_state(id: *mut rdma_cm_id, state: ibv_qp_state::Type) {
    // SAFETY: an id of ours, whose queue pair is alive while it names it.
    unsafe {
        if !(*id).qp.is_null() {
            (*(*id).qp).state = state;
        }
    }
}

pub unsafe extern "C" fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    // SAFETY: an id of ours and the caller's parameters.
    status(unsafe { made_here::<CId, _>(id) }.and_then(|()| unsafe {
        inner(id).connect(read_params(param))?;
        complete(id)
    }))
}

pub unsafe extern "C" fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    // SAFETY: an id of ours and the caller's parameters.
    status(unsafe { made_here::<CId, _>(id) }.and_then(|()| unsafe {
        inner(id).accept(read_params(param))?;
        set_qp_state(id, ibv_qp_state::IBV_QPS_RTS);
        complete(id)
    }))
}

pub unsafe extern "C" fn rdma_reject(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    let private = if private_data.is_null() {
        &[]
    } else {
        // SAFETY: the caller's memory.
        unsafe {
            std::slice::from_raw_parts(private_data.cast::<u8>(), usize::from(private_data_len))
        }
    };
    // SAFETY: an id of ours.
    status(unsafe { made_here::<CId, _>(id) }.and_then(|()| unsafe { inner(id) }.reject(private)))
}

pub unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: an id of ours.
    status(unsafe { made_here::<CId, _>(id) }.and_then(|()| unsafe {
        inner(id).disconnect()?;
        set_qp_state(id, ibv_qp_state::IBV_QPS_ERR);
        complete(id)
    }))
}

pub unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    let get = || {
        // SAFETY: a channel of ours.
        unsafe { made_here::<CEventChannel, _>(channel) }?;
        // SAFETY: a channel of ours.
        let events = unsafe { channel_of(channel) };
        if events.is_empty()
            && let Ok(engine) = engine()
        {
            engine.take_back();
        }
        let found = events.pop(|e| {
            e.owner().delivered();
            e
        })?;
        // SAFETY: the caller's variable; the ids stay until the event is acknowledged.
        unsafe { *event = give_event(found, channel)? };
        Ok(())
    };
    status(get())
}

/// Gives an event to C; a connect request brings a new id.
unsafe fn give_event(
    event: Event,
    channel: *mut rdma_event_channel,
) -> Result<*mut rdma_cm_event, Errno> {
    let owner = Arc::clone(event.owner());
    let mut listen_id = std::ptr::null_mut();
    let id = match &event.listener {
        None => event.id.handle() as *mut rdma_cm_id,
        Some(listener) => {
            listener.request_delivered();
            listen_id = listener.handle() as *mut rdma_cm_id;
            // SAFETY: the listener cannot be destroyed before this event is acknowledged.
            let (context, port_space) = unsafe { ((*listen_id).context, (*listen_id).ps) };
            let id = give_id(Arc::clone(&event.id), channel, context, port_space, false);
            // SAFETY: just made.
            let raw = unsafe { &mut *id };
            show_device(raw)?;
            show_addresses(raw, &event.id);
            id
        }
    };
    if event.kind == event_type::RDMA_CM_EVENT_ESTABLISHED {
        // SAFETY: the id is alive until the event is acknowledged.
        unsafe {
            set_qp_state(id, ibv_qp_state::IBV_QPS_RTS);
            show_addresses(&mut *id, &event.id);
        }
    }
    // SAFETY: all zeros is a valid event.
    let mut raw: rdma_cm_event = unsafe { std::mem::zeroed() };
    raw.id = id;
    raw.listen_id = listen_id;
    raw.event = event.kind;
    raw.status = event.status;
    let made: *mut CEvent = give(CEvent {
        raw,
        private: event.private,
        owner,
    });
    // SAFETY: just made.
    let object = unsafe { &mut *made };
    let private = object.private.as_slice();
    let params = &event.params;
    object.raw.param.conn = rdma_conn_param {
        private_data: if private.is_empty() {
            std::ptr::null()
        } else {
            private.as_ptr().cast()
        },
        private_data_len: private.len() as u8,
        responder_resources: params.responder_resources,
        initiator_depth: params.initiator_depth,
        flow_control: params.flow_control,
        retry_count: params.retry_count,
        rnr_retry_count: params.rnr_retry_count,
        srq: params.srq,
        qp_num: params.qp_num,
    };
    Ok(made.cast())
}

pub unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return status(Err(Errno::INVAL));
    }
    // SAFETY: an event of ours.
    status(unsafe { made_here::<CEvent, _>(event) }.map(|()| {
        // SAFETY: made by `give_event`.
        let event = unsafe { take_back::<CEvent, _>(event) };
        event.owner.acknowledged();
    }))
}

pub unsafe extern "C" fn rdma_event_str(event: event_type::Type) -> *const c_char {
    use event_type::*;
    let text = match event {
        RDMA_CM_EVENT_ADDR_RESOLVED => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        RDMA_CM_EVENT_ADDR_ERROR => c"RDMA_CM_EVENT_ADDR_ERROR",
        RDMA_CM_EVENT_ROUTE_RESOLVED => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        RDMA_CM_EVENT_ROUTE_ERROR => c"RDMA_CM_EVENT_ROUTE_ERROR",
        RDMA_CM_EVENT_CONNECT_REQUEST => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        RDMA_CM_EVENT_CONNECT_RESPONSE => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        RDMA_CM_EVENT_CONNECT_ERROR => c"RDMA_CM_EVENT_CONNECT_ERROR",
        RDMA_CM_EVENT_UNREACHABLE => c"RDMA_CM_EVENT_UNREACHABLE",
        RDMA_CM_EVENT_REJECTED => c"RDMA_CM_EVENT_REJECTED",
        RDMA_CM_EVENT_ESTABLISHED => c"RDMA_CM_EVENT_ESTABLISHED",
        RDMA_CM_EVENT_DISCONNECTED => c"RDMA_CM_EVENT_DISCONNECTED",
        RDMA_CM_EVENT_DEVICE_REMOVAL => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        RDMA_CM_EVENT_MULTICAST_JOIN => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        RDMA_CM_EVENT_MULTICAST_ERROR => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        RDMA_CM_EVENT_ADDR_CHANGE => c"RDMA_CM_EVENT_ADDR_CHANGE",
        RDMA_CM_EVENT_TIMEWAIT_EXIT => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        _ => c"UNKNOWN EVENT",
    };
    text.as_ptr()
}
