// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Text in a buffer of fixed size: no allocation, cut where it does not fit.

use std::ffi::CStr;
use std::fmt::{self, Write};

/// A formatted C string of at most `N - 1` bytes.
pub(super) struct FixedText<const N: usize> {
    bytes: [u8; N],
    len: usize,
    /// Bytes at the end that stay free: for the string's end and, if wanted, a newline.
    reserved: usize,
}

impl<const N: usize> FixedText<N> {
    /// The text as it is.
    pub(super) fn new(text: fmt::Arguments<'_>) -> Self {
        Self::formatted(text, 1)
    }

    /// The text and a newline, which is there even if the text was cut.
    pub(super) fn with_newline(text: fmt::Arguments<'_>) -> Self {
        let mut message = Self::formatted(text, 2);
        if let Some(end) = message.bytes.get_mut(message.len) {
            *end = b'\n';
            message.len += 1;
        }
        message
    }

    fn formatted(text: fmt::Arguments<'_>, reserved: usize) -> Self {
        let mut message = FixedText {
            bytes: [0; N],
            len: 0,
            reserved,
        };
        // The only failure is a text that is too long, which is cut.
        let _ = message.write_fmt(text);
        message
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"\n")
    }
}

impl<const N: usize> fmt::Write for FixedText<N> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let room = N.saturating_sub(self.reserved + self.len);
        let mut fits = part.len().min(room);
        while !part.is_char_boundary(fits) {
            fits -= 1;
        }
        let free = self.bytes.iter_mut().skip(self.len);
        for (to, from) in free.zip(part.bytes().take(fits)) {
            // A NUL would end the text early; nothing else is changed.
            *to = if from == 0 { b'?' } else { from };
        }
        self.len += fits;
        if fits == part.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_gets_its_newline() {
        let message = FixedText::<32>::with_newline(format_args!("{} of {}", 1, 2));
        assert_eq!(message.as_c_str(), c"1 of 2\n");
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let long = "é".repeat(20);
        let message = FixedText::<16>::with_newline(format_args!("x{long}"));
        assert_eq!(message.as_c_str(), c"xéééééé\n");
        let message = FixedText::<16>::new(format_args!("x{long}"));
        assert_eq!(message.as_c_str(), c"xééééééé");
    }

    #[test]
    fn a_nul_does_not_end_the_text() {
        let message = FixedText::<16>::new(format_args!("a\0b"));
        assert_eq!(message.as_c_str(), c"a?b");
    }
}
