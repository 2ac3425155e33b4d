//! `rivulet run`: a policy over captures.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use indicatif::ProgressBar;
use node::threads::Maker;
use node::units::{UNITS_MAX, UnitsConfig};
use node::{Assembly, Frame, Report, Runner};
use sim::scenario::{Mode, Rate, Time};

use crate::export::Destination;
use crate::files;
use crate::output::{self, Format, Table, duration, thousands};
use crate::policies;
use crate::sinks::Sinks;
use crate::sources::{self, PortFile, Sources};
use crate::units::ShareOrNone;

/// Runs a policy over captures. Packets of several captures are taken in order of time.
///
/// A packet comes in by PORT if one is given; else by the port whose `prefixes` hold its source address; else by the
/// port with the number of its interface in the capture.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The policy (- for standard input)
    pub policy: PathBuf,
    /// A capture to read: pcap or pcapng, also gzipped (- for standard input); may be given several times
    #[arg(short, long, value_name = "[PORT=]FILE", required = true)]
    pub read: Vec<PortFile>,
    /// A capture to write what leaves by PORT to, or what leaves by all ports: .pcap, .pcapng, also with .gz
    #[arg(short, long, value_name = "[PORT=]FILE")]
    pub write: Vec<PortFile>,
    /// Write the report to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write alerts and events to a file, as EVE JSON lines
    #[arg(long, value_name = "FILE")]
    pub alerts: Option<PathBuf>,
    /// Send flow records as IPFIX to a file or to a collector, `udp:HOST:PORT`; a Monitor in the policy makes them
    #[arg(long, value_name = "DEST")]
    pub ipfix: Option<Destination>,
    /// Commands to functions at given times: lines of `TIME FUNCTION COMMAND`, TIME since the first packet
    #[arg(long, value_name = "FILE")]
    pub control: Option<PathBuf>,
    /// Seed of all that is random, if the policy names none; with it, the same input gives the same output
    #[arg(long)]
    pub seed: Option<u64>,
    /// What the summary on standard output looks like
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Format,
    /// Run on units that come and go with the traffic; this is what is given to one at a time
    ///
    /// flowlet, flow, smart-flow:TIME, packet, rss:BUCKETS, rss:BUCKETS:TIME; flowlet, if only another option of units is given
    #[arg(long, help_heading = "Units")]
    pub mode: Option<Mode>,
    /// Units at most: 10
    #[arg(long, value_name = "N", help_heading = "Units", value_parser = clap::value_parser!(u16).range(1..=i64::from(UNITS_MAX)))]
    pub units_max: Option<u16>,
    /// What a unit is taken to process: 1Gbps
    #[arg(long, value_name = "RATE", help_heading = "Units")]
    pub unit_capacity: Option<Rate>,
    /// Silence of a flow behind which a flowlet begins: 500us; slower units want a longer one
    #[arg(long, value_name = "TIME", help_heading = "Units")]
    pub gap: Option<Time>,
    /// Load that there are units for, as a share of theirs; none: as published, one more for flowlets without room: 0.9
    #[arg(long, value_name = "SHARE", help_heading = "Units")]
    pub follow_at: Option<ShareOrNone>,
    /// Load of a unit, as a share of its capacity, up to which flows stay with it; none: as published, flowlets are assigned anew: 0.95
    #[arg(long, value_name = "SHARE", help_heading = "Units")]
    pub stay_below: Option<ShareOrNone>,
    /// To how many units a flow's state is copied when it falls silent: none; on one thread, copies only take time
    #[arg(long, value_name = "K", help_heading = "Units", value_parser = clap::value_parser!(u8).range(0..=11))]
    pub copies: Option<u8>,
    /// Let copies tell only what has changed since one that the other unit has
    #[arg(long, help_heading = "Units", requires = "copies")]
    pub deltas: bool,
    /// Run each unit on a thread of its own
    ///
    /// Packets of different flows may come out in another order than without.
    #[arg(long, help_heading = "Units")]
    pub threads: bool,
    /// Let the captures' time go by so many times as fast
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = speedup)]
    pub speedup: f64,
    /// No summary and no progress
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
            .chain(args.ipfix.as_ref().and_then(Destination::file)),
    )?;
    let (assembly, maker) = match args.threads {
        true => policies::load_for_threads(&args.policy, args.seed)
            .map(|(assembly, maker)| (assembly, Some(maker)))?,
        false => (policies::load(&args.policy, args.seed)?, None),
    };
    let mut controls = match &args.control {
        Some(path) => crate::control::Script::read(path, &assembly)?,
        None => crate::control::Script::default(),
    };
    let mut sources = Sources::open(&args.read, &assembly.ports)?;
    let mut sinks = Sinks::create(&args.write, args.alerts.as_deref(), args.ipfix.as_ref(), &assembly.ports)?;
    let bar = if args.quiet { ProgressBar::hidden() } else { output::progress(size(&args.read), "bytes") };
    let mut runner = runner(args, assembly, maker)?;
    let mut pace = Pace::new(args.speedup);
    let mut packets = 0u64;
    while let Some((frame, from)) = sources.next() {
        let frame = Frame { timestamp_ns: pace.at(frame.timestamp_ns), ..frame };
        if controls.is_due(frame.timestamp_ns) {
            runner.flush(&mut sinks)?;
            controls.carry_out(frame.timestamp_ns, &mut runner)?;
        }
        runner.receive(frame, from, &mut sinks)?;
        packets += 1;
        if packets.is_multiple_of(1024) {
            bar.set_position(sources.position());
        }
    }
    let report = runner.finish(&mut sinks)?;
    sinks.finish()?;
    bar.finish_and_clear();
    if let Some(path) = &args.report {
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        serde_json::to_writer_pretty(file, &report)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    match args.output {
        _ if args.quiet || sources::name_standard_stream(&args.write) => {}
        Format::Json => output::print_json(&report)?,
        Format::Table => output::print(&summary(&report))?,
    }
    let broken = sources.broken();
    for message in &broken {
        eprintln!("rivulet: {message}; what was read before it was processed");
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What takes frames through the policy, on units if an option asks for them; on threads, if there is what makes chains for them.
fn runner(args: &Args, assembly: Assembly, maker: Option<Maker>) -> anyhow::Result<Runner> {
    let name = args.policy.display().to_string();
    let is_one = maker.is_none()
        && args.mode.is_none()
        && args.units_max.is_none()
        && args.unit_capacity.is_none()
        && args.gap.is_none()
        && args.follow_at.is_none()
        && args.stay_below.is_none()
        && args.copies.is_none();
    if is_one {
        return Ok(Runner::new(assembly, &name));
    }
    let defaults = UnitsConfig::default();
    let config = UnitsConfig {
        mode: args.mode.map_or(defaults.mode, Into::into),
        units_max: args.units_max.unwrap_or(defaults.units_max),
        capacity_bps: args.unit_capacity.map_or(defaults.capacity_bps, |rate| rate.0),
        gap_ns: args.gap.map_or(defaults.gap_ns, |time| time.0),
        follow_at: args.follow_at.map_or(defaults.follow_at, |share| share.0),
        stay_below: args.stay_below.map_or(defaults.stay_below, |share| share.0),
        copies: args.copies.unwrap_or(defaults.copies),
        deltas: args.deltas,
        ..defaults
    };
    match maker {
        Some(make) => Runner::on_threads(assembly, &name, config, make).context("cannot set up units"),
        None => Runner::on_units(assembly, &name, config).context("cannot set up units"),
    }
}

/// Lets time go by faster, or slower, from the first packet on.
struct Pace {
    speedup: f64,
    first_ns: Option<u64>,
}

impl Pace {
    fn new(speedup: f64) -> Pace {
        Pace { speedup, first_ns: None }
    }

    fn at(&mut self, at_ns: u64) -> u64 {
        if self.speedup == 1.0 {
            return at_ns;
        }
        let first_ns = *self.first_ns.get_or_insert(at_ns);
        // One that is earlier than the first, as captures of several interfaces have them, stays so.
        let since_ns = at_ns.abs_diff(first_ns) as f64 / self.speedup;
        match at_ns >= first_ns {
            true => first_ns.saturating_add(since_ns as u64),
            false => first_ns.saturating_sub(since_ns as u64),
        }
    }
}

fn speedup(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is not a number above 0, such as 100 or 0.5");
    text.parse().ok().filter(|&speedup: &f64| speedup.is_finite() && speedup > 0.0).ok_or_else(wrong)
}

/// Bytes of the captures together, if all of them are plain files, uncompressed.
fn size(files: &[PortFile]) -> Option<u64> {
    let sizes = files.iter().map(|file| {
        let compressed = file.path.extension().is_some_and(|extension| extension == "gz");
        std::fs::metadata(&file.path).ok().filter(|data| data.is_file() && !compressed).map(|data| data.len())
    });
    sizes.sum()
}

/// The report, for people.
pub fn summary(report: &Report) -> String {
    let mut text = String::new();
    let mut totals = Table::new(&["", "packets", "bytes"]);
    let mut total = |name: &str, packets: u64, bytes: Option<u64>| {
        totals.row(vec![name.to_owned(), thousands(packets), bytes.map_or_else(String::new, thousands)]);
    };
    total("in", report.packets_in, Some(report.bytes_in));
    total("made", report.packets_made, None);
    total("out", report.packets_out, Some(report.bytes_out));
    total("dropped", report.dropped(), None);
    total("held", report.packets_held, None);
    text += &totals.render();
    if !report.drops.is_empty() {
        let mut drops = Table::new(&["drops", "packets", "meaning"]);
        for (&reason, &count) in &report.drops {
            let meaning =
                packet::DropReason::ALL.iter().find(|r| r.name() == reason).map_or("", |r| r.meaning());
            drops.row(vec![reason.to_owned(), thousands(count), meaning.to_owned()]);
        }
        text += "\n";
        text += &drops.render();
    }
    let mut functions = Table::new(&["function", "type", "packets", "drops", "cycles/packet"]);
    for function in &report.functions {
        functions.row(vec![
            function.name.clone(),
            function.kind.to_owned(),
            thousands(function.packets),
            thousands(function.drops),
            function.cycles_per_packet.map_or_else(|| "-".to_owned(), |cycles| format!("{cycles:.0}")),
        ]);
    }
    if !report.functions.is_empty() {
        text += "\n";
        text += &functions.render();
    }
    for function in &report.functions {
        let counters: Vec<_> = function.counters.iter().filter(|&(_, &count)| count > 0).collect();
        if !counters.is_empty() {
            let shown = counters.iter().map(|(name, count)| format!("{name} {}", thousands(**count)));
            text += &format!("\n{}: {}", function.name, shown.collect::<Vec<_>>().join(", "));
        }
        for (name, pool) in &function.pools {
            let (in_use, peak, size) =
                (thousands(pool.in_use.into()), thousands(pool.peak.into()), pool.size);
            text += &format!(
                "\n{}: {name} {in_use} in use, {peak} at most, of {}",
                function.name,
                thousands(size.into())
            );
        }
    }
    let flows = &report.flows;
    text += &format!(
        "\nflows: {} began, {} at once at most, {} live at the end\n",
        thousands(flows.started),
        thousands(flows.peak),
        thousands(flows.live)
    );
    if report.alerts > 0 {
        text += &format!("alerts: {}\n", thousands(report.alerts));
    }
    if report.events > 0 {
        text += &format!("events: {}\n", thousands(report.events));
    }
    for (what, count) in [
        ("alerts lost", report.alerts_lost),
        ("events lost", report.events_lost),
        ("flow reports lost", report.flow_reports_lost),
        ("packets not made for want of a buffer", report.packets_unmade),
    ] {
        if count > 0 {
            text += &format!("{what}: {}\n", thousands(count));
        }
    }
    if let Some(path) = &report.timing.fast_path {
        let share = 100.0 * path.packets as f64 / report.packets_in.max(1) as f64;
        text += &format!(
            "fast path: {} packets ({share:.1} %) by rules, {} rules foreseen, {} packets recorded, of which {} gave none\n",
            thousands(path.packets),
            thousands(path.foreseen),
            thousands(path.recorded),
            thousands(path.failed)
        );
    }
    if let Some(units) = &report.units {
        text += &crate::units::summary(units);
    }
    let latency = &report.timing.latency_ns;
    if let (Some(&p50), Some(&p99)) = (latency.get("p50"), latency.get("p99")) {
        text += &format!(
            "processing: {} packets/s, latency {} median, {} at the 99th percentile\n",
            thousands(report.timing.packets_per_second as u64),
            duration(p50),
            duration(p99)
        );
    }
    text
}
