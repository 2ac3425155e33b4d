//! The way to a cluster: its nodes, and policies for them.

use cluster::remote::{PolicyMaker, RemoteHandle};

/// The way to a cluster.
#[derive(Clone)]
pub struct ClusterControl {
    /// The way to the nodes.
    pub nodes: RemoteHandle,
    /// Makes policies that all nodes get.
    pub make_policy: PolicyMaker,
}
