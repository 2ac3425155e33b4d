//! A store of states for all units, as in systems with stateless units (S93, S94).

use std::collections::{BTreeMap, VecDeque};

use protocol::message::{Epoch, FlowId, FlowRecord, UnitId};

use crate::engine::Processed;
use crate::scenario::{self, StatePlace};

/// A store of states, and the parcels at units that wait for it. It serves one request at a time.
#[derive(Clone, Debug)]
pub struct Store {
    /// The scenario's settings.
    pub use_: scenario::State,
    busy_until_ns: u64,
    /// The newest state of each flow that was written.
    records: BTreeMap<FlowId, FlowRecord>,
    /// Units that wait for states.
    waiting: BTreeMap<FlowId, Vec<Fetch>>,
    /// Last seq of each flow's state that units have written, or are about to.
    written: BTreeMap<FlowId, u64>,
    /// The newest epoch of each flow that was handed over by the store.
    handed_over: BTreeMap<FlowId, Epoch>,
    /// Parcels that wait at units until an access has finished.
    lines: BTreeMap<(UnitId, FlowId), Line>,
    /// Counters of requests.
    pub counters: Accesses,
}

/// Counters of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// States read.
    pub reads: u64,
    /// States written.
    pub writes: u64,
    /// Bytes of state in both.
    pub bytes: u64,
}

/// The parcels of a flow at a unit with accesses to the store.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Accesses in flight.
    pub accesses: u32,
    /// Waiting parcels, in order.
    pub parcels: VecDeque<u32>,
}

/// A request, or its answer.
#[derive(Clone, Debug)]
pub enum Request {
    /// A packet needs the state that its unit works on.
    Read { unit: UnitId, parcel: u32 },
    /// A packet has changed the state, and waits until that is written.
    Write { unit: UnitId, done: Processed, record: FlowRecord },
    /// A state is written; no unit waits for that.
    Push { flow: FlowId, record: FlowRecord },
    /// A new owner needs the state.
    Fetch(Fetch),
}

/// A new owner needs the state, once it includes all packets of the owner before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The new owner.
    pub unit: UnitId,
    /// The new owner's epoch.
    pub epoch: Epoch,
    /// The flow.
    pub flow: FlowId,
    /// The former owner.
    pub previous: UnitId,
    /// The former owner's last seq.
    pub last: u64,
}

impl Request {
    /// Returns true if a unit waits for the request, so that the run must continue.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        !matches!(self, Request::Push { .. })
    }
}

impl Store {
    /// Creates an empty store.
    pub fn new(use_: scenario::State) -> Store {
        Store {
            use_,
            busy_until_ns: 0,
            records: BTreeMap::new(),
            waiting: BTreeMap::new(),
            written: BTreeMap::new(),
            handed_over: BTreeMap::new(),
            lines: BTreeMap::new(),
            counters: Accesses::default(),
        }
    }

    /// Returns true if each packet reads and writes its state.
    pub fn is_naive(&self) -> bool {
        self.use_.place == StatePlace::StoreNaive
    }

    /// Returns true if states are written as soon as flows fall silent (S94).
    pub fn is_told_early(&self) -> bool {
        self.use_.place == StatePlace::Store
    }

    /// Serves a request. Returns the time of its end.
    pub fn serve(&mut self, now_ns: u64) -> u64 {
        self.busy_until_ns = self.busy_until_ns.max(now_ns) + self.use_.store_time.0;
        self.busy_until_ns
    }

    /// Returns the time until the store has served all requests.
    pub fn behind_ns(&self, now_ns: u64) -> u64 {
        self.busy_until_ns.saturating_sub(now_ns)
    }

    /// Notes that the state is written up to this seq. Returns false if it is there already.
    pub fn is_news(&mut self, flow: FlowId, seq: u64) -> bool {
        self.written.insert(flow, seq) != Some(seq)
    }

    /// Returns true for the first handover to an epoch.
    pub fn is_first(&mut self, flow: FlowId, epoch: Epoch) -> bool {
        self.handed_over.insert(flow, epoch) != Some(epoch)
    }

    /// Counts the read of a state for a packet.
    pub fn read(&mut self, bytes: usize) {
        self.counters.reads += 1;
        self.counters.bytes += bytes as u64;
    }

    /// Writes a state. Returns the requests that waited for it.
    pub fn write(&mut self, flow: FlowId, record: FlowRecord) -> Vec<(Fetch, FlowRecord)> {
        self.counters.writes += 1;
        self.counters.bytes += record.bytes.len() as u64;
        let is_older = |old: &FlowRecord| old.watermark.contiguous > record.watermark.contiguous;
        if !self.records.get(&flow).is_some_and(is_older) {
            self.records.insert(flow, record);
        }
        let (ready, waiting) = self
            .waiting
            .remove(&flow)
            .unwrap_or_default()
            .into_iter()
            .partition::<Vec<_>, _>(|fetch| self.has(fetch));
        if !waiting.is_empty() {
            self.waiting.insert(flow, waiting);
        }
        ready.into_iter().filter_map(|fetch| self.fetch(fetch).map(|record| (fetch, record))).collect()
    }

    /// Returns the state for a new owner, or queues the request until it is there.
    pub fn fetch(&mut self, fetch: Fetch) -> Option<FlowRecord> {
        if !self.has(&fetch) {
            let waiting = self.waiting.entry(fetch.flow).or_default();
            if !waiting.contains(&fetch) {
                waiting.push(fetch);
            }
            return None;
        }
        let record = self.records.get(&fetch.flow)?.clone();
        self.read(record.bytes.len());
        Some(record)
    }

    fn has(&self, fetch: &Fetch) -> bool {
        self.records.get(&fetch.flow).is_some_and(|record| record.watermark.contiguous == fetch.last)
    }

    /// Removes a flow that has ended.
    pub fn end(&mut self, flow: FlowId) {
        self.records.remove(&flow);
        self.waiting.remove(&flow);
        self.written.remove(&flow);
        self.handed_over.remove(&flow);
    }

    /// Returns the parcels that wait for a flow's accesses at a unit.
    pub fn line(&mut self, unit: UnitId, flow: FlowId) -> Option<&mut Line> {
        self.lines.get_mut(&(unit, flow))
    }

    /// Begins an access.
    pub fn begin(&mut self, unit: UnitId, flow: FlowId) {
        self.lines.entry((unit, flow)).or_default().accesses += 1;
    }

    /// Finishes an access.
    pub fn finish(&mut self, unit: UnitId, flow: FlowId) {
        if let Some(line) = self.lines.get_mut(&(unit, flow)) {
            line.accesses = line.accesses.saturating_sub(1);
        }
    }

    /// Removes the next waiting parcel of a flow that has no access in flight.
    pub fn next_in_line(&mut self, unit: UnitId, flow: FlowId) -> Option<u32> {
        let line = self.lines.get_mut(&(unit, flow)).filter(|line| line.accesses == 0)?;
        let next = line.parcels.pop_front();
        if next.is_none() {
            self.lines.remove(&(unit, flow));
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use protocol::message::Watermark;

    use super::*;
    use values::Nanos;

    const FLOW: FlowId = FlowId { index: 0, generation: 0 };

    fn record(contiguous: u64) -> FlowRecord {
        FlowRecord { watermark: Watermark::up_to(contiguous), bytes: vec![0; 64] }
    }

    fn fetch(unit: u16, last: u64) -> Fetch {
        Fetch { unit: UnitId(unit), epoch: 2, flow: FLOW, previous: UnitId(0), last }
    }

    #[test]
    fn requests_are_dealt_with_one_after_the_other() {
        let mut store = Store::new(scenario::State { store_time: Nanos(10), ..scenario::State::default() });
        assert_eq!([store.serve(100), store.serve(100), store.serve(200)], [110, 120, 210]);
    }

    #[test]
    fn a_new_owner_gets_the_state_of_all_that_the_one_before_got() {
        let mut store = Store::new(scenario::State::default());
        assert!(store.write(FLOW, record(2)).is_empty());
        assert_eq!(store.fetch(fetch(1, 3)), None);
        assert_eq!((store.fetch(fetch(1, 3)), store.fetch(fetch(2, 5))), (None, None));
        assert!(store.write(FLOW, record(1)).is_empty(), "an older one");
        assert_eq!(store.write(FLOW, record(3)), [(fetch(1, 3), record(3))]);
        assert_eq!(store.fetch(fetch(1, 3)), Some(record(3)));
        assert_eq!(store.write(FLOW, record(5)), [(fetch(2, 5), record(5))]);
        assert_eq!(store.counters, Accesses { reads: 3, writes: 4, bytes: 7 * 64 });
    }

    #[test]
    fn what_comes_behind_an_access_waits_for_its_end() {
        let mut store = Store::new(scenario::State::default());
        let unit = UnitId(1);
        assert!(store.line(unit, FLOW).is_none());
        store.begin(unit, FLOW);
        store.line(unit, FLOW).unwrap().parcels.push_back(7);
        assert_eq!(store.next_in_line(unit, FLOW), None);
        store.finish(unit, FLOW);
        assert_eq!((store.next_in_line(unit, FLOW), store.next_in_line(unit, FLOW)), (Some(7), None));
        assert!(store.line(unit, FLOW).is_none());
    }
}
