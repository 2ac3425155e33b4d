//! The packet quoted by an ICMP error.

use nf::PacketView;
use packet::parse::{is_query, protocol};
use packet::{Addr, Endpoint};

/// Endpoints of the packet quoted by an ICMP error.
pub struct QuotedPacket {
    pub source: Endpoint,
    pub destination: Endpoint,
    /// Protocol number.
    pub protocol: u8,
}

impl QuotedPacket {
    /// Reads the quotation; none if there is none, or if it ends before the ports.
    pub fn of(packet: &PacketView<'_>) -> Option<QuotedPacket> {
        let quoted = packet.embedded().filter(|quoted| quoted.has_transport)?;
        let data = packet.data();
        let header = data.get(quoted.l3..)?;
        let (source, destination) = if quoted.version == 4 {
            let at = |at| Some(Addr::from_v4_bytes(*header.get(at..)?.first_chunk()?));
            (at(12)?, at(16)?)
        } else {
            let at = |at| Some(Addr::from_bytes(*header.get(at..)?.first_chunk()?));
            (at(8)?, at(24)?)
        };
        let word = |at| Some(u16::from_be_bytes(*data.get(quoted.l4 + at..)?.first_chunk()?));
        let (source_port, destination_port) = match quoted.protocol {
            number @ (protocol::ICMP | protocol::ICMPV6) if is_query(number, *data.get(quoted.l4)?) => {
                (word(4)?, word(4)?)
            }
            protocol::ICMP | protocol::ICMPV6 => (0, 0),
            _ => (word(0)?, word(2)?),
        };
        Some(QuotedPacket {
            source: Endpoint::new(source, source_port),
            destination: Endpoint::new(destination, destination_port),
            protocol: quoted.protocol,
        })
    }
}
