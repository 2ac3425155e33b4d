//! Chores of the workspace.
//!
//! `cargo run -p xtask -- requirements [--json] [--missing] [--check]` shows the judgement of each
//! requirement in `docs/requirements.tsv`, and checks it (design.md 5.7).
//!
//! `cargo run -p xtask -- planted-bugs [NAME...] [--seeds N] [--suite S]` plants the bugs of
//! `crates/xtask/planted` one by one in a copy of the workspace, and shows which tests find them.

mod planted;
mod requirements;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo run -p xtask -- requirements [--json] [--missing] [--check]
  --json     all columns as JSON, with the citations in code and tests
  --missing  only requirements that are met in part or not at all
  --check    fail if the list, its tests, the citations or the totals are wrong

       cargo run -p xtask -- planted-bugs [NAME...] [--seeds N] [--suite S]
  NAME       only these bugs: names of files in crates/xtask/planted
  --seeds N  try up to N seeds
  --suite S  only this suite: cluster, protocol or models";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first().map(|(chore, rest)| (chore.as_str(), rest)) {
        Some(("requirements", flags)) => {
            requirement_options(flags).map(|options| requirements::run(&workspace(), options))
        }
        Some(("planted-bugs", rest)) => {
            planted::Options::parse(rest).map(|options| planted::run(&workspace(), &options))
        }
        _ => Err(String::new()),
    };
    match outcome {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::FAILURE,
        Ok(Err(error)) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
        Err(fault) => {
            eprintln!("{fault}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn requirement_options(flags: &[String]) -> Result<requirements::Options, String> {
    let mut options = requirements::Options::default();
    for flag in flags {
        match flag.as_str() {
            "--json" => options.json = true,
            "--missing" => options.missing = true,
            "--check" => options.check = true,
            _ => return Err(format!("unknown option `{flag}`")),
        }
    }
    Ok(options)
}

/// Returns the workspace's root: two folders above this crate.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
