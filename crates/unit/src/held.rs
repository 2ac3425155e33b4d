//! Packets of one flow that wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
};

use proto::{Epoch, Stamp};

/// Packets of one flow that wait, in the order of their clocks; hence of their epochs, too.
#[derive(Clone, Debug)]
pub(crate) struct Held<P> {
    by_clock: BTreeMap<u64, Waiting<P>>,
    /// Epoch, since when, clock: who of an epoch has waited longest.
    by_age: BTreeSet<(Epoch, u64, u64)>,
}

/// A packet that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting<P> {
    pub stamp: Stamp,
    pub packet: P,
    pub since_ns: u64,
}

impl<P> Default for Held<P> {
    fn default() -> Held<P> {
        Held { by_clock: BTreeMap::new(), by_age: BTreeSet::new() }
    }
}

impl<P> Held<P> {
    pub fn len(&self) -> usize {
        self.by_clock.len()
    }

    /// Whether the packet with this clock is among them.
    pub fn has(&self, clock: u64) -> bool {
        self.by_clock.contains_key(&clock)
    }

    /// The caller has seen to it that none with this clock is there.
    pub fn add(&mut self, waiting: Waiting<P>) {
        self.by_age.insert(waiting.age());
        self.by_clock.insert(waiting.stamp.clock, waiting);
    }

    /// The lowest clock of an epoch, if none of an earlier epoch is held.
    pub fn first_of(&self, epoch: Epoch) -> Option<u64> {
        let (clock, waiting) = self.by_clock.first_key_value()?;
        (waiting.stamp.epoch == epoch).then_some(*clock)
    }

    /// Since when that of an epoch waits which has waited longest.
    pub fn oldest_of(&self, epoch: Epoch) -> Option<u64> {
        let &(of, since_ns, _) = self.by_age.range((epoch, 0, 0)..).next()?;
        (of == epoch).then_some(since_ns)
    }

    /// Takes out the first one if its clock is at most this.
    pub fn take_up_to(&mut self, clock: u64) -> Option<Waiting<P>> {
        self.take_if(|first| first.stamp.clock <= clock)
    }

    /// Takes out the first one if it is of an epoch before this.
    pub fn take_before(&mut self, epoch: Epoch) -> Option<Waiting<P>> {
        self.take_if(|first| first.stamp.epoch < epoch)
    }

    /// Takes out the first one.
    pub fn take(&mut self) -> Option<Waiting<P>> {
        self.take_if(|_| true)
    }

    fn take_if(&mut self, is_wanted: impl FnOnce(&Waiting<P>) -> bool) -> Option<Waiting<P>> {
        let first = self.by_clock.first_entry()?;
        if !is_wanted(first.get()) {
            return None;
        }
        let waiting = first.remove();
        self.by_age.remove(&waiting.age());
        Some(waiting)
    }
}

impl<P> Waiting<P> {
    fn age(&self) -> (Epoch, u64, u64) {
        (self.stamp.epoch, self.since_ns, self.stamp.clock)
    }
}

impl<P: Hash> Hash for Held<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.by_clock.hash(state);
    }
}

/// A clock stands for the rest of its stamp.
impl<P: Hash> Hash for Waiting<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.stamp.epoch, self.stamp.clock, self.since_ns).hash(state);
        self.packet.hash(state);
    }
}
