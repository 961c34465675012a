// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Error codes and their texts.

use std::ffi::{c_char, c_int};

use crate::error::Error;

super::symbols::versioned! {
    rpma_err_2str
}

/// Unknown error.
pub const RPMA_E_UNKNOWN: c_int = -100000;
/// Not supported.
pub const RPMA_E_NOSUPP: c_int = -100001;
/// A call to the provider (libibverbs, librdmacm or the software fabric) failed: see the
/// log, and errno where it was set.
pub const RPMA_E_PROVIDER: c_int = -100002;
/// Out of memory.
pub const RPMA_E_NOMEM: c_int = -100003;
/// Invalid argument.
pub const RPMA_E_INVAL: c_int = -100004;
/// No completion is available.
pub const RPMA_E_NO_COMPLETION: c_int = -100005;
/// No event is available.
pub const RPMA_E_NO_EVENT: c_int = -100006;
/// Temporary error: try again.
pub const RPMA_E_AGAIN: c_int = -100007;
/// The completion channel is shared.
pub const RPMA_E_SHARED_CHANNEL: c_int = -100008;
/// The completion channel is not shared.
pub const RPMA_E_NOT_SHARED_CHNL: c_int = -100009;

// The constants above are what the header shows; the core knows the same numbers.
const _: () = {
    assert!(RPMA_E_UNKNOWN == Error::Unknown.code());
    assert!(RPMA_E_NOSUPP == Error::NoSupp.code());
    assert!(RPMA_E_PROVIDER == Error::Provider.code());
    assert!(RPMA_E_NOMEM == Error::NoMem.code());
    assert!(RPMA_E_INVAL == Error::Inval.code());
    assert!(RPMA_E_NO_COMPLETION == Error::NoCompletion.code());
    assert!(RPMA_E_NO_EVENT == Error::NoEvent.code());
    assert!(RPMA_E_AGAIN == Error::Again.code());
    assert!(RPMA_E_SHARED_CHANNEL == Error::SharedChannel.code());
    assert!(RPMA_E_NOT_SHARED_CHNL == Error::NotSharedChannel.code());
};

/// Gives the text for a return value of this library.
///
/// Returns a static string: "Success" for 0, a text for each error code, "Unknown error" for
/// any other value. Cannot fail.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub extern "C" fn rpma_err_2str(ret: c_int) -> *const c_char {
    let text = match ret {
        0 => c"Success",
        code => Error::from_code(code).unwrap_or(Error::Unknown).text(),
    };
    text.as_ptr()
}
