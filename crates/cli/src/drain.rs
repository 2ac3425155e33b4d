//! `rivulet drain` and `rivulet resume`: nodes and units that leave, and come back.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use control::{NodeResource, UnitResource};
use telemetry::shown;
use values::Nanos;

use crate::api::{ApiOptions, Client, encode};
use crate::output::{self, Format, thousands};

/// Drain a node: it gets no new flows, its flows move to other units, and it stops
///
/// Connections continue. Shows the progress, and returns once the node has no flows left.
#[derive(Debug, clap::Args)]
#[command(after_help = DRAIN_EXAMPLES)]
pub struct DrainArgs {
    /// Name of the node, or number of a unit
    pub node: String,
    /// Return at once; `rivulet nodes` shows the status
    #[arg(long)]
    pub no_wait: bool,
    /// Wait up to this time
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub timeout: Nanos,
    #[command(flatten)]
    api: ApiOptions,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Format,
}

const DRAIN_EXAMPLES: &str = "\
Examples:
  rivulet drain unit-1
  rivulet drain unit-1 --no-wait && rivulet nodes
  rivulet resume unit-1";

/// Resume a node that drains, or let a drained one join again
///
/// Flows that have left stay where they are. A drained node is spare again, or gets flows if too
/// few units run; if its process has ended, it joins once it runs again.
#[derive(Debug, clap::Args)]
#[command(after_help = RESUME_EXAMPLES)]
pub struct ResumeArgs {
    /// Name of the node, or number of a unit
    pub node: String,
    #[command(flatten)]
    api: ApiOptions,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Format,
}

const RESUME_EXAMPLES: &str = "\
Examples:
  rivulet drain unit-1 --no-wait
  rivulet resume unit-1
  rivulet nodes";

/// Period of looks at a node that drains.
const PERIOD: Duration = Duration::from_millis(100);

/// Runs `rivulet drain`.
pub fn run(args: &DrainArgs) -> anyhow::Result<ExitCode> {
    let client = args.api.client()?;
    match args.node.parse::<u16>() {
        Ok(unit) => {
            let units = format!("/v1/units/{unit}/drain");
            let drained: UnitResource = client.act(&units)?;
            if !args.no_wait {
                wait(&client, args, Some(unit), || Ok(find_unit(&client, unit)?.is_none()))?;
            }
            let status = if args.no_wait { "draining" } else { "drained" };
            show(
                args.output,
                &UnitResource { status: status.to_owned(), ..drained },
                &format!("unit {unit}"),
                status,
            )?;
        }
        Err(_) => {
            let path = format!("/v1/nodes/{}", encode(&args.node));
            let mut node: NodeResource = client.act(&format!("{path}/drain"))?;
            if !args.no_wait {
                let unit = node.unit;
                wait(&client, args, unit, || {
                    node = client.get(&path)?;
                    // It may be on its way back already.
                    Ok(!matches!(node.status.as_str(), "draining" | "active"))
                })?;
            }
            show(args.output, &node, &node.name, &node.status)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `rivulet resume`.
pub fn run_resume(args: &ResumeArgs) -> anyhow::Result<ExitCode> {
    let client = args.api.client()?;
    match args.node.parse::<u16>() {
        Ok(unit) => {
            let resumed: UnitResource = client.act(&format!("/v1/units/{unit}/resume"))?;
            show(args.output, &resumed, &format!("unit {unit}"), &resumed.status)?;
        }
        Err(_) => {
            let path = format!("/v1/nodes/{}/resume", encode(&args.node));
            let node: NodeResource = client.act(&path)?;
            show(args.output, &node, &node.name, &node.status)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for the end of a drain, and shows the flows that have left.
fn wait(
    client: &Client,
    args: &DrainArgs,
    unit: Option<u16>,
    mut is_done: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let flows = |unit: u16| Ok::<_, anyhow::Error>(find_unit(client, unit)?.map_or(0, |unit| unit.flows));
    let began = Instant::now();
    let first = unit.map(flows).transpose()?.unwrap_or(0);
    let bar = output::progress(Some(first.into()), "flows");
    while !is_done()? {
        let left = unit.map(flows).transpose()?.unwrap_or(0);
        bar.set_position(first.saturating_sub(left).into());
        if began.elapsed() >= Duration::from_nanos(args.timeout.0) {
            bail!(
                "{} has {} flows after {} s; the drain goes on, see `rivulet nodes` and `rivulet resume`",
                args.node,
                thousands(left.into()),
                args.timeout.0 / 1_000_000_000
            );
        }
        std::thread::sleep(PERIOD);
    }
    bar.finish_and_clear();
    Ok(())
}

fn find_unit(client: &Client, unit: u16) -> anyhow::Result<Option<UnitResource>> {
    let units: Vec<UnitResource> = client.list("/v1/units", &Vec::new(), usize::MAX)?;
    Ok(units.into_iter().find(|known| known.unit == unit))
}

fn show(output: Format, resource: &impl serde::Serialize, name: &str, status: &str) -> anyhow::Result<()> {
    match output {
        Format::Json => output::print_json(resource),
        Format::Table => Ok(output::print(&format!("{}: {}\n", shown(name), shown(status)))?),
    }
}
