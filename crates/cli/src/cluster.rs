//! Nodes of a cluster: `rivulet node`, `rivulet cluster`, and `--cluster` of other commands.

mod certificates;
mod config;
mod dispatcher;
mod dispatcher_role;
mod manager;
mod members;
mod policies;
mod shelf;
mod unit;

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use self::config::{NodeConfig, NodeRole};
use crate::eve::EventKinds;
use crate::export::ExportArgs;
use crate::messages::say;
use crate::metrics_address::DEFAULT_ADDRESS;
use anyhow::bail;

pub use certificates::{ClusterArgs, issue};
pub use dispatcher::{DispatcherNode, api_of};
pub use unit::PARENT_VARIABLE;

/// Run a node of a cluster
///
/// A unit waits for a dispatcher, processes its packets, and hands flows over to other units. A
/// dispatcher is `rivulet up --cluster`, with ports and options in its file. A manager keeps units
/// as processes of its host, and one more than are at work. All nodes show certificates of the
/// cluster's authority to each other: see `rivulet cluster`.
#[derive(Debug, clap::Args)]
#[command(after_help = NODE_EXAMPLES)]
pub struct NodeArgs {
    /// Configuration of the node, in TOML
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// Write the report to this file at the end, as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write alerts and events to a file as EVE JSON lines
    #[arg(long, value_name = "FILE")]
    pub alerts: Option<PathBuf>,
    /// Events to write to the alert file: of functions (http, dns, tls, redundancy, nat), and flow
    /// records of a Monitor (flow)
    #[arg(long, value_name = "KINDS", default_value_t, requires = "alerts")]
    pub events: EventKinds,
    #[command(flatten)]
    pub export: ExportArgs,
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = DEFAULT_ADDRESS, help = METRICS_HELP.as_str())]
    pub metrics: Option<SocketAddr>,
}

static METRICS_HELP: LazyLock<String> = LazyLock::new(|| {
    format!(
        "Serve HTTP at this address, or {DEFAULT_ADDRESS}: /metrics for Prometheus, /report for `rivulet top`; also \
         `metrics` in `[options]`"
    )
});

const NODE_EXAMPLES: &str = "\
Examples:
  rivulet cluster init certificates dispatcher unit-1 unit-2
  rivulet node --config unit-1.toml
  rivulet run site.rvl --read capture.pcap --cluster dispatcher.toml

unit-1.toml:
  name = \"unit-1\"
  role = \"unit\"
  listen = \"[::]:7400\"
  policy = \"site.rvl\"
  certificates = \"certificates\"

dispatcher.toml:
  name = \"dispatcher\"
  certificates = \"certificates\"
  [units]
  unit-1 = \"10.0.0.2:7400\"
  unit-2 = \"10.0.0.3:7400\"

Units in both files that are found by a store, in place of [units]:
  [store]
  etcd = [\"http://10.0.0.1:2379\"]";

/// Runs `rivulet node`.
pub fn run_node(args: &NodeArgs) -> anyhow::Result<ExitCode> {
    let config = NodeConfig::read(&args.config)?;
    match config.role {
        Some(NodeRole::Unit) => unit::run(args, &config),
        Some(NodeRole::Dispatcher) => dispatcher_role::run(args, &config),
        Some(NodeRole::Manager) => manager::run(args, &config),
        None => bail!("{}: expected `role`: unit, dispatcher or manager", args.config.display()),
    }
}

/// Says that the secrets of links are written to a file, if they are.
fn say_key_log(path: Option<&Path>) {
    if let Some(path) = path {
        say!("rivulet: writes the secrets of links to {}: who reads it can decrypt them", path.display());
    }
}

/// Returns a number that distinguishes this process from others of its node: random, because the
/// clock may be set back. The higher bits grow with time anyway, for nodes of earlier versions.
fn incarnation() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let random = RandomState::new().hash_one(std::process::id());
    since & !INCARNATION_RANDOM | random & INCARNATION_RANDOM
}

/// Bits of an incarnation that are random; the others say the time, in steps of 0.3 s.
const INCARNATION_RANDOM: u64 = (1 << 28) - 1;
