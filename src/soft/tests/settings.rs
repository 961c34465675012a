// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Whatever the operator writes into the environment, and the program into an address: what the
//! fuzzer does, and what replays its corpus.

use std::ffi::{CString, c_int};
use std::net::{IpAddr, Ipv6Addr};

use super::super::admission::Admission;
use super::super::carrier::local::offer::Choice;
use super::*;
use crate::fabric::wish_of;
use crate::log::Level;
use crate::sys::env::Value;

const RAI_NUMERICHOST: c_int = 2;

/// Takes the bytes as the value of each variable, and as an address with a port behind a space.
pub fn read(bytes: &[u8]) {
    let bytes = bytes.split(|b| *b == 0).next().unwrap_or_default();
    let Ok(string) = CString::new(bytes) else {
        return;
    };
    words(&Value::new(&string), bytes);
    let text = String::from_utf8_lossy(bytes);
    allow(&text);
    number(&text);
    let (node, service) = text.split_once(' ').unwrap_or((&text, ""));
    address(node, service);
}

/// Variables whose values are words.
fn words(value: &Value, bytes: &[u8]) {
    let seen = value.as_bytes();
    assert_eq!(seen, &bytes[..bytes.len().min(64)]);
    // Also what is no text can be shown.
    assert!(!value.to_string().is_empty() || seen.is_empty());
    let known: [&[u8]; 4] = [b"", b"auto", b"verbs", b"soft"];
    assert_eq!(wish_of(seen).is_some(), known.contains(&seen));
    let known: [&[u8]; 4] = [b"", b"auto", b"tcp", b"local"];
    assert_eq!(Choice::parse(seen).is_some(), known.contains(&seen));
    let level = value.as_str().and_then(Level::from_name);
    let lower = seen.to_ascii_lowercase();
    let known: [&[u8]; 7] = [
        b"disabled",
        b"fatal",
        b"error",
        b"warning",
        b"notice",
        b"info",
        b"debug",
    ];
    assert_eq!(level.is_some(), known.contains(&&lower[..]));
}

/// The list of those who may connect.
fn allow(text: &str) {
    let whole = Admission::from_texts(Some(text), None, None);
    let mut each_is_good = true;
    for part in text.split(',') {
        let Ok(alone) = Admission::from_texts(Some(part), None, None) else {
            each_is_good = false;
            continue;
        };
        let part = part.trim();
        let (address, prefix) = part.split_once('/').unwrap_or((part, ""));
        let address: IpAddr = address.parse().unwrap();
        let (bits, width) = match address {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped().to_bits(), 32),
            IpAddr::V6(v6) => (v6.to_bits(), 128),
        };
        let prefix: u32 = if prefix.is_empty() {
            width
        } else {
            prefix.parse().unwrap()
        };
        assert!(prefix <= width);
        let other = |at: u32| IpAddr::from(Ipv6Addr::from_bits(bits ^ (1 << at)));
        assert!(alone.allows(address));
        if let Ok(whole) = &whole {
            assert!(whole.allows(address));
        }
        // The last bit that counts, and the first that does not.
        if prefix > 0 {
            assert!(!alone.allows(other(width - prefix)), "{part}");
        }
        if prefix < width {
            assert!(alone.allows(other(width - prefix - 1)), "{part}");
        }
    }
    assert_eq!(whole.is_ok(), each_is_good);
    if let Err(bad) = whole {
        assert!(bad.to_string().starts_with("RPMA_SOFT_ALLOW: "));
    }
}

/// A limit.
fn number(text: &str) {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let expected = text.parse().ok().filter(|n| is_number && *n > 0usize);
    match Admission::from_texts(None, Some(text), None) {
        Ok(admission) => assert_eq!(Some(admission.handshakes()), expected),
        Err(bad) => {
            assert_eq!(expected, None);
            assert!(bad.to_string().starts_with("RPMA_SOFT_MAX_HANDSHAKES: "));
        }
    }
    assert_eq!(
        Admission::from_texts(None, None, Some(text)).is_ok(),
        expected.is_some()
    );
}

/// What a program connects to. Numbers only: names would be asked of the network.
fn address(node: &str, service: &str) {
    let (Ok(c_node), Ok(c_service)) = (CString::new(node), CString::new(service)) else {
        return;
    };
    // SAFETY: all zeros are hints that restrict nothing.
    let mut hints: rdma_addrinfo = unsafe { std::mem::zeroed() };
    hints.ai_flags = RAI_NUMERICHOST;
    // SAFETY: valid strings and hints.
    let found = unsafe { addrinfo::resolve(c_node.as_ptr(), c_service.as_ptr(), &hints) };
    let is_port = !service.is_empty() && service.bytes().all(|b| b.is_ascii_digit());
    let expected = match (node.parse::<IpAddr>(), service.parse::<u16>()) {
        (Ok(address), Ok(port)) if is_port => Some(SocketAddr::new(address, port)),
        _ => None,
    };
    let Ok(info) = found else {
        assert_eq!(expected, None);
        return;
    };
    // SAFETY: a valid entry.
    let shown = unsafe { addrinfo::read_address((*info).ai_dst_addr.cast()) }.unwrap();
    // SAFETY: from resolve, and used no more.
    unsafe { addrinfo::free(info) };
    // The resolver takes more than Rust does, such as 127.1, or a name for the port.
    if let Some(expected) = expected {
        assert_eq!(shown, expected);
    }
    let storage = addrinfo::to_storage(&shown);
    // SAFETY: a valid address.
    let back = unsafe { addrinfo::read_address((&raw const storage).cast()) };
    assert_eq!(back, Some(shown));
}

#[test]
fn settings_survive_their_corpus() {
    for seed in super::feed::seeds("settings") {
        read(&seed);
    }
}
