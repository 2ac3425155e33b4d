//! The effects of `pass`, `drop` and `reject` on packets and flows, and the other reports: a table
//! of rules and traffic, with the results of Suricata 7 in prevention mode, packet by packet.
//! `RIVULET_BLESS=1` writes the table again, if Suricata is installed; `RIVULET_IDS_RULES=all` runs
//! Suricata on all of it.
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use packet::{LinkType, Side};
use serde_json::Value;

use crate::ids_oracle::Frame;
use crate::ids_support::*;
use crate::suricata::{CONFIG, write};

/// Suricata's results.
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ids/verdicts.txt");

const ASK: &str = "GET /evil HTTP/1.1\r\nHost: x.example\r\n\r\n";
const ASK_AGAIN: &str = "GET /good HTTP/1.1\r\nHost: x.example\r\n\r\n";
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";

struct Case {
    name: String,
    rules: String,
    packets: Vec<Arrival>,
}

/// For each packet, from 1: the reported rules, and whether it was dropped.
type Outcome = Vec<(Vec<u32>, bool)>;

fn raw() -> Vec<Arrival> {
    let mut talk = Talk::open(7_000);
    talk.says(Client, "good one").says(Client, "evil two").says(Client, "good three");
    talk.says(Server, "evil four").closes(Client).closes(Server);
    talk.segments
}

fn web() -> Vec<Arrival> {
    let mut talk = Talk::open(80);
    talk.says(Client, ASK).says(Server, ANSWER).says(Client, ASK_AGAIN).says(Server, ANSWER);
    talk.says(Client, "").closes(Client).closes(Server);
    talk.segments
}

/// Returns a request in two segments; the first one does not show the target.
fn web_in_parts() -> Vec<Arrival> {
    let mut talk = Talk::open(80);
    talk.says(Client, &ASK[..6]).says(Client, &ASK[6..]).says(Server, ANSWER);
    talk.segments
}

fn tls() -> Vec<Arrival> {
    let name = b"evil.example";
    let len = name.len() as u8;
    let extension = [&[0, 0, 0, len + 5, 0, len + 3, 0, 0, len][..], name].concat();
    let suites = [0, 0, 2, 0x13, 1, 1, 0, 0, extension.len() as u8];
    let body = [&[3, 3][..], &[b'R'; 32], &suites, &extension].concat();
    let message = [&[1, 0, 0, body.len() as u8][..], &body].concat();
    let hello = [&[22, 3, 1, 0, message.len() as u8][..], &message].concat();
    let mut talk = Talk::open(443);
    talk.says(Client, hello).says(Server, "").says(Client, "more");
    talk.segments
}

/// Hellos of SSL 3.
fn ssl() -> Vec<Arrival> {
    let hello = |kind: u8, suites: &[u8]| {
        let body = [&[3, 0][..], &[b'R'; 32], &[0], suites].concat();
        let message = [&[kind, 0, 0, body.len() as u8][..], &body].concat();
        [&[22, 3, 0, 0, message.len() as u8][..], &message].concat()
    };
    let mut talk = Talk::open(443);
    talk.says(Client, hello(1, &[0, 2, 0, 10, 1, 0])).says(Server, hello(2, &[0, 10, 0]));
    talk.says(Client, "").says(Server, "more");
    talk.segments
}

fn ftp() -> Vec<Arrival> {
    let mut talk = Talk::open(21);
    talk.says(Server, "220 ready\r\n").says(Client, "USER a\r\n").says(Server, "331 password\r\n");
    talk.says(Client, "PORT 10,0,0,1,4,1\r\n").says(Server, "200 ok\r\n");
    talk.says(Client, "PORT 192,0,2,77,4,1\r\n").says(Server, "200 ok\r\n").says(Client, "LIST\r\n");
    talk.segments
}

fn ssh() -> Vec<Arrival> {
    let mut talk = Talk::open(22);
    talk.says(Server, "SSH-2.0-theirs\r\n").says(Client, "SSH-2.0-ours\r\n").says(Client, "more");
    talk.segments
}

fn datagrams(port: u16, said: &[(Who, &[u8])]) -> Vec<Arrival> {
    let (host, server) = (host_end(1), v4(192, 0, 2, 1, port));
    let arrival = |(number, (who, payload)): (u64, &(Who, &[u8]))| {
        let (side, from, to) = match who {
            Client => (Side::Inside, host, server),
            Server => (Side::Outside, server, host),
        };
        Arrival { at_ns: SECOND_NS + number * MS_NS, side, network: udp(from, to, payload) }
    };
    (0..).zip(said).map(arrival).collect()
}

fn plain_udp() -> Vec<Arrival> {
    datagrams(
        7_000,
        &[(Client, b"good"), (Client, b"evil"), (Server, b"good"), (Client, b"good"), (Server, b"evil")],
    )
}

fn dns() -> Vec<Arrival> {
    let message = |flags: u16, name: &[u8]| {
        let header = [0x1234, flags, 1, 0, 0, 0].map(u16::to_be_bytes).concat();
        [&header[..], b"\x04", name, b"\x07example\0\0\x01\0\x01"].concat()
    };
    let (ask, answer) = (0x0100, 0x8180);
    let said = [(ask, b"good"), (answer, b"good"), (ask, b"evil"), (answer, b"evil"), (ask, b"good")];
    let messages: Vec<_> = said.iter().map(|(flags, name)| message(*flags, &name[..])).collect();
    let who = [Client, Server, Client, Server, Client];
    let said: Vec<_> = who.into_iter().zip(messages.iter().map(Vec::as_slice)).collect();
    datagrams(53, &said)
}

fn pings() -> Vec<Arrival> {
    let (host, server) = (host_end(1).addr, v4(192, 0, 2, 1, 0).addr);
    let said: [(bool, &[u8]); 5] =
        [(false, b"good"), (true, b"good"), (false, b"evil"), (true, b"evil"), (false, b"good")];
    let arrival = |(number, (reply, data)): (u64, &(bool, &[u8]))| {
        let (side, from, to) =
            if *reply { (Side::Outside, server, host) } else { (Side::Inside, host, server) };
        Arrival { at_ns: SECOND_NS + number * MS_NS, side, network: echo(from, to, 7, *reply, data) }
    };
    (0..).zip(&said).map(arrival).collect()
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |kind: &str, protocol: &str, options: &str, more: &str, packets: Vec<Arrival>| {
        for action in ["drop", "pass", "reject"] {
            let rule = format!("{action} {protocol} any any -> any any (msg:\"m\"; {options} sid:1;)\n");
            let name = format!("{kind}: {action} {protocol} {options}").trim_end().to_owned();
            cases.push(Case { name, rules: rule + more, packets: packets.clone() });
        }
    };
    let alert = |protocol: &str, options: &str, sid: u32| {
        format!("alert {protocol} any any -> any any (msg:\"m\"; {options} sid:{sid};)\n")
    };
    let more = alert("tcp", "flow:no_stream; content:\"good\";", 2)
        + &alert("tcp", "dsize:>0;", 3)
        + &alert("tcp", "content:\"four\";", 4);
    for options in [
        "",
        "content:\"evil\";",
        "content:\"evil\"; dsize:8;",
        "content:\"evil\"; depth:4;",
        "flow:only_stream; content:\"evil\";",
        "flow:no_stream; content:\"evil\";",
        "flow:to_client; content:\"evil\";",
        "flow:established; content:\"evil\";",
        "pcre:\"/evil/\";",
        "flow:established;",
        "flow:not_established;",
        "flow:to_server;",
        "flow:established,to_client;",
        "flow:stateless;",
        "dsize:8;",
        "flowbits:set,a;",
        "flowbits:isset,a;",
        "stream_size:client,>,9;",
        "stream_size:server,=,10; content:\"four\";",
        "stream_size:both,>,5; dsize:>0;",
        "stream_size:either,<=,1; flow:established;",
        "content:\"evil\"; noalert;",
        "content:\"evil\"; alert;",
        "content:\"evil\"; noalert; alert;",
        "content:\"evil\"; alert; noalert;",
        "content:\"i\"; flow:no_stream; threshold:type limit,track by_src,count 1,seconds 60;",
        "content:\"o\"; flow:no_stream; threshold:type threshold,track by_src,count 2,seconds 60;",
        "content:\"o\"; flow:no_stream; threshold:type both,track by_src,count 2,seconds 60;",
        "content:\"o\"; flow:no_stream; detection_filter:track by_src,count 1,seconds 60;",
    ] {
        add("tcp", "tcp", options, &more, raw());
    }
    add("tcp", "tcp-pkt", "content:\"evil\";", &more, raw());
    add("tcp", "ip", "", &more, raw());
    let pass = alert("tcp", "dsize:8;", 2).replace("alert", "pass");
    add("tcp that passes by packets", "tcp", "content:\"evil\";", &pass, raw());
    let drop = alert("tcp", "content:\"evil\";", 2).replace("alert", "drop");
    add("tcp that drops later", "tcp", "content:\"good\";", &drop, raw());
    add("tcp that drops at once", "tcp", "content:\"two\";", &drop, raw());
    let more = alert("http", "http.uri; content:\"/\";", 2)
        + &alert("tcp", "dsize:>0;", 3)
        + &alert("http", "http.stat_code; content:\"200\";", 4);
    for (protocol, options) in [
        ("http", ""),
        ("http", "flow:to_server;"),
        ("http", "flow:established;"),
        ("http", "http.uri; content:\"evil\";"),
        ("http", "http.uri; content:\"good\";"),
        ("http", "flow:established,to_server; http.uri; content:\"evil\";"),
        ("http", "http.method; content:\"GET\";"),
        ("http", "content:\"evil\";"),
        ("http", "http.stat_code; content:\"200\";"),
        ("http", "file_data; content:\"evil\";"),
        ("http", "dsize:>0;"),
        ("tcp", "http.uri; content:\"evil\";"),
        ("tcp", "app-layer-protocol:http;"),
        ("tcp", "flow:to_server; app-layer-protocol:http;"),
        ("tcp", "flow:established; app-layer-protocol:http;"),
    ] {
        add("http", protocol, options, &more, web());
    }
    let more = alert("tcp", "dsize:>0;", 3);
    for (protocol, options) in
        [("http", ""), ("http", "http.uri; content:\"evil\";"), ("tcp", "content:\"GET /evil\";")]
    {
        add("http in parts", protocol, options, &more, web_in_parts());
    }
    add("tls", "tls", "", &more, tls());
    add("tls", "tls", "tls.sni; content:\"evil\";", &more, tls());
    add("tls", "tls", "ssl_state:client_hello;", &more, tls());
    add("tls", "tls", "ssl_state:server_hello;", &more, tls());
    let poodle = "flow:established,to_client; ssl_version:sslv3; ssl_state:server_hello; \
                  content:\"|16 03 00|\"; depth:3;";
    add("ssl", "tcp", poodle, &more, ssl());
    add("ssl", "tcp", &poodle.replace("sslv3", "tls1.0"), &more, ssl());
    add("ssl", "tls", "ssl_state:client_hello; ssl_version:sslv3;", &more, ssl());
    add("ftp", "tcp", "flow:to_server,established; content:\"PORT\"; nocase; ftpbounce;", &more, ftp());
    add("ftp", "ftp", "ftpbounce;", &more, ftp());
    add("ssh", "ssh", "", &more, ssh());
    add("ssh", "ssh", "ssh.software; content:\"theirs\";", &more, ssh());
    let more = alert("udp", "dsize:>0;", 3);
    for options in
        ["", "content:\"evil\";", "dsize:4;", "flow:to_server;", "flow:established;", "flow:not_established;"]
    {
        add("udp", "udp", options, &more, plain_udp());
    }
    for (protocol, options) in [
        ("dns", ""),
        ("dns", "dns.query; content:\"evil\";"),
        ("dns", "content:\"evil\";"),
        ("dns", "flow:to_client;"),
        ("udp", "content:\"evil\";"),
        ("udp", "app-layer-protocol:dns;"),
    ] {
        add("dns", protocol, options, &more, dns());
    }
    let more = alert("ip", "dsize:4;", 3);
    for options in ["", "content:\"evil\";", "itype:8;"] {
        add("icmp", "icmp", options, &more, pings());
    }
    cases
}

/// Returns the function's results.
fn ours(case: &Case) -> Outcome {
    let mut bench = ids(&case.rules);
    let mut outcome = Outcome::new();
    for Arrival { at_ns, side, network } in &case.packets {
        let sent = bench.one(*at_ns, *side, network);
        outcome.push((Vec::new(), !sent.iter().any(|(to, left)| to != side && left == network)));
    }
    for (packet, rule) in end(bench).reported {
        outcome[packet as usize - 1].0.push(rule);
    }
    outcome
}

/// Returns Suricata's results.
fn its(case: &Case) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let frame = |one: &Arrival| Frame {
        time_ns: one.at_ns,
        link: LinkType::RawIp,
        wire_len: one.network.len() as u32,
        bytes: one.network.clone(),
    };
    let frames: Vec<Frame> = case.packets.iter().map(frame).collect();
    write(&path("frames.pcap"), &frames);
    std::fs::write(path("all.rules"), &case.rules).unwrap();
    let config = std::fs::read_to_string(CONFIG).unwrap();
    let drops = "        - alert\n        - drop: { alerts: yes, flows: all }\n";
    std::fs::write(path("suricata.yaml"), config.replace("        - alert\n", drops)).unwrap();
    let mut command = Command::new("suricata");
    command.args(["--runmode", "single", "-k", "none", "--simulate-ips", "-l"]).arg(folder.path());
    command.arg("-c").arg(path("suricata.yaml")).arg("-S").arg(path("all.rules"));
    command.arg("-r").arg(path("frames.pcap"));
    for file in ["classification-file", "reference-config-file"] {
        command.args(["--set", &format!("{file}=/dev/null")]);
    }
    command.args(["--set", "vars.address-groups.HOME_NET=any"]);
    command.args(["--set", "vars.address-groups.EXTERNAL_NET=any"]).output().unwrap();
    let mut outcome: Outcome = case.packets.iter().map(|_| (Vec::new(), false)).collect();
    let reported = std::fs::read_to_string(path("eve.json")).unwrap_or_default();
    for event in reported.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let Some(at) = event["pcap_cnt"].as_u64().and_then(|number| number.checked_sub(1)) else { continue };
        match event["event_type"].as_str() {
            Some("alert") => {
                outcome[at as usize].0.push(event["alert"]["signature_id"].as_u64().unwrap() as u32);
            }
            Some("drop") => outcome[at as usize].1 = true,
            _ => {}
        }
    }
    outcome
}

/// Returns a line of the table: `NAME | PACKET[!]: RULES, ...`, with `!` after dropped packets.
fn line(case: &Case, outcome: &Outcome) -> String {
    let mut line = format!("{} |", case.name);
    for (number, (rules, is_dropped)) in (1..).zip(outcome) {
        if *is_dropped || !rules.is_empty() {
            let rules: String = rules.iter().map(|rule| format!(" {rule}")).collect();
            write!(line, " {number}{}{rules};", if *is_dropped { "!" } else { "" }).unwrap();
        }
    }
    line + "\n"
}

/// A flow without a passed packet is not kept: each packet begins one, and is reported.
const NOT_KEPT: &str = "no packet of the flow passes";

/// With each segment, Suricata inspects earlier bytes of the stream again.
const SEEN_AGAIN: &str = "what one segment had, which passed, is found again with the next";

/// Cases with a different result of the function, with the reason.
const OTHERWISE: [(&str, &str); 23] = [
    ("tcp that passes by packets: drop tcp content:\"evil\";", SEEN_AGAIN),
    ("tcp that passes by packets: reject tcp content:\"evil\";", SEEN_AGAIN),
    ("udp: drop udp flow:to_server;", NOT_KEPT),
    ("udp: reject udp flow:to_server;", NOT_KEPT),
    ("udp: drop udp flow:not_established;", NOT_KEPT),
    ("udp: reject udp flow:not_established;", NOT_KEPT),
    ("tcp: drop tcp", NOT_KEPT),
    ("tcp: reject tcp", NOT_KEPT),
    ("tcp: drop ip", NOT_KEPT),
    ("tcp: reject ip", NOT_KEPT),
    ("tcp: drop tcp flow:not_established;", NOT_KEPT),
    ("tcp: reject tcp flow:not_established;", NOT_KEPT),
    ("tcp: drop tcp flowbits:set,a;", NOT_KEPT),
    ("tcp: reject tcp flowbits:set,a;", NOT_KEPT),
    ("udp: drop udp", NOT_KEPT),
    ("udp: reject udp", NOT_KEPT),
    ("dns: drop dns", NOT_KEPT),
    ("dns: reject dns", NOT_KEPT),
    ("dns: drop udp app-layer-protocol:dns;", NOT_KEPT),
    ("dns: reject udp app-layer-protocol:dns;", NOT_KEPT),
    ("icmp: drop icmp", NOT_KEPT),
    ("icmp: reject icmp", NOT_KEPT),
    (
        "tcp: pass tcp content:\"o\"; flow:no_stream; threshold:type both,track by_src,count 2,seconds 60;",
        "in Suricata, what passes without an alert hides no other alert",
    ),
];

#[test]
fn actions_are_as_recorded() {
    let table = std::fs::read_to_string(TABLE).unwrap();
    let differs = |case: &Case| {
        let ours = line(case, &ours(case));
        let is_known = OTHERWISE.iter().any(|(name, _)| *name == case.name);
        let recorded = table.lines().find(|line| line.split(" |").next() == Some(&case.name));
        let is_same = recorded.is_some_and(|recorded| recorded == ours.trim_end());
        (is_same == is_known).then(|| format!("{ours}{}\n", recorded.unwrap_or("not recorded")))
    };
    let differing: String = cases().iter().filter_map(differs).collect();
    assert_eq!(table.lines().count(), cases().len());
    assert!(differing.is_empty(), "ours, then as recorded:\n{differing}");
}

#[test]
fn suricata_acts_as_recorded() {
    if Command::new("suricata").arg("-V").output().is_err() {
        println!("SKIPPED: there is no suricata");
        return;
    }
    let its = |case: &Case| line(case, &its(case));
    if std::env::var_os("RIVULET_BLESS").is_some() {
        let table: String = cases().iter().map(its).collect();
        std::fs::write(Path::new(TABLE), table).unwrap();
        return;
    }
    // It is slow for each.
    let step = if std::env::var("RIVULET_IDS_RULES").is_ok_and(|value| value == "all") { 1 } else { 11 };
    let table = std::fs::read_to_string(TABLE).unwrap();
    for (case, recorded) in cases().iter().zip(table.lines()).step_by(step) {
        assert_eq!(its(case).trim_end(), recorded);
    }
}
