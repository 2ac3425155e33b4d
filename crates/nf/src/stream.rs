//! Byte streams: what packets bring to the TCP streams of their flows, in order (E23).
//!
//! A function whose descriptor says [`crate::Descriptor::stream`] finds what each packet brought in
//! [`crate::PacketView::stream`]: bytes that stand in the packet itself, and bytes of earlier
//! packets that waited for it.

use packet::Direction;

/// Something that happened to a byte stream of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEvent<'a> {
    /// The stream: that of the bytes sent in this direction. An acknowledgement can move the other
    /// direction's stream on.
    pub direction: Direction,
    /// Where in the stream, in bytes from its beginning.
    pub offset: u64,
    /// What happened.
    pub kind: StreamEventKind<'a>,
}

/// What happened to a byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEventKind<'a> {
    /// A new connection begins on the ports of one that is over: offsets count from 0 again, and
    /// what was kept of the old one's stream has no meaning any more.
    Restart,
    /// The next bytes.
    Data(&'a [u8]),
    /// So many bytes are missing, for good: they were never seen, or there was no memory to wait
    /// for them.
    Gap(u64),
    /// The sender has closed the stream.
    Finished,
    /// The connection was reset. Should more come, the hosts did not heed it: the reset was forged.
    Reset,
}

/// A datagram that came in fragments, put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeDatagram<'a> {
    /// From the transport header on.
    pub transport: &'a [u8],
    /// The transport protocol.
    pub protocol: u8,
}

/// What a packet brought to its flow's streams, in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stream<'a> {
    pieces: &'a [StreamPiece],
    payload: &'a [u8],
    held: &'a [u8],
    datagrams: &'a [u8],
}

impl<'a> Stream<'a> {
    /// Whether it brought nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The datagram that the packet, a fragment, was the last missing part of.
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
            // It comes first; see [`Stream::datagram`].
            StreamPieceKind::Datagram { .. } => return self.next(),
        };
        Some(StreamEvent { direction: piece.direction, offset: piece.offset, kind })
    }
}

/// A [`StreamEvent`] as the chain notes it: bytes by the place where they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPiece {
    /// The stream.
    pub direction: Direction,
    /// Where in the stream.
    pub offset: u64,
    /// What happened.
    pub what: StreamPieceKind,
}

/// What happened, with bytes by their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPieceKind {
    /// See [`StreamEventKind::Restart`].
    Restart,
    /// Bytes of the packet's transport payload.
    InPacket {
        /// Where in the payload they begin.
        start: u32,
        /// How many.
        len: u32,
    },
    /// Bytes that waited.
    Buffered {
        /// Where in the memory of what waits they begin.
        start: usize,
        /// How many.
        len: u32,
    },
    /// See [`StreamEventKind::Gap`].
    Gap {
        /// Bytes that are missing.
        len: u64,
    },
    /// See [`StreamEventKind::Finished`].
    Finished,
    /// See [`StreamEventKind::Reset`].
    Reset,
    /// See [`Stream::datagram`].
    Datagram {
        /// Where in the memory of datagrams its transport header begins.
        start: usize,
        /// Its bytes from there.
        len: u32,
        /// The transport protocol.
        protocol: u8,
    },
}

/// What each packet of a group brought to its streams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deliveries<'a> {
    /// All that happened, packet by packet.
    pub pieces: &'a [StreamPiece],
    /// For each packet of the group, where in `pieces` its own end.
    pub ends: &'a [u32],
    /// The memory of what waits.
    pub held: &'a [u8],
    /// The memory of datagrams that came in fragments.
    pub datagrams: &'a [u8],
}

impl<'a> Deliveries<'a> {
    /// What the packet with this number in the group brought; `payload` is its transport payload.
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
