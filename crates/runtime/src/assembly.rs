//! Makes a policy ready to run: creates NFs, the graph, and ports.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use graph::{Branches, Graph, Options, Topology, TopologyError};
use nf::stage::{LoadError, Stage};
use nf::{AFFINITY_GROUPS, MakeError, OwnedAddresses, Registry, Setup};
use packet::{FlowKey, Side};
use policy::{Diagnostic, ExternalNode, Policy, SEGMENTS_MAX, Value};

use crate::external::streams::{DeliveryConfig, SharedBoard, StreamConfig, StreamDelivery, StreamNode};
use crate::external::tags::NodeTags;
use crate::external::{self, External, NodeGate, NodeState, PortTags, Surroundings};
use crate::ports::{PortConfig, PortEntry, Ports, RouteConfig, item_span};
use crate::settings::{LinkControlSetting, Settings};

/// A policy ready to run on this machine.
pub struct Assembly {
    /// The graph.
    pub graph: Box<Graph>,
    /// Names of the NFs in the policy, from the inside to the outside.
    pub names: Vec<String>,
    /// The ports.
    pub ports: Ports,
    /// External nodes.
    pub externals: Vec<External>,
    /// The state of each.
    node_states: Vec<Arc<NodeState>>,
    /// Native nodes that deliver streams.
    pub stream_nodes: Vec<StreamNode>,
    /// If false, packets from the outside are dropped (`policy`).
    pub both_ways: bool,
    /// The seed in use.
    pub seed: u64,
    /// The policy names the seed.
    pub seed_is_named: bool,
    /// The report shows the seed: see [`Assembly::hide_seed`].
    pub shows_seed: bool,
    /// Warnings about configurations: the NF's name, and the warning.
    pub warnings: Vec<(String, String)>,
}

impl Assembly {
    /// Hides the seed from the report, unless the policy names it. With the seed one could choose
    /// packets that collide in hash tables.
    pub fn hide_seed(&mut self) {
        self.shows_seed = self.seed_is_named;
    }

    /// Returns the state of each external node.
    pub fn node_states(&self) -> &[Arc<NodeState>] {
        &self.node_states
    }

    /// Shares the state of external nodes with another assembly of the same policy.
    pub fn share_node_states(&mut self, other: &Assembly) {
        self.node_states.clone_from(&other.node_states);
        self.stream_nodes.iter().zip(&other.stream_nodes).for_each(|(own, other)| own.share(other));
    }

    /// Returns the gate of a port that belongs to an external node.
    pub(crate) fn gate(&self, port: u16) -> Option<NodeGate> {
        let mut nodes = self.externals.iter().zip(&self.node_states);
        nodes.find_map(|(node, state)| NodeGate::of(node, state, port))
    }

    /// Returns the tags of packets at a port of an external node through which attributes travel.
    pub(crate) fn port_tags(&self, port: u16) -> Option<PortTags> {
        let mut nodes = self.externals.iter().zip(&self.node_states);
        nodes.find_map(|(node, state)| PortTags::of(node, state, port, &self.graph))
    }

    /// Returns those of a packet's tags that it keeps if it leaves by this port of an external node
    /// and the program forwards it unchanged.
    pub fn kept_tags(&self, port: u16, tags: u64) -> u64 {
        self.port_tags(port).map_or(0, |port| port.passing(tags))
    }

    /// Returns the addresses that NFs own on the side of a port.
    pub(crate) fn owned_at<'a>(&'a self, port: &'a PortEntry) -> impl Iterator<Item = &'a OwnedAddresses> {
        let topology = self.graph.branches().map(Branches::topology);
        let owned = self.graph.stages().iter().enumerate();
        let owned = owned.flat_map(|(stage, entry)| entry.shared().owned.iter().map(move |of| (stage, of)));
        owned
            .filter(move |&(stage, owned)| match (topology, owned.side) {
                (None, None) => true,
                (Some(topology), None) => topology.leads(port.first, stage),
                // Packets towards a side enter at the other one.
                (Some(topology), Some(side)) => topology.reaches(stage, side.other(), port.first),
                (None, side) => port.side == side,
            })
            .map(|(_, owned)| owned)
    }
}

/// Assembles a policy. `seed` applies if the policy names none.
///
/// # Errors
/// All errors of the policy, each with its position.
pub fn assemble(
    policy: &Policy,
    registry: &Registry<Value>,
    seed: u64,
    cycles: Option<fn() -> u64>,
) -> Result<Assembly, Vec<Diagnostic>> {
    assemble_part(policy, registry, seed, cycles, 1)
}

/// Assembles a policy for a node of a cluster: if the policy sets no number of affinity groups, it
/// has [`AFFINITY_GROUPS`].
///
/// # Errors
/// All errors of the policy, each with its position.
pub fn assemble_for_cluster(
    policy: &Policy,
    registry: &Registry<Value>,
    seed: u64,
    cycles: Option<fn() -> u64>,
) -> Result<Assembly, Vec<Diagnostic>> {
    let mut wrong = Vec::new();
    let mut settings: Settings = read(policy, &policy.settings, &mut wrong).unwrap_or_default();
    settings.affinity_groups.get_or_insert(AFFINITY_GROUPS);
    assemble_with(policy, registry, (settings, wrong), (seed, cycles), 1)
}

/// Assembles one of `parts` equal parts of a policy: its graph has room for its share of the flows.
///
/// # Errors
/// All errors of the policy, each with its position.
pub fn assemble_part(
    policy: &Policy,
    registry: &Registry<Value>,
    seed: u64,
    cycles: Option<fn() -> u64>,
    parts: u32,
) -> Result<Assembly, Vec<Diagnostic>> {
    let mut wrong = Vec::new();
    let settings = read(policy, &policy.settings, &mut wrong).unwrap_or_default();
    assemble_with(policy, registry, (settings, wrong), (seed, cycles), parts)
}

/// Assembles a policy with these settings and the faults found in them.
fn assemble_with(
    policy: &Policy,
    registry: &Registry<Value>,
    (settings, mut wrong): (Settings, Vec<Diagnostic>),
    (seed, cycles): (u64, Option<fn() -> u64>),
    parts: u32,
) -> Result<Assembly, Vec<Diagnostic>> {
    let options = Options { cycles, ..settings.options(seed) };
    let topology = Topology::new(policy).map_err(|error| vec![refused(policy, &error)])?;
    let tags = NodeTags::of_policy(policy, registry).unwrap_or_else(|errors| {
        wrong.extend(errors);
        Vec::new()
    });
    let (ports, externals) = ports(policy, &topology, tags, &mut wrong);
    let options = Options { remembers_ports: ports.has_choice(), ..options };
    let has_addresses = ports.all().iter().any(|port| !port.networks.is_empty());
    let links = ports.links();
    let (mut stages, mut stream_nodes) = (Vec::new(), Vec::new());
    let first_free = policy.ports.iter().map(|port| u32::from(*port.numbers.end()) + 1).max().unwrap_or(0);
    for &nf in topology.nfs() {
        let instance = &policy.nfs[nf];
        if instance.delivers_streams() {
            let setup = Setup::new(options.seed, options.flows_max);
            let port = first_free + stream_nodes.len() as u32;
            match stream_node(policy, instance, port, setup) {
                Ok((node, stage)) => {
                    stages.push(stage);
                    stream_nodes.push(node);
                }
                Err(error) => wrong.push(*error),
            }
            continue;
        }
        let Some(entry) = registry.find(&instance.type_name) else {
            let known: Vec<_> = registry.entries().iter().map(|entry| entry.descriptor.name).collect();
            let message = format!("there is no network function `{}`", instance.type_name);
            wrong.push(
                Diagnostic::error(message, instance.type_span)
                    .help(format!("there are: {}", known.join(", "))),
            );
            continue;
        };
        let mut setup = Setup::new(options.seed, options.flows_max);
        setup.inner = options.inner;
        setup.affinity_groups = options.affinity_groups;
        setup.links.clone_from(&links);
        setup.config_digest = instance.config.digest();
        setup.link_control = settings.link_control == LinkControlSetting::Pass && !has_addresses;
        match entry.make(&instance.config, setup) {
            Ok(stage) => stages.push(stage),
            Err(MakeError::Form(fault)) => wrong.push(policy.fault(fault, instance.config.span)),
            Err(MakeError::Load(LoadError::Config(error))) => {
                wrong.push(policy.diagnose(&error, instance.config.span));
            }
            Err(MakeError::Load(error)) => wrong.push(Diagnostic::error(error, instance.span)),
        }
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let names: Vec<String> = topology.nfs().iter().map(|&nf| policy.nfs[nf].name.clone()).collect();
    let warnings = stages.iter().zip(&names).flat_map(|(stage, name)| {
        stage.shared().warnings.iter().map(|warning| (name.clone(), warning.clone()))
    });
    let all_taken = stages.iter().zip(&names).flat_map(|(stage, name)| {
        let owned = stage.shared().owned.iter().filter(|owned| !owned.in_use);
        let taken = owned.flat_map(|owned| links.taken_in(owned.first, owned.last));
        taken.map(|(address, role)| {
            (name.clone(), format!("{address} is {role}: no port answers for it; take another address"))
        })
    });
    let of_ports = ports.warning().into_iter().chain(overlaps(policy, &ports));
    let warnings =
        warnings.chain(all_taken).chain(of_ports.map(|warning| ("ports".to_owned(), warning))).collect();
    // NFs share state among all parts, so they were set up for all flows.
    let flows_max = options.flows_max.div_ceil(parts.max(1));
    let options = Options { flows_max, ..options };
    let both_ways = !topology.is_line()
        || topology.edges().iter().any(|edge| edge.to.is_some() && edge.side == Side::Outside);
    let graph = match topology.is_line() {
        true => Graph::new(stages, options),
        false => Graph::branching(stages, topology, options),
    };
    let mut graph = graph.map_err(|error| vec![Diagnostic::error(error, policy.pipelets[0].span)])?;
    graph.flows_mut().set_places(&ports.places());
    let ports = ports.with_programs(stream_nodes.iter().map(|node| (node.port, node.port_name.clone())));
    let node_states = externals.iter().map(|node| Arc::new(NodeState::new(node))).collect();
    Ok(Assembly {
        graph: Box::new(graph),
        names,
        ports,
        externals,
        node_states,
        stream_nodes,
        both_ways,
        seed: options.seed,
        seed_is_named: settings.seed.is_some(),
        shows_seed: true,
        warnings,
    })
}

/// Makes the function of a native node that delivers streams, and what its port needs.
fn stream_node(
    policy: &Policy,
    instance: &policy::Nf,
    port: u32,
    setup: Setup,
) -> Result<(StreamNode, Box<dyn Stage>), Box<Diagnostic>> {
    let config: StreamConfig = policy.config(&instance.config)?;
    let span = instance.config.get("port").map_or(instance.span, |value| value.span);
    let spec = config.port.parse().map_err(|error| Box::new(Diagnostic::error(error, span)))?;
    let Ok(port) = u16::try_from(port) else {
        let message = format!("no port number is left for `{}`", instance.name);
        return Err(Box::new(Diagnostic::error(message, instance.span)));
    };
    let board = SharedBoard::default();
    let stage = nf::stage::load::<StreamDelivery>(DeliveryConfig { board: board.clone() }, setup);
    let stage = stage.map_err(|error| Box::new(Diagnostic::error(error, instance.span)))?;
    Ok((StreamNode::new(&instance.name, port, spec, board), stage))
}

/// Returns warnings of ports with networks that may overlap, where that would mix their flows.
fn overlaps(policy: &Policy, ports: &Ports) -> impl Iterator<Item = String> {
    let entry = |port: usize| ports.number(*policy.ports.get(port)?.numbers.start());
    policy.ways_apart("NAT").into_iter().filter_map(move |[one, other, end]| {
        let (one, other, end) = (entry(one)?, entry(other)?, entry(end)?);
        let may_overlap = one.place == other.place && one.may_overlap(other);
        may_overlap.then(|| {
            format!(
                "`{one}` and `{other}` lead to `{end}` by NATs of their own, but flows with the same addresses and ports \
                 are one flow: if networks behind them overlap, give each port a `tenant`, else `prefixes`",
                one = one.name,
                other = other.name,
                end = end.name
            )
        })
    })
}

fn refused(policy: &Policy, error: &TopologyError) -> Diagnostic {
    match policy.pipelets.first() {
        Some(pipelet) => Diagnostic::error(error, pipelet.span),
        None => Diagnostic::error(error, policy.settings.span)
            .help("write `pipelet { inside <-> function <-> outside; }`"),
    }
}

fn ports(
    policy: &Policy,
    topology: &Topology,
    tags: Vec<NodeTags>,
    wrong: &mut Vec<Diagnostic>,
) -> (Ports, Vec<External>) {
    let mut ports = Vec::new();
    let segments = policy.segments();
    if segments.iter().any(|of| *of >= SEGMENTS_MAX) {
        let node = policy.externals.get(SEGMENTS_MAX / 2).map(|node| node.span);
        let span = node.or(policy.pipelets.last().map(|pipelet| pipelet.span));
        let message = format!("a graph may have up to {SEGMENTS_MAX} segments, parts without common nodes");
        wrong.push(Diagnostic::error(message, span.unwrap_or(policy.settings.span)));
    }
    let mut addresses = BTreeMap::new();
    let of_text = policy.ports.len() - 2 * policy.externals.len();
    for (port, &segment) in policy.ports[..of_text].iter().zip(&segments) {
        let first = *port.numbers.start();
        let Some(side) = side_of(topology, first) else { continue };
        let config: PortConfig = read(policy, &port.config, wrong).unwrap_or_default();
        wrong.extend(config.faults(&port.config));
        for (at, network) in config.address.iter().enumerate() {
            let span = item_span(&port.config, "address", at);
            match addresses.entry(network.address) {
                Entry::Vacant(entry) => drop(entry.insert((&port.name, span))),
                Entry::Occupied(first) if first.get().0 != &port.name => {
                    let (name, first) = first.get();
                    let message = format!("`{name}` has the address {} already", network.address.ip());
                    wrong.push(Diagnostic::error(message, span).label(*first, "the first one"));
                }
                Entry::Occupied(_) => {} // Reported by the port.
            }
        }
        let routes: Vec<_> = config.routes.iter().filter_map(RouteConfig::route).collect();
        let several = port.numbers.start() != port.numbers.end();
        for number in port.numbers.clone() {
            let name = if several { format!("{}#{number}", port.name) } else { port.name.clone() };
            let (prefixes, networks) = (config.prefixes.clone(), config.address.clone());
            let (routes, gateways) = (routes.clone(), config.gateway.clone());
            let place = FlowKey::place_of(config.tenant, segment as u16);
            let is_of_node = false;
            ports.push(PortEntry {
                number,
                name,
                first,
                side,
                prefixes,
                networks,
                routes,
                gateways,
                place,
                is_of_node,
            });
        }
    }
    let mut externals = Vec::new();
    // None of them if there are errors.
    let mut tags = tags.into_iter();
    for (number, node) in policy.externals.iter().enumerate() {
        let around = surroundings(policy, node, &ports);
        let tags = tags.next().unwrap_or_default();
        let read = external::read(policy, (number, node), tags, &around, wrong);
        let Some((external, l3)) = read else { continue };
        for (port, l3) in [node.inside, node.outside].into_iter().zip(l3) {
            let (name, number) = (policy.ports[port].name.clone(), *policy.ports[port].numbers.start());
            ports.push(PortEntry {
                number,
                name,
                first: number,
                side: side_of(topology, number).flatten(),
                prefixes: Vec::new(),
                networks: l3.networks,
                routes: Vec::new(),
                gateways: l3.gateways,
                place: FlowKey::place_of(0, segments[port] as u16),
                is_of_node: true,
            });
        }
        externals.push(external);
    }
    let ports = Ports::new(ports);
    (if topology.is_line() { ports } else { ports.chosen_by_graph() }, externals)
}

/// Returns what the ports of the text say about the networks around an external node.
fn surroundings(policy: &Policy, node: &ExternalNode, ports: &[PortEntry]) -> Surroundings {
    let networks = |entry: &PortEntry| entry.networks.clone();
    let before = policy.ports_before(node).into_iter().map(|port| *policy.ports[port].numbers.start());
    let before: Vec<&PortEntry> =
        before.filter_map(|first| ports.iter().find(|of| of.first == first)).collect();
    let mut behind: Vec<String> = Vec::new();
    for entry in before {
        let prefixes = entry.prefixes.iter().map(ToString::to_string);
        let own = entry.networks.iter().map(|network| network.network());
        let routes = entry.routes.iter().map(|route| route.destination());
        let own = own.chain(routes).map(|(first, length)| format!("{first}/{length}"));
        for network in prefixes.chain(own) {
            if !behind.contains(&network) {
                behind.push(network);
            }
        }
    }
    Surroundings {
        is_routed: ports.iter().any(|port| !port.networks.is_empty()),
        has_v6: ports.iter().flat_map(networks).any(|network| !network.address.is_v4()),
        networks: behind,
    }
}

/// Returns the side of packets that enter by a port, if all have the same; none if no edge leaves
/// or reaches the port.
fn side_of(topology: &Topology, first: u16) -> Option<Option<Side>> {
    if topology.is_line() {
        return topology.side_of_line(first).map(Some);
    }
    topology.is_used(first).then(|| topology.side_of_port(first))
}

fn read<T: serde::de::DeserializeOwned>(
    policy: &Policy,
    value: &Value,
    wrong: &mut Vec<Diagnostic>,
) -> Option<T> {
    policy.config(value).map_err(|diagnostic| wrong.push(*diagnostic)).ok()
}
