//! The reader of rules against a second one: each published rule asks for the same in both.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use rules::{
    FastPattern, Flowbit, Loaded, Match, Only, Operand, PacketTest, Position, Rule, State, ThresholdKind,
    Track, Way,
};

use crate::ids_oracle::reading::{Asked, Content, Read, has, is_in, is_within};
use crate::ids_oracle::shared;

/// Of suricata.yaml, `vars`, and what planted traffic takes for home.
const VARIABLES: &str = "HOME_NET=[10.0.0.0/8] EXTERNAL_NET=!$HOME_NET HTTP_SERVERS=$HOME_NET SMTP_SERVERS=$HOME_NET \
    SQL_SERVERS=$HOME_NET DNS_SERVERS=$HOME_NET TELNET_SERVERS=$HOME_NET AIM_SERVERS=$EXTERNAL_NET DC_SERVERS=$HOME_NET \
    DNP3_SERVER=$HOME_NET DNP3_CLIENT=$HOME_NET MODBUS_CLIENT=$HOME_NET MODBUS_SERVER=$HOME_NET ENIP_CLIENT=$HOME_NET \
    ENIP_SERVER=$HOME_NET HTTP_PORTS=80 SHELLCODE_PORTS=!80 ORACLE_PORTS=1521 SSH_PORTS=22 DNP3_PORTS=20000 \
    MODBUS_PORTS=502 FILE_DATA_PORTS=[$HTTP_PORTS,110,143] FTP_PORTS=21";

#[test]
fn rules_are_what_a_second_reader_reads() {
    let Some(loaded) = shared::rules(shared::HOME) else { return };
    let variables: BTreeMap<String, String> = VARIABLES
        .split_whitespace()
        .map(|one| one.split_once('=').unwrap())
        .map(|(name, group)| (name.to_owned(), group.to_owned()))
        .collect();
    let mut files = BTreeMap::<String, Vec<String>>::new();
    let mut differing = Vec::new();
    for Loaded { rule, place } in &loaded {
        let read_lines =
            || std::fs::read_to_string(&*place.file).unwrap().lines().map(str::to_owned).collect();
        let lines = files.entry(place.file.to_string()).or_insert_with(read_lines);
        let read = Read::new(&lines[place.line as usize - 1]);
        for (what, same) in compared(rule, &read, &variables) {
            if !same {
                differing.push(format!("{} {what}: {:?} against {:?}", rule.sid, read.asked, asked(rule)));
            }
        }
    }
    println!("{} rules read twice", loaded.len());
    let shown: Vec<&String> = differing.iter().take(20).collect();
    assert!(differing.is_empty() && loaded.len() > 2_000, "{} differ: {shown:#?}", differing.len());
}

/// What of a rule is the same.
fn compared(rule: &Rule, read: &Read, variables: &BTreeMap<String, String>) -> Vec<(&'static str, bool)> {
    let number = |key: &str, or: u32| read.values(key).next().map_or(or, |value| value.parse().unwrap());
    let fast = rule.fast_pattern().map(|(buffer, at)| {
        (rule.buffers[buffer].buffer.name(), asked_one(&rule.buffers[buffer].matches[at]))
    });
    let own = read.fast_patterns();
    let is_fast = match &fast {
        Some((buffer, Some(Asked::Content(content)))) => own.contains(&(*buffer, content)),
        _ => own.is_empty(),
    };
    let header = &read.header;
    let same_addresses = |group: &str, addresses: &rules::Addresses| {
        ADDRESSES.iter().all(|address| {
            let address: IpAddr = address.parse().unwrap();
            addresses.contains(address) == has(group, variables, &|network| is_in(network, address))
        })
    };
    let same_ports = |group: &str, ports: &rules::Ports| {
        let named =
            group.split(|letter: char| !letter.is_ascii_digit()).filter_map(|port| port.parse::<u16>().ok());
        let around = named.flat_map(|port| [port.saturating_sub(1), port, port.saturating_add(1)]);
        around
            .chain([0, 21, 22, 80, 110, 1_521, 8_080, u16::MAX])
            .all(|port| ports.contains(port) == has(group, variables, &|range| is_within(range, port)))
    };
    vec![
        ("sid", (rule.sid, rule.rev, rule.gid) == (number("sid", 0), number("rev", 0), number("gid", 1))),
        ("protocol", rule.protocol.to_string() == header[1]),
        ("direction", (rule.direction == rules::Direction::Both) == (header[4] == "<>")),
        ("source", same_addresses(&header[2], &rule.source)),
        ("source's ports", same_ports(&header[3], &rule.source_ports)),
        ("destination", same_addresses(&header[5], &rule.destination)),
        ("destination's ports", same_ports(&header[6], &rule.destination_ports)),
        ("flow", flow(rule) == words(read, "flow")),
        ("flowbits", flowbits(rule) == read.values("flowbits").map(without_blanks).collect::<Vec<_>>()),
        ("threshold", threshold(rule) == words(read, "threshold")),
        ("detection_filter", detection_filter(rule) == words(read, "detection_filter")),
        ("packet", rule.packet.iter().all(|test| packet_test(test, read))),
        ("how many of them", rule.packet.len() == OF_PACKETS.iter().flat_map(|key| read.values(key)).count()),
        ("buffers", asked(rule) == read.asked),
        ("fast pattern", is_fast),
    ]
}

/// The words of an option, in any order, with what other words mean the same.
fn words(read: &Read, key: &str) -> BTreeSet<String> {
    let words = read.values(key).flat_map(|value| value.split(',')).map(str::trim);
    let one = |word: &str| match word {
        "from_client" => "to_server".to_owned(),
        "from_server" => "to_client".to_owned(),
        other => other.split_whitespace().collect::<Vec<_>>().join(" "),
    };
    words.map(one).collect()
}

/// Keywords of tests of packets.
const OF_PACKETS: [&str; 16] = [
    "dsize",
    "itype",
    "icode",
    "ip_proto",
    "ttl",
    "id",
    "seq",
    "ack",
    "window",
    "flags",
    "icmp_id",
    "icmp_seq",
    "sameip",
    "tos",
    "fragbits",
    "stream_size",
];

/// Whether a test of packets holds for the same numbers; of those that are rare, only that they are there.
fn packet_test(test: &PacketTest, read: &Read) -> bool {
    let same = |key: &str, holds: &dyn Fn(u16) -> bool| {
        read.values(key).any(|text| (0..2_000).all(|number| holds(number) == is_number(text, number)))
    };
    match test {
        PacketTest::PayloadBytes(test) => same("dsize", &|number| test.holds(number)),
        PacketTest::IcmpType(test) => same("itype", &|number| number < 256 && test.holds(number as u8)),
        PacketTest::IcmpCode(test) => same("icode", &|number| number < 256 && test.holds(number as u8)),
        PacketTest::IpProtocol(test) => same("ip_proto", &|number| number < 256 && test.holds(number as u8)),
        PacketTest::TcpFlags(bits) => read
            .values("flags")
            .any(|text| (0..=255).all(|flags| bits.holds(flags) == are_flags(text, flags))),
        _ => true,
    }
}

/// Whether a number is what `7`, `<7`, `>7` or `5<>8` says.
fn is_number(text: &str, number: u16) -> bool {
    let parsed = |text: &str| text.trim().parse::<u16>().unwrap();
    if let Some((low, high)) = text.split_once("<>") {
        return parsed(low) < number && number < parsed(high);
    }
    match (text.strip_prefix('<'), text.strip_prefix('>'), text.strip_prefix('!')) {
        (Some(text), ..) => number < parsed(text),
        (_, Some(text), _) => number > parsed(text),
        (.., Some(text)) => number != parsed(text),
        _ => number == parsed(text),
    }
}

/// Whether flags of TCP are what `S,12`, `+A` or `*SF` says.
fn are_flags(text: &str, flags: u8) -> bool {
    let bit = |letter| "FSRPAU21".find(letter).or("FSRPAUEC".find(letter)).map_or(0, |at| 1 << at);
    let bits = |text: &str| text.chars().map(bit).fold(0, |all, bit| all | bit);
    let (asked, ignored) = text.split_once(',').unwrap_or((text, ""));
    let (asked, flags) = (asked.trim(), flags & !bits(ignored));
    match asked.chars().next() {
        Some('+') => flags & bits(asked) == bits(asked),
        Some('*') => flags & bits(asked) != 0,
        Some('!') => flags & bits(asked) != bits(asked),
        _ => flags == bits(asked),
    }
}

fn without_blanks(text: &str) -> String {
    text.split_whitespace().collect()
}

fn flow(rule: &Rule) -> BTreeSet<String> {
    let flow = &rule.flow;
    let way = flow.direction.map(|way| match way {
        Way::ToServer => "to_server",
        Way::ToClient => "to_client",
    });
    let state = flow.state.map(|state| match state {
        State::Established => "established",
        State::NotEstablished => "not_established",
        State::Stateless => "stateless",
    });
    let only = |only: Option<Only>, assembled, plain| {
        only.map(|only| if only == Only::Assembled { assembled } else { plain })
    };
    let stream = only(flow.stream, "only_stream", "no_stream");
    let fragments = only(flow.fragments, "only_frag", "no_frag");
    [way, state, stream, fragments].into_iter().flatten().map(str::to_owned).collect()
}

fn flowbits(rule: &Rule) -> Vec<String> {
    let one = |bit: &Flowbit| {
        let (what, names) = match bit {
            Flowbit::IsSet(names) => ("isset", names),
            Flowbit::IsNotSet(names) => ("isnotset", names),
            Flowbit::Set(names) => ("set", names),
            Flowbit::Unset(names) => ("unset", names),
            Flowbit::Toggle(names) => ("toggle", names),
        };
        format!("{what},{}", names.join("|"))
    };
    let noalert = (!rule.alerts).then(|| "noalert".to_owned());
    rule.flowbits.iter().map(one).chain(noalert).collect()
}

fn track(track: Track) -> String {
    let name = match track {
        Track::Source => "src",
        Track::Destination => "dst",
        Track::Both => "both",
        Track::Rule => "rule",
        Track::Flow => "flow",
    };
    format!("track by_{name}")
}

fn threshold(rule: &Rule) -> BTreeSet<String> {
    let Some(threshold) = &rule.threshold else { return BTreeSet::new() };
    let (kind, seconds) = match threshold.kind {
        ThresholdKind::Limit { seconds } => ("limit", seconds),
        ThresholdKind::Each { seconds } => ("threshold", seconds),
        ThresholdKind::Once { seconds } => ("both", seconds),
        ThresholdKind::Backoff { .. } => ("backoff", 0),
    };
    let (count, seconds) = (format!("count {}", threshold.count), format!("seconds {seconds}"));
    [format!("type {kind}"), track(threshold.track), count, seconds].into()
}

fn detection_filter(rule: &Rule) -> BTreeSet<String> {
    let Some(filter) = &rule.detection_filter else { return BTreeSet::new() };
    [track(filter.track), format!("count {}", filter.count), format!("seconds {}", filter.seconds)].into()
}

/// Inside of, at and beyond the ends of what rules and variables name.
const ADDRESSES: [&str; 16] = [
    "0.0.0.0",
    "9.255.255.255",
    "10.0.0.0",
    "10.1.2.3",
    "10.255.255.255",
    "11.0.0.0",
    "127.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "198.51.100.7",
    "224.0.0.1",
    "239.255.255.250",
    "255.255.255.255",
    "::1",
    "2001:db8::1",
    "ff02::1",
];

/// What a rule asks of its buffers, in the second reader's words.
fn asked(rule: &Rule) -> BTreeMap<String, Vec<Asked>> {
    let mut all = BTreeMap::<String, Vec<Asked>>::new();
    for buffer in &rule.buffers {
        let asked: Vec<Asked> = buffer.matches.iter().filter_map(asked_one).collect();
        if !asked.is_empty() {
            all.entry(buffer.buffer.name().to_owned()).or_default().extend(asked);
        }
    }
    all
}

fn asked_one(one: &Match) -> Option<Asked> {
    Some(match one {
        Match::Content(content) => {
            let (relative, from, within) = match content.position {
                Position::Absolute { offset, depth } => {
                    (false, i32::from(value(offset)), depth.map(|depth| i32::from(value(depth))))
                }
                Position::Relative { distance, within } => (true, value(distance), within.map(value)),
            };
            Asked::Content(Content {
                pattern: content.pattern.clone(),
                negated: content.negated,
                nocase: content.nocase,
                ends: content.ends,
                relative,
                from,
                within,
                fast: content.fast_pattern.as_ref().map(|fast| match fast {
                    FastPattern::Whole => String::new(),
                    FastPattern::Only => "only".into(),
                    FastPattern::Part { offset, length } => format!("{offset},{length}"),
                }),
            })
        }
        Match::Pcre(pcre) => Asked::Pcre(pcre.pattern.clone(), pcre.negated, pcre.relative),
        Match::DataAt(data) => Asked::DataAt(u32::from(value(data.offset)), data.negated, data.relative),
        Match::ByteTest(_) | Match::ByteJump(_) => Asked::Other(one.keyword().to_owned()),
        _ => return None,
    })
}

fn value<N>(operand: Operand<N>) -> N {
    match operand {
        Operand::Value(value) => value,
        Operand::Variable(_) => panic!("published rules have no variables"),
    }
}
