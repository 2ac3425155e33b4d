//! External nodes: programs of others between ports that the runtime makes itself (E2, E15).
//!
//! `docs/external-nodes.md` describes them to operators.

mod config;
mod port_tags;
mod state;
pub mod streams;
pub mod tags;
mod words;

use std::net::IpAddr;

use l3::InterfaceAddress;
use policy::{Diagnostic, ExternalKind, ExternalNode, Policy};
use serde::{Deserialize, Serialize};

pub use config::{NodeMode, WhenDown};
pub(crate) use port_tags::PortTags;
pub use state::{NodeGate, NodeState};

use config::{LegacyConfig, NativeConfig};
use tags::NodeTags;

use crate::ports::Ports;

/// Limit on the bytes of an interface's name (Linux: `IFNAMSIZ` without the final zero).
pub const INTERFACE_NAME_MAX: usize = 15;
/// Limit on the bytes of a legacy node's name: its interfaces are `NAME-in` and `NAME-out`.
pub const LEGACY_NAME_MAX: usize = INTERFACE_NAME_MAX - "-out".len();

/// The MTU of Ethernet.
pub const ETHERNET_MTU: u32 = 1_500;
/// Limits on the MTU of a node's interfaces: IPv6 needs that much (RFC 8200 5), and an IP packet is
/// no longer.
const MTU_MIN: u32 = 1_280;
const MTU_MAX: u32 = 65_535 - packet::TAG_LEN as u32;

/// Inside and outside, in this order.
pub type Sides<T> = [T; 2];

/// The names of the sides in policies.
pub const SIDE_NAMES: Sides<&str> = ["inside", "outside"];

/// An external node, ready to be started.
#[derive(Clone, Debug)]
pub struct External {
    /// Name of the node.
    pub name: String,
    /// Numbers of its ports.
    pub ports: Sides<u16>,
    /// The way to start it, and to reach it.
    pub setup: ExternalSetup,
    /// The way of packets while it is down.
    pub when_down: WhenDown,
    /// The layout of the tags with attributes.
    pub tags: NodeTags,
}

/// The way to start an external node, and to reach it.
#[derive(Clone, Debug)]
pub enum ExternalSetup {
    /// A program in a namespace of its own.
    Legacy(Box<LegacyPlan>),
    /// A program of its own, at these ports.
    Native(Box<Sides<io::port::PortSpec>>),
}

/// All that a supervisor needs to know to run a legacy program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegacyPlan {
    /// Name of the node.
    pub name: String,
    /// Program and arguments; empty if the namespace's kernel does the work.
    pub command: Vec<String>,
    /// Commands that run in the namespace before the program.
    pub setup: Vec<Vec<String>>,
    /// Variables of the program's environment.
    pub environment: Vec<(String, String)>,
    /// Name of the network namespace.
    pub netns: String,
    /// The namespace is made for this node, and removed at the end.
    pub is_own_netns: bool,
    /// The connection of the interfaces in the namespace.
    pub mode: NodeMode,
    /// Interfaces in the namespace.
    pub interfaces: Sides<String>,
    /// Their other ends, which Rivulet opens.
    pub host_interfaces: Sides<String>,
    /// The program's addresses; none unless routed.
    pub addresses: Sides<Vec<String>>,
    /// The next hops of the namespace: Rivulet's addresses.
    pub gateways: Sides<Vec<IpAddr>>,
    /// Networks that the namespace reaches by its inside interface.
    pub networks: Vec<String>,
    /// MTUs of the interfaces, without room for a tag.
    pub mtus: Sides<u32>,
    /// Room for one more tag, in bytes.
    pub tag_len: u32,
    /// Delay before the first restart; it doubles.
    pub restart_ns: u64,
    /// Time between SIGTERM and SIGKILL.
    pub stop_timeout_ns: u64,
}

impl External {
    /// Returns the MTUs of the program's interfaces, if `mtu_of` says that of a port of the policy
    /// by its number; unknown ones count as Ethernet's.
    ///
    /// Each interface of a router has the smallest MTU of the ports of its segment, so that the
    /// program itself refuses what would not leave. A program that only passes frames cannot refuse
    /// any: both interfaces have the largest MTU of the ports around, and the ports refuse.
    pub fn mtus(&self, ports: &Ports, mtu_of: impl Fn(u16) -> Option<u32>) -> Sides<u32> {
        let of_text = || ports.all().iter().filter(|port| !port.is_of_node);
        let all = |segment: Option<u16>| -> Vec<u32> {
            let near = of_text().filter(|port| segment.is_none_or(|segment| port.segment() == segment));
            near.map(|port| mtu_of(port.number).unwrap_or(ETHERNET_MTU)).collect()
        };
        let around = self.ports.map(|number| {
            let near = ports.number(number).map(|port| all(Some(port.segment()))).unwrap_or_default();
            // Other nodes are on all sides of it.
            if near.is_empty() { all(None) } else { near }
        });
        let is_router = matches!(&self.setup, ExternalSetup::Legacy(plan) if plan.mode == NodeMode::Routed);
        let chosen = match is_router {
            true => around.map(|near| near.into_iter().min()),
            false => [around.iter().flatten().copied().max(); 2],
        };
        chosen.map(|mtu| mtu.unwrap_or(ETHERNET_MTU).clamp(MTU_MIN, MTU_MAX))
    }
}

/// L3 of a node's port: Rivulet's addresses, and the next hops.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodePort {
    pub networks: Vec<InterfaceAddress>,
    pub gateways: Vec<IpAddr>,
}

/// The networks around an external node that the ports of a policy name.
pub(crate) struct Surroundings {
    /// A port has an address.
    pub is_routed: bool,
    /// A port has an IPv6 address.
    pub has_v6: bool,
    /// Networks on the node's inside.
    pub networks: Vec<String>,
}

/// Reads the configuration of an external node, the n-th of its policy. Also returns L3 of its
/// ports.
pub(crate) fn read(
    policy: &Policy,
    (number, node): (usize, &ExternalNode),
    tags: NodeTags,
    around: &Surroundings,
    wrong: &mut Vec<Diagnostic>,
) -> Option<(External, Sides<NodePort>)> {
    let ports = [node.inside, node.outside].map(|port| *policy.ports[port].numbers.start());
    let before = wrong.len();
    let (setup, when_down, l3) = match node.kind {
        ExternalKind::Legacy => {
            let config: LegacyConfig =
                policy.config(&node.config).map_err(|error| wrong.push(*error)).ok()?;
            wrong.extend(config.faults(node));
            let (plan, l3) = config.plan(number, node, around, wrong)?;
            (ExternalSetup::Legacy(Box::new(plan)), config.when_down, l3)
        }
        ExternalKind::Native => {
            let config: NativeConfig =
                policy.config(&node.config).map_err(|error| wrong.push(*error)).ok()?;
            let specs = config.specs(node).map_err(|error| wrong.push(*error)).ok()?;
            (ExternalSetup::Native(Box::new(specs)), config.when_down, Sides::default())
        }
    };
    let external = External { name: node.name.clone(), ports, setup, when_down, tags };
    (wrong.len() == before).then_some((external, l3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mtus(nodes: &str, path: &str, of_ports: [u32; 3]) -> Vec<Sides<u32>> {
        let text = format!("Port<0> a; Port<1> b; Port<2> c; {nodes}; pipelet {{ {path} }}");
        let policy = Policy::read("test", &text, &mut |_: &str| Err(String::new())).unwrap();
        let assembly = crate::assemble(&policy, &functions::registry(), 1, None).unwrap();
        let mtu_of = |port| of_ports.get(usize::from(port)).copied().filter(|&mtu| mtu > 0);
        assembly.externals.iter().map(|node| node.mtus(&assembly.ports, mtu_of)).collect()
    }

    #[test]
    fn interfaces_of_a_node_have_the_mtu_of_the_ports() {
        let path = "a <-> x [udp] <-> b; x <-> c;";
        // A router refuses what its segment would not take.
        assert_eq!(mtus("Legacy x { mode: routed }", path, [9_000, 1_500, 1_400]), [[9_000, 1_400]]);
        // A bridge cannot refuse.
        assert_eq!(mtus("Legacy x { mode: bridged }", path, [1_400, 1_500, 1_450]), [[1_500, 1_500]]);
        assert_eq!(mtus("Legacy x { }", path, [9_000, 1_500, 1_450]), [[9_000, 9_000]]);
        // Unknown, and less than IPv6 needs.
        assert_eq!(mtus("Legacy x { mode: routed }", path, [0, 1_500, 576]), [[1_500, 1_280]]);
        // Between two nodes is no port.
        let nodes = "Legacy x { mode: routed }; Legacy y { mode: routed }";
        let path = "a <-> x <-> y [udp] <-> b; y <-> c;";
        assert_eq!(mtus(nodes, path, [1_500, 1_400, 1_450]), [[1_500, 1_400], [1_400, 1_400]]);
    }
}
