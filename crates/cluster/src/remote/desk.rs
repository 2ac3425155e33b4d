//! The policy of a dispatcher: the cluster's present one, and the adoption of a later one.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use graph::Graph;

use crate::peers::PeerId;
use crate::policies::{AppliedPolicy, Digest, NoShelf, NumberedDigest, PolicyShelf, PolicyTexts};

/// A policy for all nodes.
pub struct NewPolicy {
    /// Its texts.
    pub texts: PolicyTexts,
    /// Its digest.
    pub digest: Digest,
    /// The dispatcher's graph, with the same functions, ports, seed and affinity groups.
    pub graph: Box<Graph>,
}

/// Makes a policy for all nodes of its texts, or returns the reason why it cannot replace the
/// present one.
pub type PolicyMaker = Arc<dyn Fn(PolicyTexts) -> Result<NewPolicy, String> + Send + Sync>;

/// A maker of policies that other nodes send; it does not block packets.
pub trait PolicyBench: Send {
    /// Begins to make a policy. An unfinished earlier one is forgotten.
    fn begin(&mut self, texts: PolicyTexts);

    /// Returns the outcome, once: the policy, or the error.
    fn poll(&mut self) -> Option<Result<NewPolicy, String>>;
}

/// A bench that makes policies on a thread.
pub struct BenchThread {
    make: PolicyMaker,
    outcome: Option<Receiver<Result<NewPolicy, String>>>,
}

impl BenchThread {
    /// Creates an idle bench.
    pub fn new(make: PolicyMaker) -> BenchThread {
        BenchThread { make, outcome: None }
    }
}

impl PolicyBench for BenchThread {
    fn begin(&mut self, texts: PolicyTexts) {
        let (sender, receiver) = channel();
        self.outcome = Some(receiver);
        let make = Arc::clone(&self.make);
        let work = move || {
            // The receiver is gone if a newer policy has replaced this one.
            let _ = sender.send(make(texts));
        };
        // If the thread cannot be started, the sender is dropped, too.
        let _ = std::thread::Builder::new().name("policy".to_owned()).spawn(work);
    }

    fn poll(&mut self) -> Option<Result<NewPolicy, String>> {
        let outcome = match self.outcome.as_ref()?.try_recv() {
            Ok(outcome) => outcome,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err("the thread that makes it has failed".to_owned()),
        };
        self.outcome = None;
        Some(outcome)
    }
}

/// A bench for dispatchers with a fixed policy: it refuses any other.
#[derive(Debug, Default)]
pub struct NoBench(bool);

impl PolicyBench for NoBench {
    fn begin(&mut self, _: PolicyTexts) {
        self.0 = true;
    }

    fn poll(&mut self) -> Option<Result<NewPolicy, String>> {
        std::mem::take(&mut self.0).then(|| Err("this node keeps its policy".to_owned()))
    }
}

/// The policy of a dispatcher.
pub struct PolicyDesk {
    /// The cluster's policy, to this dispatcher's knowledge.
    pub(super) present: AppliedPolicy,
    bench: Box<dyn PolicyBench>,
    pub(super) shelf: Box<dyn PolicyShelf>,
    /// The policy that is being made, and its source.
    making: Option<(AppliedPolicy, PolicySource)>,
    /// The node that has to send a later policy.
    asked: Option<(PeerId, NumberedDigest)>,
    /// A later policy that cannot run here; it is not requested again.
    unfit: Option<NumberedDigest>,
}

/// The source of a policy that is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicySource {
    /// Another dispatcher proposes it.
    Proposed(PeerId),
    /// It is the cluster's policy.
    Cluster,
}

impl PolicyDesk {
    /// Creates the desk of a dispatcher with this initial policy.
    pub fn new(
        present: AppliedPolicy,
        bench: Box<dyn PolicyBench>,
        shelf: Box<dyn PolicyShelf>,
    ) -> PolicyDesk {
        PolicyDesk { present, bench, shelf, making: None, asked: None, unfit: None }
    }

    /// Creates the desk of a dispatcher that adopts no policy of others.
    pub fn fixed(present: AppliedPolicy) -> PolicyDesk {
        PolicyDesk::new(present, Box::<NoBench>::default(), Box::<NoShelf>::default())
    }

    /// Begins to make a policy.
    pub(super) fn begin(&mut self, policy: AppliedPolicy, source: PolicySource) {
        self.bench.begin(policy.texts.clone());
        self.making = Some((policy, source));
    }

    /// Returns the next finished policy, with its source.
    pub(super) fn poll(&mut self) -> Option<(AppliedPolicy, PolicySource, Result<NewPolicy, String>)> {
        self.making.as_ref()?;
        let made = self.bench.poll()?;
        let (policy, source) = self.making.take()?;
        let made = made.and_then(|made| match made.digest == policy.id.digest {
            true => Ok(made),
            false => Err("it is read differently here: this is another version of the program".to_owned()),
        });
        Some((policy, source, made))
    }

    /// Forgets a proposal that is being made.
    pub(super) fn forget_proposal(&mut self, from: PeerId) {
        if self.making.as_ref().is_some_and(|(_, source)| *source == PolicySource::Proposed(from)) {
            self.making = None;
        }
    }

    /// Returns the proposal that is being made: its sender and the name of its file.
    pub(super) fn proposed(&self) -> Option<(PeerId, &str)> {
        match &self.making {
            Some((policy, PolicySource::Proposed(from))) => Some((*from, &policy.texts.name)),
            _ => None,
        }
    }

    /// Returns true if a later policy of the cluster is being made.
    pub(super) fn takes_over(&self) -> bool {
        matches!(self.making, Some((_, PolicySource::Cluster)))
    }

    /// Returns true if a policy of others is being fetched or made.
    pub(super) fn is_at_work(&self) -> bool {
        self.making.is_some() || self.asked.is_some()
    }

    /// Returns true if a node's policy must be requested, because it is later than all known ones.
    pub(super) fn must_ask(&mut self, peer: PeerId, policy: NumberedDigest) -> bool {
        let latest = |id: NumberedDigest| id.number >= policy.number;
        let is_made = matches!(&self.making, Some((made, PolicySource::Cluster)) if latest(made.id));
        let is_known = latest(self.present.id) || self.unfit == Some(policy) || is_made;
        if is_known || self.asked.is_some_and(|(_, asked)| latest(asked)) {
            return false;
        }
        self.asked = Some((peer, policy));
        true
    }

    /// Ends a request to a node, which has answered or is lost.
    pub(super) fn answered(&mut self, peer: PeerId) {
        self.asked.take_if(|(asked, _)| *asked == peer);
    }

    /// Marks a later policy of the cluster as unable to run here.
    pub(super) fn set_unfit(&mut self, policy: NumberedDigest) {
        self.unfit = Some(policy);
    }
}
