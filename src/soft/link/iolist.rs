// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Gather and scatter lists, as the system's calls take them.

use std::sync::Arc;

use crate::soft::mem;
use crate::soft::mr::{Region, RegionUse};

/// A gather or scatter list that is kept to be filled again.
#[derive(Default)]
pub(super) struct IoList(pub(super) Vec<libc::iovec>);

// SAFETY: the pointers are used only between filling the list and the call right after it.
unsafe impl Send for IoList {}

impl IoList {
    pub(super) fn push(&mut self, addr: u64, len: usize) {
        self.0.push(libc::iovec {
            iov_base: addr as *mut libc::c_void,
            iov_len: len,
        });
    }

    /// Adds registered memory and holds its region; false if it is not there.
    pub(super) fn push_held(
        &mut self,
        uses: &mut Vec<RegionUse>,
        region: Option<Arc<Region>>,
        addr: u64,
        len: u64,
        probe: bool,
    ) -> bool {
        let Some(guard) = region.and_then(|r| r.enter()) else {
            return false;
        };
        if probe && !mem::is_readable(addr, len) {
            return false;
        }
        uses.push(guard);
        self.push(addr, len as usize);
        true
    }
}
