// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The choice of the fabric: real verbs where there is an RDMA device, else the software fabric.
//!
//! Made once per process, at the first call that needs a fabric; `RPMA_FABRIC` decides otherwise.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;

use once_cell::sync::OnceCell;

use crate::error::Error;
use crate::log::{log_error, log_notice, log_warning};
use crate::soft;
use crate::sys::alloc::try_box;
use crate::verbs::provider::{self, Provider};

/// The name under which this file's records appear in the log.
const FUNCTION: &CStr = c"rpma_fabric";

static CHOSEN: OnceCell<&'static Provider> = OnceCell::new();

/// What `RPMA_FABRIC` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Auto,
    Verbs,
    Soft,
}

/// The fabric's control functions. Safe from any thread.
///
/// Errors: PROVIDER if the fabric that was asked for cannot be had; NOMEM.
pub(crate) fn provider() -> Result<&'static Provider, Error> {
    CHOSEN.get_or_try_init(choose).copied()
}

fn choose() -> Result<&'static Provider, Error> {
    match wish()? {
        Wish::Soft => {
            log_notice!(FUNCTION, "using the software fabric, as RPMA_FABRIC asks");
            Ok(soft::provider())
        }
        Wish::Verbs => match provider::load_system() {
            Ok(provider) => {
                log_notice!(FUNCTION, "using RDMA verbs, as RPMA_FABRIC asks");
                keep(provider)
            }
            Err(error) => {
                log_error!(FUNCTION, "RPMA_FABRIC=verbs, but {error}");
                Err(Error::Provider)
            }
        },
        Wish::Auto => automatic(),
    }
}

fn automatic() -> Result<&'static Provider, Error> {
    match provider::load_system() {
        Err(error) => {
            log_notice!(FUNCTION, "using the software fabric: {error}");
            Ok(soft::provider())
        }
        Ok(provider) if provider.has_device() => {
            log_notice!(FUNCTION, "using RDMA verbs");
            keep(provider)
        }
        Ok(_) => {
            log_warning!(
                FUNCTION,
                "using the software fabric: rdma-core is installed but there is no RDMA device (RPMA_FABRIC=soft says that this is meant)"
            );
            Ok(soft::provider())
        }
    }
}

/// Keeps the table for the rest of the process's life.
fn keep(provider: Provider) -> Result<&'static Provider, Error> {
    Ok(Box::leak(try_box(provider)?))
}

fn wish() -> Result<Wish, Error> {
    let Some(value) = std::env::var_os("RPMA_FABRIC") else {
        return Ok(Wish::Auto);
    };
    wish_of(value.as_bytes()).ok_or_else(|| {
        log_error!(
            FUNCTION,
            "RPMA_FABRIC={} is none of auto, verbs, soft",
            value.display()
        );
        Error::Provider
    })
}

fn wish_of(value: &[u8]) -> Option<Wish> {
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
