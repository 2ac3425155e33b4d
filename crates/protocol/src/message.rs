//! What dispatchers and units say to each other: whose a flow is, which of its packets a state covers,
//! and how the one gets from owner to owner.
//!
//! There is one protocol for every change of a flow's owner, be it that its next flowlet goes to
//! another unit, that a unit is shut down, or that one has failed. The dispatcher alone names owners.
//! It numbers a flow's packets (their [`seq`]) and its owners (their [`epoch`]), and stamps each
//! packet with both ([`Stamp`]). When the owner changes from X to Y:
//!
//! ```text
//! dispatcher               X (owner in epoch e)                    Y (owner in epoch e + 1)
//!   | packet c-1, e  ->  |                                        |
//!   | Release e+1, c-1 ->| nothing of this flow comes behind it   |
//!   | packet c, e+1, previous X  ------------------------------>  | has it the state up to c-1 (a replica)? goes on
//!   |                    | <---------------- Pull e+1, c-1 ------ | else: holds the packet, and asks
//!   |                    | once c-1 is processed, or will not come|
//!   |                    | ----------------- State e+1 -------->  | goes on
//!   |                    | <---------------- Taken e+1 ---------- |
//!   |                    | forgets the state, knows whom to send what comes late
//! ```
//!
//! Every step is idempotent under (flow, epoch), so that it may be repeated and overtaken. What
//! units say to each other may be lost: a `Pull` is repeated until the state comes, a `State` until
//! it is taken. What the dispatcher says must arrive, and behind what it sent before. (DESIGN 3;
//! S48-S61.)
//!
//! [`seq`]: Stamp::seq
//! [`epoch`]: Stamp::epoch

mod delta;
mod ids;
mod stamp;
mod variants;
mod watermark;

pub use delta::{CHANGING_MAX, DamagedDelta, Delta, Version};
pub use ids::{Epoch, FlowId, UnitId};
pub use stamp::{Handover, Stamp, TARGETS_MAX, Targets};
pub use variants::{FlowRecord, FromDispatcher, FromPeer, FromUnit, Lane, RefuseReason, UnitMessage};
pub use watermark::{AHEAD_MAX, SeqOutcome, Watermark};
