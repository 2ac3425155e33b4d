//! `rivulet node`: a unit, a dispatcher or a manager of a cluster.

mod dispatcher;
mod manager;
mod unit;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use anyhow::bail;

use crate::cluster::config::{NodeConfig, NodeRole};
use crate::export::ExportArgs;
use crate::metrics_address::DEFAULT_ADDRESS;
use observe::eve::EventKinds;

pub use unit::PARENT_VARIABLE;

/// Run a node of a cluster
///
/// A unit waits for a dispatcher, processes its packets, and hands flows over to other units. A
/// dispatcher is `rivulet up --cluster`, with ports and options in its file. A manager keeps units
/// as processes of its host, with a spare one. All nodes show certificates of the cluster's
/// authority to each other: see `rivulet cluster`.
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

/// Runs the command.
pub fn run(args: &NodeArgs) -> anyhow::Result<ExitCode> {
    let config = NodeConfig::read(&args.config)?;
    match config.role {
        Some(NodeRole::Unit) => unit::run(args, &config),
        Some(NodeRole::Dispatcher) => dispatcher::run(args, &config),
        Some(NodeRole::Manager) => manager::run(args, &config),
        None => bail!("{}: expected `role`: unit, dispatcher or manager", args.config.display()),
    }
}
