// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The statistics of a running process. They are in a memory file of its, which is found among
//! its descriptors: so this works from outside of a container, and the process does not notice.

use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use rpma::info::{self, Connection, Operations, Statistics};
use serde::Serialize;

use crate::limits::size;
use crate::{UNUSABLE, USABLE, json};

#[derive(Serialize)]
struct Report {
    tool: &'static str,
    version: &'static str,
    /// What the exit status says.
    usable: bool,
    pid: u32,
    /// Why there are none.
    problem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    statistics: Option<Process>,
}

#[derive(Serialize)]
struct Process {
    /// The number of the process as it sees itself: another one in a container.
    own_pid: u64,
    regions: u64,
    region_bytes: u64,
    queue_pairs_made: u64,
    queue_pairs_unshown: u64,
    connections: Vec<Link>,
}

#[derive(Serialize)]
struct Link {
    qp: u64,
    /// `created`, `connected`, `error` or `closed`.
    state: &'static str,
    local: Option<String>,
    peer: Option<String>,
    peer_qp: Option<u64>,
    carrier: Option<String>,
    out: Counts,
    r#in: Counts,
    outstanding: u64,
    send_queue: u64,
    receives_posted: u64,
    receives_used: u64,
    receive_queue: u64,
    failed: u64,
    /// What ended it; none if it was ended in agreement, or has not ended.
    error: Option<&'static str>,
}

#[derive(Serialize)]
struct Counts {
    writes: u64,
    reads: u64,
    flushes: u64,
    atomic_writes: u64,
    sends: u64,
    bytes: u64,
    bytes_read: u64,
}

pub(crate) fn report(pid: u32, as_json: bool) -> (String, u8) {
    let (statistics, problem) = match find(pid) {
        Ok(found) => (Some(found.into()), None),
        Err(problem) => (None, Some(problem)),
    };
    let report = Report {
        tool: "rpma-info",
        version: env!("CARGO_PKG_VERSION"),
        usable: problem.is_none(),
        pid,
        problem,
        statistics,
    };
    let text = if as_json {
        json(&report)
    } else {
        table(&report)
    };
    (text, if report.usable { USABLE } else { UNUSABLE })
}

fn find(pid: u32) -> Result<Statistics, String> {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => format!("there is no process {pid}"),
        io::ErrorKind::PermissionDenied => {
            format!("process {pid} is of another user: try as root, or as its user")
        }
        _ => format!("process {pid}: {error}"),
    };
    let prefix = format!("/memfd:{}", info::STATISTICS);
    let mut is_child = false;
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_ours = fs::read_link(&path)
            .is_ok_and(|target| target.as_os_str().to_string_lossy().starts_with(&prefix));
        if !is_ours {
            continue;
        }
        let read = File::open(&path).and_then(|file| info::statistics(&file));
        let Some(found) = read.map_err(failed)? else {
            return Err(format!("process {pid} has statistics of another version"));
        };
        if own_number(pid) == Some(found.pid) {
            return Ok(found);
        }
        // A forked child has its parent's descriptors, and may have statistics of its own as well.
        is_child = true;
    }
    Err(if is_child {
        format!(
            "process {pid} is a child of one that uses the software fabric, and has not used it itself"
        )
    } else {
        format!(
            "process {pid} does not use the software fabric (or another librpma than this project's)"
        )
    })
}

/// The number of a process in its own process namespace.
fn own_number(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

impl From<Statistics> for Process {
    fn from(found: Statistics) -> Self {
        Process {
            own_pid: found.pid,
            regions: found.regions,
            region_bytes: found.region_bytes,
            queue_pairs_made: found.made,
            queue_pairs_unshown: found.unshown,
            connections: found.connections.into_iter().map(Link::from).collect(),
        }
    }
}

impl From<Connection> for Link {
    fn from(found: Connection) -> Self {
        let was_connected = found.peer_qp != 0;
        Link {
            qp: found.qp,
            state: found.state,
            local: found.local.map(|address| address.to_string()),
            peer: found.peer.map(|address| address.to_string()),
            peer_qp: was_connected.then_some(found.peer_qp),
            carrier: was_connected.then_some(found.carrier),
            out: found.out.into(),
            r#in: found.incoming.into(),
            outstanding: found.outstanding,
            send_queue: found.send_queue,
            receives_posted: found.receives,
            receives_used: found.receives_used,
            receive_queue: found.receive_queue,
            failed: found.failed,
            error: error_text(found.error),
        }
    }
}

impl From<Operations> for Counts {
    fn from(found: Operations) -> Self {
        Counts {
            writes: found.writes,
            reads: found.reads,
            flushes: found.flushes,
            atomic_writes: found.atomic_writes,
            sends: found.sends,
            bytes: found.bytes,
            bytes_read: found.bytes_read,
        }
    }
}

/// Statuses of completions, as the software fabric has them.
fn error_text(status: u64) -> Option<&'static str> {
    Some(match status {
        // None, or flushed: nothing failed.
        0 | 5 => return None,
        1 => "local length error",
        4 => "local protection error",
        9 => "remote invalid request",
        10 => "remote access error",
        11 => "remote operation error",
        12 => "the peer does not answer any more",
        13 => "the peer posted no receive",
        _ => "another error",
    })
}

fn table(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = fill(&mut text, report);
    text
}

fn fill(text: &mut String, report: &Report) -> std::fmt::Result {
    let Some(process) = &report.statistics else {
        return writeln!(text, "{}", report.problem.as_deref().unwrap_or("?"));
    };
    let connections = &process.connections;
    let count = connections
        .iter()
        .filter(|c| c.state == "connected")
        .count();
    writeln!(
        text,
        "Process {}: {count} connections, {} regions of {} in all",
        report.pid,
        process.regions,
        size(process.region_bytes)
    )?;
    for link in connections {
        let peer = link.peer.as_deref().unwrap_or("nobody yet");
        let carrier = link.carrier.as_deref().unwrap_or("nothing yet");
        writeln!(
            text,
            "\nQP {}: {} with {peer} by {carrier}",
            link.qp, link.state
        )?;
        for (name, counts) in [("out", &link.out), ("in", &link.r#in)] {
            writeln!(
                text,
                "  {name:<12} {} writes, {} messages, {} atomic writes: {}; {} reads: {}; {} flushes",
                counts.writes,
                counts.sends,
                counts.atomic_writes,
                size(counts.bytes),
                counts.reads,
                size(counts.bytes_read),
                counts.flushes
            )?;
        }
        writeln!(
            text,
            "  {:<12} {} of {}",
            "outstanding", link.outstanding, link.send_queue
        )?;
        if link.receive_queue > 0 {
            writeln!(
                text,
                "  {:<12} {} posted, {} used by messages",
                "receives", link.receives_posted, link.receives_used
            )?;
        }
        if link.failed > 0 || link.error.is_some() {
            let error = link.error.unwrap_or("refused or not possible");
            writeln!(
                text,
                "  {:<12} {} operations: {error}",
                "failed", link.failed
            )?;
        }
    }
    Ok(())
}
