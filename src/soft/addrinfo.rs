// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Names to addresses, and addresses between C's form and Rust's.

use std::ffi::{c_char, c_int};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use rdma_sys::{rdma_addrinfo, rdma_port_space};

/// Flags of `rdma_addrinfo`.
const RAI_PASSIVE: c_int = 1;
const RAI_NUMERICHOST: c_int = 2;
const RAI_FAMILY: c_int = 8;

const QPT_RC: c_int = rdma_sys::ibv_qp_type::IBV_QPT_RC as c_int;

/// An entry with what it points to.
#[repr(C)]
struct Entry {
    raw: rdma_addrinfo,
    address: libc::sockaddr_storage,
}

/// Reads an address in C's form; `None` for families other than IPv4 and IPv6.
///
/// # Safety
/// `address` is null or points to a socket address of the size that its family says.
pub(super) unsafe fn read_address(address: *const libc::sockaddr) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, and every socket address begins with its family.
    match c_int::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says so.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(SocketAddr::V4(SocketAddrV4::new(
                Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)),
                u16::from_be(v4.sin_port),
            )))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says so.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(SocketAddr::V6(SocketAddrV6::new(
                Ipv6Addr::from(v6.sin6_addr.s6_addr),
                u16::from_be(v6.sin6_port),
                v6.sin6_flowinfo,
                v6.sin6_scope_id,
            )))
        }
        _ => None,
    }
}

/// An address in C's form.
pub(super) fn to_storage(address: &SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: all zeros is a valid (unspecified) address.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    match address {
        SocketAddr::V4(v4) => {
            // SAFETY: storage is large and aligned enough for every family.
            let to = unsafe { &mut *(&raw mut storage).cast::<libc::sockaddr_in>() };
            to.sin_family = libc::AF_INET as libc::sa_family_t;
            to.sin_port = v4.port().to_be();
            to.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
        }
        SocketAddr::V6(v6) => {
            // SAFETY: as above.
            let to = unsafe { &mut *(&raw mut storage).cast::<libc::sockaddr_in6>() };
            to.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            to.sin6_port = v6.port().to_be();
            to.sin6_flowinfo = v6.flowinfo();
            to.sin6_addr.s6_addr = v6.ip().octets();
            to.sin6_scope_id = v6.scope_id();
        }
    }
    storage
}

fn address_len(address: &SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => size_of::<libc::sockaddr_in>() as u32,
        SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>() as u32,
    }
}

/// Resolves a name; errors are those of the system's resolver.
///
/// # Safety
/// As for `rdma_getaddrinfo`: the names are null or terminated strings, `hints` is null or valid.
pub(super) unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> Result<*mut rdma_addrinfo, c_int> {
    // SAFETY: all zeros are hints that restrict nothing.
    let mut asked: libc::addrinfo = unsafe { std::mem::zeroed() };
    asked.ai_socktype = libc::SOCK_STREAM;
    let mut flags = 0;
    let mut port_space = rdma_port_space::RDMA_PS_TCP as c_int;
    if !hints.is_null() {
        // SAFETY: the caller's promise.
        let hints = unsafe { &*hints };
        flags = hints.ai_flags;
        if flags & RAI_PASSIVE != 0 {
            asked.ai_flags |= libc::AI_PASSIVE;
        }
        if flags & RAI_NUMERICHOST != 0 {
            asked.ai_flags |= libc::AI_NUMERICHOST;
        }
        if flags & RAI_FAMILY != 0 {
            asked.ai_family = hints.ai_family;
        }
        if hints.ai_port_space != 0 {
            port_space = hints.ai_port_space;
        }
    }
    let mut found: *mut libc::addrinfo = std::ptr::null_mut();
    // SAFETY: the strings are the caller's; the result is freed below.
    let result = unsafe { libc::getaddrinfo(node, service, &asked, &mut found) };
    if result != 0 {
        return Err(result);
    }
    let mut address = None;
    let mut next = found;
    while !next.is_null() && address.is_none() {
        // SAFETY: an entry of the resolver's list.
        let entry = unsafe { &*next };
        // SAFETY: the entry's address is valid.
        address = unsafe { read_address(entry.ai_addr) };
        next = entry.ai_next;
    }
    // SAFETY: made by getaddrinfo.
    unsafe { libc::freeaddrinfo(found) };
    let address = address.ok_or(libc::EAI_FAMILY)?;
    Ok(entry(&address, flags, port_space))
}

fn entry(address: &SocketAddr, flags: c_int, port_space: c_int) -> *mut rdma_addrinfo {
    // SAFETY: all zeros is a valid, empty entry.
    let mut raw: rdma_addrinfo = unsafe { std::mem::zeroed() };
    let storage = to_storage(address);
    raw.ai_flags = flags;
    raw.ai_family = c_int::from(storage.ss_family);
    raw.ai_qp_type = QPT_RC;
    raw.ai_port_space = port_space;
    let made = Box::into_raw(Box::new(Entry {
        raw,
        address: storage,
    }));
    // SAFETY: just made, and owned by nobody else yet.
    let entry = unsafe { &mut *made };
    let place = (&raw mut entry.address).cast();
    if flags & RAI_PASSIVE != 0 {
        entry.raw.ai_src_addr = place;
        entry.raw.ai_src_len = address_len(address);
    } else {
        entry.raw.ai_dst_addr = place;
        entry.raw.ai_dst_len = address_len(address);
    }
    made.cast()
}

/// Frees what [`resolve`] returned.
///
/// # Safety
/// `info` is null or came from [`resolve`], and is not used any more.
pub(super) unsafe fn free(info: *mut rdma_addrinfo) {
    if !info.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(info.cast::<Entry>()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    fn lookup(node: Option<&str>, service: &str, flags: c_int) -> Result<SocketAddr, c_int> {
        let node = node.map(|n| CString::new(n).unwrap());
        let service = CString::new(service).unwrap();
        // SAFETY: all zeros are hints that restrict nothing.
        let mut hints: rdma_addrinfo = unsafe { std::mem::zeroed() };
        hints.ai_flags = flags;
        // SAFETY: valid strings and hints.
        let info = unsafe {
            resolve(
                node.as_ref().map_or(std::ptr::null(), |n| n.as_ptr()),
                service.as_ptr(),
                &hints,
            )
        }?;
        // SAFETY: a valid entry.
        let entry = unsafe { &*info };
        let (used, other) = if flags & RAI_PASSIVE != 0 {
            (entry.ai_src_addr, entry.ai_dst_addr)
        } else {
            (entry.ai_dst_addr, entry.ai_src_addr)
        };
        assert!(other.is_null());
        // SAFETY: a valid address.
        let address = unsafe { read_address(used.cast()) }.unwrap();
        // SAFETY: from resolve.
        unsafe { free(info) };
        Ok(address)
    }

    #[test]
    fn names_and_numbers() {
        assert_eq!(
            lookup(Some("127.0.0.1"), "7204", 0),
            Ok("127.0.0.1:7204".parse().unwrap())
        );
        assert_eq!(
            lookup(Some("::1"), "http", RAI_PASSIVE),
            Ok("[::1]:80".parse().unwrap())
        );
        assert!(lookup(Some("no such host"), "1", RAI_NUMERICHOST).is_err());
        assert!(lookup(Some("127.0.0.1"), "no-such-service", 0).is_err());
    }

    #[test]
    fn addresses_survive_the_round_trip() {
        for text in ["1.2.3.4:5", "[fe80::1%3]:9", "[::]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let storage = to_storage(&address);
            // SAFETY: a valid address.
            let back = unsafe { read_address((&raw const storage).cast()) };
            assert_eq!(back, Some(address));
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read_address(std::ptr::null()) }, None);
    }
}
