//! What rules do that hold on a packet, once all that it brings was looked at: by Suricata's order
//! of actions, a rule that passes it wins over those that drop it, whichever occasion each held on.

use std::ops::Range;

use applayer::detect::{Application, Verdict as Found};
use nf::answer::{self, IcmpError};
use nf::{AlertDetail, AlertMessage, Verdict};
use packet::parse::protocol;
use packet::{Direction, DropReason, Endpoint, split_mix};
use signatures::Action;

use super::{Occasion, Watch};
use crate::ids::limit::{Limited, Tracked};
use crate::ids::state::{Flags, State};
use crate::ids::{EXCERPT_BYTES, counter};

/// Rules that hold on a packet, or on what it brings.
#[derive(Default)]
pub(super) struct Matches {
    rules: Vec<Match>,
    /// What alerts show, one behind the other.
    excerpts: Vec<u8>,
}

/// A rule that holds.
struct Match {
    rule: u32,
    ends: (Endpoint, Endpoint),
    application: Found,
    excerpt: Range<usize>,
    /// Whether it holds on a stream, and not on the packet alone.
    is_stream: bool,
    /// Whether what it does is done to the flow.
    on_flow: bool,
    to_server: bool,
    /// The message that it is about, if its rule alerts.
    transaction: Option<u64>,
    message: Option<AlertMessage>,
}

impl Matches {
    pub fn clear(&mut self) {
        self.rules.clear();
        self.excerpts.clear();
    }
}

impl Watch<'_, '_> {
    /// The rule holds on this occasion.
    pub(super) fn hold(&mut self, number: u32, occasion: &Occasion<'_>) {
        let signature = &self.ids.signatures[number as usize];
        let matches = &mut self.work.matches;
        let start = matches.excerpts.len();
        let shown = &occasion.excerpt[..occasion.excerpt.len().min(EXCERPT_BYTES)];
        matches.excerpts.extend_from_slice(shown);
        matches.rules.push(Match {
            rule: number,
            ends: (occasion.facts.source, occasion.facts.destination),
            application: occasion.facts.application,
            excerpt: start..matches.excerpts.len(),
            is_stream: occasion.is_stream,
            on_flow: occasion.is_stream || signature.on_flow,
            to_server: occasion.facts.to_server,
            transaction: occasion.about.transaction(),
            message: if signature.alerts { occasion.about.message() } else { None },
        });
    }

    /// Whether a rule that held on the packet would do more if it held on this occasion, too.
    pub(super) fn may_widen(&self, number: u32, occasion: &Occasion<'_>) -> bool {
        let is_alert = self.ids.signatures[number as usize].action == Action::Alert;
        let is_narrow = |one: &Match| one.rule == number && !one.on_flow;
        !is_alert && occasion.is_stream && self.work.matches.rules.iter().any(is_narrow)
    }

    /// It does.
    pub(super) fn widen(&mut self, number: u32) {
        let found = self.work.matches.rules.iter_mut().find(|one| one.rule == number);
        if let Some(one) = found {
            one.on_flow = true;
        }
    }

    /// Does what the rules say that hold, and says what becomes of the packet.
    pub(super) fn verdict(mut self, state: &mut State) -> Verdict {
        let made_bytes = self.ids.searches.take_made_bytes();
        if made_bytes > 0 {
            self.context.count(counter::SEARCH_BYTES, made_bytes);
        }
        let drop = self.act(state);
        let Some(reason) = drop.filter(|_| self.ids.prevents) else { return Verdict::Forward };
        let counter = if reason == DropReason::IdsRule { counter::DROPPED } else { counter::REJECTED };
        self.context.count(counter, 1);
        Verdict::Drop(reason)
    }

    /// Does what the rules say that hold; why the packet is dropped, if it is.
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

    fn act_on(&mut self, matches: &mut Matches, state: &mut State) -> Option<DropReason> {
        let mut drop = None;
        for one in &mut matches.rules {
            let signature = &self.ids.signatures[one.rule as usize];
            let limited = match signature.threshold {
                _ if signature.is_suppressed(one.ends) => Limited::Silent,
                Some(threshold) => self.tracked(one.rule, one.ends).limited(&threshold, self.context),
                None => Limited::Told,
            };
            let action = match signature.rate {
                Some(rate) if self.tracked(one.rule, one.ends).is_too_often(&rate, self.context) => {
                    rate.action
                }
                _ => signature.action,
            };
            if limited == Limited::Nothing {
                self.context.count(counter::SUPPRESSED, 1);
                continue;
            }
            // Of what flows come to, the first one counts.
            let is_open = one.on_flow && !state.flags.has(Flags::DROPPED | Flags::PASSED);
            match action {
                Action::Alert => {}
                Action::Pass => {
                    if is_open {
                        self.pass_flow(state);
                    }
                    self.context.count(counter::PASSED, 1);
                    return None;
                }
                Action::Drop => drop = drop.or(Some(DropReason::IdsRule)),
                Action::Reject(_) => {
                    // One answer will do.
                    let answers = self.ids.prevents && drop.is_none();
                    drop = drop.or(Some(if answers { self.reject() } else { DropReason::IdsRule }));
                }
            }
            if action != Action::Alert && is_open && self.ids.prevents {
                state.flags.set(Flags::DROPPED);
            }
            match limited {
                _ if !signature.alerts => {}
                Limited::Told => self.alert(one, &matches.excerpts),
                _ => self.context.count(counter::SUPPRESSED, 1),
            }
        }
        drop
    }

    /// Nothing of the flow is looked at any more, until a new connection begins.
    fn pass_flow(&mut self, state: &mut State) {
        for direction in [Direction::Original, Direction::Reply] {
            self.forget(direction);
        }
        state.restart();
        state.flags.set(Flags::PASSED);
    }

    fn alert(&mut self, one: &mut Match, excerpts: &[u8]) {
        let signature = &self.ids.signatures[one.rule as usize];
        self.context.count(counter::ALERTS, 1);
        let (group, sid, revision) = signature.id;
        let detail = AlertDetail {
            group,
            revision,
            application: match one.application {
                Found::Known(Application::Http1) => Some("http"),
                Found::Known(application) => Some(application.name()),
                _ => None,
            },
            payload: excerpts.get(one.excerpt.clone()).unwrap_or_default().to_vec(),
            stream: one.is_stream,
            metadata: signature.metadata.clone(),
            flow: Some(self.size.told()),
            to_server: one.to_server,
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

    /// Answers the packet, if it may be answered.
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

    pub(super) fn tracked(&self, rule: u32, ends: (Endpoint, Endpoint)) -> Tracked {
        let flow =
            self.context.flow().key.words().iter().fold(0, |mixed: u64, word| split_mix(&mut (mixed ^ word)));
        Tracked { rule, ends, flow }
    }
}
