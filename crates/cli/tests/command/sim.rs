//! `rivulet sim`.

use super::*;

/// Demand for two units, then for one, over links that reorder.
const SMALL: &str = r#"
[workload.trace]
curve = [["0s", "400Mbps"], ["60ms", "1600Mbps"], ["150ms", "300Mbps"]]
[units]
count = "1..4"
[links]
dispatcher_to_unit = { latency = "20us", jitter = "10us", reorder = 0.01, reorder_by = "50us" }
[run]
time = "200ms"
warm_up = "10ms"
"#;

#[test]
fn the_same_scenario_and_seed_give_the_same_report() {
    let place = Place::new();
    place.write("small.toml", SMALL);
    let report = place.stdout("sim small.toml --seed 3 --json");
    assert_eq!(place.stdout("sim small.toml --seed 3 --json"), report);
    assert_ne!(place.stdout("sim small.toml --seed 4 --json"), report);
}

#[test]
fn every_packet_is_accounted_for_in_every_mode() {
    let place = Place::new();
    place.write("small.toml", SMALL);
    let modes = "flowlet,flow,smart-flow:50ms,packet,rss:64,rss:64:20ms";
    let reports = place.json(&format!("sim small.toml --mode {modes} --json"));
    let reports = reports.as_array().unwrap();
    assert_eq!(reports.len(), 6);
    for report in reports {
        let packets = report["workload"]["packets"].as_u64().unwrap();
        let drops: u64 = report["drops"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        assert!(packets > 1_000);
        assert_eq!(report["checked"]["processed"].as_u64().unwrap() + drops, packets, "{}", report["mode"]);
    }
    let seeds = place.json("sim small.toml --seeds 1..3 --json");
    assert_eq!(seeds.as_array().unwrap().len(), 3);
}

#[test]
fn the_summary_shows_units_and_flowlets() {
    let place = Place::new();
    place.write("small.toml", SMALL);
    let shown = place.stdout("sim small.toml");
    for part in ["latency", "flowlets", "states", "units", "bill", "checks", "Gbit/s", "█"] {
        assert!(shown.contains(part), "{part} in: {shown}");
    }
}

#[test]
fn mistakes_are_reported_with_their_place() {
    let place = Place::new();
    for (scenario, line, word) in [
        ("[run]\ntime = \"1s\"\nbogus = 1\n", "line 3", "bogus"),
        ("[dispatcher]\ngap = \"500 parsecs\"\n", "line 2", "500 parsecs"),
        ("[units]\n\ncount = \"9..2\"\n", "line 3", "9..2"),
        ("[dispatcher]\nmode = \"sprinkle\"\n", "line 2", "sprinkle"),
        ("[run\n", "line 1", "run"),
    ] {
        place.write("wrong.toml", scenario);
        let said = place.refused(1, "sim wrong.toml");
        assert!(said.contains("wrong.toml") && said.contains(line) && said.contains(word), "{said}");
    }
    for (scenario, word) in [
        ("[units]\nstate = \"9000000GB\"\n", "`state`"),
        ("[workload.steady]\nflows = 4000000000\n", "`flows`"),
        ("[run]\ntime = \"0s\"\n", "`time`"),
    ] {
        place.write("wrong.toml", scenario);
        assert!(place.refused(1, "sim wrong.toml").contains(word));
    }
    assert!(place.refused(1, "sim none.toml").contains("none.toml"));
    assert!(place.refused(2, "sim --mode sprinkle").contains("sprinkle"));
    assert!(place.refused(2, "sim --seeds 5..1").contains("5..1"));
}

#[test]
fn the_examples_are_valid_scenarios() {
    let examples = workspace("examples/sim");
    let mut count = 0;
    for example in std::fs::read_dir(examples).unwrap() {
        let text = std::fs::read_to_string(example.unwrap().path()).unwrap();
        // Unchanged, but much shorter.
        let (before, run) = text.split_once("[run]\n").unwrap();
        let run: String = run.lines().filter(|line| !line.starts_with("time")).collect();
        let place = Place::new();
        place.write("short.toml", format!("{before}[run]\ntime = \"20ms\"\nwarm_up = \"0s\"\n{run}\n"));
        assert!(place.json("sim short.toml --json")["checked"]["processed"].as_u64().unwrap() > 0);
        count += 1;
    }
    assert!(count >= 5, "{count} examples");
}

#[test]
fn policy_over_faulty_links_releases_what_a_single_graph_does() {
    let place = Place::new();
    place.stdout("traffic --packets 2k --seed 2 --write in.pcapng");
    let nat = workspace("examples/nat.rvl");
    let faults = workspace("examples/faults/lossy.toml");
    let command = format!("sim --policy {} --read in.pcapng --json", nat.display());
    let lossy = format!("{command} --faults {} --seeds 1..3 --mode packet", faults.display());
    let report = place.json(&lossy);
    assert_eq!(report["differences"].as_array().unwrap().len(), 0, "{report}");
    for counter in ["released", "states_moved", "packets_lost", "packets_late", "messages_lost"] {
        assert!(report[counter].as_u64().unwrap() > 10, "{counter}: {report}");
    }
    assert_eq!(place.json(&lossy), report, "the same seeds give the same run");
    let restless = workspace("examples/faults/restless.toml");
    let changing = place.json(&format!("{command} --faults {} --seeds 1..3", restless.display()));
    assert_eq!(changing["differences"].as_array().unwrap().len(), 0, "{changing}");
    for counter in ["joins", "leaves", "crashes", "flows_exempt"] {
        assert!(changing[counter].as_u64().unwrap() > 0, "{counter}: {changing}");
    }
    let perfect = place.json(&command);
    assert_eq!(perfect["packets_lost"], 0);
    assert!(perfect["released"].as_u64().unwrap() > 1_000, "{perfect}");
    place.write("wrong.toml", "[packets]\nloss = 2.0\n");
    let refused = place.refused(1, &format!("{command} --faults wrong.toml"));
    assert!(refused.contains("wrong.toml") && refused.contains("line 2"), "{refused}");
    assert!(place.refused(2, &format!("sim --policy {}", nat.display())).contains("--read"));
}

#[test]
fn captures_are_workloads() {
    let place = Place::new();
    place.stdout("traffic --packets 3k --seed 2 --write in.pcapng");
    let length = "[run]\ntime = \"500ms\"\n[dispatcher]\nflows_max = 4000000\n";
    let scenario = |keys: &str| {
        format!("[workload.capture]\nfile = \"in.pcapng\"\n{keys}[units]\ncount = \"1..4\"\n{length}")
    };
    place.write("twice.toml", scenario("speedup = 2.0\ncopies = 3\n"));
    let report = place.json("sim twice.toml --seed 1 --json");
    assert_eq!(place.json("sim twice.toml --seed 1 --json"), report);
    assert_ne!(place.json("sim twice.toml --seed 2 --json"), report, "the seed shifts the copies");
    place.write("once.toml", scenario(""));
    let once = place.json("sim once.toml --json");
    let packets = |report: &serde_json::Value| report["workload"]["packets"].as_u64().unwrap();
    let ratio = packets(&report) as f64 / packets(&once) as f64;
    assert!((4.0..8.0).contains(&ratio), "twice as fast, three times: {ratio}");
    // Relative to the scenario, in any working directory.
    std::fs::create_dir(place.path("folder")).unwrap();
    std::fs::rename(place.path("in.pcapng"), place.path("folder/in.pcapng")).unwrap();
    place.write("folder/once.toml", scenario(""));
    assert_eq!(place.json("sim folder/once.toml --json"), once);
    let said = place.refused(1, "sim once.toml");
    assert!(said.contains("once.toml: [workload.capture]") && said.contains("in.pcapng"), "{said}");
}
