//! Clusters: `rivulet cluster`, and `--cluster` of commands that dispatch.

mod certificates;
pub mod config;
mod dispatcher;
pub mod members;
pub mod policies;
pub mod shelf;

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::messages::say;

pub use certificates::{ClusterArgs, issue};
pub use dispatcher::{DispatcherNode, api_of};

/// Warns that the secrets of links are written to a file, if they are.
pub fn say_key_log(path: Option<&Path>) {
    if let Some(path) = path {
        say!("rivulet: writes the secrets of links to {}: who reads it can decrypt them", path.display());
    }
}

/// Returns a number that distinguishes this process from others of its node: random, because the
/// clock may be set back. The higher bits grow with time anyway, for nodes of earlier versions.
pub fn incarnation() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let random = RandomState::new().hash_one(std::process::id());
    since & !INCARNATION_RANDOM | random & INCARNATION_RANDOM
}

/// Bits of an incarnation that are random; the others say the time, in steps of 0.3 s.
const INCARNATION_RANDOM: u64 = (1 << 28) - 1;
