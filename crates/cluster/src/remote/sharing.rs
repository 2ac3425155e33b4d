//! The check that the functions of a policy can share state across nodes.

use nf::stage::Stage;
use nf::{AffinityKey, Field, NodeSharing, Shared};
use runtime::Assembly;

/// The reason why a policy cannot run on several nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharingError {
    /// A function runs on one machine only.
    #[error("`{name}` ({function}) runs on one machine only: it shares {state}, and {reason}")]
    OneMachine {
        /// The function's name in the policy.
        name: String,
        /// Its type.
        function: &'static str,
        /// The state that its flows share.
        state: String,
        /// The reason.
        reason: &'static str,
    },
    /// Two functions assign flows to affinity groups by different addresses, or one of them by
    /// connections.
    #[error(
        "`{first}` and `{second}` deal flows to nodes by different addresses; expected the same `prefix4` and \
         `prefix6`, 32 beside a NAT, and no `mptcp` beside either"
    )]
    Keys {
        /// One function.
        first: String,
        /// The other one.
        second: String,
    },
    /// A function rewrites the addresses that another one assigns flows to groups by.
    #[error("`{rewriter}` rewrites the addresses by which `{name}` deals flows to nodes; expected {place}")]
    Rewritten {
        /// The function with state that its flows share.
        name: String,
        /// The function that rewrites addresses.
        rewriter: String,
        /// The order of functions that would be accepted.
        place: &'static str,
    },
    /// A function assigns flows to groups by information that only one dispatcher sees.
    #[error("`{name}` ({function}) deals sub-flows to nodes by their connections; expected one dispatcher")]
    Dispatchers {
        /// The function's name in the policy.
        name: String,
        /// Its type.
        function: &'static str,
    },
    /// The policy was assembled without affinity groups.
    #[error("`{name}` ({function}) divides its state among affinity groups; expected a policy with groups")]
    NoGroups {
        /// The function's name in the policy.
        name: String,
        /// Its type.
        function: &'static str,
    },
}

/// Checks that the functions of a policy may run on several nodes.
///
/// # Errors
/// The first function that may not.
pub fn check_sharing(assembly: &Assembly) -> Result<(), SharingError> {
    let has_groups = assembly.graph.options().affinity_groups.is_some();
    check_keys(assembly)?;
    for (name, stage) in assembly.names.iter().zip(assembly.graph.stages()) {
        let descriptor = stage.descriptor();
        let (name, function) = (name.clone(), descriptor.name);
        let state = shared_by(&**stage);
        match descriptor.across_nodes {
            _ if state.is_empty() => {}
            NodeSharing::PerGroup | NodeSharing::PerNode if stage.shared().one_machine.is_some() => {
                let (state, reason) = (state.join(", "), stage.shared().one_machine.unwrap_or_default());
                return Err(SharingError::OneMachine { name, function, state, reason });
            }
            NodeSharing::PerNode => {}
            NodeSharing::PerGroup if has_groups => {}
            NodeSharing::PerGroup => return Err(SharingError::NoGroups { name, function }),
            NodeSharing::OneMachine(reason) => {
                let state = state.join(", ");
                return Err(SharingError::OneMachine { name, function, state, reason });
            }
        }
    }
    Ok(())
}

/// Checks that the functions of a policy may run with several dispatchers.
pub(super) fn check_dispatchers(assembly: &Assembly) -> Result<(), SharingError> {
    let mut stages = assembly.names.iter().zip(assembly.graph.stages());
    match stages.find(|(_, stage)| stage.shared().affinity_key == Some(AffinityKey::Connection)) {
        Some((name, stage)) => {
            let function = stage.descriptor().name;
            Err(SharingError::Dispatchers { name: name.clone(), function })
        }
        None => Ok(()),
    }
}

/// Checks that the functions that assign flows to affinity groups see the same addresses. A
/// function that translates addresses itself, such as a NAT, knows the groups of the results.
fn check_keys(assembly: &Assembly) -> Result<(), SharingError> {
    let rewrites = |stage: &dyn Stage| {
        let writes = stage.descriptor().writes;
        writes.contains(&Field::SourceAddress) || writes.contains(&Field::DestinationAddress)
    };
    let stages: Vec<_> = assembly.names.iter().zip(assembly.graph.stages()).collect();
    let mut first = None;
    for (place, (name, stage)) in stages.iter().enumerate() {
        let Some(key) = stage.shared().affinity_key else { continue };
        let (of_first, first) = *first.get_or_insert((key, name));
        if !key.agrees_with(of_first) {
            return Err(SharingError::Keys { first: first.to_string(), second: name.to_string() });
        }
        if rewrites(&***stage) {
            continue;
        }
        for (other, (rewriter, of_rewriter)) in stages.iter().enumerate() {
            let translates_alike = other > place && of_rewriter.shared().affinity_key.is_some();
            if rewrites(&***of_rewriter) && !translates_alike {
                let (name, rewriter) = (name.to_string(), rewriter.to_string());
                let place = match of_rewriter.shared().affinity_key {
                    Some(_) => "the latter at the inside of the former",
                    None => "one of them in another policy",
                };
                return Err(SharingError::Rewritten { name, rewriter, place });
            }
        }
    }
    Ok(())
}

/// Returns the kinds and names of the shared state, without counters.
fn shared_by(stage: &dyn Stage) -> Vec<String> {
    let shared = stage.shared();
    if shared.pools.is_empty() && !shared.is_order_sensitive() {
        return Vec::new();
    }
    let mut meters = shared.meters.iter();
    let of_kind = |kind: &Shared| match kind {
        Shared::Set { name, .. } => Some(format!("the set `{name}`")),
        Shared::Pool(name) => Some(format!("the pool `{name}`")),
        Shared::Meters(name) => {
            let is_used = meters.next().is_some_and(|meters| meters.capacity() > 0);
            is_used.then(|| format!("the meters `{name}`"))
        }
        Shared::PayloadCache(name) => Some(format!("the payload cache `{name}`")),
    };
    stage.descriptor().shared.iter().filter_map(of_kind).collect()
}
