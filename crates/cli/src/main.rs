//! The `rivulet` command.

mod bench;
mod control;
mod output;
mod policies;
mod run;
mod sinks;
mod sources;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Network functions as a service: NAT, load balancer, firewall, monitor, and your own.
#[derive(Debug, Parser)]
#[command(name = "rivulet", version, arg_required_else_help = true, max_term_width = 100)]
struct Command {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run a policy over captures: packets in, packets out, and a report of what happened
    Run(run::Args),
    /// Measure what a packet costs, on one core, from memory to memory
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let done = match Command::parse().task {
        Task::Run(args) => run::run(&args),
        Task::Bench(args) => bench::run(&args),
    };
    match done {
        Ok(code) => code,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rivulet: {error:#}");
            ExitCode::FAILURE
        }
    }
}
