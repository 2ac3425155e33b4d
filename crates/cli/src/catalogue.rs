//! `rivulet nf`: lists, shows and checks network functions.

mod check;

use std::process::ExitCode;

use anyhow::bail;
use nf::{
    Access, Affinity, CounterDeclaration, DeclaredCounters, Descriptor, Field, Maturity, RegistryEntry,
    Scaling, Shared,
};
use policy::Value;
use serde::Serialize;

use crate::output::{self, Format, Table, thousands};

/// Lists network functions, shows their manuals, and checks their fast paths
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// List the network functions
    List {
        /// Format of the list
        #[arg(short, long, value_enum, default_value = "table")]
        output: Format,
    },
    /// Show a function's properties, configuration and behaviour
    Show {
        /// Name or alias
        name: String,
        /// Output format
        #[arg(short, long, value_enum, default_value = "table")]
        output: Format,
    },
    /// Compare the fast path of functions with their slow path, in random graphs with random
    /// traffic
    ///
    /// Each graph contains one of the named functions among others. Commands are sent at random,
    /// and flows move to other graphs. Packets, alerts, events, reports, counters, shared state and
    /// the bytes of flow states must be the same. If they differ, the smallest failing graph is
    /// shown, and the exit code is 1.
    Check(check::Args),
}

const EXAMPLES: &str = "\
Examples:
  rivulet nf list
  rivulet nf show nat
  rivulet nf show firewall -o json | jq .attributes
  rivulet nf check --packets 1M
  rivulet nf check policer --config '{ \"rate\": \"20kbps\" }' --command 'rate 1Mbps'";

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let registry = functions::registry::<Value>();
    match &args.task {
        Task::Check(args) => return check::run(args),
        Task::List { output: Format::Table } => {
            let mut table = Table::new(&["name", "maturity", "bytes/flow", "what it does"]);
            for entry in registry.entries() {
                let d = entry.descriptor;
                table.row(vec![
                    d.name.to_owned(),
                    maturity(d.maturity).to_owned(),
                    thousands(entry.state_bytes as u64),
                    d.summary.to_owned(),
                ]);
            }
            output::print(&table.render())?;
        }
        Task::List { output: Format::Json } => {
            let all: Vec<_> = registry.entries().iter().map(|entry| Shown::new(entry, None)).collect();
            output::print_json(&all)?;
        }
        Task::Show { name, output } => {
            let Some(entry) = registry.find(name) else {
                let known: Vec<_> = registry.entries().iter().map(|entry| entry.descriptor.name).collect();
                bail!("there is no network function `{name}`; known functions: {}", known.join(", "));
            };
            let shown = Shown::new(entry, Some(entry.readme));
            match output {
                Format::Json => output::print_json(&shown)?,
                Format::Table => output::print(&shown.render())?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The properties of a function.
#[derive(Serialize)]
struct Shown {
    name: &'static str,
    aliases: &'static [&'static str],
    summary: &'static str,
    maturity: &'static str,
    state_version: u16,
    /// Bytes of a flow's state, without its map.
    state_bytes: usize,
    attributes: Vec<Attribute>,
    reads: Vec<&'static str>,
    writes: Vec<&'static str>,
    payload: &'static str,
    affinity: &'static str,
    scaling: &'static str,
    counters: Vec<Counter>,
    shared: Vec<SharedState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    map: Option<Map>,
    keeps_flows: bool,
    changes_flows: bool,
    consolidates: bool,
    cycles_per_packet: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    readme: Option<&'static str>,
}

#[derive(Serialize)]
struct Attribute {
    name: &'static str,
    bits: u8,
    meaning: &'static str,
}

#[derive(Serialize)]
struct Counter {
    name: &'static str,
    unit: &'static str,
    meaning: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<&'static str>,
}

#[derive(Serialize)]
struct SharedState {
    kind: &'static str,
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<usize>,
}

#[derive(Serialize)]
struct Map {
    entries: usize,
    value_bytes: usize,
}

impl Shown {
    fn new(entry: &RegistryEntry<Value>, readme: Option<&'static str>) -> Shown {
        let d: &'static Descriptor = entry.descriptor;
        let attributes = d.attributes.iter();
        Shown {
            name: d.name,
            aliases: d.aliases,
            summary: d.summary,
            maturity: maturity(d.maturity),
            state_version: d.state_version,
            state_bytes: entry.state_bytes,
            attributes: attributes
                .map(|a| Attribute { name: a.name, bits: a.bits, meaning: a.meaning })
                .collect(),
            reads: d.reads.iter().copied().map(field).collect(),
            writes: d.writes.iter().copied().map(field).collect(),
            payload: match d.payload {
                Access::Ignore => "ignored",
                Access::Read => "read",
                Access::Write => "written",
            },
            affinity: match d.affinity {
                Affinity::Flow => "flow",
                Affinity::Source => "source",
                Affinity::Destination => "destination",
                Affinity::None => "none",
            },
            scaling: match d.scaling {
                Scaling::Servers => "servers",
                Scaling::Cores => "cores",
                Scaling::Single => "single",
            },
            counters: counters(&d.counters),
            shared: d.shared.iter().copied().map(shared).collect(),
            map: d.map.map(|map| Map { entries: map.entries, value_bytes: map.value_len }),
            keeps_flows: d.keeps_flows,
            changes_flows: d.changes_flows,
            consolidates: d.consolidates,
            cycles_per_packet: d.cycles_per_packet,
            readme,
        }
    }

    fn render(&self) -> String {
        let list = |names: &[&str]| if names.is_empty() { "-".to_owned() } else { names.join(", ") };
        let mut table = Table::new(&["", ""]);
        let mut line = |name: &str, value: String| table.row(vec![name.to_owned(), value]);
        line("name", self.name.to_owned());
        line("aliases", list(self.aliases));
        line("maturity", self.maturity.to_owned());
        line("reads", list(&self.reads));
        line("writes", list(&self.writes));
        line("payload", self.payload.to_owned());
        let affinity = format!("packets of one {}", self.affinity).replace("packets of one none", "none");
        line("affinity", not_read_yet(&affinity));
        line("scaling", not_read_yet(&self.scaling.replace("single", "one core only")));
        line("state of a flow", format!("{} bytes, version {}", self.state_bytes, self.state_version));
        if let Some(map) = &self.map {
            line("map of a flow", format!("{} entries of {} bytes", map.entries, map.value_bytes));
        }
        line("keeps flows", if self.keeps_flows { "yes" } else { "until their timeout" }.to_owned());
        line(
            "sees",
            if self.consolidates { "packets without a cached rule" } else { "every packet" }.to_owned(),
        );
        let cost = format!("about {} cycles per packet", thousands(self.cycles_per_packet.into()));
        line("cost", not_read_yet(&cost));
        for attribute in &self.attributes {
            line(
                "sets attribute",
                format!("{} ({} bits): {}", attribute.name, attribute.bits, attribute.meaning),
            );
        }
        for shared in &self.shared {
            let capacity =
                shared.capacity.map_or_else(String::new, |n| format!(", up to {}", thousands(n as u64)));
            line("flows share", format!("{} {}{capacity}", shared.kind, shared.name));
        }
        let table = table.render();
        let table = table.trim_start();
        match self.readme {
            Some(readme) => format!("{}\n\n{table}\n{}\n", self.summary, readme.trim_end()),
            None => format!("{}\n\n{table}", self.summary),
        }
    }
}

fn maturity(maturity: Maturity) -> &'static str {
    match maturity {
        Maturity::Production => "production",
        Maturity::Preview => "preview",
        Maturity::Experimental => "experimental",
    }
}

fn field(field: Field) -> &'static str {
    match field {
        Field::SourceAddress => "source address",
        Field::DestinationAddress => "destination address",
        Field::SourcePort => "source port",
        Field::DestinationPort => "destination port",
        Field::Protocol => "protocol",
        Field::TcpFlags => "TCP flags",
        Field::TimeToLive => "time to live",
        Field::Dscp => "DSCP",
        Field::Vlan => "VLAN",
        Field::Encapsulation => "encapsulation",
    }
}

fn counters(declared: &DeclaredCounters) -> Vec<Counter> {
    let counter = |label: Option<&'static str>, of: &CounterDeclaration| {
        let CounterDeclaration { name, unit, help } = of;
        Counter { name, unit, meaning: help, label }
    };
    let labelled =
        declared.labelled.iter().flat_map(|by| by.counters.iter().map(move |of| (Some(by.label), of)));
    let plain = declared.plain.iter().map(|of| (None, of));
    plain.chain(labelled).map(|(label, of)| counter(label, of)).collect()
}

fn shared(shared: Shared) -> SharedState {
    match shared {
        Shared::Set { name, capacity } => SharedState { kind: "set", name, capacity: Some(capacity) },
        Shared::Pool(name) => SharedState { kind: "pool", name, capacity: None },
        Shared::Meters(name) => SharedState { kind: "meters", name, capacity: None },
        Shared::PayloadCache(name) => SharedState { kind: "contents", name, capacity: None },
    }
}

/// Marks a fact that an NF declares and that no placement reads yet.
fn not_read_yet(fact: &str) -> String {
    format!("{fact} (declared, not read yet)")
}
