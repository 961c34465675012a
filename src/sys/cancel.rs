// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Threads that another one cancels (`pthread_cancel`).
//!
//! A cancelled thread ends in the middle of a system call, and nothing that its functions hold is given
//! back. So who holds something puts that off.

use libc::c_int;

unsafe extern "C" {
    safe fn pthread_setcancelstate(state: c_int, before: Option<&mut c_int>) -> c_int;
}

const ENABLE: c_int = 0;
const DISABLE: c_int = 1;

/// As long as it lives, the calling thread is not cancelled; a request for it waits.
pub(crate) struct NotNow {
    before: c_int,
    /// It is about the thread that it was made by.
    _local: std::marker::PhantomData<*const ()>,
}

impl NotNow {
    pub(crate) fn new() -> Self {
        let mut before = ENABLE;
        // Fails for no such value.
        pthread_setcancelstate(DISABLE, Some(&mut before));
        NotNow {
            before,
            _local: std::marker::PhantomData,
        }
    }

    /// Runs what the thread may be cancelled in, if it might be before. If it is, this does not return.
    pub(crate) fn except<R>(&self, run: impl FnOnce() -> R) -> R {
        pthread_setcancelstate(self.before, None);
        let result = run();
        pthread_setcancelstate(DISABLE, None);
        result
    }
}

impl Drop for NotNow {
    fn drop(&mut self) {
        pthread_setcancelstate(self.before, None);
    }
}
