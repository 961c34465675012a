// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Whether two processes of one machine can do without sockets: the software fabric then lets
//! them share memory, and copies large payloads straight from the memory of the one to the other.
//!
//! Tried out between this process and a child. The child reaches for its parent, who is no
//! descendant of it, as one program does for another.

use std::fs::{self, File};
use std::io::{IoSliceMut, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, ExitCode, Stdio};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::thread::CapabilitySet;
use serde::Serialize;

use crate::limits;
use crate::options::Target;

#[derive(Serialize)]
pub(crate) struct Processes {
    /// A memory file of one process, opened by another. Without it, connections go over TCP.
    pub(crate) shared_memory: Way,
    /// Copying from the memory of another process. Without it, large payloads go through the
    /// shared memory as well.
    pub(crate) direct_copy: Way,
    /// What Yama restricts: 0 nothing, 1 to descendants, 2 to administrators, 3 everything. None
    /// without Yama.
    pub(crate) ptrace_scope: Option<u32>,
    /// `none`, `strict` or `filter`.
    pub(crate) seccomp: &'static str,
    pub(crate) cap_sys_ptrace: bool,
    /// Whether this is a container's or another process namespace of its own.
    pub(crate) own_pid_namespace: bool,
}

#[derive(Serialize)]
pub(crate) struct Way {
    pub(crate) works: bool,
    /// Why not.
    pub(crate) problem: Option<String>,
    pub(crate) cure: Option<&'static str>,
}

/// What the child has to find.
static SECRET: u64 = 0x7270_6d61_2d69_6e66;
/// Exit statuses of the child: it found that, or something else; or an errno value.
const FOUND: u8 = 0;
const FOUND_OTHER: u8 = 255;

/// The first process namespace of a system has this number.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

pub(crate) fn look() -> Processes {
    let ptrace_scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let seccomp = match status_field("Seccomp:").as_deref() {
        Some("1") => "strict",
        Some("2") => "filter",
        _ => "none",
    };
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let (shared, copied) = match memory_file() {
        Err(error) => (Err(error), child(None)),
        Ok(file) => (child(Some(&file)), child(None)),
    };
    Processes {
        shared_memory: shared_memory(shared),
        direct_copy: direct_copy(copied, ptrace_scope, seccomp),
        ptrace_scope,
        seccomp,
        cap_sys_ptrace: limits::has(CapabilitySet::SYS_PTRACE),
        own_pid_namespace: namespace.as_os_str() != INITIAL_PID_NAMESPACE,
    }
}

impl Way {
    fn from(result: Result<(), Errno>, why: impl FnOnce(Errno) -> (String, &'static str)) -> Self {
        let (problem, cure) = result.err().map(why).unzip();
        Way {
            works: result.is_ok(),
            problem,
            cure,
        }
    }
}

fn shared_memory(result: Result<(), Errno>) -> Way {
    Way::from(result, |error| {
        (
            format!("opening a memory file of another process: {}", error.desc()),
            "mount /proc without hidepid, and let programs that connect to each other run as the same user; until then they use TCP",
        )
    })
}

fn direct_copy(result: Result<(), Errno>, scope: Option<u32>, seccomp: &str) -> Way {
    Way::from(result, |error| {
        let what = format!("process_vm_readv: {}", error.desc());
        match (error, scope) {
            (Errno::EPERM, Some(scope @ 1..)) => (
                format!("{what}: kernel.yama.ptrace_scope is {scope}"),
                "sysctl kernel.yama.ptrace_scope=0, or give the programs CAP_SYS_PTRACE; until then large payloads are copied once more",
            ),
            (Errno::EPERM | Errno::ENOSYS, _) if seccomp != "none" => (
                format!("{what}: a seccomp filter is in force, as container engines set one"),
                "docker or podman run --cap-add SYS_PTRACE, or a seccomp profile that allows process_vm_readv; until then large payloads are copied once more",
            ),
            (Errno::ENOSYS, _) => (
                format!("{what}: this kernel or sandbox has no such call"),
                "none: large payloads are copied once more",
            ),
            _ => (what, "none known: large payloads are copied once more"),
        }
    })
}

/// A file in memory that contains what the child has to find.
fn memory_file() -> Result<File, Errno> {
    let file = memfd_create("rpma-info", MemfdFlags::CLOEXEC)
        .map_err(|error| Errno::from_raw(error.raw_os_error()))?;
    let mut file = File::from(file);
    file.write_all(&SECRET.to_ne_bytes())
        .map_err(|_| Errno::EIO)?;
    Ok(file)
}

/// Has a child read what it has to find: in a file of this process, or else in its memory.
fn child(file: Option<&File>) -> Result<(), Errno> {
    let exe = std::env::current_exe().map_err(|_| Errno::ENOENT)?;
    let address = &raw const SECRET;
    let (option, place) = match file {
        Some(file) => ("--read-file-of", file.as_raw_fd() as usize),
        None => ("--read-memory-of", address as usize),
    };
    let status = Command::new(exe)
        .arg(option)
        .arg(std::process::id().to_string())
        .arg(place.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(number) => Err(Errno::from_raw(number)),
        None => Err(Errno::ECHILD),
    }
}

/// What that child does.
pub(crate) fn read(target: &Target) -> ExitCode {
    let mut bytes = [0; 8];
    let result = if target.is_file {
        File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{}/fd/{}", target.pid, target.place))
            .and_then(|mut file| file.read(&mut bytes))
            .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))
    } else {
        let remote = [RemoteIoVec {
            base: target.place,
            len: bytes.len(),
        }];
        let local = &mut [IoSliceMut::new(&mut bytes)];
        process_vm_readv(Pid::from_raw(target.pid), local, &remote)
    };
    ExitCode::from(match result {
        Ok(8) if u64::from_ne_bytes(bytes) == SECRET => FOUND,
        Ok(_) => FOUND_OTHER,
        Err(error) => u8::try_from(error as i32).unwrap_or(FOUND_OTHER),
    })
}

fn status_field(name: &str) -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(name))?;
    Some(String::from(line.get(name.len()..)?.trim()))
}
