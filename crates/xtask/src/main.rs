//! Chores of the workspace.
//!
//! `cargo run -p xtask -- requirements [--json] [--missing] [--check]` shows the judgement of each
//! requirement in `docs/requirements.tsv`, and checks it (design.md 5.7).

mod requirements;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo run -p xtask -- requirements [--json] [--missing] [--check]
  --json     all columns as JSON, with the citations in code and tests
  --missing  only requirements that are met in part or not at all
  --check    fail if the list, its tests, the citations or the totals are wrong";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut options = requirements::Options::default();
    let Some(("requirements", flags)) = arguments.split_first().map(|(chore, flags)| (chore.as_str(), flags))
    else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    for flag in flags {
        match flag.as_str() {
            "--json" => options.json = true,
            "--missing" => options.missing = true,
            "--check" => options.check = true,
            _ => {
                eprintln!("unknown option `{flag}`\n{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    match requirements::run(&workspace(), options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// The workspace's root: two folders above this crate.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
