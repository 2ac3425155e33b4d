//! TCP byte streams: the bytes that packets add to their flows' streams, in order (E23).
//!
//! With [`crate::Descriptor::stream`], an NF finds the additions of each packet in
//! [`crate::PacketView::stream`]: bytes in the packet itself, and bytes of earlier packets that
//! were waiting for it in the out-of-order queue.

use packet::Direction;

/// An event in a flow's byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEvent<'a> {
    /// The direction of the stream's bytes. An acknowledgement can advance the stream of the other
    /// direction.
    pub direction: Direction,
    /// Position in the stream, in bytes from its start.
    pub offset: u64,
    /// The event itself.
    pub kind: StreamEventKind<'a>,
}

/// Kinds of events in a byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEventKind<'a> {
    /// A new connection reuses the ports of a closed one. Offsets restart at 0, and state kept for
    /// the old stream is void.
    Restart,
    /// The next bytes.
    Data(&'a [u8]),
    /// This many bytes are permanently missing: never seen, or there was no memory to wait for
    /// them.
    Gap(u64),
    /// The sender closed the stream.
    Finished,
    /// The connection was reset. If more data follows, the hosts ignored the reset: it was forged.
    Reset,
}

/// A datagram reassembled from fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeDatagram<'a> {
    /// The datagram from the transport header on.
    pub transport: &'a [u8],
    /// Number of the transport protocol.
    pub protocol: u8,
}

/// A packet's additions to its flow's streams, in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stream<'a> {
    pieces: &'a [StreamPiece],
    payload: &'a [u8],
    held: &'a [u8],
    datagrams: &'a [u8],
}

impl<'a> Stream<'a> {
    /// Checks if there is nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns the reassembled datagram that this packet, its last missing fragment, completed.
    pub fn datagram(&self) -> Option<WholeDatagram<'a>> {
        match self.pieces.first()?.what {
            StreamPieceKind::Datagram { start, len, protocol } => {
                let transport = self.datagrams.get(start..start + len as usize)?;
                Some(WholeDatagram { transport, protocol })
            }
            _ => None,
        }
    }
}

impl<'a> Iterator for Stream<'a> {
    type Item = StreamEvent<'a>;

    #[inline]
    fn next(&mut self) -> Option<StreamEvent<'a>> {
        let (&piece, rest) = self.pieces.split_first()?;
        self.pieces = rest;
        let part = |of: &'a [u8], start: usize, len: usize| of.get(start..start + len).unwrap_or_default();
        let kind = match piece.what {
            StreamPieceKind::Restart => StreamEventKind::Restart,
            StreamPieceKind::InPacket { start, len } => {
                StreamEventKind::Data(part(self.payload, start as usize, len as usize))
            }
            StreamPieceKind::Buffered { start, len } => {
                StreamEventKind::Data(part(self.held, start, len as usize))
            }
            StreamPieceKind::Gap { len } => StreamEventKind::Gap(len),
            StreamPieceKind::Finished => StreamEventKind::Finished,
            StreamPieceKind::Reset => StreamEventKind::Reset,
            // Always the first piece; see [`Stream::datagram`].
            StreamPieceKind::Datagram { .. } => return self.next(),
        };
        Some(StreamEvent { direction: piece.direction, offset: piece.offset, kind })
    }
}

/// A [`StreamEvent`] as stored by the graph: bytes are given by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPiece {
    /// Direction of the stream.
    pub direction: Direction,
    /// Position in the stream.
    pub offset: u64,
    /// The event itself.
    pub what: StreamPieceKind,
}

/// Kinds of stream events, with bytes given by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPieceKind {
    /// See [`StreamEventKind::Restart`].
    Restart,
    /// Bytes of the packet's transport payload.
    InPacket {
        /// Offset in the payload.
        start: u32,
        /// Number of bytes.
        len: u32,
    },
    /// Bytes from the out-of-order queue.
    Buffered {
        /// Offset in the queue's memory.
        start: usize,
        /// Number of bytes.
        len: u32,
    },
    /// See [`StreamEventKind::Gap`].
    Gap {
        /// Missing bytes.
        len: u64,
    },
    /// See [`StreamEventKind::Finished`].
    Finished,
    /// See [`StreamEventKind::Reset`].
    Reset,
    /// See [`Stream::datagram`].
    Datagram {
        /// Offset of the transport header in the memory of datagrams.
        start: usize,
        /// Bytes from the transport header on.
        len: u32,
        /// Number of the transport protocol.
        protocol: u8,
    },
}

/// The additions of a group's packets to their streams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deliveries<'a> {
    /// All events, packet by packet.
    pub pieces: &'a [StreamPiece],
    /// End of each packet's events in `pieces`.
    pub ends: &'a [u32],
    /// Memory of the out-of-order queue.
    pub held: &'a [u8],
    /// Memory of datagrams that arrived in fragments.
    pub datagrams: &'a [u8],
}

impl<'a> Deliveries<'a> {
    /// Returns the additions of the group's packet `number` with transport payload `payload`.
    #[inline]
    pub fn of(&self, number: usize, payload: &'a [u8]) -> Stream<'a> {
        let end = |number: usize| self.ends.get(number).map_or(0, |&end| end as usize);
        let start = if number == 0 { 0 } else { end(number - 1) };
        Stream {
            pieces: self.pieces.get(start..end(number)).unwrap_or_default(),
            payload,
            held: self.held,
            datagrams: self.datagrams,
        }
    }
}
