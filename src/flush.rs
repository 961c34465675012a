// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Flush: making earlier writes visible or persistent on the other side.
//!
//! Where queue pair and device can, by the native operation. Elsewhere by reading a few of the
//! flushed bytes back: the reply cannot overtake the writes before it.

use std::ffi::{CStr, c_int};

use rdma_sys::{IBV_FLUSH_GLOBAL, IBV_FLUSH_PERSISTENT, ibv_wr_opcode};

use crate::error::{Error, FirstError};
use crate::mr::{LocalRegion, RemoteRegion, Usage, element_of};
use crate::peer::Peer;
use crate::sys::alloc::Shared;
use crate::sys::page::Page;
use crate::verbs::qp::{QueuePair, SendRequest};

/// The most bytes that a flush without native support reads back.
const READ_BACK: usize = 8;

/// What a flush guarantees when it completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushType {
    /// The data survives a loss of power.
    Persistent,
    /// The data is visible to every observer on the other side.
    Visibility,
}

impl FlushType {
    /// The type with this number in the C interface.
    pub fn from_number(number: c_int) -> Option<Self> {
        match number {
            0 => Some(FlushType::Persistent),
            1 => Some(FlushType::Visibility),
            _ => None,
        }
    }

    /// The usage that a region needs for this type.
    pub(crate) fn usage(self) -> Usage {
        match self {
            FlushType::Persistent => Usage::FLUSH_PERSISTENT,
            FlushType::Visibility => Usage::FLUSH_VISIBILITY,
        }
    }
}

/// How a connection flushes.
pub(crate) enum Flush {
    Native,
    /// Natively to visibility; there is no native flush to persistence of ordinary memory.
    NativeVisibility(ReadBack),
    ReadBack(ReadBack),
}

/// The private memory that a flush without native support reads into: one per connection, never
/// looked at.
pub(crate) struct ReadBack {
    region: LocalRegion,
    page: Page,
}

impl Flush {
    pub(crate) fn new(peer: &Shared<Peer>, qp: &QueuePair) -> Result<Self, Error> {
        let native = qp.can_flush();
        if native && peer.flushes_persistently() {
            return Ok(Flush::Native);
        }
        let page = Page::map()?;
        let address = page.address().as_ptr();
        let region = LocalRegion::register(peer, address, READ_BACK, Usage::READ_DST)?;
        let helper = ReadBack { region, page };
        Ok(if native {
            Flush::NativeVisibility(helper)
        } else {
            Flush::ReadBack(helper)
        })
    }

    /// Whether a read may stand in for a flush.
    #[inline(always)]
    pub(crate) fn may_read(&self) -> bool {
        !matches!(self, Flush::Native)
    }

    /// Posts a flush of `len` bytes.
    #[inline(always)]
    pub(crate) fn post(
        &self,
        qp: &QueuePair,
        request: &FlushRequest<'_>,
        function: &CStr,
    ) -> Result<(), Error> {
        let FlushRequest {
            dst,
            offset,
            len,
            kind,
            wr_id,
            send_flags,
        } = *request;
        match (self, kind) {
            (Flush::Native, _) | (Flush::NativeVisibility(_), FlushType::Visibility) => {
                let kind = match kind {
                    FlushType::Persistent => IBV_FLUSH_PERSISTENT,
                    FlushType::Visibility => IBV_FLUSH_GLOBAL,
                };
                qp.post_flush(
                    dst.at(offset, len, function),
                    len,
                    kind,
                    wr_id,
                    send_flags,
                    c"rpma_mr_flush",
                )
                .unwrap_or(Err(Error::NoSupp))
            }
            (Flush::ReadBack(helper) | Flush::NativeVisibility(helper), _) => {
                // Not beyond what is flushed: the region may end there. Of nothing, nothing is
                // read, which still waits for the writes before.
                let read = len.min(READ_BACK);
                let into = (read != 0).then(|| helper.region.range(0, read));
                let request = SendRequest {
                    opcode: ibv_wr_opcode::IBV_WR_RDMA_READ,
                    wr_id,
                    flags: send_flags,
                    immediate: 0,
                    remote: dst.at(offset, len, function),
                    element: element_of(into, function)?,
                };
                qp.post_send(request, c"rpma_mr_read")
            }
        }
    }

    /// Releases the private memory and gives the first error back.
    pub(crate) fn release(self) -> Result<(), Error> {
        let (Flush::ReadBack(helper) | Flush::NativeVisibility(helper)) = self else {
            return Ok(());
        };
        let mut first = FirstError::default();
        first.note(helper.region.release());
        first.note(helper.page.release());
        first.into_result()
    }
}

/// One flush.
pub(crate) struct FlushRequest<'a> {
    pub(crate) dst: &'a RemoteRegion,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) kind: FlushType,
    pub(crate) wr_id: u64,
    pub(crate) send_flags: u32,
}
