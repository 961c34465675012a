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
use std::net::{Ipv6Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use crate::device::{self, Location};
use crate::error::Error;
use crate::fabric::{self, Reason};
use crate::log::{self, Level};
use crate::peer::Peer;
use crate::soft::{self, stats};
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

/// What a process that uses the software fabric has counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statistics {
    /// Its number, as it sees itself.
    pub pid: u64,
    /// Registered regions, and their bytes.
    pub regions: u64,
    /// As above.
    pub region_bytes: u64,
    /// Queue pairs made since it began; most are connections.
    pub made: u64,
    /// Queue pairs for which there was no room in the statistics.
    pub unshown: u64,
    /// Those that exist.
    pub connections: Vec<Connection>,
}

/// How many operations of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operations {
    /// Also with immediate data.
    pub writes: u64,
    /// Reads.
    pub reads: u64,
    /// Flushes.
    pub flushes: u64,
    /// Atomic writes.
    pub atomic_writes: u64,
    /// Messages, also with immediate data.
    pub sends: u64,
    /// Bytes of writes and messages.
    pub bytes: u64,
    /// Bytes of reads.
    pub bytes_read: u64,
}

/// One queue pair of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// The number of the queue pair, and of the peer's.
    pub qp: u64,
    /// As above; 0 if it was never connected.
    pub peer_qp: u64,
    /// `created`, `connected`, `error` or `closed`.
    pub state: &'static str,
    /// Own address, once connected.
    pub local: Option<SocketAddr>,
    /// The peer's.
    pub peer: Option<SocketAddr>,
    /// What carries it.
    pub carrier: String,
    /// Posted here, for the peer to execute.
    pub out: Operations,
    /// Asked for by the peer.
    pub incoming: Operations,
    /// Posted and not at their end.
    pub outstanding: u64,
    /// Room for those.
    pub send_queue: u64,
    /// Receives that were posted, and those that messages have used up.
    pub receives: u64,
    /// As above.
    pub receives_used: u64,
    /// Room for them; 0 with a shared receive queue.
    pub receive_queue: u64,
    /// Operations that failed.
    pub failed: u64,
    /// The status of the failure that ended it, as in `ibv_wc_status`; 0 for none.
    pub error: u64,
}

/// The name of the memory file that holds a process's statistics; what links in `/proc/PID/fd`
/// name, without what the kernel adds.
pub const STATISTICS: &str = stats::NAME;

/// Reads a process's statistics from its memory file; `None` if it is something else.
pub fn statistics(file: &File) -> io::Result<Option<Statistics>> {
    let mut page = vec![0; stats::HEAD_LEN];
    file.read_exact_at(&mut page, 0)?;
    let head = Part(&page);
    if head.word(stats::head::MAGIC) != stats::MAGIC {
        return Ok(None);
    }
    let count = head.word(stats::head::SLOTS);
    let mut slots = vec![0; usize::try_from(count).unwrap_or(0).min(1 << 20) * stats::WORDS * 8];
    file.read_exact_at(&mut slots, stats::HEAD_LEN as u64)?;
    Ok(Some(Statistics {
        pid: head.word(stats::head::PID),
        regions: head.word(stats::head::REGIONS),
        region_bytes: head.word(stats::head::REGION_BYTES),
        made: head.word(stats::head::MADE),
        unshown: head.word(stats::head::UNSHOWN),
        connections: slots
            .chunks_exact(stats::WORDS * 8)
            .filter_map(|slot| Part(slot).connection())
            .collect(),
    }))
}

/// Words of the file.
struct Part<'a>(&'a [u8]);

impl Part<'_> {
    fn word(&self, index: usize) -> u64 {
        let words = self.0.as_chunks::<8>().0;
        words.get(index).map_or(0, |word| u64::from_ne_bytes(*word))
    }

    /// The two words from an index, as bytes.
    fn bytes(&self, index: usize) -> [u8; 16] {
        let mut bytes = [0; 16];
        let parts = bytes.as_chunks_mut::<8>().0;
        for (offset, part) in parts.iter_mut().enumerate() {
            *part = self.word(index + offset).to_ne_bytes();
        }
        bytes
    }

    fn address(&self, words: usize, port: usize) -> Option<SocketAddr> {
        let bytes = self.bytes(words);
        let port = u16::try_from(self.word(port)).ok()?;
        let address = Ipv6Addr::from(bytes).to_canonical();
        (bytes != [0; 16]).then(|| SocketAddr::new(address, port))
    }

    fn operations(&self, from: usize, bytes: usize, bytes_read: usize) -> Operations {
        Operations {
            writes: self.word(from),
            reads: self.word(from + 1),
            flushes: self.word(from + 2),
            atomic_writes: self.word(from + 3),
            sends: self.word(from + 4),
            bytes: self.word(bytes),
            bytes_read: self.word(bytes_read),
        }
    }

    /// `None` for a slot that nobody uses.
    fn connection(&self) -> Option<Connection> {
        use stats::{state, word};
        let state = match self.word(word::STATE) {
            state::CREATED => "created",
            state::CONNECTED => "connected",
            state::ERROR => "error",
            state::CLOSED => "closed",
            _ => return None,
        };
        let out = self.operations(word::OUT, word::OUT_BYTES, word::READ_BYTES);
        let posted = out.writes + out.reads + out.flushes + out.atomic_writes + out.sends;
        let carrier = self.bytes(word::CARRIER);
        Some(Connection {
            qp: self.word(word::QP),
            peer_qp: self.word(word::PEER_QP),
            state,
            local: self.address(word::LOCAL, word::LOCAL_PORT),
            peer: self.address(word::PEER, word::PEER_PORT),
            carrier: String::from_utf8_lossy(&carrier)
                .trim_end_matches('\0')
                .into(),
            out,
            incoming: self.operations(word::IN, word::IN_BYTES, word::SERVED_BYTES),
            outstanding: posted.saturating_sub(self.word(word::DONE)),
            send_queue: self.word(word::SEND_SIZE),
            receives: self.word(word::RECEIVES),
            receives_used: self.word(word::RECEIVES_USED),
            receive_queue: self.word(word::RECEIVE_SIZE),
            failed: self.word(word::FAILED),
            error: self.word(word::ERROR),
        })
    }
}
