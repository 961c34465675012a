// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! How the engine, and threads that stand in for it, drive a connection: something can be received or
//! sent, is due, or was left over.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use super::receiver::Rx;
use crate::soft::delayed::Due;
use crate::soft::engine::{Driver, Readiness, Source, engine};
use crate::soft::qp::Qp;
use crate::soft::requester::Status;

/// How often a timer that expires during a flush that takes long looks for its end.
pub(in crate::soft) const FLUSH_LOOK: Duration = Duration::from_millis(100);

impl Qp {
    /// Whether a flush that takes long is under way, with the receiving side locked.
    pub(in crate::soft) fn is_flushing(&self) -> bool {
        self.flushing.load(Ordering::Acquire)
    }

    /// The receiving side, for whoever has something to receive; `None` if another thread is
    /// working at it and `driver` does not wait, or if that takes long.
    fn receiver(&self, driver: Driver) -> Option<MutexGuard<'_, Rx>> {
        if driver.waits() && !self.is_flushing() {
            Some(self.rx.lock())
        } else {
            self.rx.try_lock()
        }
    }

    /// Returns whether something was sent or received.
    fn progress(&self, rx: &mut Rx, readiness: Readiness, driver: Driver) -> bool {
        let mut done = readiness.writable;
        if readiness.writable {
            let mut tx = self.tx.lock();
            if std::mem::take(&mut tx.blocked)
                && let (Ok(engine), Some(token)) = (engine(), tx.token)
                && let Some(carrier) = tx.carrier.clone()
            {
                // There may be nothing left to find out by that there is room.
                carrier.go_on();
                if self.pump(&mut tx) {
                    self.attend(rx, &mut tx);
                }
                if !tx.blocked && tx.token == Some(token) && !carrier.is_polled() {
                    engine.rewatch(carrier.fd(), token, false);
                }
            }
        }
        if readiness.readable && !rx.closed {
            done |= self.receive_all(rx, driver);
        }
        done
    }
}

impl Source for Qp {
    fn ready(self: Arc<Self>, mut readiness: Readiness, driver: Driver) {
        let Some(mut rx) = self.receiver(driver) else {
            return;
        };
        // Locked until it is settled who tells of the carrier: if sending finds no room, that changes.
        let tx = self.tx.lock();
        if let (Some(carrier), Some(token), Ok(engine)) = (&tx.carrier, tx.token, engine()) {
            if carrier.is_polled() {
                carrier.woken();
                engine.attend(&self, carrier, driver);
                readiness.writable = carrier.look().1;
            } else if driver == Driver::Poller && !tx.blocked {
                engine.ask_directly(&self, carrier, token);
            }
        }
        drop(tx);
        self.progress(&mut rx, readiness, driver);
    }

    fn looked(self: Arc<Self>, readiness: Readiness, driver: Driver) -> bool {
        match self.receiver(driver) {
            Some(mut rx) => self.progress(&mut rx, readiness, driver),
            // Another thread is at it.
            None => true,
        }
    }

    fn expired(self: Arc<Self>, purpose: u32) {
        if self.is_flushing()
            && let Ok(engine) = engine()
        {
            let this = Arc::clone(&self) as Arc<dyn Source>;
            engine.after(FLUSH_LOOK, Arc::downgrade(&this), purpose);
            return;
        }
        let mut rx = self.rx.lock();
        let mut tx = self.tx.lock();
        if tx.rnr_deadline.is_some_and(|at| at <= Instant::now()) && tx.requester.is_paused() {
            tx.rnr_deadline = None;
            self.enter_error(&mut rx, &mut tx, Status::RnrRetryExceeded, true);
            self.pump_and_kick(&mut tx);
        }
    }

    fn resumed(self: Arc<Self>) {
        // First, so that what comes up from now on is put off anew.
        self.put_off.store(false, Ordering::Release);
        self.pump_and_kick(&mut self.tx.lock());
    }

    fn delayed(self: Arc<Self>, now: bool) -> bool {
        match self.delayed.is_due(now) {
            Due::Soon => return true,
            Due::Now => self.pump_and_kick(&mut self.tx.lock()),
            Due::Gone => {}
        }
        false
    }

    fn ends(self: Arc<Self>) {
        if let Some(mut tx) = self.tx.lock_soon() {
            self.pump(&mut tx);
        }
    }

    fn kicked(self: Arc<Self>) {
        // First, so that what comes up from now on asks again.
        self.kicked.store(false, Ordering::Release);
        if self.is_flushing() {
            // Whoever flushes attends when it is done.
            return;
        }
        let mut rx = self.rx.lock();
        let mut tx = self.tx.lock();
        self.pump(&mut tx);
        self.attend(&mut rx, &mut tx);
    }
}
