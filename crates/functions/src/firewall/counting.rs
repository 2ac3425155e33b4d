//! Rule counters.
//!
//! A packet of a known flow costs nothing here: the graph numbers the packets of a flow. Those seen
//! since the last decision are added to its rule at the next decision, or when the flow ends. With
//! `count: packets`, each packet and its bytes are counted as it passes.

use std::sync::Arc;

use nf::{Context, PacketView, RuleLabel};
use packet::Packet;

use super::facts::Opening;
use super::rule::{ConnectionState, FilterRule};
use super::{Firewall, State};

/// Returns the labels of all counters: the default, every rule in order, and invalid packets that
/// no rule matches.
pub(super) fn labels(rules: &[FilterRule]) -> Vec<RuleLabel> {
    let unwritten = |name: &str| RuleLabel { number: 0, name: name.into(), place: Arc::default() };
    let written = rules.iter().zip(1..).map(|(rule, number)| RuleLabel {
        number,
        name: Arc::clone(&rule.name),
        place: Arc::clone(&rule.place),
    });
    [unwritten("default")].into_iter().chain(written).chain([unwritten("invalid")]).collect()
}

impl Firewall {
    /// Returns the index in [`labels`] of the flow's deciding rule.
    pub(super) fn counted_as(&self, state: &State) -> usize {
        self.place_of(state.rule, Opening(state.opening).state())
    }

    fn place_of(&self, rule: u16, flow_state: ConnectionState) -> usize {
        match (rule, flow_state) {
            (0, ConnectionState::Invalid) => self.rules.len() + 1,
            (number, _) => usize::from(number),
        }
    }

    /// Counts a packet of a judged flow, if every packet is counted.
    #[inline]
    pub(super) fn count(&self, packet: &Packet, state: &State, context: &mut Context<'_>) {
        if self.counts {
            self.count_one(packet, state, context);
        }
    }

    #[inline(never)]
    fn count_one(&self, packet: &Packet, state: &State, context: &mut Context<'_>) {
        let now_ns = context.now_ns();
        if let Some(counters) = context.rule(self.counted_as(state)) {
            counters.hit(1, packet.ip_len(), now_ns);
        }
    }

    /// Counts a packet that this rule judged on its own.
    pub(super) fn count_alone(
        &self,
        rule: u16,
        flow_state: ConnectionState,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) {
        let place = self.place_of(rule, flow_state);
        packet.record_rule(place as u32);
        state.counted = state.counted.wrapping_add(1);
        let now_ns = context.now_ns();
        if let Some(counters) = context.rule(place) {
            counters.hit(1, packet.ip_len(), now_ns);
        }
    }

    /// Counts the flow's packets, except for the last `but`, for their deciding rule.
    pub(super) fn count_flow(&self, state: &mut State, but: u64, context: &mut Context<'_>) {
        let clock = context.flow().seq.wrapping_sub(but);
        let packets = clock.wrapping_sub(state.counted);
        state.counted = clock;
        if self.counts || state.action == 0 {
            return;
        }
        let last_seen_ns = context.last_seen_ns();
        if let Some(counters) = context.rule(self.counted_as(state)) {
            counters.hit(packets, 0, last_seen_ns);
        }
    }
}
