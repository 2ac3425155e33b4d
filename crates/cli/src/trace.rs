//! `rivulet trace`: the last events of a flow at a running dispatcher and its units.

use std::process::ExitCode;

use control::{MissingTimeline, TimelineLineResource, TimelineResource};
use telemetry::shown_in_cell;

use crate::api::{ApiOptions, encode};
use crate::messages::say;
use crate::output::{self, Format, Table, thousands};

/// Show what a running dispatcher and its units did with a flow, line by line
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    task: TraceTask,
}

#[derive(Debug, clap::Subcommand)]
enum TraceTask {
    /// Show the last events of a flow: owners, messages, states
    Flow {
        /// Its identity, such as 17.0; `rivulet flows list` has those of live flows
        flow: String,
        #[command(flatten)]
        api: ApiOptions,
        /// Format of the result
        #[arg(short, long, value_enum, default_value = "table")]
        output: Format,
    },
}

const EXAMPLES: &str = "\
Examples:
  rivulet trace flow 17.0
  rivulet trace flow 17.0 -o json | jq -r '.lines[].event'";

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let TraceTask::Flow { flow, api, output } = &args.task;
    let timeline: TimelineResource = api.client()?.get(&format!("/v1/flows/{}/timeline", encode(flow)))?;
    if *output == Format::Json {
        output::print_json(&timeline)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::print(&table(&timeline.lines))?;
    if timeline.overwritten > 0 {
        say!(
            "rivulet: each node keeps the last {} lines of all flows; {} earlier ones are not kept",
            thousands(timeline.lines_kept),
            thousands(timeline.overwritten)
        );
    }
    for MissingTimeline { node, reason } in &timeline.missing {
        let (node, reason) = (shown_in_cell(node), shown_in_cell(reason));
        say!("rivulet: the lines of {node} are missing: {reason}");
    }
    Ok(ExitCode::SUCCESS)
}

fn table(lines: &[TimelineLineResource]) -> String {
    let mut table = Table::new(&["TIME", "HOST", "ROLE", "FLOW", "EPOCH", "SEQ", "PEND", "EVENT", "DETAILS"]);
    for line in lines {
        let number = |number: Option<u64>| number.map_or_else(absent, |number| number.to_string());
        table.row(vec![
            line.time.clone(),
            shown_in_cell(&line.host).to_string(),
            line.role.clone(),
            line.flow.clone().unwrap_or_else(absent),
            number(line.epoch.map(u64::from)),
            number(line.seq),
            number(line.pending),
            shown_in_cell(&line.event).to_string(),
            shown_in_cell(&line.details).to_string(),
        ]);
    }
    table.render()
}

fn absent() -> String {
    "-".to_owned()
}
