// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Peer.

use std::ffi::c_int;
use std::ptr::NonNull;

use rdma_sys::ibv_context;

use super::answer;
use super::handle::{self, Handle, Out};
use crate::error::Error;
use crate::fabric;
use crate::peer::Peer;

super::symbols::versioned! {
    rpma_peer_new
    rpma_peer_delete
}

/// A peer: one device as one side of connections.
pub struct rpma_peer {
    _opaque: (),
}

// SAFETY: the only way to a handle of this type is `Out::share` with this object.
unsafe impl Handle for rpma_peer {
    type Object = Peer;
}

/// Creates a peer on a device, with a protection domain of its own. It is deleted with
/// rpma_peer_delete(), after all that was made from it.
///
/// Returns 0; RPMA_E_INVAL if an argument is NULL; RPMA_E_PROVIDER if the device cannot be asked
/// for its abilities or gives no protection domain (errno says why); RPMA_E_NOMEM;
/// RPMA_E_UNKNOWN if the provider fails without a reason.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_new(
    ibv_ctx: *mut ibv_context,
    peer_ptr: *mut *mut rpma_peer,
) -> c_int {
    answer(|| {
        let context = NonNull::new(ibv_ctx).ok_or(Error::Inval)?;
        // SAFETY: the C contract.
        let out = unsafe { Out::new(peer_ptr) }?;
        // SAFETY: the C contract: an open context.
        let device = unsafe { fabric::device(context) }?;
        out.share(Peer::new(device)?)
    })
}

/// Deletes a peer; *peer_ptr becomes NULL, also on failure. A NULL *peer_ptr is success.
///
/// Returns 0; RPMA_E_INVAL if peer_ptr is NULL; RPMA_E_PROVIDER if the protection domain cannot
/// be released, as is the case while regions or connections use it (errno says why).
///
/// Thread safety: safe on different peers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_delete(peer_ptr: *mut *mut rpma_peer) -> c_int {
    answer(|| {
        // SAFETY: the C contract.
        match unsafe { handle::take_shared(peer_ptr) }? {
            Some(peer) => peer.release(!peer.is_sole_owner()),
            None => Ok(()),
        }
    })
}
