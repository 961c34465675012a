// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Connection request.

use std::ffi::{c_char, c_int, c_void};

use super::conn::rpma_conn_private_data;
use super::conn_cfg::resolve;
use super::handle::{self, Handle, Out, co_owner, object, string};
use super::{answer, rpma_conn, rpma_conn_cfg, rpma_mr_local, rpma_peer};
use crate::conn_req::ConnRequest;
use crate::error::Error;

super::symbols::versioned! {
    rpma_conn_req_new
    rpma_conn_req_delete
    rpma_conn_req_connect
    rpma_conn_req_recv
    rpma_conn_req_get_private_data
}

/// A connection request: a connection that is not decided yet.
pub struct rpma_conn_req {
    _opaque: (),
}

// SAFETY: the only way to a handle of this type is `Out::give` with this object.
unsafe impl Handle for rpma_conn_req {
    type Object = ConnRequest;
}

/// Prepares a connection to an address (or host name) and a port (or service name); a NULL cfg
/// means the defaults. The request is sent with rpma_conn_req_connect(), or given up with
/// rpma_conn_req_delete().
///
/// Returns 0; RPMA_E_INVAL if peer, addr, port or req_ptr is NULL, or cfg contradicts itself;
/// RPMA_E_PROVIDER if the address or the way to it cannot be found in time or the queues cannot
/// be created (errno says why, or the log for a name that cannot be found); RPMA_E_NOMEM;
/// RPMA_E_UNKNOWN if no device belongs to the address.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_req_new(
    peer: *mut rpma_peer,
    addr: *const c_char,
    port: *const c_char,
    cfg: *const rpma_conn_cfg,
    req_ptr: *mut *mut rpma_conn_req,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract; handles of a peer are given out by `Out::share`.
        let (peer, out) = unsafe { (co_owner(peer)?, Out::new(req_ptr)?) };
        // SAFETY: the C contract.
        let (addr, port) = unsafe { (string(addr)?, string(port)?) };
        // SAFETY: the C contract.
        let wanted = unsafe { resolve(cfg) };
        out.give(ConnRequest::outgoing(
            peer,
            addr,
            port,
            wanted.config,
            wanted.srq,
        )?)
    })
}

/// Gives a request up; *req_ptr becomes NULL, also on failure. A NULL *req_ptr is success. A
/// request of the other side is rejected.
///
/// Returns 0; RPMA_E_INVAL if req_ptr is NULL; RPMA_E_PROVIDER if the provider fails on the way
/// (errno says why).
///
/// Thread safety: safe on different requests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_req_delete(req_ptr: *mut *mut rpma_conn_req) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        match unsafe { handle::take(req_ptr) }? {
            Some(request) => request.delete(),
            None => Ok(()),
        }
    })
}

/// Sends the request to the other side, or grants the other side's request, with private data
/// if pdata is not NULL. The outcome arrives as an event: see rpma_conn_next_event(). The request
/// is consumed, *req_ptr becomes NULL, whatever the result; the connection is deleted with
/// rpma_conn_delete().
///
/// Returns 0; RPMA_E_INVAL if req_ptr, *req_ptr or conn_ptr is NULL, or pdata is not NULL but
/// its ptr is NULL or its len 0; RPMA_E_PROVIDER if the provider refuses, for instance private
/// data that is too long for the fabric (errno says why); RPMA_E_NOMEM.
///
/// Thread safety: safe on different requests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_req_connect(
    req_ptr: *mut *mut rpma_conn_req,
    pdata: *const rpma_conn_private_data,
    conn_ptr: *mut *mut rpma_conn,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let request = unsafe { handle::take(req_ptr) }?.ok_or(Error::Inval)?;
        // SAFETY: the C contract.
        let arguments = unsafe { (Out::new(conn_ptr), private_data(pdata)) };
        let (Ok(out), Ok(private_data)) = arguments else {
            // What the caller needs to know is that the arguments are wrong.
            let _ = request.delete();
            return Err(Error::Inval);
        };
        out.give(request.connect(private_data)?)
    })
}

/// A caller's private data; empty for NULL, INVAL for data that says it is there and is not.
///
/// # Safety
/// The C contract: the pointer in the data is valid for reading its length.
unsafe fn private_data<'a>(pdata: *const rpma_conn_private_data) -> Result<&'a [u8], Error> {
    // SAFETY: the C contract.
    let Some(pdata) = (unsafe { pdata.as_ref() }) else {
        return Ok(&[]);
    };
    if pdata.len == 0 {
        return Err(Error::Inval);
    }
    // SAFETY: the C contract.
    unsafe { handle::bytes(pdata.ptr, usize::from(pdata.len)) }
}

/// Posts a receive request before the connection is there, so that no message can come too
/// early; see rpma_recv(), but dst may not be NULL.
///
/// Returns 0; RPMA_E_INVAL if req or dst is NULL or len is above 4 GiB - 1; RPMA_E_PROVIDER if
/// the provider refuses, as it does when the queue is full.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_req_recv(
    req: *mut rpma_conn_req,
    dst: *mut rpma_mr_local,
    offset: usize,
    len: usize,
    op_context: *const c_void,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (request, dst) = unsafe { (object(req)?, object(dst)?) };
        request.recv(dst.range(offset, len), op_context as u64)
    })
}

/// Gives the private data that came with a request of the other side: pdata->ptr and pdata->len,
/// NULL and 0 if there was none. It belongs to the library and stays valid until the request, or
/// the connection that it became, is deleted.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_req_get_private_data(
    req: *const rpma_conn_req,
    pdata: *mut rpma_conn_private_data,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (request, out) = unsafe { (object(req)?, Out::new(pdata)?) };
        out.set(rpma_conn_private_data::of(request.private_data()));
        Ok(())
    })
}
