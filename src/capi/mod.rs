// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The C interface: the 84 functions of librpma, one file per object.
//!
//! What a function does here: check its arguments, turn pointers into references, call the core,
//! turn the result into a code. Nothing else. The comments of the functions and types are the
//! documentation of the C interface: the header, and what is made from it, come from them.
//!
//! # Safety
//!
//! All these functions share one contract, which is that of any C library: a pointer that is not
//! null points at what its type says, for as long as the call lasts, and a handle is one that the
//! library gave out and that was not deleted. Where more is needed, the function's comment says
//! so. The `SAFETY` comments below call this *the C contract*.

#![allow(
    non_camel_case_types,
    reason = "the types carry the names of the C interface"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "one contract for all functions, stated above; their comments become the C header's"
)]

mod conn;
mod conn_cfg;
mod conn_req;
mod cq;
mod ep;
mod error;
mod handle;
pub(crate) mod log;
mod mr;
mod peer;
mod peer_cfg;
mod srq;
mod srq_cfg;
mod symbols;
mod utils;

pub use conn::*;
pub use conn_cfg::*;
pub use conn_req::*;
pub use cq::*;
pub use ep::*;
pub use error::*;
pub use log::*;
pub use mr::*;
pub use peer::*;
pub use peer_cfg::*;
pub use srq::*;
pub use srq_cfg::*;
pub use utils::*;

use std::ffi::{c_int, c_void};

use crate::conn::{Completion, Operation};
use crate::error::Error;

/// Runs the body of a function and turns its result into a code.
#[inline(always)]
fn answer(body: impl FnOnce() -> Result<(), Error>) -> c_int {
    match body() {
        Ok(()) => 0,
        Err(error) => error.code(),
    }
}

/// The bit of the completion flags that asks for a completion on success.
const COMPLETION_ON_SUCCESS: c_int = 1 << 1;

/// An operation's identification and completion; INVAL for no flags at all.
#[inline(always)]
fn operation(flags: c_int, op_context: *const c_void) -> Result<Operation, Error> {
    if flags == 0 {
        return Err(Error::Inval);
    }
    Ok(Operation {
        wr_id: op_context as u64,
        completion: if flags & COMPLETION_ON_SUCCESS != 0 {
            Completion::Always
        } else {
            Completion::OnError
        },
    })
}
