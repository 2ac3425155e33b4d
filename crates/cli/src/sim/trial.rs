//! `rivulet sim --policy`: a policy over faulty links, against a single graph.

use std::collections::VecDeque;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::sim::faulty::{FaultPlan, FaultTrial, TrialDifference, TrialFrame, TrialReport};
use ::sim::scenario::AssignmentMode;
use anyhow::Context;
use runtime::elastic::UnitsConfig;
use runtime::{Assembly, ForwardedPacket, Frame, Ingress, Runner};
use serde_json::json;

use super::SeedRange;
use crate::output::{self, thousands};
use crate::sources::{PortFile, Sources};
use crate::{policies, texts};
use observe::explain::{CollectedOutput, Tracer};

/// Seed of the policy's own randomness: seeds of `--seeds` are those of the links.
const POLICY_SEED: u64 = 7;

/// Most packets of a trial: all are kept in memory.
const PACKETS_MAX: usize = 1_000_000;

/// Options of a trial.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Policies")]
pub struct Options {
    /// Run this policy's functions on units reached by simulated links, and compare the output with
    /// a single graph's; needs --read
    #[arg(long, value_name = "POLICY", requires = "read", conflicts_with = "scenario")]
    pub policy: Option<PathBuf>,
    /// Capture with the policy's traffic; with `PORT=` in front, of one port
    #[arg(long, value_name = "[PORT=]FILE", requires = "policy")]
    pub read: Vec<PortFile>,
    /// Faults of links and units, as TOML; without it, links are perfect and units stay
    #[arg(long, value_name = "FILE", requires = "policy")]
    pub faults: Option<PathBuf>,
    /// Units, at most
    #[arg(long, value_name = "N", default_value_t = 4, requires = "policy",
        value_parser = clap::value_parser!(u16).range(1..=64))]
    pub units: u16,
}

/// Runs a trial for each mode and seed, and prints what the links did, and the first differences.
pub fn run(
    policy: &Path,
    options: &Options,
    modes: &[AssignmentMode],
    seeds: SeedRange,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let plan = match &options.faults {
        Some(path) => {
            let text = texts::read(path)?;
            FaultPlan::parse(&text).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?
        }
        None => FaultPlan::default(),
    };
    let (assembly, maker) = policies::load_for_trial(policy, POLICY_SEED)?;
    policies::say_assumptions(&assembly);
    let frames = traffic(&options.read, assembly, &policy.display().to_string())?;
    let mut trial = FaultTrial {
        assemble: move || {
            maker().map(|mut assembly| {
                // The traffic contains the output of external nodes.
                assembly.externals.clear();
                assembly
            })
        },
        name: policy.display().to_string(),
        frames,
        config: UnitsConfig::default(),
        plan,
    };
    let runs = (seeds.last - seeds.first + 1) * modes.len() as u64;
    let bar = output::progress(Some(runs), "runs");
    let mut sum = TrialSum::default();
    let mut differences: Vec<(String, u64, TrialDifference)> = Vec::new();
    for &mode in modes {
        trial.config = UnitsConfig {
            mode: mode.into(),
            units_max: options.units,
            capacity_bps: 5_000_000,
            ..UnitsConfig::as_published()
        };
        for seed in seeds.first..=seeds.last {
            let report = trial.run(seed).context("cannot set up units")?;
            sum.add(&report);
            differences.extend(report.difference.map(|difference| (mode.to_string(), seed, difference)));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    if as_json {
        let differences: Vec<_> = differences
            .iter()
            .map(|(mode, seed, difference)| {
                json!({ "mode": mode, "seed": seed, "difference": difference.to_string() })
            })
            .collect();
        output::print_json(&json!({
            "policy": trial.name,
            "runs": runs,
            "packets": trial.frames.len() as u64 * runs,
            "released": sum.released,
            "states_moved": sum.moved,
            "packets_lost": sum.packets_lost,
            "packets_late": sum.packets_late,
            "messages_lost": sum.messages_lost,
            "messages_repeated": sum.messages_repeated,
            "messages_late": sum.messages_late,
            "joins": sum.joins,
            "leaves": sum.leaves,
            "crashes": sum.crashes,
            "flows_exempt": sum.flows_exempt,
            "differences": differences,
        }))?;
    } else {
        output::print(&summary(&trial.name, runs, trial.frames.len() as u64, &sum, &differences))?;
    }
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads the traffic of a trial. External nodes' output is that of a single graph: links to units
/// do not affect programs.
fn traffic(files: &[PortFile], assembly: Assembly, name: &str) -> anyhow::Result<Vec<TrialFrame>> {
    let mut sources = Sources::open(files, &assembly.ports)?;
    let has_nodes = !assembly.externals.is_empty();
    let mut single = Runner::new(assembly, name);
    let mut forwarded = VecDeque::new();
    let mut frames = Vec::new();
    while let Some((frame, from)) = sources.next() {
        add(&mut frames, &frame, from)?;
        if has_nodes {
            forwarded.extend(after_programs(&mut single, frame, from)?);
        }
        while let Some(packet) = forwarded.pop_front() {
            add(&mut frames, &packet.frame(), packet.from)?;
            forwarded.extend(after_programs(&mut single, packet.frame(), packet.from)?);
        }
    }
    Ok(frames)
}

fn add(frames: &mut Vec<TrialFrame>, frame: &Frame<'_>, from: Ingress) -> anyhow::Result<()> {
    anyhow::ensure!(frames.len() < PACKETS_MAX, "a trial has at most {PACKETS_MAX} packets");
    let Frame { timestamp_ns, link, wire_len, data } = *frame;
    frames.push(TrialFrame { timestamp_ns, link, wire_len, from, data: data.to_vec() });
    Ok(())
}

/// Returns the packets that a frame brings to external nodes.
fn after_programs(
    single: &mut Runner,
    frame: Frame<'_>,
    from: Ingress,
) -> anyhow::Result<Vec<ForwardedPacket>> {
    let mut tracer = Tracer::default();
    single.observe(frame, from, &mut tracer, &mut CollectedOutput::default())?;
    Ok(single.take_forwarded())
}

/// Sums over all runs.
#[derive(Default)]
struct TrialSum {
    released: u64,
    moved: u64,
    packets_lost: u64,
    packets_late: u64,
    messages_lost: u64,
    messages_repeated: u64,
    messages_late: u64,
    joins: u64,
    leaves: u64,
    crashes: u64,
    flows_exempt: u64,
}

impl TrialSum {
    fn add(&mut self, report: &TrialReport) {
        let outcome = &report.outcome;
        self.released += report.released;
        self.moved += report.report.units.as_ref().map_or(0, |units| units.states_moved);
        self.packets_lost += outcome.packets_lost;
        self.packets_late += outcome.packets_late;
        self.messages_lost += outcome.messages_lost;
        self.messages_repeated += outcome.messages_repeated;
        self.messages_late += outcome.messages_late;
        self.joins += outcome.joins;
        self.leaves += outcome.leaves;
        self.crashes += outcome.crashes;
        self.flows_exempt += report.flows_exempt as u64;
    }
}

/// Differences that are shown.
const SHOWN_MAX: usize = 10;

fn summary(
    name: &str,
    runs: u64,
    packets: u64,
    sum: &TrialSum,
    differences: &[(String, u64, TrialDifference)],
) -> String {
    let mut text = format!(
        "{name}: {} runs of {} packets, {} released, {} states moved\n\
         links: {} packets lost, {} overtaken; of messages {} lost, {} repeated, {} overtaken\n",
        thousands(runs),
        thousands(packets),
        thousands(sum.released),
        thousands(sum.moved),
        thousands(sum.packets_lost),
        thousands(sum.packets_late),
        thousands(sum.messages_lost),
        thousands(sum.messages_repeated),
        thousands(sum.messages_late),
    );
    if sum.joins + sum.leaves + sum.crashes > 0 {
        let _ = writeln!(
            text,
            "units: {} joined, {} left, {} crashed; {} flows were lost and are exempt from then on",
            thousands(sum.joins),
            thousands(sum.leaves),
            thousands(sum.crashes),
            thousands(sum.flows_exempt),
        );
    }
    for (mode, seed, difference) in differences.iter().take(SHOWN_MAX) {
        let _ = writeln!(text, "seed {seed}, {mode}: {difference}");
    }
    match differences.len() {
        0 => text += "no difference from a single graph\n",
        count => {
            let _ = writeln!(text, "{count} of {runs} runs differ from a single graph");
        }
    }
    text
}
