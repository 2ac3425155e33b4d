//! Reading policies, and saying what is wrong with them.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use anyhow::Context;
use node::Assembly;
use policy::{Colour, Policy};

use crate::output;

/// The command could not go on, and the operator was told why already.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Reads a policy from a file (`-` is standard input) and makes what it describes. `seed` counts if it names none;
/// without either, one is drawn.
pub fn load(path: &Path, seed: Option<u64>) -> anyhow::Result<Assembly> {
    let text = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).context("cannot read the policy from standard input")?
    } else {
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?
    };
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    parse(&path.display().to_string(), &text, &folder, seed)
}

/// Makes what a policy's text describes; files that it names are in `folder`.
pub fn parse(name: &str, text: &str, folder: &Path, seed: Option<u64>) -> anyhow::Result<Assembly> {
    let colour = if output::colours() { Colour::On } else { Colour::Off };
    let mut files = |file: &str| fs::read_to_string(folder.join(file)).map_err(|error| error.to_string());
    let policy = match Policy::read(name, text, &mut files) {
        Ok(policy) => policy,
        Err(report) => {
            eprint!("{}", report.render(colour));
            return Err(Refused(format!("{name} is not a policy that can run")).into());
        }
    };
    if !policy.report.diagnostics.is_empty() {
        eprint!("{}", policy.report.render(colour));
    }
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(name));
    node::assemble(&policy, &functions::registry(), seed, io::cycles::counter()).map_err(|wrong| {
        for diagnostic in &wrong {
            eprint!("{}", diagnostic.render(&policy.report.sources, colour));
        }
        Refused(format!("{name} is not a policy that can run")).into()
    })
}
