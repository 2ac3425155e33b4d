//! What is known of a packet beside its bytes: filled in once, when it is parsed.

use crate::{FlowKey, LinkType};

/// The side of a chain: a chain runs between two sides, and a packet that enters on one leaves on
/// the other unless a function turns it back. Inside is the left end of the policy's chain, in NAT
/// terms the private side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Side {
    /// The left end of the chain.
    #[default]
    Inside,
    /// The right end of the chain.
    Outside,
}

impl Side {
    /// The other end.
    #[inline]
    pub const fn other(self) -> Side {
        match self {
            Side::Inside => Side::Outside,
            Side::Outside => Side::Inside,
        }
    }
}

/// Which way a packet goes within its flow, as connection trackers name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// As the packet that opened the flow.
    #[default]
    Original,
    /// Against it.
    Reply,
}

impl Direction {
    /// The other direction.
    #[inline]
    pub const fn other(self) -> Direction {
        match self {
            Direction::Original => Direction::Reply,
            Direction::Reply => Direction::Original,
        }
    }

    /// 0 for original, 1 for reply: for arrays with an element per direction.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// How a packet is related to the flow that its key names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketClass {
    /// Not IP: ARP, LLC and the like. It has no key and no flow.
    #[default]
    NotIp,
    /// A whole packet of a flow, or the only fragment of one ("atomic", RFC 6946).
    Whole,
    /// The first of several fragments: it has the transport header.
    FirstFragment,
    /// A later fragment: no transport header; its ports are 0 until its first fragment is known.
    LaterFragment,
    /// An ICMP error. The key is that of the packet embedded in it, turned round so that the error
    /// goes along with it.
    IcmpError,
}

/// The number of no port.
pub const NO_PORT: u16 = u16::MAX;

/// Where a packet is on its way: when it came, in which flow it goes, and what was decided on the
/// way. Copied in few pieces.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Transit {
    /// When the packet was received, in nanoseconds; the epoch is the source's (Unix time for
    /// captures).
    pub timestamp_ns: u64,
    /// The packet's number in the order of arrival, from 0.
    pub sequence: u64,
    /// The packet's number in its flow, from 1 (S58); set when the flow is found.
    pub seq: u64,
    /// Metadata tags (E4), laid out by the chain that reads them.
    pub tags: u64,
    /// The flow's record, valid only within the chain that found it.
    pub flow: u32,
    /// How long functions want the flow to be kept after this packet, in milliseconds; 0: it does
    /// not refresh the flow.
    pub keep_ms: u32,
    /// Which way the packet goes within its flow; set when the flow is found.
    pub direction: Direction,
    /// The side that it entered by.
    pub side: Side,
    /// What the flow's connection has come to with this packet, as the flow's record has it.
    pub phase: u8,
    /// A function now rewrites the flow's packets otherwise than before.
    pub relearn_alias: bool,
    /// The port that the packet came in by.
    pub ingress: u16,
    /// The port that it is to leave by, as far as its flow says it; else [`NO_PORT`].
    pub egress: u16,
}

/// Everything that later steps need to know of a packet, so that nothing is parsed twice (B2).
///
/// Offsets count from the packet's first byte and stay right when headers are pushed or pulled.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct Meta {
    /// The keyed hash of `key`.
    pub hash: u64,
    /// The flow's key as the packet arrived, whatever functions rewrote since.
    pub key: FlowKey,
    /// Where it is on its way.
    pub transit: Transit,
    /// Where the outermost IP header begins.
    pub outer_l3: u16,
    /// Where the IP header of the flow begins: the innermost one that was looked into.
    pub l3: u16,
    /// Where the transport header begins. Equal to where it would begin in a later fragment.
    pub l4: u16,
    /// Where a UDP header with a checksum encloses the flow's IP header (a tunnel that was looked
    /// into); else 0.
    pub outer_udp: u16,
    /// Whether the key's ends are in the opposite order of the packet's.
    pub reversed: bool,
    /// The transport protocol's number.
    pub protocol: u8,
    /// TCP flags as in the header's 14th byte; 0 for other protocols, or where they were not
    /// captured.
    pub tcp_flags: u8,
    /// IP version of the flow's header, 4 or 6; 0 if not IP.
    pub version: u8,
    /// How the packet relates to its flow.
    pub class: PacketClass,
    /// The length of the flow's IP packet, as its header says it, if its headers are of the
    /// commonest shape: IPv4 without options, a whole packet, TCP or UDP, and no tunnel with a
    /// checksum around it. Else 0, and where something may have changed it.
    pub plain_len: u16,
    /// How the first header is to be read.
    pub link: LinkType,
    /// Where the payload of the transport header begins, as far as it was captured.
    pub payload: u16,
    /// The packet's length on the wire, in bytes; more than what we have where a capture cut it.
    pub wire_len: u32,
}

impl Meta {
    /// Sets what the receiver is to set to its defaults. All else has no meaning until the packet
    /// is parsed.
    #[inline]
    pub(crate) fn receive(&mut self, wire_len: u32) {
        self.key.tenant = 0;
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

    /// Whether the flow's headers are of the commonest shape: see [`Meta::plain_len`].
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.plain_len != 0
    }

    /// Whether a transport header is there (captured, and not a later fragment).
    #[inline]
    pub fn has_transport(&self) -> bool {
        !matches!(self.class, PacketClass::NotIp | PacketClass::LaterFragment)
    }

    /// Moves all offsets by `by` bytes, when headers were pushed (positive) or pulled (negative)
    /// before them.
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
