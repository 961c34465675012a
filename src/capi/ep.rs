// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Endpoint.

use std::ffi::{c_char, c_int};

use super::conn_cfg::resolve;
use super::handle::{self, Handle, Out, co_owner, object, string};
use super::{answer, rpma_conn_cfg, rpma_conn_req, rpma_peer};
use crate::ep::Endpoint;

super::symbols::versioned! {
    rpma_ep_listen
    rpma_ep_shutdown
    rpma_ep_get_fd
    rpma_ep_next_conn_req
}

/// An endpoint: where a peer listens for connect requests.
pub struct rpma_ep {
    _opaque: (),
}

// SAFETY: the only way to a handle of this type is `Out::give` with this object.
unsafe impl Handle for rpma_ep {
    type Object = Endpoint;
}

/// Listens for connect requests at an address (or host name) of this machine and a port (or
/// service name). The endpoint is ended with rpma_ep_shutdown().
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL; RPMA_E_PROVIDER if the address cannot be
/// found, bound or listened at (errno says why, or the log for a name that cannot be found);
/// RPMA_E_NOMEM.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_ep_listen(
    peer: *mut rpma_peer,
    addr: *const c_char,
    port: *const c_char,
    ep_ptr: *mut *mut rpma_ep,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract; handles of a peer are given out by `Out::share`.
        let (peer, out) = unsafe { (co_owner(peer)?, Out::new(ep_ptr)?) };
        // SAFETY: the C contract.
        let (addr, port) = unsafe { (string(addr)?, string(port)?) };
        out.give(Endpoint::listen(peer, addr, port)?)
    })
}

/// Stops listening; *ep_ptr becomes NULL, also on failure. A NULL *ep_ptr is success. Requests
/// that were taken stay.
///
/// Returns 0; RPMA_E_INVAL if ep_ptr is NULL; RPMA_E_PROVIDER if the provider fails (errno says
/// why).
///
/// Thread safety: safe on different endpoints.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_ep_shutdown(ep_ptr: *mut *mut rpma_ep) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        match unsafe { handle::take(ep_ptr) }? {
            Some(endpoint) => endpoint.shut_down(),
            None => Ok(()),
        }
    })
}

/// Gives the descriptor that becomes readable when a connect request is there. It belongs to the
/// library; the program may poll it and make it non-blocking.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_ep_get_fd(ep: *const rpma_ep, fd: *mut c_int) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (endpoint, out) = unsafe { (object(ep)?, Out::new(fd)?) };
        out.set(endpoint.fd());
        Ok(())
    })
}

/// Takes the next connect request, or waits for one unless the descriptor is non-blocking, and
/// creates the queues for it; a NULL cfg means the defaults. The request is granted with
/// rpma_conn_req_connect(), or turned down with rpma_conn_req_delete(). If it cannot be served,
/// the other side is rejected.
///
/// Returns 0; RPMA_E_INVAL if ep or req_ptr is NULL, an unexpected event is there, or cfg
/// contradicts itself; RPMA_E_NO_EVENT if there is no request; RPMA_E_PROVIDER if the event or
/// the queues cannot be had (errno says why); RPMA_E_NOMEM; RPMA_E_UNKNOWN if the request belongs
/// to no device.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_ep_next_conn_req(
    ep: *mut rpma_ep,
    cfg: *const rpma_conn_cfg,
    req_ptr: *mut *mut rpma_conn_req,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (endpoint, out) = unsafe { (object(ep)?, Out::new(req_ptr)?) };
        // SAFETY: the C contract.
        let wanted = unsafe { resolve(cfg) };
        out.give(endpoint.next_request(wanted.config, wanted.srq)?)
    })
}
