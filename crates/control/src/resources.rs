//! The resources of the API.

use std::collections::BTreeMap;

use cluster::remote::{NodeInfo, OtherDispatcher, StoreStatus};
use protocol::dispatcher::{FlowStatus, UnitState};
use protocol::message::UnitId;
use runtime::operator::{DispatcherStatus, UnitInfo};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::clients::ClientsResource;
use crate::flow_id;
use crate::link_resources::LinkTotalsResource;
use crate::policy_resources::{RolloutResource, hexadecimal};

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Status)]
pub struct StatusResource {
    /// The name of this process in its cluster, or that of the policy.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// The policy.
    pub policy: String,
    /// The number of the cluster's policy, 0 if none was applied; absent outside of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_number: Option<u64>,
    /// The latest rollout of a policy; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutResource>,
    /// Time since the start.
    pub uptime_seconds: f64,
    /// Packets that arrived at ports.
    pub packets_in: u64,
    /// Packets that left by ports.
    pub packets_out: u64,
    /// The dispatcher of units; absent if the policy runs without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatcher: Option<DispatcherResource>,
    /// Units that are active.
    pub units_active: u32,
    /// Units that hand their flows over.
    pub units_draining: u32,
    /// Nodes, other than this one.
    pub nodes: u32,
    /// Of these, nodes that are not there.
    pub nodes_connecting: u32,
    /// Nodes by their status.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes_by_status: BTreeMap<String, u32>,
    /// The policies of all nodes and dispatchers that are there, if they run different ones, as
    /// during a rollout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyUseResource>,
    /// The store of the cluster; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreResource>,
    /// Of these, silent nodes that are not given up.
    #[serde(default)]
    pub nodes_suspect: u32,
    /// Units that are ready, of those that run whatever the load, and nodes that are not there,
    /// while some are not ready: `waiting for units: 1 of 3 are ready, unit-2 not there`. It begins
    /// with `units missing` once packets are processed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Other dispatchers of the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_dispatchers: Vec<OtherDispatcherResource>,
    /// Clients of this API.
    #[serde(default)]
    pub clients: ClientsResource,
    /// Migrations under way.
    pub migrations_running: u32,
    /// Links to other nodes; absent outside of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<LinkTotalsResource>,
}

/// The nodes that run a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PolicyUse)]
pub struct PolicyUseResource {
    /// The digest of the policy, in hexadecimal.
    pub digest: String,
    /// The names of nodes and dispatchers that run it.
    pub nodes: Vec<String>,
}

/// The store of the cluster, as this dispatcher sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Store)]
pub struct StoreResource {
    /// True if it answers.
    pub is_reachable: bool,
    /// Time since it answers, or does not.
    pub since_seconds: f64,
    /// Units that have registered themselves.
    pub entries: u64,
    /// Why it does not answer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl From<StoreStatus> for StoreResource {
    fn from(StoreStatus { is_reachable, since, entries, reason }: StoreStatus) -> StoreResource {
        StoreResource { is_reachable, since_seconds: since.elapsed().as_secs_f64(), entries, reason }
    }
}

/// Another dispatcher of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OtherDispatcher)]
pub struct OtherDispatcherResource {
    /// Its name, as in its certificate.
    pub name: String,
    /// The address of its handshakes.
    pub address: String,
    /// `connecting`, `connected` or `suspect`.
    pub status: String,
    /// The digest of its policy, in hexadecimal, while it is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Why it is not connected, if that is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Time since its last sign of life, in milliseconds, if it is suspect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    /// The number of the policy that it runs; absent while it is away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_number: Option<u64>,
}

impl From<OtherDispatcher> for OtherDispatcherResource {
    fn from(other: OtherDispatcher) -> OtherDispatcherResource {
        let OtherDispatcher { name, address, is_connected, policy, reason, silent_ns } = other;
        let status = match silent_ns {
            Some(_) => "suspect",
            None if is_connected => "connected",
            None => "connecting",
        };
        let policy_number = policy.map(|policy| policy.number);
        let policy = policy.map(|policy| hexadecimal(&policy.digest));
        let silent_ms = silent_ns.map(|ns| ns / 1_000_000);
        OtherDispatcherResource {
            name,
            address,
            status: status.to_owned(),
            policy,
            policy_number,
            reason,
            silent_ms,
        }
    }
}

/// The state of a dispatcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Dispatcher)]
pub struct DispatcherResource {
    /// The unit of assignment: `flow`, `flowlet`, and so on.
    pub mode: String,
    /// The choice of a unit: `most-utilised`, `least-loaded`, `round-robin`.
    #[serde(default)]
    pub choice: String,
    /// The rule by which units start and stop: `room`, `demand:SHARE`, or `drops:LIMIT:STEP`.
    #[serde(default)]
    pub scaling: String,
    /// Live flows.
    pub flows: u32,
    /// Flows that began.
    pub flows_started: u64,
    /// Flows lost with their units.
    pub flows_lost: u64,
    /// Flows that operators have migrated.
    pub flows_migrated: u64,
    /// Flows that stayed because a unit refused their state.
    pub states_refused: u64,
    /// Packets sent to units.
    pub packets: u64,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Node)]
pub struct NodeResource {
    /// Its name, as in its certificate.
    pub name: String,
    /// The address of its handshakes.
    pub address: String,
    /// `connecting`, `spare`, `active`, `suspect`, `draining` or `drained`.
    pub status: String,
    /// Time since its last sign of life, in milliseconds, if it is suspect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    /// Its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<u16>,
    /// Packets that were sent to that unit.
    pub packets: u64,
    /// The digest of its policy, in hexadecimal, while it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The reason of its status; absent if there is nothing to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The number of the policy that it runs; absent while it is away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_number: Option<u64>,
}

/// A unit that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Unit)]
pub struct UnitResource {
    /// Its number.
    pub unit: u16,
    /// Its node; absent if it runs in this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// `starting`, `active` or `draining`.
    pub status: String,
    /// Its load, as a share of its capacity.
    pub load: f64,
    /// Flows that it owns.
    pub flows: u32,
    /// Bytes of packets that were sent to it.
    pub bytes: u64,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Flow)]
pub struct FlowResource {
    /// Its identity: index and generation.
    #[schema(example = "17.0")]
    pub id: String,
    /// IP protocol number.
    pub protocol: u8,
    /// Both ends, `ADDRESS:PORT`, in the order of their addresses.
    #[schema(example = json!(["10.0.0.5:51514", "192.0.2.1:443"]))]
    pub ends: [String; 2],
    /// Outermost VLAN identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Identifier of the virtual network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<u32>,
    /// Tenant.
    pub tenant: u16,
    /// The unit that owns it.
    pub unit: u16,
    /// The node of that unit; absent if it runs in this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Number of its owners so far.
    pub epoch: u32,
    /// Packets so far.
    pub packets: u64,
    /// Time since its last packet.
    pub idle_seconds: f64,
}

/// A node to add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewNode {
    /// Its name, as in its certificate.
    #[schema(example = "unit-3")]
    pub name: String,
    /// The address of its handshakes, `HOST:PORT`.
    #[schema(example = "10.0.0.4:7400")]
    pub address: String,
}

/// A unit, by number or by its node's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum UnitName {
    /// Its number.
    Number(u16),
    /// Its node's name.
    Node(String),
}

/// The new unit of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveRequest {
    /// The unit; without one, the other active unit with the fewest flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<UnitName>,
}

/// Flows to migrate: all that meet every condition. At least one is required.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MigrationRequest {
    /// These flows, up to 1024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<Vec<String>>,
    /// Flows of this unit; without other conditions, all of them (evacuate).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<UnitName>,
    /// Flows that this filter matches in one of their directions, in the policy's language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "dst port 443 && src net 10.0.0.0/8")]
    pub filter: Option<String>,
    /// Limit on the flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Their new unit; without one, each flow goes to the other active unit with the fewest flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<UnitName>,
}

/// The state of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MigrationState {
    /// Flows are being moved.
    Running,
    /// All flows that were wanted have moved, or cannot.
    Done,
    /// It was cancelled; flows that had moved stay there.
    Cancelled,
    /// The dispatcher did not answer; flows that had moved stay there.
    Failed,
    /// Flows are being moved back.
    Reverting,
    /// All flows that are still there have moved back, or cannot.
    Reverted,
}

/// A migration of flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Migration)]
pub struct MigrationResource {
    /// Its number, counted from 1.
    pub id: u64,
    /// Its state.
    pub state: MigrationState,
    /// Its request.
    pub request: MigrationRequest,
    /// Flows that the request selects, so far.
    pub wanted: u64,
    /// Flows that have a new owner.
    pub moved: u64,
    /// Flows that stayed because their new owner refused the state.
    pub refused: u64,
    /// Flows that could not be moved: they have ended, or their unit is not active.
    pub failed: u64,
    /// Flows that were moved back.
    pub reverted: u64,
    /// Copies of states that had not come when their flows moved: they were lost, too large for the
    /// unit, or links are slow.
    #[serde(default)]
    pub copies_late: u64,
    /// Flows that are copied and moved at a time now: as many as links and units bear.
    #[serde(default)]
    pub batch_size: u64,
    /// True if more flows are selected than one migration may move.
    pub is_truncated: bool,
    /// The reason of the latest flow that could not be moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl From<DispatcherStatus> for DispatcherResource {
    fn from(status: DispatcherStatus) -> DispatcherResource {
        let DispatcherStatus {
            mode,
            choice,
            scaling,
            flows,
            flows_started,
            flows_lost,
            flows_migrated,
            states_refused,
            packets,
        } = status;
        DispatcherResource {
            mode,
            choice,
            scaling,
            flows,
            flows_started,
            flows_lost,
            flows_migrated,
            states_refused,
            packets,
        }
    }
}

impl From<NodeInfo> for NodeResource {
    fn from(info: NodeInfo) -> NodeResource {
        let NodeInfo { name, address, status, unit, packets, policy, reason, silent_ns } = info;
        NodeResource {
            name,
            address,
            status: status.name().to_owned(),
            silent_ms: silent_ns.map(|ns| ns / 1_000_000),
            unit: unit.map(|unit| unit.0),
            packets,
            policy: policy.map(|policy| hexadecimal(&policy.digest)),
            reason,
            policy_number: policy.map(|policy| policy.number),
        }
    }
}

impl UnitResource {
    /// Creates the resource of a unit at this node.
    pub(crate) fn of(info: &UnitInfo, node: Option<String>) -> UnitResource {
        let status = match info.state {
            UnitState::Off => "off",
            UnitState::Starting => "starting",
            UnitState::Active => "active",
            UnitState::Draining => "draining",
            UnitState::Lost => "lost",
        };
        UnitResource {
            unit: info.unit.0,
            node,
            status: status.to_owned(),
            load: info.load,
            flows: info.flows,
            bytes: info.bytes,
        }
    }
}

impl FlowResource {
    /// Creates the resource of a flow; `node` returns the name of a unit's node.
    pub(crate) fn of(
        status: &FlowStatus,
        now_ns: u64,
        node: impl Fn(UnitId) -> Option<String>,
    ) -> FlowResource {
        let (one, other) = status.key.ends(false);
        let (low, high) = (one.min(other), one.max(other));
        let network = status.key.scope.network();
        FlowResource {
            id: flow_id::to_text(status.flow),
            protocol: status.key.protocol,
            ends: [low.to_string(), high.to_string()],
            vlan: status.key.scope.vlan(),
            network: Some(network).filter(|&network| network != 0),
            tenant: status.key.tenant(),
            unit: status.owner.0,
            node: node(status.owner),
            epoch: status.epoch,
            packets: status.packets,
            idle_seconds: now_ns.saturating_sub(status.last_seen_ns) as f64 / 1e9,
        }
    }
}
