//! The frames of expected packets: headers only, with valid checksums.

use std::net::{IpAddr, SocketAddr};

use packet::wire::{
    EtherType, IpAddresses, IpProtocol, MacAddress, WireError, ethernet, icmpv4, icmpv6, ipv4, ipv6, tcp,
    udp, vlan,
};

/// Number of the first byte after SYN, in both directions.
const SEQUENCE: u32 = 1;

/// The headers of a frame.
pub struct Headers {
    pub protocol: IpProtocol,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    /// The flags octet of TCP.
    pub flags: u8,
    /// The identifier of an ICMP echo, and true if it is a reply.
    pub echo: (u16, bool),
    pub dscp: u8,
    pub vlan: Option<u16>,
}

impl Headers {
    /// Returns the Ethernet frame.
    pub fn frame(&self) -> Result<Vec<u8>, WireError> {
        let (network, ethertype) = match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let transport = self.transport(IpAddresses::V4 { source, destination })?;
                let header = ipv4::Repr {
                    dscp: self.dscp,
                    ecn: 0,
                    ident: 0,
                    dont_fragment: true,
                    more_fragments: false,
                    fragment_offset: 0,
                    ttl: 64,
                    protocol: self.protocol,
                    source,
                    destination,
                    payload_len: transport.len() as u16, // A header is far shorter.
                };
                (after(20, &transport, |buffer| header.emit(buffer))?, EtherType::IPV4)
            }
            (source, destination) => {
                let v6 = |address| match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped(),
                    IpAddr::V6(address) => address,
                };
                let (source, destination) = (v6(source), v6(destination));
                let transport = self.transport(IpAddresses::V6 { source, destination })?;
                let header = ipv6::Repr {
                    traffic_class: self.dscp << 2,
                    flow_label: 0,
                    next_header: self.protocol,
                    hop_limit: 64,
                    source,
                    destination,
                    payload_len: transport.len() as u16, // As above.
                };
                (after(40, &transport, |buffer| header.emit(buffer))?, EtherType::IPV6)
            }
        };
        let (rest, outer) = match self.vlan {
            Some(vid) => {
                let tag = vlan::Repr { pcp: 0, dei: false, vid, ethertype };
                (after(tag.buffer_len(), &network, |buffer| tag.emit(buffer))?, EtherType::VLAN)
            }
            None => (network, ethertype),
        };
        let link = ethernet::Repr {
            destination: MacAddress([2, 0, 0, 0, 0, 2]),
            source: MacAddress([2, 0, 0, 0, 0, 1]),
            ethertype: outer,
        };
        after(link.buffer_len(), &rest, |buffer| link.emit(buffer))
    }

    fn transport(&self, addresses: IpAddresses) -> Result<Vec<u8>, WireError> {
        let (source_port, destination_port) = (self.source.port(), self.destination.port());
        let (ident, is_reply) = self.echo;
        let mut bytes = vec![0; 8];
        match self.protocol {
            IpProtocol::TCP => {
                let flags = tcp::Flags(u16::from(self.flags));
                let has = |flag: tcp::Flags| flags.0 & flag.0 != 0;
                let header = tcp::Repr {
                    source_port,
                    destination_port,
                    sequence_number: if has(tcp::Flags::SYN) { SEQUENCE - 1 } else { SEQUENCE },
                    acknowledgment_number: if has(tcp::Flags::ACK) { SEQUENCE } else { 0 },
                    flags,
                    window: u16::MAX,
                    urgent_pointer: 0,
                    max_segment_size: None,
                };
                bytes.resize(header.buffer_len(), 0);
                header.emit(&mut bytes)?;
                tcp::Packet::new_checked(&mut bytes[..])?.fill_checksum(addresses);
            }
            IpProtocol::UDP => {
                udp::Repr { source_port, destination_port, payload_len: 0 }.emit(&mut bytes)?;
                udp::Packet::new_checked(&mut bytes[..])?.fill_checksum(addresses);
            }
            IpProtocol::ICMPV6 => {
                let (sequence_number, data) = (1, &[][..]);
                let message = match is_reply {
                    false => icmpv6::Repr::EchoRequest { ident, sequence_number, data },
                    true => icmpv6::Repr::EchoReply { ident, sequence_number, data },
                };
                message.emit(addresses, &mut bytes)?;
            }
            _ => {
                let (sequence_number, data) = (1, &[][..]);
                let message = match is_reply {
                    false => icmpv4::Repr::EchoRequest { ident, sequence_number, data },
                    true => icmpv4::Repr::EchoReply { ident, sequence_number, data },
                };
                message.emit(&mut bytes)?;
            }
        }
        Ok(bytes)
    }
}

/// Returns the bytes of a header of this length, and what follows it.
fn after(
    header_len: usize,
    rest: &[u8],
    emit: impl FnOnce(&mut [u8]) -> Result<(), WireError>,
) -> Result<Vec<u8>, WireError> {
    let mut bytes = vec![0; header_len];
    emit(&mut bytes)?;
    bytes.extend_from_slice(rest);
    Ok(bytes)
}
