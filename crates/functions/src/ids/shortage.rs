//! Memory for streams and messages runs short: what becomes of the flow, and what is reported.

use nf::{AlertDetail, Context, FlowBuffer, MemoryShortage, Verdict};
use packet::DropReason;

use super::state::{Flags, KEPT, State};
use super::{Ids, counter};

/// The group of alerts that are no rule's: that of Suricata's stream engine is 1, and groups from
/// here on are ours.
pub(super) const GROUP: u32 = 900;

/// The number of the alert in its group, the counter, and what the alert says: if flows are
/// dropped, and if they pass.
fn said(kind: MemoryShortage) -> (u32, usize, [&'static str; 2]) {
    match kind {
        MemoryShortage::Memory => (
            1,
            counter::MEMORY_FULL,
            [
                "ids: memory for streams and messages is full, flows are dropped",
                "ids: memory for streams and messages is full, flows are not looked at whole",
            ],
        ),
        MemoryShortage::Share => (
            2,
            counter::SOURCE_OVER_SHARE,
            [
                "ids: a source holds its share of the memory for streams and messages, its flows are dropped",
                "ids: a source holds its share of the memory for streams and messages, its flows are not looked at whole",
            ],
        ),
        MemoryShortage::Evicted => (
            3,
            counter::GAVE_WAY,
            [
                "ids: what was kept of a flow gave way to others, it is dropped",
                "ids: what was kept of a flow gave way to others, it is not looked at whole",
            ],
        ),
    }
}

impl Ids {
    /// Something of the flow was not kept for lack of memory, or is not there any more.
    #[cold]
    pub(super) fn runs_short(
        &self,
        state: &mut State,
        context: &mut Context<'_>,
        verdict: Verdict,
    ) -> Verdict {
        let Some((kind, is_to_report)) = context.shortage() else { return verdict };
        let (number, counter, [dropped, passed]) = said(kind);
        let drops = self.prevents && self.drops_when_full;
        context.count(counter, 1);
        if is_to_report {
            let message = if drops { dropped } else { passed };
            let detail = AlertDetail { group: GROUP, ..AlertDetail::default() };
            context.alert_in_detail(number, message, "Not Suspicious Traffic", 3, detail);
        }
        if !drops || verdict != Verdict::Forward || state.flags.has(Flags::PASSED) {
            return verdict;
        }
        state.flags.set(Flags::DROPPED);
        // Nothing more of it is looked at.
        (0..KEPT).for_each(|buffer| context.give_buffer(buffer, FlowBuffer::default()));
        Verdict::Drop(DropReason::IdsMemory)
    }
}
