// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Carriers that are in use, and therefore looked at.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Driver, Engine, Readiness, Source, Token};
use crate::soft::carrier::Carrier;

/// How often carriers are looked at for each time that sockets are: one that is a socket itself costs
/// as much as that.
pub(super) const LOOKS_PER_SOCKETS: u32 = 16;
/// The same for threads that poll, where all carriers are in shared memory.
const CHEAP_LOOKS_PER_SOCKETS: u32 = 64;
/// How often a carrier is looked at in vain before it is put to rest while others are in use.
const LOOKS_IN_VAIN: u32 = 1 << 16;
/// Sockets that are asked directly at a time.
const DIRECT_MAX: usize = 1;

/// A carrier that is looked at.
pub(super) struct Watched {
    source: Arc<dyn Source>,
    carrier: Arc<dyn Carrier>,
    /// For a socket, which is asked directly: what names it while it is not.
    socket: Option<Token>,
    /// How often it was looked at since there was something.
    idle: AtomicU32,
}

impl Engine {
    /// Has a carrier looked at from now on: by the engine, if the caller may not come back to it. A leader
    /// does, or else the engine's clock finds out.
    pub(in crate::soft) fn attend(
        &self,
        source: &Arc<impl Source + 'static>,
        carrier: &Arc<dyn Carrier>,
        driver: Driver,
    ) {
        carrier.stay_awake();
        if self.add_awake(source, carrier, None) && driver == Driver::Poller {
            // Whoever polls may stop; then the engine has to look.
            self.wake();
        }
    }

    /// Has threads that poll ask a socket directly, unless they have enough to ask already: that is
    /// cheaper than to have the kernel watch it.
    pub(in crate::soft) fn ask_directly(
        &self,
        source: &Arc<impl Source + 'static>,
        carrier: &Arc<dyn Carrier>,
        token: Token,
    ) {
        if self.add_awake(source, carrier, Some(token)) {
            self.wake();
        }
    }

    /// False if it is looked at already, or cannot be.
    fn add_awake(
        &self,
        source: &Arc<impl Source + 'static>,
        carrier: &Arc<dyn Carrier>,
        socket: Option<Token>,
    ) -> bool {
        let mut awake = self.awake.lock();
        if awake.iter().any(|w| Arc::ptr_eq(&w.carrier, carrier)) {
            return false;
        }
        if let Some(token) = socket {
            if awake.iter().filter(|w| w.socket.is_some()).count() >= DIRECT_MAX {
                return false;
            }
            self.mute(carrier.fd(), token);
        }
        Arc::make_mut(&mut awake).push(Arc::new(Watched {
            source: Arc::clone(source) as Arc<dyn Source>,
            carrier: Arc::clone(carrier),
            socket,
            idle: AtomicU32::new(0),
        }));
        self.looks.store(looks(&awake), Ordering::Relaxed);
        true
    }

    /// Has a carrier tell by itself, if it has nothing to do.
    fn put_to_rest(&self, watched: &Watched) -> bool {
        match watched.socket {
            // It tells at once if there is something.
            Some(token) => {
                self.rewatch(watched.carrier.fd(), token, false);
                true
            }
            None => watched.carrier.rest(),
        }
    }

    /// Does not have a carrier looked at any more.
    pub(in crate::soft) fn neglect(&self, carrier: &Arc<dyn Carrier>) {
        self.retain_awake(|w| !Arc::ptr_eq(&w.carrier, carrier));
    }

    fn retain_awake(&self, mut keep: impl FnMut(&Watched) -> bool) {
        let mut awake = self.awake.lock();
        let kept: Vec<_> = awake.iter().filter(|w| keep(w)).cloned().collect();
        let mut before = None;
        if kept.len() != awake.len() {
            self.looks.store(looks(&kept), Ordering::Relaxed);
            before = Some(std::mem::replace(&mut *awake, Arc::new(kept)));
        }
        drop(awake);
        // Outside the lock: dropping the last reference may close sockets.
        drop(before);
    }

    /// Looks at the carriers that are in use, and handles what is there. Returns whether there
    /// was something.
    pub(super) fn look(&self, driver: Driver) -> bool {
        if self.looks.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let all = Arc::clone(&self.awake.lock());
        let mut found = false;
        let mut in_vain = false;
        for watched in all.iter() {
            let (readable, writable) = match watched.socket {
                Some(_) => (true, false),
                None => watched.carrier.look(),
            };
            let readiness = Readiness { readable, writable };
            if (readable || writable) && Arc::clone(&watched.source).looked(readiness, driver) {
                found = true;
                watched.idle.store(0, Ordering::Relaxed);
            } else {
                in_vain |= watched.idle.fetch_add(1, Ordering::Relaxed) >= LOOKS_IN_VAIN;
            }
        }
        if in_vain {
            self.retain_awake(|w| {
                w.idle.load(Ordering::Relaxed) < LOOKS_IN_VAIN || !self.put_to_rest(w)
            });
        }
        found
    }

    /// Puts the carriers to rest that have nothing to do. Returns whether that was all.
    pub(super) fn rest(&self) -> bool {
        if self.looks.load(Ordering::Relaxed) == 0 {
            return true;
        }
        self.retain_awake(|w| !self.put_to_rest(w));
        self.looks.load(Ordering::Relaxed) == 0
    }

    pub(in crate::soft) fn has_awake_carriers(&self) -> bool {
        self.looks.load(Ordering::Relaxed) != 0
    }
}

/// How often these carriers are looked at for each time that sockets are.
fn looks(awake: &[Arc<Watched>]) -> u32 {
    match awake {
        [] => 0,
        some if some.iter().any(|w| w.socket.is_some()) => LOOKS_PER_SOCKETS,
        _ => CHEAP_LOOKS_PER_SOCKETS,
    }
}
