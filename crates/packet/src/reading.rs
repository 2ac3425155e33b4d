//! Read access to the parts of a parsed packet.

use crate::parse::{self, EmbeddedPacket};
use crate::wire::{IpProtocol, mptcp, tcp, tcp_option};
use crate::{Endpoint, Packet, PacketClass};

impl Packet {
    /// Returns the bytes from the flow's IP header on.
    #[inline]
    pub fn network(&self) -> &[u8] {
        self.data().get(self.meta().l3 as usize..).unwrap_or_default()
    }

    /// Returns the bytes from the transport header on; link-layer padding may follow.
    #[inline]
    pub fn transport(&self) -> &[u8] {
        self.data().get(self.meta().l4 as usize..).unwrap_or_default()
    }

    /// Returns the captured transport payload, without link-layer padding.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let data = self.data();
        let end = self.flow_end().min(data.len());
        data.get(self.meta().payload as usize..end).unwrap_or_default()
    }

    /// Returns the outermost IP packet and any link-layer trailer.
    #[inline]
    pub fn outermost(&self) -> &[u8] {
        self.data().get(self.meta().outer_l3 as usize..).unwrap_or_default()
    }

    /// Returns the length of the flow's IP packet in bytes, without outer headers.
    #[inline]
    pub fn flow_len(&self) -> usize {
        self.flow_end() - usize::from(self.meta().l3)
    }

    /// Returns source and destination of the current headers, which NFs may have rewritten.
    #[inline]
    pub fn ends(&self) -> (Endpoint, Endpoint) {
        parse::ends(self)
    }

    /// Returns the differentiated services code point of the flow's IP header (RFC 2474).
    pub fn dscp(&self) -> Option<u8> {
        match (self.meta().version, self.network()) {
            (4, [_, tos, ..]) => Some(tos >> 2),
            (6, [first, second, ..]) => Some((first & 0xf) << 2 | second >> 6),
            _ => None,
        }
    }

    /// Returns the Multipath TCP options that can be read; none unless the packet has a whole TCP
    /// header.
    #[inline]
    pub fn mptcp_options(&self) -> impl Iterator<Item = mptcp::Repr> + '_ {
        let meta = self.meta();
        let has_header = matches!(meta.class, PacketClass::Whole | PacketClass::FirstFragment);
        let is_tcp = has_header && meta.protocol == IpProtocol::TCP.0;
        let segment = if is_tcp { self.transport() } else { &[] };
        let len = tcp::Packet::new_checked(segment).map_or(0, |segment| segment.header_len());
        let options = tcp_option::Options::new(segment.get(tcp::HEADER_LEN..len).unwrap_or_default());
        options.filter_map(|option| match option {
            Ok(tcp_option::TcpOption::Mptcp(data)) => mptcp::Repr::parse(data).ok(),
            _ => None,
        })
    }

    /// Returns the packet quoted in this ICMP error, if it is one.
    pub fn embedded(&self) -> Option<EmbeddedPacket> {
        let meta = self.meta();
        if meta.class != PacketClass::IcmpError {
            return None;
        }
        parse::embedded(self.data(), meta.l4 as usize, meta.version)
    }
}
