//! Planted bugs: each is a small patch that breaks one rule of the protocol. A copy of the
//! workspace gets the patch, and the suites that must find it run there until a test fails. All
//! pass in the copy before.
//!
//! The patches stand in `crates/xtask/planted`; [`patch`] describes their form.

mod patch;
mod scratch;
mod suite;
mod timeline;

use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

use patch::PlantedBug;
use scratch::Scratch;
use suite::{Finding, Suite};
use timeline::ExpectedEvent;

/// Seeds that are tried unless an option sets another number.
const SEEDS: u64 = 256;

/// The bugs to plant, and the seeds to try.
pub struct Options {
    /// Names; all bugs if there are none.
    names: Vec<String>,
    seeds: u64,
    /// Only this suite.
    suite: Option<Suite>,
}

impl Options {
    /// Reads the options of the command line.
    ///
    /// # Errors
    /// The fault, for the operator.
    pub fn parse(arguments: &[String]) -> Result<Options, String> {
        let mut options = Options { names: Vec::new(), seeds: SEEDS, suite: None };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--seeds" => {
                    let seeds = rest.next().and_then(|number| number.parse().ok());
                    options.seeds = seeds.ok_or("--seeds needs a number")?;
                }
                "--suite" => {
                    let suite = rest.next().and_then(|name| Suite::of_name(name));
                    options.suite = Some(suite.ok_or("--suite needs cluster, protocol or models")?);
                }
                flag if flag.starts_with('-') => return Err(format!("unknown option `{flag}`")),
                name => options.names.push(name.to_owned()),
            }
        }
        Ok(options)
    }
}

/// Plants the bugs one by one, and prints a table of what found them. Returns false if a suite did
/// not find a bug that its patch promises, or its failure does not name the broken rule and mark
/// the bug's event. The failures are saved in `target/planted/failures`.
///
/// # Errors
/// If no bug has a given name, a patch does not apply, the copy cannot be built, or its tests fail
/// without a bug.
pub fn run(root: &Path, options: &Options) -> io::Result<bool> {
    let mut bugs = bugs(root)?;
    if let Some(name) = options.names.iter().find(|name| bugs.iter().all(|bug| bug.name != **name)) {
        return Err(io::Error::other(format!("no planted bug has the name `{name}`")));
    }
    bugs.retain(|bug| options.names.is_empty() || options.names.contains(&bug.name));
    if let Some(only) = options.suite {
        bugs.iter_mut().for_each(|bug| bug.found_by.retain(|suite| *suite == only));
        bugs.retain(|bug| !bug.found_by.is_empty());
    }
    let scratch = Scratch::of(root)?;
    let progress = Progress { of: bugs.len(), began: Instant::now() };
    for suite in Suite::ALL.into_iter().filter(|suite| bugs.iter().any(|bug| bug.found_by.contains(suite))) {
        progress.report(0, &format!("no bug: {}", suite.name()));
        if let Some(Finding { violation, .. }) = suite.run(&scratch, options.seeds)? {
            let error = format!("{} fails without a planted bug: {violation}", suite.name());
            return Err(io::Error::other(error));
        }
    }
    let events = timeline::expected(&root.join("crates/xtask/planted"))?;
    println!("| bug | rule | suite | found by | violation | event | lines |\n|---|---|---|---|---|---|---|");
    let mut is_all = true;
    for (number, bug) in (1..).zip(&bugs) {
        scratch.plant(&bug.path)?;
        for &suite in &bug.found_by {
            progress.report(number, &format!("{}: {}", bug.name, suite.name()));
            let finding = suite.run(&scratch, options.seeds)?;
            let event = events.iter().find(|event| event.bug == bug.name);
            let is_shown = |finding: &Finding| event.is_some_and(|event| finding.shows(&bug.rule, event));
            let is_shown = finding.as_ref().is_some_and(is_shown);
            is_all &= is_shown;
            if let Some(finding) = &finding {
                scratch.save(&format!("{}-{}.txt", bug.name, suite.name()), &finding.output)?;
            }
            println!("{}", row(bug, suite, finding.as_ref(), event.filter(|_| is_shown)));
        }
        scratch.restore()?;
    }
    progress.report(bugs.len(), if is_all { "all found" } else { "not all found" });
    Ok(is_all)
}

/// Progress of a run, on stderr.
struct Progress {
    of: usize,
    began: Instant,
}

impl Progress {
    /// Reports the next step.
    fn report(&self, number: usize, step: &str) {
        eprintln!("{:5} s  {number:2}/{}  {step}", self.began.elapsed().as_secs(), self.of);
    }
}

fn row(bug: &PlantedBug, suite: Suite, finding: Option<&Finding>, shown: Option<&ExpectedEvent>) -> String {
    let (at, violation) = match finding {
        Some(finding) => (finding.at.as_str(), finding.violation.as_str()),
        None => ("not found", ""),
    };
    let event = shown.map_or("not shown", |shown| &shown.event);
    let lines = finding.map_or(0, Finding::lines);
    format!("| {} | {} | {} | {at} | {violation} | {event} | {lines} |", bug.title, bug.rule, suite.name())
}

/// Returns all planted bugs, by name.
fn bugs(root: &Path) -> io::Result<Vec<PlantedBug>> {
    let mut bugs = Vec::new();
    for entry in fs::read_dir(root.join("crates/xtask/planted"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "patch") {
            bugs.push(PlantedBug::read(&path)?);
        }
    }
    bugs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(bugs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_has_an_event_in_its_timeline() -> io::Result<()> {
        let root = crate::workspace();
        let page = fs::read_to_string(root.join("docs/timeline.md"))?;
        let events = timeline::expected(&root.join("crates/xtask/planted"))?;
        let names =
            |events: &[ExpectedEvent]| events.iter().map(|event| event.bug.clone()).collect::<Vec<_>>();
        assert_eq!(names(&events), bugs(&root)?.into_iter().map(|bug| bug.name).collect::<Vec<_>>());
        for event in events {
            assert!(page.contains(&format!("\n| `{}` |", event.event)), "no event is {}", event.event);
        }
        Ok(())
    }

    #[test]
    fn every_patch_applies() -> io::Result<()> {
        let root = crate::workspace();
        let bugs = bugs(&root)?;
        assert!(bugs.len() >= 10, "{} bugs", bugs.len());
        for bug in bugs {
            let applied = scratch::apply(&root, &bug.path, &["--check"]);
            assert!(
                applied.is_ok(),
                "{applied:?}; plant the bug again by hand, and write crates/xtask/planted/{}.patch \
                 with `git diff`, below the three lines of its head",
                bug.name
            );
        }
        Ok(())
    }
}
