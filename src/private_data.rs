// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Private data: what one side sends along with its connect request or its answer.

use crate::error::Error;
use crate::sys::alloc::try_copy;

/// A copy of the other side's private data, possibly empty. Its address does not change when it
/// moves from a connection request to the connection.
#[derive(Debug, Default)]
pub(crate) struct PrivateData {
    bytes: Option<Box<[u8]>>,
}

impl PrivateData {
    pub(crate) fn copy_of(bytes: &[u8]) -> Result<Self, Error> {
        let bytes = if bytes.is_empty() {
            None
        } else {
            Some(try_copy(bytes)?)
        };
        Ok(PrivateData { bytes })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_none()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }
}
