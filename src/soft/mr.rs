// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Protection domains and memory regions: who may touch which memory.
//!
//! A [`Region`] is found by its key, which is random, so that a peer cannot guess the keys that
//! it was not given. Whoever touches a region's memory holds a [`RegionUse`] meanwhile;
//! deregistration closes the region and waits until the last use is gone, so that the program
//! may free the memory as soon as `ibv_dereg_mr` returned. A use never lasts longer than one
//! non-blocking call, one payload that is fetched from another process, or one flush. What was lent to a peer to fetch is taken back then.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, OnceLock, PoisonError, RwLock, Weak};

use rustc_hash::FxHashMap;

use super::carrier::Carrier;
use super::leader::LongFlushes;
use super::persist::{self, Extents};
use super::stats;
use super::sync::{Lock, wait_until};
use crate::sys::fork::PerProcess;

/// Rights of a region, as in `ibv_access_flags`.
pub(super) mod access {
    pub(crate) const LOCAL_WRITE: u32 = 1;
    pub(crate) const REMOTE_WRITE: u32 = 1 << 1;
    pub(crate) const REMOTE_READ: u32 = 1 << 2;
    pub(crate) const REMOTE_ATOMIC: u32 = 1 << 3;
    pub(crate) const ON_DEMAND: u32 = 1 << 6;
    pub(crate) const HUGETLB: u32 = 1 << 7;
    pub(crate) const FLUSH_GLOBAL: u32 = 1 << 8;
    pub(crate) const FLUSH_PERSISTENT: u32 = 1 << 9;
    /// Hints that a device is free to ignore.
    pub(crate) const OPTIONAL: u32 = 0x3ff << 20;

    const KNOWN: u32 = LOCAL_WRITE
        | REMOTE_WRITE
        | REMOTE_READ
        | REMOTE_ATOMIC
        | ON_DEMAND
        | HUGETLB
        | FLUSH_GLOBAL
        | FLUSH_PERSISTENT
        | OPTIONAL;

    /// Whether a region may be registered with these rights.
    pub(crate) fn is_valid(rights: u32) -> bool {
        rights & !KNOWN == 0
            && (rights & (REMOTE_WRITE | REMOTE_ATOMIC) == 0 || rights & LOCAL_WRITE != 0)
    }
}

/// A protection domain.
pub struct Domain {
    id: u64,
    /// Objects that were made in it and still exist.
    users: AtomicU32,
}

impl Domain {
    pub fn new() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Domain {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            users: AtomicU32::new(0),
        })
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether objects of the domain exist, so that it cannot go yet.
    pub fn is_in_use(&self) -> bool {
        self.users.load(Ordering::Acquire) != 0
    }
}

/// Keeps a domain in use.
pub struct DomainUse(Arc<Domain>);

impl DomainUse {
    pub fn new(domain: &Arc<Domain>) -> Self {
        domain.users.fetch_add(1, Ordering::AcqRel);
        DomainUse(Arc::clone(domain))
    }

    pub fn id(&self) -> u64 {
        self.0.id
    }
}

impl Drop for DomainUse {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Set in a region's count of uses once it is closed.
const CLOSED: u32 = 1 << 31;

/// One registered region.
pub(super) struct Region {
    key: u32,
    addr: u64,
    len: u64,
    rights: u32,
    domain: u64,
    /// Until the region is deregistered.
    domain_use: Lock<Option<DomainUse>>,
    /// Until then, too, if it takes long to make the memory durable, and peers may have that done.
    long_flushes: Lock<Option<LongFlushes>>,
    uses: AtomicU32,
    gate: Lock<()>,
    unused: Condvar,
    extents: OnceLock<Extents>,
    /// What peers may fetch from the region.
    loans: Lock<Vec<(Weak<dyn Carrier>, u64)>>,
}

/// Why an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    NoSuchKey,
    OtherDomain,
    OutOfBounds,
    Usage,
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Denied::NoSuchKey => "no region has this key (any more)",
            Denied::OtherDomain => "the region is of another peer object than the connection",
            Denied::OutOfBounds => "it is not inside the region",
            Denied::Usage => "the region was not registered for this usage",
        })
    }
}

impl Region {
    /// Registers memory under a fresh key. `None` if the system gives no randomness.
    pub(super) fn register(
        domain: &Arc<Domain>,
        addr: u64,
        len: u64,
        rights: u32,
    ) -> Option<Arc<Self>> {
        let may_take_long = rights & access::FLUSH_PERSISTENT != 0
            && (len >= persist::LONG_FLUSH || persist::may_need_disk(addr, len));
        let mut long_flushes = may_take_long.then(LongFlushes::expect);
        loop {
            let key = random_key()?;
            let mut table = table().write().unwrap_or_else(PoisonError::into_inner);
            if table.contains_key(&key) {
                continue;
            }
            let region = Arc::new(Region {
                key,
                addr,
                len,
                rights,
                domain: domain.id(),
                domain_use: Lock::new(Some(DomainUse::new(domain))),
                long_flushes: Lock::new(long_flushes.take()),
                uses: AtomicU32::new(0),
                gate: Lock::new(()),
                unused: Condvar::new(),
                extents: OnceLock::new(),
                loans: Lock::default(),
            });
            table.insert(key, Arc::clone(&region));
            stats::region_added(len);
            return Some(region);
        }
    }

    /// Finds the region with a key, if the range lies in it and it grants all `rights` to the
    /// domain.
    pub(super) fn find(
        key: u32,
        domain: u64,
        addr: u64,
        len: u64,
        rights: u32,
    ) -> Result<Arc<Self>, Denied> {
        let table = table().read().unwrap_or_else(PoisonError::into_inner);
        let region = table.get(&key).ok_or(Denied::NoSuchKey)?;
        region.check(domain, addr, len, rights)?;
        Ok(Arc::clone(region))
    }

    fn check(&self, domain: u64, addr: u64, len: u64, rights: u32) -> Result<(), Denied> {
        let offset = addr.checked_sub(self.addr).ok_or(Denied::OutOfBounds)?;
        let room = self.len.checked_sub(offset).ok_or(Denied::OutOfBounds)?;
        if len > room {
            return Err(Denied::OutOfBounds);
        }
        if self.domain != domain {
            return Err(Denied::OtherDomain);
        }
        if self.rights & rights != rights {
            return Err(Denied::Usage);
        }
        Ok(())
    }

    pub(super) fn key(&self) -> u32 {
        self.key
    }

    /// Start and length of the whole region.
    pub(super) fn range(&self) -> (u64, u64) {
        (self.addr, self.len)
    }

    /// What kinds of memory the region consists of; looked up at the first need.
    pub(super) fn extents(&self) -> &Extents {
        self.extents
            .get_or_init(|| Extents::of(self.addr, self.len))
    }

    /// Starts a use of the region's memory, unless the region is closed.
    pub(super) fn enter(self: &Arc<Self>) -> Option<RegionUse> {
        let before = self.uses.fetch_add(1, Ordering::Acquire);
        let guard = RegionUse(Arc::clone(self));
        // A closed region must not be touched; dropping the guard takes the count back.
        (before & CLOSED == 0).then_some(guard)
    }

    fn leave(&self) {
        let before = self.uses.fetch_sub(1, Ordering::Release);
        if before == CLOSED | 1 {
            drop(self.gate.lock());
            self.unused.notify_all();
        }
    }

    /// Takes the key out of use and waits until nobody touches the memory any more.
    pub(super) fn deregister(&self) {
        table()
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.key);
        self.uses.fetch_or(CLOSED, Ordering::AcqRel);
        let gate = self.gate.lock();
        drop(wait_until(&self.unused, gate, |()| {
            self.uses.load(Ordering::Acquire) & !CLOSED == 0
        }));
        for (carrier, loan) in std::mem::take(&mut *self.loans.lock()) {
            if let Some(carrier) = carrier.upgrade()
                && let Some(lending) = carrier.lending()
            {
                lending.take_back(loan);
            }
        }
        stats::region_removed(self.len);
        let domain_use = self.domain_use.lock().take();
        drop(domain_use);
        let long_flushes = self.long_flushes.lock().take();
        drop(long_flushes);
    }

    /// Notes that memory of the region was lent, so that it is taken back when the region goes.
    pub(super) fn lent(&self, _in_use: &RegionUse, carrier: &Arc<dyn Carrier>, loan: u64) {
        let mut loans = self.loans.lock();
        loans.retain(|(carrier, loan)| {
            let carrier = carrier.upgrade();
            let lending = carrier.as_ref().and_then(|carrier| carrier.lending());
            lending.is_some_and(|lending| lending.is_open(*loan))
        });
        loans.push((Arc::downgrade(carrier), loan));
    }
}

/// Permission to touch a region's memory; the region cannot be deregistered meanwhile.
pub(super) struct RegionUse(Arc<Region>);

impl Drop for RegionUse {
    fn drop(&mut self) {
        self.0.leave();
    }
}

type Table = RwLock<FxHashMap<u32, Arc<Region>>>;

fn table() -> &'static Table {
    static TABLE: PerProcess<Table> = PerProcess::new();
    TABLE.get()
}

/// An unpredictable key; 0 is left out, since programs use it for "none".
pub(super) fn random_key() -> Option<u32> {
    loop {
        let mut bytes = [0; 4];
        if rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) != Ok(4) {
            return None;
        }
        let key = u32::from_ne_bytes(bytes);
        if key != 0 {
            return Some(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(domain: &Arc<Domain>, rights: u32) -> Arc<Region> {
        Region::register(domain, 0x1000, 0x100, rights).unwrap()
    }

    #[test]
    fn bounds_rights_and_domain_are_checked() {
        let domain = Domain::new();
        let other = Domain::new();
        let r = region(&domain, access::REMOTE_READ | access::LOCAL_WRITE);
        let find = |addr, len, rights| {
            Region::find(r.key(), domain.id(), addr, len, rights).map(|found| found.key())
        };
        assert_eq!(find(0x1000, 0x100, access::REMOTE_READ), Ok(r.key()));
        assert_eq!(find(0x10ff, 1, access::REMOTE_READ), Ok(r.key()));
        assert_eq!(find(0x1100, 0, 0), Ok(r.key()));
        assert_eq!(find(0xfff, 1, 0), Err(Denied::OutOfBounds));
        assert_eq!(find(0x1000, 0x101, 0), Err(Denied::OutOfBounds));
        assert_eq!(find(0x1101, 0, 0), Err(Denied::OutOfBounds));
        assert_eq!(find(0x1001, u64::MAX, 0), Err(Denied::OutOfBounds));
        assert_eq!(find(u64::MAX, u64::MAX, 0), Err(Denied::OutOfBounds));
        assert_eq!(find(0x1000, 1, access::REMOTE_WRITE), Err(Denied::Usage));
        assert_eq!(
            find(0x1000, 1, access::REMOTE_READ | access::REMOTE_WRITE),
            Err(Denied::Usage)
        );
        let refused = |key, domain| Region::find(key, domain, 0x1000, 1, 0).err();
        assert_eq!(refused(r.key(), other.id()), Some(Denied::OtherDomain));
        assert_eq!(refused(r.key() ^ 1, domain.id()), Some(Denied::NoSuchKey));
        r.deregister();
        assert_eq!(find(0x1000, 1, 0), Err(Denied::NoSuchKey));
    }

    #[test]
    fn rights_follow_the_verbs_rules() {
        use access::*;
        assert!(is_valid(0));
        assert!(is_valid(REMOTE_READ | FLUSH_GLOBAL | FLUSH_PERSISTENT));
        assert!(is_valid(LOCAL_WRITE | REMOTE_WRITE));
        assert!(!is_valid(REMOTE_WRITE));
        assert!(!is_valid(REMOTE_ATOMIC));
        assert!(!is_valid(1 << 5));
        assert!(!is_valid(1 << 31));
    }

    #[test]
    fn deregistration_waits_for_uses() {
        let domain = Domain::new();
        let r = region(&domain, 0);
        assert!(domain.is_in_use());
        let held = r.enter().unwrap();
        let closer = {
            let r = Arc::clone(&r);
            std::thread::spawn(move || r.deregister())
        };
        // The closer marks the region first; then no new use may start.
        while r.uses.load(Ordering::Acquire) & CLOSED == 0 {
            std::thread::yield_now();
        }
        assert!(r.enter().is_none());
        assert!(!closer.is_finished());
        drop(held);
        closer.join().unwrap();
        assert!(r.enter().is_none());
        assert!(!domain.is_in_use());
    }

    #[test]
    fn keys_differ() {
        let domain = Domain::new();
        let regions: Vec<_> = (0..1000).map(|_| region(&domain, 0)).collect();
        let keys: std::collections::HashSet<_> = regions.iter().map(|r| r.key()).collect();
        assert_eq!(keys.len(), regions.len());
        assert!(!keys.contains(&0));
        for r in regions {
            r.deregister();
        }
    }
}
