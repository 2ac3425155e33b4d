//! Nodes of the cluster.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cluster::identity::check_name;
use cluster::remote::{NodeCommand, NodeInfo, NodeStatus};
use values::HostPort;

use super::{Api, ApiJson, ApiPath, ApiQuery};
use crate::paging::{Page, PageQuery};
use crate::problem::Problem;
use crate::resources::{NewNode, NodeResource};

/// Limit on the nodes of a cluster.
const NODES_MAX: usize = 1024;

/// Returns all nodes.
pub(crate) fn all(api: &Api) -> Vec<NodeResource> {
    api.dispatcher.nodes().into_iter().map(NodeResource::from).collect()
}

/// List the nodes
#[utoipa::path(
    get, path = "/v1/nodes", tag = "nodes", operation_id = "list_nodes", params(PageQuery),
    responses(
        (status = 200, description = "A page of nodes", body = Page<NodeResource>),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    ApiQuery(query): ApiQuery<PageQuery>,
) -> Result<Json<Page<NodeResource>>, Problem> {
    query.page(all(&api), |node| node.name.clone()).map(Json)
}

/// Add a node, which becomes a unit once it is there
#[utoipa::path(
    post, path = "/v1/nodes", tag = "nodes", operation_id = "add_node", request_body = NewNode,
    responses(
        (status = 202, description = "The node", body = NodeResource),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn add(
    State(api): State<Arc<Api>>,
    ApiJson(NewNode { name, address }): ApiJson<NewNode>,
) -> Result<(StatusCode, Json<NodeResource>), Problem> {
    let nodes = api.dispatcher.nodes();
    check_name(&name).map_err(|fault| Problem::invalid(("name", fault)))?;
    let address: HostPort = address.parse().map_err(|fault| Problem::invalid(("address", fault)))?;
    if address.port() == 0 {
        return Err(Problem::invalid(("address", "expected a port other than 0".to_owned())));
    }
    if nodes.iter().any(|node| node.name == name) {
        return Err(Problem::conflict("node_exists", format!("there is a node `{name}` already")));
    }
    if nodes.len() >= NODES_MAX {
        return Err(Problem::conflict("nodes", format!("{NODES_MAX} nodes are in the cluster already")));
    }
    let status = NodeStatus::Connecting;
    let (policy, reason, silent_ns) = (None, String::new(), None);
    let address = address.to_string();
    let node = NodeInfo { name, address, status, unit: None, packets: 0, policy, reason, silent_ns };
    let (name, address) = (node.name.clone(), node.address.clone());
    api.dispatcher.command(NodeCommand::Add { name, address })?;
    Ok((StatusCode::ACCEPTED, Json(node.into())))
}

/// Show a node
#[utoipa::path(
    get, path = "/v1/nodes/{name}", tag = "nodes", operation_id = "show_node",
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The node", body = NodeResource),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn show(
    State(api): State<Arc<Api>>,
    ApiPath(name): ApiPath<String>,
) -> Result<Json<NodeResource>, Problem> {
    Ok(Json(api.dispatcher.node(&name)?.into()))
}

/// Drain a node: its unit gets no new flows, hands its flows over, and stops
#[utoipa::path(
    post, path = "/v1/nodes/{name}/drain", tag = "nodes", operation_id = "drain_node",
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 202, description = "The node, which drains", body = NodeResource),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn drain(
    State(api): State<Arc<Api>>,
    ApiPath(name): ApiPath<String>,
) -> Result<(StatusCode, Json<NodeResource>), Problem> {
    let node = api.dispatcher.node(&name)?;
    let status = match (node.status, node.unit) {
        (NodeStatus::Active | NodeStatus::Suspect, Some(unit)) => {
            api.dispatcher.drain(unit).await?;
            NodeStatus::Draining
        }
        (NodeStatus::Spare, _) => {
            api.dispatcher.command(NodeCommand::Drain { name })?;
            NodeStatus::Drained
        }
        (status @ (NodeStatus::Draining | NodeStatus::Drained), _) => status,
        (NodeStatus::Connecting | NodeStatus::Active | NodeStatus::Suspect, _) => {
            let detail = format!("node `{name}` is {} and has no unit", node.status.name());
            return Err(Problem::conflict("no_unit", detail));
        }
    };
    Ok((StatusCode::ACCEPTED, Json(NodeInfo { status, ..node }.into())))
}

/// Resume a node that drains, or let a drained one join again
#[utoipa::path(
    post, path = "/v1/nodes/{name}/resume", tag = "nodes", operation_id = "resume_node",
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 202, description = "The node", body = NodeResource),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn resume(
    State(api): State<Arc<Api>>,
    ApiPath(name): ApiPath<String>,
) -> Result<(StatusCode, Json<NodeResource>), Problem> {
    let node = api.dispatcher.node(&name)?;
    let status = match (node.status, node.unit) {
        (NodeStatus::Draining, Some(unit)) => {
            api.dispatcher.resume(unit).await?;
            NodeStatus::Active
        }
        (NodeStatus::Drained, _) => {
            api.dispatcher.command(NodeCommand::Resume { name })?;
            NodeStatus::Connecting
        }
        (status, _) => status,
    };
    Ok((StatusCode::ACCEPTED, Json(NodeInfo { status, ..node }.into())))
}
