// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The devices of the chosen fabric: abilities, limits, ports and their addresses.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use rpma::info;
use serde::Serialize;

use crate::fabric::Fabric;
use crate::finding::{Finding, Severity};

#[derive(Serialize)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) transport: &'static str,
    /// Why it cannot be used.
    pub(crate) problem: Option<String>,
    #[serde(flatten)]
    pub(crate) abilities: Option<Abilities>,
    /// None of the software fabric, which uses all addresses of the machine.
    pub(crate) ports: Vec<Port>,
}

#[derive(Serialize)]
pub(crate) struct Abilities {
    pub(crate) native_flush: bool,
    pub(crate) native_flush_to_persistence: bool,
    pub(crate) native_atomic_write: bool,
    /// The device would have them, but not with this libibverbs.
    pub(crate) offers_flush: bool,
    pub(crate) offers_atomic_write: bool,
    pub(crate) on_demand_paging: bool,
    pub(crate) firmware: String,
    pub(crate) limits: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
pub(crate) struct Port {
    pub(crate) number: u32,
    /// `ACTIVE`, or as the kernel says it.
    pub(crate) state: String,
    pub(crate) link_layer: String,
    pub(crate) network_device: Option<String>,
    /// Those that the connection manager knows this port by.
    pub(crate) addresses: Vec<IpAddr>,
}

pub(crate) fn look(fabric: &Fabric, findings: &mut Vec<Finding>) -> Vec<Device> {
    let Some(kind) = fabric.kind else {
        return Vec::new();
    };
    let found = match info::devices(kind) {
        Ok(found) => found,
        Err(said) => {
            let text = format!("the devices cannot be listed: {said}");
            let cure = "install libibverbs1 and librdmacm1 (rdma-core)";
            findings.push(Finding::new("no-device", Severity::Problem, text, cure));
            return Vec::new();
        }
    };
    let devices: Vec<Device> = found.into_iter().map(describe).collect();
    if kind == info::Fabric::Verbs {
        if devices.is_empty() {
            findings.push(Finding::new(
                "no-device",
                Severity::Problem,
                "RDMA verbs were asked for, but libibverbs lists no device",
                "load the device's driver and install ibverbs-providers (`rdma link` and `ibv_devices` list devices), or set RPMA_FABRIC=soft",
            ));
        }
        check(&devices, findings);
    }
    devices
}

fn describe(device: info::Device) -> Device {
    let ports = ports(&device.name);
    let (abilities, problem) = match device.abilities {
        Ok(able) => (Some(able), None),
        Err(problem) => (None, Some(problem)),
    };
    Device {
        name: device.name,
        transport: device.transport,
        problem,
        ports,
        abilities: abilities.map(|able| Abilities {
            native_flush: able.native_flush,
            native_flush_to_persistence: able.native_flush_to_persistence,
            native_atomic_write: able.native_atomic_write,
            offers_flush: able.offers_flush,
            offers_atomic_write: able.offers_atomic_write,
            on_demand_paging: able.on_demand_paging,
            firmware: able.firmware,
            limits: able.limits.into_iter().collect(),
        }),
    }
}

fn check(devices: &[Device], findings: &mut Vec<Finding>) {
    let none_works = devices.iter().all(|device| device.problem.is_some());
    for device in devices {
        let name = &device.name;
        if let Some(problem) = &device.problem {
            findings.push(Finding::new(
                "device-unusable",
                if none_works {
                    Severity::Problem
                } else {
                    Severity::Warning
                },
                format!("{name} cannot be used: {problem}"),
                "the user needs access to /dev/infiniband/uverbs*, in a container the device itself (docker run --device /dev/infiniband/...)",
            ));
        }
        for port in &device.ports {
            let number = port.number;
            if port.state != "ACTIVE" {
                findings.push(Finding::new(
                    "port-down",
                    Severity::Warning,
                    format!("port {number} of {name} is {}", port.state),
                    "bring its network device up and look at the cable and the switch; InfiniBand needs a subnet manager too",
                ));
            } else if port.addresses.is_empty() {
                findings.push(Finding::new(
                    "no-address",
                    Severity::Warning,
                    format!("port {number} of {name} has no IP address, and connections are made by IP address"),
                    "give its network device one (ip addr add ADDRESS dev DEVICE)",
                ));
            }
        }
    }
    if !devices.is_empty() && !Path::new("/dev/infiniband/rdma_cm").exists() {
        findings.push(Finding::new(
            "no-rdma-cm",
            Severity::Problem,
            "there is no /dev/infiniband/rdma_cm, without which no connection can be made",
            "modprobe rdma_ucm; in a container, pass /dev/infiniband/rdma_cm on",
        ));
    }
}

/// What sysfs tells of a device's ports.
fn ports(device: &str) -> Vec<Port> {
    let folder = PathBuf::from("/sys/class/infiniband")
        .join(device)
        .join("ports");
    let mut ports: Vec<Port> = entries(&folder)
        .filter_map(|path| {
            let number = path.file_name()?.to_str()?.parse().ok()?;
            Some(port(number, &path))
        })
        .collect();
    ports.sort_by_key(|port| port.number);
    ports
}

fn port(number: u32, folder: &Path) -> Port {
    // `4: ACTIVE`
    let state = text(&folder.join("state")).unwrap_or_default();
    let state = state.rsplit(": ").next().unwrap_or_default();
    let mut addresses: Vec<IpAddr> = entries(&folder.join("gids"))
        .filter_map(|gid| address(&text(&gid)?))
        .collect();
    addresses.sort();
    addresses.dedup();
    Port {
        number,
        state: String::from(state),
        link_layer: text(&folder.join("link_layer")).unwrap_or_default(),
        network_device: entries(&folder.join("gid_attrs/ndevs")).find_map(|path| text(&path)),
        addresses,
    }
}

/// The IP address behind a RoCE GID. Link-local ones are left out: programs cannot use them as
/// they are.
fn address(gid: &str) -> Option<IpAddr> {
    let address: Ipv6Addr = gid.parse().ok()?;
    if address.is_unspecified() || address.is_unicast_link_local() {
        return None;
    }
    Some(address.to_canonical())
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

fn text(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(String::from(text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_out_of_gids() {
        assert_eq!(
            address("0000:0000:0000:0000:0000:ffff:c0a8:4d01"),
            "192.168.77.1".parse().ok()
        );
        assert_eq!(
            address("fd77:0000:0000:0000:0000:0000:0000:0001"),
            "fd77::1".parse().ok()
        );
        assert_eq!(address("fe80:0000:0000:0000:0011:22ff:fe33:4455"), None);
        assert_eq!(address("0000:0000:0000:0000:0000:0000:0000:0000"), None);
        assert_eq!(address("nonsense"), None);
    }
}
