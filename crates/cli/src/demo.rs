//! `rivulet demo`: synthetic traffic through a graph of several functions, shown live.

mod cluster;
mod sample;
mod view;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use console::Term;
use io::traffic::{AddressPrefix, Attacks, Popularity, TrafficAddresses, TrafficProfile};
use runtime::elastic::{UNITS_MAX, UnitsConfig};
use values::PositiveBitRate;

use crate::api::ServeOptions;
use crate::files;
use crate::output::{self, Format};
use crate::policies;
use crate::sources::{self, PortFile};
use crate::traffic::{Pps, count};
use crate::units::ShareOrNone;
use observe::eve::EventKinds;
use observe::sinks::{Outputs, Sinks};
use sample::{History, Outcome};
use view::Screen;
use world::{DemoNetwork, LoadCurve, START_NS};

/// The policy of the demonstration.
const POLICY: &str = include_str!("../../../examples/demo.rvl");

/// The function and the server that goes down halfway.
const FUNCTION: &str = "balancer";
const VICTIM: &str = "web2";

/// Units have a tenth of the usual capacity, so that the demonstration needs several. The gap is
/// longer by the same factor.
const GAP_NS: u64 = 5_000_000;

/// Step of the time; the view is drawn between steps.
const STEP_NS: u64 = 10_000_000;

/// Period of drawing.
const REDRAW: Duration = Duration::from_millis(200);

/// A run that takes this many times its length is ended: the machine is too slow for the rate.
const PATIENCE: u32 = 3;

/// Shows NAT, firewall, load balancer and monitor on elastic units with synthetic traffic
///
/// Clients send through the functions to a virtual service, and its servers answer. Attacks are
/// part of the traffic. The load rises and falls, and units follow it. Halfway, one of four servers
/// goes down, and its flows move to the others. Needs no privileges, files or network. Time follows
/// the clock; the same seed gives the same packets.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Duration in seconds
    #[arg(short, long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Peak rate of the clients, in packets or bits per second; replies are added to it
    #[arg(short, long, default_value = "100kpps")]
    pub rate: Pps,
    /// Concurrent flows of ordinary clients; those of attacks, and ended flows that have not
    /// expired, are added to it
    #[arg(short, long, default_value = "2000", value_parser = count)]
    pub flows: u64,
    /// Capacity of a unit
    #[arg(long, value_name = "RATE", default_value = "100Mbps")]
    pub unit_capacity: PositiveBitRate,
    /// Maximum number of units
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=i64::from(UNITS_MAX)))]
    pub units_max: u16,
    /// Target load of the units as a share of their capacity; none: as published, start a unit when
    /// a flowlet finds no room
    #[arg(long, value_name = "SHARE", default_value_t = ShareOrNone(UnitsConfig::default().follow_at))]
    pub follow_at: ShareOrNone,
    /// Load of a unit, as a share of its capacity, up to which flows stay on it; none: as
    /// published, assign every flowlet again
    #[arg(long, value_name = "SHARE", default_value_t = ShareOrNone(UnitsConfig::default().stay_below))]
    pub stay_below: ShareOrNone,
    /// Units that receive a replica of a flow's state when the flow pauses; on one thread, replicas
    /// only cost time
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=11))]
    pub copies: u8,
    /// Send only the changes of a replica, where the other unit has the previous one
    #[arg(long, requires = "copies")]
    pub deltas: bool,
    /// Run a dispatcher and three units as processes: one more joins, and one is drained
    #[arg(long, conflicts_with_all = ["units_max", "follow_at", "stay_below", "copies", "write"])]
    pub cluster: bool,
    #[command(flatten)]
    pub api: ServeOptions,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print a line each second instead of the live view
    #[arg(long, visible_alias = "once")]
    pub no_live: bool,
    /// Write the packets that leave, by both ports, to a capture
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Format of the result on standard output
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Format,
}

const EXAMPLES: &str = "\
Examples:
  rivulet demo
  rivulet demo --seconds 30 --rate 300kpps --flows 20k
  rivulet demo --seconds 2 -o json | jq .report.drops
  rivulet demo --seconds 1 --write demo.pcapng
  rivulet demo --cluster";

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.cluster {
        return cluster::run(args);
    }
    if !args.api.api.is_empty() {
        bail!("--api needs --cluster: without, the demonstration has no dispatcher that is operated");
    }
    let profile = profile(args);
    let assembly = policies::parse("demo.rvl", POLICY, Path::new(""), Some(args.seed))?;
    files::keep_apart([], args.write.iter().map(|path| &**path))?;
    let writes: Vec<_> = args.write.iter().map(|path| PortFile { port: None, path: path.clone() }).collect();
    let outputs =
        Outputs { writes: &writes, alerts: None, events: &EventKinds::default(), flows: None, live: None };
    let sinks = Sinks::create(&outputs, &assembly.ports)?.begin(None)?;
    let config = UnitsConfig {
        units_max: args.units_max,
        capacity_bps: args.unit_capacity.0,
        gap_ns: GAP_NS,
        follow_at: args.follow_at.0,
        stay_below: args.stay_below.0,
        copies: args.copies,
        deltas: args.deltas,
        ..UnitsConfig::default()
    };
    let tide = LoadCurve::new(args.seconds * 1_000_000_000);
    let mut world = DemoNetwork::new(&profile, tide, assembly, config, sinks)?;
    let mut history = History::new(&world, VICTIM);
    let mut screen = match args.output {
        _ if sources::name_standard_stream(&writes) => Screen::Silent,
        Format::Json => Screen::Silent,
        Format::Table if args.no_live || !Term::stdout().is_term() => Screen::Lines,
        Format::Table => Screen::live(),
    };
    let (half_ns, end_ns) = (args.seconds * 500_000_000, args.seconds * 1_000_000_000);
    let started = Instant::now();
    let mut drawn = started;
    let mut now_ns = 0;
    while now_ns < end_ns && started.elapsed() < Duration::from_secs(args.seconds) * PATIENCE {
        let next_ns = (now_ns + STEP_NS).min(end_ns);
        world.advance(START_NS + next_ns)?;
        if now_ns < half_ns && next_ns >= half_ns {
            history.half_way(&world);
            world.command(FUNCTION, &format!("server {VICTIM} down"))?;
            screen.event(history.event())?;
        }
        now_ns = next_ns;
        if now_ns.is_multiple_of(1_000_000_000) || now_ns == end_ns {
            let second = history.second(&world);
            screen.line(&second)?;
        }
        if drawn.elapsed() >= REDRAW {
            drawn = Instant::now();
            screen.draw(&history.now(&world, now_ns), args.seconds)?;
        }
        std::thread::sleep(Duration::from_nanos(now_ns).saturating_sub(started.elapsed()));
    }
    let took = started.elapsed();
    screen.clear()?;
    let outcome = Outcome::new(history, world, now_ns, took)?;
    match args.output {
        _ if sources::name_standard_stream(&writes) => {}
        Format::Json => output::print_json(&outcome)?,
        Format::Table => output::print(&view::summary(&outcome))?,
    }
    Ok(if outcome.report.adds_up() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the traffic of the clients: an ordinary mix to one address, and attacks.
fn profile(args: &Args) -> TrafficProfile {
    TrafficProfile {
        seed: args.seed,
        start_ns: START_NS,
        flows: u32::try_from(args.flows).unwrap_or(u32::MAX), // `Profile::check` refuses u32::MAX.
        rate: args.rate.0,
        popularity: Popularity::Zipf(1.0),
        ipv6_share: 0.0,
        replies: false,
        addresses: TrafficAddresses {
            clients_v4: AddressPrefix { address: [10, 0, 0, 0].into(), length: 16 },
            servers_v4: AddressPrefix { address: [192, 0, 2, 80].into(), length: 32 },
            server_ports: vec![80, 443, 53],
            ..TrafficAddresses::default()
        },
        attacks: Attacks { port_scan: 0.02, syn_flood: 0.03, udp_flood: 0.02, land: 0.005, malformed: 0.01 },
        ..TrafficProfile::default()
    }
}
