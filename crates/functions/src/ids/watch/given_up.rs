//! Rules that are given up, as they take too many steps.

use std::sync::Arc;

use nf::{AlertDetail, ReportLimit};

use super::{Watch, Work};
use crate::ids::shortage::GROUP;
use crate::ids::state::State;

/// The number of the alert in its group.
const GIVEN_UP: u32 = 4;

/// How often that is reported: by the rule's number. Made when the first rule is given up.
#[derive(Default)]
pub struct GivenUp(Option<ReportLimit<1>>);

impl Work {
    /// A packet of this flow comes, or its end: its rules have so many steps.
    #[inline]
    pub fn begin_packet(&mut self, state: &State) {
        self.scratch.begin_packet(state.spent);
    }

    /// It was looked at.
    #[inline]
    pub fn end_packet(&mut self, state: &mut State) {
        state.spent = self.scratch.spent();
    }
}

impl Watch<'_, '_> {
    /// A rule was given up on this packet: as for Suricata beyond its match limit, it does not
    /// hold.
    #[cold]
    pub(super) fn give_up(&mut self, rule: u32) {
        let (rules, now_ns) = (self.ids.signatures.len(), self.context.now_ns());
        let GivenUp(limit) = &mut self.work.given_up;
        if limit.is_none() {
            *limit = ReportLimit::new(rules).ok();
        }
        if !limit.as_mut().is_some_and(|limit| limit.is_due(0, rule, now_ns)) {
            return;
        }
        let signature = &self.ids.signatures[rule as usize];
        let (group, sid, _) = signature.id;
        let text =
            format!("ids: rule {group}:{sid} takes too many steps and is given up: {}", signature.message);
        let detail = AlertDetail { group: GROUP, ..AlertDetail::default() };
        self.context.alert_in_detail(GIVEN_UP, &Arc::from(text), "Not Suspicious Traffic", 3, detail);
    }
}
