// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What the program has made of its signals.

/// Signals from outside that have handlers; bit N - 1 is signal N.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Handlers {
    /// A system call that can be restarted goes on after these.
    restarting: u64,
    /// It ends.
    interrupting: u64,
}

impl Handlers {
    /// As they are at the moment.
    pub(crate) fn now() -> Self {
        let mut handlers = Handlers::default();
        for signal in 1..=libc::SIGRTMAX().min(64) {
            if let libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP =
                signal
            {
                // These say that a thread has gone wrong by itself, not in a system call.
                continue;
            }
            // SAFETY: all zeros is a valid action, for the call to fill; nothing is changed by it.
            let action = unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                if libc::sigaction(signal, std::ptr::null(), &mut action) != 0 {
                    continue;
                }
                action
            };
            let bit = 1 << (signal - 1);
            match action.sa_sigaction {
                libc::SIG_DFL | libc::SIG_IGN => {}
                _ if action.sa_flags & libc::SA_RESTART != 0 => handlers.restarting |= bit,
                _ => handlers.interrupting |= bit,
            }
        }
        handlers
    }

    /// Whether there are any.
    pub(crate) fn are_any(self) -> bool {
        self.restarting | self.interrupting != 0
    }

    /// Whether it depends on the signal what becomes of a system call.
    pub(crate) fn are_mixed(self) -> bool {
        self.restarting != 0 && self.interrupting != 0
    }

    /// Whether one that ends system calls may have run lately, if the handlers were these `before`.
    pub(crate) fn may_have_interrupted(self, before: Handlers) -> bool {
        // One that was there may have gone by itself (SA_RESETHAND), but not been replaced.
        let gone = before.interrupting & !self.restarting;
        self.interrupting | gone != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn nothing(_: libc::c_int) {}

    fn handle(signal: libc::c_int, handler: libc::sighandler_t, flags: libc::c_int) {
        // SAFETY: all zeros is a valid action; the handler does nothing, and the signal is not sent.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler;
            action.sa_flags = flags;
            assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
        }
    }

    #[test]
    fn what_handlers_do_is_known() {
        let handler = nothing as extern "C" fn(libc::c_int) as usize;
        // The test program itself has handlers for faults, which do not count.
        let none = Handlers::now();
        assert_eq!(none, Handlers::default());
        assert!(!none.may_have_interrupted(none) && !none.are_any());
        handle(libc::SIGUSR1, handler, 0);
        let first = Handlers::now();
        assert!(first.are_any() && !first.are_mixed());
        assert!(first.may_have_interrupted(none));
        assert!(none.may_have_interrupted(first));
        handle(libc::SIGUSR2, handler, libc::SA_RESTART);
        let both = Handlers::now();
        assert!(both.are_mixed());
        assert!(both.may_have_interrupted(first));
        handle(libc::SIGUSR1, handler, libc::SA_RESTART);
        let replaced = Handlers::now();
        assert!(!replaced.are_mixed());
        assert!(!replaced.may_have_interrupted(both));
        assert!(!replaced.may_have_interrupted(none));
        handle(libc::SIGUSR1, libc::SIG_IGN, 0);
        assert!(Handlers::now().may_have_interrupted(first));
        handle(libc::SIGUSR1, libc::SIG_DFL, 0);
        handle(libc::SIGUSR2, libc::SIG_DFL, 0);
    }
}
