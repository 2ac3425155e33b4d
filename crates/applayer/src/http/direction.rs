//! The state of one direction of a connection.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeSide {
    /// Client to server.
    Request,
    /// Server to client.
    Response,
}

/// The state of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DirectionState {
    /// Remaining bytes of a body or chunk.
    pub(crate) remaining: u64,
    /// The value of Content-Length.
    pub(crate) content_length: u64,
    /// Hash of the authority in the request target.
    pub(crate) authority: u64,
    /// Bits of the anomalies reported for this message.
    pub(crate) reported: u64,
    /// Facts of the message and the connection: [`flag`].
    pub(crate) flags: u32,
    /// Bytes of the message head so far.
    pub(crate) head_bytes: u32,
    pub(crate) messages: u32,
    pub(crate) anomalies: u32,
    pub(crate) repeated: u32,
    /// Headers of the message so far.
    pub(crate) headers: u16,
    /// The response's status.
    pub(crate) status: u16,
    /// A [`Phase`].
    pub(crate) phase: u8,
    /// Progress of matching the body against a request line: [`crate::http::opening`].
    pub(crate) opening: u8,
    /// Progress of matching the previous line without a colon against a framing header's name:
    /// [`crate::http::head`].
    pub(crate) name_part: u8,
    pub(crate) reserved: [u8; 5],
}

const _: () = assert!(size_of::<DirectionState>() <= 64);

impl DirectionState {
    /// Returns the number of messages begun in this direction, modulo 2^32.
    pub fn messages(&self) -> u32 {
        self.messages
    }

    /// Returns the number of anomalies reported in this direction, modulo 2^32.
    pub fn anomalies(&self) -> u32 {
        self.anomalies
    }

    /// Returns the number of anomalies suppressed as repetitions within their message, modulo 2^32.
    pub fn repeated_anomalies(&self) -> u32 {
        self.repeated
    }

    /// Returns whether the direction is between two messages.
    pub fn is_idle(&self) -> bool {
        self.phase() == Phase::Start
    }

    /// Returns whether the direction has switched to another protocol.
    pub fn is_opaque(&self) -> bool {
        self.phase() == Phase::Opaque
    }

    pub(crate) fn phase(&self) -> Phase {
        Phase::ALL.get(usize::from(self.phase)).copied().unwrap_or(Phase::Start)
    }

    pub(crate) fn enter(&mut self, phase: Phase) {
        self.phase = phase as u8;
    }

    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn set(&mut self, flag: u32) {
        self.flags |= flag;
    }

    pub(crate) fn clear(&mut self, flag: u32) {
        self.flags &= !flag;
    }

    /// Resets the state of the message.
    pub(crate) fn begin(&mut self) {
        self.flags &= flag::OF_CONNECTION;
        self.reported = 0;
        self.headers = 0;
        self.name_part = 0;
        self.head_bytes = 0;
        self.content_length = 0;
        self.authority = 0;
        self.messages = self.messages.saturating_add(1);
    }
}

/// The position of the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Before or within a start line.
    Start,
    /// Within a head, after the start line.
    Headers,
    /// Within a body of known length.
    Body,
    /// Within a body that extends to the end of the connection.
    BodyUntilClose,
    /// Before or within a chunk-size line.
    ChunkSize,
    /// Within chunk data.
    ChunkData,
    /// After chunk data.
    ChunkEnd,
    /// After the last chunk.
    Trailers,
    /// In another protocol.
    Opaque,
    /// Unknown: searching for a start line.
    Search,
    /// After the end.
    Closed,
}

impl Phase {
    const ALL: [Self; 11] = [
        Self::Start,
        Self::Headers,
        Self::Body,
        Self::BodyUntilClose,
        Self::ChunkSize,
        Self::ChunkData,
        Self::ChunkEnd,
        Self::Trailers,
        Self::Opaque,
        Self::Search,
        Self::Closed,
    ];

    /// Returns whether a message has begun and not ended.
    pub(crate) fn is_in_message(self) -> bool {
        !matches!(self, Self::Start | Self::Opaque | Self::Search | Self::Closed)
    }

    /// Returns whether a line that begins with a blank continues the previous one (RFC 9112 5.2).
    pub(crate) fn folds(self) -> bool {
        matches!(self, Self::Headers | Self::Trailers)
    }
}

/// Bits of [`DirectionState::flags`].
pub(crate) mod flag {
    // Of the message.
    pub(crate) const HTTP_10: u32 = 1;
    pub(crate) const HTTP_11: u32 = 1 << 1;
    pub(crate) const LENGTH: u32 = 1 << 2;
    pub(crate) const TRANSFER_ENCODING: u32 = 1 << 3;
    /// The last transfer coding is chunked.
    pub(crate) const CHUNKED: u32 = 1 << 4;
    pub(crate) const HOST: u32 = 1 << 5;
    /// The target contains an authority.
    pub(crate) const AUTHORITY: u32 = 1 << 6;
    pub(crate) const CLOSE: u32 = 1 << 7;
    pub(crate) const KEEP_ALIVE: u32 = 1 << 8;
    pub(crate) const UPGRADE: u32 = 1 << 9;
    /// The request is a CONNECT, or the response answers one.
    pub(crate) const CONNECT: u32 = 1 << 10;
    /// The response answers a HEAD.
    pub(crate) const HEAD: u32 = 1 << 11;
    /// The response is a 101 to a request with Upgrade.
    pub(crate) const ASKED: u32 = 1 << 12;
    /// The request has no version.
    pub(crate) const SIMPLE: u32 = 1 << 13;
    /// The request expects 100 (Continue).
    pub(crate) const EXPECTS: u32 = 1 << 14;
    /// The start line ends with CR LF.
    pub(crate) const CR_LF: u32 = 1 << 15;
    /// The message has a content coding.
    pub(crate) const CODED: u32 = 1 << 31;
    /// Upgrade names h2c.
    pub(crate) const H2C: u32 = 1 << 30;
    /// The response must not have a body, but its headers announce one, which may follow.
    pub(crate) const MAY_GO_ON: u32 = 1 << 29;
    /// The response must not have a body, and its headers announce none: lines after it may be one.
    pub(crate) const MAY_BE_LOOSE: u32 = 1 << 28;
    /// Lines after the response are its body.
    pub(crate) const LOOSE: u32 = 1 << 27;

    // Of the current line.
    /// The line is longer than the buffer holds.
    pub(crate) const LINE_CUT: u32 = 1 << 16;
    /// The line is complete unless the next byte is a blank.
    pub(crate) const LINE_ENDED: u32 = 1 << 17;

    // Of the connection.
    /// The announced last message has ended.
    pub(crate) const AFTER_LAST: u32 = 1 << 18;
    /// Bytes of message heads were lost: requests and responses may not match.
    pub(crate) const LOSSY: u32 = 1 << 19;
    /// A CONNECT is unanswered.
    pub(crate) const CONNECTING: u32 = 1 << 20;
    /// The CONNECT was refused: there is no tunnel.
    pub(crate) const REFUSED: u32 = 1 << 21;
    /// After this message the tunnel begins.
    pub(crate) const TO_TUNNEL: u32 = 1 << 22;
    /// After this message the agreed protocol begins.
    pub(crate) const TO_UPGRADE: u32 = 1 << 23;
    /// After this message HTTP/2 begins.
    pub(crate) const TO_HTTP2: u32 = 1 << 24;
    pub(crate) const TO_ANY: u32 = TO_TUNNEL | TO_UPGRADE | TO_HTTP2;

    pub(crate) const OF_CONNECTION: u32 = u32::MAX << 16 & !(CODED | H2C | MAY_GO_ON | MAY_BE_LOOSE | LOOSE);
}
