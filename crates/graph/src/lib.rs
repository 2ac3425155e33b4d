//! Runs network functions in order over flows.
//!
//! [`Chain`] is the plain chain: every packet visits every function. It is the reference for every
//! faster path.

mod beside;
mod cache;
mod chain;
mod classes;
mod classifier;
mod flows;
pub mod fragments;
mod gathering;
mod homes;
mod ingresses;
mod joining;
mod observer;
mod options;
mod passes;
mod queue;
pub mod streams;
mod wheel;

pub use beside::{Beside, GROUP_NS, PACKET_NS, Piece, SideBySide};
pub use cache::{FastPath, RuleStep, RuleView};
pub use chain::{Chain, ChainError, Change, NoHistory, SavedLayout, history_len};
pub use classes::{FlowClass, Shares};
pub use classifier::{Classifier, FlowLookup};
pub use flows::{Ledger, RestoreError};
pub use fragments::Datagram;
pub use gathering::GROUP_MAX;
pub use observer::Observer;
pub use options::{Counters, Guards, NotIp, Options, Timeouts, Walked, WhenFull};
