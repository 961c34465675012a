// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The traffic of a queue pair: frames out of its queues onto the carrier, and from the carrier
//! into the program's memory.
//!
//! Sending ([`sender`]) happens in whatever thread has something to send, straight from registered
//! memory; receiving ([`receiver`]) happens in the engine's thread or in one that polls or leads,
//! straight into registered memory, except for small payloads that came along with a header. What has
//! arrived is the peer's [`requests`] or the [`answers`] to ours. When all this happens is up to the
//! engine and the threads that stand in for it ([`driven`]). Here is what a connection goes through as
//! a whole, from agreement to error and end.
//!
//! Locks are taken in the order: receiving side, sending side, receive queue, completion queue.

mod answers;
mod driven;
mod iolist;
mod receiver;
mod requests;
mod sender;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

pub(super) use driven::FLUSH_LOOK;
pub(super) use receiver::Rx;
pub(super) use sender::Tx;

use super::carrier::Carrier;
use super::diag;
use super::engine::{Driver, Token, engine};
use super::qp::{Qp, state};
use super::recvq::Receive;
use super::requester::Status;
use super::wire::{Header, Kind, NakCode};
use sender::Sent;

/// Largest scatter/gather list of a work request.
pub(super) const SGE_MAX: usize = 32;
/// Bytes that are sent in one go before others get their turn, in the program and in the engine.
const PUMP_MAX: usize = 8 << 20;
/// "For ever", as RNR retry count.
const RNR_FOREVER: u8 = 7;

/// What the two ends have agreed on when they connected.
pub struct Agreement {
    pub peer_num: u32,
    /// Reads that this end may have under way.
    pub initiator_depth: u8,
    /// Reads that it accepts.
    pub responder_resources: u8,
    pub rnr_retry: u8,
}

impl Qp {
    /// Connects the queue pair: requests may be posted from now on.
    pub fn connect(
        &self,
        carrier: Arc<dyn Carrier>,
        agreement: &Agreement,
        first: Option<Header>,
    ) -> Result<(), Errno> {
        let this = self.this.upgrade().ok_or(Errno::NODEV)?;
        let mut rx = self.rx.lock();
        let mut tx = self.tx.lock();
        if self.state() != state::INIT || tx.carrier.is_some() {
            return Err(Errno::INVAL);
        }
        self.peer_num.store(agreement.peer_num, Ordering::Relaxed);
        tx.requester
            .set_max_reads(u32::from(agreement.initiator_depth));
        tx.replies
            .set_max_reads(usize::from(agreement.responder_resources));
        tx.rnr_retry = agreement.rnr_retry;
        rx.can_fetch = carrier.lending().is_some_and(|lending| lending.can_fetch());
        tx.control.extend(first);
        tx.token = Some(engine()?.watch_at_seat(carrier.fd(), this)?);
        tx.carrier = Some(carrier);
        self.state.store(state::READY, Ordering::Release);
        self.pump_and_kick(&mut tx);
        Ok(())
    }

    /// Asks the peer for the end of the connection; outstanding work completes as flushed.
    pub fn disconnect(&self) {
        let mut rx = self.rx.lock();
        let mut tx = self.tx.lock();
        self.enter_error(&mut rx, &mut tx, Status::Flushed, false);
        tx.control.push_back(Header::bare(Kind::Disconnect, 0));
        self.pump_and_kick(&mut tx);
        // The answer is an event that this thread is going to wait for.
        if let Ok(engine) = engine() {
            engine.take_back();
        }
    }

    /// Ends the connection at once.
    pub fn close(&self) {
        let mut rx = self.rx.lock();
        let mut tx = self.tx.lock();
        self.drop_carrier(&mut rx, &mut tx);
    }

    /// Sends what can be sent. Returns whether [`Qp::attend`] has something to do.
    pub(super) fn pump(&self, tx: &mut Tx) -> bool {
        let error = self.state() != state::READY;
        if let Some(carrier) = tx.carrier.clone() {
            let mut budget = PUMP_MAX;
            while !tx.blocked && !tx.broken && !tx.deaf {
                tx.fill(error, self.domain);
                if tx.is_empty() {
                    break;
                }
                let go_on = match tx.transmit(&*carrier, self.domain) {
                    Sent::Some(n) => {
                        budget = budget.saturating_sub(n);
                        budget > 0
                    }
                    Sent::Fault => {
                        tx.front_fault();
                        true
                    }
                    Sent::Broken => {
                        // Whatever the reason: the receiving side now finds an end.
                        tx.deaf = true;
                        carrier.shutdown();
                        true
                    }
                    Sent::Blocked => false,
                };
                if !go_on {
                    tx.blocked = true;
                    self.await_room(&carrier, tx.token);
                }
            }
        }
        self.needs_attention(tx)
    }

    /// Has the engine tell when the carrier takes more.
    fn await_room(&self, carrier: &Arc<dyn Carrier>, token: Option<Token>) {
        // During a flush nobody could take the event; the end of the flush sees to it.
        if self.is_flushing() {
            return;
        }
        let (Ok(engine), Some(token)) = (engine(), token) else {
            return;
        };
        if !carrier.is_polled() {
            // In this order: whoever puts the carrier to rest does not know that there is a wait.
            engine.neglect(carrier);
            engine.rewatch(carrier.fd(), token, true);
        } else if let Some(this) = self.this.upgrade() {
            carrier.pause();
            engine.attend(&this, carrier, Driver::Poller);
        }
    }

    fn needs_attention(&self, tx: &Tx) -> bool {
        if tx.flush_with.is_some() {
            return tx.broken || tx.deaf || !tx.is_request_half_sent();
        }
        (tx.broken && tx.carrier.is_some())
            || tx.reply_fault.is_some()
            || (self.state() == state::READY
                && (tx.requester.head_failure().is_some()
                    || (tx.peer_left && !tx.requester.is_empty())))
    }

    /// Does what needs both sides locked.
    fn attend(&self, rx: &mut Rx, tx: &mut Tx) {
        // Each round removes its cause.
        while self.needs_attention(tx) {
            if tx.broken {
                self.lose(rx, tx);
                return;
            }
            if let Some(seq) = tx.reply_fault.take() {
                tx.replies.refuse(seq, NakCode::RemoteAccess);
                self.enter_error(rx, tx, Status::Flushed, false);
            } else if tx.flush_with.is_some() {
                self.flush_requests(tx);
            } else if let Some(status) = tx.requester.head_failure() {
                self.enter_error(rx, tx, status, true);
            } else if tx.peer_left {
                self.enter_error(rx, tx, Status::RetryExceeded, false);
            }
            self.pump(tx);
        }
    }

    /// Enters the error state: the oldest request completes with `first`, everything else as
    /// flushed. `tell` lets the peer know, whose requests will not be answered.
    pub(super) fn enter_error(&self, rx: &mut Rx, tx: &mut Tx, first: Status, tell: bool) {
        if self.state() == state::ERROR || self.state() == state::RESET {
            return;
        }
        {
            // Under the receive queue's lock, so that no receive is posted past the flush.
            let mut own = self.own.lock();
            self.state.store(state::ERROR, Ordering::Release);
            own.waiting = None;
            if std::mem::take(&mut rx.receiving) {
                let wc = self.recv_wc(rx.receive.wr_id, Status::Flushed);
                let _ = self.recv_cq.push(wc, true);
            }
            let mut receive = Receive::default();
            while own.queue.take(&mut receive) {
                let wc = self.recv_wc(receive.wr_id, Status::Flushed);
                let _ = self.recv_cq.push(wc, true);
            }
        }
        rx.drop_frame();
        tx.replies.silence();
        tx.drop_requests();
        tx.take_back_requests();
        tx.rnr_deadline = None;
        tx.flush_with = Some(first);
        diag::debug(format_args!("QP {}: in error ({first:?})", self.num));
        self.stats.in_error(first);
        if tell {
            tx.control.push_back(Header::bare(Kind::Terminate, 0));
        }
        if !tx.is_request_half_sent() {
            self.flush_requests(tx);
        }
    }

    fn flush_requests(&self, tx: &mut Tx) {
        if let Some(first) = tx.flush_with.take() {
            // An overrun changes nothing any more; the queue remembers it.
            tx.requester.flush(first, &mut |c| {
                let _ = self.push_sent(c);
            });
            self.stats.done(tx.requester.done());
        }
    }

    /// The connection is gone without having been agreed on.
    fn lose(&self, rx: &mut Rx, tx: &mut Tx) {
        let first = if self.state() == state::READY && !tx.requester.is_empty() {
            tx.requester.head_failure().unwrap_or(Status::RetryExceeded)
        } else {
            Status::Flushed
        };
        tx.drop_frames();
        self.enter_error(rx, tx, first, false);
        self.flush_requests(tx);
        if self.drop_carrier(rx, tx)
            && let Some(observer) = self.observer()
        {
            observer.lost();
        }
    }

    fn drop_carrier(&self, rx: &mut Rx, tx: &mut Tx) -> bool {
        rx.closed = true;
        rx.drop_payload();
        tx.drop_frames();
        tx.control.clear();
        let Some(carrier) = tx.carrier.take() else {
            return false;
        };
        self.stats.closed();
        if let (Ok(engine), Some(token)) = (engine(), tx.token.take()) {
            engine.unwatch(carrier.fd(), token);
            engine.neglect(&carrier);
        }
        carrier.shutdown();
        if tx.flush_with.is_some() {
            self.flush_requests(tx);
        }
        true
    }

    /// For a queue pair that is destroyed: nothing of its memory is touched any more.
    pub(super) fn abandon(&self, rx: &mut Rx, tx: &mut Tx, tell: bool) {
        rx.receiving = false;
        rx.drop_frame();
        tx.replies.silence();
        tx.abandon_requests();
        tx.requester.flush(Status::Flushed, &mut |_| ());
        tx.flush_with = None;
        let mut own = self.own.lock();
        let mut receive = Receive::default();
        while own.queue.take(&mut receive) {}
        drop(own);
        if tell && tx.carrier.is_some() {
            tx.control.push_back(Header::bare(Kind::Terminate, 0));
        }
        self.pump(tx);
        self.attend(rx, tx);
    }
}
