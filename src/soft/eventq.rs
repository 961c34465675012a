// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! A queue behind a descriptor: readable exactly while something is queued that nobody who looks
//! for it right now is about to take.
//!
//! Completion channels and CM event channels are both this. The descriptor is an eventfd in
//! semaphore mode whose count is the queue's length, so programs can poll it, and waiting in
//! [`EventQueue::pop`] blocks or not as the program has set `O_NONBLOCK`. For a thread that looks
//! ([`EventQueue::look_out`]) an item need not be counted: that saves two system calls.

use std::collections::VecDeque;
use std::io::IoSliceMut;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{Errno, ReadWriteFlags, preadv2, read, write};

use super::sync::Lock;

pub(super) struct EventQueue<T> {
    fd: OwnedFd,
    items: Lock<Items<T>>,
}

struct Items<T> {
    queue: VecDeque<T>,
    /// By how much the descriptor's count is too high, or is going to be: for items that were removed
    /// before they were counted, after a reader had taken the count, or on an old kernel.
    surplus: usize,
    /// Threads that look.
    lookouts: usize,
    /// Items that are left to them, and not counted: at most one for each.
    uncounted: usize,
}

impl<T> EventQueue<T> {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(EventQueue {
            fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?,
            items: Lock::new(Items {
                queue: VecDeque::new(),
                surplus: 0,
                lookouts: 0,
                uncounted: 0,
            }),
        })
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(super) fn push(&self, item: T) {
        let mut items = self.items.lock();
        items.queue.push_back(item);
        if items.lookouts > items.uncounted {
            items.uncounted += 1;
        } else if items.surplus > 0 {
            // Counted already.
            items.surplus -= 1;
        } else {
            // Whoever wakes up wants the lock.
            drop(items);
            // Cannot fail: the count stays far below its limit, and the descriptor is our own.
            let _ = write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Looks for an item until `go_on` says no: `go_on` sees to it that one can come. `Err` is
    /// `take` itself, if there was none.
    pub(super) fn look_out<R, F: FnOnce(T) -> R>(
        &self,
        mut go_on: impl FnMut() -> bool,
        take: F,
    ) -> Result<R, F> {
        self.items.lock().lookouts += 1;
        while go_on() && self.items.lock().queue.is_empty() {}
        let mut items = self.items.lock();
        items.lookouts -= 1;
        if items.uncounted == 0 {
            return Err(take);
        }
        items.uncounted -= 1;
        match items.queue.pop_front() {
            Some(item) => Ok(take(item)),
            None => {
                // A reader has taken it, by the count of one that was removed.
                items.surplus = items.surplus.saturating_sub(1);
                Err(take)
            }
        }
    }

    /// Takes the oldest item and hands it to `take` before anybody else can remove it.
    pub(super) fn pop<R>(&self, take: impl FnOnce(T) -> R) -> Result<R, Errno> {
        loop {
            let mut count = [0; 8];
            read(&self.fd, &mut count)?;
            let mut items = self.items.lock();
            // Nothing there: it was removed after it had been counted; wait for the next.
            if let Some(item) = items.queue.pop_front() {
                return Ok(take(item));
            }
            items.surplus = items.surplus.saturating_sub(1);
        }
    }

    /// Removes and returns the items that match.
    pub(super) fn remove(&self, mut matches: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut items = self.items.lock();
        let mut removed = Vec::new();
        let mut kept = VecDeque::with_capacity(items.queue.len());
        while let Some(item) = items.queue.pop_front() {
            if matches(&item) {
                removed.push(item);
            } else {
                kept.push_back(item);
            }
        }
        items.queue = kept;
        for _ in &removed {
            self.discount(&mut items);
        }
        removed
    }

    /// Takes the oldest item that matches back, unless somebody has got it already.
    pub(super) fn take_back(&self, matches: impl FnMut(&T) -> bool) -> Option<T> {
        let mut items = self.items.lock();
        let at = items.queue.iter().position(matches)?;
        let item = items.queue.remove(at);
        self.discount(&mut items);
        item
    }

    /// An item was removed that is not to be found any more.
    fn discount(&self, items: &mut Items<T>) {
        if items.uncounted > 0 {
            items.uncounted -= 1;
        } else if !self.uncount() {
            items.surplus += 1;
        }
    }

    /// Whether something is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.items.lock().queue.is_empty()
    }

    /// Takes one off the count without waiting, even if the descriptor is a blocking one. False if
    /// it is not there, or if the kernel cannot do that.
    fn uncount(&self) -> bool {
        let mut count = [0; 8];
        let mut bufs = [IoSliceMut::new(&mut count)];
        preadv2(&self.fd, &mut bufs, u64::MAX, ReadWriteFlags::NOWAIT).is_ok()
    }

    /// Whether the program wants to wait for events in [`EventQueue::pop`].
    pub(super) fn is_blocking(&self) -> bool {
        fcntl_getfl(&self.fd).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::fcntl_setfl;

    fn readable(queue: &EventQueue<u32>) -> bool {
        let mut fds = [PollFd::new(&queue.fd, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&now)) == Ok(1)
    }

    #[test]
    fn readable_exactly_while_filled() {
        let queue = EventQueue::new().unwrap();
        assert!(!readable(&queue));
        queue.push(1);
        queue.push(2);
        queue.push(3);
        assert!(readable(&queue));
        assert_eq!(queue.pop(|x| x), Ok(1));
        assert!(readable(&queue));
        assert_eq!(queue.remove(|&x| x == 3), [3]);
        assert_eq!(queue.take_back(|&x| x == 3), None);
        queue.push(4);
        assert_eq!(queue.take_back(|&x| x > 1), Some(2));
        queue.push(2);
        assert_eq!(queue.take_back(|&x| x == 4), Some(4));
        assert!(readable(&queue));
        assert_eq!(queue.pop(|x| x), Ok(2));
        assert!(!readable(&queue));
        assert!(queue.is_empty());
    }

    #[test]
    fn non_blocking_when_the_program_says_so() {
        let queue = EventQueue::<u32>::new().unwrap();
        fcntl_setfl(&queue.fd, OFlags::NONBLOCK).unwrap();
        assert_eq!(queue.pop(|x| x), Err(Errno::AGAIN));
        queue.push(5);
        assert_eq!(queue.pop(|x| x), Ok(5));
        assert_eq!(queue.pop(|x| x), Err(Errno::AGAIN));
    }

    /// As on a kernel where a removed item stays counted.
    #[test]
    fn a_count_that_is_too_high_does_no_harm() {
        let queue = EventQueue::new().unwrap();
        fcntl_setfl(&queue.fd, OFlags::NONBLOCK).unwrap();
        let remove_counted = || {
            let mut items = queue.items.lock();
            assert!(items.queue.pop_front().is_some());
            items.surplus += 1;
        };
        queue.push(1);
        remove_counted();
        queue.push(2);
        assert_eq!(queue.pop(|x| x), Ok(2));
        assert!(!readable(&queue));
        queue.push(3);
        remove_counted();
        assert_eq!(queue.pop(|x| x), Err(Errno::AGAIN));
        queue.push(4);
        assert!(readable(&queue));
        assert_eq!(queue.pop(|x| x), Ok(4));
        assert_eq!(queue.items.lock().surplus, 0);
    }

    #[test]
    fn an_item_that_a_reader_takes_by_another_ones_count_leaves_no_count_too_many() {
        let queue = EventQueue::new().unwrap();
        fcntl_setfl(&queue.fd, OFlags::NONBLOCK).unwrap();
        // Removed, and still counted.
        queue.push(1);
        assert_eq!(queue.items.lock().queue.pop_front(), Some(1));
        queue.items.lock().surplus += 1;
        let meanwhile = || {
            // Left to who looks here, and not counted.
            queue.push(2);
            assert_eq!(queue.pop(|x| x), Ok(2));
            false
        };
        assert!(queue.look_out(meanwhile, |x| x).is_err());
        assert!(!readable(&queue));
        queue.push(3);
        assert!(readable(&queue));
        assert_eq!(queue.pop(|x| x), Ok(3));
    }

    #[test]
    fn who_looks_gets_the_item_without_the_descriptor() {
        let queue = EventQueue::new().unwrap();
        let mut pushed = 0;
        let push_one = || {
            pushed += 1;
            if pushed == 1 {
                queue.push(7);
                // A second one is for somebody else.
                queue.push(8);
            }
            true
        };
        assert_eq!(queue.look_out(push_one, |x| x).ok(), Some(7));
        assert!(readable(&queue));
        assert_eq!(queue.pop(|x| x), Ok(8));
        assert!(!readable(&queue));
        // Nothing comes.
        let mut looks = 0;
        let twice = || {
            looks += 1;
            looks < 3
        };
        assert!(queue.look_out(twice, |x| x).is_err());
        assert_eq!(looks, 3);
        // It came with the last look.
        let only_then = || {
            queue.push(9);
            false
        };
        assert_eq!(queue.look_out(only_then, |x| x).ok(), Some(9));
        // It was removed again.
        let mut looks = 0;
        let in_vain = || {
            looks += 1;
            queue.push(10);
            assert_eq!(queue.remove(|_| true), [10]);
            looks < 3
        };
        assert!(queue.look_out(in_vain, |x| x).is_err());
        assert!(!readable(&queue));
        let items = queue.items.lock();
        assert_eq!((items.uncounted, items.lookouts), (0, 0));
    }

    #[test]
    fn each_of_two_who_look_gets_one() {
        let queue = EventQueue::new().unwrap();
        let mut inner = Some(|| {
            let push_two = || {
                queue.push(1);
                queue.push(2);
                queue.push(3);
                false
            };
            assert_eq!(queue.look_out(push_two, |x| x).ok(), Some(1));
        });
        let outer = queue.look_out(|| inner.take().is_some_and(|f| (f(), false).1), |x| x);
        assert_eq!(outer.ok(), Some(2));
        assert_eq!(queue.pop(|x| x), Ok(3));
        assert!(!readable(&queue));
    }

    #[test]
    fn pop_waits_for_push() {
        let queue = std::sync::Arc::new(EventQueue::new().unwrap());
        let waiter = {
            let queue = std::sync::Arc::clone(&queue);
            std::thread::spawn(move || queue.pop(|x| x))
        };
        queue.push(9);
        assert_eq!(waiter.join().unwrap(), Ok(9));
    }
}
