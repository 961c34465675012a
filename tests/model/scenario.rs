// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What happens in one run: plain values, which proptest draws, prints and makes smaller.

use proptest::prelude::*;
use proptest::strategy::Union;

/// The longest message or transfer.
pub(super) const MAX_LEN: usize = 64 << 10;
/// The most connections of a run.
pub(super) const MAX_CONNS: usize = 4;
/// How many operations one end may post. With more, a run costs more and finds no more.
const MAX_STEPS: usize = 60;

#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) conns: usize,
    /// The passive ends share a receive queue.
    pub(super) srq: Srq,
    /// Receives complete in a queue of their own.
    pub(super) rcq: bool,
    /// Both completion queues of an end announce through one channel.
    pub(super) shared_channel: bool,
    /// Wait for announcements instead of polling.
    pub(super) sleep: bool,
    pub(super) sq: usize,
    pub(super) rq: usize,
    pub(super) steps: Vec<Step>,
    /// Ends each connection with work outstanding.
    pub(super) abrupt: bool,
    /// Which end says good-bye.
    pub(super) closer: Side,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Srq {
    No,
    /// Its receives complete in the connections' queues.
    WithoutQueue,
    /// Its receives complete in one queue.
    WithQueue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Active,
    Passive,
}

impl Side {
    pub(super) const BOTH: [Side; 2] = [Side::Active, Side::Passive];

    pub(super) fn other(self) -> Side {
        match self {
            Side::Active => Side::Passive,
            Side::Passive => Side::Active,
        }
    }
}

/// One end of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    /// Modulo the number of connections.
    pub(super) conn: usize,
    pub(super) side: Side,
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Take up to this many completions, without waiting.
    Poll(At, usize),
    Post(At, OpSpec),
    Receive(At, ReceiveSpec),
    /// Wait until all that was posted here is done, if that is certain to come.
    Drain(At),
    Disconnect(At),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpKind {
    Write,
    Read,
    FlushVisibility,
    FlushPersistent,
    AtomicWrite,
    Send,
    SendImm,
    WriteImm,
}

impl OpKind {
    /// Whether it takes a receive of the other side.
    pub(super) fn consumes(self) -> bool {
        matches!(self, OpKind::Send | OpKind::SendImm | OpKind::WriteImm)
    }

    pub(super) fn is_message(self) -> bool {
        matches!(self, OpKind::Send | OpKind::SendImm)
    }

    pub(super) fn has_immediate(self) -> bool {
        matches!(self, OpKind::SendImm | OpKind::WriteImm)
    }

    /// Whether it changes the other side's region.
    pub(super) fn stores(self) -> bool {
        matches!(self, OpKind::Write | OpKind::AtomicWrite | OpKind::WriteImm)
    }

    pub(super) fn is_flush(self) -> bool {
        matches!(self, OpKind::FlushVisibility | OpKind::FlushPersistent)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct OpSpec {
    pub(super) kind: OpKind,
    pub(super) len: usize,
    /// Offsets are taken modulo what leaves room for the length.
    pub(super) remote: usize,
    pub(super) local: usize,
    pub(super) signaled: bool,
    pub(super) fault: Fault,
}

/// What is wrong with an operation. One that makes no sense for it means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    LocalBounds,
    LocalDomain,
    LocalRights,
    RemoteKey,
    RemoteBounds,
    RemoteRights,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ReceiveSpec {
    pub(super) len: usize,
    /// Memory of another protection domain.
    pub(super) foreign: bool,
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![
        2 => Just(0),
        2 => Just(8),
        6 => 1..=64usize,
        4 => 1..=4096usize,
        2 => 1..=MAX_LEN,
    ]
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Active), Just(Side::Passive)]
}

fn at() -> impl Strategy<Value = At> {
    (0..MAX_CONNS, side()).prop_map(|(conn, side)| At { conn, side })
}

fn kind() -> impl Strategy<Value = OpKind> {
    prop_oneof![
        4 => Just(OpKind::Write),
        2 => Just(OpKind::Read),
        1 => Just(OpKind::FlushVisibility),
        1 => Just(OpKind::FlushPersistent),
        2 => Just(OpKind::AtomicWrite),
        2 => Just(OpKind::Send),
        1 => Just(OpKind::SendImm),
        2 => Just(OpKind::WriteImm),
    ]
}

fn fault(faults: u32) -> BoxedStrategy<Fault> {
    let none = Just(Fault::None).boxed();
    if faults == 0 {
        return none;
    }
    let some = [
        Fault::LocalBounds,
        Fault::LocalDomain,
        Fault::LocalRights,
        Fault::RemoteKey,
        Fault::RemoteBounds,
        Fault::RemoteRights,
    ];
    let some = Union::new(some.map(Just)).boxed();
    Union::new_weighted(vec![(400, none), (faults, some)]).boxed()
}

fn op(faults: u32) -> impl Strategy<Value = OpSpec> {
    (
        kind(),
        len(),
        0..MAX_LEN,
        0..MAX_LEN,
        any::<bool>(),
        fault(faults),
    )
        .prop_map(|(kind, len, remote, local, signaled, fault)| OpSpec {
            kind,
            len,
            remote,
            local,
            signaled,
            fault,
        })
}

fn receive(faults: u32) -> impl Strategy<Value = ReceiveSpec> {
    let small = if faults == 0 {
        Just(MAX_LEN).boxed()
    } else {
        prop_oneof![
            40 => Just(MAX_LEN),
            4 => Just(4096usize),
            1 => 0..=64usize,
        ]
        .boxed()
    };
    let foreign = if faults == 0 {
        Just(false).boxed()
    } else {
        prop_oneof![60 => Just(false), 1 => Just(true)].boxed()
    };
    (small, foreign).prop_map(|(len, foreign)| ReceiveSpec { len, foreign })
}

fn step(faults: u32) -> impl Strategy<Value = Step> {
    let mut choices = vec![
        (
            6,
            (at(), 1..20usize)
                .prop_map(|(a, n)| Step::Poll(a, n))
                .boxed(),
        ),
        (
            20,
            (at(), op(faults))
                .prop_map(|(a, o)| Step::Post(a, o))
                .boxed(),
        ),
        (
            6,
            (at(), receive(faults))
                .prop_map(|(a, r)| Step::Receive(a, r))
                .boxed(),
        ),
        (1, at().prop_map(Step::Drain).boxed()),
    ];
    if faults > 0 {
        // Once in a hundred steps and more.
        let rare = at().prop_map(Step::Disconnect).boxed();
        let poll = at().prop_map(|a| Step::Poll(a, 1)).boxed();
        choices.push((1, Union::new_weighted(vec![(2, poll), (1, rare)]).boxed()));
    }
    Union::new_weighted(choices)
}

/// A third of the runs are without faults, so that long histories come about too.
pub(super) fn scenario() -> impl Strategy<Value = Scenario> {
    let faults = prop_oneof![1 => Just(0u32), 1 => Just(4u32), 1 => Just(16u32)];
    let shape = (
        1..=MAX_CONNS,
        prop_oneof![
            2 => Just(Srq::No),
            1 => Just(Srq::WithoutQueue),
            1 => Just(Srq::WithQueue)
        ],
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        2..=16usize,
        2..=8usize,
        any::<bool>(),
        side(),
    );
    (faults, shape)
        .prop_flat_map(|(faults, shape)| {
            let abrupt = shape.7 && faults > 0;
            let steps = prop::collection::vec(step(faults), 1..=MAX_STEPS);
            (Just(shape), Just(abrupt), steps)
        })
        .prop_map(|(shape, abrupt, steps)| {
            let (conns, srq, rcq, shared_channel, sleep, sq, rq, _, closer) = shape;
            Scenario {
                conns,
                srq,
                rcq,
                shared_channel,
                sleep,
                sq,
                rq,
                steps,
                abrupt,
                closer,
            }
        })
}
