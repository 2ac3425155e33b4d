//! What routers and units say to each other: whose a flow is, which of its packets a state covers,
//! and how the one gets from owner to owner.
//!
//! There is one protocol for every change of a flow's owner, be it that its next flowlet goes to
//! another unit, that a unit is shut down, or that one has failed. The router alone names owners.
//! It numbers a flow's packets (their [`clock`]) and its owners (their [`epoch`]), and stamps each
//! packet with both ([`Stamp`]). When the owner changes from X to Y:
//!
//! ```text
//! router               X (owner in epoch e)                    Y (owner in epoch e + 1)
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
//! A flow that asks for more than a unit has may be spread: in such an epoch several units have its
//! packets in turn. X, whose flow it is before and behind, is the anchor; the others are its
//! helpers, and get the state that X has as it begins:
//!
//! ```text
//! router               X (anchor)                              Y (helper)
//!   | Spread e+1, c-1  ->|  once c-1 is processed                 |
//!   |                    | ----------------- Share e+1 -------->  |
//!   | packet c, e+1, previous X  ------------------------------>  | holds it until the state is there
//!   | packet c+1, header of c  ->|                                |
//!   | packet c+2, header of c+1  ------------------------------>  | replays c+1, processes c+2
//!   | Told e+1, headers up to n, the end -> | replays, goes on alone in e+2
//!   | Part e+1  ----------------------------------------------->  | forgets
//!   | <---------------------------------------------- Parted e+1  |
//! ```
//!
//! In such an epoch every packet that the router numbers counts in the state, even one that is
//! lost: who has not got it has its header. The anchor has them all for certain, as the router
//! tells it all of them in messages, too, a number at a time; a helper that lacks some asks for the
//! anchor's state ([`Message::Ask`]), and drops what that covers. At the end each unit is told
//! which packet was its last, and waits for what was overtaken, as behind a `Release`.
//!
//! Every step is idempotent under (flow, epoch), so that it may be repeated and overtaken. What
//! units say to each other may be lost: a `Pull` is repeated until the state comes, a `State` until
//! it is taken. What the router says must arrive, and behind what it sent before. (DESIGN 3;
//! S48-S61.)
//!
//! [`clock`]: Stamp::clock
//! [`epoch`]: Stamp::epoch

mod delta;
mod history;
mod ids;
mod stamp;
mod variants;
mod watermark;

pub use delta::{CHANGING_MAX, Damaged, Delta, Version};
pub use history::{Header, History};
pub use ids::{Epoch, FlowId, UnitId};
pub use stamp::{Handover, Stamp, TARGETS_MAX, Targets};
pub use variants::{FlowRecord, Message};
pub use watermark::{AHEAD_MAX, Mark, Watermark};
