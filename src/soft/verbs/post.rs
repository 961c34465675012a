// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Queue pairs as C sees them, and the data path: posting, polling, arming.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Condvar};

use rdma_sys::{
    ibv_cq, ibv_data_buf, ibv_qp, ibv_qp_create_send_ops_flags as ops_flags, ibv_qp_ex,
    ibv_qp_init_attr_ex, ibv_qp_init_attr_mask, ibv_qp_state, ibv_qp_type, ibv_recv_wr,
    ibv_send_flags, ibv_send_wr, ibv_sge, ibv_srq, ibv_wc, ibv_wr_opcode,
};
use rustix::io::Errno;

use super::super::device::{MAX_INLINE, MAX_WR};
use super::super::diag;
use super::super::engine::engine;
use super::super::link::SGE_MAX;
use super::super::mr::DomainUse;
use super::super::qp::{Attributes, Capacity, Qp};
use super::super::recvq::{CSrq, PostError, Sge};
use super::super::requester::{Data, Request};
use super::super::sync::{Lock, wait_until};
use super::super::wire::{self, Kind};
use super::{CCq, CPd, domain, give, made_here, made_here_or_null, number, queue, take_back};
use crate::sys::errno;

/// A queue pair as C sees it.
#[repr(C)]
pub struct CQp {
    pub ex: ibv_qp_ex,
    pub inner: Arc<Qp>,
    capacity: Capacity,
    /// Made with the extended posting functions.
    extended: bool,
    builder: Builder,
}

impl From<PostError> for Errno {
    fn from(error: PostError) -> Self {
        match error {
            PostError::Full => Errno::NOMEM,
            PostError::Invalid => Errno::INVAL,
        }
    }
}

fn has(flags: u64, flag: ops_flags) -> bool {
    flags & u64::from(flag.0) != 0
}

/// Operations that a queue pair can be made for.
const KNOWN_OPS: u64 = (ops_flags::IBV_QP_EX_WITH_RDMA_WRITE.0
    | ops_flags::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM.0
    | ops_flags::IBV_QP_EX_WITH_SEND.0
    | ops_flags::IBV_QP_EX_WITH_SEND_WITH_IMM.0
    | ops_flags::IBV_QP_EX_WITH_RDMA_READ.0
    | ops_flags::IBV_QP_EX_WITH_FLUSH.0
    | ops_flags::IBV_QP_EX_WITH_ATOMIC_WRITE.0) as u64;

/// Makes a queue pair.
///
/// # Safety
/// The objects that `attr` names are ours.
pub(super) unsafe fn create_qp(attr: &mut ibv_qp_init_attr_ex) -> Result<*mut ibv_qp, Errno> {
    let cap = attr.cap;
    if attr.qp_type != ibv_qp_type::IBV_QPT_RC {
        return Err(Errno::OPNOTSUPP);
    }
    if attr.pd.is_null()
        || attr.send_cq.is_null()
        || attr.recv_cq.is_null()
        || cap.max_send_wr > MAX_WR
        || cap.max_recv_wr > MAX_WR
        || cap.max_send_sge as usize > SGE_MAX
        || cap.max_recv_sge as usize > SGE_MAX
        || cap.max_inline_data > MAX_INLINE
    {
        return Err(Errno::INVAL);
    }
    // SAFETY: objects of ours.
    unsafe {
        made_here::<CPd, _>(attr.pd)?;
        made_here::<CCq, _>(attr.send_cq)?;
        made_here::<CCq, _>(attr.recv_cq)?;
        made_here_or_null::<CSrq, _>(attr.srq)?;
    }
    let extended = attr.comp_mask & ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0 != 0;
    let wanted = if extended { attr.send_ops_flags } else { 0 };
    if wanted & !KNOWN_OPS != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    // SAFETY: null or a shared queue of ours.
    let shared = unsafe { attr.srq.cast::<CSrq>().as_ref() }.map(|s| Arc::clone(&s.inner));
    let capacity = Capacity {
        send: cap.max_send_wr as usize,
        recv: if shared.is_some() {
            0
        } else {
            cap.max_recv_wr as usize
        },
        send_sge: cap.max_send_sge as usize,
        recv_sge: cap.max_recv_sge as usize,
        inline: cap.max_inline_data as usize,
    };
    // SAFETY: objects of ours.
    let inner = unsafe {
        Qp::new(Attributes {
            domain: DomainUse::new(domain(attr.pd)),
            send_cq: Arc::clone(queue(attr.send_cq)),
            recv_cq: Arc::clone(queue(attr.recv_cq)),
            shared,
            capacity,
            signal_all: attr.sq_sig_all != 0,
        })
    };
    diag::debug(format_args!(
        "QP {}: created (room for {} requests and {} receives)",
        inner.num, capacity.send, capacity.recv
    ));
    // SAFETY: all zeros is a valid queue pair without functions.
    let mut ex: ibv_qp_ex = unsafe { std::mem::zeroed() };
    let base = &mut ex.qp_base;
    // SAFETY: a domain of ours.
    base.context = unsafe { (*attr.pd).context };
    base.qp_context = attr.qp_context;
    base.pd = attr.pd;
    base.send_cq = attr.send_cq;
    base.recv_cq = attr.recv_cq;
    base.srq = attr.srq;
    base.qp_num = inner.num;
    base.handle = inner.num;
    base.state = ibv_qp_state::IBV_QPS_INIT;
    base.qp_type = attr.qp_type;
    if extended {
        set_functions(&mut ex, wanted);
    }
    Ok(give(CQp {
        ex,
        inner,
        capacity,
        extended,
        builder: Builder::default(),
    }))
}

/// Offers the operations that the queue pair was made for, and no others.
fn set_functions(ex: &mut ibv_qp_ex, wanted: u64) {
    ex.wr_start = Some(wr_start);
    ex.wr_complete = Some(wr_complete);
    ex.wr_abort = Some(wr_abort);
    ex.wr_set_sge = Some(wr_set_sge);
    ex.wr_set_sge_list = Some(wr_set_sge_list);
    ex.wr_set_inline_data = Some(wr_set_inline_data);
    ex.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    if has(wanted, ops_flags::IBV_QP_EX_WITH_RDMA_WRITE) {
        ex.wr_rdma_write = Some(wr_rdma_write);
    }
    if has(wanted, ops_flags::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM) {
        ex.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    }
    if has(wanted, ops_flags::IBV_QP_EX_WITH_SEND) {
        ex.wr_send = Some(wr_send);
    }
    if has(wanted, ops_flags::IBV_QP_EX_WITH_SEND_WITH_IMM) {
        ex.wr_send_imm = Some(wr_send_imm);
    }
    if has(wanted, ops_flags::IBV_QP_EX_WITH_RDMA_READ) {
        ex.wr_rdma_read = Some(wr_rdma_read);
    }
    if has(wanted, ops_flags::IBV_QP_EX_WITH_FLUSH) {
        ex.wr_flush = Some(wr_flush);
    }
    if has(wanted, ops_flags::IBV_QP_EX_WITH_ATOMIC_WRITE) {
        ex.wr_atomic_write = Some(wr_atomic_write);
    }
}

/// Destroys a queue pair.
///
/// # Safety
/// It was made by [`create_qp`] and is not used any more.
pub(super) unsafe fn destroy_qp(qp: *mut ibv_qp) {
    // SAFETY: the caller's promise.
    let qp = unsafe { take_back::<CQp, _>(qp) };
    qp.inner.destroy();
}

/// # Safety
/// `qp` is a queue pair of ours.
pub(super) unsafe fn qp<'a>(qp: *mut ibv_qp) -> &'a CQp {
    // SAFETY: the caller's promise.
    unsafe { &*qp.cast::<CQp>() }
}

pub unsafe extern "C" fn ibv_qp_to_qp_ex(pointer: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: a queue pair of ours.
    if unsafe { qp(pointer) }.extended {
        pointer.cast()
    } else {
        std::ptr::null_mut()
    }
}

fn sge(raw: &ibv_sge) -> Sge {
    Sge {
        addr: raw.addr,
        len: raw.length,
        lkey: raw.lkey,
    }
}

/// The scatter/gather list of a work request.
///
/// # Safety
/// `list` points to `count` elements.
unsafe fn list<'a>(list: *const ibv_sge, count: c_int) -> Result<&'a [ibv_sge], Errno> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(n) if n <= SGE_MAX && !list.is_null() => {
            // SAFETY: the caller's promise.
            Ok(unsafe { std::slice::from_raw_parts(list, n) })
        }
        _ => Err(Errno::INVAL),
    }
}

pub(super) unsafe extern "C" fn post_send(
    pointer: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: a queue pair of ours.
    let (qp, here) = unsafe { (qp(pointer), made_here::<CQp, _>(pointer)) };
    let result = here.and_then(|()| {
        let mut batch = qp.inner.batch()?;
        while !wr.is_null() {
            // SAFETY: the caller's list of requests.
            unsafe { post_one(&mut batch, &*wr)? };
            // SAFETY: as above.
            wr = unsafe { (*wr).next };
        }
        Ok(())
    });
    if result.is_err() && !bad_wr.is_null() {
        // SAFETY: the caller's variable.
        unsafe { *bad_wr = wr };
    }
    number(result)
}

unsafe fn post_one(batch: &mut super::super::qp::Batch<'_>, wr: &ibv_send_wr) -> Result<(), Errno> {
    use ibv_wr_opcode::*;
    let kind = match wr.opcode {
        IBV_WR_RDMA_WRITE => Kind::Write,
        IBV_WR_RDMA_WRITE_WITH_IMM => Kind::WriteImm,
        IBV_WR_SEND => Kind::Send,
        IBV_WR_SEND_WITH_IMM => Kind::SendImm,
        IBV_WR_RDMA_READ => Kind::Read,
        _ => return Err(Errno::INVAL),
    };
    let mut request = Request::new(wr.wr_id, kind);
    set_flags(&mut request, wr.send_flags);
    if matches!(kind, Kind::Write | Kind::WriteImm | Kind::Read) {
        // SAFETY: the opcode says which part of the union is set.
        let rdma = unsafe { wr.wr.rdma };
        request.addr = rdma.remote_addr;
        request.rkey = rdma.rkey;
    }
    if kind.has_immediate() {
        // SAFETY: as above; any four bytes are a number.
        let imm = unsafe { wr.imm_data_invalidated_rkey_union.imm_data };
        request.imm = imm.to_ne_bytes();
    }
    // SAFETY: the caller's list.
    let sges = unsafe { list(wr.sg_list, wr.num_sge)? };
    if wr.send_flags & ibv_send_flags::IBV_SEND_INLINE.0 != 0 && kind != Kind::Read {
        let mut parts: [&[u8]; SGE_MAX] = [&[]; SGE_MAX];
        let mut total = 0usize;
        for (part, sge) in parts.iter_mut().zip(sges) {
            total += sge.length as usize;
            if total > MAX_INLINE as usize {
                return Err(Errno::INVAL);
            }
            if sge.length > 0 {
                // SAFETY: inline data are the caller's ordinary memory during the call.
                *part = unsafe {
                    std::slice::from_raw_parts(sge.addr as *const u8, sge.length as usize)
                };
            }
        }
        let parts = parts.get(..sges.len()).unwrap_or_default();
        return Ok(batch.post(request, Data::<std::iter::Empty<Sge>>::Inline(parts))?);
    }
    Ok(batch.post(request, Data::Registered(sges.iter().map(sge)))?)
}

fn set_flags(request: &mut Request, flags: u32) {
    request.signaled = flags & ibv_send_flags::IBV_SEND_SIGNALED.0 != 0;
    request.fence = flags & ibv_send_flags::IBV_SEND_FENCE.0 != 0;
    request.solicited = flags & ibv_send_flags::IBV_SEND_SOLICITED.0 != 0;
}

/// Posts a list of receives with `post`.
unsafe fn post_receives(
    here: Result<(), Errno>,
    mut wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
    post: impl Fn(u64, &[ibv_sge]) -> Result<(), PostError>,
) -> c_int {
    let result = here.and_then(|()| {
        while !wr.is_null() {
            // SAFETY: the caller's list of requests.
            let request = unsafe { &*wr };
            // SAFETY: as above.
            let sges = unsafe { list(request.sg_list, request.num_sge)? };
            post(request.wr_id, sges)?;
            wr = request.next;
        }
        Ok(())
    });
    if result.is_err() && !bad_wr.is_null() {
        // SAFETY: the caller's variable.
        unsafe { *bad_wr = wr };
    }
    number(result)
}

pub(super) unsafe extern "C" fn post_recv(
    pointer: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a queue pair of ours, and the caller's list.
    unsafe {
        let inner = &qp(pointer).inner;
        let here = made_here::<CQp, _>(pointer);
        post_receives(here, wr, bad_wr, |id, sges| {
            inner.post_recv(id, sges.iter().map(sge))
        })
    }
}

pub(super) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a queue of ours, and the caller's list.
    unsafe {
        let inner = &(*srq.cast::<CSrq>()).inner;
        let here = made_here::<CSrq, _>(srq);
        post_receives(here, wr, bad_wr, |id, sges| {
            inner.post(id, sges.iter().map(sge))
        })
    }
}

pub(super) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: a queue of ours.
    if unsafe { made_here::<CCq, _>(cq) }.is_err() {
        errno::set(libc::ENODEV);
        return -1;
    }
    // SAFETY: a queue of ours.
    let inner = unsafe { queue(cq) };
    let max = usize::try_from(entries).unwrap_or(0);
    let poll = || {
        let mut n = 0;
        inner.poll(|found| {
            if n == max {
                return false;
            }
            // SAFETY: the caller's array has `max` elements.
            unsafe { wc.add(n).write(*found) };
            n += 1;
            true
        })
    };
    let mut result = poll();
    if result == Ok(0)
        && max > 0
        && let Ok(engine) = engine()
    {
        engine.poll_unless_waited();
        result = poll();
    }
    match result {
        Ok(n) => n as c_int,
        Err(_) => {
            errno::set(libc::EOVERFLOW);
            -1
        }
    }
}

pub(super) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: a queue of ours.
    number(unsafe { made_here::<CCq, _>(cq) }.map(|()| {
        // SAFETY: a queue of ours.
        unsafe { queue(cq) }.arm(solicited_only != 0);
    }))
}

/// Collects requests between `wr_start` and `wr_complete`.
///
/// Between the two a queue pair belongs to the thread that called `wr_start`; others wait.
#[derive(Default)]
struct Builder {
    busy: Lock<bool>,
    released: Condvar,
    staged: UnsafeCell<Staged>,
}

// SAFETY: `staged` is touched only by the thread that has set `busy`.
unsafe impl Sync for Builder {}

#[derive(Default)]
struct Staged {
    requests: Vec<StagedRequest>,
    sges: Vec<Sge>,
    bytes: Vec<u8>,
    error: Option<Errno>,
}

struct StagedRequest {
    request: Request,
    inline: bool,
    /// Range in `sges` or `bytes`.
    from: usize,
    len: usize,
}

impl Builder {
    fn acquire(&self) {
        let mut busy = wait_until(&self.released, self.busy.lock(), |busy| !*busy);
        *busy = true;
    }

    fn release(&self) {
        *self.busy.lock() = false;
        self.released.notify_one();
    }
}

/// The requests under construction.
///
/// # Safety
/// `pointer` is a queue pair of ours, between `wr_start` and `wr_complete` of this thread.
unsafe fn staged<'a>(pointer: *mut ibv_qp_ex) -> &'a mut Staged {
    // SAFETY: the caller's promise.
    unsafe { &mut *qp(pointer.cast()).builder.staged.get() }
}

unsafe extern "C" fn wr_start(pointer: *mut ibv_qp_ex) {
    // SAFETY: a queue pair of ours.
    if unsafe { made_here::<CQp, _>(pointer) }.is_err() {
        // A forked child: completing says so.
        return;
    }
    // SAFETY: a queue pair of ours.
    unsafe { qp(pointer.cast()) }.builder.acquire();
    // SAFETY: just acquired.
    let staged = unsafe { staged(pointer) };
    staged.requests.clear();
    staged.sges.clear();
    staged.bytes.clear();
    staged.error = None;
}

unsafe extern "C" fn wr_abort(pointer: *mut ibv_qp_ex) {
    // SAFETY: a queue pair of ours.
    unsafe { qp(pointer.cast()) }.builder.release();
}

unsafe extern "C" fn wr_complete(pointer: *mut ibv_qp_ex) -> c_int {
    // SAFETY: a queue pair of ours.
    if let Err(error) = unsafe { made_here::<CQp, _>(pointer) } {
        return number(Err(error));
    }
    // SAFETY: a queue pair of ours.
    let qp = unsafe { qp(pointer.cast()) };
    // SAFETY: acquired by `wr_start`.
    let result = post_staged(&qp.inner, unsafe { staged(pointer) });
    qp.builder.release();
    number(result)
}

fn post_staged(qp: &Qp, staged: &Staged) -> Result<(), Errno> {
    if let Some(error) = staged.error {
        return Err(error);
    }
    let mut batch = qp.batch()?;
    if batch.room() < staged.requests.len() as u64 {
        return Err(Errno::NOMEM);
    }
    for one in &staged.requests {
        let range = one.from..one.from + one.len;
        if one.inline {
            let bytes = [staged.bytes.get(range).unwrap_or_default()];
            batch.post(one.request, Data::<std::iter::Empty<Sge>>::Inline(&bytes))?;
        } else {
            let sges = staged.sges.get(range).unwrap_or_default();
            batch.post(one.request, Data::Registered(sges.iter().copied()))?;
        }
    }
    Ok(())
}

/// Begins a request with the id and flags that the program has stored in the queue pair.
unsafe fn stage(pointer: *mut ibv_qp_ex, kind: Kind, set: impl FnOnce(&mut Request)) {
    // SAFETY: a queue pair of ours; its owner may store these fields at any time before.
    let (wr_id, flags) = unsafe { ((*pointer).wr_id, (*pointer).wr_flags) };
    let mut request = Request::new(wr_id, kind);
    set_flags(&mut request, flags);
    set(&mut request);
    // SAFETY: called between start and complete.
    unsafe { staged(pointer) }.requests.push(StagedRequest {
        request,
        inline: false,
        from: 0,
        len: 0,
    });
}

unsafe extern "C" fn wr_rdma_write(pointer: *mut ibv_qp_ex, rkey: u32, addr: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        stage(pointer, Kind::Write, |r| {
            r.rkey = rkey;
            r.addr = addr;
        });
    }
}

unsafe extern "C" fn wr_rdma_write_imm(pointer: *mut ibv_qp_ex, rkey: u32, addr: u64, imm: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        stage(pointer, Kind::WriteImm, |r| {
            r.rkey = rkey;
            r.addr = addr;
            r.imm = imm.to_ne_bytes();
        });
    }
}

unsafe extern "C" fn wr_rdma_read(pointer: *mut ibv_qp_ex, rkey: u32, addr: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        stage(pointer, Kind::Read, |r| {
            r.rkey = rkey;
            r.addr = addr;
        });
    }
}

unsafe extern "C" fn wr_send(pointer: *mut ibv_qp_ex) {
    // SAFETY: the caller's promise.
    unsafe { stage(pointer, Kind::Send, |_| ()) };
}

unsafe extern "C" fn wr_send_imm(pointer: *mut ibv_qp_ex, imm: u32) {
    // SAFETY: the caller's promise.
    unsafe { stage(pointer, Kind::SendImm, |r| r.imm = imm.to_ne_bytes()) };
}

unsafe extern "C" fn wr_flush(
    pointer: *mut ibv_qp_ex,
    rkey: u32,
    addr: u64,
    len: usize,
    placement: u8,
    level: u8,
) {
    const LEVEL_REGION: u8 = 1;
    let known = wire::FLUSH_GLOBAL | wire::FLUSH_PERSISTENT;
    // SAFETY: the caller's promise.
    unsafe {
        if placement == 0 || placement & !known != 0 || level > LEVEL_REGION {
            staged(pointer).error = Some(Errno::INVAL);
        }
        stage(pointer, Kind::Flush, |r| {
            r.rkey = rkey;
            r.addr = addr;
            r.wide = len as u64;
            r.code = placement & known;
            if level == LEVEL_REGION {
                r.code |= wire::FLUSH_WHOLE_REGION;
            }
        });
    }
}

unsafe extern "C" fn wr_atomic_write(
    pointer: *mut ibv_qp_ex,
    rkey: u32,
    addr: u64,
    value: *const c_void,
) {
    // SAFETY: the caller's promise; the value is 8 bytes, of any alignment.
    unsafe {
        let value = value.cast::<[u8; 8]>().read();
        stage(pointer, Kind::AtomicWrite, |r| {
            r.rkey = rkey;
            r.addr = addr;
            // The eight bytes are stored as they are.
            r.wide = u64::from_ne_bytes(value);
        });
    }
}

unsafe extern "C" fn wr_set_sge(pointer: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let sge = ibv_sge { addr, length, lkey };
    // SAFETY: the caller's promise.
    unsafe { wr_set_sge_list(pointer, 1, &sge) };
}

unsafe extern "C" fn wr_set_sge_list(pointer: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: the caller's promise.
    let (staged, max) = unsafe { (staged(pointer), qp(pointer.cast()).capacity.send_sge) };
    if count > max || (count > 0 && list.is_null()) {
        staged.error = Some(Errno::INVAL);
        return;
    }
    let from = staged.sges.len();
    if count > 0 {
        // SAFETY: the caller's list.
        let list = unsafe { std::slice::from_raw_parts(list, count) };
        staged.sges.extend(list.iter().map(sge));
    }
    match staged.requests.last_mut() {
        Some(last) => (last.inline, last.from, last.len) = (false, from, count),
        None => staged.error = Some(Errno::INVAL),
    }
}

unsafe extern "C" fn wr_set_inline_data(pointer: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let buf = ibv_data_buf { addr, length };
    // SAFETY: the caller's promise.
    unsafe { wr_set_inline_data_list(pointer, 1, &buf) };
}

unsafe extern "C" fn wr_set_inline_data_list(
    pointer: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: the caller's promise.
    let (staged, max) = unsafe { (staged(pointer), qp(pointer.cast()).capacity.inline) };
    let from = staged.bytes.len();
    if count > 0 {
        // SAFETY: the caller's list.
        for buf in unsafe { std::slice::from_raw_parts(list, count) } {
            if buf.length > max.saturating_sub(staged.bytes.len() - from) {
                staged.error = Some(Errno::NOMEM);
                return;
            }
            if buf.length > 0 {
                // SAFETY: the caller's ordinary memory.
                staged.bytes.extend_from_slice(unsafe {
                    std::slice::from_raw_parts(buf.addr.cast::<u8>(), buf.length)
                });
            }
        }
    }
    let len = staged.bytes.len() - from;
    match staged.requests.last_mut() {
        Some(last) => (last.inline, last.from, last.len) = (true, from, len),
        None => staged.error = Some(Errno::INVAL),
    }
}
