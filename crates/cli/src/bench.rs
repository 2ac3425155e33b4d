//! `rivulet bench`: measures the cost of a packet on one core, from memory to memory.
//!
//! A tape of frames is played through a graph in batches: each frame is copied into a buffer,
//! parsed, looked up, processed and freed. Rounds of the workload alternate with rounds of its
//! *floor*: copy, parse, hash, one lookup, rewrite, the minimum of any stateful function. Medians
//! are shown, so the ratio is meaningful on a shared machine. Workloads of the dispatcher also
//! alternate with rounds that only copy and parse the same packets; the difference of neighbouring
//! rounds is the dispatcher's own cost.

mod conversation;
mod dispatcher;
mod floor;
mod tape;
mod target;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;
use serde::Serialize;

use crate::messages::say;
use crate::output::{self, Table, thousands};
use floor::Floor;
use tape::{FLOWS_TIMES_LENGTH_MAX, Tape};
use workload::Workload;

/// Measures the cost of a packet on one core, in memory
///
/// The workloads `dispatcher` and `dispatcher-flowlet` alternate with rounds that only copy and
/// parse the same packets, and `--on-units` with rounds of the same functions without units.
/// `without ns` is the median of these rounds, `own ns` that of the differences of neighbouring
/// rounds.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Workload to measure
    #[arg(value_enum)]
    pub workload: Workload,
    /// Concurrent flows; several values: 1k,100k
    #[arg(long, value_delimiter = ',', default_values = ["1k"], value_parser = count)]
    pub flows: Vec<u32>,
    /// Packet size on the wire including the frame check sequence [default: 64, or 1518 for
    /// workloads that inspect payload]
    #[arg(long, value_parser = clap::value_parser!(u16).range(64..=1518))]
    pub packet_size: Option<u16>,
    /// Popularity of flows by Zipf's law with this exponent [default: uniform]
    #[arg(long, value_name = "EXPONENT", num_args = 0..=1, default_missing_value = "1.0")]
    pub zipf: Option<f64>,
    /// Packets of a flow, in one direction, before another flow replaces it; several values: 1,2,4
    /// [default: endless]
    #[arg(long, value_name = "PACKETS", value_delimiter = ',', conflicts_with_all = ["zipf", "on_units"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub flow_length: Vec<u32>,
    /// Packets per batch
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub batch: u16,
    /// Rounds of the workload and of its floor; the median is shown
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// Packets per round
    #[arg(long, default_value_t = 1 << 20, value_parser = count)]
    pub packets: u32,
    /// Rule files for the workloads `ids`, `ids-matching` and `ids-random` [default: a few built-in
    /// rules]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub rules: Vec<PathBuf>,
    /// Units of the workloads `dispatcher` and `dispatcher-flowlet`, and their maximum with
    /// `--on-units`
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub units: u16,
    /// Compare with elastic units: dispatcher, units and functions on one thread
    #[arg(long)]
    pub on_units: bool,
    /// Print JSON: an object, or a list for several numbers of flows
    #[arg(long)]
    pub json: bool,
}

/// Result of a measurement.
#[derive(Debug, Serialize)]
struct Measurement {
    workload: &'static str,
    flows: u32,
    packet_size: u16,
    /// `uniform`, or `zipf` with the exponent.
    popularity: String,
    /// Packets of a flow, if flows end.
    #[serde(skip_serializing_if = "Option::is_none")]
    flow_length: Option<u32>,
    batch: u16,
    rounds: u16,
    ns_per_packet: f64,
    mpps: f64,
    /// Rate of frames without their check sequences.
    gigabytes_per_second: f64,
    floor_ns_per_packet: f64,
    /// Fastest and slowest round.
    ns_per_packet_min: f64,
    ns_per_packet_max: f64,
    /// The same packets without the subject, and the difference. Without the dispatcher, packets
    /// are only copied and parsed; without units, the same functions run inline.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_ns_per_packet: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    own_ns_per_packet: Option<f64>,
    /// Length of a flow's record.
    record_bytes: usize,
}

/// Parses a number with an optional `k` or `M`.
fn count(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{text}` is not a number; expected at least 1, such as 1000, 100k or 1M");
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1_000),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    let number: u32 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).filter(|&number| number > 0).ok_or_else(wrong)
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if cfg!(debug_assertions) {
        say!("rivulet: this is a debug build; a release build is many times faster");
    }
    let mut results = Vec::new();
    let lengths: Vec<_> = match &args.flow_length[..] {
        [] => vec![None],
        lengths => lengths.iter().copied().map(Some).collect(),
    };
    for &flows in &args.flows {
        for &length in &lengths {
            results.push(measure(args, flows, length)?);
        }
    }
    match (args.json, &results[..]) {
        (true, [result]) => output::print_json(result)?,
        (true, results) => output::print_json(&results)?,
        (false, results) => output::print(&table(results))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(args: &Args, flows: u32, flow_length: Option<u32>) -> anyhow::Result<Measurement> {
    let popularity = args.zipf.map_or_else(|| "uniform".to_owned(), |s| format!("zipf {s}"));
    let bar = output::progress(Some(u64::from(args.rounds) * 2), "rounds");
    bar.set_message(format!("{} with {} flows", args.workload.name(), thousands(flows.into())));
    let packet_size = args.packet_size.unwrap_or(args.workload.packet_size());
    let tape = match flow_length {
        None => Tape::new(flows, packet_size, args.zipf, args.workload.frames()),
        Some(_) if !args.workload.has_flows_that_end() => {
            bail!("`{}` has endless flows; remove --flow-length", args.workload.name())
        }
        Some(length) if u64::from(flows) * u64::from(length) > FLOWS_TIMES_LENGTH_MAX => bail!(
            "{} flows of {} packets are too many; their product must be at most {}",
            thousands(flows.into()),
            thousands(length.into()),
            thousands(FLOWS_TIMES_LENGTH_MAX)
        ),
        Some(length) => Tape::of_length(flows, packet_size, length),
    };
    // Ended flows stay in the table for a while.
    let room = if flow_length.is_some() { flows.saturating_mul(2) } else { flows };
    let new_world = |on_units| {
        let (size, batch_len) = (packet_size, args.batch as usize);
        args.workload.world(room, size, batch_len, &args.rules, args.units, on_units)
    };
    let mut world = new_world(args.on_units)?;
    let mut floor = Floor::new(flows, args.batch as usize)?;
    world.warm_up(&tape)?;
    floor.warm_up(&tape);
    let mut without =
        if args.on_units { Some(new_world(false)?) } else { args.workload.without(args.batch as usize) };
    if let Some(without) = &mut without {
        without.warm_up(&tape)?;
    }
    let (mut ours, mut floors, mut withouts, mut owns) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..args.rounds {
        let from = target::WARM_UP + round as usize * args.packets as usize;
        floors.push(per_packet(args.packets, || floor.play(&tape, from, args.packets as usize)));
        bar.inc(1);
        let all = per_packet(args.packets, || world.play(&tape, from, args.packets as usize));
        ours.push(all);
        if let Some(without) = &mut without {
            let rest = per_packet(args.packets, || without.play(&tape, from, args.packets as usize));
            withouts.push(rest);
            owns.push(all - rest);
        }
        bar.inc(1);
    }
    world.check(&tape)?;
    if let Some(without) = &without {
        without.check(&tape)?;
    }
    bar.finish_and_clear();
    let ns_per_packet = median(&mut ours);
    Ok(Measurement {
        workload: args.workload.name(),
        flows,
        packet_size,
        popularity,
        flow_length,
        batch: args.batch,
        rounds: args.rounds,
        ns_per_packet,
        mpps: 1e3 / ns_per_packet,
        gigabytes_per_second: f64::from(packet_size - 4) / ns_per_packet,
        floor_ns_per_packet: median(&mut floors),
        ns_per_packet_min: ours[0],
        ns_per_packet_max: ours[ours.len() - 1],
        without_ns_per_packet: without.as_ref().map(|_| median(&mut withouts)),
        own_ns_per_packet: without.as_ref().map(|_| median(&mut owns)),
        record_bytes: world.record_len(),
    })
}

/// Returns the nanoseconds per packet of `play`.
fn per_packet(packets: u32, play: impl FnOnce()) -> f64 {
    let start = Instant::now();
    play();
    start.elapsed().as_nanos() as f64 / f64::from(packets)
}

/// Returns the median, and sorts the values.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn table(results: &[Measurement]) -> String {
    let mut columns = vec![
        "workload",
        "flows",
        "bytes",
        "popularity",
        "ns/packet",
        "Mpps",
        "GB/s",
        "floor ns",
        "x floor",
        "min",
        "max",
    ];
    if results.iter().any(|r| r.flow_length.is_some()) {
        columns.push("packets/flow");
    }
    if results.iter().any(|r| r.own_ns_per_packet.is_some()) {
        columns.extend(["without ns", "own ns", "x without"]);
    }
    let mut table = Table::new(&columns);
    for r in results {
        let mut row = vec![
            r.workload.to_owned(),
            thousands(r.flows.into()),
            r.packet_size.to_string(),
            r.popularity.clone(),
            format!("{:.1}", r.ns_per_packet),
            format!("{:.2}", r.mpps),
            format!("{:.2}", r.gigabytes_per_second),
            format!("{:.1}", r.floor_ns_per_packet),
            format!("{:.2}", r.ns_per_packet / r.floor_ns_per_packet),
            format!("{:.1}", r.ns_per_packet_min),
            format!("{:.1}", r.ns_per_packet_max),
        ];
        row.extend(r.flow_length.map(|length| length.to_string()));
        if let (Some(without), Some(own)) = (r.without_ns_per_packet, r.own_ns_per_packet) {
            let ratio = r.ns_per_packet / without;
            row.extend([format!("{without:.1}"), format!("{own:.1}"), format!("{ratio:.2}")]);
        }
        table.row(row);
    }
    table.render()
}
