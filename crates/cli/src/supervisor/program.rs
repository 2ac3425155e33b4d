//! A program in a network namespace.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::SyncSender;

use anyhow::{Context, bail};
use runtime::external::LegacyPlan;
use rustix::process::{Pid, Signal, kill_process_group};

use super::{Happening, SupervisorNews};

/// Limit on the bytes of a line of the program's output; the rest is another line.
const LINE_MAX: u64 = 4096;

/// A running program, the leader of a process group.
pub(super) struct Program {
    id: u32,
}

impl Program {
    /// Starts the program of a plan. Its output and its end are sent.
    pub fn start(plan: &LegacyPlan, sender: SyncSender<Happening>) -> anyhow::Result<Program> {
        let mut child = command(plan, &plan.command)?
            .envs(plan.environment.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run `ip`; it is part of iproute2")?;
        let id = child.id();
        if let Some(output) = child.stdout.take() {
            copy_lines(output, sender.clone())?;
        }
        if let Some(output) = child.stderr.take() {
            copy_lines(output, sender.clone())?;
        }
        std::thread::Builder::new().name("wait".to_owned()).spawn(move || wait(child, &sender))?;
        Ok(Program { id })
    }

    /// Returns the number of the process.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Asks the program and its children to end.
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

/// Returns the command that runs these words in the namespace of a plan.
///
/// # Errors
/// If there is no such program: `ip` would not name it clearly.
pub(super) fn command(plan: &LegacyPlan, words: &[String]) -> anyhow::Result<Command> {
    let Some(program) = words.first() else { bail!("the command is empty") };
    if !is_there(program) {
        bail!("there is no program `{program}`; install it, or give its path");
    }
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &plan.netns]).args(words);
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

/// Sends the lines that the program writes.
fn copy_lines(output: impl Read + Send + 'static, sender: SyncSender<Happening>) -> std::io::Result<()> {
    std::thread::Builder::new().name("output".to_owned()).spawn(move || {
        let mut output = BufReader::new(output);
        loop {
            let mut line = Vec::new();
            match output.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
                Ok(0) => return,
                Ok(_) => {
                    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                    if !text.is_empty() && sender.send(Happening::News(SupervisorNews::Line(text))).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    })?;
    Ok(())
}
