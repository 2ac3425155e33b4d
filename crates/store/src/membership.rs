//! Members of a cluster: units register themselves under a lease, dispatchers watch them.
//!
//! Each has a thread of its own. While the store is unreachable, both try again: a dispatcher keeps
//! the members that it knows, and running traffic needs none of this.
//!
//! Other programs may write to the store, too. What is no unit, or has no room, is passed over: it
//! is counted, and named by a warning a minute.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use telemetry::event;
use values::HostPort;

use crate::{ClusterStore, Expected, LeaseId, StoreChange, StoreError};

/// Prefix of the keys of units; the node's name follows.
pub const UNITS: &str = "rivulet/units/";
/// Time after its end at which a unit that crashed is forgotten.
pub const TIME_TO_LIVE: Duration = Duration::from_secs(10);

/// Units that a watch knows at once, at most. Known units stay; of others, the latest written one
/// is added first, and the rest once there is room.
pub const MEMBERS_MAX: usize = 8_000;
/// Length of the longest name of a node, in bytes.
pub const NAME_LEN_MAX: usize = 64;
/// Length of a unit's entry, in bytes.
const MEMBER_LEN_MAX: usize = 1_024;
/// Interval between warnings that name an entry that was passed over.
const WARNING: Duration = Duration::from_secs(60);
/// Letters of a key that a warning shows.
const SHOWN: usize = 80;

/// Delay before another attempt, and period of a lease's renewal.
const RETRY: Duration = Duration::from_secs(1);
const RENEWAL: Duration = Duration::from_secs(3);
/// Limit on the wait of a watch, after which it is begun again.
const WATCH: Duration = Duration::from_secs(5);

/// A unit, as it registers itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitMember {
    /// The address of its handshakes.
    pub address: String,
    /// Counts restarts of its process.
    pub incarnation: u64,
}

/// A change of the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// A unit has come, or has changed its address or incarnation.
    Joined {
        /// Name of its node.
        name: String,
        /// The unit.
        member: UnitMember,
    },
    /// A unit has left, or its lease has expired.
    Left {
        /// Name of its node.
        name: String,
    },
}

/// A unit's registration, which ends when it is dropped.
pub struct Registration {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Registration {
    /// Registers a unit, and keeps its lease alive. An earlier process of this name is replaced.
    pub fn begin(store: Arc<dyn ClusterStore>, name: &str, member: &UnitMember) -> Registration {
        let (end, ended) = channel();
        // A struct of a text and a number is always JSON.
        let value = serde_json::to_vec(member).unwrap_or_default();
        let key = format!("{UNITS}{name}");
        let work = move || register(&*store, &key, &value, &ended);
        // Without a thread, no dispatcher finds the unit.
        let thread = std::thread::Builder::new().name("registration".to_owned()).spawn(work);
        Registration { end: Some(end), thread: thread.ok() }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // It has no panic; the lease ends by itself otherwise.
            let _ = thread.join();
        }
    }
}

/// Keeps a key under a lease until the registration ends.
fn register(store: &dyn ClusterStore, key: &str, value: &[u8], ended: &Receiver<()>) {
    let mut lease = None;
    let mut has_failed = false;
    loop {
        let outcome = renew(store, key, value, &mut lease);
        if let (Err(error), false) = (&outcome, has_failed) {
            event::store_failed(error);
        }
        has_failed = outcome.is_err();
        let delay = if has_failed { RETRY } else { RENEWAL };
        if ended.recv_timeout(delay) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    if let Some(lease) = lease {
        // If the store cannot be reached, the lease expires.
        let _ = store.revoke(lease);
    }
}

fn renew(
    store: &dyn ClusterStore,
    key: &str,
    value: &[u8],
    lease: &mut Option<LeaseId>,
) -> Result<(), StoreError> {
    if let Some(id) = *lease {
        match store.keep_alive(id) {
            Err(StoreError::LeaseExpired(_)) => *lease = None,
            Err(error) => return Err(error),
            Ok(_) => match store.get(key)? {
                // Somebody has deleted it.
                None => return store.put(key, value, Expected::Absent, Some(id)).map(drop),
                // Somebody has written something else; a later process of this name is right.
                Some(entry) if is_stale(&entry.value, value) => {
                    return store.put(key, value, Expected::Revision(entry.revision), Some(id)).map(drop);
                }
                Some(_) => return Ok(()),
            },
        }
    }
    let id = store.grant(TIME_TO_LIVE)?;
    match store.put(key, value, Expected::Any, Some(id)) {
        Ok(_) => *lease = Some(id),
        Err(error) => {
            // Unused, it expires.
            let _ = store.revoke(id);
            return Err(error);
        }
    }
    Ok(())
}

/// Returns whether an entry is neither a unit's own nor that of a later process of its name.
fn is_stale(found: &[u8], own: &[u8]) -> bool {
    let incarnation = |value| read_member(value).map(|member| member.incarnation);
    found != own && incarnation(found).is_none_or(|found| Some(found) <= incarnation(own))
}

/// Watches the members on a thread, and hands each change to `notify`, until this returns false.
/// Counts in `refused` entries that are passed over, again each time when they are listed. `show`
/// gets the number of members after each answer of the store, or why there was none.
///
/// # Errors
/// If the thread cannot be started.
pub fn watch(
    store: Arc<dyn ClusterStore>,
    refused: Arc<AtomicU64>,
    notify: impl FnMut(MemberChange) -> bool + Send + 'static,
    mut show: impl FnMut(Result<usize, &StoreError>) + Send + 'static,
) -> std::io::Result<()> {
    let mut watch = MemberWatch {
        store,
        notify,
        members: BTreeMap::new(),
        after: None,
        refused,
        warned: None,
        has_no_room: false,
    };
    let work = move || {
        let mut has_failed = false;
        loop {
            match watch.step() {
                Ok(true) => {
                    has_failed = false;
                    show(Ok(watch.members.len()));
                }
                Ok(false) => return,
                Err(StoreError::Compacted { .. } | StoreError::Reverted { .. }) => watch.after = None,
                Err(error) => {
                    show(Err(&error));
                    // What cannot be reached may be restored from an earlier state before it is
                    // back.
                    watch.after = None;
                    if !has_failed {
                        event::store_failed(&error);
                    }
                    has_failed = true;
                    std::thread::sleep(RETRY);
                }
            }
        }
    };
    std::thread::Builder::new().name("members".to_owned()).spawn(work).map(drop)
}

struct MemberWatch<N> {
    store: Arc<dyn ClusterStore>,
    notify: N,
    members: BTreeMap<String, UnitMember>,
    /// The last known revision; none: all keys must be listed.
    after: Option<u64>,
    /// Entries that were passed over.
    refused: Arc<AtomicU64>,
    /// Time of the latest warning of one.
    warned: Option<Instant>,
    /// There are units without room.
    has_no_room: bool,
}

impl<N: FnMut(MemberChange) -> bool> MemberWatch<N> {
    /// Takes the next changes. Returns false once the receiver has ended.
    fn step(&mut self) -> Result<bool, StoreError> {
        let Some(after) = self.after else { return self.list() };
        let mut has_room = false;
        for change in self.store.changes(UNITS, after, WATCH)? {
            let (revision, goes_on) = match change {
                StoreChange::Put(entry) => (entry.revision, self.join(&entry.key, &entry.value)),
                StoreChange::Deleted { key, revision } => {
                    has_room = true;
                    (revision, self.leave(key.strip_prefix(UNITS).unwrap_or(&key)))
                }
                StoreChange::Refused { revision } => {
                    self.refuse(UNITS, &"expected names and values of units, not longer ones");
                    (revision, true)
                }
            };
            self.after = self.after.max(Some(revision));
            if !goes_on {
                return Ok(false);
            }
        }
        if has_room && self.has_no_room {
            self.after = None;
        }
        Ok(true)
    }

    /// Takes all units of the store.
    fn list(&mut self) -> Result<bool, StoreError> {
        let listing = self.store.list(UNITS)?;
        self.after = Some(listing.revision);
        self.has_no_room = false;
        if listing.refused > 0 {
            self.refused.fetch_add(listing.refused - 1, Ordering::Relaxed);
            self.refuse(UNITS, &"expected names and values of units, not longer ones");
        }
        let mut there = listing.entries;
        // Where not all have room, the latest come first.
        if there.len() > MEMBERS_MAX {
            there.sort_by_key(|entry| std::cmp::Reverse(entry.revision));
        }
        let keys: BTreeSet<&str> = there.iter().map(|entry| &*entry.key).collect();
        let is_gone = |name: &&String| !keys.contains(&*format!("{UNITS}{name}"));
        let gone: Vec<String> = self.members.keys().filter(is_gone).cloned().collect();
        let left = gone.iter().all(|name| self.leave(name));
        Ok(left && there.into_iter().all(|entry| self.join(&entry.key, &entry.value)))
    }

    fn join(&mut self, key: &str, value: &[u8]) -> bool {
        let name = key.strip_prefix(UNITS).unwrap_or(key);
        if let Err(reason) = check_name(name) {
            self.refuse(key, &reason);
            return true;
        }
        let Some(member) = read_member(value) else {
            self.refuse(key, &"expected a unit, with its address and incarnation");
            return true;
        };
        match self.members.get(name) {
            Some(known) if *known == member => return true,
            None if self.members.len() >= MEMBERS_MAX => {
                self.has_no_room = true;
                self.refuse(key, &format_args!("there are {MEMBERS_MAX} units already, as many as may be"));
                return true;
            }
            _ => {}
        }
        self.members.insert(name.to_owned(), member.clone());
        (self.notify)(MemberChange::Joined { name: name.to_owned(), member })
    }

    fn leave(&mut self, name: &str) -> bool {
        self.members.remove(name).is_none() || (self.notify)(MemberChange::Left { name: name.to_owned() })
    }

    /// Passes an entry over.
    fn refuse(&mut self, key: &str, reason: &dyn Display) {
        let count = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        if self.warned.is_none_or(|warned| warned.elapsed() >= WARNING) {
            self.warned = Some(Instant::now());
            let shown: String = key.chars().take(SHOWN).flat_map(char::escape_default).collect();
            event::store_failed(&format_args!("{shown}: {reason}; {count} entries were passed over so far"));
        }
    }
}

/// Checks that a text can be the name of a node.
///
/// # Errors
/// With the expectation, if it is too long, or has other characters.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    match (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(is_plain) {
        true => Ok(()),
        false => Err(format!(
            "expected the name of a node: up to {NAME_LEN_MAX} letters, digits, hyphens and dots"
        )),
    }
}

/// Reads the entry of a unit; none if it is no such thing.
fn read_member(value: &[u8]) -> Option<UnitMember> {
    if value.len() > MEMBER_LEN_MAX {
        return None;
    }
    let UnitMember { address, incarnation } = serde_json::from_slice(value).ok()?;
    let address: HostPort = address.parse().ok()?;
    Some(UnitMember { address: address.to_string(), incarnation })
}
