// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Where the fabric reports what an operator should know.
//!
//! The fabric knows no log; whoever embeds it sets a sink. Without one, reports are dropped.

use std::fmt::Arguments;
use std::sync::OnceLock;

/// How serious a report is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Something went wrong on one connection, or a limit was hit.
    Warning,
    /// What a developer wants to see when a connection misbehaves.
    Debug,
}

/// Receives every report; called with locks of the fabric held, so it must not call back into it.
pub type Sink = fn(Severity, Arguments<'_>);

static SINK: OnceLock<Sink> = OnceLock::new();

/// Sets the sink once; later calls change nothing.
pub fn set_sink(sink: Sink) {
    let _ = SINK.set(sink);
}

pub(crate) fn warn(text: Arguments<'_>) {
    if let Some(sink) = SINK.get() {
        sink(Severity::Warning, text);
    }
}

pub(crate) fn debug(text: Arguments<'_>) {
    if let Some(sink) = SINK.get() {
        sink(Severity::Debug, text);
    }
}
