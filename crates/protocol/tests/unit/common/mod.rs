//! An engine with states that record all their events.
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
    /// The affinity groups of flows that have one: they take an item of the group's pool.
    pub groups: BTreeMap<FlowId, u16>,
    /// The items that flows have here: group, and number in its share.
    pub items: BTreeMap<FlowId, (u16, u64)>,
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
        if let Some(&group) = self.groups.get(&flow).filter(|_| !self.items.contains_key(&flow)) {
            let is_taken = |number: &u64| self.items.values().any(|item| *item == (group, *number));
            let free = (0..).find(|number| !is_taken(number)).unwrap_or_default();
            self.items.insert(flow, (group, free));
        }
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
        if let Some((group, number)) = self.items.get(&flow).filter(|_| self.states.contains_key(&flow)) {
            out.extend((ITEM | u64::from(*group) << 32 | number).to_le_bytes());
        }
    }

    fn restore(&mut self, _: u64, flow: FlowId, state: &[u8]) -> Result<(), RefuseReason> {
        if self.refuses && !self.states.contains_key(&flow) {
            return Err(RefuseReason::NoRoom);
        }
        let (state, item) = split_item(state);
        let (seqs, rest) = state.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(RefuseReason::Unreadable);
        }
        let mut seqs: Vec<u64> = seqs.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        if let Some(first) = seqs.first_mut() {
            *first &= !EVEN;
        }
        assert_eq!(state, bytes(&seqs), "a state that nobody has saved");
        if let Some(item) = item {
            // A flow that has left may have it until its state is acknowledged.
            if self.items.iter().any(|(other, of)| *of == item && *other != flow) {
                return Err(RefuseReason::NoRoom);
            }
            self.items.insert(flow, item);
        }
        self.states.insert(flow, seqs);
        Ok(())
    }

    fn forget(&mut self, _: u64, flow: FlowId, ended: bool) {
        let state = self.states.remove(&flow).unwrap_or_default();
        self.items.remove(&flow);
        if ended {
            self.ended.push((flow, state));
        }
        self.forgotten.push((flow, ended));
    }
}

/// The mark of an item after the seqs.
const ITEM: u64 = 1 << 62;

/// Splits a saved state into the seqs and the item of a pool.
fn split_item(state: &[u8]) -> (&[u8], Option<(u16, u64)>) {
    match state.split_last_chunk::<8>() {
        Some((seqs, last)) if u64::from_le_bytes(*last) & ITEM != 0 => {
            let item = u64::from_le_bytes(*last) & !ITEM;
            (seqs, Some(((item >> 32) as u16, item & 0xffff_ffff)))
        }
        _ => (state, None),
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
