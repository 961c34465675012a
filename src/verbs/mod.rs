// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Owning types over the `ibv_*` and `rdma_*` objects of a fabric.

pub mod provider;
