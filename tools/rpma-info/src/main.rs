// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! rpma-info: tells what librpma can do on this machine, and if it cannot, why not and what to do.
//!
//! The facts come from the library itself (`rpma::info`), so they are what a program would meet.
//! Each file makes one section of the report; `table` prints it for people, serde for machines.

mod address;
mod device;
mod fabric;
mod finding;
mod library;
mod limits;
mod options;
mod pmem;
mod process;
mod processes;
mod table;

use std::io::{self, Write};
use std::process::ExitCode;

use options::{Command, Options};
use serde::Serialize;

/// What was asked for can be used.
const USABLE: u8 = 0;
/// It cannot.
const UNUSABLE: u8 = 1;
/// The command line makes no sense, or the answer could not be written.
const FAILURE: u8 = 2;

/// All that is told; sections that were not asked for are absent.
#[derive(Serialize)]
struct Report {
    tool: &'static str,
    version: &'static str,
    /// What the exit status says.
    usable: bool,
    fabric: fabric::Fabric,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<Machine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<address::Address>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pmem: Option<pmem::Pmem>,
    /// Traps, and what to do about them.
    findings: Vec<finding::Finding>,
}

/// What does not depend on an address or a file.
#[derive(Serialize)]
struct Machine {
    libraries: Vec<library::Library>,
    devices: Vec<device::Device>,
    processes: processes::Processes,
    limits: limits::Limits,
}

fn main() -> ExitCode {
    let options = match options::parse() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("rpma-info: {error} (see rpma-info --help)");
            return ExitCode::from(FAILURE);
        }
    };
    let (text, status) = match &options.command {
        Command::Help => (String::from(options::HELP), USABLE),
        Command::Version => (format!("rpma-info {}\n", env!("CARGO_PKG_VERSION")), USABLE),
        Command::Read(target) => return processes::read(target),
        Command::Process(pid) => process::report(*pid, options.json),
        Command::Report => report(&options),
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::from(status),
        Err(error) => {
            eprintln!("rpma-info: cannot write: {error}");
            ExitCode::from(FAILURE)
        }
    }
}

fn report(options: &Options) -> (String, u8) {
    let mut findings = Vec::new();
    let fabric = fabric::look();
    let mut usable = fabric.chosen.is_some();
    if (options.is_overview() || options.address.is_some())
        && let Some(finding) = fabric.finding()
    {
        findings.push(finding);
    }
    let machine = options.is_overview().then(|| {
        let libraries = library::look(&mut findings);
        let devices = device::look(&fabric, &mut findings);
        usable &= devices.iter().any(|device| device.problem.is_none());
        Machine {
            processes: processes::look(),
            limits: limits::look(&fabric, &mut findings),
            libraries,
            devices,
        }
    });
    finding::check_environment(&fabric, &mut findings);
    let address = options.address.as_ref().map(|name| {
        let address = address::look(name, options.role, &fabric);
        usable &= address.usable;
        address
    });
    let pmem = options.pmem.as_ref().map(|file| {
        let pmem = pmem::look(file);
        usable &= pmem.problem.is_none();
        findings.extend(pmem.finding(&fabric));
        pmem
    });
    usable &= findings
        .iter()
        .all(|finding| finding.severity != finding::Severity::Problem);
    let report = Report {
        tool: "rpma-info",
        version: env!("CARGO_PKG_VERSION"),
        usable,
        fabric,
        machine,
        address,
        pmem,
        findings,
    };
    let text = if options.json {
        json(&report)
    } else {
        table::print(&report)
    };
    (text, if usable { USABLE } else { UNUSABLE })
}

/// Any part of a report, as JSON.
fn json(value: &impl Serialize) -> String {
    // Strings and numbers under names that are strings can always be written.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}
