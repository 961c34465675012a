// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What the peer asks for: whether it may, where its payload goes, and what is done when all of it
//! has come.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::receiver::{End, Part, Rx, Target};
use crate::soft::diag;
use crate::soft::engine::{Driver, engine};
use crate::soft::mem;
use crate::soft::mr::{Region, access};
use crate::soft::persist::LONG_FLUSH;
use crate::soft::qp::{Qp, state};
use crate::soft::requester::{Status, clip};
use crate::soft::responder::{ReadJob, Verdict};
use crate::soft::wire::{self, Header, Kind, NakCode};

impl Qp {
    pub(super) fn begin_request(&self, rx: &mut Rx, header: &Header) -> Result<(), End> {
        if self.state() != state::READY {
            rx.header = None;
            return Ok(());
        }
        let offset = match rx.inbound.admit(header)? {
            Verdict::Ignore => {
                rx.header = None;
                return Ok(());
            }
            Verdict::Begin => {
                if header.kind.consumes_receive() && !self.begin_receive(rx, header) {
                    return Ok(());
                }
                0
            }
            Verdict::Continue(offset) => u64::from(offset),
        };
        if rx.left == 0 {
            return Ok(());
        }
        rx.target = Target::Place;
        match header.kind {
            Kind::Write | Kind::WriteImm => {
                // All of a message's range is checked before its first byte is written.
                let (from, len) = if offset == 0 {
                    (header.addr, u64::from(header.total))
                } else {
                    (header.addr.wrapping_add(offset), u64::from(header.len))
                };
                match self.remote_region(header.rkey, from, len, access::REMOTE_WRITE) {
                    Some(region) => rx.parts.push(Part {
                        region,
                        addr: from,
                        len: u64::from(header.len),
                    }),
                    None => self.refuse(rx, header.seq, NakCode::RemoteAccess, None),
                }
            }
            Kind::Send | Kind::SendImm => {
                let len = u64::from(header.len);
                let sges = std::mem::take(&mut rx.receive.sges);
                let placed = self.place(rx, clip(sges.iter().copied(), offset, len));
                rx.receive.sges = sges;
                if !placed {
                    let status = Some(Status::LocalProtection);
                    self.refuse(rx, header.seq, NakCode::RemoteOperation, status);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes a receive for the message that begins. False if the message is not to go on.
    fn begin_receive(&self, rx: &mut Rx, header: &Header) -> bool {
        let mut tx = self.tx.lock();
        // With the sending side locked, so that "ready" cannot overtake "not ready".
        if !self.take_receive(&mut rx.receive, header.seq) {
            tx.replies.not_ready(header.seq);
            rx.inbound.not_ready();
            rx.header = None;
            return false;
        }
        drop(tx);
        rx.receiving = true;
        if header.kind != Kind::WriteImm && rx.receive.room() < u64::from(header.total) {
            let status = Some(Status::LocalLength);
            self.refuse(rx, header.seq, NakCode::InvalidRequest, status);
            return false;
        }
        true
    }

    fn remote_region(&self, rkey: u32, addr: u64, len: u64, rights: u32) -> Option<Arc<Region>> {
        Region::find(rkey, self.domain, addr, len, rights)
            .inspect_err(|denied| diag::denied(self.num, rkey, addr, len, *denied))
            .ok()
    }

    /// Refuses a request; that puts both queue pairs into the error state.
    pub(super) fn refuse(&self, rx: &mut Rx, seq: u32, code: NakCode, receive: Option<Status>) {
        let mut tx = self.tx.lock();
        if let Some(status) = receive
            && std::mem::take(&mut rx.receiving)
        {
            let _ = self
                .recv_cq
                .push(self.recv_wc(rx.receive.wr_id, status), true);
        }
        tx.replies.refuse(seq, code);
        self.enter_error(rx, &mut tx, Status::Flushed, false);
        rx.drop_frame();
    }

    /// Does what was asked for, now that all of it has come.
    pub(super) fn execute(&self, rx: &mut Rx, header: &Header) -> Result<(), End> {
        self.stats.executed(header.kind, header.total);
        let len = header.wide();
        match header.kind {
            Kind::Send | Kind::SendImm | Kind::WriteImm => {
                rx.receiving = false;
                // Before the program sees it, so that the acknowledgment goes before an answer.
                let next = rx.inbound.executed();
                self.tx.lock().replies.executed(next);
                let mut wc = self.recv_wc(rx.receive.wr_id, Status::Success);
                wc.byte_len = header.total;
                if header.kind == Kind::WriteImm {
                    wc.opcode = rdma_sys::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;
                }
                if header.kind.has_immediate() {
                    wc.wc_flags = rdma_sys::ibv_wc_flags::IBV_WC_WITH_IMM.0;
                    wc.imm_data_invalidated_rkey_union.imm_data = u32::from_ne_bytes(header.imm);
                }
                // The payload is visible before the completion is.
                fence(Ordering::SeqCst);
                let solicited = header.flags & wire::FLAG_SOLICITED != 0;
                self.recv_cq.push(wc, solicited)?;
                rx.delivered = true;
                return Ok(());
            }
            Kind::Read => return self.execute_read(rx, header),
            Kind::AtomicWrite => {
                let region = header
                    .addr
                    .is_multiple_of(8)
                    .then(|| self.remote_region(header.rkey, header.addr, 8, access::REMOTE_WRITE));
                let code = match region {
                    None => Some(NakCode::InvalidRequest),
                    Some(region) => match region.and_then(|r| r.enter()) {
                        Some(_guard) if mem::store_atomic(header.addr, len).is_ok() => None,
                        _ => Some(NakCode::RemoteAccess),
                    },
                };
                if let Some(code) = code {
                    self.refuse(rx, header.seq, code, None);
                    return Ok(());
                }
            }
            Kind::Flush => {
                if let Err(code) = self.execute_flush(header) {
                    self.refuse(rx, header.seq, code, None);
                    return Ok(());
                }
            }
            _ => fence(Ordering::SeqCst),
        }
        let next = rx.inbound.executed();
        self.tx.lock().replies.executed(next);
        Ok(())
    }

    fn execute_read(&self, rx: &mut Rx, header: &Header) -> Result<(), End> {
        let (addr, len) = (header.addr, header.total);
        let region = if len == 0 {
            None
        } else {
            match self.remote_region(header.rkey, addr, u64::from(len), access::REMOTE_READ) {
                Some(region) => Some(region),
                None => {
                    self.refuse(rx, header.seq, NakCode::RemoteAccess, None);
                    return Ok(());
                }
            }
        };
        let mut tx = self.tx.lock();
        if !tx.replies.accepts_reads() {
            drop(tx);
            self.refuse(rx, header.seq, NakCode::InvalidRequest, None);
            return Ok(());
        }
        if let Some(region) = region {
            tx.replies.read(ReadJob {
                seq: header.seq,
                region,
                addr,
                left: len,
            })?;
        }
        let next = rx.inbound.executed();
        tx.replies.executed(next);
        Ok(())
    }

    fn execute_flush(&self, header: &Header) -> Result<(), NakCode> {
        fence(Ordering::SeqCst);
        let mut rights = 0;
        if header.code & wire::FLUSH_GLOBAL != 0 {
            rights |= access::FLUSH_GLOBAL;
        }
        if header.code & wire::FLUSH_PERSISTENT != 0 {
            rights |= access::FLUSH_PERSISTENT;
        }
        let whole = header.code & wire::FLUSH_WHOLE_REGION != 0;
        let (addr, len) = (header.addr, header.wide());
        if len == 0 && !whole {
            return Ok(());
        }
        let checked = if whole { 0 } else { len };
        let region = self
            .remote_region(header.rkey, addr, checked, rights)
            .ok_or(NakCode::RemoteAccess)?;
        let _guard = region.enter().ok_or(NakCode::RemoteAccess)?;
        if header.code & wire::FLUSH_PERSISTENT != 0 {
            // In place: what comes after this flush must wait for it.
            let (addr, len) = if whole { region.range() } else { (addr, len) };
            let persist = || region.extents().persist(addr, len);
            let result = if len >= LONG_FLUSH {
                self.while_others_go_on(persist)
            } else {
                persist()
            };
            result.map_err(|_| NakCode::RemoteOperation)?;
        }
        Ok(())
    }

    /// Runs what takes long with the receiving side locked, while another thread serves the other
    /// connections.
    fn while_others_go_on<R>(&self, run: impl FnOnce() -> R) -> R {
        let Ok(engine) = engine() else {
            return run();
        };
        {
            let tx = self.tx.lock();
            self.flushing.store(true, Ordering::Release);
            if let (Some(carrier), Some(token)) = (&tx.carrier, tx.token) {
                // In this order: whoever puts the carrier to rest would undo it.
                engine.neglect(carrier);
                engine.mute(carrier.fd(), token);
            }
        }
        // Else nobody would look at the seat if this thread leads.
        engine.end_lease();
        let stand_in = engine.stand_in();
        let result = run();
        drop(stand_in);
        let tx = self.tx.lock();
        self.flushing.store(false, Ordering::Release);
        if let (Some(carrier), Some(token)) = (&tx.carrier, tx.token) {
            engine.rewatch(carrier.fd(), token, tx.blocked && !carrier.is_polled());
            if let (true, Some(this)) = (carrier.is_polled(), self.this.upgrade()) {
                if tx.blocked {
                    carrier.pause();
                }
                engine.attend(&this, carrier, Driver::Poller);
            }
        }
        result
    }
}
