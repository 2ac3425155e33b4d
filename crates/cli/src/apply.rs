//! `rivulet apply`: another policy for a cluster that runs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
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
  rivulet apply site.rvl --no-wait && rivulet status";

/// Period of looks at a rollout.
const PERIOD: Duration = Duration::from_millis(100);

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let request = PolicyRequest::from(policies::texts(&args.policy)?);
    let client = args.api.client()?;
    let path = if args.dry_run { "/v1/policy?dry_run=true" } else { "/v1/policy" };
    let begun: PolicyResource = client.put(path, &request)?;
    let (changed, word) = match begun.rollout {
        _ if args.dry_run => (begun, "can be applied"),
        Some(RolloutResource { stage: RolloutStage::Waiting, number, .. }) => match args.no_wait {
            true => (begun, "is on its way"),
            false => (wait(&client, number)?, "runs on all nodes"),
        },
        _ => (begun, "unchanged"),
    };
    let rollout = changed.rollout.as_ref();
    let reason = rollout.filter(|rollout| rollout.stage == RolloutStage::Failed && !args.dry_run);
    match args.output {
        Format::Json => output::print_json(&changed)?,
        Format::Table if reason.is_some() => {}
        Format::Table => output::print(&format!("{}: {word}\n", args.policy.display()))?,
    }
    let Some(RolloutResource { reason, nodes_done, nodes, .. }) = reason else {
        return Ok(ExitCode::SUCCESS);
    };
    say!("rivulet: {}", reason.as_deref().unwrap_or("the rollout has failed"));
    say!(
        "rivulet: {nodes_done} of {nodes} nodes run {}; apply it or another one again",
        args.policy.display()
    );
    Ok(ExitCode::FAILURE)
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
