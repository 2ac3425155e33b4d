//! `rivulet explain`.

use io::capture::{CaptureFormat, CaptureReader, CaptureWriter};
use serde_json::Value;

use super::*;

pub(super) const POLICY: &str = "\
let clients = 10.0.0.0/8;
Port<0> inside;
Port<1> outside;
NAT n { external: [203.0.113.1], inside: [clients], untranslated: drop };
Firewall f { rules: \"allow out any to any port 80\" };
pipelet { inside <-> n <-> f <-> outside; }
";

fn place() -> Place {
    let place = Place::new();
    place.write("p.rvl", POLICY);
    place.stdout("traffic --write in.pcapng --packets 3000 --ipv6 0 --no-replies --protocols tcp=3,udp=1 --ports 80,443 --attack syn-flood=0.1");
    place
}

impl Place {
    fn explain(&self, options: &str) -> Vec<Value> {
        self.json(&format!("explain p.rvl --read in.pcapng --seed 1 -o json {options}"))
            .as_array()
            .unwrap()
            .clone()
    }
}

#[test]
fn each_step_shows_its_changes() {
    let stories = place().explain("--packet 1");
    let [story] = &stories[..] else { panic!("{stories:?}") };
    assert_eq!(story["packet"], 1);
    assert_eq!(story["flow"]["number"], 1);
    assert_eq!(story["flow"]["seq"], 1);
    // The former keys have the same values.
    assert_eq!(story["flow"]["clock"], story["flow"]["seq"]);
    assert_eq!((&story["made"], &story["told"]), (&story["generated"], &story["events"]));
    let nat = &story["steps"][0];
    assert_eq!((nat["function"].as_str(), nat["type"].as_str()), (Some("n"), Some("nat")));
    let changes = nat["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(changes[0]["field"], "source");
    assert!(changes[0]["before"].as_str().unwrap().starts_with("10."));
    assert!(changes[0]["after"].as_str().unwrap().starts_with("203.0.113.1"));
}

#[test]
fn functions_after_a_drop_are_not_shown() {
    let stories = place().explain("--dropped --limit 2000");
    assert!(!stories.is_empty());
    let mut by_nat = 0;
    for story in &stories {
        assert_eq!(story["outcome"]["what"], "dropped");
        let steps = story["steps"].as_array().unwrap();
        let Some((last, before)) = steps.split_last() else {
            // No function judges packets with impossible source addresses.
            assert_eq!(story["outcome"]["reason"], "martian", "{story}");
            continue;
        };
        assert_eq!(last["verdict"], "drop", "{story}");
        assert_eq!(last["reason"], story["outcome"]["reason"]);
        assert!(before.iter().all(|step| step["verdict"] == "forward"));
        if last["function"] == "f" {
            let by = &last["decided_by"];
            assert_eq!((&by["number"], by["name"].as_str()), (&0.into(), Some("default")), "{story}");
        }
        by_nat += usize::from(steps.len() == 1);
    }
    assert!(by_nat > 0 && by_nat < stories.len());
}

#[test]
fn explanations_agree_with_the_report() {
    let place = place();
    let stories = place.explain("--limit 5000");
    let report = place.json("run p.rvl --read in.pcapng --seed 1 -o json");
    assert_eq!(stories.len(), 3000);
    let count = |what: &str| stories.iter().filter(|s| s["outcome"]["what"] == what).count() as u64;
    let drops: u64 = report["drops"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(report["packets_out"], count("sent"));
    assert_eq!(report["packets_pending"], count("pending"));
    assert_eq!(drops, count("dropped"));
}

#[test]
fn flows_are_numbered_in_order_of_their_first_packets() {
    let place = place();
    let stories = place.explain("--limit 5000");
    let mut next = 1;
    for story in &stories {
        if let Some(flow) = story["flow"]["number"].as_u64() {
            assert!(flow <= next, "flow {flow} before flow {next}");
            next = next.max(flow + 1);
        }
    }
    let flow = place.explain("--flow 2 --limit 5000");
    assert!(!flow.is_empty() && flow.iter().all(|story| story["flow"]["number"] == 2));
    let key = &flow[0]["flow"]["key"];
    assert!(flow.iter().all(|story| &story["flow"]["key"] == key));
}

#[test]
fn filters_use_the_policy_language() {
    let place = place();
    let filter = |filter: &str| {
        let mut command = place.command("explain p.rvl --read in.pcapng -o json --limit 5000 --filter");
        let output = command.arg(filter).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice::<Vec<Value>>(&output.stdout).unwrap()
    };
    let tcp = filter("tcp && dst port 443 && src net clients");
    assert!(!tcp.is_empty());
    assert!(tcp.iter().all(|story| story["headers"].as_str().unwrap().contains(":443 tcp")));
    assert_eq!(filter("tcp").len() + filter("!tcp").len(), 3000);
    assert_eq!(filter("f.safe").len(), filter("f.safe && dst port 80").len());
    let output =
        place.command("explain p.rvl --read in.pcapng --filter").arg("dst prot 80").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("--filter:1:5"), "{}", stderr(&output));
}

#[test]
fn text_output_is_readable() {
    let place = place();
    let text = place.stdout("explain p.rvl --read in.pcapng --limit 1");
    assert!(text.starts_with("packet 1  ") && text.contains("\n  n (nat): "), "{text}");
    let said = place.refused(1, "explain p.rvl --read in.pcapng --packet 3001");
    assert!(said.contains("the captures have 3000"), "{said}");
    assert_eq!(place.stdout("explain p.rvl --read in.pcapng --flow 1000000 -o json"), "[]\n");
}

/// A capture from the middle of living connections, as `capture --connect` writes them.
#[test]
fn connections_from_before_the_capture_are_not_called_dropped() {
    let place = Place::new();
    place.write("p.rvl", POLICY);
    place.stdout("traffic --write whole.pcapng --packets 400 --ipv6 0 --no-replies --protocols tcp=1 --ports 80 --flows 20");
    let whole = place.json("explain p.rvl --read whole.pcapng --seed 1 -o json --limit 1000");
    assert!(whole.as_array().unwrap().iter().all(|story| story["outcome"]["what"] != "unknown"), "{whole:#}");
    let (mut reader, name) =
        (CaptureReader::open(place.path("whole.pcapng")).unwrap(), place.path("in.pcapng"));
    let mut writer = CaptureWriter::create(&name, CaptureFormat::of_path(&name)).unwrap();
    let mut number = 0;
    while let Some(record) = reader.next().unwrap() {
        number += 1;
        if number > 200 {
            writer.write(&record).unwrap();
        }
    }
    writer.finish().unwrap();
    let stories = place.explain("--limit 1000");
    let unknown: Vec<_> = stories.iter().filter(|story| story["outcome"]["what"] == "unknown").collect();
    assert!(!unknown.is_empty());
    for story in &unknown {
        let step = story["steps"].as_array().unwrap().last().unwrap();
        assert_eq!((&step["verdict"], &step["reason"]), (&"unknown".into(), &story["outcome"]["reason"]));
        assert!(!story["headers"].as_str().unwrap().contains(" SYN "), "{story:#}");
    }
    let output =
        place.command("explain p.rvl --read in.pcapng --seed 1 --dropped --limit 1000").output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stdout).contains("nat-not-opening"));
    let said = format!("{} packets are of TCP connections that began before the capture", unknown.len());
    assert!(stderr(&output).contains(&said), "{}", stderr(&output));
}

#[test]
fn replies_belong_to_their_flow() {
    let place = Place::new();
    place.write("p.rvl", POLICY);
    place.write("wire.rvl", WIRE);
    // Both directions, through functions that rewrite nothing.
    place.stdout("traffic --write in.pcapng --packets 500 --ipv6 0 --protocols udp=1");
    let all = place.json("explain wire.rvl --read in.pcapng -o json --limit 500");
    assert!(all.as_array().unwrap().iter().all(|s| s["outcome"]["what"] == "sent"));
    place.write(
        "p.rvl",
        "Port<0> inside;\nPort<1> outside;\nMonitor m;\npipelet { inside <-> m <-> outside; }\n",
    );
    let flow = place.explain("--flow 1");
    let directions: Vec<_> =
        flow.iter().map(|s| s["flow"]["direction"].as_str().unwrap().to_owned()).collect();
    assert!(
        directions.contains(&"original".to_owned()) && directions.contains(&"reply".to_owned()),
        "{directions:?}"
    );
}

#[test]
fn generated_replies_follow_the_packet_that_they_answer() {
    let place = Place::new();
    place.write(
        "p.rvl",
        "Port<0> inside;\nPort<1> outside;\nFirewall f { rules: \"reject out tcp\\nallow out any\" };\nMonitor m;\n\
         pipelet { inside <-> m <-> f <-> outside; }\n",
    );
    place.stdout("traffic --write in.pcapng --packets 300 --no-replies");
    let stories = place.explain("--limit 1000");
    let report = place.json("run p.rvl --read in.pcapng --seed 1 -o json");
    let made: Vec<_> = stories.iter().enumerate().filter(|(_, story)| story["generated"] == true).collect();
    assert!(!made.is_empty());
    assert_eq!(report["packets_generated"], made.len());
    for (i, story) in made {
        let answered = &stories[i - 1];
        assert_eq!(answered["packet"], story["packet"]);
        assert_eq!(answered["outcome"]["reason"], "firewall-rejected");
        assert_eq!((&story["from"], &story["outcome"]["port"]), (&"outside".into(), &"inside".into()));
        assert_eq!(story["steps"][0]["function"], "m", "on its way back it passes the functions in between");
        assert!(story["headers"].as_str().unwrap().contains("RST"), "{story}");
    }
}

/// The cached rule that is shown is what happens to the next similar packet.
#[test]
fn the_cached_rule_for_similar_packets_is_shown() {
    let place = Place::new();
    place.write(
        "p.rvl",
        POLICY.replace("<-> f <->", "<-> f <-> m <->").replace("pipelet", "Monitor m;\npipelet"),
    );
    place.stdout("traffic --write in.pcapng --packets 3000 --ipv6 0 --no-replies --protocols udp=1 --ports 80 --flows 50");
    let stories = place.explain("--limit 5000");
    let with_rule: Vec<_> = stories.iter().filter(|story| story["rule"].is_object()).collect();
    assert!(with_rule.len() > 2000, "{}", with_rule.len());
    let mut compared = 0;
    for (i, story) in stories.iter().enumerate().filter(|(_, story)| story["rule"].is_object()) {
        let flow = &story["flow"]["number"];
        let Some(next) = stories[i + 1..].iter().find(|next| next["flow"]["number"] == *flow) else {
            continue;
        };
        let steps = story["rule"]["steps"].as_array().unwrap();
        let set = steps.iter().find(|step| step["does"] == "set_ends").unwrap();
        assert_eq!(set["source"], next["steps"][0]["changes"][0]["after"], "{story:#}\n{next:#}");
        assert!(steps.iter().any(|step| step["does"] == "state_functions" && step["function"] == "m"));
        assert_eq!(story["rule"]["events"][0]["function"], "f");
        compared += 1;
    }
    assert!(compared > 1000, "{compared}");
    let text = place.stdout("explain p.rvl --read in.pcapng --seed 1 --packet 1");
    let rule = text.split("cached rule for similar packets").nth(1).unwrap();
    for line in [
        "n: counted",
        "set source to 203.0.113.1:",
        "m: state function 1",
        "until event 1",
        "of f, triggered by a command",
    ] {
        assert!(rule.contains(line), "{line}: {text}");
    }
}

/// A packet that opens a connection leads to no rule.
#[test]
fn packets_of_the_slow_path_show_no_rule() {
    let place = place();
    let stories = place.explain("--limit 5000");
    let opening = stories.iter().filter(|story| story["headers"].as_str().unwrap().contains("[SYN]"));
    assert!(opening.inspect(|story| assert!(story["rule"].is_null(), "{story:#}")).count() > 50);
    place.write("p.rvl", POLICY.replace("pipelet", "settings { consolidate: false };\npipelet"));
    assert!(place.explain("--limit 5000").iter().all(|story| story["rule"].is_null()));
}

#[test]
fn the_matching_rule_is_named() {
    let place = place();
    let stories = place.explain("--limit 5000");
    let passed = stories.iter().filter(|story| story["outcome"]["what"] == "sent");
    let rules: Vec<_> = passed.map(|story| &story["steps"][1]["decided_by"]).collect();
    assert!(!rules.is_empty());
    for rule in rules {
        assert_eq!(rule["number"], 1);
        assert_eq!(rule["name"], "rule 1");
        assert!(rule["place"].as_str().unwrap().ends_with("p.rvl:5"), "{rule}");
    }
    let text = place.stdout("explain p.rvl --read in.pcapng --seed 1 --packet 1");
    assert!(text.contains("f (firewall): forward, by rule 1 (") || text.contains("by default"), "{text}");
    let report = place.json("run p.rvl --read in.pcapng --seed 1 -o json");
    let firewall = &report["functions"][1];
    let rules = firewall["rules"].as_array().unwrap();
    let packets: u64 = rules.iter().map(|rule| rule["packets"].as_u64().unwrap()).sum();
    assert_eq!(packets, firewall["packets"].as_u64().unwrap(), "{firewall}");
}

#[test]
fn edges_show_why_they_were_taken() {
    let place = Place::new();
    place.write(
        "p.rvl",
        "Port<0> a { prefixes: [10.0.0.0/8] }; Port<1> b; Monitor m; Monitor n;
        pipelet { a [tcp] <-> m [dst port 80] <-> b; a [udp && dst port 80] <-> n <-> b; }",
    );
    let traffic = "traffic --packets 300 --flows 20 --ipv6 0 --protocols tcp=50,udp=50 --ports 80,443";
    place.stdout(&format!("{traffic} --write in.pcapng"));
    let stories = place.json("explain p.rvl --read in.pcapng -o json --limit 300");
    let edge = |from: &str, to: &str, why: &str| serde_json::json!({"from": from, "to": to, "why": why});
    let has = |edges: Value| stories.as_array().unwrap().iter().any(|story| story["edges"] == edges);
    assert!(has(serde_json::json!([edge("a", "m", "tcp"), edge("m", "b", "dst port 80")])));
    assert!(has(serde_json::json!([edge("a", "n", "udp && dst port 80"), edge("n", "b", "the only edge")])));
    let route = "the flow's route";
    assert!(has(serde_json::json!([edge("b", "m", route), edge("m", "a", route)])));
    let unmatched = |from: &str, edges: &[&str]| serde_json::json!({"from": from, "why": "no edge takes the packet", "unmatched": edges});
    assert!(has(serde_json::json!([edge("a", "m", "tcp"), unmatched("m", &["m [dst port 80] -> b"])])));
    assert!(has(serde_json::json!([unmatched("a", &["a [tcp] -> m", "a [udp && dst port 80] -> n"])])));
    let text = place.stdout("explain p.rvl --read in.pcapng --limit 300");
    assert!(text.contains("\n  a -> m: tcp\n  m (monitor): forward\n"), "{text}");
    assert!(
        text.contains("\n  a -> (unmatched): no edge takes the packet\n      not a [tcp] -> m\n"),
        "{text}"
    );
}

#[test]
fn paths_without_a_way_back_are_explained() {
    let place = Place::new();
    place.write(
        "p.rvl",
        "Port<0> a { prefixes: [10.0.0.0/8] }; Port<1> b; Monitor m;
        pipelet { a -> m -> b; b [udp && dst port 1] -> a; }",
    );
    place.stdout("traffic --packets 100 --flows 4 --ipv6 0 --ports 80 --write in.pcapng");
    let text = place.stdout("explain p.rvl --read in.pcapng --dropped");
    assert!(text.contains("\n  b -> (unmatched): no edges lead back along the flow's path\n"), "{text}");
}
