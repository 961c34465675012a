// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! How two processes of one machine come to share memory.
//!
//! The active side makes a memory file and names it in its request: its process, its descriptor
//! there, and 16 random bytes that the memory contains. The passive side opens it through
//! `/proc`, which the kernel allows to the same user, looks for those bytes, leaves random bytes
//! of its own, and names them in its reply. So each knows that the other sees the same memory;
//! whatever goes wrong, the connection stays with TCP. Then each tries whether it may read the
//! other's memory as well, which systems grant more reluctantly, and do without if not.

use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};

use super::super::super::wire::Meeting;
use super::Local;
use super::shared::Shared;
use crate::sys::{env, interfaces};

/// What `RPMA_SOFT_CARRIER` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Shared memory if both ends can, else TCP.
    Auto,
    Tcp,
    /// Shared memory or no connection.
    Local,
}

impl Choice {
    /// Made once per process. `Err` is a value that means nothing.
    pub(crate) fn get() -> Result<Self, Errno> {
        static CHOICE: OnceLock<Option<Choice>> = OnceLock::new();
        CHOICE
            .get_or_init(|| match env::var(c"RPMA_SOFT_CARRIER") {
                None => Some(Choice::Auto),
                Some(value) => Self::parse(value.as_bytes()),
            })
            .ok_or(Errno::INVAL)
    }

    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        match value {
            b"auto" | b"" => Some(Choice::Auto),
            b"tcp" => Some(Choice::Tcp),
            b"local" => Some(Choice::Local),
            _ => None,
        }
    }
}

/// Whether the two ends of a TCP connection are on one host: only there are both its own.
pub(crate) fn is_one_host(source: &SocketAddr, destination: &SocketAddr) -> bool {
    let to = destination.ip().to_canonical();
    // Hosts on different links may have the same link-local address.
    let is_unique = !matches!(to, IpAddr::V6(v6) if v6.is_unicast_link_local());
    source.ip() == destination.ip() || to.is_loopback() || (is_unique && interfaces::have(to))
}

fn random() -> Result<[u8; 16], Errno> {
    let mut bytes = [0; 16];
    match getrandom(&mut bytes, GetRandomFlags::empty())? {
        16 => Ok(bytes),
        _ => Err(Errno::AGAIN),
    }
}

/// Memory that the active side offers.
pub(crate) struct Offer {
    shared: Shared,
    meeting: Meeting,
}

impl Offer {
    /// Makes the memory. `Err` says why there can be none.
    pub(crate) fn make() -> Result<Self, Errno> {
        let nonce = random()?;
        let shared = Shared::make(&nonce)?;
        let meeting = Meeting {
            pid: std::process::id(),
            fd: shared.raw_fd() as u32,
            addr: shared.address(),
            nonce,
        };
        Ok(Offer { shared, meeting })
    }

    /// What the request says of it.
    pub(crate) fn meeting(&self) -> Meeting {
        self.meeting
    }

    /// The carrier, if the reply shows that the other side has found the memory. Otherwise the
    /// socket comes back.
    pub(crate) fn accepted(self, reply: &Meeting, socket: OwnedFd) -> Result<Local, OwnedFd> {
        if self.shared.was_found(&reply.nonce) {
            Ok(Local::new(self.shared, socket, reply))
        } else {
            Err(socket)
        }
    }
}

/// Memory that the passive side has found.
pub(crate) struct Found {
    shared: Shared,
    offer: Meeting,
    meeting: Meeting,
}

impl Found {
    /// Looks for the memory that a request offers. `Err` says why it cannot be used.
    pub(crate) fn look(offer: &Meeting) -> Result<Self, Errno> {
        let path = format!("/proc/{}/fd/{}", offer.pid, offer.fd);
        // It may be anything, also what would wait or change when it is opened; so it is opened
        // only after a look at what it is, and by what was looked at: the name may mean something
        // else by now.
        let handle = open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&handle)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(Errno::INVAL);
        }
        // What this process may read, a peer of another user must not have read for it: the memory
        // of others, by naming them as the process to fetch from.
        if stat.st_uid != geteuid().as_raw() {
            return Err(Errno::ACCESS);
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
        let file = open(&path, flags, Mode::empty())?;
        let proof = random()?;
        let shared = Shared::find(file, &offer.nonce, &proof)?;
        let meeting = Meeting {
            pid: std::process::id(),
            fd: 0,
            addr: shared.address(),
            nonce: proof,
        };
        Ok(Found {
            shared,
            offer: *offer,
            meeting,
        })
    }

    /// What the reply says of it.
    pub(crate) fn meeting(&self) -> Meeting {
        self.meeting
    }

    /// The carrier.
    pub(crate) fn with(self, socket: OwnedFd) -> Local {
        Local::new(self.shared, socket, &self.offer)
    }
}
