//! `rivulet explain`: shows what each function of a policy did to a packet, and why.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use observe::explain::{BegunConnections, CollectedOutput, Explanation, Selection, Tracer};
use runtime::{Assembly, Frame, Runner};

use crate::messages::say;
use crate::output::{self, Format};
use crate::policies;
use crate::sources::{PortFile, Sources};

/// Explains, packet by packet, what each function of a policy did
///
/// Shows each packet's headers, its flow and connection, and for each function the verdict, the
/// headers that it changed (before and after), and what it recorded: header actions, state
/// functions, events, alerts. Packets and flows are numbered from 1 in order of arrival. The whole
/// capture is processed, since packets depend on earlier ones; only selected packets are shown. The
/// fate of packets that a function drops, because their TCP connection began before the capture, is
/// shown as unknown.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Policy file (- for standard input)
    pub policy: PathBuf,
    /// Capture to read: pcap or pcapng, optionally gzipped (- for standard input); repeatable
    #[arg(short, long, value_name = "[PORT=]FILE", required = true)]
    pub read: Vec<PortFile>,
    /// Only packets of this flow; flows are numbered in order of their first packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub flow: Option<u64>,
    /// Only this packet
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub packet: Option<u64>,
    /// Only packets that match this filter of the policy language on arrival; names of the policy
    /// may be used
    #[arg(long, value_name = "EXPR")]
    pub filter: Option<String>,
    /// Only dropped packets
    #[arg(long)]
    pub dropped: bool,
    /// Maximum number of packets to show
    #[arg(short, long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: u64,
    /// Seed of everything random, unless the policy sets one [default: random]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Output format: text, or a JSON list
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Format,
}

const EXAMPLES: &str = "\
Examples:
  rivulet explain site.rvl --read capture.pcap --packet 17
  rivulet explain site.rvl --read capture.pcap --flow 3
  rivulet explain site.rvl --read capture.pcap --filter 'dst port 80 && !(src ip 10.0.0.0/8)'
  rivulet explain site.rvl --read capture.pcap --dropped -o json | jq '.[].outcome'";

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let text = policies::text(&args.policy)?;
    let mut assembly = policies::assemble(&args.policy, &text, args.seed)?;
    policies::say_assumptions(&assembly);
    assembly.graph.expect_offloaded();
    let mut selection = selection(args.filter.as_deref(), &args.policy, &text, &assembly)?;
    (selection.flow, selection.packet, selection.dropped) = (args.flow, args.packet, args.dropped);
    let mut sources = Sources::open(&args.read, &assembly.ports)?;
    let mut runner = Runner::new(assembly, &args.policy.display().to_string());
    let mut tracer = Tracer::default();
    let mut collected = CollectedOutput::default();
    let mut printer = Printer { format: args.output, shown: 0 };
    let mut connections = BegunConnections::default();
    let mut number = 0;
    while let Some((frame, from)) = sources.next() {
        number += 1;
        let mut explain = |frame: Frame<'_>, from, after_program: Option<&str>, runner: &mut Runner| {
            tracer.expect(number, after_program);
            runner.observe(frame, from, &mut tracer, &mut collected)?;
            for mut trace in tracer.take(&frame, from, runner) {
                connections.note(&mut trace);
                if selection.takes(&trace, runner) && printer.shown < args.limit {
                    printer.print(&Explanation::new(&trace, &collected, runner))?;
                }
            }
            collected.clear();
            anyhow::Ok(VecDeque::from(runner.take_forwarded()))
        };
        let mut forwarded = explain(frame, from, None, &mut runner)?;
        while let Some(packet) = forwarded.pop_front() {
            forwarded.extend(explain(packet.frame(), packet.from, Some(&packet.node), &mut runner)?);
        }
        if printer.shown == args.limit || selection.is_past(number) {
            break;
        }
    }
    printer.finish()?;
    if printer.shown == 0 {
        say!("rivulet: none of {} packets was selected", output::thousands(number));
    }
    say_unknown(connections.unknown);
    sources.passed_over().iter().for_each(|message| say!("rivulet: {message}"));
    let broken = sources.broken();
    for message in &broken {
        say!("rivulet: {message}; packets before it were processed");
    }
    if args.packet.is_some_and(|wanted| wanted > number) {
        bail!("there is no packet {}; the captures have {number}", args.packet.unwrap_or_default());
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the packets that a filter of the policy at `path` with this text selects, or all.
pub fn selection(
    filter: Option<&str>,
    path: &Path,
    text: &str,
    assembly: &Assembly,
) -> anyhow::Result<Selection> {
    let Some(filter) = filter else { return Ok(Selection::default()) };
    let (filter, known) = policies::filter(path, text, filter)?;
    Ok(Selection::matching(filter, &known, assembly))
}

/// Prints the number of packets with an unknown fate.
pub fn say_unknown(packets: u64) {
    if packets > 0 {
        say!(
            "rivulet: {} packets are of TCP connections that began before the capture: their fate is unknown",
            output::thousands(packets)
        );
    }
}

/// Printed with JSON, until the former keys are dropped.
const DEPRECATED_KEYS: &str = "rivulet: the keys `made`, `behind`, `clock` and `told` are deprecated; \
    use `generated`, `after_program`, `seq` and `events`";

/// Prints explanations one by one, so that a long capture is not kept in memory.
struct Printer {
    format: Format,
    shown: u64,
}

impl Printer {
    fn print(&mut self, explanation: &Explanation) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        match self.format {
            Format::Table => write!(out, "{}{explanation}", if self.shown > 0 { "\n" } else { "" })?,
            Format::Json => {
                out.write_all(if self.shown > 0 { b",\n" } else { b"[\n" })?;
                serde_json::to_writer_pretty(&mut out, explanation)?;
            }
        }
        self.shown += 1;
        Ok(())
    }

    fn finish(&self) -> io::Result<()> {
        if self.format == Format::Json && self.shown > 0 {
            say!("{DEPRECATED_KEYS}");
        }
        match self.format {
            Format::Json if self.shown == 0 => output::print("[]\n"),
            Format::Json => output::print("\n]\n"),
            Format::Table => io::stdout().flush(),
        }
    }
}
