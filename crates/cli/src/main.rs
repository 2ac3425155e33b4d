//! The `rivulet` command.

mod api;
mod apply;
mod bench;
mod capture;
mod catalogue;
mod cluster;
mod control;
mod demo;
mod doctor;
mod drain;
mod explain;
mod export;
mod files;
mod flows;
mod lab;
mod log;
mod messages;
mod metrics_address;
mod migrate;
mod node;
mod notify;
mod output;
mod policies;
mod policy_tools;
mod rules;
mod run;
mod scaffold;
mod shell;
mod signals;
mod sim;
mod sources;
mod status;
mod supervisor;
mod texts;
mod top;
mod traffic;
mod units;
mod up;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use log::LogFormat;
use messages::say;
use packet::memory::reserve::ReservingAllocator;

/// The system's allocator. A process that forwards packets has a
/// [reserve](runtime::memory::keep_reserve): it begins no flow when memory is used up.
#[global_allocator]
static ALLOCATOR: ReservingAllocator = ReservingAllocator;

/// Network functions as a service: NAT, load balancer, firewall, monitor, and your own
#[derive(Debug, Parser)]
#[command(name = "rivulet", version, arg_required_else_help = true, max_term_width = 100, after_help = EXAMPLES)]
struct Command {
    #[command(subcommand)]
    task: Task,
    /// Folder of files that policies may read, besides their own
    #[arg(long, global = true, value_name = "DIR")]
    include: Vec<PathBuf>,
    /// Form of the log on standard error; RIVULET_LOG selects events, such as
    /// info,rivulet::flow=debug
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "FORMAT")]
    log_format: LogFormat,
}

const EXAMPLES: &str = "\
Examples:
  rivulet demo
  rivulet run site.rvl --read capture.pcap --write out.pcapng
  rivulet up site.rvl --port inside=eth0 --port outside=eth1
  rivulet explain site.rvl --read capture.pcap --flow 1
  rivulet nf show nat";

#[derive(Debug, Subcommand)]
enum Task {
    /// Show NAT, firewall, load balancer and monitor with synthetic traffic
    Demo(demo::Args),
    /// Run a policy over captures
    Run(run::Args),
    /// Run a policy on network interfaces
    Up(up::Args),
    /// Run a node of a cluster
    Node(node::NodeArgs),
    /// Issue the certificates of a cluster's nodes
    Cluster(cluster::ClusterArgs),
    /// Show the state of a running dispatcher
    Status(status::StatusArgs),
    /// List the nodes of a running dispatcher's cluster
    Nodes(status::NodesArgs),
    /// List the units of a running dispatcher
    Units(status::UnitsArgs),
    /// List, show and move flows of a running dispatcher
    Flows(flows::Args),
    /// Migrate flows of a running dispatcher to other units
    Migrate(migrate::Args),
    /// Give all nodes of a running cluster another policy, while packets flow
    Apply(apply::Args),
    /// Drain a node: it gets no new flows, its flows move to other units, and it stops
    Drain(drain::DrainArgs),
    /// Resume a node that drains, or let a drained one join again
    Resume(drain::ResumeArgs),
    /// Show a live view of a running `rivulet up`
    Top(top::Args),
    /// Check whether this machine is ready for `rivulet up`
    Doctor(doctor::Args),
    /// Explain, packet by packet, what each function of a policy did
    Explain(explain::Args),
    /// Capture each packet with a comment about the decision of each function
    Capture(capture::Args),
    /// Generate synthetic traffic and write it to a capture
    Traffic(traffic::Args),
    /// List network functions, show their manuals, and check them
    Nf(catalogue::Args),
    /// Check, test and format policies, and draw their graphs
    Policy(policy_tools::Args),
    /// Check detection rules
    Rules(rules::Args),
    /// Generate a network function of your own
    New(scaffold::Args),
    /// Simulate elastic units in virtual time
    Sim(sim::Args),
    /// Run the experiments that compare Rivulet with published results
    Lab(lab::Args),
    /// Measure the cost of a packet on one core, in memory
    Bench(bench::Args),
    /// Print a shell's completion script
    Completions(shell::Completions),
    /// Print or write the manual pages
    Man(shell::Man),
    /// Run the program of an external node, for `rivulet up`
    #[command(hide = true)]
    Supervise(supervisor::Args),
}

fn main() -> ExitCode {
    let command = Command::parse();
    if let Err(error) = log::begin(command.log_format) {
        say!("rivulet: {error:#}");
        return ExitCode::FAILURE;
    }
    texts::include(command.include);
    runtime::panics::keep();
    let done = match command.task {
        Task::Demo(args) => demo::run(&args),
        Task::Run(args) => run::run(&args),
        Task::Up(args) => up::run(&args),
        Task::Node(args) => node::run(&args),
        Task::Cluster(args) => cluster::issue(&args),
        Task::Status(args) => status::run(&args),
        Task::Nodes(args) => status::run_nodes(&args),
        Task::Units(args) => status::run_units(&args),
        Task::Flows(args) => flows::run(&args),
        Task::Migrate(args) => migrate::run(&args),
        Task::Apply(args) => apply::run(&args),
        Task::Drain(args) => drain::run(&args),
        Task::Resume(args) => drain::run_resume(&args),
        Task::Top(args) => top::run(&args),
        Task::Doctor(args) => doctor::run(&args),
        Task::Explain(args) => explain::run(&args),
        Task::Capture(args) => capture::run(&args),
        Task::Traffic(args) => traffic::run(&args),
        Task::Nf(args) => catalogue::run(&args),
        Task::Policy(args) => policy_tools::run(&args),
        Task::Rules(args) => rules::run(&args),
        Task::New(args) => scaffold::run(&args),
        Task::Sim(args) => sim::run(&args),
        Task::Lab(args) => lab::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Completions(args) => shell::completions(&args, Command::command()),
        Task::Supervise(args) => supervisor::run(&args),
        Task::Man(args) => shell::man(&args, Command::command()),
    };
    match done {
        Ok(code) => code,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            match messages::is_structured() {
                true => tracing::error!("{}", telemetry::shown_lines(&format!("{error:#}"))),
                false => say!("rivulet: {error:#}"),
            }
            ExitCode::FAILURE
        }
    }
}
