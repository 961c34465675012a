// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Remote persistent memory access.

pub mod soft;
pub mod verbs;
