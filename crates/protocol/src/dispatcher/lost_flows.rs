//! Flows that ended because their state was lost, for those who reset their hosts.

use packet::FlowKey;
use packet::parse::protocol;

use crate::dispatcher::machine::Dispatcher;

/// Limit on the noted lost flows that nobody has taken. Further ones are not noted.
pub const LOST_FLOWS_MAX: usize = 65_536;

/// A TCP flow whose state was lost with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostFlow {
    /// The key of its first packet.
    pub key: FlowKey,
    /// The key of its packets behind the functions, if it is another one.
    pub alias: Option<FlowKey>,
    /// A packet whose key has its source first has an alias with its source last, or the other way
    /// around. `None` if that is not known.
    pub is_turned: Option<bool>,
}

impl Dispatcher {
    /// Notes lost TCP flows from now on.
    pub fn note_lost_flows(&mut self) {
        self.lost_flows = Some(Vec::new());
    }

    /// Takes the flows that were lost since this was called last.
    pub fn take_lost_flows(&mut self) -> Vec<LostFlow> {
        self.lost_flows.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Notes a flow that is about to end because its state was lost.
    pub(crate) fn note_lost(&mut self, index: u32) {
        let Some(noted) = &mut self.lost_flows else { return };
        let key = self.flows.key(index);
        if key.protocol != protocol::TCP {
            return;
        }
        if noted.len() >= LOST_FLOWS_MAX {
            self.counters.flows_lost_unnoted += 1;
            return;
        }
        let (alias, is_turned) = self.flows.alias(index);
        noted.push(LostFlow { key, alias, is_turned });
    }
}
