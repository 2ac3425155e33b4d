//! A lossy link: what arrives next, and what never does.

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

use protocol::unit::DropCause;

use super::world::{Item, World};

/// The faults of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkFaults {
    /// Keep the order of the dispatcher's messages to a unit; and of a unit's to another.
    pub dispatcher_fifo: bool,
    pub peers_fifo: bool,
    /// Per 1,000 packets of the dispatcher: lost.
    pub loss: u64,
    /// Per 1,000 messages of units: lost.
    pub mute: u64,
    /// Per 1,000: arrives twice.
    pub twice: u64,
    /// Per 1,000: the dispatcher's parcels stay in the queue of their unit for longer.
    pub queue: u64,
}

/// A link with a seed.
pub struct LossyLink {
    pub faults: LinkFaults,
    pub random: TestRng,
}

impl LossyLink {
    pub fn new(faults: LinkFaults, seed: &[u8; 32]) -> LossyLink {
        LossyLink { faults, random: TestRng::from_seed(RngAlgorithm::ChaCha, seed) }
    }

    /// Returns a number below the limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit.max(1)
    }

    /// Returns true this often per 1,000 times.
    pub fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// Lets a parcel arrive, or loses it, or does nothing.
    pub fn arrive(&mut self, world: &mut World) {
        if world.wire.is_empty() {
            return;
        }
        let mut at = self.below(world.wire.len() as u64) as usize;
        let is_between = world.wire[at].from.is_some();
        let is_fifo = if is_between { self.faults.peers_fifo } else { self.faults.dispatcher_fifo };
        if !is_between && self.happens(self.faults.queue) {
            return;
        }
        if is_fifo {
            at = world.first_of_path(at);
        }
        let is_packet = matches!(world.wire[at].item, Item::Packet(..));
        let loss = match (is_between, is_packet) {
            (true, _) => self.faults.mute,
            (false, true) => self.faults.loss,
            (false, false) => 0,
        };
        if self.happens(loss) {
            let parcel = world.wire.remove(at);
            world.note_lost(&parcel);
            // A forwarded packet would be dropped there: it was given up.
            if let Item::Packet(stamp, seq) = parcel.item
                && is_between
            {
                world.dropped.push((DropCause::Stale, stamp.flow, seq));
            }
            return;
        }
        let comes_twice = self.happens(self.faults.twice);
        world.deliver(at, comes_twice);
    }
}
