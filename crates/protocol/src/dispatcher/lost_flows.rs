//! Flows that ended because their state was lost, for resets of their connections.

use packet::FlowKey;
use packet::parse::protocol;

use crate::dispatcher::counters::Counters;
use crate::dispatcher::flows::Flows;

/// Limit on the noted lost flows that have not been taken. Further ones are not noted.
pub const LOST_FLOWS_MAX: usize = 65_536;

/// A TCP flow that ended because its state was lost with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostFlow {
    /// The key of its first packet.
    pub key: FlowKey,
    /// The key of its packets after the functions, if it is another one.
    pub alias: Option<FlowKey>,
    /// A packet whose key has its source first has an alias with its source last, or the other way
    /// around. `None` if that is not known.
    pub is_turned: Option<bool>,
}

/// Lost flows that have not been taken yet.
#[derive(Default)]
pub(crate) struct LostFlows {
    /// `None` if they are not noted.
    noted: Option<Vec<LostFlow>>,
}

impl LostFlows {
    /// Notes lost TCP flows from now on.
    pub fn note_from_now(&mut self) {
        self.noted = Some(Vec::new());
    }

    /// Takes the flows that were lost since this was called last.
    pub fn take(&mut self) -> Vec<LostFlow> {
        self.noted.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Notes the flow with this index, which is about to end because its state was lost.
    pub fn note(&mut self, index: u32, flows: &Flows, counters: &mut Counters) {
        let Some(noted) = &mut self.noted else { return };
        let key = flows.key(index);
        if key.protocol != protocol::TCP {
            return;
        }
        if noted.len() >= LOST_FLOWS_MAX {
            counters.flows_lost_unnoted += 1;
            return;
        }
        let (alias, is_turned) = flows.alias(index);
        noted.push(LostFlow { key, alias, is_turned });
    }
}
