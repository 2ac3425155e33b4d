//! Packets that wait.

use std::{
    collections::VecDeque,
    hash::{Hash, Hasher},
};

use proto::{Epoch, History, Stamp};

/// Packets of one flow that wait, in the order of their clocks; hence of their epochs, too.
#[derive(Clone, Debug)]
pub(crate) struct Held<P>(VecDeque<Place<P>>);

/// Where all packets of a unit wait.
#[derive(Clone, Debug)]
pub(crate) struct Hall<P> {
    /// How many there are.
    packets: usize,
    /// Memory of flows of which nothing waits any more, for those that are next: flows wait now and then, and not for long.
    spare: Vec<VecDeque<Place<P>>>,
}

/// Flows of which the memory is kept: few wait at a time.
const SPARE_MAX: usize = 8;

/// A packet that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting<P> {
    pub stamp: Stamp,
    pub packet: P,
    pub since_ns: u64,
    /// If other units have packets of its epoch, too.
    pub history: Option<Box<History>>,
}

/// Where a packet waits.
#[derive(Clone, Debug)]
struct Place<P> {
    waiting: Waiting<P>,
    /// Since when that waits which has waited longest, of this one and those of its epoch behind it. What is added has waited
    /// least: it changes nothing for those before it, and they go first.
    oldest_ns: u64,
}

impl<P> Default for Hall<P> {
    fn default() -> Hall<P> {
        Hall { packets: 0, spare: Vec::new() }
    }
}

impl<P> Hall<P> {
    /// How many packets wait.
    #[inline]
    pub fn packets(&self) -> usize {
        self.packets
    }

    fn take_back(&mut self, mut memory: VecDeque<Place<P>>) {
        if self.spare.len() < SPARE_MAX {
            memory.clear(); // It begins where it did, which may still be in the cache.
            self.spare.push(memory);
        }
    }
}

impl<P> Default for Held<P> {
    fn default() -> Held<P> {
        Held(VecDeque::new())
    }
}

impl<P> Held<P> {
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the packet with this clock is among them.
    pub fn has(&self, clock: u64) -> bool {
        self.0.get(self.place_of(clock)).is_some_and(|place| place.waiting.stamp.clock == clock)
    }

    /// The caller has seen to it that none with this clock is there.
    pub fn add(&mut self, waiting: Waiting<P>, hall: &mut Hall<P>) {
        hall.packets += 1;
        if self.0.capacity() == 0
            && let Some(memory) = hall.spare.pop()
        {
            self.0 = memory;
        }
        let at = self.place_of(waiting.stamp.clock);
        if at == self.0.len() {
            let oldest_ns = waiting.since_ns;
            return self.0.push_back(Place { waiting, oldest_ns });
        }
        let next = self.0.get(at).filter(|next| next.waiting.stamp.epoch == waiting.stamp.epoch);
        let oldest_ns = next.map_or(waiting.since_ns, |next| next.oldest_ns.min(waiting.since_ns));
        self.0.insert(at, Place { waiting, oldest_ns });
    }

    /// The lowest clock of an epoch, if none of an earlier epoch is held.
    pub fn first_of(&self, epoch: Epoch) -> Option<u64> {
        let first = &self.0.front()?.waiting.stamp;
        (first.epoch == epoch).then_some(first.clock)
    }

    /// The first one of an epoch in which other units have packets, too, if none of an earlier epoch is held.
    pub fn first_history(&self, epoch: Epoch) -> Option<(Stamp, &History)> {
        let first = &self.0.front()?.waiting;
        let history = first.history.as_deref()?;
        (first.stamp.epoch == epoch).then_some((first.stamp, history))
    }

    /// Since when that of an epoch waits which has waited longest, if none of an earlier epoch is held.
    pub fn oldest_of(&self, epoch: Epoch) -> Option<u64> {
        let first = self.0.front().filter(|first| first.waiting.stamp.epoch == epoch)?;
        Some(first.oldest_ns)
    }

    /// Takes out the first one if its clock is at most this.
    pub fn take_up_to(&mut self, clock: u64, hall: &mut Hall<P>) -> Option<Waiting<P>> {
        self.take_if(hall, |first| first.stamp.clock <= clock)
    }

    /// Takes out the first one if it is of this epoch, and nothing is known of packets that other units have.
    pub fn take_plain(&mut self, epoch: Epoch, hall: &mut Hall<P>) -> Option<Waiting<P>> {
        self.take_if(hall, |first| first.stamp.epoch == epoch && first.history.is_none())
    }

    /// Takes out the first one if it is of an epoch before this.
    pub fn take_before(&mut self, epoch: Epoch, hall: &mut Hall<P>) -> Option<Waiting<P>> {
        self.take_if(hall, |first| first.stamp.epoch < epoch)
    }

    /// Whether any is of this epoch, whatever else is held.
    pub fn has_of(&self, epoch: Epoch) -> bool {
        let at = self.0.partition_point(|place| place.waiting.stamp.epoch < epoch);
        self.0.get(at).is_some_and(|place| place.waiting.stamp.epoch == epoch)
    }

    /// Takes out the first one of an epoch, whatever else is held.
    pub fn take_of(&mut self, epoch: Epoch, hall: &mut Hall<P>) -> Option<Waiting<P>> {
        let at = self.0.partition_point(|place| place.waiting.stamp.epoch < epoch);
        let is_wanted = self.0.get(at).is_some_and(|place| place.waiting.stamp.epoch == epoch);
        let taken = if is_wanted { self.0.remove(at) } else { None };
        self.taken(taken?, hall)
    }

    /// Takes out the first one.
    pub fn take(&mut self, hall: &mut Hall<P>) -> Option<Waiting<P>> {
        self.take_if(hall, |_| true)
    }

    /// Where the packet with this clock is, or would be: behind all others, nearly always.
    fn place_of(&self, clock: u64) -> usize {
        match self.0.back() {
            Some(last) if last.waiting.stamp.clock >= clock => {
                self.0.partition_point(|place| place.waiting.stamp.clock < clock)
            }
            _ => self.0.len(),
        }
    }

    #[inline]
    fn take_if(
        &mut self,
        hall: &mut Hall<P>,
        is_wanted: impl FnOnce(&Waiting<P>) -> bool,
    ) -> Option<Waiting<P>> {
        let first = self.0.pop_front_if(|first| is_wanted(&first.waiting))?;
        self.taken(first, hall)
    }

    /// Keeps no memory when nothing waits.
    #[inline]
    fn taken(&mut self, place: Place<P>, hall: &mut Hall<P>) -> Option<Waiting<P>> {
        hall.packets -= 1;
        if self.0.is_empty() {
            hall.take_back(std::mem::take(&mut self.0));
        }
        Some(place.waiting)
    }
}

impl<P: Hash> Hash for Held<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.len().hash(state);
        self.0.iter().for_each(|place| place.waiting.hash(state));
    }
}

/// A clock stands for the rest of its stamp.
impl<P: Hash> Hash for Waiting<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.stamp.epoch, self.stamp.clock, self.since_ns).hash(state);
        self.packet.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proto::{FlowId, Handover};

    use super::*;

    fn waiting(clock: u64, since_ns: u64) -> Waiting<()> {
        let flow = FlowId { slot: 0, generation: 0 };
        let stamp = Stamp { flow, clock, epoch: epoch(clock), handover: Handover::None, targets: None };
        Waiting { stamp, packet: (), since_ns, history: None }
    }

    /// Epochs of ten packets.
    fn epoch(clock: u64) -> Epoch {
        (clock / 10) as Epoch + 1
    }

    proptest! {
        #[test]
        fn it_is_a_list_in_the_order_of_clocks(
            steps in prop::collection::vec(prop_oneof![
                3 => (1u64..40).prop_map(Some),
                1 => Just(None),
            ], 1..100),
        ) {
            let (mut held, mut hall, mut model) = (Held::default(), Hall::default(), Vec::new());
            for (now_ns, step) in (0..).zip(steps) {
                match step {
                    Some(clock) => {
                        let is_there = model.iter().any(|&(of, _)| of == clock);
                        prop_assert_eq!(held.has(clock), is_there);
                        if !is_there {
                            held.add(waiting(clock, now_ns), &mut hall);
                            model.push((clock, now_ns));
                            model.sort();
                        }
                    }
                    None => {
                        let first = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(held.take(&mut hall).map(|first| (first.stamp.clock, first.since_ns)), first);
                    }
                }
                prop_assert_eq!((held.len(), hall.packets()), (model.len(), model.len()));
                let Some(&(first, _)) = model.first() else { continue };
                let of = epoch(first);
                let oldest = model.iter().filter(|&&(clock, _)| epoch(clock) == of).map(|&(_, ns)| ns).min();
                prop_assert_eq!((held.first_of(of), held.oldest_of(of)), (Some(first), oldest));
                prop_assert_eq!((held.first_of(of + 1), held.oldest_of(of + 1)), (None, None));
            }
        }
    }
}
