// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The software fabric.
