// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Completion channel and completion queue.

use std::ffi::{CStr, c_int};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use rdma_sys::{ibv_comp_channel, ibv_cq, ibv_wc, ibv_wc_flags};

use super::context::DeviceContext;
use super::{Released, check_and_set_errno, failed, log_failure};
use crate::error::Error;
use crate::fault;
use crate::log::{Level, is_wanted};
use crate::sys::errno;

/// How many events of a queue may be taken before they are acknowledged together. Acknowledging
/// costs a lock; only destroying the queue needs it to have been done.
const ACKNOWLEDGE_AT: u32 = 1024;

/// Where a device announces that a completion queue has something new.
pub(crate) struct CompletionChannel {
    raw: NonNull<ibv_comp_channel>,
    device: DeviceContext,
    released: Released,
}

// SAFETY: waiting on a channel from several threads is allowed.
unsafe impl Send for CompletionChannel {}
// SAFETY: as above.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    pub(crate) fn create(device: DeviceContext, function: &CStr) -> Result<Self, Error> {
        fault::point(function, Error::Provider)?;
        // SAFETY: the context is open.
        let raw = unsafe { (device.provider().ibv_create_comp_channel)(device.as_ptr()) };
        NonNull::new(raw)
            .map(|raw| CompletionChannel {
                raw,
                device,
                released: Released::not_yet(),
            })
            .ok_or_else(|| {
                let call = "ibv_create_comp_channel";
                log_failure(function, call, format_args!(""), errno::get());
                Error::Provider
            })
    }

    /// The descriptor that becomes readable when an event is there. It stays the channel's.
    pub(crate) fn fd(&self) -> c_int {
        // SAFETY: the channel is alive; its descriptor never changes.
        unsafe { (*self.raw.as_ptr()).fd }
    }

    /// Takes the next event; waits for one unless the descriptor is non-blocking. `None` if there
    /// is none.
    #[inline]
    pub(crate) fn next_event(&self) -> Option<Event> {
        let mut queue = null_mut();
        let mut context = null_mut();
        // SAFETY: the channel is alive and both addresses are valid.
        let result = unsafe {
            (self.device.provider().ibv_get_cq_event)(
                self.raw.as_ptr(),
                &raw mut queue,
                &raw mut context,
            )
        };
        (result == 0).then_some(Event { queue })
    }

    /// Acknowledges an event of a queue that is not known here, so that whoever destroys that
    /// queue need not wait for ever.
    pub(crate) fn acknowledge_stray(&self, event: &Event) {
        if !event.queue.is_null() {
            // SAFETY: an event's queue cannot be destroyed before the event is acknowledged.
            unsafe { (self.device.provider().ibv_ack_cq_events)(event.queue, 1) };
        }
    }

    /// Releases the channel, which may not be used any more, and gives the provider's error back.
    pub(crate) fn release(&self, function: &CStr) -> Result<(), Error> {
        if !self.released.claim() {
            return Ok(());
        }
        // SAFETY: the channel is this object's own, and the claim made this its only release.
        let result =
            unsafe { (self.device.provider().ibv_destroy_comp_channel)(self.raw.as_ptr()) };
        check_and_set_errno(function, "ibv_destroy_comp_channel", result)
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        let _kept = errno::Preserve::new();
        // A failure was logged; nobody is left to hear of it.
        let _ = self.release(c"rpma_cq_delete");
    }
}

/// An event of a completion channel. It has to be acknowledged.
pub(crate) struct Event {
    queue: *mut ibv_cq,
}

/// A completion queue of the provider.
pub(crate) struct RawCompletionQueue {
    raw: NonNull<ibv_cq>,
    device: DeviceContext,
    poll: unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int,
    /// Events that were taken and not acknowledged yet.
    taken: AtomicU32,
    released: Released,
}

// SAFETY: the provider's calls on a queue may come from any thread.
unsafe impl Send for RawCompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for RawCompletionQueue {}

impl RawCompletionQueue {
    pub(crate) fn create(
        device: DeviceContext,
        entries: c_int,
        channel: &CompletionChannel,
        function: &CStr,
    ) -> Result<Self, Error> {
        fault::point(function, Error::Provider)?;
        // SAFETY: context and channel are alive; the channel outlives the queue, because its
        // owner releases them in that order.
        let raw = unsafe {
            (device.provider().ibv_create_cq)(
                device.as_ptr(),
                entries,
                null_mut(),
                channel.raw.as_ptr(),
                0,
            )
        };
        let Some(raw) = NonNull::new(raw) else {
            log_failure(
                function,
                "ibv_create_cq",
                format_args!("(cqe={entries})"),
                errno::get(),
            );
            return Err(Error::Provider);
        };
        // SAFETY: a queue's context is valid, and its operations never change.
        let poll = unsafe { (*(*raw.as_ptr()).context).ops.poll_cq }.unwrap_or(no_poll);
        let poll = if is_wanted(Level::Debug) {
            failed::poll
        } else {
            poll
        };
        Ok(RawCompletionQueue {
            raw,
            device,
            poll,
            taken: AtomicU32::new(0),
            released: Released::not_yet(),
        })
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_cq {
        self.raw.as_ptr()
    }

    /// Asks for an event on the channel at the next completion of any kind.
    #[inline]
    pub(crate) fn request_notification(&self, function: &CStr) -> Result<(), Error> {
        fault::point(function, Error::Provider)?;
        let queue = self.raw.as_ptr();
        // SAFETY: the queue is alive, and with it its context.
        let result = unsafe {
            (*(*queue).context)
                .ops
                .req_notify_cq
                .map_or(libc::EOPNOTSUPP, |request| request(queue, 0))
        };
        if result == 0 {
            return Ok(());
        }
        check_and_set_errno(function, "ibv_req_notify_cq", result)
    }

    /// Whether the event is this queue's.
    #[inline]
    pub(crate) fn raised(&self, event: &Event) -> bool {
        event.queue == self.raw.as_ptr()
    }

    /// Notes that an event of this queue was taken.
    #[inline]
    pub(crate) fn acknowledge(&self) {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        if taken >= ACKNOWLEDGE_AT {
            self.acknowledge_all();
        }
    }

    #[cold]
    fn acknowledge_all(&self) {
        let taken = self.taken.swap(0, Ordering::Relaxed);
        if taken > 0 {
            // SAFETY: the queue is alive, and that many of its events were taken.
            unsafe { (self.device.provider().ibv_ack_cq_events)(self.raw.as_ptr(), taken) };
        }
    }

    /// Fetches completions to `wc`: the provider's answer, which is a number of completions or
    /// negative.
    ///
    /// # Safety
    /// `wc` is valid for writing `entries` completions.
    #[inline]
    pub(crate) unsafe fn poll(&self, entries: c_int, wc: *mut ibv_wc) -> c_int {
        // SAFETY: the queue is alive; `wc` by the contract.
        unsafe { (self.poll)(self.raw.as_ptr(), entries, wc) }
    }

    /// Fetches one completion, if the answer is 1.
    pub(crate) fn poll_one(&self) -> (c_int, WorkCompletion) {
        // SAFETY: all zeros is a valid completion.
        let mut wc: ibv_wc = unsafe { std::mem::zeroed() };
        // SAFETY: there is room for one.
        let got = unsafe { self.poll(1, &raw mut wc) };
        let has_immediate = wc.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
        let completion = WorkCompletion {
            wr_id: wc.wr_id,
            status: wc.status,
            len: wc.byte_len,
            // SAFETY: both fields of the union are numbers of the same size.
            immediate: has_immediate
                .then(|| u32::from_be(unsafe { wc.imm_data_invalidated_rkey_union.imm_data })),
        };
        (got, completion)
    }

    /// Releases the queue, which may not be used any more, and gives the provider's error back.
    /// If the provider refuses and `others_use_it`, it is released when the last of them is gone.
    pub(crate) fn release(&self, function: &CStr, others_use_it: bool) -> Result<(), Error> {
        if !self.released.claim() {
            return Ok(());
        }
        self.acknowledge_all();
        // SAFETY: the queue is this object's own, the claim made this its only release, and all
        // events that were taken are acknowledged.
        let result = unsafe { (self.device.provider().ibv_destroy_cq)(self.raw.as_ptr()) };
        let released = check_and_set_errno(function, "ibv_destroy_cq", result);
        if released.is_err() && others_use_it {
            self.released.defer();
        }
        released
    }
}

/// The outcome of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkCompletion {
    /// What the operation was posted with.
    pub wr_id: u64,
    /// 0, or why it failed, as `enum ibv_wc_status` numbers it.
    pub status: u32,
    /// How many bytes were received; of other operations it says nothing.
    pub len: u32,
    /// The number that came along.
    pub immediate: Option<u32>,
}

impl Drop for RawCompletionQueue {
    fn drop(&mut self) {
        let _kept = errno::Preserve::new();
        // A failure was logged; nobody is left to hear of it.
        let _ = self.release(c"rpma_cq_delete", false);
    }
}

/// What stands in for polling on a device that cannot.
unsafe extern "C" fn no_poll(_cq: *mut ibv_cq, _entries: c_int, _wc: *mut ibv_wc) -> c_int {
    -1
}
