//! The policy that was applied to a cluster, and its number.
//!
//! A policy is longer than a value, so its text stands in parts under keys of its digest. One key
//! names the present policy. It is written last, and only if no other process has written it since
//! it was read: of two policies with the same number, one is kept.

use serde::{Deserialize, Serialize};

use crate::{ClusterStore, Expected, StoreError, VALUE_LEN_MAX};

/// The key that names the present policy.
const PRESENT: &str = "rivulet/policy/present";
/// Prefix of the keys of parts; the digest and the number of the part follow.
const PARTS: &str = "rivulet/policy/parts/";
/// Limit on the parts of a policy.
pub const PARTS_MAX: usize = 512;
/// Attempts to read a policy that others replace in the meantime.
const ATTEMPTS: usize = 3;

/// A policy in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPolicy {
    /// Its number, from 1.
    pub number: u64,
    /// Its digest in hexadecimal.
    pub digest: String,
    /// The name of its file.
    pub name: String,
    /// The node at which it was applied.
    pub node: String,
    /// All that belongs to it.
    pub contents: Vec<u8>,
}

/// A policy could not be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeepError {
    /// Another node has applied a policy before.
    #[error("{node} has applied {name} before, as policy {number}")]
    Overtaken {
        /// The node.
        node: String,
        /// The name of that policy's file.
        name: String,
        /// Its number.
        number: u64,
    },
    /// The policy has too many parts.
    #[error("the policy has {len} bytes with all files; at most {max} can be kept", max = PARTS_MAX * VALUE_LEN_MAX)]
    TooLong {
        /// Its length.
        len: usize,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Serialize, Deserialize)]
struct Present {
    number: u64,
    digest: String,
    name: String,
    node: String,
    parts: usize,
}

/// Returns the number of the present policy; 0 if none was applied.
///
/// # Errors
/// If the store cannot be reached, or has something unexpected.
pub fn present_number(store: &dyn ClusterStore) -> Result<u64, StoreError> {
    Ok(present(store)?.map_or(0, |(present, _)| present.number))
}

/// Returns the present policy, if one was applied.
///
/// # Errors
/// If the store cannot be reached, or has something unexpected.
pub fn load(store: &dyn ClusterStore) -> Result<Option<StoredPolicy>, StoreError> {
    let mut digest = String::new();
    for _ in 0..ATTEMPTS {
        let Some((Present { number, digest: of_present, name, node, parts }, _)) = present(store)? else {
            return Ok(None);
        };
        digest = of_present;
        if let Some(contents) = read_parts(store, &digest, parts)? {
            return Ok(Some(StoredPolicy { number, digest, name, node, contents }));
        }
        // It was replaced in the meantime.
    }
    Err(damaged(&format!("all parts of the policy {digest}")))
}

/// Makes a policy the present one, unless one with this number is there already. The one before is
/// removed.
///
/// # Errors
/// [`KeepError::Overtaken`] if another node was first; otherwise if the store cannot be reached.
pub fn keep(store: &dyn ClusterStore, policy: &StoredPolicy) -> Result<(), KeepError> {
    let StoredPolicy { number, digest, name, node, contents } = policy;
    let overtaken = |Present { number, name, node, .. }| KeepError::Overtaken { node, name, number };
    let former = present(store)?;
    let expected = match &former {
        Some((former, _)) if former.number >= *number && former.digest == *digest => return Ok(()),
        Some((former, revision)) if former.number < *number => Expected::Revision(*revision),
        None => Expected::Absent,
        Some(_) => return Err(former.map_or(KeepError::TooLong { len: 0 }, |(former, _)| overtaken(former))),
    };
    let parts = contents.len().div_ceil(VALUE_LEN_MAX);
    if parts > PARTS_MAX {
        return Err(KeepError::TooLong { len: contents.len() });
    }
    for (at, part) in contents.chunks(VALUE_LEN_MAX).enumerate() {
        store.put(&key_of(digest, at), part, Expected::Any, None)?;
    }
    let present_now =
        Present { number: *number, digest: digest.clone(), name: name.clone(), node: node.clone(), parts };
    // Numbers and texts are always JSON.
    let value = serde_json::to_vec(&present_now).unwrap_or_default();
    match store.put(PRESENT, &value, expected, None) {
        Ok(_) => {}
        Err(StoreError::Conflict { .. }) => {
            return match present(store)? {
                Some((winner, _)) => Err(overtaken(winner)),
                None => Err(KeepError::Store(StoreError::Conflict { key: PRESENT.to_owned() })),
            };
        }
        Err(error) => return Err(error.into()),
    }
    if let Some((former, _)) = former.filter(|(former, _)| former.digest != *digest) {
        // What is left over costs room only.
        (0..former.parts.min(PARTS_MAX)).for_each(|at| {
            let _ = store.delete(&key_of(&former.digest, at), Expected::Any);
        });
    }
    Ok(())
}

fn key_of(digest: &str, part: usize) -> String {
    format!("{PARTS}{digest}/{part:04}")
}

fn present(store: &dyn ClusterStore) -> Result<Option<(Present, u64)>, StoreError> {
    let Some(entry) = store.get(PRESENT)? else { return Ok(None) };
    let present: Present = serde_json::from_slice(&entry.value)
        .map_err(|_| damaged("the number and digest of a policy, as JSON"))?;
    Ok(Some((present, entry.revision)))
}

fn read_parts(store: &dyn ClusterStore, digest: &str, parts: usize) -> Result<Option<Vec<u8>>, StoreError> {
    let mut contents = Vec::new();
    for part in 0..parts.min(PARTS_MAX) {
        match store.get(&key_of(digest, part))? {
            Some(entry) => contents.extend(entry.value),
            None => return Ok(None),
        }
    }
    Ok(Some(contents))
}

fn damaged(expected: &str) -> StoreError {
    StoreError::Damaged { place: PRESENT.to_owned(), reason: format!("expected {expected}") }
}
