//! `rivulet sim`: simulates dispatcher and units in virtual time.

mod compare;
mod summary;
mod trial;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use ::sim::scenario::AssignmentMode;
use ::sim::{Report, Scenario, Simulation};
use anyhow::Context;
use indicatif::ProgressBar;

use crate::messages::say;
use crate::output;

/// The default scenario.
const SCENARIO: &str = include_str!("../../../examples/sim/up-and-down.toml");

/// Simulates in virtual time how flowlets are assigned to elastic units
///
/// Traffic is modelled after published traces, has a steady rate, or is read from a capture. It
/// goes through a dispatcher to units. Dispatcher and units are the real ones; links, queues and
/// time are simulated. Each run is checked packet by packet: all are accounted for, in order, and
/// each flow's state equals that of a single unit. The same scenario and seed give the same report.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Scenario in TOML (- for standard input) [default: a load that rises and falls]
    pub scenario: Option<PathBuf>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Range of seeds, both ends included; shows medians with 95% bootstrap intervals
    #[arg(long, value_name = "A..B", conflicts_with = "seed")]
    pub seeds: Option<SeedRange>,
    /// Assign this to units instead of the scenario's mode; several modes are compared
    ///
    /// flowlet, flow, smart-flow:TIME, packet, rss:BUCKETS, rss:BUCKETS:TIME
    #[arg(long, value_delimiter = ',')]
    pub mode: Vec<AssignmentMode>,
    /// Print a line for each interval, with the load of each unit
    #[arg(long)]
    pub intervals: bool,
    #[command(flatten)]
    pub trial: trial::Options,
    /// Print JSON: an object, or a list for several modes or seeds
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  rivulet sim
  rivulet sim --mode flowlet,smart-flow:50ms,smart-flow:100ms,flow
  rivulet sim examples/sim/trace-b.toml --seeds 1..20
  rivulet sim examples/sim/lossy.toml --intervals
  rivulet sim --policy examples/nat.rvl --read in.pcap --faults examples/faults/lossy.toml --seeds 1..100
  rivulet sim --json | jq .latency_at_unit";

/// A range of seeds.
#[derive(Clone, Copy, Debug)]
pub struct SeedRange {
    first: u64,
    last: u64,
}

/// Maximum number of runs of a mode.
const SEEDS_MAX: u64 = 10_000;

impl FromStr for SeedRange {
    type Err = String;

    fn from_str(text: &str) -> Result<SeedRange, String> {
        let seeds = text.split_once("..").and_then(|(first, last)| {
            Some(SeedRange { first: first.parse().ok()?, last: last.parse().ok()? })
        });
        let fits = |seeds: &SeedRange| seeds.first <= seeds.last && seeds.last - seeds.first < SEEDS_MAX;
        seeds.filter(fits).ok_or_else(|| {
            format!("`{text}` is not a range of up to {SEEDS_MAX} seeds; expected 1..20, for example")
        })
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(policy) = &args.trial.policy {
        let modes = if args.mode.is_empty() { vec![AssignmentMode::Flowlet] } else { args.mode.clone() };
        let seeds = args.seeds.unwrap_or(SeedRange { first: args.seed, last: args.seed });
        return trial::run(policy, &args.trial, &modes, seeds, args.json);
    }
    let scenario = read(args.scenario.as_deref())?;
    let modes = if args.mode.is_empty() { vec![scenario.dispatcher.mode] } else { args.mode.clone() };
    let seeds = args.seeds.unwrap_or(SeedRange { first: args.seed, last: args.seed });
    let runs = (seeds.last - seeds.first + 1) * modes.len() as u64;
    let bar = output::progress(Some(runs * scenario.run.time.0 / 1_000_000), "ms");
    let (mut groups, mut took, mut packets) = (Vec::new(), Duration::ZERO, 0);
    for mode in modes {
        let mut reports = Vec::new();
        for seed in seeds.first..=seeds.last {
            let mut scenario = scenario.clone();
            scenario.dispatcher.mode = mode;
            let started = Instant::now();
            let report = simulate(scenario, seed, &bar)?;
            took += started.elapsed();
            packets += report.workload.packets;
            reports.push(report);
        }
        groups.push(reports);
    }
    bar.finish_and_clear();
    match (args.json, &groups[..]) {
        (true, [reports]) if reports.len() == 1 => output::print_json(&reports[0])?,
        (true, groups) => output::print_json(&groups.concat())?,
        (false, [reports]) if reports.len() == 1 => {
            output::print(&summary::of(&reports[0], args.intervals))?;
        }
        (false, groups) => output::print(&compare::table(groups))?,
    }
    let per_second = packets as f64 / took.as_secs_f64().max(1e-9);
    say!(
        "rivulet: {} packets in {:.1} s, {} packets/s",
        output::thousands(packets),
        took.as_secs_f64(),
        output::thousands(per_second as u64)
    );
    Ok(ExitCode::SUCCESS)
}

/// Reads the scenario in this file.
fn read(path: Option<&Path>) -> anyhow::Result<Scenario> {
    let (name, text) = match path {
        None => ("the scenario".to_owned(), SCENARIO.to_owned()),
        Some(path) if path == Path::new("-") => ("standard input".to_owned(), crate::texts::read(path)?),
        Some(path) => (path.display().to_string(), crate::texts::read(path)?),
    };
    let mut scenario = Scenario::parse(&text)
        .map_err(|error| anyhow::anyhow!("{name}: {}", error.to_string().trim_end()))?;
    // Relative paths of captures start at the scenario's folder.
    let folder = path.and_then(Path::parent).unwrap_or(Path::new(""));
    let read = |file: &Path| lab::read_recording(&folder.join(file)).map_err(anyhow::Error::msg);
    scenario.workload.supply(read).with_context(|| format!("{name}: [workload.capture]"))?;
    Ok(scenario)
}

fn simulate(scenario: Scenario, seed: u64, bar: &ProgressBar) -> anyhow::Result<Report> {
    let (before, time_ns) = (bar.position(), scenario.run.time.0);
    let report = Simulation::new(scenario, seed)?
        .run_with(|progress| bar.set_position(before + progress.now_ns.min(time_ns) / 1_000_000))?;
    bar.set_position(before + time_ns / 1_000_000);
    Ok(report)
}
