// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What the core needs from the C library and the allocator that has no safe wrapper elsewhere:
//! errno, the environment, syslog, the dynamic loader, allocation that can fail, private pages,
//! the host's addresses, what signals do, threads that are cancelled.
//!
//! Each file wraps one such thing in a safe interface. Nothing here knows about RDMA.

pub(crate) mod alloc;
pub(crate) mod cancel;
pub(crate) mod clock;
pub(crate) mod dl;
pub(crate) mod env;
pub(crate) mod errno;
pub(crate) mod fork;
pub(crate) mod init;
pub(crate) mod interfaces;
pub(crate) mod mapping;
pub(crate) mod page;
pub(crate) mod signals;
pub(crate) mod syslog;
