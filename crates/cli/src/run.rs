//! `rivulet run`: runs a policy over captures.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use cluster::remote::RemoteError;
use indicatif::ProgressBar;
use runtime::Frame;
use telemetry::event;

use crate::export::ExportArgs;
use crate::messages::{self, say};
use crate::output::{self, Format};
use crate::policies;
use crate::signals::{self, Signals};
use crate::sources::{self, PortFile, Sources};
use crate::{files, units};
use observe::eve::EventKinds;
use observe::sinks::{Outputs, Sinks};
use observe::summary;

/// Runs a policy over captures, merged by time
///
/// A packet arrives on PORT if it is given. Otherwise it arrives on the port whose `prefixes`
/// contain its source address, or else on the port with the number of its interface in the capture.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Policy file (- for standard input)
    pub policy: PathBuf,
    /// Capture to read: pcap or pcapng, optionally gzipped (- for standard input); repeatable
    #[arg(short, long, value_name = "[PORT=]FILE", required = true)]
    pub read: Vec<PortFile>,
    /// Write the packets that leave by PORT, or by any port, to a capture: .pcap or .pcapng,
    /// optionally .gz
    #[arg(short, long, value_name = "[PORT=]FILE")]
    pub write: Vec<PortFile>,
    /// Write the report to a file as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write alerts and events to a file as EVE JSON lines
    #[arg(long, value_name = "FILE")]
    pub alerts: Option<PathBuf>,
    /// Events to write to the alert file: of functions (http, dns, tls, redundancy, nat), flow
    /// records of a Monitor (flow), counters of the whole run (stats)
    #[arg(long, value_name = "KINDS", default_value_t, requires = "alerts")]
    pub events: EventKinds,
    #[command(flatten)]
    pub export: ExportArgs,
    /// Send commands to functions: lines of `TIME FUNCTION COMMAND`, TIME since the first packet
    #[arg(long, value_name = "FILE")]
    pub control: Option<PathBuf>,
    /// Seed of everything random, unless the policy sets one; the same input and seed give the same
    /// output [default: random]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Format of the summary on standard output
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Format,
    #[command(flatten)]
    pub units: units::Options,
    /// Speed up the captures' time by this factor
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = speedup)]
    pub speedup: f64,
    /// Print no summary and no progress
    #[arg(short, long)]
    pub quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  rivulet run site.rvl --read capture.pcap
  rivulet run site.rvl --read inside=lan.pcap --read outside=wan.pcapng.gz --write out.pcapng
  rivulet run site.rvl --read capture.pcap --write outside=wan.pcap --report report.json --alerts eve.json
  rivulet run site.rvl --read capture.pcap --seed 7 -o json | jq .drops
  rivulet run site.rvl --read capture.pcap --mode flowlet --units-max 20 --speedup 100";

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    files::keep_apart(
        args.read.iter().map(|file| &*file.path).chain(args.control.as_deref()).chain([&*args.policy]),
        args.write
            .iter()
            .map(|file| &*file.path)
            .chain(args.report.as_deref())
            .chain(args.alerts.as_deref())
            .chain(args.export.file()),
    )?;
    let (mut assembly, maker) = args.units.load(&args.policy, args.seed)?;
    policies::say_assumptions(&assembly);
    assembly.graph.expect_offloaded();
    let mut controls = match &args.control {
        Some(path) => crate::control::Script::read(path, &assembly)?,
        None => crate::control::Script::default(),
    };
    let signals = Signals::of_batch().context("cannot install signal handlers")?;
    let mut sources = Sources::open(&args.read, &assembly.ports)?;
    let outputs = Outputs {
        writes: &args.write,
        alerts: args.alerts.as_deref(),
        events: &args.events,
        flows: args.export.output(format_args!("seed {}", assembly.seed)),
        live: None,
    };
    let mut sinks = Sinks::create(&outputs, &assembly.ports)?.begin(None)?;
    let report_file = args.report.as_deref().map(files::create).transpose()?;
    let bar = if args.quiet { ProgressBar::hidden() } else { output::progress(size(&args.read), "bytes") };
    let (functions, ports) = (assembly.names.len() as u64, assembly.ports.all().len() as u64);
    event::policy_applied(&args.policy.display(), functions, ports);
    let api = args.units.open_api(&args.policy)?;
    let (mut runner, nodes) = match args.units.runner(&args.policy, assembly, maker, false) {
        Err(error) if matches!(error.downcast_ref(), Some(RemoteError::Stopped(_))) => {
            say!("rivulet: {error:#}");
            return Ok(ExitCode::SUCCESS);
        }
        runner => runner?,
    };
    let second_core = args.units.second_core(&mut runner)?;
    api.said.iter().for_each(|line| say!("{line}"));
    let _api = api.sockets.map(|api| api.serve(&mut runner, nodes)).transpose()?;
    let mut pace = Speedup::new(args.speedup);
    let mut packets = 0u64;
    let mut has_failed = false;
    while signals.stop().is_none()
        && let Some((frame, from)) = sources.next()
    {
        let frame = Frame { timestamp_ns: pace.at(frame.timestamp_ns), ..frame };
        if controls.is_due(frame.timestamp_ns) {
            runner.flush(&mut sinks)?;
            let said = controls.carry_out(frame.timestamp_ns, &mut runner);
            bar.suspend(|| said.iter().for_each(|line| say!("{line}")));
        }
        runner.receive(frame, from, &mut sinks)?;
        packets += 1;
        if packets.is_multiple_of(1024) {
            bar.set_position(sources.position());
            if report_file.is_none() && sinks.have_all_failed() {
                // The output has no reader.
                break;
            }
        }
    }
    let mut report = runner.finish(&mut sinks)?;
    report.time_jumps = sources.time_jumps();
    sinks.stats(&report, report.last_packet_ns.unwrap_or_default())?;
    let ended = sinks.finish(report.last_packet_ns.unwrap_or(0))?;
    bar.finish_and_clear();
    has_failed |= ended.has_failed;
    report.outputs = ended.counts;
    report.commands = controls.counts();
    has_failed |= report.commands.is_some_and(|commands| commands.refused > 0);
    for complaint in &ended.complaints {
        messages::report(|| event::output_incomplete(complaint), || format!("rivulet: {complaint}"));
    }
    event::policy_ended(&args.policy.display(), report.packets_in, report.packets_out);
    if let Some((name, file)) = report_file
        && let Err(error) = files::write_json(file, &report)
    {
        has_failed = true;
        let complaint = format!("cannot write {name}: {error}");
        messages::report(|| event::output_incomplete(&complaint), || format!("rivulet: {complaint}"));
    }
    let printed = match args.output {
        _ if args.quiet || sources::name_standard_stream(&args.write) => Ok(()),
        Format::Json => output::print_json(&report),
        Format::Table => output::print(&summary::of(&report)).map_err(Into::into),
    };
    if let Err(error) = printed {
        has_failed = true;
        if !output::is_closed_pipe(&error) {
            say!("rivulet: cannot print the report: {error:#}");
        }
    }
    let broken: Vec<_> =
        sources.broken().iter().map(|why| format!("{why}; packets before it were processed")).collect();
    has_failed |= !broken.is_empty();
    for reason in sources.passed_over().iter().chain(&broken) {
        messages::report(|| event::input_incomplete(reason), || format!("rivulet: {reason}"));
    }
    if let Some(second_core) = second_core.filter(|_| !args.quiet) {
        let groups = output::thousands(second_core.groups());
        say!("rivulet: the second core ran the state functions of {groups} groups of packets");
    }
    Ok(match signals.stop() {
        Some(signal) => signals::exit_code(signal),
        None if has_failed => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    })
}

/// Scales the time since the first packet.
struct Speedup {
    speedup: f64,
    first_ns: Option<u64>,
}

impl Speedup {
    fn new(speedup: f64) -> Speedup {
        Speedup { speedup, first_ns: None }
    }

    fn at(&mut self, at_ns: u64) -> u64 {
        if self.speedup == 1.0 {
            return at_ns;
        }
        let first_ns = *self.first_ns.get_or_insert(at_ns);
        // A packet may be earlier than the first, as in captures of several interfaces.
        let since_ns = at_ns.abs_diff(first_ns) as f64 / self.speedup;
        match at_ns >= first_ns {
            true => first_ns.saturating_add(since_ns as u64),
            false => first_ns.saturating_sub(since_ns as u64),
        }
    }
}

fn speedup(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is not a factor; expected a number above 0, such as 100 or 0.5");
    text.parse().ok().filter(|&speedup: &f64| speedup.is_finite() && speedup > 0.0).ok_or_else(wrong)
}

/// Returns the total size of the captures, if all are regular files and uncompressed.
fn size(files: &[PortFile]) -> Option<u64> {
    let sizes = files.iter().map(|file| {
        let compressed = file.path.extension().is_some_and(|extension| extension == "gz");
        std::fs::metadata(&file.path).ok().filter(|data| data.is_file() && !compressed).map(|data| data.len())
    });
    sizes.sum()
}
