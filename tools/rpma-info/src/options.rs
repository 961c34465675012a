// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The command line.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use lexopt::prelude::*;

pub(crate) const HELP: &str = "\
usage: rpma-info [--json]
       rpma-info [--json] [--local | --remote] ADDRESS
       rpma-info [--json] --pmem FILE
       rpma-info [--json] --pid PID

Tells what librpma can do on this machine and, if it cannot, why not and what
to do. Without ADDRESS and --pmem: the fabric, the devices and their abilities,
the libraries, limits, and usual traps.

  ADDRESS       can librpma use this address or host name: to listen at (local),
                to connect to (remote)?
  --local       only whether it can be listened at
  --remote      only whether it can be connected to
  --pmem FILE   what FILE is as persistent memory, and how a persistent flush
                of it is done
  --pid PID     what a running process does on the software fabric: its
                connections, and what it has moved and still has to
  --json        for programs
  -h, --help    this text
  -V, --version the version

RPMA_FABRIC in the environment decides on the fabric, as it does for programs.

Exit status: 0 what was asked for can be used (without ADDRESS and FILE: there
is a fabric with a device; for PID: it has statistics), 1 it cannot, 2 the command line makes no sense.
";

/// For which side of a connection an address has to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Either,
    Local,
    Remote,
}

/// A place in another process, for the child that tries to read it.
pub(crate) struct Target {
    pub(crate) pid: i32,
    /// A descriptor, or an address.
    pub(crate) place: usize,
    pub(crate) is_file: bool,
}

pub(crate) enum Command {
    Report,
    /// The statistics of a process.
    Process(u32),
    Help,
    Version,
    /// Not for people: see `processes`.
    Read(Target),
}

pub(crate) struct Options {
    pub(crate) command: Command,
    pub(crate) json: bool,
    pub(crate) address: Option<CString>,
    pub(crate) role: Role,
    pub(crate) pmem: Option<PathBuf>,
}

impl Options {
    /// Whether nothing in particular was asked for.
    pub(crate) fn is_overview(&self) -> bool {
        self.address.is_none() && self.pmem.is_none()
    }
}

pub(crate) fn parse() -> Result<Options, lexopt::Error> {
    let mut options = Options {
        command: Command::Report,
        json: false,
        address: None,
        role: Role::Either,
        pmem: None,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Short('h') | Long("help") => options.command = Command::Help,
            Short('V') | Long("version") => options.command = Command::Version,
            Long("json") => options.json = true,
            Long("local") => options.role = role(options.role, Role::Local)?,
            Long("remote") => options.role = role(options.role, Role::Remote)?,
            Long("pmem") => options.pmem = Some(PathBuf::from(parser.value()?)),
            Long("pid") => options.command = Command::Process(parser.value()?.parse()?),
            Long(option @ ("read-file-of" | "read-memory-of")) => {
                let is_file = option == "read-file-of";
                options.command = Command::Read(Target {
                    pid: parser.value()?.parse()?,
                    place: parser.value()?.parse()?,
                    is_file,
                });
            }
            Value(value) if options.address.is_none() => options.address = Some(c_string(value)?),
            arg => return Err(arg.unexpected()),
        }
    }
    if matches!(options.command, Command::Process(_)) && !options.is_overview() {
        return Err("--pid goes with neither an address nor --pmem".into());
    }
    if options.role != Role::Either && options.address.is_none() {
        return Err("--local and --remote need an address".into());
    }
    Ok(options)
}

fn role(before: Role, now: Role) -> Result<Role, lexopt::Error> {
    if before == Role::Either || before == now {
        Ok(now)
    } else {
        Err("--local and --remote exclude each other".into())
    }
}

fn c_string(value: OsString) -> Result<CString, lexopt::Error> {
    match CString::new(value.into_vec()) {
        Ok(text) if !text.is_empty() => Ok(text),
        _ => Err("the address is empty".into()),
    }
}
