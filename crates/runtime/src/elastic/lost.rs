//! Flows that ended with lost units, and which of their hosts know that.
//!
//! A host of a lost flow would wait in vain for further segments. So the next segment of either
//! host is answered as by a host that does not know the connection (RFC 9293 3.10.7.1), and the
//! other host gets a reset, too.

use std::collections::{HashMap, VecDeque};

use packet::FlowKey;
use protocol::dispatcher::{LOST_FLOWS_MAX, LostFlow};

/// Time that a lost flow is remembered, in nanoseconds.
pub const LOST_FLOWS_NS: u64 = 3_600_000_000_000;

/// Lost flows, oldest first. At [`LOST_FLOWS_MAX`], the oldest is discarded.
#[derive(Default)]
pub(super) struct LostFlows {
    flows: VecDeque<Remembered>,
    /// Number of the first one.
    first: u64,
    by_key: HashMap<FlowKey, u64>,
    pub counts: LostFlowCounts,
}

struct Remembered {
    flow: LostFlow,
    lost_ns: u64,
    is_forgotten: bool,
    /// Resets were sent for it.
    is_reset: bool,
    /// A reset was sent to the host at each end, because of a segment of the other: at the end of
    /// the flow's key, and at that of its alias.
    is_told: [bool; 2],
}

/// Counts of lost flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LostFlowCounts {
    /// Flows with at least one host reset.
    pub flows_reset: u64,
    /// Flows that were forgotten for others, or because of their age.
    pub forgotten: u64,
    /// Resets, and their bytes.
    pub resets: u64,
    pub bytes: u64,
}

/// A lost flow that a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FoundLost {
    pub number: u64,
    pub flow: LostFlow,
    /// The packet has the flow's alias.
    pub is_alias: bool,
}

impl LostFlows {
    /// Returns true if no flow is remembered.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Returns the number of keys of lost flows.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns true if packets with this key belong to a lost flow.
    pub fn has(&self, key: &FlowKey) -> bool {
        self.by_key.contains_key(key)
    }

    /// Returns the lost flow with this key.
    pub fn find(&self, key: &FlowKey) -> Option<FoundLost> {
        let number = *self.by_key.get(key)?;
        let flow = self.flows.get(usize::try_from(number - self.first).ok()?)?.flow;
        Some(FoundLost { number, flow, is_alias: flow.key != *key })
    }

    /// Remembers a flow. Returns the flow that is discarded for it.
    pub fn add(&mut self, now_ns: u64, flow: LostFlow) -> Option<LostFlow> {
        let displaced = if self.flows.len() >= LOST_FLOWS_MAX { self.pop() } else { None };
        let number = self.first + self.flows.len() as u64;
        for key in [Some(flow.key), flow.alias].into_iter().flatten() {
            self.by_key.insert(key, number);
        }
        let (is_forgotten, is_reset, is_told) = (false, false, [false; 2]);
        self.flows.push_back(Remembered { flow, lost_ns: now_ns, is_forgotten, is_reset, is_told });
        displaced
    }

    /// Forgets a flow after another has taken its key.
    pub fn forget(&mut self, number: u64) -> Option<LostFlow> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let remembered = self.flows.get_mut(at).filter(|remembered| !remembered.is_forgotten)?;
        remembered.is_forgotten = true;
        let flow = remembered.flow;
        self.remove_keys(&flow, number);
        Some(flow)
    }

    /// Forgets the oldest flow if it is old. Returns it.
    pub fn forget_old(&mut self, now_ns: u64) -> Option<LostFlow> {
        loop {
            let is_old = |first: &Remembered| {
                first.is_forgotten || now_ns.saturating_sub(first.lost_ns) >= LOST_FLOWS_NS
            };
            if !self.flows.front().is_some_and(is_old) {
                return None;
            }
            if let Some(flow) = self.pop() {
                return Some(flow);
            }
        }
    }

    /// Notes that resets are sent because of a segment. Returns true if the other host must get
    /// one, its first.
    pub fn note_reset(&mut self, found: &FoundLost) -> bool {
        let at = usize::try_from(found.number - self.first).unwrap_or(usize::MAX);
        let Some(remembered) = self.flows.get_mut(at) else { return false };
        self.counts.flows_reset += u64::from(!std::mem::replace(&mut remembered.is_reset, true));
        !std::mem::replace(&mut remembered.is_told[usize::from(found.is_alias)], true)
    }

    /// Removes the oldest flow. Returns it unless it was forgotten before.
    fn pop(&mut self) -> Option<LostFlow> {
        let oldest = self.flows.pop_front()?;
        self.first += 1;
        if oldest.is_forgotten {
            return None;
        }
        self.counts.forgotten += 1;
        self.remove_keys(&oldest.flow, self.first - 1);
        Some(oldest.flow)
    }

    fn remove_keys(&mut self, flow: &LostFlow, number: u64) {
        for key in [Some(flow.key), flow.alias].into_iter().flatten() {
            if self.by_key.get(&key) == Some(&number) {
                self.by_key.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test fails by panicking.

    use packet::{Addr, Endpoint, Scope};

    use super::*;

    fn key(port: u32) -> FlowKey {
        let end = |address: u32, port| Endpoint::new(Addr::from_v4_bytes(address.to_be_bytes()), port);
        FlowKey::new(end(0x0a00_0000 + port, 1000), end(0xc0a8_0101, 80), 6, 4, Scope::default(), 0).0
    }

    fn lost(number: u32) -> LostFlow {
        LostFlow { key: key(2 * number), alias: Some(key(2 * number + 1)), is_turned: Some(false) }
    }

    #[test]
    fn flow_is_found_by_key_and_alias_until_it_is_old() {
        let mut flows = LostFlows::default();
        assert!(flows.is_empty());
        (0..3).for_each(|number| assert_eq!(flows.add(u64::from(number), lost(number)), None));
        let found = flows.find(&key(3)).unwrap();
        assert_eq!(found, FoundLost { number: 1, flow: lost(1), is_alias: true });
        assert!(flows.note_reset(&found) && !flows.note_reset(&found), "the other host is reset once");
        assert!(flows.note_reset(&flows.find(&key(2)).unwrap()), "and so is this one");
        assert_eq!(flows.counts.flows_reset, 1);
        assert_eq!(flows.forget(1), Some(lost(1)));
        assert_eq!((flows.forget(1), flows.find(&key(2)), flows.len()), (None, None, 4));
        assert_eq!(flows.forget_old(LOST_FLOWS_NS), Some(lost(0)));
        assert_eq!(flows.forget_old(LOST_FLOWS_NS + 1), None, "it was forgotten before");
        assert_eq!(flows.forget_old(LOST_FLOWS_NS + 2), Some(lost(2)));
        assert!(flows.is_empty() && flows.flows.is_empty());
        assert_eq!(flows.counts.forgotten, 2);
    }

    #[test]
    fn oldest_gives_way_and_a_key_is_the_latest_flows() {
        let mut flows = LostFlows::default();
        let max = LOST_FLOWS_MAX as u32;
        (0..max).for_each(|number| assert_eq!(flows.add(0, lost(number)), None));
        // Another flow of the second one's key: it is found, and stays when the former goes.
        let again = LostFlow { alias: None, ..lost(1) };
        assert_eq!(flows.add(1, again), Some(lost(0)));
        assert_eq!(flows.find(&key(2)).unwrap().number, u64::from(max));
        assert_eq!(flows.add(1, lost(max)), Some(lost(1)));
        assert_eq!(flows.find(&key(2)).unwrap().flow, again);
        assert_eq!(flows.flows.len(), LOST_FLOWS_MAX);
    }
}
