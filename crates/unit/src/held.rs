//! Packets of one flow that wait.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
};

use proto::{Epoch, Stamp};

/// Packets of one flow that wait, in the order of their clocks; hence of their epochs, too.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Held<P>(BTreeMap<u64, Waiting<P>>);

/// A packet that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting<P> {
    pub stamp: Stamp,
    pub packet: P,
    pub since_ns: u64,
}

impl<P> Default for Held<P> {
    fn default() -> Held<P> {
        Held(BTreeMap::new())
    }
}

impl<P> Held<P> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the packet with this clock is among them.
    pub fn has(&self, clock: u64) -> bool {
        self.0.contains_key(&clock)
    }

    /// The caller has seen to it that none with this clock is there.
    pub fn add(&mut self, waiting: Waiting<P>) {
        self.0.insert(waiting.stamp.clock, waiting);
    }

    /// The lowest clock of an epoch, if none of an earlier epoch is held.
    pub fn first_of(&self, epoch: Epoch) -> Option<u64> {
        let (clock, waiting) = self.0.first_key_value()?;
        (waiting.stamp.epoch == epoch).then_some(*clock)
    }

    /// Since when that of an epoch waits which has waited longest, if none of an earlier epoch is held.
    pub fn oldest_of(&self, epoch: Epoch) -> Option<u64> {
        self.0
            .values()
            .take_while(|waiting| waiting.stamp.epoch == epoch)
            .map(|waiting| waiting.since_ns)
            .min()
    }

    /// Takes out the first one if its clock is at most this.
    pub fn take_up_to(&mut self, clock: u64) -> Option<Waiting<P>> {
        let first = self.0.first_entry()?;
        (*first.key() <= clock).then(|| first.remove())
    }

    /// Takes out the first one if it is of an epoch before this.
    pub fn take_before(&mut self, epoch: Epoch) -> Option<Waiting<P>> {
        let first = self.0.first_entry()?;
        (first.get().stamp.epoch < epoch).then(|| first.remove())
    }

    /// Takes out the first one.
    pub fn take(&mut self) -> Option<Waiting<P>> {
        self.0.pop_first().map(|(_, waiting)| waiting)
    }
}

/// A clock stands for the rest of its stamp.
impl<P: Hash> Hash for Waiting<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.stamp.epoch, self.stamp.clock, self.since_ns).hash(state);
        self.packet.hash(state);
    }
}
