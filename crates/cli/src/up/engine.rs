//! Execution of the policy: on this thread, or on several workers.

use std::cell::RefCell;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use io::port::Interface;
use nf::{Alert, Event, FlowReport};
use packet::Packet;
use runtime::shards::{WorkerPart, WorkerSetup, Workers, WorkersError};
use runtime::{LinkChange, Live, Output, Report, Runner};

use super::mirror::{Arriving, Leaving, Mirror};
use crate::control::Script;
use observe::error::SinkError;
use observe::sinks::Sinks;

/// Sleep of this thread while workers run.
const PAUSE: Duration = Duration::from_millis(20);

/// The execution of a policy.
pub enum Engine {
    /// On this thread.
    One {
        live: Box<Live>,
        sinks: Box<Sinks>,
        /// Mirror for `rivulet capture --connect`.
        mirror: Box<Mirror>,
    },
    /// On workers, each with its own thread.
    Several {
        workers: Workers<Shared>,
        sinks: Shared,
        /// Start as an instant, and in nanoseconds since 1970.
        began: (Instant, u64),
    },
}

/// The sinks of several workers, with a lock.
#[derive(Clone)]
pub struct Shared {
    sinks: Arc<Mutex<Sinks>>,
    /// Packets bypass sinks that write none.
    takes_packets: bool,
}

impl Engine {
    /// Drives a runner from these interfaces on this thread. `sockets` accept capture clients.
    pub fn one(
        runner: Runner,
        interfaces: Vec<(u16, Interface)>,
        sinks: Sinks,
        sockets: Vec<UnixListener>,
    ) -> anyhow::Result<Engine> {
        let mirror = Mirror::new(&runner.assembly().ports);
        mirror.serve(sockets).context("cannot start the capture threads")?;
        let live = Live::new(runner, interfaces).context("cannot read the state of the interfaces")?;
        Ok(Engine::One { live: Box::new(live), sinks: Box::new(sinks), mirror: Box::new(mirror) })
    }

    /// Starts workers, each with its part of the policy and of the interfaces.
    pub fn several(
        parts: Vec<WorkerPart>,
        interfaces: Vec<Vec<(u16, Interface)>>,
        sinks: Sinks,
    ) -> anyhow::Result<Engine> {
        let takes_packets = sinks.take_packets();
        let sinks = Shared { sinks: Arc::new(Mutex::new(sinks)), takes_packets };
        let places = parts.into_iter().zip(interfaces);
        let places = places.map(|(part, interfaces)| WorkerSetup { part, interfaces, output: sinks.clone() });
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = (Instant::now(), since.as_nanos() as u64);
        Ok(Engine::Several { workers: Workers::start(places)?, sinks, began })
    }

    /// Returns the monotonic time, in nanoseconds since 1970.
    pub fn now_ns(&self) -> u64 {
        match self {
            Engine::One { live, .. } => live.now_ns(),
            Engine::Several { began: (at, at_ns), .. } => at_ns + at.elapsed().as_nanos() as u64,
        }
    }

    /// Executes the commands that have become due, and returns a line about each.
    pub fn control(&mut self, script: &mut Script, now_ns: u64) -> anyhow::Result<Vec<String>> {
        match self {
            Engine::One { live, .. } => Ok(script.carry_out(now_ns, live.runner_mut())),
            Engine::Several { workers, .. } => {
                Ok(script.carry_out_by(now_ns, |stage, words| match workers.control(stage, words) {
                    Ok(()) => Ok(Ok(())),
                    Err(WorkersError::Control(refused)) => Ok(Err(refused)),
                    Err(other) => Err(other),
                })?)
            }
        }
    }

    /// Processes packets for up to some milliseconds, and returns interfaces with a changed state.
    pub fn go_on(&mut self) -> anyhow::Result<Vec<LinkChange>> {
        match self {
            Engine::One { live, sinks, mirror } => {
                if mirror.is_on() {
                    let shown = RefCell::new(&mut **mirror);
                    live.round_with(&mut Arriving(&shown), &mut Leaving(&shown, &mut **sinks))?;
                    mirror.flush();
                } else {
                    live.round(&mut **sinks)?;
                }
                Ok(live.check_links())
            }
            Engine::Several { workers, .. } => Ok(workers.wait(PAUSE)?),
        }
    }

    /// Has frames received, or left at the ports. Workers receive always.
    pub fn set_receiving(&mut self, receives: bool) {
        if let Engine::One { live, .. } = self {
            live.set_receiving(receives);
        }
    }

    /// Returns the report so far.
    pub fn report(&mut self) -> anyhow::Result<Report> {
        let (mut report, counts) = match self {
            Engine::One { live, sinks, .. } => (live.report(), sinks.counts()),
            Engine::Several { workers, sinks, .. } => (workers.report()?, sinks.lock().counts()),
        };
        report.outputs = counts;
        Ok(report)
    }

    /// Makes the records written so far visible to readers of the files.
    pub fn flush(&mut self) -> Result<(), SinkError> {
        let now_ns = self.now_ns();
        match self {
            Engine::One { sinks, .. } => sinks.flush(now_ns),
            Engine::Several { sinks, .. } => sinks.lock().flush(now_ns),
        }
    }

    /// Writes the counters of the whole run, if `stats` is among the events.
    pub fn stats(&mut self, report: &Report) -> Result<(), SinkError> {
        let now_ns = self.now_ns();
        match self {
            Engine::One { sinks, .. } => sinks.stats(report, now_ns),
            Engine::Several { sinks, .. } => sinks.lock().stats(report, now_ns),
        }
    }

    /// Reopens files by name.
    pub fn reopen(&mut self) {
        match self {
            Engine::One { sinks, .. } => sinks.reopen(),
            Engine::Several { sinks, .. } => sinks.lock().reopen(),
        }
    }

    /// Ends the run, and completes the files. Returns messages about records that were not written.
    pub fn finish(self) -> anyhow::Result<(Report, Vec<String>)> {
        let now_ns = self.now_ns();
        let (mut report, ended) = match self {
            Engine::One { mut live, mut sinks, mirror } => {
                (*mirror).finish();
                let report = live.finish(&mut *sinks)?;
                sinks.stats(&report, now_ns)?;
                (report, sinks.finish(now_ns)?)
            }
            Engine::Several { workers, sinks, .. } => {
                let (report, _) = workers.finish()?;
                sinks.lock().stats(&report, now_ns)?;
                (report, std::mem::take(&mut *sinks.lock()).finish(now_ns)?)
            }
        };
        report.outputs = ended.counts;
        Ok((report, ended.complaints))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Sinks> {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Output for Shared {
    type Error = SinkError;

    fn packet(&mut self, port: u16, packet: &Packet) -> Result<(), SinkError> {
        if self.takes_packets { self.lock().packet(port, packet) } else { Ok(()) }
    }

    fn alert(&mut self, function: &str, alert: &Alert) -> Result<(), SinkError> {
        self.lock().alert(function, alert)
    }

    fn event(&mut self, function: &str, event: Event<'_>) -> Result<(), SinkError> {
        self.lock().event(function, event)
    }

    fn flow(&mut self, report: &FlowReport, now_ns: u64) -> Result<(), SinkError> {
        self.lock().flow(report, now_ns)
    }
}
