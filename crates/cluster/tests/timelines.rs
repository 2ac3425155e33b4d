//! Timelines of flows over all units of the simulated cluster: one that has moved, while a unit is
//! silent, and after a unit was lost. The process keeps one, so this is the only test here.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

#[path = "../../runtime/tests/support/mod.rs"]
mod support;

use std::sync::mpsc::channel;

use cluster::policies::GraphMaker;
use cluster::remote::{INQUIRY_MAX, UnitTimelines};
use cluster::simulated::{NodeFault, NodeFaultKind, SimulatedCluster, SimulatedFaults};
use io::traffic::Payload;
use protocol::dispatcher::{FlowStatus, Granularity};
use protocol::message::{FlowId, UnitId};
use protocol::trace::{FlowTimeline, TimelineRow};
use runtime::elastic::UnitsConfig;
use runtime::operator::{MigrationTarget, OperatorRequest};

use support::{SEED, Sink, assembly_of, generated, profile, receive};

const POLICY: &str = "
    settings { flows: 2k }
    Port<0> inside; Port<1> outside;
    Monitor m { report: [] };
    pipelet { inside <-> m <-> outside; }";

const SECOND_NS: u64 = 1_000_000_000;
const MAX_NS: u64 = INQUIRY_MAX.as_nanos() as u64;

/// Asks all units, and returns their answer after up to this time.
fn trace(cluster: &mut SimulatedCluster, flow: FlowId, (now_ns, wait_ns): (&mut u64, u64)) -> UnitTimelines {
    let (sender, answer) = channel();
    assert!(cluster.handle().trace(flow, 100, Box::new(move |units| sender.send(units).unwrap())));
    *now_ns += wait_ns;
    cluster.run_to(*now_ns, &mut Sink::default()).unwrap();
    answer.try_recv().unwrap()
}

fn is_of(row: &TimelineRow, host: &str, role: &str, event: &str) -> bool {
    (&*row.host, &*row.role.to_string(), &*row.event) == (host, role, event)
}

#[test]
fn a_moved_flow_has_the_lines_of_all_units() {
    runtime::timeline::keep("dispatcher");
    let frames = generated(&profile(Payload::Random, 300, 20_000.0, SEED));
    let (first_ns, last_ns) = (frames[0].timestamp_ns, frames[frames.len() - 1].timestamp_ns);
    let at = |seconds: u64| last_ns - first_ns + seconds * SECOND_NS;
    let fault = |at_ns, kind| NodeFault { at_ns, unit: 2, kind };
    let faults = SimulatedFaults {
        nodes: vec![
            fault(at(4), NodeFaultKind::Pause(MAX_NS + SECOND_NS / 2)),
            fault(at(10), NodeFaultKind::Crash(u64::MAX / 2)),
        ],
        ..SimulatedFaults::NONE
    };
    let config = UnitsConfig {
        mode: Granularity::Flow,
        units_min: 3,
        units_max: 3,
        capacity_bps: 20_000_000,
        ..UnitsConfig::as_published()
    };
    let make = || -> GraphMaker { Box::new(|_| Ok(assembly_of("test.rvl", POLICY).graph)) };
    let assembly = assembly_of("test.rvl", POLICY);
    let mut cluster = SimulatedCluster::start(assembly, config, 3, make, faults, (SEED, first_ns)).unwrap();
    let (operator, mut sink) = (cluster.runner().open_to_operators(), Sink::default());
    for frame in &frames {
        cluster.run_to(frame.timestamp_ns, &mut sink).unwrap();
        receive(cluster.runner(), frame, &mut sink);
        cluster.runner().flush(&mut sink).unwrap();
    }

    let (sender, flows) = channel();
    let list = move |list: Result<runtime::operator::FlowList, _>| sender.send(list.unwrap().flows).unwrap();
    operator.send(OperatorRequest::Flows(0..1000, Box::new(list))).unwrap();
    cluster.runner().flush(&mut sink).unwrap();
    let flows: Vec<FlowStatus> = flows.try_recv().unwrap();
    let (flow, from) = flows.iter().map(|flow| (flow.flow, flow.owner)).next().unwrap();
    let to = UnitId((from.0 + 1) % 3);
    let target = MigrationTarget { flow, from: None, to: Some(to) };
    operator.send(OperatorRequest::Migrate(vec![target], Box::new(|moved| drop(moved.unwrap())))).unwrap();
    let mut now_ns = last_ns + SECOND_NS;
    cluster.run_to(now_ns, &mut sink).unwrap();

    let units = trace(&mut cluster, flow, (&mut now_ns, SECOND_NS / 10));
    assert_eq!((units.timelines.len(), &*units.missing), (3, &[][..]));
    let merged = FlowTimeline::merged(units.timelines, 100).rows;
    let of = |unit: UnitId, event: &str| {
        let is_it = |row: &TimelineRow| is_of(row, &format!("unit-{}", unit.0), &unit.to_string(), event);
        merged.iter().position(is_it).unwrap_or_else(|| panic!("{unit}, {event}: {merged:#?}"))
    };
    let story = [of(to, "received"), of(to, "state-installed"), of(from, "state-released")];
    assert!(story.is_sorted(), "{merged:#?}");
    assert_eq!(merged[of(to, "state-installed")].place.epoch, Some(2));
    assert!(merged.iter().all(|row| row.place.flow.is_none_or(|of| of == flow)));
    assert!(merged.iter().all(|row| row.event != "processed"), "packets are not noted");
    assert!(merged.iter().all(|row| (first_ns..now_ns).contains(&row.at_ns)), "it is the dispatcher's time");

    // A silent unit is named, and the others' lines are there.
    cluster.run_to(last_ns + 4 * SECOND_NS + SECOND_NS / 10, &mut sink).unwrap();
    now_ns = last_ns + 4 * SECOND_NS + SECOND_NS / 10;
    let units = trace(&mut cluster, flow, (&mut now_ns, MAX_NS + SECOND_NS / 100));
    assert_eq!(units.timelines.len(), 2);
    assert_eq!(units.missing, [("unit-2".to_owned(), "no answer within 1 s")]);
    now_ns += 2 * SECOND_NS;
    cluster.run_to(now_ns, &mut sink).unwrap();
    assert!(trace(&mut cluster, flow, (&mut now_ns, SECOND_NS / 10)).missing.is_empty(), "it is back");
    // A lost unit is not asked.
    now_ns = last_ns + 20 * SECOND_NS;
    cluster.run_to(now_ns, &mut sink).unwrap();
    let units = trace(&mut cluster, flow, (&mut now_ns, SECOND_NS / 10));
    assert_eq!((units.timelines.len(), &*units.missing), (2, &[][..]));
    cluster.finish(&mut sink).unwrap();
}
