// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Remote persistent memory access: a drop-in replacement for the C library librpma, with a
//! software fabric where there is no RDMA device.
//!
//! # What is stable
//!
//! The C interface is: the functions, the header, the symbol version and the environment variables
//! keep their meaning. **The Rust interface is not yet**: what is public here is the core below the
//! C interface, and may change with each version before it is declared stable. It is complete
//! enough to write programs with (`examples/remote_log.rs` is one); objects are released when they
//! are dropped.
//!
//! A program starts with [`peer::Peer::at`], allocates registered memory as a [`buffer::Buffer`],
//! and connects by [`ep::Endpoint`] or [`conn_req::ConnRequest`] to get a [`conn::Connection`].
//!
//! # Layers
//!
//! - `capi` is the C interface: it checks the callers' pointers and arguments, calls the core and
//!   turns errors into codes. One file per object.
//! - The files beside this one are the core: safe code that knows librpma's rules.
//! - [`verbs`] owns the provider's objects and makes all calls to it, through one table.
//! - [`soft`] is the software fabric, which fills that table and the verbs structures itself.
//! - [`info`] tells what all of this would do here, for the program rpma-info.
//! - `sys` wraps what the core needs of the C library and the allocator.
//!
//! `unsafe` lives in `capi`, `verbs`, `sys`, and the parts of `soft` that touch registered memory
//! or fill C structures.
#![cfg_attr(
    not(feature = "capi"),
    allow(dead_code, reason = "the C interface is what uses the core")
)]

pub mod buffer;
pub mod conn;
pub mod conn_cfg;
pub mod conn_req;
pub mod cq;
pub mod device;
pub mod ep;
pub mod error;
mod fabric;
mod fault;
pub mod flush;
pub mod info;
pub mod log;
pub mod mr;
pub mod peer;
pub mod peer_cfg;
mod private_data;
pub mod soft;
pub mod srq;
pub mod srq_cfg;
mod sys;
pub mod verbs;

#[cfg(feature = "capi")]
pub mod capi;

pub use sys::alloc::Shared;
