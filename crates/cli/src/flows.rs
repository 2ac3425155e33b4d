//! `rivulet flows`: flows of a running dispatcher, and the units that own them.

use std::process::ExitCode;

use control::{FlowResource, MoveRequest, UnitName};
use telemetry::shown_in_cell;

use crate::api::{ApiOptions, encode};
use crate::output::{self, Format, Table, duration, thousands};

/// List, show and move flows of a running dispatcher
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    task: FlowsTask,
}

#[derive(Debug, clap::Subcommand)]
enum FlowsTask {
    /// List flows, in the order of their identities
    List {
        /// Flows of this unit: its number, or its node's name
        #[arg(long, value_name = "UNIT")]
        unit: Option<String>,
        /// Flows with packets of one direction that match, in the policy's language
        #[arg(long, value_name = "FILTER")]
        filter: Option<String>,
        /// List up to N flows
        #[arg(long, value_name = "N", default_value_t = LISTED)]
        limit: u32,
        #[command(flatten)]
        common: Common,
    },
    /// Show a flow
    Show {
        /// Its identity, such as 17.0
        flow: String,
        #[command(flatten)]
        common: Common,
    },
    /// Move a flow to another unit
    Move {
        /// Its identity, such as 17.0
        flow: String,
        /// Its new unit, by number or node [default: the other active unit with the fewest flows]
        #[arg(long, value_name = "UNIT")]
        to: Option<String>,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Debug, clap::Args)]
struct Common {
    #[command(flatten)]
    api: ApiOptions,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// Flows that are listed, unless `--limit` names another number.
const LISTED: u32 = 100;

const EXAMPLES: &str = "\
Examples:
  rivulet flows list
  rivulet flows list --unit unit-1 --filter 'dst port 443 && net 10.0.0.0/8'
  rivulet flows show 17.0
  rivulet flows move 17.0 --to unit-2
  rivulet flows list --limit 100000 -o json | jq -r '.[].id'";

/// Reads a unit: a number, or a node's name.
pub fn unit_name(text: &str) -> UnitName {
    text.parse().map_or_else(|_| UnitName::Node(text.to_owned()), UnitName::Number)
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.task {
        FlowsTask::List { unit, filter, limit, common } => {
            let query = [("unit", unit), ("filter", filter)];
            let query = query.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
            let flows = common.api.client()?.list("/v1/flows", &query.collect(), *limit as usize)?;
            show(&flows, common.output)?;
        }
        FlowsTask::Show { flow, common } => {
            let flow = common.api.client()?.get(&format!("/v1/flows/{}", encode(flow)))?;
            show_one(flow, common.output)?;
        }
        FlowsTask::Move { flow, to, common } => {
            let request = MoveRequest { to: to.as_deref().map(unit_name) };
            let flow = common.api.client()?.post(&format!("/v1/flows/{}/move", encode(flow)), &request)?;
            show_one(flow, common.output)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show_one(flow: FlowResource, output: Format) -> anyhow::Result<()> {
    match output {
        Format::Json => output::print_json(&flow),
        Format::Table => show(&[flow], output),
    }
}

fn show(flows: &[FlowResource], output: Format) -> anyhow::Result<()> {
    if output == Format::Json {
        return output::print_json(&flows);
    }
    let mut table = Table::new(&["FLOW", "PROTO", "END", "END", "UNIT", "NODE", "EPOCH", "PACKETS", "IDLE"]);
    for flow in flows {
        let [one, other] = flow.ends.clone();
        table.row(vec![
            flow.id.clone(),
            protocol(flow.protocol),
            one,
            other,
            flow.unit.to_string(),
            flow.node.as_ref().map_or_else(|| "-".to_owned(), |node| shown_in_cell(node).to_string()),
            flow.epoch.to_string(),
            thousands(flow.packets),
            duration((flow.idle_seconds * 1e9) as u64),
        ]);
    }
    output::print(&table.render())?;
    Ok(())
}

fn protocol(number: u8) -> String {
    match number {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmp6".to_owned(),
        132 => "sctp".to_owned(),
        number => number.to_string(),
    }
}
