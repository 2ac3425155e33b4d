//! Packets between hosts: Geneve (RFC 8926) with the stamp as an option.
//!
//! ```text
//! Geneve: version and length of options, protocol of the frame, network identifier     8 bytes
//! option: class 0xfff5 (experimental), type: the form of the stamp                     4 bytes
//! stamp: see `stamps`                                                        16 to 68 bytes
//! option, with fragments and ICMP errors: class 0xfff5, type 3, the flow's key        52 bytes
//! option, with a capture that was cut: class 0xfff5, type 4, length on the wire         8 bytes
//! the frame from the link layer on
//! ```
//!
//! The network identifier has the port that the packet arrived at (16 bits), its side (1) and, if
//! the frame does not begin with Ethernet, a mark (1) that its link type is in the field of the
//! protocol. The options are critical (RFC 8926, 3.5): a receiver that does not know them must not
//! forward the packet.

use graph::Graph;
use packet::wire::geneve;
use packet::{FlowKey, LinkType, Packet, PacketClass, PacketPool, Side};
use protocol::message::Stamp;
use protocol::wire::{FrameError, Reader};
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::put;
use super::stamps::{ShortStamp, StampForm, put_stamp, read_stamp};

/// The class of our options: one of those for experiments (RFC 8926, 7.3).
pub const OPTION_CLASS: u16 = 0xfff5;
/// The bit of an option's type that forbids to ignore it.
const CRITICAL: u8 = 0x80;
/// The type of the option with the flow's key.
const KEY: u8 = 3;
/// The type of the option with the length on the wire.
const WIRE_LEN: u8 = 4;
/// Transparent Ethernet bridging, as an EtherType.
const ETHERNET: u16 = 0x6558;
/// The bits of the network identifier after the port.
const OUTSIDE: u8 = 0x80;
const OTHER_LINK: u8 = 0x40;

const KEY_LEN: usize = size_of::<FlowKey>();

/// The headers of most packets: those of Ethernet whose only option is a short stamp.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct PlainHead {
    options_len: u8,
    flags: u8,
    protocol: U16,
    ingress: U16,
    marks: u8,
    reserved: u8,
    class: U16,
    kind: u8,
    stamp_len: u8,
    stamp: ShortStamp,
}

impl PlainHead {
    /// Returns the headers of a packet, if these are all that it needs.
    #[inline]
    fn new(stamp: &Stamp, packet: &Packet) -> Option<PlainHead> {
        let meta = packet.meta();
        let is_plain = meta.link == LinkType::Ethernet
            && meta.class == PacketClass::Whole
            && meta.wire_len as usize == packet.len();
        let stamp = ShortStamp::new(stamp, meta.transit.timestamp_ns).filter(|_| is_plain)?;
        Some(PlainHead {
            options_len: PlainHead::OPTIONS_LEN,
            flags: 0,
            protocol: ETHERNET.into(),
            ingress: meta.transit.ingress.into(),
            marks: if meta.transit.side == Side::Outside { OUTSIDE } else { 0 },
            reserved: 0,
            class: OPTION_CLASS.into(),
            kind: StampForm::Short as u8 | CRITICAL,
            stamp_len: PlainHead::STAMP_LEN,
            stamp,
        })
    }

    /// Lengths in units of four bytes.
    const STAMP_LEN: u8 = (size_of::<ShortStamp>() / 4) as u8;
    const OPTIONS_LEN: u8 = PlainHead::STAMP_LEN + 1;

    /// Returns whether these are the headers of a plain packet.
    #[inline]
    fn is_valid(&self) -> bool {
        (self.options_len, self.flags, self.protocol.get()) == (PlainHead::OPTIONS_LEN, 0, ETHERNET)
            && self.marks & OTHER_LINK == 0
            && (self.class.get(), self.kind) == (OPTION_CLASS, StampForm::Short as u8 | CRITICAL)
            && self.stamp_len == PlainHead::STAMP_LEN
    }
}

/// Appends a packet with its stamp.
pub fn write_packet(out: &mut Vec<u8>, stamp: &Stamp, packet: &Packet) {
    if let Some(head) = PlainHead::new(stamp, packet) {
        out.extend_from_slice(head.as_bytes());
        return out.extend_from_slice(packet.data());
    }
    let (meta, start) = (packet.meta(), out.len());
    let is_other = meta.link != LinkType::Ethernet;
    let protocol = if is_other { meta.link.number() } else { ETHERNET };
    out.extend_from_slice(&[0, 0]); // The length of the options follows.
    put!(out, protocol, meta.transit.ingress);
    let side = if meta.transit.side == Side::Outside { OUTSIDE } else { 0 };
    out.extend_from_slice(&[side | if is_other { OTHER_LINK } else { 0 }, 0]);
    let at = begin_option(out);
    let form = put_stamp(out, stamp, meta.transit.timestamp_ns);
    end_option(out, at, form as u8 | CRITICAL);
    if !matches!(meta.class, PacketClass::Whole) {
        let at = begin_option(out);
        out.extend_from_slice(meta.key.as_bytes());
        out.extend_from_slice(&[u8::from(meta.reversed), 0, 0, 0]);
        end_option(out, at, KEY | CRITICAL);
    }
    if meta.wire_len as usize != packet.len() {
        let at = begin_option(out);
        put!(out, meta.wire_len);
        end_option(out, at, WIRE_LEN | CRITICAL);
    }
    // Up to 68 + 52 + 4 + 12 bytes: less than the 252 that fit.
    out[start] = ((out.len() - start - geneve::HEADER_LEN) / 4) as u8;
    out.extend_from_slice(packet.data());
}

fn begin_option(out: &mut Vec<u8>) -> usize {
    put!(out, OPTION_CLASS);
    out.extend_from_slice(&[0, 0]);
    out.len()
}

/// Completes the option whose data begin at `at`.
fn end_option(out: &mut Vec<u8>, at: usize, kind: u8) {
    let len = (out.len() - at).next_multiple_of(4);
    out.resize(at + len, 0);
    (out[at - 2], out[at - 1]) = (kind, (len / 4) as u8);
}

/// A packet as it arrived, before its bytes are in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct ArrivedPacket<'a> {
    /// The stamp.
    pub stamp: Stamp,
    /// Its arrival at the dispatcher.
    pub timestamp_ns: u64,
    /// The port that it arrived at there.
    pub ingress: u16,
    /// The side that it entered by.
    pub side: Side,
    /// Format of the frame's first header.
    pub link: LinkType,
    /// The flow's key, and true if the packet goes from its second end to its first: only if the
    /// packet alone does not show them.
    pub key: Option<(FlowKey, bool)>,
    /// Length on the wire, in bytes.
    pub wire_len: u32,
    /// The frame.
    pub frame: &'a [u8],
}

/// Reads a packet. `now_ns`: the receiver's clock, as the sender set it.
///
/// # Errors
/// If it is not one, or has a critical option that is not known.
pub fn read_packet<'a>(from: &mut Reader<'a>, now_ns: u64) -> Result<ArrivedPacket<'a>, FrameError> {
    let mut plain = *from;
    if let Some(head) = plain.head::<PlainHead>().ok().filter(|head| head.is_valid()) {
        let (stamp, timestamp_ns) = head.stamp.read(now_ns);
        let (side, ingress, frame) = (side_of(head.marks), head.ingress.get(), plain.rest());
        let wire_len = len_of(frame)?;
        let link = LinkType::Ethernet;
        return Ok(ArrivedPacket { stamp, timestamp_ns, ingress, side, link, key: None, wire_len, frame });
    }
    let (first, flags, protocol, ingress) = (from.u8()?, from.u8()?, from.u16()?, from.u16()?);
    let (marks, _) = (from.u8()?, from.u8()?);
    if first >> 6 != 0 || flags & 0x80 != 0 {
        return Err(FrameError::Invalid("Geneve header"));
    }
    let link = match marks & OTHER_LINK {
        0 if protocol == ETHERNET => LinkType::Ethernet,
        0 => return Err(FrameError::Invalid("protocol")),
        _ => LinkType::from_number(protocol),
    };
    let mut options = Reader::new(from.bytes(usize::from(first & 0x3f) * 4)?);
    let (mut stamp, mut key, mut wire_len) = (None, None, None);
    while let Some(option) = next_option(&mut options)? {
        let (class, kind, mut data) = option;
        match (class, kind & !CRITICAL) {
            (OPTION_CLASS, KEY) => {
                let bytes = data.bytes(KEY_LEN)?;
                let of = FlowKey::read_from_bytes(bytes).map_err(|_| FrameError::Invalid("key"))?;
                key = Some((of, data.u8()? & 1 != 0));
            }
            (OPTION_CLASS, WIRE_LEN) => wire_len = Some(data.u32()?),
            (OPTION_CLASS, form) if let Some(form) = StampForm::of_type(form) => {
                stamp = Some(read_stamp(&mut data, form, now_ns)?);
            }
            _ if kind & CRITICAL != 0 => return Err(FrameError::Invalid("option")),
            _ => {}
        }
    }
    let (stamp, timestamp_ns) = stamp.ok_or(FrameError::Invalid("stamp"))?;
    let frame = from.rest();
    let (side, len) = (side_of(marks), len_of(frame)?);
    let wire_len = wire_len.unwrap_or(len).max(len);
    Ok(ArrivedPacket { stamp, timestamp_ns, ingress, side, link, key, wire_len, frame })
}

#[inline]
fn side_of(marks: u8) -> Side {
    if marks & OUTSIDE != 0 { Side::Outside } else { Side::Inside }
}

#[inline]
fn len_of(frame: &[u8]) -> Result<u32, FrameError> {
    u32::try_from(frame.len()).map_err(|_| FrameError::Invalid("length"))
}

fn next_option<'a>(from: &mut Reader<'a>) -> Result<Option<(u16, u8, Reader<'a>)>, FrameError> {
    if from.is_empty() {
        return Ok(None);
    }
    let (class, kind, len) = (from.u16()?, from.u8()?, from.u8()?);
    let data = from.bytes(usize::from(len & 0x1f) * 4)?;
    Ok(Some((class, kind, Reader::new(data))))
}

impl ArrivedPacket<'_> {
    /// Makes a packet for a graph, which parses it. `None` if there is no buffer, or the graph
    /// cannot read it: its dispatcher could.
    pub fn into_packet(self, sequence: u64, graph: &Graph, pool: &mut PacketPool) -> Option<Packet> {
        let mut packet = pool.take(self.frame)?;
        let meta = packet.meta_mut();
        let transit = &mut meta.transit;
        (transit.timestamp_ns, transit.sequence) = (self.timestamp_ns, sequence);
        (transit.ingress, transit.side) = (self.ingress, self.side);
        (meta.link, meta.wire_len) = (self.link, self.wire_len);
        if graph.parse_dispatched(&mut packet, self.key).is_err() {
            pool.give(packet);
            return None;
        }
        Some(packet)
    }
}
