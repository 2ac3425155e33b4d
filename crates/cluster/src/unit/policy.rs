//! A unit's policy: dispatchers have it read another one, and then run it.

use telemetry::event;

use super::UnitProcess;
use super::running::Order;
use crate::network::Network;
use crate::peers::ORDERED;
use crate::policies::{
    AppliedPolicy, Digest, KeptPolicy, NumberedDigest, PolicyReader, PolicyShelf, PolicyTexts, ReadPolicy,
};
use crate::wire::{PolicyFrame, write_policy_frame, write_policy_read};

/// The policies of a unit.
pub(super) struct UnitPolicy {
    /// The policy in use.
    present: AppliedPolicy,
    reader: Box<dyn PolicyReader>,
    shelf: Box<dyn PolicyShelf>,
    /// The texts that are being read.
    reading: Option<Reading>,
    /// The policy read last.
    read: Option<(PolicyTexts, ReadPolicy)>,
}

/// A policy that is being read.
struct Reading {
    texts: PolicyTexts,
    /// The digest that dispatchers expect.
    asked: Digest,
    /// Dispatchers that wait for it, by index.
    waiting: Vec<usize>,
}

impl UnitPolicy {
    /// Creates the policies of a unit that runs this one.
    pub fn new(
        present: AppliedPolicy,
        reader: Box<dyn PolicyReader>,
        shelf: Box<dyn PolicyShelf>,
    ) -> UnitPolicy {
        UnitPolicy { present, reader, shelf, reading: None, read: None }
    }

    /// Returns the digest of texts that are already read.
    fn digest_of(&self, texts: &PolicyTexts) -> Option<Digest> {
        if self.present.texts == *texts {
            return Some(self.present.id.digest);
        }
        self.read.as_ref().filter(|(read, _)| read == texts).map(|(_, read)| read.digest)
    }

    fn keep(&mut self) {
        self.shelf.keep(&self.present, false);
    }
}

impl<N: Network> UnitProcess<N> {
    /// Executes a dispatcher's order about policies.
    pub(super) fn follow_policy_order(&mut self, at: usize, order: Order) {
        match order {
            Order::Read(texts, asked) => self.begin_to_read(at, texts, asked),
            Order::Renew(policy) => self.renew_to(at, policy),
            Order::Show => {
                let present = PolicyFrame::Present(self.policy.present.clone());
                if let Some(dispatcher) = self.sessions[at].dispatcher {
                    self.peers.send(dispatcher, ORDERED, |out| write_policy_frame(out, &present));
                }
            }
            Order::Number(policy) => self.take_number(policy),
            Order::Assign(_) | Order::Part | Order::Trace(_) | Order::Connect { .. } => {}
        }
    }

    fn begin_to_read(&mut self, at: usize, texts: PolicyTexts, asked: Digest) {
        if let Some(digest) = self.policy.digest_of(&texts) {
            return self.answer(&[at], &Ok(digest), &asked);
        }
        if let Some(reading) = self.policy.reading.as_mut().filter(|reading| reading.texts == texts) {
            if !reading.waiting.contains(&at) {
                reading.waiting.push(at);
            }
            return;
        }
        let next = Reading { texts: texts.clone(), asked, waiting: vec![at] };
        let former = self.policy.reading.replace(next);
        self.policy.reader.begin(texts);
        if let Some(Reading { asked, waiting, .. }) = former {
            let overtaken = Err("another dispatcher has had it read another policy".to_owned());
            self.answer(&waiting, &overtaken, &asked);
        }
    }

    /// Switches to a policy that was read; for this dispatcher, once its flows are gone.
    fn renew_to(&mut self, at: usize, policy: NumberedDigest) {
        if let Some((texts, read)) = self.policy.read.take_if(|(_, read)| read.digest == policy.digest) {
            self.make = read.make;
            let before = std::mem::replace(&mut self.policy.present, AppliedPolicy { id: policy, texts });
            self.peers.network().policies().adopt(policy);
            self.policy.keep();
            event::policy_changed(&self.policy.present.texts.name, policy.number, &before.texts.name);
        } else if self.policy.present.id.digest != policy.digest {
            return; // The dispatcher sends it again.
        }
        self.take_number(policy);
        self.sessions[at].begin_renewal();
    }

    /// Adopts a higher number of the policy that this unit runs.
    fn take_number(&mut self, policy: NumberedDigest) {
        let own = &mut self.policy.present.id;
        if own.digest == policy.digest && own.number < policy.number {
            *own = policy;
            self.peers.network().policies().adopt(policy);
            self.policy.keep();
        }
    }

    /// Takes the outcome of reading, and reports it to the dispatchers that wait.
    pub(super) fn take_policy(&mut self) {
        if let Some(KeptPolicy { outcome: Err(reason), .. }) = self.policy.shelf.poll_kept() {
            event::policy_not_kept(&self.policy.present.texts.name, &reason);
        }
        let Some(outcome) = self.policy.reader.poll() else { return };
        let Some(Reading { texts, asked, waiting }) = self.policy.reading.take() else { return };
        let answer = match outcome {
            Ok(read) => {
                let digest = read.digest;
                self.peers.network().policies().accept(digest);
                self.policy.read = Some((texts, read));
                Ok(digest)
            }
            Err(reason) => Err(reason),
        };
        self.answer(&waiting, &answer, &asked);
    }

    fn answer(&mut self, waiting: &[usize], answer: &Result<Digest, String>, asked: &Digest) {
        for dispatcher in waiting.iter().filter_map(|&at| self.sessions[at].dispatcher) {
            self.peers.send(dispatcher, ORDERED, |out| write_policy_read(out, answer, asked));
        }
    }
}
