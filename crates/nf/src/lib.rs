//! The API for authors of network functions (NFs).
//!
//! An NF is a type that implements [`NetworkFunction`]: a configuration, per-flow state, and
//! `process(packet, state, context) -> Verdict`. Start with the trait and
//! `docs/write-your-first-nf.md`.
//!
//! An NF that passes the first packets of each flow, and drops the rest:
//!
//! ```
//! use nf::stage::load;
//! use nf::{Context, Descriptor, NetworkFunction, PacketView, Setup, Verdict};
//! use packet::DropReason;
//! use values::ConfigError;
//!
//! static DESCRIPTOR: Descriptor = Descriptor {
//!     name: "first_packets",
//!     summary: "Passes the first packets of each flow.",
//!     ..Descriptor::DEFAULT
//! };
//!
//! struct FirstPackets {
//!     packets_max: u64,
//! }
//!
//! impl NetworkFunction for FirstPackets {
//!     const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
//!     /// Maximum number of packets of a flow.
//!     type Config = u64;
//!     /// Packets of the flow so far: 0 for a new flow.
//!     type State = u64;
//!
//!     fn new(packets_max: u64, _setup: &mut Setup) -> Result<FirstPackets, ConfigError> {
//!         Ok(FirstPackets { packets_max })
//!     }
//!
//!     fn process(
//!         &self,
//!         _packet: &mut PacketView<'_>,
//!         packets: &mut u64,
//!         _context: &mut Context<'_>,
//!     ) -> Verdict {
//!         *packets += 1;
//!         if *packets > self.packets_max {
//!             return Verdict::Drop(DropReason::Function);
//!         }
//!         Verdict::Forward
//!     }
//! }
//!
//! // A graph takes the loaded NF; see the crate `graph`.
//! let stage = load::<FirstPackets>(10, Setup::new(1, 65_536))?;
//! assert_eq!(stage.descriptor().name, "first_packets");
//! # Ok::<(), nf::stage::LoadError>(())
//! ```

mod affinity;
mod alert;
pub mod answer;
mod bits;
mod buffers;
mod connection;
mod context;
mod counters;
mod descriptor;
mod effects;
mod event;
mod function;
pub mod index;
mod links;
mod map;
mod meters;
mod payload_cache;
mod plan;
pub mod pool;
pub mod record;
mod recording;
mod registry;
mod rule_counters;
mod set;
mod shared_state;
mod sharing;
mod silence;
mod sources;
pub mod stage;
pub mod stream;
mod verdict;
mod view;

pub use affinity::{AFFINITY_GROUPS, AFFINITY_GROUPS_MAX, AffinityGroup, AffinityGroups, AffinityKey};
pub use alert::{
    Alert, AlertDetail, AlertFlow, AlertMessage, AlertSeverity, AlertText, AlertValue, Translation,
};
pub use buffers::{BUFFER_SHARE_PERCENT, Buffers, FlowBuffer, MemoryShortage};
pub use connection::Connection;
pub use context::{Context, FlowInfo, KEEP_MS_MAX, TagLayout};
pub use counters::{
    Counter, CounterDeclaration, CounterLabel, CounterValue, CounterValues, DeclaredCounters,
    LabelledCounter, LabelledDeclaration,
};
pub use descriptor::{
    Access, Affinity, Attribute, BufferSpec, Descriptor, Field, MapSpec, Maturity, NodeSharing, Scaling,
    Shared,
};
pub use effects::{
    EFFECTS_MAX, EffectCause, Effects, EffectsMark, FlowFindings, FlowReport, GeneratedPacket,
};
pub use event::{EVENT_FIELDS_MAX, EVENT_TEXTS_MAX, EVENTS_MAX, Event, EventField, EventValue, Events};
pub use function::{
    AnswerScope, ControlError, LiveFlow, LiveFlows, NetworkFunction, Setup, UpgradeError, VICTIMS_MAX,
};
pub use links::LinkAddresses;
pub use map::{PutError, StateMap};
pub use meters::{METERS_SCANNED_MAX, MeterKey, MeterValue, Meters};
pub use payload_cache::{CACHED_PAYLOAD_MAX, CachedPayload, PayloadCache};
pub use plan::{PLAN_SHAPE_MAX, PREDICTING_NFS_MAX, Plan, PlanShape, PlannedActions};
pub use recording::{Cause, EventCondition, HeaderAction, RECORD_MAX, Recording, StateFunction};
pub use registry::{ConfigSource, Loader, MakeError, Registry, RegistryEntry};
pub use rule_counters::{RuleCounters, RuleLabel};
pub use set::SharedSet;
pub use shared_state::{OwnedAddresses, PassedSources, SharedState};
pub use sharing::SharedHandle;
pub use silence::{FEW_PACKETS, compared_silence_ns};
pub use sources::{ACCOUNTS_MIN, ReportLimit, SourceAccounts, source_of};
pub use verdict::{EndReason, Verdict};
pub use view::PacketView;
