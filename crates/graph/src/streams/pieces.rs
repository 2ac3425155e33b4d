//! The pieces of streams that the packets of a group bring.

use nf::stream::{Deliveries, StreamPiece, StreamPieceKind};
use packet::Direction;

/// The pieces of a group, packet by packet.
#[derive(Default)]
pub(super) struct Pieces {
    all: Vec<StreamPiece>,
    /// For each packet, the number of pieces up to its last one.
    ends: Vec<u32>,
    /// Blocks with bytes of these pieces. They are free once the pieces are gone.
    blocks: Vec<u32>,
}

impl Pieces {
    /// Begins a group, and calls `free` with the blocks of the last one.
    pub fn begin_group(&mut self, free: impl FnMut(u32)) {
        self.all.clear();
        self.ends.clear();
        self.blocks.drain(..).for_each(free);
    }

    /// Adds a piece of the current packet.
    pub fn add(&mut self, direction: Direction, offset: u64, what: StreamPieceKind) {
        self.all.push(StreamPiece { direction, offset, what });
    }

    /// Keeps a block until the group ends.
    pub fn keep_block(&mut self, block: u32) {
        self.blocks.push(block);
    }

    /// Ends the current packet.
    pub fn end_packet(&mut self) {
        self.ends.push(self.all.len() as u32);
    }

    /// Returns the pieces, with the memory of blocks and of datagrams that they refer to.
    pub fn deliveries<'a>(&'a self, held: &'a [u8], datagrams: &'a [u8]) -> Deliveries<'a> {
        Deliveries { pieces: &self.all, ends: &self.ends, held, datagrams }
    }
}
