//! Normalization, inline: packets that hosts may read in several ways are changed instead of
//! dropped, if the operator says so.

use packet::parse::protocol;
use packet::{DropReason, Packet, PacketClass};

use super::{Differing, LowTtl, Reassembler, Streams};

/// A difference between a packet's payload and what was sent before for the same offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Difference {
    /// The offset in the payload.
    in_payload: usize,
    /// The offset in what was sent.
    offset: u64,
    len: usize,
}

impl Difference {
    /// Creates the difference of n bytes at these offsets in the payload and in the stream.
    pub fn new(in_payload: usize, offset: u64, len: usize) -> Difference {
        Difference { in_payload, offset, len }
    }
}

impl Reassembler {
    /// Adds a packet to its flow's streams as [`Reassembler::take`] does, but may change it so that
    /// it passes.
    #[inline]
    pub fn normalize(&mut self, packet: &mut Packet, streams: &mut Streams) -> Option<DropReason> {
        if self.normalizes {
            self.raise_ttl(packet);
        }
        self.read(packet, streams);
        if self.drop_reason() == Some(DropReason::StreamDiffers)
            && self.normalizes
            && self.replace(packet, streams).is_some()
        {
            self.read(packet, streams);
        }
        self.skip();
        self.drop_reason()
    }

    /// Raises the TTL of a packet that may expire before it reaches its host.
    fn raise_ttl(&mut self, packet: &mut Packet) {
        let (protocol, class) = (packet.meta().protocol, packet.meta().class);
        let is_judged = protocol == protocol::TCP
            || matches!(class, PacketClass::FirstFragment | PacketClass::LaterFragment);
        if self.tcp.current().options().low_ttl == LowTtl::Raise
            && is_judged
            && packet.raise_ttl(self.ttl_min)
        {
            self.tcp.current_mut().counters.raised += 1;
        }
    }

    /// Replaces bytes that differ by those that were sent before. Returns `None` if not all of
    /// these are known.
    #[cold]
    fn replace(&mut self, packet: &mut Packet, streams: &Streams) -> Option<()> {
        let Difference { in_payload, offset, len } = self.tcp.current_mut().take_difference()?;
        if self.tcp.current().options().differing != Differing::Replace {
            return None;
        }
        let half = &streams.halves[packet.meta().transit.direction.index()];
        self.whole.clear();
        self.tcp.sent().read(half, offset, len, &mut self.whole);
        let is_known = self.whole.len() == len && packet.overwrite_tcp_payload(in_payload, &self.whole);
        self.tcp.current_mut().counters.replaced += u64::from(is_known);
        is_known.then_some(())
    }
}
