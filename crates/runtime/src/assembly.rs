//! Makes a policy ready to run: creates NFs, the graph, and ports.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use graph::{Graph, Options};
use nf::stage::LoadError;
use nf::{MakeError, Registry, Setup};
use packet::Side;
use policy::{Diagnostic, EdgeDirection, Filter, Node, Policy, Value};

use crate::ports::{PortConfig, PortEntry, Ports, item_span};
use crate::settings::{LinkControlSetting, Settings};

/// A policy ready to run on this machine.
pub struct Assembly {
    /// The graph.
    pub graph: Box<Graph>,
    /// Names of the NFs in the policy, from the inside to the outside.
    pub names: Vec<String>,
    /// The ports.
    pub ports: Ports,
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
    /// Hides the seed from the report, unless the policy names it. Who knows the seed can choose
    /// packets whose flows collide in hash tables.
    pub fn hide_seed(&mut self) {
        self.shows_seed = self.seed_is_named;
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

/// Assembles one of `parts` equal parts of a policy, whose graph has room for its share of the
/// flows.
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
    let settings: Settings = read(policy, &policy.settings, &mut wrong).unwrap_or_default();
    let options = Options { cycles, ..settings.options(seed) };
    let line = line(policy).map_err(|diagnostic| vec![*diagnostic])?;
    let ports = ports(policy, &line, &mut wrong);
    let options = Options { remembers_ports: ports.has_choice(), ..options };
    let has_addresses = ports.all().iter().any(|port| !port.networks.is_empty());
    let mut stages = Vec::new();
    for &nf in &line.nfs {
        let instance = &policy.nfs[nf];
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
    let names: Vec<String> = line.nfs.iter().map(|&nf| policy.nfs[nf].name.clone()).collect();
    let warnings = stages.iter().zip(&names).flat_map(|(stage, name)| {
        stage.shared().warnings.iter().map(|warning| (name.clone(), warning.clone()))
    });
    let warnings = warnings.chain(ports.warning().map(|warning| ("ports".to_owned(), warning))).collect();
    // NFs share state among all parts, so they were set up for all flows.
    let flows_max = options.flows_max.div_ceil(parts.max(1));
    let graph = Graph::new(stages, Options { flows_max, ..options })
        .map_err(|error| vec![Diagnostic::error(error, policy.pipelets[0].span)])?;
    Ok(Assembly {
        graph: Box::new(graph),
        names,
        ports,
        both_ways: line.both_ways,
        seed: options.seed,
        seed_is_named: settings.seed.is_some(),
        shows_seed: true,
        warnings,
    })
}

/// The path of packets: a port inside, NFs in order, a port outside.
struct Line {
    inside: usize,
    nfs: Vec<usize>,
    outside: usize,
    /// Packets pass from the outside to the inside, too.
    both_ways: bool,
}

/// Returns the path of the policy. This runner supports one pipelet, a line between two ports.
fn line(policy: &Policy) -> Result<Line, Box<Diagnostic>> {
    let [pipelet] = &policy.pipelets[..] else {
        let (message, span) = match policy.pipelets.get(1) {
            Some(second) => ("only one pipelet is supported; this is a second one", second.span),
            None => ("the policy has no pipelet, so packets have no path", policy.settings.span),
        };
        let help = "write `pipelet { inside <-> function <-> outside; }`";
        return Err(Box::new(Diagnostic::error(message, span).help(help)));
    };
    let edges: Vec<_> =
        pipelet.edges.iter().filter(|edge| edge.direction == EdgeDirection::Forward).collect();
    if let Some(edge) = pipelet.edges.iter().find(|edge| edge.filter != Filter::Always(true)) {
        return Err(not_a_line("filters on edges are not supported yet", edge.span));
    }
    let targets: BTreeSet<Node> = edges.iter().map(|edge| edge.to).collect();
    let starts: Vec<_> = edges
        .iter()
        .filter(|edge| matches!(edge.from, Node::Port(_)) && !targets.contains(&edge.from))
        .collect();
    let mut onward: BTreeMap<Node, Vec<Node>> = BTreeMap::new();
    edges.iter().for_each(|edge| onward.entry(edge.from).or_default().push(edge.to));
    let &[first] = &starts[..] else {
        return Err(not_a_line("the line must begin at one port", pipelet.span));
    };
    let Node::Port(inside) = first.from else {
        return Err(not_a_line("the line must begin at a port", first.span));
    };
    let (mut nfs, mut at) = (Vec::new(), first.from);
    for _ in &edges {
        let Some(&[next]) = onward.get(&at).map(Vec::as_slice) else { break };
        at = next;
        match at {
            Node::Nf(nf) => nfs.push(nf),
            Node::Port(_) | Node::Drop => break,
        }
    }
    let Node::Port(outside) = at else {
        return Err(not_a_line("the line must end at a port", pipelet.span));
    };
    if nfs.len() + 1 != edges.len() {
        return Err(not_a_line("the functions must form one line between two ports", pipelet.span));
    }
    let back = pipelet.edges.len() - edges.len();
    if back != 0 && back != edges.len() {
        return Err(not_a_line("either all arrows are `->` or all are `<->`", pipelet.span));
    }
    Ok(Line { inside, nfs, outside, both_ways: back != 0 })
}

fn not_a_line(message: &str, span: policy::Span) -> Box<Diagnostic> {
    let help = "only one line between two ports is supported: `inside <-> nat <-> firewall <-> outside;`";
    Box::new(Diagnostic::error(message, span).help(help))
}

fn ports(policy: &Policy, line: &Line, wrong: &mut Vec<Diagnostic>) -> Ports {
    let mut ports = Vec::new();
    let mut addresses = BTreeMap::new();
    for (index, side) in [(line.inside, Side::Inside), (line.outside, Side::Outside)] {
        let port = &policy.ports[index];
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
        let several = port.numbers.start() != port.numbers.end();
        for number in port.numbers.clone() {
            let name = if several { format!("{}#{number}", port.name) } else { port.name.clone() };
            let PortConfig { prefixes, address: networks, gateway: gateways } = config.clone();
            ports.push(PortEntry { number, name, side, prefixes, networks, gateways });
        }
    }
    Ports::new(ports)
}

fn read<T: serde::de::DeserializeOwned>(
    policy: &Policy,
    value: &Value,
    wrong: &mut Vec<Diagnostic>,
) -> Option<T> {
    policy.config(value).map_err(|diagnostic| wrong.push(*diagnostic)).ok()
}
