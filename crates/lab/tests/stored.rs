//! The output equals the chain's, wherever states are and however often they move.
#![allow(clippy::unwrap_used)] // A test that panics fails.

#[path = "../../runtime/tests/support/mod.rs"]
mod support;

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Display;
use std::rc::Rc;

use io::traffic::Payload;
use lab::stored::{Accesses, Habit, Peer, Store, Stored};
use packet::{LinkType, PacketPool};
use protocol::message::{FlowId, StateDelta, Version};
use runtime::{Frame, Ingress, Runner};

use support::{Arriving, SEED, assembly, conversation, play, profile};

/// T, in nanoseconds.
const GAP_NS: u64 = 500_000;

fn check<S: Store<Error: Display>>(name: &str, frames: &[Arriving], habit: Habit, store: S) -> Accesses {
    let (expected, report) = play(Runner::new(assembly(name), name), frames);
    let mut ports = Runner::new(assembly(name), name);
    let mut stored = Stored::new(assembly(name).graph, store, habit, GAP_NS).unwrap();
    let (mut sent, mut out, mut pool) = (Vec::new(), Vec::new(), PacketPool::new(64));
    for Arriving { timestamp_ns, port, data } in frames {
        let frame = Frame {
            timestamp_ns: *timestamp_ns,
            link: LinkType::Ethernet,
            wire_len: data.len() as u32,
            data,
        };
        let packet = ports.admit(frame, Ingress::Port(*port)).unwrap();
        let done = stored.pass_time(*timestamp_ns).and_then(|()| stored.process(packet, &mut out, &mut pool));
        done.map_err(|error| error.to_string()).unwrap();
        sent.extend(out.iter().map(|packet| packet.data().to_vec()));
        pool.give_all(&mut out);
    }
    for (number, (got, (.., expected))) in sent.iter().zip(&expected.sent).enumerate() {
        assert_eq!(got, expected, "packet {number} that leaves, {name}, {habit:?}");
    }
    assert_eq!(sent.len(), expected.sent.len(), "{name}, {habit:?}");
    let counters = stored.graph().counters();
    assert_eq!((counters.packets_in, counters.dropped()), (report.packets_in, report.drops.values().sum()));
    stored.accesses()
}

const POLICIES: [(&str, Payload); 6] = [
    ("nat.rvl", Payload::Random),
    ("firewall.rvl", Payload::Random),
    ("lb.rvl", Payload::Random),
    ("monitor.rvl", Payload::Random),
    ("http.rvl", Payload::Http),
    ("all.rvl", Payload::Http),
];

#[test]
fn states_in_a_store() {
    for (name, payload) in POLICIES {
        let frames = conversation(name, &profile(payload, 3_000, 20_000.0, SEED));
        let local = check(name, &frames, Habit::Never, HashMap::new());
        assert_eq!(local, Accesses::default());
        let naive = check(name, &frames, Habit::EveryPacket, HashMap::new());
        let early = check(name, &frames, Habit::EveryFlowlet, HashMap::new());
        println!("{name}: {} packets, {naive:?}, {early:?}", frames.len());
        assert!(naive.writes <= naive.reads && early.reads <= early.writes && early.reads > 10);
        assert!(early.reads < naive.reads);
    }
}

#[test]
fn states_at_another_unit() {
    for (name, payload) in POLICIES {
        let frames = conversation(name, &profile(payload, 3_000, 20_000.0, SEED));
        for is_ahead in [false, true] {
            let peer = Peer::start(assembly(name).graph, is_ahead).unwrap();
            let accesses = check(name, &frames, Habit::EveryFlowlet, peer);
            println!("{name}: {accesses:?}");
            assert!(accesses.reads > 10 && (is_ahead || accesses.at_hand == 0));
        }
    }
}

/// States, and of each that replaces another one the bytes of the whole and of what has changed.
#[derive(Default)]
struct Changing {
    states: HashMap<FlowId, Vec<u8>>,
    told: Rc<RefCell<Vec<(usize, usize)>>>,
}

impl Store for Changing {
    type Error = Infallible;

    fn read(&mut self, flow: FlowId, state: &mut Vec<u8>) -> Result<bool, Infallible> {
        self.states.read(flow, state)
    }

    fn write(&mut self, flow: FlowId, state: &[u8]) -> Result<(), Infallible> {
        self.push(flow, state)
    }

    fn push(&mut self, flow: FlowId, state: &[u8]) -> Result<(), Infallible> {
        if let Some(old) = self.states.insert(flow, state.to_vec()) {
            let [before, after] = [1, 2].map(|seq| Version { epoch: 1, seq });
            let changes = StateDelta::of((before, &old), (after, state));
            self.told.borrow_mut().push((state.len(), changes.map_or(state.len(), |delta| delta.len())));
        }
        Ok(())
    }

    fn forget(&mut self, flow: FlowId) -> Result<(), Infallible> {
        self.states.forget(flow)
    }
}

/// Decision 18 and X13 rest on this about deltas.
#[test]
fn what_changes_in_a_state_from_flowlet_to_flowlet() {
    let small = ["nat.rvl", "lb.rvl", "firewall.rvl", "whitelist.rvl", "policer.rvl", "monitor.rvl"];
    let functions = small.map(|name| (name, Payload::Random)).into_iter();
    for (name, payload) in functions.chain([("http.rvl", Payload::Http), ("ids.rvl", Payload::Http)]) {
        let frames = conversation(name, &profile(payload, 3_000, 20_000.0, SEED));
        let store = Changing::default();
        let told = Rc::clone(&store.told);
        check(name, &frames, Habit::EveryFlowlet, store);
        let told = told.borrow();
        let mean =
            |of: fn(&(usize, usize)) -> usize| told.iter().map(of).sum::<usize>() as f64 / told.len() as f64;
        let (whole, changes) = (mean(|told| told.0), mean(|told| told.1));
        let most = told.iter().map(|told| told.1).max().unwrap();
        println!(
            "{name}: {} states of {whole:.0} bytes, of which {changes:.1} tell what has changed, {most} at most",
            told.len()
        );
        assert!(changes < whole && (!small.contains(&name) || changes * 3.0 < whole), "{name}");
    }
}
