//! Against a reference that is slow and obvious: a flow is an entry in a list, and time is compared
//! by hand.

use std::collections::HashMap;

use graph::{Options, WhenFull};
use nf::EndReason;
use packet::{Endpoint, Side};
use proptest::prelude::*;

use crate::support::bench::{Arrival, Bench};
use crate::support::functions::*;
use crate::support::packets::*;

/// A packet of the test: UDP between few hosts.
#[derive(Clone, Copy, Debug)]
struct Step {
    gap_ns: i64,
    side: Side,
    source: Endpoint,
    destination: Endpoint,
    byte: u8,
}

/// The outcome of a packet: its number in the flow that began with these ends, or the reason for
/// its end.
#[derive(Clone, Debug, PartialEq)]
enum Fate {
    Sent { began: (Endpoint, Endpoint), clock: u64, reply: bool },
    Dropped(&'static str),
}

type Pair = (Endpoint, Endpoint);

struct Flow {
    began: Pair,
    origin: Side,
    alias: Option<Pair>,
    answered: bool,
    clock: u64,
    deadline_ns: u64,
}

/// The reference: `Keeper`, `OneToOne`, `Gate` and the flow table, in the plainest words.
#[derive(Default)]
struct Reference {
    flows: Vec<Flow>,
    now_ns: u64,
    flows_max: usize,
    ended: HashMap<EndReason, u64>,
}

/// Expired flows are removed once the tick of their deadline has passed: 2^24 ns.
const TICK_BITS: u32 = 24;

impl Reference {
    fn packet(&mut self, at_ns: u64, step: &Step) -> Fate {
        self.advance(at_ns);
        let pair = (step.source, step.destination);
        if let Some(i) = self.find(pair)
            && self.flows[i].deadline_ns < self.now_ns
        {
            self.end(i, EndReason::Idle);
        }
        let (i, new) = match self.find(pair) {
            Some(i) => (i, false),
            None if self.flows.len() == self.flows_max => return Fate::Dropped("flow-table-full"),
            None => {
                self.flows.push(Flow {
                    began: pair,
                    origin: step.side,
                    alias: None,
                    answered: false,
                    clock: 0,
                    deadline_ns: self.now_ns,
                });
                (self.flows.len() - 1, true)
            }
        };
        let flow = &mut self.flows[i];
        flow.clock += 1;
        let reply = pair == swap(flow.began) || flow.alias.is_some_and(|alias| pair == swap(alias));
        flow.answered |= reply;
        let (began, clock, origin) = (flow.began, flow.clock, flow.origin);
        if step.byte & command::DROP != 0 {
            if new {
                self.end(i, EndReason::Rejected);
            }
            return Fate::Dropped("policy");
        }
        if new && origin == Side::Inside {
            let alias = (Endpoint::new(one_to_one(pair.0.addr), pair.0.port), pair.1);
            if let Some(other) = self.find(alias) {
                let there = &self.flows[other];
                let reason = if there.deadline_ns < self.now_ns {
                    EndReason::Idle
                } else if there.origin == Side::Outside && !there.answered {
                    EndReason::Evicted
                } else {
                    self.end(i, EndReason::Rejected);
                    return Fate::Dropped("alias-conflict");
                };
                self.end(other, reason);
            }
            let flow = self.flows.iter_mut().find(|flow| flow.began == began).unwrap();
            flow.alias = Some(alias);
        }
        let now_ns = self.now_ns;
        let flow = self.flows.iter_mut().find(|flow| flow.began == began).unwrap();
        let keep = keep_ms(step.byte);
        if keep > 0 || new {
            flow.deadline_ns = now_ns.saturating_add(keep * 1_000_000);
        }
        Fate::Sent { began, clock, reply }
    }

    fn advance(&mut self, at_ns: u64) {
        self.now_ns = self.now_ns.max(at_ns);
        while let Some(i) =
            self.flows.iter().position(|flow| flow.deadline_ns >> TICK_BITS < self.now_ns >> TICK_BITS)
        {
            self.end(i, EndReason::Idle);
        }
    }

    fn find(&self, pair: Pair) -> Option<usize> {
        let is = |known: Pair| known == pair || known == swap(pair);
        self.flows.iter().position(|flow| is(flow.began) || flow.alias.is_some_and(is))
    }

    fn end(&mut self, i: usize, reason: EndReason) {
        self.flows.remove(i);
        *self.ended.entry(reason).or_default() += 1;
    }
}

fn swap((a, b): Pair) -> Pair {
    (b, a)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![
        4 => Just(0i64),
        4 => 0i64..8_000_000,
        3 => 0i64..40_000_000,
        2 => 0i64..3_000_000_000,
        1 => 0i64..300_000_000_000,
        1 => Just(1_000_000_000),
        1 => Just(5_000_000),
        1 => 0i64..i64::MAX / 200,
        2 => -2_000_000_000i64..0,
    ];
    let byte = prop_oneof![3 => Just(0u8), 1 => Just(0x10), 2 => Just(0x20), 1 => Just(0x30), 1 => Just(1)];
    let step = (gap, any::<bool>(), 1u8..4, 1u8..3, 0u8..3, byte);
    let to_step = |(gap_ns, inside, host, peer, to, byte)| {
        let (inner, outer) = (v4(10, 0, 0, host, 1000), v4(192, 0, 2, peer, 53));
        let outer_name = Endpoint::new(one_to_one(inner.addr), 1000);
        let (side, source, destination) = match (inside, to) {
            (true, 0) => (Side::Inside, inner, v4(10, 0, 0, 1, 2000)),
            (true, _) => (Side::Inside, inner, outer),
            (false, 0) => (Side::Outside, outer, inner),
            (false, _) => (Side::Outside, outer, outer_name),
        };
        Step { gap_ns, side, source, destination, byte }
    };
    prop::collection::vec(step.prop_map(to_step), 1..150)
}

/// Returns the outcome of packet `sequence`, as the graph's functions reported it.
fn fate_in(bench: &Bench, sequence: u64, drops_before: &[(&'static str, u64)]) -> Fate {
    let Some(alert) = bench.alerts.iter().find(|alert| alert.sequence == sequence) else {
        let drops = bench.drops();
        let new = drops.iter().find(|drop| !drops_before.contains(drop)).unwrap();
        return Fate::Dropped(new.0);
    };
    let drops = bench.drops();
    if let Some(new) = drops.iter().find(|drop| !drops_before.contains(drop)) {
        return Fate::Dropped(new.0);
    }
    let reply = alert.category == "reply";
    let now = alert.key.ends(alert.reversed);
    let began = if reply { swap(now) } else { now };
    Fate::Sent { began, clock: u64::from(alert.signature_id), reply }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_flow_table_does_what_a_list_would(steps in steps(), flows_max in prop_oneof![Just(64u32), 1u32..5]) {
        let stages = vec![stage::<Keeper>(64), stage::<OneToOne>(64), stage::<Gate>(64), stage::<Telltale>(64)];
        let options = Options { flows_max, when_full: WhenFull::RefuseNew, ..Options::default() };
        let mut bench = Bench::new(stages, options);
        let mut reference = Reference { flows_max: flows_max as usize, ..Reference::default() };
        let mut at_ns = 1_700_000_000_000_000_000u64;
        for (sequence, step) in steps.iter().enumerate() {
            at_ns = at_ns.saturating_add_signed(step.gap_ns);
            let drops = bench.drops();
            bench.batch(&[Arrival {
                at_ns,
                side: step.side,
                network: udp(step.source, step.destination, &[step.byte]),
            }]);
            let fate = fate_in(&bench, sequence as u64, &drops);
            prop_assert_eq!(fate, reference.packet(at_ns, step), "packet {}", sequence);
            let counters = bench.graph.counters();
            prop_assert_eq!(counters.flows_live, reference.flows.len() as u64, "after packet {}", sequence);
            for reason in [EndReason::Idle, EndReason::Rejected] {
                let expected = reference.ended.get(&reason).copied().unwrap_or(0);
                prop_assert_eq!(counters.ended(reason), expected, "{} after packet {}", reason.name(), sequence);
            }
        }
    }
}
