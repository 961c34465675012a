// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Configuration of a connection.

use std::ffi::c_int;

use super::handle::{self, Handle, Out, co_owner, object, object_or_none};
use super::{answer, rpma_srq};
use crate::conn_cfg::ConnConfig;
use crate::error::Error;
use crate::srq::SharedReceiveQueue;
use crate::sys::alloc::Shared;

super::symbols::versioned! {
    rpma_conn_cfg_new
    rpma_conn_cfg_delete
    rpma_conn_cfg_set_timeout
    rpma_conn_cfg_get_timeout
    rpma_conn_cfg_set_cq_size
    rpma_conn_cfg_get_cq_size
    rpma_conn_cfg_set_rcq_size
    rpma_conn_cfg_get_rcq_size
    rpma_conn_cfg_set_sq_size
    rpma_conn_cfg_get_sq_size
    rpma_conn_cfg_set_rq_size
    rpma_conn_cfg_get_rq_size
    rpma_conn_cfg_set_compl_channel
    rpma_conn_cfg_get_compl_channel
    rpma_conn_cfg_set_srq
    rpma_conn_cfg_get_srq
}

/// The configuration of a connection.
pub struct rpma_conn_cfg {
    _opaque: (),
}

// SAFETY: the only way to a handle of this type is `Out::give` with this object.
unsafe impl Handle for rpma_conn_cfg {
    type Object = ConnConfig;
}

/// Creates a configuration of a connection with the defaults: a timeout
/// of 1000 ms, 10 entries for the completion queue and 10 requests for each of the send and the
/// receive queue, no separate receive completion queue, no shared completion channel, no shared
/// receive queue.
/// It is deleted with rpma_conn_cfg_delete().
///
/// Returns 0; RPMA_E_INVAL if cfg_ptr is NULL; RPMA_E_NOMEM.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_new(cfg_ptr: *mut *mut rpma_conn_cfg) -> c_int {
    // SAFETY: the C contract.
    answer(|| unsafe { Out::new(cfg_ptr) }?.give_or_null(ConnConfig::new()))
}

/// Deletes a configuration; *cfg_ptr becomes NULL. A NULL *cfg_ptr is success.
///
/// Returns 0; RPMA_E_INVAL if cfg_ptr is NULL.
///
/// Thread safety: safe on different configurations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_delete(cfg_ptr: *mut *mut rpma_conn_cfg) -> c_int {
    // SAFETY: the C contract.
    answer(|| unsafe { handle::delete(cfg_ptr) })
}

/// Sets how long to wait for the address, and then for the route, of the other side, in
/// milliseconds.
///
/// Returns 0; RPMA_E_INVAL if cfg is NULL or the time negative.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_timeout(
    cfg: *mut rpma_conn_cfg,
    timeout_ms: c_int,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        unsafe { object(cfg) }?.set_timeout_ms(timeout_ms)
    })
}

/// Tells how long to wait for the address, and then for the route, of the other side, in
/// milliseconds.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_get_timeout(
    cfg: *const rpma_conn_cfg,
    timeout_ms: *mut c_int,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (config, out) = unsafe { (object(cfg)?, Out::new(timeout_ms)?) };
        out.set(config.timeout_ms());
        Ok(())
    })
}

/// Sets how many entries the main completion queue has. Sizes above INT_MAX are taken as INT_MAX.
/// A provider makes none with 0 entries, or with more than its device has: then the connection
/// request that is to have it fails with RPMA_E_PROVIDER.
///
/// Returns 0; RPMA_E_INVAL if cfg is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_cq_size(cfg: *mut rpma_conn_cfg, cq_size: u32) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        unsafe { object(cfg) }?.set_cq_size(cq_size);
        Ok(())
    })
}

/// Tells how many entries the main completion queue has.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_get_cq_size(
    cfg: *const rpma_conn_cfg,
    cq_size: *mut u32,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (config, out) = unsafe { (object(cfg)?, Out::new(cq_size)?) };
        out.set(config.cq_size());
        Ok(())
    })
}

/// Sets how many entries the separate receive completion queue has; with 0 there is none, and
/// receives complete in the main queue. Sizes above INT_MAX are taken as INT_MAX.
///
/// Returns 0; RPMA_E_INVAL if cfg is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_rcq_size(
    cfg: *mut rpma_conn_cfg,
    rcq_size: u32,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        unsafe { object(cfg) }?.set_rcq_size(rcq_size);
        Ok(())
    })
}

/// Tells how many entries the separate receive completion queue has; 0 means that there is none.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_get_rcq_size(
    cfg: *const rpma_conn_cfg,
    rcq_size: *mut u32,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (config, out) = unsafe { (object(cfg)?, Out::new(rcq_size)?) };
        out.set(config.rcq_size());
        Ok(())
    })
}

/// Sets how many requests the send queue holds.
///
/// Returns 0; RPMA_E_INVAL if cfg is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_sq_size(cfg: *mut rpma_conn_cfg, sq_size: u32) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        unsafe { object(cfg) }?.set_sq_size(sq_size);
        Ok(())
    })
}

/// Tells how many requests the send queue holds.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_get_sq_size(
    cfg: *const rpma_conn_cfg,
    sq_size: *mut u32,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (config, out) = unsafe { (object(cfg)?, Out::new(sq_size)?) };
        out.set(config.sq_size());
        Ok(())
    })
}

/// Sets how many requests the receive queue holds.
///
/// Returns 0; RPMA_E_INVAL if cfg is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_rq_size(cfg: *mut rpma_conn_cfg, rq_size: u32) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        unsafe { object(cfg) }?.set_rq_size(rq_size);
        Ok(())
    })
}

/// Tells how many requests the receive queue holds.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_get_rq_size(
    cfg: *const rpma_conn_cfg,
    rq_size: *mut u32,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (config, out) = unsafe { (object(cfg)?, Out::new(rq_size)?) };
        out.set(config.rq_size());
        Ok(())
    })
}

/// Sets whether both completion queues announce their completions through one channel, which is
/// waited for with rpma_conn_wait().
///
/// Returns 0; RPMA_E_INVAL if cfg is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_compl_channel(
    cfg: *mut rpma_conn_cfg,
    shared: bool,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        unsafe { object(cfg) }?.set_shared_channel(shared);
        Ok(())
    })
}

/// Tells whether both completion queues announce their completions through one channel.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_get_compl_channel(
    cfg: *const rpma_conn_cfg,
    shared: *mut bool,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (config, out) = unsafe { (object(cfg)?, Out::new(shared)?) };
        out.set(config.shared_channel());
        Ok(())
    })
}

/// Sets the shared receive queue that the connection takes its receive requests from. The queue
/// has to be there when the connection is made, and is deleted after it.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_srq(
    cfg: *mut rpma_conn_cfg,
    srq: *mut rpma_srq,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let config = unsafe { object(cfg) }?;
        if srq.is_null() {
            return Err(Error::Inval);
        }
        config.set_srq(srq.cast());
        Ok(())
    })
}

/// Tells the shared receive queue that the connection takes its receive requests from; NULL if
/// there is none.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_get_srq(
    cfg: *const rpma_conn_cfg,
    srq_ptr: *mut *mut rpma_srq,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (config, out) = unsafe { (object(cfg)?, Out::new(srq_ptr)?) };
        out.set(config.srq().cast());
        Ok(())
    })
}

/// What a NULL configuration means.
static DEFAULTS: ConnConfig = ConnConfig::new();

/// What a connection is made with: its configuration, and the shared receive queue that the
/// configuration names.
pub(super) struct Resolved<'a> {
    pub(super) config: &'a ConnConfig,
    pub(super) srq: Option<Shared<SharedReceiveQueue>>,
}

/// Resolves a caller's configuration; the defaults for null.
///
/// # Safety
/// The C contract, and the shared receive queue was not deleted.
pub(super) unsafe fn resolve<'a>(cfg: *const rpma_conn_cfg) -> Resolved<'a> {
    // SAFETY: the contract.
    let config = unsafe { object_or_none(cfg) }.unwrap_or(&DEFAULTS);
    let srq: *mut rpma_srq = config.srq().cast();
    Resolved {
        config,
        // SAFETY: the contract; handles of this type are given out by `Out::share`.
        srq: unsafe { co_owner(srq) }.ok(),
    }
}
