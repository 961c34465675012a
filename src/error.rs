// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The ways in which an operation can fail, and their codes in the C interface.

use std::ffi::{CStr, c_int};
use std::fmt;

/// Why an operation failed.
///
/// What the provider left in errno stays there for the caller; the log says which call it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// Something that should not happen.
    Unknown,
    /// The device, the region or the remote peer cannot do this.
    NoSupp,
    /// A call to the provider failed.
    Provider,
    /// Memory ran out.
    NoMem,
    /// An argument is not acceptable.
    Inval,
    /// No completion is available.
    NoCompletion,
    /// No connection event is available.
    NoEvent,
    /// Trying again may succeed.
    Again,
    /// The completion channel is shared, so one queue alone cannot be waited for.
    SharedChannel,
    /// The connection has no shared completion channel.
    NotSharedChannel,
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
    pub const fn code(self) -> c_int {
        match self {
            Error::Unknown => -100_000,
            Error::NoSupp => -100_001,
            Error::Provider => -100_002,
            Error::NoMem => -100_003,
            Error::Inval => -100_004,
            Error::NoCompletion => -100_005,
            Error::NoEvent => -100_006,
            Error::Again => -100_007,
            Error::SharedChannel => -100_008,
            Error::NotSharedChannel => -100_009,
        }
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

/// Keeps the first error of a sequence of steps that are all carried out whatever happens.
#[derive(Default)]
pub(crate) struct FirstError(Option<Error>);

impl FirstError {
    pub(crate) fn note(&mut self, step: Result<(), Error>) {
        if let Err(error) = step {
            self.0.get_or_insert(error);
        }
    }

    pub(crate) fn into_result(self) -> Result<(), Error> {
        self.0.map_or(Ok(()), Err)
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
        first.note(Err(Error::Provider));
        first.note(Err(Error::Inval));
        assert_eq!(first.into_result(), Err(Error::Provider));
        assert_eq!(FirstError::default().into_result(), Ok(()));
    }
}
