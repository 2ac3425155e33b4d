//! Operators' commands to functions at given times: what `--control` of `rivulet run` and
//! `rivulet up` reads.
//!
//! A line is `TIME FUNCTION COMMAND...`: the time since the first packet, or of `up` since the
//! start (`5s`, `250ms`), the function's name in the policy, and words that the function
//! understands. `#` begins a comment. The functions check all commands when the file is read, so
//! that a misspelt line is found before the first packet.

use std::collections::VecDeque;
use std::path::Path;

use anyhow::bail;
use nf::ControlError;
use runtime::report::CommandsReport;
use runtime::{Assembly, Runner};
use values::Nanos;

/// Wrong lines that are shown; the others are counted.
const SHOWN_MAX: usize = 10;

/// Commands, in order of their times.
#[derive(Debug, Default)]
pub struct Script {
    commands: VecDeque<Command>,
    /// The time of the first packet.
    start_ns: Option<u64>,
    /// What became of commands; none if there were none.
    counts: Option<CommandsReport>,
}

#[derive(Debug)]
struct Command {
    after_ns: u64,
    stage: usize,
    words: String,
    /// The file and the line.
    place: String,
    /// The line as it was read.
    line: String,
}

impl Script {
    /// Reads the commands of a file, for the functions of this assembly, which check them.
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
            wrong.push(format!("{more} more lines are wrong"));
        }
        if !wrong.is_empty() {
            bail!("{}", wrong.join("\n"));
        }
        let counts = (!commands.is_empty()).then(CommandsReport::default);
        commands.sort_by_key(|command| command.after_ns);
        Ok(Script { commands: commands.into(), start_ns: None, counts })
    }

    /// Whether a command is to be carried out before a packet of this time.
    pub fn is_due(&mut self, now_ns: u64) -> bool {
        let start_ns = *self.start_ns.get_or_insert(now_ns);
        self.commands.front().is_some_and(|next| start_ns.saturating_add(next.after_ns) <= now_ns)
    }

    /// Carries out the commands that are due; returns what is to be said of each.
    pub fn carry_out(&mut self, now_ns: u64, runner: &mut Runner) -> Vec<String> {
        let Ok(said) = self.carry_out_by::<std::convert::Infallible>(now_ns, |stage, words| {
            Ok(runner.control(stage, words))
        });
        said
    }

    /// The same, by whoever knows the functions by their numbers. One that a function refuses is
    /// counted, and the others follow.
    ///
    /// # Errors
    /// Those of `control` that are not the function's.
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
                    counts.carried_out += 1;
                    said.push(format!("rivulet: {place}: carried out: {line}"));
                }
                Err(why) => {
                    counts.refused += 1;
                    said.push(format!("rivulet: {place}: refused: {line}: {why}"));
                }
            }
        }
        Ok(said)
    }

    /// What became of commands so far; none if there were none.
    pub fn counts(&self) -> Option<CommandsReport> {
        self.counts
    }
}

/// Reads a line; or says what is wrong with it.
fn command(line: &str, assembly: &Assembly, place: &str) -> Result<Command, String> {
    let mut words = line.splitn(3, char::is_whitespace);
    let (Some(time), Some(name), Some(words)) = (words.next(), words.next(), words.next()) else {
        return Err("expected `TIME FUNCTION COMMAND`, such as `5s lb server web1 down`".to_owned());
    };
    let after: Nanos = time.parse().map_err(|error| format!("`{time}`: {error}"))?;
    let Some(stage) = assembly.names.iter().position(|known| known == name) else {
        return Err(format!("the chain has no function `{name}`; there are: {}", assembly.names.join(", ")));
    };
    let words = words.trim();
    if let Some(function) = assembly.chain.stages().get(stage) {
        function.check_command(words).map_err(|why| format!("{name}: {why}"))?;
    }
    let (place, line) = (place.to_owned(), line.to_owned());
    Ok(Command { after_ns: after.0, stage, words: words.to_owned(), place, line })
}
