//! `ids` against Suricata: the same rules and packets; compared are the rules that match between
//! two endpoints.
//!
//! Suricata may report a rule on another packet, or more often, because it inspects a packet and
//! its stream separately. Therefore only the presence of a report between two endpoints is
//! compared; for rules with thresholds, the presence of any report.
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;

use graph::{Graph, Options};
use nf::Setup;
use nf::stage::load;
use packet::LinkType;
use packet::parse::protocol;
use serde_json::Value;
use signatures::{LoadedRule, ThresholdKind};

use crate::ids_oracle::plant::{self, Conversation, Rendering};
use crate::ids_oracle::shared;
use crate::ids_oracle::witness::{FLOWS_MAX, Frame, pass};

/// Two endpoints, the lower one first, with the ports of TCP and UDP; and a rule that matches
/// between them.
type Holds = ([(IpAddr, u16); 2], u32);

/// Seed of the planted traffic.
const SEED: u64 = 7;

/// Suricata's configuration.
pub const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ids_oracle/suricata.yaml");

/// Rules that only `ids` reports somewhere, with the reason.
const OURS_ALONE: [(u32, &str); 11] = [
    (2103441, "a client that sends nothing but `PORT`, of other hosts"),
    (2008537, "a first line that ends with a bare LF, which is CR LF in a message's payload"),
    (2013028, "what is in a tunnel that Suricata does not unpack"),
    (2014726, "the same"),
    (2013792, "a target of `:@`, of which Suricata's normal form has nothing"),
    (2024832, "bytes that are no record of TLS, at which Suricata gives up the stream"),
    (2025331, "the same"),
    (2025432, "`only_stream` together with buffers of HTTP, for which Suricata never looks at a stream"),
    (2025435, "the same"),
    (2100366, "packets that the capture has in part only"),
    (2100368, "the same"),
];

/// Rules that only Suricata reports somewhere, with the reason.
const SURICATAS_ALONE: [(u32, &str); 7] = [
    (2010766, "a line of one word, which Suricata takes for a method"),
    (2101603, "the same"),
    (2012886, "a response that the client sends, which Suricata takes for a request"),
    (2100371, "what is in Ethernet in MPLS"),
    (2016364, "an expression over more than LOOKBACK_BYTES of a stream in small parts"),
    (2018959, "a first line that is none, which Suricata takes for a body without a head"),
    (2021983, "a request's body without a length, which is no body"),
];

#[test]
fn captures_are_reported_as_suricata_does() {
    let Some(mut sides) = Sides::new(shared::ANYWHERE) else { return };
    for link in [LinkType::Ethernet, LinkType::RawIp, LinkType::LinuxSll, LinkType::Null] {
        let captures = shared::captures().into_iter().map(|(_, frames)| frames);
        let is_of = |frames: &Vec<Frame>| frames.iter().all(|frame| frame.link == link);
        sides.compare(&format!("{link:?}"), &one_behind_the_other(captures.filter(is_of)));
    }
    sides.check(160, &[2010766, 2013028, 2014726, 2100366, 2100368, 2100371, 2101603, 2103441]);
}

#[test]
fn planted_traffic_is_reported_as_suricata_does() {
    let Some(mut sides) = Sides::new(shared::HOME) else { return };
    let conversations = sides.plant(|_, planted| planted.conversations);
    for rendering in
        [Rendering::Whole, Rendering::Cut(17), Rendering::Backwards(17), Rendering::Overlapping(17)]
    {
        sides.compare(&format!("{rendering:?}"), &plant::frames(&conversations, rendering));
    }
    sides.check(10_000, &[2013792, 2024832, 2025331, 2025432, 2025435, 2101603, 2016364, 2018959, 2021983]);
}

#[test]
fn near_misses_are_reported_as_suricata_does() {
    let Some(mut sides) = Sides::new(shared::HOME) else { return };
    let misses = sides.plant(|rule, planted| {
        let misses = plant::near_misses(&rule.rule, &planted, SEED);
        misses.into_iter().filter_map(|miss| miss.conversations.into_iter().next()).collect()
    });
    sides.compare("near misses", &plant::frames(&misses, Rendering::Whole));
    sides.check(150, &[2008537, 2012886, 2018959, 2101603]);
}

/// Concatenates captures, so that rules are loaded once: each begins a day after the previous one,
/// when all flows have long ended.
fn one_behind_the_other(captures: impl Iterator<Item = Vec<Frame>>) -> Vec<Frame> {
    const DAY_NS: u64 = 86_400_000_000_000;
    let (mut all, mut now_ns) = (Vec::<Frame>::new(), 0);
    for capture in captures {
        let mut last_ns = capture.first().map_or(0, |frame| frame.time_ns);
        now_ns += DAY_NS;
        for mut frame in capture {
            // Some captures have invalid times.
            now_ns += frame.time_ns.saturating_sub(last_ns).min(DAY_NS);
            last_ns = frame.time_ns;
            frame.time_ns = now_ns;
            all.push(frame);
        }
    }
    all
}

/// Both, with the same rules.
struct Sides {
    variables: &'static str,
    rules: Vec<LoadedRule>,
    text: String,
    same: usize,
    differing: Vec<String>,
    explained: BTreeSet<u32>,
}

impl Sides {
    /// Creates both; prints a line and returns `None` without rules or Suricata.
    fn new(variables: &'static str) -> Option<Sides> {
        let (rules, text) = (shared::rules(variables)?, shared::text()?);
        if Command::new("suricata").arg("-V").output().is_err() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "there is no suricata");
            println!("SKIPPED: there is no suricata");
            return None;
        }
        Some(Sides { variables, rules, text, same: 0, differing: Vec::new(), explained: BTreeSet::new() })
    }

    /// Plants conversations for all rules, each between other endpoints.
    fn plant(&self, of: impl Fn(&LoadedRule, plant::Planted) -> Vec<Conversation>) -> Vec<Conversation> {
        let planted =
            self.rules.iter().filter_map(|rule| Some((rule, plant::plant(&self.rules, rule, SEED)?)));
        let mut all: Vec<_> = planted.flat_map(|(rule, planted)| of(rule, planted)).collect();
        for (number, one) in (0..).zip(&mut all) {
            let at_home = |end: &&mut (Ipv4Addr, u16)| end.0.octets()[0] == 10;
            if let Some(end) = [&mut one.client, &mut one.server].into_iter().find(at_home) {
                end.0 = Ipv4Addr::from_bits(Ipv4Addr::new(10, 128, 0, 0).to_bits() + number);
            }
        }
        all
    }

    fn compare(&mut self, name: &str, frames: &[Frame]) {
        let counting: BTreeSet<u32> =
            self.rules.iter().filter(|one| counts(one)).map(|one| one.rule.sid).collect();
        let nobody = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let plainly = |(ends, sid): Holds| (if counting.contains(&sid) { [nobody; 2] } else { ends }, sid);
        let known: BTreeSet<u32> = self.rules.iter().map(|one| one.rule.sid).collect();
        let ours: BTreeSet<Holds> = self.ours(frames).into_iter().map(plainly).collect();
        let its =
            self.suricatas(frames).into_iter().filter(|(_, sid)| known.contains(sid)).map(plainly).collect();
        self.same += ours.intersection(&its).count();
        for (whose, alone, reasons) in [
            ("ours", ours.difference(&its), &OURS_ALONE[..]),
            ("Suricata", its.difference(&ours), &SURICATAS_ALONE[..]),
        ] {
            for (ends, sid) in alone {
                match reasons.iter().any(|(explained, _)| explained == sid) {
                    true => drop(self.explained.insert(*sid)),
                    false => self.differing.push(format!("{name}: {whose} alone: {sid} between {ends:?}")),
                }
            }
        }
    }

    /// Checks that only explained rules differ, that all explanations are needed, and that at least
    /// `least` agree.
    fn check(&self, least: usize, explanations: &[u32]) {
        println!("{} the same, {} rules differ for reasons known", self.same, self.explained.len());
        let shown: Vec<&String> = self.differing.iter().take(40).collect();
        assert!(self.differing.is_empty(), "{} differ: {shown:#?}", self.differing.len());
        assert!(self.same >= least, "only {} are the same", self.same);
        assert_eq!(self.explained, explanations.iter().copied().collect());
    }

    fn ours(&self, frames: &[Frame]) -> BTreeSet<Holds> {
        let flows_max = FLOWS_MAX.min(16 + frames.len() as u32);
        let classification = std::fs::read_to_string(shared::classification()).unwrap();
        let config = serde_json::json!({
            "rules": self.text, "variables": self.variables, "classification": classification, "mode": "detect",
        });
        let config = serde_json::from_value(config).unwrap();
        let ids = load::<functions::ids::Ids>(config, Setup::new(1, flows_max)).unwrap();
        let mut graph =
            Graph::new(vec![ids], Options { flows_max, inner: true, ..Options::default() }).unwrap();
        let mut holds = BTreeSet::new();
        for frames in frames.chunks(1000) {
            pass(&mut graph, frames);
            assert_eq!(graph.effects().alerts_lost, 0);
            holds.extend(graph.effects_mut().alerts.drain(..).map(|alert| {
                let (low, high) = alert.key.ends(false);
                let ends = [low, high].map(|end| (end.addr.ip(), end.port));
                (between(ends, alert.key.protocol), alert.signature_id)
            }));
        }
        holds
    }

    fn suricatas(&self, frames: &[Frame]) -> BTreeSet<Holds> {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("all.rules"), &self.text).unwrap();
        write(&path("frames.pcap"), frames);
        let home = self.variables.lines().find_map(|line| line.strip_prefix("HOME_NET = ")).unwrap();
        let external = if home == "any" { "any" } else { "!$HOME_NET" };
        let mut command = Command::new("suricata");
        command.args(["-c", CONFIG, "--runmode", "single", "-k", "none", "-l"]).arg(folder.path());
        command.arg("-S").arg(path("all.rules")).arg("-r").arg(path("frames.pcap"));
        for (name, value) in [
            ("vars.address-groups.HOME_NET", home),
            ("vars.address-groups.EXTERNAL_NET", external),
            ("classification-file", &shared::classification().display().to_string()),
        ] {
            command.args(["--set", &format!("{name}={value}")]);
        }
        command.output().unwrap();
        // Suricata ignores captures of unknown link types.
        let reported = std::fs::read_to_string(path("eve.json")).unwrap_or_default();
        let events = reported.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["event_type"] == "alert").map(|event| holds(&event)).collect()
    }
}

/// Returns whether a rule is reported only after several matches, which both count differently.
fn counts(loaded: &LoadedRule) -> bool {
    let rule = &loaded.rule;
    rule.detection_filter.is_some()
        || rule.threshold.is_some_and(|threshold| !matches!(threshold.kind, ThresholdKind::Limit { .. }))
}

/// Parses a Suricata alert.
fn holds(event: &Value) -> Holds {
    let end = |who: &str| {
        let port = event[format!("{who}_port")].as_u64().unwrap_or(0) as u16;
        (event[format!("{who}_ip")].as_str().unwrap().parse().unwrap(), port)
    };
    let number = match event["proto"].as_str().unwrap() {
        "TCP" => protocol::TCP,
        "UDP" => protocol::UDP,
        _ => 0,
    };
    (between([end("src"), end("dest")], number), event["alert"]["signature_id"].as_u64().unwrap() as u32)
}

fn between(ends: [(IpAddr, u16); 2], number: u8) -> [(IpAddr, u16); 2] {
    let has_ports = [protocol::TCP, protocol::UDP].contains(&number);
    let mut ends = ends.map(|(address, port)| (address, if has_ports { port } else { 0 }));
    ends.sort();
    ends
}

/// Writes a nanosecond capture with the first frame's link type.
pub fn write(path: &Path, frames: &[Frame]) {
    const SECOND_NS: u64 = 1_000_000_000;
    let link = frames.first().map_or(LinkType::Ethernet, |frame| frame.link);
    let header = [0xa1b2_3c4d, 0x0004_0002, 0, 0, 0x4_0000, u32::from(link.number())];
    let mut bytes = header.map(u32::to_le_bytes).concat();
    for frame in frames {
        let time = [(frame.time_ns / SECOND_NS) as u32, (frame.time_ns % SECOND_NS) as u32];
        let lengths = [frame.bytes.len() as u32, frame.wire_len];
        bytes.extend([time, lengths].concat().into_iter().flat_map(u32::to_le_bytes));
        bytes.extend(&frame.bytes);
    }
    std::fs::write(path, bytes).unwrap();
}
