//! A program in a network namespace.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::SyncSender;

use anyhow::{Context, bail};
use runtime::external::LegacyPlan;
use rustix::process::{Pid, Signal, kill_process_group};

use super::Happening;
use super::output::ProgramOutput;
use super::remains::{Mark, VARIABLE};

/// A running program, the leader of a process group.
pub(super) struct Program {
    id: u32,
}

impl Program {
    /// Starts the program of a plan. Its output and its end are sent.
    pub fn start(
        plan: &LegacyPlan,
        mark: &Mark,
        output: &ProgramOutput,
        sender: SyncSender<Happening>,
    ) -> anyhow::Result<Program> {
        let mut child = command(plan, mark, &plan.command)?
            .envs(plan.environment.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run `ip`; it is part of iproute2")?;
        let id = child.id();
        if let Some(from) = child.stdout.take() {
            output.copy_lines(from, sender.clone())?;
        }
        if let Some(from) = child.stderr.take() {
            output.copy_lines(from, sender.clone())?;
        }
        std::thread::Builder::new().name("wait".to_owned()).spawn(move || wait(child, &sender))?;
        Ok(Program { id })
    }

    /// Returns the number of the process.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Sends SIGTERM to the program and its children.
    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
    }

    /// Kills the program and its children.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = i32::try_from(self.id).ok().and_then(Pid::from_raw) {
            // It may have ended by itself.
            let _ = kill_process_group(group, signal);
        }
    }
}

/// Returns the command that runs these words in the namespace of a plan, with this mark.
///
/// # Errors
/// If there is no such program: `ip` would not name it clearly.
pub(super) fn command(plan: &LegacyPlan, mark: &Mark, words: &[String]) -> anyhow::Result<Command> {
    let Some(program) = words.first() else { bail!("the command is empty") };
    if !is_there(program) {
        bail!("there is no program `{program}`; install it, or give its path");
    }
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &plan.netns]).args(words).env(VARIABLE, mark.as_str());
    Ok(command)
}

/// Checks for a program by its path, or by its name in the folders of `PATH`.
fn is_there(program: &str) -> bool {
    if program.contains('/') {
        return std::path::Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn wait(mut child: Child, sender: &SyncSender<Happening>) {
    let reason = match child.wait() {
        Ok(status) => describe(status),
        Err(error) => format!("cannot wait for it: {error}"),
    };
    let _ = sender.send(Happening::Exit(reason));
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}
