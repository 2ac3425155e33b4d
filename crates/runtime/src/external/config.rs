//! The configuration of external nodes in a policy.

use std::collections::BTreeMap;
use std::net::IpAddr;

use io::port::PortSpec;
use l3::{AddressRole, InterfaceAddress};
use packet::Addr;
use policy::{Diagnostic, ExternalNode, Prefix, TagCarrier, Value};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use values::Nanos;

use super::{
    ETHERNET_MTU, INTERFACE_NAME_MAX, LEGACY_NAME_MAX, LegacyPlan, NodePort, SIDE_NAMES, Sides, Surroundings,
    words,
};
use crate::ports::{item_span, one_or_many};

/// The value of `netns` that makes a namespace for the node.
const AUTO: &str = "auto";
/// Limit on the bytes of a namespace's name: it is a file's.
const NETNS_NAME_MAX: usize = 200;
/// Default of `restart`.
const RESTART_NS: u64 = 1_000_000_000;
/// Default of `stop_timeout`, as docker's.
const STOP_TIMEOUT_NS: u64 = 10_000_000_000;

/// The connection of the two interfaces in a node's namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeMode {
    /// The namespace is a router: it has addresses, routes and forwarding.
    Routed,
    /// The program passes frames between the interfaces itself, such as Suricata.
    Inline,
    /// The interfaces are ports of a bridge.
    Bridged,
}

/// The way of packets while the program is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenDown {
    /// They are dropped and counted.
    #[default]
    Drop,
    /// They bypass the node.
    Bypass,
}

/// Configuration of a node `Legacy`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LegacyConfig {
    /// Program and arguments: a line, or a list of words.
    #[serde(deserialize_with = "one_or_many")]
    command: Vec<String>,
    /// Commands that run in the namespace before the program.
    #[serde(deserialize_with = "one_or_many")]
    setup: Vec<String>,
    /// A namespace that is there already, or `auto`.
    netns: String,
    /// Routed if a port of the policy has an address, else inline.
    mode: Option<NodeMode>,
    /// The program's interfaces.
    ports: InterfaceNames,
    /// The program's addresses.
    address: SideAddresses,
    /// Networks on the inside; those of the ports there by default.
    #[serde(deserialize_with = "one_or_many")]
    networks: Vec<Prefix>,
    /// Variables of the program's environment.
    environment: BTreeMap<String, String>,
    /// Delay before the first restart.
    restart: Nanos,
    /// Time between SIGTERM and SIGKILL.
    stop_timeout: Nanos,
    /// The way of packets while the program is down.
    pub when_down: WhenDown,
    /// Read by [`policy`].
    tags: IgnoredAny,
    /// Read by [`policy`].
    sets: IgnoredAny,
}

impl Default for LegacyConfig {
    fn default() -> LegacyConfig {
        LegacyConfig {
            command: Vec::new(),
            setup: Vec::new(),
            netns: AUTO.to_owned(),
            mode: None,
            ports: InterfaceNames::default(),
            address: SideAddresses::default(),
            networks: Vec::new(),
            environment: BTreeMap::new(),
            restart: Nanos(RESTART_NS),
            stop_timeout: Nanos(STOP_TIMEOUT_NS),
            when_down: WhenDown::default(),
            tags: IgnoredAny,
            sets: IgnoredAny,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct InterfaceNames {
    inside: String,
    outside: String,
}

impl Default for InterfaceNames {
    fn default() -> InterfaceNames {
        InterfaceNames { inside: "eth0".to_owned(), outside: "eth1".to_owned() }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SideAddresses {
    #[serde(deserialize_with = "one_or_many")]
    inside: Vec<InterfaceAddress>,
    #[serde(deserialize_with = "one_or_many")]
    outside: Vec<InterfaceAddress>,
}

impl LegacyConfig {
    /// Returns the errors of the configuration.
    pub fn faults(&self, node: &ExternalNode) -> Vec<Diagnostic> {
        let (name, config) = (&node.name, &node.config);
        let mut faults = Vec::new();
        if name.len() > LEGACY_NAME_MAX {
            let message = format!(
                "the name of a legacy node has up to {LEGACY_NAME_MAX} characters, not {}",
                name.len()
            );
            let help = format!("its interfaces are named after it: `{name}-in` and `{name}-out`");
            faults.push(Diagnostic::error(message, node.span).help(help));
        }
        let names = [&self.ports.inside, &self.ports.outside];
        for (interface, side) in names.into_iter().zip(SIDE_NAMES) {
            let is_valid = (1..=INTERFACE_NAME_MAX).contains(&interface.len())
                && interface.bytes().all(|byte| byte.is_ascii_graphic() && !b"/:".contains(&byte))
                && ![".", "..", "lo"].contains(&interface.as_str());
            if !is_valid {
                let message = format!(
                    "expected an interface's name of up to {INTERFACE_NAME_MAX} characters, found `{interface}`"
                );
                faults.push(Diagnostic::error(message, span_of(config, "ports", side)));
            }
        }
        if names[0] == names[1] {
            let message = format!("both ports have the interface `{}`", names[0]);
            faults.push(Diagnostic::error(message, span_of(config, "ports", "outside")));
        }
        let netns = self.netns.as_str();
        if netns.is_empty() || netns.len() > NETNS_NAME_MAX || netns.starts_with('.') || netns.contains('/') {
            let message = format!("expected the name of a network namespace or `{AUTO}`, found `{netns}`");
            faults.push(Diagnostic::error(message, item_span(config, "netns", 0)));
        }
        if self.restart.0 == 0 {
            let message = "`restart` must be longer than 0: the program would be started in a loop";
            faults.push(Diagnostic::error(message, item_span(config, "restart", 0)));
        }
        if self.command.is_empty() && config.get("command").is_some() {
            let message = "the command is empty";
            faults.push(Diagnostic::error(message, item_span(config, "command", 0)));
        }
        for (addresses, side) in [&self.address.inside, &self.address.outside].into_iter().zip(SIDE_NAMES) {
            let here = config.get("address").unwrap_or(config);
            for (at, address) in addresses.iter().enumerate() {
                if address.role() != AddressRole::Host || own_address(address).is_none() {
                    let message =
                        format!("{} is no address of a network with two hosts", address.address.ip());
                    let help = "Rivulet takes the first other address of the network for itself";
                    faults.push(Diagnostic::error(message, item_span(here, side, at)).help(help));
                }
            }
        }
        faults
    }

    /// Returns the plan for the node's supervisor, and L3 of its ports; `None` after an error.
    pub fn plan(
        &self,
        number: usize,
        node: &ExternalNode,
        around: &Surroundings,
        wrong: &mut Vec<Diagnostic>,
    ) -> Option<(LegacyPlan, Sides<NodePort>)> {
        let config = &node.config;
        let mut line = |key, at, text: &str| {
            let words = words::split(text).and_then(|words| match words.is_empty() {
                true => Err("the command is empty".to_owned()),
                false => Ok(words),
            });
            words.map_err(|fault| wrong.push(Diagnostic::error(fault, item_span(config, key, at)))).ok()
        };
        let command = match &self.command[..] {
            [] => Vec::new(),
            [text] => line("command", 0, text)?,
            several => several.to_vec(),
        };
        let setup = self.setup.iter().enumerate().map(|(at, text)| line("setup", at, text));
        let setup = setup.collect::<Option<Vec<_>>>()?;
        let by_default = if around.is_routed { NodeMode::Routed } else { NodeMode::Inline };
        let mode = self.mode.unwrap_or(by_default);
        if mode == NodeMode::Routed && node.tags != TagCarrier::None {
            let message = format!("`{}` is a router, which would take VLAN tags off", node.name);
            let span = config.get("tags").map_or(node.span, |value| value.span);
            let help = "write `mode: inline` or `mode: bridged`, or take `tags` away";
            wrong.push(Diagnostic::error(message, span).help(help));
        }
        let given = [&self.address.inside, &self.address.outside];
        let addresses: Sides<Vec<InterfaceAddress>> = match mode {
            NodeMode::Routed => std::array::from_fn(|side| match given[side].is_empty() {
                true => default_addresses(number, side, around.has_v6),
                false => given[side].clone(),
            }),
            NodeMode::Inline | NodeMode::Bridged => {
                if let Some(value) = config.get("address") {
                    let message = "only a routed node has addresses";
                    wrong.push(Diagnostic::error(message, value.span).help("write `mode: routed`"));
                }
                Sides::default()
            }
        };
        let l3 = addresses.each_ref().map(|addresses| NodePort {
            networks: addresses.iter().filter_map(own_address).collect(),
            gateways: first_of_each_version(addresses.iter().map(|address| address.address.ip())),
        });
        let gateways = l3
            .each_ref()
            .map(|port| first_of_each_version(port.networks.iter().map(|network| network.address.ip())));
        let networks = match self.networks.is_empty() {
            true => around.networks.clone(),
            false => self.networks.iter().map(ToString::to_string).collect(),
        };
        let is_own_netns = self.netns == AUTO;
        let plan = LegacyPlan {
            name: node.name.clone(),
            command,
            setup,
            environment: self.environment.clone().into_iter().collect(),
            netns: if is_own_netns { format!("rivulet-{}", node.name) } else { self.netns.clone() },
            is_own_netns,
            mode,
            interfaces: [self.ports.inside.clone(), self.ports.outside.clone()],
            host_interfaces: ["in", "out"].map(|side| format!("{}-{side}", node.name)),
            addresses: addresses.map(|addresses| addresses.iter().map(text_of).collect()),
            gateways,
            networks,
            mtus: [ETHERNET_MTU; 2],
            tag_len: if node.tags == TagCarrier::None { 0 } else { packet::TAG_LEN as u32 },
            restart_ns: self.restart.0,
            stop_timeout_ns: self.stop_timeout.0,
        };
        Some((plan, l3))
    }
}

/// Configuration of a node `Native`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NativeConfig {
    /// The program's ports.
    ports: NativePorts,
    /// Read by [`policy`].
    tags: IgnoredAny,
    /// Read by [`policy`].
    sets: IgnoredAny,
    /// The way of packets while the program is not connected.
    pub when_down: WhenDown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct NativePorts {
    inside: Option<String>,
    outside: Option<String>,
}

impl NativeConfig {
    /// Returns the ports to the program.
    pub fn specs(&self, node: &ExternalNode) -> Result<Sides<PortSpec>, Box<Diagnostic>> {
        let given = [&self.ports.inside, &self.ports.outside];
        let read = |side: usize| {
            let name = SIDE_NAMES[side];
            let Some(text) = given[side] else {
                let error =
                    Diagnostic::error(format!("`{}` needs a port towards `{name}`", node.name), node.span);
                let help =
                    format!("write `ports: {{ {name}: \"memif:/run/rivulet/{}.sock\", ... }}`", node.name);
                return Err(Box::new(error.help(help)));
            };
            text.parse::<PortSpec>()
                .map_err(|error| Box::new(Diagnostic::error(error, span_of(&node.config, "ports", name))))
        };
        let specs = [read(0)?, read(1)?];
        if specs[0].name() == specs[1].name() {
            let message = format!("{} is the interface of both ports", specs[0].name());
            return Err(Box::new(Diagnostic::error(message, span_of(&node.config, "ports", "outside"))));
        }
        Ok(specs)
    }
}

/// Returns the position of a side of a key.
fn span_of(config: &Value, key: &str, side: &str) -> policy::Span {
    let value = config.get(key).unwrap_or(config);
    value.get(side).unwrap_or(value).span
}

/// Returns Rivulet's address in the network of a node's: the first other one of a host.
fn own_address(of_node: &InterfaceAddress) -> Option<InterfaceAddress> {
    let (first, length) = of_node.network();
    let first = Addr::from(first).to_u128();
    let candidates = (0..4).map(|at| Addr::from_u128(first + at).ip());
    let mut candidates = candidates.filter_map(|address| format!("{address}/{length}").parse().ok());
    candidates.find(|own: &InterfaceAddress| {
        // The first address of an IPv6 network is that of any router there (RFC 4291 2.6.1).
        let is_anycast = !own.address.is_v4() && own.address.to_u128() == first && length < 127;
        own.role() == AddressRole::Host
            && !is_anycast
            && of_node.contains(own.address)
            && own.address != of_node.address
    })
}

/// Returns the default addresses of a side of the n-th node. IPv4: of 100.127.0.0/16, at the end of
/// the space that is shared by providers (RFC 6598); IPv6: local ones (RFC 4193).
fn default_addresses(number: usize, side: usize, has_v6: bool) -> Vec<InterfaceAddress> {
    let network = number * 2 + side;
    let v4 = format!("100.127.{}.{}/30", network / 64 % 256, network % 64 * 4 + 2);
    let v6 = format!("fd72:6976:756c:{network:x}::2/64");
    [Some(v4), has_v6.then_some(v6)].into_iter().flatten().filter_map(|text| text.parse().ok()).collect()
}

fn first_of_each_version(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut first: Vec<IpAddr> = Vec::new();
    for address in addresses {
        if first.iter().all(|known| known.is_ipv4() != address.is_ipv4()) {
            first.push(address);
        }
    }
    first
}

fn text_of(address: &InterfaceAddress) -> String {
    format!("{}/{}", address.address.ip(), address.network().1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rivulet_takes_the_first_other_address() {
        for (node, own) in [
            ("100.127.0.2/30", Some("100.127.0.1")),
            ("10.0.0.1/24", Some("10.0.0.2")),
            ("10.0.0.0/31", Some("10.0.0.1")),
            ("fd00::1/64", Some("fd00::2")),
            ("fd00::/127", Some("fd00::1")),
            ("10.0.0.1/32", None),
        ] {
            let found = own_address(&node.parse().unwrap()).map(|own| own.address.ip().to_string());
            assert_eq!(found.as_deref(), own, "{node}");
        }
    }

    #[test]
    fn default_addresses_of_nodes_differ() {
        let all: Vec<_> =
            (0..300).flat_map(|n| [0, 1].map(|side| default_addresses(n, side, true))).collect();
        assert!(
            all.iter()
                .all(|of| of.len() == 2 && own_address(&of[0]).is_some() && own_address(&of[1]).is_some())
        );
        let mut texts: Vec<String> = all.iter().flatten().map(text_of).collect();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), 1200);
    }
}
