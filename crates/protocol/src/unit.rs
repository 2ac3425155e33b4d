//! The unit: owns flows, decides which packet may be processed now, keeps the others pending,
//! fetches state, hands it over, and replicates it. An [`Engine`] processes the packets.
//!
//! [`Unit`] has no clock, socket or thread: its driver gives it the time ([`Unit::handle_packet`],
//! [`Unit::handle_message`], [`Unit::handle_timeout`]) and sends what is in the [`Outbox`].
//! [`message`](crate::message) describes the protocol.
//!
//! Per flow, a unit has a list of the epochs that it owns and has not finished, and at most one
//! state. The state belongs to the first of these epochs. The epoch's packets are applied to it in
//! the order of their seq; then it moves to the next owner. A packet given up as lost counts as
//! covered. A state thus covers *all* packets up to a seq, and no packet is applied twice.
//! (design.md 3.1-3.5, 3.9; S48-S61.)
//!
//! With [`Config::deltas`], a replica may contain only the changes since a version that the other
//! unit has. Units discard replicas, and messages may be lost: a unit without the base pulls the
//! whole state, and nothing waits for the replica.
//!
//! A flow ends at its state: an owner that learns of the end while the state is in flight waits for
//! the state and then ends the flow, even if another flow has its index by then. Messages between
//! units may be lost and are retransmitted.
//!
//! ```text
//!            packet, Adopt                   State, or a Replicate up to the very seq
//!   nothing ----------------> pending, pulled ---------------------------------------> owner
//!      ^                          |                                                      | Release or Pull
//!      |                          | StateAck                                             v
//!      +-- knows the next owner <-+--------------- StateAck ---- ending: up to `last`, then State
//! ```

mod config;
mod counters;
mod engine;
mod flow;
mod flow_entry;
mod flow_table;
mod machine;
mod outbox;
mod outcome;
mod ownership;
mod pending;
mod replicas;
mod timers;
mod tombstones;

pub use config::{
    BACKOFF_DOUBLINGS_MAX, Config, FLOWS_MAX, OFFER_AFTER_TIMEOUTS, OWNERSHIPS_MAX, TOMBSTONES_MAX,
};
pub use counters::Counters;
pub use engine::{Done, DoneOutputs, Engine, FlowAlias};
pub use machine::Unit;
pub use outbox::{DropCause, Outbox};
