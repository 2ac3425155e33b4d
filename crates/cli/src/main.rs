//! The `rivulet` command.

mod bench;
mod capture;
mod catalogue;
mod control;
mod demo;
mod doctor;
mod eve;
mod explain;
mod export;
mod files;
mod lab;
mod messages;
mod nat_record;
mod output;
mod picture;
mod policies;
mod rules;
mod run;
mod scaffold;
mod shell;
mod signals;
mod sim;
mod sinks;
mod sources;
mod summary;
mod texts;
mod top;
mod traffic;
mod units;
mod up;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use messages::say;

/// Network functions as a service: NAT, load balancer, firewall, monitor, and your own.
#[derive(Debug, Parser)]
#[command(name = "rivulet", version, arg_required_else_help = true, max_term_width = 100, after_help = EXAMPLES)]
struct Command {
    #[command(subcommand)]
    task: Task,
    /// Let policies name files in this folder, besides their own
    #[arg(long, global = true, value_name = "DIR")]
    include: Vec<PathBuf>,
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
    /// See NAT, firewall, load balancer and monitor at work on made-up traffic
    Demo(demo::Args),
    /// Run a policy over captures: packets in, packets out, and a report of what happened
    Run(run::Args),
    /// Run a policy on network interfaces, until it is told to end
    Up(up::Args),
    /// See what a running `rivulet up` does now
    Top(top::Args),
    /// Say whether this machine is ready for `rivulet up`, and what to do if not
    Doctor(doctor::Args),
    /// Tell, packet by packet, what each function of a policy did, and why
    Explain(explain::Args),
    /// Write each packet to a pcapng file, with a comment that says what each function decided
    Capture(capture::Args),
    /// Make up traffic and write it as a capture
    Traffic(traffic::Args),
    /// Show which network functions there are, and all about one
    Nf(catalogue::Args),
    /// Say which detection rules load, and why others do not
    Rules(rules::Args),
    /// Begin a network function of your own
    New(scaffold::Args),
    /// Simulate how flowlets are given to units that come and go, on virtual time
    Sim(sim::Args),
    /// Run the experiments that compare Rivulet with what is published
    Lab(lab::Args),
    /// Measure what a packet costs, on one core, from memory to memory
    Bench(bench::Args),
    /// Write a shell's completion script
    Completions(shell::Completions),
    /// Write the manual pages
    Man(shell::Man),
}

fn main() -> ExitCode {
    let command = Command::parse();
    texts::include(command.include);
    runtime::panics::keep();
    let done = match command.task {
        Task::Demo(args) => demo::run(&args),
        Task::Run(args) => run::run(&args),
        Task::Up(args) => up::run(&args),
        Task::Top(args) => top::run(&args),
        Task::Doctor(args) => doctor::run(&args),
        Task::Explain(args) => explain::run(&args),
        Task::Capture(args) => capture::run(&args),
        Task::Traffic(args) => traffic::run(&args),
        Task::Nf(args) => catalogue::run(&args),
        Task::Rules(args) => rules::run(&args),
        Task::New(args) => scaffold::run(&args),
        Task::Sim(args) => sim::run(&args),
        Task::Lab(args) => lab::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Completions(args) => shell::completions(&args, Command::command()),
        Task::Man(args) => shell::man(&args, Command::command()),
    };
    match done {
        Ok(code) => code,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say!("rivulet: {error:#}");
            ExitCode::FAILURE
        }
    }
}
