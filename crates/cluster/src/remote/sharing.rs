//! The check that flows at several nodes can share what the functions of a policy share.

use nf::stage::Stage;
use nf::{NodeSharing, Shared};
use runtime::Assembly;

/// The reason for which a policy cannot run on several nodes.
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
    /// The policy was assembled without affinity groups.
    #[error("`{name}` ({function}) divides its state among affinity groups; expected a policy with groups")]
    NoGroups {
        /// The function's name in the policy.
        name: String,
        /// Its type.
        function: &'static str,
    },
}

/// Checks if the functions of a policy may run on several nodes.
pub(super) fn check(assembly: &Assembly) -> Result<(), SharingError> {
    let has_groups = assembly.graph.options().affinity_groups.is_some();
    for (name, stage) in assembly.names.iter().zip(assembly.graph.stages()) {
        let descriptor = stage.descriptor();
        let (name, function) = (name.clone(), descriptor.name);
        let state = shared_by(&**stage);
        match descriptor.across_nodes {
            _ if state.is_empty() => {}
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

/// Returns the kinds and names of the state that flows share, beside counters.
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
