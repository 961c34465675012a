// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! A queue behind a descriptor: readable exactly while something is queued.
//!
//! Completion channels and CM event channels are both this. The descriptor is an eventfd in
//! semaphore mode whose count is the queue's length, so programs can poll it, and waiting in
//! [`EventQueue::pop`] blocks or not as the program has set `O_NONBLOCK`.

use std::collections::VecDeque;
use std::io::IoSliceMut;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use rustix::io::{Errno, ReadWriteFlags, preadv2, read, write};

use super::sync::Lock;

pub(super) struct EventQueue<T> {
    fd: OwnedFd,
    items: Lock<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(EventQueue {
            fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?,
            items: Lock::new(VecDeque::new()),
        })
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(super) fn push(&self, item: T) {
        let mut items = self.items.lock();
        items.push_back(item);
        // Cannot fail: the count stays far below its limit, and the descriptor is our own.
        let _ = write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Takes the oldest item and hands it to `take` before anybody else can remove it.
    pub(super) fn pop<R>(&self, take: impl FnOnce(T) -> R) -> Result<R, Errno> {
        loop {
            let mut count = [0; 8];
            read(&self.fd, &mut count)?;
            let mut items = self.items.lock();
            // Nothing there: it was removed after it had been counted; wait for the next.
            if let Some(item) = items.pop_front() {
                return Ok(take(item));
            }
        }
    }

    /// Removes and returns the items that match.
    pub(super) fn remove(&self, mut matches: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut items = self.items.lock();
        let mut removed = Vec::new();
        let mut kept = VecDeque::with_capacity(items.len());
        while let Some(item) = items.pop_front() {
            if matches(&item) {
                removed.push(item);
            } else {
                kept.push_back(item);
            }
        }
        *items = kept;
        for _ in &removed {
            self.uncount();
        }
        removed
    }

    /// Whether something is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.items.lock().is_empty()
    }

    /// Takes one off the count without waiting, even if the descriptor is a blocking one.
    fn uncount(&self) {
        let mut count = [0; 8];
        let mut bufs = [IoSliceMut::new(&mut count)];
        // Taken; or a reader was faster, and will find the item gone; or an old kernel.
        let taken = preadv2(&self.fd, &mut bufs, u64::MAX, ReadWriteFlags::NOWAIT);
        if matches!(taken, Err(Errno::OPNOTSUPP | Errno::NOSYS)) {
            // Look first. A reader that gets in between makes us wait until the next event, and
            // then takes that one's place.
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            if poll(&mut fds, Some(&now)) == Ok(1) {
                let _ = read(self.fd.as_fd(), &mut count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{OFlags, fcntl_setfl};

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
