// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What the peer answers to our requests, and what it says of the connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::receiver::{End, Rx, Target};
use super::sender::Tx;
use super::{RNR_FOREVER, SGE_MAX};
use crate::soft::engine::{Source, engine};
use crate::soft::qp::{Qp, state};
use crate::soft::recvq::Sge;
use crate::soft::requester::{Source as Piece, Status, Violation};
use crate::soft::wire::{Header, Kind, NakCode};

/// How long a target may lack a receive, for each retry that the requester grants; the timer
/// value that the connection manager sets on hardware means this.
const RNR_TIMER: Duration = Duration::from_micros(655_360);

impl Qp {
    /// Handles a frame that is no request; may make local memory the target of its payload.
    pub(super) fn handle_reply(&self, rx: &mut Rx, header: &Header) -> Result<(), End> {
        let ready = self.state() == state::READY;
        let mut overrun = Ok(());
        let mut complete = |c| overrun = overrun.and(self.push_sent(c));
        let mut tx = self.tx.lock();
        match header.kind {
            Kind::Ack if ready => {
                tx.requester.acknowledge(header.seq, &mut complete)?;
                self.stats.done(tx.requester.done());
                if let Some(index) = tx.long_flush
                    && tx.requester.is_done(index)
                    && let Some(carrier) = &tx.carrier
                {
                    carrier.be_patient(false);
                    tx.long_flush = None;
                }
            }
            Kind::Nak if ready => {
                let code = NakCode::from_byte(header.code).unwrap_or(NakCode::RemoteOperation);
                tx.requester
                    .refused(header.seq, code.into(), &mut complete)?;
                if let Some(status) = tx.requester.head_failure() {
                    // Unless the fault is here, the peer is in error as well and need not be told.
                    let tell = code == NakCode::RequesterMemory;
                    self.enter_error(rx, &mut tx, status, tell);
                }
            }
            Kind::ReadData if ready => {
                let (index, offset) = tx.requester.answer(header.seq, header.len)?;
                let mut sges = [Sge::default(); SGE_MAX];
                let mut places = sges.iter_mut();
                let mut used = 0;
                let len = u64::from(header.len);
                tx.requester.pieces(index, offset, len, |piece| {
                    if let (Piece::Registered(sge), Some(place)) = (piece, places.next()) {
                        *place = sge;
                        used += 1;
                    }
                    true
                });
                drop(tx);
                if self.place(rx, sges.into_iter().take(used)) {
                    rx.target = Target::Place;
                } else {
                    rx.header = None;
                    rx.parts.clear();
                    self.local_fault(rx, header.seq)?;
                }
                return Ok(());
            }
            Kind::RnrNak if ready => {
                tx.requester.not_ready(header.seq)?;
                tx.drop_requests();
                self.start_rnr_timer(&mut tx);
            }
            Kind::RnrReady if ready => {
                tx.requester.ready();
                tx.rnr_deadline = None;
            }
            Kind::Terminate => {
                self.enter_error(rx, &mut tx, Status::RetryExceeded, false);
            }
            Kind::ReadyToUse => {
                drop(tx);
                if let Some(observer) = self.observer() {
                    observer.established();
                }
            }
            Kind::Disconnect => {
                if std::mem::replace(&mut tx.peer_left, true) {
                    return Err(Violation("a second disconnect").into());
                }
                tx.control.push_back(Header::bare(Kind::DisconnectReply, 0));
                self.pump(&mut tx);
                self.attend(rx, &mut tx);
                drop(tx);
                if let Some(observer) = self.observer() {
                    observer.disconnect_requested();
                }
            }
            Kind::DisconnectReply => {
                drop(tx);
                if let Some(observer) = self.observer() {
                    observer.disconnected();
                }
                return Err(End::Closed);
            }
            _ => {}
        }
        Ok(overrun?)
    }

    fn start_rnr_timer(&self, tx: &mut Tx) {
        if tx.rnr_retry == RNR_FOREVER || tx.rnr_deadline.is_some() {
            return;
        }
        let delay = RNR_TIMER * u32::from(tx.rnr_retry);
        tx.rnr_deadline = Some(Instant::now() + delay);
        if let (Ok(engine), Some(this)) = (engine(), self.this.upgrade()) {
            let this = this as Arc<dyn Source>;
            engine.after(delay, Arc::downgrade(&this), 0);
        }
    }
}
