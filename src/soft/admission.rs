// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Whom a listener lets in: the addresses and the numbers that the operator allows.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `RPMA_SOFT_ALLOW` | addresses and networks, with commas between them | everybody |
//! | `RPMA_SOFT_MAX_HANDSHAKES` | accepted sockets of a listener that have not said yet what they want | 1024, at most a quarter of the descriptors |
//! | `RPMA_SOFT_MAX_CONNECTIONS` | connections of the process that came in and were not deleted yet | no limit |
//!
//! Read when a listener begins to listen. A value that means nothing is an error, not a guess.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, getrlimit};

use crate::sys::env;
use crate::sys::fork::PerProcess;

/// Most sockets that may be silent at a time, if the operator sets no other limit.
const HANDSHAKES_MAX: usize = 1024;
/// Part of the descriptors that they may take: silence must not take those that the program needs.
const HANDSHAKES_SHARE: u64 = 4;

/// Connections of this process that came in.
static CONNECTIONS: PerProcess<AtomicUsize> = PerProcess::new();

/// Addresses with the same first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    /// IPv4 addresses are those that IPv6 sockets show them as.
    bits: u128,
    prefix: u32,
}

/// What a listener goes by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Admission {
    /// `None` for everybody.
    allowed: Option<Vec<Network>>,
    handshakes: Option<usize>,
    connections: Option<usize>,
}

/// A variable whose value means nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadSetting {
    variable: &'static str,
    value: String,
    wanted: &'static str,
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {:?} is not {}",
            self.variable, self.value, self.wanted
        )
    }
}

/// A connection that came in; it counts until this is dropped.
pub(super) struct Admitted(());

impl Drop for Admitted {
    fn drop(&mut self) {
        CONNECTIONS.get().fetch_sub(1, Ordering::AcqRel);
    }
}

impl Admission {
    /// What the environment says.
    pub(super) fn from_environment() -> Result<Self, BadSetting> {
        Self::from_texts(
            env::text(c"RPMA_SOFT_ALLOW").as_deref(),
            env::text(c"RPMA_SOFT_MAX_HANDSHAKES").as_deref(),
            env::text(c"RPMA_SOFT_MAX_CONNECTIONS").as_deref(),
        )
    }

    /// What the variables say, in the order of the table above.
    pub(super) fn from_texts(
        allowed: Option<&str>,
        handshakes: Option<&str>,
        connections: Option<&str>,
    ) -> Result<Self, BadSetting> {
        let handshakes = handshakes.map(|text| number("RPMA_SOFT_MAX_HANDSHAKES", text));
        let connections = connections.map(|text| number("RPMA_SOFT_MAX_CONNECTIONS", text));
        Ok(Admission {
            allowed: allowed.map(networks).transpose()?,
            handshakes: handshakes.transpose()?,
            connections: connections.transpose()?,
        })
    }

    pub(super) fn allows(&self, address: IpAddr) -> bool {
        let bits = to_bits(address);
        match &self.allowed {
            None => true,
            Some(networks) => networks.iter().any(|network| network.contains(bits)),
        }
    }

    /// How many accepted sockets may be silent at a time.
    pub(super) fn handshakes(&self) -> usize {
        self.handshakes.unwrap_or_else(|| {
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
            let share = usize::try_from(limit / HANDSHAKES_SHARE).unwrap_or(usize::MAX);
            share.clamp(1, HANDSHAKES_MAX)
        })
    }

    /// A place for one more connection; `None` if all are taken.
    pub(super) fn admit(&self) -> Option<Admitted> {
        let limit = self.connections.unwrap_or(usize::MAX);
        let more = |taken| (taken < limit).then_some(taken + 1);
        CONNECTIONS
            .get()
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .ok()
            .map(|_| Admitted(()))
    }
}

impl Network {
    /// An address, or an address with the number of bits that count.
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            None => (text, None),
            Some((address, prefix)) => (address, Some(prefix)),
        };
        let address: IpAddr = address.parse().ok()?;
        let width = match address {
            IpAddr::V4(_) => Ipv4Addr::BITS,
            IpAddr::V6(_) => Ipv6Addr::BITS,
        };
        let counting = match prefix {
            None => width,
            // No sign, no space, no leading zero that may be meant as octal.
            Some(digits) if !digits.bytes().all(|b| b.is_ascii_digit()) => return None,
            Some(digits) if digits.len() > 1 && digits.starts_with('0') => return None,
            Some(digits) => digits.parse().ok().filter(|bits| *bits <= width)?,
        };
        let network = Network {
            bits: to_bits(address),
            prefix: Ipv6Addr::BITS - width + counting,
        };
        // Bits behind those that count are a slip of the pen, or of one who means another network.
        (network.bits & !network.mask() == 0).then_some(network)
    }

    fn mask(&self) -> u128 {
        u128::MAX
            .checked_shl(Ipv6Addr::BITS - self.prefix)
            .unwrap_or(0)
    }

    fn contains(&self, bits: u128) -> bool {
        (self.bits ^ bits) & self.mask() == 0
    }
}

/// An IPv4 address is the same whether an IPv4 or an IPv6 socket shows it.
fn to_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn networks(text: &str) -> Result<Vec<Network>, BadSetting> {
    let bad = |value: &str| BadSetting {
        variable: "RPMA_SOFT_ALLOW",
        value: value.to_owned(),
        wanted: "an address, or a network such as 192.0.2.0/24",
    };
    text.split(',')
        .map(|part| Network::parse(part.trim()).ok_or_else(|| bad(part)))
        .collect()
}

fn number(variable: &'static str, text: &str) -> Result<usize, BadSetting> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits && number > 0 => Ok(number),
        _ => Err(BadSetting {
            variable,
            value: text.to_owned(),
            wanted: "a number above 0",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowing(text: &str) -> Admission {
        Admission {
            allowed: Some(networks(text).unwrap()),
            ..Admission::default()
        }
    }

    fn allows(admission: &Admission, address: &str) -> bool {
        admission.allows(address.parse().unwrap())
    }

    #[test]
    fn everybody_is_allowed_where_nothing_is_said() {
        let admission = Admission::default();
        assert!(allows(&admission, "192.0.2.1"));
        assert!(allows(&admission, "2001:db8::1"));
    }

    #[test]
    fn addresses_and_networks() {
        let admission = allowing("192.0.2.7, 198.51.100.128/25,2001:db8::/33,fd00::1");
        for yes in [
            "192.0.2.7",
            "::ffff:192.0.2.7",
            "198.51.100.128",
            "198.51.100.255",
            "2001:db8::1",
            "2001:db8:7fff:ffff::1",
            "fd00::1",
        ] {
            assert!(allows(&admission, yes), "{yes}");
        }
        for no in [
            "192.0.2.6",
            "198.51.100.127",
            "198.51.101.128",
            "2001:db8:8000::1",
            "fd00::2",
            "::192.0.2.7",
            "127.0.0.1",
            "::1",
        ] {
            assert!(!allows(&admission, no), "{no}");
        }
        assert!(allows(&allowing("0.0.0.0/0"), "203.0.113.9"));
        assert!(!allows(&allowing("0.0.0.0/0"), "2001:db8::1"));
        assert!(allows(&allowing("::/0"), "2001:db8::1"));
        assert!(allows(&allowing("::/0"), "203.0.113.9"));
    }

    #[test]
    fn what_means_nothing_is_an_error() {
        for bad in [
            "",
            ",",
            "192.0.2.1,",
            "localhost",
            "192.0.2",
            "192.0.2.1/33",
            "192.0.2.0/-1",
            "192.0.2.0/+24",
            "192.0.2.0/024",
            "192.0.2.0/",
            "192.0.2.1/24",
            "2001:db8::/129",
            "192.0.2.1 192.0.2.2",
            "192.0.2.1;192.0.2.2",
            "fe80::1%eth0",
        ] {
            assert!(networks(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "0", "-1", "+1", "1k", " 1", "18446744073709551616"] {
            assert!(number("X", bad).is_err(), "{bad:?}");
        }
        assert_eq!(number("X", "17"), Ok(17));
    }

    #[test]
    fn a_place_is_taken_until_it_is_given_back() {
        // Other tests of this process have connections, too.
        let taken = CONNECTIONS.get().load(Ordering::Acquire);
        let admission = Admission {
            connections: Some(taken + 1_000),
            ..Admission::default()
        };
        let places: Vec<_> = std::iter::from_fn(|| admission.admit()).collect();
        assert!(places.len() > 900 && places.len() < 1_100);
        assert!(admission.admit().is_none());
        drop(places);
        assert!(admission.admit().is_some());
    }
}
