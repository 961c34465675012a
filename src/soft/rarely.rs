// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What the log is told of at most once in a while, however often it happens: who is not wanted shall
//! not fill it.

use std::fmt::Arguments;
use std::time::{Duration, Instant};

use super::diag;
use super::sync::Lock;

/// One kind of such things.
pub(super) struct Rarely {
    every: Duration,
    state: Lock<State>,
}

#[derive(Default)]
struct State {
    told: Option<Instant>,
    /// Of how many it was not told since then.
    untold: u64,
}

impl Rarely {
    pub(super) const fn new(every: Duration) -> Self {
        Rarely {
            every,
            state: Lock::new(State {
                told: None,
                untold: 0,
            }),
        }
    }

    /// Warns of it, and says how often it has happened since the last time, unless that was just now.
    pub(super) fn warn(&self, what: Arguments<'_>) {
        match self.count(Instant::now()) {
            None => {}
            Some(0) => diag::warn(what),
            Some(more) => diag::warn(format_args!(
                "{what} ({more} more since the last such record)"
            )),
        }
    }

    /// Of how many the log was not told, if it is to be told now.
    fn count(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        if state
            .told
            .is_some_and(|told| now.duration_since(told) < self.every)
        {
            state.untold += 1;
            return None;
        }
        state.told = Some(now);
        Some(std::mem::take(&mut state.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_told_is_counted() {
        let rarely = Rarely::new(Duration::from_secs(1));
        let start = Instant::now();
        let after = |ms| rarely.count(start + Duration::from_millis(ms));
        assert_eq!(after(0), Some(0));
        assert_eq!(after(1), None);
        assert_eq!(after(999), None);
        assert_eq!(after(1000), Some(2));
        assert_eq!(after(1500), None);
        assert_eq!(after(5000), Some(1));
        assert_eq!(after(6000), Some(0));
    }
}
