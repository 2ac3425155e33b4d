//! Consecutive TCP segments are given to the kernel as one frame, which it, or a card, cuts into
//! exactly these segments again. A stack leaves the same work to cards on the way out;
//! [`super::offload`] is the reverse. One pass through the kernel then carries up to 64 segments,
//! and a stack at the other end of a veth or TAP device gets them joined.
//!
//! Only segments that the cut restores to the byte are joined. Each must have correct checksums,
//! and the same headers as the one before it, except for fields that count. A damaged segment is
//! sent alone, and stays damaged.

use packet::checksum;
use packet::wire::{EtherType, IpProtocol, ethernet, ipv4, ipv6, tcp};

use super::offload::{OffloadHeader, pseudo_header};

/// Frames sent as one.
pub const JOINED_MAX: usize = 64;

/// Bytes of the longest headers that are joined.
const HEADERS_MAX: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + tcp::HEADER_LEN_MAX;

/// A frame of a burst, or several that are sent as one.
#[derive(Clone)]
pub struct SendUnit {
    /// The number of frames.
    pub frames: usize,
    /// The description for the kernel.
    pub offload: OffloadHeader,
    headers: [u8; HEADERS_MAX],
    headers_len: usize,
}

impl SendUnit {
    /// Returns a single frame, unchanged.
    fn of_one() -> SendUnit {
        SendUnit { frames: 1, offload: OffloadHeader::default(), headers: [0; HEADERS_MAX], headers_len: 0 }
    }

    /// Returns the headers of joined frames. A single frame has its own in its bytes.
    pub fn headers(&self) -> &[u8] {
        &self.headers[..self.headers_len]
    }

    /// Returns the offset in each frame of the bytes that follow the headers.
    pub fn skip(&self) -> usize {
        self.headers_len
    }
}

/// Splits the frames, one after the other in `bytes`, into units. Joins only frames with packets of
/// up to `mtu` bytes.
pub fn units(bytes: &[u8], lens: &[usize], mtu: usize, units: &mut Vec<SendUnit>) {
    units.clear();
    let (mut bytes, mut lens) = (bytes, lens);
    while let [first, ..] = lens {
        let could_join = lens.len() > 1 && *first <= mtu + ethernet::HEADER_LEN;
        let unit = could_join.then(|| join(bytes, lens)).flatten().unwrap_or_else(SendUnit::of_one);
        bytes = &bytes[lens[..unit.frames].iter().sum::<usize>()..];
        lens = &lens[unit.frames..];
        units.push(unit);
    }
}

/// Joins the first of these frames with the next ones, if they continue it.
fn join(bytes: &[u8], lens: &[usize]) -> Option<SendUnit> {
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
    Some(SendUnit { frames, offload, headers, headers_len: layout.headers_len })
}

/// Offset of the checksum in TCP's header.
const TCP_CHECKSUM: u16 = 16;

/// A checksum that is correct where 0 is, and that no implementation calculates.
const UNUSUAL_ZERO: u16 = 0xffff;

/// Flags of segments that may be joined; PSH only in the last one.
const PLAIN_FLAGS: [tcp::Flags; 2] = [tcp::Flags::ACK, tcp::Flags(tcp::Flags::ACK.0 | tcp::Flags::PSH.0)];

/// Offsets of the headers of segments that may be joined: TCP with a payload in whole packets,
/// without IP options, extension headers or tags.
struct Layout {
    is_v4: bool,
    transport: usize,
    headers_len: usize,
}

impl Layout {
    /// Returns the layout of a frame that may be joined.
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

    /// Returns the bytes of the IP payload, with a TCP header and this payload.
    fn transport_len(&self, payload_len: usize) -> usize {
        self.headers_len - self.transport + payload_len
    }

    fn flags(&self, frame: &[u8]) -> tcp::Flags {
        tcp::Packet::new_unchecked(&frame[self.transport..]).flags()
    }

    fn set_flags(&self, headers: &mut [u8], flags: tcp::Flags) {
        tcp::Packet::new_unchecked(&mut headers[self.transport..]).set_flags(flags);
    }

    /// Returns whether cutting after the first segment's headers gives exactly this frame, as the
    /// one with this number after this much payload.
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

    /// Adapts an IP header to the packet with this number and length.
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

    /// Adapts the first segment's headers to the joined frame, with an open checksum.
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
    use crate::port::offload::{FRONT_ROOM, RawFrame, deliver};

    const MTU: usize = 1_500;

    /// Cuts a frame by the reverse implementation.
    fn cut(frame: &[u8], offload: OffloadHeader) -> Vec<Vec<u8>> {
        let mut room = [&[0; FRONT_ROOM], frame].concat();
        let raw = RawFrame { room: &mut room, offload, tag: None, is_cut_off: false };
        let (mut counters, mut frames) = (Counters::default(), Vec::new());
        deliver(raw, &mut Vec::new(), &mut counters, &mut |frame: &[u8]| frames.push(frame.to_vec()));
        assert_eq!(counters.unreadable, 0);
        frames
    }

    /// Builds segments as a stack sends them.
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

    /// Returns the frames of each unit, and the frames at the other end.
    fn sent(frames: &[Vec<u8>]) -> (Vec<usize>, Vec<Vec<u8>>) {
        let lens: Vec<usize> = frames.iter().map(Vec::len).collect();
        let mut units = Vec::new();
        super::units(&frames.concat(), &lens, MTU, &mut units);
        let (mut rest, mut arrived) = (frames, Vec::new());
        for unit in &units {
            let (these, others) = rest.split_at(unit.frames);
            let payload = these.iter().flat_map(|frame| frame[unit.skip()..].to_vec());
            let frame: Vec<u8> = unit.headers().iter().copied().chain(payload).collect();
            arrived.extend(cut(&frame, unit.offload));
            rest = others;
        }
        assert!(rest.is_empty());
        (units.iter().map(|unit| unit.frames).collect(), arrived)
    }

    proptest! {
        #[test]
        fn what_a_cut_gives_is_joined(
            is_v4: bool, has_options: bool, count in 1usize..60, last in 1usize..900, step in 900u16..1_000,
        ) {
            let options: &[u8] = if has_options { &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2] } else { &[] };
            let frames = segments(is_v4, options, (count - 1) * usize::from(step) + last, step);
            let (units, arrived) = sent(&frames);
            prop_assert_eq!(units, [count]);
            prop_assert_eq!(arrived, frames);
        }

        /// Damaged, missing, changed, doubled, reordered, of several flows: all arrive as they were
        /// sent.
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
            let (_, arrived) = sent(&frames);
            prop_assert_eq!(arrived, frames);
        }
    }

    #[test]
    fn joined_frames_fit_a_packet() {
        let frames = segments(true, &[], 64_000, 700);
        let (units, arrived) = sent(&frames);
        assert_eq!((units, arrived), (vec![64, 28], frames));
        // 46 of them have more bytes than a packet may have.
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
        // Flags of the last one alone.
        let last = tcp::Packet::new_unchecked(&frames[43][34..]).flags();
        assert_eq!(last, PLAIN_FLAGS[1]);
        assert_eq!(sent(&frames).0, [44, 1, 1]);
    }

    #[test]
    fn frames_too_long_for_the_link_are_sent_alone() {
        let frames = segments(true, &[], 6_000, 1_461);
        assert_eq!(sent(&frames).0, [1; 5]);
    }

    #[test]
    fn a_damaged_segment_is_sent_alone() {
        let mut frames = segments(true, &[], 5_000, 1_000);
        frames[2][100] ^= 1;
        assert_eq!(sent(&frames), (vec![2, 1, 2], frames));
    }
}
