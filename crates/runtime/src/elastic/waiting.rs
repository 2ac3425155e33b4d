//! Packets that begin flows of an affinity group while the group moves to another unit.

use nf::AffinityGroup;
use packet::Packet;

/// Limit on the packets that wait for affinity groups; further ones are dropped (`group-moving`).
pub const GROUP_WAITING_MAX: usize = 1024;

/// Packets that wait for their affinity groups, in order of arrival.
#[derive(Default)]
pub(super) struct GroupWaiting {
    packets: Vec<(AffinityGroup, Packet)>,
    /// All packets that have waited.
    pub count: u64,
}

impl GroupWaiting {
    /// Adds a packet. Returns it if too many wait.
    pub fn add(&mut self, group: AffinityGroup, packet: Packet) -> Option<Packet> {
        if self.packets.len() >= GROUP_WAITING_MAX {
            return Some(packet);
        }
        self.count += 1;
        self.packets.push((group, packet));
        None
    }

    /// Moves the packets of a group to `to`.
    pub fn take(&mut self, group: AffinityGroup, to: &mut Vec<Packet>) {
        to.extend(self.packets.extract_if(.., |(of, _)| *of == group).map(|(_, packet)| packet));
    }

    /// Moves all packets to `to`.
    pub fn take_all(&mut self, to: &mut Vec<Packet>) {
        to.extend(self.packets.drain(..).map(|(_, packet)| packet));
    }

    /// Returns the number of packets that wait.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns true if no packet waits.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
}
