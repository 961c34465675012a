// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What is allowed: the reference model of one direction of a connection, and of receives.
//!
//! A direction is what one end asks of the other. Its operations execute in the order in which
//! they were posted, so what the model has to know is how far they certainly got:
//!
//! - `done`: the completions that were taken say that all before are over;
//! - `executed`: these took effect at the target, for sure. A receive's completion tells as much
//!   about the operations before its message as a completion at the initiator does.
//!
//! Of those behind `executed`, some first ones may have taken effect as well, one of them in part.

use rdma_sys::ibv_wc_status::*;

use super::scenario::{MAX_LEN, OpKind};
use super::stage::{GUARD, LAND, Memory, Stage, TARGET};

/// Why an operation cannot succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doom {
    /// It is wrong on the side that posted it.
    Local,
    /// The other side refuses it.
    Remote,
}

/// An operation that was posted.
#[derive(Debug, Clone)]
pub(super) struct Op {
    pub(super) kind: OpKind,
    pub(super) len: usize,
    /// Where in the target's region.
    pub(super) remote: usize,
    /// Where in the source, or where a read goes.
    pub(super) local: usize,
    pub(super) signaled: bool,
    pub(super) doom: Option<Doom>,
    pub(super) immediate: u32,
    /// What is stored or sent.
    pub(super) bytes: Vec<u8>,
}

impl Op {
    /// Whether it cannot take effect, nor what is behind it. That a read has nowhere to go may turn
    /// out only when the answer arrives.
    fn stops(&self) -> bool {
        match self.doom {
            None => false,
            Some(Doom::Local) => self.kind != OpKind::Read,
            Some(Doom::Remote) => true,
        }
    }

    fn stores_at(&self, at: usize) -> Option<u8> {
        if !self.kind.stores() || self.doom.is_some() {
            return None;
        }
        self.bytes.get(at.checked_sub(self.remote)?).copied()
    }
}

/// How a failed operation may end.
pub(super) struct Permitted {
    /// The connection may have ended for another reason than this operation.
    pub(super) other_cause: bool,
    /// What the sender of a message is told for which its receive is no good.
    pub(super) mismatch: Vec<u32>,
    pub(super) rxe: bool,
}

#[derive(Default)]
pub(super) struct Direction {
    pub(super) ops: Vec<Op>,
    pub(super) done: usize,
    pub(super) executed: usize,
    /// The first operation that failed, and its status.
    pub(super) failed: Option<(usize, u32)>,
    /// Indices of operations that take a receive, and how many receives they took.
    pub(super) consumers: Vec<usize>,
    pub(super) taken: usize,
    /// The target's region after `executed` operations.
    target: Vec<u8>,
    /// What executed reads have read.
    readings: Vec<Option<Vec<u8>>>,
    /// Where reads go, after `done` operations.
    land: Vec<u8>,
}

impl Direction {
    pub(super) fn new() -> Self {
        Direction {
            target: Stage::untouched(TARGET),
            land: Stage::untouched(LAND),
            ..Direction::default()
        }
    }

    pub(super) fn outstanding(&self) -> usize {
        self.ops.len() - self.done
    }

    pub(super) fn post(&mut self, op: Op) {
        if op.kind.consumes() {
            self.consumers.push(self.ops.len());
        }
        self.readings.push(None);
        self.ops.push(op);
    }

    /// The operation whose message the next receive gets.
    pub(super) fn next_consumer(&self) -> Option<usize> {
        self.consumers.get(self.taken).copied()
    }

    /// The operations before `end` took effect. What they stored has to be visible.
    pub(super) fn execute(&mut self, end: usize, memory: &Memory) -> Result<(), String> {
        let first = self.executed;
        for index in first..end {
            let op = &self.ops[index];
            if op.stops() {
                return Err(format!(
                    "operation {index} ({:?} fault) or one behind it took effect",
                    op.doom
                ));
            }
            if op.kind.stores() {
                self.target[op.remote..op.remote + op.len].copy_from_slice(&op.bytes);
            }
            if op.kind == OpKind::Read && op.doom.is_none() {
                self.readings[index] = Some(self.target[op.remote..op.remote + op.len].to_vec());
            }
        }
        self.executed = self.executed.max(end);
        for index in first..end {
            let op = &self.ops[index];
            if op.kind.stores() {
                self.check_visible(op.remote, op.len, memory)
                    .map_err(|why| format!("{why}, though operation {index} is over"))?;
            }
        }
        Ok(())
    }

    /// The range holds what was executed, but for bytes of operations behind.
    fn check_visible(&self, at: usize, len: usize, memory: &Memory) -> Result<(), String> {
        let expected = &self.target[at..at + len];
        if memory.equals(GUARD + at, expected) {
            return Ok(());
        }
        let got = memory.copy(GUARD + at, len);
        for (offset, (got, expected)) in got.iter().zip(expected).enumerate() {
            let later = || {
                let mut behind = self.ops[self.executed..].iter();
                behind.any(|op| op.stores_at(at + offset) == Some(*got))
            };
            if got != expected && !later() {
                return Err(format!(
                    "byte {} of the target is {got:#x}, not {expected:#x}",
                    at + offset
                ));
            }
        }
        Ok(())
    }

    /// A completion at the initiator. `Ok(true)` if it is a success.
    pub(super) fn complete(
        &mut self,
        index: usize,
        status: u32,
        permitted: &Permitted,
        target: &Memory,
        land: &Memory,
    ) -> Result<bool, String> {
        if index < self.done {
            return Err(format!("operation {index} completes a second time"));
        }
        if index >= self.ops.len() {
            return Err(format!("operation {index} was never posted"));
        }
        if let Some((first, _)) = self.failed {
            if index != self.done {
                return Err(format!(
                    "operation {} has no completion, though {first} failed before it",
                    self.done
                ));
            }
            if status != IBV_WC_WR_FLUSH_ERR {
                return Err(format!(
                    "operation {index} completes with {status} behind the failed {first}"
                ));
            }
            self.done += 1;
            return Ok(false);
        }
        for silent in self.done..index {
            if self.ops[silent].doom.is_some() {
                return Err(format!("operation {silent} did not fail"));
            }
            if self.ops[silent].signaled {
                return Err(format!(
                    "operation {silent} has no completion, but {index} behind it has"
                ));
            }
        }
        let op = self.ops[index].clone();
        let success = status == IBV_WC_SUCCESS;
        if success && op.doom.is_some() {
            return Err(format!("operation {index} ({:?} fault) succeeds", op.doom));
        }
        if success && !op.signaled {
            return Err(format!("operation {index} was not to be signaled"));
        }
        if !success && !is_allowed(&op, status, permitted) {
            return Err(format!(
                "operation {index} ({:?}, fault {:?}) completes with status {status}",
                op.kind, op.doom
            ));
        }
        // Without a completion of their own, those before succeeded.
        let over = index + usize::from(success);
        self.execute(over, target)?;
        for index in self.done..over {
            self.landed(index, land)?;
        }
        self.done = index + 1;
        if success {
            if op.kind.is_flush() {
                self.check_visible(op.remote, op.len, target)?;
            }
        } else {
            self.failed = Some((index, status));
        }
        Ok(success)
    }

    /// All completions were taken. What has none, and nothing failed before it, has succeeded.
    pub(super) fn end_of_queue(&mut self, target: &Memory, land: &Memory) -> Result<(), String> {
        if self.failed.is_some() || self.done == self.ops.len() {
            return Ok(());
        }
        for (index, op) in self.ops.iter().enumerate().skip(self.done) {
            if op.signaled || op.doom.is_some() {
                return Err(format!("operation {index} has no completion"));
            }
        }
        self.execute(self.ops.len(), target)?;
        for index in self.done..self.ops.len() {
            self.landed(index, land)?;
        }
        self.done = self.ops.len();
        Ok(())
    }

    /// A read is over: its bytes are there.
    fn landed(&mut self, index: usize, land: &Memory) -> Result<(), String> {
        let Some(bytes) = self.readings[index].take() else {
            return Ok(());
        };
        let (at, from, len) = (self.ops[index].local, self.ops[index].remote, bytes.len());
        self.land[at..at + len].copy_from_slice(&bytes);
        if land.equals(at, &bytes) {
            return Ok(());
        }
        let got = land.copy(at, len);
        for (offset, (got, expected)) in got.iter().zip(&bytes).enumerate() {
            // Without a fence, a read may see what was posted behind it.
            let later = self.ops[index + 1..].iter().any(|op| {
                op.stores_at(from + offset) == Some(*got)
                    || (op.kind == OpKind::Read
                        && (op.local..op.local + op.len).contains(&(at + offset)))
            });
            if got != expected && !later {
                return Err(format!(
                    "read {index} got {got:#x}, not {expected:#x}, at its byte {offset}"
                ));
            }
        }
        // From now on only later reads may change it.
        self.land[at..at + len].copy_from_slice(&got);
        Ok(())
    }

    /// Nothing happens any more: the memory is as some first operations have left it.
    pub(super) fn check_end(&self, target: &Memory, land: &Memory) -> Result<(), String> {
        if self.done != self.ops.len() {
            return Err(format!(
                "{} of {} operations are accounted for",
                self.done,
                self.ops.len()
            ));
        }
        for at in [0, GUARD + TARGET] {
            if !target.equals(at, &Stage::untouched(GUARD)) {
                return Err("memory beside the target's region was touched".into());
            }
        }
        let mut image = self.target.clone();
        let mut next = self.executed;
        let mut readings = Vec::new();
        let found = loop {
            if target.equals(GUARD, &image) {
                break true;
            }
            // A doomed operation changes nothing, nor does anything behind it.
            let possible = |op: &&Op| !op.stops() && !self.refused_before(next);
            let Some(op) = self.ops.get(next).filter(possible) else {
                break false;
            };
            if op.kind.stores() {
                let range = op.remote..op.remote + op.len;
                let old = image[range.clone()].to_vec();
                if op.kind != OpKind::AtomicWrite {
                    let got = target.copy(GUARD + op.remote, op.len);
                    let mixed = got.iter().zip(old.iter().zip(&op.bytes));
                    if mixed
                        .clone()
                        .all(|(got, (old, new))| got == old || got == new)
                    {
                        image[range.clone()].copy_from_slice(&got);
                        if target.equals(GUARD, &image) {
                            break true;
                        }
                    }
                }
                image[range].copy_from_slice(&op.bytes);
            }
            next += 1;
        };
        if !found {
            return Err(format!(
                "the target's memory is as no number of operations leaves it ({} took effect for sure)",
                self.executed
            ));
        }
        // Answers may have arrived to reads that were executed, whole or in part.
        let mut image = self.target.clone();
        for (index, op) in self.ops.iter().enumerate().skip(self.done_before_failure()) {
            if op.stops() {
                break;
            }
            if index >= self.executed && op.kind.stores() {
                image[op.remote..op.remote + op.len].copy_from_slice(&op.bytes);
            }
            if op.kind == OpKind::Read && op.doom.is_none() {
                let bytes = match &self.readings[index] {
                    Some(bytes) => bytes.clone(),
                    None => image[op.remote..op.remote + op.len].to_vec(),
                };
                readings.push((index, bytes));
            }
        }
        if land.equals(0, &self.land) {
            return Ok(());
        }
        for (at, (got, expected)) in land.copy(0, LAND).iter().zip(&self.land).enumerate() {
            let allowed = || {
                readings.iter().any(|(index, bytes)| {
                    let op = &self.ops[*index];
                    let Some(offset) = at.checked_sub(op.local).filter(|at| *at < op.len) else {
                        return false;
                    };
                    let stored = |op: &Op, from| op.stores_at(from + offset) == Some(*got);
                    bytes.get(offset) == Some(got)
                        || self.ops[index + 1..]
                            .iter()
                            .any(|later| stored(later, op.remote))
                })
            };
            if got != expected && !allowed() {
                return Err(format!(
                    "byte {at} of where reads go is {got:#x}, not {expected:#x}"
                ));
            }
        }
        Ok(())
    }

    /// Whether an operation at or before this one failed for a reason of its own.
    fn refused_before(&self, index: usize) -> bool {
        self.failed.is_some_and(|(first, status)| {
            let ended = matches!(status, IBV_WC_WR_FLUSH_ERR | IBV_WC_RETRY_EXC_ERR);
            let op = &self.ops[first];
            first <= index && !ended && (op.doom.is_none() || op.stops())
        })
    }

    fn done_before_failure(&self) -> usize {
        self.failed.map_or(self.done, |(index, _)| index)
    }
}

fn is_allowed(op: &Op, status: u32, permitted: &Permitted) -> bool {
    let own = match op.doom {
        Some(Doom::Local) => {
            status == IBV_WC_LOC_PROT_ERR
                // It may forget the reason when it flushes the queue.
                || (permitted.rxe && matches!(status, IBV_WC_WR_FLUSH_ERR | IBV_WC_LOC_QP_OP_ERR))
        }
        Some(Doom::Remote) => status == IBV_WC_REM_ACCESS_ERR,
        None => permitted.mismatch.contains(&status),
    };
    // Of an end that came from elsewhere, the first operation says that nobody answered, or nothing.
    own || (permitted.other_cause && matches!(status, IBV_WC_WR_FLUSH_ERR | IBV_WC_RETRY_EXC_ERR))
}

/// What can become of a message for which there is this receive: status at the receiver, and at
/// the sender; `None` if it fits.
pub(super) fn mismatch(op: &Op, receive: &Receive, rxe: bool) -> Option<Mismatch> {
    if op.doom.is_some() || !op.kind.is_message() {
        return None;
    }
    let mut outcome = Mismatch::default();
    if receive.len < op.len {
        let inexact = [IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_OP_ERR].map(|other| rxe.then_some(other));
        outcome.receiver.push(IBV_WC_LOC_LEN_ERR);
        outcome.sender.push(IBV_WC_REM_INV_REQ_ERR);
        outcome.receiver.extend(inexact[0]);
        outcome.sender.extend(inexact[1]);
    }
    if receive.foreign && op.len > 0 {
        outcome.receiver.push(IBV_WC_LOC_PROT_ERR);
        outcome.sender.push(IBV_WC_REM_OP_ERR);
        outcome.receiver.extend(rxe.then_some(IBV_WC_LOC_QP_OP_ERR));
    }
    (!outcome.receiver.is_empty()).then_some(outcome)
}

#[derive(Debug, Default)]
pub(super) struct Mismatch {
    pub(super) receiver: Vec<u32>,
    pub(super) sender: Vec<u32>,
}

/// A receive that was posted.
#[derive(Debug, Clone)]
pub(super) struct Receive {
    pub(super) slot: usize,
    pub(super) len: usize,
    pub(super) foreign: bool,
    pub(super) over: bool,
}

/// A queue of receives, and the memory behind it.
pub(super) struct Receives {
    pub(super) posted: Vec<Receive>,
    pub(super) done: usize,
    pub(super) slots: usize,
    /// Slots that are not to be looked at: a message ended in the middle.
    torn: Vec<usize>,
    /// In order of their use: what each slot holds.
    contents: Vec<Vec<u8>>,
}

impl Receives {
    pub(super) fn new(slots: usize) -> Self {
        Receives {
            posted: Vec::new(),
            done: 0,
            slots,
            torn: Vec::new(),
            contents: vec![Vec::new(); slots],
        }
    }

    pub(super) fn outstanding(&self) -> usize {
        self.posted.len() - self.done
    }

    pub(super) fn free_slot(&self) -> Option<usize> {
        let taken = |slot| self.posted.iter().any(|r| !r.over && r.slot == slot);
        (0..self.slots).find(|slot| !taken(*slot))
    }

    /// A message has arrived whole.
    pub(super) fn arrived(
        &mut self,
        index: usize,
        bytes: &[u8],
        inbox: &Memory,
    ) -> Result<(), String> {
        self.end(index);
        let slot = self.posted[index].slot;
        let content = &mut self.contents[slot];
        if content.len() < bytes.len() {
            content.resize(bytes.len(), 0);
        }
        content[..bytes.len()].copy_from_slice(bytes);
        if inbox.equals(slot * MAX_LEN, bytes) {
            return Ok(());
        }
        Err(format!("receive {index} holds other bytes than were sent"))
    }

    /// It is over; with `torn`, its memory may hold anything.
    pub(super) fn failed(&mut self, index: usize, torn: bool) {
        self.end(index);
        if torn {
            self.torn.push(self.posted[index].slot);
        }
    }

    /// Soft-RoCE forgets the shared receive that a connection was filling when it came to an end:
    /// what is still posted may hold the beginning of a message.
    pub(super) fn forget_outstanding(&mut self) {
        let left = self.posted.iter().filter(|receive| !receive.over);
        self.torn.extend(left.map(|receive| receive.slot));
    }

    fn end(&mut self, index: usize) {
        self.posted[index].over = true;
        self.done += 1;
    }

    pub(super) fn check_end(&self, inbox: &mut Memory) -> Result<(), String> {
        for slot in 0..self.slots {
            if self.torn.contains(&slot) {
                continue;
            }
            let content = &self.contents[slot];
            let rest = Stage::untouched(MAX_LEN - content.len());
            let at = slot * MAX_LEN;
            if !inbox.equals(at, content) || !inbox.equals(at + content.len(), &rest) {
                return Err(format!(
                    "slot {slot} of the receives holds what nobody sent"
                ));
            }
        }
        Ok(())
    }

    /// Makes the memory untouched again.
    pub(super) fn reset(&self, inbox: &mut Memory) {
        for slot in 0..self.slots {
            let all = self.torn.contains(&slot);
            let len = if all {
                MAX_LEN
            } else {
                self.contents[slot].len()
            };
            inbox.reset(slot * MAX_LEN, len);
        }
    }
}
