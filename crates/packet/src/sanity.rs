//! Well-formed packets that must not be sent, and packets that a link depends on.
//!
//! The parser accepts both, since a sensor wants to see them. [`Sanity`] selects the ones to drop.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::parse::{self, Sanity, has_source_route, protocol, routing_headers};
use crate::{DropReason, LinkType, Packet, PacketClass};

impl Sanity {
    /// Checks the addresses that a parsed packet arrived with.
    ///
    /// # Errors
    /// [`DropReason::Martian`], [`DropReason::Land`].
    pub fn check_addresses(self, packet: &Packet) -> Result<(), DropReason> {
        if !(self.martians || self.land) || packet.meta().class == PacketClass::NotIp {
            return Ok(());
        }
        let (source, destination) = parse::ends(packet);
        let (from, to) = (source.addr.ip(), destination.addr.ip());
        // A host without an address requests one (RFC 2131), or checks if one is free (RFC 4862
        // 5.4).
        let has_none = from.is_unspecified() && (to.is_multicast() || is_broadcast(to));
        let is_mapped = packet.meta().version == 6 && (source.addr.is_v4() || destination.addr.is_v4());
        if self.martians && (is_mapped || is_martian_source(from) && !has_none || is_martian_destination(to))
        {
            return Err(DropReason::Martian);
        }
        if self.land && from == to {
            return Err(DropReason::Land);
        }
        Ok(())
    }
}

/// Checks if no packet on a link may have this source (RFC 1122 3.2.1.3, RFC 6890). Mapped IPv4
/// addresses, which no packet may contain, look like IPv4 here.
pub fn is_martian_source(address: IpAddr) -> bool {
    address.is_multicast() || is_broadcast(address) || address.is_unspecified() || is_never_on_a_link(address)
}

/// Checks if no packet on a link may have this destination.
pub fn is_martian_destination(address: IpAddr) -> bool {
    address.is_unspecified() || is_never_on_a_link(address) && !is_broadcast(address)
}

fn is_broadcast(address: IpAddr) -> bool {
    address == IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// Checks for "this network", loopback and reserved addresses.
fn is_never_on_a_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => matches!(v4.octets()[0], 0 | 127 | 240..),
        IpAddr::V6(v6) => v6 == Ipv6Addr::LOCALHOST,
    }
}

/// Checks if the IP packet continues to another address from its current destination: an IPv4
/// source route, or a routing header of any type, that is not used up.
pub fn is_routed_elsewhere(network: &[u8]) -> bool {
    match network.first().map(|first| first >> 4) {
        Some(4) => {
            let len = network.first().map_or(0, |first| usize::from(first & 0xf) * 4);
            network.get(..len).is_some_and(|header| has_source_route(header, 4))
        }
        Some(6) => routing_headers(network).any(|[_, _, _, left]| left > 0),
        _ => false,
    }
}

/// Multicast addresses of bridges and link-layer protocols (IEEE 802.1Q tables 8-1 to 8-3), and
/// Cisco's.
const BRIDGE_GROUPS: [u8; 5] = [0x01, 0x80, 0xc2, 0x00, 0x00];
const BRIDGE_GROUP_LAST: u8 = 0x2f;
const CISCO_GROUPS: [u8; 5] = [0x01, 0x00, 0x0c, 0xcc, 0xcc];

/// Checks if a non-IP frame is needed by its link: ARP, RARP, LLDP, LACP, 802.1X, CFM; spanning
/// tree and other bridge protocols.
pub fn is_link_control_frame(packet: &Packet) -> bool {
    let data = packet.data();
    let type_at = match packet.meta().link {
        LinkType::Ethernet => 12,
        LinkType::LinuxSll => 14,
        LinkType::LinuxSll2 => 0,
        _ => return false,
    };
    let is_to_bridges = type_at == 12
        && matches!(data, [group @ .., _] if group.starts_with(&BRIDGE_GROUPS) || group.starts_with(&CISCO_GROUPS))
        && data.get(5).is_some_and(|&last| data[0..5] == CISCO_GROUPS || last <= BRIDGE_GROUP_LAST);
    is_to_bridges || is_control_type(data, type_at)
}

/// Checks for the EtherTypes of those protocols, also after VLAN tags.
fn is_control_type(data: &[u8], mut at: usize) -> bool {
    for _ in 0..=parse::SHIM_MAX {
        match data.get(at..).and_then(|rest| rest.first_chunk()).map(|&bytes| u16::from_be_bytes(bytes)) {
            Some(0x8100 | 0x88a8 | 0x9100) => at += 4,
            Some(0x0806 | 0x8035 | 0x88cc | 0x8809 | 0x888e | 0x8902) => return true,
            _ => return false,
        }
    }
    false
}

/// Checks if an IP packet is needed by its link and goes no further: IPv6 neighbour discovery and
/// group membership (RFC 4890 4.4.1), and DHCP between client and server.
pub fn is_link_control_packet(packet: &Packet) -> bool {
    let meta = packet.meta();
    if meta.class != PacketClass::Whole {
        return false;
    }
    let (source, destination) = parse::ends(packet);
    let is_on_link = |address: IpAddr| match address {
        IpAddr::V6(v6) => v6.is_unspecified() || v6.is_unicast_link_local(),
        IpAddr::V4(_) => false,
    };
    match meta.protocol {
        protocol::ICMPV6 => {
            let hop_limit = packet.network().get(7).copied();
            match packet.transport().first() {
                // RFC 4861 7.1, RFC 3122, RFC 3971: not forwarded by any router.
                Some(133..=136 | 141 | 142 | 148 | 149) => hop_limit == Some(255),
                // RFC 2710, RFC 3810, RFC 4286.
                Some(130..=132 | 143 | 151..=153) => hop_limit == Some(1) && is_on_link(source.addr.ip()),
                _ => false,
            }
        }
        protocol::UDP if meta.version == 4 => matches!((source.port, destination.port), (67, 68) | (68, 67)),
        protocol::UDP => {
            matches!((source.port, destination.port), (546, 547) | (547, 546)) && is_on_link(source.addr.ip())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn martians_are_addresses_that_no_router_forwards() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for (text, source, destination) in [
            ("127.0.0.1", true, true),
            ("0.0.0.0", true, true),
            ("0.1.2.3", true, true),
            ("240.0.0.1", true, true),
            ("255.255.255.255", true, false),
            ("224.0.0.1", true, false),
            ("169.254.1.1", false, false),
            ("192.0.2.1", false, false),
            ("10.0.0.1", false, false),
            ("::1", true, true),
            ("::", true, true),
            ("ff02::1", true, false),
            ("fe80::1", false, false),
            ("2001:db8::1", false, false),
        ] {
            let found = (is_martian_source(ip(text)), is_martian_destination(ip(text)));
            assert_eq!(found, (source, destination), "{text}");
        }
    }

    #[test]
    fn links_need_arp_lldp_and_spanning_tree() {
        let frame = |destination: [u8; 6], behind: &[u8]| {
            let mut packet =
                Packet::from_bytes(&[&destination[..], &[2, 0, 0, 0, 0, 1], behind, &[0; 46]].concat());
            packet.meta_mut().link = LinkType::Ethernet;
            packet
        };
        let bridges = [0x01, 0x80, 0xc2, 0, 0, 0];
        let host = [2, 0, 0, 0, 0, 2];
        for (destination, behind, needed) in [
            ([0xff; 6], &[8, 6][..], true),
            (host, &[0x81, 0, 0, 7, 8, 6], true),
            (bridges, &[0, 38, 0x42, 0x42, 3], true),
            ([0x01, 0x80, 0xc2, 0, 0, 0x0e], &[0x88, 0xcc], true),
            ([0x01, 0x00, 0x0c, 0xcc, 0xcc, 0xcd], &[0, 50, 0xaa, 0xaa, 3], true),
            ([0x01, 0x80, 0xc2, 0, 0, 0x30], &[0x12, 0x34], false),
            (host, &[0x12, 0x34], false),
            (host, &[0, 38, 0xaa, 0xaa, 3], false),
        ] {
            assert_eq!(is_link_control_frame(&frame(destination, behind)), needed, "{behind:?}");
        }
    }
}
