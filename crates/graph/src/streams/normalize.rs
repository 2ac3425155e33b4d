//! In line: packets that hosts may read in several ways are changed, if the operator says so, and
//! not dropped.

use packet::parse::protocol;
use packet::{DropReason, Packet, PacketClass};

use super::{Differing, LowTtl, Reassembler, Segment, Streams};

/// A difference between a packet's payload and what was sent before for the same offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Difference {
    /// The offset in the payload.
    in_payload: usize,
    /// The offset in what was sent.
    offset: u64,
    len: usize,
}

impl Reassembler {
    /// The same as [`Reassembler::take`]; the packet may be changed, so that it passes.
    #[inline]
    pub fn normalize(&mut self, packet: &mut Packet, streams: &mut Streams) -> Option<DropReason> {
        if self.normalizes {
            self.raise_ttl(packet);
        }
        self.read(packet, streams);
        if self.fate == Some(DropReason::StreamDiffers)
            && self.normalizes
            && self.replace(packet, streams).is_some()
        {
            self.read(packet, streams);
        }
        self.skip();
        self.fate
    }

    /// A packet may end before it reaches its host.
    fn raise_ttl(&mut self, packet: &mut Packet) {
        let (protocol, class) = (packet.meta().protocol, packet.meta().class);
        let is_judged = protocol == protocol::TCP
            || matches!(class, PacketClass::FirstFragment | PacketClass::LaterFragment);
        if self.options.low_ttl == LowTtl::Raise && is_judged && packet.raise_ttl(self.ttl_min) {
            self.counters.raised += 1;
        }
    }

    /// The segment at hand differs from what was sent before.
    #[cold]
    pub(super) fn note_difference(
        &mut self,
        segment: &Segment<'_>,
        in_payload: usize,
        offset: u64,
        len: usize,
    ) {
        // What came in fragments has passed but for the last one.
        self.difference = (!segment.apart).then_some(Difference { in_payload, offset, len });
    }

    /// Puts what was sent before in the place of what differs from it; none if not all of that is
    /// known.
    #[cold]
    fn replace(&mut self, packet: &mut Packet, streams: &Streams) -> Option<()> {
        let Difference { in_payload, offset, len } = self.difference.take()?;
        if self.options.differing != Differing::Replace {
            return None;
        }
        let half = &streams.halves[packet.meta().transit.direction.index()];
        self.whole.clear();
        let end = offset + len as u64;
        for block in self.sent.list(self.sent.head(half.sent)) {
            let at = offset + self.whole.len() as u64;
            let Some(skip) = at.checked_sub(block.offset) else { break };
            if let Some(bytes) = block.bytes.get(skip as usize..) {
                let wanted = (end - at) as usize;
                self.whole.extend_from_slice(&bytes[..bytes.len().min(wanted)]);
            }
        }
        let is_known = self.whole.len() == len && packet.overwrite_tcp_payload(in_payload, &self.whole);
        self.counters.replaced += u64::from(is_known);
        is_known.then_some(())
    }
}
