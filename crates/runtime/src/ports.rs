//! Ports: which one a packet comes in by, and which it leaves by.

use std::fmt::{Display, Formatter};
use std::marker::PhantomData;
use std::net::IpAddr;
use std::str::FromStr;

use l3::InterfaceAddress;
use packet::{Addr, Packet, PacketClass, Side, parse};
use serde::{Deserialize, Deserializer};

/// The configuration of a port in a policy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PortConfig {
    /// Source prefixes that are behind this port: they tell a capture of one interface apart into
    /// ports.
    #[serde(deserialize_with = "one_or_many")]
    pub prefixes: Vec<Prefix>,
    /// Addresses that the port has on its link, each with its network's prefix: it is a router's
    /// port then, and no wire's.
    #[serde(deserialize_with = "one_or_many")]
    pub address: Vec<InterfaceAddress>,
    /// Next hops for what is not on the link, one of each IP version.
    #[serde(deserialize_with = "one_or_many")]
    pub gateway: Vec<IpAddr>,
}

impl PortConfig {
    /// What in it makes no sense.
    pub(crate) fn fault(&self) -> Option<String> {
        for (at, &gateway) in self.gateway.iter().enumerate() {
            if !self.address.iter().any(|network| network.contains(gateway.into())) {
                return Some(format!("the gateway {gateway} is in no network of the port's `address`"));
            }
            if self.gateway[..at].iter().any(|other| other.is_ipv4() == gateway.is_ipv4()) {
                return Some(format!("there is a gateway of the same IP version as {gateway} already"));
            }
        }
        None
    }
}

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    network: Addr,
    /// Of 128 bits: an IPv4 prefix counts its mapped part.
    length: u8,
}

/// The text is not a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an address prefix such as 10.0.0.0/8 or 2001:db8::/32, found `{0}`")]
pub struct NotAPrefix(String);

impl FromStr for Prefix {
    type Err = NotAPrefix;

    fn from_str(text: &str) -> Result<Prefix, NotAPrefix> {
        let wrong = || NotAPrefix(text.to_owned());
        let (address, length) = text.split_once('/').unwrap_or((text, ""));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let length: u8 = if length.is_empty() { bits } else { length.parse().map_err(|_| wrong())? };
        if length > bits {
            return Err(wrong());
        }
        Ok(Prefix { network: address.into(), length: length + (128 - bits) })
    }
}

/// One value, or a list of them.
fn one_or_many<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: FromStr<Err: Display>,
{
    struct OneOrMany<T>(PhantomData<T>);
    impl<'de, T: FromStr<Err: Display>> serde::de::Visitor<'de> for OneOrMany<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
            f.write_str("an address or a list of them")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            Ok(vec![text.parse().map_err(E::custom)?])
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut values = Vec::new();
            while let Some(text) = list.next_element::<String>()? {
                values.push(text.parse().map_err(serde::de::Error::custom)?);
            }
            Ok(values)
        }
    }
    deserializer.deserialize_any(OneOrMany(PhantomData))
}

impl Prefix {
    /// Whether the address is in it.
    pub fn contains(&self, address: Addr) -> bool {
        let differ = address.to_u128() ^ self.network.to_u128();
        self.length == 0 || differ >> (128 - u32::from(self.length)) == 0
    }
}

/// A port of the graph: one of the numbers that the policy gives a name.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its number.
    pub number: u16,
    /// The policy's name for it, with its number if several share the name.
    pub name: String,
    /// The end of the graph that it is at.
    pub side: Side,
    /// Source prefixes behind it.
    pub prefixes: Vec<Prefix>,
    /// Its own addresses on its link; none: it is a wire's port.
    pub networks: Vec<InterfaceAddress>,
    /// Its next hops.
    pub gateways: Vec<IpAddr>,
}

/// The ports of a graph.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    ports: Vec<Port>,
}

impl Ports {
    /// These ports, in order of their numbers.
    pub fn new(mut ports: Vec<Port>) -> Ports {
        ports.sort_by_key(|port| port.number);
        Ports { ports }
    }

    /// All of them, in order of their numbers.
    pub fn all(&self) -> &[Port] {
        &self.ports
    }

    /// The port with this number.
    pub fn number(&self, number: u16) -> Option<&Port> {
        self.ports.iter().find(|port| port.number == number)
    }

    /// The port with this name or number.
    pub fn named(&self, name: &str) -> Option<&Port> {
        self.ports
            .iter()
            .find(|port| port.name == name || name.parse() == Ok(port.number))
            .or_else(|| self.ports.iter().find(|port| port.name.split('#').next() == Some(name)))
    }

    /// The port that a packet of a capture came in by: the one with the longest prefix that holds
    /// its source, else the one whose number is the capture's interface, if it claims no prefixes
    /// of its own; else the first such port.
    pub fn of_captured(&self, interface: u32, source: Option<Addr>) -> Option<&Port> {
        if let Some(port) = source.and_then(|source| self.by_prefix(source, |_| true)) {
            return Some(port);
        }
        let by_number = u16::try_from(interface).ok().and_then(|number| self.number(number));
        let prefixed = self.ports.iter().any(|port| !port.prefixes.is_empty());
        match by_number {
            Some(port) if port.prefixes.is_empty() || !prefixed => Some(port),
            _ => self.ports.iter().find(|port| port.prefixes.is_empty()).or(by_number).or(self.ports.first()),
        }
    }

    /// The port that a packet leaves by. Of several on its side: of a router's, the one whose
    /// network its destination is in; the one that packets of its flow's other direction came in
    /// by; the one whose prefixes hold its destination; a router's with a gateway; if it was turned
    /// back, the one that it came in by, else the one that stands opposite that.
    pub fn egress(&self, packet: &Packet) -> u16 {
        let transit = &packet.meta().transit;
        let (side, ingress) = (transit.side, transit.ingress);
        let mut here = self.on(side);
        match (here.next(), here.next()) {
            (None, _) => ingress,
            (Some(only), None) => only.number,
            _ => self.chosen(packet).unwrap_or_else(|| self.opposite(ingress, side)),
        }
    }

    /// Of several ports on the packet's side, the one that its addresses or its flow say.
    fn chosen(&self, packet: &Packet) -> Option<u16> {
        let (meta, side) = (packet.meta(), packet.meta().transit.side);
        let destination = (meta.class != PacketClass::NotIp).then(|| parse::ends(packet).1.addr);
        let by_network = destination.and_then(|address| {
            let networks = self.on(side).flat_map(|port| port.networks.iter().map(move |of| (of, port)));
            networks
                .filter(|(network, _)| network.contains(address))
                .max_by_key(|(network, _)| network.prefix_len())
        });
        if let Some((_, port)) = by_network {
            return Some(port.number);
        }
        let is_here = |number: u16| self.number(number).is_some_and(|port| port.side == side);
        if is_here(meta.transit.egress) {
            return Some(meta.transit.egress);
        }
        let by_prefix = destination.and_then(|address| self.by_prefix(address, |port| port.side == side));
        let with_gateway = || {
            let is_of_version =
                |gateway: &IpAddr| destination.is_some_and(|to| to.is_v4() == gateway.is_ipv4());
            self.on(side).find(|port| port.gateways.iter().any(is_of_version))
        };
        // One that was turned back, and goes to nobody who is known.
        let back = || self.number(meta.transit.ingress).filter(|port| port.side == side);
        by_prefix.or_else(with_gateway).or_else(back).map(|port| port.number)
    }

    /// Of these ports, the one with the longest prefix that holds the address.
    fn by_prefix(&self, address: Addr, of: impl Fn(&Port) -> bool) -> Option<&Port> {
        let ports = self.ports.iter().filter(|port| of(port));
        let held = ports.flat_map(|port| port.prefixes.iter().map(move |prefix| (prefix, port)));
        let held = held.filter(|(prefix, _)| prefix.contains(address));
        held.max_by_key(|(prefix, _)| prefix.length).map(|(_, port)| port)
    }

    /// The port on this side that stands opposite another one.
    fn opposite(&self, ingress: u16, side: Side) -> u16 {
        let place = self.on(side.other()).position(|port| port.number == ingress).unwrap_or(0);
        let count = self.on(side).count().max(1);
        self.on(side).nth(place % count).map_or(ingress, |port| port.number)
    }

    /// Whether there are several ports on a side.
    pub(crate) fn has_choice(&self) -> bool {
        [Side::Inside, Side::Outside].into_iter().any(|side| self.on(side).count() > 1)
    }

    /// What is to be said of ports that only their position tells apart, if the sides do not have
    /// as many.
    pub(crate) fn warning(&self) -> Option<String> {
        let count = |side| self.on(side).count();
        let is_told_apart = |port: &Port| !port.prefixes.is_empty() || !port.networks.is_empty();
        let by_position = |side: Side| self.on(side).filter(|port| !is_told_apart(port)).count() > 1;
        let side =
            [Side::Inside, Side::Outside].into_iter().find(|&side| count(side) > 1 && by_position(side))?;
        (count(Side::Inside) != count(Side::Outside)).then(|| {
            let names: Vec<_> = self.on(side).map(|port| port.name.as_str()).collect();
            let first = self.on(side).next().map_or("", |port| port.name.as_str());
            format!(
                "answers leave by the port that their flow came in by; but packets that begin flows towards {}, and frames \
                 that are not IP, leave by {first} if it cannot be told where their destination is: give these ports `prefixes`, \
                 or `address` for a router",
                names.join(", ")
            )
        })
    }

    fn on(&self, side: Side) -> impl Iterator<Item = &Port> {
        self.ports.iter().filter(move |port| port.side == side)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(number: u16, side: Side, prefixes: &[&str]) -> Port {
        let prefixes = prefixes.iter().map(|p| p.parse().unwrap()).collect();
        let name = format!("p{number}");
        Port { number, name, side, prefixes, networks: Vec::new(), gateways: Vec::new() }
    }

    fn addr(text: &str) -> Option<Addr> {
        Some(text.parse::<IpAddr>().unwrap().into())
    }

    #[test]
    fn a_source_prefix_decides_before_the_interface() {
        let ports = Ports::new(vec![
            port(0, Side::Inside, &["10.0.0.0/8", "2001:db8::/32"]),
            port(1, Side::Outside, &[]),
        ]);
        assert_eq!(ports.of_captured(0, addr("10.1.2.3")).unwrap().number, 0);
        assert_eq!(ports.of_captured(0, addr("9.9.9.9")).unwrap().number, 1);
        assert_eq!(ports.of_captured(7, addr("2001:db8::1")).unwrap().number, 0);
        assert_eq!(ports.of_captured(0, None).unwrap().number, 1);
        let plain = Ports::new(vec![port(0, Side::Inside, &[]), port(1, Side::Outside, &[])]);
        assert_eq!(plain.of_captured(1, addr("10.1.2.3")).unwrap().number, 1);
        assert_eq!(plain.of_captured(9, addr("10.1.2.3")).unwrap().number, 0);
    }

    #[test]
    fn ports_of_two_sides_stand_opposite_each_other() {
        let sides = [Side::Inside, Side::Inside, Side::Outside, Side::Outside];
        let ports = Ports::new((0..4).map(|i| port(i, sides[i as usize], &[])).collect());
        let mut packet = Packet::from_bytes(&[0; 60]);
        packet.meta_mut().transit.ingress = 1;
        packet.meta_mut().transit.side = Side::Outside;
        assert_eq!(ports.egress(&packet), 3);
        packet.meta_mut().transit.side = Side::Inside;
        assert_eq!(ports.egress(&packet), 1);
    }

    #[test]
    fn prefixes_are_parsed_strictly() {
        for wrong in ["10.0.0.0/33", "x", "10.0.0/8", "::/129", ""] {
            assert!(wrong.parse::<Prefix>().is_err(), "{wrong}");
        }
        assert!("0.0.0.0/0".parse::<Prefix>().unwrap().contains(addr("1.2.3.4").unwrap()));
        assert!(!"0.0.0.0/0".parse::<Prefix>().unwrap().contains(addr("2001::").unwrap()));
    }
}
