//! Timeouts of flows in a graph where functions set them, but not on every path.

use nf::record::RecordHeader;
use nf::stage::Stage;
use packet::Packet;

use crate::Timeouts;
use crate::topology::NfSet;

/// The functions that set flows' timeouts, and the timeouts of flows that visit none of them.
pub(super) struct Keepers {
    nfs: NfSet,
    timeouts: Timeouts,
}

impl Keepers {
    /// Creates the keepers among these functions.
    pub fn new(stages: &[Box<dyn Stage>], timeouts: Timeouts) -> Keepers {
        let mut nfs = NfSet::default();
        let keeps = stages.iter().enumerate().filter(|(_, stage)| stage.descriptor().keeps_flows);
        keeps.for_each(|(number, _)| nfs.add(number));
        Keepers { nfs, timeouts }
    }

    /// Returns true if there is one.
    pub fn is_any(&self) -> bool {
        self.nfs != NfSet::default()
    }

    /// Returns true if there is one, but none on this path.
    pub fn are_elsewhere(&self, path: NfSet) -> bool {
        self.is_any() && path.0 & self.nfs.0 == 0
    }

    /// Sets the timeout of a packet's flow, which no function sets.
    pub fn keep(&self, packet: &mut Packet, header: &RecordHeader) {
        let meta = packet.meta_mut();
        if meta.protocol == header.key.protocol {
            meta.transit.keep_ms = self.timeouts.of(meta.protocol, header.connection);
        }
    }
}
