// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The report for people.

use std::fmt::Write;

use crate::device::{Abilities, Device};
use crate::finding::Severity;
use crate::limits::size;
use crate::{Machine, Report, address, pmem};

/// Lines of a name and a value, in sections.
struct Page(String);

impl Page {
    fn section(&mut self, title: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{title}");
    }

    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "  {name:<21} {value}");
    }
}

pub(crate) fn print(report: &Report) -> String {
    let mut page = Page(String::new());
    let chosen = match report.fabric.chosen {
        Some("verbs") => "RDMA verbs",
        Some(_) => "software",
        None => "none",
    };
    page.section(&format!("Fabric: {chosen}"));
    page.line("why", &report.fabric.reason);
    if let Some(machine) = &report.machine {
        print_machine(&mut page, machine);
    }
    if let Some(address) = &report.address {
        print_address(&mut page, address);
    }
    if let Some(pmem) = &report.pmem {
        print_pmem(&mut page, pmem);
    }
    for finding in &report.findings {
        let title = match finding.severity {
            Severity::Problem => "Problem",
            Severity::Warning => "Warning",
        };
        page.section(&format!("{title}: {}", finding.text));
        page.line("what to do", &finding.cure);
    }
    page.0
}

fn print_machine(page: &mut Page, machine: &Machine) {
    for device in &machine.devices {
        print_device(page, device);
    }
    page.section("Libraries");
    for library in &machine.libraries {
        let value = match (&library.path, &library.problem) {
            (Some(path), _) => {
                let ours = match library.is_ours {
                    Some(true) => " (this project's)",
                    Some(false) => " (another one)",
                    None => "",
                };
                let version = library.version.as_deref().unwrap_or("");
                format!("{version} {}{ours}", path.display())
            }
            (None, problem) => String::from(problem.as_deref().unwrap_or("not found")),
        };
        page.line(&library.name, value.trim_start());
    }
    let processes = &machine.processes;
    page.section("Between processes of this machine");
    for (name, way) in [
        ("shared memory", &processes.shared_memory),
        ("direct copy", &processes.direct_copy),
    ] {
        page.line(name, way.problem.as_deref().unwrap_or("works"));
        if let Some(cure) = way.cure {
            page.line("  what to do", cure);
        }
    }
    if processes.own_pid_namespace {
        page.line("note", "this is a process namespace of its own (a container): processes in others are reached over TCP");
    }
    page.section("Limits of a process");
    let limits = &machine.limits;
    let memlock = match (limits.memlock, limits.memlock_exempt) {
        (None, _) => String::from("not limited"),
        (Some(bytes), true) => format!("{}, but this user is exempt", size(bytes)),
        (Some(bytes), false) => size(bytes),
    };
    page.line("locked memory", memlock);
    let nofile = |count: Option<u64>| count.map_or(String::from("not limited"), |n| n.to_string());
    page.line(
        "open descriptors",
        format!(
            "{} (up to {})",
            nofile(limits.nofile),
            nofile(limits.nofile_max)
        ),
    );
}

fn print_device(page: &mut Page, device: &Device) {
    page.section(&format!("Device {}", device.name));
    if let Some(problem) = &device.problem {
        page.line("not usable", problem);
    }
    if let Some(able) = &device.abilities {
        page.line(
            "native flush",
            native(able.native_flush, able.offers_flush, flush_note(able)),
        );
        page.line(
            "native atomic write",
            native(able.native_atomic_write, able.offers_atomic_write, ""),
        );
        page.line(
            "on-demand paging",
            if able.on_demand_paging { "yes" } else { "no" },
        );
        page.line("transport", device.transport);
        page.line("firmware", &able.firmware);
        let limits: Vec<String> = able
            .limits
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        for (number, some) in limits.chunks(4).enumerate() {
            page.line(if number == 0 { "limits" } else { "" }, some.join(", "));
        }
    }
    for port in &device.ports {
        let addresses: Vec<String> = port.addresses.iter().map(ToString::to_string).collect();
        let addresses = if addresses.is_empty() {
            String::from("no address")
        } else {
            addresses.join(", ")
        };
        page.line(
            &format!("port {}", port.number),
            format!(
                "{}, {} {}: {addresses}",
                port.state,
                port.link_layer,
                port.network_device.as_deref().unwrap_or("")
            ),
        );
    }
}

fn flush_note(able: &Abilities) -> &'static str {
    if able.native_flush_to_persistence {
        ", to persistence too"
    } else {
        ", to visibility only; to persistence by reading"
    }
}

fn native(has: bool, offered: bool, note: &str) -> String {
    match (has, offered) {
        (true, _) => format!("yes{note}"),
        (false, true) => String::from("no: the device has it, but not with this libibverbs"),
        (false, false) => String::from("no: done in another way"),
    }
}

fn print_address(page: &mut Page, address: &address::Address) {
    page.section(&format!("Address {}", address.name));
    let roles = [
        ("to listen at", &address.local),
        ("to connect to", &address.remote),
    ];
    for (name, found) in roles {
        let Some(found) = found else { continue };
        let value = match (found.usable, &found.device, &found.problem) {
            (true, Some(device), _) => format!("yes, on {device}"),
            (true, None, _) => String::from("yes, on all devices"),
            (false, _, problem) => format!("no: {}", problem.as_deref().unwrap_or("?")),
        };
        page.line(name, value);
    }
}

fn print_pmem(page: &mut Page, pmem: &pmem::Pmem) {
    page.section(&format!("File {}", pmem.file.display()));
    page.line("what it is", pmem.summary());
    if let Some(name) = &pmem.file_system {
        page.line("file system", name);
    }
    let Some(plain) = pmem.flush_if_plain else {
        return;
    };
    match pmem.flush_if_sync {
        Some(sync) if sync != plain => {
            page.line("flush, MAP_SYNC", by(sync));
            page.line("flush, mapped plainly", by(plain));
        }
        _ => page.line("persistent flush", by(plain)),
    }
}

fn by(how: &str) -> String {
    if how == "msync" {
        String::from("by msync, which waits for the disk")
    } else {
        format!("by writing cache lines back ({how})")
    }
}
