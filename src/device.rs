// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Finding the device behind an address.

use std::ffi::{CStr, c_int};

use crate::conn_cfg::DEFAULT_TIMEOUT_MS;
use crate::error::Error;
use crate::fabric;
use crate::verbs::addr::{AddressInfo, Side};
use crate::verbs::cm::CmId;
use crate::verbs::context::DeviceContext;

/// Where an address is, seen from this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// It is an address of this machine.
    Local,
    /// It is an address of the other side.
    Remote,
}

impl Location {
    /// The location with this number in the C interface.
    pub fn from_number(number: c_int) -> Option<Self> {
        match number {
            0 => Some(Location::Local),
            1 => Some(Location::Remote),
            _ => None,
        }
    }
}

/// Whether the way to a remote address is known, and the device that leads there.
///
/// Errors: PROVIDER if the address cannot be found, no device leads there, or nobody answers.
pub(crate) fn reach(addr: &CStr) -> Result<Option<DeviceContext>, Error> {
    let provider = fabric::provider()?;
    let address = AddressInfo::look_up(provider, addr, None, Side::Active)?;
    let id = CmId::create(provider, None, c"rpma_conn_req_new")?;
    id.resolve_address(&address, addr, DEFAULT_TIMEOUT_MS)?;
    id.resolve_route(addr, DEFAULT_TIMEOUT_MS, c"rpma_conn_req_new")?;
    Ok(id.device())
}

/// The device that has a local address, or that leads to a remote one; none for a wildcard
/// address, which belongs to no device.
///
/// Errors: PROVIDER if there is none, or the address cannot be found.
pub(crate) fn find(addr: &CStr, location: Location) -> Result<Option<DeviceContext>, Error> {
    let provider = fabric::provider()?;
    let side = match location {
        Location::Local => Side::Passive,
        Location::Remote => Side::Active,
    };
    let address = AddressInfo::look_up(provider, addr, None, side)?;
    let id = CmId::create(provider, None, c"rpma_utils_get_ibv_context")?;
    match location {
        Location::Local => id.bind(&address, addr)?,
        Location::Remote => id.resolve_address(&address, addr, DEFAULT_TIMEOUT_MS)?,
    }
    Ok(id.device())
}
