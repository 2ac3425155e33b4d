//! Actions of the rules that match a packet, after all its inspection points. By Suricata's order
//! of actions, `pass` wins over `drop`, whatever the inspection points of the two rules.

use std::ops::Range;

use applayer::detect::Detection;
use nf::answer::{self, IcmpError};
use nf::{AlertDetail, AlertMessage, Verdict};
use packet::parse::protocol;
use packet::{Direction, DropReason, Endpoint, split_mix};
use signatures::RuleAction;

use super::{InspectionPoint, Inspector};
use crate::ids::facts::PacketFacts;
use crate::ids::limit::{ThresholdOutcome, TrackerKey};
use crate::ids::state::{FlowFlags, State, reported_name};
use crate::ids::{COUNTERS, EXCERPT_BYTES, attribute};

/// The rules that match a packet, or the data and messages that it completes.
#[derive(Default)]
pub(super) struct RuleMatches {
    rules: Vec<RuleMatch>,
    /// The excerpts for alerts.
    excerpts: Vec<u8>,
}

/// A rule that matches.
struct RuleMatch {
    rule: u32,
    ends: (Endpoint, Endpoint),
    application: Detection,
    excerpt: Range<usize>,
    /// True if it matches a stream, false if it matches the packet alone.
    is_stream: bool,
    /// True if its action applies to the flow.
    on_flow: bool,
    to_server: bool,
    icmp: Option<[u8; 2]>,
    /// The message's transaction, if the rule alerts.
    transaction: Option<u64>,
    message: Option<AlertMessage>,
}

impl RuleMatches {
    pub fn clear(&mut self) {
        self.rules.clear();
        self.excerpts.clear();
    }
}

impl Inspector<'_, '_> {
    /// Records a match at this inspection point.
    pub(super) fn hold(&mut self, number: u32, point: &InspectionPoint<'_>) {
        let signature = &self.ids.signatures[number as usize];
        let matches = &mut self.work.matches;
        let start = matches.excerpts.len();
        let shown = &point.excerpt[..point.excerpt.len().min(EXCERPT_BYTES)];
        matches.excerpts.extend_from_slice(shown);
        matches.rules.push(RuleMatch {
            rule: number,
            ends: (point.facts.source, point.facts.destination),
            application: point.facts.application,
            excerpt: start..matches.excerpts.len(),
            is_stream: point.is_stream,
            on_flow: point.is_stream || signature.on_flow,
            to_server: point.facts.to_server,
            icmp: point.facts.packet.and_then(PacketFacts::icmp_type),
            transaction: point.about.transaction(),
            message: if signature.alerts { point.about.message() } else { None },
        });
    }

    /// Returns whether a rule that matched the packet would do more if it also matched at this
    /// inspection point.
    pub(super) fn may_widen(&self, number: u32, point: &InspectionPoint<'_>) -> bool {
        let is_alert = self.ids.signatures[number as usize].action == RuleAction::Alert;
        let is_narrow = |one: &RuleMatch| one.rule == number && !one.on_flow;
        !is_alert && point.is_stream && self.work.matches.rules.iter().any(is_narrow)
    }

    /// Widens the match to the flow.
    pub(super) fn widen(&mut self, number: u32) {
        let found = self.work.matches.rules.iter_mut().find(|one| one.rule == number);
        if let Some(one) = found {
            one.on_flow = true;
        }
    }

    /// Executes the matching rules and returns the verdict on the packet.
    pub(super) fn verdict(mut self, state: &mut State) -> Verdict {
        let made_bytes = self.ids.searches.take_made_bytes();
        if made_bytes > 0 {
            self.context.count(COUNTERS.search_memory_bytes, made_bytes);
        }
        let drop = self.act(state);
        if drop.is_none() && self.is_beyond && self.ids.drops_beyond && !state.flags.has(FlowFlags::PASSED) {
            state.flags.set(FlowFlags::DROPPED);
            return Verdict::Drop(DropReason::IdsBeyond);
        }
        let Some(reason) = drop.filter(|_| self.ids.prevents) else { return Verdict::Forward };
        let counter =
            if reason == DropReason::IdsRule { COUNTERS.packets_dropped } else { COUNTERS.packets_rejected };
        self.context.count(counter, 1);
        Verdict::Drop(reason)
    }

    /// Executes the matching rules and returns the drop reason, if any.
    #[inline(always)]
    pub(super) fn act(&mut self, state: &mut State) -> Option<DropReason> {
        if self.work.matches.rules.is_empty() { None } else { self.act_on_all(state) }
    }

    #[inline(never)]
    fn act_on_all(&mut self, state: &mut State) -> Option<DropReason> {
        let mut matches = std::mem::take(&mut self.work.matches);
        matches.rules.sort_by_key(|one| one.rule);
        let drop = self.act_on(&mut matches, state);
        self.work.matches = matches;
        drop
    }

    fn act_on(&mut self, matches: &mut RuleMatches, state: &mut State) -> Option<DropReason> {
        let mut drop = None;
        for one in &mut matches.rules {
            let signature = &self.ids.signatures[one.rule as usize];
            let limited = match signature.threshold {
                _ if signature.is_suppressed(one.ends) => ThresholdOutcome::Silent,
                Some(threshold) => self.tracked(one.rule, one.ends).limited(&threshold, self.context),
                None => ThresholdOutcome::Reported,
            };
            let action = match signature.rate {
                Some(rate) if self.tracked(one.rule, one.ends).is_too_often(&rate, self.context) => {
                    rate.action
                }
                _ => signature.action,
            };
            if limited == ThresholdOutcome::Nothing {
                self.context.count(COUNTERS.alerts_suppressed, 1);
                continue;
            }
            // The first action on a flow counts.
            let is_open = one.on_flow && !state.flags.has(FlowFlags::DROPPED | FlowFlags::PASSED);
            match action {
                RuleAction::Alert => {}
                RuleAction::Pass => {
                    if is_open {
                        self.pass_flow(state);
                    }
                    // Only a `pass` rule with the keyword `alert` reports.
                    if signature.action == RuleAction::Pass {
                        self.report(one, limited, &matches.excerpts, state);
                    }
                    self.context.count(COUNTERS.packets_passed, 1);
                    return None;
                }
                RuleAction::Drop => drop = drop.or(Some(DropReason::IdsRule)),
                RuleAction::Reject(_) => {
                    // One response is enough.
                    let answers = self.ids.prevents && drop.is_none();
                    drop = drop.or(Some(if answers { self.reject() } else { DropReason::IdsRule }));
                }
            }
            if action != RuleAction::Alert && is_open && self.ids.prevents {
                state.flags.set(FlowFlags::DROPPED);
            }
            self.report(one, limited, &matches.excerpts, state);
        }
        drop
    }

    /// Raises the alert of a rule that alerts, unless it is limited.
    fn report(&mut self, one: &mut RuleMatch, limited: ThresholdOutcome, excerpts: &[u8], state: &mut State) {
        match limited {
            _ if !self.ids.signatures[one.rule as usize].alerts => {}
            ThresholdOutcome::Reported => {
                state.flags.set(FlowFlags::ALERTED);
                self.alert(one, excerpts);
            }
            _ => self.context.count(COUNTERS.alerts_suppressed, 1),
        }
    }

    /// Stops inspecting the flow until a new connection begins.
    fn pass_flow(&mut self, state: &mut State) {
        for direction in [Direction::Original, Direction::Reply] {
            self.forget(direction);
        }
        state.restart();
        state.flags.set(FlowFlags::PASSED);
    }

    fn alert(&mut self, one: &mut RuleMatch, excerpts: &[u8]) {
        let signature = &self.ids.signatures[one.rule as usize];
        self.context.count(COUNTERS.alerts, 1);
        self.context.tag_flow(attribute::ALERT, 1);
        let (group, sid, revision) = signature.id;
        let detail = AlertDetail {
            group,
            revision,
            application: reported_name(one.application),
            payload: excerpts.get(one.excerpt.clone()).unwrap_or_default().to_vec(),
            stream: one.is_stream,
            metadata: signature.metadata.clone(),
            flow: Some(self.size.reported()),
            to_server: one.to_server,
            icmp: one.icmp,
            transaction: one.transaction,
            message: one.message.take(),
            translation: None,
        };
        self.context.alert_in_detail(
            sid,
            &signature.message,
            &signature.category,
            signature.severity,
            detail,
        );
    }

    /// Responds to the packet, if a response is allowed.
    fn reject(&mut self) -> DropReason {
        let Some(packet) = self.packet else { return DropReason::IdsRule };
        let mut buffer = answer::buffer();
        let network = if packet.meta().protocol == protocol::TCP {
            answer::tcp_reset(packet, &mut buffer)
        } else {
            let from = packet.ends().1.addr;
            answer::icmp_error(packet, IcmpError::AdminProhibited, from, &mut buffer)
        };
        match network.map(|network| self.context.answer(packet, network)) {
            Ok(Ok(())) => DropReason::IdsRejected,
            _ => DropReason::IdsRule,
        }
    }

    pub(super) fn tracked(&self, rule: u32, ends: (Endpoint, Endpoint)) -> TrackerKey {
        let flow =
            self.context.flow().key.words().iter().fold(0, |mixed: u64, word| split_mix(&mut (mixed ^ word)));
        TrackerKey { rule, ends, flow }
    }
}
