//! The policy, as resources of the API.

use std::fmt::Write;

use cluster::policies::{Digest, PolicyTexts};
use cluster::remote::{FailedOrder, RolloutState, RolloutStatus};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A policy that all nodes get: its texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyRequest {
    /// The name of its file, for messages.
    pub name: String,
    /// Its text.
    pub text: String,
    /// The files that it names with `file("...")`.
    #[serde(default)]
    pub files: Vec<PolicyFile>,
}

/// A file that a policy names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyFile {
    /// Its name, as in the policy.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// The policy of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Policy)]
pub struct PolicyResource {
    /// The name of its file.
    pub name: String,
    /// Its number: raised by each policy that is applied, 0 if none was. Absent outside of a
    /// cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// Its digest, in hexadecimal. Absent outside of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The latest rollout of a policy; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutResource>,
    /// The latest orders of policies at this dispatcher that have failed: they changed nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_orders: Vec<FailedOrderResource>,
}

/// An order of a policy that has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FailedOrder)]
pub struct FailedOrderResource {
    /// Its number.
    pub number: u64,
    /// The name of the policy's file.
    pub name: String,
    /// The reason.
    pub reason: String,
}

impl From<FailedOrder> for FailedOrderResource {
    fn from(FailedOrder { number, name, reason }: FailedOrder) -> FailedOrderResource {
        FailedOrderResource { number, name, reason }
    }
}

/// The way of a policy to all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Rollout)]
pub struct RolloutResource {
    /// Number of the order at this dispatcher, from 1; 0 if it was given at another one.
    pub number: u64,
    /// The name of the policy's file.
    pub name: String,
    /// The number that the policy has once it holds.
    #[serde(default)]
    pub policy_number: u64,
    /// The digest of the policy, in hexadecimal.
    pub digest: String,
    /// The stage that it is at.
    pub stage: RolloutStage,
    /// The node that gives its flows away and comes back with the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Nodes that are there and run the policy.
    pub nodes_done: u64,
    /// Nodes that are there.
    pub nodes: u64,
    /// The reason if it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The stage of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RolloutStage {
    /// It is about to begin.
    Waiting,
    /// Nodes read the policy; none runs it yet.
    Reading,
    /// It holds, and nodes get it one after the other.
    Rolling,
    /// All nodes that are there run it.
    Done,
    /// It has ended, and nothing has changed.
    Failed,
}

impl RolloutStage {
    /// Returns its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            RolloutStage::Waiting => "waiting",
            RolloutStage::Reading => "reading",
            RolloutStage::Rolling => "rolling",
            RolloutStage::Done => "done",
            RolloutStage::Failed => "failed",
        }
    }
}

impl From<PolicyRequest> for PolicyTexts {
    fn from(request: PolicyRequest) -> PolicyTexts {
        let files = request.files.into_iter().map(|PolicyFile { name, text }| (name, text)).collect();
        PolicyTexts { name: request.name, text: request.text, files }
    }
}

impl From<PolicyTexts> for PolicyRequest {
    fn from(texts: PolicyTexts) -> PolicyRequest {
        let files = texts.files.into_iter().map(|(name, text)| PolicyFile { name, text }).collect();
        PolicyRequest { name: texts.name, text: texts.text, files }
    }
}

impl From<RolloutStatus> for RolloutResource {
    fn from(status: RolloutStatus) -> RolloutResource {
        let (stage, reason) = match status.state {
            RolloutState::Reading => (RolloutStage::Reading, None),
            RolloutState::Rolling => (RolloutStage::Rolling, None),
            RolloutState::Done => (RolloutStage::Done, None),
            RolloutState::Failed(reason) => (RolloutStage::Failed, Some(reason)),
        };
        RolloutResource {
            number: status.number,
            name: status.name,
            policy_number: status.policy_number,
            digest: hexadecimal(&status.digest),
            stage,
            node: status.node,
            nodes_done: status.nodes_done as u64,
            nodes: status.nodes as u64,
            reason,
        }
    }
}

/// Returns a digest in hexadecimal.
pub(crate) fn hexadecimal(digest: &Digest) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
