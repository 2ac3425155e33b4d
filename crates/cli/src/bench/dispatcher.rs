//! The dispatcher alone: its work on packets before the first function.

use anyhow::ensure;
use packet::{FlowHasher, Packet, PacketPool, Parser};
use protocol::dispatcher::{Config, Dispatched, Dispatcher, DispatcherOutput, FlowGuess, PacketArrival};

use super::tape::{Frames, Tape};
use super::target::{PACE_NS, Target, WARM_UP};

/// Copy, parse, find the flow, cut flowlets, assign, stamp.
pub struct DispatcherTarget {
    dispatcher: Dispatcher,
    parser: Parser,
    pool: PacketPool,
    batch: Vec<Packet>,
    guesses: Vec<FlowGuess>,
    orders: Vec<DispatcherOutput>,
    batch_len: usize,
    now_ns: u64,
    /// Every packet starts a flowlet.
    cuts: bool,
    flows: u32,
    /// Sum of the packets' sequence numbers: 1, 2, 3 ... in each flow.
    seqs: u64,
}

/// The same without the dispatcher: copy, parse.
pub struct ParseTarget {
    parser: Parser,
    pool: PacketPool,
    batch: Vec<Packet>,
    batch_len: usize,
    packets: u64,
    parsed: u64,
}

/// Bytes of a flow in the dispatcher's table: two cache lines.
const SLOT_LEN: usize = 128;

impl DispatcherTarget {
    /// Creates a dispatcher for this many flows and active units; one unit nearly suffices.
    pub fn new(flows: u32, batch_len: usize, units: u16, cuts: bool) -> anyhow::Result<DispatcherTarget> {
        let config = Config {
            gap_ns: if cuts { Config::default().gap_ns } else { u64::MAX },
            size_max: if cuts { 1 } else { u64::MAX },
            capacity_bps: 10_000_000_000,
            units_min: units,
            units_max: units,
            idle_ns: u64::MAX,
            flows_max: flows.max(1),
            ..Config::default()
        };
        Ok(DispatcherTarget {
            dispatcher: Dispatcher::new(config)?,
            parser: Parser::new(FlowHasher::new(1)),
            pool: PacketPool::new(batch_len),
            batch: Vec::with_capacity(batch_len),
            guesses: Vec::with_capacity(batch_len),
            orders: Vec::new(),
            batch_len,
            now_ns: 1_000_000_000,
            cuts,
            flows,
            seqs: 0,
        })
    }

    #[inline]
    fn run(&mut self, frames: Frames<'_>) {
        self.pool.take_small(frames.len(), &mut self.batch);
        for (packet, frame) in self.batch.iter_mut().zip(frames) {
            let received = packet.receive(frame);
            debug_assert!(received.is_ok(), "frames are shorter than buffers");
            if self.parser.parse(packet).is_ok() {
                self.dispatcher.prefetch(packet.meta().hash);
            }
        }
        self.guesses.extend(self.batch.iter().map(|packet| self.dispatcher.guess(packet.meta().hash)));
        for (packet, guess) in self.batch.iter().zip(self.guesses.drain(..)) {
            let meta = packet.meta();
            let arrival = PacketArrival {
                key: &meta.key,
                hash: meta.hash,
                len: packet.len() as u32 + 4, // with the frame check sequence
            };
            let routed = match self.dispatcher.stamp_next(self.now_ns, arrival, guess) {
                Some((unit, stamp)) => Dispatched::To { unit, stamp },
                None => self.dispatcher.handle_packet(self.now_ns, arrival, &mut self.orders),
            };
            if let Dispatched::To { stamp, .. } = std::hint::black_box(&routed) {
                self.seqs += stamp.seq;
            }
            self.now_ns += PACE_NS;
        }
        if self.now_ns >= self.dispatcher.next_timeout_ns() {
            self.dispatcher.handle_timeout(self.now_ns, &mut self.orders);
        }
        std::hint::black_box(&mut self.orders).clear();
        self.pool.give_all(&mut self.batch);
    }
}

impl Target for DispatcherTarget {
    fn warm_up(&mut self, tape: &Tape) -> anyhow::Result<()> {
        for opening in tape.openings() {
            self.run(opening.chunks_exact(opening.len()));
        }
        ensure!(self.dispatcher.flows().count() == self.flows, "not every opening started a flow");
        self.play(tape, 0, WARM_UP);
        Ok(())
    }

    fn play(&mut self, tape: &Tape, from: usize, count: usize) {
        tape.play(from, count, self.batch_len).for_each(|frames| self.run(frames));
    }

    fn check(&self, _: &Tape) -> anyhow::Result<()> {
        let counters = self.dispatcher.counters();
        let played = counters.packets - u64::from(self.flows);
        ensure!(counters.refused == 0, "packets were refused: {counters:?}");
        // With uniform popularity the sum is half of this, with any other it is more.
        let per_flow = counters.packets / u64::from(self.flows);
        ensure!(
            self.seqs >= counters.packets * per_flow / 2,
            "sequence numbers do not count packets of flows"
        );
        let due = if self.cuts { counters.packets } else { u64::from(self.flows) };
        ensure!(counters.assignments == due, "{} assignments, expected {due}", counters.assignments);
        ensure!(played >= WARM_UP as u64, "packets were lost");
        Ok(())
    }

    fn record_len(&self) -> usize {
        SLOT_LEN
    }
}

impl ParseTarget {
    /// Creates a parser of batches of this length.
    pub fn new(batch_len: usize) -> ParseTarget {
        ParseTarget {
            parser: Parser::new(FlowHasher::new(1)),
            pool: PacketPool::new(batch_len),
            batch: Vec::with_capacity(batch_len),
            batch_len,
            packets: 0,
            parsed: 0,
        }
    }

    #[inline]
    fn run(&mut self, frames: Frames<'_>) {
        self.pool.take_small(frames.len(), &mut self.batch);
        for (packet, frame) in self.batch.iter_mut().zip(frames) {
            let received = packet.receive(frame);
            debug_assert!(received.is_ok(), "frames are shorter than buffers");
            self.parsed += u64::from(self.parser.parse(packet).is_ok());
        }
        self.packets += self.batch.len() as u64;
        std::hint::black_box(&mut self.batch);
        self.pool.give_all(&mut self.batch);
    }
}

impl Target for ParseTarget {
    fn warm_up(&mut self, tape: &Tape) -> anyhow::Result<()> {
        self.play(tape, 0, WARM_UP);
        Ok(())
    }

    fn play(&mut self, tape: &Tape, from: usize, count: usize) {
        tape.play(from, count, self.batch_len).for_each(|frames| self.run(frames));
    }

    fn check(&self, _: &Tape) -> anyhow::Result<()> {
        ensure!(self.parsed == self.packets, "packets were not parsed");
        Ok(())
    }

    fn record_len(&self) -> usize {
        0
    }
}
