// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The ways in which an operation can fail, and their codes in the C interface.

use std::ffi::{CStr, c_int};
use std::fmt;

use crate::sys::errno;

/// Why an operation failed.
///
/// What the provider left in errno stays there for the caller; the log says which call it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Error {
    /// Something that should not happen.
    Unknown = -100_000,
    /// The device, the region or the remote peer cannot do this.
    NoSupp = -100_001,
    /// A call to the provider failed.
    Provider = -100_002,
    /// Memory ran out.
    NoMem = -100_003,
    /// An argument is not acceptable.
    Inval = -100_004,
    /// No completion is available.
    NoCompletion = -100_005,
    /// No connection event is available.
    NoEvent = -100_006,
    /// Trying again may succeed.
    Again = -100_007,
    /// The completion channel is shared, so one queue alone cannot be waited for.
    SharedChannel = -100_008,
    /// The connection has no shared completion channel.
    NotSharedChannel = -100_009,
}

impl Error {
    const ALL: [Error; 10] = [
        Error::Unknown,
        Error::NoSupp,
        Error::Provider,
        Error::NoMem,
        Error::Inval,
        Error::NoCompletion,
        Error::NoEvent,
        Error::Again,
        Error::SharedChannel,
        Error::NotSharedChannel,
    ];

    /// The code of the C interface, a negative number.
    #[inline]
    pub const fn code(self) -> c_int {
        self as c_int
    }

    /// The error that a code of the C interface stands for; `None` for a code that is none.
    pub fn from_code(code: c_int) -> Option<Self> {
        Self::ALL.into_iter().find(|error| error.code() == code)
    }

    /// A short English text.
    pub const fn text(self) -> &'static CStr {
        match self {
            Error::Unknown => c"Unknown error",
            Error::NoSupp => c"Not supported",
            Error::Provider => c"Provider error occurred",
            Error::NoMem => c"Out of memory",
            Error::Inval => c"Invalid argument",
            Error::NoCompletion => c"No next completion available",
            Error::NoEvent => c"No next event available",
            Error::Again => c"Temporary error, try again",
            Error::SharedChannel => c"Completion channel is shared",
            Error::NotSharedChannel => c"Completion channel is not shared",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().to_str().unwrap_or("error"))
    }
}

impl std::error::Error for Error {}

/// Keeps the first error of a sequence of steps that are all carried out whatever happens, and
/// what it left in errno.
#[derive(Default)]
pub(crate) struct FirstError(Option<(Error, c_int)>);

impl FirstError {
    pub(crate) fn note(&mut self, step: Result<(), Error>) {
        if let Err(error) = step {
            self.0.get_or_insert_with(|| (error, errno::get()));
        }
    }

    pub(crate) fn into_result(self) -> Result<(), Error> {
        match self.0 {
            None => Ok(()),
            Some((error, number)) => {
                errno::set(number);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_errors_match_both_ways() {
        for error in Error::ALL {
            assert_eq!(Error::from_code(error.code()), Some(error));
        }
        assert_eq!(Error::from_code(0), None);
        assert_eq!(Error::from_code(-99_999), None);
        assert_eq!(Error::from_code(-100_010), None);
    }

    #[test]
    fn the_first_of_several_errors_is_kept() {
        let mut first = FirstError::default();
        first.note(Ok(()));
        errno::set(libc::EBUSY);
        first.note(Err(Error::Provider));
        errno::set(libc::EINVAL);
        first.note(Err(Error::Inval));
        assert_eq!(first.into_result(), Err(Error::Provider));
        assert_eq!(errno::get(), libc::EBUSY);
        assert_eq!(FirstError::default().into_result(), Ok(()));
    }
}
