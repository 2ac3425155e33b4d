//! A unit and its queue.

use std::collections::VecDeque;

use protocol::message::{FromUnit, UnitId, UnitMessage};
use protocol::unit::Unit;

use crate::engine::{Counting, Packet};

/// A unit with its queue: packets, and messages ordered after them. The unit does one thing at a
/// time; other messages overtake the queue (S18).
#[derive(Clone, Debug)]
pub struct Server {
    /// The unit.
    pub unit: Unit<Counting>,
    /// The unit accepts packets.
    pub is_ready: bool,
    /// Time of the next look at the queue; `u64::MAX`: on the next arrival.
    pub wake_ns: u64,
    /// Time of the unit's next timer; `u64::MAX` if it has none.
    pub timer_ns: u64,
    /// Queued parcels, in order of arrival.
    queue: VecDeque<Waiting>,
    /// Messages that wait for the unit to be done with a packet.
    inbox: VecDeque<Waiting>,
}

/// A parcel that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    parcel: u32,
    /// The index of its flow.
    index: u32,
    /// Time when it was queued; `u64::MAX` if it is not in the queue.
    since_ns: u64,
}

impl Server {
    /// Creates a unit that is off.
    pub fn new(unit: Unit<Counting>) -> Server {
        Server {
            unit,
            is_ready: false,
            wake_ns: u64::MAX,
            timer_ns: u64::MAX,
            queue: VecDeque::new(),
            inbox: VecDeque::new(),
        }
    }

    /// Returns the time when the unit can do something.
    #[inline]
    pub fn free_ns(&self) -> u64 {
        self.unit.engine().free_ns()
    }

    /// Adds a parcel to the queue, of the flow with this index.
    #[inline]
    pub fn queue(&mut self, parcel: u32, index: u32, now_ns: u64) {
        self.queue.push_back(Waiting { parcel, index, since_ns: now_ns });
    }

    /// Adds a parcel that overtakes the queue, of the flow with this index.
    #[inline]
    pub fn deliver(&mut self, parcel: u32, index: u32) {
        self.inbox.push_back(Waiting { parcel, index, since_ns: u64::MAX });
    }

    /// Removes the next parcel, and returns it with the time when it was queued; `u64::MAX` if it
    /// was not in the queue.
    #[inline]
    pub fn next(&mut self) -> Option<(u32, u64)> {
        let next = self.inbox.pop_front().or_else(|| self.queue.pop_front())?;
        Some((next.parcel, next.since_ns))
    }

    /// Returns a waiting parcel by its position.
    #[inline]
    fn waiting(&self, place: usize) -> Option<&Waiting> {
        let in_queue = place.checked_sub(self.inbox.len());
        in_queue.map_or_else(|| self.inbox.get(place), |place| self.queue.get(place))
    }

    /// Prefetches the next queued parcels and the unit's entries of their flows. Each pointer is
    /// followed one step per parcel processed, when its target is in the cache.
    #[inline]
    pub fn prefetch(&self, parcels: &Slab<Parcel>) {
        if let Some(third) = self.waiting(2) {
            parcels.prefetch(third.parcel);
            self.unit.prefetch(third.index);
        }
        if let Some(second) = self.waiting(1) {
            self.unit.prefetch_entry(second.index);
        }
        if let Some(first) = self.waiting(0) {
            self.unit.prefetch_flow(first.index);
        }
    }

    /// Returns true if a message is next.
    #[inline]
    pub fn has_message(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Returns true if a parcel waits.
    #[inline]
    pub fn has_next(&self) -> bool {
        !(self.inbox.is_empty() && self.queue.is_empty())
    }

    /// Returns the number of queued parcels.
    #[inline]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }
}

/// A parcel on its way to a unit, or waiting there. It has cache lines of its own, because there
/// are many.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub enum Parcel {
    /// A packet.
    Packet {
        /// The dispatcher's stamp.
        stamp: protocol::message::Stamp,
        /// The packet.
        packet: Packet,
        /// Its state has been read from the store.
        has_read: bool,
    },
    /// A message to a unit.
    ToUnit(UnitMessage),
    /// A message from a unit to the dispatcher.
    ToDispatcher(UnitId, FromUnit),
}

impl Parcel {
    /// Returns the index of its flow, if it has one.
    #[inline]
    pub fn flow_index(&self) -> Option<u32> {
        match self {
            Parcel::Packet { stamp, .. } => Some(stamp.flow.index),
            Parcel::ToUnit(message) => message.flow().map(|flow| flow.index),
            Parcel::ToDispatcher(..) => None,
        }
    }
}

/// Items in flight, by number.
#[derive(Clone, Debug)]
pub struct Slab<T> {
    things: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { things: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Adds an item, and returns its number.
    #[inline]
    pub fn add(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.things[number as usize] = Some(thing);
                number
            }
            None => {
                self.things.push(Some(thing));
                // Each item takes over a hundred bytes: memory ends before numbers do.
                (self.things.len() - 1) as u32
            }
        }
    }

    /// Prefetches an item.
    #[inline]
    pub fn prefetch(&self, number: u32) {
        packet::memory::prefetch_all(self.things.as_ptr().wrapping_add(number as usize));
    }

    /// Returns an item.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        self.things.get(number as usize)?.as_ref()
    }

    /// Returns an item, to be changed.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.things.get_mut(number as usize)?.as_mut()
    }

    /// Takes an item out.
    #[inline]
    pub fn take(&mut self, number: u32) -> Option<T> {
        let thing = self.things.get_mut(number as usize).filter(|thing| thing.is_some())?;
        self.free.push(number);
        thing.take()
    }
}
