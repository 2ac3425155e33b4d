//! Packet metadata, filled in once when a packet is parsed.

use crate::{FlowKey, LinkType};

/// A side of the graph. A packet that enters by one side leaves by the other, unless an NF turns it
/// back. Inside is the left end of the policy's pipelet, the private side in NAT terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Side {
    /// The left end.
    #[default]
    Inside,
    /// The right end.
    Outside,
}

impl Side {
    /// Returns the other side.
    #[inline]
    pub const fn other(self) -> Side {
        match self {
            Side::Inside => Side::Outside,
            Side::Outside => Side::Inside,
        }
    }
}

/// A packet's direction within its flow, as connection trackers name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// The direction of the flow's first packet.
    #[default]
    Original,
    /// The opposite one.
    Reply,
}

impl Direction {
    /// Returns the other direction.
    #[inline]
    pub const fn other(self) -> Direction {
        match self {
            Direction::Original => Direction::Reply,
            Direction::Reply => Direction::Original,
        }
    }

    /// Returns 0 for original, 1 for reply, as an array index.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A packet's relation to the flow that its key names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketClass {
    /// Not IP: ARP, LLC and the like. It has no key and no flow.
    #[default]
    NotIp,
    /// A whole packet of a flow, or the only fragment of one ("atomic", RFC 6946).
    Whole,
    /// The first of several fragments, with the transport header.
    FirstFragment,
    /// A later fragment, without transport header; its ports are 0 until the first fragment is
    /// known.
    LaterFragment,
    /// An ICMP error. Its key is that of the embedded packet, reversed, so that the error belongs
    /// to that flow.
    IcmpError,
}

/// No port.
pub const NO_PORT: u16 = u16::MAX;

/// A packet's transit data: arrival, flow, and decisions so far. Copied in few pieces.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Transit {
    /// Time of reception in nanoseconds, with the source's epoch (Unix time for captures).
    pub timestamp_ns: u64,
    /// The packet's number in order of arrival, from 0.
    pub sequence: u64,
    /// The packet's number in its flow, from 1 (S58); set when the flow is found.
    pub seq: u64,
    /// Metadata tags (E4), laid out by the graph that reads them. The receiver sets tags that the
    /// packet brings from an external node.
    pub tags: u64,
    /// The flow's record, valid only within the graph that found it.
    pub flow: u32,
    /// Time that NFs want to keep the flow after this packet, in milliseconds; 0 does not refresh
    /// it.
    pub keep_ms: u32,
    /// The packet's direction within its flow; set when the flow is found.
    pub direction: Direction,
    /// The side that it entered by.
    pub side: Side,
    /// The connection's phase after this packet, as in the flow's record.
    pub phase: u8,
    /// Set if an NF now rewrites the flow differently.
    pub relearn_alias: bool,
    /// The port that the packet arrived at.
    pub ingress: u16,
    /// The port that it must leave by, if its flow decides it; else [`NO_PORT`].
    pub egress: u16,
}

/// Everything that later steps need to know of a packet, so that nothing is parsed twice (B2).
///
/// Offsets count from the packet's first byte and are adjusted when headers are pushed or pulled.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct Meta {
    /// The keyed hash of `key`.
    pub hash: u64,
    /// The flow's key when the packet arrived, before any rewrite.
    pub key: FlowKey,
    /// Transit data.
    pub transit: Transit,
    /// Offset of the outermost IP header.
    pub outer_l3: u16,
    /// Offset of the flow's IP header: the innermost parsed one.
    pub l3: u16,
    /// Offset of the transport header, or of the data in a later fragment.
    pub l4: u16,
    /// Offset of a UDP header with a checksum around the flow's IP header (a tunnel that was
    /// parsed); else 0.
    pub outer_udp: u16,
    /// Set if the key's ends are in the opposite order of the packet's.
    pub reversed: bool,
    /// Number of the transport protocol.
    pub protocol: u8,
    /// TCP flags as in the header's 14th byte; 0 for other protocols, or if not captured.
    pub tcp_flags: u8,
    /// IP version of the flow's header, 4 or 6; 0 if not IP.
    pub version: u8,
    /// The packet's relation to its flow.
    pub class: PacketClass,
    /// Length of the flow's IP packet from its header, if the headers are plain: IPv4 without
    /// options, a whole packet, TCP or UDP, in no tunnel with a checksum. Else 0, also if it may
    /// have changed.
    pub plain_len: u16,
    /// Format of the first header.
    pub link: LinkType,
    /// Offset of the captured transport payload.
    pub payload: u16,
    /// Length on the wire in bytes; larger than the buffer's content if the capture was cut.
    pub wire_len: u32,
}

impl Meta {
    /// Resets the fields that a receiver must set. All others are undefined until the packet is
    /// parsed.
    #[inline]
    pub(crate) fn receive(&mut self, wire_len: u32) {
        self.key.place = 0;
        self.transit.timestamp_ns = 0;
        self.wire_len = wire_len;
        self.link = LinkType::Ethernet;
        let transit = &mut self.transit;
        (transit.ingress, transit.egress) = (0, NO_PORT);
        (transit.direction, transit.side) = (Direction::Original, Side::Inside);
        (transit.phase, transit.relearn_alias) = (0, false);
        (self.reversed, self.protocol, self.tcp_flags, self.version) = (false, 0, 0, 0);
        (self.class, self.plain_len) = (PacketClass::NotIp, 0);
    }

    /// Checks for plain headers, see [`Meta::plain_len`].
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.plain_len != 0
    }

    /// Checks for a transport header: captured, and not a later fragment.
    #[inline]
    pub fn has_transport(&self) -> bool {
        !matches!(self.class, PacketClass::NotIp | PacketClass::LaterFragment)
    }

    /// Shifts all offsets after headers were pushed (positive) or pulled (negative).
    #[inline]
    pub(crate) fn shift(&mut self, by: i32) {
        for offset in [&mut self.l3, &mut self.l4, &mut self.payload] {
            *offset = (i32::from(*offset) + by) as u16;
        }
        if self.outer_udp != 0 {
            self.outer_udp = (i32::from(self.outer_udp) + by) as u16;
        }
    }
}
