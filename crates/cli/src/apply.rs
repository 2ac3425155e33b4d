//! `rivulet apply`: another policy for a cluster that runs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use control::{PolicyRequest, PolicyResource, RolloutResource, RolloutStage};

use crate::api::{ApiOptions, Client};
use crate::messages::say;
use crate::output::{self, Format};
use crate::policies;

/// Give all nodes of a running cluster another policy, while packets flow
///
/// All nodes read the policy first; if one cannot run it, nothing changes. Then one node after the
/// other gives its flows away and comes back with the policy. Connections go on; no packet is lost,
/// and a flow has one policy at a time. Configurations of functions may change; ports, edges and
/// settings may not.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Policy file; files that it names are sent along
    policy: PathBuf,
    /// Check that the dispatcher can take the policy over, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Return at once; `rivulet status` shows the progress
    #[arg(long, conflicts_with = "dry_run")]
    no_wait: bool,
    #[command(flatten)]
    api: ApiOptions,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

const EXAMPLES: &str = "\
Examples:
  rivulet apply site.rvl
  rivulet apply site.rvl --dry-run
  rivulet apply site.rvl --api https://dispatcher-1:7500 --api https://dispatcher-2:7500
  rivulet apply site.rvl --no-wait && rivulet status";

/// Period of looks at a rollout.
const PERIOD: Duration = Duration::from_millis(100);

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let request = PolicyRequest::from(policies::texts(&args.policy)?);
    let clients = args.api.clients()?;
    if args.no_wait && clients.len() > 1 {
        bail!("--no-wait: several dispatchers give nodes the policy one after the other");
    }
    let mut outcomes = Vec::new();
    if args.dry_run || clients.len() > 1 {
        // Nothing changes unless all dispatchers can take the policy over.
        for (address, client) in &clients {
            let checked = client.put("/v1/policy?dry_run=true", &request);
            outcomes.push((checked.map_err(|error| at(address, error))?, "can be applied"));
        }
    }
    if !args.dry_run {
        outcomes.clear();
        for (address, client) in &clients {
            outcomes.push(apply(args, client, &request).map_err(|error| at(address, error))?);
            if outcomes.last().is_some_and(|(policy, _)| failure(policy).is_some()) {
                break;
            }
        }
    }
    let failed = outcomes.last().and_then(|(policy, _)| failure(policy)).filter(|_| !args.dry_run);
    let policy = args.policy.display();
    match args.output {
        Format::Json => match outcomes.as_slice() {
            [(policy, _)] if clients.len() == 1 => output::print_json(policy)?,
            all => output::print_json(&all.iter().map(|(policy, _)| policy).collect::<Vec<_>>())?,
        },
        Format::Table => {
            let done = outcomes.len() - usize::from(failed.is_some());
            for ((address, _), (_, word)) in clients.iter().zip(&outcomes).take(done) {
                let address = address.as_ref().map_or_else(String::new, |address| format!("{address}: "));
                output::print(&format!("{address}{policy}: {word}\n"))?;
            }
        }
    }
    let Some(RolloutResource { reason, nodes_done, nodes, .. }) = failed else {
        return Ok(ExitCode::SUCCESS);
    };
    say!("rivulet: {}", reason.as_deref().unwrap_or("the rollout has failed"));
    say!("rivulet: {nodes_done} of {nodes} nodes run {policy}; apply it or another one again");
    Ok(ExitCode::FAILURE)
}

/// Adds the address of one of several dispatchers to an error.
fn at(address: &Option<String>, error: anyhow::Error) -> anyhow::Error {
    match address {
        Some(address) => error.context(address.clone()),
        None => error,
    }
}

/// Returns the latest rollout if it has failed.
fn failure(policy: &PolicyResource) -> Option<&RolloutResource> {
    policy.rollout.as_ref().filter(|rollout| rollout.stage == RolloutStage::Failed)
}

/// Applies the policy at a dispatcher. Returns what it runs then, and that in words.
fn apply(
    args: &Args,
    client: &Client,
    request: &PolicyRequest,
) -> anyhow::Result<(PolicyResource, &'static str)> {
    let begun: PolicyResource = client.put("/v1/policy", request)?;
    Ok(match begun.rollout {
        Some(RolloutResource { stage: RolloutStage::Waiting, number, .. }) => match args.no_wait {
            true => (begun, "is on its way"),
            false => (wait(client, number)?, "runs on all nodes"),
        },
        _ => (begun, "unchanged"),
    })
}

/// Waits until a rollout has ended, and shows its progress.
fn wait(client: &Client, number: u64) -> anyhow::Result<PolicyResource> {
    let bar = output::progress(None, "nodes");
    loop {
        std::thread::sleep(PERIOD);
        let policy: PolicyResource = client.get("/v1/policy")?;
        let latest = policy.rollout.as_ref().map_or(0, |rollout| rollout.number);
        let Some(rollout) = policy.rollout.as_ref().filter(|_| latest >= number) else { continue };
        bar.set_length(rollout.nodes);
        bar.set_position(rollout.nodes_done);
        bar.set_message(rollout.node.clone().unwrap_or_default());
        let has_ended = matches!(rollout.stage, RolloutStage::Done | RolloutStage::Failed);
        if has_ended || latest > number {
            bar.finish_and_clear();
            return (latest == number).then_some(policy).context("another policy was applied after this one");
        }
    }
}
