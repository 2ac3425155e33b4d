//! `rivulet policy`.

use serde_json::Value;

use super::Place;

const SITE: &str = "Port<0> lan;
Port<1> wan;
NAT n { external: [203.0.113.1], inside: [10.0.0.0/8] };
Firewall f { rules: \"allow out\" };
pipelet {
  lan [dst port 1-1000] <-> n; lan [dst port 80] <-> f; lan <-> f;
  n <-> f; f <-> wan;
}
";

#[test]
fn hidden_edges_are_reported_with_an_example_packet() {
    let place = Place::new();
    place.write("site.rvl", SITE);
    let findings = place.command("policy check site.rvl -o json").output().unwrap();
    let findings: Value = serde_json::from_slice(&findings.stdout).unwrap();
    let hidden =
        findings.as_array().unwrap().iter().find(|found| found["message"] == "no packet takes this edge");
    let hidden = hidden.unwrap_or_else(|| panic!("{findings}"));
    assert_eq!((hidden["file"].as_str(), hidden["line"].as_u64()), (Some("site.rvl"), Some(6)));
    assert!(hidden["notes"][1].as_str().unwrap().ends_with("tcp 10.0.0.1:40000 -> 192.0.2.1:80"), "{hidden}");
}

#[test]
fn warnings_fail_only_if_denied() {
    let place = Place::new();
    place.write("good.rvl", super::WIRE);
    place.write("odd.rvl", super::WIRE.replace("<->", "->"));
    let said = |line: &str, code| {
        let output = place.run(line);
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(said("policy check good.rvl -W", 0), "1 file: 0 errors, 0 warnings\n");
    let warned = said("policy check good.rvl odd.rvl", 0);
    assert!(warned.contains("packets from `inside` to `outside` cannot be answered"), "{warned}");
    assert!(warned.ends_with("2 files: 0 errors, 1 warning\n"), "{warned}");
    said("policy check odd.rvl --deny-warnings", 1);
    place.write("wrong.rvl", "Port<0> a; pipelet { a -> b; }");
    assert!(said("policy check wrong.rvl", 1).contains("unknown port or NF `b`"));
}

#[test]
fn warnings_of_functions_are_findings() {
    let place = Place::new();
    let policy = "Port<0> a;\nPort<1> b;\nFirewall f { rules: \"\"\"\nallow out\ndeny out tcp to any port 25\n\"\"\" };\n\
                  pipelet { a <-> f <-> b; }";
    place.write("edge.rvl", policy);
    let findings = place.command("policy check edge.rvl -o json").output().unwrap();
    let findings: Value = serde_json::from_slice(&findings.stdout).unwrap();
    assert_eq!(
        (&findings[0]["severity"], &findings[0]["line"]),
        (&"warning".into(), &3.into()),
        "{findings}"
    );
    let message = findings[0]["message"].as_str().unwrap();
    assert!(message.contains("edge.rvl:5: `rule 2` decides nothing: `rule 1` (edge.rvl:4)"), "{message}");
}

#[test]
fn addresses_that_a_nat_lacks_are_findings() {
    let place = Place::new();
    let check = |inside: &str| {
        let policy = format!(
            "Port<0> a {{ prefixes: [10.1.0.0/16, 10.2.0.0/16, 2001:db8::/32] }};\nPort<1> b;\n\
             NAT n {{ external: [203.0.113.1],\n  inside: [{inside}] }};\npipelet {{ a <-> n <-> b; }}"
        );
        place.write("edge.rvl", policy);
        let findings = place.command("policy check edge.rvl -o json").output().unwrap();
        serde_json::from_slice::<Value>(&findings.stdout).unwrap()
    };
    assert_eq!(check("10.0.0.0/8"), Value::Array(Vec::new()));
    let findings = check("10.1.0.0/16");
    assert_eq!((&findings[0]["line"], &findings[0]["column"]), (&4.into(), &11.into()), "{findings}");
    assert!(findings[0]["notes"][0].as_str().unwrap().contains(" 10.2.0.1"), "{findings}");
}

#[test]
fn graphs_are_drawn() {
    let place = Place::new();
    place.write("site.rvl", SITE);
    assert!(place.stdout("policy graph site.rvl").starts_with("lan (port 0)\n  ├<─ dst port 1-1000 ─> n\n"));
    place.stdout("policy graph site.rvl -f svg -w site.svg");
    let svg = String::from_utf8(place.read("site.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains(">Firewall<"), "{svg}");
}

#[test]
fn policies_are_formatted() {
    let place = Place::new();
    place.write("a.rvl", "Port<0> a ;Port<1> b; pipelet{a<->b}  # wire");
    let formatted = "Port<0> a; Port<1> b; pipelet { a <-> b }  # wire\n";
    assert_eq!(place.stdout("policy fmt a.rvl"), formatted);
    assert_eq!(place.run("policy fmt --check a.rvl").status.code(), Some(1));
    place.stdout("policy fmt -w a.rvl");
    assert_eq!(place.read("a.rvl"), formatted.as_bytes());
    assert_eq!(place.stdout("policy fmt --check a.rvl"), "");
    place.write("wrong.rvl", "pipelet {");
    assert!(place.refused(1, "policy fmt --write wrong.rvl").contains("wrong.rvl"));
}

/// Copies a file of `examples`.
fn example(place: &Place, name: &str) {
    place.write(name, std::fs::read(super::workspace("examples").join(name)).unwrap());
}

/// The servers' edge to the Internet is there for flows from the Internet: in reverse.
#[test]
fn the_example_with_zones_has_no_findings() {
    let place = Place::new();
    example(&place, "site.rvl");
    assert_eq!(super::stderr(&place.run("policy check site.rvl -W")), "1 file: 0 errors, 0 warnings\n");
}

#[test]
fn expectations_of_the_example_hold() {
    let place = Place::new();
    ["site.rvl", "site.expect"].iter().for_each(|name| example(&place, name));
    let output = place.run("policy test site.rvl");
    assert_eq!((output.status.code(), super::stderr(&output).as_str()), (Some(0), "11 passed, 0 failed\n"));
    let results = place.json("policy test site.rvl -o json");
    assert_eq!((&results["passed"], &results["failed"]), (&11.into(), &0.into()));
    let first = &results["expectations"][0];
    assert_eq!((&first["path"], &first["port"]), (&"lan -> nat -> wan".into(), &"wan".into()));
    assert_eq!(first["edges"][1]["why"], "the only edge");
}

/// The pipelet of E2's talk as it stands there.
const TALK: &str = "pipelet {
 int [dst port 80] -> p;
 int [!(dst port 80)] -> n;
 p [!(dst ip my_net)] -> n;
 n -> f:
 f [FW.safe &&
  !(dst ip wan_net)] -> ext;
 f [!FW.safe] -> Drop;
}
";

// E2, E3: each class of traffic of the talk's example. `HTTP` stands in the place of the proxy,
// which Rivulet has not.
#[test]
fn example_of_the_talk_treats_each_class_as_it_says() {
    let place = Place::new();
    ["talk.rvl", "talk.expect"].iter().for_each(|name| example(&place, name));
    assert_eq!(super::stderr(&place.run("policy test talk.rvl")), "13 passed, 0 failed\n");

    // With the talk's own edges, no packet comes back; all else is the same.
    let both_ways = String::from_utf8(place.read("talk.rvl")).unwrap();
    let (nodes, _) = both_ways.split_once("pipelet").unwrap();
    place.write("one-way.rvl", format!("{nodes}{TALK}"));
    let expectations = String::from_utf8(place.read("talk.expect")).unwrap();
    let way = |line: &str| match line.split_once(" from ext via ") {
        Some((packet, _)) => format!("{packet} from ext is dropped policy-unmatched\n"),
        None => format!("{line}\n"),
    };
    place.write("one-way.expect", expectations.lines().map(way).collect::<String>());
    let said = super::stderr(&place.run("policy test one-way.rvl"));
    assert!(said.ends_with("\n13 passed, 0 failed\n"), "{said}");
}

/// Returns the IPv4 packets of a capture in the old format: protocol, source and destination port.
fn packets_of(capture: &[u8]) -> Vec<(u8, [u8; 4], u16)> {
    let (mut packets, mut rest) = (Vec::new(), &capture[24..]);
    while let Some((header, data)) = rest.split_at_checked(16) {
        let len = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
        let ip = &data[14..len];
        assert_eq!((&data[12..14], ip[0]), (&[8, 0][..], 0x45));
        let destination = u16::from_be_bytes([ip[22], ip[23]]);
        packets.push((ip[9], ip[12..16].try_into().unwrap(), destination));
        rest = &data[len..];
    }
    packets
}

/// The same over a capture, against a count of its packets by hand.
#[test]
fn example_of_the_talk_runs_on_a_capture() {
    let place = Place::new();
    example(&place, "talk.rvl");
    place.stdout("traffic --packets 3000 --protocols tcp=70,udp=30 --ipv6 0 --write in.pcap");
    let report = place.json("run talk.rvl --read in.pcap --seed 7 --write out.pcap -o json");
    super::assert_adds_up(&report);
    let edge = |name: &str| report["edges"][name]["packets"].as_u64().unwrap() as usize;
    let mut packets = packets_of(&place.read("in.pcap"));
    packets.retain(|packet| packet.1[0] == 10);
    let web = packets.iter().filter(|packet| packet.2 == 80).count();
    assert!(web > 100);
    assert_eq!((edge("int -> p"), edge("int -> n")), (web, packets.len() - web));
    assert_eq!(edge("n -> f"), edge("f -> ext") + edge("f -> Drop"));
    let to_ext = packets_of(&place.read("out.pcap"));
    let to_ext: Vec<_> = to_ext.iter().filter(|packet| packet.1[0] == 203).collect();
    assert_eq!(to_ext.len(), edge("f -> ext"));
    assert!(to_ext.len() > 1_000 && to_ext.iter().all(|packet| [53, 80, 443].contains(&packet.2)));
}

#[test]
fn failed_expectations_show_what_happened() {
    let place = Place::new();
    example(&place, "site.rvl");
    let failed = |expectation: &str| {
        place.write("x.expect", format!("# A comment\n\n  {expectation} # and another\n"));
        let text = place.refused(1, "policy test site.rvl x.expect");
        assert!(text.ends_with("0 passed, 1 failed\n"), "{text}");
        text
    };
    let tls = "expect tcp 10.1.0.5:1234 -> 192.0.2.1:443";
    for (expectation, shown) in [
        (format!("{tls} via [web, nat] leaves wan"), "x.expect:3:49"),
        (format!("{tls} via [web, nat] leaves wan"), "the packet visited [nat], not [web, nat]"),
        (format!("{tls} leaves dmz"), "the packet left by wan; expected it to leave by dmz"),
        (format!("{tls} leaves dmz"), "took lan -> nat -> wan"),
        (format!("{tls} leaves wan as 203.0.113.9:* -> 192.0.2.1:443"), "the packet left as 203.0.113."),
        (format!("{tls} is dropped"), "the packet left by wan; expected it to be dropped"),
        (format!("{tls} from wan leaves lan"), "the packet was dropped: nat-untranslated"),
        (tls.replace("1234", "*") + " leaves wan", "the port `*` is unknown"),
        (
            "expect udp 192.0.2.9:5 -> 10.2.0.1:22 leaves dmz".to_owned(),
            "took wan [src ip servers, in reverse] -> guard",
        ),
    ] {
        let text = failed(&expectation);
        assert!(text.contains(shown), "{shown}: {text}");
    }
    place.write(
        "narrow.rvl",
        "Port<0> a; Port<1> b; Monitor m; pipelet { a [tcp] <-> m; m [dst port 80] <-> b; }",
    );
    place.write(
        "narrow.expect",
        "expect tcp 10.0.0.1:5 -> 10.0.0.2:81 leaves b\nexpect tcp 10.0.0.1:5 -> 10.0.0.2:80 leaves b\n",
    );
    let text = place.refused(1, "policy test narrow.rvl");
    assert!(text.contains("took a [tcp] -> m -> (unmatched)"), "{text}");
    assert!(text.contains("the packet passes no filter at m: not m [dst port 80] -> b"), "{text}");
    assert!(text.ends_with("1 passed, 1 failed\n"), "{text}");
}

#[test]
fn packets_are_as_expectations_describe_them() {
    let place = Place::new();
    place.write(
        "p.rvl",
        "Port<0> a; Port<1> b; Port<2> c; NAT n { external: [203.0.113.1], inside: [10.0.0.0/8] };
        pipelet { a [dscp == 8] -> b; a [vlan == 7] -> b; a [tcp flags fin,!syn] -> b; a [proto == 58] -> b; }
        pipelet { a [src ip 10.0.0.0/8] <-> n <-> c; a -> Drop; }",
    );
    let v6 = "[2001:db8::1]:5 -> [2001:db8::2]:80";
    let lines = [
        format!("tcp {v6} dscp 8 leaves b"),
        format!("udp {v6} vlan 7 leaves 1"),
        format!("tcp {v6} is dropped policy"),
        format!("tcp {v6} flags fin,ack via [] leaves b"),
        "icmp 2001:db8::1 -> 2001:db8::2 leaves b".to_owned(),
        "icmp 10.0.0.1 -> 192.0.2.1 leaves c as 203.0.113.1 -> 192.0.2.1".to_owned(),
        "icmp 192.0.2.1 -> 203.0.113.1 from c leaves a as 192.0.2.1 -> 10.0.0.1".to_owned(),
        "udp 10.0.0.1:6 -> 192.0.2.1:53 leaves c as 203.0.113.1:* -> 192.0.2.1:53".to_owned(),
        "udp 192.0.2.1:53 -> 203.0.113.1:* from c via [n] leaves a as 192.0.2.1:53 -> 10.0.0.1:6".to_owned(),
    ];
    place.write("p.expect", lines.map(|line| format!("expect {line}\n")).concat());
    let output = place.run("policy test p.rvl");
    assert_eq!(super::stderr(&output), "9 passed, 0 failed\n");
}

#[test]
fn wrong_expectations_are_refused_with_their_places() {
    let place = Place::new();
    example(&place, "site.rvl");
    let packet = "udp 10.1.0.5:1 -> 192.0.2.1:443";
    let cases = [
        ("sctp 10.1.0.5:1 -> 10.2.0.1:1 leaves wan".to_owned(), 8, "expected a protocol: tcp, udp or icmp"),
        ("tcp 10.1.0.5 -> 192.0.2.1:443 leaves wan".to_owned(), 12, "expected an address and a port"),
        ("icmp 10.1.0.5:1 -> 192.0.2.1 leaves wan".to_owned(), 13, "expected an address, such as"),
        ("udp 10.1.0.5:1 -> [2001:db8::1]:443 leaves wan".to_owned(), 26, "the same IP version"),
        (format!("{packet} leaves wam"), 47, "expected a port of the policy: lan, dmz, wan; found `wam`"),
        (format!("{packet} via [web, natt] leaves wan"), 50, "found `natt`"),
        (format!("{packet} via web leaves wan"), 44, "such as [web, nat]"),
        (format!("{packet} flags syn leaves wan"), 40, "only TCP has flags"),
        (format!("{packet} dscp 64 leaves wan"), 45, "expected a DSCP, 0 to 63"),
        (format!("{packet} is dropped unmatched"), 51, "expected a drop reason"),
        (format!("{packet} leaves wan now"), 51, "expected the end of the line"),
        (packet.to_owned(), 39, "the line ends; expected `leaves`"),
    ];
    place.write("site.expect", cases.iter().map(|(line, ..)| format!("expect {line}\n")).collect::<String>());
    let text = place.refused(1, "policy test site.rvl");
    for (number, (line, column, message)) in cases.iter().enumerate() {
        assert!(text.contains(message), "{message}: {text}");
        assert!(text.contains(&format!("site.expect:{}:{column}\n", number + 1)), "{line}: {text}");
    }
    assert!(place.refused(1, "policy test -").contains("name the file of expectations"));
}

/// Answers requests with a report each, one after the other. Returns its address.
fn serve(reports: Vec<serde_json::Value>) -> String {
    use std::io::{Read, Write};
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for report in reports {
            let (mut client, _) = server.accept().unwrap();
            let _ = client.read(&mut [0; 1024]).unwrap();
            let _ = write!(client, "HTTP/1.1 200 OK\r\n\r\n{report}");
        }
    });
    address
}

#[test]
fn graphs_show_live_rates() {
    let place = Place::new();
    place.write(
        "p.rvl",
        "Port<0> a; Port<1> b; Monitor m; pipelet { a [tcp] <-> m <-> b; a -> b; a [udp] -> b; }",
    );
    let report = |seconds: f64, times: u64| {
        let counted =
            |packets: u64| serde_json::json!({"packets": packets * times, "bytes": 1_000 * packets * times});
        let edges = serde_json::json!({"a -> m": counted(3_000), "m -> b": counted(2_000), "b -> m": counted(1_000),
            "m -> a": counted(1_000), "a -> b": counted(20), "a -> b #2": counted(0)});
        serde_json::json!({"timing": {"seconds": seconds}, "edges": edges})
    };
    let reports = || serve(vec![report(10.0, 1), report(12.0, 2)]);
    let text = place.stdout(&format!("policy graph p.rvl --interval 50ms --connect {}", reports()));
    let expected = "\
a (port 0)
  ├<─ tcp ─> m  1,500 packets/s 12.00 Mbit/s, back 500 packets/s 4.00 Mbit/s
  ├──> b  10 packets/s 80.00 kbit/s
  └── udp ─> b  0 packets/s 0.00 kbit/s
m (Monitor)
  └<─> b  1,000 packets/s 8.00 Mbit/s, back 500 packets/s 4.00 Mbit/s
";
    assert_eq!(text, expected);
    let svg = place.stdout(&format!("policy graph p.rvl -f svg -i 50ms --connect {}", reports()));
    assert!(svg.contains(">1,500 packets/s 12.00 Mbit/s, back 500 packets/s 4.00 Mbit/s<"), "{svg}");
    let other = serde_json::json!({"timing": {"seconds": 1.0}, "edges": {}});
    let other = serve(vec![other.clone(), other]);
    let refused = place.refused(1, &format!("policy graph p.rvl -i 50ms --connect {other}"));
    assert!(refused.contains("has no edge a -> m; name the same policy"), "{refused}");
    place.write("wire.rvl", super::WIRE);
    assert!(place.refused(1, "policy graph wire.rvl --connect").contains("no branches"));
}
