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

/// Limit on the bytes of an interface's name (Linux: `IFNAMSIZ` without the final zero).
pub const INTERFACE_NAME_MAX: usize = 15;
/// Limit on the bytes of a legacy node's name: its interfaces are `NAME-in` and `NAME-out`.
pub const LEGACY_NAME_MAX: usize = INTERFACE_NAME_MAX - "-out".len();

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
    /// The layout of the tags by which attributes travel.
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
    /// Room for a tag around those that packets have, in bytes.
    pub tag_len: u32,
    /// Delay before the first restart; it doubles.
    pub restart_ns: u64,
    /// Time between SIGTERM and SIGKILL.
    pub stop_timeout_ns: u64,
}

/// L3 of a node's port: Rivulet's addresses, and the next hops.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodePort {
    pub networks: Vec<InterfaceAddress>,
    pub gateways: Vec<IpAddr>,
}

/// The networks around an external node, as far as the ports of a policy name them.
pub(crate) struct Surroundings {
    /// A port has an address.
    pub is_routed: bool,
    /// A port has an IPv6 address.
    pub has_v6: bool,
    /// Networks behind the node's inside.
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
