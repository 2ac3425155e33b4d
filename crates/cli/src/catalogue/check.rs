//! `rivulet nf check`: compares fast path and slow path in random graphs.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail};
use conformance::{CompareError, CompareOptions, FunctionSpec, Totals, built_in, compare};
use serde::Serialize;

use crate::output::{self, Format, Table, thousands};
use crate::traffic::arguments;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Functions to check [default: all that come with Rivulet]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Configuration of the function, as JSON [default: those of the check, or none]
    #[arg(long, value_name = "JSON", requires = "names")]
    config: Option<String>,
    /// Operator command to the function; repeatable
    #[arg(long = "command", value_name = "COMMAND", requires = "names")]
    commands: Vec<String>,
    /// Minimum number of packets: 100k, 1M
    #[arg(short = 'n', long, default_value = "100k", value_parser = arguments::count)]
    packets: u64,
    /// Seed of graphs and traffic; the same seed repeats the run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// The result as JSON.
#[derive(Serialize)]
struct CheckResult {
    same: bool,
    #[serde(flatten)]
    tried: CheckCounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<CheckDifference>,
}

#[derive(Serialize)]
struct CheckCounts {
    graphs: u64,
    packets: u64,
    on_the_fast_path: u64,
    commands: u64,
    moves: u64,
}

/// The smallest graph with a difference.
#[derive(Serialize)]
struct CheckDifference {
    functions: Vec<String>,
    steps: Vec<String>,
    what: String,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let subjects = subjects(args)?;
    let options = CompareOptions { packets: args.packets, seed: args.seed, ..CompareOptions::default() };
    let (bar, started) = (output::progress(Some(args.packets), "packets"), Instant::now());
    // A panic counts as a difference and is reduced; its message is not shown at each attempt.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut totals = Totals::default();
    let compared = compare(&functions::registry(), &subjects, &options, |so_far| {
        totals = *so_far;
        bar.set_position(so_far.packets.min(args.packets));
    });
    std::panic::set_hook(hook);
    bar.finish_and_clear();
    let difference = match compared {
        Ok(_) => None,
        Err(CompareError::Different(difference)) => Some(difference),
        Err(CompareError::Setup(why)) => bail!(why),
    };
    match args.output {
        Format::Json => output::print_json(&CheckResult {
            same: difference.is_none(),
            tried: CheckCounts::from(totals),
            difference: difference.as_deref().cloned().map(|of| CheckDifference {
                functions: of.functions,
                steps: of.steps,
                what: of.what,
            }),
        })?,
        Format::Table => {
            let mut table = Table::new(&["graphs", "packets", "fast path", "commands", "moves", "seconds"]);
            let share = 100.0 * totals.followed as f64 / totals.packets.max(1) as f64;
            table.row(vec![
                thousands(totals.trials),
                thousands(totals.packets),
                format!("{share:.1} %"),
                thousands(totals.commands),
                thousands(totals.moves),
                format!("{:.1}", started.elapsed().as_secs_f64()),
            ]);
            let verdict = match &difference {
                None => "no difference between fast path and slow path".to_owned(),
                Some(difference) => format!("{difference}\nrepeat with --seed {}", args.seed),
            };
            output::print(&format!("{}\n{verdict}\n", table.render()))?;
        }
    }
    Ok(if difference.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the functions to check, with their configurations.
fn subjects(args: &Args) -> anyhow::Result<Vec<FunctionSpec>> {
    let ready = built_in();
    let mut subjects = Vec::new();
    for name in &args.names {
        let known = || ready.iter().filter(|subject| subject.name.eq_ignore_ascii_case(name));
        match &args.config {
            None if known().next().is_some() => subjects.extend(known().cloned()),
            config => {
                let config = config.as_deref().unwrap_or("{}");
                subjects.push(FunctionSpec::new(name, config).context("--config is not valid JSON")?);
            }
        }
    }
    Ok(subjects.into_iter().map(|subject| subject.with_commands(args.commands.clone())).collect())
}

impl From<Totals> for CheckCounts {
    fn from(Totals { trials, packets, followed, commands, moves }: Totals) -> CheckCounts {
        CheckCounts { graphs: trials, packets, on_the_fast_path: followed, commands, moves }
    }
}
