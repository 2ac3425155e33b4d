//! The state of a flow: how far its handshake is, and the place of its bytes in the connection.

use packet::mptcp::MptcpVersion;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::seen::SeenRanges;

/// The state of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// Keys of the connection: of the host that began it, and of the other one.
    pub(super) keys: [u64; 2],
    /// Data seen from each host up to the flow's last packet, for the unit that the flow moves to.
    pub(super) seen: [SeenRanges; 2],
    /// Random numbers of a joining sub-flow: of the host that began it, and of the other one.
    pub(super) nonces: [u32; 2],
    /// Bytes of either direction.
    pub(super) directions: [DirectionState; 2],
    /// Time of the last use of the connection's tokens, in seconds.
    pub(super) used_s: u32,
    phase: u8,
    version: u8,
    /// 1 if the sub-flow was begun by the host that did not begin the connection.
    is_flipped: u8,
    unused: u8,
}

/// The bytes of one direction of a sub-flow, by their positions after its SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DirectionState {
    /// Sequence number of the SYN.
    pub first: u32,
    /// The position after the last byte; 1 if there was none.
    pub end: u32,
    /// The latest mapping: position of its first byte,
    pub mapped_from: u32,
    /// number of that byte in the connection,
    pub mapped_data: u32,
    /// and bytes.
    pub mapped_len: u32,
}

/// The progress of a flow's handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is no sub-flow of a known connection.
    Other,
    /// A SYN begins a connection.
    Begins,
    /// A SYN joins one.
    Joins,
    /// The other host has accepted it, and proved that it has the keys.
    Accepted,
    /// A sub-flow of a connection with known keys.
    Subflow,
}

impl State {
    /// Returns how far the handshake is.
    pub(super) fn phase(&self) -> Phase {
        match self.phase {
            1 => Phase::Begins,
            2 => Phase::Joins,
            3 => Phase::Accepted,
            4 => Phase::Subflow,
            _ => Phase::Other,
        }
    }

    pub(super) fn set_phase(&mut self, phase: Phase) {
        self.phase = phase as u8;
    }

    /// Returns the version of the connection.
    pub(super) fn version(&self) -> Option<MptcpVersion> {
        MptcpVersion::of(self.version)
    }

    /// Sets the version by its number. Returns false if it is not known.
    pub(super) fn set_version(&mut self, number: u8) -> bool {
        self.version = number;
        self.version().is_some()
    }

    /// Returns the connection's host that sends in this direction of the flow: 0 began the
    /// connection.
    pub(super) fn host(&self, direction: usize) -> usize {
        direction ^ usize::from(self.is_flipped)
    }

    pub(super) fn set_flipped(&mut self, is_flipped: bool) {
        self.is_flipped = u8::from(is_flipped);
    }

    /// Returns the keys of the host that began the sub-flow, and of the other one.
    pub(super) fn own_keys(&self) -> [u64; 2] {
        [self.keys[self.host(0)], self.keys[self.host(1)]]
    }
}

impl DirectionState {
    /// Begins after a SYN with this sequence number.
    pub fn after_syn(first: u32) -> DirectionState {
        DirectionState { first, end: 1, ..DirectionState::default() }
    }

    /// Notes that `len` bytes from a position on are those of the connection from this number on. A
    /// position of 0 maps nothing.
    pub fn map(&mut self, position: u32, data: u32, len: u32) {
        if position != 0 {
            (self.mapped_from, self.mapped_data, self.mapped_len) = (position, data, len);
        }
    }

    /// Notes that the sub-flow carries bytes. Returns how many of them it has carried before: those
    /// before its latest one, from the first one on.
    pub fn carry(&mut self, position: u32, len: u32) -> u32 {
        let before = self.end.wrapping_sub(position).cast_signed();
        let repeated = u32::try_from(before).map_or(0, |before| before.min(len));
        if repeated < len {
            self.end = position.wrapping_add(len);
        }
        repeated
    }

    /// Returns the data of the part of these bytes that the latest mapping covers.
    pub fn data_of(&self, position: u32, len: u32) -> Option<MappedData> {
        let from = i64::from(self.mapped_from.wrapping_sub(position).cast_signed());
        let (start, end) = (from.max(0), (from + i64::from(self.mapped_len)).min(len.into()));
        let number = self.mapped_data.wrapping_add((start - from) as u32);
        (start < end).then_some(MappedData { number, len: (end - start) as u32 })
    }
}

/// Bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedData {
    /// Low 32 bits of the data sequence number of the first one.
    pub number: u32,
    /// Bytes.
    pub len: u32,
}
