//! The router: numbers a flow's packets, cuts flowlets, gives each flowlet to a unit, and says who
//! owns what (S12, S13).
//!
//! A state machine without clock, thread or socket: time is given with every call, and what is to
//! be done comes out as [`Order`]s. The same configuration and the same calls give the same
//! answers.
//!
//! ```text
//! batch of packets -> prefetch -> guess -> route_on -> packet and stamp to its unit
//!                                            | if it is not in the midst of a flowlet
//!                                            +-> route -> [orders first] -> packet and stamp to its unit
//!                                  timer, at due_ns -> advance -> orders
//!                                a unit's message -> receive -> orders
//! ```
//!
//! Orders are to be carried out in order, and before the packet whose routing gave them: a
//! [`Release`] travels behind the last packet of the owner so far and ahead of the new owner's
//! first one (DESIGN 3.1).
//!
//! [`Release`]: protocol::message::Message::Release

mod assign;
mod config;
mod counters;
mod flow;
mod flowlet;
mod flows;
mod follow;
mod key;
mod load;
mod loads;
mod lottery;
mod machine;
mod owners;
mod route;
mod rss;
mod scale;
mod shelves;
mod sweep;
mod units;

pub use config::{
    BUCKETS_MAX, Choice, Config, DISPLACED_AFTER_NS, DrainWhen, FLOWS_MAX, Mode, RSS_BUCKETS_MAX, RateOver,
    RouterError, TARGETS_COUNT_MAX, TargetChoice, WhenFull,
};
pub use counters::Counters;
pub use flows::{AliasTaken, Guess};
pub use machine::{Arrival, Numbered, Order, Routed, Router};
pub use scale::{DRAIN_BELOW, MOVES_PER_BUCKET, SLOTS_PER_BUCKET};
pub use sweep::FORGOTTEN_PER_BUCKET;
pub use units::{UnitState, UnitStatus};

#[cfg(test)]
mod tests;
