//! `rivulet new`: generates a network function in a checkout of the workspace.

mod edit;
mod name;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use policy::Value;

use crate::output;
use name::Name;

/// Generates source code in a checkout of Rivulet's workspace
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Generate a working network function to start from
    ///
    /// Writes the module with configuration, state and `process`, its manual, tests, a fuzz target,
    /// a benchmark and an example policy, and registers it. See docs/write-your-first-nf.md.
    Nf {
        /// Name in policies: lower-case letters, digits and `_`
        name: Name,
        /// The checkout, or any directory within
        #[arg(long, value_name = "DIR", default_value = ".")]
        path: PathBuf,
    },
}

const EXAMPLES: &str = "\
Examples:
  rivulet new nf flow_limit
  rivulet new nf flow_limit --path ~/src/rivulet";

/// A first input of the fuzz target: one UDP packet.
const FUZZ_SEED: &str =
    "\0\x01\x1c\x45\0\0\x1c\0\x01\0\0\x40\x11\0\0\x0a\0\0\x01\x0a\0\0\x02\x30\x39\0\x35\0\x08\0\0";

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Task::Nf { name, path } = &args.task;
    let root = workspace(path)?;
    let plan = plan(name, &root)?;
    for (path, text) in &plan {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut text = String::new();
    for (path, _) in &plan {
        text += &format!("  {}\n", path.strip_prefix(&root).unwrap_or(path).display());
    }
    output::print(&format!(
        "Wrote in {}:\n{text}\nNext:\n  cargo test -p functions {name}\n  cargo run -- nf show {name}\n  \
         cargo run -- traffic --write in.pcapng --packets 1000\n  \
         cargo run -- explain examples/{name}.rvl --read in.pcapng --flow 1\n  \
         cargo bench -p functions --bench {name}\n  cargo +nightly fuzz run {name} -- -max_total_time=30\n\
         Then change `process` in crates/functions/src/{name}.rs.\n",
        root.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Finds the root of the checkout that contains this directory.
fn workspace(from: &Path) -> anyhow::Result<PathBuf> {
    let from = from.canonicalize().with_context(|| format!("cannot open {}", from.display()))?;
    let is_root = |folder: &&Path| {
        folder.join("crates/functions/src/lib.rs").is_file()
            && fs::read_to_string(folder.join("Cargo.toml")).is_ok_and(|text| text.contains("[workspace]"))
    };
    match from.ancestors().find(is_root) {
        Some(root) => Ok(root.to_owned()),
        None => bail!("{} is not in a checkout of Rivulet; use --path DIR", from.display()),
    }
}

/// Returns all files to write with their content. Only the files that list functions are
/// overwritten.
fn plan(name: &Name, root: &Path) -> anyhow::Result<Vec<(PathBuf, String)>> {
    if let Some(entry) = functions::registry::<Value>().find(name.as_str()) {
        bail!("the name `{name}` is taken by the network function `{}`", entry.descriptor.name);
    }
    let functions = root.join("crates/functions");
    let mut plan = Vec::new();
    for (path, template) in [
        (functions.join(format!("src/{name}.rs")), include_str!("../templates/nf/function.rs")),
        (functions.join(format!("src/{name}/tests.rs")), include_str!("../templates/nf/tests.rs")),
        (functions.join(format!("src/{name}/README.md")), include_str!("../templates/nf/README.md")),
        (functions.join(format!("benches/{name}.rs")), include_str!("../templates/nf/bench.rs")),
        (root.join(format!("examples/{name}.rvl")), include_str!("../templates/nf/example.rvl")),
        (root.join(format!("fuzz/targets/{name}.rs")), include_str!("../templates/nf/fuzz.rs")),
        (root.join(format!("fuzz/corpus/{name}/one")), FUZZ_SEED),
    ] {
        if path.exists() {
            bail!("{} already exists", path.display());
        }
        plan.push((path, name.fill_in(template)));
    }
    let mut change = |path: PathBuf, edit: &dyn Fn(&str) -> Result<String, edit::MissingLine>| {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let text = edit(&text).with_context(|| format!("cannot change {}", path.display()))?;
        plan.push((path, text));
        anyhow::Ok(())
    };
    change(functions.join("src/lib.rs"), &|text| edit::register(text, name))?;
    change(functions.join("Cargo.toml"), &|text| Ok(edit::add_bench(text, name)))?;
    change(root.join("fuzz/Cargo.toml"), &|text| edit::add_fuzz_target(text, name))?;
    Ok(plan)
}
