// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Limits of this process, as programs started in the same way have them.

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use serde::Serialize;

use crate::fabric::Fabric;
use crate::finding::{Finding, Severity};

/// Limits in bytes and descriptors; none where there is no limit.
#[derive(Serialize)]
pub(crate) struct Limits {
    pub(crate) memlock: Option<u64>,
    /// Whether the process may lock memory beyond that.
    pub(crate) memlock_exempt: bool,
    pub(crate) nofile: Option<u64>,
    pub(crate) nofile_max: Option<u64>,
}

/// Fewer descriptors than that are soon used up.
const FEW_DESCRIPTORS: u64 = 1024;

pub(crate) fn look(fabric: &Fabric, findings: &mut Vec<Finding>) -> Limits {
    let nofile = getrlimit(Resource::Nofile);
    let limits = Limits {
        memlock: getrlimit(Resource::Memlock).current,
        memlock_exempt: has(CapabilitySet::IPC_LOCK),
        nofile: nofile.current,
        nofile_max: nofile.maximum,
    };
    // The software fabric locks no memory.
    if fabric.chosen == Some("verbs")
        && !limits.memlock_exempt
        && let Some(bytes) = limits.memlock
    {
        findings.push(Finding::new(
            "memlock",
            Severity::Warning,
            format!("no more than {} of memory can be locked: registering more fails with ENOMEM", size(bytes)),
            "ulimit -l unlimited; for good in /etc/security/limits.conf (memlock), LimitMEMLOCK= of a systemd unit, or docker run --ulimit memlock=-1",
        ));
    }
    if let Some(count) = limits.nofile
        && count < FEW_DESCRIPTORS
    {
        findings.push(Finding::new(
            "nofile",
            Severity::Warning,
            format!("a process may have {count} open descriptors, and each connection takes about 5"),
            "ulimit -n 4096, or more; for good in /etc/security/limits.conf (nofile) or LimitNOFILE= of a systemd unit",
        ));
    }
    limits
}

/// Whether this process has a capability.
pub(crate) fn has(capability: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// A number of bytes as people read it.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in UNITS {
        if bytes >> shift != 0 {
            let tenths = ((bytes >> (shift - 10)) * 10) >> 10;
            return if tenths.is_multiple_of(10) {
                format!("{} {unit}", tenths / 10)
            } else {
                format!("{}.{} {unit}", tenths / 10, tenths % 10)
            };
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(size(0), "0 bytes");
        assert_eq!(size(1023), "1023 bytes");
        assert_eq!(size(65536), "64 KiB");
        assert_eq!(size(1536 << 10), "1.5 MiB");
        assert_eq!(size(u64::MAX), "16777215.9 TiB");
    }
}
