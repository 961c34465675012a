// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Making a range of memory durable.
//!
//! What that takes depends on the mapping: a mapping that is persistent memory itself needs its
//! cache lines written back, an ordinary shared file mapping needs `msync`, and private or
//! anonymous memory has nothing to be durable on. The kind is read from `/proc/self/smaps`,
//! once a region, when it is first flushed to persistence.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::atomic::{Ordering, fence};

use super::mem::{Fault, is_mapped, page_size};

/// What a part of a region needs to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    /// Nothing keeps this memory when the process ends.
    Volatile,
    /// Page cache of a file.
    PageCache,
    /// Persistent memory mapped directly: durable once it has left the CPU's caches.
    Direct,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    start: u64,
    end: u64,
    backing: Backing,
}

/// The parts of a region, by what they are mapped from.
#[derive(Debug, Default)]
pub(super) struct Extents {
    parts: Vec<Extent>,
    /// The kinds could not be read, so everything gets the treatment that is right for all.
    unknown: bool,
}

impl Extents {
    /// Looks the mappings of a range up.
    pub(super) fn of(addr: u64, len: u64) -> Self {
        match File::open("/proc/self/smaps") {
            Ok(file) => Self::parse(BufReader::new(file), addr, addr.saturating_add(len)),
            Err(_) => Extents {
                parts: Vec::new(),
                unknown: true,
            },
        }
    }

    fn parse(smaps: impl BufRead, from: u64, to: u64) -> Self {
        let mut parts: Vec<Extent> = Vec::new();
        let mut inside = false;
        for line in smaps.lines().map_while(Result::ok) {
            if let Some(extent) = parse_mapping(&line) {
                inside = extent.start < to && from < extent.end;
                if inside {
                    parts.push(extent);
                } else if extent.start >= to {
                    break;
                }
            } else if inside
                && line.starts_with("VmFlags:")
                && line.contains(" sf")
                && let Some(last) = parts.last_mut()
            {
                last.backing = Backing::Direct;
            }
        }
        Extents {
            parts,
            unknown: false,
        }
    }

    /// Makes a range durable; returns once it is.
    pub(super) fn persist(&self, addr: u64, len: u64) -> Result<(), Fault> {
        if len == 0 {
            return Ok(());
        }
        let end = addr.checked_add(len).ok_or(Fault)?;
        if self.unknown {
            return sync_file(addr, end);
        }
        for part in &self.parts {
            let (from, to) = (addr.max(part.start), end.min(part.end));
            if from >= to {
                continue;
            }
            match part.backing {
                Backing::Volatile => {}
                Backing::PageCache => sync_file(from, to)?,
                Backing::Direct => write_back(from, to)?,
            }
        }
        fence(Ordering::SeqCst);
        Ok(())
    }
}

/// `7f00-7f01 rw-s 00000000 103:02 1234   /path`
fn parse_mapping(line: &str) -> Option<Extent> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let shared = fields.next()?.ends_with('s');
    let path = fields.nth(3).unwrap_or_default();
    let backing = match (shared, path) {
        (false, _) => Backing::Volatile,
        (true, p) if p.starts_with("/dev/dax") => Backing::Direct,
        (true, _) => Backing::PageCache,
    };
    Some(Extent {
        start,
        end,
        backing,
    })
}

fn sync_file(from: u64, to: u64) -> Result<(), Fault> {
    let start = from & !(page_size() - 1);
    // SAFETY: msync changes no memory; the kernel checks the range.
    let result = unsafe {
        libc::msync(
            start as *mut libc::c_void,
            (to - start) as usize,
            libc::MS_SYNC,
        )
    };
    if result == 0 { Ok(()) } else { Err(Fault) }
}

const CACHE_LINE: u64 = 64;

/// Writes the cache lines of a range back to persistent memory.
#[cfg(target_arch = "x86_64")]
fn write_back(from: u64, to: u64) -> Result<(), Fault> {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count, _mm_clflush, _mm_sfence};
    use std::sync::OnceLock;

    #[derive(Clone, Copy)]
    enum Way {
        Clwb,
        ClflushOpt,
        Clflush,
    }
    static WAY: OnceLock<Way> = OnceLock::new();
    let way = *WAY.get_or_init(|| {
        let leaves = __cpuid(0).eax;
        let features = if leaves >= 7 {
            __cpuid_count(7, 0).ebx
        } else {
            0
        };
        if features & 1 << 24 != 0 {
            Way::Clwb
        } else if features & 1 << 23 != 0 {
            Way::ClflushOpt
        } else {
            Way::Clflush
        }
    });
    if !is_mapped(from, to - from) {
        return Err(Fault);
    }
    let mut line = from & !(CACHE_LINE - 1);
    while line < to {
        let pointer = line as *const u8;
        // SAFETY: the line is mapped (looked at above, and the region is in use, so it cannot
        // be deregistered); writing back changes no content. The CPU has the instruction.
        unsafe {
            match way {
                Way::Clwb => {
                    asm!("clwb [{}]", in(reg) pointer, options(nostack, preserves_flags))
                }
                Way::ClflushOpt => {
                    asm!("clflushopt [{}]", in(reg) pointer, options(nostack, preserves_flags))
                }
                Way::Clflush => _mm_clflush(pointer),
            }
        }
        line += CACHE_LINE;
    }
    // SAFETY: a store fence; every x86-64 CPU has it.
    unsafe { _mm_sfence() };
    Ok(())
}

/// Elsewhere the kernel knows how.
#[cfg(not(target_arch = "x86_64"))]
fn write_back(from: u64, to: u64) -> Result<(), Fault> {
    sync_file(from, to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    const SMAPS: &str = "\
00001000-00002000 rw-p 00000000 00:00 0 
VmFlags: rd wr mr mw me ac sd 
00002000-00004000 rw-s 00000000 103:02 77                         /data/log
VmFlags: rd wr sh mr mw me ms sd 
00004000-00006000 rw-s 00000000 103:02 78                         /pmem/pool
Rss:                   8 kB
VmFlags: rd wr sh mr mw me ms sf mm 
00006000-00007000 rw-s 00000000 00:06 99                          /dev/dax0.0
VmFlags: rd wr sh mr mw me ms mm hg 
00007000-00008000 rw-p 00000000 103:02 80                         /data/private
";

    fn kinds(from: u64, to: u64) -> Vec<Backing> {
        Extents::parse(Cursor::new(SMAPS), from, to)
            .parts
            .iter()
            .map(|p| p.backing)
            .collect()
    }

    #[test]
    fn mappings_are_told_apart() {
        assert_eq!(
            kinds(0, u64::MAX),
            [
                Backing::Volatile,
                Backing::PageCache,
                Backing::Direct,
                Backing::Direct,
                Backing::Volatile
            ]
        );
        assert_eq!(kinds(0x3000, 0x4000), [Backing::PageCache]);
        assert_eq!(kinds(0x3fff, 0x4001), [Backing::PageCache, Backing::Direct]);
        assert_eq!(kinds(0x9000, 0xa000), []);
    }

    #[test]
    fn own_memory_is_classified_and_persisted() {
        let bytes = vec![7u8; 10_000];
        let extents = Extents::of(bytes.as_ptr() as u64, 10_000);
        assert!(extents.parts.iter().all(|p| p.backing == Backing::Volatile));
        assert_eq!(extents.persist(bytes.as_ptr() as u64, 10_000), Ok(()));
        // Writing back cache lines works on any memory.
        assert_eq!(
            write_back(bytes.as_ptr() as u64, bytes.as_ptr() as u64 + 10_000),
            Ok(())
        );
        assert_eq!(bytes, [7; 10_000]);
    }

    #[test]
    fn file_mappings_are_synced() {
        use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
        let path = std::env::temp_dir().join(format!("rpma-persist-{}", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        file.set_len(8192).unwrap();
        std::fs::remove_file(&path).unwrap();
        // SAFETY: a new mapping.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                8192,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        }
        .unwrap();
        let extents = Extents::of(base as u64, 8192);
        assert_eq!(extents.parts.len(), 1);
        assert_eq!(extents.parts[0].backing, Backing::PageCache);
        assert_eq!(extents.persist(base as u64 + 100, 5000), Ok(()));
        // SAFETY: the mapping is this test's.
        unsafe { munmap(base, 8192) }.unwrap();
        assert_eq!(extents.persist(base as u64 + 100, 5000), Err(Fault));
    }
}
