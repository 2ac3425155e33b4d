//! Shortage of buffer memory: the fate of the flow, and the report.

use nf::{AlertDetail, Context, Counter, FlowBuffer, MemoryShortage, Verdict};
use packet::DropReason;

use super::state::{FlowFlags, KEPT, State};
use super::{COUNTERS, Ids};

/// The gid of alerts without a rule. Suricata's stream engine has gid 1; gids from this one on are
/// ours.
pub(super) const GROUP: u32 = 900;

/// Returns the sid of the alert, the counter, and the message if flows are dropped and if they
/// pass.
fn alert_of(kind: MemoryShortage) -> (u32, Counter, [&'static str; 2]) {
    match kind {
        MemoryShortage::Memory => (
            1,
            COUNTERS.memory_full,
            [
                "ids: buffer memory is full; flows are dropped",
                "ids: buffer memory is full; flows are inspected in part",
            ],
        ),
        MemoryShortage::Share => (
            2,
            COUNTERS.source_over_share,
            [
                "ids: a source exceeds its share of buffer memory; its flows are dropped",
                "ids: a source exceeds its share of buffer memory; its flows are inspected in part",
            ],
        ),
        MemoryShortage::Evicted => (
            3,
            COUNTERS.memory_reclaimed,
            [
                "ids: buffers of a flow were evicted; it is dropped",
                "ids: buffers of a flow were evicted; it is inspected in part",
            ],
        ),
    }
}

impl Ids {
    /// Handles a buffer of the flow that was refused or evicted for lack of memory.
    #[cold]
    pub(super) fn runs_short(
        &self,
        state: &mut State,
        context: &mut Context<'_>,
        verdict: Verdict,
    ) -> Verdict {
        let Some((kind, is_to_report)) = context.shortage() else { return verdict };
        let (number, counter, [dropped, passed]) = alert_of(kind);
        let drops = self.prevents && self.drops_when_full;
        context.count(counter, 1);
        if is_to_report {
            let message = if drops { dropped } else { passed };
            let detail = AlertDetail { group: GROUP, ..AlertDetail::default() };
            context.alert_in_detail(number, message, "Not Suspicious Traffic", 3, detail);
        }
        if !drops || verdict != Verdict::Forward || state.flags.has(FlowFlags::PASSED) {
            return verdict;
        }
        state.flags.set(FlowFlags::DROPPED);
        // Nothing more of the flow is inspected.
        (0..KEPT).for_each(|buffer| context.give_buffer(buffer, FlowBuffer::default()));
        Verdict::Drop(DropReason::IdsMemory)
    }
}
