//! The buffers that there are on an occasion.

use std::ops::Range;

use packet::parse::protocol;
use signatures::Buffer;
use signatures::inspect::{Inspection, Scratch};

use super::facts::PacketFacts;

/// Buffers of a message.
#[derive(Default)]
pub struct Scene {
    /// Those that are not parts of the payload, one behind the other.
    bytes: Vec<u8>,
    buffers: Vec<Place>,
}

/// Where a buffer stands.
struct Place {
    buffer: Buffer,
    /// Whether it is a part of the payload, or one of the scene's own bytes.
    in_payload: bool,
    range: Range<usize>,
}

impl Scene {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.buffers.clear();
    }

    /// Whether there is no buffer.
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Adds a buffer that is a part of the payload. There may be several of a kind.
    pub fn share(&mut self, buffer: Buffer, range: Range<usize>) {
        self.buffers.push(Place { buffer, in_payload: true, range });
    }

    /// Adds a buffer of these bytes.
    pub fn add(&mut self, buffer: Buffer, bytes: &[u8]) {
        self.write(buffer, |out| out.extend_from_slice(bytes));
    }

    /// Adds a buffer that is written in pieces.
    pub fn write(&mut self, buffer: Buffer, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.buffers.push(Place { buffer, in_payload: false, range: start..self.bytes.len() });
    }

    /// The first buffer of a kind, of those that are the scene's own bytes.
    pub fn first(&self, wanted: Buffer) -> Option<&[u8]> {
        let place = self.buffers.iter().find(|place| place.buffer == wanted && !place.in_payload)?;
        self.bytes.get(place.range.clone())
    }

    /// Adds what the last buffer holds as another one.
    pub fn again(&mut self, buffer: Buffer) {
        if let Some(Place { in_payload, range, .. }) = self.buffers.last() {
            self.buffers.push(Place { buffer, in_payload: *in_payload, range: range.clone() });
        }
    }
}

/// All that a rule may look into on an occasion.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The payload, and where in a stream it begins.
    pub payload: &'a [u8],
    /// See there.
    pub start: u64,
    /// The message's buffers.
    pub scene: &'a Scene,
    /// The packet, for its headers.
    pub packet: Option<&'a PacketFacts<'a>>,
}

impl View<'_> {
    /// The message's buffers, in order, and which each is.
    pub fn all(&self) -> impl Iterator<Item = (Buffer, &[u8])> {
        self.scene.buffers.iter().map(|one| (one.buffer, self.bytes(one)))
    }

    /// Those of a kind.
    fn buffers(&self, wanted: Buffer) -> impl Iterator<Item = &[u8]> {
        self.scene.buffers.iter().filter(move |one| one.buffer == wanted).map(|one| self.bytes(one))
    }

    fn bytes(&self, place: &Place) -> &[u8] {
        let bytes = if place.in_payload { self.payload } else { &self.scene.bytes };
        bytes.get(place.range.clone()).unwrap_or_default()
    }

    /// Whether everything is there that the rule asks of buffers.
    pub fn holds(&self, inspection: &Inspection, scratch: &mut Scratch) -> bool {
        scratch.begin();
        inspection.buffers().iter().all(|one| match one.buffer() {
            Buffer::Payload => one.holds_at(self.payload, self.start, scratch),
            Buffer::Base64Data => one.holds_decoded(scratch),
            wanted => {
                let (mut exists, mut holds) = (false, false);
                for bytes in self.header(wanted).into_iter().chain(self.buffers(aliased(wanted))) {
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

/// Of buffers that always hold the same, the one that is made.
pub fn aliased(buffer: Buffer) -> Buffer {
    match buffer {
        Buffer::DnsQueriesName => Buffer::DnsQuery,
        other => other,
    }
}
