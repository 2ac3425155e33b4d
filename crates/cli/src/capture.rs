//! `rivulet capture`: captures each packet on arrival and departure, with a comment about the
//! decision of each function.

mod connect;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::ArgGroup;
use io::capture::{CaptureFormat, FormatKind};
use observe::annotated::AnnotatedCapture;
use observe::explain::Selection;
use observe::sinks::Capture;
use runtime::{Assembly, Live, Runner};
use values::Nanos;

use crate::explain;
use crate::messages::{Console, say};
use crate::signals::{self, Signals};
use crate::sources::{PortFile, Sources};
use crate::up::privileges::{self, Uses};
use crate::up::{self, Nodes, PortInterface};
use crate::{files, output, policies};

/// Captures packets on arrival and departure, with a comment about the decision of each function
///
/// Runs a policy over captures or on network interfaces, and writes pcapng.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("source").required(true).args(["read", "port", "connect"]))]
pub struct Args {
    /// Policy file (- for standard input)
    #[arg(required_unless_present = "connect", conflicts_with = "connect")]
    pub policy: Option<PathBuf>,
    /// Capture to read: pcap or pcapng, optionally gzipped (- for standard input); repeatable
    #[arg(short, long, value_name = "[PORT=]FILE")]
    pub read: Vec<PortFile>,
    #[arg(short, long, value_name = "PORT=INTERFACE", help = up::port_help())]
    pub port: Vec<PortInterface>,
    /// Capture on a running `rivulet up` with this interface, without comments
    #[arg(long, value_name = "INTERFACE")]
    #[arg(conflicts_with_all = ["filter", "dropped", "driver", "seed"])]
    pub connect: Option<String>,
    /// File to write: .pcapng, optionally .gz (- for standard output)
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,
    /// Only packets that match this filter of the policy language on arrival; names of the policy
    /// may be used
    #[arg(long, value_name = "EXPR")]
    pub filter: Option<String>,
    /// Only dropped packets
    #[arg(long)]
    pub dropped: bool,
    /// Stop after this many packets
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Stop after this time, on interfaces
    #[arg(long, value_name = "TIME", conflicts_with = "read")]
    pub duration: Option<Nanos>,
    /// Driver of ports that are named by an interface alone; `auto` uses AF_XDP where it is
    /// transparent, otherwise packet sockets
    #[arg(long, default_value = "auto", value_parser = up::drivers())]
    pub driver: String,
    /// Seed of everything random, unless the policy sets one [default: random]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Do not print the number of packets
    #[arg(short, long)]
    pub quiet: bool,
}

const EXAMPLES: &str = "\
On interfaces the policy runs as with `rivulet up`, until the command ends. Packets are processed one by one and copied at
every function, which takes several times as long: use it to find a fault, not under full load. The file grows with the
traffic; limit it with --count, --duration, --filter or --dropped.

--connect captures on a running `rivulet up` of the same user, or as root. Each packet costs it one copy, and it never waits
for a reader.

Examples:
  rivulet capture site.rvl --read capture.pcap --write told.pcapng
  rivulet capture site.rvl --read capture.pcap --dropped --write dropped.pcapng
  rivulet capture site.rvl --port inside=eth0 --port outside=eth1 --filter 'dst port 80' --count 100 --write web.pcapng
  rivulet capture --connect eth0 --count 1000 --write seen.pcapng
  rivulet capture site.rvl --port inside=eth0 --port outside=eth1 --write - | tshark -r - -T fields -e frame.comment";

const SECOND_NS: u64 = 1_000_000_000;

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let policy = args.policy.as_deref();
    files::keep_apart(args.read.iter().map(|file| &*file.path).chain(policy), [&*args.write])?;
    let format = format(&args.write)?;
    if let Some(interface) = &args.connect {
        return connect::run(args, interface, format);
    }
    let policy = policy.context("there is no policy")?;
    let text = policies::text(policy)?;
    let assembly = policies::assemble(policy, &text, args.seed)?;
    let filter = args.filter.as_deref();
    let mut selection = explain::selection(filter, policy, &text, &assembly)?;
    selection.dropped = args.dropped;
    let name = policy.display().to_string();
    match args.port.is_empty() {
        true => of_captures(args, format, selection, assembly, &name),
        false => of_interfaces(args, format, selection, assembly, &name),
    }
}

/// Returns the format, which must be pcapng: only that has comments.
fn format(path: &Path) -> anyhow::Result<CaptureFormat> {
    let format = CaptureFormat::of_path(path);
    match format.kind {
        FormatKind::Pcapng => Ok(format),
        _ if path == Path::new("-") => Ok(CaptureFormat { kind: FormatKind::Pcapng, gzip: false }),
        _ => bail!("{} is not pcapng, which comments require; name a .pcapng file", path.display()),
    }
}

fn of_captures(
    args: &Args,
    format: CaptureFormat,
    selection: Selection,
    mut assembly: Assembly,
    name: &str,
) -> anyhow::Result<ExitCode> {
    policies::say_assumptions(&assembly);
    let signals = Signals::of_batch().context("cannot install signal handlers")?;
    assembly.graph.expect_offloaded();
    let mut sources = Sources::open(&args.read, &assembly.ports)?;
    let capture = Capture::with_directions(&args.write, format, &assembly.ports, false)?.begin(None)?;
    let mut trace = AnnotatedCapture::new(capture, selection, args.count).marks_midstream();
    let mut runner = Runner::new(assembly, name);
    while signals.stop().is_none()
        && let Some((frame, from)) = sources.next()
    {
        trace.process(&mut runner, frame, from);
        if trace.is_full() {
            break;
        }
    }
    let unknown = trace.unknown();
    let has_failed = finish(args, trace)?;
    explain::say_unknown(unknown);
    sources.passed_over().iter().for_each(|message| say!("rivulet: {message}"));
    let broken = sources.broken();
    for message in &broken {
        say!("rivulet: {message}; packets before it were processed");
    }
    Ok(match signals.stop() {
        Some(signal) => signals::exit_code(signal),
        None if has_failed || !broken.is_empty() => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    })
}

fn of_interfaces(
    args: &Args,
    format: CaptureFormat,
    selection: Selection,
    assembly: Assembly,
    name: &str,
) -> anyhow::Result<ExitCode> {
    // From here on, every exit removes the resources of nodes.
    let nodes = Nodes::start(&assembly, &args.port)?;
    let given = [args.port.clone(), up::node_ports(&assembly)?].concat();
    let interfaces = up::open(&given, &args.driver, &assembly.ports)?;
    let capture = Capture::with_directions(&args.write, format, &assembly.ports, true)?;
    let signals = Signals::of_service().context("cannot install signal handlers")?;
    let drivers = io::port::drivers_in_use(interfaces.iter().map(|(_, interface)| interface));
    privileges::give_up(&drivers).context("cannot drop capabilities")?;
    let uses = Uses { appends: true, serves: false, stores: false };
    privileges::refuse_other_calls(&drivers, uses).context("cannot install the system call filter")?;
    let said = up::said(&given, &interfaces);
    let (console, ending) = Console::begin(false).context("cannot start the console thread")?;
    let mut trace = AnnotatedCapture::new(capture.begin(Some(&console.notices()))?, selection, args.count);
    let runner = Runner::new(assembly, name);
    let mut live = Live::new(runner, interfaces).context("cannot read the state of the interfaces")?;
    if !args.quiet {
        console.say(said);
    }
    let nodes = nodes.watch()?;
    let end_ns = args.duration.map(|duration| live.now_ns().saturating_add(duration.0));
    let mut flushed_ns = live.now_ns();
    while signals.stop().is_none() && !trace.is_full() && end_ns.is_none_or(|end_ns| live.now_ns() < end_ns) {
        trace.round(&mut live);
        live.check_links().iter().for_each(|change| console.say(up::changed(change)));
        if signals.take_reopen() {
            trace.reopen();
        }
        if live.now_ns() >= flushed_ns + SECOND_NS {
            flushed_ns = live.now_ns();
            trace.flush();
        }
    }
    trace.drain(&mut live);
    nodes.finish();
    ending.finish();
    finish(args, trace)?;
    Ok(ExitCode::SUCCESS)
}

/// Completes the file, and returns whether that failed.
fn finish(args: &Args, trace: AnnotatedCapture) -> anyhow::Result<bool> {
    let (came, written, outcome) = trace.finish()?;
    if !args.quiet {
        let (came, written) = (output::thousands(came), output::thousands(written));
        say!("rivulet: {came} packets received, {written} of them written to {}", args.write.display());
    }
    outcome.complaint.iter().for_each(|complaint| say!("rivulet: {complaint}"));
    Ok(outcome.has_failed)
}
