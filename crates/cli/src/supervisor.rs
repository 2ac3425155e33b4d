//! `rivulet supervise`: runs the program of a legacy node in a namespace, for `rivulet up`.
//!
//! `rivulet up` gives up its privileges and can no longer run programs, so it starts a
//! supervisor for each node before that. The supervisor reads its plan from standard input, and
//! ends when that is closed: also if the process at the other end was killed. It reports to
//! standard output, a JSON object per line.

mod lock;
mod namespace;
mod output;
mod program;
mod remains;

use std::io::{BufRead, Read, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use runtime::external::LegacyPlan;
use serde::{Deserialize, Serialize};

use crate::signals::{self, Signals};
use lock::NodeLock;
use namespace::Namespace;
use output::ProgramOutput;
use program::Program;
use remains::Mark;

/// Runs a program in a network namespace for `rivulet up`; of no use elsewhere
#[derive(Debug, clap::Args)]
pub struct Args {}

/// A report of the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SupervisorNews {
    /// The namespace and its interfaces are there.
    Ready,
    /// The node cannot be made, for this reason; the supervisor ends.
    Failed(String),
    /// The program runs as this process.
    Started(u32),
    /// The program ended or cannot be started, for this reason.
    Ended(String),
    /// The program wrote this line.
    Line(String),
    /// The program wrote more or longer lines than the log takes: the numbers of dropped and cut
    /// lines since the start.
    Limited { dropped: u64, cut: u64 },
}

/// An event that the supervisor's thread waits for.
enum Happening {
    News(SupervisorNews),
    /// The program's process has ended.
    Exit(String),
    /// `rivulet up` has ended.
    Orphaned,
}

/// Reports that wait to be written; further lines of the program wait in its pipe.
const NEWS_MAX: usize = 64;
/// Limit on the delay before a restart.
const RESTART_DELAY_MAX: Duration = Duration::from_secs(60);
/// A program that ran for this long is restarted after the first delay again.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// Interval of looks for signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Runs the command.
pub fn run(_: &Args) -> anyhow::Result<ExitCode> {
    let signals = Signals::of_batch().context("cannot install signal handlers")?;
    let mut plan = String::new();
    let mut input = std::io::stdin().lock();
    input.read_line(&mut plan).context("cannot read the plan")?;
    let plan: LegacyPlan = serde_json::from_str(&plan)
        .context("standard input has no plan; `rivulet up` starts this command for its legacy nodes")?;
    drop(input);
    let (sender, happenings) = sync_channel(NEWS_MAX);
    watch_input(sender.clone()).context("cannot start a thread")?;
    let made = NodeLock::take(&plan, &signals).and_then(|mut lock| {
        let namespace = Namespace::make(&plan, &mut lock)?;
        Ok((lock, namespace))
    });
    let (_lock, namespace) = match made {
        Ok(made) => made,
        Err(error) => {
            write(&SupervisorNews::Failed(format!("{error:#}")));
            return Ok(ExitCode::FAILURE);
        }
    };
    write(&SupervisorNews::Ready);
    let supervision = Supervision { plan: &plan, happenings, output: ProgramOutput::new(Instant::now()) };
    if !plan.command.is_empty() {
        supervision.run(namespace.mark(), &sender);
    } else {
        supervision.wait_until_orphaned();
    }
    namespace.remove();
    Ok(ExitCode::SUCCESS)
}

/// The supervision of a plan's program.
struct Supervision<'p> {
    plan: &'p LegacyPlan,
    happenings: Receiver<Happening>,
    output: ProgramOutput,
}

impl Supervision<'_> {
    /// Starts the program, and starts it again when it ends, until this process must end.
    fn run(&self, mark: &Mark, sender: &SyncSender<Happening>) {
        let first_delay = Duration::from_nanos(self.plan.restart_ns);
        let mut delay = first_delay;
        loop {
            let started = Instant::now();
            let reason = match Program::start(self.plan, mark, &self.output, sender.clone()) {
                Ok(mut program) => {
                    write(&SupervisorNews::Started(program.id()));
                    match self.wait_for_exit(None) {
                        Some(reason) => reason,
                        None => return self.end(&mut program),
                    }
                }
                Err(error) => format!("{error:#}"),
            };
            write(&SupervisorNews::Ended(reason));
            if started.elapsed() >= STABLE_AFTER {
                delay = first_delay;
            }
            if self.wait_for_time(delay) {
                return;
            }
            delay = (delay * 2).min(RESTART_DELAY_MAX.max(first_delay));
        }
    }

    /// Ends the program: first by SIGTERM, then by SIGKILL.
    fn end(&self, program: &mut Program) {
        program.terminate();
        let until = Instant::now() + Duration::from_nanos(self.plan.stop_timeout_ns);
        if self.wait_for_exit(Some(until)).is_none() {
            program.kill();
        }
    }

    /// Waits for the end of the program, and returns its reason. Without a time, also returns when
    /// this process must end.
    fn wait_for_exit(&self, until: Option<Instant>) -> Option<String> {
        loop {
            match self.next(SIGNAL_INTERVAL) {
                Ok(Happening::News(news)) => write(&news),
                Ok(Happening::Exit(reason)) => return Some(reason),
                Ok(Happening::Orphaned) if until.is_none() => return None,
                Ok(Happening::Orphaned) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
            match until {
                Some(until) if Instant::now() >= until => return None,
                None if signals::is_stopped() => return None,
                _ => {}
            }
        }
    }

    /// Waits for this time, and returns true if this process must end.
    fn wait_for_time(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while Instant::now() < until {
            match self.next(SIGNAL_INTERVAL.min(until - Instant::now())) {
                Ok(Happening::News(news)) => write(&news),
                Ok(Happening::Orphaned) | Err(RecvTimeoutError::Disconnected) => return true,
                Ok(Happening::Exit(_)) | Err(RecvTimeoutError::Timeout) => {}
            }
            if signals::is_stopped() {
                return true;
            }
        }
        false
    }

    fn wait_until_orphaned(&self) {
        while !self.wait_for_time(STABLE_AFTER) {}
    }

    /// Returns the next event, and reports lines that are not in the log.
    fn next(&self, timeout: Duration) -> Result<Happening, RecvTimeoutError> {
        if let Some(news) = self.output.news(Instant::now()) {
            write(&news);
        }
        self.happenings.recv_timeout(timeout)
    }
}

/// Reports when standard input is closed.
fn watch_input(sender: SyncSender<Happening>) -> std::io::Result<()> {
    std::thread::Builder::new().name("input".to_owned()).spawn(move || {
        let mut buffer = [0; 64];
        while std::io::stdin().read(&mut buffer).is_ok_and(|len| len > 0) {}
        let _ = sender.send(Happening::Orphaned);
    })?;
    Ok(())
}

/// Writes a report. A reader that is gone has closed standard input, too.
fn write(news: &SupervisorNews) {
    let Ok(mut line) = serde_json::to_string(news) else { return };
    line.push('\n');
    let mut output = std::io::stdout().lock();
    let _ = output.write_all(line.as_bytes()).and_then(|()| output.flush());
}
