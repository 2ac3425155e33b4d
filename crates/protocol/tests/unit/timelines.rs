//! The timelines of five exchanges, as files in `tests/timelines`: what the protocol does, and how
//! it reads. With `RIVULET_BLESS` set, these tests write them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use protocol::dispatcher::{self, Granularity, TargetChoice};
use protocol::message::{FlowId, UnitId};
use protocol::unit;

use crate::common::link::LinkFaults;
use crate::common::pair::Pair;

/// The time between two arrivals.
const STEP_NS: u64 = 10_000;

/// Two units; the first one gets the flow.
fn pair() -> Pair {
    let config = dispatcher::Config {
        mode: Granularity::Flow,
        targets: TargetChoice::None,
        units_min: 2,
        units_max: 2,
        flows_max: 10,
        ..dispatcher::Config::default()
    };
    let unit = |id| unit::Config { retransmit_ns: 1_000_000, ..unit::Config::new(id) };
    let faults = LinkFaults { dispatcher_fifo: true, peers_fifo: true, loss: 0, mute: 0, twice: 0, queue: 0 };
    Pair::new(config, unit, faults, &[0; 32])
}

/// Returns the only flow.
fn flow(pair: &Pair) -> FlowId {
    *pair.flows.keys().next().unwrap()
}

/// Sends packets of the flow.
fn packets(pair: &mut Pair, count: usize) {
    (0..count).for_each(|_| pair.packet(1, 1_000));
}

/// Delivers the parcel with this number.
fn deliver(pair: &mut Pair, number: usize) {
    pair.world.now_ns += STEP_NS;
    pair.world.deliver(number, false);
    pair.deliver_reports(false);
}

/// Delivers everything in the order of sending.
fn deliver_all(pair: &mut Pair) {
    while !pair.world.wire.is_empty() {
        deliver(pair, 0);
    }
}

/// Makes the second unit the owner.
fn move_flow(pair: &mut Pair) {
    let (flow, now_ns) = (flow(pair), pair.world.now_ns);
    pair.migrate(now_ns, flow, UnitId(1));
}

fn compare(name: &str, pair: &Pair) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/timelines").join(name);
    let text = pair.world.timeline.to_string();
    if std::env::var_os("RIVULET_BLESS").is_some() {
        return fs::write(&path, text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "RIVULET_BLESS=1 cargo test -p protocol --test unit timelines writes {name}");
}

/// The release follows the last packet of the old owner, and the new owner pulls.
#[test]
fn a_move_after_its_release() {
    let mut pair = pair();
    packets(&mut pair, 2);
    deliver_all(&mut pair);
    move_flow(&mut pair);
    packets(&mut pair, 1);
    deliver_all(&mut pair);
    compare("move.txt", &pair);
}

/// The pull overtakes the last packet of the old owner: the state waits for it.
#[test]
fn a_pull_that_overtakes_a_packet() {
    let mut pair = pair();
    packets(&mut pair, 1);
    deliver_all(&mut pair);
    packets(&mut pair, 1);
    move_flow(&mut pair);
    packets(&mut pair, 1);
    // Packet 2, the release, the adoption, and packet 3 are on their way.
    deliver(&mut pair, 2);
    deliver(&mut pair, 3);
    deliver_all(&mut pair);
    compare("pull.txt", &pair);
}

/// A replica goes first; the state follows as the changes to it.
#[test]
fn a_copy_before_the_move() {
    let mut pair = pair();
    packets(&mut pair, 5);
    deliver_all(&mut pair);
    let (flow, now_ns) = (flow(&pair), pair.world.now_ns);
    pair.replicate(now_ns, flow, UnitId(1));
    deliver_all(&mut pair);
    packets(&mut pair, 1);
    move_flow(&mut pair);
    deliver_all(&mut pair);
    compare("pre-copy.txt", &pair);
}

/// The new owner has no room: the flow stays where its state is.
#[test]
fn a_refused_state() {
    let mut pair = pair();
    packets(&mut pair, 1);
    deliver_all(&mut pair);
    pair.world.units[1].engine_mut().refuses = true;
    move_flow(&mut pair);
    packets(&mut pair, 1);
    deliver_all(&mut pair);
    compare("refusal.txt", &pair);
}

/// The old owner crashes before it sends the state: the flow ends.
#[test]
fn a_lost_unit() {
    let mut pair = pair();
    packets(&mut pair, 1);
    deliver_all(&mut pair);
    move_flow(&mut pair);
    packets(&mut pair, 1);
    // The release arrives, and then the unit is gone.
    deliver(&mut pair, 0);
    pair.crash_unit(UnitId(0));
    deliver_all(&mut pair);
    compare("lost-unit.txt", &pair);
}
