//! The state of a search between two pieces of a stream.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::literal::LITERAL_MAX;

/// Number of bytes before a piece that can be part of a literal ending in it.
pub(crate) const RECENT: usize = LITERAL_MAX - 1;

/// The state of one direction of a stream: its last bytes. It is independent of the
/// [`LiteralSet`](crate::LiteralSet), so the set may change between pieces.
///
/// Its 32 bytes can be stored, moved and compared as such. Any 32 bytes are a valid cursor, and
/// zeros are that of a fresh stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Cursor {
    /// The last bytes of the stream, oldest first, then zeros.
    recent: [u8; RECENT],
    /// Number of these bytes; larger values mean all.
    held: u8,
}

impl Cursor {
    /// Returns the last bytes of the stream, oldest first.
    pub(crate) fn recent(&self) -> &[u8] {
        &self.recent[..usize::from(self.held).min(RECENT)]
    }

    /// Advances over a piece of the stream.
    pub(crate) fn advance(&mut self, piece: &[u8]) {
        if let Some(last) = piece.last_chunk() {
            *self = Self { recent: *last, held: RECENT as u8 };
            return;
        }
        let kept = self.recent().len().min(RECENT - piece.len());
        let mut next = Self { recent: [0; RECENT], held: (kept + piece.len()) as u8 };
        next.recent[..kept].copy_from_slice(&self.recent()[self.recent().len() - kept..]);
        next.recent[kept..kept + piece.len()].copy_from_slice(piece);
        *self = next;
    }
}
