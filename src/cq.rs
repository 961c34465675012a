// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Completion queue, with the channel that announces its completions.

use std::ffi::c_int;

use rdma_sys::ibv_wc;

use crate::error::{Error, FirstError};
use crate::fault;
use crate::log::{log_debug, log_error};
use crate::verbs::context::DeviceContext;
use crate::verbs::cq::{CompletionChannel, RawCompletionQueue};

pub use crate::verbs::cq::WorkCompletion;

/// A completion queue. Safe to use from several threads at once.
pub struct CompletionQueue {
    raw: RawCompletionQueue,
    channel: Channel,
}

/// The channel that a completion queue announces its completions on.
enum Channel {
    Own(CompletionChannel),
    /// The connection's, of which only the descriptor is of interest here.
    Shared {
        fd: c_int,
    },
}

impl CompletionQueue {
    pub(crate) fn with_own_channel(device: DeviceContext, entries: c_int) -> Result<Self, Error> {
        let channel = CompletionChannel::create(device, c"rpma_cq_new")?;
        let raw = Self::create_armed(device, entries, &channel)?;
        Ok(CompletionQueue {
            raw,
            channel: Channel::Own(channel),
        })
    }

    /// The channel has to be released after the queue.
    pub(crate) fn with_shared_channel(
        device: DeviceContext,
        entries: c_int,
        channel: &CompletionChannel,
    ) -> Result<Self, Error> {
        Ok(CompletionQueue {
            raw: Self::create_armed(device, entries, channel)?,
            channel: Channel::Shared { fd: channel.fd() },
        })
    }

    fn create_armed(
        device: DeviceContext,
        entries: c_int,
        channel: &CompletionChannel,
    ) -> Result<RawCompletionQueue, Error> {
        let raw = RawCompletionQueue::create(device, entries, channel, c"rpma_cq_new")?;
        raw.request_notification(c"rpma_cq_new")?;
        Ok(raw)
    }

    #[inline]
    pub(crate) fn raw(&self) -> &RawCompletionQueue {
        &self.raw
    }

    /// The descriptor that becomes readable when a completion is announced. It stays the queue's.
    pub fn fd(&self) -> c_int {
        match &self.channel {
            Channel::Own(channel) => channel.fd(),
            Channel::Shared { fd } => *fd,
        }
    }

    /// Waits until a completion is announced, unless the descriptor is non-blocking, and asks for
    /// the next announcement.
    ///
    /// Errors: SHARED_CHANNEL if the channel is not this queue's own; NO_COMPLETION if nothing
    /// is announced; PROVIDER if the next announcement cannot be asked for.
    #[inline]
    pub fn wait(&self) -> Result<(), Error> {
        let Channel::Own(channel) = &self.channel else {
            return Err(Error::SharedChannel);
        };
        fault::point(c"rpma_cq_wait", Error::NoCompletion)?;
        channel.next_event().ok_or(Error::NoCompletion)?;
        self.raw.acknowledge();
        self.raw.request_notification(c"rpma_cq_wait")
    }

    /// Fetches up to `entries` completions to `wc` and says how many there were.
    ///
    /// Errors: NO_COMPLETION if there is none; PROVIDER if the provider fails; UNKNOWN if it
    /// claims more than it was asked for.
    ///
    /// # Safety
    /// `wc` is valid for writing `entries` completions.
    #[inline(always)]
    pub(crate) unsafe fn poll(&self, entries: c_int, wc: *mut ibv_wc) -> Result<c_int, Error> {
        fault::point(c"rpma_cq_get_wc", Error::Provider)?;
        // SAFETY: the contract.
        let got = unsafe { self.raw.poll(entries, wc) };
        if got == 0 {
            // An announcement may outlive the completion that it was for.
            log_debug!(c"rpma_cq_get_wc", "no completion in the queue");
            return Err(Error::NoCompletion);
        }
        if got < 0 || got > entries {
            return Err(wrong_answer(got, entries));
        }
        Ok(got)
    }

    /// The next completion.
    ///
    /// Errors: NO_COMPLETION if there is none; PROVIDER if the provider fails.
    pub fn next(&self) -> Result<WorkCompletion, Error> {
        fault::point(c"rpma_cq_get_wc", Error::Provider)?;
        match self.raw.poll_one() {
            (1, completion) => Ok(completion),
            (0, _) => Err(Error::NoCompletion),
            (got, _) => Err(wrong_answer(got, 1)),
        }
    }

    /// The next completion; waits for one unless the descriptor is non-blocking.
    ///
    /// Errors: as [`CompletionQueue::next`] and [`CompletionQueue::wait`].
    pub fn wait_next(&self) -> Result<WorkCompletion, Error> {
        loop {
            match self.next() {
                Err(Error::NoCompletion) => self.wait()?,
                other => return other,
            }
        }
    }

    /// Releases the queue, which may not be used any more, and its channel if that is its own;
    /// gives the first error back. With `others_use_it`, a refusal is retried when the last of
    /// them is gone.
    pub(crate) fn release(&self, others_use_it: bool) -> Result<(), Error> {
        let mut first = FirstError::default();
        let queue = self.raw.release(c"rpma_cq_delete", others_use_it);
        let still_there = queue.is_err() && others_use_it;
        first.note(queue);
        if let Channel::Own(channel) = &self.channel
            && !still_there
        {
            first.note(channel.release(c"rpma_cq_delete"));
        }
        fault::after(first.into_result(), c"rpma_cq_delete")
    }
}

#[cold]
fn wrong_answer(got: c_int, entries: c_int) -> Error {
    if got < 0 {
        log_error!(c"rpma_cq_get_wc", "ibv_poll_cq failed (it gives no reason)");
        return Error::Provider;
    }
    log_error!(
        c"rpma_cq_get_wc",
        "ibv_poll_cq claims {got} completions where at most {entries} were asked for"
    );
    Error::Unknown
}
