// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Making a range of memory durable.
//!
//! What that takes depends on the mapping: one that is persistent memory itself needs its cache
//! lines written back; all other memory is handed to `msync`, which does what an ordinary file
//! mapping needs and has nothing to do for private or anonymous memory. Which parts are
//! persistent memory is read from `/proc/self/smaps`, once a region, when it is first flushed to
//! persistence; what cannot be told gets `msync`, which is right for persistent memory as well.

use std::fs::File;
use std::io::{BufRead, BufReader};
#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

use super::mem::{Fault, is_accessible, page_size};

/// The parts of a region that are persistent memory mapped directly: durable once they have left
/// the CPU's caches. In order, and not overlapping.
#[derive(Debug, Default)]
pub(super) struct Extents {
    direct: Vec<(u64, u64)>,
}

impl Extents {
    /// Looks the mappings of a range up.
    pub(super) fn of(addr: u64, len: u64) -> Self {
        match File::open("/proc/self/smaps") {
            Ok(file) => Self::parse(BufReader::new(file), addr, addr.saturating_add(len)),
            Err(_) => Extents::default(),
        }
    }

    fn parse(smaps: impl BufRead, from: u64, to: u64) -> Self {
        let mut direct = Vec::new();
        let mut current = None;
        // Paths are any bytes, so lines are not text.
        for line in smaps.split(b'\n') {
            let Ok(line) = line else {
                // What was not read is not known to be direct.
                break;
            };
            if let Some(mapping) = parse_mapping(&line) {
                if mapping.start >= to {
                    break;
                }
                let inside = from < mapping.end;
                if inside && mapping.is_device {
                    direct.push((mapping.start, mapping.end));
                }
                current = (inside && mapping.is_shared && !mapping.is_device).then_some(mapping);
            } else if line.starts_with(b"VmFlags:")
                && line.split(|b| *b == b' ').any(|flag| flag == b"sf")
                && let Some(mapping) = current.take()
            {
                direct.push((mapping.start, mapping.end));
            }
        }
        Extents { direct }
    }

    /// How many bytes of a range are persistent memory.
    pub(super) fn direct_bytes(&self, addr: u64, len: u64) -> u64 {
        let end = addr.saturating_add(len);
        let inside = |(from, to): &(u64, u64)| (*to).min(end).saturating_sub((*from).max(addr));
        self.direct.iter().map(inside).sum()
    }

    /// Makes a range durable; returns once it is.
    pub(super) fn persist(&self, addr: u64, len: u64) -> Result<(), Fault> {
        if len == 0 {
            return Ok(());
        }
        let end = addr.checked_add(len).ok_or(Fault)?;
        let mut done = addr;
        for (start, stop) in &self.direct {
            let (from, to) = (done.max(*start), end.min(*stop));
            if from >= to {
                continue;
            }
            if done < from {
                sync_file(done, from)?;
            }
            write_back(from, to)?;
            done = to;
        }
        if done < end {
            sync_file(done, end)?;
        }
        fence(Ordering::SeqCst);
        Ok(())
    }
}

/// One line of `/proc/self/maps`, or one of `smaps` that begins a mapping.
struct Mapping {
    start: u64,
    end: u64,
    is_shared: bool,
    /// Whether it is a DAX device, which knows no other mapping.
    is_device: bool,
}

/// `7f00-7f01 rw-s 00000000 103:02 1234   /path`
fn parse_mapping(line: &[u8]) -> Option<Mapping> {
    let mut fields = line
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty());
    let range = std::str::from_utf8(fields.next()?).ok()?;
    let (start, end) = range.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let is_shared = fields.next()?.ends_with(b"s");
    let path = fields.nth(3).unwrap_or_default();
    Some(Mapping {
        start,
        end,
        is_shared,
        is_device: is_shared && path.starts_with(b"/dev/dax"),
    })
}

/// So much is worth a thread that serves other connections meanwhile.
pub(super) const LONG_FLUSH: u64 = 8 << 20;

/// Whether to make a range durable may have to wait for a disk: it is in part a shared mapping of what
/// is not persistent memory by itself, or that cannot be told.
pub(super) fn may_need_disk(addr: u64, len: u64) -> bool {
    let Ok(maps) = File::open("/proc/self/maps") else {
        return true;
    };
    is_file_in(BufReader::new(maps), addr, addr.saturating_add(len))
}

fn is_file_in(maps: impl BufRead, from: u64, to: u64) -> bool {
    for line in maps.split(b'\n') {
        match line.ok().as_deref().and_then(parse_mapping) {
            None => return true,
            Some(mapping) if mapping.start >= to => break,
            Some(mapping) if from < mapping.end && mapping.is_shared && !mapping.is_device => {
                return true;
            }
            Some(_) => {}
        }
    }
    false
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

#[cfg(target_arch = "x86_64")]
const CACHE_LINE: u64 = 64;

/// How a CPU writes a cache line back.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
enum Way {
    Clwb,
    ClflushOpt,
    Clflush,
}

#[cfg(target_arch = "x86_64")]
impl Way {
    fn of_this_cpu() -> Self {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        static WAY: OnceLock<Way> = OnceLock::new();
        *WAY.get_or_init(|| {
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
        })
    }
}

/// How [`Extents::persist`] makes persistent memory durable on this machine.
pub(super) fn instruction() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    return match Way::of_this_cpu() {
        Way::Clwb => "clwb",
        Way::ClflushOpt => "clflushopt",
        Way::Clflush => "clflush",
    };
    #[cfg(not(target_arch = "x86_64"))]
    return "msync";
}

/// Writes the cache lines of a range back to persistent memory.
#[cfg(target_arch = "x86_64")]
fn write_back(from: u64, to: u64) -> Result<(), Fault> {
    use std::arch::asm;
    use std::arch::x86_64::{_mm_clflush, _mm_sfence};

    // Mapped, and with files behind it that are long enough; where the kernel cannot be asked for
    // that, the next best look must do.
    if !is_accessible(from, to - from, false) {
        return Err(Fault);
    }
    let mut line = from & !(CACHE_LINE - 1);
    while line < to {
        let pointer = line as *const u8;
        // SAFETY: the line can be accessed (looked at above, and the region is in use, so it
        // cannot be deregistered); writing back changes no content. The CPU has the instruction.
        unsafe {
            match Way::of_this_cpu() {
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

    const SMAPS: &[u8] = b"\
00001000-00002000 rw-p 00000000 00:00 0 
VmFlags: rd wr mr mw me ac sd 
00002000-00004000 rw-s 00000000 103:02 77                         /data/caf\xe9.log
VmFlags: rd wr sh mr mw me ms sd 
00004000-00006000 rw-s 00000000 103:02 78                         /pmem/pool
Rss:                   8 kB
VmFlags: rd wr sh mr mw me ms sf mm 
00006000-00007000 rw-s 00000000 00:06 99                          /dev/dax0.0
VmFlags: rd wr sh mr mw me ms mm hg 
00007000-00008000 rw-p 00000000 103:02 80                         /data/private
VmFlags: rd wr mr mw me ac sf 
";

    fn direct(from: u64, to: u64) -> Vec<(u64, u64)> {
        Extents::parse(Cursor::new(SMAPS), from, to).direct
    }

    #[test]
    fn persistent_memory_is_told_from_the_rest() {
        let (pool, device) = ((0x4000, 0x6000), (0x6000, 0x7000));
        assert_eq!(direct(0, u64::MAX), [pool, device]);
        assert_eq!(direct(0x3000, 0x4000), []);
        assert_eq!(direct(0x3fff, 0x4001), [pool]);
        assert_eq!(direct(0x6fff, 0x8000), [device]);
        assert_eq!(direct(0x9000, 0xa000), []);
        let all = Extents::parse(Cursor::new(SMAPS), 0, u64::MAX);
        assert_eq!(all.direct_bytes(0, u64::MAX), 0x3000);
        assert_eq!(all.direct_bytes(0x5000, 0x1800), 0x1800);
        assert_eq!(all.direct_bytes(0x1000, 0x3000), 0);
    }

    #[test]
    fn memory_that_needs_no_disk_is_known() {
        let maps = SMAPS
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| parse_mapping(line).is_some())
            .collect::<Vec<_>>()
            .concat();
        let is_file = |from, to| is_file_in(Cursor::new(&maps), from, to);
        // A private file mapping, a device, and nothing at all.
        assert!(!is_file(0x7000, 0x8000));
        assert!(!is_file(0x6000, 0x8000));
        assert!(!is_file(0x9000, 0xa000));
        assert!(is_file(0x4000, 0x6000));
        assert!(is_file(0x5fff, 0x7000));
        assert!(is_file_in(Cursor::new(b"no mapping\n"), 0x9000, 0xa000));
        let bytes = vec![7u8; 100_000];
        assert!(!may_need_disk(bytes.as_ptr() as u64, 100_000));
    }

    #[test]
    fn own_memory_is_persisted_by_either_way() {
        let bytes = vec![7u8; 10_000];
        let start = bytes.as_ptr() as u64;
        let extents = Extents::of(start, 10_000);
        assert_eq!(extents.direct, []);
        assert_eq!(extents.persist(start, 10_000), Ok(()));
        // Writing back cache lines works on any memory.
        let pretended = Extents {
            direct: vec![(start + 1000, start + 2000)],
        };
        assert_eq!(pretended.persist(start, 10_000), Ok(()));
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
        assert!(may_need_disk(base as u64 + 100, 5000));
        let extents = Extents::of(base as u64, 8192);
        assert_eq!(extents.direct, []);
        assert_eq!(extents.persist(base as u64 + 100, 5000), Ok(()));
        // SAFETY: the mapping is this test's.
        unsafe { munmap(base, 8192) }.unwrap();
        assert_eq!(extents.persist(base as u64 + 100, 5000), Err(Fault));
    }
}
