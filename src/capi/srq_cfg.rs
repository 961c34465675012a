// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Configuration of a shared receive queue.

use std::ffi::c_int;

use super::answer;
use super::handle::{self, Handle, Out, object};
use crate::srq_cfg::SrqConfig;

super::symbols::versioned! {
    rpma_srq_cfg_new
    rpma_srq_cfg_delete
    rpma_srq_cfg_set_rq_size
    rpma_srq_cfg_get_rq_size
    rpma_srq_cfg_set_rcq_size
    rpma_srq_cfg_get_rcq_size
}

/// The configuration of a shared receive queue.
pub struct rpma_srq_cfg {
    _opaque: (),
}

// SAFETY: the only way to a handle of this type is `Out::give` with this object.
unsafe impl Handle for rpma_srq_cfg {
    type Object = SrqConfig;
}

/// Creates a configuration of a shared receive queue with the defaults: 20 receive
/// requests, and a completion queue of its own with 20 entries.
/// It is deleted with rpma_srq_cfg_delete().
///
/// Returns 0; RPMA_E_INVAL if cfg_ptr is NULL; RPMA_E_NOMEM.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_srq_cfg_new(cfg_ptr: *mut *mut rpma_srq_cfg) -> c_int {
    // SAFETY: the C contract.
    answer(|| unsafe { Out::new(cfg_ptr) }?.give_or_null(SrqConfig::new()))
}

/// Deletes a configuration; *cfg_ptr becomes NULL. A NULL *cfg_ptr is success.
///
/// Returns 0; RPMA_E_INVAL if cfg_ptr is NULL.
///
/// Thread safety: safe on different configurations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_srq_cfg_delete(cfg_ptr: *mut *mut rpma_srq_cfg) -> c_int {
    // SAFETY: the C contract.
    answer(|| unsafe { handle::delete(cfg_ptr) })
}

/// Sets how many receive requests the queue holds.
///
/// Returns 0; RPMA_E_INVAL if cfg is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_srq_cfg_set_rq_size(cfg: *mut rpma_srq_cfg, rq_size: u32) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        unsafe { object(cfg) }?.set_rq_size(rq_size);
        Ok(())
    })
}

/// Tells how many receive requests the queue holds.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_srq_cfg_get_rq_size(
    cfg: *const rpma_srq_cfg,
    rq_size: *mut u32,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (config, out) = unsafe { (object(cfg)?, Out::new(rq_size)?) };
        out.set(config.rq_size());
        Ok(())
    })
}

/// Sets how many entries the queue's own completion queue has; with 0 it has none, and completions
/// go to each connection's. Sizes above INT_MAX are taken as INT_MAX.
///
/// Returns 0; RPMA_E_INVAL if cfg is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_srq_cfg_set_rcq_size(cfg: *mut rpma_srq_cfg, rcq_size: u32) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        unsafe { object(cfg) }?.set_rcq_size(rcq_size);
        Ok(())
    })
}

/// Tells how many entries the queue's own completion queue has; 0 means that it has none.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_srq_cfg_get_rcq_size(
    cfg: *const rpma_srq_cfg,
    rcq_size: *mut u32,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (config, out) = unsafe { (object(cfg)?, Out::new(rcq_size)?) };
        out.set(config.rcq_size());
        Ok(())
    })
}
