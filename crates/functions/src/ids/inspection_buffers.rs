//! The inspection buffers at an inspection point.

use std::ops::Range;

use packet::parse::protocol;
use signatures::Buffer;
use signatures::inspect::{Inspection, InspectionScratch};

use super::facts::PacketFacts;

/// The inspection buffers of a message.
#[derive(Default)]
pub struct InspectionBuffers {
    /// Contents of the buffers that are not parts of the payload.
    bytes: Vec<u8>,
    locations: Vec<BufferLocation>,
}

/// The place of a buffer's content.
struct BufferLocation {
    buffer: Buffer,
    /// True for a part of the payload, false for a part of `bytes`.
    in_payload: bool,
    range: Range<usize>,
}

impl InspectionBuffers {
    /// Removes all buffers.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.locations.clear();
    }

    /// Returns whether there is no buffer.
    pub fn is_empty(&self) -> bool {
        self.locations.is_empty()
    }

    /// Adds a buffer that is a part of the payload. There may be several of a kind.
    pub fn share(&mut self, buffer: Buffer, range: Range<usize>) {
        self.locations.push(BufferLocation { buffer, in_payload: true, range });
    }

    /// Adds a buffer with these bytes.
    pub fn add(&mut self, buffer: Buffer, bytes: &[u8]) {
        self.write(buffer, |out| out.extend_from_slice(bytes));
    }

    /// Adds a buffer that is written in pieces.
    pub fn write(&mut self, buffer: Buffer, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.locations.push(BufferLocation { buffer, in_payload: false, range: start..self.bytes.len() });
    }

    /// Returns the first buffer of a kind that is not a part of the payload.
    pub fn first(&self, wanted: Buffer) -> Option<&[u8]> {
        let place = self.locations.iter().find(|place| place.buffer == wanted && !place.in_payload)?;
        self.bytes.get(place.range.clone())
    }

    /// Adds a buffer with the content of the last one.
    pub fn again(&mut self, buffer: Buffer) {
        if let Some(BufferLocation { in_payload, range, .. }) = self.locations.last() {
            self.locations.push(BufferLocation { buffer, in_payload: *in_payload, range: range.clone() });
        }
    }
}

/// All input of a rule at an inspection point.
#[derive(Clone, Copy)]
pub struct InspectionInput<'a> {
    /// The payload.
    pub payload: &'a [u8],
    /// The stream offset of the payload.
    pub start: u64,
    /// The message's buffers.
    pub buffers: &'a InspectionBuffers,
    /// The packet, for its headers.
    pub packet: Option<&'a PacketFacts<'a>>,
}

impl InspectionInput<'_> {
    /// Returns the message's buffers, in order, with their kinds.
    pub fn all(&self) -> impl Iterator<Item = (Buffer, &[u8])> {
        self.buffers.locations.iter().map(|one| (one.buffer, self.bytes(one)))
    }

    /// Returns the buffers of a kind.
    fn of_kind(&self, wanted: Buffer) -> impl Iterator<Item = &[u8]> {
        self.buffers.locations.iter().filter(move |one| one.buffer == wanted).map(|one| self.bytes(one))
    }

    fn bytes(&self, place: &BufferLocation) -> &[u8] {
        let bytes = if place.in_payload { self.payload } else { &self.buffers.bytes };
        bytes.get(place.range.clone()).unwrap_or_default()
    }

    /// Returns whether all buffers match the rule.
    pub fn holds(&self, inspection: &Inspection, scratch: &mut InspectionScratch) -> bool {
        scratch.begin();
        inspection.buffers().iter().all(|one| match one.buffer() {
            Buffer::Payload => one.holds_at(self.payload, self.start, scratch),
            Buffer::Base64Data => one.holds_decoded(scratch),
            wanted => {
                let (mut exists, mut holds) = (false, false);
                for bytes in self.header(wanted).into_iter().chain(self.of_kind(wanted)) {
                    exists = true;
                    holds = holds || one.holds(bytes, scratch);
                }
                if exists { holds } else { one.absent() }
            }
        })
    }

    fn header(&self, wanted: Buffer) -> Option<&[u8]> {
        let packet = self.packet?;
        let l4 = packet.transport.len();
        let ip = |version: u8| (packet.version == version).then(|| packet.ip_header());
        let transport = |number: u8| {
            (packet.protocol == number && l4 > 0).then(|| &packet.transport[..packet.transport_len()])
        };
        match wanted {
            Buffer::EthernetHeader => packet.frame.get(..14),
            Buffer::Ipv4Header => ip(4),
            Buffer::Ipv6Header => ip(6),
            Buffer::TcpHeader => transport(protocol::TCP),
            Buffer::UdpHeader => transport(protocol::UDP),
            Buffer::Icmpv4Header => transport(protocol::ICMP),
            Buffer::Icmpv6Header => transport(protocol::ICMPV6),
            _ => None,
        }
    }
}
