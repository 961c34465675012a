// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The log: levels, the two thresholds, and where records go.
//!
//! A record at or under the main threshold goes to the log function: the program's own if it set
//! one, else the default one, which writes to syslog and, at or under the auxiliary threshold,
//! to standard error too. The environment can fix either threshold (`RPMA_LOG_LEVEL`,
//! `RPMA_LOG_STDERR_LEVEL`), because whoever operates a program often cannot recompile it; what
//! it says then holds whatever the program sets, and a fixed auxiliary threshold brings records
//! to standard error that the main threshold keeps from the log function.
//!
//! Logging allocates nothing, so that it works when memory has run out, and leaves errno alone.

mod default;
mod message;

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

use crate::sys::{env, errno};
use message::FixedText;

/// How important a record is; or, as a threshold, up to where records are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum Level {
    /// As a threshold: nothing at all.
    Disabled = -1,
    /// The library cannot go on.
    Fatal = 0,
    /// An operation failed.
    Error = 1,
    /// Something that a caller should know, though the operation goes on.
    Warning = 2,
    /// Rare events of normal operation, such as a connection.
    Notice = 3,
    /// What the library decides on the way.
    Info = 4,
    /// Details for whoever looks for a fault.
    Debug = 5,
}

impl Level {
    const ALL: [Level; 7] = [
        Level::Disabled,
        Level::Fatal,
        Level::Error,
        Level::Warning,
        Level::Notice,
        Level::Info,
        Level::Debug,
    ];

    /// The level with this number in the C interface.
    pub fn from_number(number: c_int) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|level| *level as c_int == number)
    }

    /// The level with this name, in either case, as the environment gives it.
    pub fn from_name(name: &str) -> Option<Self> {
        const NAMES: [&str; 7] = [
            "disabled", "fatal", "error", "warning", "notice", "info", "debug",
        ];
        let found = NAMES.iter().position(|n| n.eq_ignore_ascii_case(name))?;
        Self::ALL.get(found).copied()
    }
}

/// Which of the two thresholds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threshold {
    /// Up to where records reach the log function.
    Main,
    /// Up to where the default log function writes to standard error too.
    Auxiliary,
}

/// One threshold: what the program asked for, and what the environment fixed.
struct Setting {
    asked: AtomicI32,
    /// A level, or [`NOT_FIXED`].
    fixed: AtomicI32,
}

const NOT_FIXED: i32 = i32::MIN;

impl Setting {
    const fn new(level: Level) -> Self {
        Setting {
            asked: AtomicI32::new(level as i32),
            fixed: AtomicI32::new(NOT_FIXED),
        }
    }

    fn set(&self, level: Level) {
        self.asked.store(level as i32, Ordering::SeqCst);
    }

    fn fix(&self, level: Level) {
        self.fixed.store(level as i32, Ordering::SeqCst);
    }

    fn is_fixed(&self) -> bool {
        self.fixed.load(Ordering::SeqCst) != NOT_FIXED
    }

    fn in_force(&self) -> i32 {
        match self.fixed.load(Ordering::SeqCst) {
            NOT_FIXED => self.asked.load(Ordering::SeqCst),
            fixed => fixed,
        }
    }

    fn wants(&self, level: Level) -> bool {
        level as i32 <= self.in_force()
    }
}

static MAIN: Setting = Setting::new(Level::Warning);
static AUXILIARY: Setting = Setting::new(Level::Disabled);

fn setting(threshold: Threshold) -> &'static Setting {
    match threshold {
        Threshold::Main => &MAIN,
        Threshold::Auxiliary => &AUXILIARY,
    }
}

/// Sets a threshold. Safe from any thread.
pub fn set_threshold(threshold: Threshold, level: Level) {
    setting(threshold).set(level);
    update_wanted();
}

/// The threshold that was set last, or the default. Safe from any thread.
pub fn threshold(threshold: Threshold) -> Level {
    let number = setting(threshold).asked.load(Ordering::SeqCst);
    Level::from_number(number).unwrap_or(Level::Disabled)
}

/// One record on its way to the log function.
pub(crate) struct Record<'a> {
    pub(crate) level: Level,
    pub(crate) file: &'a CStr,
    pub(crate) line: u32,
    pub(crate) function: &'a CStr,
    /// The text, ended by a newline.
    pub(crate) message: &'a CStr,
}

/// The address of the program's own log function, or null for the default one.
static SINK: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// Set when the library is unloaded: nothing may be logged any more.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Replaces the log function by the one at an address; null brings the default one back. Safe from
/// any thread. Whoever gives the address vouches for what is there: see `capi::log`.
pub(crate) fn set_sink(address: *mut c_void) {
    SINK.store(address, Ordering::SeqCst);
}

/// Somebody inside the process who listens along, whatever the thresholds say.
static OBSERVER: OnceLock<(Level, Observer)> = OnceLock::new();

/// Takes a record's level and its text, without the newline.
pub type Observer = fn(Level, &str);

/// Has `observer` see each record up to `level`, for the rest of the process's life. For one
/// program that explains what the library would do; a second observer is ignored.
pub fn observe(level: Level, observer: Observer) {
    // Whoever came first stays.
    let _ = OBSERVER.set((level, observer));
    update_wanted();
}

/// The level up to which anybody wants records: what either threshold lets through. Kept apart so
/// that a data-path call pays one look for its log.
static WANTED: AtomicI32 = AtomicI32::new(Level::Warning as i32);

/// Recomputes [`WANTED`]; after each change of a threshold.
fn update_wanted() {
    let wanted = || {
        let observed = OBSERVER.get().map_or(-1, |(level, _)| *level as i32);
        let main = MAIN.in_force().max(observed);
        if AUXILIARY.is_fixed() {
            main.max(AUXILIARY.in_force())
        } else {
            main
        }
    };
    // Again if another thread changed a threshold meanwhile, whose value may be overwritten here.
    loop {
        let level = wanted();
        WANTED.store(level, Ordering::SeqCst);
        if wanted() == level {
            return;
        }
    }
}

/// Whether anybody wants records of this level.
#[inline(always)]
pub(crate) fn is_wanted(level: Level) -> bool {
    level as i32 <= WANTED.load(Ordering::Relaxed)
}

/// Sends one record out. Called through the `log_*!` macros, which ask [`is_wanted`] first.
#[cold]
pub(crate) fn emit(
    level: Level,
    file: &CStr,
    line: u32,
    function: &CStr,
    text: fmt::Arguments<'_>,
) {
    if STOPPED.load(Ordering::Relaxed) {
        return;
    }
    let _kept = errno::Preserve::new();
    let message = FixedText::<1024>::with_newline(text);
    if let Some((upto, observer)) = OBSERVER.get()
        && level <= *upto
    {
        let text = message.as_c_str().to_str().unwrap_or("?");
        observer(level, text.trim_end_matches('\n'));
    }
    let record = Record {
        level,
        file,
        line,
        function,
        message: message.as_c_str(),
    };
    let sink = SINK.load(Ordering::SeqCst);
    if sink.is_null() {
        if MAIN.wants(level) {
            default::write_to_syslog(&record);
        }
        if AUXILIARY.wants(level) {
            default::write_to_stderr(&record);
        }
        return;
    }
    #[cfg(feature = "capi")]
    if MAIN.wants(level) {
        crate::capi::log::call(sink, &record);
    }
    if AUXILIARY.is_fixed() && AUXILIARY.wants(level) {
        default::write_to_stderr(&record);
    }
}

/// Writes a marker to standard error, whatever the thresholds say.
#[cfg(feature = "fault-injection")]
pub(crate) fn mark(function: &CStr, text: fmt::Arguments<'_>) {
    let _kept = errno::Preserve::new();
    let message = FixedText::<128>::with_newline(text);
    default::write_to_stderr(&Record {
        level: Level::Debug,
        file: c"fault.rs",
        line: line!(),
        function,
        message: message.as_c_str(),
    });
}

/// Reads the environment and opens syslog: when the library is loaded.
pub(crate) fn start() {
    crate::sys::syslog::open();
    let read = |variable: &CStr, setting: &Setting| {
        let value = env::var(variable).filter(|value| !value.as_bytes().is_empty())?;
        match value.as_str().and_then(Level::from_name) {
            Some(level) => {
                setting.fix(level);
                None
            }
            None => Some(value),
        }
    };
    // Both before anything is said, so that it is said where the operator looks.
    let unknown = [
        ("RPMA_LOG_LEVEL", read(c"RPMA_LOG_LEVEL", &MAIN)),
        (
            "RPMA_LOG_STDERR_LEVEL",
            read(c"RPMA_LOG_STDERR_LEVEL", &AUXILIARY),
        ),
    ];
    update_wanted();
    for (variable, value) in unknown {
        if let Some(value) = value {
            log_warning!(
                c"rpma_log_init",
                "{variable}={value} names no level (disabled, fatal, error, warning, notice, info, debug): ignored"
            );
        }
    }
}

/// Ends logging: when the library is unloaded.
pub(crate) fn stop() {
    STOPPED.store(true, Ordering::SeqCst);
    crate::sys::syslog::close();
}

/// Logs at a given level under the name of a function of the C interface.
macro_rules! log_at {
    ($level:expr, $function:expr, $($text:tt)+) => {
        if $crate::log::is_wanted($level) {
            const FILE: &std::ffi::CStr =
                $crate::log::c_string(concat!(file!(), "\0").as_bytes());
            $crate::log::emit($level, FILE, line!(), $function, format_args!($($text)+));
        }
    };
}

macro_rules! log_fatal {
    ($($all:tt)+) => { $crate::log::log_at!($crate::log::Level::Fatal, $($all)+) };
}

macro_rules! log_error {
    ($($all:tt)+) => { $crate::log::log_at!($crate::log::Level::Error, $($all)+) };
}

macro_rules! log_warning {
    ($($all:tt)+) => { $crate::log::log_at!($crate::log::Level::Warning, $($all)+) };
}

macro_rules! log_notice {
    ($($all:tt)+) => { $crate::log::log_at!($crate::log::Level::Notice, $($all)+) };
}

macro_rules! log_info {
    ($($all:tt)+) => { $crate::log::log_at!($crate::log::Level::Info, $($all)+) };
}

macro_rules! log_debug {
    ($($all:tt)+) => { $crate::log::log_at!($crate::log::Level::Debug, $($all)+) };
}

pub(crate) use {log_at, log_debug, log_error, log_fatal, log_info, log_notice, log_warning};

/// A source file's name as a C string, at compile time.
pub(crate) const fn c_string(with_nul: &[u8]) -> &CStr {
    match CStr::from_bytes_with_nul(with_nul) {
        Ok(string) => string,
        Err(_) => c"?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_names_are_taken_in_either_case_and_nothing_else() {
        assert_eq!(Level::from_name("debug"), Some(Level::Debug));
        assert_eq!(Level::from_name("WARNING"), Some(Level::Warning));
        assert_eq!(Level::from_name("Disabled"), Some(Level::Disabled));
        assert_eq!(Level::from_name("warn"), None);
        assert_eq!(Level::from_name(""), None);
        assert_eq!(Level::from_name("3"), None);
    }

    #[test]
    fn level_numbers_are_those_of_the_header() {
        assert_eq!(Level::from_number(-1), Some(Level::Disabled));
        assert_eq!(Level::from_number(5), Some(Level::Debug));
        assert_eq!(Level::from_number(-2), None);
        assert_eq!(Level::from_number(6), None);
    }

    #[test]
    fn a_fixed_threshold_holds_whatever_the_program_sets() {
        let setting = Setting::new(Level::Warning);
        setting.set(Level::Debug);
        assert!(setting.wants(Level::Debug));
        setting.fix(Level::Error);
        setting.set(Level::Debug);
        assert!(!setting.wants(Level::Warning));
        assert!(setting.wants(Level::Error));
        assert_eq!(setting.asked.load(Ordering::SeqCst), Level::Debug as i32);
    }
}
