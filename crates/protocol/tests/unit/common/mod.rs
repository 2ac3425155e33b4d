//! An engine whose states record everything that happened to them.
#![allow(dead_code)]

pub mod link;
pub mod pair;
pub mod world;

use std::collections::BTreeMap;

use protocol::message::{FlowId, RefuseReason};
use protocol::unit::{Done, Engine};

/// A flow's state is the list of processed seqs, in order.
#[derive(Clone, Debug, Default, Hash)]
pub struct Ledger {
    pub states: BTreeMap<FlowId, Vec<u64>>,
    /// All packets processed here, wherever their states went.
    pub processed: Vec<(FlowId, u64)>,
    /// Forgotten flows, and whether they had ended.
    pub forgotten: Vec<(FlowId, bool)>,
    /// Flows that ended here, with their states.
    pub ended: Vec<(FlowId, Vec<u64>)>,
    /// Packets processed since the last flush.
    pub done: usize,
    /// Refuse states that arrive.
    pub refuses: bool,
}

impl Ledger {
    /// Returns a flow's state; empty if there is none.
    pub fn state(&self, flow: FlowId) -> &[u64] {
        self.states.get(&flow).map_or(&[], |state| state)
    }
}

impl Engine for Ledger {
    type Packet = u64;
    type Effects = ();

    fn process(&mut self, _: u64, flow: FlowId, seq: u64, packet: u64) {
        assert_eq!(seq, packet, "the packet is its seq");
        self.states.entry(flow).or_default().push(packet);
        self.processed.push((flow, packet));
        self.done += 1;
    }

    fn flush(&mut self, mut done: impl FnMut(Done<u64, ()>)) {
        let first = self.processed.len() - std::mem::take(&mut self.done);
        for &(flow, packet) in &self.processed[first..] {
            let mut one = Done::new(flow, packet);
            one.outputs.push(packet);
            done(one);
        }
    }

    fn save(&mut self, flow: FlowId, out: &mut Vec<u8>) {
        out.extend(bytes(self.state(flow)));
    }

    fn restore(&mut self, _: u64, flow: FlowId, state: &[u8]) -> Result<(), RefuseReason> {
        if self.refuses && !self.states.contains_key(&flow) {
            return Err(RefuseReason::NoRoom);
        }
        let (seqs, rest) = state.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(RefuseReason::Unreadable);
        }
        let mut seqs: Vec<u64> = seqs.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        if let Some(first) = seqs.first_mut() {
            *first &= !EVEN;
        }
        assert_eq!(state, bytes(&seqs), "a state that nobody has saved");
        self.states.insert(flow, seqs);
        Ok(())
    }

    fn forget(&mut self, _: u64, flow: FlowId, ended: bool) {
        let state = self.states.remove(&flow).unwrap_or_default();
        if ended {
            self.ended.push((flow, state));
        }
        self.forgotten.push((flow, ended));
    }
}

/// A mark on the first seq while the number of seqs is even: each packet changes the bytes that the
/// previous one changed.
const EVEN: u64 = 1 << 63;

/// Returns a state as the engine saves it.
pub fn bytes(seqs: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = seqs.iter().flat_map(|seq| seq.to_le_bytes()).collect();
    if let Some(highest) = bytes.get_mut(7).filter(|_| seqs.len().is_multiple_of(2)) {
        *highest |= 0x80;
    }
    bytes
}
