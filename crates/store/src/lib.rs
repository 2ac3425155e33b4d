//! The store of a cluster: keys and values that its nodes share, with leases and watches.
//!
//! [`FileStore`] is a file for the processes of one machine (redb), [`EtcdStore`] is etcd for
//! several machines. Both pass one conformance suite. All calls block, for a bounded time; the data
//! path makes none. [`membership`] builds on it: units register themselves, dispatchers find them;
//! [`policy`] keeps the policy that was applied.
//!
//! # Limits
//!
//! | what | limit | beyond it |
//! |---|---|---|
//! | length of a key | [`KEY_LEN_MAX`] | [`StoreError::TooLong`] |
//! | length of a value | [`VALUE_LEN_MAX`] | [`StoreError::TooLong`] |
//! | keys of a listing | [`LIST_MAX`] | [`StoreError::TooMany`] |
//! | an entry that another program wrote, longer than these | | passed over, and counted |
//! | an answer of etcd | [`ANSWER_LEN_MAX`] | smaller parts are requested |
//! | history of a file, in changes | [`HISTORY_MAX`] | the oldest are discarded, as by [`ClusterStore::compact`] |
//! | time of a call, unless it waits for changes | [`CALL_MAX`] per endpoint | [`StoreError::Unreachable`] |

#![forbid(unsafe_code)]

mod etcd;
mod file;
pub mod membership;
pub mod policy;

use std::time::Duration;

pub use etcd::{ANSWER_LEN_MAX, EtcdFiles, EtcdStore};
pub use file::{FileStore, HISTORY_MAX};

/// Length of the longest key, in bytes.
pub const KEY_LEN_MAX: usize = 512;
/// Length of the longest value, in bytes.
pub const VALUE_LEN_MAX: usize = 64 * 1024;
/// Keys of a listing, at most.
pub const LIST_MAX: usize = 10_000;
/// Limit on the time of a call, for each endpoint.
pub const CALL_MAX: Duration = Duration::from_secs(3);

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreEntry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// The revision of the store at which it was written last.
    pub revision: u64,
}

/// All keys with a prefix, at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The revision of the store.
    pub revision: u64,
    /// The keys, in order.
    pub entries: Vec<StoreEntry>,
    /// Entries of other programs that were passed over: too long, or with a key that is no text.
    pub refused: u64,
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreChange {
    /// It was written.
    Put(StoreEntry),
    /// It was deleted, or its lease expired.
    Deleted {
        /// The key.
        key: String,
        /// The revision of the store.
        revision: u64,
    },
    /// Another program wrote an entry that is too long, or has a key that is no text.
    Refused {
        /// The revision of the store.
        revision: u64,
    },
}

/// A condition on the present revision of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// None.
    Any,
    /// The key is absent.
    Absent,
    /// The key was written last at this revision.
    Revision(u64),
}

/// A lease: keys that were written under it are deleted when it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub i64);

/// A call of a store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store does not answer in time. A later attempt may succeed.
    #[error("cannot reach the store at {place}: {cause}")]
    Unreachable {
        /// The endpoints, or the file.
        place: String,
        /// The cause at the last endpoint.
        cause: String,
    },
    /// The key is not as expected, and nothing was written.
    #[error("`{key}` was changed by another process")]
    Conflict {
        /// The key.
        key: String,
    },
    /// The lease has expired, was revoked or never existed.
    #[error("the lease {} has expired", .0.0)]
    LeaseExpired(LeaseId),
    /// The history since the revision was discarded: list the keys again.
    #[error("the history before revision {oldest} was discarded; list the keys again")]
    Compacted {
        /// The oldest revision with history.
        oldest: u64,
    },
    /// The store has changed less often than its reader has seen: it was restored from an earlier
    /// state, or created again. List the keys again.
    #[error("the store is at revision {now}, and was at {seen} before; list the keys again")]
    Reverted {
        /// The present revision.
        now: u64,
        /// A revision of before.
        seen: u64,
    },
    /// The key or value is too long.
    #[error("the {what} has {len} bytes; at most {max} are allowed")]
    TooLong {
        /// Key or value.
        what: &'static str,
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// More keys have the prefix than a listing holds.
    #[error("more than {LIST_MAX} keys begin with `{0}`")]
    TooMany(String),
    /// The store refused the call.
    #[error("the store at {place} refused: {reason}")]
    Refused {
        /// The endpoint.
        place: String,
        /// The reason that it gave.
        reason: String,
    },
    /// The store's contents or answer make no sense.
    #[error("the store at {place} is damaged: {reason}")]
    Damaged {
        /// The endpoint or file.
        place: String,
        /// The expectation.
        reason: String,
    },
}

/// A store with revisions, leases and watches.
///
/// Revisions count changes of the whole store, so that a listing and the changes after its revision
/// together are complete.
pub trait ClusterStore: Send + Sync {
    /// Returns a key's value.
    ///
    /// # Errors
    /// If the store cannot be reached.
    fn get(&self, key: &str) -> Result<Option<StoreEntry>, StoreError>;

    /// Returns all keys with a prefix.
    ///
    /// # Errors
    /// If the store cannot be reached, or there are too many.
    fn list(&self, prefix: &str) -> Result<Listing, StoreError>;

    /// Writes a key if it is as expected, and returns its new revision. The key is deleted when the
    /// lease expires.
    ///
    /// # Errors
    /// [`StoreError::Conflict`], [`StoreError::LeaseExpired`], [`StoreError::TooLong`], or if the
    /// store cannot be reached; then it is not known whether the key was written.
    fn put(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
        lease: Option<LeaseId>,
    ) -> Result<u64, StoreError>;

    /// Deletes a key if it is as expected. Returns false if it was absent.
    ///
    /// # Errors
    /// [`StoreError::Conflict`], or if the store cannot be reached.
    fn delete(&self, key: &str, expected: Expected) -> Result<bool, StoreError>;

    /// Waits for changes of keys with a prefix after a revision, up to `wait`. Returns those so
    /// far, oldest first; none if nothing has changed.
    ///
    /// # Errors
    /// [`StoreError::Compacted`], [`StoreError::Reverted`], or if the store cannot be reached.
    fn changes(&self, prefix: &str, after: u64, wait: Duration) -> Result<Vec<StoreChange>, StoreError>;

    /// Creates a lease that expires after this time, in whole seconds, unless it is kept alive.
    ///
    /// # Errors
    /// If the store cannot be reached.
    fn grant(&self, time_to_live: Duration) -> Result<LeaseId, StoreError>;

    /// Renews a lease, and returns its time to live.
    ///
    /// # Errors
    /// [`StoreError::LeaseExpired`], or if the store cannot be reached.
    fn keep_alive(&self, lease: LeaseId) -> Result<Duration, StoreError>;

    /// Ends a lease: its keys are deleted.
    ///
    /// # Errors
    /// [`StoreError::LeaseExpired`], or if the store cannot be reached.
    fn revoke(&self, lease: LeaseId) -> Result<(), StoreError>;

    /// Discards the history up to a revision. Keys and values stay.
    ///
    /// # Errors
    /// If the store cannot be reached.
    fn compact(&self, through: u64) -> Result<(), StoreError>;
}

fn check_len(what: &'static str, len: usize, max: usize) -> Result<(), StoreError> {
    if len > max { Err(StoreError::TooLong { what, len, max }) } else { Ok(()) }
}

fn check_put(key: &str, value: &[u8]) -> Result<(), StoreError> {
    check_len("key", key.len(), KEY_LEN_MAX)?;
    check_len("value", value.len(), VALUE_LEN_MAX)
}
