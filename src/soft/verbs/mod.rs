// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The fabric as C sees it: functions with the signatures of libibverbs (here and in `post`) and
//! librdmacm (`cma`), and what of a context is private to libibverbs (`private`).
//!
//! What lives here: checking and converting arguments, and the C objects that stand for the
//! fabric's. An object given to C begins with the public structure and holds a reference to the
//! fabric's own object. What may not: anything that the fabric does.
//!
//! As with the libraries that these functions stand in for, pointers must be valid objects of
//! the right kind; that is the safety requirement of every function here.

// The functions are documented by the manual pages of the libraries that they stand in for, and
// the safety requirement is the one above.
#![allow(missing_docs, clippy::missing_safety_doc)]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use rdma_sys::{
    ib_uverbs_advise_mr_advice, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr,
    ibv_device_attr_ex, ibv_mr, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_pd, ibv_port_attr, ibv_qp,
    ibv_qp_init_attr_ex, ibv_query_device_ex_input, ibv_sge, ibv_srq, ibv_srq_init_attr,
    verbs_context,
};
use rustix::io::Errno;

use super::cq::{CCq, Channel, Cq};
use super::device;
use super::engine::engine;
use super::link::SGE_MAX;
use super::mem;
use super::mr::{Domain, DomainUse, Region, access};
use super::recvq::{CSrq, SharedQueue};
use crate::sys::errno;
use crate::sys::fork::Home;

mod cma;
mod post;
mod private;

pub use cma::*;
pub use post::{CQp, ibv_qp_to_qp_ex};

#[repr(C)]
pub struct CPd {
    raw: ibv_pd,
    inner: Arc<Domain>,
}

#[repr(C)]
pub struct CMr {
    raw: ibv_mr,
    inner: Arc<Region>,
}

#[repr(C)]
pub struct CChannel {
    raw: ibv_comp_channel,
    inner: Arc<Channel>,
}

/// The result of a function that returns an object.
fn pointer<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(|e| {
        errno::set(e.raw_os_error());
        std::ptr::null_mut()
    })
}

/// The result of a verbs function that returns an error number.
fn number(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(e) => {
            errno::set(e.raw_os_error());
            e.raw_os_error()
        }
    }
}

/// An object that C has, and the process that it was made in.
#[repr(C)]
struct Given<T> {
    /// What C sees of it, if anything, is at its beginning.
    object: T,
    home: Home,
}

/// Gives an object to C.
fn give<T, P>(object: T) -> *mut P {
    let home = Home::here();
    Box::into_raw(Box::new(Given { object, home })).cast()
}

/// Takes an object back from C.
///
/// # Safety
/// It was given with [`give`] as a `T` and is not used any more.
unsafe fn take_back<T, P>(pointer: *mut P) -> T {
    // SAFETY: the caller's promise.
    unsafe { Box::from_raw(pointer.cast::<Given<T>>()) }.object
}

/// Fails for an object that the parent of this process made: its sockets are the parent's, and its
/// locks may be held by threads that are not here.
///
/// # Safety
/// It was given with [`give`] as a `T`.
#[inline]
unsafe fn made_here<T, P>(pointer: *const P) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    if unsafe { (*pointer.cast::<Given<T>>()).home }.is_here() {
        Ok(())
    } else {
        Err(Errno::NODEV)
    }
}

/// As [`made_here`], for an object that may be missing.
///
/// # Safety
/// It is null, or was given with [`give`] as a `T`.
unsafe fn made_here_or_null<T, P>(pointer: *const P) -> Result<(), Errno> {
    if pointer.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { made_here::<T, P>(pointer) }
}

/// Fills a context's table with the fabric's functions.
fn fill(verbs: &mut verbs_context) {
    verbs.query_device_ex = Some(query_device_ex);
    verbs.query_port = Some(query_port);
    verbs.create_qp_ex = Some(create_qp_ex);
    verbs.advise_mr = Some(advise_mr);
    verbs.priv_ = private::part();
    let ops = &mut verbs.context.ops;
    ops._compat_query_device = Some(ibv_query_device);
    ops.alloc_mw = Some(alloc_mw);
    ops.bind_mw = Some(bind_mw);
    ops.dealloc_mw = Some(dealloc_mw);
    ops.poll_cq = Some(post::poll_cq);
    ops.req_notify_cq = Some(post::req_notify_cq);
    ops.post_srq_recv = Some(post::post_srq_recv);
    ops.post_send = Some(post::post_send);
    ops.post_recv = Some(post::post_recv);
}

/// The context that connection identifiers use.
fn shared_context() -> Result<*mut ibv_context, Errno> {
    engine()?;
    device::shared(fill)
}

pub unsafe extern "C" fn ibv_get_device_list(num: *mut c_int) -> *mut *mut ibv_device {
    let list = Box::new([device::device(), std::ptr::null_mut()]);
    if !num.is_null() {
        // SAFETY: the caller's variable.
        unsafe { *num = 1 };
    }
    Box::into_raw(list).cast()
}

pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    if !list.is_null() {
        // SAFETY: made by `ibv_get_device_list`.
        drop(unsafe { Box::from_raw(list.cast::<[*mut ibv_device; 2]>()) });
    }
}

pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    if device.is_null() {
        return std::ptr::null();
    }
    // SAFETY: a device of ours.
    unsafe { (*device).name.as_ptr() }
}

pub unsafe extern "C" fn ibv_open_device(_device: *mut ibv_device) -> *mut ibv_context {
    pointer(engine().and_then(|_| device::open(fill)))
}

pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: made by `ibv_open_device`.
    unsafe { device::close(context) };
    0
}

pub unsafe extern "C" fn ibv_query_device(
    _context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    // SAFETY: the caller's variable.
    unsafe { *attr = device::attributes() };
    0
}

unsafe extern "C" fn query_device_ex(
    _context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    // SAFETY: null or the caller's variable.
    if !input.is_null() && unsafe { (*input).comp_mask } != 0 {
        return libc::EINVAL;
    }
    if attr_size < size_of::<ibv_device_attr>() {
        return libc::EINVAL;
    }
    let all = device::attributes_ex();
    let known = attr_size.min(size_of::<ibv_device_attr_ex>());
    // SAFETY: the caller's variable of the size that it says; programs built with other headers
    // have a shorter or longer one, which differs only at its end.
    unsafe {
        attr.cast::<u8>().write_bytes(0, attr_size);
        attr.cast::<u8>()
            .copy_from_nonoverlapping((&raw const all).cast(), known);
    }
    0
}

pub unsafe extern "C" fn query_port(
    _context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    attr_size: usize,
) -> c_int {
    if port != 1 {
        return libc::EINVAL;
    }
    let all = device::port_attributes();
    let known = attr_size.min(size_of::<ibv_port_attr>());
    // SAFETY: as for the device's attributes.
    unsafe {
        attr.cast::<u8>()
            .copy_from_nonoverlapping((&raw const all).cast(), known);
    }
    0
}

pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    pointer(engine().map(|_| {
        let inner = Domain::new();
        give(CPd {
            raw: ibv_pd {
                context,
                handle: inner.id() as u32,
            },
            inner,
        })
    }))
}

pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: an object of ours.
    number(unsafe { made_here::<CPd, _>(pd) }.and_then(|()| {
        // SAFETY: a domain of ours.
        if unsafe { domain(pd) }.is_in_use() {
            return Err(Errno::BUSY);
        }
        // SAFETY: made by `ibv_alloc_pd`.
        drop(unsafe { take_back::<CPd, _>(pd) });
        Ok(())
    }))
}

/// # Safety
/// `pd` is a domain of ours.
unsafe fn domain<'a>(pd: *mut ibv_pd) -> &'a Arc<Domain> {
    // SAFETY: the caller's promise.
    unsafe { &(*pd.cast::<CPd>()).inner }
}

pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    rights: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    pointer(unsafe { register(pd, addr, length, rights as u32) })
}

unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    rights: u32,
) -> Result<*mut ibv_mr, Errno> {
    // SAFETY: the caller's promise.
    unsafe { made_here::<CPd, _>(pd) }?;
    if length == 0 || !access::is_valid(rights) {
        return Err(Errno::INVAL);
    }
    let writable = rights & (access::LOCAL_WRITE | access::REMOTE_WRITE) != 0;
    if !mem::is_registrable(addr as u64, length as u64, writable) {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller's promise.
    let inner = Region::register(unsafe { domain(pd) }, addr as u64, length as u64, rights)
        .ok_or(Errno::NOMEM)?;
    Ok(give(CMr {
        raw: ibv_mr {
            // SAFETY: as above.
            context: unsafe { (*pd).context },
            pd,
            addr,
            length,
            handle: inner.key(),
            lkey: inner.key(),
            rkey: inner.key(),
        },
        inner,
    }))
}

pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: an object of ours.
    number(unsafe { made_here::<CMr, _>(mr) }.map(|()| {
        // SAFETY: made by `ibv_reg_mr`.
        unsafe { take_back::<CMr, _>(mr) }.inner.deregister();
    }))
}

unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: ib_uverbs_advise_mr_advice::Type,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    use ib_uverbs_advise_mr_advice::*;
    const FLUSH: u32 = 1;

    // SAFETY: the caller's domain.
    if let Err(error) = unsafe { made_here::<CPd, _>(pd) } {
        return error.raw_os_error();
    }
    if flags & !FLUSH != 0 || list.is_null() {
        return libc::EINVAL;
    }
    let (way, rights) = match advice {
        IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH => (libc::MADV_POPULATE_READ, 0),
        IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE => {
            (libc::MADV_POPULATE_WRITE, access::LOCAL_WRITE)
        }
        IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => (libc::MADV_WILLNEED, 0),
        _ => return libc::EOPNOTSUPP,
    };
    // SAFETY: the caller's domain and list.
    let (domain, list) = unsafe {
        (
            domain(pd).id(),
            std::slice::from_raw_parts(list, count as usize),
        )
    };
    for sge in list {
        let len = u64::from(sge.length);
        let Ok(region) = Region::find(sge.lkey, domain, sge.addr, len, rights) else {
            return libc::EFAULT;
        };
        let Some(_guard) = region.enter() else {
            return libc::EFAULT;
        };
        match mem::advise(sge.addr, len, way) {
            // An older kernel: it is advice, and doing nothing follows it.
            Ok(()) | Err(libc::EINVAL | libc::EAGAIN) => {}
            Err(error) => return error,
        }
    }
    0
}

unsafe extern "C" fn alloc_mw(_pd: *mut ibv_pd, _kind: ibv_mw_type::Type) -> *mut ibv_mw {
    pointer(Err(Errno::OPNOTSUPP))
}

unsafe extern "C" fn bind_mw(_qp: *mut ibv_qp, _mw: *mut ibv_mw, _bind: *mut ibv_mw_bind) -> c_int {
    libc::EOPNOTSUPP
}

unsafe extern "C" fn dealloc_mw(_mw: *mut ibv_mw) -> c_int {
    libc::EOPNOTSUPP
}

pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    pointer(engine().and_then(|_| {
        let inner = Channel::new()?;
        Ok(give(CChannel {
            raw: ibv_comp_channel {
                context,
                fd: inner.raw_fd(),
                refcnt: 0,
            },
            inner,
        }))
    }))
}

pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: an object of ours.
    number(unsafe { made_here::<CChannel, _>(channel) }.and_then(|()| {
        // SAFETY: a channel of ours.
        if unsafe { refcount(channel) }.load(std::sync::atomic::Ordering::Acquire) != 0 {
            return Err(Errno::BUSY);
        }
        // SAFETY: made by `ibv_create_comp_channel`.
        drop(unsafe { take_back::<CChannel, _>(channel) });
        Ok(())
    }))
}

/// The count of queues that use a channel.
///
/// # Safety
/// `channel` is a channel of ours.
unsafe fn refcount<'a>(channel: *mut ibv_comp_channel) -> &'a std::sync::atomic::AtomicI32 {
    // SAFETY: a valid, aligned int that only these functions change.
    unsafe { std::sync::atomic::AtomicI32::from_ptr(&raw mut (*channel).refcnt) }
}

pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    pointer(engine().and_then(|_| {
        // SAFETY: null or a channel of ours.
        unsafe { made_here_or_null::<CChannel, _>(channel) }?;
        if !(1..=device::MAX_CQE).contains(&cqe) || comp_vector != 0 {
            return Err(Errno::INVAL);
        }
        // SAFETY: null or a channel of ours.
        let target = unsafe { channel.cast::<CChannel>().as_ref() }.map(|c| Arc::clone(&c.inner));
        let inner = Cq::new(cqe as usize, target);
        // SAFETY: all zeros is a valid queue.
        let mut raw: ibv_cq = unsafe { std::mem::zeroed() };
        raw.context = context;
        raw.channel = channel;
        raw.cq_context = cq_context;
        raw.cqe = cqe;
        if !channel.is_null() {
            // SAFETY: a channel of ours.
            unsafe { refcount(channel) }.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        }
        let made: *mut ibv_cq = give(CCq {
            raw,
            inner: Arc::clone(&inner),
        });
        inner.set_handle(made as usize);
        Ok(made)
    }))
}

pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: an object of ours.
    number(unsafe { made_here::<CCq, _>(cq) }.and_then(|()| {
        // SAFETY: a queue of ours.
        let inner = unsafe { queue(cq) };
        if inner.is_in_use() {
            return Err(Errno::BUSY);
        }
        inner.retire();
        // SAFETY: as above.
        let channel = unsafe { (*cq).channel };
        if !channel.is_null() {
            // SAFETY: it cannot have been destroyed while it was in use.
            unsafe { refcount(channel) }.fetch_sub(1, std::sync::atomic::Ordering::AcqRel);
        }
        // SAFETY: made by `ibv_create_cq`.
        drop(unsafe { take_back::<CCq, _>(cq) });
        Ok(())
    }))
}

/// # Safety
/// `cq` is a completion queue of ours.
unsafe fn queue<'a>(cq: *mut ibv_cq) -> &'a Arc<Cq> {
    // SAFETY: the caller's promise.
    unsafe { &(*cq.cast::<CCq>()).inner }
}

pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: a channel of ours.
    if let Err(e) = unsafe { made_here::<CChannel, _>(channel) } {
        errno::set(e.raw_os_error());
        return -1;
    }
    // SAFETY: a channel of ours.
    let inner = unsafe { &(*channel.cast::<CChannel>()).inner };
    match inner.wait() {
        Ok(found) => {
            let handle = found.handle() as *mut ibv_cq;
            // SAFETY: the caller's variables; the queue stays until its event is acknowledged.
            unsafe {
                *cq = handle;
                *cq_context = (*handle).cq_context;
            }
            0
        }
        Err(e) => {
            errno::set(e.raw_os_error());
            -1
        }
    }
}

pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) {
    // SAFETY: a queue of ours.
    if unsafe { made_here::<CCq, _>(cq) }.is_ok() {
        // SAFETY: a queue of ours.
        unsafe { queue(cq) }.acknowledge(u64::from(count));
    }
}

pub unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: an object of ours.
    pointer(unsafe { made_here::<CPd, _>(pd) }.and_then(|()| {
        // SAFETY: the caller's variable.
        let attr = unsafe { &mut *attr };
        let (wr, sge) = (attr.attr.max_wr, attr.attr.max_sge);
        if wr == 0 || wr > device::MAX_WR || sge as usize > SGE_MAX {
            return Err(Errno::INVAL);
        }
        // SAFETY: a domain of ours.
        let domain = DomainUse::new(unsafe { domain(pd) });
        // SAFETY: all zeros is a valid queue.
        let mut raw: ibv_srq = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        raw.context = unsafe { (*pd).context };
        raw.srq_context = attr.srq_context;
        raw.pd = pd;
        Ok(give(CSrq {
            raw,
            inner: SharedQueue::new(domain, wr as usize, sge as usize),
        }))
    }))
}

pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: an object of ours.
    number(unsafe { made_here::<CSrq, _>(srq) }.and_then(|()| {
        // SAFETY: a queue of ours.
        let inner = unsafe { &(*srq.cast::<CSrq>()).inner };
        if inner.is_in_use() {
            return Err(Errno::BUSY);
        }
        inner.retire();
        // SAFETY: made by `ibv_create_srq`.
        drop(unsafe { take_back::<CSrq, _>(srq) });
        Ok(())
    }))
}

unsafe extern "C" fn create_qp_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller's variable.
    pointer(unsafe { post::create_qp(&mut *attr) })
}

pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: an object of ours.
    number(unsafe { made_here::<post::CQp, _>(qp) }.map(|()| {
        // SAFETY: made by `create_qp_ex`.
        unsafe { post::destroy_qp(qp) };
    }))
}
