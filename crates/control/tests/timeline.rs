//! The timeline of a flow, over the API. The process keeps one, so this is the only test here.
#![allow(clippy::unwrap_used, clippy::panic)] // A test that cannot go on has failed.

mod support;

use std::sync::mpsc::channel;

use io::traffic::Payload;
use protocol::dispatcher::Granularity;
use runtime::Runner;
use runtime::elastic::UnitsConfig;
use runtime::timeline::LINES_KEPT;

use support::traffic::{SEED, assembly, conversation, profile};
use support::{Playing, Served};

const POLICY: &str = "cluster.rvl";

#[test]
fn a_moved_flow_has_a_timeline() {
    runtime::timeline::keep("here");
    let frames = conversation(POLICY, &profile(Payload::Random, 1_000, 20_000.0, SEED));
    let count = frames.len();
    let (sender, served) = channel();
    let make = move || {
        let mode = Granularity::Flow;
        let config = UnitsConfig { mode, units_min: 3, units_max: 3, ..UnitsConfig::as_published() };
        let mut runner = Runner::on_units(assembly(POLICY), POLICY, config).unwrap();
        sender.send(Served::new(&mut runner, None)).unwrap();
        runner
    };
    let playing = Playing::start(make, frames, 64);
    let served = served.recv().unwrap();
    let client = served.client();
    client.wait_until("/v1/status", |status| status["packets_in"] == count);
    let flow = client.list("/v1/flows?unit=0", 1000).pop().unwrap();
    let path = format!("/v1/flows/{}", flow["id"].as_str().unwrap());
    client.post(&format!("{path}/move"), r#"{"to": 2}"#);

    let timeline = client.get(&format!("{path}/timeline"));
    assert_eq!(timeline["lines_kept"], LINES_KEPT);
    let lines: Vec<_> = timeline["lines"].as_array().unwrap().iter().collect();
    let of = |role: &str, event: &str| {
        let is_it = |line: &&serde_json::Value| line["role"] == role && line["event"] == event;
        lines.iter().copied().position(|line| is_it(&line)).unwrap_or_else(|| panic!("{event}: {timeline}"))
    };
    let story =
        [of("dispatcher", "owner-changed"), of("unit 2", "state-installed"), of("unit 0", "tombstone-made")];
    assert!(story.is_sorted(), "{timeline}");
    let changed = lines[story[0]];
    assert_eq!((&changed["flow"], &changed["epoch"]), (&flow["id"], &2.into()));
    assert_eq!((&changed["host"], &changed["details"]), (&"here".into(), &"from unit 0, to unit 2".into()));
    assert!(lines.iter().all(|line| line["event"] != "processed"), "packets are not noted");

    let (status, problem) = client.request("GET", "/v1/flows/4000000000.0/timeline", "");
    assert_eq!((status, problem["code"].as_str()), (404, Some("unknown_flow")));
    playing.end();
}
