//! The output of a run, and its comparison with another.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::convert::Infallible;
use std::fmt;

use nf::{Alert, Event, FlowReport};
use packet::{FlowHasher, FlowKey, Packet, PacketClass, Parser};
use protocol::message::FlowId;
use runtime::Output;

use super::FaultCounts;

/// A way in which a run over faulty links differs from a single graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialDifference {
    /// The packets that were released in a direction of a flow.
    Flow {
        /// The direction.
        flow: String,
        /// Packets that were released.
        released: usize,
        /// Packets that a single graph releases.
        expected: usize,
        /// The first of them that differs, from 0.
        first: usize,
    },
    /// The alerts and events of a packet.
    Effects {
        /// Number of the packet in the traffic, from 0.
        packet: u64,
        /// Alerts and events that were reported.
        reported: Vec<String>,
        /// Those that a single graph reports.
        expected: Vec<String>,
    },
    /// An alert, event or report at a flow's end was given more or fewer times than by a single
    /// graph.
    Ends {
        /// The alert, event or report.
        effect: String,
        /// Times that it was given.
        reported: u64,
        /// Times that a single graph gives it.
        expected: u64,
    },
    /// A counter of a function.
    Counter {
        /// The function and the counter.
        name: String,
        /// Its value.
        counted: u64,
        /// Its value in a single graph.
        expected: u64,
    },
    /// Packets reached a unit, and were dropped there although none is late enough.
    Late(u64),
    /// Packets are pending forever.
    Stuck(u64),
    /// Packets are not accounted for.
    Accounts,
}

impl fmt::Display for TrialDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrialDifference::Flow { flow, released, expected, first } => write!(
                f,
                "{flow}: packet {first} differs; {released} packets were released, {expected} were expected"
            ),
            TrialDifference::Effects { packet, reported, expected } => {
                write!(f, "packet {packet}: reported {}; expected {}", listed(reported), listed(expected))
            }
            TrialDifference::Ends { effect, reported, expected } => {
                write!(f, "end of a flow: {effect} was given {reported} times, {expected} were expected")
            }
            TrialDifference::Counter { name, counted, expected } => {
                write!(f, "{name} is {counted}, {expected} was expected")
            }
            TrialDifference::Late(packets) => {
                write!(f, "{packets} packets reached a unit and were dropped as late")
            }
            TrialDifference::Stuck(packets) => write!(f, "{packets} packets are pending forever"),
            TrialDifference::Accounts => f.write_str("packets in, out and dropped do not add up"),
        }
    }
}

fn listed(effects: &[String]) -> String {
    if effects.is_empty() { "nothing".to_owned() } else { effects.join(", ") }
}

/// Marks a later fragment in the name of a direction.
const FRAGMENT: &str = ", fragment ";

/// Everything that a run put out.
#[derive(Default)]
pub(super) struct Observed {
    /// Packets with their sequence, by direction of flow.
    flows: BTreeMap<String, Vec<(u64, Vec<u8>)>>,
    pub packets: u64,
    /// Keys with which packets left, by sequence.
    keys: Vec<(u64, FlowKey)>,
    left_with: HashSet<FlowKey>,
    /// Alerts and events, by sequence.
    effects: BTreeMap<u64, Vec<String>>,
    /// Alerts, events and reports at the ends of flows, with their flows' keys.
    ends: Vec<(FlowKey, String)>,
    /// By sequence of this run: the packet's number in the traffic. Empty: the same.
    numbers: Vec<u64>,
}

impl Observed {
    /// Creates one of a run over these packets of the traffic.
    pub fn over(numbers: Vec<u64>) -> Observed {
        Observed { numbers, ..Observed::default() }
    }

    /// Returns the keys with which packets left, with the packets' numbers.
    pub fn keys(&self) -> &[(u64, FlowKey)] {
        &self.keys
    }

    /// Returns whether a packet has left with this key.
    pub fn has_left_with(&self, key: &FlowKey) -> bool {
        self.left_with.contains(key)
    }

    fn number(&self, sequence: u64) -> u64 {
        self.numbers.get(sequence as usize).copied().unwrap_or(sequence)
    }

    /// Returns the first difference from a single graph's output.
    pub fn difference(&self, expected: &Observed, exempt: &Exempt) -> Option<TrialDifference> {
        self.difference_of_packets(expected, exempt)
            .or_else(|| self.difference_of_effects(expected, exempt))
            .or_else(|| self.difference_of_ends(expected, exempt))
    }

    fn difference_of_packets(&self, expected: &Observed, exempt: &Exempt) -> Option<TrialDifference> {
        let nothing = Vec::new();
        let flows: BTreeSet<&String> = expected.flows.keys().chain(self.flows.keys()).collect();
        // A later fragment does not say whether its flow was lost.
        let is_comparable = |flow: &&String| exempt.flows == 0 || !flow.contains(FRAGMENT);
        flows.into_iter().filter(is_comparable).find_map(|flow| {
            let released = self.flows.get(flow).unwrap_or(&nothing);
            let expected = expected.flows.get(flow).unwrap_or(&nothing);
            // Of a flow that was lost, the packets before the crash must be released as far as they
            // were processed.
            let is_exempt = |&&(packet, _): &&(u64, Vec<u8>)| exempt.has_packet(packet);
            let is_lost = |&(packet, _): &(u64, Vec<u8>)| exempt.loss(packet).is_some();
            let counted: Vec<_> =
                released.iter().filter(|packet| !is_exempt(packet)).map(|(_, data)| data).collect();
            let wanted: Vec<_> = expected.iter().map(|(_, data)| data).collect();
            let agree = counted.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
            let lost = expected.iter().any(is_lost) || released.iter().any(is_lost);
            let is_same = agree == counted.len() && (lost || agree == wanted.len());
            (!is_same).then(|| TrialDifference::Flow {
                flow: flow.clone(),
                released: counted.len(),
                expected: wanted.len(),
                first: agree,
            })
        })
    }

    fn difference_of_effects(&self, expected: &Observed, exempt: &Exempt) -> Option<TrialDifference> {
        let nothing = Vec::new();
        let packets: BTreeSet<u64> = expected.effects.keys().chain(self.effects.keys()).copied().collect();
        packets.into_iter().find_map(|packet| {
            let reported = self.effects.get(&packet).unwrap_or(&nothing);
            let expected = expected.effects.get(&packet).unwrap_or(&nothing);
            let is_exempt = exempt.has_packet(packet) || exempt.loss(packet).is_some() && reported.is_empty();
            (!is_exempt && reported != expected).then(|| TrialDifference::Effects {
                packet,
                reported: reported.clone(),
                expected: expected.clone(),
            })
        })
    }

    fn difference_of_ends(&self, expected: &Observed, exempt: &Exempt) -> Option<TrialDifference> {
        let mut counts: BTreeMap<&String, (u64, u64)> = BTreeMap::new();
        let counted = |ends: &'_ (FlowKey, String)| !exempt.has_key(&ends.0);
        for (_, effect) in self.ends.iter().filter(|&ends| counted(ends)) {
            counts.entry(effect).or_default().0 += 1;
        }
        for (_, effect) in expected.ends.iter().filter(|&ends| counted(ends)) {
            counts.entry(effect).or_default().1 += 1;
        }
        let (effect, (reported, expected)) = counts.into_iter().find(|(_, (a, b))| a != b)?;
        Some(TrialDifference::Ends { effect: effect.clone(), reported, expected })
    }
}

impl Output for Observed {
    type Error = Infallible;

    fn packet(&mut self, port: u16, packet: &Packet) -> Result<(), Infallible> {
        let data = packet.data().to_vec();
        let mut copy = Packet::from_bytes(&data);
        copy.meta_mut().link = packet.meta().link;
        let parsed = Parser::new(FlowHasher::new(0)).parse(&mut copy);
        let number = self.number(packet.meta().transit.sequence);
        let meta = copy.meta();
        // A later fragment has no ports: it is compared by itself.
        let flow = match meta.class {
            PacketClass::LaterFragment => format!("port {port}{FRAGMENT}{data:02x?}"),
            _ if parsed.is_err() => format!("port {port}, unreadable"),
            _ => {
                self.keys.push((number, meta.key));
                self.left_with.insert(meta.key);
                format!("port {port}, {:?}, reversed: {}", meta.key, meta.reversed)
            }
        };
        self.flows.entry(flow).or_default().push((number, data));
        self.packets += 1;
        Ok(())
    }

    fn alert(&mut self, function: &str, alert: &Alert) -> Result<(), Infallible> {
        let number = self.number(alert.sequence);
        let mut alert = alert.clone();
        if alert.has_packet {
            alert.sequence = number;
            self.effects.entry(number).or_default().push(format!("{function}: {alert:?}"));
        } else {
            // Flows that are left at the end of the run end once their units are done.
            alert.timestamp_ns = 0;
            self.ends.push((alert.key, format!("{function}: {alert:?}")));
        }
        Ok(())
    }

    fn event(&mut self, function: &str, event: Event<'_>) -> Result<(), Infallible> {
        let fields: Vec<_> = event.fields().collect();
        let text = format!("{function}: {} {:?} {fields:?}", event.kind, event.key);
        match event.sequence {
            Some(sequence) => self.effects.entry(self.number(sequence)).or_default().push(text),
            None => self.ends.push((event.key, text)),
        }
        Ok(())
    }

    fn flow(&mut self, report: &FlowReport, _now_ns: u64) -> Result<(), Infallible> {
        self.ends.push((key_of(report), format!("{report:?}")));
        Ok(())
    }
}

fn key_of(report: &FlowReport) -> FlowKey {
    let source = packet::Endpoint::new(report.source, report.source_port);
    let destination = packet::Endpoint::new(report.destination, report.destination_port);
    let scope = packet::Scope::default();
    FlowKey::new(source, destination, report.protocol, report.version, scope, 0).0
}

/// Flows that a crash has taken out of the comparison, with all keys that they ever had.
#[derive(Default)]
pub(super) struct Exempt {
    /// By packet: sequence from which on its flow is exempt.
    packets: HashMap<u64, u64>,
    keys: BTreeSet<String>,
    /// Flows that are exempt.
    pub flows: usize,
}

impl Exempt {
    /// Determines the packets of flows that were lost. `keys` are those with which packets arrived.
    pub fn of(outcome: &FaultCounts, keys: &[Option<FlowKey>], runs: [&Observed; 2]) -> Exempt {
        if outcome.flows_lost.is_empty() {
            return Exempt::default();
        }
        let mut groups = Groups::default();
        let mut of_packet: HashMap<u64, usize> = HashMap::new();
        let arrived = (0u64..).zip(keys).filter_map(|(number, key)| Some((number, (*key)?)));
        let left = runs.into_iter().flat_map(|run| run.keys.iter().copied());
        let flows = outcome.flows.iter().map(|(&number, &flow)| (number, Name::Flow(flow)));
        for (number, name) in arrived.chain(left).map(|(number, key)| (number, Name::of(&key))).chain(flows) {
            let group = groups.of(name);
            match of_packet.get(&number) {
                Some(&other) => groups.join(group, other),
                None => _ = of_packet.insert(number, group),
            }
        }
        let mut lost: HashMap<usize, u64> = HashMap::new();
        for (&flow, &from) in &outcome.flows_lost {
            let group = groups.of(Name::Flow(flow));
            let first = lost.entry(groups.root(group)).or_insert(from);
            *first = from.min(*first);
        }
        let packets = of_packet.into_iter().filter_map(|(number, group)| {
            let from = lost.get(&groups.root(group))?;
            Some((number, *from))
        });
        let packets = packets.collect();
        let is_lost = |(name, &group): (&Name, &usize)| match name {
            Name::Key(key) if lost.contains_key(&groups.root(group)) => Some(key.clone()),
            _ => None,
        };
        Exempt { packets, keys: groups.names.iter().filter_map(is_lost).collect(), flows: lost.len() }
    }

    /// Returns the packet from which on this packet's flow is exempt, if it was lost.
    fn loss(&self, packet: u64) -> Option<u64> {
        self.packets.get(&packet).copied()
    }

    /// Returns whether a packet is exempt.
    fn has_packet(&self, packet: u64) -> bool {
        self.loss(packet).is_some_and(|from| packet >= from)
    }

    /// Returns whether a flow with this key is exempt.
    fn has_key(&self, key: &FlowKey) -> bool {
        !self.keys.is_empty() && self.keys.contains(&text_of(key))
    }
}

/// A name of a flow: a key that one of its packets had, or its identity at the dispatcher.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Flow(FlowId),
    Key(String),
}

impl Name {
    fn of(key: &FlowKey) -> Name {
        Name::Key(text_of(key))
    }
}

/// Addresses, ports and protocol: a flow report has no more.
fn text_of(key: &FlowKey) -> String {
    let mut key = *key;
    (key.scope, key.place) = (packet::Scope::default(), 0);
    format!("{key:?}")
}

/// Names that belong to one flow, as a union-find forest.
#[derive(Default)]
struct Groups {
    names: BTreeMap<Name, usize>,
    parents: Vec<usize>,
}

impl Groups {
    fn of(&mut self, name: Name) -> usize {
        let next = self.parents.len();
        let group = *self.names.entry(name).or_insert(next);
        if group == next {
            self.parents.push(next);
        }
        group
    }

    fn root(&self, mut group: usize) -> usize {
        while self.parents[group] != group {
            group = self.parents[group];
        }
        group
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a.max(b)] = a.min(b);
    }
}
