// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Fault injection: making the n-th of the library's fallible steps fail.
//!
//! Only with the cargo feature `fault-injection`; without it nothing of this is left in the code.
//! `RPMA_FAULT_INJECTION=n` chooses the step; with any positive n each step that is passed writes
//! `[#k]` to standard error, and the one that fails `[#k] [FAULT INJECTION: "text"]`, which is
//! what the original's integration tests look for.
//!
//! A step is placed where a real failure could strike: before a call of the provider that makes
//! something, after one that releases something (it is released all the same), before an
//! allocation, and where an argument is looked at.

use std::ffi::CStr;

use crate::error::Error;

/// A step that may be made to fail with `error`.
#[cfg(not(feature = "fault-injection"))]
#[inline(always)]
pub(crate) fn point(_function: &CStr, _error: Error) -> Result<(), Error> {
    Ok(())
}

#[cfg(feature = "fault-injection")]
pub(crate) use injecting::point;

/// A step after which a release may be said to have failed.
#[inline(always)]
pub(crate) fn after(released: Result<(), Error>, function: &CStr) -> Result<(), Error> {
    let injected = point(function, Error::Provider);
    released.and(injected)
}

#[cfg(feature = "fault-injection")]
mod injecting {
    use std::ffi::CStr;
    use std::sync::atomic::{AtomicU64, Ordering};

    use once_cell::sync::OnceCell;

    use crate::error::Error;
    use crate::log;
    use crate::sys::env;

    /// How many steps were passed.
    static PASSED: AtomicU64 = AtomicU64::new(0);
    /// Which one fails; 0 for none, and for no markers either.
    static CHOSEN: OnceCell<u64> = OnceCell::new();

    fn chosen() -> u64 {
        *CHOSEN.get_or_init(|| {
            env::var(c"RPMA_FAULT_INJECTION")
                .and_then(|value| value.as_str()?.parse().ok())
                .unwrap_or(0)
        })
    }

    /// A step that may be made to fail with `error`.
    pub(crate) fn point(function: &CStr, error: Error) -> Result<(), Error> {
        let chosen = chosen();
        if chosen == 0 {
            return Ok(());
        }
        let number = PASSED.fetch_add(1, Ordering::Relaxed) + 1;
        if number == chosen {
            log::mark(
                function,
                format_args!("[#{number}] [FAULT INJECTION: \"{error}\"]"),
            );
            return Err(error);
        }
        log::mark(function, format_args!("[#{number}]"));
        Ok(())
    }
}
