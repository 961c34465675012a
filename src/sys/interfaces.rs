// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! The addresses of this host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// What getifaddrs has made.
struct List(*mut libc::ifaddrs);

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: getifaddrs made the list, and nothing points into it any more.
        unsafe { libc::freeifaddrs(self.0) }
    }
}

/// Whether an interface has the address. False as well if the system does not tell.
pub(crate) fn have(wanted: IpAddr) -> bool {
    let mut first = ptr::null_mut();
    // SAFETY: there is room for one pointer.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return false;
    }
    let list = List(first);
    let mut next = list.0;
    // SAFETY: an entry is NULL or valid for as long as the list is, which is dropped in the end.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: as above, and so is the address that the entry has.
        if unsafe { ip_of(entry.ifa_addr) } == Some(wanted) {
            return true;
        }
        next = entry.ifa_next;
    }
    false
}

/// # Safety
///
/// The address is NULL, or valid and of the size of its family.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's promise.
    let family = unsafe { address.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is such a one.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is such a one.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no getifaddrs")]
    fn own_addresses_are_known() {
        assert!(have(Ipv4Addr::LOCALHOST.into()));
        // Kept for documentation: nobody has it.
        assert!(!have(Ipv4Addr::new(192, 0, 2, 17).into()));
        assert!(!have(
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x17).into()
        ));
    }
}
