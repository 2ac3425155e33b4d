//! `rivulet run`.

use std::io::{Read, Write};
use std::process::Stdio;

use super::*;

const NAT: &str = "Port<0> inside;\nPort<1> outside;\nNAT n { external: [203.0.113.1-203.0.113.4] };\n\
                   pipelet { inside <-> n <-> outside; }\n";

fn place_with_traffic(options: &str) -> Place {
    let place = Place::new();
    place.write("wire.rvl", WIRE);
    place.write("nat.rvl", NAT);
    place.stdout(&format!("traffic --write in.pcapng {options}"));
    place
}

#[test]
fn a_wire_passes_everything_unchanged() {
    let place = place_with_traffic("--packets 500");
    let report = place.json("run wire.rvl --read in.pcapng --write out.pcapng -o json");
    assert_adds_up(&report);
    assert_eq!(report["packets_out"], 500);
    assert_eq!(report["ports"]["inside"]["packets_in"], report["ports"]["outside"]["packets_out"]);
    let again = place.json("run wire.rvl --read out.pcapng -o json");
    assert_eq!(again["bytes_in"], report["bytes_out"]);
}

#[test]
fn outputs_are_private_and_never_written_through_links() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let place = place_with_traffic("--packets 50");
    place.write(
        "monitor.rvl",
        "Port<0> inside;\nPort<1> outside;\nMonitor m { };\npipelet { inside <-> m <-> outside; }\n",
    );
    let commands = [
        ("run monitor.rvl --read in.pcapng --write", "o.pcapng"),
        ("run monitor.rvl --read in.pcapng --write", "o.pcap.gz"),
        ("run monitor.rvl --read in.pcapng --alerts", "eve.json"),
        ("run monitor.rvl --read in.pcapng --ipfix", "flows.ipfix"),
        ("run monitor.rvl --read in.pcapng --report", "report.json"),
        ("capture monitor.rvl --read in.pcapng --write", "seen.pcapng"),
        ("traffic --packets 5 --write", "t.pcapng"),
    ];
    for (command, name) in commands {
        place.stdout(&format!("{command} {name}"));
        let mode = std::fs::metadata(place.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o137, 0, "{name} has mode {mode:o}");
        place.write("precious", "precious");
        std::fs::remove_file(place.path(name)).unwrap();
        symlink("precious", place.path(name)).unwrap();
        let error = place.refused(1, &format!("{command} {name}"));
        let expected = format!("{name}: it is a symbolic link to precious");
        assert!(error.contains(&expected), "{command}: {error}");
        assert_eq!(place.read("precious"), b"precious");
    }
    // The name of an open file of the process is always a link.
    let lines = place.stdout("run monitor.rvl --read in.pcapng -q --ipfix flows --report /dev/stdout");
    assert!(lines.contains("\"packets_in\": 50"), "{lines}");
}

#[test]
fn the_same_input_and_seed_give_the_same_output() {
    let place = place_with_traffic("--packets 3000 --preset attack");
    let mut runs = Vec::new();
    for name in ["a", "b"] {
        let mut report = place.json(&format!(
            "run nat.rvl --read in.pcapng --seed 7 --write {name}.pcapng --alerts {name}.json -o json"
        ));
        assert_adds_up(&report);
        report.as_object_mut().unwrap().remove("timing").unwrap();
        runs.push((report, place.read(&format!("{name}.pcapng")), place.read(&format!("{name}.json"))));
    }
    assert_eq!(runs[0].0, runs[1].0);
    assert!(runs[0] == runs[1], "captures or alerts differ");
}

#[test]
fn output_with_a_second_core_is_the_same() {
    let place = place_with_traffic("--packets 3000 --rate 20kpps");
    place.write(
        "two.rvl",
        "Port<0> inside;\nPort<1> outside;\nMonitor m;\nRedundancyMeter r { window: 16, sample: 64 };\n\
         pipelet { inside <-> m <-> r <-> outside; }\n",
    );
    let [plain, both] = ["", "--second-core"].map(|option| {
        let output =
            place.run(&format!("run two.rvl --read in.pcapng --seed 7 --write out.pcapng -o json {option}"));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.contains("the second core ran the state functions of"), !option.is_empty(), "{said}");
        let mut report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report.as_object_mut().unwrap().remove("timing").unwrap();
        (report, place.read("out.pcapng"))
    });
    assert!(plain == both, "{} differs from {}", both.0, plain.0);
    let error = place.refused(1, "run two.rvl --read in.pcapng --second-core --units-max 2");
    assert!(error.contains("--second-core is for a policy without units"), "{error}");
}

#[test]
fn output_on_elastic_units_is_the_same() {
    let place = place_with_traffic("--packets 3000 --rate 20kpps");
    let run = "run nat.rvl --read in.pcapng --seed 7 -o json --write";
    let mut plain = place.json(&format!("{run} plain.pcapng"));
    let mut units = place.json(&format!(
        "{run} units.pcapng --mode flowlet --units-max 8 --unit-capacity 20Mbps --gap 5ms --copies 2"
    ));
    assert!(place.read("plain.pcapng") == place.read("units.pcapng"), "captures differ");
    let told = units["units"].take();
    for report in [&mut plain, &mut units] {
        assert_adds_up(report);
        for depends in ["timing", "units"] {
            report.as_object_mut().unwrap().remove(depends);
        }
    }
    assert_eq!(plain, units);
    assert!(told["units_started"].as_u64().unwrap() > 1 && told["replicas"].as_u64().unwrap() > 0, "{told}");
    let intervals = told["intervals"].as_array().unwrap();
    let packets: u64 = intervals.iter().map(|interval| interval["packets"].as_u64().unwrap()).sum();
    assert_eq!(packets, 3_000);
    // Ten times the speed is ten times the demand.
    let fast = place.json(
        "run nat.rvl --read in.pcapng --seed 7 -o json --units-max 8 --unit-capacity 20Mbps --gap 5ms --speedup 10",
    );
    let mean = |told: &serde_json::Value| told["tracking"]["units_mean"].as_f64().unwrap();
    assert!(mean(&fast["units"]) > mean(&told), "{fast}");
    let text = place.stdout("run nat.rvl --read in.pcapng --mode flow --unit-capacity 20Mbps");
    assert!(
        text.contains("units of 20.00 Mbit/s; assigned by flow, most-utilised; scaled by room:")
            && text.contains('█'),
        "{text}"
    );
    let text = place.stdout("run nat.rvl --read in.pcapng --assign round-robin");
    assert!(text.contains("assigned by flow, round-robin; scaled by room:"), "{text}");
    let refused = place.run("run nat.rvl --read in.pcapng --assign round-robin --follow-at 0.9");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("are for flowlets"), "{refused:?}");
    for (option, wrong) in [
        ("--mode smart", "is not a mode"),
        ("--assign x", "flowlets-as-published"),
        ("--speedup 0", "above 0"),
        ("--units-max 0", "0"),
    ] {
        let refused = place.run(&format!("run nat.rvl --read in.pcapng {option}"));
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains(wrong), "{option}");
    }
}

#[test]
fn counts_on_threads_are_the_same() {
    let place = place_with_traffic("--packets 3000 --rate 20kpps");
    let run = "run nat.rvl --read in.pcapng --seed 7";
    let options = "--threads --mode packet --units-max 3 --unit-capacity 20Mbps";
    let plain = place.json(&format!("{run} -o json"));
    let threads = || {
        let threads = place.json(&format!("{run} -o json {options}"));
        assert_adds_up(&threads);
        for what in ["packets_in", "packets_out", "drops", "bytes_out", "functions", "ports"] {
            assert_eq!(plain[what], threads[what], "{what}");
        }
        let told = &threads["units"];
        assert!(told["start_ns"].as_u64().unwrap() > 0, "{told}");
        told["pull_ns"]["p50"].as_u64().is_some_and(|pull_ns| pull_ns > 0)
    };
    // On a busy machine all packets may pass before a second unit runs.
    assert!((0..20).any(|_| threads()), "no state was ever pulled");
    let text = || place.stdout(&format!("{run} {options}"));
    let says = |text: &str| text.contains("threads: units started in ") && text.contains("state pulls took ");
    assert!((0..20).any(|_| says(&text())), "{}", text());
    let refused = place.run("run nat.rvl --read in.pcapng --threads --units-max 65");
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("up to 64 units"), "{refused:?}");
}

#[test]
fn alerts_contain_the_fate_of_their_packets() {
    let place = place_with_traffic("--packets 2000");
    // The second firewall may deny what the first one allows: alerts of both contain the packet's
    // final fate.
    place.write(
        "fw.rvl",
        "Port<0> inside;\nPort<1> outside;\n\
         Firewall a { rules: \"allow any from any to any log\" };\n\
         Firewall b { rules: \"deny udp from any to any log\\nallow any from any to any\" };\n\
         pipelet { inside <-> a <-> b <-> outside; }\n",
    );
    place.stdout("run fw.rvl --read in.pcapng --alerts alerts.json -q");
    let alerts = String::from_utf8(place.read("alerts.json")).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for line in alerts.lines() {
        let alert: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let action = text(&alert["alert"]["action"]);
        assert_eq!(action == "blocked", alert["proto"] == "UDP", "{line}");
        seen.insert((text(&alert["rivulet"]["function"]), action));
    }
    let expected = [("a", "allowed"), ("a", "blocked"), ("b", "blocked")];
    assert_eq!(seen, expected.map(|(f, a)| (f.to_owned(), a.to_owned())).into());
}

/// Builds a capture of a DNS query and its response in VLAN 7.
fn dns_capture() -> Vec<u8> {
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x04evil\x07example\0\0\x01\0\x01".to_vec();
    let mut answer = query.clone();
    answer[2..8].copy_from_slice(b"\x81\x80\0\x01\0\x01");
    answer.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x09");
    let packet = |[from, to]: [u8; 2], [source, destination]: [u16; 2], payload: &[u8]| {
        let udp_len = 8 + payload.len() as u16;
        let mut ip = [&b"\x45\0"[..], &(20 + udp_len).to_be_bytes(), b"\0\0\0\0\x40\x11\0\0"].concat();
        ip.extend([10, 0, 0, from, 10, 0, 0, to]);
        let sum: u32 = ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let ports = [source.to_be_bytes(), destination.to_be_bytes()].concat();
        let udp = [&ports[..], &udp_len.to_be_bytes(), &[0, 0], payload].concat();
        [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, 7, 8, 0][..], &ip, &udp].concat()
    };
    let mut file = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\0\0\x01\0\0\0".to_vec();
    let packets = [packet([1, 2], [5_000, 53], &query), packet([2, 1], [53, 5_000], &answer)];
    for (second, packet) in (1_000u32..).zip(packets) {
        let len = packet.len() as u32;
        [second, 0, len, len].into_iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend(packet);
    }
    file
}

/// The fields are those of Suricata's documentation.
#[test]
fn alerts_and_events_have_suricatas_fields() {
    let place = Place::new();
    place.write("in.pcap", dns_capture());
    let rule = "alert dns any any -> any any (msg:\"evil name\"; dns.queries.rrname; content:\"evil\"; classtype:trojan-activity; \
                metadata:created_at 2020_01_01, tag a, tag b; sid:7; rev:3;)";
    place.write("i.rules", rule);
    place.write("classes", "config classification: trojan-activity,A Network Trojan was detected,1\n");
    place.write(
        "p.rvl",
        "Port<0> inside { prefixes: [10.0.0.1/32] };\nPort<1> outside;\nMonitor m;\n\
         Ids i { rules: file(\"i.rules\"), classification: file(\"classes\"), events: [dns] };\n\
         pipelet { inside <-> i <-> m <-> outside; }\n",
    );
    let written = |options: &str| -> Vec<serde_json::Value> {
        place.stdout(&format!("run p.rvl --read in.pcap --seed 1 --alerts eve.json -q {options}"));
        let text = String::from_utf8(place.read("eve.json")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let lines = written("--events dns,flow,stats");
    let kinds: Vec<_> = lines.iter().map(|line| line["event_type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["alert", "dns", "alert", "dns", "flow", "stats"]);
    let [alert, query, second, answer, flow, stats] = &lines[..] else { panic!("{lines:?}") };
    for (line, port) in [(alert, "inside"), (query, "inside"), (second, "outside"), (answer, "outside")] {
        assert_eq!((&line["in_iface"], &line["vlan"]), (&port.into(), &serde_json::json!([7])), "{line}");
        assert_eq!(line["flow_id"], flow["flow_id"], "{line}");
    }
    assert_eq!(
        alert["alert"],
        serde_json::json!({
            "action": "allowed", "gid": 1, "signature_id": 7, "rev": 3, "signature": "evil name",
            "category": "A Network Trojan was detected", "severity": 1,
            "metadata": { "created_at": ["2020_01_01"], "tag": ["a", "b"] },
        })
    );
    assert_eq!((&alert["direction"], &second["direction"]), (&"to_server".into(), &"to_client".into()));
    assert_eq!((&alert["app_proto"], &alert["tx_id"]), (&"dns".into(), &0.into()));
    assert_eq!(alert["dns"]["query"][0]["rrname"], "evil.example");
    assert_eq!((&second["dns"]["answer"]["rcode"], &second["tx_id"]), (&"NOERROR".into(), &1.into()));
    assert_eq!(second["dns"]["answers"][0]["rdata"], "192.0.2.9");
    for message in [&alert["dns"], &query["dns"], &second["dns"], &second["dns"]["answer"], &answer["dns"]] {
        assert_eq!(message["version"], 2, "{message}");
    }
    let counts = |line: &serde_json::Value| {
        ["pkts_toserver", "pkts_toclient", "bytes_toserver", "bytes_toclient"]
            .map(|name| line["flow"][name].as_u64().unwrap())
    };
    assert_eq!(counts(alert), [1, 0, 58, 0]);
    assert_eq!((counts(second), counts(flow)), ([1, 1, 58, 74], [1, 1, 58, 74]));
    for line in [alert, second, flow] {
        assert_eq!(line["flow"]["start"], "1970-01-01T00:16:40.000000+0000");
    }
    assert_eq!(second["flow"]["src_ip"], "10.0.0.1", "the client");
    assert_eq!((&query["dns"]["type"], &query["dns"]["rrtype"]), (&"query".into(), &"A".into()));
    assert_eq!(
        (&answer["dns"]["rcode"], &answer["dns"]["answers"][0]["ttl"]),
        (&"NOERROR".into(), &60.into())
    );
    assert_eq!(
        (&stats["stats"]["decoder"]["pkts"], &stats["stats"]["detect"]["alert"]),
        (&2.into(), &2.into())
    );
    assert_eq!((&flow["app_proto"], &flow["flow"]["alerted"]), (&"dns".into(), &true.into()));
    assert_eq!(
        (&flow["flow"]["state"], &flow["flow"]["reason"]),
        (&"established".into(), &"shutdown".into())
    );
    // Flow records and statistics are written only on request.
    assert_eq!(written("").len(), 4);
    assert_eq!(written("--events stats").len(), 3);
    let said = place.refused(2, "run p.rvl --read in.pcap --alerts eve.json --events flow,nothing");
    assert!(said.contains("`nothing` is not a kind of event"), "{said}");
}

#[test]
fn two_captures_arrive_on_the_named_ports() {
    let place = place_with_traffic("--packets 400 --no-replies");
    place.stdout("traffic --write back.pcap --packets 300 --no-replies --seed 2");
    let report = place.json("run wire.rvl --read inside=in.pcapng --read outside=back.pcap -o json");
    assert_eq!(report["ports"]["inside"]["packets_in"], 400);
    assert_eq!(report["ports"]["outside"]["packets_in"], 300);
    assert_eq!(report["ports"]["inside"]["packets_out"], 300);
    let by_number = place.json("run wire.rvl --read 0=in.pcapng --read 1=back.pcap -o json");
    assert_eq!(by_number["ports"], report["ports"]);
    let said = place.refused(1, "run wire.rvl --read nowhere=in.pcapng");
    assert!(said.contains("no port `nowhere`") && said.contains("inside, outside"), "{said}");
}

#[test]
fn each_port_has_its_own_file_or_all_share_one() {
    let place = place_with_traffic("--packets 600");
    place.stdout("run wire.rvl --read in.pcapng --write inside=in-out.pcap --write outside=out.pcap.gz -q");
    let inside = place.json("run wire.rvl --read in-out.pcap -o json");
    let outside = place.json("run wire.rvl --read out.pcap.gz -o json");
    let both = inside["packets_in"].as_u64().unwrap() + outside["packets_in"].as_u64().unwrap();
    assert_eq!(both, 600);
}

#[test]
fn no_file_is_both_read_and_written_or_written_twice() {
    let place = place_with_traffic("--packets 100");
    let before = std::fs::read(place.path("in.pcapng")).unwrap();
    std::os::unix::fs::symlink(place.path("in.pcapng"), place.path("link.pcapng")).unwrap();
    for options in [
        "--write in.pcapng",
        "--write out.pcap --write ./link.pcapng",
        "--report in.pcapng",
        "--alerts wire.rvl",
        "--ipfix ../{}/in.pcapng",
    ] {
        let folder = place.path("");
        let options = options.replace("{}", folder.file_name().unwrap().to_str().unwrap());
        let said = place.refused(1, &format!("run wire.rvl --read in.pcapng {options}"));
        assert!(said.contains("would be both read and written"), "{options}: {said}");
    }
    for options in ["--write x.pcap --write ./x.pcap", "--report x --alerts x", "--write outside=x --ipfix x"]
    {
        let said = place.refused(1, &format!("run wire.rvl --read in.pcapng {options}"));
        assert!(said.contains("would be written twice"), "{options}: {said}");
    }
    assert_eq!(std::fs::read(place.path("in.pcapng")).unwrap(), before);
    place.stdout("run wire.rvl --read in.pcapng --write /dev/null --alerts /dev/null -q");
}

#[test]
fn the_first_policy_of_the_policy_page_runs() {
    let place = place_with_traffic("--packets 400");
    let page = std::fs::read_to_string(workspace("docs/policy.md")).unwrap();
    let (_, behind) = page.split_once("```\n").unwrap();
    place.write("page.rvl", behind.split_once("```").unwrap().0);
    place.write("acl.rules", "allow out tcp\nallow out udp\n");
    let report = place.json("run page.rvl --read in.pcapng -o json");
    assert!(report["packets_out"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn invalid_policies_are_refused_with_the_place() {
    let place = place_with_traffic("--packets 10");
    for (text, at, why) in [
        (
            "Port<0> inside;\nPort<1> outside;\nNta n;\npipelet { inside <-> n <-> outside; }\n",
            "3:1",
            "`Nta`",
        ),
        (
            "Port<0> inside;\nPort<1> outside;\nNAT n { extrenal: [203.0.113.1] };\npipelet { inside <-> n <-> outside; }\n",
            "3:9",
            "extrenal",
        ),
        ("Port<0> inside;\nPort<1> outside;\npipelet { inside <-> m <-> outside; }\n", "3:22", "`m`"),
        ("Port<0> inside;\nPort<1 outside;\npipelet { inside <-> outside; }\n", "2:8", "expected"),
    ] {
        place.write("wrong.rvl", text);
        let said = place.refused(1, "run wrong.rvl --read in.pcapng");
        assert!(said.contains(&format!("wrong.rvl:{at}")) && said.contains(why), "{text}\n{said}");
    }
    place.write("rules.txt", "allow out tcp\nallow sideways tcp\n");
    place.write(
        "wrong.rvl",
        "Port<0> inside;\nPort<1> outside;\nFirewall f { rules: file(\"rules.txt\") };\npipelet { inside <-> f <-> outside; }\n",
    );
    let said = place.refused(1, "run wrong.rvl --read in.pcapng");
    assert!(said.contains("rules.txt:2:7"), "{said}");
    let said = place.refused(1, "run missing.rvl --read in.pcapng");
    assert!(said.contains("cannot read missing.rvl"), "{said}");
}

#[test]
fn whole_packets_of_a_truncated_capture_are_processed() {
    let place = place_with_traffic("--packets 100 --no-replies");
    let whole = place.read("in.pcapng");
    place.write("cut.pcapng", &whole[..whole.len() - 7]);
    let output = place.run("run wire.rvl --read cut.pcapng -o json");
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["packets_in"], 99);
    assert_adds_up(&report);
    let said = stderr(&output);
    assert!(said.contains("cut.pcapng") && said.contains("processed"), "{said}");
    assert!(said.chars().any(|c| c.is_ascii_digit()), "the offset is missing: {said}");
}

#[test]
fn files_that_are_no_captures_are_refused() {
    let place = place_with_traffic("--packets 1");
    place.write("text.pcap", "this is no capture at all\n");
    let said = place.refused(1, "run wire.rvl --read text.pcap");
    assert!(said.contains("text.pcap"), "{said}");
    let said = place.refused(1, "run wire.rvl --read missing.pcap");
    assert!(said.contains("cannot read missing.pcap"), "{said}");
    place.refused(2, "run wire.rvl");
    place.refused(2, "run wire.rvl --read in.pcapng --colour");
}

#[test]
fn reports_and_flow_records_go_to_files() {
    let place = place_with_traffic("--packets 2000");
    place.write(
        "monitor.rvl",
        "Port<0> inside;\nPort<1> outside;\nMonitor m;\npipelet { inside <-> m <-> outside; }\n",
    );
    let shown =
        place.stdout("run monitor.rvl --read in.pcapng --report report.json --ipfix flows.ipfix --quiet");
    assert_eq!(shown, "");
    let report: serde_json::Value = serde_json::from_slice(&place.read("report.json")).unwrap();
    assert_adds_up(&report);
    let flows = place.read("flows.ipfix");
    assert_eq!(flows[..2], [0, 10], "IPFIX is version 10");
    let said = place.refused(1, "run monitor.rvl --read in.pcapng --ipfix udp:nowhere");
    assert!(said.contains("udp:HOST:PORT"), "{said}");
}

#[test]
fn commands_are_executed_at_their_times() {
    let place = Place::new();
    let demo = workspace("examples/demo.rvl").display().to_string();
    place.stdout("traffic --write in.pcapng --packets 4000 --servers 192.0.2.80/32 --clients 10.0.0.0/16 --ports 80 --no-replies --ipv6 0");
    place.write("script", "# half way\n20ms balancer server web2 down\n");
    let line = format!("run {demo} --read inside=in.pcapng --seed 1 -o json");
    let alone = place.json(&line);
    let commanded = place.json(&format!("{line} --control script"));
    let counter = |report: &serde_json::Value, name: &str| {
        let functions = report["functions"].as_array().unwrap().clone();
        functions.iter().find(|f| f["name"] == "balancer").unwrap()["counters"][name].as_u64().unwrap()
    };
    let moved = |report| counter(report, "flows_moved");
    for (server, name) in (1..=4).map(|i| (i, format!("web/web{i}.connections"))) {
        assert!(counter(&alone, &name) > 0, "server {server} had no connection");
    }
    assert_eq!(moved(&alone), 0);
    assert!(moved(&commanded) > 0);
    place.write("script", "20ms nobody server web2 down\n");
    let said = place.refused(1, &format!("{line} --control script"));
    assert!(said.contains("script:1") && said.contains("nobody"), "{said}");
}

/// Each function refuses a wrong command when it is read, and names the commands that it takes.
#[test]
fn wrong_commands_are_refused_before_the_first_packet() {
    let place = place_with_traffic("--packets 10");
    place.write(
        "all.rvl",
        "Port<0> inside;\nPort<1> outside;\nNAT n { external: [203.0.113.1] };\nFirewall f { rules: [\"allow out as \\\"web\\\"\"] };\n\
         Policer p { rate: 8Mbps, peak_rate: 9Mbps };\nMonitor m;\n\
         LoadBalancer b { services: [{ vip: 192.0.2.80, port: 80, servers: [{ name: web1, address: 10.1.0.1 }] }] };\n\
         pipelet { inside <-> m <-> f <-> p <-> b <-> n <-> outside; }\n",
    );
    let line = "run all.rvl --read in.pcapng --write out.pcapng --control script -o json";
    for (command, why) in [
        ("n drian 203.0.113.1", "expected `drain ADDRESS` or `resume ADDRESS`"),
        ("n drain 203.0.113.9", "not one of the external addresses"),
        ("b server web9 down", "there is no server `web9`; known servers: "),
        ("b weight web1 5000", "expected a weight from 0 to 1000"),
        ("f rule dns disable", "unknown rule `dns`: expected a name or a number from 1 to 1"),
        ("f default drop", "expected `default allow|deny|reject`"),
        ("p rate 10kpps", "the rate cannot become"),
        ("p speed 10Mbps", "expected a command such as `rate 20Mbps`"),
        ("m flush", "`monitor` takes no commands"),
        ("x flush", "it has: m, f, p, b, n"),
    ] {
        // At this time it would never be executed.
        place.write("script", format!("# Tonight\n1s f rule web disable\n\n24h {command}\n"));
        let said = place.refused(1, line);
        assert!(said.contains("script:4: ") && said.contains(why), "{command}: {said}");
        assert!(!place.path("out.pcapng").exists(), "no file was created");
    }
    place.write("script", "x n drain 203.0.113.1\n".repeat(1_000));
    let said = place.refused(1, line);
    assert!(said.contains("script:10: ") && said.contains("990 more wrong lines"), "{said}");
}

#[test]
fn a_command_that_is_refused_at_its_time_is_counted_and_processing_continues() {
    let place = place_with_traffic("--packets 100");
    place.write(
        "police.rvl",
        "Port<0> inside;\nPort<1> outside;\nPolicer p { rate: 800Mbps, peak_rate: 900Mbps };\npipelet { inside <-> p <-> outside; }\n",
    );
    // Each command alone is valid; the second one is not after the first.
    place.write("script", "0s p peak_rate 950Mbps\n0s p rate 960Mbps\n0s p rate 700Mbps\n");
    let output = place.run("run police.rvl --read in.pcapng --control script -o json");
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["packets_in"], 100);
    assert_adds_up(&report);
    assert_eq!(report["commands"], serde_json::json!({"executed": 2, "refused": 1}));
    let said = stderr(&output);
    assert!(said.contains("script:2: refused: 0s p rate 960Mbps: `peak_rate` must be"), "{said}");
}

/// A full disk affects only the file on it.
#[test]
fn a_full_disk_affects_one_file() {
    let place = place_with_traffic("--packets 3000");
    place.write(
        "all.rvl",
        "Port<0> inside;\nPort<1> outside;\nFirewall f { rules: [\"allow in log\", \"allow out log\"] };\nMonitor m;\n\
         pipelet { inside <-> f <-> m <-> outside; }\n",
    );
    let line = "run all.rvl --read in.pcapng -o json --seed 1";
    place.stdout(&format!("{line} --alerts eve0.json --write out0.pcapng --ipfix f0.ipfix"));
    for full in ["alerts", "write", "ipfix"] {
        let files = [("alerts", "eve"), ("write", "out.pcapng"), ("ipfix", "f.ipfix")];
        let file = |kind, name| if kind == full { "/dev/full" } else { name };
        let options = files.map(|(kind, name)| format!("--{kind} {}", file(kind, name))).join(" ");
        let output = place.run(&format!("{line} --report r.json {options}"));
        assert_eq!(output.status.code(), Some(1), "{full}");
        let said = stderr(&output);
        assert!(said.contains("cannot write /dev/full: No space left on device"), "{said}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["packets_in"], 3_000);
        assert_eq!(report, serde_json::from_slice::<serde_json::Value>(&place.read("r.json")).unwrap());
        let lost = |name: &str| report["outputs"][name]["not_written"].as_u64().unwrap() > 0;
        assert_eq!(
            ["alerts", "captures", "ipfix"].map(lost),
            ["alerts", "write", "ipfix"].map(|kind| kind == full)
        );
        for (kind, name, whole) in [
            ("alerts", "eve", "eve0.json"),
            ("write", "out.pcapng", "out0.pcapng"),
            ("ipfix", "f.ipfix", "f0.ipfix"),
        ] {
            assert!(kind == full || place.read(name) == place.read(whole), "{name} beside full {full}");
        }
    }
    let said = stderr(&place.run(&format!("{line} --report /dev/full")));
    assert!(said.contains("cannot write /dev/full"), "{said}");
}

#[test]
fn an_unread_pipe_affects_no_other_file() {
    let place = place_with_traffic("--packets 20k");
    let line = "run wire.rvl --read in.pcapng --write - --report r.json";
    let mut child = place.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut some = [0; 64];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&place.read("r.json")).unwrap();
    assert_eq!(report["packets_in"], 20_000);
    assert_adds_up(&report);
}

#[test]
fn signals_end_a_run_with_its_report_and_files() {
    let place = place_with_traffic("--packets 20k");
    let capture = place.read("in.pcapng");
    for (signal, code) in
        [("INT", 130), ("TERM", 143), ("HUP", 129), ("QUIT", 131), ("ALRM", 142), ("RTMIN+3", 165)]
    {
        let line = "run wire.rvl --read - --write out.pcapng --report r.json -o json";
        let mut command = place.command(line);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // More than a pipe holds: once it is written, the run is in progress. The rest never comes.
        let mut input = child.stdin.take().unwrap();
        input.write_all(&capture[..capture.len() / 2]).unwrap();
        let status = std::process::Command::new("kill")
            .args([&format!("-{signal}"), &child.id().to_string()])
            .status();
        assert!(status.unwrap().success());
        let output = child.wait_with_output().unwrap();
        drop(input);
        assert_eq!(output.status.code(), Some(code), "{signal}: {}", stderr(&output));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_adds_up(&report);
        assert!(report["packets_in"].as_u64().unwrap() > 1_000);
        let again = place.json("run wire.rvl --read out.pcapng -o json");
        assert_eq!(again["packets_in"], report["packets_out"]);
    }
}

#[test]
fn a_closed_standard_output_is_no_error() {
    let place = place_with_traffic("--packets 20k");
    for line in ["traffic --write - --packets 200k", "explain nat.rvl --read in.pcapng --limit 20000"] {
        let mut child = place.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut some = [0; 64];
        child.stdout.take().unwrap().read_exact(&mut some).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{line}");
    }
}

#[test]
fn standard_input_is_a_capture_or_a_policy() {
    let place = place_with_traffic("--packets 50");
    let capture = std::fs::File::open(place.path("in.pcapng")).unwrap();
    let output = place.command("run wire.rvl --read - -o json").stdin(capture).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["packets_in"], 50);
    let policy = std::fs::File::open(place.path("wire.rvl")).unwrap();
    let output = place.command("run - --read in.pcapng -o json").stdin(policy).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn every_example_runs() {
    let place = place_with_traffic("--packets 200");
    let mut count = 0;
    for entry in std::fs::read_dir(workspace("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rvl") {
            count += 1;
            let report = place.json(&format!("run {} --read in.pcapng -o json", path.display()));
            assert_adds_up(&report);
        }
    }
    assert!(count > 0);
}

/// Errors in a key name its tunnel, not its text in the policy.
#[test]
fn an_invalid_key_is_not_shown() {
    let place = Place::new();
    let short = "00112233445566778899aabbccddeeff";
    place.write("to.key", short);
    let set_mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(place.path("to.key"), mode).unwrap();
    };
    set_mode(0o600);
    for key in ["file(\"to.key\")".to_owned(), format!("\"{short}\"")] {
        place.write(
            "p.rvl",
            format!(
                "Port<0> inside; Port<1> outside;\nVPN v {{ tunnels: [ {{ name: branch, local: 192.0.2.1, remote: 198.51.100.1,\n\
                 local_networks: [10.1.0.0/16], remote_networks: [10.2.0.0/16],\noutbound: {{ spi: 256,\nkey: {key} }},\n\
                 inbound: [ {{ spi: 257,\nkey: \"{short}00112233\" }} ] }} ] }};\npipelet {{ inside <-> v <-> outside; }}\n"
            ),
        );
        place.stdout("traffic --write in.pcapng --packets 10");
        let said = place.refused(1, "run p.rvl --read in.pcapng");
        assert!(said.contains("not 16 in total") && said.contains("branch"), "{said}");
        assert!(!said.contains("445566"), "{said}");
        // An error next to a key is shown with its line, without the key.
        let policy = String::from_utf8(place.read("p.rvl")).unwrap();
        for (name, from, to) in [("word.rvl", "256,\n", "word, "), ("syntax.rvl", "256,\n", "256 ! ")] {
            place.write(name, policy.replace(from, to));
            for command in ["run", "explain"] {
                let said = place.refused(1, &format!("{command} {name} --read in.pcapng"));
                assert!(said.contains("key: ") && !said.contains("445566"), "{said}");
            }
        }
        // A key that others may read is refused before it is used.
        if key.starts_with("file") {
            set_mode(0o644);
            for command in ["run", "explain"] {
                let said = place.refused(1, &format!("{command} p.rvl --read in.pcapng"));
                assert!(said.contains("to.key` has mode 0644") && said.contains("chmod 600 /"), "{said}");
                assert!(!said.contains("445566"), "{said}");
            }
        }
    }
}

/// Three zones: each packet leaves by the port at the end of its path, and edges add up.
#[test]
fn a_site_with_three_ports_branches() {
    let place = Place::new();
    let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/site.rvl");
    place.write("site.rvl", std::fs::read_to_string(policy).unwrap());
    let generate = |name: &str, clients: &str, servers: &str| {
        let options = "--packets 2000 --flows 40 --ipv6 0 --protocols tcp=60,udp=40 --no-replies";
        let hosts = format!("--clients {clients} --servers {servers} --ports 80,443");
        place.stdout(&format!("traffic {options} {hosts} --payload http --write {name}"));
    };
    generate("out.pcap", "10.1.0.0/24", "198.51.100.0/24");
    generate("between.pcap", "10.1.0.0/24", "10.2.0.0/24");
    generate("in.pcap", "198.51.100.0/24", "10.2.0.0/24");
    let report = place.json("run site.rvl --read out.pcap -o json");
    assert_adds_up(&report);
    let packets = |report: &serde_json::Value, edge: &str| report["edges"][edge]["packets"].as_u64().unwrap();
    assert_eq!(packets(&report, "lan -> web") + packets(&report, "lan -> nat"), 2_000);
    assert!(packets(&report, "lan -> web") > 100 && packets(&report, "web -> nat") > 100);
    assert_eq!(packets(&report, "nat -> wan"), report["ports"]["wan"]["packets_out"].as_u64().unwrap());
    let report = place.json("run site.rvl --read between.pcap -o json");
    assert_eq!((packets(&report, "between -> dmz"), packets(&report, "lan -> nat")), (2_000, 0));
    assert_eq!(report["ports"]["dmz"]["packets_out"], 2_000);
    let report = place.json("run site.rvl --read in.pcap -o json");
    assert_adds_up(&report);
    let (passed, denied) = (packets(&report, "guard -> dmz"), &report["drops"]["firewall-default"]);
    assert!(passed > 500 && denied.as_u64().unwrap() > 500, "TCP passes, UDP does not: {report}");
    // Units find the same paths, in memory and on threads.
    for way in ["--mode flowlet", "--mode flowlet --threads"] {
        let other = place.json(&format!("run site.rvl --read in.pcap -o json {way}"));
        assert_eq!(other["packets_out"], report["packets_out"], "{way}");
        assert_eq!(other["drops"], report["drops"], "{way}");
    }
}
