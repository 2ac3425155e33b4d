//! The dispatcher: numbers a flow's packets, cuts flowlets, assigns each flowlet to a unit, and
//! names the owner of each flow (S12, S13).
//!
//! A state machine without clock, thread or socket: time is given with every call, and
//! [`DispatcherOutput`]s are returned. The same configuration and the same calls give the same
//! outputs.
//!
//! ```text
//! batch of packets -> prefetch -> guess -> stamp_next -> packet and stamp to its unit
//!                                            | unless it continues a flowlet
//!                                            +-> handle_packet -> outputs, packet and stamp
//!                      timer, at next_timeout_ns -> handle_timeout -> outputs
//!                                 unit's message -> handle_message -> outputs
//! ```
//!
//! Execute outputs in order, and before the packet whose dispatch returned them: a [`Release`]
//! travels after the last packet of the owner so far and before the new owner's first one
//! (design.md 3.1).
//!
//! [`Release`]: crate::message::FromDispatcher::Release

mod assign;
mod clock;
mod config;
mod counters;
mod demand;
mod evacuation;
mod fleet;
mod flow;
mod flowlet;
mod flows;
mod groups;
mod key;
mod load;
mod load_index;
mod loads;
mod lost_flows;
mod machine;
mod membership;
mod migrations;
mod output;
mod owner_column;
mod owners;
mod placement;
mod provisioning;
mod relief;
mod rss;
mod sampler;
mod scaling;
mod step;
mod sweep;
mod units;

pub use config::{
    BUCKETS_MAX, Config, DISPLACED_AFTER_NS, DispatcherError, DrainCondition, DropRule, FLOWS_MAX,
    Granularity, RSS_BUCKETS_MAX, RateWindow, ScalingRule, TARGETS_COUNT_MAX, TargetChoice, UnitChoice,
    WhenFlowsFull,
};
pub use counters::Counters;
pub use evacuation::{FLOWS_SCANNED_PER_BUCKET, MOVES_PER_BUCKET};
pub use flows::{AliasChange, AliasConflict, FlowGuess};
pub use lost_flows::{LOST_FLOWS_MAX, LostFlow};
pub use machine::Dispatcher;
pub use membership::{Membership, UnitRefused};
pub use migrations::{MigrateError, MigratedFlow, Migrations};
pub use output::{Dispatched, DispatcherOutput, NumberedPacket, PacketArrival};
pub use owners::{Aliases, FlowStatus, OwnersView};
pub use scaling::DRAIN_BELOW;
pub use sweep::FORGOTTEN_PER_BUCKET;
pub use units::{UnitState, UnitStatus};

#[cfg(test)]
mod tests;
