//! Rules abandoned because they take too many steps.

use std::sync::Arc;

use nf::{AlertDetail, ReportLimit};

use super::{Inspector, PacketScratch};
use crate::ids::shortage::GROUP;
use crate::ids::state::State;

/// The sid of the alert.
const GIVEN_UP: u32 = 4;

/// Time of the last report by rule index; allocated when the first rule is abandoned.
#[derive(Default)]
pub struct AbandonedRules(Option<ReportLimit<1>>);

impl PacketScratch {
    /// Begins a packet or the end of a flow, and sets the remaining steps of its rules.
    #[inline]
    pub fn begin_packet(&mut self, state: &State) {
        self.scratch.begin_packet(state.spent);
    }

    /// Ends the packet.
    #[inline]
    pub fn end_packet(&mut self, state: &mut State) {
        state.spent = self.scratch.spent();
    }
}

impl Inspector<'_, '_> {
    /// Reports a rule that was abandoned on this packet: as in Suricata beyond its match limit, it
    /// does not match.
    #[cold]
    pub(super) fn give_up(&mut self, rule: u32) {
        let (rules, now_ns) = (self.ids.signatures.len(), self.context.now_ns());
        let AbandonedRules(limit) = &mut self.work.abandoned;
        if limit.is_none() {
            *limit = ReportLimit::new(rules).ok();
        }
        if !limit.as_mut().is_some_and(|limit| limit.is_due(0, rule, now_ns)) {
            return;
        }
        let signature = &self.ids.signatures[rule as usize];
        let (group, sid, _) = signature.id;
        let text =
            format!("ids: rule {group}:{sid} takes too many steps and is abandoned: {}", signature.message);
        let detail = AlertDetail { group: GROUP, ..AlertDetail::default() };
        self.context.alert_in_detail(GIVEN_UP, &Arc::from(text), "Not Suspicious Traffic", 3, detail);
    }
}
