//! `rivulet lab`: what is published, measured again.

mod markdown;
mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::lab::{Experiment, Lab, Length, Outcome, Step, experiments};
use anyhow::Context;

use crate::output::{self, Table};

/// Runs the experiments that compare Rivulet with what is published about the systems that it is made of.
///
/// Each experiment puts our figures beside the published ones and says whether they match, and whether something of our
/// own is better. The simulated ones give the same figures for the same seeds, anywhere.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Which experiments there are, and what is asked of each
    List {
        /// JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Run some of them
    Run {
        /// Which ones, such as X1
        #[arg(required = true, value_name = "ID", value_parser = experiment)]
        ids: Vec<Experiment>,
        #[command(flatten)]
        options: Options,
    },
    /// Run all of them
    All {
        #[command(flatten)]
        options: Options,
    },
}

#[derive(Debug, clap::Args)]
struct Options {
    /// Short runs with 3 seeds: less than a minute for an experiment on two cores (so unless said)
    #[arg(long, group = "length")]
    quick: bool,
    /// The whole workload, with 20 seeds: an hour or so for an experiment
    #[arg(long, group = "length")]
    full: bool,
    /// Runs of a moment with one seed, from which nothing can be concluded but that everything works
    #[arg(long, group = "length")]
    smoke: bool,
    /// Seeds from 1 to so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: Option<u32>,
    /// Captures of real traffic, for experiments that play some (Y5)
    #[arg(long, value_name = "FILE", num_args = 1..)]
    captures: Vec<PathBuf>,
    /// JSON instead of tables: an object, or a list of them for several experiments
    #[arg(long)]
    json: bool,
    /// Where to write ID.csv, ID.json and ID.svg of each experiment, and figures.md of all of them
    #[arg(long, value_name = "DIR", default_value = "lab-out")]
    out: PathBuf,
}

impl Options {
    fn length(&self) -> Length {
        match (self.full, self.smoke) {
            (true, _) => Length::Full,
            (_, true) => Length::Smoke,
            _ => Length::Quick,
        }
    }

    /// What makes the same figures again.
    fn again(&self) -> String {
        let length = match self.length() {
            Length::Full => " --full",
            Length::Quick => " --quick",
            Length::Smoke => " --smoke",
        };
        let seeds = self.seeds.map_or_else(String::new, |seeds| format!(" --seeds {seeds}"));
        let captures = if self.captures.is_empty() { "" } else { " --captures FILE..." };
        format!("{length}{seeds}{captures}")
    }
}

const EXAMPLES: &str = "\
Examples:
  rivulet lab list
  rivulet lab run X2 X3
  rivulet lab run X4 --seeds 5 --json | jq .match
  rivulet lab all --full --out results";

/// The experiment of this number.
fn experiment(id: &str) -> Result<Experiment, String> {
    let found = experiments().iter().find(|experiment| experiment.id.eq_ignore_ascii_case(id)).copied();
    found.ok_or_else(|| {
        let ids: Vec<&str> = experiments().iter().map(|experiment| experiment.id).collect();
        format!("there are {}", ids.join(", "))
    })
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.task {
        Task::List { json } => list(*json),
        Task::Run { ids, options } => run_all(ids, options),
        Task::All { options } => run_all(experiments(), options),
    }
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    if json {
        output::print_json(&experiments())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["id", "what", "published"]);
    for experiment in experiments() {
        table.row(vec![experiment.id.into(), experiment.title.into(), experiment.published.into()]);
    }
    output::print(&table.render())?;
    Ok(ExitCode::SUCCESS)
}

fn run_all(experiments: &[Experiment], options: &Options) -> anyhow::Result<ExitCode> {
    if cfg!(debug_assertions) && !options.smoke {
        eprintln!("rivulet: this is a debug build; a release build is many times as fast");
    }
    let length = options.length();
    std::fs::create_dir_all(&options.out)
        .with_context(|| format!("cannot make {}", options.out.display()))?;
    let bar = output::progress(None, "runs");
    let say = |step: &Step| {
        bar.set_message(format!("{} of {}: {}, seed {}", step.done, step.all, step.mode, step.seed));
        bar.set_position(step.done as u64);
    };
    let mut lab = Lab::new(length, options.seeds.unwrap_or(length.seeds()), say)
        .with_captures(options.captures.clone());
    let mut outcomes = Vec::new();
    for experiment in experiments {
        bar.suspend(|| eprintln!("rivulet: {}: {}", experiment.id, experiment.title));
        let outcome = experiment.run(&mut lab);
        write(&options.out, &outcome)?;
        if !options.json {
            bar.suspend(|| output::print(&show::outcome(&outcome)))?;
        }
        outcomes.push(outcome);
    }
    bar.finish_and_clear();
    let path = options.out.join("figures.md");
    std::fs::write(&path, markdown::page(&outcomes, &options.again()))
        .with_context(|| format!("cannot write {}", path.display()))?;
    match (options.json, &outcomes[..]) {
        (true, [outcome]) => output::print_json(outcome)?,
        (true, outcomes) => output::print_json(&outcomes)?,
        (false, _) => eprintln!("rivulet: wrote {}", options.out.display()),
    }
    let failures: usize = outcomes.iter().map(|outcome| outcome.failures().count()).sum();
    if failures > 0 {
        eprintln!("rivulet: {failures} runs failed their checks");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes an outcome's files.
fn write(dir: &Path, outcome: &Outcome) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(outcome)? + "\n";
    for (extension, content) in [("csv", outcome.csv()), ("json", json), ("svg", outcome.svg()?)] {
        let path = dir.join(outcome.id).with_extension(extension);
        std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
