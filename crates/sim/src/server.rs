//! A unit and what waits for it.

use std::collections::VecDeque;

use proto::UnitId;
use unit::Unit;

use crate::engine::{Counting, Packet};

/// A unit with its queue: packets, and what must stay behind them, in the order in which they came. The unit does one
/// thing at a time; messages that come meanwhile are next (S18).
#[derive(Clone, Debug)]
pub struct Server {
    /// The unit.
    pub unit: Unit<Counting>,
    /// Whether it is ready for packets.
    pub is_ready: bool,
    /// When the queue is looked at next; `u64::MAX`: when something comes.
    pub wake_ns: u64,
    /// When the unit's timer is looked at next; `u64::MAX`: it needs none.
    pub timer_ns: u64,
    /// What waits, in the order in which it came, and since when.
    queue: VecDeque<(u32, u64)>,
    /// Messages that wait for the unit to be done with a packet.
    inbox: VecDeque<u32>,
}

impl Server {
    /// One that is off.
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

    /// From when on the unit can do something.
    #[inline]
    pub fn free_ns(&self) -> u64 {
        self.unit.engine().free_ns()
    }

    /// Adds a parcel to the queue.
    #[inline]
    pub fn queue(&mut self, parcel: u32, now_ns: u64) {
        self.queue.push_back((parcel, now_ns));
    }

    /// Adds a message that goes before the queue.
    pub fn deliver(&mut self, parcel: u32) {
        self.inbox.push_back(parcel);
    }

    /// What the unit does next, and since when that has been in the queue; `u64::MAX`: it has not, or not any more.
    #[inline]
    pub fn next(&mut self) -> Option<(u32, u64)> {
        self.inbox.pop_front().map(|parcel| (parcel, u64::MAX)).or_else(|| self.queue.pop_front())
    }

    /// Whether a message is next.
    #[inline]
    pub fn has_message(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Whether something waits.
    #[inline]
    pub fn has_next(&self) -> bool {
        !(self.inbox.is_empty() && self.queue.is_empty())
    }

    /// Parcels in the queue.
    #[inline]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }
}

/// What is on its way to a unit, or waits there.
#[derive(Clone, Debug)]
pub enum Parcel {
    /// A packet.
    Packet {
        /// What the router wrote on it.
        stamp: proto::Stamp,
        /// The packet.
        packet: Packet,
        /// The state that it works on has been read from the store for it.
        has_read: bool,
    },
    /// A message.
    Message {
        /// From a unit; none: the router.
        from: Option<UnitId>,
        /// The message.
        message: proto::Message,
    },
}

/// Things under way, by number.
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
    /// Adds one.
    #[inline]
    pub fn add(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.things[number as usize] = Some(thing);
                number
            }
            None => {
                self.things.push(Some(thing));
                // Each takes over a hundred bytes: memory ends before numbers do.
                (self.things.len() - 1) as u32
            }
        }
    }

    /// The one with this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        self.things.get(number as usize)?.as_ref()
    }

    /// The one with this number.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.things.get_mut(number as usize)?.as_mut()
    }

    /// Takes the one with this number out.
    #[inline]
    pub fn take(&mut self, number: u32) -> Option<T> {
        let thing = self.things.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(thing)
    }
}
