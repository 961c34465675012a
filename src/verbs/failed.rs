// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Telling of operations that failed: the program finds them in its completions, but whoever
//! looks for a fault does not see what the program makes of them.
//!
//! Only for queues that were created while records of level DEBUG were wanted: they are polled
//! through [`poll`], so that all others pay nothing.

use std::ffi::c_int;

use rdma_sys::{ibv_cq, ibv_wc, ibv_wc_status};

use crate::log::log_debug;

/// Polls the queue with the device's own function, and tells of failures.
pub(super) unsafe extern "C" fn poll(cq: *mut ibv_cq, entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: whoever polls promises that the queue is alive, and that `wc` has room.
    let got = unsafe {
        match (*(*cq).context).ops.poll_cq {
            Some(poll) => poll(cq, entries, wc),
            None => -1,
        }
    };
    for index in 0..usize::try_from(got.min(entries)).unwrap_or(0) {
        // SAFETY: the provider has filled that many.
        report(unsafe { &*wc.add(index) });
    }
    got
}

fn report(wc: &ibv_wc) {
    if wc.status == ibv_wc_status::IBV_WC_SUCCESS {
        return;
    }
    let (text, hint) = explain(wc.status);
    log_debug!(
        c"rpma_cq_get_wc",
        "QP {}: operation wr_id={:#x} failed: {text} (status {}, vendor_err {:#x}){hint}",
        wc.qp_num,
        wc.wr_id,
        wc.status,
        wc.vendor_err
    );
}

/// A status's text, and what is usually behind it.
fn explain(status: ibv_wc_status::Type) -> (&'static str, &'static str) {
    use ibv_wc_status::*;
    match status {
        IBV_WC_LOC_LEN_ERR => (
            "local length error",
            ": a message was longer than the receive that it met, or longer than the device allows",
        ),
        IBV_WC_LOC_QP_OP_ERR => ("local operation error", ""),
        IBV_WC_LOC_PROT_ERR => (
            "local protection error",
            ": is the local range inside its region, still registered and mapped, and registered for this usage?",
        ),
        IBV_WC_WR_FLUSH_ERR => (
            "flushed",
            ": the connection had ended, or an earlier operation of it had failed",
        ),
        IBV_WC_LOC_ACCESS_ERR => ("local access error", ""),
        IBV_WC_REM_INV_REQ_ERR => (
            "remote invalid request",
            ": the other side cannot do this, or its receive was shorter than the message",
        ),
        IBV_WC_REM_ACCESS_ERR => (
            "remote access error",
            ": is the range inside the remote region, and that still registered, under this key, with the usage that this operation needs?",
        ),
        IBV_WC_REM_OP_ERR => ("remote operation error", ""),
        IBV_WC_RETRY_EXC_ERR => (
            "transport retries exceeded",
            ": the other side does not answer; is its process or host gone, or the network in between?",
        ),
        IBV_WC_RNR_RETRY_EXC_ERR => (
            "receiver not ready",
            ": the other side has posted no receive for this message",
        ),
        _ => ("another error", ""),
    }
}

/// Which operations say which status is tested on the software fabric; here, that each usual
/// status has a hint.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_failures_are_explained() {
        assert!(
            explain(ibv_wc_status::IBV_WC_REM_ACCESS_ERR)
                .1
                .contains("key")
        );
        assert!(
            explain(ibv_wc_status::IBV_WC_LOC_PROT_ERR)
                .1
                .contains("usage")
        );
        assert!(
            explain(ibv_wc_status::IBV_WC_RETRY_EXC_ERR)
                .1
                .contains("gone")
        );
        assert_eq!(explain(ibv_wc_status::IBV_WC_FATAL_ERR).0, "another error");
    }
}
