// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Whether librpma can use an address: to listen at, or to connect to.

use std::ffi::CStr;

use rpma::device::Location;
use rpma::info;
use serde::Serialize;

use crate::fabric::Fabric;
use crate::options::Role;

#[derive(Serialize)]
pub(crate) struct Address {
    pub(crate) name: String,
    /// In the role that was asked about, or in any.
    pub(crate) usable: bool,
    /// To listen at; absent if it was not asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) local: Option<Use>,
    /// To connect to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remote: Option<Use>,
}

#[derive(Serialize)]
pub(crate) struct Use {
    pub(crate) usable: bool,
    pub(crate) device: Option<String>,
    /// Why not, in the words of the library's log.
    pub(crate) problem: Option<String>,
}

pub(crate) fn look(name: &CStr, role: Role, fabric: &Fabric) -> Address {
    let ask = |wanted, location| {
        (role == Role::Either || role == wanted).then(|| ask(name, location, fabric))
    };
    let local = ask(Role::Local, Location::Local);
    let remote = ask(Role::Remote, Location::Remote);
    let usable = |found: &Option<Use>| found.as_ref().is_some_and(|found| found.usable);
    Address {
        name: name.to_string_lossy().into_owned(),
        usable: usable(&local) || usable(&remote),
        local,
        remote,
    }
}

fn ask(name: &CStr, location: Location, fabric: &Fabric) -> Use {
    if fabric.kind.is_none() {
        return not(String::from("there is no fabric"));
    }
    match info::find(name, location) {
        Ok(Some(device)) => Use {
            usable: true,
            device: Some(device),
            problem: None,
        },
        // The wildcard address stands for all devices.
        Ok(None) if location == Location::Local && is_wildcard(name) => Use {
            usable: true,
            device: None,
            problem: None,
        },
        Ok(None) => not(String::from(
            "it belongs to no RDMA device: take an address of the device's network interface",
        )),
        Err(problem) => not(problem),
    }
}

fn not(problem: String) -> Use {
    Use {
        usable: false,
        device: None,
        problem: Some(problem),
    }
}

fn is_wildcard(name: &CStr) -> bool {
    let parsed = name.to_str().unwrap_or_default().parse();
    parsed.is_ok_and(|address: std::net::IpAddr| address.is_unspecified())
}
