//! Operators' commands to functions at given times: what `--control` of `rivulet run` and `rivulet up` reads.
//!
//! A line is `TIME FUNCTION COMMAND...`: the time since the first packet, or of `up` since the start (`5s`, `250ms`), the function's name in the
//! policy, and words that the function understands. `#` begins a comment.

use std::collections::VecDeque;
use std::path::Path;

use anyhow::{Context, bail};
use nf::config::Nanos;
use node::{Assembly, Runner};

/// Commands, in order of their times.
#[derive(Debug, Default)]
pub struct Script {
    commands: VecDeque<Command>,
    /// The time of the first packet.
    start_ns: Option<u64>,
}

#[derive(Debug)]
struct Command {
    after_ns: u64,
    stage: usize,
    words: String,
    place: String,
}

impl Script {
    /// Reads the commands of a file, for the functions of this assembly.
    pub fn read(path: &Path, assembly: &Assembly) -> anyhow::Result<Script> {
        let text = crate::texts::read(path)?;
        let mut commands = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let place = format!("{}:{}", path.display(), number + 1);
            commands.push(command(line, assembly, &place)?);
        }
        commands.sort_by_key(|command| command.after_ns);
        Ok(Script { commands: commands.into(), start_ns: None })
    }

    /// Whether a command is to be carried out before a packet of this time.
    pub fn is_due(&mut self, now_ns: u64) -> bool {
        let start_ns = *self.start_ns.get_or_insert(now_ns);
        self.commands.front().is_some_and(|next| start_ns.saturating_add(next.after_ns) <= now_ns)
    }

    /// Carries out the commands that are due.
    pub fn carry_out(&mut self, now_ns: u64, runner: &mut Runner) -> anyhow::Result<()> {
        self.carry_out_by(now_ns, |stage, words| Ok(runner.control(stage, words)?))
    }

    /// The same, by whoever knows the functions by their numbers.
    pub fn carry_out_by(
        &mut self,
        now_ns: u64,
        mut control: impl FnMut(usize, &str) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        while self.is_due(now_ns) {
            let Some(command) = self.commands.pop_front() else { break };
            control(command.stage, &command.words).with_context(|| command.place.clone())?;
        }
        Ok(())
    }
}

fn command(line: &str, assembly: &Assembly, place: &str) -> anyhow::Result<Command> {
    let mut words = line.splitn(3, char::is_whitespace);
    let (Some(time), Some(name), Some(command)) = (words.next(), words.next(), words.next()) else {
        bail!("{place}: expected `TIME FUNCTION COMMAND`, such as `5s lb server web1 down`");
    };
    let after: Nanos = time.parse().with_context(|| format!("{place}:1"))?;
    let Some(stage) = assembly.names.iter().position(|known| known == name) else {
        bail!("{place}: the chain has no function `{name}`; there are: {}", assembly.names.join(", "));
    };
    Ok(Command { after_ns: after.0, stage, words: command.trim().to_owned(), place: place.to_owned() })
}
