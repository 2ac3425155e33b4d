//! Wherever states are, and however often they go there and come back: what leaves is what the chain alone makes of it.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod support;

use std::collections::HashMap;
use std::fmt::Display;

use io::traffic::Payload;
use node::stored::{Accesses, Habit, Peer, Store, Stored};
use node::{Frame, From, Runner};
use packet::{LinkType, Pool};

use support::{Arriving, SEED, assembly, conversation, play, profile};

/// T, in nanoseconds.
const GAP_NS: u64 = 500_000;

fn check<S: Store<Error: Display>>(name: &str, frames: &[Arriving], habit: Habit, store: S) -> Accesses {
    let (expected, report) = play(Runner::new(assembly(name), name), frames);
    let mut ports = Runner::new(assembly(name), name);
    let mut stored = Stored::new(assembly(name).chain, store, habit, GAP_NS).unwrap();
    let (mut sent, mut out, mut pool) = (Vec::new(), Vec::new(), Pool::new(64));
    for Arriving { timestamp_ns, port, data } in frames {
        let frame = Frame {
            timestamp_ns: *timestamp_ns,
            link: LinkType::Ethernet,
            wire_len: data.len() as u32,
            data,
        };
        let packet = ports.admit(frame, From::Port(*port)).unwrap();
        let done = stored.pass_time(*timestamp_ns).and_then(|()| stored.process(packet, &mut out, &mut pool));
        done.map_err(|error| error.to_string()).unwrap();
        sent.extend(out.iter().map(|packet| packet.data().to_vec()));
        pool.give_all(&mut out);
    }
    for (number, (got, (.., expected))) in sent.iter().zip(&expected.sent).enumerate() {
        assert_eq!(got, expected, "packet {number} that leaves, {name}, {habit:?}");
    }
    assert_eq!(sent.len(), expected.sent.len(), "{name}, {habit:?}");
    let counters = stored.chain().counters();
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
            let peer = Peer::start(assembly(name).chain, is_ahead).unwrap();
            let accesses = check(name, &frames, Habit::EveryFlowlet, peer);
            println!("{name}: {accesses:?}");
            assert!(accesses.reads > 10 && (is_ahead || accesses.at_hand == 0));
        }
    }
}
