//! What `http` keeps of each flow, beside its growing buffers.

use applayer::http::{Exchange, Side};
use packet::Direction;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What is kept of a flow: the parser's state, and what is known of its connection. All zeros is a
/// connection of which nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    pub(super) notes: Notes,
    pub(super) exchange: Exchange,
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Notes {
    /// The anomalies that were told, as bits.
    pub alerted: u64,
    /// Bytes of the response's body so far.
    pub length: u64,
    /// Bytes of each direction in which a start line was searched for.
    pub searched: [u32; 2],
    /// The response's status.
    pub status: u16,
    /// A [`Phase`].
    phase: u8,
    /// Whether the reply direction is the client's.
    turned: u8,
    /// For each direction, a [`Start`].
    starts: [u8; 2],
    /// Whether the connection's opening was seen.
    pub opened: u8,
    /// Why its packets are dropped: a [`Blocked`].
    blocked: u8,
    /// Whether a response is under way that answers a request, not an interim one.
    pub answering: u8,
    /// What the newest request in the queue has already, as bits; 0 if it is not there.
    pub found: u8,
    /// Whether what follows HTTP on the connection is known to be something else.
    pub is_behind_http: u8,
    reserved: [u8; 5],
}

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// Nobody knows yet.
    New,
    /// Its beginning was not seen: a start line is searched for.
    Suspected,
    /// HTTP.
    Http,
    /// Something else.
    Other,
}

/// What is known of a direction before HTTP is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Start {
    /// Nothing that would speak against HTTP.
    Open,
    /// Its first bytes were not those of HTTP, or were not seen.
    Missed,
    /// It was searched for long enough.
    GivenUp,
    /// Nothing was seen of it, nor of the connection's opening.
    Unseen,
}

/// Why a connection's packets are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Blocked {
    /// They are not.
    No,
    /// For smuggling.
    Smuggling,
    /// For a method that is not allowed.
    Method,
    /// As what was kept of a message is lost, and smuggling is to be dropped.
    Memory,
}

impl Notes {
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

    pub fn start(&self, direction: Direction) -> Start {
        match self.starts[direction.index()] {
            0 => Start::Open,
            1 => Start::Missed,
            2 => Start::GivenUp,
            _ => Start::Unseen,
        }
    }

    pub fn set_start(&mut self, direction: Direction, start: Start) {
        self.starts[direction.index()] = start as u8;
    }

    pub fn blocked(&self) -> Blocked {
        match self.blocked {
            0 => Blocked::No,
            1 => Blocked::Smuggling,
            2 => Blocked::Method,
            _ => Blocked::Memory,
        }
    }

    /// Its packets are dropped from now on; the first reason stands.
    pub fn block(&mut self, why: Blocked) {
        if self.blocked == 0 {
            self.blocked = why as u8;
        }
    }

    /// The direction that the client sends in.
    pub fn client(&self) -> Direction {
        if self.turned == 0 { Direction::Original } else { Direction::Reply }
    }

    pub fn set_client(&mut self, client: Direction) {
        self.turned = u8::from(client == Direction::Reply);
    }

    /// Who sends in this direction.
    pub fn side(&self, direction: Direction) -> Side {
        if direction == self.client() { Side::Request } else { Side::Response }
    }
}
