// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What runs share: two peers, a listening endpoint, and registered memory for each end.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::ptr::null_mut;

use rdma_sys::ibv_context;
use rpma::capi::*;

use super::scenario::{MAX_CONNS, MAX_LEN, Side};

/// The region that the other side works on.
pub(super) const TARGET: usize = MAX_LEN + 4096;
/// Memory on both sides of it that nobody may touch.
pub(super) const GUARD: usize = 4096;
/// What is written and sent comes from here; its content never changes.
pub(super) const SOURCE: usize = 2 * MAX_LEN;
/// Where reads go.
pub(super) const LAND: usize = 2 * MAX_LEN;
/// Receives that an end can have.
pub(super) const SLOTS: usize = 6;
/// Receives that a shared queue can have.
pub(super) const SHARED_SLOTS: usize = 10;

/// What a byte is before anybody wrote to it.
const UNTOUCHED: u8 = 0xee;

const RIGHTS: i32 = 0xff;
const READ_SRC: i32 = 1;
const WRITE_DST: i32 = 1 << 3;

pub(super) fn check(code: i32, what: &str) -> Result<(), String> {
    if code == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(format!("{what} returned {code} (errno: {error})"))
}

/// Registered memory, aligned as atomic writes need it.
pub(super) struct Memory {
    words: Vec<u64>,
    len: usize,
    pub(super) mr: *mut rpma_mr_local,
}

impl Memory {
    /// `len` bytes, of which those between the guards are registered.
    fn new(
        peer: *mut rpma_peer,
        len: usize,
        guard: usize,
        usage: i32,
        fill: impl Fn(usize) -> u8,
    ) -> Result<Self, String> {
        let mut words = vec![0u64; (len + 2 * guard).div_ceil(8)];
        let start = words.as_mut_ptr().cast::<u8>();
        for at in 0..len + 2 * guard {
            // SAFETY: inside the vector.
            unsafe { start.add(at).write(fill(at)) };
        }
        let mut mr = null_mut();
        // SAFETY: the vector's memory, which stays in place; here and in all of this module, the
        // pointers are the library's own or variables on the stack.
        let code = unsafe { rpma_mr_reg(peer, start.add(guard).cast(), len, usage, &mut mr) };
        check(code, "rpma_mr_reg")?;
        Ok(Memory {
            words,
            len: len + 2 * guard,
            mr,
        })
    }

    /// A part, as other threads have left it.
    pub(super) fn copy(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.len);
        let mut copy = vec![0; len];
        let start = self.words.as_ptr().cast::<u8>();
        // SAFETY: inside the vector. The fabric may write meanwhile: any mixture is a value.
        unsafe { std::ptr::copy(std::hint::black_box(start).add(at), copy.as_mut_ptr(), len) };
        copy
    }

    pub(super) fn equals(&self, at: usize, expected: &[u8]) -> bool {
        assert!(at + expected.len() <= self.len);
        let start = std::hint::black_box(self.words.as_ptr()).cast::<u8>();
        // SAFETY: inside the vector.
        unsafe {
            libc::memcmp(
                start.add(at).cast(),
                expected.as_ptr().cast(),
                expected.len(),
            ) == 0
        }
    }

    /// Makes a part untouched again.
    pub(super) fn reset(&mut self, at: usize, len: usize) {
        assert!(at + len <= self.len);
        let start = self.words.as_mut_ptr().cast::<u8>();
        // SAFETY: inside the vector.
        unsafe { std::ptr::write_bytes(start.add(at), UNTOUCHED, len) };
    }

    /// The region as the other side has it, after `change` to its descriptor.
    fn remote(&self, change: impl Fn(&mut [u8; 21])) -> Result<*mut rpma_mr_remote, String> {
        let mut descriptor = [0u8; 21];
        let mut remote = null_mut();
        // SAFETY: as above.
        unsafe {
            let code = rpma_mr_get_descriptor(self.mr, descriptor.as_mut_ptr().cast());
            check(code, "rpma_mr_get_descriptor")?;
            change(&mut descriptor);
            let code = rpma_mr_remote_from_descriptor(
                descriptor.as_ptr().cast(),
                descriptor.len(),
                &mut remote,
            );
            check(code, "rpma_mr_remote_from_descriptor")?;
        }
        Ok(remote)
    }
}

/// The byte of the source at an offset: no period that a copying error could hide in.
pub(super) fn source_byte(at: usize) -> u8 {
    let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as u8
}

/// The memory of one end of a connection, and the other side's view of it.
pub(super) struct EndMemory {
    pub(super) target: Memory,
    pub(super) land: Memory,
    pub(super) inbox: Memory,
    pub(super) to_target: *mut rpma_mr_remote,
    pub(super) to_nothing: *mut rpma_mr_remote,
}

/// One process's side.
pub(super) struct SideStage {
    pub(super) peer: *mut rpma_peer,
    pub(super) source: Memory,
    /// Cannot be read into.
    pub(super) read_only: Memory,
    pub(super) to_read_only: *mut rpma_mr_remote,
    pub(super) to_write_only: *mut rpma_mr_remote,
    _write_only: Memory,
    pub(super) ends: Vec<EndMemory>,
}

pub(super) struct Stage {
    pub(super) sides: [SideStage; 2],
    pub(super) shared_inbox: Memory,
    pub(super) endpoint: *mut rpma_ep,
    pub(super) address: CString,
    pub(super) port: CString,
    pub(super) pcfg: *mut rpma_peer_cfg,
    /// The kernel's soft-RoCE, which reports some errors as others.
    pub(super) rxe: bool,
    /// What the source consists of.
    pub(super) pattern: Vec<u8>,
}

impl SideStage {
    fn new(peer: *mut rpma_peer) -> Result<Self, String> {
        let untouched = |_| UNTOUCHED;
        let all_usage = |descriptor: &mut [u8; 21]| descriptor[20] = 0xff;
        let read_only = Memory::new(peer, TARGET, 0, READ_SRC, untouched)?;
        let write_only = Memory::new(peer, TARGET, 0, WRITE_DST, untouched)?;
        let mut ends = Vec::new();
        for _ in 0..MAX_CONNS {
            let target = Memory::new(peer, TARGET, GUARD, RIGHTS, untouched)?;
            ends.push(EndMemory {
                to_target: target.remote(|_| ())?,
                to_nothing: target.remote(|descriptor| descriptor[16] ^= 0x55)?,
                target,
                land: Memory::new(peer, LAND, 0, RIGHTS, untouched)?,
                inbox: Memory::new(peer, SLOTS * MAX_LEN, 0, RIGHTS, untouched)?,
            });
        }
        Ok(SideStage {
            peer,
            source: Memory::new(peer, SOURCE, 0, RIGHTS, source_byte)?,
            to_read_only: read_only.remote(all_usage)?,
            to_write_only: write_only.remote(all_usage)?,
            read_only,
            _write_only: write_only,
            ends,
        })
    }
}

impl Stage {
    /// On an address of this machine.
    pub(super) fn new(address: &str) -> Result<Self, String> {
        let name = CString::new(address).map_err(|e| e.to_string())?;
        let mut peers = [null_mut(), null_mut()];
        let mut context: *mut ibv_context = null_mut();
        for peer in &mut peers {
            // SAFETY: as above.
            unsafe {
                let code = rpma_utils_get_ibv_context(
                    name.as_ptr(),
                    MaybeUninit::new(rpma_util_ibv_context_type::RPMA_UTIL_IBV_CONTEXT_LOCAL),
                    &mut context,
                );
                check(code, "rpma_utils_get_ibv_context")?;
                check(rpma_peer_new(context, peer), "rpma_peer_new")?;
            }
        }
        // SAFETY: an open context has a device, which has a name.
        let device = unsafe { std::ffi::CStr::from_ptr((*(*context).device).name.as_ptr()) };
        let rxe = device.to_bytes().starts_with(b"rxe");
        let mut endpoint = null_mut();
        let mut port = CString::default();
        // Somebody else may take a port that was free a moment ago.
        for _ in 0..20 {
            let free = TcpListener::bind((address, 0)).map_err(|e| format!("{address}: {e}"))?;
            let number = free.local_addr().map_err(|e| e.to_string())?.port();
            drop(free);
            port = CString::new(number.to_string()).map_err(|e| e.to_string())?;
            // SAFETY: as above.
            if unsafe { rpma_ep_listen(peers[1], name.as_ptr(), port.as_ptr(), &mut endpoint) } == 0
            {
                break;
            }
        }
        if endpoint.is_null() {
            return Err("no port to listen on".into());
        }
        let mut pcfg = null_mut();
        // SAFETY: as above.
        unsafe {
            check(rpma_peer_cfg_new(&mut pcfg), "rpma_peer_cfg_new")?;
            let code = rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true);
            check(code, "rpma_peer_cfg_set_direct_write_to_pmem")?;
        }
        Ok(Stage {
            sides: [SideStage::new(peers[0])?, SideStage::new(peers[1])?],
            shared_inbox: Memory::new(peers[1], SHARED_SLOTS * MAX_LEN, 0, RIGHTS, |_| UNTOUCHED)?,
            endpoint,
            address: name,
            port,
            pcfg,
            rxe,
            pattern: (0..SOURCE).map(source_byte).collect(),
        })
    }

    pub(super) fn side(&self, side: Side) -> &SideStage {
        &self.sides[side as usize]
    }

    /// An image of memory that nobody has touched.
    pub(super) fn untouched(len: usize) -> Vec<u8> {
        vec![UNTOUCHED; len]
    }
}
