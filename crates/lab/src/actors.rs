//! One core's loop over packets of many flows: a plain one with a hash table, a dispatcher with a
//! unit, and an actor with a mailbox for each flow.
//!
//! All of them run the same functions on the same frames and states, so that only what is around
//! the functions differs (A31).

#[cfg(feature = "kameo")]
pub mod mailbox;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use packet::{FlowHasher, FlowKey};
use protocol::dispatcher::{Config, Dispatched, Dispatcher, DispatcherOutput, Granularity, PacketArrival};
use protocol::message::{FlowId, RefuseReason, Stamp, UnitId};
use protocol::unit::{Done, Engine, Outbox, Unit};

/// Bytes of a frame.
pub const FRAME_LEN: usize = 64;

/// A frame.
pub type ShortFrame = [u8; FRAME_LEN];

/// The state of a flow: a monitor, a firewall, an HTTP parser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainState {
    packets: u64,
    bytes: u64,
    connection: u8,
    is_blocked: bool,
    method: [u8; 4],
    requests: u32,
}

/// Rules of the firewall: networks with passing packets.
const RULES: [(u32, u32); 8] = [
    (0xc0a8_0000, 0xffff_0000),
    (0xac10_0000, 0xfff0_0000),
    (0x6440_0000, 0xffc0_0000),
    (0xa9fe_0000, 0xffff_0000),
    (0xc612_0000, 0xfffe_0000),
    (0xcb00_7100, 0xffff_ff00),
    (0xc633_6400, 0xffff_ff00),
    (0x0a00_0000, 0xff00_0000),
];

/// Runs the first functions of the chain on a packet. Returns true if it passes.
#[inline]
pub fn run_chain(functions: u32, frame: &ShortFrame, state: &mut ChainState) -> bool {
    state.packets += 1;
    state.bytes += FRAME_LEN as u64;
    if functions > 1 {
        if state.connection == 0 {
            let source = u32::from_be_bytes([frame[26], frame[27], frame[28], frame[29]]);
            state.is_blocked = !RULES.iter().any(|(network, mask)| source & mask == *network);
        }
        // SYN, ACK, FIN and RST of the connection so far.
        state.connection |= frame[47] | 0x80;
        if state.is_blocked {
            return false;
        }
    }
    if functions > 2
        && let Some(method) = frame[54..].first_chunk::<4>()
        && (method == b"GET " || method == b"POST")
    {
        state.method = *method;
        state.requests += 1;
    }
    true
}

/// Makes a frame of a flow: a TCP segment with the begin of a request.
pub fn short_frame(flow: u32) -> ShortFrame {
    let mut frame = [0; FRAME_LEN];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 6]);
    let [_, high, middle, low] = flow.to_be_bytes();
    frame[26..34].copy_from_slice(&[10, high, middle, low, 198, 18, 0, 1]);
    frame[34..38].copy_from_slice(&[0x9c, 0x40, 0, 80]);
    frame[46..48].copy_from_slice(&[0x50, 0x10]);
    frame[54..58].copy_from_slice(b"GET ");
    frame
}

/// Returns the flow key of a frame, and its hash.
#[inline]
fn key_of(hasher: &FlowHasher, frame: &ShortFrame) -> (FlowKey, u64) {
    let end = |address: usize, port: usize| {
        let address = [frame[address], frame[address + 1], frame[address + 2], frame[address + 3]];
        (address, [frame[port], frame[port + 1]])
    };
    let key = FlowKey::of_ipv4(end(26, 34), end(30, 36), frame[23], 0).0;
    (key, hasher.hash(&key))
}

/// A loop over packets.
pub trait FlowLoop {
    /// Processes a batch. Returns the packets that pass.
    fn process(&mut self, batch: &[ShortFrame]) -> u64;

    /// Returns the packets that all states have seen.
    fn counted(&mut self) -> u64;
}

/// A key with its hash.
#[derive(Clone, Copy, PartialEq, Eq)]
struct HashedKey(FlowKey, u64);

impl std::hash::Hash for HashedKey {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.1);
    }
}

/// Takes the hash that a key has already.
#[derive(Default)]
struct Known(u64);

impl Hasher for Known {
    fn write(&mut self, _bytes: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type FlowMap<T> = HashMap<HashedKey, T, BuildHasherDefault<Known>>;

/// A loop with a hash table of states.
pub struct PlainLoop {
    functions: u32,
    hasher: FlowHasher,
    states: FlowMap<ChainState>,
}

impl PlainLoop {
    /// Without flows.
    pub fn new(functions: u32) -> PlainLoop {
        PlainLoop { functions, hasher: FlowHasher::new(1), states: FlowMap::default() }
    }
}

impl FlowLoop for PlainLoop {
    fn process(&mut self, batch: &[ShortFrame]) -> u64 {
        let mut passed = 0;
        for frame in batch {
            let (key, hash) = key_of(&self.hasher, frame);
            let state = self.states.entry(HashedKey(key, hash)).or_default();
            passed += u64::from(run_chain(self.functions, frame, state));
        }
        passed
    }

    fn counted(&mut self) -> u64 {
        self.states.values().map(|state| state.packets).sum()
    }
}

/// A unit's states.
struct ChainEngine {
    functions: u32,
    states: Vec<ChainState>,
    passed: u64,
}

impl Engine for ChainEngine {
    type Packet = ShortFrame;
    type Effects = ();

    #[inline]
    fn process(&mut self, _now_ns: u64, flow: FlowId, _seq: u64, packet: ShortFrame) {
        let index = flow.index as usize;
        if index >= self.states.len() {
            self.states.resize(index + 1, ChainState::default());
        }
        self.passed += u64::from(run_chain(self.functions, &packet, &mut self.states[index]));
    }

    /// Packets leave as they are processed, as with units in memory.
    fn flush(&mut self, _done: impl FnMut(Done<ShortFrame, ()>)) {}

    fn save(&mut self, _flow: FlowId, _out: &mut Vec<u8>) {}

    fn restore(&mut self, _now_ns: u64, _flow: FlowId, _state: &[u8]) -> Result<(), RefuseReason> {
        Err(RefuseReason::NoRoom) // Nothing moves here.
    }

    fn forget(&mut self, _now_ns: u64, flow: FlowId, _ended: bool) {
        if let Some(state) = self.states.get_mut(flow.index as usize) {
            *state = ChainState::default();
        }
    }
}

/// A dispatcher and its only unit, in one thread.
pub struct UnitLoop {
    hasher: FlowHasher,
    dispatcher: Dispatcher,
    unit: Unit<ChainEngine>,
    outputs: Vec<DispatcherOutput>,
    outbox: Outbox<ShortFrame>,
    now_ns: u64,
}

impl UnitLoop {
    /// For up to this many flows.
    ///
    /// # Errors
    ///
    /// If there is no memory for them.
    pub fn new(functions: u32, flows: u32) -> Result<UnitLoop, String> {
        let config = Config {
            mode: Granularity::Flow,
            units_max: 1,
            idle_ns: u64::MAX,
            flows_max: flows,
            ..Config::default()
        };
        let unit = protocol::unit::Config {
            id: UnitId(0),
            replicate_after_ns: None,
            deltas: false,
            reorder_timeout_ns: 1_000_000,
            retransmit_ns: 10_000_000,
            pending_max: 1 << 16,
            pending_per_flow_max: 1 << 12,
            replica_bytes_max: 0,
            expire_after_ns: None,
            has_groups: false,
        };
        Ok(UnitLoop {
            hasher: FlowHasher::new(1),
            dispatcher: Dispatcher::new(config).map_err(|error| error.to_string())?,
            unit: Unit::new(unit, ChainEngine { functions, states: Vec::new(), passed: 0 }),
            outputs: Vec::new(),
            outbox: Outbox::default(),
            now_ns: 0,
        })
    }

    /// Stamps a packet, as a dispatcher elsewhere does.
    #[inline]
    fn stamp(&mut self, frame: &ShortFrame) -> Option<Stamp> {
        let (key, hash) = key_of(&self.hasher, frame);
        let arrival = PacketArrival { key: &key, hash, len: FRAME_LEN as u32 };
        match self.dispatcher.handle_packet(self.now_ns, arrival, &mut self.outputs) {
            Dispatched::To { stamp, .. } => Some(stamp),
            Dispatched::Refused | Dispatched::NoUnit | Dispatched::Waits(_) => None,
        }
    }

    /// Stamps packets for [`serve`](UnitLoop::serve).
    pub fn stamps(&mut self, batch: &[ShortFrame]) -> Vec<(Stamp, ShortFrame)> {
        self.now_ns += 1_000;
        let stamped = batch.iter().filter_map(|frame| Some((self.stamp(frame)?, *frame)));
        stamped.collect::<Vec<_>>()
    }

    /// Plays stamped packets through the unit alone. Returns the number of packets that pass.
    pub fn serve(&mut self, stamped: &[(Stamp, ShortFrame)]) -> u64 {
        let before = self.unit.engine().passed;
        for (stamp, frame) in stamped {
            self.unit.handle_packet(self.now_ns, *stamp, *frame, &mut self.outbox);
        }
        self.unit.engine().passed - before
    }
}

impl FlowLoop for UnitLoop {
    fn process(&mut self, batch: &[ShortFrame]) -> u64 {
        self.now_ns += 1_000;
        let before = self.unit.engine().passed;
        for frame in batch {
            if let Some(stamp) = self.stamp(frame) {
                self.unit.handle_packet(self.now_ns, stamp, *frame, &mut self.outbox);
            }
        }
        self.unit.engine().passed - before
    }

    fn counted(&mut self) -> u64 {
        self.unit.engine().states.iter().map(|state| state.packets).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays packets of some flows in turn; the firewall blocks a part of them.
    fn play(flow_loop: &mut dyn FlowLoop) -> (u64, u64) {
        let mut frames: Vec<ShortFrame> = (0..300).map(|step| short_frame(step % 7)).collect();
        for blocked in frames.iter_mut().filter(|frame| frame[29] % 3 == 0) {
            blocked[26] = 11;
        }
        let passed = frames.chunks(32).map(|batch| flow_loop.process(batch)).sum();
        (passed, flow_loop.counted())
    }

    #[test]
    fn all_loops_do_the_same() {
        // Flows 0, 3 and 6 have 43, 43 and 42 packets.
        let expected = [(1, (300, 300)), (2, (300 - 128, 300)), (3, (300 - 128, 300))];
        for (functions, expected) in expected {
            assert_eq!(play(&mut PlainLoop::new(functions)), expected);
            assert_eq!(play(&mut UnitLoop::new(functions, 7).unwrap()), expected);
            #[cfg(feature = "kameo")]
            assert_eq!(play(&mut mailbox::ActorLoop::new(functions).unwrap()), expected);
        }
    }

    #[test]
    fn a_unit_serves_packets_with_stamps() {
        let mut unit = UnitLoop::new(3, 2).unwrap();
        let stamped = unit.stamps(&[short_frame(0), short_frame(1), short_frame(0)]);
        assert_eq!((unit.serve(&stamped), unit.counted()), (3, 3));
    }
}
