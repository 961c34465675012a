// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Control of the log.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;

use super::answer;
use super::handle::Out;
use crate::error::Error;
use crate::log::{self, Level, Record, Threshold};

super::symbols::versioned! {
    rpma_log_set_threshold
    rpma_log_get_threshold
    rpma_log_set_function
}

/// How important a log record is; or, as a threshold, up to where records are wanted.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum rpma_log_level {
    /// as a threshold: nothing at all
    RPMA_LOG_DISABLED = -1,
    /// the library cannot go on
    RPMA_LOG_LEVEL_FATAL,
    /// an operation failed
    RPMA_LOG_LEVEL_ERROR,
    /// something that a caller should know, though the operation goes on
    RPMA_LOG_LEVEL_WARNING,
    /// rare events of normal operation, such as a connection
    RPMA_LOG_LEVEL_NOTICE,
    /// what the library decides on the way
    RPMA_LOG_LEVEL_INFO,
    /// details for whoever looks for a fault
    RPMA_LOG_LEVEL_DEBUG,
}

/// Which of the two thresholds.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum rpma_log_threshold {
    /// up to where records reach the log function
    RPMA_LOG_THRESHOLD,
    /// up to where the default log function writes to standard error too
    RPMA_LOG_THRESHOLD_AUX,
    /// how many there are
    RPMA_LOG_THRESHOLD_MAX,
}

/// A function that takes log records: the level, the source file, line and function they come
/// from, and a printf(3) format with its arguments, whose text ends with a line feed (this
/// library gives the text as a whole, by the format "%s"). It may be called from any thread that is
/// inside the library, and from one of the library's own. Locks may be held meanwhile: of the
/// library's functions it may call rpma_log_get_threshold() and rpma_err_2str() only.
pub type rpma_log_function = unsafe extern "C" fn(
    level: rpma_log_level,
    file_name: *const c_char,
    line_no: c_int,
    function_name: *const c_char,
    message_format: *const c_char,
    ...
);

/// A number that a C caller passed as an enumeration: any number, not only the named ones.
pub(super) fn enum_number<T>(value: MaybeUninit<T>) -> c_int {
    const { assert!(size_of::<T>() == size_of::<c_int>()) };
    // SAFETY: a C enumeration of this size is passed as an `int`, which the caller initialised.
    unsafe { std::mem::transmute_copy::<MaybeUninit<T>, c_int>(&value) }
}

fn threshold_of(value: MaybeUninit<rpma_log_threshold>) -> Result<Threshold, Error> {
    match enum_number(value) {
        0 => Ok(Threshold::Main),
        1 => Ok(Threshold::Auxiliary),
        _ => Err(Error::Inval),
    }
}

/// Sets a threshold of the log. The environment variables RPMA_LOG_LEVEL (main threshold) and
/// RPMA_LOG_STDERR_LEVEL (auxiliary threshold) take precedence where they are set to one of
/// disabled, fatal, error, warning, notice, info, debug. The defaults are WARNING and DISABLED.
///
/// Returns 0, or RPMA_E_INVAL for a threshold or a level that is none.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_log_set_threshold(
    threshold: MaybeUninit<rpma_log_threshold>,
    level: MaybeUninit<rpma_log_level>,
) -> c_int {
    answer(|| {
        let threshold = threshold_of(threshold)?;
        let level = Level::from_number(enum_number(level)).ok_or(Error::Inval)?;
        log::set_threshold(threshold, level);
        Ok(())
    })
}

/// Tells a threshold of the log, as it was set last.
///
/// Returns 0, or RPMA_E_INVAL if level is NULL or the threshold is none.
///
/// Thread safety: safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_log_get_threshold(
    threshold: MaybeUninit<rpma_log_threshold>,
    level: *mut rpma_log_level,
) -> c_int {
    answer(|| {
        let threshold = threshold_of(threshold)?;
        // SAFETY: the C contract; an enumeration of C is an `int`.
        let out = unsafe { Out::new(level.cast::<c_int>()) }?;
        out.set(log::threshold(threshold) as c_int);
        Ok(())
    })
}

/// Sets the function that takes log records; RPMA_LOG_USE_DEFAULT_FUNCTION (NULL) brings the
/// default one back, which writes to syslog(3) and, up to the auxiliary threshold, to standard
/// error.
///
/// The function gets each record's text complete, ending with a line feed. It may be called from any
/// thread that is inside the library, and from one of the library's own, and of the library's functions it
/// may call rpma_log_get_threshold() and rpma_err_2str() only: locks may be held meanwhile.
///
/// Returns 0, or RPMA_E_AGAIN if a temporary error occurred (this implementation has none).
///
/// Thread safety: safe. Records on their way may still reach the previous function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_log_set_function(log_function: Option<rpma_log_function>) -> c_int {
    let address = log_function.map_or(std::ptr::null_mut(), |function| function as *mut c_void);
    log::set_sink(address);
    0
}

/// Hands a record to the function at an address that [`rpma_log_set_function`] was given.
pub(crate) fn call(address: *mut c_void, record: &Record<'_>) {
    // SAFETY: the address was made from a function of this type, which the caller of
    // `rpma_log_set_function` keeps callable.
    let function = unsafe { std::mem::transmute::<*mut c_void, rpma_log_function>(address) };
    let level = match record.level {
        Level::Disabled | Level::Fatal => rpma_log_level::RPMA_LOG_LEVEL_FATAL,
        Level::Error => rpma_log_level::RPMA_LOG_LEVEL_ERROR,
        Level::Warning => rpma_log_level::RPMA_LOG_LEVEL_WARNING,
        Level::Notice => rpma_log_level::RPMA_LOG_LEVEL_NOTICE,
        Level::Info => rpma_log_level::RPMA_LOG_LEVEL_INFO,
        Level::Debug => rpma_log_level::RPMA_LOG_LEVEL_DEBUG,
    };
    // SAFETY: the format takes one string, and all pointers are strings that outlive the call.
    unsafe {
        function(
            level,
            record.file.as_ptr(),
            c_int::try_from(record.line).unwrap_or(c_int::MAX),
            record.function.as_ptr(),
            c"%s".as_ptr(),
            record.message.as_ptr(),
        );
    }
}
