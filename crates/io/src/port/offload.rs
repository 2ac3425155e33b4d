//! Work that senders on the same machine leave to network cards, done here, so that frames are as
//! on a wire.
//!
//! A local stack, or one at the other end of a veth pair, leaves checksums open and hands over TCP
//! and UDP as frames of up to 64 KB, for the card to cut. On the way in, cards and the kernel join
//! segments to such frames again. With BIG TCP (`gso_max_size`, `gro_max_size` of an interface)
//! frames of TCP are longer, and no length field holds theirs. Functions must see, and ports must
//! send, frames as on a wire.

use packet::checksum;
use packet::wire::{EtherType, IpProtocol, ipv4, ipv6, tcp, udp, vlan};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Counters, network};

/// The header before each frame on a packet socket with `PACKET_VNET_HDR`, and on a TAP device with
/// `IFF_VNET_HDR`: `struct virtio_net_hdr` of virtio 1.2, section 5.1.6, in the machine's byte
/// order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OffloadHeader {
    pub flags: u8,
    pub segmentation: u8,
    pub header_len: u16,
    pub segment_len: u16,
    /// Offset of the bytes that the checksum covers.
    pub checksum_start: u16,
    /// Offset of the checksum from there.
    pub checksum_offset: u16,
}

impl OffloadHeader {
    /// Flag: the checksum must be completed.
    pub const NEEDS_CHECKSUM: u8 = 1;
    /// The frame must not be cut.
    pub const WHOLE: u8 = 0;
    /// TCP over IPv4.
    pub const TCP_V4: u8 = 1;
    /// TCP over IPv6.
    pub const TCP_V6: u8 = 4;
    /// UDP datagrams of one length; the last one may be shorter.
    pub const UDP: u8 = 5;
    /// May be added: the sender's window was reduced, which only the first segment reports.
    pub const ECN: u8 = 0x80;

    pub fn needs_checksum(&self) -> bool {
        self.flags & OffloadHeader::NEEDS_CHECKSUM != 0
    }
}

/// A VLAN tag that the kernel or the interface took out of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenTag {
    pub protocol: u16,
    pub control: u16,
}

/// A frame as received from the kernel.
pub struct RawFrame<'a> {
    /// Its bytes after [`FRONT_ROOM`] bytes of room for a tag.
    pub room: &'a mut [u8],
    pub offload: OffloadHeader,
    pub tag: Option<TakenTag>,
    /// The frame is longer than the room.
    pub is_cut_off: bool,
}

/// Bytes before a frame, to put a tag back.
pub const FRONT_ROOM: usize = 4;

/// Bytes of the longest frame that the kernel delivers without BIG TCP: IPv4's longest packet with
/// link-layer headers.
pub const FRAME_LEN_MAX: usize = 65_535 + 14 + 2 * 4;

/// Reason why a frame cannot be restored to its form on a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadError {
    /// It is longer than the room.
    CutOff,
    /// Its description does not match its headers.
    Headers,
    /// The kind of segmentation is unknown.
    Segmentation,
}

/// Hands over the frame, or its segments, as [`restore`], and counts them.
pub fn deliver(
    raw: RawFrame<'_>,
    segment: &mut Vec<u8>,
    counters: &mut Counters,
    each: &mut impl FnMut(&[u8]),
) {
    counters.completed += u64::from(raw.offload.needs_checksum());
    let restored = restore(raw, segment, |frame| {
        counters.received(frame);
        each(frame);
    });
    counters.unreadable += u64::from(restored.is_err());
}

/// Hands over the frame, or its segments in order, as a wire would carry them.
fn restore(
    raw: RawFrame<'_>,
    segment: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]),
) -> Result<(), OffloadError> {
    if raw.is_cut_off {
        return Err(OffloadError::CutOff);
    }
    let mut offload = raw.offload;
    let frame = match raw.tag {
        Some(tag) => {
            offload.checksum_start = offload.checksum_start.saturating_add(vlan::HEADER_LEN as u16);
            restore_tag(tag, raw.room).ok_or(OffloadError::Headers)?
        }
        None => &mut raw.room[FRONT_ROOM..],
    };
    if offload.segmentation != OffloadHeader::WHOLE {
        let frame = shorten(frame, &mut offload);
        return Layout::of(frame, &offload)?.cut(frame, segment, each);
    }
    if offload.needs_checksum() {
        complete(frame, offload.checksum_start.into(), offload.checksum_offset.into())
            .ok_or(OffloadError::Headers)?;
    }
    each(frame);
    Ok(())
}

/// Puts a tag back between the addresses and the EtherType, in the room before the frame.
fn restore_tag(tag: TakenTag, room: &mut [u8]) -> Option<&mut [u8]> {
    const ADDRESSES: usize = 12;
    if room.len() < FRONT_ROOM + ADDRESSES {
        return None;
    }
    room.copy_within(FRONT_ROOM..FRONT_ROOM + ADDRESSES, 0);
    room[ADDRESSES..][..2].copy_from_slice(&tag.protocol.to_be_bytes());
    room[ADDRESSES + 2..][..2].copy_from_slice(&tag.control.to_be_bytes());
    Some(room)
}

/// Gives a frame of BIG TCP the headers of a shorter one, because its length fits no field of its
/// IP header; each segment gets its own length.
fn shorten<'f>(frame: &'f mut [u8], offload: &mut OffloadHeader) -> &'f mut [u8] {
    let Some((network, ethertype)) = network(frame) else { return frame };
    let packet = &mut frame[network..];
    if ethertype == EtherType::IPV4 && packet.len() >= ipv4::HEADER_LEN {
        let mut header = ipv4::Packet::new_unchecked(packet);
        if header.total_len() == 0 {
            header.set_total_len(u16::MAX);
        }
    } else if ethertype == EtherType::IPV6 && has_jumbo_option(packet) {
        let protocol = IpProtocol(packet[ipv6::HEADER_LEN]);
        ipv6::Packet::new_unchecked(packet).set_next_header(protocol);
        frame.copy_within(..network + ipv6::HEADER_LEN, JUMBO_OPTION_LEN);
        offload.checksum_start = offload.checksum_start.saturating_sub(JUMBO_OPTION_LEN as u16);
        return &mut frame[JUMBO_OPTION_LEN..];
    }
    frame
}

/// Length of hop-by-hop options with a jumbo payload option alone (RFC 2675).
const JUMBO_OPTION_LEN: usize = 8;

/// Returns whether an IPv6 packet has a jumbo payload option alone. The kernel adds one to frames
/// of BIG TCP, for readers of their length; segments have none.
fn has_jumbo_option(packet: &[u8]) -> bool {
    const REST: [u8; 3] = [0, 0xc2, 4]; // No further 8 bytes, the option's type, its length.
    let Ok(header) = ipv6::Packet::new_checked_header(packet) else { return false };
    header.payload_len() == 0
        && header.next_header() == IpProtocol::HOP_BY_HOP
        && packet.len() >= ipv6::HEADER_LEN + JUMBO_OPTION_LEN
        && packet[ipv6::HEADER_LEN + 1..].starts_with(&REST)
}

/// Completes a checksum from the pseudo-header's sum in its field.
fn complete(frame: &mut [u8], start: usize, offset: usize) -> Option<()> {
    let covered = frame.get_mut(start..)?;
    covered.get(offset..offset + 2)?;
    let sum = finish(checksum::sum(covered), offset);
    covered[offset..offset + 2].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// Returns the value for a checksum's field at this offset of a segment or datagram. UDP's is never
/// 0, which means none.
pub fn finish(sum: u32, offset: usize) -> u16 {
    if offset == UDP_CHECKSUM { checksum::finish_udp(sum) } else { checksum::finish(sum) }
}

/// Offset of the checksum in UDP's header; in TCP's it is 16.
const UDP_CHECKSUM: usize = 6;

/// Offsets of the headers of a frame that will be cut.
struct Layout {
    /// The headers of a tunnel, before those of the packet that is cut.
    outer: Option<Outer>,
    network: usize,
    transport: usize,
    payload: usize,
    is_v4: bool,
    is_tcp: bool,
    /// Payload bytes of each segment but the last.
    step: usize,
}

/// Offsets of a tunnel's headers: an IP header, and UDP if present.
#[derive(Clone, Copy)]
struct Outer {
    network: usize,
    is_v4: bool,
    udp: Option<usize>,
}

impl Outer {
    /// Returns the tunnel with its outer IP header at `network` and its packet at `inner`. The
    /// bytes between them must be the same in all segments. None if they have GRE checksums or
    /// sequence numbers, or another tunnel with a length field.
    fn of(frame: &[u8], network: usize, is_v4: bool, inner: usize) -> Option<Outer> {
        let packet = frame.get(network..)?;
        let (protocol, at) = transport(packet, is_v4)?;
        let between = network + at..inner;
        let header = frame.get(between.clone())?;
        let udp = match protocol {
            IpProtocol::UDP if header.len() >= udp::HEADER_LEN => Some(between.start),
            IpProtocol::GRE
                if header.first().is_some_and(|flags| flags & (GRE_CHECKSUM | GRE_SEQUENCE) == 0) =>
            {
                None
            }
            IpProtocol::IPV4 | IpProtocol::IPV6 if header.is_empty() => None,
            _ => return None,
        };
        Some(Outer { network, is_v4, udp })
    }

    /// Adapts the headers to a segment that is final after its headers.
    fn number(self, segment: &mut [u8], number: usize) -> Option<()> {
        let packet = &mut segment[self.network..];
        fit_network(packet, self.is_v4, number)?;
        let Some(udp) = self.udp else { return Some(()) };
        let (network, datagram) = packet.split_at_mut(udp - self.network);
        let len = u16::try_from(datagram.len()).ok()?;
        let mut header = udp::Packet::new_unchecked(&mut *datagram);
        header.set_length(len);
        if header.checksum() != 0 {
            header.set_checksum(0);
            let sum = pseudo_header(network, self.is_v4, IpProtocol::UDP, len) + checksum::sum(datagram);
            udp::Packet::new_unchecked(datagram).set_checksum(checksum::finish_udp(sum));
        }
        Some(())
    }
}

/// Bits of GRE's first byte: a checksum, and a sequence number, are present.
const GRE_CHECKSUM: u8 = 0x80;
const GRE_SEQUENCE: u8 = 0x10;

/// Bytes of IPv4's longest header.
const IPV4_HEADER_LEN_MAX: usize = 60;

/// Returns the offset of the IP header that ends at `transport`, and whether it is IPv4; none if
/// its packet does not extend to the frame's end.
fn network_before(frame: &[u8], transport: usize) -> Option<(usize, bool)> {
    let v4 = (ipv4::HEADER_LEN..=IPV4_HEADER_LEN_MAX).step_by(4).find_map(|len| {
        let at = transport.checked_sub(len)?;
        let header = ipv4::Packet::new_checked_header(frame.get(at..)?).ok()?;
        let is_it = header.header_len() == len && usize::from(header.total_len()) == frame.len() - at;
        is_it.then_some((at, true))
    });
    v4.or_else(|| {
        let at = transport.checked_sub(ipv6::HEADER_LEN)?;
        let header = ipv6::Packet::new_checked_header(frame.get(at..)?).ok()?;
        (usize::from(header.payload_len()) == frame.len() - transport).then_some((at, false))
    })
}

impl Layout {
    fn of(frame: &[u8], offload: &OffloadHeader) -> Result<Layout, OffloadError> {
        let wanted = offload.segmentation & !OffloadHeader::ECN;
        let is_tcp = matches!(wanted, OffloadHeader::TCP_V4 | OffloadHeader::TCP_V6);
        if !is_tcp && wanted != OffloadHeader::UDP {
            return Err(OffloadError::Segmentation);
        }
        let (network, ethertype) = network(frame).ok_or(OffloadError::Headers)?;
        let is_v4 = match ethertype {
            EtherType::IPV4 => true,
            EtherType::IPV6 => false,
            _ => return Err(OffloadError::Headers),
        };
        let protocol = if is_tcp { IpProtocol::TCP } else { IpProtocol::UDP };
        let (first, at) = transport(&frame[network..], is_v4).ok_or(OffloadError::Headers)?;
        // A frame that the kernel joined has no open checksum, and so no checksum offset.
        let transport = match offload.needs_checksum() {
            true => usize::from(offload.checksum_start),
            false if first == protocol => network + at,
            false => return Err(OffloadError::Headers),
        };
        let (outer, (network, is_v4)) = match network + at < transport {
            true => {
                let (inner, inner_is_v4) = network_before(frame, transport).ok_or(OffloadError::Headers)?;
                // The tunnelled packet may have an Ethernet header and others before it.
                let outer = Outer::of(frame, network, is_v4, inner).ok_or(OffloadError::Segmentation)?;
                (Some(outer), (inner, inner_is_v4))
            }
            false => (None, (network, is_v4)),
        };
        let shortest = if is_v4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let header = frame.get(transport..).ok_or(OffloadError::Headers)?;
        let len = match is_tcp {
            true => tcp::Packet::new_checked(header).map_err(|_| OffloadError::Headers)?.header_len(),
            false => udp::HEADER_LEN,
        };
        let payload = transport + len;
        let step = usize::from(offload.segment_len);
        if transport < network + shortest || payload > frame.len() || step == 0 {
            return Err(OffloadError::Headers);
        }
        Ok(Layout { outer, network, transport, payload, is_v4, is_tcp, step })
    }

    /// Hands over the segments: each has the frame's headers, with the fields that change from one
    /// to the next.
    fn cut(
        &self,
        frame: &[u8],
        segment: &mut Vec<u8>,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), OffloadError> {
        let (headers, payload) = frame.split_at(self.payload);
        let count = payload.len().div_ceil(self.step).max(1);
        for number in 0..count {
            let at = number * self.step;
            let part = &payload[at..payload.len().min(at + self.step)];
            segment.clear();
            segment.extend_from_slice(headers);
            segment.extend_from_slice(part);
            self.number(segment, number, at, number + 1 == count).ok_or(OffloadError::Headers)?;
            each(segment);
        }
        Ok(())
    }

    /// Adapts the headers to the segment with this number and with payload from byte `at` on.
    fn number(&self, segment: &mut [u8], number: usize, at: usize, is_last: bool) -> Option<()> {
        let transport_len = u16::try_from(segment.len() - self.transport).ok()?;
        let protocol = if self.is_tcp { IpProtocol::TCP } else { IpProtocol::UDP };
        fit_network(&mut segment[self.network..], self.is_v4, number)?;
        let (before, transport) = segment.split_at_mut(self.transport);
        let pseudo = pseudo_header(&before[self.network..], self.is_v4, protocol, transport_len);
        if self.is_tcp {
            let mut header = tcp::Packet::new_unchecked(&mut *transport);
            header.set_sequence_number(header.sequence_number().wrapping_add(at as u32));
            let of_last = if is_last { 0 } else { tcp::Flags::FIN.0 | tcp::Flags::PSH.0 };
            let of_first = if number == 0 { 0 } else { tcp::Flags::CWR.0 };
            header.set_flags(tcp::Flags(header.flags().0 & !of_last & !of_first));
            header.set_checksum(0);
            let sum = checksum::finish(pseudo + checksum::sum(transport));
            tcp::Packet::new_unchecked(transport).set_checksum(sum);
        } else {
            let mut header = udp::Packet::new_unchecked(&mut *transport);
            header.set_length(transport_len);
            header.set_checksum(0);
            let sum = checksum::finish_udp(pseudo + checksum::sum(transport));
            udp::Packet::new_unchecked(transport).set_checksum(sum);
        }
        self.outer.map_or(Some(()), |outer| outer.number(segment, number))
    }
}

/// Adapts the IP header at the start of a packet to the segment with this number.
fn fit_network(packet: &mut [u8], is_v4: bool, number: usize) -> Option<()> {
    let len = u16::try_from(packet.len()).ok()?;
    if is_v4 {
        let mut header = ipv4::Packet::new_unchecked(packet);
        header.set_total_len(len);
        let ident = header.ident().wrapping_add(number as u16);
        header.set_ident(ident);
        header.check_header_len().ok()?;
        header.fill_checksum();
    } else {
        ipv6::Packet::new_unchecked(packet).set_payload_len(len.checked_sub(ipv6::HEADER_LEN as u16)?);
    }
    Some(())
}

/// Returns the sum of the pseudo-header for the payload of this IP header.
pub fn pseudo_header(network: &[u8], is_v4: bool, protocol: IpProtocol, len: u16) -> u32 {
    if is_v4 {
        let header = ipv4::Packet::new_unchecked(network);
        checksum::pseudo_header_v4(header.source(), header.destination(), protocol.0, len)
    } else {
        let header = ipv6::Packet::new_unchecked(network);
        checksum::pseudo_header_v6(header.source(), header.destination(), protocol.0, len.into())
    }
}

/// Returns the protocol and offset of the payload of an IP packet.
fn transport(packet: &[u8], is_v4: bool) -> Option<(IpProtocol, usize)> {
    if is_v4 {
        let header = ipv4::Packet::new_checked_header(packet).ok()?;
        return Some((header.protocol(), header.header_len()));
    }
    let header = ipv6::Packet::new_checked_header(packet).ok()?;
    let behind = packet.get(ipv6::HEADER_LEN..)?;
    let upper = packet::wire::ipv6_walk::walk(header.next_header(), behind).ok()?;
    Some((upper.protocol, ipv6::HEADER_LEN + upper.offset))
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, PacketHeaders, TransportHeader};
    use proptest::prelude::*;

    use super::*;

    const ADDRESSES: ([u8; 6], [u8; 6]) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);

    /// Builds a frame with complete checksums, by another implementation.
    fn frame(is_v4: bool, is_tcp: bool, vlan: bool, payload: &[u8]) -> Vec<u8> {
        let link = PacketBuilder::ethernet2(ADDRESSES.0, ADDRESSES.1);
        let mut bytes = Vec::new();
        macro_rules! behind {
            ($link:expr) => {{
                let ip = match is_v4 {
                    true => $link.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
                    false => $link.ipv6([0xfd; 16], [0xfe; 16], 64),
                };
                match is_tcp {
                    true => {
                        ip.tcp(1000, 80, 0xffff_ff00, 512).ack(7).psh().fin().cwr().write(&mut bytes, payload)
                    }
                    false => ip.udp(1000, 53).write(&mut bytes, payload),
                }
            }};
        }
        let written = if vlan { behind!(link.single_vlan(5.try_into().unwrap())) } else { behind!(link) };
        written.unwrap();
        bytes
    }

    fn transport_at(is_v4: bool, vlan: bool) -> usize {
        14 + if vlan { 4 } else { 0 } + if is_v4 { 20 } else { 40 }
    }

    /// Returns all frames that result from one.
    fn restored(
        frame: &[u8],
        offload: OffloadHeader,
        tag: Option<TakenTag>,
    ) -> Result<Vec<Vec<u8>>, OffloadError> {
        let mut room = vec![0; FRONT_ROOM];
        room.extend_from_slice(frame);
        let mut all = Vec::new();
        let raw = RawFrame { room: &mut room, offload, tag, is_cut_off: false };
        restore(raw, &mut Vec::new(), |frame| all.push(frame.to_vec()))?;
        Ok(all)
    }

    /// Checks all checksums against another implementation.
    fn is_sound(frame: &[u8]) -> bool {
        let parsed = PacketHeaders::from_ethernet_slice(frame).unwrap();
        let payload = parsed.payload.slice();
        match (parsed.net.unwrap(), parsed.transport.unwrap()) {
            (etherparse::NetHeaders::Ipv4(ip, _), TransportHeader::Tcp(tcp)) => {
                ip.header_checksum == ip.calc_header_checksum()
                    && tcp.checksum == tcp.calc_checksum_ipv4(&ip, payload).unwrap()
            }
            (etherparse::NetHeaders::Ipv4(ip, _), TransportHeader::Udp(udp)) => {
                ip.header_checksum == ip.calc_header_checksum()
                    && udp.checksum == udp.calc_checksum_ipv4(&ip, payload).unwrap()
            }
            (etherparse::NetHeaders::Ipv6(ip, _), TransportHeader::Tcp(tcp)) => {
                tcp.checksum == tcp.calc_checksum_ipv6(&ip, payload).unwrap()
            }
            (etherparse::NetHeaders::Ipv6(ip, _), TransportHeader::Udp(udp)) => {
                udp.checksum == udp.calc_checksum_ipv6(&ip, payload).unwrap()
            }
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn an_open_checksum_is_completed(is_v4: bool, is_tcp: bool, vlan: bool, payload: Vec<u8>) {
            let whole = frame(is_v4, is_tcp, vlan, &payload);
            let at = transport_at(is_v4, vlan);
            let offset = if is_tcp { 16 } else { 6 };
            // As a stack leaves it: the sum of the pseudo-header alone.
            let mut open = whole.clone();
            let len = (open.len() - at) as u16;
            let protocol = if is_tcp { 6 } else { 17 };
            let pseudo = match is_v4 {
                true => checksum::pseudo_header_v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), protocol, len),
                false => checksum::pseudo_header_v6([0xfd; 16].into(), [0xfe; 16].into(), protocol, len.into()),
            };
            let folded = !checksum::finish(pseudo);
            open[at + offset..][..2].copy_from_slice(&folded.to_be_bytes());
            let header = OffloadHeader {
                flags: OffloadHeader::NEEDS_CHECKSUM,
                checksum_start: at as u16,
                checksum_offset: offset as u16,
                ..OffloadHeader::default()
            };
            let restored = restored(&open, header, None).unwrap();
            prop_assert_eq!(restored.len(), 1);
            prop_assert!(is_sound(&restored[0]));
        }

        #[test]
        fn segments_are_what_the_frame_says(
            is_v4: bool, is_tcp: bool, vlan: bool, is_open: bool, len in 1usize..20_000, step in 200u16..1_500,
        ) {
            let payload: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let whole = frame(is_v4, is_tcp, vlan, &payload);
            let kind = match (is_tcp, is_v4) {
                (true, true) => OffloadHeader::TCP_V4 | OffloadHeader::ECN,
                (true, false) => OffloadHeader::TCP_V6,
                _ => OffloadHeader::UDP,
            };
            let header = OffloadHeader {
                flags: if is_open { OffloadHeader::NEEDS_CHECKSUM } else { 0 },
                segmentation: kind,
                segment_len: step,
                checksum_start: if is_open { transport_at(is_v4, vlan) as u16 } else { 0 },
                checksum_offset: if is_tcp { 16 } else { 6 },
                ..OffloadHeader::default()
            };
            let restored = restored(&whole, header, None).unwrap();
            prop_assert_eq!(restored.len(), len.div_ceil(step.into()));
            let mut put_together = Vec::new();
            for (number, segment) in restored.iter().enumerate() {
                prop_assert!(is_sound(segment));
                let parsed = PacketHeaders::from_ethernet_slice(segment).unwrap();
                if let Some(etherparse::NetHeaders::Ipv4(ip, _)) = &parsed.net {
                    prop_assert_eq!(usize::from(ip.identification), number);
                }
                if let Some(TransportHeader::Tcp(tcp)) = &parsed.transport {
                    let sequence = 0xffff_ff00u32.wrapping_add(put_together.len() as u32);
                    prop_assert_eq!(tcp.sequence_number, sequence);
                    let is_last = number + 1 == restored.len();
                    prop_assert_eq!((tcp.fin, tcp.psh, tcp.cwr), (is_last, is_last, number == 0));
                }
                put_together.extend_from_slice(parsed.payload.slice());
            }
            prop_assert_eq!(put_together, payload);
        }

        /// As BIG TCP: no field holds the length, and IPv6 may have an option with it.
        #[test]
        fn segments_of_frames_beyond_64_kb_are_those_of_a_wire(
            is_v4: bool, vlan: bool, is_open: bool, has_option: bool, len in 65_000usize..500_000,
        ) {
            let step = 1_428;
            let payload: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let mut whole = frame(is_v4, true, vlan, &payload[..1_000]);
            whole.extend_from_slice(&payload[1_000..]);
            let mut transport = transport_at(is_v4, vlan);
            let network = transport_at(true, vlan) - ipv4::HEADER_LEN;
            if is_v4 {
                whole[network + 2..][..2].fill(0);
            } else {
                whole[network + 4..][..2].fill(0);
            }
            if has_option && !is_v4 {
                let jumbo = ((whole.len() - transport + JUMBO_OPTION_LEN) as u32).to_be_bytes();
                whole[network + 6] = IpProtocol::HOP_BY_HOP.0;
                whole.splice(transport..transport, [&[IpProtocol::TCP.0, 0, 0xc2, 4], &jumbo[..]].concat());
                transport += JUMBO_OPTION_LEN;
            }
            let header = OffloadHeader {
                flags: if is_open { OffloadHeader::NEEDS_CHECKSUM } else { 0 },
                segmentation: if is_v4 { OffloadHeader::TCP_V4 } else { OffloadHeader::TCP_V6 },
                segment_len: step,
                checksum_start: if is_open { transport as u16 } else { 0 },
                checksum_offset: 16,
                ..OffloadHeader::default()
            };
            let restored = restored(&whole, header, None).unwrap();
            prop_assert_eq!(restored.len(), len.div_ceil(step.into()));
            let mut put_together = Vec::new();
            for segment in &restored {
                prop_assert!(is_sound(segment));
                let parsed = PacketHeaders::from_ethernet_slice(segment).unwrap();
                put_together.extend_from_slice(parsed.payload.slice());
            }
            prop_assert!(put_together == payload);
        }

        /// As a kernel's own VXLAN leaves it to the card: the inner packet must be cut, and each
        /// segment gets all headers.
        #[test]
        fn segments_in_a_tunnel_have_its_headers(
            outer_v4: bool, is_v4: bool, vlan: bool, has_sum: bool, len in 1usize..20_000, step in 200u16..1_500,
        ) {
            const VXLAN: [u8; 8] = [8, 0, 0, 0, 0, 0, 42, 0];
            let payload: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let inner = frame(is_v4, true, false, &payload);
            let mut whole = frame(outer_v4, false, vlan, &[&VXLAN[..], &inner].concat());
            let (udp, in_tunnel) = (transport_at(outer_v4, vlan), transport_at(outer_v4, vlan) + 8 + VXLAN.len());
            if !has_sum {
                whole[udp + 6..][..2].fill(0);
            }
            let header = OffloadHeader {
                flags: OffloadHeader::NEEDS_CHECKSUM,
                segmentation: if is_v4 { OffloadHeader::TCP_V4 } else { OffloadHeader::TCP_V6 },
                segment_len: step,
                checksum_start: (in_tunnel + transport_at(is_v4, false)) as u16,
                checksum_offset: 16,
                ..OffloadHeader::default()
            };
            let restored = restored(&whole, header, None).unwrap();
            prop_assert_eq!(restored.len(), len.div_ceil(step.into()));
            let mut put_together = Vec::new();
            for (number, segment) in restored.iter().enumerate() {
                let parsed = PacketHeaders::from_ethernet_slice(segment).unwrap();
                let Some(TransportHeader::Udp(outer)) = &parsed.transport else { panic!("{parsed:?}") };
                let is_right = if has_sum { is_sound(segment) } else { outer.checksum == 0 };
                prop_assert!(is_right);
                prop_assert_eq!(usize::from(outer.length), segment.len() - udp);
                if let Some(etherparse::NetHeaders::Ipv4(ip, _)) = &parsed.net {
                    prop_assert_eq!(usize::from(ip.identification), number);
                    prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                }
                prop_assert_eq!(&segment[udp + 8..in_tunnel], &VXLAN);
                prop_assert!(is_sound(&segment[in_tunnel..]));
                let parsed = PacketHeaders::from_ethernet_slice(&segment[in_tunnel..]).unwrap();
                put_together.extend_from_slice(parsed.payload.slice());
            }
            prop_assert_eq!(put_together, payload);
        }

        #[test]
        fn nothing_that_is_said_of_a_frame_breaks_it(
            bytes: Vec<u8>, numbers: [u16; 4], flags in 0u8..4, kind in 0u8..8, is_tagged: bool, is_frame: bool,
        ) {
            let frame = if is_frame { frame(true, true, true, &bytes) } else { bytes };
            let header = OffloadHeader {
                flags,
                segmentation: kind,
                header_len: numbers[0],
                segment_len: numbers[1] % 64,
                checksum_start: numbers[2] % 128,
                checksum_offset: numbers[3] % 32,
            };
            let _ = restored(&frame, header, is_tagged.then_some(TakenTag { protocol: 0x88a8, control: 3 }));
        }
    }

    #[test]
    fn only_udp_has_no_checksum_of_zero() {
        assert_eq!([finish(0xffff, 16), finish(0xffff, UDP_CHECKSUM)], [0, 0xffff]);
    }

    #[test]
    fn a_vlan_tag_is_put_back() {
        let tagged = frame(true, false, true, b"x");
        let mut taken = tagged.clone();
        taken.drain(12..16);
        let header = OffloadHeader::default();
        let tag = TakenTag { protocol: 0x8100, control: 5 };
        assert_eq!(restored(&taken, header, Some(tag)).unwrap(), [tagged]);
        assert_eq!(restored(&taken, header, None).unwrap(), [taken]);
    }
}
