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
//! A graph of a policy without functions, which passes DNS and nothing else:
//!
//! ```
//! use graph::{Graph, Options, Topology};
//! use packet::{DropReason, Packet, PacketPool};
//! use policy::Policy;
//!
//! # /// A UDP packet to this port.
//! # fn frame(port: u16) -> [u8; 60] {
//! #     let mut frame = [0; 60];
//! #     frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00]);
//! #     frame[14..26].copy_from_slice(&[0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0]);
//! #     frame[26..36].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 1, 0x30, 0x39]);
//! #     frame[36..38].copy_from_slice(&port.to_be_bytes());
//! #     frame[38..40].copy_from_slice(&26_u16.to_be_bytes());
//! #     frame
//! # }
//! let text = "Port<0> lan; Port<1> wan;
//!     pipelet { lan [dst port 53] <-> wan; lan -> Drop; }";
//! let policy = Policy::read("dns", text, &mut |_: &str| Err("no such file".into()))?;
//! let mut graph = Graph::branching(Vec::new(), Topology::new(&policy)?, Options::default())?;
//!
//! let (mut pool, mut out) = (PacketPool::new(16), Vec::new());
//! let mut batch: Vec<Packet> = [53, 80].map(|port| Packet::from_bytes(&frame(port))).into();
//! batch.iter_mut().for_each(|packet| packet.meta_mut().transit.ingress = 0);
//! graph.process(&mut batch, &mut out, &mut pool);
//!
//! assert_eq!(out.len(), 1);
//! assert_eq!(out[0].meta().transit.egress, 1);
//! let counters = graph.counters();
//! assert_eq!(counters.drops[DropReason::Policy.index()], 1);
//! assert!(counters.add_up());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A dispatcher that numbers flows and divides them among units calls the parts of
//! [`Graph::process`] in this order:
//!
//! 1. [`Graph::classify`] parses and numbers a batch. [`Classifier::is_refused`] returns true for
//!    packets that could not be parsed.
//! 2. [`Graph::flow_of`] names the flow of each packet; the dispatcher looks up its own number for
//!    it, the flow's handle. A packet of no flow goes to [`Graph::process_without_flow`].
//! 3. [`Graph::process_batch`] processes packets with their flows' handles, here or in the unit's
//!    own graph. Without handles, [`Graph::process_classified`] finds flows by their keys.
//! 4. Packets leave through `out`. [`Graph::effects_mut`] has alerts, events and flow reports,
//!    [`Graph::changes_mut`] the flows' new aliases and ends: the dispatcher must apply them before
//!    it names further flows.
//! 5. [`Graph::handle_timeout`] clears expired flows, not before [`Graph::next_timeout_ns`].
//!
//! A dispatcher without functions has only a [`Classifier`].
//!
//! | view | purpose |
//! |---|---|
//! | [`Graph::flows`], [`Graph::flows_mut`] | look up, save, restore and end flows |
//! | [`Graph::sharing`] | state that graphs on several threads share |
//! | [`Graph::report`] | fast path, cycles, streams |
//! | [`Graph::branches`] | topology, counters of edges |
//!
//! | object | purpose |
//! |---|---|
//! | `Classifier` | parsing, numbering, flow keys, fragments, ICMP errors |
//! | `Arrivals` | looking up a batch; packets that are groups of their own |
//! | `Groups` | which packets of a batch are processed together |
//! | `Pipeline` | groups through the functions, on the slow and the fast path; settling |
//! | `Flows` | the parts of flows: they begin and end together |
//! | `FlowTable` | records, index, aliases, handles, classes, timers |
//! | `FlowCache` | cached rules, the programs that they name, recording and predicting |
//! | `Reassembly` | TCP streams and datagrams in fragments ([`streams`]) |
//! | `Routing` | the paths of flows through a graph with branches |
//! | `FlowTransfer` | saving and restoring flows |
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
pub use flow_table::{FlowClass, Ledger, Shares, Timeouts};
pub use flows::{FlowChange, RestoreError, SavedLayout};
pub use fragments::Datagram;
pub use graph::{Branches, FlowsMut, FlowsView, Graph, GraphError, GraphReport, Sharing};
pub use observer::{EdgeChoice, Observer};
pub use options::{Counters, Guards, NotIp, Options, WhenFull};
pub use places::PortPlace;
pub use queue::GROUP_MAX;
pub use routing::{AttributeField, EdgeCounters};
pub use stages::Walked;
pub use topology::{
    BRANCHING_NFS_MAX, EdgeId, FilterReads, Hop, NfSet, RouteEnd, Topology, TopologyEdge, TopologyError,
};
