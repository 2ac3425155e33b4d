//! Messages between dispatchers and units: the owner of each flow, the packets that a state covers,
//! and the handover of a state from owner to owner.
//!
//! One protocol serves every change of a flow's owner: its next flowlet is assigned to another
//! unit, a unit is drained, or one has failed. The dispatcher alone names owners. It numbers a
//! flow's packets (their [`seq`]) and its owners (their [`epoch`]), and stamps each packet with
//! both ([`Stamp`]). When the owner changes from X to Y:
//!
//! - X gets a `Release` after its last packet;
//! - Y gets packets that name X and the last seq before them: it continues with a replica, or pulls
//!   the state;
//! - X hands the state over once it has processed that seq, and keeps a tombstone.
//!
//! The release repeats what X's own packets name: all of them may be lost. `docs/protocol.md` shows
//! each exchange, and the consequence of each loss.
//!
//! Every step is idempotent under (flow, epoch), so it may be repeated and overtaken. Messages
//! between units may be lost: a `Pull` is retransmitted until the state arrives, a `State` until it
//! is acknowledged or refused. Messages of the dispatcher must arrive, in order. (design.md 3;
//! S48-S61.)
//!
//! [`seq`]: Stamp::seq
//! [`epoch`]: Stamp::epoch

mod declare;
mod delta;
mod from_dispatcher;
mod from_peer;
mod from_unit;
mod ids;
mod record;
mod stamp;
mod unit_message;
mod watermark;

pub use declare::{Lane, MessageField, MessageInfo, losses_table, messages_table};
pub use delta::{CHANGING_MAX, DamagedDelta, StateDelta, Version};
pub use from_dispatcher::FromDispatcher;
pub use from_peer::FromPeer;
pub use from_unit::FromUnit;
pub use ids::{Epoch, FlowId, UnitId};
pub use record::{FlowRecord, RefuseReason};
pub use stamp::{Handover, ReplicaTargets, Stamp, TARGETS_MAX};
pub use unit_message::UnitMessage;
pub use watermark::{AHEAD_MAX, SeqOutcome, Watermark};
