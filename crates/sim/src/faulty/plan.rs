//! Plans of faults, in TOML.

use protocol::trace::failure::Faults;
use serde::Deserialize;
use values::Nanos;

use crate::scenario::{LinkSettings, MessageFaults};

/// Faults between a dispatcher and its units, and changes of the units.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultPlan {
    /// Links, for packets.
    pub packets: LinkSettings,
    /// Messages that units send, to each other and to the dispatcher.
    pub messages: MessageFaults,
    /// Units that join, leave and crash.
    pub units: Vec<PlannedChange>,
}

/// Units that join, leave or crash.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedChange {
    /// The kind of the change.
    pub event: ChangeKind,
    /// Time of the change, from the first packet on.
    pub at: Nanos,
    /// Mean time after which the change repeats; without it, it happens once.
    #[serde(default)]
    pub every: Option<Nanos>,
    /// The unit. If it is absent or does not run, the seed chooses one that runs.
    #[serde(default)]
    pub unit: Option<u16>,
}

/// The kind of a change of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// One more unit starts, up to `units_max`.
    Join,
    /// A unit is drained: it hands over its flows and stops.
    Leave,
    /// A unit is gone, with its flows and its pending packets.
    Crash,
}

impl Faults for FaultPlan {
    fn without_one(&self) -> Vec<FaultPlan> {
        let mut plans = Vec::new();
        let mut without = |is_there: bool, remove: &dyn Fn(&mut FaultPlan)| {
            if is_there {
                let mut plan = self.clone();
                remove(&mut plan);
                plans.push(plan);
            }
        };
        for at in 0..self.units.len() {
            without(true, &|plan| _ = plan.units.remove(at));
        }
        let FaultPlan { packets, messages, .. } = self;
        without(messages.loss.0 > 0.0, &|plan| plan.messages.loss.0 = 0.0);
        without(messages.again.0 > 0.0, &|plan| plan.messages.again.0 = 0.0);
        without(messages.late.0 > 0.0, &|plan| plan.messages.late.0 = 0.0);
        without(packets.loss.0 > 0.0, &|plan| plan.packets.loss.0 = 0.0);
        without(packets.reorder.0 > 0.0, &|plan| plan.packets.reorder.0 = 0.0);
        without(packets.jitter.0 > 0, &|plan| plan.packets.jitter.0 = 0);
        plans
    }
}

impl FaultPlan {
    /// Reads a plan in TOML.
    ///
    /// # Errors
    /// If the text is no plan; the message has the line and what was expected.
    pub fn parse(text: &str) -> Result<FaultPlan, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }
}
