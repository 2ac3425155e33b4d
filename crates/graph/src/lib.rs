//! Runs network functions in order over flows.
//!
//! [`Chain`] is the plain chain: every packet visits every function. It is the reference for every
//! faster path.

mod beside;
mod cache;
mod chain;
mod classifier;
mod flow_table;
mod flows;
pub mod fragments;
mod groups;
mod observer;
mod options;
mod pipeline;
mod queue;
mod reassembly;
mod stages;
pub mod streams;

pub use beside::{Beside, GROUP_NS, PACKET_NS, Piece, SideBySide};
pub use cache::{FastPath, RuleStep, RuleView};
pub use chain::{Chain, ChainError, NoHistory, history_len};
pub use classifier::{Classifier, FlowLookup};
pub use flow_table::{FlowClass, Ledger, RestoreError, Shares};
pub use flows::{Change, SavedLayout};
pub use fragments::Datagram;
pub use observer::Observer;
pub use options::{Counters, Guards, NotIp, Options, Timeouts, WhenFull};
pub use queue::GROUP_MAX;
pub use stages::Walked;
