//! Members of a cluster: units register themselves under a lease, dispatchers watch them.
//!
//! Each has a thread of its own. While the store is unreachable, both try again: a dispatcher keeps
//! the members that it knows, and running traffic needs none of this.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use telemetry::event;

use crate::{ClusterStore, Expected, LeaseId, StoreChange, StoreError};

/// Prefix of the keys of units; the node's name follows.
pub const UNITS: &str = "rivulet/units/";
/// Time after its end at which a unit that crashed is forgotten.
pub const TIME_TO_LIVE: Duration = Duration::from_secs(10);

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
        // Without a thread, nobody finds the unit.
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
            Ok(_) if store.get(key)?.is_some() => return Ok(()),
            // Somebody has deleted it.
            Ok(_) => return store.put(key, value, Expected::Absent, Some(id)).map(drop),
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

/// Watches the members on a thread, and hands each change to `notify`, until this returns false.
///
/// # Errors
/// If the thread cannot be started.
pub fn watch(
    store: Arc<dyn ClusterStore>,
    notify: impl FnMut(MemberChange) -> bool + Send + 'static,
) -> std::io::Result<()> {
    let mut watch = MemberWatch { store, notify, members: BTreeMap::new(), after: None };
    let work = move || {
        let mut has_failed = false;
        loop {
            match watch.step() {
                Ok(true) => has_failed = false,
                Ok(false) => return,
                Err(StoreError::Compacted { .. }) => watch.after = None,
                Err(error) => {
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
    /// The revision up to which changes are known; none: all keys must be listed.
    after: Option<u64>,
}

impl<N: FnMut(MemberChange) -> bool> MemberWatch<N> {
    /// Takes the next changes. Returns false if nobody wants more.
    fn step(&mut self) -> Result<bool, StoreError> {
        let Some(after) = self.after else {
            let listing = self.store.list(UNITS)?;
            self.after = Some(listing.revision);
            let there: BTreeMap<String, Vec<u8>> =
                listing.entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
            let is_gone = |name: &&String| !there.contains_key(&format!("{UNITS}{name}"));
            let gone: Vec<String> = self.members.keys().filter(is_gone).cloned().collect();
            let left = gone.into_iter().all(|name| self.leave(name));
            return Ok(left && there.into_iter().all(|(key, value)| self.join(&key, &value)));
        };
        for change in self.store.changes(UNITS, after, WATCH)? {
            let (revision, goes_on) = match change {
                StoreChange::Put(entry) => (entry.revision, self.join(&entry.key, &entry.value)),
                StoreChange::Deleted { key, revision } => {
                    (revision, self.leave(key.strip_prefix(UNITS).unwrap_or(&key).to_owned()))
                }
            };
            self.after = self.after.max(Some(revision));
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn join(&mut self, key: &str, value: &[u8]) -> bool {
        let name = key.strip_prefix(UNITS).unwrap_or(key).to_owned();
        let member: UnitMember = match serde_json::from_slice(value) {
            Ok(member) => member,
            Err(error) => {
                event::store_failed(&format!("{key}: expected a unit: {error}"));
                return true;
            }
        };
        if self.members.get(&name) == Some(&member) {
            return true;
        }
        self.members.insert(name.clone(), member.clone());
        (self.notify)(MemberChange::Joined { name, member })
    }

    fn leave(&mut self, name: String) -> bool {
        self.members.remove(&name).is_none() || (self.notify)(MemberChange::Left { name })
    }
}
