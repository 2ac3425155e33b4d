//! Packets that wait.

use std::hash::{Hash, Hasher};

use crate::message::{Epoch, Stamp};

/// Packets of one flow that wait, in the order of their clocks; hence of their epochs, too. A list
/// of places in the unit's hall.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    first: u32,
    last: u32,
    len: u32,
}

/// Where all packets of a unit wait. Places that are free are taken again, the last one first: it
/// may still be in the cache.
#[derive(Clone, Debug)]
pub(crate) struct Hall<P> {
    places: Vec<Place<P>>,
    /// The first place that is free; the others are behind it.
    free: u32,
    /// How many packets there are.
    packets: usize,
}

/// A packet that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting<P> {
    pub stamp: Stamp,
    pub packet: P,
    pub since_ns: u64,
}

/// Where a packet waits.
#[derive(Clone, Debug)]
struct Place<P> {
    /// None: the place is free.
    waiting: Option<Waiting<P>>,
    /// Since when that waits which has waited longest, of this one and those of its epoch behind
    /// it. What is added has waited least: it changes nothing for those before it, and they go
    /// first.
    oldest_ns: u64,
    /// Places of the same flow.
    before: u32,
    behind: u32,
}

/// No place. There are fewer: each takes over a hundred bytes.
const NONE: u32 = u32::MAX;

impl<P> Default for Hall<P> {
    fn default() -> Hall<P> {
        Hall { places: Vec::new(), free: NONE, packets: 0 }
    }
}

impl<P> Hall<P> {
    /// How many packets wait.
    #[inline]
    pub fn packets(&self) -> usize {
        self.packets
    }

    #[inline]
    fn place(&self, at: u32) -> Option<&Place<P>> {
        self.places.get(at as usize)
    }

    #[inline]
    fn waiting(&self, at: u32) -> Option<&Waiting<P>> {
        self.place(at)?.waiting.as_ref()
    }

    #[inline]
    fn put(&mut self, place: Place<P>) -> u32 {
        self.packets += 1;
        match self.places.get_mut(self.free as usize) {
            Some(free) => {
                let at = std::mem::replace(&mut self.free, free.behind);
                *free = place;
                at
            }
            None => {
                self.places.push(place);
                (self.places.len() - 1) as u32
            }
        }
    }

    /// Takes the packet out of a place, which is free from now on; and says which places were
    /// before and behind it.
    #[inline]
    fn take(&mut self, at: u32) -> Option<(Waiting<P>, u32, u32)> {
        let place = self.places.get_mut(at as usize)?;
        let waiting = place.waiting.take()?;
        let behind = std::mem::replace(&mut place.behind, self.free);
        self.free = at;
        self.packets -= 1;
        Some((waiting, place.before, behind))
    }
}

impl Default for Held {
    fn default() -> Held {
        Held { first: NONE, last: NONE, len: 0 }
    }
}

impl Held {
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the packet with this clock is among them.
    #[inline]
    pub fn has<P>(&self, clock: u64, hall: &Hall<P>) -> bool {
        hall.waiting(self.last_up_to(clock, hall)).is_some_and(|waiting| waiting.stamp.clock == clock)
    }

    /// The caller has seen to it that none with this clock is there.
    pub fn add<P>(&mut self, waiting: Waiting<P>, hall: &mut Hall<P>) {
        let before = self.last_up_to(waiting.stamp.clock, hall);
        let behind = hall.place(before).map_or(self.first, |place| place.behind);
        let next = hall.place(behind).filter(|_| self.epoch_at(behind, hall) == Some(waiting.stamp.epoch));
        let oldest_ns = next.map_or(waiting.since_ns, |next| next.oldest_ns.min(waiting.since_ns));
        let at = hall.put(Place { waiting: Some(waiting), oldest_ns, before, behind });
        self.len += 1;
        *self.behind(before, hall) = at;
        *self.before(behind, hall) = at;
    }

    /// The lowest clock of an epoch, if none of an earlier epoch is held.
    #[inline]
    pub fn first_of<P>(&self, epoch: Epoch, hall: &Hall<P>) -> Option<u64> {
        let first = &hall.waiting(self.first)?.stamp;
        (first.epoch == epoch).then_some(first.clock)
    }

    /// Since when that of an epoch waits which has waited longest, if none of an earlier epoch is
    /// held.
    pub fn oldest_of<P>(&self, epoch: Epoch, hall: &Hall<P>) -> Option<u64> {
        let first = hall.place(self.first).filter(|_| self.epoch_at(self.first, hall) == Some(epoch))?;
        Some(first.oldest_ns)
    }

    /// Takes out the first one if its clock is at most this.
    #[inline]
    pub fn take_up_to<P>(&mut self, clock: u64, hall: &mut Hall<P>) -> Option<Waiting<P>> {
        self.take_if(hall, |first| first.stamp.clock <= clock)
    }

    /// Takes out the first one if it is of an epoch before this.
    pub fn take_before<P>(&mut self, epoch: Epoch, hall: &mut Hall<P>) -> Option<Waiting<P>> {
        self.take_if(hall, |first| first.stamp.epoch < epoch)
    }

    /// Takes out the first one.
    pub fn take<P>(&mut self, hall: &mut Hall<P>) -> Option<Waiting<P>> {
        self.take_at(self.first, hall)
    }

    /// All of them, in order.
    pub fn all<'a, P>(&self, hall: &'a Hall<P>) -> impl Iterator<Item = &'a Waiting<P>> {
        self.places(hall).filter_map(|at| hall.waiting(at))
    }

    /// Their places, in order.
    fn places<P>(&self, hall: &Hall<P>) -> impl Iterator<Item = u32> {
        let is_any = |&at: &u32| at != NONE;
        std::iter::successors(Some(self.first).filter(is_any), move |&at| {
            hall.place(at).map(|place| place.behind).filter(is_any)
        })
    }

    /// The place of the last packet with this clock, or an earlier one: that of the last one of
    /// all, nearly always.
    #[inline]
    fn last_up_to<P>(&self, clock: u64, hall: &Hall<P>) -> u32 {
        match hall.waiting(self.last) {
            Some(last) if last.stamp.clock > clock => self.search(clock, last.stamp.clock, hall),
            _ => self.last,
        }
    }

    /// The same if it is not the last one of all, whose clock is `last`: from that end of the list
    /// which is nearer.
    #[cold]
    fn search<P>(&self, clock: u64, last: u64, hall: &Hall<P>) -> u32 {
        let clock_at = |at: u32| hall.waiting(at).map(|waiting| waiting.stamp.clock);
        let is_up_to = |&at: &u32| clock_at(at).is_some_and(|at| at <= clock);
        let first = clock_at(self.first).unwrap_or(0);
        if clock < first || clock - first < last - clock {
            return self.places(hall).take_while(is_up_to).last().unwrap_or(NONE);
        }
        let before = |&at: &u32| hall.place(at).map(|place| place.before);
        std::iter::successors(Some(self.last), before).find(is_up_to).unwrap_or(NONE)
    }

    #[inline]
    fn epoch_at<P>(&self, at: u32, hall: &Hall<P>) -> Option<Epoch> {
        hall.waiting(at).map(|waiting| waiting.stamp.epoch)
    }

    #[inline]
    fn take_if<P>(
        &mut self,
        hall: &mut Hall<P>,
        is_wanted: impl FnOnce(&Waiting<P>) -> bool,
    ) -> Option<Waiting<P>> {
        hall.waiting(self.first).filter(|first| is_wanted(first))?;
        self.take_at(self.first, hall)
    }

    #[inline]
    fn take_at<P>(&mut self, at: u32, hall: &mut Hall<P>) -> Option<Waiting<P>> {
        let (waiting, before, behind) = hall.take(at)?;
        self.len -= 1;
        *self.behind(before, hall) = behind;
        *self.before(behind, hall) = before;
        Some(waiting)
    }

    /// What is said to be behind this place; of none, which the first one is.
    #[inline]
    fn behind<'a, P>(&'a mut self, at: u32, hall: &'a mut Hall<P>) -> &'a mut u32 {
        hall.places.get_mut(at as usize).map_or(&mut self.first, |place| &mut place.behind)
    }

    /// What is said to be before this place; of none, which the last one is.
    #[inline]
    fn before<'a, P>(&'a mut self, at: u32, hall: &'a mut Hall<P>) -> &'a mut u32 {
        hall.places.get_mut(at as usize).map_or(&mut self.last, |place| &mut place.before)
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
    use crate::message::{FlowId, Handover};
    use proptest::prelude::*;

    use super::*;

    fn waiting(clock: u64, since_ns: u64) -> Waiting<()> {
        let flow = FlowId { slot: 0, generation: 0 };
        let stamp = Stamp { flow, clock, epoch: epoch(clock), handover: Handover::None, targets: None };
        Waiting { stamp, packet: (), since_ns }
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
                        prop_assert_eq!(held.has(clock, &hall), is_there);
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
                prop_assert_eq!((held.first_of(of, &hall), held.oldest_of(of, &hall)), (Some(first), oldest));
                prop_assert_eq!((held.first_of(of + 1, &hall), held.oldest_of(of + 1, &hall)), (None, None));
            }
        }
    }
}
