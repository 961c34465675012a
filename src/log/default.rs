// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The default log function: syslog and standard error.

use std::ffi::CStr;
use std::fmt;

use super::message::FixedText;
use super::{Level, Record};
use crate::sys::clock::Timestamp;
use crate::sys::syslog;

/// Room for a whole output line.
type Line = FixedText<1536>;

/// What both outputs share: `*LEVEL* file: line: function: message`.
struct Body<'a>(&'a Record<'a>);

impl fmt::Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = self.0;
        // All names have the same width.
        let level = match record.level {
            Level::Disabled | Level::Fatal => "*FATAL* ",
            Level::Error => "*ERROR* ",
            Level::Warning => "*WARN*  ",
            Level::Notice => "*NOTE*  ",
            Level::Info => "*INFO*  ",
            Level::Debug => "*DEBUG* ",
        };
        let file = text_of(record.file);
        let file = file.rsplit('/').next().unwrap_or(file);
        write!(
            f,
            "{level}{file}: {:3}: {}: {}",
            record.line,
            text_of(record.function),
            text_of(record.message)
        )
    }
}

fn text_of(string: &CStr) -> &str {
    string.to_str().unwrap_or("?")
}

pub(super) fn write_to_syslog(record: &Record<'_>) {
    let severity = match record.level {
        Level::Disabled | Level::Fatal => libc::LOG_CRIT,
        Level::Error => libc::LOG_ERR,
        Level::Warning => libc::LOG_WARNING,
        Level::Notice => libc::LOG_NOTICE,
        Level::Info => libc::LOG_INFO,
        Level::Debug => libc::LOG_DEBUG,
    };
    let line = Line::new(format_args!("{}", Body(record)));
    syslog::write(severity, line.as_c_str());
}

pub(super) fn write_to_stderr(record: &Record<'_>) {
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let line = match Timestamp::now() {
        Some(time) => Line::new(format_args!("{time} [{thread}] {}", Body(record))),
        None => Line::new(format_args!("[time error] [{thread}] {}", Body(record))),
    };
    // One write per line, so that lines of several threads do not mix. Standard error may be
    // closed; there is nowhere to report that.
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_c_str().to_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_level_base_name_line_function_and_message() {
        let record = Record {
            level: Level::Warning,
            file: c"src/some/where.rs",
            line: 7,
            function: c"rpma_peer_new",
            message: c"it happened\n",
        };
        assert_eq!(
            Body(&record).to_string(),
            "*WARN*  where.rs:   7: rpma_peer_new: it happened\n"
        );
    }
}
