//! Plays tapes through ways, and measures that.

use std::ops::Range;
use std::time::Instant;

use hdrhistogram::Histogram;
use packet::{Packet, PacketPool, Side};

use super::{Path, Tape};

/// A packet that left: its egress side and its bytes.
pub type Sent = (Side, Vec<u8>);

/// Longer latencies count as this, in nanoseconds.
const LATENCY_NS_MAX: u64 = 10_000_000_000;

/// A player of tapes, in batches. It measures processing only: from packets in their buffers to
/// packets ready to be sent.
pub struct Player {
    pool: PacketPool,
    batch: Vec<Packet>,
    out: Vec<Packet>,
    batch_len: usize,
}

/// Settings of a play.
#[derive(Clone, Copy, Debug, Default)]
pub struct Played {
    /// Packets that came.
    pub packets: u64,
    /// Packets that left.
    pub sent: u64,
    /// Total time, in nanoseconds.
    pub ns: u64,
}

impl Played {
    /// Nanoseconds for each packet.
    pub fn per_packet(&self) -> f64 {
        self.ns as f64 / self.packets.max(1) as f64
    }

    fn add(&mut self, more: Played) {
        self.packets += more.packets;
        self.sent += more.sent;
        self.ns += more.ns;
    }
}

impl Player {
    /// Creates a player of batches with up to `batch_len` packets.
    pub fn new(batch_len: usize) -> Player {
        Player {
            pool: PacketPool::new(8 * batch_len),
            batch: Vec::with_capacity(batch_len),
            out: Vec::with_capacity(2 * batch_len),
            batch_len,
        }
    }

    /// Plays a part of a tape.
    pub fn play(&mut self, path: &mut dyn Path, tape: &Tape, part: Range<usize>) -> Played {
        let mut played = Played::default();
        self.play_batches(path, tape, part, |batch, _| played.add(batch));
        played
    }

    /// Plays a part of a tape, with percentiles of packets' latency, in nanoseconds: from when
    /// their batch is handed over until it is through.
    ///
    /// # Errors
    /// If there is no memory for the figures.
    pub fn latency(
        &mut self,
        path: &mut dyn Path,
        tape: &Tape,
        part: Range<usize>,
        percentiles: &[f64],
    ) -> Result<(Played, Vec<f64>), String> {
        let mut latency =
            Histogram::<u64>::new_with_bounds(1, LATENCY_NS_MAX, 3).map_err(|error| error.to_string())?;
        let mut played = Played::default();
        self.play_batches(path, tape, part, |batch, _| {
            played.add(batch);
            latency.saturating_record_n(batch.ns.max(1), batch.packets);
        });
        let values = percentiles.iter().map(|&at| latency.value_at_percentile(at) as f64).collect();
        Ok((played, values))
    }

    /// Plays a part of a tape, and keeps what left, batch by batch.
    pub fn sent(&mut self, path: &mut dyn Path, tape: &Tape, part: Range<usize>) -> Vec<Vec<Sent>> {
        let mut all = Vec::new();
        self.play_batches(path, tape, part, |_, sent| {
            let sent = sent.iter().map(|packet| (packet.meta().transit.side, packet.data().to_vec()));
            all.push(sent.collect());
        });
        all
    }

    fn play_batches(
        &mut self,
        path: &mut dyn Path,
        tape: &Tape,
        part: Range<usize>,
        mut heed: impl FnMut(Played, &[Packet]),
    ) {
        for arrivals in tape.arrivals(part).chunks(self.batch_len) {
            for arrival in arrivals {
                // There are as many buffers as packets can be under way, and a few more.
                self.batch.extend(tape.packet(arrival, &mut self.pool));
            }
            let packets = self.batch.len() as u64;
            let start = Instant::now();
            path.process(&mut self.batch, &mut self.out, &mut self.pool);
            let ns = start.elapsed().as_nanos() as u64;
            heed(Played { packets, sent: self.out.len() as u64, ns }, &self.out);
            self.pool.give_all(&mut self.out);
            path.clear();
        }
    }

    /// All flows end.
    pub fn end_flows(&mut self, path: &mut dyn Path) {
        path.end_flows(&mut self.pool);
    }
}

/// Packets of two runs of the same tape that differ, or left in one of them only.
pub fn differing(ours: &[Vec<Sent>], theirs: &[Vec<Sent>]) -> u64 {
    let none = Vec::new();
    let batches = 0..ours.len().max(theirs.len());
    let pairs = batches.map(|batch| (ours.get(batch).unwrap_or(&none), theirs.get(batch).unwrap_or(&none)));
    pairs.map(|(ours, theirs)| in_batch(ours, theirs)).sum()
}

/// The same of a batch: in order if as many left, else whatever the order.
fn in_batch(ours: &[Sent], theirs: &[Sent]) -> u64 {
    if ours.len() == theirs.len() {
        return ours.iter().zip(theirs).filter(|(ours, theirs)| ours != theirs).count() as u64;
    }
    let mut left: Vec<&Sent> = theirs.iter().collect();
    let mut differing = 0;
    for sent in ours {
        match left.iter().position(|other| *other == sent) {
            Some(at) => drop(left.swap_remove(at)),
            None => differing += 1,
        }
    }
    differing + left.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_differ_are_counted() {
        let batch = |bytes: &[u8]| bytes.iter().map(|&byte| (Side::Inside, vec![byte])).collect::<Vec<_>>();
        assert_eq!(differing(&[batch(b"abc")], &[batch(b"abc")]), 0);
        assert_eq!(differing(&[batch(b"abc")], &[batch(b"acb")]), 2);
        assert_eq!(differing(&[batch(b"abc")], &[batch(b"ac")]), 1);
        assert_eq!(differing(&[batch(b"abd")], &[batch(b"ac")]), 3);
        assert_eq!(differing(&[batch(b"a"), batch(b"xy")], &[batch(b"a")]), 2);
        assert_eq!(differing(&[], &[batch(b"xy")]), 2);
    }
}
