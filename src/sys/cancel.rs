// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Threads that another one cancels (`pthread_cancel`).
//!
//! A cancelled thread ends in the middle of a system call, and nothing that its functions hold is given
//! back by itself. So who holds something puts that off, or says what is to be done then.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use libc::{c_int, c_void};

/// What the C library keeps about a cleanup handler, in the frame that it belongs to.
#[repr(C)]
struct Cleanup {
    _routine: Option<extern "C" fn(*mut c_void)>,
    _arg: *mut c_void,
    _cancel_type: c_int,
    _previous: *mut Cleanup,
}

// SAFETY: as the C library has them.
unsafe extern "C" {
    safe fn pthread_setcancelstate(state: c_int, before: Option<&mut c_int>) -> c_int;
    fn _pthread_cleanup_push(
        buffer: *mut Cleanup,
        routine: extern "C" fn(*mut c_void),
        arg: *mut c_void,
    );
    fn _pthread_cleanup_pop(buffer: *mut Cleanup, execute: c_int);
}

const ENABLE: c_int = 0;
const DISABLE: c_int = 1;

/// As long as it lives, the calling thread is not cancelled; a request for it waits.
pub(crate) struct NotNow {
    before: c_int,
    /// It is about the thread that it was made by.
    _local: PhantomData<*const ()>,
}

impl NotNow {
    pub(crate) fn new() -> Self {
        let mut before = ENABLE;
        // Fails for no such value.
        pthread_setcancelstate(DISABLE, Some(&mut before));
        NotNow {
            before,
            _local: PhantomData,
        }
    }

    /// Runs what the thread may be cancelled in, if it might be before. If it is, or if a signal handler
    /// jumps out of it, this does not return, but `clean_up` is called.
    pub(crate) fn except<R>(
        &self,
        clean_up: extern "C" fn(*mut c_void),
        run: impl FnOnce() -> R,
    ) -> R {
        let mut buffer = MaybeUninit::<Cleanup>::uninit();
        // SAFETY: the buffer is for the C library to fill, and stays in this frame until `pop`.
        unsafe { _pthread_cleanup_push(buffer.as_mut_ptr(), clean_up, std::ptr::null_mut()) };
        pthread_setcancelstate(self.before, None);
        let result = run();
        pthread_setcancelstate(DISABLE, None);
        // SAFETY: it was pushed above, and what was pushed since was popped.
        unsafe { _pthread_cleanup_pop(buffer.as_mut_ptr(), 0) };
        result
    }
}

impl Drop for NotNow {
    fn drop(&mut self) {
        pthread_setcancelstate(self.before, None);
    }
}
