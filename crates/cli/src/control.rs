//! Scheduled commands to functions: the file of `--control` of `rivulet run` and `rivulet up`.
//!
//! A line is `TIME FUNCTION COMMAND...`: the time since the first packet, or for `up` since the
//! start (`5s`, `250ms`), the function's name in the policy, and a command that the function
//! understands. `#` starts a comment. Functions check all commands when the file is read, so a
//! misspelt line is reported before the first packet.

use std::collections::VecDeque;
use std::path::Path;

use anyhow::bail;
use nf::ControlError;
use runtime::report::CommandsReport;
use runtime::{Assembly, Runner};
use telemetry::event;
use values::Nanos;

use crate::messages;

/// Wrong lines that are shown; the rest are counted.
const SHOWN_MAX: usize = 10;

/// Commands, ordered by time.
#[derive(Debug, Default)]
pub struct Script {
    commands: VecDeque<Command>,
    /// The time of the first packet.
    start_ns: Option<u64>,
    /// Counts of executed and refused commands; `None` without commands.
    counts: Option<CommandsReport>,
}

#[derive(Debug)]
struct Command {
    after_ns: u64,
    stage: usize,
    words: String,
    /// File and line.
    place: String,
    /// The line as read.
    line: String,
}

impl Script {
    /// Reads a file of commands, which the functions of this assembly check.
    pub fn read(path: &Path, assembly: &Assembly) -> anyhow::Result<Script> {
        let text = crate::texts::read(path)?;
        let (mut commands, mut wrong, mut wrong_count) = (Vec::new(), Vec::new(), 0usize);
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let place = format!("{}:{}", path.display(), number + 1);
            match command(line, assembly, &place) {
                Ok(command) => commands.push(command),
                Err(why) => {
                    wrong_count += 1;
                    if wrong.len() < SHOWN_MAX {
                        wrong.push(format!("{place}: {why}"));
                    }
                }
            }
        }
        if let Some(more @ 1..) = wrong_count.checked_sub(wrong.len()) {
            wrong.push(format!("{more} more wrong lines"));
        }
        if !wrong.is_empty() {
            bail!("{}", wrong.join("\n"));
        }
        let counts = (!commands.is_empty()).then(CommandsReport::default);
        commands.sort_by_key(|command| command.after_ns);
        Ok(Script { commands: commands.into(), start_ns: None, counts })
    }

    /// Returns whether a command must be executed before a packet of this time.
    pub fn is_due(&mut self, now_ns: u64) -> bool {
        let start_ns = *self.start_ns.get_or_insert(now_ns);
        self.commands.front().is_some_and(|next| start_ns.saturating_add(next.after_ns) <= now_ns)
    }

    /// Executes the commands that have become due, and returns a line about each.
    pub fn carry_out(&mut self, now_ns: u64, runner: &mut Runner) -> Vec<String> {
        let Ok(said) = self.carry_out_by::<std::convert::Infallible>(now_ns, |stage, words| {
            Ok(runner.control(stage, words))
        });
        said
    }

    /// Does the same with a function that executes a command of a stage. A refused command is
    /// counted, and the next ones follow.
    ///
    /// # Errors
    /// Errors of `control` other than a refusal.
    pub fn carry_out_by<E>(
        &mut self,
        now_ns: u64,
        mut control: impl FnMut(usize, &str) -> Result<Result<(), ControlError>, E>,
    ) -> Result<Vec<String>, E> {
        let mut said = Vec::new();
        while self.is_due(now_ns) {
            let Some(Command { stage, words, place, line, .. }) = self.commands.pop_front() else { break };
            let counts = self.counts.get_or_insert_default();
            match control(stage, &words)? {
                Ok(()) => {
                    counts.executed += 1;
                    match messages::is_structured() {
                        true => event::command_executed(&place, &line),
                        false => said.push(format!("rivulet: {place}: executed: {line}")),
                    }
                }
                Err(why) => {
                    counts.refused += 1;
                    match messages::is_structured() {
                        true => event::command_refused(&place, &line, &why),
                        false => said.push(format!("rivulet: {place}: refused: {line}: {why}")),
                    }
                }
            }
        }
        Ok(said)
    }

    /// Counts of executed and refused commands; `None` without commands.
    pub fn counts(&self) -> Option<CommandsReport> {
        self.counts
    }
}

/// Parses a line.
fn command(line: &str, assembly: &Assembly, place: &str) -> Result<Command, String> {
    let mut words = line.splitn(3, char::is_whitespace);
    let (Some(time), Some(name), Some(words)) = (words.next(), words.next(), words.next()) else {
        return Err("expected `TIME FUNCTION COMMAND`, such as `5s lb server web1 down`".to_owned());
    };
    let after: Nanos = time.parse().map_err(|error| format!("`{time}`: {error}"))?;
    let Some(stage) = assembly.names.iter().position(|known| known == name) else {
        return Err(format!("the policy has no function `{name}`; it has: {}", assembly.names.join(", ")));
    };
    let words = words.trim();
    if let Some(function) = assembly.graph.stages().get(stage) {
        function.check_command(words).map_err(|why| format!("{name}: {why}"))?;
    }
    let (place, line) = (place.to_owned(), line.to_owned());
    Ok(Command { after_ns: after.0, stage, words: words.to_owned(), place, line })
}
