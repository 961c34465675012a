// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What a file is as persistent memory.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rpma::info;
use rustix::fs::{fstatfs, major, minor};
use serde::Serialize;

use crate::fabric::Fabric;
use crate::finding::{Finding, Severity};
use crate::limits::size;

#[derive(Serialize)]
pub(crate) struct Pmem {
    pub(crate) file: PathBuf,
    /// `dax` persistent memory of a DAX file system, `device-dax` of a DAX device, `file` on
    /// an ordinary disk, `memory` that is gone when the machine is switched off. None if it cannot be used.
    pub(crate) kind: Option<&'static str>,
    pub(crate) bytes: u64,
    pub(crate) file_system: Option<String>,
    /// Whether it can be mapped with MAP_SYNC, as libpmem does.
    pub(crate) map_sync: bool,
    /// Whether what a persistent flush has completed survives a power failure.
    pub(crate) durable: bool,
    /// How the software fabric flushes it: if it is mapped with MAP_SYNC, and if not.
    pub(crate) flush_if_sync: Option<&'static str>,
    pub(crate) flush_if_plain: Option<&'static str>,
    /// Why it cannot be used.
    pub(crate) problem: Option<String>,
}

pub(crate) fn look(path: &Path) -> Pmem {
    let mut pmem = Pmem {
        file: path.to_path_buf(),
        kind: None,
        bytes: 0,
        file_system: None,
        map_sync: false,
        durable: false,
        flush_if_sync: None,
        flush_if_plain: None,
        problem: None,
    };
    if let Err(error) = fill(&mut pmem) {
        pmem.problem = Some(error);
    }
    pmem
}

fn fill(pmem: &mut Pmem) -> Result<(), String> {
    let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let file = File::options()
        .read(true)
        .write(true)
        .open(&pmem.file)
        .map_err(failed("it cannot be opened to read and write"))?;
    let metadata = file.metadata().map_err(failed("it cannot be asked"))?;
    let kind = metadata.file_type();
    let is_device = kind.is_char_device();
    if !kind.is_file() && !is_device {
        return Err(String::from("it is neither a file nor a DAX device"));
    }
    pmem.bytes = if is_device {
        device_size(metadata.rdev())
            .ok_or("it is a device, but none of persistent memory (/dev/dax...)")?
    } else {
        metadata.len()
    };
    if pmem.bytes == 0 {
        return Err(String::from("it is empty: there is nothing to map"));
    }
    let magic = fstatfs(&file).map_err(|error| failed("it cannot be asked")(error.into()))?;
    let file_system = file_system(magic.f_type as u64);
    // A part tells as much as the whole; but a DAX device is mapped in large steps.
    let len = if is_device {
        pmem.bytes
    } else {
        pmem.bytes.min(4096)
    };
    let len = usize::try_from(len).map_err(|_| "it is too large")?;
    let found = info::durability(&file, len).map_err(failed("it cannot be mapped"))?;
    let how = |direct: bool| if direct { found.instruction } else { "msync" };
    let in_memory = !is_device && matches!(file_system, Some("tmpfs" | "ramfs" | "hugetlbfs"));
    pmem.map_sync = found.sync_mapping;
    pmem.flush_if_sync = found.sync_mapping.then(|| how(found.direct_if_sync));
    pmem.flush_if_plain = Some(how(found.direct_if_plain));
    pmem.durable = !in_memory;
    pmem.kind = Some(if is_device {
        "device-dax"
    } else if found.sync_mapping {
        "dax"
    } else if in_memory {
        "memory"
    } else {
        "file"
    });
    if !is_device {
        pmem.file_system = Some(match file_system {
            Some(name) => String::from(name),
            None => format!("{:#x}", magic.f_type),
        });
    }
    Ok(())
}

/// The size of a DAX device.
fn device_size(number: u64) -> Option<u64> {
    let (major, minor) = (major(number), minor(number));
    let folder = PathBuf::from(format!("/sys/dev/char/{major}:{minor}"));
    let subsystem = fs::canonicalize(folder.join("subsystem")).ok()?;
    if subsystem.file_name()? != "dax" {
        return None;
    }
    let text = fs::read_to_string(folder.join("size")).ok()?;
    text.trim().parse().ok()
}

/// File systems by their magic numbers, from statfs(2).
fn file_system(magic: u64) -> Option<&'static str> {
    Some(match magic {
        0xef53 => "ext2/3/4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0x9584_58f6 => "hugetlbfs",
        0x794c_7630 => "overlayfs",
        0x6969 => "nfs",
        0x0102_1997 => "9p",
        0x2fc1_2fc1 => "zfs",
        0x6573_5546 => "fuse",
        _ => return None,
    })
}

impl Pmem {
    /// A device locks what is registered, which memory of a DAX file system cannot be, unless it
    /// pages on demand.
    pub(crate) fn finding(&self, fabric: &Fabric) -> Option<Finding> {
        if self.kind != Some("dax") || fabric.kind != Some(info::Fabric::Verbs) {
            return None;
        }
        let devices = info::devices(info::Fabric::Verbs).unwrap_or_default();
        let mut able = devices
            .iter()
            .filter_map(|device| device.abilities.as_ref().ok());
        if able.any(|able| able.on_demand_paging) {
            return None;
        }
        Some(Finding::new(
            "dax-needs-paging",
            Severity::Problem,
            "memory of a DAX file system can only be registered with on-demand paging, which no device here has",
            "use a DAX device (/dev/dax..., made by ndctl create-namespace --mode devdax), or RPMA_FABRIC=soft on both sides",
        ))
    }

    /// For people.
    pub(crate) fn summary(&self) -> String {
        let what = match self.kind {
            None => return format!("not usable: {}", self.problem.as_deref().unwrap_or("?")),
            Some("dax") => "persistent memory, mapped directly (DAX file system)",
            Some("device-dax") => "persistent memory, mapped directly (DAX device)",
            Some("memory") => "ordinary memory: gone when the machine is switched off",
            Some(_) => "an ordinary file: not persistent memory, but durable",
        };
        format!("{what}; {}", size(self.bytes))
    }
}
