//! The simulated engine: a state encodes exactly its packets and their order.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use protocol::message::{FlowId, RefuseReason};
use protocol::unit::{Done, Engine};

use crate::scenario::UnitsSettings;
use crate::service::{Service, Spent};

/// A packet at a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Time of arrival at the dispatcher.
    pub came_ns: u64,
    /// Time of arrival at its unit; `u64::MAX` before.
    pub at_unit_ns: u64,
    /// Its number in its flow.
    pub seq: u64,
    /// Bytes on the wire.
    pub len: u32,
}

/// Returns the state after a packet. This fold over a flow's packets encodes their identity and
/// order.
#[inline]
pub fn fold(state: u64, seq: u64) -> u64 {
    let mut sum = state.rotate_left(5) ^ seq;
    packet::split_mix(&mut sum)
}

/// A processed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processed {
    /// Its flow.
    pub flow: FlowId,
    /// The packet.
    pub packet: Packet,
    /// The flow's state before it.
    pub before: u64,
    /// Time of its end.
    pub done_ns: u64,
}

/// The engine of a simulated unit: one packet at a time, each takes its time.
#[derive(Clone, Debug)]
pub struct Counting {
    service: Service,
    spent: Spent,
    len: StateLen,
    states: States,
    /// End of the last packet.
    done_ns: u64,
    /// Time when the engine can take the next packet.
    free_ns: u64,
    /// Picoseconds of messages that were not charged yet, below a nanosecond.
    rest_ps: u64,
    /// Packets processed since the last call of `take`.
    processed: Vec<Processed>,
    /// Flows that ended since the last call of `take_ended`, with their states.
    ended: Vec<(FlowId, u64)>,
}

/// Bytes of a saved state. They are generated from the fold of the packets and the flow's number;
/// none is likely to be zero, or the same by chance.
#[derive(Clone, Copy, Debug)]
pub struct StateLen {
    /// All bytes.
    pub all: usize,
    /// Bytes that each packet changes; the others never change.
    pub changes: usize,
}

impl StateLen {
    /// Least bytes of a saved state; each packet changes them.
    const MIN: usize = size_of::<u64>();

    /// Returns the lengths for these units.
    pub fn of(units: &UnitsSettings) -> StateLen {
        let all = (units.state.0 as usize).max(StateLen::MIN);
        let changes = units.changes.map_or(all, |size| (size.0 as usize).clamp(StateLen::MIN, all));
        StateLen { all, changes }
    }

    /// Returns all bytes but the first eight, piece by piece.
    fn rest(self, flow: FlowId, fold: u64) -> impl Iterator<Item = ([u8; 8], usize)> {
        let mut constant = u64::from(flow.index) << 32 | u64::from(flow.generation);
        let constant = packet::split_mix(&mut constant).to_be_bytes();
        let pieces =
            |len: usize, bytes: [u8; 8]| (0..len).step_by(8).map(move |at| (bytes, (len - at).min(8)));
        let changing = pieces(self.changes - StateLen::MIN, fold.to_be_bytes());
        changing.chain(pieces(self.all - self.changes, constant))
    }
}

impl Counting {
    /// Creates an engine with flow states of `len` bytes.
    pub fn new(service: Service, len: StateLen) -> Counting {
        Counting {
            service,
            spent: Spent::default(),
            len,
            states: States::default(),
            done_ns: 0,
            free_ns: 0,
            rest_ps: 0,
            processed: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Returns the end of the last packet.
    #[inline]
    pub fn done_ns(&self) -> u64 {
        self.done_ns
    }

    /// Returns the time when the engine can take the next packet: after its end, and with quota
    /// left.
    #[inline]
    pub fn free_ns(&self) -> u64 {
        self.free_ns
    }

    /// Charges the cost of messages, which no quota limits.
    #[inline]
    pub fn take_messages(&mut self, now_ns: u64, count: usize) {
        let each_ps = self.service.message_ps();
        if each_ps > 0 && count > 0 {
            let whole_ns = self.whole_ns(each_ps.saturating_mul(count as u64));
            self.done_ns = self.done_ns.max(now_ns).saturating_add(whole_ns);
            self.free_ns = self.free_ns.max(self.done_ns);
        }
    }

    /// Adds picoseconds to the remainder, and returns its whole nanoseconds.
    fn whole_ns(&mut self, ps: u64) -> u64 {
        self.rest_ps = self.rest_ps.saturating_add(ps);
        let whole_ns = self.rest_ps / 1_000;
        self.rest_ps %= 1_000;
        whole_ns
    }

    /// Returns true if there are processed packets or ended flows to take.
    #[inline]
    pub fn has_news(&self) -> bool {
        !(self.processed.is_empty() && self.ended.is_empty())
    }

    /// Takes the flows that ended since the last call, with their states. Uses the empty list from
    /// now on.
    #[inline]
    pub fn take_ended(&mut self, empty: Vec<(FlowId, u64)>) -> Vec<(FlowId, u64)> {
        std::mem::replace(&mut self.ended, empty)
    }

    /// Returns the saved form of the state after a packet.
    pub fn bytes_after(&self, done: &Processed) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(done.flow, fold(done.before, done.packet.seq), &mut bytes);
        bytes
    }

    fn write(&self, flow: FlowId, fold: u64, out: &mut Vec<u8>) {
        out.reserve_exact(self.len.all);
        out.extend_from_slice(&fold.to_be_bytes());
        self.len.rest(flow, fold).for_each(|(bytes, len)| out.extend_from_slice(&bytes[..len]));
    }

    /// Returns all flows with a state here, and the states.
    pub fn states(&self) -> impl Iterator<Item = (FlowId, u64)> + '_ {
        self.states.iter().map(|(&flow, &state)| (flow, state))
    }
}

impl Engine for Counting {
    type Packet = Packet;
    type Effects = Processed;

    #[inline]
    fn process(&mut self, now_ns: u64, flow: FlowId, _seq: u64, packet: Packet) {
        let state = self.states.entry(flow).or_default();
        let before = *state;
        *state = fold(before, packet.seq);
        let begin_ns = self.free_ns.max(now_ns);
        self.done_ns = begin_ns.saturating_add(self.service.ns(packet.len));
        self.free_ns = self.service.spend(&mut self.spent, begin_ns, packet.len).max(self.done_ns);
        self.processed.push(Processed { flow, packet, before, done_ns: self.done_ns });
    }

    #[inline]
    fn flush(&mut self, mut done: impl FnMut(Done<Packet, Processed>)) {
        for processed in self.processed.drain(..) {
            let mut one = Done::new(processed.flow, processed.packet.seq);
            one.outputs.push(processed.packet);
            one.effects = Some(processed);
            done(one);
        }
    }

    fn save(&mut self, flow: FlowId, out: &mut Vec<u8>) {
        if let Some(&state) = self.states.get(&flow) {
            self.write(flow, state, out);
        }
    }

    fn restore(&mut self, _now_ns: u64, flow: FlowId, state: &[u8]) -> Result<(), RefuseReason> {
        if state.is_empty() {
            self.states.remove(&flow);
            return Ok(());
        }
        let (fold, mut rest) = state.split_first_chunk().ok_or(RefuseReason::Unreadable)?;
        let fold = u64::from_be_bytes(*fold);
        for (bytes, len) in self.len.rest(flow, fold) {
            rest = rest.strip_prefix(&bytes[..len]).ok_or(RefuseReason::Unreadable)?;
        }
        if !rest.is_empty() {
            return Err(RefuseReason::Unreadable);
        }
        self.states.insert(flow, fold);
        Ok(())
    }

    fn forget(&mut self, _now_ns: u64, flow: FlowId, ended: bool) {
        if let Some(state) = self.states.remove(&flow)
            && ended
        {
            self.ended.push((flow, state));
        }
    }
}

/// States by flow. Each unit has few of all flows, so a table of these is denser than an array by
/// index.
type States = HashMap<FlowId, u64, BuildHasherDefault<FlowHash>>;

/// A hasher of flow ids; the same in every run.
#[derive(Clone, Copy, Debug, Default)]
struct FlowHash(u64);

impl Hasher for FlowHash {
    #[inline]
    fn write_u32(&mut self, part: u32) {
        self.0 = (self.0 ^ u64::from(part)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::ByteCount;

    fn packet(seq: u64) -> Packet {
        Packet { came_ns: 0, at_unit_ns: 0, seq, len: 125 }
    }

    fn flow(index: u32, generation: u32) -> FlowId {
        FlowId { index, generation }
    }

    #[test]
    fn a_state_tells_which_packets_made_it_and_in_which_order() {
        let of = |seqs: &[u64]| seqs.iter().fold(0, |state, &seq| fold(state, seq));
        let states = [of(&[]), of(&[1]), of(&[1, 2]), of(&[2, 1]), of(&[1, 2, 3]), of(&[1, 3])];
        assert!((1..states.len()).all(|i| !states[..i].contains(&states[i])));
    }

    #[test]
    fn a_state_moves_and_time_passes() {
        let units = UnitsSettings { packet_cost: None, byte_cost: None, ..UnitsSettings::default() };
        let engine = || Counting::new(Service::of(&units).unwrap(), StateLen::of(&units));
        let (mut here, mut there, mut bytes) = (engine(), engine(), Vec::new());
        here.process(100, flow(3, 0), 1, packet(1));
        here.process(100, flow(3, 0), 2, packet(2));
        assert_eq!((here.done_ns(), here.free_ns()), (2_100, 2_100));
        here.save(flow(3, 0), &mut bytes);
        assert_eq!(bytes.len(), 64);
        there.restore(0, flow(3, 0), &bytes).unwrap();
        here.forget(0, flow(3, 0), false);
        there.process(200, flow(3, 0), 3, packet(3));
        let mut processed = Vec::new();
        there.flush(|done| processed.extend(done.effects));
        assert_eq!((processed[0].before, processed[0].done_ns), (fold(fold(0, 1), 2), 1_200));
        assert_eq!((here.states().count(), there.states().count()), (0, 1));
        assert!(there.restore(0, flow(3, 0), &bytes[1..]).is_err());
        bytes[40] ^= 1;
        assert!(there.restore(0, flow(3, 0), &bytes).is_err());
    }

    #[test]
    fn messages_take_time_that_packets_wait_for() {
        let units = UnitsSettings { message_cost: values::Picos(400_500), ..UnitsSettings::default() };
        let mut engine = Counting::new(Service::of(&units).unwrap(), StateLen::of(&units));
        engine.take_messages(1_000, 2);
        assert_eq!((engine.done_ns(), engine.free_ns()), (1_801, 1_801));
        engine.process(1_500, flow(3, 0), 1, packet(1));
        assert_eq!(engine.done_ns(), 2_801);
        let mut free = Counting::new(Service::of(&UnitsSettings::default()).unwrap(), StateLen::of(&units));
        free.take_messages(1_000, 2);
        assert_eq!((free.done_ns(), free.free_ns()), (0, 0));
    }

    #[test]
    fn packets_change_so_many_bytes_of_a_state() {
        let units =
            UnitsSettings { state: ByteCount(100), changes: Some(ByteCount(21)), ..UnitsSettings::default() };
        let mut engine = Counting::new(Service::of(&units).unwrap(), StateLen::of(&units));
        let (mut before, mut after) = (Vec::new(), Vec::new());
        engine.process(0, flow(3, 0), 1, packet(1));
        engine.save(flow(3, 0), &mut before);
        engine.process(0, flow(3, 0), 2, packet(2));
        engine.save(flow(3, 0), &mut after);
        assert_eq!((before.len(), after.len()), (100, 100));
        assert!(before.iter().zip(&after).enumerate().all(|(at, (a, b))| (a != b) == (at < 21)));
        assert!(after.iter().all(|&byte| byte != 0));
    }

    #[test]
    fn flows_of_one_index_do_not_disturb_each_other() {
        let len = StateLen { all: 8, changes: 8 };
        let mut engine = Counting::new(Service::of(&UnitsSettings::default()).unwrap(), len);
        engine.process(0, flow(7, 0), 1, packet(1));
        engine.process(0, flow(7, 1), 1, packet(1));
        engine.process(0, flow(7, 1), 2, packet(2));
        let of = [(flow(7, 0), fold(0, 1)), (flow(7, 1), fold(fold(0, 1), 2))];
        let mut states: Vec<_> = engine.states().collect();
        states.sort();
        assert_eq!(states, of);
        engine.forget(0, flow(7, 0), true);
        engine.process(0, flow(7, 1), 3, packet(3));
        engine.forget(0, flow(7, 1), true);
        assert_eq!(engine.take_ended(Vec::new()), [of[0], (flow(7, 1), fold(of[1].1, 3))]);
        assert_eq!(engine.states().count(), 0);
    }
}
