//! `rivulet status`, `nodes`, `units`, `flows`, `migrate`, `drain`, `resume` and `apply`: a cluster
//! of processes is operated while packets flow.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::*;

/// Time within which everything must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A dispatcher with three units, as processes; one more joins, and the first one is drained half
/// way.
struct Demo {
    place: Place,
    child: Option<Child>,
}

impl Demo {
    fn start(seconds: u64) -> Demo {
        let place = Place::new();
        let line = format!(
            "demo --cluster --seconds {seconds} --rate 5kpps --flows 300 --unit-capacity 1Gbps --api demo.sock -o json"
        );
        let child = place.command(&line).stdout(Stdio::piped()).spawn().unwrap();
        let demo = Demo { place, child: Some(child) };
        let began = Instant::now();
        while demo.place.path("demo.sock").metadata().is_err() {
            assert!(began.elapsed() < PATIENCE, "there is no socket");
            std::thread::sleep(Duration::from_millis(20));
        }
        demo.wait_for("status", |status| status["dispatcher"]["flows"].as_u64() > Some(100));
        demo
    }

    fn json(&self, line: &str) -> Value {
        self.place.json(&format!("{line} --api demo.sock -o json"))
    }

    fn text(&self, line: &str) -> String {
        self.place.stdout(&format!("{line} --api demo.sock"))
    }

    fn wait_for(&self, line: &str, is_expected: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let value = self.json(line);
            if is_expected(&value) {
                return value;
            }
            assert!(began.elapsed() < PATIENCE, "{line}: {value}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn end(mut self) -> Value {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It ends its nodes.
            let _ = std::process::Command::new("kill").arg(child.id().to_string()).status();
            let _ = child.wait();
        }
    }
}

#[test]
fn flows_are_moved_while_packets_flow_and_none_is_lost() {
    let demo = Demo::start(10);
    let nodes = demo.json("nodes");
    let names: Vec<_> = nodes.as_array().unwrap().iter().map(|node| node["name"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["unit-1", "unit-2", "unit-3"]);
    assert!(demo.text("units").starts_with("UNIT"));
    let flow = demo.json("flows list --limit 1")[0].clone();
    let id = flow["id"].as_str().unwrap();
    let to = if flow["node"] == "unit-2" { "unit-3" } else { "unit-2" };
    assert_eq!(demo.json(&format!("flows move {id} --to {to}"))["node"], to);
    assert_eq!(demo.json(&format!("flows show {id}"))["id"], id);
    assert!(demo.text(&format!("flows show {id}")).contains(to));
    let timeline = demo.json(&format!("trace flow {id}"));
    let lines = timeline["lines"].as_array().unwrap();
    let at = |event: &str| lines.iter().position(|line| line["event"] == event);
    let (began, moved) = (at("flow-began"), at("owner-changed"));
    assert!(moved.is_some() && began < moved, "{timeline}");
    let changed = &lines[moved.unwrap()];
    assert_eq!((changed["flow"].as_str(), changed["epoch"].as_u64()), (Some(id), Some(2)), "{timeline}");
    assert!(demo.text(&format!("trace flow {id}")).contains("owner-changed"));
    // The units keep theirs, and the dispatcher asks for it.
    assert_eq!(timeline["missing"], serde_json::json!([]));
    let installed = demo.wait_for(&format!("trace flow {id}"), |timeline| {
        let is_it = |line: &Value| line["host"] == to && line["event"] == "state-installed";
        timeline["lines"].as_array().unwrap().iter().any(is_it)
    });
    let lines = installed["lines"].as_array().unwrap();
    for (host, event) in [("demo", "owner-changed"), (flow["node"].as_str().unwrap(), "state-released")] {
        assert!(lines.iter().any(|line| line["host"] == host && line["event"] == event), "{installed}");
    }

    let units = demo.json("units");
    let busiest = units.as_array().unwrap().iter().max_by_key(|unit| unit["flows"].as_u64()).unwrap();
    let busiest = busiest["node"].as_str().unwrap();
    let other = if busiest == "unit-3" { "unit-2" } else { "unit-3" };
    let mut moved = 1;
    for (from, to) in [(busiest, other), (other, busiest), (busiest, other)] {
        let migration = demo.json(&format!("migrate --from {from} --to {to}"));
        assert_eq!(migration["state"], "done", "{migration}");
        moved += migration["moved"].as_u64().unwrap();
    }
    let some =
        demo.json(&format!("migrate --count 20 --filter port==80||port!=80 --from {other} --to {busiest}"));
    assert_eq!(some["state"], "done");
    moved += some["moved"].as_u64().unwrap();
    let undone = demo.json(&format!("migrate undo {}", some["id"]));
    assert_eq!(undone["state"], "reverted", "{undone}");
    assert!(moved > 100, "{moved}");
    assert!(demo.text("migrate list").contains("reverted"));
    let status = demo.text("status");
    assert!(status.contains("migrations") && status.contains(" and 0 messages refused"), "{status}");
    let links = demo.json("status")["links"].take();
    // A peer's first datagram may overtake the end of the handshake; it is sent again.
    let refused = links["refused"].as_object().unwrap().iter();
    assert!(refused.filter(|(reason, _)| *reason != "unknown_peer").all(|(_, count)| count == 0), "{links}");
    assert!(links["handshakes"]["connected"].as_u64() >= Some(3));

    let outcome = demo.end();
    assert_adds_up(&outcome["report"]);
    assert_eq!(outcome["packets_lost"], 0);
    assert!(outcome["report"]["units"]["flows_migrated"].as_u64() >= Some(moved), "{outcome}");
}

#[test]
fn nodes_are_drained_and_resumed_by_hand() {
    let demo = Demo::start(12);
    let drained = demo.json("drain unit-3");
    assert_eq!(drained["status"], "drained", "{drained}");
    let said = demo.place.refused(1, "drain unit-9 --api demo.sock");
    assert!(said.contains("there is no node `unit-9`"), "{said}");
    let said = demo.place.refused(1, "flows move 4000000000.0 --api demo.sock");
    assert!(said.contains("ended"), "{said}");
    let said = demo.place.refused(1, "trace flow 4000000000.0 --api demo.sock");
    assert!(said.contains("ended"), "{said}");
    let said = demo.place.refused(1, "trace flow first --api demo.sock");
    assert!(said.contains("expected INDEX.GENERATION, such as 17.0"), "{said}");
    let said = demo.place.refused(1, "flows list --filter nonsense --api demo.sock");
    assert!(said.contains("filter"), "{said}");
    assert_eq!(demo.json("drain unit-2 --no-wait")["status"], "draining");
    demo.place.run("resume unit-2 --api demo.sock");
    demo.wait_for("nodes", |nodes| nodes[1]["status"] != "draining");
    let outcome = demo.end();
    assert_adds_up(&outcome["report"]);
    assert_eq!(outcome["packets_lost"], 0);
}

/// The policy of the demonstration.
const POLICY: &str = include_str!("../../../../examples/cluster.rvl");

#[test]
fn another_policy_reaches_all_nodes_and_nothing_is_lost() {
    let demo = Demo::start(20);
    let before = demo.json("status");
    demo.place.write("next.rvl", POLICY.replace("\"echo\"", "\"pings\""));
    let line = "apply next.rvl --api demo.sock";
    assert_eq!(demo.place.stdout(&format!("{line} --dry-run")), "next.rvl: can be applied\n");
    assert_eq!(demo.json("status")["rollout"], Value::Null);
    assert_eq!(demo.place.stdout(line), "next.rvl: runs on all nodes\n");
    assert_eq!(demo.place.stdout(line), "next.rvl: unchanged\n");
    let status = demo.json("status");
    assert_eq!(
        (status["policy"].as_str(), status["rollout"]["stage"].as_str()),
        (Some("next.rvl"), Some("done"))
    );
    assert_ne!(status["policy"], before["policy"]);
    assert_eq!(status["rollout"]["nodes_done"], status["rollout"]["nodes"]);
    assert!(demo.text("status").contains("policy      next.rvl"), "{}", demo.text("status"));
    for (name, text, expected) in [
        ("edges", POLICY.replace("web <-> monitor", "monitor <-> web"), "edges differ"),
        ("settings", POLICY.replace("64k", "32k"), "settings differ"),
        ("ports", POLICY.replace("Port<0>", "Port<7>"), "ports differ"),
        ("functions", POLICY.replace("HTTP web", "Monitor web { report: [] }"), "functions differ"),
    ] {
        demo.place.write(&format!("{name}.rvl"), text);
        let said = demo.place.refused(1, &format!("apply {name}.rvl --api demo.sock"));
        assert!(said.contains(&format!("{name}.rvl:")) && said.contains(expected), "{said}");
    }
    let outcome = demo.end();
    assert_adds_up(&outcome["report"]);
    assert_eq!(outcome["packets_lost"], 0);
}

// A16
#[test]
fn operators_come_over_tls_with_a_certificate_or_a_token() {
    let place = Place::new();
    place.stdout("cluster init certs dispatcher=127.0.0.1 operator");
    place.write("token", "0123456789abcdef".repeat(4));
    std::fs::set_permissions(place.path("token"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let server = "--api-cert certs/dispatcher.pem --api-key certs/dispatcher.key";
    let demo = "demo --cluster --seconds 600 --rate 1kpps --flows 100 --api https://127.0.0.1:0";
    for (options, expected) in [
        ("", "--api-cert"),
        (server, "nobody could use it"),
        (&format!("{server} --api-token certs/ca.pem"), "only its owner"),
    ] {
        let said = place.refused(1, &format!("{demo} {options}"));
        assert!(said.contains(expected), "{said}");
    }
    let line = format!("{demo} {server} --api-token token --api-ca certs/ca.pem -o json");
    let mut child = place.command(&line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap());
    let demo = Demo { place, child: Some(child) };
    let url = said
        .lines()
        .find_map(|line| line.unwrap().strip_prefix("rivulet: control API at ").map(str::to_owned));
    let status = format!("status -o json --api {} --ca certs/ca.pem", url.unwrap());
    for credentials in ["--api-token token", "--cert certs/operator.pem --key certs/operator.key"] {
        assert_eq!(demo.place.json(&format!("{status} {credentials}"))["name"], "demo");
    }
    let said = demo.place.refused(1, &status);
    assert!(said.contains("client certificate"), "{said}");
    let counted = demo.place.json(&format!("{status} --api-token token"));
    assert_eq!(counted["clients"]["unauthorized"], 1, "{counted}");
    let named = |name: &str| format!("{status} --api-token token --server-name {name}");
    assert_eq!(demo.place.json(&named("dispatcher"))["name"], "demo");
    let said = demo.place.refused(1, &named("operator"));
    assert!(said.contains("certificate"), "{said}");
    // A viewer sees, a unit's key opens nothing.
    demo.place.stdout("cluster init certs viewer unit:u=127.0.0.1");
    let with = |name: &str| format!("--cert certs/{name}.pem --key certs/{name}.key");
    assert_eq!(demo.place.json(&format!("{status} {}", with("viewer")))["name"], "demo");
    let said = demo.place.refused(1, &status.replace("status", "migrate"));
    assert!(said.contains("--flow, --from, --filter or --count"), "{said}");
    let migrate = status.replace("status", "migrate --from 0 --count 1");
    let said = demo.place.refused(1, &format!("{migrate} {}", with("viewer")));
    assert!(said.contains("the role viewer allows GET only, not POST"), "{said}");
    let said = demo.place.refused(1, &format!("{status} {}", with("u")));
    assert!(said.contains("is for the role unit, and not for operator or viewer"), "{said}");
    // Nor does it get the token: the server shows it as its own from now on.
    for end in ["pem", "key"] {
        let (from, to) = (format!("certs/u.{end}"), format!("certs/dispatcher.{end}"));
        std::fs::copy(demo.place.path(&from), demo.place.path(&to)).unwrap();
    }
    let said = demo.place.refused(1, &format!("{status} --api-token token"));
    assert!(said.contains("certificate is for the role unit, and not for dispatcher"), "{said}");
    let said = demo.place.refused(1, "status --api https://127.0.0.1:1");
    assert!(said.contains("--ca FILE"), "{said}");
}

#[test]
fn commands_without_a_dispatcher_say_what_to_do() {
    let place = Place::new();
    // A stopped process: the kernel accepts connections for it, but no answer follows.
    let _stopped = std::os::unix::net::UnixListener::bind(place.path("stopped.sock")).unwrap();
    let said = place.refused(1, "status --api stopped.sock");
    assert!(said.contains("no answer within 4 s") && !said.contains("os error"), "{said}");
    let said = place.refused(1, "status --api nothing.sock");
    assert!(said.contains("cannot reach the control API at nothing.sock"), "{said}");
    let said = place.refused(2, "flows move");
    assert!(said.contains("<FLOW>"), "{said}");
    place.write("file", "text");
    place.write("wire.rvl", WIRE);
    place.stdout("traffic --packets 10 --write in.pcap");
    let said = place.refused(1, "run wire.rvl --read in.pcap --api file");
    assert!(said.contains("cannot serve the control API at file") && said.contains("no socket"), "{said}");
    assert_eq!(place.read("file"), b"text");
    place.stdout("run wire.rvl --read in.pcap --api own.sock");
    assert!(!place.path("own.sock").exists(), "it is removed at the end");
}
