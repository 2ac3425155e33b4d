//! Policies of nodes: their digests, with which nodes check that they fit together, and their
//! texts, which a dispatcher sends to running units.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use graph::Graph;

/// Limit on the bytes of a policy's texts that are sent to units.
pub const POLICY_BYTES_MAX: usize = 8 << 20;
/// Limit on digests that a node knows in addition to its own. The oldest is forgotten.
pub const DIGESTS_MAX: usize = 16;

/// Bytes of a digest in messages.
const SHOWN_LEN: usize = 4;

/// The digest of a policy: see [`policy_digest`](crate::policy_digest).
pub type Digest = [u8; 32];

/// A policy's digest, and its number in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NumberedDigest {
    /// Raised by each applied policy; 0 before the first, when each node runs its own file.
    pub number: u64,
    /// The digest.
    pub digest: Digest,
}

impl fmt::Display for NumberedDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "number {} ", self.number)?;
        self.digest.iter().take(SHOWN_LEN).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A policy with its number in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedPolicy {
    /// Its number and digest.
    pub id: NumberedDigest,
    /// Its texts.
    pub texts: PolicyTexts,
}

/// The outcome of storing a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPolicy {
    /// The policy.
    pub policy: NumberedDigest,
    /// The order was given at this node.
    pub is_order: bool,
    /// The error if it was not stored.
    pub outcome: Result<(), String>,
}

/// Storage for the policy of a cluster that survives the process: a store shared by nodes, or local
/// files. It does not block packets.
pub trait PolicyShelf: Send {
    /// Begins to store a policy. With `is_order` the order was given here, and must fail if another
    /// process has already stored this number.
    fn keep(&mut self, policy: &AppliedPolicy, is_order: bool);

    /// Returns the next outcome, once.
    fn poll_kept(&mut self) -> Option<KeptPolicy>;

    /// Returns true if all nodes share the storage: then it decides between two concurrent orders.
    fn is_shared(&self) -> bool {
        false
    }

    /// Returns a later policy stored by another process.
    fn poll_newer(&mut self) -> Option<AppliedPolicy> {
        None
    }
}

/// No storage: the policy ends with the process.
#[derive(Debug, Default)]
pub struct NoShelf(Option<KeptPolicy>);

impl PolicyShelf for NoShelf {
    fn keep(&mut self, policy: &AppliedPolicy, is_order: bool) {
        self.0 = Some(KeptPolicy { policy: policy.id, is_order, outcome: Ok(()) });
    }

    fn poll_kept(&mut self) -> Option<KeptPolicy> {
        self.0.take()
    }
}

/// A policy as its complete texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyTexts {
    /// The name of its file.
    pub name: String,
    /// Its text.
    pub text: String,
    /// The files that it names, by the names it uses, and their texts.
    pub files: Vec<(String, String)>,
}

impl PolicyTexts {
    /// Returns the bytes of all names and texts.
    pub fn len(&self) -> usize {
        let files = self.files.iter().map(|(name, text)| name.len() + text.len());
        self.name.len() + self.text.len() + files.sum::<usize>()
    }

    /// Returns true if all names and texts are empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Makes a graph of a policy with this seed.
pub type GraphMaker = Box<dyn FnMut(u64) -> Result<Box<Graph>, String>>;

/// A policy that was read: its digest, and its graphs.
pub struct ReadPolicy {
    /// Its digest.
    pub digest: Digest,
    /// Makes its graphs.
    pub make: GraphMaker,
}

/// A reader of policies that does not block packets.
pub trait PolicyReader {
    /// Begins to read a policy. An unfinished earlier one is forgotten.
    fn begin(&mut self, texts: PolicyTexts);

    /// Returns the outcome, once: the policy, or the error.
    fn poll(&mut self) -> Option<Result<ReadPolicy, String>>;
}

/// A reader for nodes with a fixed policy: it refuses any other.
pub struct FixedPolicy(bool);

impl FixedPolicy {
    /// Creates it.
    pub fn new() -> FixedPolicy {
        FixedPolicy(false)
    }
}

impl Default for FixedPolicy {
    fn default() -> FixedPolicy {
        FixedPolicy::new()
    }
}

impl PolicyReader for FixedPolicy {
    fn begin(&mut self, _: PolicyTexts) {
        self.0 = true;
    }

    fn poll(&mut self) -> Option<Result<ReadPolicy, String>> {
        std::mem::take(&mut self.0).then(|| Err("this node keeps its policy".to_owned()))
    }
}

/// The policies that a node knows, by digest: its own, and others that it accepts at peers. A link
/// begins only if the connecting node knows the policy of the listening node.
#[derive(Clone, Debug)]
pub struct KnownPolicies(Arc<Mutex<Digests>>);

#[derive(Clone, Debug)]
struct Digests {
    own: NumberedDigest,
    others: Vec<Digest>,
}

impl KnownPolicies {
    /// Creates the set with a node's own policy.
    pub fn new(own: NumberedDigest) -> KnownPolicies {
        KnownPolicies(Arc::new(Mutex::new(Digests { own, others: Vec::new() })))
    }

    /// Returns the node's policy.
    pub fn own(&self) -> NumberedDigest {
        self.lock().own
    }

    /// Returns the digest of the node's policy, then the others that it knows.
    pub fn all(&self) -> Vec<Digest> {
        let known = self.lock();
        std::iter::once(known.own.digest).chain(known.others.iter().copied()).collect()
    }

    /// Accepts this policy, too, at peers that still run it.
    pub fn accept(&self, digest: Digest) {
        let mut known = self.lock();
        if known.own.digest == digest || known.others.contains(&digest) {
            return;
        }
        if known.others.len() >= DIGESTS_MAX {
            known.others.remove(0);
        }
        known.others.push(digest);
    }

    /// Switches the node to another policy. The former one stays known.
    pub fn adopt(&self, policy: NumberedDigest) {
        let before = {
            let mut known = self.lock();
            known.others.retain(|other| *other != policy.digest);
            std::mem::replace(&mut known.own, policy)
        };
        self.accept(before.digest);
    }

    fn lock(&self) -> MutexGuard<'_, Digests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_before_are_accepted_up_to_a_limit() {
        let policy = |number: u8| NumberedDigest { number: number.into(), digest: [number; 32] };
        let known = KnownPolicies::new(policy(0));
        assert_eq!(known.all(), [[0; 32]]);
        known.accept([1; 32]);
        known.adopt(policy(1));
        assert_eq!((known.own(), known.all()), (policy(1), vec![[1; 32], [0; 32]]));
        (2..40).for_each(|number| known.adopt(policy(number)));
        let all = known.all();
        assert_eq!(all.len(), 1 + DIGESTS_MAX);
        assert!(all[0] == [39; 32] && all.contains(&[38; 32]) && !all.contains(&[0; 32]));
        known.adopt(policy(38));
        assert!(known.all().contains(&[39; 32]));
    }
}
