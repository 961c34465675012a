// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Peer configuration.

use std::ffi::{c_int, c_void};

use super::answer;
use super::handle::{self, Handle, Out, object};
use crate::error::Error;
use crate::peer_cfg::PeerConfig;

super::symbols::versioned! {
    rpma_peer_cfg_new
    rpma_peer_cfg_delete
    rpma_peer_cfg_set_direct_write_to_pmem
    rpma_peer_cfg_get_direct_write_to_pmem
    rpma_peer_cfg_get_descriptor
    rpma_peer_cfg_get_descriptor_size
    rpma_peer_cfg_from_descriptor
}

/// A peer's configuration: what one side has to tell the other about itself.
pub struct rpma_peer_cfg {
    _opaque: (),
}

// SAFETY: the only way to a handle of this type is `Out::give` with this object.
unsafe impl Handle for rpma_peer_cfg {
    type Object = PeerConfig;
}

/// Creates a peer configuration with the defaults: no direct write to persistent memory. It is
/// deleted with rpma_peer_cfg_delete().
///
/// Returns 0; RPMA_E_INVAL if pcfg_ptr is NULL; RPMA_E_NOMEM.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_cfg_new(pcfg_ptr: *mut *mut rpma_peer_cfg) -> c_int {
    // SAFETY: the C contract.
    answer(|| unsafe { Out::new(pcfg_ptr) }?.give(PeerConfig::default()))
}

/// Deletes a peer configuration; *pcfg_ptr becomes NULL. A NULL *pcfg_ptr is success.
///
/// Returns 0; RPMA_E_INVAL if pcfg_ptr is NULL.
///
/// Thread safety: safe on different configurations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_cfg_delete(pcfg_ptr: *mut *mut rpma_peer_cfg) -> c_int {
    // SAFETY: the C contract.
    answer(|| unsafe { handle::delete(pcfg_ptr) })
}

/// Declares whether data that a write brought to this peer's memory and that was flushed is
/// persistent: true only if the platform writes directly to persistent memory.
///
/// Returns 0; RPMA_E_INVAL if pcfg is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_cfg_set_direct_write_to_pmem(
    pcfg: *mut rpma_peer_cfg,
    supported: bool,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        unsafe { object(pcfg) }?.set_direct_write_to_pmem(supported);
        Ok(())
    })
}

/// Tells whether direct write to persistent memory is declared.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_cfg_get_direct_write_to_pmem(
    pcfg: *const rpma_peer_cfg,
    supported: *mut bool,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (config, out) = unsafe { (object(pcfg)?, Out::new(supported)?) };
        out.set(config.direct_write_to_pmem());
        Ok(())
    })
}

/// Writes the configuration's descriptor, which the other side reads with
/// rpma_peer_cfg_from_descriptor(). The buffer has the size that
/// rpma_peer_cfg_get_descriptor_size() tells.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_cfg_get_descriptor(
    pcfg: *const rpma_peer_cfg,
    desc: *mut c_void,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract; the buffer has the descriptor's size.
        let (config, out) = unsafe { (object(pcfg)?, Out::new(desc.cast())?) };
        out.set(config.descriptor());
        Ok(())
    })
}

/// Tells how many bytes the configuration's descriptor has.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_cfg_get_descriptor_size(
    pcfg: *const rpma_peer_cfg,
    desc_size: *mut usize,
) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        let (_, out) = unsafe { (object(pcfg)?, Out::new(desc_size)?) };
        out.set(PeerConfig::DESCRIPTOR_SIZE);
        Ok(())
    })
}

/// Creates a peer configuration from the descriptor of the other side's. Bytes after the
/// descriptor are ignored. It is deleted with rpma_peer_cfg_delete().
///
/// Returns 0; RPMA_E_INVAL if desc or pcfg_ptr is NULL or desc_size is 0; RPMA_E_NOMEM.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_cfg_from_descriptor(
    desc: *const c_void,
    desc_size: usize,
    pcfg_ptr: *mut *mut rpma_peer_cfg,
) -> c_int {
    answer(|| {
        if desc.is_null() {
            return Err(Error::Inval);
        }
        // SAFETY: the C contract.
        let (desc, out) = unsafe { (handle::bytes(desc, desc_size)?, Out::new(pcfg_ptr)?) };
        out.give(PeerConfig::from_descriptor(desc)?)
    })
}
