//! The state of a flow, besides its buffers.

use applayer::http::{Exchange, ExchangeSide};
use packet::Direction;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The state of a flow: the parser, and the facts of its connection. All zeros is an unknown
/// connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    pub(super) notes: FlowNotes,
    pub(super) exchange: Exchange,
}

/// The facts of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct FlowNotes {
    /// Bits of the anomalies that raised an alert.
    pub alerted: u64,
    /// Bytes of the response's body so far.
    pub length: u64,
    /// Bytes of each direction searched for a start line.
    pub searched: [u32; 2],
    /// The response's status.
    pub status: u16,
    /// A [`Phase`].
    phase: u8,
    /// 1 if the reply direction is the client's.
    swapped: u8,
    /// A [`DirectionStart`] per direction.
    starts: [u8; 2],
    /// 1 if the opening of the connection was seen.
    pub opened: u8,
    /// A [`BlockReason`].
    blocked: u8,
    /// Bits: a final response to a request is in progress, and the fields that it has.
    pub answering: u8,
    /// Bits of the fields of the newest request in the queue; 0 if it is not there.
    pub found: u8,
    /// 1 if the bytes after HTTP are known to be another protocol.
    pub is_behind_http: u8,
    reserved: [u8; 5],
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// Unknown yet.
    New,
    /// The beginning was not seen: searching for a start line.
    Suspected,
    /// HTTP.
    Http,
    /// Another protocol.
    Other,
}

/// The facts of a direction before HTTP is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum DirectionStart {
    /// It may be HTTP.
    Open,
    /// Its first bytes were not HTTP, or were not seen.
    Missed,
    /// The search ended without a result.
    GivenUp,
    /// No byte of it and no opening were seen.
    Unseen,
    /// The client's first bytes do not look like HTTP, but are kept until the server answers, by
    /// HTTP or not.
    Doubted,
    /// The same, but they were too many to be kept.
    Lost,
}

/// The reason why a connection's packets are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum BlockReason {
    /// They are not dropped.
    No,
    /// Request smuggling.
    Smuggling,
    /// A forbidden method.
    Method,
    /// A part of a message was lost for lack of memory, and smuggling must be dropped.
    Memory,
}

impl FlowNotes {
    pub fn phase(&self) -> Phase {
        match self.phase {
            0 => Phase::New,
            1 => Phase::Suspected,
            2 => Phase::Http,
            _ => Phase::Other,
        }
    }

    pub fn enter(&mut self, phase: Phase) {
        self.phase = phase as u8;
    }

    pub fn start(&self, direction: Direction) -> DirectionStart {
        match self.starts[direction.index()] {
            0 => DirectionStart::Open,
            1 => DirectionStart::Missed,
            2 => DirectionStart::GivenUp,
            3 => DirectionStart::Unseen,
            4 => DirectionStart::Doubted,
            _ => DirectionStart::Lost,
        }
    }

    pub fn set_start(&mut self, direction: Direction, start: DirectionStart) {
        self.starts[direction.index()] = start as u8;
    }

    pub fn blocked(&self) -> BlockReason {
        match self.blocked {
            0 => BlockReason::No,
            1 => BlockReason::Smuggling,
            2 => BlockReason::Method,
            _ => BlockReason::Memory,
        }
    }

    /// Drops all later packets; the first reason is kept.
    pub fn block(&mut self, why: BlockReason) {
        if self.blocked == 0 {
            self.blocked = why as u8;
        }
    }

    /// Returns the direction of the client's packets.
    pub fn client(&self) -> Direction {
        if self.swapped == 0 { Direction::Original } else { Direction::Reply }
    }

    pub fn set_client(&mut self, client: Direction) {
        self.swapped = u8::from(client == Direction::Reply);
    }

    /// Returns the side that sends in this direction.
    pub fn side(&self, direction: Direction) -> ExchangeSide {
        if direction == self.client() { ExchangeSide::Request } else { ExchangeSide::Response }
    }
}
