//! Segments of TCP that follow each other are given to the kernel as one frame, which it, or a
//! card, cuts into just these again: what a stack leaves to cards on the way out, as
//! [`super::offload`] has it on the way in. One way through the kernel then carries up to 64 of
//! them, and a stack at the other end of a veth or TAP device gets them as they are: joined.
//!
//! Only what the cut gives back to the byte is joined. So each segment has to have right checksums,
//! and headers as the one before it, but for what counts on; a damaged one goes alone, and stays
//! damaged.

use packet::checksum;
use packet::wire::{EtherType, IpProtocol, ethernet, ipv4, ipv6, tcp};

use super::offload::{OffloadHeader, pseudo_header};

/// Frames that are sent as one, at most.
pub const JOINED_MAX: usize = 64;

/// Bytes of the longest headers that are joined.
const HEADERS_MAX: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + tcp::HEADER_LEN_MAX;

/// A frame of an outbox, or several that are sent as one.
#[derive(Clone)]
pub struct Parcel {
    /// How many.
    pub frames: usize,
    /// What the kernel is told of it.
    pub offload: OffloadHeader,
    headers: [u8; HEADERS_MAX],
    headers_len: usize,
}

impl Parcel {
    /// A frame as it is.
    fn of_one() -> Parcel {
        Parcel { frames: 1, offload: OffloadHeader::default(), headers: [0; HEADERS_MAX], headers_len: 0 }
    }

    /// The headers of frames that are sent as one. A frame alone has its own in its bytes.
    pub fn headers(&self) -> &[u8] {
        &self.headers[..self.headers_len]
    }

    /// From which byte on each of its frames follows the headers.
    pub fn skip(&self) -> usize {
        self.headers_len
    }
}

/// Puts the frames, which lie one behind the other in `bytes`, into parcels. None longer than the
/// link takes is joined, whose packets have at most `mtu` bytes.
pub fn parcels(bytes: &[u8], lens: &[usize], mtu: usize, parcels: &mut Vec<Parcel>) {
    parcels.clear();
    let (mut bytes, mut lens) = (bytes, lens);
    while let [first, ..] = lens {
        let could_join = lens.len() > 1 && *first <= mtu + ethernet::HEADER_LEN;
        let parcel = could_join.then(|| join(bytes, lens)).flatten().unwrap_or_else(Parcel::of_one);
        bytes = &bytes[lens[..parcel.frames].iter().sum::<usize>()..];
        lens = &lens[parcel.frames..];
        parcels.push(parcel);
    }
}

/// The first of these frames as one with those that follow it, if there are some.
fn join(bytes: &[u8], lens: &[usize]) -> Option<Parcel> {
    let (first, mut rest) = bytes.split_at(*lens.first()?);
    let layout = Layout::of(first)?;
    let step = first.len() - layout.headers_len;
    let mut headers = [0; HEADERS_MAX];
    headers[..layout.headers_len].copy_from_slice(&first[..layout.headers_len]);
    let (mut frames, mut payload_len, mut is_last) = (1, step, layout.flags(first) != tcp::Flags::ACK);
    for &len in lens.iter().take(JOINED_MAX).skip(1) {
        let next;
        (next, rest) = rest.split_at(len);
        let may_follow = !is_last
            && (layout.headers_len + 1..=first.len()).contains(&len)
            && layout.transport_len(payload_len) + len <= usize::from(u16::MAX);
        if !may_follow || !layout.is_cut(&headers, next, frames, payload_len) {
            break;
        }
        if frames == 1 && !layout.is_cut(&headers, first, 0, 0) {
            return None;
        }
        (frames, payload_len) = (frames + 1, payload_len + len - layout.headers_len);
        is_last = len < first.len() || layout.flags(next) != tcp::Flags::ACK;
        if is_last {
            layout.set_flags(&mut headers, layout.flags(next));
        }
    }
    if frames == 1 {
        return None;
    }
    layout.finish(&mut headers, payload_len);
    let offload = OffloadHeader {
        flags: OffloadHeader::NEEDS_CHECKSUM,
        segmentation: if layout.is_v4 { OffloadHeader::TCP_V4 } else { OffloadHeader::TCP_V6 },
        header_len: layout.headers_len as u16,
        segment_len: step as u16,
        checksum_start: layout.transport as u16,
        checksum_offset: TCP_CHECKSUM,
    };
    Some(Parcel { frames, offload, headers, headers_len: layout.headers_len })
}

/// Where TCP's checksum is in its header.
const TCP_CHECKSUM: u16 = 16;

/// A checksum that is right where 0 is, and that nobody calculates.
const UNUSUAL_ZERO: u16 = 0xffff;

/// What may be set in the flags of segments that are joined: PSH in the last one's only.
const PLAIN_FLAGS: [tcp::Flags; 2] = [tcp::Flags::ACK, tcp::Flags(tcp::Flags::ACK.0 | tcp::Flags::PSH.0)];

/// Where the headers of segments are that may be joined: TCP with a payload in whole packets,
/// without IP options, extension headers or tags.
struct Layout {
    is_v4: bool,
    transport: usize,
    headers_len: usize,
}

impl Layout {
    /// That of a frame, if it is one of those.
    fn of(frame: &[u8]) -> Option<Layout> {
        let header = ethernet::Frame::new_checked(frame).ok()?;
        let packet = &frame[ethernet::HEADER_LEN..];
        let (is_v4, network_len) = match header.ethertype()? {
            EtherType::IPV4 => {
                let ip = ipv4::Packet::new_checked_header(packet).ok()?;
                let is_whole = usize::from(ip.total_len()) == packet.len() && !ip.is_fragment();
                (is_whole && ip.protocol() == IpProtocol::TCP).then_some((true, ip.header_len()))?
            }
            EtherType::IPV6 => {
                let ip = ipv6::Packet::new_checked_header(packet).ok()?;
                let is_whole = usize::from(ip.payload_len()) + ipv6::HEADER_LEN == packet.len();
                (is_whole && ip.next_header() == IpProtocol::TCP).then_some((false, ip.header_len()))?
            }
            _ => return None,
        };
        if is_v4 && network_len != ipv4::HEADER_LEN {
            return None;
        }
        let transport = ethernet::HEADER_LEN + network_len;
        let segment = tcp::Packet::new_checked(&frame[transport..]).ok()?;
        let headers_len = transport + segment.header_len();
        let has_payload = headers_len < frame.len();
        (has_payload && PLAIN_FLAGS.contains(&segment.flags())).then_some(Layout {
            is_v4,
            transport,
            headers_len,
        })
    }

    /// Bytes of the packet behind the IP header, of a header and so much payload.
    fn transport_len(&self, payload_len: usize) -> usize {
        self.headers_len - self.transport + payload_len
    }

    fn flags(&self, frame: &[u8]) -> tcp::Flags {
        tcp::Packet::new_unchecked(&frame[self.transport..]).flags()
    }

    fn set_flags(&self, headers: &mut [u8], flags: tcp::Flags) {
        tcp::Packet::new_unchecked(&mut headers[self.transport..]).set_flags(flags);
    }

    /// Whether a cut behind the first one's headers gives just this frame, as the one with this
    /// number behind so much payload.
    fn is_cut(&self, first: &[u8; HEADERS_MAX], frame: &[u8], number: usize, payload_len: usize) -> bool {
        let (found, transport_len) = (&frame[..self.headers_len], frame.len() - self.transport);
        let segment = tcp::Packet::new_unchecked(&found[self.transport..]);
        let mut expected = *first;
        let (network, transport) = expected.split_at_mut(self.transport);
        self.set_numbers(&mut network[ethernet::HEADER_LEN..], transport_len, number);
        let mut header = tcp::Packet::new_unchecked(transport);
        header.set_sequence_number(header.sequence_number().wrapping_add(payload_len as u32));
        header.set_flags(segment.flags());
        header.set_checksum(segment.checksum());
        let sum = || self.pseudo_header(frame, transport_len) + checksum::sum(&frame[self.transport..]);
        PLAIN_FLAGS.contains(&segment.flags())
            && expected[..self.headers_len] == *found
            && segment.checksum() != UNUSUAL_ZERO
            && checksum::verify(sum())
    }

    /// Makes an IP header that of the packet with this number, with so much behind it.
    fn set_numbers(&self, network: &mut [u8], len: usize, number: usize) {
        if self.is_v4 {
            let mut header = ipv4::Packet::new_unchecked(network);
            header.set_total_len((ipv4::HEADER_LEN + len) as u16);
            header.set_ident(header.ident().wrapping_add(number as u16));
            header.fill_checksum();
        } else {
            ipv6::Packet::new_unchecked(network).set_payload_len(len as u16);
        }
    }

    fn pseudo_header(&self, frame: &[u8], len: usize) -> u32 {
        pseudo_header(&frame[ethernet::HEADER_LEN..self.transport], self.is_v4, IpProtocol::TCP, len as u16)
    }

    /// Makes the first segment's headers those of all together, with the checksum left open.
    fn finish(&self, headers: &mut [u8; HEADERS_MAX], payload_len: usize) {
        let len = self.transport_len(payload_len);
        self.set_numbers(&mut headers[ethernet::HEADER_LEN..self.transport], len, 0);
        let open = !checksum::finish(self.pseudo_header(headers, len));
        tcp::Packet::new_unchecked(&mut headers[self.transport..]).set_checksum(open);
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use packet::wire::IpAddresses;
    use proptest::prelude::*;

    use super::*;
    use crate::port::Counters;
    use crate::port::offload::{FRONT_ROOM, Raw, tell};

    const MTU: usize = 1_500;

    /// What the other way's cut makes of a frame, or of what is sent as one.
    fn cut(frame: &[u8], offload: OffloadHeader) -> Vec<Vec<u8>> {
        let mut room = [&[0; FRONT_ROOM], frame].concat();
        let raw = Raw { room: &mut room, offload, tag: None, is_cut_off: false };
        let (mut counters, mut frames) = (Counters::default(), Vec::new());
        tell(raw, &mut Vec::new(), &mut counters, &mut |frame: &[u8]| frames.push(frame.to_vec()));
        assert_eq!(counters.unreadable, 0);
        frames
    }

    /// Segments as a stack sends them.
    fn segments(is_v4: bool, options: &[u8], len: usize, step: u16) -> Vec<Vec<u8>> {
        let payload: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
        let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let ip = match is_v4 {
            true => link.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
            false => link.ipv6([0xfd; 16], [0xfe; 16], 64),
        };
        let tcp = ip.tcp(1000, 80, 0xffff_f000, 512).ack(7).psh().options_raw(options).unwrap();
        let mut frame = Vec::new();
        tcp.write(&mut frame, &payload).unwrap();
        let segmentation = if is_v4 { OffloadHeader::TCP_V4 } else { OffloadHeader::TCP_V6 };
        cut(&frame, OffloadHeader { segmentation, segment_len: step, ..OffloadHeader::default() })
    }

    /// How many frames each parcel has, and what comes out at the other end.
    fn sent(frames: &[Vec<u8>]) -> (Vec<usize>, Vec<Vec<u8>>) {
        let lens: Vec<usize> = frames.iter().map(Vec::len).collect();
        let mut parcels = Vec::new();
        super::parcels(&frames.concat(), &lens, MTU, &mut parcels);
        let (mut rest, mut came) = (frames, Vec::new());
        for parcel in &parcels {
            let (these, others) = rest.split_at(parcel.frames);
            let payload = these.iter().flat_map(|frame| frame[parcel.skip()..].to_vec());
            let frame: Vec<u8> = parcel.headers().iter().copied().chain(payload).collect();
            came.extend(cut(&frame, parcel.offload));
            rest = others;
        }
        assert!(rest.is_empty());
        (parcels.iter().map(|parcel| parcel.frames).collect(), came)
    }

    proptest! {
        #[test]
        fn what_a_cut_gives_is_joined(
            is_v4: bool, has_options: bool, count in 1usize..60, last in 1usize..900, step in 900u16..1_000,
        ) {
            let options: &[u8] = if has_options { &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2] } else { &[] };
            let frames = segments(is_v4, options, (count - 1) * usize::from(step) + last, step);
            let (parcels, came) = sent(&frames);
            prop_assert_eq!(parcels, [count]);
            prop_assert_eq!(came, frames);
        }

        /// Damaged, missing, changed, doubled, in another order, of several flows: all come as they
        /// were sent.
        #[test]
        fn nothing_else_changes(
            flows in prop::collection::vec((any::<bool>(), 1usize..9_000, 500u16..1_460), 1..5),
            changes in prop::collection::vec(
                (any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 0..6,
            ),
        ) {
            let mut frames: Vec<Vec<u8>> =
                flows.iter().flat_map(|&(is_v4, len, step)| segments(is_v4, &[], len, step)).collect();
            for (at, byte, value, kind) in changes {
                let at = at.index(frames.len());
                match kind {
                    0 => frames[at].truncate(54 + usize::from(value)),
                    1 => frames.swap(at, 0),
                    2 => frames.insert(at, frames[at].clone()),
                    _ => {
                        // Headers are hit as often as payloads.
                        let len = frames[at].len();
                        let byte = byte.index(if value % 2 == 0 { len } else { len.min(80) });
                        frames[at][byte] = value;
                    }
                }
            }
            let (_, came) = sent(&frames);
            prop_assert_eq!(came, frames);
        }
    }

    #[test]
    fn no_more_is_joined_than_a_packet_has_room_for() {
        let frames = segments(true, &[], 64_000, 700);
        let (parcels, came) = sent(&frames);
        assert_eq!((parcels, came), (vec![64, 28], frames));
        // 46 of them have more bytes than a packet may.
        let mut frames = segments(true, &[], 44 * 1_448, 1_448);
        for number in 44..46u32 {
            let mut next = frames[43].clone();
            let (network, transport) = next[ethernet::HEADER_LEN..].split_at_mut(ipv4::HEADER_LEN);
            let mut ip = ipv4::Packet::new_unchecked(network);
            ip.set_ident(number as u16);
            ip.fill_checksum();
            let addresses = IpAddresses::V4 { source: ip.source(), destination: ip.destination() };
            let mut tcp = tcp::Packet::new_unchecked(transport);
            tcp.set_sequence_number(0xffff_f000u32.wrapping_add(number * 1_448));
            tcp.fill_checksum(addresses);
            frames.push(next);
        }
        // What was the last one's alone.
        let last = tcp::Packet::new_unchecked(&frames[43][34..]).flags();
        assert_eq!(last, PLAIN_FLAGS[1]);
        assert_eq!(sent(&frames).0, [44, 1, 1]);
    }

    #[test]
    fn what_is_too_long_for_the_link_goes_alone() {
        let frames = segments(true, &[], 6_000, 1_461);
        assert_eq!(sent(&frames).0, [1; 5]);
    }

    #[test]
    fn a_damaged_segment_goes_alone() {
        let mut frames = segments(true, &[], 5_000, 1_000);
        frames[2][100] ^= 1;
        assert_eq!(sent(&frames), (vec![2, 1, 2], frames));
    }
}
