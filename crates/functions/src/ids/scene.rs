//! The buffers that there are on an occasion.

use inspect::{Inspection, Scratch};
use packet::parse::protocol;
use rules::Buffer;

use super::facts::PacketFacts;

/// Buffers of a message, one behind the other.
#[derive(Default)]
pub struct Scene {
    bytes: Vec<u8>,
    buffers: Vec<(Buffer, usize, usize)>,
}

impl Scene {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.buffers.clear();
    }

    /// Adds a buffer. There may be several of a kind.
    pub fn add(&mut self, buffer: Buffer, bytes: &[u8]) {
        self.write(buffer, |out| out.extend_from_slice(bytes));
    }

    /// Adds a buffer that is written in pieces.
    pub fn write(&mut self, buffer: Buffer, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.buffers.push((buffer, start, self.bytes.len()));
    }

    /// All buffers of a kind, in order.
    pub fn of(&self, wanted: Buffer) -> impl Iterator<Item = &[u8]> {
        self.all().filter(move |&(buffer, _)| buffer == wanted).map(|(_, bytes)| bytes)
    }

    /// All buffers, in order.
    pub fn all(&self) -> impl Iterator<Item = (Buffer, &[u8])> {
        self.buffers.iter().map(|&(buffer, start, end)| (buffer, &self.bytes[start..end]))
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
    /// Whether everything is there that the rule asks of buffers.
    pub fn holds(&self, inspection: &Inspection, scratch: &mut Scratch) -> bool {
        scratch.begin();
        inspection.buffers().iter().all(|one| match one.buffer() {
            Buffer::Payload => one.holds_at(self.payload, self.start, scratch),
            Buffer::Base64Data => one.holds_decoded(scratch),
            wanted => {
                let (mut exists, mut holds) = (false, false);
                for bytes in self.header(wanted).into_iter().chain(self.scene.of(aliased(wanted))) {
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
        let ip = |version: u8| {
            let header = packet.network.len().checked_sub(l4).filter(|_| l4 > 0);
            (packet.version == version).then(|| &packet.network[..header.unwrap_or(packet.network.len())])
        };
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
