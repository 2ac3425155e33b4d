//! Tags in frames: a VLAN tag, or an option of a Geneve header.

use std::fmt::{self, Display};
use std::net::Ipv4Addr;

use packet::wire::{EtherType, MacAddress, WireError, ethernet, geneve, ipv4, udp};
use policy::TagCarrier;

/// Class of the Geneve option with attributes: of those for experiments (RFC 8926 section 7).
pub const GENEVE_OPTION_CLASS: u16 = 0xff52;
/// Type of the option; programs may ignore it.
pub const GENEVE_OPTION_KIND: u8 = 1;

/// Bytes of a VLAN tag.
const VLAN_LEN: usize = 4;
/// Bytes of the Ethernet addresses of a frame.
const ADDRESSES_LEN: usize = 12;
/// Identifier of a VLAN in its tag.
const VLAN_ID: u16 = 0xfff;
/// Bytes of class, type and length of a Geneve option.
const OPTION_HEAD_LEN: usize = 4;
/// Bytes of a Geneve frame before the option's data.
const TUNNEL_LEN: usize =
    ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN + geneve::HEADER_LEN + OPTION_HEAD_LEN;
/// Time to live of the outer header.
const TUNNEL_TTL: u8 = 64;

/// The ends of a tunnel between Rivulet and a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelEnds {
    /// Rivulet's address.
    pub own: Ipv4Addr,
    /// The program's.
    pub program: Ipv4Addr,
    /// Rivulet's Ethernet address.
    pub own_mac: MacAddress,
    /// The program's.
    pub program_mac: MacAddress,
}

/// A tag that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagFault {
    /// There is none.
    Missing,
    /// It has bits that no attribute has, or a wrong length.
    Bad,
    /// The tunnel's headers are malformed, so there is no packet.
    NoPacket,
}

/// Writes and reads the tags of one side of a node.
#[derive(Clone, Debug)]
pub struct TagCodec {
    is_tunnel: bool,
    bits: u32,
    ends: TunnelEnds,
}

impl TunnelEnds {
    /// Returns the ends at a side of the n-th node of a policy. Addresses are the defaults of a
    /// routed node (RFC 6598), Ethernet addresses are local ones.
    pub fn of(number: usize, side: usize) -> TunnelEnds {
        let network = number * 2 + side;
        let (high, low) = ((network / 64 % 256) as u8, (network % 64 * 4) as u8);
        let address = |host| Ipv4Addr::new(100, 127, high, low + host);
        let mac = |host| MacAddress([0x02, 0x52, 0x56, 0x00, high, low + host]);
        TunnelEnds { own: address(1), program: address(2), own_mac: mac(1), program_mac: mac(2) }
    }
}

impl Display for TunnelEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rivulet {} ({}), program {} ({})", self.own, self.own_mac, self.program, self.program_mac)
    }
}

impl TagCodec {
    /// Creates a codec of tags with this many bits; `None` without a carrier.
    pub fn new(carrier: TagCarrier, bits: u32, ends: TunnelEnds) -> Option<TagCodec> {
        let is_tunnel = carrier == TagCarrier::Geneve;
        (carrier != TagCarrier::None).then_some(TagCodec { is_tunnel, bits, ends })
    }

    /// Writes a frame with a tag to `out`. `entropy` distinguishes flows. Returns false if the
    /// frame has no Ethernet header, or is too long for a tunnel.
    pub fn write(&self, frame: &[u8], tag: u64, entropy: u64, out: &mut Vec<u8>) -> bool {
        out.clear();
        if frame.len() < ethernet::HEADER_LEN {
            return false;
        }
        match self.is_tunnel {
            true => self.write_geneve(frame, tag, entropy, out).is_ok(),
            false => {
                write_vlan(frame, tag, out);
                true
            }
        }
    }

    /// Returns the packet of a frame that the program sent, and the value of its tag: 0 if it has
    /// no good one.
    pub fn read<'f>(&self, frame: &'f [u8], untagged: &'f mut Vec<u8>) -> (&'f [u8], Result<u64, TagFault>) {
        match self.is_tunnel {
            true => self.read_geneve(frame),
            false => self.read_vlan(frame, untagged),
        }
    }

    fn checked(&self, tag: u64) -> Result<u64, TagFault> {
        let is_beyond = tag.checked_shr(self.bits).is_some_and(|beyond| beyond != 0);
        if is_beyond { Err(TagFault::Bad) } else { Ok(tag) }
    }

    fn read_vlan<'f>(&self, frame: &'f [u8], untagged: &'f mut Vec<u8>) -> (&'f [u8], Result<u64, TagFault>) {
        let Some((&[high, low, tci_high, tci_low], rest)) =
            frame.get(ADDRESSES_LEN..).and_then(|rest| rest.split_first_chunk::<VLAN_LEN>())
        else {
            return (frame, Err(TagFault::Missing));
        };
        let ether_type = EtherType(u16::from_be_bytes([high, low]));
        if ![EtherType::VLAN, EtherType::QINQ].contains(&ether_type) {
            return (frame, Err(TagFault::Missing));
        }
        untagged.clear();
        untagged.extend_from_slice(&frame[..ADDRESSES_LEN]);
        untagged.extend_from_slice(rest);
        let id = u16::from_be_bytes([tci_high, tci_low]) & VLAN_ID;
        (untagged, self.checked(id.into()))
    }

    /// Bytes of the option's data.
    fn data_len(&self) -> usize {
        if self.bits > 32 { 8 } else { 4 }
    }

    fn write_geneve(&self, frame: &[u8], tag: u64, entropy: u64, out: &mut Vec<u8>) -> Result<(), WireError> {
        let TunnelEnds { own, program, own_mac, program_mac } = self.ends;
        let head_len = TUNNEL_LEN + self.data_len();
        out.resize(head_len, 0);
        out.extend_from_slice(frame);
        let total_len = out.len() - ethernet::HEADER_LEN;
        let total = u16::try_from(total_len)
            .map_err(|_| WireError::Unrepresentable { header: "IPv4", field: "total length" })?;
        out[..6].copy_from_slice(&program_mac.0);
        out[6..12].copy_from_slice(&own_mac.0);
        out[12..14].copy_from_slice(&EtherType::IPV4.0.to_be_bytes());
        let ip = &mut out[ethernet::HEADER_LEN..];
        // No fragments; the checksum of UDP is 0 (RFC 8926 3.3).
        ip[..10].copy_from_slice(&[0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0x40, 0, TUNNEL_TTL, 17]);
        ip[12..16].copy_from_slice(&own.octets());
        ip[16..20].copy_from_slice(&program.octets());
        let sum = packet::checksum::checksum(&ip[..ipv4::HEADER_LEN]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let udp = &mut ip[ipv4::HEADER_LEN..];
        let len = total - ipv4::HEADER_LEN as u16;
        // One of the dynamic ports by flow (RFC 8926 3.3).
        let source = 0xc000 | (entropy >> 48) as u16;
        udp[..2].copy_from_slice(&source.to_be_bytes());
        udp[2..4].copy_from_slice(&geneve::PORT.to_be_bytes());
        udp[4..6].copy_from_slice(&len.to_be_bytes());
        let data = tag.to_be_bytes();
        let data = &data[data.len() - self.data_len()..];
        let option = geneve::GeneveOption { class: GENEVE_OPTION_CLASS, kind: GENEVE_OPTION_KIND, data };
        let mut options = [0; OPTION_HEAD_LEN + 8];
        let options = &mut options[..option.buffer_len()];
        option.emit(options)?;
        let header = geneve::Repr { is_control: false, protocol: EtherType::ETHERNET, vni: 0, options };
        header.emit(&mut udp[udp::HEADER_LEN..])
    }

    fn read_geneve<'f>(&self, frame: &'f [u8]) -> (&'f [u8], Result<u64, TagFault>) {
        let Some(tunnelled) = self.tunnelled(frame) else { return (frame, Err(TagFault::Missing)) };
        let Some((header, inner)) = payload(tunnelled) else { return (&[], Err(TagFault::NoPacket)) };
        let own = header.options().find_map(|option| match option {
            Ok(option) => {
                let is_own = (option.class, option.kind) == (GENEVE_OPTION_CLASS, GENEVE_OPTION_KIND);
                is_own.then_some(Ok(option.data))
            }
            Err(_) => Some(Err(TagFault::Bad)),
        });
        let tag = match own {
            None => Err(TagFault::Missing),
            Some(Err(fault)) => Err(fault),
            Some(Ok(data)) if data.len() == self.data_len() => {
                self.checked(data.iter().fold(0, |tag, byte| tag << 8 | u64::from(*byte)))
            }
            Some(Ok(_)) => Err(TagFault::Bad),
        };
        (inner, tag)
    }

    /// Returns the payload of a datagram from the program to Rivulet's end of the tunnel.
    fn tunnelled<'f>(&self, frame: &'f [u8]) -> Option<&'f [u8]> {
        let ip = frame.get(ethernet::HEADER_LEN..)?;
        let is_ip = frame[ADDRESSES_LEN..ethernet::HEADER_LEN] == EtherType::IPV4.0.to_be_bytes();
        let header = ipv4::Packet::new_checked(ip).ok().filter(|_| is_ip)?;
        let is_to_own = ip[16..20] == self.ends.own.octets() && ip[9] == 17;
        let is_whole = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff == 0;
        let datagram = &ip[header.payload_range()];
        let is_geneve = datagram.get(2..4) == Some(&geneve::PORT.to_be_bytes()[..]);
        (is_to_own && is_whole && is_geneve).then(|| datagram.get(udp::HEADER_LEN..)).flatten()
    }
}

/// Returns the header and the frame in a Geneve packet.
fn payload(bytes: &[u8]) -> Option<(geneve::Packet<&[u8]>, &[u8])> {
    let header = geneve::Packet::new_checked(bytes).ok()?;
    let inner = &bytes[header.payload_range()];
    let is_frame = header.protocol() == EtherType::ETHERNET
        && !header.is_control()
        && inner.len() >= ethernet::HEADER_LEN;
    is_frame.then_some((header, inner))
}

/// Adds a tag around all others: 802.1Q, or 802.1ad if the packet has one.
fn write_vlan(frame: &[u8], tag: u64, out: &mut Vec<u8>) {
    let (addresses, rest) = frame.split_at(ADDRESSES_LEN);
    let next = EtherType(u16::from_be_bytes([rest[0], rest[1]]));
    let has_tag = [EtherType::VLAN, EtherType::QINQ].contains(&next);
    let ether_type = if has_tag { EtherType::QINQ } else { EtherType::VLAN };
    out.extend_from_slice(addresses);
    out.extend_from_slice(&ether_type.0.to_be_bytes());
    out.extend_from_slice(&(tag as u16 & VLAN_ID).to_be_bytes());
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests;
