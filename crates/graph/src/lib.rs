//! Runs network functions in order over flows.
//!
//! [`Chain`] is the plain chain: every packet visits every function. It is the reference for every
//! faster path.

mod beside;
mod chain;
mod classes;
mod commuting;
mod flows;
pub mod fragments;
mod gathering;
mod homes;
mod ingresses;
mod joining;
mod observer;
mod options;
mod passes;
mod program;
mod queue;
mod rules;
mod shapes;
pub mod streams;
mod wheel;

pub use beside::{Beside, GROUP_NS, PACKET_NS, Piece, SideBySide};
pub use chain::{
    Chain, ChainError, Change, GROUP_MAX, NoHistory, RestoreError, RuleStep, RuleView, SavedLayout, Way,
    history_len,
};
pub use classes::{FlowClass, Shares};
pub use flows::Ledger;
pub use fragments::Datagram;
pub use observer::Observer;
pub use options::{Counters, FastPath, Guards, NotIp, Options, Timeouts, Walked, WhenFull};
