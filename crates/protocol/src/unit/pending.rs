//! Packets that wait.

use std::hash::{Hash, Hasher};

use crate::message::{Epoch, Stamp};

/// Packets of one flow that wait, in the order of their seqs; hence of their epochs, too. A list
/// of places in the unit's slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingQueue {
    first: u32,
    last: u32,
    len: u32,
}

/// Where all packets of a unit wait. Places that are free are taken again, the last one first: it
/// may still be in the cache.
#[derive(Clone, Debug)]
pub(crate) struct PacketSlab<P> {
    places: Vec<Place<P>>,
    /// The first place that is free; the others are behind it.
    free: u32,
    /// How many packets there are.
    packets: usize,
}

/// A packet that waits.
#[derive(Clone, Debug)]
pub(crate) struct PendingPacket<P> {
    pub stamp: Stamp,
    pub packet: P,
    pub since_ns: u64,
}

/// Where a packet waits.
#[derive(Clone, Debug)]
struct Place<P> {
    /// None: the place is free.
    waiting: Option<PendingPacket<P>>,
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

impl<P> Default for PacketSlab<P> {
    fn default() -> PacketSlab<P> {
        PacketSlab { places: Vec::new(), free: NONE, packets: 0 }
    }
}

impl<P> PacketSlab<P> {
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
    fn waiting(&self, at: u32) -> Option<&PendingPacket<P>> {
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
    fn take(&mut self, at: u32) -> Option<(PendingPacket<P>, u32, u32)> {
        let place = self.places.get_mut(at as usize)?;
        let waiting = place.waiting.take()?;
        let behind = std::mem::replace(&mut place.behind, self.free);
        self.free = at;
        self.packets -= 1;
        Some((waiting, place.before, behind))
    }
}

impl Default for PendingQueue {
    fn default() -> PendingQueue {
        PendingQueue { first: NONE, last: NONE, len: 0 }
    }
}

impl PendingQueue {
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the packet with this seq is among them.
    #[inline]
    pub fn has<P>(&self, seq: u64, slab: &PacketSlab<P>) -> bool {
        slab.waiting(self.last_up_to(seq, slab)).is_some_and(|waiting| waiting.stamp.seq == seq)
    }

    /// The caller has seen to it that none with this seq is there.
    pub fn add<P>(&mut self, waiting: PendingPacket<P>, slab: &mut PacketSlab<P>) {
        let before = self.last_up_to(waiting.stamp.seq, slab);
        let behind = slab.place(before).map_or(self.first, |place| place.behind);
        let next = slab.place(behind).filter(|_| self.epoch_at(behind, slab) == Some(waiting.stamp.epoch));
        let oldest_ns = next.map_or(waiting.since_ns, |next| next.oldest_ns.min(waiting.since_ns));
        let at = slab.put(Place { waiting: Some(waiting), oldest_ns, before, behind });
        self.len += 1;
        *self.behind(before, slab) = at;
        *self.before(behind, slab) = at;
    }

    /// The lowest seq of an epoch, if none of an earlier epoch is pending.
    #[inline]
    pub fn first_of<P>(&self, epoch: Epoch, slab: &PacketSlab<P>) -> Option<u64> {
        let first = &slab.waiting(self.first)?.stamp;
        (first.epoch == epoch).then_some(first.seq)
    }

    /// Since when that of an epoch waits which has waited longest, if none of an earlier epoch is
    /// pending.
    pub fn oldest_of<P>(&self, epoch: Epoch, slab: &PacketSlab<P>) -> Option<u64> {
        let first = slab.place(self.first).filter(|_| self.epoch_at(self.first, slab) == Some(epoch))?;
        Some(first.oldest_ns)
    }

    /// Takes out the first one if its seq is at most this.
    #[inline]
    pub fn take_up_to<P>(&mut self, seq: u64, slab: &mut PacketSlab<P>) -> Option<PendingPacket<P>> {
        self.take_if(slab, |first| first.stamp.seq <= seq)
    }

    /// Takes out the first one if it is of an epoch before this.
    pub fn take_before<P>(&mut self, epoch: Epoch, slab: &mut PacketSlab<P>) -> Option<PendingPacket<P>> {
        self.take_if(slab, |first| first.stamp.epoch < epoch)
    }

    /// Takes out the first one.
    pub fn take<P>(&mut self, slab: &mut PacketSlab<P>) -> Option<PendingPacket<P>> {
        self.take_at(self.first, slab)
    }

    /// All of them, in order.
    pub fn all<'a, P>(&self, slab: &'a PacketSlab<P>) -> impl Iterator<Item = &'a PendingPacket<P>> {
        self.places(slab).filter_map(|at| slab.waiting(at))
    }

    /// Their places, in order.
    fn places<P>(&self, slab: &PacketSlab<P>) -> impl Iterator<Item = u32> {
        let is_any = |&at: &u32| at != NONE;
        std::iter::successors(Some(self.first).filter(is_any), move |&at| {
            slab.place(at).map(|place| place.behind).filter(is_any)
        })
    }

    /// The place of the last packet with this seq, or an earlier one: that of the last one of
    /// all, nearly always.
    #[inline]
    fn last_up_to<P>(&self, seq: u64, slab: &PacketSlab<P>) -> u32 {
        match slab.waiting(self.last) {
            Some(last) if last.stamp.seq > seq => self.search(seq, last.stamp.seq, slab),
            _ => self.last,
        }
    }

    /// The same if it is not the last one of all, whose seq is `last`: from that end of the list
    /// which is nearer.
    #[cold]
    fn search<P>(&self, seq: u64, last: u64, slab: &PacketSlab<P>) -> u32 {
        let clock_at = |at: u32| slab.waiting(at).map(|waiting| waiting.stamp.seq);
        let is_up_to = |&at: &u32| clock_at(at).is_some_and(|at| at <= seq);
        let first = clock_at(self.first).unwrap_or(0);
        if seq < first || seq - first < last - seq {
            return self.places(slab).take_while(is_up_to).last().unwrap_or(NONE);
        }
        let before = |&at: &u32| slab.place(at).map(|place| place.before);
        std::iter::successors(Some(self.last), before).find(is_up_to).unwrap_or(NONE)
    }

    #[inline]
    fn epoch_at<P>(&self, at: u32, slab: &PacketSlab<P>) -> Option<Epoch> {
        slab.waiting(at).map(|waiting| waiting.stamp.epoch)
    }

    #[inline]
    fn take_if<P>(
        &mut self,
        slab: &mut PacketSlab<P>,
        is_wanted: impl FnOnce(&PendingPacket<P>) -> bool,
    ) -> Option<PendingPacket<P>> {
        slab.waiting(self.first).filter(|first| is_wanted(first))?;
        self.take_at(self.first, slab)
    }

    #[inline]
    fn take_at<P>(&mut self, at: u32, slab: &mut PacketSlab<P>) -> Option<PendingPacket<P>> {
        let (waiting, before, behind) = slab.take(at)?;
        self.len -= 1;
        *self.behind(before, slab) = behind;
        *self.before(behind, slab) = before;
        Some(waiting)
    }

    /// What is said to be behind this place; of none, which the first one is.
    #[inline]
    fn behind<'a, P>(&'a mut self, at: u32, slab: &'a mut PacketSlab<P>) -> &'a mut u32 {
        slab.places.get_mut(at as usize).map_or(&mut self.first, |place| &mut place.behind)
    }

    /// What is said to be before this place; of none, which the last one is.
    #[inline]
    fn before<'a, P>(&'a mut self, at: u32, slab: &'a mut PacketSlab<P>) -> &'a mut u32 {
        slab.places.get_mut(at as usize).map_or(&mut self.last, |place| &mut place.before)
    }
}

/// A seq stands for the rest of its stamp.
impl<P: Hash> Hash for PendingPacket<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.stamp.epoch, self.stamp.seq, self.since_ns).hash(state);
        self.packet.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use crate::message::{FlowId, Handover};
    use proptest::prelude::*;

    use super::*;

    fn waiting(seq: u64, since_ns: u64) -> PendingPacket<()> {
        let flow = FlowId { index: 0, generation: 0 };
        let stamp = Stamp { flow, seq, epoch: epoch(seq), handover: Handover::None, targets: None };
        PendingPacket { stamp, packet: (), since_ns }
    }

    /// Epochs of ten packets.
    fn epoch(seq: u64) -> Epoch {
        (seq / 10) as Epoch + 1
    }

    proptest! {
        #[test]
        fn it_is_a_list_in_the_order_of_clocks(
            steps in prop::collection::vec(prop_oneof![
                3 => (1u64..40).prop_map(Some),
                1 => Just(None),
            ], 1..100),
        ) {
            let (mut pending, mut slab, mut model) = (PendingQueue::default(), PacketSlab::default(), Vec::new());
            for (now_ns, step) in (0..).zip(steps) {
                match step {
                    Some(seq) => {
                        let is_there = model.iter().any(|&(of, _)| of == seq);
                        prop_assert_eq!(pending.has(seq, &slab), is_there);
                        if !is_there {
                            pending.add(waiting(seq, now_ns), &mut slab);
                            model.push((seq, now_ns));
                            model.sort();
                        }
                    }
                    None => {
                        let first = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(pending.take(&mut slab).map(|first| (first.stamp.seq, first.since_ns)), first);
                    }
                }
                prop_assert_eq!((pending.len(), slab.packets()), (model.len(), model.len()));
                let Some(&(first, _)) = model.first() else { continue };
                let of = epoch(first);
                let oldest = model.iter().filter(|&&(seq, _)| epoch(seq) == of).map(|&(_, ns)| ns).min();
                prop_assert_eq!((pending.first_of(of, &slab), pending.oldest_of(of, &slab)), (Some(first), oldest));
                prop_assert_eq!((pending.first_of(of + 1, &slab), pending.oldest_of(of + 1, &slab)), (None, None));
            }
        }
    }
}
