//! Policies of nodes: their digests, by which nodes find out whether they fit together, and their
//! texts, which a dispatcher gives to units while they run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use graph::Graph;

/// Limit on the bytes of a policy's texts that travels to units.
pub const POLICY_BYTES_MAX: usize = 8 << 20;
/// Limit on the digests that a node knows besides its own. The oldest is forgotten.
pub const DIGESTS_MAX: usize = 16;

/// The digest of a policy: see [`policy_digest`](crate::policy_digest).
pub type Digest = [u8; 32];

/// A policy as its texts, which have everything that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyTexts {
    /// The name of its file.
    pub name: String,
    /// Its text.
    pub text: String,
    /// The files that it names, as it does, and their texts.
    pub files: Vec<(String, String)>,
}

impl PolicyTexts {
    /// Returns the bytes of all names and texts.
    pub fn len(&self) -> usize {
        let files = self.files.iter().map(|(name, text)| name.len() + text.len());
        self.name.len() + self.text.len() + files.sum::<usize>()
    }

    /// Returns true if there is nothing.
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

/// Reads policies, without holding up packets.
pub trait PolicyReader {
    /// Begins to read a policy. An earlier one that has not been read is forgotten.
    fn begin(&mut self, texts: PolicyTexts);

    /// Returns the outcome, once: the policy, or why there is none.
    fn poll(&mut self) -> Option<Result<ReadPolicy, String>>;
}

/// A reader for nodes whose policy stays: it refuses any other.
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

/// The policies that a node knows, by digest: its own, and those that it accepts at other nodes. A
/// link begins only if the node that connects knows the policy of the node that listens.
#[derive(Clone, Debug)]
pub struct KnownPolicies(Arc<Mutex<Digests>>);

#[derive(Clone, Debug)]
struct Digests {
    own: Digest,
    others: Vec<Digest>,
}

impl KnownPolicies {
    /// Knows a node's own policy.
    pub fn new(own: Digest) -> KnownPolicies {
        KnownPolicies(Arc::new(Mutex::new(Digests { own, others: Vec::new() })))
    }

    /// Returns the digest of the node's policy.
    pub fn own(&self) -> Digest {
        self.lock().own
    }

    /// Returns the digest of the node's policy, then the others that it knows.
    pub fn all(&self) -> Vec<Digest> {
        let known = self.lock();
        std::iter::once(known.own).chain(known.others.iter().copied()).collect()
    }

    /// Returns true if this node may connect to one that runs this policy.
    pub fn accepts(&self, digest: &Digest) -> bool {
        let known = self.lock();
        known.own == *digest || known.others.contains(digest)
    }

    /// Connects to nodes that run this policy, too, from now on.
    pub fn accept(&self, digest: Digest) {
        let mut known = self.lock();
        if known.own == digest || known.others.contains(&digest) {
            return;
        }
        if known.others.len() >= DIGESTS_MAX {
            known.others.remove(0);
        }
        known.others.push(digest);
    }

    /// The node runs another policy from now on, and still knows the one before.
    pub fn adopt(&self, digest: Digest) {
        let before = {
            let mut known = self.lock();
            known.others.retain(|other| *other != digest);
            std::mem::replace(&mut known.own, digest)
        };
        self.accept(before);
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
        let known = KnownPolicies::new([0; 32]);
        assert!(known.accepts(&[0; 32]) && !known.accepts(&[1; 32]));
        known.accept([1; 32]);
        known.adopt([1; 32]);
        assert_eq!((known.own(), known.all()), ([1; 32], vec![[1; 32], [0; 32]]));
        (2..40).for_each(|number| known.adopt([number; 32]));
        assert_eq!(known.all().len(), 1 + DIGESTS_MAX);
        assert!(known.accepts(&[39; 32]) && known.accepts(&[38; 32]) && !known.accepts(&[0; 32]));
        known.adopt([38; 32]);
        assert!(known.accepts(&[39; 32]));
    }
}
