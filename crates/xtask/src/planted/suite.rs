//! The suites of tests that find planted bugs.

use std::io;
use std::process::Command;

use super::scratch::Scratch;
use super::timeline::{self, ExpectedEvent};

/// Runs a program with limits on memory, in KiB, and time, in seconds: a bug may fill the one, and
/// make the run last forever, which counts as a violation.
const LIMITED: &str = "ulimit -v 4000000; exec timeout 900 cargo \"$@\"";

/// Seeds of the first run of a suite; later ones have four times as many. All begin with the first:
/// a few seeds alone may not show what a test must have seen.
const SEEDS_AT_FIRST: u64 = 4;

/// Characters of a message that are shown.
const MESSAGE_MAX: usize = 160;

/// A suite of tests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// The cluster on a simulated network, by seeds.
    Cluster,
    /// Random schedules of dispatcher and units, and every order of small ones.
    Protocol,
    /// The models.
    Models,
}

/// The first violation.
pub struct Finding {
    /// The seed or case that found it: all before it passed.
    pub at: String,
    /// The test, and its message.
    pub violation: String,
    /// The output of the test that failed first.
    pub output: String,
}

impl Finding {
    /// Returns true if the failure names the rule, and marks a line of its timeline with the event.
    pub fn shows(&self, rule: &str, event: &ExpectedEvent) -> bool {
        let named = timeline::violated(&self.output);
        let marked = timeline::marked(&self.output);
        named.is_some_and(|named| names(named, rule)) && marked.is_some_and(|line| event.is_in(line))
    }

    /// Returns the number of lines of the timeline.
    pub fn lines(&self) -> usize {
        timeline::lines(&self.output).len()
    }
}

impl Suite {
    pub const ALL: [Suite; 3] = [Suite::Cluster, Suite::Protocol, Suite::Models];

    /// Returns the suite of this name.
    pub fn of_name(name: &str) -> Option<Suite> {
        Suite::ALL.into_iter().find(|suite| suite.name() == name)
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Suite::Cluster => "cluster",
            Suite::Protocol => "protocol",
            Suite::Models => "models",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Suite::Cluster => &["test", "-p", "cluster", "--test", "simulated"],
            Suite::Protocol => &["test", "-p", "protocol", "--test", "unit"],
            Suite::Models => &["test", "-p", "models", "--tests", "--no-fail-fast"],
        }
    }

    /// Arguments that select tests. Tests of single rules are left out: they would find a bug that
    /// breaks their own rule, and show nothing of other bugs.
    fn filters(self) -> &'static [&'static str] {
        match self {
            Suite::Cluster => &[],
            Suite::Protocol => &["schedules::", "both_ends::", "groups::", "model::"],
            // Those break rules themselves.
            Suite::Models => &["--skip", "planted_faults"],
        }
    }

    /// Runs the suite in the copy until a test fails; `None` if none does.
    ///
    /// # Errors
    /// If the copy cannot be built.
    pub fn run(self, scratch: &Scratch, seeds: u64) -> io::Result<Option<Finding>> {
        let built = cargo(scratch, &["cargo"]).args(self.arguments()).arg("--no-run").output()?;
        if !built.status.success() {
            let errors = String::from_utf8_lossy(&built.stderr);
            return Err(io::Error::other(format!("the copy cannot be built:\n{errors}")));
        }
        let mut end = SEEDS_AT_FIRST;
        loop {
            let mut run = cargo(scratch, &["sh", "-c", LIMITED, "cargo"]);
            run.args(self.arguments()).args(["--", "--test-threads", "1"]).args(self.filters());
            if self == Suite::Cluster {
                run.env("RIVULET_SEEDS", format!("0..{}", end.min(seeds)));
            }
            let outcome = run.output()?;
            if !outcome.status.success() {
                let text = String::from_utf8_lossy(&outcome.stdout);
                let output = first_failed(&text).to_owned();
                return Ok(Some(Finding { at: seed_or_case(&text), violation: violation(&text), output }));
            }
            if self != Suite::Cluster || end >= seeds {
                return Ok(None);
            }
            end *= 4;
        }
    }
}

/// Returns a call of cargo in the copy.
fn cargo(scratch: &Scratch, program: &[&str]) -> Command {
    let mut command = Command::new(program[0]);
    command
        .args(&program[1..])
        .current_dir(&scratch.tree)
        .env("CARGO_TARGET_DIR", &scratch.build)
        // Quicker to build.
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        // Enough for a case of few flows and steps.
        .env("PROPTEST_MAX_SHRINK_ITERS", "200")
        .env_remove("RIVULET_DEEP")
        .env_remove("RIVULET_SEEDS");
    command
}

/// Returns true if a rule is the one of this section, such as `design.md 3.8`.
fn names(rule: &str, section: &str) -> bool {
    rule.match_indices(section)
        .any(|(at, found)| !rule[at + found.len()..].starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns the output of the test that failed first.
fn first_failed(text: &str) -> &str {
    let failed = text.split("\n---- ").nth(1).unwrap_or_default();
    failed.split_once('\n').map_or("", |(_, output)| output)
}

/// Returns the seed, or the number of the case, of the test that failed first, if it has any.
fn seed_or_case(text: &str) -> String {
    let failed = text.split("\n---- ").nth(1).unwrap_or_default();
    let number = |line: &str, before: &str| {
        let rest = line.split_once(before)?.1;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    let mut seeds = failed.lines().filter(|line| line.starts_with("seed "));
    // A test prints the seed before it begins; a failure repeats it.
    match seeds.next_back().and_then(|line| number(line, "seed ")) {
        Some(seed) => format!("seed {seed}"),
        None => {
            let passed = failed.lines().find_map(|line| number(line, "successes: "));
            passed.map_or(String::new(), |passed| format!("case {}", passed + 1))
        }
    }
}

/// Returns the name of the test that failed first, and its message.
fn violation(text: &str) -> String {
    let Some((_, failed)) = text.split_once("\n---- ") else {
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        return format!("the run did not end in order: {}", last.unwrap_or_default());
    };
    let test = failed.split(" stdout").next().unwrap_or_default();
    let test = test.rsplit("::").next().unwrap_or_default();
    let message = failed.split_once("panicked at ").and_then(|(_, rest)| rest.split_once('\n'));
    let message = message.map_or("", |(_, rest)| rest).lines().next().unwrap_or_default();
    // Faults of the seed: they are long, and follow from it.
    let message = message
        .strip_prefix("seed ")
        .and_then(|rest| rest.split_once(" }: "))
        .map_or(message, |(_, rest)| rest);
    let message: String = message.replace('|', "/").chars().take(MESSAGE_MAX).collect();
    format!("`{test}`: {message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_read_from_the_output() {
        let text = "test a ... FAILED\n\nfailures:\n\n---- group::a stdout ----\nseed 0, packet\nseed 1, flow\n\n\
                    thread 'group::a' panicked at crates/x.rs:1:1:\nseed 1, F { a: 0 }: a packet left twice\nnote: no\n";
        assert_eq!(seed_or_case(text), "seed 1");
        assert_eq!(violation(text), "`a`: a packet left twice");
        let text = "\n---- b stdout ----\n\nthread 'b' panicked at x.rs:1:1:\nTest failed: two writers.\n\
                    \tsuccesses: 3\n";
        assert_eq!(seed_or_case(text), "case 4");
        assert!(violation("").starts_with("the run did not end in order"));
    }
}
