//! The way to a cluster: its nodes, and policies for them.

use std::sync::Arc;

use cluster::policies::PolicyTexts;
use cluster::remote::{NewPolicy, RemoteHandle};

/// The way to a cluster.
#[derive(Clone)]
pub struct ClusterControl {
    /// The way to the nodes.
    pub nodes: RemoteHandle,
    /// Makes policies that all nodes get.
    pub make_policy: PolicyMaker,
}

/// Makes a policy that all nodes of a cluster get of its texts, or returns the reason why it cannot
/// follow the present one.
pub type PolicyMaker = Arc<dyn Fn(PolicyTexts) -> Result<NewPolicy, String> + Send + Sync>;
