// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What the library would do on this machine, as plain facts: for the program `rpma-info`, which
//! prints them. Each function goes the way that the library itself goes, so that the answer is
//! the one that a program gets.
//!
//! What lives here: asking. What may not: judging and wording, which is the program's part. Not
//! for other programs: it changes as `rpma-info` does.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};

use crate::device::{self, Location};
use crate::error::Error;
use crate::fabric::{self, Reason};
use crate::log::{self, Level};
use crate::peer::Peer;
use crate::soft;
use crate::sys::dl::Library;
use crate::sys::errno;
use crate::sys::mapping::Mapping;
use crate::verbs::context::{Capabilities, DeviceContext};
use crate::verbs::list::Opener;

/// One of the two fabrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fabric {
    /// RDMA devices, through libibverbs and librdmacm.
    Verbs,
    /// The software fabric.
    Soft,
}

/// Which fabric a program would get, and why.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The value of `RPMA_FABRIC`, if it is set.
    pub asked: Option<String>,
    /// The fabric; none if what was asked for cannot be had.
    pub fabric: Option<Fabric>,
    /// Why, in the words of the library's log.
    pub reason: String,
    /// Whether the library warns: software where hardware may be expected.
    pub warned: bool,
}

/// Makes the choice as the library does. The environment decides each time anew.
pub fn choice() -> Choice {
    let asked = fabric::asked().map(|value| value.to_string());
    match fabric::decide() {
        Ok((provider, reason)) => Choice {
            asked,
            fabric: Some(if std::ptr::eq(provider, soft::provider()) {
                Fabric::Soft
            } else {
                Fabric::Verbs
            }),
            warned: Reason::level(&reason) == Level::Warning,
            reason: reason.to_string(),
        },
        Err(refusal) => Choice {
            asked,
            fabric: None,
            reason: refusal.to_string(),
            warned: false,
        },
    }
}

/// What a device can do and how much of it.
#[derive(Debug, Clone)]
pub struct Abilities {
    /// Native flush, tried out: what the kernel offers may not work with this libibverbs.
    pub native_flush: bool,
    /// Native flush makes any memory durable, not only persistent memory.
    pub native_flush_to_persistence: bool,
    /// Native atomic write, tried out.
    pub native_atomic_write: bool,
    /// What of both the device offers, untried.
    pub offers_flush: bool,
    /// As above.
    pub offers_atomic_write: bool,
    /// On-demand paging for reads and writes.
    pub on_demand_paging: bool,
    /// The version of its firmware.
    pub firmware: String,
    /// Names of limits, as in `ibv_device_attr`, and their values.
    pub limits: Vec<(&'static str, u64)>,
}

/// One device.
#[derive(Debug, Clone)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// What it speaks.
    pub transport: &'static str,
    /// What it can do, or why it cannot be used.
    pub abilities: Result<Abilities, String>,
}

/// The devices of a fabric.
///
/// Errors: why they cannot be listed.
pub fn devices(of: Fabric) -> Result<Vec<Device>, String> {
    let opener = match of {
        Fabric::Soft => Opener::soft(),
        Fabric::Verbs => {
            let provider = fabric::system().map_err(|error| error.to_string())?;
            Opener::system(provider).map_err(|said| said.to_string())?
        }
    };
    let mut found = Vec::new();
    opener.for_each(|name, transport, device| {
        let abilities = match device {
            Ok(device) => match listening(|| abilities(device)) {
                (Ok(abilities), _) => Ok(abilities),
                (Err(error), said) => Err(last_words(error, said)),
            },
            Err(0) => Err(String::from("it cannot be opened")),
            Err(number) => Err(format!("it cannot be opened: {}", errno::Text(number))),
        };
        found.push(Device {
            name,
            transport,
            abilities,
        });
    });
    Ok(found)
}

fn abilities(device: DeviceContext) -> Result<Abilities, Error> {
    let attr = device.attributes(c"rpma_info")?;
    let offered = Capabilities::from_attributes(&attr);
    // What a peer finds out about its device.
    let peer = Peer::new(device)?;
    let (native, plain) = (peer.native(), &attr.orig_attr);
    let count = |number: std::ffi::c_int| u64::try_from(number).unwrap_or(0);
    let firmware: Vec<u8> = plain
        .fw_ver
        .iter()
        .map(|c| *c as u8)
        .take_while(|byte| *byte != 0)
        .collect();
    Ok(Abilities {
        native_flush: native.flush,
        native_flush_to_persistence: peer.flushes_persistently(),
        native_atomic_write: native.atomic_write,
        offers_flush: offered.flush,
        offers_atomic_write: offered.atomic_write,
        on_demand_paging: peer.on_demand_paging(),
        firmware: String::from_utf8_lossy(&firmware).into_owned(),
        limits: vec![
            ("max_qp", count(plain.max_qp)),
            ("max_qp_wr", count(plain.max_qp_wr)),
            ("max_sge", count(plain.max_sge)),
            ("max_cq", count(plain.max_cq)),
            ("max_cqe", count(plain.max_cqe)),
            ("max_srq", count(plain.max_srq)),
            ("max_srq_wr", count(plain.max_srq_wr)),
            ("max_pd", count(plain.max_pd)),
            ("max_mr", count(plain.max_mr)),
            ("max_mr_size", plain.max_mr_size),
            ("max_qp_rd_atom", count(plain.max_qp_rd_atom)),
        ],
    })
}

/// The device behind an address, asked for as a program does: as an address of this machine, or
/// as one of the other side, and for that one also the way there. `Ok(None)` if the address is
/// usable but belongs to no device in particular.
///
/// Errors: what the library's log says.
pub fn find(addr: &CStr, location: Location) -> Result<Option<String>, String> {
    let (found, said) = listening(|| {
        match location {
            Location::Local => device::find(addr, location),
            Location::Remote => device::reach(addr),
        }
        .map(|device| device.map(DeviceContext::name))
    });
    found.map_err(|error| last_words(error, said))
}

/// Opens a library by its name, as the loader finds it, for the rest of this process's life.
///
/// Errors: what the loader says.
pub fn open_library(file: &CStr) -> Result<(), String> {
    match Library::open(file) {
        Ok(_) => Ok(()),
        Err(said) => Err(said.to_string()),
    }
}

/// What a file is as memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durability {
    /// The kernel maps it so that what has left the CPU's caches is in the file (`MAP_SYNC`).
    pub sync_mapping: bool,
    /// A persistent flush writes cache lines back if the file is mapped in that way...
    pub direct_if_sync: bool,
    /// ...and if it is mapped in the ordinary one. Else it calls `msync`.
    pub direct_if_plain: bool,
    /// What cache lines are written back with.
    pub instruction: &'static str,
}

/// Maps the first `len` bytes of a file, and asks how a persistent flush of them would be done.
///
/// Errors: why it cannot be mapped.
pub fn durability(file: &File, len: usize) -> io::Result<Durability> {
    let direct = |mapping: &Mapping| {
        let (direct, _) = soft::durability(mapping.address(), len as u64);
        direct == len as u64
    };
    let plain = Mapping::new(file, len, false)?;
    let sync = Mapping::new(file, len, true).ok();
    let (_, instruction) = soft::durability(0, 0);
    Ok(Durability {
        sync_mapping: sync.is_some(),
        direct_if_sync: sync.as_ref().is_some_and(&direct),
        direct_if_plain: direct(&plain),
        instruction,
    })
}

/// What the log said since it was asked last.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Runs `ask` and gives what failures the log told of meanwhile.
fn listening<R>(ask: impl FnOnce() -> R) -> (R, Vec<String>) {
    log::observe(Level::Error, |_, text| {
        SAID.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(String::from(text));
    });
    let take = || std::mem::take(&mut *SAID.lock().unwrap_or_else(PoisonError::into_inner));
    drop(take());
    let result = ask();
    (result, take())
}

/// Why something failed: what the log says, or else the error's own text.
fn last_words(error: Error, said: Vec<String>) -> String {
    if said.is_empty() {
        return error.to_string();
    }
    said.join("; ")
}
