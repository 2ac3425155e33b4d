//! A rule made ready to be looked at.

use std::net::IpAddr;
use std::sync::Arc;

use applayer::detect::Verdict;
use packet::Endpoint;
use packet::parse::protocol;
use signatures::inspect::Inspection;
use signatures::{
    Action, Addresses, Buffer, Classifications, DetectionFilter, Direction, Flow, Flowbit, LimitKind, Loaded,
    Only, PacketTest, Ports, Protocol, ProtocolTest, RateFilter, Rule, State, Suppress, Threshold,
    Thresholds, Transport, Way,
};

use super::facts::{Facts, is_application};
use super::marks::{Change, Marks, Names, Test};

/// A rule made ready.
pub struct Signature {
    /// The rule's group, number and revision.
    pub id: (u32, u32, u32),
    /// What it tells.
    pub message: Arc<str>,
    /// Its class, in words.
    pub category: Arc<str>,
    /// Its priority.
    pub severity: u8,
    /// Keys and values for those who read alerts.
    pub metadata: Option<Arc<[(String, String)]>>,
    /// What it does.
    pub action: Action,
    /// Whether it does that to the flow, even if it holds on a packet.
    pub on_flow: bool,
    /// Whether it is told.
    pub alerts: bool,
    /// What it asks of buffers.
    pub inspection: Inspection,
    /// When it acts, and what of it is told.
    pub filter: Option<DetectionFilter>,
    pub threshold: Option<Threshold>,
    /// What it does instead from so many matches on.
    pub rate: Option<RateFilter>,
    /// Between whom it does not alert.
    suppressed: Vec<Suppress>,
    header: Header,
    flow: Flow,
    packet: Vec<PacketTest>,
    application: Vec<ProtocolTest>,
    tests: Vec<Test>,
    changes: Vec<Change>,
    once: Once,
    /// Whether it asks for something that fragments do not have.
    needs_whole: bool,
}

/// Whether a rule that asks for nothing of single packets is looked at on one only, each way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Once {
    /// It is looked at on all.
    No,
    /// On the flow's first one.
    First,
    /// On the first one since the protocol is known.
    Known,
}

impl Once {
    fn of(rule: &Rule) -> Once {
        let asks_state =
            rule.flow.state.is_some() || rule.flow.stream.is_some() || rule.flow.fragments.is_some();
        if !rule.buffers.is_empty() || asks_state || !matches!(rule.protocol, Protocol::Transport(_)) {
            return Once::No;
        }
        let of_protocol = |test: &ProtocolTest| matches!(test, ProtocolTest::Is { .. });
        let of_address = |test: &PacketTest| matches!(test, PacketTest::IpProtocol(_));
        if !rule.application.is_empty() {
            let only = rule.application.iter().all(of_protocol) && rule.packet.is_empty();
            return if only && rule.flowbits.is_empty() { Once::Known } else { Once::No };
        }
        let sets = rule.flowbits.iter().all(|bit| matches!(bit, Flowbit::Set(_)));
        let only = rule.packet.iter().all(of_address) && rule.flow.direction.is_none();
        if only && sets { Once::First } else { Once::No }
    }
}

/// Whether a rule is about connections, or messages of a protocol, and not about packets: what it
/// says then holds for the flow.
fn is_about_flow(rule: &Rule, once: Once) -> bool {
    let of_message = |one: &signatures::BufferMatches| {
        ["http", "dns", "tls", "ssh", "ja3", "ja4", "file"]
            .iter()
            .any(|name| one.buffer.name().split(['.', '_']).next() == Some(name))
    };
    if !rule.packet.is_empty() && once != Once::First {
        return false;
    }
    if rule.buffers.iter().any(of_message) {
        return true;
    }
    let asks_state = rule.flow.state.is_some() || rule.flow.stream.is_some() || rule.flow.fragments.is_some();
    let of_application = matches!(rule.protocol, Protocol::Application(_)) || !rule.application.is_empty();
    rule.buffers.is_empty() && !asks_state && (once != Once::No || of_application)
}

/// The rule's first words.
struct Header {
    protocol: Protocol,
    direction: Direction,
    source: Arc<Addresses>,
    source_ports: Arc<Ports>,
    destination: Arc<Addresses>,
    destination_ports: Arc<Ports>,
}

impl Signature {
    /// Makes a rule ready. Its marks are given numbers.
    pub fn new(
        loaded: &Loaded,
        inspection: Inspection,
        classes: &Classifications,
        names: &mut Names,
    ) -> Option<Signature> {
        let rule = &loaded.rule;
        let (mut tests, mut changes) = (Vec::new(), Vec::new());
        for bit in &rule.flowbits {
            match bit {
                Flowbit::IsSet(any) => tests.push(Test { any: names.of(any)?, set: true }),
                Flowbit::IsNotSet(any) => tests.push(Test { any: names.of(any)?, set: false }),
                Flowbit::Set(all) => changes.push(Change::Set(names.of(all)?)),
                Flowbit::Unset(all) => changes.push(Change::Unset(names.of(all)?)),
                Flowbit::Toggle(all) => changes.push(Change::Toggle(names.of(all)?)),
            }
        }
        let once = Once::of(rule);
        let of_headers = |one: &signatures::BufferMatches| {
            matches!(one.buffer, Buffer::Ipv4Header | Buffer::Ipv6Header | Buffer::EthernetHeader)
        };
        let asks_flow =
            rule.flow.direction.is_some() || rule.flow.state.is_some() || rule.flow.stream.is_some();
        let of_application =
            matches!(rule.protocol, Protocol::Application(_)) || !rule.application.is_empty();
        let needs_whole = asks_flow || of_application || !rule.buffers.iter().all(of_headers);
        let class = rule.classtype.as_deref();
        let category =
            class.and_then(|name| classes.get(name)).map_or(class.unwrap_or(""), |class| &class.description);
        Some(Signature {
            id: (rule.gid, rule.sid, rule.rev),
            message: rule.msg.as_str().into(),
            category: category.into(),
            severity: rule.priority,
            metadata: (!rule.metadata.is_empty()).then(|| rule.metadata.as_slice().into()),
            action: rule.action,
            on_flow: is_about_flow(rule, once),
            once,
            needs_whole,
            alerts: rule.alerts,
            inspection,
            filter: rule.detection_filter,
            threshold: rule.threshold,
            rate: None,
            suppressed: Vec::new(),
            header: Header {
                protocol: rule.protocol,
                direction: rule.direction,
                source: Arc::clone(&rule.source),
                source_ports: Arc::clone(&rule.source_ports),
                destination: Arc::clone(&rule.destination),
                destination_ports: Arc::clone(&rule.destination_ports),
            },
            flow: rule.flow,
            packet: rule.packet.clone(),
            application: rule.application.clone(),
            tests,
            changes,
        })
    }

    /// Whether all holds but what is asked of buffers.
    pub fn applies(&self, facts: &Facts<'_>, marks: &Marks) -> bool {
        let is_due = match self.once {
            Once::No => true,
            Once::First => facts.is_first,
            Once::Known => facts.is_first_known,
        };
        is_due
            && self.flow_holds(facts)
            && self.header.holds(facts)
            && self.tests.iter().all(|test| marks.holds(test))
            && self.packet.iter().all(|test| {
                facts.packet.is_some_and(|packet| packet.holds(test, facts.source, facts.destination))
            })
            && self.application.iter().all(|test| application_holds(test, facts))
    }

    /// Takes over what operators say of the rule. As in Suricata, what is said of this one counts
    /// more than what it says itself, and what is said of a group less.
    pub fn limit(&mut self, thresholds: &Thresholds) {
        let (gid, sid, _) = self.id;
        let own = self.threshold.is_some() || self.filter.is_some();
        let mut is_own = own;
        for one in thresholds.iter().filter(|one| one.is_about(gid, sid)) {
            match &one.kind {
                LimitKind::Suppress(suppress) => self.suppressed.push(suppress.clone()),
                LimitKind::Threshold(threshold) if one.is_of_one() || !is_own => {
                    (self.threshold, self.filter) = (Some(*threshold), None);
                    is_own |= one.is_of_one();
                }
                LimitKind::Rate(rate) if !own => self.rate = Some(*rate),
                _ => {}
            }
        }
    }

    /// Whether its alerts of packets between these ends are silenced.
    pub fn is_suppressed(&self, (source, destination): (Endpoint, Endpoint)) -> bool {
        let (source, destination) = (source.addr.ip(), destination.addr.ip());
        self.suppressed.iter().any(|suppress| suppress.holds(source, destination))
    }

    /// Whether it counts its matches.
    pub fn counts(&self) -> bool {
        self.threshold.is_some() || self.filter.is_some() || self.rate.is_some()
    }

    /// Changes the flow's marks as the rule says.
    pub fn change(&self, marks: &mut Marks) {
        self.changes.iter().for_each(|change| marks.change(change));
    }

    fn flow_holds(&self, facts: &Facts<'_>) -> bool {
        let direction = match self.flow.direction {
            Some(Way::ToServer) => facts.to_server,
            Some(Way::ToClient) => !facts.to_server,
            None => true,
        };
        let fragments = facts.packet.is_none_or(|packet| match self.flow.fragments {
            Some(Only::Plain) => !packet.is_assembled && !packet.is_fragment(),
            Some(Only::Assembled) => packet.is_assembled,
            None => !(self.needs_whole && packet.is_fragment()),
        });
        direction
            && fragments
            && match self.flow.state {
                Some(State::Established) => facts.established,
                Some(State::NotEstablished) => !facts.established,
                Some(State::Stateless) | None => true,
            }
    }
}

impl Header {
    fn holds(&self, facts: &Facts<'_>) -> bool {
        let protocol = match self.protocol {
            Protocol::Application(wanted) => is_application(facts.application, wanted),
            Protocol::Transport(wanted) => transport_holds(wanted, facts),
        };
        let (from, to) = (facts.source, facts.destination);
        let has_ports = matches!(facts.protocol, protocol::TCP | protocol::UDP);
        let in_ports =
            |ports: &Ports, port: u16| if has_ports { ports.contains(port) } else { ports.is_any() };
        let ways = |a: (IpAddr, u16), b: (IpAddr, u16)| {
            in_ports(&self.destination_ports, b.1)
                && in_ports(&self.source_ports, a.1)
                && self.source.contains(a.0)
                && self.destination.contains(b.0)
        };
        let (a, b) = ((from.addr.ip(), from.port), (to.addr.ip(), to.port));
        protocol && (ways(a, b) || self.direction == Direction::Both && ways(b, a))
    }
}

fn transport_holds(wanted: Transport, facts: &Facts<'_>) -> bool {
    match wanted {
        Transport::Ip => true,
        Transport::Ipv4 => facts.version == 4,
        Transport::Ipv6 => facts.version == 6,
        Transport::Tcp | Transport::TcpPacket | Transport::TcpStream => facts.protocol == protocol::TCP,
        Transport::Udp => facts.protocol == protocol::UDP,
        Transport::Icmp => matches!(facts.protocol, protocol::ICMP | protocol::ICMPV6),
        Transport::Icmpv4 => facts.protocol == protocol::ICMP,
        Transport::Icmpv6 => facts.protocol == protocol::ICMPV6,
        _ => false,
    }
}

fn application_holds(test: &ProtocolTest, facts: &Facts<'_>) -> bool {
    match test {
        ProtocolTest::Is { negated, protocols, .. } => {
            let known = facts.application != Verdict::Unknown;
            let any = protocols.iter().any(|wanted| is_application(facts.application, *wanted));
            if *negated { known && !any } else { any }
        }
        ProtocolTest::DnsOpcode(wanted) => facts.dns.is_some_and(|dns| wanted.holds(dns.opcode)),
        ProtocolTest::DnsRcode(wanted) => {
            facts.dns.and_then(|dns| dns.rcode).is_some_and(|rcode| wanted.holds(rcode))
        }
        ProtocolTest::DnsType(wanted) => {
            facts.dns.is_some_and(|dns| dns.kinds().iter().any(|kind| wanted.holds(*kind)))
        }
        _ => false,
    }
}
