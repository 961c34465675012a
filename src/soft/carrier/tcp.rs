// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The carrier for any two hosts: one TCP connection.

use std::time::Duration;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown, sockopt};

use super::Carrier;
use crate::sys::errno;

/// How long sent data may stay unacknowledged by the other host for each retry that the program
/// asked for; the timeouts of InfiniBand's connection manager are of this order.
const TIMEOUT_PER_RETRY: Duration = Duration::from_secs(2);

/// How long an idle connection stays without a sign of life before one is asked for.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// How many such requests may stay unanswered.
const KEEPALIVE_PROBES: u32 = 8;

/// As [`TIMEOUT_PER_RETRY`], as a whole, while the other host writes to its disk.
const DISK_TIMEOUT: Duration = Duration::from_secs(600);

pub(crate) struct Tcp {
    socket: OwnedFd,
    patience: Duration,
}

impl Tcp {
    /// Takes over a connected socket.
    pub(crate) fn new(socket: OwnedFd, retry_count: u8) -> Self {
        // Makes a failure show sooner; without it all works as well.
        let patience = TIMEOUT_PER_RETRY * (u32::from(retry_count) + 1);
        Self::watch_for_silence(&socket);
        let tcp = Tcp { socket, patience };
        tcp.be_patient(false);
        tcp
    }

    /// Has the kernel notice when the other host is gone though nothing is sent: from the first
    /// moment on, since a decision about a request may take long.
    pub(crate) fn watch_for_silence(socket: impl AsFd) {
        // Makes a failure show sooner; without it all works as well.
        let _ = sockopt::set_tcp_keepidle(&socket, KEEPALIVE);
        let _ = sockopt::set_tcp_keepintvl(&socket, TIMEOUT_PER_RETRY);
        let _ = sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_PROBES);
        let _ = sockopt::set_socket_keepalive(&socket, true);
    }
}

fn message(list: &[libc::iovec]) -> libc::msghdr {
    // SAFETY: all zeros is a valid empty message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = list.as_ptr().cast_mut();
    message.msg_iovlen = list.len() as _;
    message
}

fn outcome(n: isize) -> Result<usize, Errno> {
    usize::try_from(n).map_err(|_| errno::last())
}

impl Carrier for Tcp {
    fn name(&self) -> &'static str {
        "TCP"
    }

    unsafe fn send(&self, list: &[libc::iovec], _own: bool) -> Result<usize, Errno> {
        let (socket, flags) = (
            self.socket.as_raw_fd(),
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        );
        // Not through rustix, whose slices would claim that the memory is mapped.
        // SAFETY: the kernel checks the memory; the caller vouches for its use.
        outcome(unsafe {
            match list {
                // Cheaper for the kernel than a list.
                [only] => libc::send(socket, only.iov_base, only.iov_len, flags),
                _ => libc::sendmsg(socket, &message(list), flags),
            }
        })
    }

    unsafe fn receive(&self, list: &[libc::iovec]) -> Result<usize, Errno> {
        let (socket, flags) = (self.socket.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: as above.
        outcome(unsafe {
            match list {
                [only] => libc::recv(socket, only.iov_base, only.iov_len, flags),
                _ => libc::recvmsg(socket, &mut message(list), flags),
            }
        })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn be_patient(&self, patient: bool) {
        // A window that stays closed counts as well, though the other host is alive.
        let timeout = if patient { DISK_TIMEOUT } else { self.patience };
        let _ = sockopt::set_tcp_user_timeout(&self.socket, timeout.as_millis() as u32);
    }

    fn shutdown(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}
