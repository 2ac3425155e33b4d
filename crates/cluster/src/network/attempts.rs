//! The order of attempts to connect.
//!
//! An attacker with write access to the cluster's store can name any number of nodes that do not
//! exist. Attempts at them wait in a queue for a few threads, and cost nothing else:
//!
//! | rank | nodes | attempts |
//! |---|---|---|
//! | 1 | known: there before, or named by a dispatcher to its units | each [`RETRY`] |
//! | 2 | strangers that were not tried yet | alternately the first and the latest named one, so that a late one does not wait for all |
//! | 3 | strangers that did not answer | in turn, [`STRANGERS_PER_SECOND`] together; none more often than each [`RETRY`] |
//!
//! Strangers never have more than [`STRANGER_THREADS_MAX`] of the [`THREADS_MAX`] threads.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

/// Delay before a retry.
const RETRY: Duration = Duration::from_millis(200);
/// Limit on threads that connect.
pub const THREADS_MAX: usize = 16;
/// Limit on threads that connect to strangers.
pub const STRANGER_THREADS_MAX: usize = 12;
/// Limit on retries per second at strangers, all together.
pub const STRANGERS_PER_SECOND: u32 = 100;
/// Limit on nodes that wait for a connection; others are not tried, but counted.
pub const WAITING_MAX: usize = 8_192;
/// Limit on the names of known nodes; others stay strangers.
pub const KNOWN_MAX: usize = 8_192;

/// The key of a wanted node: dispatcher of the scope, and the node's name. A node has one unit per
/// dispatcher.
pub(super) type Key = (String, String);

pub(super) fn key_of(scope: &str, name: &str) -> Key {
    (scope.split('/').next().unwrap_or_default().to_owned(), name.to_owned())
}

/// Precedence of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Known,
    New,
    Again,
}

/// An attempt to connect to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The scope: see [`Hello::scope`](crate::wire::Hello::scope).
    pub scope: String,
    /// The node's name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// Number of failed attempts.
    pub failures: usize,
    /// Addresses whose hosts refused the last one.
    pub refused_at: Vec<IpAddr>,
    number: u64,
    is_stranger: bool,
}

/// The next thing to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Begin this attempt.
    Now(Attempt),
    /// Wait this long, or until something changes.
    After(Duration),
    /// Wait until something changes.
    Never,
}

/// Nodes that wait for a connection. Times have any common origin.
#[derive(Debug, Default)]
pub struct AttemptQueue {
    waiting: BTreeMap<(Rank, Duration, u64), Attempt>,
    /// The number of the latest attempt at a node, and its position while it waits.
    wanted: HashMap<Key, (u64, Option<(Rank, Duration)>)>,
    known: HashSet<String>,
    /// Attempts so far.
    count: u64,
    strangers_under_way: usize,
    strangers_waiting: usize,
    /// The next new stranger is taken from the back of the queue.
    takes_latest: bool,
}

impl AttemptQueue {
    /// Adds a node, in place of earlier attempts at a node of this name in this scope. Returns
    /// false if the queue is full.
    pub fn add(&mut self, now: Duration, scope: &str, name: &str, address: &str) -> bool {
        self.forget(scope, name);
        if self.wanted.len() >= WAITING_MAX {
            return false;
        }
        self.count += 1;
        let is_stranger = scope.is_empty() && !self.known.contains(name);
        let attempt = Attempt {
            scope: scope.to_owned(),
            name: name.to_owned(),
            address: address.to_owned(),
            failures: 0,
            refused_at: Vec::new(),
            number: self.count,
            is_stranger,
        };
        self.wait(if is_stranger { Rank::New } else { Rank::Known }, now, attempt);
        true
    }

    /// Removes a node.
    pub fn forget(&mut self, scope: &str, name: &str) {
        if let Some((number, Some((rank, due)))) = self.wanted.remove(&key_of(scope, name))
            && let Some(attempt) = self.waiting.remove(&(rank, due, number))
        {
            self.strangers_waiting -= usize::from(attempt.is_stranger);
        }
    }

    /// Returns the next attempt. The caller must report its outcome.
    pub fn next(&mut self, now: Duration) -> Next {
        let mut earliest = None::<Duration>;
        for rank in [Rank::Known, Rank::New, Rank::Again] {
            if rank != Rank::Known && self.strangers_under_way >= STRANGER_THREADS_MAX {
                break; // The end of an attempt frees a thread.
            }
            let mut of_rank = self.waiting.range((rank, Duration::ZERO, 0)..=(rank, Duration::MAX, u64::MAX));
            if rank == Rank::New {
                self.takes_latest = !self.takes_latest;
            }
            let next =
                if rank == Rank::New && self.takes_latest { of_rank.next_back() } else { of_rank.next() };
            let Some(place) = next.map(|(place, _)| *place) else { continue };
            if place.1 > now {
                earliest = earliest.into_iter().chain([place.1]).min();
                continue;
            }
            if let Some(attempt) = self.waiting.remove(&place) {
                self.strangers_under_way += usize::from(attempt.is_stranger);
                self.strangers_waiting -= usize::from(attempt.is_stranger);
                if let Some(wanted) = self.wanted.get_mut(&key_of(&attempt.scope, &attempt.name)) {
                    wanted.1 = None;
                }
                return Next::Now(attempt);
            }
        }
        earliest.map_or(Next::Never, |due| Next::After(due - now))
    }

    /// Takes a failed attempt. Returns true if it will be retried.
    pub fn failed(&mut self, now: Duration, attempt: Attempt) -> bool {
        self.strangers_under_way -= usize::from(attempt.is_stranger);
        if !self.is_wanted(&attempt) {
            return false;
        }
        let attempt = Attempt { failures: attempt.failures + 1, ..attempt };
        match attempt.is_stranger {
            true => {
                let turn = Duration::from_secs(1) * (self.strangers_waiting as u32) / STRANGERS_PER_SECOND;
                self.wait(Rank::Again, now + RETRY.max(turn), attempt);
            }
            false => self.wait(Rank::Known, now + RETRY, attempt),
        }
        true
    }

    /// Notes a successful attempt; the node is known from now on.
    pub fn succeeded(&mut self, attempt: &Attempt) {
        self.strangers_under_way -= usize::from(attempt.is_stranger);
        if self.known.len() < KNOWN_MAX {
            self.known.insert(attempt.name.clone());
        }
    }

    /// Removes a node. Returns false if the attempt is out of date.
    pub fn take(&mut self, attempt: &Attempt) -> bool {
        self.is_wanted(attempt) && self.wanted.remove(&key_of(&attempt.scope, &attempt.name)).is_some()
    }

    /// Returns the number of nodes that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    fn is_wanted(&self, attempt: &Attempt) -> bool {
        let wanted = self.wanted.get(&key_of(&attempt.scope, &attempt.name));
        wanted.is_some_and(|(number, _)| *number == attempt.number)
    }

    fn wait(&mut self, rank: Rank, due: Duration, attempt: Attempt) {
        self.strangers_waiting += usize::from(attempt.is_stranger);
        self.wanted.insert(key_of(&attempt.scope, &attempt.name), (attempt.number, Some((rank, due))));
        self.waiting.insert((rank, due, attempt.number), attempt);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)] // A test fails by panicking.

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn next(queue: &mut AttemptQueue, now: Duration) -> Attempt {
        match queue.next(now) {
            Next::Now(attempt) => attempt,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn strangers_wait_for_those_that_are_known_and_new_ones_come_first() {
        let mut queue = AttemptQueue::default();
        for at in 0..5_000 {
            assert!(queue.add(Duration::ZERO, "", &format!("ghost-{at}"), "10.0.0.9:1"));
        }
        // Strangers use only a part of the threads.
        let mut under_way: Vec<Attempt> =
            (0..STRANGER_THREADS_MAX).map(|_| next(&mut queue, Duration::ZERO)).collect();
        assert_eq!(queue.next(Duration::ZERO), Next::Never);
        // A unit in another dispatcher's scope counts as known, and is retried after a short time.
        queue.add(MS, "d/1/2", "unit-2", "10.0.0.2:1");
        let unit = next(&mut queue, MS);
        assert_eq!(unit.name, "unit-2");
        assert!(queue.failed(MS, unit));
        assert_eq!(queue.next(MS), Next::After(RETRY));
        // The latest stranger is the next or the one after it.
        queue.failed(MS, under_way.remove(0));
        queue.failed(MS, under_way.remove(0));
        queue.add(2 * MS, "", "late", "10.0.0.8:1");
        let both = [next(&mut queue, 2 * MS), next(&mut queue, 2 * MS)];
        assert!(both.iter().any(|attempt| attempt.name == "late"), "{both:?}");
        for attempt in both {
            queue.failed(2 * MS, attempt);
        }
        // All strangers are tried once before any is retried.
        let mut now = 2 * MS;
        let mut tried = HashSet::new();
        while tried.len() < 4_997 {
            for attempt in std::mem::take(&mut under_way) {
                assert!(tried.insert(attempt.name.clone()), "{} again", attempt.name);
                queue.failed(now, attempt);
            }
            while let Next::Now(attempt) = queue.next(now) {
                under_way.push(attempt);
                if tried.len() + under_way.len() == 4_997 || under_way.len() == STRANGER_THREADS_MAX {
                    break;
                }
            }
            under_way.retain(|attempt| attempt.name != "unit-2");
            now += MS / 100;
        }
        // Retries have a common rate limit.
        let begin = now;
        let mut again = 0;
        while now < begin + Duration::from_secs(30) {
            while let Next::Now(attempt) = queue.next(now) {
                again += usize::from(attempt.is_stranger);
                queue.failed(now, attempt);
            }
            now += MS;
        }
        assert!(again <= 30 * STRANGERS_PER_SECOND as usize, "{again}");
        // A node that is added late is tried at once.
        queue.add(now, "", "unit-1", "10.0.0.1:1");
        let unit = next(&mut queue, now);
        assert_eq!(unit.name, "unit-1");
        queue.succeeded(&unit);
        assert!(queue.take(&unit) && !queue.take(&unit));
        // From now on the node is known.
        queue.add(now, "", "unit-1", "10.0.0.1:1");
        let unit = next(&mut queue, now);
        assert!(!unit.is_stranger);
    }

    #[test]
    fn attempts_that_are_not_wanted_end() {
        let mut queue = AttemptQueue::default();
        queue.add(Duration::ZERO, "", "a", "1");
        queue.add(Duration::ZERO, "", "a", "2");
        assert_eq!(queue.len(), 1);
        let second = next(&mut queue, Duration::ZERO);
        assert_eq!(second.address, "2");
        queue.add(Duration::ZERO, "", "a", "3");
        assert!(!queue.failed(Duration::ZERO, second.clone()) && !queue.take(&second));
        queue.forget("", "a");
        assert_eq!((queue.next(Duration::ZERO), queue.len()), (Next::Never, 0));
        for at in 0..WAITING_MAX {
            assert!(queue.add(Duration::ZERO, "", &at.to_string(), "1"));
        }
        assert!(!queue.add(Duration::ZERO, "", "one more", "1"));
        assert!(queue.add(Duration::ZERO, "", "7", "2"), "it takes its own place");
    }
}
