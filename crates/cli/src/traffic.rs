//! `rivulet traffic`: generates captures of synthetic traffic, reproducibly.

pub mod arguments;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use io::capture::{CaptureFormat as FileFormat, CaptureRecord, CaptureWriter};
use io::traffic::{AddressPrefix, Generator, Payload, Popularity, TrafficProfile};
use packet::LinkType;
use serde::Serialize;

use crate::output::{self, Format, Table, duration, thousands};
use arguments::{Attack, Length, Pace, PacketBytes, ProtocolMix};
pub use arguments::{Pps, count};

/// Packets to write without `--packets` and `--duration`.
const PACKETS: u64 = 100_000;

/// Generates synthetic traffic and writes it to a capture
///
/// A preset is a starting point; each further option changes one property. Clients are on the
/// interface `inside`, servers on `outside`, and nothing between them rewrites packets. The same
/// options and seed give the same file.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Capture to write: .pcapng (one interface for each side) or .pcap, optionally .gz (- for
    /// standard output)
    #[arg(short, long, value_name = "FILE", required_unless_present = "list_presets")]
    pub write: Option<PathBuf>,
    /// Preset to start from; see --list-presets
    #[arg(long, value_name = "NAME", default_value = "mix", value_parser = clap::builder::PossibleValuesParser::new(TrafficProfile::PRESETS))]
    pub preset: String,
    /// List the presets
    #[arg(long)]
    pub list_presets: bool,
    /// Number of packets: 5000, 100k, 1M [default: 100k, unless --duration is given]
    #[arg(short = 'n', long, value_parser = arguments::count)]
    pub packets: Option<u64>,
    /// Time span of the packets: 500ms, 10s
    #[arg(short, long, value_name = "TIME")]
    pub duration: Option<values::Nanos>,
    /// Concurrent flows: 1000, 100k
    #[arg(short, long, value_parser = arguments::count)]
    pub flows: Option<u64>,
    /// Packets or bits per second, both directions together: 200k, 1Mpps, 2.5Gbps
    #[arg(short, long)]
    pub rate: Option<Pps>,
    /// Size of packets with data, in bytes on the wire including the frame check sequence: 64,
    /// 64-1518, or imix
    #[arg(short, long)]
    pub size: Option<PacketBytes>,
    /// Weights of the kinds of flows: tcp=70,udp=30,icmp=1,fragments=1; an omitted kind has weight
    /// 0
    #[arg(long, value_name = "KIND=WEIGHT,...")]
    pub protocols: Option<ProtocolMix>,
    /// Share of IPv6 flows, 0 to 1
    #[arg(long, value_name = "SHARE")]
    pub ipv6: Option<f64>,
    /// Attack and its share of all packets, 0 to 1: scan, syn-flood, udp-flood, land or malformed;
    /// repeatable
    #[arg(long, value_name = "KIND=SHARE")]
    pub attack: Vec<Attack>,
    /// Popularity of flows by Zipf's law with this exponent
    #[arg(long, value_name = "EXPONENT", num_args = 0..=1, default_missing_value = "1.0")]
    pub zipf: Option<f64>,
    /// New flows per second; without it, each flow that ends is replaced at once
    #[arg(long, value_name = "RATE")]
    pub arrivals: Option<f64>,
    /// Packets with data in a flow: endless, 10, mean:10 (geometric), tail:4:1.3 (Pareto: minimum,
    /// exponent)
    #[arg(long, value_name = "LENGTH")]
    pub flow_length: Option<Length>,
    /// Arrival process: constant, poisson, or bursts
    #[arg(long)]
    pub pacing: Option<Pace>,
    /// VLAN of all packets
    #[arg(long, value_name = "ID")]
    pub vlan: Option<u16>,
    /// Payload of packets
    #[arg(long, value_enum)]
    pub payload: Option<arguments::PayloadKind>,
    /// IPv4 addresses of clients
    #[arg(long, value_name = "PREFIX")]
    pub clients: Option<AddressPrefix<std::net::Ipv4Addr>>,
    /// IPv4 addresses of servers
    #[arg(long, value_name = "PREFIX")]
    pub servers: Option<AddressPrefix<std::net::Ipv4Addr>>,
    /// Ports of servers: 80,443
    #[arg(long, value_name = "PORTS", value_delimiter = ',')]
    pub ports: Vec<u16>,
    /// Write the servers' packets too, as most presets do
    #[arg(long, overrides_with = "no_replies")]
    pub replies: bool,
    /// Write only the clients' packets
    #[arg(long)]
    pub no_replies: bool,
    /// Time of the first packet, in seconds since 1970
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=u64::from(u32::MAX)))]
    pub start: u64,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Format of the summary on standard output
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Format,
    /// Print no summary and no progress
    #[arg(short, long)]
    pub quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  rivulet traffic --write mix.pcapng
  rivulet traffic --write small.pcapng --preset smallest --packets 1M --rate 10Mpps
  rivulet traffic --write attack.pcapng.gz --duration 10s --rate 50k --attack scan=0.05 --attack syn-flood=0.2
  rivulet traffic --write - --preset web --packets 1000 | tcpdump -n -r -";

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.list_presets {
        output::print(&presets(args.output)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(path) = &args.write else { bail!("there is no capture to write; add --write FILE") };
    let profile = profile(args)?;
    let mut generator = Generator::new(&profile)?;
    let name = path.display().to_string();
    let context = || format!("cannot write {name}");
    let format = FileFormat::of_path(path);
    let mut writer = CaptureWriter::create(path, format).with_context(context)?;
    let interfaces: &[&str] = if profile.replies { &["inside", "outside"] } else { &["inside"] };
    if format.kind == io::capture::FormatKind::Pcapng {
        for (number, name) in (0..).zip(interfaces) {
            writer.add_interface(number, name, LinkType::Ethernet).with_context(context)?;
        }
    }
    let bar = if args.quiet { ProgressBar::hidden() } else { output::progress(profile.packets, "packets") };
    let mut written = TrafficSummary { file: name.clone(), ..TrafficSummary::default() };
    while let Some(frame) = generator.next() {
        let record = CaptureRecord {
            timestamp_ns: frame.timestamp_ns,
            interface: if format.kind == io::capture::FormatKind::Pcapng { frame.port.into() } else { 0 },
            link_type: LinkType::Ethernet,
            // The longest frame is shorter than 10,000 bytes.
            wire_len: frame.data.len() as u32,
            data: frame.data,
        };
        writer.write(&record).with_context(context)?;
        written.span_ns = frame.timestamp_ns - profile.start_ns;
        written.packets += 1;
        written.from_servers += u64::from(frame.port);
        if written.packets.is_multiple_of(4096) {
            bar.set_position(written.packets);
        }
    }
    writer.finish().with_context(context)?;
    bar.finish_and_clear();
    let counters = generator.counters();
    written.bytes = counters.bytes;
    written.flows = counters.flows_begun;
    written.flows_left_out = counters.flows_refused;
    match args.output {
        _ if args.quiet || name == "-" => {}
        Format::Json => output::print_json(&written)?,
        Format::Table => output::print(&written.summary())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the profile of the options.
fn profile(args: &Args) -> anyhow::Result<TrafficProfile> {
    let Some(mut profile) = TrafficProfile::preset(&args.preset) else {
        bail!("there is no preset `{}`; see --list-presets", args.preset);
    };
    profile.seed = args.seed;
    profile.start_ns = args.start * 1_000_000_000;
    profile.duration_ns = args.duration.map(|duration| duration.0);
    profile.packets = args.packets.or(args.duration.is_none().then_some(PACKETS));
    if let Some(flows) = args.flows {
        profile.flows = u32::try_from(flows).unwrap_or(u32::MAX); // `Profile::check` refuses u32::MAX.
    }
    if let Some(Pps(rate)) = args.rate {
        profile.rate = rate;
    }
    if let Some(PacketBytes(bytes)) = args.size {
        profile.frame_bytes = bytes;
    }
    if let Some(ProtocolMix(protocols)) = args.protocols {
        profile.protocols = protocols;
    }
    for attack in &args.attack {
        attack.add_to(&mut profile.attacks);
    }
    if let Some(exponent) = args.zipf {
        profile.popularity = Popularity::Zipf(exponent);
    }
    if let Some(Length(length)) = args.flow_length {
        profile.flow_length = length;
    }
    if let Some(Pace(pacing)) = args.pacing {
        profile.pacing = pacing;
    }
    profile.ipv6_share = args.ipv6.unwrap_or(profile.ipv6_share);
    profile.arrivals_per_second = args.arrivals.or(profile.arrivals_per_second);
    profile.vlan = args.vlan.or(profile.vlan);
    profile.payload = args.payload.map_or(profile.payload, Payload::from);
    profile.addresses.clients_v4 = args.clients.unwrap_or(profile.addresses.clients_v4);
    profile.addresses.servers_v4 = args.servers.unwrap_or(profile.addresses.servers_v4);
    if !args.ports.is_empty() {
        profile.addresses.server_ports.clone_from(&args.ports);
    }
    profile.replies = (profile.replies || args.replies) && !args.no_replies;
    profile.check()?;
    Ok(profile)
}

/// Counts of the written traffic.
#[derive(Debug, Default, Serialize)]
struct TrafficSummary {
    file: String,
    packets: u64,
    /// Packets of servers.
    from_servers: u64,
    /// Bytes of the frames, without frame check sequences.
    bytes: u64,
    /// Time from the first packet to the last.
    span_ns: u64,
    /// Flows started.
    flows: u64,
    /// Flows not started because `--flows` were open.
    flows_left_out: u64,
}

impl TrafficSummary {
    fn summary(&self) -> String {
        let mut text = format!(
            "{}: {} packets ({} from servers), {} bytes, {} flows in {}\n",
            self.file,
            thousands(self.packets),
            thousands(self.from_servers),
            thousands(self.bytes),
            thousands(self.flows),
            duration(self.span_ns)
        );
        if self.flows_left_out > 0 {
            text += &format!(
                "{} flows were not started because --flows were open\n",
                thousands(self.flows_left_out)
            );
        }
        text
    }
}

/// Renders the list of presets.
fn presets(format: Format) -> anyhow::Result<String> {
    if format == Format::Json {
        let list: Vec<_> = TrafficProfile::PRESETS
            .iter()
            .map(|name| serde_json::json!({ "name": name, "summary": arguments::preset_summary(name) }))
            .collect();
        return Ok(serde_json::to_string_pretty(&list)? + "\n");
    }
    let mut table = Table::new(&["preset", "traffic"]);
    for name in TrafficProfile::PRESETS {
        table.row(vec![name.to_owned(), arguments::preset_summary(name).to_owned()]);
    }
    Ok(table.render())
}
