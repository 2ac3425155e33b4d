//! The changes of a policy that a run takes over while packets flow: those of functions'
//! configurations.

use std::sync::Arc;

use nf::AffinityKey;
use policy::{Diagnostic, Edge, Nf, Policy, Port, Span};

use crate::assembly::Assembly;

/// The parts of a run's policy that never change.
pub struct RunningPolicy {
    policy: Arc<Policy>,
    affinity_keys: Vec<(String, AffinityKey)>,
}

impl RunningPolicy {
    /// Creates that of a run with this assembly of the policy.
    pub fn new(policy: Arc<Policy>, assembly: &Assembly) -> RunningPolicy {
        RunningPolicy { policy, affinity_keys: affinity_keys(assembly) }
    }

    /// Checks if the run can take another policy over while packets flow. Ports, edges, settings,
    /// and the functions' names and types must be the same. So must be the configurations of
    /// functions that lease items of a pool, because flows hold some, and the addresses that select
    /// affinity groups.
    ///
    /// # Errors
    /// The first difference, in the other policy.
    pub fn check_change(&self, policy: &Policy, assembly: &Assembly) -> Result<(), Box<Diagnostic>> {
        let stays = |message: String, span: Span| {
            let help = "only the configurations of functions change while packets flow; restart for others";
            Err(Box::new(Diagnostic::error(message, span).help(help)))
        };
        let running = &*self.policy;
        let port = |port: &Port| (port.name.clone(), port.numbers.clone(), port.config.digest());
        if let Some(at) = difference(running.ports.iter().map(port), policy.ports.iter().map(port)) {
            let span =
                policy.ports.get(at).or(policy.ports.last()).map_or(policy.settings.span, |port| port.span);
            return stays("the ports differ from those of the run".to_owned(), span);
        }
        let function = |nf: &Nf| (nf.name.clone(), nf.type_name.to_ascii_lowercase());
        if let Some(at) = difference(running.nfs.iter().map(function), policy.nfs.iter().map(function)) {
            let span = policy.nfs.get(at).or(policy.nfs.last()).map_or(policy.settings.span, |nf| nf.span);
            return stays("the functions differ from those of the run".to_owned(), span);
        }
        if let Some(node) = policy.externals.first().or(running.externals.first()) {
            let message = format!("the external node `{}` cannot change its policy while it runs", node.name);
            return stays(message, policy.settings.span);
        }
        if running.settings.digest() != policy.settings.digest() {
            return stays("the settings differ from those of the run".to_owned(), policy.settings.span);
        }
        let edge = |edge: &Edge| (edge.from, edge.to, edge.filter.clone(), edge.direction);
        let edges = edges(policy);
        if let Some(at) =
            difference(self::edges(running).into_iter().map(edge), edges.iter().copied().map(edge))
        {
            let span = edges.get(at).or(edges.last()).map_or(policy.settings.span, |edge| edge.span);
            return stays("the edges differ from those of the run".to_owned(), span);
        }
        let stages = assembly.names.iter().zip(assembly.graph.stages());
        let with_pools = stages.filter(|(_, stage)| !stage.shared().pools.is_empty()).map(|(name, _)| name);
        for name in with_pools {
            let of =
                |policy: &Policy| policy.nfs.iter().find(|nf| nf.name == *name).map(|nf| nf.config.digest());
            if of(running) != of(policy) {
                let message = format!("`{name}` leases items of a pool to flows, so its configuration stays");
                return stays(message, span_of(policy, name));
            }
        }
        let keys = affinity_keys(assembly);
        if let Some(at) = difference(self.affinity_keys.iter().cloned(), keys.iter().cloned()) {
            let name = keys.get(at).or(self.affinity_keys.get(at)).map_or("", |(name, _)| name);
            let message =
                format!("`{name}` deals flows to affinity groups by other addresses than in the run");
            return stays(message, span_of(policy, name));
        }
        Ok(())
    }
}

/// Returns the first place at which two lists differ.
fn difference<T: PartialEq>(
    one: impl ExactSizeIterator<Item = T>,
    other: impl ExactSizeIterator<Item = T>,
) -> Option<usize> {
    let (len, is_same_len) = (one.len().min(other.len()), one.len() == other.len());
    one.zip(other).position(|(one, other)| one != other).or((!is_same_len).then_some(len))
}

fn edges(policy: &Policy) -> Vec<&Edge> {
    policy.pipelets.iter().flat_map(|pipelet| &pipelet.edges).collect()
}

fn span_of(policy: &Policy, function: &str) -> Span {
    policy.nfs.iter().find(|nf| nf.name == function).map_or(policy.settings.span, |nf| nf.span)
}

fn affinity_keys(assembly: &Assembly) -> Vec<(String, AffinityKey)> {
    let stages = assembly.names.iter().zip(assembly.graph.stages());
    stages.filter_map(|(name, stage)| Some((name.clone(), stage.shared().affinity_key?))).collect()
}
