//! `rivulet up`: runs a policy on network interfaces.

mod engine;
mod lock;
mod metrics;
mod mirror;
mod nodes;
mod notices;
pub mod privileges;
mod rates;
pub mod server;

use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::LazyLock;

use anyhow::{Context, bail};
use clap::builder::PossibleValuesParser;
use cluster::remote::{RemoteHandle, StartStatus};
use io::port::{DRIVERS, Interface, PortSpec, drivers_in_use};
use runtime::shards::WORKERS_MAX;
use runtime::{Assembly, LinkChange, Ports};
use telemetry::event;
use values::Nanos;

use crate::control::Script;
use crate::export::ExportArgs;
use crate::messages::Console;
use crate::metrics_address::DEFAULT_ADDRESS;
use crate::output::{self, Format};
use crate::signals::Signals;
use crate::sources::{self, PortFile, port_named};
use crate::{files, policies, units};
use observe::eve::EventKinds;
use observe::sinks::{self, Outputs, Sinks};
use observe::summary;

use engine::Engine;
use lock::InterfaceLock;
pub use lock::PREFIX as LOCK_PREFIX;
pub use mirror::{ACCEPTED, REQUEST};
pub use nodes::{Nodes, ports as node_ports};
use notices::Notices;
use privileges::Uses;
use rates::{Rates, TunnelWarning};
use server::LatestReport;

/// Runs a policy on network interfaces until SIGINT (Ctrl-C) or SIGTERM
///
/// Each port of the policy is one interface. Frames pass from port to port as on a wire with the
/// policy's functions in it: an interface needs no address and keeps its configuration.
///
/// Capabilities: CAP_NET_RAW; for AF_XDP also CAP_NET_ADMIN and CAP_BPF; CAP_NET_ADMIN to create a
/// TAP device; none for memif; for DPDK those of the device. All others are dropped.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Policy file (- for standard input)
    pub policy: PathBuf,
    #[arg(short, long, value_name = "PORT=INTERFACE", required = true, help = port_help())]
    pub port: Vec<PortInterface>,
    /// Driver of ports that are named by an interface alone; `auto` uses AF_XDP where it is
    /// transparent, otherwise packet sockets
    #[arg(long, default_value = AUTO, value_parser = drivers())]
    pub driver: String,
    /// Write the packets that leave by PORT, or by any port, to a capture: .pcap or .pcapng,
    /// optionally .gz
    #[arg(short, long, value_name = "[PORT=]FILE")]
    pub write: Vec<PortFile>,
    /// Write the report to a file as JSON at the end
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Append alerts and events to a file as EVE JSON lines; SIGUSR1 and SIGHUP reopen it
    #[arg(long, value_name = "FILE")]
    pub alerts: Option<PathBuf>,
    /// Alerts of one signature and source that are written within 10 s; a `suppressed` event counts
    /// the others. 0: no limit
    #[arg(long, value_name = "N", default_value_t = sinks::PER_SOURCE)]
    pub alert_limit: u32,
    /// Events to write to the alert file: of functions (http, dns, tls, redundancy, nat), flow
    /// records of a Monitor (flow), counters of the whole run (stats)
    #[arg(long, value_name = "KINDS", default_value_t, requires = "alerts")]
    pub events: EventKinds,
    #[command(flatten)]
    pub export: ExportArgs,
    /// Send commands to functions: lines of `TIME FUNCTION COMMAND`, TIME since the start
    #[arg(long, value_name = "FILE")]
    pub control: Option<PathBuf>,
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = DEFAULT_ADDRESS, help = METRICS_HELP.as_str())]
    pub metrics: Option<SocketAddr>,
    /// Stop after this time
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,
    /// Seed of everything random, unless the policy sets one [default: random]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Format of the summary on standard output
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Format,
    /// Worker threads, each with a share of the flows
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=WORKERS_MAX as i64))]
    #[arg(conflicts_with_all = ["assign", "mode", "units_max", "unit_capacity", "gap", "follow_at", "stay_below", "copies", "threads", "api", "second_core"])]
    pub workers: u16,
    #[command(flatten)]
    pub units: units::Options,
    /// Print no summary and no rates
    #[arg(short, long)]
    pub quiet: bool,
}

static METRICS_HELP: LazyLock<String> = LazyLock::new(|| {
    format!(
        "Serve HTTP at this address, or {DEFAULT_ADDRESS}: /metrics for Prometheus, /report for `rivulet top`"
    )
});

const EXAMPLES: &str = "\
Examples:
  rivulet up site.rvl --port inside=eth0 --port outside=eth1
  rivulet up site.rvl --port inside=eth0 --port outside=eth1 --alerts /var/log/rivulet/eve.json
  rivulet up site.rvl --port inside=tap:rvl0 --port outside=eth1
  rivulet up site.rvl --port inside=dpdk:0000:03:00.0 --port outside=dpdk:0000:03:00.1
  rivulet up site.rvl --port inside=memif:/run/rivulet/in.sock --port outside=memif:/run/vpp/memif.sock,role=client
  rivulet up site.rvl --port inside=eth0 --port outside=eth1 --duration 60s -o json | jq .interfaces";

/// The value of `--driver` that leaves the choice to the program.
const AUTO: &str = "auto";

/// Returns the values of `--driver`.
pub fn drivers() -> PossibleValuesParser {
    let drivers = DRIVERS.iter().filter(|entry| entry.info.is_for_interfaces);
    PossibleValuesParser::new([AUTO].into_iter().chain(drivers.map(|entry| entry.info.name)))
}

/// Returns the help of `--port`.
pub fn port_help() -> String {
    let forms = DRIVERS.iter().map(|entry| format!("`{}` ({})", entry.info.syntax, entry.info.peer));
    let forms: Vec<_> = forms.collect();
    format!(
        "The network interface of PORT, a name or number; each port of the policy needs one. An interface's name alone, or {}",
        forms.join(", ")
    )
}

/// `--port PORT=INTERFACE`.
#[derive(Clone, Debug, PartialEq)]
pub struct PortInterface {
    /// The port's name or number.
    pub port: String,
    /// Its interface.
    pub spec: PortSpec,
}

impl FromStr for PortInterface {
    type Err = String;

    fn from_str(text: &str) -> Result<PortInterface, String> {
        let expected = || "expected PORT=INTERFACE, such as inside=eth0 or inside=tap:rvl0".to_owned();
        let (port, interface) = text.split_once('=').ok_or_else(expected)?;
        if port.is_empty() || interface.is_empty() {
            return Err(expected());
        }
        let spec = interface.parse().map_err(|error: io::port::PortSpecError| error.to_string())?;
        Ok(PortInterface { port: port.to_owned(), spec })
    }
}

/// Distinguishes a process from others of its host, now and after a restart: by its interfaces and
/// its network namespace.
struct Process<'a>(&'a [PortInterface]);

impl fmt::Display for Process<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|PortInterface { port, spec }| write!(f, "{port}={spec} "))?;
        let namespace = std::fs::metadata("/proc/self/ns/net").map_or(0, |metadata| metadata.ino());
        write!(f, "namespace {namespace}")
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    files::keep_apart(
        [&*args.policy].into_iter().chain(args.control.as_deref()),
        args.write
            .iter()
            .map(|file| &*file.path)
            .chain(args.report.as_deref())
            .chain(args.alerts.as_deref())
            .chain(args.export.file()),
    )?;
    let (mut assemblies, maker) = load(args)?;
    let assembly = assemblies.first().context("there are no workers")?;
    let mut controls = match &args.control {
        Some(path) => Script::read(path, assembly)?,
        None => Script::default(),
    };
    let functions = assembly.names.len() as u64;
    let notices = Notices::of(assembly);
    // From here on, every exit removes the resources of nodes.
    let nodes = Nodes::start(assembly, &args.port)?;
    let given = [args.port.clone(), nodes::ports(assembly)?].concat();
    let mut interfaces = open_parts(&given, &args.driver, &assembly.ports, args.workers.into())?;
    let outputs = Outputs {
        writes: &args.write,
        alerts: args.alerts.as_deref(),
        events: &args.events,
        flows: args.export.output(Process(&args.port)),
        live: Some(args.alert_limit),
    };
    let sinks = Sinks::create(&outputs, &assembly.ports)?;
    let report_file = args.report.as_deref().map(files::create).transpose()?;
    let listener = args
        .metrics
        .map(|address| server::listen(address).with_context(|| format!("cannot listen on {address}")));
    let listener = listener.transpose()?;
    let api = args.units.open_api(&args.policy)?;
    let signals = Signals::of_service().context("cannot install signal handlers")?;
    let name = args.policy.display().to_string();
    let parts = match assemblies.len() {
        1 => Vec::new(),
        _ => {
            runtime::shards::parts(std::mem::take(&mut assemblies), &name).context("cannot set up workers")?
        }
    };
    let said = said(&given, &interfaces[0]);
    let chosen = given.iter().zip(&interfaces[0]);
    let chosen: Vec<_> = chosen
        .map(|(given, (_, interface))| (given.port.clone(), interface.name().to_owned(), interface.mode()))
        .collect();
    let drivers = drivers_in_use(interfaces.iter().flatten().map(|(_, interface)| interface));
    privileges::give_up(&drivers).context("cannot drop capabilities")?;
    let uses = Uses {
        appends: outputs.have_files(),
        serves: api.sockets.is_some(),
        stores: args.units.cluster.is_some(),
    };
    privileges::refuse_other_calls(&drivers, uses).context("cannot install the system call filter")?;
    // Threads that are started after this point inherit the restrictions.
    runtime::memory::keep_reserve().context("cannot start the memory thread")?;
    let (console, ending) = Console::begin(!args.quiet).context("cannot start the console thread")?;
    let sinks = sinks.begin(Some(&console.notices()))?;
    let (mut _api, mut _second_core) = (None, None);
    let mut cluster = None;
    let mut engine = match (assemblies.pop(), interfaces.pop()) {
        (Some(assembly), Some(interfaces)) => {
            let (mut runner, nodes) = args.units.runner(&args.policy, assembly, maker, true)?;
            cluster = nodes.as_ref().map(|nodes| nodes.nodes.clone());
            _second_core = args.units.second_core(&mut runner)?;
            _api = api.sockets.map(|api| api.serve(&mut runner, nodes)).transpose()?;
            Engine::one(runner, interfaces, sinks, lock::sockets().context("cannot clone the lock sockets")?)?
        }
        (_, last) => Engine::several(parts, interfaces.into_iter().chain(last).collect(), sinks)?,
    };
    let board = LatestReport::new(engine.report()?);
    if let Some(listener) = listener {
        server::serve(listener, board.clone()).context("cannot start the metrics threads")?;
    }
    event::policy_applied(&name, functions, given.len() as u64);
    chosen.iter().for_each(|(port, interface, driver)| event::driver_chosen(port, interface, driver));
    if !args.quiet {
        console.say(said);
    }
    notices.report(args.units.cluster.is_some());
    api.said.into_iter().for_each(|line| console.say(line));
    let nodes = nodes.watch()?;
    if let Some(cluster) = &cluster {
        engine.set_receiving(false);
        await_units(&mut engine, cluster, &signals, &console)?;
        engine.set_receiving(true);
    }
    console.ready();

    let end_ns = args.duration.map(|duration| engine.now_ns().saturating_add(duration.0));
    let mut rates = Rates::new(engine.now_ns());
    let mut tunnels = TunnelWarning::default();
    let mut stats = Timer { every_ns: STATS_EVERY_NS, last_ns: engine.now_ns() };
    while signals.stop().is_none() && end_ns.is_none_or(|end_ns| engine.now_ns() < end_ns) {
        let now_ns = engine.now_ns();
        if controls.is_due(now_ns) {
            engine.control(&mut controls, now_ns)?.into_iter().for_each(|line| console.say(line));
        }
        for change in engine.go_on()? {
            console.report(|| log_change(&change), || changed(&change));
        }
        if signals.take_reopen() {
            engine.reopen();
            console.report(event::outputs_reopened, || "rivulet: files reopened".to_owned());
        }
        if rates.is_due(engine.now_ns()) || signals.take_report() {
            let is_asked = !rates.is_due(engine.now_ns());
            engine.flush()?;
            let mut report = engine.report()?;
            report.commands = controls.counts();
            if stats.is_due(engine.now_ns()) {
                engine.stats(&report)?;
            }
            if let Some(warning) = tunnels.of(&report) {
                console.report(|| event::tunnels_unparsed(&warning), || format!("rivulet: {warning}"));
            }
            let text = rates.since_last(engine.now_ns(), &report);
            if is_asked {
                console.say(format!("rivulet: {text}"));
            }
            console.show_rates(text);
            board.put(report);
        }
    }
    console.stopping();
    let (mut report, complaints) = engine.finish()?;
    nodes.finish();
    report.commands = controls.counts();
    for complaint in complaints {
        console.report(|| event::output_incomplete(&complaint), || format!("rivulet: {complaint}"));
    }
    event::policy_ended(&name, report.packets_in, report.packets_out);
    ending.finish();
    let written = report_file.map_or(Ok(()), |(name, file)| {
        files::write_json(file, &report).with_context(|| format!("cannot write {name}"))
    });
    match args.output {
        _ if args.quiet || sources::name_standard_stream(&args.write) => {}
        Format::Json => output::print_json(&report)?,
        Format::Table => output::print(&summary::of(&report))?,
    }
    written?;
    Ok(ExitCode::SUCCESS)
}

/// Waits until units are there, or until a signal stops it. In the meantime operators get answers,
/// and the ports' queues hold packets.
fn await_units(
    engine: &mut Engine,
    cluster: &RemoteHandle,
    signals: &Signals,
    console: &Console,
) -> anyhow::Result<()> {
    let mut shown = StartStatus::default();
    while signals.stop().is_none() {
        engine.go_on()?;
        let status = cluster.start();
        if status.has_begun {
            return Ok(());
        }
        if status != shown && status.wanted > 0 {
            console.waiting(format!("waiting for units: {status}"));
            shown = status;
        }
    }
    Ok(())
}

/// Timer of the `stats` records.
const STATS_EVERY_NS: u64 = 8_000_000_000;

/// A periodic timer.
struct Timer {
    every_ns: u64,
    last_ns: u64,
}

impl Timer {
    /// Returns whether the period has elapsed, and restarts it if so.
    fn is_due(&mut self, now_ns: u64) -> bool {
        let is_due = now_ns.saturating_sub(self.last_ns) >= self.every_ns;
        if is_due {
            self.last_ns = now_ns;
        }
        is_due
    }
}

/// Assembles the policy, once for each worker. Also returns a maker of more copies of the graph if
/// units run on threads.
fn load(args: &Args) -> anyhow::Result<(Vec<Assembly>, Option<units::UnitMaker>)> {
    let (mut assemblies, maker) = if args.workers > 1 {
        (policies::load_parts(&args.policy, args.seed, args.workers.into())?, None)
    } else {
        let (assembly, maker) = args.units.load(&args.policy, args.seed)?;
        (vec![assembly], maker)
    };
    if args.seed.is_none() {
        assemblies.iter_mut().for_each(Assembly::hide_seed);
    }
    Ok((assemblies, maker))
}

/// Opens the interface of each port of the policy.
pub fn open(given: &[PortInterface], driver: &str, ports: &Ports) -> anyhow::Result<Vec<(u16, Interface)>> {
    Ok(open_parts(given, driver, ports, 1)?.pop().unwrap_or_default())
}

/// Opens the interface of each port of the policy, in a part for each worker.
fn open_parts(
    given: &[PortInterface],
    driver: &str,
    ports: &Ports,
    count: usize,
) -> anyhow::Result<Vec<Vec<(u16, Interface)>>> {
    let mut opened: Vec<Vec<(u16, Interface)>> = (0..count).map(|_| Vec::new()).collect();
    given.iter().for_each(|given| given.spec.announce(count));
    for PortInterface { port, spec } in given {
        let number = port_named(ports, port)?;
        if let Some((_, other)) = opened[0].iter().find(|&&(taken, _)| taken == number) {
            bail!("port {port} already has the interface {}", other.name());
        }
        if opened[0].iter().any(|(_, other)| other.name() == spec.name()) {
            bail!("{} is already the interface of another port", spec.name());
        }
        if spec.is_interface() {
            lock(spec.name())?;
        }
        let spec = match driver {
            AUTO => spec.clone(),
            driver => spec.clone().with_driver(driver)?,
        };
        let opens = Interface::open_parts(&spec, count).with_context(|| format!("cannot open {spec}"));
        opened.iter_mut().zip(opens?).for_each(|(part, opens)| part.push((number, opens)));
    }
    let has_none = |port: &&runtime::PortEntry| opened[0].iter().all(|&(number, _)| number != port.number);
    if let Some(port) = ports.all().iter().find(has_none) {
        bail!("port {0} of the policy has no interface; add --port {0}=INTERFACE", port.name);
    }
    Ok(opened)
}

/// Locks an interface for this process until it ends.
fn lock(interface: &str) -> anyhow::Result<()> {
    match InterfaceLock::take(interface) {
        Ok(lock) => {
            lock.keep();
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
        Err(error) => bail!("cannot open {interface}: {error}"),
    }
}

/// Reports the interfaces and their drivers.
pub fn said(given: &[PortInterface], interfaces: &[(u16, Interface)]) -> String {
    let each = given.iter().zip(interfaces);
    let ports = each.map(|(given, (_, interface))| {
        format!("{} on {} ({})", given.port, interface.name(), interface.mode())
    });
    let mut lines = vec![format!("rivulet: up: {}", ports.collect::<Vec<_>>().join(", "))];
    let fallbacks =
        interfaces.iter().filter_map(|(_, interface)| Some((interface.name(), interface.fallback()?)));
    lines.extend(fallbacks.map(|(name, why)| fallback(name, why)));
    lines.join("\n")
}

/// Returns the line that reports a change of an interface's state.
pub fn changed(change: &LinkChange) -> String {
    let LinkChange { interface, is_up, fallback: reason, cause } = change;
    let cause = cause.as_ref().map_or_else(String::new, |cause| format!(": {cause}"));
    let state = format!("rivulet: {interface} is {}{cause}", if *is_up { "up" } else { "down" });
    match reason {
        Some(reason) => format!("{state}\n{}", fallback(interface, reason)),
        None => state,
    }
}

/// Logs a change of an interface's state.
fn log_change(change: &LinkChange) {
    let cause = change.cause.as_deref().unwrap_or_default();
    match change.is_up {
        true => event::port_up(&change.interface, &cause),
        false => event::port_down(&change.interface, &cause),
    }
    if let Some(reason) = &change.fallback {
        event::driver_fallback(&change.interface, reason);
    }
}

/// Reports that an interface does not use the preferred driver.
fn fallback(interface: &str, reason: impl std::fmt::Display) -> String {
    format!("rivulet: {interface}: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_the_name_of_its_interface() {
        for (text, port, name, shown) in [
            ("inside=eth0", "inside", "eth0", "eth0"),
            ("0=tap:rvl0", "0", "rvl0", "tap:rvl0"),
            ("inside=dpdk:03:00.0", "inside", "0000:03:00.0", "dpdk:0000:03:00.0"),
            (
                "inside=dpdk:net_af_packet0,iface=eth0,qpairs=2",
                "inside",
                "net_af_packet0",
                "dpdk:net_af_packet0",
            ),
        ] {
            let parsed: PortInterface = text.parse().unwrap();
            let found = (&*parsed.port, parsed.spec.name(), &*parsed.spec.to_string());
            assert_eq!(found, (port, name, shown), "{text}");
            assert_eq!(parsed.spec.is_interface(), shown == "eth0", "{text}");
        }
        for text in ["eth0", "=eth0", "inside="] {
            assert!(text.parse::<PortInterface>().unwrap_err().contains("inside=tap:rvl0"), "{text}");
        }
        assert!("inside=tap:".parse::<PortInterface>().unwrap_err().contains("such as tap:rvl0"));
        for text in ["inside=dpdk:", "inside=dpdk:,iface=eth0", "inside=dpdk:03:00", "inside=dpdk:03:00.9"] {
            assert!(text.parse::<PortInterface>().unwrap_err().contains("0000:03:00.0"), "{text}");
        }
    }
}
