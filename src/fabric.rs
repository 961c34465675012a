// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The choice of the fabric: real verbs where there is an RDMA device, else the software fabric.
//!
//! Made once per process, at the first call that needs a fabric; `RPMA_FABRIC` decides otherwise.

use std::ffi::CStr;
use std::fmt;
use std::ptr::NonNull;
use std::sync::OnceLock;

use once_cell::race::OnceRef;
use rdma_sys::ibv_context;

use crate::error::Error;
use crate::log::{Level, log_at, log_error};
use crate::soft;
use crate::sys::env;
use crate::verbs::context::DeviceContext;
use crate::verbs::provider::{self, LoadError, Provider};

/// The name under which this file's records appear in the log.
const FUNCTION: &CStr = c"rpma_fabric";

/// The fabric of this process. Whoever chooses first decides; nobody waits for another thread
/// meanwhile, since a log function of the program's may be at work there.
static CHOSEN: OnceRef<'static, Provider> = OnceRef::new();

/// The system's libraries, once loaded.
static SYSTEM: OnceLock<Provider> = OnceLock::new();

/// What `RPMA_FABRIC` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Auto,
    Verbs,
    Soft,
}

/// Why a fabric was chosen.
pub(crate) enum Reason {
    AsAsked(&'static str),
    DeviceThere,
    NoDevice,
    Unusable(LoadError),
}

impl Reason {
    /// Software where hardware may be expected is worth a warning.
    pub(crate) fn level(&self) -> Level {
        match self {
            Reason::NoDevice => Level::Warning,
            Reason::Unusable(error) if error.is_installed() => Level::Warning,
            _ => Level::Notice,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::AsAsked(what) => write!(f, "using {what}, as RPMA_FABRIC asks"),
            Reason::DeviceThere => f.write_str("using RDMA verbs"),
            Reason::NoDevice => f.write_str(
                "using the software fabric: rdma-core is installed but there is no RDMA device \
                 (RPMA_FABRIC=soft says that this is meant)",
            ),
            Reason::Unusable(error) => write!(f, "using the software fabric: {error}"),
        }
    }
}

/// Why no fabric can be had.
pub(crate) enum Refusal {
    Unknown(env::Value),
    Unusable(LoadError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Unknown(value) => {
                write!(f, "RPMA_FABRIC={value} is none of auto, verbs, soft")
            }
            Refusal::Unusable(error) => write!(f, "RPMA_FABRIC=verbs, but {error}"),
        }
    }
}

/// The fabric's control functions. Safe from any thread.
///
/// Errors: PROVIDER if the fabric that was asked for cannot be had.
pub(crate) fn provider() -> Result<&'static Provider, Error> {
    match CHOSEN.get() {
        Some(provider) => Ok(provider),
        None => choose(),
    }
}

/// A caller's device context, with the fabric that made it, which need not be the chosen one.
///
/// Errors: PROVIDER if it is of the system's libraries and they cannot be loaded.
///
/// # Safety
/// `context` is open and stays open for as long as any object made from the answer lives.
pub(crate) unsafe fn device(context: NonNull<ibv_context>) -> Result<DeviceContext, Error> {
    // SAFETY: the contract.
    let provider = if unsafe { soft::owns(context) } {
        soft::provider()
    } else {
        system().map_err(|error| {
            log_error!(FUNCTION, "{error}");
            Error::Provider
        })?
    };
    // SAFETY: the contract, and the provider is the context's own.
    Ok(unsafe { DeviceContext::new(context, provider) })
}

#[cold]
fn choose() -> Result<&'static Provider, Error> {
    let (provider, reason) = decide().map_err(|refusal| {
        log_error!(FUNCTION, "{refusal}");
        Error::Provider
    })?;
    if CHOSEN.set(provider).is_ok() {
        log_at!(reason.level(), FUNCTION, "{reason}");
    }
    CHOSEN.get().ok_or(Error::Unknown)
}

/// What [`provider`] takes, with the reason; binds nobody.
pub(crate) fn decide() -> Result<(&'static Provider, Reason), Refusal> {
    match asked() {
        None => Ok(automatic()),
        Some(value) => match wish_of(value.as_bytes()) {
            None => Err(Refusal::Unknown(value)),
            Some(Wish::Soft) => Ok((soft::provider(), Reason::AsAsked("the software fabric"))),
            Some(Wish::Verbs) => match system() {
                Ok(provider) => Ok((provider, Reason::AsAsked("RDMA verbs"))),
                Err(error) => Err(Refusal::Unusable(error)),
            },
            Some(Wish::Auto) => Ok(automatic()),
        },
    }
}

/// What the environment asks for.
pub(crate) fn asked() -> Option<env::Value> {
    env::var(c"RPMA_FABRIC")
}

fn automatic() -> (&'static Provider, Reason) {
    match system() {
        Err(error) => (soft::provider(), Reason::Unusable(error)),
        Ok(provider) if provider.has_device() => (provider, Reason::DeviceThere),
        Ok(_) => (soft::provider(), Reason::NoDevice),
    }
}

/// The system's libraries, loaded at the first use.
pub(crate) fn system() -> Result<&'static Provider, LoadError> {
    if let Some(provider) = SYSTEM.get() {
        return Ok(provider);
    }
    let loaded = provider::load_system()?;
    Ok(SYSTEM.get_or_init(|| loaded))
}

/// A value of `RPMA_FABRIC`; `None` if it means nothing.
pub(crate) fn wish_of(value: &[u8]) -> Option<Wish> {
    match value {
        b"" | b"auto" => Some(Wish::Auto),
        b"verbs" => Some(Wish::Verbs),
        b"soft" => Some(Wish::Soft),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_documented_wishes_are_understood() {
        assert_eq!(wish_of(b"auto"), Some(Wish::Auto));
        assert_eq!(wish_of(b""), Some(Wish::Auto));
        assert_eq!(wish_of(b"verbs"), Some(Wish::Verbs));
        assert_eq!(wish_of(b"soft"), Some(Wish::Soft));
        assert_eq!(wish_of(b"Soft"), None);
        assert_eq!(wish_of(b"hardware"), None);
    }
}
