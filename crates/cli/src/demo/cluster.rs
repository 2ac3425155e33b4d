//! `rivulet demo --cluster`: a dispatcher and units as processes of this machine.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use cluster::identity::Authority;
use cluster::remote::{NodeCommand, NodeInfo, NodeStatus, RemoteHandle, StartStatus};
use runtime::Report;
use runtime::elastic::UnitsConfig;
use serde::Serialize;
use tempfile::TempDir;

use super::world::{DemoNetwork, LoadCurve, START_NS};
use super::{Args, GAP_NS, profile};
use crate::api::ApiFiles;
use crate::cluster::DispatcherNode;
use crate::messages::say as say_line;
use crate::node::PARENT_VARIABLE;
use crate::output::{self, Format, Table, thousands};
use crate::policies;
use observe::sinks::{Outputs, Sinks};

/// The policy: functions without state shared by flows.
const POLICY: &str = include_str!("../../../../examples/cluster.rvl");
/// Units from the beginning; one more joins.
const UNITS: usize = 3;
/// Step of the time.
const STEP_NS: u64 = 5_000_000;
/// Timeout for a node to reach the expected state.
const PATIENCE: Duration = Duration::from_secs(30);

/// Message of the demonstration when processes do not get the processor for seconds.
const SLOW: &str = "this machine is too slow for the demonstration, or too busy";

/// The store where units register themselves.
const STORE: &str = "[store]\nfile = \"cluster.redb\"\n";

/// A node that is a process.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The outcome of the demonstration.
#[derive(Serialize)]
struct ClusterOutcome {
    seconds: f64,
    /// Packets that were lost with units or links.
    packets_lost: u64,
    nodes: Vec<NodeOutcome>,
    report: Report,
}

#[derive(Serialize)]
struct NodeOutcome {
    name: String,
    status: &'static str,
    packets: u64,
}

/// Runs the demonstration.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let folder = TempDir::new().context("cannot create a folder")?;
    let names: Vec<String> = (1..=UNITS + 1).map(|number| format!("unit-{number}")).collect();
    let authority = Authority::open(folder.path(), None)?;
    names
        .iter()
        .map(String::as_str)
        .chain(["dispatcher"])
        .try_for_each(|name| authority.issue_named(folder.path(), name).map(drop))?;
    let policy = folder.path().join("cluster.rvl");
    std::fs::write(&policy, POLICY).context("cannot write the policy")?;
    let (late, first) = names.split_last().context("there are units")?;
    let mut processes =
        first.iter().map(|name| start(folder.path(), name)).collect::<anyhow::Result<Vec<_>>>()?;
    let file = folder.path().join("dispatcher.toml");
    std::fs::write(&file, format!("name = \"dispatcher\"\nunits_min = {UNITS}\n{STORE}"))
        .context("cannot write a file")?;

    let node_policy = policies::load_for_node(&policy)?;
    let (assembly, node) = DispatcherNode::open(&file, node_policy, Some(args.seed))?;
    let capacity_bps = args.unit_capacity.0;
    let config = UnitsConfig { units_max: 16, gap_ns: GAP_NS, capacity_bps, ..UnitsConfig::as_published() };
    let (outputs, events) = (&[], &observe::eve::EventKinds::default());
    let outputs = Outputs { writes: outputs, alerts: None, events, flows: None, live: None };
    let sinks = Sinks::create(&outputs, &assembly.ports)?.begin(None)?;
    // The timeline that the API shows begins with the dispatcher.
    let api = args.api.open("demo", false, &ApiFiles::default())?;
    let asked = Instant::now();
    let is_late = |_: &StartStatus| asked.elapsed() >= PATIENCE;
    let (mut runner, cluster) =
        node.run(&policy.display().to_string(), assembly, config, Some(&is_late)).context(SLOW)?;
    api.said.iter().for_each(|line| say_line!("{line}"));
    let handle = cluster.nodes.clone();
    let _api = api.sockets.map(|api| api.serve(&mut runner, Some(cluster))).transpose()?;
    let end_ns = args.seconds * 1_000_000_000;
    let mut world = DemoNetwork::with_runner(&profile(args), LoadCurve::new(end_ns), runner, sinks)?;
    let is_text = args.output == Format::Table;
    if is_text {
        output::print(&format!("A dispatcher and {UNITS} units run as processes, over encrypted links.\n"))?;
    }
    let (mut now_ns, began, mut drained) = (0, Instant::now(), false);
    while now_ns < end_ns {
        now_ns = (now_ns + STEP_NS).min(end_ns);
        world.advance(START_NS + now_ns)?;
        if processes.len() == UNITS && now_ns >= end_ns / 3 {
            processes.push(start(folder.path(), late)?);
            say(is_text, &format!("{late} joins\n"))?;
        }
        if !drained && now_ns >= end_ns / 2 {
            handle.send(NodeCommand::Drain { name: names[0].clone() });
            drained = true;
            say(is_text, &format!("{} is drained: its flows move to the others\n", names[0]))?;
        }
        if now_ns.is_multiple_of(1_000_000_000) {
            say(is_text, &line(now_ns, &world.report(), &handle))?;
        }
        let now = Duration::from_nanos(now_ns);
        if began.elapsed() >= now + PATIENCE {
            bail!("{}: {} s of traffic took {} s", SLOW, now.as_secs(), began.elapsed().as_secs());
        }
        std::thread::sleep(now.saturating_sub(began.elapsed()));
    }
    await_drained(&mut world, &handle, &names[0], now_ns)?;
    let nodes = handle.status();
    let report = world.finish()?;
    let outcome = ClusterOutcome {
        seconds: began.elapsed().as_secs_f64(),
        packets_lost: report.drops.get("unit-lost").copied().unwrap_or(0),
        nodes: nodes.into_iter().map(NodeOutcome::of).collect(),
        report,
    };
    let is_right = outcome.report.adds_up() && outcome.packets_lost == 0;
    let lost = outcome.report.links.as_ref().map_or(0, |links| links.dead);
    if !is_right && lost > 0 {
        say_line!("rivulet: {SLOW}: {lost} times a unit was silent for so long that it was given up");
    }
    match args.output {
        Format::Json => output::print_json(&outcome)?,
        Format::Table => output::print(&summary(&outcome))?,
    }
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl NodeOutcome {
    fn of(info: NodeInfo) -> NodeOutcome {
        NodeOutcome { name: info.name, status: info.status.name(), packets: info.packets }
    }
}

/// Starts a unit, and returns once it listens.
fn start(folder: &Path, name: &str) -> anyhow::Result<Process> {
    let file = folder.join(format!("{name}.toml"));
    let text = format!(
        "name = \"{name}\"\nrole = \"unit\"\nlisten = \"127.0.0.1:0\"\npolicy = \"cluster.rvl\"\n{STORE}"
    );
    std::fs::write(&file, text).context("cannot write a file")?;
    let program = std::env::current_exe().context("cannot find the program")?;
    let mut child = Command::new(program)
        .args(["node", "--config"])
        .arg(&file)
        // It ends with this process, also if that is killed.
        .env(PARENT_VARIABLE, std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let mut said = BufReader::new(child.stderr.take().context("the process has no output")?);
    let mut first = String::new();
    said.read_line(&mut first)?;
    let process = Process(child);
    if !first.contains(" listens at ") {
        bail!("{name} did not start: {first}");
    }
    // Its later output is read, so that it never blocks.
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    Ok(process)
}

/// Waits until a node has handed over its flows.
fn await_drained(
    world: &mut DemoNetwork,
    handle: &RemoteHandle,
    name: &str,
    mut now_ns: u64,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let is_drained = |node: &NodeInfo| node.name == name && node.status == NodeStatus::Drained;
    while !handle.status().iter().any(is_drained) {
        if began.elapsed() >= PATIENCE {
            bail!("{name} did not give its flows away within {} s", PATIENCE.as_secs());
        }
        now_ns += STEP_NS;
        world.advance(START_NS + now_ns)?;
    }
    Ok(())
}

fn say(is_text: bool, text: &str) -> anyhow::Result<()> {
    if is_text { Ok(output::print(text)?) } else { Ok(()) }
}

fn line(now_ns: u64, report: &Report, handle: &RemoteHandle) -> String {
    let moved = report.units.as_ref().map_or(0, |units| units.moved);
    let nodes = handle.status();
    let packets = nodes.iter().map(|node| format!("{} {}", node.name, thousands(node.packets)));
    format!(
        "{:>3} s: {} packets in, {} flowlets moved; packets by unit: {}\n",
        now_ns / 1_000_000_000,
        thousands(report.packets_in),
        thousands(moved),
        packets.collect::<Vec<_>>().join(", ")
    )
}

fn summary(outcome: &ClusterOutcome) -> String {
    let ClusterOutcome { report, nodes, packets_lost, .. } = outcome;
    let mut table = Table::new(&["node", "state", "packets"]);
    for node in nodes {
        table.row(vec![node.name.clone(), node.status.to_owned(), thousands(node.packets)]);
    }
    let states = report.units.as_ref().map_or(0, |units| units.states_moved);
    format!(
        "\n{}\n{} packets came, {} left, {} were dropped by functions, {} were lost. {} flow states moved \
         between processes.\n\nNext: docs/cluster.md shows how to run it on several hosts.\n",
        table.render(),
        thousands(report.packets_in),
        thousands(report.packets_out),
        thousands(report.dropped() - packets_lost),
        thousands(*packets_lost),
        thousands(states)
    )
}
