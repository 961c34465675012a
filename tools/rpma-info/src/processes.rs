// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Whether processes of one machine can exchange data without a socket: the software fabric then
//! has one process copy straight from the memory of the other.
//!
//! Tried out between this process and a child. The child reads its parent, who is no descendant
//! of it, as two programs are to each other.

use std::fs;
use std::io::IoSliceMut;
use std::process::{Command, ExitCode, Stdio};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use rustix::process::{PTracer, set_ptracer};
use rustix::thread::CapabilitySet;
use serde::Serialize;

use crate::limits;
use crate::options::Target;

#[derive(Serialize)]
pub(crate) struct Processes {
    /// Whether one process can copy from the memory of another of the same user.
    pub(crate) works: bool,
    /// It can if the other one permits it, which the software fabric does.
    pub(crate) needs_permission: bool,
    /// What Yama restricts: 0 nothing, 1 to descendants and whoever was permitted, 2 to
    /// administrators, 3 everything. None without Yama.
    pub(crate) ptrace_scope: Option<u32>,
    /// `none`, `strict` or `filter`.
    pub(crate) seccomp: &'static str,
    pub(crate) cap_sys_ptrace: bool,
    /// Whether this is a container's or another process namespace of its own.
    pub(crate) own_pid_namespace: bool,
    /// Why not.
    pub(crate) problem: Option<String>,
    pub(crate) cure: Option<String>,
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
    let plain = try_reading();
    let mut permitted = None;
    if plain == Err(Errno::EPERM) && set_ptracer(PTracer::Any).is_ok() {
        permitted = Some(try_reading());
        // There is nothing to be done if the permission cannot be taken back.
        let _ = set_ptracer(PTracer::None);
    }
    let needs_permission = permitted == Some(Ok(()));
    let works = plain.is_ok() || needs_permission;
    let (problem, cure) = match plain {
        Err(error) if !works => why(error, ptrace_scope, seccomp),
        _ => (None, None),
    };
    Processes {
        works,
        needs_permission,
        ptrace_scope,
        seccomp,
        cap_sys_ptrace: limits::has(CapabilitySet::SYS_PTRACE),
        own_pid_namespace: namespace.as_os_str() != INITIAL_PID_NAMESPACE,
        problem,
        cure,
    }
}

fn why(error: Errno, scope: Option<u32>, seccomp: &str) -> (Option<String>, Option<String>) {
    let text = |problem: String, cure: &str| (Some(problem), Some(String::from(cure)));
    match (error, scope) {
        (Errno::EPERM, Some(scope @ 1..)) => text(
            format!(
                "process_vm_readv: {}: kernel.yama.ptrace_scope is {scope}",
                error.desc()
            ),
            "sysctl kernel.yama.ptrace_scope=1, or 0; connections go over TCP until then",
        ),
        (Errno::EPERM | Errno::ENOSYS, _) if seccomp != "none" => text(
            format!(
                "process_vm_readv: {}: a seccomp filter is in force, as container engines set one",
                error.desc()
            ),
            "docker or podman run --cap-add SYS_PTRACE, or a seccomp profile that allows process_vm_readv and process_vm_writev; connections go over TCP until then",
        ),
        (Errno::ENOSYS, _) => text(
            format!(
                "process_vm_readv: {}: this kernel or sandbox has no such call",
                error.desc()
            ),
            "none: connections go over TCP",
        ),
        _ => text(
            format!("process_vm_readv: {}", error.desc()),
            "none known: connections go over TCP",
        ),
    }
}

/// Has a child read a value of this process.
fn try_reading() -> Result<(), Errno> {
    let exe = std::env::current_exe().map_err(|_| Errno::ENOENT)?;
    let address = &raw const SECRET;
    let status = Command::new(exe)
        .arg("--read-from")
        .arg(std::process::id().to_string())
        .arg((address as usize).to_string())
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
    let remote = [RemoteIoVec {
        base: target.address,
        len: bytes.len(),
    }];
    let result = process_vm_readv(
        Pid::from_raw(target.pid),
        &mut [IoSliceMut::new(&mut bytes)],
        &remote,
    );
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
