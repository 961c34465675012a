// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What is usually behind a failed call of the provider, and what to do: for the log.

use std::ffi::c_int;

use libc::{
    EACCES, EADDRINUSE, EADDRNOTAVAIL, EBUSY, EFAULT, EHOSTUNREACH, EINVAL, EMFILE, ENETUNREACH,
    ENFILE, ENODEV, ENOENT, ENOMEM, EOPNOTSUPP, EPERM, ETIMEDOUT,
};

/// A hint to follow the errno text: empty, or in parentheses with a space before.
pub(super) fn of(call: &str, number: c_int) -> &'static str {
    // Providers return errno values with either sign.
    let number = number.checked_abs().unwrap_or(0);
    match (call, number) {
        (_, EMFILE | ENFILE) => " (no descriptor is left: raise `ulimit -n`)",

        ("ibv_reg_mr", ENOMEM) => {
            " (is the limit of locked memory large enough? raise `ulimit -l`; rpma-info tells what it is)"
        }
        ("ibv_reg_mr", EOPNOTSUPP) => {
            " (the device cannot register this kind of memory, for instance of a file on DAX, without on-demand paging)"
        }
        ("ibv_reg_mr", EFAULT) => {
            " (is all of the range mapped, and may it be written to if its usage asks for that?)"
        }
        ("ibv_reg_mr", EINVAL) => " (does the device allow this usage of this kind of memory?)",
        ("ibv_advise_mr", EOPNOTSUPP) => " (the device has no on-demand paging)",

        ("ibv_create_cq", EINVAL | ENOMEM) => {
            " (larger than the device allows? see max_cqe in what rpma-info prints)"
        }
        ("ibv_create_srq", EINVAL | ENOMEM) => {
            " (larger than the device allows? see max_srq_wr in what rpma-info prints)"
        }
        ("rdma_create_qp_ex", EINVAL | ENOMEM) => {
            " (are the queues larger than the device allows? see max_qp_wr in what rpma-info prints)"
        }
        ("ibv_post_send" | "ibv_wr_complete", ENOMEM) => {
            " (the send queue is full: take completions, or ask for a larger one)"
        }
        ("ibv_post_recv" | "ibv_post_srq_recv", ENOMEM) => {
            " (the receive queue is full: take completions, or ask for a larger one)"
        }
        ("ibv_post_send" | "ibv_wr_complete", EINVAL) => " (is the connection established?)",

        (
            "ibv_dereg_mr"
            | "ibv_dealloc_pd"
            | "ibv_destroy_cq"
            | "ibv_destroy_srq"
            | "ibv_destroy_comp_channel",
            EBUSY,
        ) => " (something that was made with it still exists)",

        ("rdma_create_event_channel" | "rdma_create_id", ENODEV | ENOENT) => {
            " (no RDMA device, or the kernel's module rdma_ucm is not there: see rpma-info)"
        }
        ("rdma_create_event_channel" | "rdma_create_id", EACCES | EPERM) => {
            " (may this user open /dev/infiniband/rdma_cm?)"
        }
        ("rdma_bind_addr", EADDRNOTAVAIL | ENODEV) => {
            " (is the address one of this machine, on an RDMA device? `rpma-info ADDRESS` tells)"
        }
        ("rdma_bind_addr" | "rdma_listen", EADDRINUSE) => {
            " (a program listens there already, or has ended just now)"
        }
        ("rdma_bind_addr", EACCES) => " (ports below 1024 are the administrator's)",
        ("rdma_resolve_addr" | "rdma_resolve_route", ENODEV) => {
            " (no RDMA device leads to this address; `rpma-info ADDRESS` tells more)"
        }
        ("rdma_resolve_addr" | "rdma_resolve_route", ETIMEDOUT) => {
            " (nothing answers at this address: is the host up, and is a firewall in between?)"
        }
        ("rdma_resolve_addr" | "rdma_resolve_route", ENETUNREACH | EHOSTUNREACH) => {
            " (no way leads there)"
        }
        ("rdma_disconnect", EINVAL) => " (there is no connection that could be ended)",

        (_, ENODEV) => {
            " (no RDMA device; or a child of fork, which cannot use the software fabric)"
        }
        _ => "",
    }
}

/// As [`of`], for an answer of `rdma_getaddrinfo` that is no errno value.
pub(super) fn of_look_up(number: c_int) -> &'static str {
    match number {
        libc::EAI_NONAME => " (is the name right? is the IP address complete?)",
        libc::EAI_AGAIN => " (the name server does not answer)",
        libc::EAI_SERVICE => " (the port is neither a number nor a name in /etc/services)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_causes_have_a_cure() {
        assert!(of("ibv_reg_mr", ENOMEM).contains("ulimit -l"));
        assert!(of("ibv_reg_mr", -ENOMEM).contains("ulimit -l"));
        assert!(of("ibv_create_comp_channel", EMFILE).contains("ulimit -n"));
        assert!(of("rdma_create_event_channel", ENODEV).contains("rdma_ucm"));
        assert!(of("rdma_bind_addr", EADDRNOTAVAIL).contains("one of this machine"));
        assert!(of("rdma_listen", EADDRINUSE).contains("already"));
        assert!(of("ibv_post_send", ENOMEM).contains("full"));
        assert!(of_look_up(libc::EAI_SERVICE).contains("port"));
        assert_eq!(of("ibv_alloc_pd", EINVAL), "");
        assert_eq!(of("ibv_alloc_pd", c_int::MIN), "");
        assert_eq!(of_look_up(0), "");
    }
}
