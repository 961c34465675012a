// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What the program has made of its signals.

/// What a system call that can be restarted does after a signal that the program handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handlers {
    /// It goes on, whatever signal it was; also where none is handled.
    Restarting,
    /// It ends, whatever signal it was.
    Interrupting,
    /// That depends on the signal.
    Mixed,
}

/// How the handlers of signals that come from outside are at the moment.
pub(crate) fn handlers() -> Handlers {
    let (mut restart, mut interrupt) = (false, false);
    for signal in 1..=libc::SIGRTMAX() {
        if let libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP = signal {
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
        match action.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {}
            _ if action.sa_flags & libc::SA_RESTART != 0 => restart = true,
            _ => interrupt = true,
        }
    }
    match (restart, interrupt) {
        (_, false) => Handlers::Restarting,
        (false, true) => Handlers::Interrupting,
        (true, true) => Handlers::Mixed,
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
        assert_eq!(handlers(), Handlers::Restarting);
        handle(libc::SIGUSR1, handler, 0);
        assert_eq!(handlers(), Handlers::Interrupting);
        handle(libc::SIGUSR2, handler, libc::SA_RESTART);
        assert_eq!(handlers(), Handlers::Mixed);
        handle(libc::SIGUSR1, libc::SIG_IGN, 0);
        assert_eq!(handlers(), Handlers::Restarting);
        handle(libc::SIGUSR1, libc::SIG_DFL, 0);
        handle(libc::SIGUSR2, libc::SIG_DFL, 0);
    }
}
