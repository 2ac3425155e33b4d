//! Reads and assembles policies, and reports their errors.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

use cluster::policies::{AppliedPolicy, Digest, NumberedDigest, PolicyTexts};
use policy::{Colour, Diagnostics, FileText, Files, Filter, Policy};
use runtime::Assembly;
use runtime::transport::Maker;

use crate::messages::{self, say};
use crate::{output, texts};

/// The command cannot continue, and the reason was already printed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AlreadyReported(pub String);

/// Reads a policy from a file (`-` is standard input) and assembles it. `seed` applies unless the
/// policy sets one; without either, a random seed is used.
pub fn load(path: &Path, seed: Option<u64>) -> anyhow::Result<Assembly> {
    assemble(path, &text(path)?, seed)
}

/// Reads the text of a policy (`-` is standard input).
pub fn text(path: &Path) -> anyhow::Result<String> {
    texts::read(path)
}

/// Assembles the policy in this text; see [`load`].
pub fn assemble(path: &Path, text: &str, seed: Option<u64>) -> anyhow::Result<Assembly> {
    parse(&path.display().to_string(), text, folder(path), seed)
}

/// Returns the folder of the files that a policy names.
fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Reports the external nodes, which have no program here: only `rivulet up` runs them.
pub fn say_assumptions(assembly: &Assembly) {
    let nodes = assembly.externals.iter().map(|node| node.name.as_str());
    let streams = assembly.stream_nodes.iter().map(|node| node.name.as_str());
    let nodes: Vec<_> = nodes.chain(streams).collect();
    let (list, run, they) = match nodes.as_slice() {
        [] => return,
        [node] => ((*node).to_owned(), "runs", "it"),
        [all @ .., last] => (format!("{} and {last}", all.join(", ")), "run", "they"),
    };
    say!("rivulet: {list} {run} with `rivulet up` only: packets go on as if {they} forwarded them unchanged");
}

/// Parses a filter that may use the names of this policy. Also returns the names of the policy's
/// functions, by number.
pub fn filter(path: &Path, text: &str, filter: &str) -> anyhow::Result<(Filter, Vec<String>)> {
    let name = path.display().to_string();
    let mut files = |file: &str| read_named(folder(path), file);
    let read = Policy::read_with_filter((&name, text), ("--filter", filter), &mut files);
    let (policy, filter) = read.map_err(|report| {
        messages::write_text(&report.render(colour()));
        AlreadyReported(format!("`{filter}` is not a valid filter"))
    })?;
    Ok((filter, policy.nfs.into_iter().map(|nf| nf.name).collect()))
}

/// Parses and assembles a policy; files that it names are in `folder`.
pub fn parse(name: &str, text: &str, folder: &Path, seed: Option<u64>) -> anyhow::Result<Assembly> {
    made(name, &read(name, text, folder)?, seed)
}

/// Does the same as [`load`]. Also returns a maker of more copies of the graph.
pub fn load_for_threads(path: &Path, seed: Option<u64>) -> anyhow::Result<(Assembly, Maker)> {
    let name = path.display().to_string();
    let policy = read(&name, &text(path)?, folder(path))?;
    let assembly = made(&name, &policy, seed)?;
    let seed = assembly.seed;
    let make = move || {
        let made = runtime::assemble(&policy, &functions::registry(), seed, io::cycles::counter());
        made.map(|assembly| assembly.graph).map_err(|_| "out of memory".to_owned())
    };
    Ok((assembly, Arc::new(make)))
}

/// A policy for a node of a cluster.
#[derive(Clone)]
pub struct NodePolicy {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Its digest.
    pub digest: Digest,
    /// Its number in the cluster; 0 if it was read from a file of this node.
    pub number: u64,
    /// Its texts.
    pub texts: PolicyTexts,
}

impl NodePolicy {
    fn new(policy: Policy, texts: PolicyTexts) -> NodePolicy {
        let digest = cluster::policy_digest(policy.report.sources.texts());
        NodePolicy { policy: Arc::new(policy), digest, number: 0, texts }
    }

    /// Returns it as the cluster's.
    pub fn applied(&self) -> AppliedPolicy {
        let id = NumberedDigest { number: self.number, digest: self.digest };
        AppliedPolicy { id, texts: self.texts.clone() }
    }

    /// Assembles the policy with a seed.
    ///
    /// # Errors
    /// All of its errors, a line for each.
    pub fn assemble(&self, seed: u64) -> Result<Assembly, String> {
        let sources = &self.policy.report.sources;
        runtime::assemble_for_cluster(&self.policy, &functions::registry(), seed, io::cycles::counter())
            .map_err(|faults| lines(faults.iter().map(|fault| fault.line(sources))))
    }
}

/// Assembles the policy of a node as [`load`] does.
pub fn assembly_of(policy: &NodePolicy, seed: Option<u64>) -> anyhow::Result<Assembly> {
    made(&policy.texts.name, &policy.policy, seed)
}

/// Reads a policy for a node of a cluster.
pub fn load_for_node(path: &Path) -> anyhow::Result<NodePolicy> {
    let (texts, policy) = read_texts(path)?;
    Ok(NodePolicy::new(policy, texts))
}

/// Reads a policy for a node of a cluster from its texts.
///
/// # Errors
/// All of its errors, a line for each.
pub fn read_for_node(texts: &PolicyTexts) -> Result<NodePolicy, String> {
    let mut files = |file: &str| {
        let found = texts.files.iter().find(|(name, _)| name == file);
        found
            .map(|(_, text)| FileText::from(text.clone()))
            .ok_or_else(|| "it did not come with the policy".to_owned())
    };
    let policy = Policy::read(&texts.name, &texts.text, &mut files);
    policy
        .map(|policy| NodePolicy::new(policy, texts.clone()))
        .map_err(|report| lines(report.diagnostics.iter().map(|fault| fault.line(&report.sources))))
}

/// Checks a policy, and returns its texts with those of the files that it names.
pub fn texts(path: &Path) -> anyhow::Result<PolicyTexts> {
    Ok(read_texts(path)?.0)
}

fn read_texts(path: &Path) -> anyhow::Result<(PolicyTexts, Policy)> {
    let (name, text) = (path.display().to_string(), text(path)?);
    let mut named = Vec::new();
    let mut files = |file: &str| {
        let found = read_named(folder(path), file)?;
        named.push((file.to_owned(), found.text.clone()));
        Ok(found)
    };
    let policy = read_with(&name, &text, &mut files)?;
    Ok((PolicyTexts { name, text, files: named }, policy))
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n")
}

/// Does the same as [`load`], and returns a function that makes the same assembly again.
pub fn load_for_trial(
    path: &Path,
    seed: u64,
) -> anyhow::Result<(Assembly, impl Fn() -> Result<Assembly, String> + Clone + 'static)> {
    let name = path.display().to_string();
    let policy = Arc::new(read(&name, &text(path)?, folder(path))?);
    let assembly = made(&name, &policy, Some(seed))?;
    let seed = assembly.seed;
    let make = move || {
        runtime::assemble(&policy, &functions::registry(), seed, None)
            .map_err(|_| "not enough memory for another graph".to_owned())
    };
    Ok((assembly, make))
}

/// Does the same as [`load`] in `parts` parts, which share the flows.
pub fn load_parts(path: &Path, seed: Option<u64>, parts: u32) -> anyhow::Result<Vec<Assembly>> {
    let name = path.display().to_string();
    let policy = read(&name, &text(path)?, folder(path))?;
    let first = made_part(&name, &policy, seed, parts)?;
    let seed = first.seed;
    let others = (1..parts).map(|_| {
        runtime::assemble_part(&policy, &functions::registry(), seed, io::cycles::counter(), parts)
            .map_err(|_| anyhow::anyhow!("out of memory for {parts} workers"))
    });
    let mut assemblies: Vec<Assembly> =
        std::iter::once(Ok(first)).chain(others).collect::<anyhow::Result<_>>()?;
    if let [first, others @ ..] = &mut assemblies[..] {
        others.iter_mut().for_each(|other| other.share_node_states(first));
    }
    Ok(assemblies)
}

/// Parses and checks a policy without assembling it; prints its errors and warnings.
pub fn read_file(path: &Path) -> anyhow::Result<Policy> {
    read(&path.display().to_string(), &text(path)?, folder(path))
}

/// Parses and checks a policy without assembling it, and returns its errors if there are any.
pub fn parse_file(path: &Path) -> anyhow::Result<Result<Policy, Box<Diagnostics>>> {
    let mut files = |file: &str| read_named(folder(path), file);
    Ok(Policy::read(&path.display().to_string(), &text(path)?, &mut files))
}

fn read(name: &str, text: &str, folder: &Path) -> anyhow::Result<Policy> {
    read_with(name, text, &mut |file| read_named(folder, file))
}

fn read_with(name: &str, text: &str, files: &mut Files<'_>) -> anyhow::Result<Policy> {
    let colour = colour();
    let policy = Policy::read(name, text, files).map_err(|report| {
        messages::write_text(&report.render(colour));
        AlreadyReported(format!("{name} is not a valid policy"))
    })?;
    if !policy.report.diagnostics.is_empty() {
        messages::write_text(&policy.report.render(colour));
    }
    Ok(policy)
}

fn made(name: &str, policy: &Policy, seed: Option<u64>) -> anyhow::Result<Assembly> {
    made_part(name, policy, seed, 1)
}

fn made_part(name: &str, policy: &Policy, seed: Option<u64>, parts: u32) -> anyhow::Result<Assembly> {
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(name));
    let made = runtime::assemble_part(policy, &functions::registry(), seed, io::cycles::counter(), parts);
    let assembly = made.map_err(|wrong| {
        for diagnostic in &wrong {
            messages::write_text(&diagnostic.render(&policy.report.sources, colour()));
        }
        AlreadyReported(format!("{name} is not a valid policy"))
    })?;
    warn(&assembly.warnings);
    Ok(assembly)
}

/// Warnings of functions that are shown; the rest are counted.
const WARNINGS_SHOWN: usize = 10;

fn warn(warnings: &[(String, String)]) {
    for (function, warning) in warnings.iter().take(WARNINGS_SHOWN) {
        say!("rivulet: {function}: {warning}");
    }
    if let Some(more @ 1..) = warnings.len().checked_sub(WARNINGS_SHOWN) {
        say!("rivulet: {more} more warnings");
    }
}

fn read_named(folder: &Path, file: &str) -> Result<FileText, String> {
    texts::read_named(folder, file).map_err(|error| error.to_string())
}

/// Returns whether to use colours in messages.
pub fn colour() -> Colour {
    if output::colours() { Colour::On } else { Colour::Off }
}
