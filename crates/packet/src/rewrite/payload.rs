//! Payload replacement: only the header of the outermost IP packet stays.

use super::grow_link;
use crate::checksum::Delta;
use crate::{DropReason, Packet, PacketClass, parse};

const V6_LEN: usize = 40;

impl Packet {
    /// Replaces everything after the outermost IP header, up to the packet's end, by `payload`, and
    /// updates protocol, length and checksum of that header. IPv6 extension headers are replaced
    /// too. The packet's headers are parsed again.
    ///
    /// # Errors
    /// [`DropReason::TooBig`] if there is no room or no length field for it, and
    /// [`DropReason::Internal`] if there is no IP header: nothing is changed then. Or a fault in
    /// the headers of the new payload.
    pub fn replace_payload(&mut self, protocol: u8, payload: &[u8]) -> Result<(), DropReason> {
        let (l3, before) = (self.meta().outer_l3 as usize, self.ip_len());
        let header_len = match self.data().get(l3) {
            Some(first) if first >> 4 == 4 => usize::from(first & 0xf) * 4,
            _ => V6_LEN,
        };
        let at = l3 + header_len;
        if self.meta().class == PacketClass::NotIp || at > self.len() {
            return Err(DropReason::Internal);
        }
        let (said, is_v4) = (header_len + payload.len(), header_len != V6_LEN || self.data()[l3] >> 4 == 4);
        let Ok(length) = u16::try_from(if is_v4 { said } else { payload.len() }) else {
            return Err(DropReason::TooBig);
        };
        if payload.len() > self.tailroom() + self.len() - at {
            return Err(DropReason::TooBig);
        }
        self.truncate(at);
        self.extend(payload).map_err(|_| DropReason::TooBig)?;
        let wire_len = self.len() as u32;
        let (data, meta) = self.parts_mut();
        set_header(data.get_mut(l3..).unwrap_or_default(), length, protocol);
        meta.wire_len = wire_len;
        grow_link(data, meta.link, said as i32 - before as i32);
        parse::reparse(self)
    }
}

fn set_header(header: &mut [u8], length: u16, protocol: u8) {
    match header {
        [first, _, len_high, len_low, _, _, _, _, ttl, next, high, low, ..] if *first >> 4 == 4 => {
            let delta = Delta::of16(u16::from_be_bytes([*len_high, *len_low]), length)
                + Delta::of16(u16::from_be_bytes([*ttl, *next]), u16::from_be_bytes([*ttl, protocol]));
            [*len_high, *len_low] = length.to_be_bytes();
            *next = protocol;
            [*high, *low] = delta.apply(u16::from_be_bytes([*high, *low])).to_be_bytes();
        }
        [_, _, _, _, len_high, len_low, next, ..] => {
            [*len_high, *len_low] = length.to_be_bytes();
            *next = protocol;
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowHasher, LinkType, Parser, checksum};

    fn udp(version: u8) -> Vec<u8> {
        let mut packet = match version {
            4 => vec![0x46, 0, 0, 36, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 0],
            _ => [&[0x60, 0, 0, 0, 0, 12, 17, 64][..], &[1; 32]].concat(),
        };
        if version == 4 {
            let sum = checksum::checksum(&packet);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        [&packet[..], &[0, 7, 0, 7, 0, 12, 0, 0], b"text"].concat()
    }

    fn parsed(link: LinkType, before: &[u8], network: &[u8], behind: &[u8]) -> Packet {
        let mut packet = Packet::from_bytes(&[before, network, behind].concat());
        packet.meta_mut().link = link;
        Parser::new(FlowHasher::new(1)).parse(&mut packet).unwrap();
        packet
    }

    #[test]
    fn replaced_payload_can_be_restored() {
        for (version, ether_type) in [(4, [8, 0]), (6, [0x86, 0xdd])] {
            let network = udp(version);
            let at = network.len() - 12;
            let ethernet = [&[2; 12][..], &ether_type].concat();
            let ppp = if version == 4 { [0, 0x21] } else { [0, 0x57] };
            let len = (network.len() as u16 + 2).to_be_bytes();
            let pppoe = [&[2; 12][..], &[0x88, 0x64, 0x11, 0, 0, 1, len[0], len[1]], &ppp].concat();
            for before in [ethernet, pppoe] {
                let mut packet = parsed(LinkType::Ethernet, &before, &network, b"padding");
                let (key, hash) = (packet.meta().key, packet.meta().hash);
                packet.replace_payload(254, &[9; 100]).unwrap();
                let meta = packet.meta();
                assert_eq!((meta.key, meta.hash), (key, hash), "as it came");
                assert_eq!((meta.protocol, meta.wire_len), (254, packet.len() as u32));
                assert_eq!((packet.ip_len(), packet.len()), (at + 100, before.len() + at + 100));
                assert_eq!(packet.data()[before.len() + at..], [9; 100]);
                assert!(version == 6 || checksum::checksum(&packet.data()[before.len()..][..at]) == 0);
                packet.replace_payload(17, &network[at..]).unwrap();
                assert_eq!(packet.data(), [&before[..], &network].concat(), "IPv{version}");
            }
        }
    }

    #[test]
    fn packets_that_do_not_fit_are_unchanged() {
        let mut packet = parsed(LinkType::RawIp, &[], &udp(4), &[]);
        assert_eq!(packet.replace_payload(254, &[0; 2_000]), Err(DropReason::TooBig));
        assert_eq!(packet.replace_payload(254, &[0; 65_512]), Err(DropReason::TooBig));
        assert_eq!(packet.data(), udp(4));
    }
}
