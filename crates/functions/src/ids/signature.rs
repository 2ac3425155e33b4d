//! A rule compiled for inspection.

use std::net::IpAddr;
use std::sync::Arc;

use applayer::detect::Detection;
use packet::Endpoint;
use packet::parse::protocol;
use signatures::inspect::Inspection;
use signatures::{
    AddressSet, Application, Buffer, Classifications, DetectionFilter, FlowDirection, FlowOptions, FlowState,
    Flowbit, HeaderDirection, LoadedRule, PacketTest, PortSet, ProtocolTest, RateFilter, ReassemblyFilter,
    Rule, RuleAction, RuleProtocol, RuleTransport, Suppress, Threshold, ThresholdEntryKind, Thresholds,
};

use super::facts::{InspectionFacts, is_application};
use super::flowbits::{FlowbitChange, FlowbitNames, FlowbitTest, Flowbits};
use super::ftp;

/// A compiled rule.
pub struct Signature {
    /// Gid, sid and revision.
    pub id: (u32, u32, u32),
    /// The message of its alerts.
    pub message: Arc<str>,
    /// The description of its class.
    pub category: Arc<str>,
    /// Its priority.
    pub severity: u8,
    /// Keys and values for readers of alerts.
    pub metadata: Option<Arc<[(String, String)]>>,
    /// The action.
    pub action: RuleAction,
    /// True if the action applies to the flow even if the rule matches a packet.
    pub on_flow: bool,
    /// True if the rule alerts.
    pub alerts: bool,
    /// Its tests of buffers.
    pub inspection: Inspection,
    /// Its detection filter and threshold.
    pub filter: Option<DetectionFilter>,
    pub threshold: Option<Threshold>,
    /// The alternative action from this rate of matches on.
    pub rate: Option<RateFilter>,
    /// Endpoints without alerts.
    suppressed: Vec<Suppress>,
    header: RuleHeader,
    flow: FlowOptions,
    packet: Vec<PacketTest>,
    application: Vec<ProtocolTest>,
    tests: Vec<FlowbitTest>,
    changes: Vec<FlowbitChange>,
    once: OncePerFlow,
    /// True if it tests a property that fragments lack.
    needs_whole: bool,
}

/// True if a rule without packet tests is inspected only once in each direction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OncePerFlow {
    /// On all packets.
    No,
    /// On the flow's first packet.
    First,
    /// On the first packet since the protocol is known.
    Known,
}

impl OncePerFlow {
    fn of(rule: &Rule) -> OncePerFlow {
        let asks_state =
            rule.flow.state.is_some() || rule.flow.stream.is_some() || rule.flow.fragments.is_some();
        if !rule.buffers.is_empty() || asks_state || !matches!(rule.protocol, RuleProtocol::Transport(_)) {
            return OncePerFlow::No;
        }
        let of_protocol = |test: &ProtocolTest| matches!(test, ProtocolTest::Is { .. });
        let of_address = |test: &PacketTest| matches!(test, PacketTest::IpProtocol(_));
        if !rule.application.is_empty() {
            let only = rule.application.iter().all(of_protocol) && rule.packet.is_empty();
            return if only && rule.flowbits.is_empty() { OncePerFlow::Known } else { OncePerFlow::No };
        }
        let sets = rule.flowbits.iter().all(|bit| matches!(bit, Flowbit::Set(_)));
        let only = rule.packet.iter().all(of_address) && rule.flow.direction.is_none();
        if only && sets { OncePerFlow::First } else { OncePerFlow::No }
    }
}

/// Returns whether a rule is about connections or messages, not packets: its action then applies to
/// the flow.
fn is_about_flow(rule: &Rule, once: OncePerFlow) -> bool {
    let of_message = |one: &signatures::BufferMatches| {
        ["http", "dns", "tls", "ssh", "ja3", "ja4", "file"]
            .iter()
            .any(|name| one.buffer.name().split(['.', '_']).next() == Some(name))
    };
    if !rule.packet.is_empty() && once != OncePerFlow::First {
        return false;
    }
    if rule.buffers.iter().any(of_message) {
        return true;
    }
    let asks_state = rule.flow.state.is_some() || rule.flow.stream.is_some() || rule.flow.fragments.is_some();
    let of_application =
        matches!(rule.protocol, RuleProtocol::Application(_)) || !rule.application.is_empty();
    rule.buffers.is_empty() && !asks_state && (once != OncePerFlow::No || of_application)
}

/// The header of a rule.
struct RuleHeader {
    protocol: RuleProtocol,
    direction: HeaderDirection,
    source: Arc<AddressSet>,
    source_ports: Arc<PortSet>,
    destination: Arc<AddressSet>,
    destination_ports: Arc<PortSet>,
}

impl Signature {
    /// Compiles a rule, and numbers its flowbits.
    pub fn new(
        loaded: &LoadedRule,
        inspection: Inspection,
        classes: &Classifications,
        names: &mut FlowbitNames,
    ) -> Option<Signature> {
        let rule = &loaded.rule;
        let (mut tests, mut changes) = (Vec::new(), Vec::new());
        for bit in &rule.flowbits {
            match bit {
                Flowbit::IsSet(any) => tests.push(FlowbitTest { any: names.of(any)?, set: true }),
                Flowbit::IsNotSet(any) => tests.push(FlowbitTest { any: names.of(any)?, set: false }),
                Flowbit::Set(all) => changes.push(FlowbitChange::Set(names.of(all)?)),
                Flowbit::Unset(all) => changes.push(FlowbitChange::Unset(names.of(all)?)),
                Flowbit::Toggle(all) => changes.push(FlowbitChange::Toggle(names.of(all)?)),
            }
        }
        let once = OncePerFlow::of(rule);
        let of_headers = |one: &signatures::BufferMatches| {
            matches!(one.buffer, Buffer::Ipv4Header | Buffer::Ipv6Header | Buffer::EthernetHeader)
        };
        let asks_flow =
            rule.flow.direction.is_some() || rule.flow.state.is_some() || rule.flow.stream.is_some();
        let of_application =
            matches!(rule.protocol, RuleProtocol::Application(_)) || !rule.application.is_empty();
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
            header: RuleHeader {
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

    /// Returns whether everything but the tests of buffers matches. The last `news` bytes of the
    /// payload are new at this inspection point.
    pub fn applies(
        &self,
        facts: &InspectionFacts<'_>,
        flowbits: &Flowbits,
        (payload, news): (&[u8], usize),
    ) -> bool {
        let is_due = match self.once {
            OncePerFlow::No => true,
            OncePerFlow::First => facts.is_first,
            OncePerFlow::Known => facts.is_first_known,
        };
        is_due
            && self.flow_holds(facts)
            && self.header.holds(facts)
            && self.tests.iter().all(|test| flowbits.holds(test))
            && self.packet.iter().all(|test| facts.holds(test))
            && self.application.iter().all(|test| match test {
                ProtocolTest::FtpBounce => {
                    facts.to_server
                        && is_application(facts.application, Application::Ftp)
                        && ftp::bounces(payload, news, facts.source.addr.ip())
                }
                _ => application_holds(test, facts),
            })
    }

    /// Applies the thresholds of the operator. As in Suricata, an entry for this rule overrides its
    /// own threshold, and an entry for a group does not.
    pub fn limit(&mut self, thresholds: &Thresholds) {
        let (gid, sid, _) = self.id;
        let own = self.threshold.is_some() || self.filter.is_some();
        let mut is_own = own;
        for one in thresholds.iter().filter(|one| one.is_about(gid, sid)) {
            match &one.kind {
                ThresholdEntryKind::Suppress(suppress) => self.suppressed.push(suppress.clone()),
                ThresholdEntryKind::Threshold(threshold) if one.is_of_one() || !is_own => {
                    (self.threshold, self.filter) = (Some(*threshold), None);
                    is_own |= one.is_of_one();
                }
                ThresholdEntryKind::Rate(rate) if !own => self.rate = Some(*rate),
                _ => {}
            }
        }
    }

    /// Returns whether alerts between these endpoints are suppressed.
    pub fn is_suppressed(&self, (source, destination): (Endpoint, Endpoint)) -> bool {
        let (source, destination) = (source.addr.ip(), destination.addr.ip());
        self.suppressed.iter().any(|suppress| suppress.holds(source, destination))
    }

    /// Returns whether the rule counts its matches.
    pub fn counts(&self) -> bool {
        self.threshold.is_some() || self.filter.is_some() || self.rate.is_some()
    }

    /// Changes the flow's flowbits as the rule says.
    pub fn change(&self, flowbits: &mut Flowbits) {
        self.changes.iter().for_each(|change| flowbits.change(change));
    }

    fn flow_holds(&self, facts: &InspectionFacts<'_>) -> bool {
        let direction = match self.flow.direction {
            Some(FlowDirection::ToServer) => facts.to_server,
            Some(FlowDirection::ToClient) => !facts.to_server,
            None => true,
        };
        let fragments = facts.packet.is_none_or(|packet| match self.flow.fragments {
            Some(ReassemblyFilter::Plain) => !packet.is_assembled && !packet.is_fragment(),
            Some(ReassemblyFilter::Assembled) => packet.is_assembled,
            None => !(self.needs_whole && packet.is_fragment()),
        });
        direction
            && fragments
            && match self.flow.state {
                Some(FlowState::Established) => facts.established,
                Some(FlowState::NotEstablished) => !facts.established,
                Some(FlowState::Stateless) | None => true,
            }
    }
}

impl RuleHeader {
    fn holds(&self, facts: &InspectionFacts<'_>) -> bool {
        let protocol = match self.protocol {
            RuleProtocol::Application(wanted) => is_application(facts.application, wanted),
            RuleProtocol::Transport(wanted) => transport_holds(wanted, facts),
        };
        let (from, to) = (facts.source, facts.destination);
        let has_ports = matches!(facts.protocol, protocol::TCP | protocol::UDP);
        let in_ports =
            |ports: &PortSet, port: u16| if has_ports { ports.contains(port) } else { ports.is_any() };
        let ways = |a: (IpAddr, u16), b: (IpAddr, u16)| {
            in_ports(&self.destination_ports, b.1)
                && in_ports(&self.source_ports, a.1)
                && self.source.contains(a.0)
                && self.destination.contains(b.0)
        };
        let (a, b) = ((from.addr.ip(), from.port), (to.addr.ip(), to.port));
        protocol && (ways(a, b) || self.direction == HeaderDirection::Both && ways(b, a))
    }
}

fn transport_holds(wanted: RuleTransport, facts: &InspectionFacts<'_>) -> bool {
    match wanted {
        RuleTransport::Ip => true,
        RuleTransport::Ipv4 => facts.version == 4,
        RuleTransport::Ipv6 => facts.version == 6,
        RuleTransport::Tcp | RuleTransport::TcpPacket | RuleTransport::TcpStream => {
            facts.protocol == protocol::TCP
        }
        RuleTransport::Udp => facts.protocol == protocol::UDP,
        RuleTransport::Icmp => matches!(facts.protocol, protocol::ICMP | protocol::ICMPV6),
        RuleTransport::Icmpv4 => facts.protocol == protocol::ICMP,
        RuleTransport::Icmpv6 => facts.protocol == protocol::ICMPV6,
        _ => false,
    }
}

fn application_holds(test: &ProtocolTest, facts: &InspectionFacts<'_>) -> bool {
    match test {
        ProtocolTest::Is { negated, protocols, .. } => {
            let known = facts.application != Detection::Unknown;
            let any = protocols.iter().any(|wanted| is_application(facts.application, *wanted));
            if *negated { known && !any } else { any }
        }
        ProtocolTest::SslState { states, .. } => {
            facts.hello.is_some_and(|hello| states.contains(&hello.state))
        }
        ProtocolTest::SslVersion { negated, versions } => {
            facts.hello.is_some_and(|hello| versions.iter().any(|version| hello.is_of(*version)) != *negated)
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
