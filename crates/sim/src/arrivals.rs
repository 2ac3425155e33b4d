//! Arrivals, read a few packets ahead so that the dispatcher's flows are prefetched.

use packet::{FlowHasher, FlowKey};
use protocol::dispatcher::Dispatcher;

use crate::arriving::Arriving;
use crate::workload::Packets;

/// Number of packets known ahead.
const AHEAD: usize = 16;

/// A packet that is known ahead.
#[derive(Clone, Copy, Debug)]
pub struct Coming {
    /// The packet.
    pub arriving: Arriving,
    /// Its flow's key.
    pub key: FlowKey,
    /// The key's hash.
    pub hash: u64,
}

/// The workload's packets, in order of arrival.
#[derive(Clone, Debug)]
pub struct Arrivals {
    packets: Packets,
    hasher: FlowHasher,
    /// A ring; `None` after the last packet. The slot before `next` holds the packet returned last.
    ahead: [Option<Coming>; AHEAD],
    next: usize,
}

impl Arrivals {
    /// Creates the arrivals of these packets.
    pub fn new(packets: Packets, hasher: FlowHasher) -> Arrivals {
        let mut arrivals = Arrivals { packets, hasher, ahead: [None; AHEAD], next: 0 };
        for place in 0..AHEAD - 1 {
            arrivals.ahead[place] = arrivals.draw();
        }
        arrivals
    }

    /// Returns the time of the next arrival; `u64::MAX` if there is none.
    #[inline]
    pub fn next_ns(&self) -> u64 {
        self.ahead[self.next].as_ref().map_or(u64::MAX, |coming| coming.arriving.time_ns)
    }

    /// Takes the next arrival, and prefetches for later ones at this dispatcher.
    #[inline]
    pub fn next(&mut self, dispatcher: &Dispatcher) -> Option<&Coming> {
        let (this, last) = (self.next, (self.next + AHEAD - 1) % AHEAD);
        self.ahead[last] = self.draw();
        self.next = (this + 1) % AHEAD;
        if let Some(last) = &self.ahead[last] {
            dispatcher.prefetch(last.hash);
        }
        if let Some(middle) = &self.ahead[(this + AHEAD / 2) % AHEAD] {
            dispatcher.guess(middle.hash);
        }
        self.ahead[this].as_ref()
    }

    #[inline]
    fn draw(&mut self) -> Option<Coming> {
        let arriving = self.packets.next()?;
        let key = key(arriving.flow);
        Some(Coming { arriving, key, hash: self.hasher.hash(&key) })
    }
}

/// Returns the key of a flow with this number: a client of its own, and a service that all use.
#[inline]
fn key(flow: u32) -> FlowKey {
    const SERVICE: ([u8; 4], [u8; 2]) = ([198, 18, 0, 1], 443u16.to_be_bytes());
    const TCP: u8 = 6;
    FlowKey::of_ipv4((flow.to_be_bytes(), 40_000u16.to_be_bytes()), SERVICE, TCP, 0).0
}
