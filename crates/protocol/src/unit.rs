//! A unit owns flows: it decides which packet may be processed now, holds the others, fetches and
//! hands over states, and copies them ahead. What the packets do is an [`Engine`]'s affair.
//!
//! [`Unit`] has no seq, no socket and no thread: whoever drives it says what time it is
//! ([`Unit::handle_packet`], [`Unit::handle_message`], [`Unit::handle_timeout`]), and sends what it finds in the
//! [`Outbox`]. The protocol is that of [`proto`].
//!
//! Per flow, a unit has a list of the epochs that it is the owner of and has not done with, and at
//! most one state. The state belongs to the first of them; it goes through that epoch's packets in
//! the order of their seqs, and on to the next owner. What is given up as lost counts as covered,
//! so that a state is always one of *all* packets up to a seq, and no packet can be applied
//! twice. (DESIGN 3.1-3.5, 3.9; S48-S61.)
//!
//! With [`Config::deltas`], a copy may tell only what has changed since one that the other unit
//! has. Units forget copies, and messages may be lost: who has not that very one asks for the
//! whole, and nobody waits for it.
//!
//! A flow ends where its state is: an owner that hears of the end while the state is on its way
//! goes on waiting for it, and ends the flow when it comes, even if another flow has the slot by
//! then. That another has it is no such word: units may say so before the dispatcher's own has come.
//! What units say to each other may be lost, and is said again.
//!
//! ```text
//!            packet, Adopt                        State, or a Replica up to the very seq
//!   nothing ----------------> waiting, has pulled ------------------------------------> owner
//!      ^                          |                                                       | Release or Pull
//!      |                          | Taken                                                 v
//!      +-- knows the next owner <-+------------------------------- Taken ---- ending: up to `last`, then State
//! ```

mod config;
mod context;
mod counters;
mod engine;
mod flow;
mod flow_entry;
mod flow_table;
mod machine;
mod outbox;
mod ownership;
mod pending;
mod replicas;
mod timers;
mod tombstones;

pub use config::{
    BACKOFF_DOUBLINGS_MAX, Config, FLOWS_MAX, OFFER_AFTER_TIMEOUTS, OWNERSHIPS_MAX, TOMBSTONES_MAX,
};
pub use counters::Counters;
pub use engine::Engine;
pub use machine::Unit;
pub use outbox::{DropCause, Outbox};
