//! `rivulet status`, `rivulet nodes`, `rivulet units`: the state of a running dispatcher.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::{NewNode, NodeResource, PolicyUseResource, RolloutResource, StatusResource, UnitResource};
use telemetry::{shown, shown_in_cell};

use crate::api::ApiOptions;
use crate::output::{self, Format, Table, duration, thousands};

const DAY: Duration = Duration::from_secs(86_400);

/// Shown digits of a digest, enough to distinguish policies.
const DIGEST_SHOWN: usize = 12;

/// Show the state of a running dispatcher
///
/// The dispatcher is a `rivulet up` or `rivulet run` with --cluster or --api.
#[derive(Debug, clap::Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub struct StatusArgs {
    #[command(flatten)]
    api: ApiOptions,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

const STATUS_EXAMPLES: &str = "\
Examples:
  rivulet status
  rivulet status --api /run/rivulet/dispatcher.sock
  rivulet status -o json | jq .dispatcher.flows";

/// List the nodes of a running dispatcher's cluster
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = NODES_EXAMPLES)]
pub struct NodesArgs {
    #[command(subcommand)]
    task: Option<NodesTask>,
    #[command(flatten)]
    api: ApiOptions,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Debug, clap::Subcommand)]
enum NodesTask {
    /// Add a node, which becomes a unit once it is there
    Add {
        /// Its name, as in its certificate
        name: String,
        /// The address of its handshakes, HOST:PORT
        address: String,
        #[command(flatten)]
        api: ApiOptions,
    },
}

const NODES_EXAMPLES: &str = "\
Examples:
  rivulet nodes
  rivulet nodes add unit-3 10.0.0.4:7400
  rivulet nodes -o json | jq -r '.[] | select(.status != \"active\") | .name'";

/// List the units of a running dispatcher
#[derive(Debug, clap::Args)]
#[command(after_help = UNITS_EXAMPLES)]
pub struct UnitsArgs {
    #[command(flatten)]
    api: ApiOptions,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

const UNITS_EXAMPLES: &str = "\
Examples:
  rivulet units
  rivulet units -o json | jq 'map(.flows) | add'";

/// Runs `rivulet status`.
pub fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let status: StatusResource = args.api.client()?.get("/v1/status")?;
    match args.output {
        Format::Json => output::print_json(&status)?,
        Format::Table => output::print(&text(&status))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `rivulet nodes`.
pub fn run_nodes(args: &NodesArgs) -> anyhow::Result<ExitCode> {
    if let Some(NodesTask::Add { name, address, api }) = &args.task {
        let node = NewNode { name: name.clone(), address: address.clone() };
        let node: NodeResource = api.client()?.post("/v1/nodes", &node)?;
        output::print(&format!("{}: {}\n", shown(&node.name), shown(&node.status)))?;
        return Ok(ExitCode::SUCCESS);
    }
    let nodes: Vec<NodeResource> = args.api.client()?.list("/v1/nodes", &Vec::new(), usize::MAX)?;
    match args.output {
        Format::Json => output::print_json(&nodes)?,
        Format::Table => {
            let mut table = Table::new(&["NODE", "STATUS", "UNIT", "PACKETS", "POLICY", "ADDRESS", "REASON"]);
            for node in nodes {
                let NodeResource { name, address, status, silent_ms, unit, packets, reason, .. } = node;
                let policy = node.policy_number.map_or_else(|| "-".to_owned(), |number| number.to_string());
                let status = with_silence(&status, silent_ms);
                let unit = unit.map_or_else(|| "-".to_owned(), |unit| unit.to_string());
                let [name, address] = [name, address].map(|text| shown_in_cell(text).to_string());
                table.row(vec![name, status, unit, thousands(packets), policy, address, reason]);
            }
            output::print(&table.render())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `rivulet units`.
pub fn run_units(args: &UnitsArgs) -> anyhow::Result<ExitCode> {
    let units: Vec<UnitResource> = args.api.client()?.list("/v1/units", &Vec::new(), usize::MAX)?;
    match args.output {
        Format::Json => output::print_json(&units)?,
        Format::Table => {
            let mut table = Table::new(&["UNIT", "NODE", "STATUS", "LOAD", "FLOWS", "BYTES"]);
            for UnitResource { unit, node, status, load, flows, bytes } in units {
                table.row(vec![
                    unit.to_string(),
                    node.map_or_else(|| "-".to_owned(), |node| shown_in_cell(node).to_string()),
                    status,
                    format!("{:.1} %", load * 100.0),
                    thousands(flows.into()),
                    thousands(bytes),
                ]);
            }
            output::print(&table.render())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a status, with the time since the last message of a suspect member.
fn with_silence(status: &str, silent_ms: Option<u64>) -> String {
    match silent_ms {
        Some(ms) => format!("{status} for {:.1} s", ms as f64 / 1e3),
        None => status.to_owned(),
    }
}

/// Returns the remaining validity of a certificate. `expiry_s`: its end, in seconds since 1970.
fn time_left(expiry_s: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    match Duration::from_secs(expiry_s).checked_sub(now) {
        Some(left) if left >= 2 * DAY => format!("valid for {} days", left.as_secs() / DAY.as_secs()),
        Some(left) => format!("valid for {} hours; renew it", left.as_secs() / 3_600),
        None => "has ended; links go on, and new ones are refused: renew it".to_owned(),
    }
}

fn text(status: &StatusResource) -> String {
    let policy = match status.policy_number {
        None => status.policy.clone(),
        Some(0) => format!("{}, number 0: none was applied", status.policy),
        Some(number) => format!("{}, number {number}", status.policy),
    };
    let mut lines = vec![
        ("name", format!("{}, rivulet {}", status.name, status.version)),
        ("policy", policy),
        ("up for", duration((status.uptime_seconds * 1e9) as u64)),
        ("packets", format!("{} in, {} out", thousands(status.packets_in), thousands(status.packets_out))),
    ];
    if let Some(dispatcher) = &status.dispatcher {
        let flows = format!(
            "{} live, {} began, {} migrated, {} lost",
            thousands(dispatcher.flows.into()),
            thousands(dispatcher.flows_started),
            thousands(dispatcher.flows_migrated),
            thousands(dispatcher.flows_lost)
        );
        let units = format!(
            "{} active, {} draining; assigned by {}, {}; scaled by {}",
            status.units_active,
            status.units_draining,
            dispatcher.mode,
            dispatcher.choice,
            dispatcher.scaling
        );
        lines.extend([("flows", flows), ("units", units)]);
    }
    if let Some(rollout) = &status.rollout {
        let RolloutResource { name, stage, nodes_done, nodes, .. } = rollout;
        let reason = rollout.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        let text = format!("{name} {}, at {nodes_done} of {nodes} nodes{reason}", stage.name());
        lines.push(("rollout", text));
    }
    if let Some(waiting) = &status.waiting {
        lines.push(("waiting", waiting.clone()));
    }
    if status.nodes > 0 {
        let by_status = status.nodes_by_status.iter().map(|(status, count)| format!("{count} {status}"));
        let by_status: Vec<_> = by_status.collect();
        let text = match by_status.is_empty() {
            true => format!("{} connecting", status.nodes_connecting), // Of an earlier version.
            false => by_status.join(", "),
        };
        lines.push(("nodes", format!("{}: {text}", status.nodes)));
    }
    if !status.other_dispatchers.is_empty() {
        let others = status.other_dispatchers.iter().map(|other| {
            let policy = other.policy_number.map_or_else(String::new, |number| format!(", policy {number}"));
            let reason = if other.reason.is_empty() { String::new() } else { format!(" ({})", other.reason) };
            format!("{} {}{policy}{reason}", other.name, with_silence(&other.status, other.silent_ms))
        });
        lines.push(("others", others.collect::<Vec<_>>().join(", ")));
    }
    for PolicyUseResource { digest, nodes } in &status.policies {
        let digest = digest.get(..DIGEST_SHOWN).unwrap_or(digest);
        lines.push(("differs", format!("policy {digest} at {}", nodes.join(", "))));
    }
    if let Some(store) = &status.store {
        let since = duration((store.since_seconds * 1e9) as u64);
        let text = match store.is_reachable {
            true => format!("reachable for {since}, {} entries", thousands(store.entries)),
            false => format!("not reachable for {since}: {}", store.reason),
        };
        lines.push(("store", text));
    }
    if let Some(links) = &status.links {
        let refused: u64 = links.refused.values().sum();
        let failed = |result: &str| links.handshakes.get(result).copied().unwrap_or(0);
        let handshakes = failed("failed") + failed("refused") + failed("too_many");
        let text = format!(
            "{}, {} lost; {} datagrams and {} messages refused, {} relayed, {} handshakes failed",
            links.links,
            thousands(links.dead),
            thousands(refused),
            thousands(links.messages_refused),
            thousands(links.messages_relayed),
            thousands(handshakes)
        );
        lines.push(("links", text));
        lines.extend(links.certificate_expiry_seconds.map(|expiry| ("certificate", time_left(expiry))));
    }
    lines.push(("migrations", format!("{} running", status.migrations_running)));
    lines.into_iter().map(|(name, value)| format!("{name:<12}{}\n", shown(value))).collect()
}
