// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Wall-clock time in the form that log lines carry.

use std::fmt;

/// A moment that prints as `Mon DD HH:MM:SS.uuuuuu` in local time. Allocates nothing.
pub(crate) struct Timestamp {
    broken_down: libc::tm,
    microseconds: u32,
}

impl Timestamp {
    /// The present moment, if the C library can tell it.
    pub(crate) fn now() -> Option<Self> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        // SAFETY: `tm` is plain data (integers and a pointer that may be null), so zero is valid.
        let mut broken_down: libc::tm = unsafe { std::mem::zeroed() };
        // SAFETY: both addresses are valid for the call.
        let told = unsafe { libc::localtime_r(&raw const now.tv_sec, &raw mut broken_down) };
        if told.is_null() {
            return None;
        }
        Some(Timestamp {
            broken_down,
            microseconds: u32::try_from(now.tv_nsec / 1000).unwrap_or(0),
        })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        let t = &self.broken_down;
        let month = usize::try_from(t.tm_mon)
            .ok()
            .and_then(|month| MONTHS.get(month))
            .unwrap_or(&"???");
        write!(
            f,
            "{month} {:02} {:02}:{:02}:{:02}.{:06}",
            t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec, self.microseconds
        )
    }
}
