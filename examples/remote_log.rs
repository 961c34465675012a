// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! A log in another process's memory, in Rust.
//!
//! usage: remote_log [ADDR [PORT]]           both sides, in two threads (127.0.0.1, 7350)
//!        remote_log server ADDR PORT        one side
//!        remote_log client ADDR PORT        the other one
//!
//! The server offers memory and takes no part in what the client does with it: write a record,
//! flush it, move the log's tail by an atomic write, flush that. In the end the client tells by a
//! message how many records there are, and the server reads them from its own memory.

use std::error::Error as StdError;
use std::ffi::{CStr, CString};
use std::sync::mpsc;

use rpma::buffer::Buffer;
use rpma::conn::{Completion, ConnEvent, Connection, Operation, Transfer};
use rpma::conn_cfg::ConnConfig;
use rpma::conn_req::ConnRequest;
use rpma::cq::WorkCompletion;
use rpma::device::Location;
use rpma::ep::Endpoint;
use rpma::flush::FlushType;
use rpma::mr::{RemoteRegion, Usage};
use rpma::peer::Peer;

type Outcome<T> = Result<T, Box<dyn StdError + Send + Sync>>;

/// The tail is in the first 8 bytes, the records follow from here on.
const RECORDS: usize = 64;
const LOG_LEN: usize = 4096;
/// The count of records, as a message.
const MESSAGE_LEN: usize = 8;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["server", addr, port] => serve(&CString::new(*addr)?, &CString::new(*port)?, || {}),
        ["client", addr, port] => write_log(&CString::new(*addr)?, &CString::new(*port)?),
        [] => both(c"127.0.0.1", c"7350"),
        [addr] => both(&CString::new(*addr)?, c"7350"),
        [addr, port] => both(&CString::new(*addr)?, &CString::new(*port)?),
        _ => Err("usage: remote_log [ADDR [PORT]] | server ADDR PORT | client ADDR PORT".into()),
    }
}

/// Server and client in one process; the client begins when the server listens.
fn both(addr: &CStr, port: &CStr) -> Outcome<()> {
    let (listens, listening) = mpsc::channel();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            serve(addr, port, move || {
                let _ = listens.send(());
            })
        });
        if listening.recv().is_ok() {
            write_log(addr, port)?;
        }
        server
            .join()
            .map_err(|_| "the server's thread ended early")?
    })
}

fn serve(addr: &CStr, port: &CStr, listening: impl FnOnce()) -> Outcome<()> {
    let peer = Peer::at(addr, Location::Local)?;
    let log = Buffer::new(
        &peer,
        LOG_LEN,
        Usage::WRITE_DST.union(Usage::FLUSH_VISIBILITY),
    )?;
    let message = Buffer::new(&peer, MESSAGE_LEN, Usage::RECV)?;
    let endpoint = Endpoint::listen(peer, addr, port)?;
    listening();

    let request = endpoint.next_request(&ConnConfig::new(), None)?;
    // Posted before the connection is there, so that the message cannot come too early.
    request.recv(message.range(0, MESSAGE_LEN), 1)?;
    let connection = request.connect(&log.region().descriptor())?;
    expect(&connection, ConnEvent::Established)?;

    succeeded(connection.cq().wait_next()?)?;
    let told = number(&message, 0)?;
    expect(&connection, ConnEvent::Closed)?;
    connection.disconnect()?;

    let tail = number(&log, 0)?;
    let mut records = vec![0; tail.checked_sub(RECORDS).ok_or("the tail is wrong")?];
    log.load(RECORDS, &mut records)?;
    let text = String::from_utf8(records)?;
    for line in text.lines() {
        println!("server: {line}");
    }
    if text.lines().count() != told {
        return Err(format!("the client told of {told} records").into());
    }
    println!("server: all {told} records are there");
    Ok(())
}

fn write_log(addr: &CStr, port: &CStr) -> Outcome<()> {
    let peer = Peer::at(addr, Location::Remote)?;
    let source = Buffer::new(&peer, LOG_LEN, Usage::WRITE_SRC.union(Usage::SEND))?;
    let request = ConnRequest::outgoing(peer, addr, port, &ConnConfig::new(), None)?;
    let connection = request.connect(&[])?;
    expect(&connection, ConnEvent::Established)?;
    let log = RemoteRegion::from_descriptor(connection.private_data())?;

    let records = ["a first record", "another one", "and a last one"];
    let mut tail = RECORDS;
    for record in records {
        let line = format!("{record}\n");
        source.store(0, line.as_bytes())?;
        let transfer = Transfer {
            local: source.range(0, line.len()),
            remote: &log,
            remote_offset: tail,
        };
        connection.write(Some(transfer), quietly())?;
        flush(&connection, &log, tail, line.len())?;
        tail += line.len();
        // Only now does the record count: the tail moves all at once.
        let bytes = u64::try_from(tail)?.to_le_bytes();
        connection.atomic_write(&log, 0, &bytes, quietly())?;
        flush(&connection, &log, 0, bytes.len())?;
    }

    let count = u64::try_from(records.len())?;
    source.store(0, &count.to_le_bytes())?;
    connection.send(Some(source.range(0, MESSAGE_LEN)), loudly())?;
    succeeded(connection.cq().wait_next()?)?;
    println!("client: wrote {count} records");
    connection.disconnect()?;
    expect(&connection, ConnEvent::Closed)
}

/// Waits until all that was written to a part of the log can be seen by its owner.
fn flush(connection: &Connection, log: &RemoteRegion, offset: usize, len: usize) -> Outcome<()> {
    connection.flush(log, offset, len, FlushType::Visibility, loudly())?;
    succeeded(connection.cq().wait_next()?)
}

fn quietly() -> Operation {
    Operation {
        wr_id: 0,
        completion: Completion::OnError,
    }
}

fn loudly() -> Operation {
    Operation {
        wr_id: 0,
        completion: Completion::Always,
    }
}

fn succeeded(completion: WorkCompletion) -> Outcome<()> {
    match completion.status {
        0 => Ok(()),
        status => Err(format!("an operation failed with status {status}").into()),
    }
}

fn expect(connection: &Connection, event: ConnEvent) -> Outcome<()> {
    match connection.next_event()? {
        happened if happened == event => Ok(()),
        other => Err(format!("{other:?} where {event:?} was to come").into()),
    }
}

/// A number of 8 bytes in a buffer.
fn number(buffer: &Buffer, offset: usize) -> Outcome<usize> {
    let mut bytes = [0; 8];
    buffer.load(offset, &mut bytes)?;
    Ok(usize::try_from(u64::from_le_bytes(bytes))?)
}
