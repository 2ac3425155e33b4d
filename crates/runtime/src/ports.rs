//! The ports of a graph: a packet's ingress and egress port.

use std::collections::BTreeSet;
use std::fmt::{Display, Formatter};
use std::marker::PhantomData;
use std::net::IpAddr;
use std::str::FromStr;

use graph::PortPlace;
use l3::{AddressRole, InterfaceAddress, ROUTES_MAX, StaticRoute};
use nf::LinkAddresses;
use packet::{Addr, Packet, PacketClass, Side, TENANT_MAX, parse};
use policy::{Diagnostic, Prefix, Span, Value, ValueKind};
use serde::{Deserialize, Deserializer};

/// The configuration of a port in a policy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PortConfig {
    /// Source prefixes of this port. They assign the packets of a capture to ports.
    #[serde(deserialize_with = "one_or_many")]
    pub prefixes: Vec<Prefix>,
    /// Addresses of the port on its link, each with its network's prefix length. A port with
    /// addresses is a router's; one without is a wire's.
    #[serde(deserialize_with = "one_or_many")]
    pub address: Vec<InterfaceAddress>,
    /// Next hops of destinations that are not on the link.
    pub routes: Vec<RouteConfig>,
    /// Next hops of all others, one per IP version.
    #[serde(deserialize_with = "one_or_many")]
    pub gateway: Vec<IpAddr>,
    /// The tenant that flows which enter here are of. Flows of different tenants may have the same
    /// addresses and ports.
    pub tenant: u16,
}

/// A static route of a port in a policy.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Destinations.
    #[serde(deserialize_with = "parsed")]
    pub to: Prefix,
    /// Next hop.
    pub via: IpAddr,
}

impl RouteConfig {
    /// Returns the route.
    pub(crate) fn route(&self) -> Option<StaticRoute> {
        StaticRoute::new(self.to.address(), self.to.length(), self.via)
    }
}

impl PortConfig {
    /// Returns the errors of the configuration, which was read from this value.
    pub(crate) fn faults(&self, value: &Value) -> Vec<Diagnostic> {
        let mut faults = Vec::new();
        for (at, network) in self.address.iter().enumerate() {
            let address = network.address.ip();
            let fault = match network.role() {
                AddressRole::Host
                    if self.address[..at].iter().any(|other| other.address == network.address) =>
                {
                    format!("the port has the address {address} twice")
                }
                AddressRole::Host => continue,
                AddressRole::Network => {
                    format!("{address} is the address of the network itself, not of a host")
                }
                AddressRole::Broadcast => format!("{address} is the broadcast address of its network"),
            };
            faults.push(Diagnostic::error(fault, item_span(value, "address", at)));
        }
        if self.tenant > TENANT_MAX {
            let fault = format!("`tenant` is at most {TENANT_MAX}, not {}", self.tenant);
            faults.push(Diagnostic::error(fault, value.get("tenant").unwrap_or(value).span));
        }
        faults.extend(self.route_faults(value));
        for (at, &gateway) in self.gateway.iter().enumerate() {
            let fault = if let Some(fault) = self.hop_fault("gateway", gateway) {
                fault
            } else if self.gateway[..at].iter().any(|other| other.is_ipv4() == gateway.is_ipv4()) {
                format!("there is a gateway of the same IP version as {gateway} already")
            } else {
                continue;
            };
            faults.push(Diagnostic::error(fault, item_span(value, "gateway", at)));
        }
        faults
    }

    fn route_faults(&self, value: &Value) -> Vec<Diagnostic> {
        if self.routes.len() > ROUTES_MAX {
            let fault = format!("a port has at most {ROUTES_MAX} routes, not {}", self.routes.len());
            return vec![Diagnostic::error(fault, value.get("routes").unwrap_or(value).span)];
        }
        let mut faults = Vec::new();
        let mut known = BTreeSet::new();
        for (at, RouteConfig { to, via }) in self.routes.iter().enumerate() {
            let is_own = |network: &InterfaceAddress| network.network() == (to.address(), to.length());
            let (key, fault) = if to.network() != *to {
                ("to", format!("{to} has bits set after its length; the prefix is {}", to.network()))
            } else if self.address.iter().any(is_own) {
                ("to", format!("{to} is the port's own network"))
            } else if !known.insert((to.address(), to.length())) {
                ("to", format!("there is a route to {to} already"))
            } else if to.length() == 0
                && self.gateway.iter().any(|gateway| gateway.is_ipv4() == via.is_ipv4())
            {
                ("to", format!("`gateway` is the route to {to} already"))
            } else if to.address().is_ipv4() != via.is_ipv4() {
                ("via", format!("{via} and {to} are of different IP versions"))
            } else if let Some(fault) = self.hop_fault("next hop", *via) {
                ("via", fault)
            } else {
                continue;
            };
            let route = item(value, "routes", at);
            let span = route.and_then(|route| route.get(key)).or(route).unwrap_or(value).span;
            faults.push(Diagnostic::error(fault, span));
        }
        faults
    }

    /// Returns the error of a next hop, which messages call by this noun.
    fn hop_fault(&self, noun: &str, hop: IpAddr) -> Option<String> {
        let network = self.address.iter().find(|network| network.contains(hop.into()));
        let has_v6 = self.address.iter().any(|network| !network.address.is_v4());
        let is_link_local = matches!(hop, IpAddr::V6(v6) if v6.is_unicast_link_local()) && has_v6;
        if self.address.iter().any(|network| network.address.ip() == hop) {
            Some(format!("the {noun} {hop} is the port's own address"))
        } else if network.is_some_and(|network| network.is_broadcast(hop.into())) {
            Some(format!("the {noun} {hop} is no host's address in its network"))
        } else if network.is_none() && !is_link_local {
            Some(format!("the {noun} {hop} is in no network of the port's `address`"))
        } else {
            None
        }
    }
}

/// Returns the position of an item of a list, or of the single value, that a key has.
pub(crate) fn item_span(config: &Value, key: &str, at: usize) -> Span {
    item(config, key, at).or(config.get(key)).unwrap_or(config).span
}

/// Returns an item of a list, or the single value, that a key has.
fn item<'a>(config: &'a Value, key: &str, at: usize) -> Option<&'a Value> {
    let value = config.get(key)?;
    match &value.kind {
        ValueKind::List(items) => items.get(at),
        _ => Some(value),
    }
}

/// Reads one value, or a list of them.
pub(crate) fn one_or_many<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: FromStr<Err: Display>,
{
    struct OneOrMany<T>(PhantomData<T>);
    impl<'de, T: FromStr<Err: Display>> serde::de::Visitor<'de> for OneOrMany<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
            f.write_str("a text or a list of them")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            Ok(vec![text.parse().map_err(E::custom)?])
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut values = Vec::new();
            while let Some(Parsed(value)) = list.next_element()? {
                values.push(value);
            }
            Ok(values)
        }
    }
    deserializer.deserialize_any(OneOrMany(PhantomData))
}

/// Reads a value from its text.
fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<T, D::Error> {
    Parsed::deserialize(deserializer).map(|Parsed(value)| value)
}

/// A value that is parsed where it stands, so that an error has its position.
struct Parsed<T>(T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Parsed).map_err(serde::de::Error::custom)
    }
}

/// A port of a graph: a number with a name in the policy.
#[derive(Clone, Debug)]
pub struct PortEntry {
    /// Number.
    pub number: u16,
    /// The policy's name for it, followed by its number if several ports have the name.
    pub name: String,
    /// The number of the first of the ports with the same name in the policy.
    pub first: u16,
    /// The side of packets that enter here; none if they may take edges of both directions.
    pub side: Option<Side>,
    /// Its source prefixes.
    pub prefixes: Vec<Prefix>,
    /// Its addresses on its link; empty for a wire's port.
    pub networks: Vec<InterfaceAddress>,
    /// Next hops of further destinations.
    pub routes: Vec<StaticRoute>,
    /// Next hops of all others.
    pub gateways: Vec<IpAddr>,
    /// The tenant and the segment of packets that enter here, see [`packet::FlowKey::place`].
    pub place: u16,
    /// It belongs to an external node.
    pub is_of_node: bool,
}

impl PortEntry {
    /// Returns the segment of packets that enter here, see [`packet::FlowKey::segment`].
    pub fn segment(&self) -> u16 {
        self.place >> TENANT_MAX.count_ones()
    }

    /// Returns false if the networks at this port and another one are known and have nothing in
    /// common.
    pub(crate) fn may_overlap(&self, other: &PortEntry) -> bool {
        let bounds = |port: &PortEntry| -> Vec<(IpAddr, IpAddr)> {
            let networks = port.networks.iter().filter_map(|network| {
                let (first, length) = network.network();
                Prefix::new(first, length)
            });
            let prefixes = port.prefixes.iter().copied().chain(networks);
            prefixes.map(|prefix| prefix.bounds()).collect()
        };
        let (own, others) = (bounds(self), bounds(other));
        let meets = |one: &(IpAddr, IpAddr)| others.iter().any(|other| one.0 <= other.1 && other.0 <= one.1);
        own.is_empty() || others.is_empty() || own.iter().any(meets)
    }

    /// Returns true if a router's port has a next hop for a destination that is not on its link.
    fn leads_to(&self, destination: Addr) -> bool {
        self.routes.iter().any(|route| route.contains(destination))
            || self.gateways.iter().any(|gateway| gateway.is_ipv4() == destination.is_v4())
    }
}

/// The ports of a graph.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    ports: Vec<PortEntry>,
    /// Ports differ by source prefixes.
    has_prefixes: bool,
    /// The graph has branches: it says which port a packet leaves by, or of several with one name,
    /// the first one.
    by_graph: bool,
}

impl Ports {
    /// Creates a list of ports in order of their numbers.
    pub fn new(mut ports: Vec<PortEntry>) -> Ports {
        ports.sort_by_key(|port| port.number);
        let has_prefixes = ports.iter().any(|port| !port.prefixes.is_empty());
        Ports { ports, has_prefixes, by_graph: false }
    }

    /// Adds ports to programs, by number and name. No packets enter or leave there.
    #[must_use]
    pub fn with_programs(mut self, programs: impl Iterator<Item = (u16, String)>) -> Ports {
        self.ports.extend(programs.map(|(number, name)| PortEntry {
            number,
            name,
            first: number,
            side: None,
            prefixes: Vec::new(),
            networks: Vec::new(),
            routes: Vec::new(),
            gateways: Vec::new(),
            place: 0,
            is_of_node: true,
        }));
        self
    }

    /// Sets that the graph has branches, and chooses a packet's egress port.
    #[must_use]
    pub fn chosen_by_graph(self) -> Ports {
        Ports { by_graph: true, ..self }
    }

    /// Returns what the ports' addresses, routes and gateways say about their links.
    pub(crate) fn links(&self) -> LinkAddresses {
        if self.ports.iter().all(|port| port.networks.is_empty()) {
            return LinkAddresses::unknown();
        }
        let mut links = LinkAddresses::default();
        for port in &self.ports {
            let name = &port.name;
            for network in &port.networks {
                let (first, last) = network.bounds();
                links.add_network(first, last);
                for address in network.broadcasts() {
                    let role = if address == first { "network" } else { "broadcast" };
                    links.add_taken(address, format!("the {role} address at `{name}`"));
                }
            }
            for &gateway in &port.gateways {
                links.add_taken(gateway.into(), format!("the gateway of `{name}`"));
            }
            for route in &port.routes {
                links.add_taken(route.next_hop(), format!("a next hop of `{name}`"));
            }
        }
        links
    }

    /// Returns the place of each port, for the keys of flows; none if all ports have the same.
    pub(crate) fn places(&self) -> Vec<PortPlace> {
        let place = |port: &PortEntry| {
            let PortEntry { number, side, place, is_of_node, .. } = *port;
            PortPlace { port: number, side, place, is_of_node }
        };
        let places: Vec<PortPlace> = self.ports.iter().map(place).collect();
        if places.iter().all(|place| place.place == 0) { Vec::new() } else { places }
    }

    /// Returns all ports in order of their numbers.
    pub fn all(&self) -> &[PortEntry] {
        &self.ports
    }

    /// Returns the port with this number.
    pub fn number(&self, number: u16) -> Option<&PortEntry> {
        self.ports.iter().find(|port| port.number == number)
    }

    /// Returns the port with this name or number.
    pub fn named(&self, name: &str) -> Option<&PortEntry> {
        self.ports
            .iter()
            .find(|port| port.name == name || name.parse() == Ok(port.number))
            .or_else(|| self.ports.iter().find(|port| port.name.split('#').next() == Some(name)))
    }

    /// Returns the ingress port of a captured packet: the port with the longest prefix of its
    /// source; else the port with the number of the capture's interface, if it has no prefixes;
    /// else the first port without prefixes. It is none of an external node's.
    pub fn of_captured(&self, interface: u32, source: Option<Addr>) -> Option<&PortEntry> {
        let number = u16::try_from(interface).ok();
        if let Some(port) = source.and_then(|source| self.by_prefix(source, number, |_| true)) {
            return Some(port);
        }
        let ports = || self.ports.iter().filter(|port| !port.is_of_node);
        let by_number = ports().find(|port| Some(port.number) == number);
        match by_number {
            Some(port) if port.prefixes.is_empty() => Some(port),
            _ => ports().find(|port| port.prefixes.is_empty()).or(by_number).or(self.ports.first()),
        }
    }

    /// Returns true if [`Ports::of_captured`] needs a packet's source.
    pub fn ask_for_source(&self) -> bool {
        self.has_prefixes
    }

    /// Returns a packet's egress port. Of several with the name at the end of its path, the first
    /// of these:
    ///
    /// 1. a router's port with the destination in its network;
    /// 2. the ingress port of the flow's other direction; in a graph with branches, after the next
    ///    two;
    /// 3. the port with the longest prefix of the destination;
    /// 4. a router's port with a route to the destination, or a gateway;
    /// 5. its ingress port, if it was turned back;
    /// 6. the port opposite its ingress port.
    pub fn egress(&self, packet: &Packet) -> u16 {
        let transit = &packet.meta().transit;
        let Some(end) = self.end(packet) else { return transit.ingress };
        let mut here = self.at(end);
        match (here.next(), here.next()) {
            (None, _) => transit.ingress,
            (Some(only), None) => only.number,
            _ => self.chosen(packet, end).unwrap_or_else(|| self.opposite(transit.ingress, end)),
        }
    }

    /// Returns the end of a packet's path.
    fn end(&self, packet: &Packet) -> Option<End> {
        let transit = &packet.meta().transit;
        match self.by_graph {
            true => self.number(transit.egress).map(|port| End::Named(port.first)),
            false => Some(End::Side(transit.side)),
        }
    }

    /// Chooses one of the ports at the end of a packet's path by its addresses and its flow.
    fn chosen(&self, packet: &Packet, end: End) -> Option<u16> {
        let meta = packet.meta();
        let destination = (meta.class != PacketClass::NotIp).then(|| parse::ends(packet).1.addr);
        let by_network = destination.and_then(|address| {
            let networks = self.at(end).flat_map(|port| port.networks.iter().map(move |of| (of, port)));
            networks
                .filter(|(network, _)| network.contains(address))
                .max_by_key(|(network, _)| network.prefix_len())
        });
        if let Some((_, port)) = by_network {
            return Some(port.number);
        }
        let of_flow = self.number(meta.transit.egress).filter(|port| end.has(port)).map(|port| port.number);
        if !self.by_graph && of_flow.is_some() {
            return of_flow;
        }
        let by_prefix =
            destination.and_then(|address| self.by_prefix(address, of_flow, |port| end.has(port)));
        let by_route = || self.at(end).find(|port| destination.is_some_and(|to| port.leads_to(to)));
        // It was turned back, and its destination is unknown.
        let back = || self.number(meta.transit.ingress).filter(|port| end.has(port));
        let by_address = by_prefix.or_else(by_route).map(|port| port.number);
        by_address.or(of_flow).or_else(|| back().map(|port| port.number))
    }

    /// Returns the port with the longest prefix of the address; of several with that prefix, such
    /// as those of one name, the preferred one if it is among them, else the first.
    fn by_prefix(
        &self,
        address: Addr,
        preferred: Option<u16>,
        of: impl Fn(&PortEntry) -> bool,
    ) -> Option<&PortEntry> {
        let ports = self.ports.iter().rev().filter(|port| of(port));
        let held = ports.flat_map(|port| port.prefixes.iter().map(move |prefix| (prefix, port)));
        let held = held.filter(|(prefix, _)| prefix.contains(address.ip()));
        // The last of equal ones, which is the first port.
        let best = held.max_by_key(|(prefix, port)| (prefix.length(), preferred == Some(port.number)));
        best.map(|(_, port)| port)
    }

    /// Returns the port at this end that has the place of the ingress among those of its name.
    fn opposite(&self, ingress: u16, end: End) -> u16 {
        let place = match end {
            End::Side(side) => self.on(side.other()).position(|port| port.number == ingress),
            End::Named(_) => self.number(ingress).map(|port| usize::from(port.number - port.first)),
        };
        let place = place.unwrap_or(0);
        let count = self.at(end).count().max(1);
        self.at(end).nth(place % count).map_or(ingress, |port| port.number)
    }

    /// Returns whether a side has several ports.
    pub(crate) fn has_choice(&self) -> bool {
        !self.by_graph && SIDES.into_iter().any(|side| self.on(side).count() > 1)
    }

    /// Returns a warning if only their order distinguishes ports, and the sides have different
    /// numbers of ports.
    pub(crate) fn warning(&self) -> Option<String> {
        if self.by_graph {
            return None;
        }
        let count = |side| self.on(side).count();
        let is_distinct = |port: &PortEntry| !port.prefixes.is_empty() || !port.networks.is_empty();
        let by_position = |side: Side| self.on(side).filter(|port| !is_distinct(port)).count() > 1;
        let side = SIDES.into_iter().find(|&side| count(side) > 1 && by_position(side))?;
        (count(Side::Inside) != count(Side::Outside)).then(|| {
            let names: Vec<_> = self.on(side).map(|port| port.name.as_str()).collect();
            let first = self.on(side).next().map_or("", |port| port.name.as_str());
            format!(
                "packets that begin flows towards {} leave by {first} if no prefix has their destination, and so do frames \
                 that are not IP: give these ports `prefixes`, or `address` for a router",
                names.join(", ")
            )
        })
    }

    fn on(&self, side: Side) -> impl Iterator<Item = &PortEntry> {
        self.at(End::Side(side))
    }

    fn at(&self, end: End) -> impl Iterator<Item = &PortEntry> {
        self.ports.iter().filter(move |port| end.has(port))
    }
}

const SIDES: [Side; 2] = [Side::Inside, Side::Outside];

/// The end of a path.
#[derive(Clone, Copy)]
enum End {
    /// All ports of a side of a line.
    Side(Side),
    /// The ports with the name of this one.
    Named(u16),
}

impl End {
    fn has(self, port: &PortEntry) -> bool {
        match self {
            End::Side(side) => port.side == Some(side),
            End::Named(first) => port.first == first,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(number: u16, side: Side, prefixes: &[&str]) -> PortEntry {
        let prefixes = prefixes.iter().map(|p| p.parse().unwrap()).collect();
        let name = format!("p{number}");
        let (first, side) = (number, Some(side));
        let (networks, routes, gateways) = (Vec::new(), Vec::new(), Vec::new());
        let (place, is_of_node) = (0, false);
        PortEntry { number, name, first, side, prefixes, networks, routes, gateways, place, is_of_node }
    }

    fn addr(text: &str) -> Option<Addr> {
        Some(text.parse::<IpAddr>().unwrap().into())
    }

    #[test]
    fn source_prefix_overrides_the_interface() {
        let ports = Ports::new(vec![
            port(0, Side::Inside, &["10.0.0.0/8", "2001:db8::/32"]),
            port(1, Side::Outside, &[]),
        ]);
        assert_eq!(ports.of_captured(0, addr("10.1.2.3")).unwrap().number, 0);
        assert_eq!(ports.of_captured(0, addr("9.9.9.9")).unwrap().number, 1);
        assert_eq!(ports.of_captured(7, addr("2001:db8::1")).unwrap().number, 0);
        assert_eq!(ports.of_captured(0, None).unwrap().number, 1);
        // Packets without a prefix never enter at a program's port.
        let of_node = |number| PortEntry { is_of_node: true, ..port(number, Side::Outside, &[]) };
        let ports = Ports::new(vec![port(0, Side::Inside, &["10.0.0.0/8"]), of_node(1), of_node(2)]);
        for (interface, source) in [(0, "9.9.9.9"), (1, "9.9.9.9"), (2, "10.0.0.1"), (7, "9.9.9.9")] {
            assert_eq!(ports.of_captured(interface, addr(source)).unwrap().number, 0);
        }
        let plain = Ports::new(vec![port(0, Side::Inside, &[]), port(1, Side::Outside, &[])]);
        assert_eq!(plain.of_captured(1, addr("10.1.2.3")).unwrap().number, 1);
        assert_eq!(plain.of_captured(9, addr("10.1.2.3")).unwrap().number, 0);
    }

    /// Ports of one name have the same prefixes, which therefore choose none of them.
    #[test]
    fn equal_prefixes_leave_the_choice_to_others() {
        let inside = |i| PortEntry { first: 0, ..port(i, Side::Inside, &["10.0.0.0/8"]) };
        let ports = Ports::new(vec![inside(0), inside(1), inside(2), port(3, Side::Outside, &[])]);
        assert_eq!(ports.of_captured(1, addr("10.1.2.3")).unwrap().number, 1);
        assert_eq!(ports.of_captured(9, addr("10.1.2.3")).unwrap().number, 0);

        let mut reply = Packet::from_bytes(&[
            0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 10, 1, 2, 3, 0, 53, 0, 99, 0, 8, 0, 0,
        ]);
        reply.meta_mut().link = packet::LinkType::RawIp;
        packet::Parser::new(packet::FlowHasher::new(1)).parse(&mut reply).unwrap();
        let transit = &mut reply.meta_mut().transit;
        (transit.ingress, transit.egress, transit.side) = (3, 1, Side::Inside);
        assert_eq!(ports.egress(&reply), 1);
        assert_eq!(ports.chosen_by_graph().egress(&reply), 1);
    }

    #[test]
    fn packets_leave_by_the_opposite_port() {
        let sides = [Side::Inside, Side::Inside, Side::Outside, Side::Outside];
        // Two names, with two ports each.
        let of_pair = |i: u16| PortEntry { first: i / 2 * 2, ..port(i, sides[i as usize], &[]) };
        let ports = Ports::new((0..4).map(of_pair).collect());
        let mut packet = Packet::from_bytes(&[0; 60]);
        packet.meta_mut().transit.ingress = 1;
        packet.meta_mut().transit.side = Side::Outside;
        assert_eq!(ports.egress(&packet), 3);
        packet.meta_mut().transit.side = Side::Inside;
        assert_eq!(ports.egress(&packet), 1);
    }
}
