//! The floor: the minimum work of any stateful function.

use nf::index::HashIndex;
use packet::{Addr, End, Endpoint, FlowHasher, FlowKey, Packet, PacketPool, Parser};

use super::tape::{Frames, Tape};

/// Copy, parse, hash, one lookup in a table with prefetching, rewrite of one endpoint. No
/// insertion, no expiry, no reverse direction.
pub struct Floor {
    pool: PacketPool,
    parser: Parser,
    index: HashIndex,
    entries: Vec<Entry>,
    batch: Vec<Packet>,
    batch_len: usize,
}

#[repr(align(64))]
#[derive(Clone)]
struct Entry {
    key: FlowKey,
    port: u16,
}

impl Floor {
    /// Creates a floor for this many flows.
    pub fn new(flows: u32, batch_len: usize) -> anyhow::Result<Floor> {
        Ok(Floor {
            pool: PacketPool::new(batch_len),
            parser: Parser::new(FlowHasher::new(1)),
            index: HashIndex::new(flows as usize)?,
            entries: Vec::with_capacity(flows as usize),
            batch: Vec::with_capacity(batch_len),
            batch_len,
        })
    }

    /// Inserts the tape's flows.
    pub fn warm_up(&mut self, tape: &Tape) {
        for frame in tape.openings() {
            let mut packet = Packet::from_bytes(frame);
            if self.parser.parse(&mut packet).is_err() {
                continue;
            }
            let meta = packet.meta();
            let number = self.entries.len() as u32;
            let known = self.index.find(meta.hash, |i| self.entries[i as usize].key == meta.key);
            if known.is_none() && self.index.insert(meta.hash, number).is_ok() {
                self.entries.push(Entry { key: meta.key, port: number as u16 });
            }
        }
    }

    /// Plays a part of the tape.
    pub fn play(&mut self, tape: &Tape, from: usize, count: usize) {
        tape.play(from, count, self.batch_len).for_each(|frames| self.run(frames));
    }

    #[inline]
    fn run(&mut self, frames: Frames<'_>) {
        self.pool.take_small(frames.len(), &mut self.batch);
        for (packet, frame) in self.batch.iter_mut().zip(frames) {
            let received = packet.receive(frame);
            debug_assert!(received.is_ok(), "frames are shorter than buffers");
            if self.parser.parse(packet).is_ok() {
                self.index.prefetch(packet.meta().hash);
            }
        }
        for packet in &mut self.batch {
            let meta = packet.meta_mut();
            let guess = self.index.guess(meta.hash);
            meta.transit.flow = guess.unwrap_or(u32::MAX);
            if let Some(entry) = guess.and_then(|i| self.entries.get(i as usize)) {
                packet::memory::prefetch(entry);
            }
        }
        for packet in &mut self.batch {
            let meta = packet.meta();
            if let Some(entry) = self.entries.get(meta.transit.flow as usize)
                && entry.key == meta.key
            {
                let to = Endpoint::new(Addr::from_v4_bytes([203, 0, 113, 1]), entry.port);
                // The tape is IPv4 only, so the version fits.
                let _ = packet.set_end(End::Source, to);
            }
        }
        std::hint::black_box(&mut self.batch);
        self.pool.give_all(&mut self.batch);
    }
}
