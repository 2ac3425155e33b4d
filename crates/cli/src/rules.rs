//! `rivulet rules`: checks detection rules.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use functions::ids::{LoadedRules, RuleProblem, RuleSources};
use serde::Serialize;
use values::{Located, Origin};

use crate::output::{self, Format};

/// Checks detection rules: which load, and why others do not
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Rule files in Suricata's language
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Definitions of variables, one per line: HOME_NET = [192.0.2.0/24]
    #[arg(long, value_name = "FILE")]
    pub variables: Option<PathBuf>,
    /// Class types with descriptions and priorities: a classification.config
    #[arg(long, value_name = "FILE")]
    pub classification: Option<PathBuf>,
    /// Thresholds and suppressions of rules: a threshold.config
    #[arg(long, value_name = "FILE")]
    pub thresholds: Option<PathBuf>,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Format,
}

const EXAMPLES: &str = "\
Examples:
  rivulet rules local.rules
  rivulet rules *.rules --classification classification.config
  rivulet rules *.rules -o json | jq '.problems[].what'

Exit code 1: a rule does not load.";

/// The result as JSON.
#[derive(Serialize)]
struct RulesResult<'a> {
    loaded: usize,
    loaded_in_part: usize,
    refused: usize,
    unsupported: usize,
    problems: &'a [RuleProblem],
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let texts: Vec<Located> = args.files.iter().map(|path| read(path)).collect::<anyhow::Result<_>>()?;
    let variables = args.variables.as_deref().map(read).transpose()?;
    let classification = args.classification.as_deref().map(read).transpose()?;
    let thresholds = args.thresholds.as_deref().map(read).transpose()?;
    let rules = LoadedRules::read(&RuleSources {
        rules: &texts,
        variables: variables.as_ref(),
        classification: classification.as_ref(),
        thresholds: thresholds.as_ref(),
        home: &[],
    });
    let loaded = rules.len();
    let (in_part, others): (Vec<_>, Vec<_>) = rules.problems.iter().partition(|problem| problem.is_loaded);
    let loaded_in_part = in_part.len();
    let unsupported = others.iter().filter(|problem| problem.is_unsupported).count();
    let refused = others.len() - unsupported;
    match args.output {
        Format::Json => {
            let problems = &rules.problems;
            output::print_json(&RulesResult { loaded, loaded_in_part, refused, unsupported, problems })?
        }
        Format::Table => {
            let problems: String = rules.problems.iter().map(|problem| format!("{problem}\n")).collect();
            let in_part = match loaded_in_part {
                0 => String::new(),
                count => format!(" ({count} in part)"),
            };
            let sum = format!(
                "{loaded} rules loaded{in_part}, {unsupported} with unsupported features, {refused} wrong lines\n"
            );
            output::print(&(problems + &sum))?;
        }
    }
    Ok(if others.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(path: &Path) -> anyhow::Result<Located> {
    let text = crate::texts::read(path)?;
    let origin = Origin { source: path.display().to_string(), line: 1, column: 1, escapes: Vec::new() };
    Ok(Located::with_origin(text, origin))
}
