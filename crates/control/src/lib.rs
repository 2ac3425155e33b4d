//! The control API of a running dispatcher (A16): HTTP and JSON over a Unix socket, or over TCP and
//! TLS.
//!
//! Operators list nodes, units and flows, migrate flows, drain and resume nodes, and give all of
//! them another policy. `docs/api.md` describes the API, and `docs/api/v1.json` is its OpenAPI
//! document, generated from this code.
//!
//! The server runs on a thread of its own. It queries the dispatcher through a
//! [`runtime::operator::OperatorHandle`], which packets never wait for.
//!
//! ```text
//! client -> socket -> routes -> dispatcher client -> OperatorHandle ... runner, between batches
//!                        |                ^
//!                        +-> migrations --+   tasks that move flows batch by batch
//! ```

pub mod access;
mod clients;
mod cluster_control;
mod connections;
mod dispatcher;
mod door;
mod filter;
mod flow_id;
mod link_resources;
mod migrations;
mod paging;
mod policy_resources;
mod problem;
mod resources;
mod routes;
mod server;
pub mod socket;
mod timeline_resources;
mod token;

pub use clients::ClientsResource;
pub use cluster_control::ClusterControl;
pub use connections::{CLIENTS_MAX, HEAD_LEN_MAX, HEAD_TIMEOUT, HEADERS_MAX, TLS_HANDSHAKE_TIMEOUT};
pub use dispatcher::ANSWER_TIMEOUT;
pub use door::{REMOTE_CLIENTS_MAX, STRANGERS_MAX, STRANGERS_PER_SOURCE_MAX};
pub use flow_id::FlowIdError;
pub use link_resources::{LinkResource, LinkTotalsResource};
pub use migrations::{FLOWS_NAMED_MAX, MIGRATION_FLOWS_MAX, MIGRATIONS_MAX, MIGRATIONS_RUNNING_MAX};
pub use paging::{PAGE_DEFAULT, PAGE_MAX, Page};
pub use policy_resources::{
    FailedOrderResource, PolicyFile, PolicyRequest, PolicyResource, RolloutResource, RolloutStage,
};
pub use problem::{FieldProblem, Problem};
pub use resources::{
    DispatcherResource, FlowResource, MigrationRequest, MigrationResource, MigrationState, MoveRequest,
    NewNode, NodeResource, PolicyUseResource, StatusResource, StoreResource, UnitName, UnitResource,
};
pub use routes::{BODY_MAX, POLICY_BODY_MAX, WATCHERS_MAX, document};
pub use server::{ApiListener, ControlOptions, ControlServer};
pub use timeline_resources::{MissingTimeline, TIMELINE_LINES_MAX, TimelineLineResource, TimelineResource};
pub use token::{TOKEN_LEN_MAX, TOKEN_LEN_MIN, TokenError, read_token};
