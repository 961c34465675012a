// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What the engine watches and calls, and what it says.

use std::sync::Arc;

#[cfg(doc)]
use super::Engine;

/// What a descriptor is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::soft) struct Readiness {
    pub readable: bool,
    pub writable: bool,
}

/// Whose thread handles what is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::soft) enum Driver {
    /// The engine's own, or one that stands in for it.
    Engine,
    /// One that waits for a completion and has the lead.
    Leader,
    /// One that polls, and may not come back.
    Poller,
}

impl Driver {
    /// Whether it waits for what another thread is working at.
    pub(in crate::soft) fn waits(self) -> bool {
        self != Driver::Poller
    }
}

/// Something that the engine watches or calls.
pub(in crate::soft) trait Source: Send + Sync {
    /// Its descriptor is ready. The source may skip what another thread is working at already if
    /// `driver` does not wait.
    fn ready(self: Arc<Self>, readiness: Readiness, driver: Driver);

    /// Its carrier was looked at and is ready, or may be; skipping as above. Returns whether there
    /// was something.
    fn looked(self: Arc<Self>, readiness: Readiness, driver: Driver) -> bool {
        let _ = (readiness, driver);
        false
    }

    /// A timer that was set with this purpose has expired.
    fn expired(self: Arc<Self>, purpose: u32) {
        let _ = purpose;
    }

    /// Somebody asked for attention with [`Engine::kick`].
    fn kicked(self: Arc<Self>) {}

    /// What was put off with [`Engine::put_off`] is due.
    fn resumed(self: Arc<Self>) {}

    /// Some time has gone by since [`Engine::delay`], or it is to be now. Returns whether it wants to be
    /// asked again.
    fn delayed(self: Arc<Self>, now: bool) -> bool {
        let _ = now;
        false
    }

    /// The process ends. Nobody may be waited for but for a moment: whoever holds a lock may not run any
    /// more.
    fn ends(self: Arc<Self>) {}
}

/// Names a watched descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::soft) struct Token {
    pub(super) number: u64,
    /// It is watched at the seat, not by the engine itself.
    pub(super) at_seat: bool,
}
