//! Frames with pieces of streams, for a program.

use packet::{Direction, Endpoint};

/// EtherType of frames to and from the program: the first of those for local experiments (IEEE
/// 802).
pub const STREAM_ETHER_TYPE: u16 = 0x88b5;
/// Limit on the bytes of a stream in a frame.
pub const CHUNK_BYTES_MAX: usize = 1_400;

/// Version of the header.
pub(super) const VERSION: u8 = 1;
/// Bytes of the Ethernet header.
pub(super) const HEAD_LEN: usize = 14;
/// Bytes of an answer, after the Ethernet header.
pub(super) const ANSWER_LEN: usize = 24;
/// Bytes of the header of a piece, after the Ethernet header.
const PIECE_LEN: usize = 24;
/// Limit on the bytes of a frame.
pub(super) const FRAME_LEN_MAX: usize = HEAD_LEN + PIECE_LEN + CHUNK_BYTES_MAX;

/// Ethernet addresses of the program and of Rivulet: local ones.
const ADDRESSES: [u8; 12] = [2, 0x52, 0x56, 1, 0, 2, 2, 0x52, 0x56, 1, 0, 1];
/// The bit of the flags for the reply direction.
const REPLY: u8 = 0x80;

/// The kind of a piece of a stream; its bytes, if it has none of these flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFlags(pub u8);

impl StreamFlags {
    /// Bytes of the stream.
    pub const NONE: StreamFlags = StreamFlags(0);
    /// The flow is new: protocol, and source and destination of the original direction.
    pub const START: StreamFlags = StreamFlags(1);
    /// The sender closed the stream.
    pub const END: StreamFlags = StreamFlags(2);
    /// Bytes are missing, and will not come: their number, 8 bytes.
    pub const GAP: StreamFlags = StreamFlags(4);
    /// The connection was reset.
    pub const RESET: StreamFlags = StreamFlags(8);
    /// The flow has ended, so its number has no meaning any more.
    pub const GONE: StreamFlags = StreamFlags(16);
}

/// A piece of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFrame<'a> {
    /// Number of the flow, from 1.
    pub flow: u64,
    /// Number of the frame in the flow, from 1: shows lost ones.
    pub count: u32,
    /// Direction of the stream.
    pub direction: Direction,
    /// Position in the stream.
    pub offset: u64,
    /// Kind of the piece.
    pub flags: StreamFlags,
    /// Its bytes, up to [`CHUNK_BYTES_MAX`].
    pub data: &'a [u8],
}

impl<'a> StreamFrame<'a> {
    /// Writes the frame to `room`.
    pub(super) fn write<'r>(&self, room: &'r mut [u8; FRAME_LEN_MAX]) -> &'r [u8] {
        let data = &self.data[..self.data.len().min(CHUNK_BYTES_MAX)];
        let direction = if self.direction == Direction::Reply { REPLY } else { 0 };
        room[..12].copy_from_slice(&ADDRESSES);
        room[12..14].copy_from_slice(&STREAM_ETHER_TYPE.to_be_bytes());
        (room[14], room[15]) = (VERSION, self.flags.0 | direction);
        room[16..18].copy_from_slice(&(data.len() as u16).to_be_bytes());
        room[18..22].copy_from_slice(&self.count.to_be_bytes());
        room[22..30].copy_from_slice(&self.flow.to_be_bytes());
        room[30..38].copy_from_slice(&self.offset.to_be_bytes());
        let len = HEAD_LEN + PIECE_LEN + data.len();
        room[HEAD_LEN + PIECE_LEN..len].copy_from_slice(data);
        &room[..len]
    }
}

/// Returns the contents of a frame that introduces a flow: the protocol, a zero, ports and
/// addresses; IPv4 ones as those of IPv6 (RFC 4291 2.5.5.2).
pub(super) fn ends((source, destination): (Endpoint, Endpoint), protocol: u8) -> [u8; 38] {
    let mut bytes = [0; 38];
    bytes[0] = protocol;
    for (end, at) in [(source, 0), (destination, 1)] {
        let address = match end.addr.ip() {
            std::net::IpAddr::V4(address) => address.to_ipv6_mapped(),
            std::net::IpAddr::V6(address) => address,
        };
        bytes[2 + 2 * at..4 + 2 * at].copy_from_slice(&end.port.to_be_bytes());
        bytes[6 + 16 * at..22 + 16 * at].copy_from_slice(&address.octets());
    }
    bytes
}
