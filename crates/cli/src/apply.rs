//! `rivulet apply`: another policy for a cluster that runs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use control::{FailedOrderResource, PolicyRequest, PolicyResource, RolloutResource, RolloutStage};

use crate::api::{ApiOptions, Client};
use crate::messages::say;
use crate::output::{self, Format};
use crate::policies;

/// Give all nodes of a running cluster another policy, while packets flow
///
/// All nodes read the policy first, also nodes of other dispatchers; if one cannot run it, nothing
/// changes. Then the policy is in force. One node after the other hands over its flows and rejoins
/// with the new policy. Connections continue; no packet is lost, and a flow has one policy at a
/// time. Nodes that are away get it when they return. Configurations of functions may change;
/// ports, edges and settings may not.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Policy file; files that it names are sent along
    policy: PathBuf,
    /// Have all nodes read it, and change nothing
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
  rivulet apply site.rvl --api https://dispatcher-1:7500
  rivulet apply site.rvl --no-wait && rivulet status";

/// Period of looks at a rollout.
const PERIOD: Duration = Duration::from_millis(100);

/// The outcome of an order.
struct Outcome {
    policy: PolicyResource,
    word: &'static str,
    /// The reason that nothing has changed, or the policy that was applied later.
    failure: Option<String>,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let request = PolicyRequest::from(policies::texts(&args.policy)?);
    let clients = args.api.clients()?;
    let mut refusals = Vec::new();
    // One order is for the whole cluster. It is sent to the first dispatcher that accepts it.
    for (address, client) in &clients {
        match order(args, client, &request) {
            Ok(outcome) => return finish(args, &outcome),
            Err(error) => refusals.push(at(address, error)),
        }
    }
    let last = refusals.pop().context("no dispatcher is named")?;
    refusals.iter().for_each(|refusal| say!("rivulet: {refusal:#}"));
    Err(last)
}

fn finish(args: &Args, outcome: &Outcome) -> anyhow::Result<ExitCode> {
    let policy = args.policy.display();
    if args.output == Format::Json {
        output::print_json(&outcome.policy)?;
    }
    match &outcome.failure {
        Some(failure) => {
            say!("rivulet: {policy} was not applied: {failure}");
            Ok(ExitCode::FAILURE)
        }
        None => {
            if args.output == Format::Table {
                output::print(&format!("{policy}: {}\n", outcome.word))?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Adds the address of one of several dispatchers to an error.
fn at(address: &Option<String>, error: anyhow::Error) -> anyhow::Error {
    match address {
        Some(address) => error.context(address.clone()),
        None => error,
    }
}

/// Gives the order to a dispatcher.
fn order(args: &Args, client: &Client, request: &PolicyRequest) -> anyhow::Result<Outcome> {
    if args.dry_run {
        let policy = client.put("/v1/policy?dry_run=true", request)?;
        return Ok(Outcome { policy, word: "can be applied", failure: None });
    }
    let begun: PolicyResource = client.put("/v1/policy", request)?;
    let is_its = |rollout: &&RolloutResource| Some(&rollout.digest) == begun.digest.as_ref();
    match &begun.rollout {
        Some(RolloutResource { stage: RolloutStage::Waiting, number, policy_number, .. }) => {
            let order = (*number, *policy_number);
            match args.no_wait {
                true => Ok(Outcome { policy: begun, word: "is on its way", failure: None }),
                false => wait(client, order),
            }
        }
        // The same policy was ordered before.
        Some(rollout) if rollout.stage == RolloutStage::Rolling && !args.no_wait && is_its(&rollout) => {
            wait(client, (rollout.number, rollout.policy_number))
        }
        _ => Ok(Outcome { policy: begun, word: "unchanged", failure: None }),
    }
}

/// Waits until an order has ended, and shows its progress.
fn wait(client: &Client, (order, policy_number): (u64, u64)) -> anyhow::Result<Outcome> {
    let bar = output::progress(None, "nodes");
    loop {
        std::thread::sleep(PERIOD);
        let policy: PolicyResource = client.get("/v1/policy")?;
        let failed = policy.failed_orders.iter().find(|failed| failed.number == order);
        if let Some(FailedOrderResource { reason, .. }) = failed {
            bar.finish_and_clear();
            let failure = Some(reason.clone());
            return Ok(Outcome { policy, word: "", failure });
        }
        let number = policy.number.unwrap_or(0);
        if number > policy_number {
            bar.finish_and_clear();
            let failure = Some(format!("{} was applied after it, as policy {number}", policy.name));
            return Ok(Outcome { policy, word: "", failure });
        }
        let rollout = policy.rollout.as_ref().filter(|rollout| rollout.policy_number == policy_number);
        let Some(rollout) = rollout.filter(|rollout| rollout.number == order) else { continue };
        bar.set_length(rollout.nodes);
        bar.set_position(rollout.nodes_done);
        bar.set_message(rollout.node.clone().unwrap_or_default());
        if rollout.stage == RolloutStage::Done {
            bar.finish_and_clear();
            let word = match rollout.nodes {
                0 => "is the policy of the cluster; no node is there, and those that come get it",
                _ => "runs on all nodes",
            };
            return Ok(Outcome { policy, word, failure: None });
        }
    }
}
