// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Telling a forked child from its parent.
//!
//! A child has copies of its parent's objects, but not its threads: a lock that one of them held
//! stays locked, and sockets are shared. So what was made before a fork belongs to the parent, and
//! the child begins anew.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// How many forks lie between the first process that used the library and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process that something was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home(u32);

impl Home {
    /// This process.
    #[inline]
    pub(crate) fn here() -> Self {
        Home(FORKS.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn is_here(self) -> bool {
        self == Self::here()
    }
}

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Makes forks count from now on. `false` if memory runs out.
pub(crate) fn watch() -> bool {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if WATCHED.swap(true, Ordering::AcqRel) {
        return true;
    }
    // SAFETY: the handler only changes an atomic.
    let watched = unsafe { libc::pthread_atfork(None, None, Some(forked)) } == 0;
    if !watched {
        WATCHED.store(false, Ordering::Release);
    }
    watched
}

/// A value that each process has for itself, made at the first use there. The parent's stays
/// allocated in the child, as other values may refer to it.
pub(crate) struct PerProcess<T: 'static> {
    current: AtomicPtr<Owned<T>>,
}

struct Owned<T> {
    home: Home,
    value: T,
    /// The parent's, so that it can still be found.
    _before: *mut Owned<T>,
}

// SAFETY: `_before` is not used; the value is shared by reference.
unsafe impl<T: Send + Sync> Sync for PerProcess<T> {}

impl<T: Default + Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        PerProcess {
            current: AtomicPtr::new(null_mut()),
        }
    }

    /// This process's value.
    #[inline]
    pub(crate) fn get(&'static self) -> &'static T {
        let known = self.current.load(Ordering::Acquire);
        // SAFETY: null or a value that is never freed.
        match unsafe { known.as_ref() } {
            Some(owned) if owned.home.is_here() => &owned.value,
            _ => self.make(known),
        }
    }

    #[cold]
    fn make(&'static self, before: *mut Owned<T>) -> &'static T {
        let fresh = Box::into_raw(Box::new(Owned {
            home: Home::here(),
            value: T::default(),
            _before: before,
        }));
        let swapped =
            self.current
                .compare_exchange(before, fresh, Ordering::AcqRel, Ordering::Acquire);
        match swapped {
            // SAFETY: just made, and never freed from now on.
            Ok(_) => unsafe { &(*fresh).value },
            Err(other) => {
                // SAFETY: nobody else has seen it.
                drop(unsafe { Box::from_raw(fresh) });
                // SAFETY: another thread of this process has made it, and it is never freed.
                unsafe { &(*other).value }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "it forks")]
    fn a_value_is_made_once_a_process() {
        static COUNT: PerProcess<AtomicU32> = PerProcess::new();
        assert!(watch());
        let home = Home::here();
        COUNT.get().fetch_add(1, Ordering::Relaxed);
        COUNT.get().fetch_add(1, Ordering::Relaxed);
        // SAFETY: the child does nothing but compare, count and end.
        match unsafe { libc::fork() } {
            0 => {
                let right = !home.is_here()
                    && COUNT.get().load(Ordering::Relaxed) == 0
                    && COUNT.get().fetch_add(5, Ordering::Relaxed) == 0
                    && COUNT.get().load(Ordering::Relaxed) == 5;
                // SAFETY: ends the child without the parent's clean-up.
                unsafe { libc::_exit(if right { 7 } else { 1 }) };
            }
            child => {
                let mut status = 0;
                // SAFETY: our child and our variable.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(libc::WEXITSTATUS(status), 7);
            }
        }
        assert!(home.is_here());
        assert_eq!(COUNT.get().load(Ordering::Relaxed), 2);
    }
}
