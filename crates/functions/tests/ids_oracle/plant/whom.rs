//! The endpoints of a rule's traffic.

use std::net::{IpAddr, Ipv4Addr};

use signatures::{AddressSet, Application, FlowDirection, PacketTest, PortSet, Rule, RuleProtocol};

use super::conversation::Talker;

/// Hosts at home and elsewhere; most sets contain one.
const HOSTS: [Ipv4Addr; 4] = [
    Ipv4Addr::new(10, 1, 2, 3),
    Ipv4Addr::new(198, 51, 100, 7),
    Ipv4Addr::new(10, 9, 8, 7),
    Ipv4Addr::new(203, 0, 113, 5),
];
/// The first client port.
const CLIENT_PORT: u16 = 40_001;

/// The two endpoints that a rule matches.
pub struct Whom<'a> {
    rule: &'a Rule,
    sender: Talker,
}

impl<'a> Whom<'a> {
    pub fn new(rule: &'a Rule) -> Whom<'a> {
        let sender = match rule.flow.direction {
            Some(FlowDirection::ToClient) => Talker::Server,
            _ => Talker::Client,
        };
        Whom { rule, sender }
    }

    /// Returns the sender of the bytes that the rule inspects.
    pub fn sender(&self) -> Talker {
        self.sender
    }

    /// Returns client and server.
    pub fn ends(&self) -> ((Ipv4Addr, u16), (Ipv4Addr, u16)) {
        let source = host(&self.rule.source, None);
        let same = self.rule.packet.contains(&PacketTest::SameAddress);
        let destination = if same { source } else { host(&self.rule.destination, Some(source)) };
        let (client, server) = match self.sender {
            Talker::Client => (source, destination),
            Talker::Server => (destination, source),
        };
        ((client, self.client_port(0)), (server, self.server_port()))
    }

    /// Returns the client port of the connection with this number.
    pub fn client_port(&self, number: u16) -> u16 {
        let wanted = CLIENT_PORT + number;
        let ports = self.ports(Talker::Client);
        if ports.contains(wanted) { wanted } else { first(ports) }
    }

    /// Returns a port that the rule excludes: the server's if it is tested, otherwise the client's.
    pub fn wrong_port(&self) -> Option<u16> {
        let side = if self.server_is_wrong() { Talker::Server } else { Talker::Client };
        if self.rule.direction == signatures::HeaderDirection::Both {
            return None;
        }
        [7, 31_337, 80, 50_000].into_iter().find(|port| !self.ports(side).contains(*port))
    }

    /// Returns whether the excluded port is the server's.
    pub fn server_is_wrong(&self) -> bool {
        !self.ports(Talker::Server).is_any()
    }

    fn server_port(&self) -> u16 {
        let usual = match self.rule.protocol {
            RuleProtocol::Application(Application::Http) => 80,
            RuleProtocol::Application(Application::Tls) => 443,
            RuleProtocol::Application(Application::Ftp) => 21,
            RuleProtocol::Application(Application::Smtp) => 25,
            RuleProtocol::Application(Application::Ssh) => 22,
            RuleProtocol::Application(Application::Smb) => 445,
            RuleProtocol::Application(Application::Dns) => 53,
            _ => 4_444,
        };
        let ports = self.ports(Talker::Server);
        if ports.contains(usual) { usual } else { first(ports) }
    }

    fn ports(&self, side: Talker) -> &PortSet {
        if side == self.sender { &self.rule.source_ports } else { &self.rule.destination_ports }
    }
}

fn first(ports: &PortSet) -> u16 {
    ports.ranges().first().map_or(1, |(low, high)| if *low == 0 { (*high).min(1) } else { *low })
}

/// Returns a host of a set, preferably another one.
fn host(set: &AddressSet, other: Option<Ipv4Addr>) -> Ipv4Addr {
    let known = HOSTS.into_iter().filter(|host| set.contains(IpAddr::V4(*host)));
    let ranges = set.v4().flat_map(|(low, high)| [low, high]);
    let mut all = known.chain(ranges);
    all.find(|host| Some(*host) != other).or(other).unwrap_or(HOSTS[0])
}
