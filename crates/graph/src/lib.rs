//! Runs network functions in order over flows.
//!
//! ```text
//!            +-------------------------------- Graph --------------------------------+
//! packets -->| Classifier -> FlowTable -> groups of    -> Pipeline         -> settle |--> packets
//!            | parse,        look up      known flows'    slow path: NFs,     alias, |--> effects
//!            | number,       the flow     packets         fast path:          timer, |--> changes
//!            | name flow                                  cached rule         send   |
//!            +-----------------------------------------------------------------------+
//! ```
//!
//! [`Graph::process`] takes a batch through all of it. A dispatcher that numbers flows and divides
//! them among units calls the parts in this order:
//!
//! 1. [`Graph::classify`] parses and numbers a batch. [`Classifier::is_refused`] says which packets
//!    could not be parsed.
//! 2. [`Graph::flow_of`] names the flow of each packet; the dispatcher looks up its own number for
//!    it, the flow's handle. A packet of no flow goes to [`Graph::process_without_flow`].
//! 3. [`Graph::process_batch`] processes packets with their flows' handles, here or in the unit's
//!    own graph. Without handles, [`Graph::process_classified`] finds flows by their keys.
//! 4. Packets leave through `out`. [`Graph::effects_mut`] has alerts, events and flow reports,
//!    [`Graph::changes_mut`] the flows' new aliases and ends: the dispatcher must apply them before
//!    it names further flows.
//! 5. [`Graph::handle_timeout`] clears expired flows, not before [`Graph::next_timeout_ns`].
//!
//! A dispatcher without functions has a [`Classifier`] alone.
//!
//! | object | its story |
//! |---|---|
//! | `Classifier` | parsing, numbering, flow keys, fragments, ICMP errors |
//! | `FlowTable` | records, index, aliases, handles, classes, timers |
//! | `FlowCache` | cached rules, the programs that they name, recording and predicting |
//! | `Reassembly` | TCP streams and datagrams in fragments ([`streams`]) |
//! | `Flows` | the three above: flows begin, end, are saved and restored |
//! | `Groups` | which packets of a batch are processed together |
//! | `Pipeline` | groups through the functions, on the slow and the fast path; settling |
//!
//! Without the fast path every packet visits every function: the reference for every faster path.

mod beside;
mod cache;
mod classifier;
mod flow_table;
mod flows;
pub mod fragments;
mod graph;
mod groups;
mod observer;
mod options;
mod pipeline;
mod places;
mod queue;
mod reassembly;
mod routing;
mod stages;
pub mod streams;
mod topology;

pub use beside::{Beside, GROUP_NS, PACKET_NS, Piece, SideBySide};
pub use cache::{FastPath, RuleStep, RuleView};
pub use classifier::{Classifier, FlowLookup};
pub use flow_table::{FlowClass, Ledger, RestoreError, Shares, Timeouts};
pub use flows::{FlowChange, SavedLayout};
pub use fragments::Datagram;
pub use graph::{Graph, GraphError};
pub use observer::{EdgeChoice, Observer};
pub use options::{Counters, Guards, NotIp, Options, WhenFull};
pub use places::PortPlace;
pub use queue::GROUP_MAX;
pub use routing::{AttributeField, EdgeCounters};
pub use stages::Walked;
pub use topology::{
    BRANCHING_NFS_MAX, EdgeId, FilterReads, Hop, NfSet, RouteEnd, Topology, TopologyEdge, TopologyError,
};
