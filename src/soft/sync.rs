// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! A mutex whose lock cannot fail.
//!
//! The crate is built to abort on panic, so poisoning says nothing; leaving it out keeps every
//! caller free of an error that cannot be handled.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

/// A mutex without poisoning.
#[derive(Default)]
pub struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Lock(Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock, unless whoever holds it keeps it for more than a moment, perhaps for ever.
    pub fn lock_soon(&self) -> Option<MutexGuard<'_, T>> {
        const TRIES: u32 = 1000;
        for _ in 0..TRIES {
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
            std::thread::yield_now();
        }
        None
    }

    /// Takes the lock if nobody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Waits on `condvar` until `done` holds, releasing the lock meanwhile.
pub(super) fn wait_until<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    mut done: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    condvar
        .wait_while(guard, |value| !done(value))
        .unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_moment_gets_what_is_free_and_gives_up_what_is_kept() {
        let lock = Lock::new(1);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        assert!(lock.lock_soon().is_none());
        drop(held);
        assert_eq!(lock.lock_soon().map(|value| *value), Some(1));
    }
}
