//! Messages between dispatchers and units: the owner of each flow, the packets that a state covers,
//! and the handover of a state from owner to owner.
//!
//! One protocol serves every change of a flow's owner: its next flowlet is assigned to another
//! unit, a unit is drained, or one has failed. The dispatcher alone names owners. It numbers a
//! flow's packets (their [`seq`]) and its owners (their [`epoch`]), and stamps each packet with
//! both ([`Stamp`]). When the owner changes from X to Y:
//!
//! ```text
//! dispatcher           X (owner in epoch e)                Y (owner in epoch e + 1)
//!   | packet c-1, e  ->  |                                    |
//!   | Release e+1, c-1 ->| no packet of epoch e follows       |
//!   | packet c, e+1, previous X  --------------------------> | has the state up to c-1 (a replica)?
//!   |                    |                                    | processes the packet
//!   |                    | <-------------- Pull e+1, c-1 ---- | else: keeps it pending, and pulls
//!   |                    | once c-1 is processed or lost      |
//!   |                    | --------------- State e+1 -----> | processes pending packets
//!   |                    | <----------- StateAck e+1 -------- |
//!   |                    | keeps a tombstone: forwards late packets
//! ```
//!
//! The release repeats what X's own packets name: all of them may be lost.
//!
//! Every step is idempotent under (flow, epoch), so it may be repeated and overtaken. Messages
//! between units may be lost: a `Pull` is retransmitted until the state arrives, a `State` until it
//! is acknowledged or refused. Messages of the dispatcher must arrive, in order. (design.md 3;
//! S48-S61.)
//!
//! [`seq`]: Stamp::seq
//! [`epoch`]: Stamp::epoch

mod delta;
mod ids;
mod stamp;
mod variants;
mod watermark;

pub use delta::{CHANGING_MAX, DamagedDelta, StateDelta, Version};
pub use ids::{Epoch, FlowId, UnitId};
pub use stamp::{Handover, ReplicaTargets, Stamp, TARGETS_MAX};
pub use variants::{FlowRecord, FromDispatcher, FromPeer, FromUnit, Lane, RefuseReason, UnitMessage};
pub use watermark::{AHEAD_MAX, SeqOutcome, Watermark};
