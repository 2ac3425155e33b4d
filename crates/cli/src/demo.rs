//! `rivulet demo`: made-up traffic through a chain of all functions, shown live.

mod sample;
mod view;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::sim::scenario::Rate;
use console::Term;
use io::traffic::{AddressPrefix, Attacks, Popularity, TrafficAddresses, TrafficProfile};
use runtime::elastic::{UNITS_MAX, UnitsConfig};

use crate::eve::EventKinds;
use crate::files;
use crate::output::{self, Format};
use crate::policies;
use crate::sinks::{Outputs, Sinks};
use crate::sources::{self, PortFile};
use crate::traffic::{Pps, count};
use crate::units::ShareOrNone;
use sample::{History, Outcome};
use view::Screen;
use world::{START_NS, Tide, World};

/// The chain of the demonstration.
const POLICY: &str = include_str!("../../../examples/demo.rvl");

/// The function and the server that goes down half way.
const FUNCTION: &str = "balancer";
const VICTIM: &str = "web2";

/// Units are a tenth of the usual ones, so that a demonstration needs several, and flowlets may be
/// as much slower.
const GAP_NS: u64 = 5_000_000;

/// Time passes in steps of this length: between two of them, there is room to draw.
const STEP_NS: u64 = 10_000_000;

/// The view is drawn anew this often.
const REDRAW: Duration = Duration::from_millis(200);

/// A run that takes this many times as long as it should is ended: the machine is too slow for the
/// rate.
const PATIENCE: u32 = 3;

/// Shows a NAT, a firewall, a load balancer and a monitor at work, on made-up traffic with attacks
/// in it, and on as many units as it takes.
///
/// Clients send through the chain to a virtual service; its servers answer what reaches them. What
/// they send comes and goes like a tide, and units come and go with it. Half way, one of the four
/// servers goes down, and its flows move to the others. Needs no privileges, files or network. Time
/// in the chain follows the clock; the same seed makes the same packets.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// How long to run
    #[arg(short, long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// What clients send at high tide: packets or bits a second; answers come on top
    #[arg(short, long, default_value = "100kpps")]
    pub rate: Pps,
    /// Flows of ordinary clients open at a time; those of attacks come on top, and flows that are
    /// over stay for a while
    #[arg(short, long, default_value = "2000", value_parser = count)]
    pub flows: u64,
    /// What a unit is taken to process
    #[arg(long, value_name = "RATE", default_value = "100Mbps")]
    pub unit_capacity: Rate,
    /// Units at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=i64::from(UNITS_MAX)))]
    pub units_max: u16,
    /// Load that there are units for, as a share of theirs; none: as published, one more for
    /// flowlets without room
    #[arg(long, value_name = "SHARE", default_value_t = ShareOrNone(UnitsConfig::default().follow_at))]
    pub follow_at: ShareOrNone,
    /// Load of a unit, as a share of its capacity, up to which flows stay with it; none: as
    /// published, flowlets are assigned anew
    #[arg(long, value_name = "SHARE", default_value_t = ShareOrNone(UnitsConfig::default().stay_below))]
    pub stay_below: ShareOrNone,
    /// To how many units a flow's state is copied when it falls silent; on one thread, copies only
    /// take time
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=11))]
    pub copies: u8,
    /// Let copies tell only what has changed since one that the other unit has
    #[arg(long, requires = "copies")]
    pub deltas: bool,
    /// Seed of all that is random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A line each second instead of the live view, as without a terminal
    #[arg(long, visible_alias = "once")]
    pub no_live: bool,
    /// Write what leaves the chain, by both ports, to a capture
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// What the result on standard output looks like
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Format,
}

const EXAMPLES: &str = "\
Examples:
  rivulet demo
  rivulet demo --seconds 30 --rate 300kpps --flows 20k
  rivulet demo --seconds 2 -o json | jq .report.drops
  rivulet demo --seconds 1 --write demo.pcapng";

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
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
    let tide = Tide::new(args.seconds * 1_000_000_000);
    let mut world = World::new(&profile, tide, assembly, config, sinks)?;
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

/// What the clients send: an ordinary mix to one address, and attacks.
fn profile(args: &Args) -> TrafficProfile {
    TrafficProfile {
        seed: args.seed,
        start_ns: START_NS,
        flows: u32::try_from(args.flows).unwrap_or(u32::MAX), // The profile's check refuses that many.
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
