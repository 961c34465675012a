// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Memory regions: local ones, which are registered with a peer, and remote ones, which are known
//! by the descriptor that their owner sent.

use std::ffi::{CStr, c_int, c_void};

use rdma_sys::ibv_access_flags;

use crate::error::Error;
use crate::log::{log_debug, log_error};
use crate::peer::Peer;
use crate::sys::alloc::Shared;
use crate::verbs::mr::MemoryRegion;
use crate::verbs::qp::{Element, RemoteAddress};

/// What a memory region is going to be used for: a set of the bits below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage(u8);

impl Usage {
    /// Source of a read by the other side.
    pub const READ_SRC: Usage = Usage(1 << 0);
    /// Destination of a read by this side.
    pub const READ_DST: Usage = Usage(1 << 1);
    /// Source of a write by this side.
    pub const WRITE_SRC: Usage = Usage(1 << 2);
    /// Destination of a write by the other side.
    pub const WRITE_DST: Usage = Usage(1 << 3);
    /// Flushed by the other side, for visibility.
    pub const FLUSH_VISIBILITY: Usage = Usage(1 << 4);
    /// Flushed by the other side, for persistence.
    pub const FLUSH_PERSISTENT: Usage = Usage(1 << 5);
    /// Source of messages.
    pub const SEND: Usage = Usage(1 << 6);
    /// Destination of messages.
    pub const RECV: Usage = Usage(1 << 7);

    /// The usage with these bits; `None` for no bit, or one that has no meaning.
    pub fn from_bits(bits: c_int) -> Option<Self> {
        match u8::try_from(bits) {
            Ok(0) | Err(_) => None,
            Ok(bits) => Some(Usage(bits)),
        }
    }

    /// The set as a number.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether all of `other` is in the set.
    pub const fn contains(self, other: Usage) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets together.
    #[must_use]
    pub const fn union(self, other: Usage) -> Usage {
        Usage(self.0 | other.0)
    }

    /// The bits that are in both sets, as a number.
    pub const fn common(self, other: Usage) -> u8 {
        self.0 & other.0
    }

    /// The rights that a registration for this usage needs.
    fn access(self, iwarp: bool, native: NativeFlush) -> ibv_access_flags {
        use ibv_access_flags as Access;
        let grants = [
            (Usage::READ_SRC, Access::IBV_ACCESS_REMOTE_READ),
            (Usage::READ_DST, Access::IBV_ACCESS_LOCAL_WRITE),
            (Usage::WRITE_SRC, Access::IBV_ACCESS_LOCAL_WRITE),
            // Verbs grant remote writes only along with local ones.
            (
                Usage::WRITE_DST,
                Access::IBV_ACCESS_REMOTE_WRITE | Access::IBV_ACCESS_LOCAL_WRITE,
            ),
            (Usage::RECV, Access::IBV_ACCESS_LOCAL_WRITE),
            // Without native flush, the other side flushes by reading.
            (
                Usage::FLUSH_VISIBILITY,
                if native.visibility {
                    Access::IBV_ACCESS_FLUSH_GLOBAL
                } else {
                    Access::IBV_ACCESS_REMOTE_READ
                },
            ),
            (
                Usage::FLUSH_PERSISTENT,
                if native.persistent {
                    Access::IBV_ACCESS_FLUSH_PERSISTENT
                } else {
                    Access::IBV_ACCESS_REMOTE_READ
                },
            ),
        ];
        let mut access = Access(0);
        for (usage, granted) in grants {
            if self.contains(usage) {
                access |= granted;
            }
        }
        // iWARP carries out a read as a write in the other direction.
        if iwarp && self.contains(Usage::READ_DST) {
            access |= Access::IBV_ACCESS_REMOTE_WRITE;
        }
        access
    }
}

/// Which kinds of flush the device does by itself.
#[derive(Clone, Copy)]
struct NativeFlush {
    visibility: bool,
    persistent: bool,
}

/// A registered region of this process's memory.
pub struct LocalRegion {
    raw: MemoryRegion,
    usage: Usage,
    /// Kept alive for the region, which uses its protection domain.
    _peer: Shared<Peer>,
}

impl LocalRegion {
    /// Registers `len` bytes at `address`. The memory stays the caller's, who keeps it mapped
    /// until the region is deregistered; an operation on memory that is gone fails.
    ///
    /// Errors: PROVIDER if the provider refuses (errno says why).
    pub(crate) fn register(
        peer: &Shared<Peer>,
        address: *mut c_void,
        len: usize,
        usage: Usage,
    ) -> Result<Self, Error> {
        let native = NativeFlush {
            visibility: peer.native().flush,
            persistent: peer.flushes_persistently(),
        };
        let access = usage.access(peer.device().is_iwarp(), native);
        let raw = MemoryRegion::register(
            peer.pd(),
            address,
            len,
            access,
            peer.on_demand_paging(),
            c"rpma_peer_setup_mr_reg",
        )?;
        Ok(LocalRegion {
            raw,
            usage,
            _peer: peer.clone(),
        })
    }

    /// Where the region starts.
    pub fn address(&self) -> *mut c_void {
        self.raw.address()
    }

    /// How many bytes it has.
    pub fn size(&self) -> usize {
        self.raw.len()
    }

    /// The description of the region for the other side.
    pub fn descriptor(&self) -> [u8; RemoteRegion::DESCRIPTOR_SIZE] {
        RemoteRegion {
            address: self.raw.address() as u64,
            size: self.raw.len() as u64,
            key: self.raw.remote_key(),
            usage: self.usage,
        }
        .descriptor()
    }

    /// Tells the device how a part of the region is going to be used.
    ///
    /// Errors: NOSUPP if the device takes no such advice; INVAL for a part that is not the
    /// region's or advice that is none; else PROVIDER.
    pub fn advise(
        &self,
        offset: usize,
        len: usize,
        advice: c_int,
        flags: u32,
    ) -> Result<(), Error> {
        let len = element_len(len, c"rpma_mr_advise")?;
        self.raw
            .advise(offset, len, advice, flags, c"rpma_mr_advise")
    }

    /// A part of the region, for an operation. The device checks its bounds.
    #[inline]
    pub fn range(&self, offset: usize, len: usize) -> LocalRange<'_> {
        LocalRange {
            region: self,
            offset,
            len,
        }
    }

    /// Ends the registration.
    pub(crate) fn release(self) -> Result<(), Error> {
        self.raw.release(c"rpma_mr_dereg")
    }
}

/// A part of a local region.
#[derive(Clone, Copy)]
pub struct LocalRange<'a> {
    region: &'a LocalRegion,
    offset: usize,
    len: usize,
}

impl LocalRange<'_> {
    /// How many bytes the part has.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A length that fits a scatter/gather element.
#[inline(always)]
fn element_len(len: usize, function: &CStr) -> Result<u32, Error> {
    match u32::try_from(len) {
        Ok(len) => Ok(len),
        Err(_) => Err(too_long(len, function)),
    }
}

#[cold]
fn too_long(len: usize, function: &CStr) -> Error {
    log_error!(
        function,
        "{len} bytes are more than one operation can move (4 GiB - 1)"
    );
    Error::Inval
}

/// The scatter/gather element for a part of a region; none for no part.
#[inline(always)]
pub(crate) fn element_of(range: Option<LocalRange<'_>>, function: &CStr) -> Result<Element, Error> {
    let Some(range) = range else {
        return Ok(Element::NONE);
    };
    let len = element_len(range.len, function)?;
    Ok(Element::one(range.region.raw.element(range.offset, len)))
}

/// A region of the other side's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteRegion {
    address: u64,
    size: u64,
    key: u32,
    usage: Usage,
}

impl RemoteRegion {
    /// How many bytes a descriptor has: address, size, key and usage, little-endian.
    pub const DESCRIPTOR_SIZE: usize = 21;

    /// Reads a region from the start of a descriptor; the rest is ignored.
    ///
    /// Errors: INVAL for a descriptor that is too short or has no usage.
    pub fn from_descriptor(descriptor: &[u8]) -> Result<Self, Error> {
        const FUNCTION: &CStr = c"rpma_mr_remote_from_descriptor";
        let parts = || {
            let (address, rest) = descriptor.split_first_chunk::<8>()?;
            let (size, rest) = rest.split_first_chunk::<8>()?;
            let (key, rest) = rest.split_first_chunk::<4>()?;
            Some((*address, *size, *key, *rest.first()?))
        };
        let Some((address, size, key, usage)) = parts() else {
            log_error!(
                FUNCTION,
                "the descriptor has {} bytes, {} are needed",
                descriptor.len(),
                Self::DESCRIPTOR_SIZE
            );
            return Err(Error::Inval);
        };
        let Some(usage) = Usage::from_bits(c_int::from(usage)) else {
            log_error!(FUNCTION, "the descriptor names no usage");
            return Err(Error::Inval);
        };
        let region = RemoteRegion {
            address: u64::from_le_bytes(address),
            size: u64::from_le_bytes(size),
            key: u32::from_le_bytes(key),
            usage,
        };
        log_debug!(
            FUNCTION,
            "remote region: address {:#x}, {} bytes, key {:#x}, usage {:#x}",
            region.address,
            region.size,
            region.key,
            region.usage.bits()
        );
        Ok(region)
    }

    /// The descriptor of the region.
    pub fn descriptor(&self) -> [u8; Self::DESCRIPTOR_SIZE] {
        let mut descriptor = [0; Self::DESCRIPTOR_SIZE];
        let bytes = self
            .address
            .to_le_bytes()
            .into_iter()
            .chain(self.size.to_le_bytes())
            .chain(self.key.to_le_bytes())
            .chain([self.usage.bits()]);
        for (to, from) in descriptor.iter_mut().zip(bytes) {
            *to = from;
        }
        descriptor
    }

    /// How many bytes the region has.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What its owner lets it be used for.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// An address in the region, for an operation. The other side checks the bounds; what is
    /// visibly outside is worth a line in the log.
    #[inline(always)]
    pub(crate) fn at(&self, offset: usize, len: usize, function: &CStr) -> RemoteAddress {
        let end = (offset as u64).checked_add(len as u64);
        if end.is_none_or(|end| end > self.size) {
            self.report_outside(offset, len, function);
        }
        RemoteAddress {
            address: self.address.wrapping_add(offset as u64),
            key: self.key,
        }
    }

    #[cold]
    fn report_outside(&self, offset: usize, len: usize, function: &CStr) {
        log_debug!(
            function,
            "{len} bytes at {offset} are outside the remote region of {} bytes: the other side will refuse them",
            self.size
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_has_the_documented_layout() {
        let region = RemoteRegion {
            address: 0x0102_0304_0506_0708,
            size: 0x1112_1314_1516_1718,
            key: 0x2122_2324,
            usage: Usage::WRITE_DST.union(Usage::FLUSH_PERSISTENT),
        };
        assert_eq!(
            region.descriptor(),
            [
                0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13,
                0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 0x28
            ]
        );
    }

    #[test]
    fn usages_are_single_bytes_with_at_least_one_bit() {
        assert_eq!(Usage::from_bits(0), None);
        assert_eq!(Usage::from_bits(-1), None);
        assert_eq!(Usage::from_bits(256), None);
        assert_eq!(Usage::from_bits(c_int::MAX), None);
        assert_eq!(Usage::from_bits(255).map(Usage::bits), Some(255));
    }

    #[test]
    fn rights_follow_the_usage() {
        let rights_with = |usage: Usage, iwarp, visibility, persistent| {
            let native = NativeFlush {
                visibility,
                persistent,
            };
            usage.access(iwarp, native).0
        };
        let rights = |usage, iwarp, native| rights_with(usage, iwarp, native, native);
        let (local_write, remote_write, remote_read) = (1, 2, 4);
        assert_eq!(rights(Usage::READ_SRC, false, false), remote_read);
        assert_eq!(rights(Usage::READ_DST, false, false), local_write);
        assert_eq!(
            rights(Usage::READ_DST, true, false),
            local_write | remote_write
        );
        assert_eq!(rights(Usage::WRITE_SRC, false, false), local_write);
        assert_eq!(
            rights(Usage::WRITE_DST, false, false),
            local_write | remote_write
        );
        assert_eq!(rights(Usage::SEND, false, false), 0);
        assert_eq!(rights(Usage::RECV, false, false), local_write);
        for flush in [Usage::FLUSH_VISIBILITY, Usage::FLUSH_PERSISTENT] {
            assert_eq!(rights(flush, false, false), remote_read);
        }
        assert_eq!(rights(Usage::FLUSH_VISIBILITY, false, true), 256);
        assert_eq!(rights(Usage::FLUSH_PERSISTENT, false, true), 512);
        let both = Usage::FLUSH_VISIBILITY.union(Usage::FLUSH_PERSISTENT);
        assert_eq!(rights_with(both, false, true, false), 256 | remote_read);
    }
}
