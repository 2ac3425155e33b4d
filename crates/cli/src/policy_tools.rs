//! `rivulet policy`: checks, tests and formats policies, and draws their graphs.

mod edge_rates;
mod expectation;
mod frame;
mod happened;
mod test;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use nf::Field;
use policy::ast::FilterSide;
use policy::{
    Diagnostic, DiagnosticSeverity, FilterAddressSet, FilterField, FilterNumberField, Nf, NfFacts, Policy,
    PortFacts, Prefix, SourceMap, Span,
};
use runtime::Assembly;
use runtime::external::tags::NodeTags;
use serde::Serialize;
use values::Nanos;

use crate::messages::{self, say};
use crate::output::{self, Format};
use crate::{files, policies};

/// Checks, tests and formats policies, and draws their graphs
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Check policies without running them
    ///
    /// Reports syntax errors, unknown names and wrong values; and edges that no packet takes,
    /// packets that no edge takes, attributes that are read before they are set, and paths without
    /// a way back, each with an example packet.
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// Policies; - is standard input
        #[arg(required = true, value_name = "POLICY")]
        policies: Vec<PathBuf>,
        /// Fail on warnings, too
        #[arg(short = 'W', long)]
        deny_warnings: bool,
        /// Format of the result
        #[arg(short, long, value_enum, default_value = "table")]
        output: Format,
    },
    /// Test a policy with expectations about single packets
    ///
    /// A line of FILE is one expectation: a packet, and the port that it must leave by, or that it
    /// is dropped. The packets run in order through one graph, 1 ms apart, so replies may follow
    /// their requests. A port `*` of a packet stands for the port that an earlier packet left with.
    #[command(after_help = TEST_EXAMPLES)]
    Test {
        /// The policy; - is standard input
        policy: PathBuf,
        /// The expectations [default: the policy's name, ending in .expect]
        file: Option<PathBuf>,
        /// Seed of everything random, unless the policy sets one
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Format of the result
        #[arg(short, long, value_enum, default_value = "table")]
        output: Format,
    },
    /// Format policies in the usual style
    ///
    /// Comments and line breaks stay. Without --write or --check, the result goes to standard
    /// output.
    #[command(after_help = FMT_EXAMPLES)]
    Fmt {
        /// Policies; - is standard input
        #[arg(required = true, value_name = "POLICY")]
        policies: Vec<PathBuf>,
        /// Replace the files
        #[arg(short, long, conflicts_with = "check")]
        write: bool,
        /// Write nothing; list files that are not formatted, and fail if there are any
        #[arg(long)]
        check: bool,
    },
    /// Draw the graph of a policy
    #[command(after_help = GRAPH_EXAMPLES)]
    Graph {
        /// The policy; - is standard input
        policy: PathBuf,
        /// Format of the picture
        #[arg(short, long, value_enum, default_value = "text")]
        format: PictureFormat,
        /// Write to a file instead of standard output
        #[arg(short, long, value_name = "FILE")]
        write: Option<PathBuf>,
        /// Show the edges' rates, from the `rivulet up --metrics` that runs this policy at ADDRESS,
        /// or at 127.0.0.1:9600
        #[arg(short, long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = crate::metrics_address::DEFAULT_ADDRESS)]
        connect: Option<String>,
        /// Interval over which rates are measured
        #[arg(short, long, value_name = "TIME", default_value = "1s", requires = "connect")]
        interval: Nanos,
    },
}

/// Format of a picture.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum PictureFormat {
    /// Text for a terminal
    Text,
    /// SVG image
    Svg,
}

const EXAMPLES: &str = "\
Examples:
  rivulet policy check site.rvl
  rivulet policy test site.rvl
  rivulet policy fmt --write site.rvl
  rivulet policy graph site.rvl --format svg --write site.svg";

const CHECK_EXAMPLES: &str = "\
Examples:
  rivulet policy check site.rvl
  rivulet policy check -W *.rvl
  rivulet policy check site.rvl -o json | jq '.[].message'

Exit code 1: an error, or a warning with -W.";

const TEST_EXAMPLES: &str = "\
Examples:
  rivulet policy test site.rvl
  rivulet policy test site.rvl more.expect -o json | jq .failed

Expectations:
  expect tcp 10.1.0.5:1234 -> 192.0.2.1:443 via [nat] leaves wan as 203.0.113.1:* -> 192.0.2.1:443
  expect tcp 192.0.2.1:443 -> 203.0.113.1:* from wan leaves lan
  expect tcp 192.0.2.1:9 -> 10.2.0.1:22 flags syn is dropped firewall-default
  expect icmp 10.1.0.5 -> 10.2.0.1 dscp 8 vlan 7 leaves dmz

Exit code 1: an expectation failed.";

const FMT_EXAMPLES: &str = "\
Examples:
  rivulet policy fmt site.rvl
  rivulet policy fmt --write *.rvl
  rivulet policy fmt --check *.rvl

Exit code 1: a policy has errors, or is not formatted with --check.";

const GRAPH_EXAMPLES: &str = "\
Examples:
  rivulet policy graph site.rvl
  rivulet policy graph site.rvl --format svg --write site.svg
  rivulet policy graph site.rvl --connect gateway.example:9600";

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.task {
        Task::Check { policies, deny_warnings, output } => check(policies, *deny_warnings, *output),
        Task::Test { policy, file, seed, output } => test::run(policy, file.as_deref(), *seed, *output),
        Task::Fmt { policies, write, check } => format_all(policies, *write, *check),
        Task::Graph { policy, format, write, connect, interval } => {
            let policy = policies::read_file(policy)?;
            let rates = connect.as_ref().map(|address| edge_rates::measure(&policy, address, *interval));
            let notes = rates.transpose()?.unwrap_or_default();
            let picture = match format {
                PictureFormat::Text => policy.graph_text(&notes) + &tags(&policy),
                PictureFormat::Svg => policy.graph_svg(&notes),
            };
            match write {
                Some(path) => files::create(path)?.1.write_all(picture.as_bytes())?,
                None => output::print(&picture)?,
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Returns the layouts of the tags of external nodes; none if they are invalid.
fn tags(policy: &Policy) -> String {
    let all = NodeTags::of_policy(policy, &functions::registry()).unwrap_or_default();
    let shown = all.iter().filter(|tags| !tags.fields.is_empty());
    shown.map(|tags| format!("\n{tags}")).collect()
}

/// A diagnostic as JSON.
#[derive(Serialize)]
struct Finding {
    file: String,
    line: usize,
    column: usize,
    severity: &'static str,
    message: String,
    /// Explanations of the position and of others, such as an example packet.
    notes: Vec<String>,
    help: Option<String>,
}

fn check(paths: &[PathBuf], deny_warnings: bool, format: Format) -> anyhow::Result<ExitCode> {
    let (mut errors, mut warnings) = (0, 0);
    let mut findings = Vec::new();
    for path in paths {
        let (found, sources) = match policies::parse_file(path)? {
            Ok(policy) => {
                let found = analyse(&policy);
                (found, policy.report.sources)
            }
            Err(report) => (report.diagnostics.clone(), report.sources.clone()),
        };
        for diagnostic in &found {
            match diagnostic.severity {
                DiagnosticSeverity::Error => errors += 1,
                DiagnosticSeverity::Warning => warnings += 1,
            }
            match format {
                Format::Table => messages::write_text(&diagnostic.render(&sources, policies::colour())),
                Format::Json => findings.push(Finding::of(diagnostic, &sources)),
            }
        }
    }
    match format {
        Format::Json => output::print_json(&findings)?,
        Format::Table => {
            let count = |count, name| format!("{count} {name}{}", if count == 1 { "" } else { "s" });
            say!(
                "{}: {}, {}",
                count(paths.len(), "file"),
                count(errors, "error"),
                count(warnings, "warning")
            );
        }
    }
    Ok(if errors > 0 || (deny_warnings && warnings > 0) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn format_all(paths: &[PathBuf], write: bool, check: bool) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for path in paths {
        let (name, text) = (path.display().to_string(), policies::text(path)?);
        let formatted = match policy::reformat(&name, &text) {
            Ok(formatted) => formatted,
            Err(report) => {
                messages::write_text(&report.render(policies::colour()));
                code = ExitCode::FAILURE;
                continue;
            }
        };
        match (check, write) {
            (true, _) if formatted != text => {
                output::print(&format!("{name}\n"))?;
                code = ExitCode::FAILURE;
            }
            (false, true) if formatted != text => std::fs::write(path, formatted)?,
            (false, false) => output::print(&formatted)?,
            _ => {}
        }
    }
    Ok(code)
}

/// Returns all that is wrong with a policy that could be read: its own report, its graph's, and
/// that of NFs and ports.
fn analyse(policy: &Policy) -> Vec<Diagnostic> {
    let registry = functions::registry();
    let mut facts: Vec<NfFacts> = policy
        .nfs
        .iter()
        .map(|nf| registry.find(&nf.type_name).map_or_else(NfFacts::default, |entry| facts(entry.descriptor)))
        .collect();
    let mut found = policy.report.diagnostics.clone();
    let assembly = runtime::assemble(policy, &registry, 0, None);
    let mut ports = Vec::new();
    if let Ok(assembly) = &assembly {
        for (nf, facts) in policy.nfs.iter().zip(&mut facts) {
            facts.sources = sources(nf, assembly);
        }
        let facts_of = |(at, port): (usize, &policy::Port)| match policy.external_of(at) {
            // The addresses on the link of an external node are not those of its packets.
            Some(_) => PortFacts::default(),
            None => port_facts(*port.numbers.start(), assembly),
        };
        ports = policy.ports.iter().enumerate().map(facts_of).collect();
    }
    found.extend(policy.analyse(&facts, &ports).diagnostics);
    match assembly {
        Ok(assembly) => {
            let warnings = assembly.warnings.iter();
            found.extend(warnings.map(|(name, warning)| Diagnostic::warning(warning, span_of(policy, name))));
        }
        Err(errors) => found.extend(errors),
    }
    found.sort_by_key(|diagnostic| diagnostic.labels.first().map(|label| label.span));
    found
}

/// Returns the sources that an NF lets pass, and the position of the key that names them.
fn sources(nf: &Nf, assembly: &Assembly) -> Option<(FilterAddressSet, Span)> {
    let at = assembly.names.iter().position(|name| *name == nf.name)?;
    let passed = assembly.graph.stages().get(at)?.shared().sources.as_ref()?;
    let ranges = passed.ranges.iter().map(|(first, last)| (first.ip(), last.ip()));
    let span = nf.config.get(passed.key).map_or(nf.span, |value| value.span);
    Some((FilterAddressSet::new(ranges.collect()), span))
}

/// Returns the addresses that a port's configuration says are reached through it. Its `prefixes`
/// are all of them, unless it has a gateway.
fn port_facts(number: u16, assembly: &Assembly) -> PortFacts {
    let Some(port) = assembly.ports.number(number) else { return PortFacts::default() };
    let networks = port.networks.iter().filter_map(|network| {
        let (first, length) = network.network();
        Prefix::new(first, length)
    });
    let prefixes = port.prefixes.iter().copied().chain(networks);
    let behind = FilterAddressSet::new(prefixes.map(|prefix| prefix.bounds()).collect());
    let is_all = !port.prefixes.is_empty() && port.gateways.is_empty();
    let elsewhere = if is_all { behind.complement() } else { FilterAddressSet::default() };
    PortFacts { behind, elsewhere }
}

/// Returns the position of an NF; that of the first port for warnings about all ports.
fn span_of(policy: &Policy, name: &str) -> Span {
    let nf = policy.nfs.iter().find(|nf| nf.name == name).map(|nf| nf.span);
    nf.or_else(|| policy.ports.first().map(|port| port.span)).unwrap_or(policy.settings.span)
}

fn facts(descriptor: &nf::Descriptor) -> NfFacts {
    let number = |field| vec![FilterField::Number(field)];
    let writes = |field: &Field| match field {
        Field::SourceAddress => vec![FilterField::Address(FilterSide::Src)],
        Field::DestinationAddress => vec![FilterField::Address(FilterSide::Dst)],
        Field::SourcePort => number(FilterNumberField::SrcPort),
        Field::DestinationPort => number(FilterNumberField::DstPort),
        Field::Protocol => number(FilterNumberField::Proto),
        Field::Dscp => number(FilterNumberField::Dscp),
        Field::Vlan => number(FilterNumberField::Vlan),
        Field::TcpFlags => vec![FilterField::TcpFlags],
        Field::TimeToLive => Vec::new(),
        // Another IP header is the outermost one then.
        Field::Encapsulation => [FilterSide::Src, FilterSide::Dst]
            .map(FilterField::Address)
            .into_iter()
            .chain(FilterNumberField::ALL.map(FilterField::Number))
            .chain([FilterField::TcpFlags])
            .collect(),
    };
    NfFacts {
        attributes: descriptor.attributes.iter().map(|attribute| attribute.name.to_owned()).collect(),
        writes: descriptor.writes.iter().flat_map(writes).collect(),
        sources: None,
    }
}

impl Finding {
    fn of(diagnostic: &Diagnostic, sources: &SourceMap) -> Finding {
        let first = diagnostic.labels.first();
        let (line, column) = first.map_or((0, 0), |label| sources.line_column(label.span));
        let notes = diagnostic.labels.iter().map(|label| label.text.clone());
        Finding {
            file: first.map_or_else(String::new, |label| sources.name(label.span.source).to_owned()),
            line,
            column,
            severity: match diagnostic.severity {
                DiagnosticSeverity::Error => "error",
                DiagnosticSeverity::Warning => "warning",
            },
            message: diagnostic.message.clone(),
            notes: notes.filter(|note| !note.is_empty()).collect(),
            help: diagnostic.help.clone(),
        }
    }
}
