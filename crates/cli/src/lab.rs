//! `rivulet lab`: repeats published measurements.

mod markdown;
mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::lab::page::ResultPage;
use ::lab::{
    Experiment, ExperimentOutcome, Lab, RuleFiles, RunLength, RunProgress, SettingsSweep, TuningOutcome,
    experiments, sweeps,
};
use anyhow::Context;
use indicatif::ProgressBar;

use crate::messages::say;
use crate::output::{self, Format, Table};

/// Runs the experiments that compare Rivulet with published results
///
/// Each experiment compares our figures with the published ones: whether they match, and whether we
/// beat them. Simulated experiments give the same figures for the same seeds on any machine.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// List the experiments and their claims
    List {
        /// Output format
        #[arg(short, long, value_enum, default_value = "table")]
        output: Format,
        /// Same as -o json
        #[arg(long)]
        json: bool,
    },
    /// Run some experiments
    Run {
        /// IDs of experiments, such as X1
        #[arg(required = true, value_name = "ID", value_parser = experiment)]
        ids: Vec<Experiment>,
        #[command(flatten)]
        options: Options,
    },
    /// Run all experiments
    All {
        #[command(flatten)]
        options: Options,
    },
    /// Tune the baselines on seeds that no experiment measures, and show the best settings
    Tune {
        /// IDs of experiments [default: all with settings of their baselines]
        #[arg(value_name = "ID", value_parser = sweep)]
        ids: Vec<SettingsSweep>,
        #[command(flatten)]
        length: LengthOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
}

#[derive(Debug, clap::Args)]
struct LengthOptions {
    /// Short runs with 3 seeds: under a minute per experiment on two cores (default)
    #[arg(long, group = "length")]
    quick: bool,
    /// Whole workload with 20 seeds: about an hour per experiment
    #[arg(long, group = "length")]
    full: bool,
    /// Minimal runs with one seed that only show that everything works
    #[arg(long, group = "length")]
    smoke: bool,
}

#[derive(Debug, clap::Args)]
struct OutputOptions {
    /// Print JSON: an object, or a list for several experiments
    #[arg(long)]
    json: bool,
    /// Directory for the files of each experiment
    #[arg(long, value_name = "DIR", default_value = "lab-out")]
    out: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Options {
    #[command(flatten)]
    length: LengthOptions,
    #[command(flatten)]
    output: OutputOptions,
    /// Number of seeds, from 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: Option<u32>,
    /// Captures of real traffic, for experiments that replay some (XC, Y5)
    #[arg(long, value_name = "FILE", num_args = 1..)]
    captures: Vec<PathBuf>,
    /// Rule files in Suricata's language, for experiments with intrusion detection (Y4, Y5)
    /// [default: a few built-in rules]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    rules: Vec<PathBuf>,
    /// Definitions of variables for these rules, one per line [default: HOME_NET and EXTERNAL_NET
    /// are any]
    #[arg(long, value_name = "FILE", requires = "rules")]
    variables: Option<PathBuf>,
    /// Class types of these rules: a classification.config
    #[arg(long, value_name = "FILE", requires = "rules")]
    classification: Option<PathBuf>,
}

impl LengthOptions {
    fn length(&self) -> RunLength {
        match (self.full, self.smoke) {
            (true, _) => RunLength::Full,
            (_, true) => RunLength::Smoke,
            _ => RunLength::Quick,
        }
    }
}

impl Options {
    fn rules(&self) -> RuleFiles {
        let Options { rules, variables, classification, .. } = self;
        RuleFiles {
            rules: rules.clone(),
            variables: variables.clone(),
            classification: classification.clone(),
        }
    }

    /// Returns the options that reproduce the figures.
    fn again(&self) -> String {
        let length = match self.length.length() {
            RunLength::Full => " --full",
            RunLength::Quick => " --quick",
            RunLength::Smoke => " --smoke",
        };
        let seeds = self.seeds.map_or_else(String::new, |seeds| format!(" --seeds {seeds}"));
        let captures = if self.captures.is_empty() { "" } else { " --captures FILE..." };
        let rules = if self.rules.is_empty() { "" } else { " --rules FILE..." };
        let variables = if self.variables.is_none() { "" } else { " --variables FILE" };
        let classes = if self.classification.is_none() { "" } else { " --classification FILE" };
        format!("{length}{seeds}{captures}{rules}{variables}{classes}")
    }
}

const EXAMPLES: &str = "\
Examples:
  rivulet lab list
  rivulet lab run X2 X3
  rivulet lab run X4 --seeds 5 --json | jq .match
  rivulet lab all --full --out results
  rivulet lab tune X1 X2 X3";

/// Parses the ID of an experiment.
fn experiment(id: &str) -> Result<Experiment, String> {
    let found = experiments().iter().find(|experiment| experiment.id.eq_ignore_ascii_case(id)).copied();
    found.ok_or_else(|| {
        let ids: Vec<&str> = experiments().iter().map(|experiment| experiment.id).collect();
        format!("expected one of {}", ids.join(", "))
    })
}

/// Parses the ID of a sweep.
fn sweep(id: &str) -> Result<SettingsSweep, String> {
    let found = sweeps().iter().find(|sweep| sweep.id.eq_ignore_ascii_case(id)).copied();
    found.ok_or_else(|| {
        let ids: Vec<&str> = sweeps().iter().map(|sweep| sweep.id).collect();
        format!("expected one of {}, whose baselines have settings", ids.join(", "))
    })
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.task {
        Task::List { output, json } => list(*json || *output == Format::Json),
        Task::Run { ids, options } => run_all(ids, options),
        Task::All { options } => run_all(experiments(), options),
        Task::Tune { ids, length, output } if ids.is_empty() => tune(sweeps(), length.length(), output),
        Task::Tune { ids, length, output } => tune(ids, length.length(), output),
    }
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    if json {
        output::print_json(&experiments())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["id", "experiment", "published"]);
    for experiment in experiments() {
        table.row(vec![experiment.id.into(), experiment.title.into(), experiment.published.into()]);
    }
    output::print(&table.render())?;
    Ok(ExitCode::SUCCESS)
}

fn run_all(experiments: &[Experiment], options: &Options) -> anyhow::Result<ExitCode> {
    let (length, OutputOptions { json, out }) = (options.length.length(), &options.output);
    make_ready(length, out)?;
    let bar = output::progress(None, "runs");
    let mut lab = Lab::new(length, options.seeds.unwrap_or(length.seeds()), |step| say(&bar, step))
        .with_captures(options.captures.clone())
        .with_rules(options.rules());
    let mut outcomes = Vec::new();
    for experiment in experiments {
        bar.suspend(|| say!("rivulet: {}: {}", experiment.id, experiment.title));
        let outcome = experiment.run(&mut lab);
        write(out, (experiment, &outcome), &options.again())?;
        if !json {
            bar.suspend(|| output::print(&show::outcome(&outcome)))?;
        }
        outcomes.push(outcome);
        // After each experiment, so that a later failure does not lose its results.
        write_files(&out.join("README"), &[("md", markdown::index(&outcomes))])?;
    }
    bar.finish_and_clear();
    match (*json, &outcomes[..]) {
        (true, [outcome]) => output::print_json(outcome)?,
        (true, outcomes) => output::print_json(&outcomes)?,
        (false, _) => say!("rivulet: wrote {}", out.display()),
    }
    Ok(verdict(outcomes.iter().map(|outcome| outcome.failures().count()).sum()))
}

fn tune(
    sweeps: &[SettingsSweep],
    length: RunLength,
    OutputOptions { json, out }: &OutputOptions,
) -> anyhow::Result<ExitCode> {
    make_ready(length, out)?;
    let bar = output::progress(None, "runs");
    let mut lab = Lab::new(length, length.seeds(), |step| say(&bar, step));
    let mut tunings = Vec::new();
    for sweep in sweeps {
        bar.suspend(|| say!("rivulet: {}: settings of baselines", sweep.id));
        let tuning = sweep.run(&mut lab);
        write_tuning(out, &tuning)?;
        if !json {
            bar.suspend(|| output::print(&show::tuning(&tuning)))?;
        }
        tunings.push(tuning);
    }
    bar.finish_and_clear();
    match (*json, &tunings[..]) {
        (true, [tuning]) => output::print_json(tuning)?,
        (true, tunings) => output::print_json(&tunings)?,
        (false, _) => say!("rivulet: wrote {}", out.display()),
    }
    Ok(verdict(tunings.iter().map(|tuning| tuning.failures().count()).sum()))
}

/// Creates the output directory, and warns about a debug build.
fn make_ready(length: RunLength, out: &Path) -> anyhow::Result<()> {
    if cfg!(debug_assertions) && length != RunLength::Smoke {
        say!("rivulet: this is a debug build; a release build is many times faster");
    }
    std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))
}

fn say(bar: &ProgressBar, step: &RunProgress) {
    bar.set_message(format!("{} of {}: {}, seed {}", step.done, step.all, step.mode, step.seed));
    bar.set_position(step.done as u64);
}

fn verdict(failures: usize) -> ExitCode {
    if failures > 0 {
        say!("rivulet: {failures} runs failed their checks");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Writes the files of an outcome; `options` reproduce it.
fn write(
    dir: &Path,
    (experiment, outcome): (&Experiment, &ExperimentOutcome),
    options: &str,
) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(outcome)? + "\n";
    let page = ResultPage::of(outcome, options).write(experiment, None)?;
    let files = [("csv", outcome.csv()), ("json", json), ("svg", outcome.svg()), ("md", page)];
    write_files(&dir.join(outcome.id), &files)
}

/// Writes the files of a sweep.
fn write_tuning(dir: &Path, tuning: &TuningOutcome) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(tuning)? + "\n";
    write_files(&dir.join(format!("{}-tuning", tuning.id)), &[("csv", tuning.csv()), ("json", json)])
}

/// Writes files of one name with these extensions.
fn write_files(name: &Path, files: &[(&str, String)]) -> anyhow::Result<()> {
    for (extension, content) in files {
        let path = name.with_extension(extension);
        io::files::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
