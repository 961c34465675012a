// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Carries a scenario out and holds everything that is seen against the rules.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use rdma_sys::ibv_wc_opcode::*;
use rdma_sys::ibv_wc_status::*;
use rdma_sys::{ibv_wc, ibv_wc_flags};
use rpma::capi::*;

use super::rules::{Direction, Doom, Mismatch, Op, Permitted, Receive, Receives, mismatch};
use super::scenario::*;
use super::stage::{GUARD, LAND, SHARED_SLOTS, SLOTS, SOURCE, Stage, TARGET, check};

/// Marks a receive in a `wr_id`; a number of the connection and one of the end are beside it.
const RECEIVE: u64 = 1 << 32;
/// Marks what is posted to find the end of a queue that is in error.
const SENTINEL: u64 = 1 << 33;
const CONN_SHIFT: u32 = 40;
const SIDE_SHIFT: u32 = 36;

struct Conn {
    handle: *mut rpma_conn,
    cq: *mut rpma_cq,
    rcq: *mut rpma_cq,
    qp_num: u32,
}

/// Something that ends a connection, sooner or later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Op(Side, usize),
    /// Message number `.1` of the side and its receive do not fit.
    Mismatch(Side, usize),
    Disconnect,
}

struct Link {
    /// By side: the one that the operations of the direction with the same index come from.
    ends: [Conn; 2],
    directions: [Direction; 2],
    receives: [Receives; 2],
    causes: Vec<Cause>,
    disconnected: [bool; 2],
    closed: [bool; 2],
    /// A receive has failed here.
    receiving_failed: [bool; 2],
    sentinels: [(bool, bool); 2],
}

pub(super) struct World<'a> {
    stage: &'a mut Stage,
    scenario: &'a Scenario,
    patience: Duration,
    links: Vec<Link>,
    srq: *mut rpma_srq,
    srq_rcq: *mut rpma_cq,
    shared: Receives,
}

fn raw_wr_id(wr_id: u64) -> *const c_void {
    wr_id as usize as *const c_void
}

/// Runs the scenario. An error says what should not have been.
pub(super) fn run(
    stage: &mut Stage,
    scenario: &Scenario,
    patience: Duration,
) -> Result<(), String> {
    let mut world = World {
        stage,
        scenario,
        patience,
        links: Vec::new(),
        srq: null_mut(),
        srq_rcq: null_mut(),
        shared: Receives::new(SHARED_SLOTS),
    };
    world.open()?;
    for (number, step) in scenario.steps.iter().enumerate() {
        world
            .step(step)
            .map_err(|why| format!("step {number} ({step:?}): {why}; {}", world.state()))?;
    }
    if !scenario.abrupt {
        world
            .settle(true)
            .map_err(|why| format!("settling: {why}; {}", world.state()))?;
        world
            .use_up_shared_receives()
            .map_err(|why| format!("using up the shared receives: {why}"))?;
    }
    world.close().map_err(|why| format!("closing: {why}"))?;
    world
        .check_end()
        .map_err(|why| format!("in the end: {why}"))?;
    world.delete()
}

// SAFETY, of all blocks below: the handles are the library's own and not deleted before `delete`;
// other pointers are to variables on the stack or to the stage's memory, which outlives the run.
impl World<'_> {
    fn has_srq(&self) -> bool {
        self.scenario.srq != Srq::No
    }

    /// A shared receive queue with a completion queue of its own goes with no shared channel.
    fn has_shared_channel(&self, side: Side) -> bool {
        self.scenario.shared_channel
            && (side == Side::Active || self.scenario.srq != Srq::WithQueue)
    }

    fn open(&mut self) -> Result<(), String> {
        let scenario = self.scenario;
        if self.has_srq() {
            let mut cfg = null_mut();
            let rcq = if scenario.srq == Srq::WithQueue {
                64
            } else {
                0
            };
            // SAFETY: see above.
            unsafe {
                check(rpma_srq_cfg_new(&mut cfg), "rpma_srq_cfg_new")?;
                rpma_srq_cfg_set_rq_size(cfg, SHARED_SLOTS as u32);
                rpma_srq_cfg_set_rcq_size(cfg, rcq);
                let peer = self.stage.side(Side::Passive).peer;
                check(rpma_srq_new(peer, cfg, &mut self.srq), "rpma_srq_new")?;
                rpma_srq_cfg_delete(&mut cfg);
                if rcq > 0 {
                    let code = rpma_srq_get_rcq(self.srq, &mut self.srq_rcq);
                    check(code, "rpma_srq_get_rcq")?;
                }
            }
        }
        for number in 0..scenario.conns {
            for side in &mut self.stage.sides {
                let end = &mut side.ends[number];
                end.target.reset(0, TARGET + 2 * GUARD);
                end.land.reset(0, LAND);
            }
            let link = self.connect()?;
            self.links.push(link);
        }
        Ok(())
    }

    fn config(&self, side: Side) -> Result<*mut rpma_conn_cfg, String> {
        let Scenario { rcq, sq, rq, .. } = *self.scenario;
        let mut cfg = null_mut();
        // Room for all that can complete, also when everything is flushed at once.
        let entries = (sq + rq + 2 * SHARED_SLOTS) as u32;
        // SAFETY: see above.
        unsafe {
            check(rpma_conn_cfg_new(&mut cfg), "rpma_conn_cfg_new")?;
            rpma_conn_cfg_set_cq_size(cfg, entries);
            rpma_conn_cfg_set_rcq_size(cfg, if rcq { entries } else { 0 });
            rpma_conn_cfg_set_sq_size(cfg, sq as u32);
            rpma_conn_cfg_set_rq_size(cfg, rq as u32);
            rpma_conn_cfg_set_timeout(cfg, 10_000);
            rpma_conn_cfg_set_compl_channel(cfg, self.has_shared_channel(side));
            if side == Side::Passive && self.has_srq() {
                check(
                    rpma_conn_cfg_set_srq(cfg, self.srq),
                    "rpma_conn_cfg_set_srq",
                )?;
            }
        }
        Ok(cfg)
    }

    fn connect(&mut self) -> Result<Link, String> {
        let (mut active, mut passive) = (null_mut(), null_mut());
        let mut configs = [self.config(Side::Active)?, self.config(Side::Passive)?];
        let stage = &self.stage;
        // SAFETY: see above.
        unsafe {
            let mut request = null_mut();
            let code = rpma_conn_req_new(
                stage.side(Side::Active).peer,
                stage.address.as_ptr(),
                stage.port.as_ptr(),
                configs[0],
                &mut request,
            );
            check(code, "rpma_conn_req_new")?;
            let code = rpma_conn_req_connect(&mut request, null(), &mut active);
            check(code, "rpma_conn_req_connect")?;
            let mut fd = -1;
            check(rpma_ep_get_fd(stage.endpoint, &mut fd), "rpma_ep_get_fd")?;
            self.readable(&[fd], "a request")?;
            let code = rpma_ep_next_conn_req(stage.endpoint, configs[1], &mut request);
            check(code, "rpma_ep_next_conn_req")?;
            let code = rpma_conn_req_connect(&mut request, null(), &mut passive);
            check(code, "rpma_conn_req_connect (passive)")?;
            for cfg in &mut configs {
                rpma_conn_cfg_delete(cfg);
            }
        }
        let mut ends = Vec::new();
        for handle in [active, passive] {
            self.expect_event(handle, rpma_conn_event::RPMA_CONN_ESTABLISHED)?;
            let mut end = Conn {
                handle,
                cq: null_mut(),
                rcq: null_mut(),
                qp_num: 0,
            };
            // SAFETY: see above.
            unsafe {
                check(rpma_conn_get_cq(handle, &mut end.cq), "rpma_conn_get_cq")?;
                check(rpma_conn_get_rcq(handle, &mut end.rcq), "rpma_conn_get_rcq")?;
                let code = rpma_conn_get_qp_num(handle, &mut end.qp_num);
                check(code, "rpma_conn_get_qp_num")?;
                let code = rpma_conn_apply_remote_peer_cfg(handle, self.stage.pcfg);
                check(code, "rpma_conn_apply_remote_peer_cfg")?;
            }
            ends.push(end);
        }
        let ends: [Conn; 2] = ends.try_into().map_err(|_| "two ends")?;
        Ok(Link {
            ends,
            directions: [Direction::new(), Direction::new()],
            receives: [Receives::new(SLOTS), Receives::new(SLOTS)],
            causes: Vec::new(),
            disconnected: [false; 2],
            closed: [false; 2],
            receiving_failed: [false; 2],
            sentinels: [(false, false); 2],
        })
    }

    /// Waits until one of the descriptors is readable.
    fn readable(&self, fds: &[i32], what: &str) -> Result<(), String> {
        let mut polls: Vec<_> = fds
            .iter()
            .map(|fd| libc::pollfd {
                fd: *fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        let timeout = self.patience.as_millis() as i32;
        // SAFETY: as many entries as are said.
        match unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as u64, timeout) } {
            0 => Err(format!("{what} does not come")),
            n if n < 0 => Err("poll".into()),
            _ => Ok(()),
        }
    }

    fn expect_event(&self, conn: *mut rpma_conn, wanted: rpma_conn_event) -> Result<(), String> {
        let mut fd = -1;
        let mut event = rpma_conn_event::RPMA_CONN_UNDEFINED;
        // SAFETY: see above.
        unsafe {
            check(
                rpma_conn_get_event_fd(conn, &mut fd),
                "rpma_conn_get_event_fd",
            )?;
            self.readable(&[fd], "an event")?;
            check(
                rpma_conn_next_event(conn, &mut event),
                "rpma_conn_next_event",
            )?;
        }
        if event as i32 == wanted as i32 {
            Ok(())
        } else {
            Err(format!("event {}, not {}", event as i32, wanted as i32))
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        let place = |at: &At| (at.conn % self.scenario.conns, at.side);
        match step {
            Step::Poll(at, max) => {
                let (conn, side) = place(at);
                self.poll_end(conn, side, *max)?;
            }
            Step::Post(at, spec) => {
                let (conn, side) = place(at);
                self.post(conn, side, spec)?;
            }
            Step::Receive(at, spec) => {
                let (conn, side) = place(at);
                self.receive(conn, side, spec)?;
            }
            Step::Drain(at) => {
                let (conn, side) = place(at);
                self.drain(conn, side)?;
            }
            Step::Disconnect(at) => {
                let (conn, side) = place(at);
                self.disconnect(conn, side)?;
            }
        }
        Ok(())
    }

    fn disconnect(&mut self, conn: usize, side: Side) -> Result<(), String> {
        let link = &mut self.links[conn];
        if !std::mem::replace(&mut link.disconnected[side as usize], true) {
            link.causes.push(Cause::Disconnect);
            // SAFETY: see above.
            let code = unsafe { rpma_conn_disconnect(link.ends[side as usize].handle) };
            check(code, "rpma_conn_disconnect")?;
        }
        Ok(())
    }

    fn post(&mut self, conn: usize, side: Side, spec: &OpSpec) -> Result<bool, String> {
        // One place is kept for what finds the end of the queue.
        let room = self.scenario.sq - 1;
        if self.links[conn].directions[side as usize].outstanding() >= room {
            self.poll_end(conn, side, room)?;
        }
        let outstanding = self.links[conn].directions[side as usize].outstanding();
        if outstanding >= room {
            return Ok(false);
        }
        // Where soft-RoCE has to wait for a receive with other work behind, it may wait for ever.
        if self.stage.rxe && spec.kind.consumes() && !self.supply_receives(conn, side, 1)? {
            return Ok(false);
        }
        // A queue full of what nobody is told of would stay full.
        let signaled = spec.signaled || outstanding + 1 == room;
        let number = self.links[conn].directions[side as usize].ops.len();
        let wr_id = wr_id(conn, side, number as u64);
        let (op, code) = self.issue(conn, side, spec, signaled, wr_id)?;
        check(code, "posting")?;
        let link = &mut self.links[conn];
        if op.doom.is_some() {
            link.causes.push(Cause::Op(side, number));
        }
        link.directions[side as usize].post(op);
        self.look_for_mismatches(conn, side);
        Ok(true)
    }

    /// Calls the library, and says what the operation will mean.
    fn issue(
        &self,
        conn: usize,
        side: Side,
        spec: &OpSpec,
        signaled: bool,
        wr_id: u64,
    ) -> Result<(Op, i32), String> {
        let handle = self.links[conn].ends[side as usize].handle;
        let own = self.stage.side(side);
        let other = self.stage.side(side.other());
        let kind = spec.kind;
        let wrong_here = matches!(
            spec.fault,
            Fault::LocalBounds | Fault::LocalDomain | Fault::LocalRights
        );
        let len = match kind {
            OpKind::AtomicWrite => 8,
            // Soft-RoCE sends what it can of it, packet by packet.
            _ if wrong_here && self.stage.rxe => spec.len.min(1024),
            _ => spec.len,
        };
        // Of nothing, nothing can be wrong.
        let fault = match (spec.fault, kind) {
            _ if len == 0 => Fault::None,
            (Fault::LocalRights, OpKind::Read) => Fault::LocalRights,
            (Fault::LocalRights, _) => Fault::LocalBounds,
            (fault, _) => fault,
        };
        let local_fault = matches!(
            fault,
            Fault::LocalBounds | Fault::LocalDomain | Fault::LocalRights
        );
        let doom = match kind {
            _ if fault == Fault::None => None,
            OpKind::AtomicWrite | OpKind::FlushVisibility | OpKind::FlushPersistent
                if local_fault =>
            {
                None
            }
            kind if kind.is_message() && !local_fault => None,
            _ if local_fault => Some(Doom::Local),
            _ => Some(Doom::Remote),
        };
        let fault = if doom.is_none() { Fault::None } else { fault };

        let local_size = if kind == OpKind::Read { LAND } else { SOURCE };
        let mut local = spec.local % (local_size - len + 1);
        let mut remote = spec.remote % (TARGET - len + 1);
        if kind == OpKind::AtomicWrite {
            remote &= !7;
        }
        let data_from = local;
        let mut mr = if kind == OpKind::Read {
            own.ends[conn].land.mr
        } else {
            own.source.mr
        };
        let mut to = other.ends[conn].to_target;
        match fault {
            Fault::None => {}
            Fault::LocalBounds => local = local_size - len + 1,
            Fault::LocalDomain => mr = other.source.mr,
            Fault::LocalRights => {
                mr = own.read_only.mr;
                local %= TARGET - len + 1;
            }
            Fault::RemoteKey => to = other.ends[conn].to_nothing,
            // A flush may look at the first bytes only.
            Fault::RemoteBounds if kind.is_flush() => remote = TARGET + 8,
            Fault::RemoteBounds if kind == OpKind::AtomicWrite => remote = TARGET,
            Fault::RemoteBounds => remote = TARGET - len + 1,
            Fault::RemoteRights if kind.stores() => to = other.to_read_only,
            Fault::RemoteRights => to = other.to_write_only,
        }
        let bytes = match kind {
            OpKind::Read | OpKind::FlushVisibility | OpKind::FlushPersistent => Vec::new(),
            _ => self.stage.pattern[data_from..data_from + len].to_vec(),
        };
        let immediate = (wr_id as u32).wrapping_mul(0x9e37_79b9) ^ conn as u32;
        let flags = if signaled {
            RPMA_F_COMPLETION_ALWAYS
        } else {
            RPMA_F_COMPLETION_ON_ERROR
        };
        let id = raw_wr_id(wr_id);
        // An operation without bytes is also one without regions.
        let nothing = len == 0 && spec.local.is_multiple_of(2);
        let (mr_or_none, to_or_none) = if nothing {
            (null_mut(), null_mut())
        } else {
            (mr, to)
        };
        let (at_here, at_there) = if nothing { (0, 0) } else { (local, remote) };
        // SAFETY: see above. What is wrong with an operation is for the library to find.
        let code = unsafe {
            match kind {
                OpKind::Write => rpma_write(
                    handle, to_or_none, at_there, mr_or_none, at_here, len, flags, id,
                ),
                OpKind::WriteImm => rpma_write_with_imm(
                    handle, to_or_none, at_there, mr_or_none, at_here, len, flags, immediate, id,
                ),
                OpKind::Read => rpma_read(
                    handle, mr_or_none, at_here, to_or_none, at_there, len, flags, id,
                ),
                OpKind::AtomicWrite => {
                    rpma_atomic_write(handle, to, remote, bytes.as_ptr().cast(), flags, id)
                }
                OpKind::FlushVisibility | OpKind::FlushPersistent => {
                    let flush = if kind == OpKind::FlushVisibility {
                        rpma_flush_type::RPMA_FLUSH_TYPE_VISIBILITY
                    } else {
                        rpma_flush_type::RPMA_FLUSH_TYPE_PERSISTENT
                    };
                    rpma_flush(handle, to, remote, len, MaybeUninit::new(flush), flags, id)
                }
                OpKind::Send => rpma_send(handle, mr_or_none, at_here, len, flags, id),
                OpKind::SendImm => {
                    rpma_send_with_imm(handle, mr_or_none, at_here, len, flags, immediate, id)
                }
            }
        };
        let op = Op {
            kind,
            len,
            remote,
            local,
            signaled,
            doom,
            immediate,
            bytes,
        };
        Ok((op, code))
    }

    fn is_shared(&self, side: Side) -> bool {
        side == Side::Passive && self.has_srq()
    }

    fn receives(&mut self, conn: usize, side: Side) -> &mut Receives {
        if self.is_shared(side) {
            &mut self.shared
        } else {
            &mut self.links[conn].receives[side as usize]
        }
    }

    fn receive(&mut self, conn: usize, side: Side, spec: &ReceiveSpec) -> Result<bool, String> {
        let shared = self.is_shared(side);
        let room = if shared {
            SHARED_SLOTS
        } else {
            (self.scenario.rq - 1).min(SLOTS)
        };
        let receives = self.receives(conn, side);
        let Some(slot) = receives
            .free_slot()
            .filter(|_| receives.outstanding() < room)
        else {
            return Ok(false);
        };
        let number = receives.posted.len();
        let wr_id = wr_id(conn, side, number as u64) | RECEIVE;
        let id = raw_wr_id(wr_id);
        // Memory of the other side's domain has no business here.
        let foreign = spec.foreign && spec.len > 0;
        let (mr, offset) = if foreign {
            (self.stage.side(side.other()).ends[0].inbox.mr, 0)
        } else if shared {
            (self.stage.shared_inbox.mr, slot * MAX_LEN)
        } else {
            (self.stage.side(side).ends[conn].inbox.mr, slot * MAX_LEN)
        };
        let handle = self.links[conn].ends[side as usize].handle;
        let (mr, offset) = if spec.len == 0 {
            (null_mut(), 0)
        } else {
            (mr, offset)
        };
        // SAFETY: see above.
        let code = unsafe {
            if shared {
                rpma_srq_recv(self.srq, mr, offset, spec.len, id)
            } else {
                rpma_recv(handle, mr, offset, spec.len, id)
            }
        };
        check(code, "posting a receive")?;
        self.receives(conn, side).posted.push(Receive {
            slot,
            len: spec.len,
            foreign,
            over: false,
        });
        if shared {
            for conn in 0..self.links.len() {
                self.look_for_mismatches(conn, Side::Active);
            }
        } else {
            self.look_for_mismatches(conn, side.other());
        }
        Ok(true)
    }

    /// Notes messages of a side for which the receive that they will get is no good; of a shared
    /// queue, each receive may be the one.
    fn look_for_mismatches(&mut self, conn: usize, sender: Side) {
        let rxe = self.stage.rxe;
        let shared = self.is_shared(sender.other());
        let link = &mut self.links[conn];
        let direction = &link.directions[sender as usize];
        for (nth, index) in direction.consumers.iter().enumerate().skip(direction.taken) {
            let op = &direction.ops[*index];
            let bad = if shared {
                let mut waiting = self.shared.posted.iter().filter(|r| !r.over);
                waiting.any(|r| mismatch(op, r, rxe).is_some())
            } else {
                let receive = link.receives[sender.other() as usize].posted.get(nth);
                receive.is_some_and(|r| mismatch(op, r, rxe).is_some())
            };
            let cause = Cause::Mismatch(sender, *index);
            if bad && !link.causes.contains(&cause) {
                link.causes.push(cause);
            }
        }
    }

    /// The statuses with which a message may fail because of its receive.
    fn mismatch_of(&self, conn: usize, sender: Side, index: usize) -> Mismatch {
        let link = &self.links[conn];
        let cause = Cause::Mismatch(sender, index);
        if !link.causes.contains(&cause) {
            return Mismatch::default();
        }
        let rxe = self.stage.rxe;
        let direction = &link.directions[sender as usize];
        let op = &direction.ops[index];
        if !self.is_shared(sender.other()) {
            let nth = direction.consumers.iter().position(|i| *i == index);
            let receives = &link.receives[sender.other() as usize].posted;
            let receive = nth.and_then(|nth| receives.get(nth));
            return receive
                .and_then(|r| mismatch(op, r, rxe))
                .unwrap_or_default();
        }
        let mut all = Mismatch::default();
        for found in self
            .shared
            .posted
            .iter()
            .filter_map(|r| mismatch(op, r, rxe))
        {
            all.sender.extend(found.sender);
            all.receiver.extend(found.receiver);
        }
        all
    }

    /// Takes what is there, up to `max` of each queue. Says how much there was.
    fn poll_end(&mut self, conn: usize, side: Side, max: usize) -> Result<usize, String> {
        let end = &self.links[conn].ends[side as usize];
        let (cq, rcq) = (end.cq, end.rcq);
        let mut taken = 0;
        for wc in fetch(cq, max)? {
            taken += 1;
            let separate = !rcq.is_null() || (self.is_shared(side) && !self.srq_rcq.is_null());
            if separate && wc.wr_id & RECEIVE != 0 {
                return Err("a receive completes in the main queue".into());
            }
            self.completed(conn, side, &wc)?;
        }
        if !rcq.is_null() {
            for wc in fetch(rcq, max)? {
                taken += 1;
                if wc.wr_id & RECEIVE == 0 {
                    return Err("a request completes in the receive queue".into());
                }
                self.completed(conn, side, &wc)?;
            }
        }
        if self.is_shared(side) && !self.srq_rcq.is_null() {
            for wc in fetch(self.srq_rcq, max)? {
                taken += 1;
                let of = |link: &Link| link.ends[Side::Passive as usize].qp_num == wc.qp_num;
                let Some(conn) = self.links.iter().position(of) else {
                    return Err(format!("a completion of queue pair {}", wc.qp_num));
                };
                self.completed(conn, side, &wc)?;
            }
        }
        Ok(taken)
    }

    fn completed(&mut self, conn: usize, side: Side, wc: &ibv_wc) -> Result<(), String> {
        let link = &mut self.links[conn];
        if wc.qp_num != link.ends[side as usize].qp_num {
            return Err(format!(
                "completion {:#x} is of queue pair {}, not {}",
                wc.wr_id, wc.qp_num, link.ends[side as usize].qp_num
            ));
        }
        let number = (wc.wr_id & 0xffff_ffff) as usize;
        if wc.wr_id & SENTINEL != 0 {
            let seen = &mut link.sentinels[side as usize];
            if wc.status != IBV_WC_WR_FLUSH_ERR {
                return Err(format!("after the end, work completes with {}", wc.status));
            }
            if wc.wr_id & RECEIVE != 0 {
                seen.1 = true;
            } else {
                seen.0 = true;
            }
            return Ok(());
        }
        if wc.wr_id & RECEIVE != 0 {
            return self.received(conn, side, number, wc);
        }
        if wc.wr_id != wr_id(conn, side, number as u64) {
            return Err(format!("an unknown completion {:#x}", wc.wr_id));
        }
        let own = Cause::Op(side, number);
        let permitted = Permitted {
            // What this side did wrong later cannot show earlier; but soft-RoCE does not wait for the
            // answers to earlier requests when it finds a fault.
            other_cause: link.causes.iter().any(|cause| match cause {
                Cause::Op(from, index) => *from != side || *index < number || self.stage.rxe,
                Cause::Mismatch(from, index) => *from != side || *index < number,
                Cause::Disconnect => true,
            }) && (!link.causes.contains(&own) || link.causes.len() > 1),
            mismatch: self.mismatch_of(conn, side, number).sender,
            rxe: self.stage.rxe,
        };
        let target = &self.stage.side(side.other()).ends[conn].target;
        let land = &self.stage.side(side).ends[conn].land;
        let direction = &mut self.links[conn].directions[side as usize];
        let success = direction.complete(number, wc.status, &permitted, target, land)?;
        if success {
            let kind = direction.ops[number].kind;
            let expected = match kind {
                OpKind::Write | OpKind::WriteImm => [IBV_WC_RDMA_WRITE; 2],
                OpKind::Read => [IBV_WC_RDMA_READ; 2],
                OpKind::Send | OpKind::SendImm => [IBV_WC_SEND; 2],
                // With and without native support.
                OpKind::AtomicWrite => [IBV_WC_ATOMIC_WRITE, IBV_WC_RDMA_WRITE],
                OpKind::FlushVisibility | OpKind::FlushPersistent => {
                    [IBV_WC_FLUSH, IBV_WC_RDMA_READ]
                }
            };
            if !expected.contains(&wc.opcode) {
                return Err(format!("{kind:?} completes with opcode {}", wc.opcode));
            }
            if kind == OpKind::Read && wc.byte_len as usize != direction.ops[number].len {
                return Err(format!("a read of {} bytes", wc.byte_len));
            }
        }
        Ok(())
    }

    fn received(
        &mut self,
        conn: usize,
        side: Side,
        number: usize,
        wc: &ibv_wc,
    ) -> Result<(), String> {
        let rxe = self.stage.rxe;
        let sender = side.other();
        let shared = self.is_shared(side);
        let receives = self.receives(conn, side);
        let Some(receive) = receives.posted.get(number).cloned() else {
            return Err(format!("receive {number} was never posted"));
        };
        if receive.over {
            return Err(format!("receive {number} completes a second time"));
        }
        if !shared && number != receives.done {
            return Err(format!(
                "receive {number} completes before {}",
                receives.done
            ));
        }
        let link = &self.links[conn];
        let broken = link.receiving_failed[side as usize];
        let consumer = link.directions[sender as usize].next_consumer();
        if wc.status != IBV_WC_SUCCESS {
            // The next message does not fit, or the connection has come to an end.
            let misfit = consumer
                .map(|index| &link.directions[sender as usize].ops[index])
                .and_then(|op| mismatch(op, &receive, rxe));
            // Soft-RoCE tells the receiver as well that it has refused a write with immediate data.
            let refused = rxe && wc.status == IBV_WC_REM_ACCESS_ERR && {
                let ops = &link.directions[sender as usize].ops;
                consumer.is_some_and(|index| ops[index].doom == Some(Doom::Remote))
            };
            let own =
                !broken && (refused || misfit.is_some_and(|m| m.receiver.contains(&wc.status)));
            let ended = wc.status == IBV_WC_WR_FLUSH_ERR && !link.causes.is_empty();
            if !own && !ended {
                return Err(format!("receive {number} completes with {}", wc.status));
            }
            if shared && broken {
                return Err("a second shared receive for a connection that has ended".into());
            }
            self.links[conn].receiving_failed[side as usize] = true;
            let torn = !broken && (rxe || !own);
            self.receives(conn, side).failed(number, torn);
            return Ok(());
        }
        if broken {
            return Err(format!("receive {number} succeeds behind one that failed"));
        }
        let Some(index) = consumer else {
            return Err(format!("receive {number} is of no message"));
        };
        let op = link.directions[sender as usize].ops[index].clone();
        if op.doom.is_some() || mismatch(&op, &receive, rxe).is_some() {
            return Err(format!(
                "receive {number} succeeds with operation {index}, which cannot"
            ));
        }
        let opcode = if op.kind == OpKind::WriteImm {
            IBV_WC_RECV_RDMA_WITH_IMM
        } else {
            IBV_WC_RECV
        };
        if (wc.opcode, wc.byte_len as usize) != (opcode, op.len) {
            return Err(format!(
                "receive {number} has opcode {} and {} bytes, but {:?} sent {}",
                wc.opcode, wc.byte_len, op.kind, op.len
            ));
        }
        let immediate = (wc.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0).then(|| {
            // SAFETY: the flag says so.
            u32::from_be(unsafe { wc.imm_data_invalidated_rkey_union.imm_data })
        });
        if immediate != op.kind.has_immediate().then_some(op.immediate) {
            return Err(format!(
                "receive {number} has immediate data {immediate:x?}"
            ));
        }
        let message: &[u8] = if op.kind.is_message() { &op.bytes } else { &[] };
        let inbox = if shared {
            &self.stage.shared_inbox
        } else {
            &self.stage.side(side).ends[conn].inbox
        };
        let receives = if shared {
            &mut self.shared
        } else {
            &mut self.links[conn].receives[side as usize]
        };
        receives.arrived(number, message, inbox)?;
        // What was posted before the message is over as well, as far as this side can see.
        let target = &self.stage.side(side).ends[conn].target;
        let direction = &mut self.links[conn].directions[sender as usize];
        direction.taken += 1;
        direction.execute(direction.executed.max(index + 1), target)
    }

    fn poll_all(&mut self) -> Result<usize, String> {
        let mut taken = 0;
        for conn in 0..self.links.len() {
            for side in Side::BOTH {
                taken += self.poll_end(conn, side, 32)?;
            }
        }
        Ok(taken)
    }

    /// Goes on until `done`, which may post more.
    fn until(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Self) -> Result<bool, String>,
    ) -> Result<(), String> {
        let mut idle_since = Instant::now();
        loop {
            if done(self)? {
                return Ok(());
            }
            if self.poll_all()? > 0 {
                idle_since = Instant::now();
                continue;
            }
            if idle_since.elapsed() > self.patience {
                return Err(format!("{what} does not come: {}", self.state()));
            }
            if self.scenario.sleep {
                self.sleep()
                    .map_err(|why| format!("{why}, while waiting for {what}: {}", self.state()))?;
            } else {
                std::thread::yield_now();
            }
        }
    }

    fn state(&self) -> String {
        let links = self.links.iter().enumerate().map(|(number, link)| {
            let sides = Side::BOTH.map(|side| {
                let d = &link.directions[side as usize];
                let r = &link.receives[side as usize];
                format!(
                    "{side:?}: {} of {} operations done, failed {:?}, {} of {} messages taken, {} of {} receives done",
                    d.done, d.ops.len(), d.failed, d.taken, d.consumers.len(), r.done, r.posted.len()
                )
            });
            format!("connection {number} {sides:?} causes {:?}", link.causes)
        });
        links.collect::<Vec<_>>().join("; ")
    }

    /// Waits until a queue announces something.
    fn sleep(&mut self) -> Result<(), String> {
        let mut waiters = Vec::new();
        for link in &self.links {
            for (end, side) in link.ends.iter().zip(Side::BOTH) {
                let mut fd = -1;
                // SAFETY: see above.
                unsafe {
                    if self.has_shared_channel(side) {
                        check(rpma_conn_get_compl_fd(end.handle, &mut fd), "compl_fd")?;
                        waiters.push((fd, null_mut(), end.handle));
                        continue;
                    }
                    for cq in [end.cq, end.rcq] {
                        if !cq.is_null() {
                            check(rpma_cq_get_fd(cq, &mut fd), "rpma_cq_get_fd")?;
                            waiters.push((fd, cq, null_mut()));
                        }
                    }
                }
            }
        }
        if !self.srq_rcq.is_null() {
            let mut fd = -1;
            // SAFETY: see above.
            check(unsafe { rpma_cq_get_fd(self.srq_rcq, &mut fd) }, "fd")?;
            waiters.push((fd, self.srq_rcq, null_mut()));
        }
        let fds: Vec<_> = waiters.iter().map(|(fd, ..)| *fd).collect();
        self.readable(&fds, "an announcement")?;
        for (fd, cq, conn) in waiters {
            let mut poll = libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one entry; for the rest see above.
            unsafe {
                if libc::poll(&mut poll, 1, 0) != 1 {
                    continue;
                }
                if conn.is_null() {
                    check(rpma_cq_wait(cq), "rpma_cq_wait")?;
                } else {
                    let (mut cq, mut is_rcq) = (null_mut(), false);
                    let code = rpma_conn_wait(conn, 0, &mut cq, &mut is_rcq);
                    check(code, "rpma_conn_wait")?;
                }
            }
        }
        Ok(())
    }

    /// Whether all messages of a side, and `more`, have a receive of their own.
    fn has_receives(&self, conn: usize, sender: Side, more: usize) -> bool {
        let link = &self.links[conn];
        let messages = link.directions[sender as usize].consumers.len() + more;
        !self.is_shared(sender.other())
            && messages <= link.receives[sender.other() as usize].posted.len()
    }

    fn drain(&mut self, conn: usize, side: Side) -> Result<(), String> {
        let link = &self.links[conn];
        if !link.causes.is_empty() || !self.has_receives(conn, side, 0) {
            return Ok(());
        }
        let flush = OpSpec {
            kind: OpKind::FlushVisibility,
            len: TARGET,
            remote: 0,
            local: 1,
            signaled: true,
            fault: Fault::None,
        };
        if self.post(conn, side, &flush)? {
            self.until("the end of the queue", |world| {
                Ok(world.links[conn].directions[side as usize].outstanding() == 0)
            })?;
        }
        Ok(())
    }

    fn is_broken(&self, conn: usize) -> bool {
        let link = &self.links[conn];
        Side::BOTH.iter().any(|side| {
            link.directions[*side as usize].failed.is_some()
                || link.receiving_failed[*side as usize]
        })
    }

    /// Posts the receives that are missing, if `supply`, and waits until each connection has done
    /// what was asked of it or broken as it had to.
    fn settle(&mut self, supply: bool) -> Result<(), String> {
        let mut finals = vec![[None; 2]; self.links.len()];
        self.until("all that was posted", |world| {
            let mut settled = true;
            for (conn, finals) in finals.iter_mut().enumerate() {
                if world.links[conn].causes.contains(&Cause::Disconnect) || world.is_broken(conn) {
                    continue;
                }
                for side in Side::BOTH {
                    if supply {
                        world.supply_receives(conn, side, 0)?;
                    }
                    let last = OpSpec {
                        kind: OpKind::Write,
                        len: 0,
                        remote: 0,
                        local: 0,
                        signaled: true,
                        fault: Fault::None,
                    };
                    let place = &mut finals[side as usize];
                    if place.is_none() && world.post(conn, side, &last)? {
                        let ops = &world.links[conn].directions[side as usize].ops;
                        *place = Some(ops.len());
                    }
                    let direction = &world.links[conn].directions[side as usize];
                    settled &= place.is_some_and(|end| direction.done >= end)
                        && direction.taken == direction.consumers.len();
                }
            }
            Ok(settled)
        })?;
        // On hardware, an end need not notice what happened at the other.
        if self.stage.rxe {
            return Ok(());
        }
        for conn in 0..self.links.len() {
            let link = &self.links[conn];
            let cause = match link.causes[..] {
                [Cause::Op(side, index)] => (side, index, false),
                [Cause::Mismatch(side, index)] if !self.has_srq() => (side, index, true),
                _ => continue,
            };
            let (side, index, at_receiver) = cause;
            self.until("the failure", |world| {
                let link = &world.links[conn];
                let receiver = side.other() as usize;
                Ok(link.directions[side as usize]
                    .failed
                    .is_some_and(|(failed, _)| failed == index)
                    && (!at_receiver || link.receiving_failed[receiver]))
            })?;
        }
        Ok(())
    }

    /// Posts receives for messages of a side that have none, and for `more`. False if there is no
    /// room for them now.
    fn supply_receives(&mut self, conn: usize, sender: Side, more: usize) -> Result<bool, String> {
        let receiver = sender.other();
        let full = ReceiveSpec {
            len: MAX_LEN,
            foreign: false,
        };
        loop {
            let enough = if self.is_shared(receiver) {
                let wanted: usize = self
                    .links
                    .iter()
                    .map(|link| &link.directions[sender as usize])
                    .map(|direction| direction.consumers.len() - direction.taken)
                    .sum();
                self.shared.outstanding() >= wanted + more
            } else {
                self.has_receives(conn, sender, more)
            };
            if enough || !self.receive(conn, receiver, &full)? {
                return Ok(enough);
            }
        }
    }

    /// No shared receive is lost: as many messages as there are receives arrive.
    fn use_up_shared_receives(&mut self) -> Result<(), String> {
        let healthy =
            |world: &Self| (0..world.links.len()).find(|conn| world.links[*conn].causes.is_empty());
        if !self.has_srq() {
            return Ok(());
        }
        let Some(conn) = healthy(self) else {
            return Ok(());
        };
        let empty = OpSpec {
            kind: OpKind::Send,
            len: 0,
            remote: 0,
            local: 0,
            signaled: true,
            fault: Fault::None,
        };
        let mut left = self.shared.outstanding();
        while left > 0 {
            while left > 0 && self.post(conn, Side::Active, &empty)? {
                left -= 1;
            }
            self.until("an empty message", |world| {
                let direction = &world.links[conn].directions[Side::Active as usize];
                let arrived =
                    direction.outstanding() == 0 && direction.taken == direction.consumers.len();
                // A last message of a connection that has ended may have taken one meanwhile.
                Ok(arrived || world.shared.outstanding() == 0)
            })?;
            left = left.min(self.shared.outstanding());
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        let first = self.scenario.closer;
        for conn in 0..self.links.len() {
            self.disconnect(conn, first)?;
            for side in [first.other(), first] {
                let handle = self.links[conn].ends[side as usize].handle;
                self.expect_event(handle, rpma_conn_event::RPMA_CONN_CLOSED)?;
                self.links[conn].closed[side as usize] = true;
                // As programs do; on hardware, it is what ends this side's queues.
                self.disconnect(conn, side)?;
            }
        }
        for conn in 0..self.links.len() {
            for side in Side::BOTH {
                let handle = self.links[conn].ends[side as usize].handle;
                let id = wr_id(conn, side, 0) | SENTINEL;
                // SAFETY: see above.
                unsafe {
                    let code = rpma_write(
                        handle,
                        null_mut(),
                        0,
                        null(),
                        0,
                        0,
                        RPMA_F_COMPLETION_ALWAYS,
                        raw_wr_id(id),
                    );
                    check(code, "posting after the end")?;
                    // Soft-RoCE forgets a receive that is posted after the end.
                    if !self.is_shared(side) && !self.stage.rxe {
                        let code = rpma_recv(handle, null_mut(), 0, 0, raw_wr_id(id | RECEIVE));
                        check(code, "posting a receive after the end")?;
                    }
                }
            }
        }
        self.until("the end of the queues", |world| {
            Ok((0..world.links.len()).all(|conn| {
                Side::BOTH.iter().all(|side| {
                    let link = &world.links[conn];
                    let seen = link.sentinels[*side as usize];
                    let receives = &link.receives[*side as usize];
                    seen.0
                        && (world.stage.rxe
                            || (receives.outstanding() == 0 && (seen.1 || world.is_shared(*side))))
                })
            }))
        })?;
        // Nothing comes behind.
        if self.poll_all()? > 0 && !self.stage.rxe {
            return Err("completions behind the last ones".into());
        }
        Ok(())
    }

    fn check_end(&mut self) -> Result<(), String> {
        for (conn, link) in self.links.iter_mut().enumerate() {
            for side in Side::BOTH {
                let direction = &mut link.directions[side as usize];
                let whose = format!("connection {conn}, {side:?}");
                // What has no completion, and nothing failed before it, has succeeded.
                let target = &self.stage.sides[side.other() as usize].ends[conn].target;
                let land = &self.stage.sides[side as usize].ends[conn].land;
                direction
                    .end_of_queue(target, land)
                    .and_then(|()| direction.check_end(target, land))
                    .map_err(|why| format!("{whose}: {why}"))?;
                let receives = &link.receives[side as usize];
                if receives.outstanding() != 0 && !self.stage.rxe {
                    return Err(format!("{whose}: receives without a completion"));
                }
                let inbox = &mut self.stage.sides[side as usize].ends[conn].inbox;
                receives
                    .check_end(inbox)
                    .map_err(|why| format!("{whose}: {why}"))?;
                receives.reset(inbox);
            }
        }
        for side in Side::BOTH {
            let side = self.stage.side(side);
            if !side.source.equals(0, &self.stage.pattern) {
                return Err("the source has changed".into());
            }
            if !side.read_only.equals(0, &Stage::untouched(TARGET)) {
                return Err("memory that is only to be read has changed".into());
            }
        }
        if self.stage.rxe {
            self.shared.forget_outstanding();
        }
        self.shared.check_end(&mut self.stage.shared_inbox)?;
        self.shared.reset(&mut self.stage.shared_inbox);
        Ok(())
    }

    fn delete(&mut self) -> Result<(), String> {
        for link in &mut self.links {
            for end in &mut link.ends {
                // SAFETY: see above; the handle is not used any more.
                let code = unsafe { rpma_conn_delete(&mut end.handle) };
                check(code, "rpma_conn_delete")?;
            }
        }
        if self.has_srq() {
            // SAFETY: as above.
            check(unsafe { rpma_srq_delete(&mut self.srq) }, "rpma_srq_delete")?;
        }
        Ok(())
    }
}

fn wr_id(conn: usize, side: Side, number: u64) -> u64 {
    ((conn as u64 + 1) << CONN_SHIFT) | ((side as u64) << SIDE_SHIFT) | number
}

fn fetch(cq: *mut rpma_cq, max: usize) -> Result<Vec<ibv_wc>, String> {
    let max = max.clamp(1, 32);
    // SAFETY: all zeros is a valid completion.
    let mut wcs: [ibv_wc; 32] = unsafe { std::mem::zeroed() };
    let mut got = 0;
    // SAFETY: a queue of a live connection, and room for `max`.
    match unsafe { rpma_cq_get_wc(cq, max as i32, wcs.as_mut_ptr(), &mut got) } {
        0 if (1..=max as i32).contains(&got) => Ok(wcs[..got as usize].to_vec()),
        0 => Err(format!("{got} completions where {max} were asked for")),
        code if code == rpma::error::Error::NoCompletion.code() => Ok(Vec::new()),
        code => Err(format!("rpma_cq_get_wc returned {code}")),
    }
}
