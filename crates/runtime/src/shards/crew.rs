//! The workers at work: a thread for each, and what is asked of all of them together.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use hdrhistogram::Histogram;
use io::port::Interface;
use nf::ControlError;

use super::{Bell, Part, Shard};
use crate::live::{Change, Live};
use crate::report::{Report, WorkerReport};
use crate::runner::{Output, Runner};

/// How long workers may take until nothing is under way between them, once they receive nothing
/// more.
const SETTLING: Duration = Duration::from_secs(5);

/// Workers on threads of their own, each of which drives its part of the interfaces.
pub struct Workers<O: Output> {
    workers: Vec<Option<Worker<O>>>,
    changes: Receiver<Change>,
}

/// A worker's place.
pub struct Place<O> {
    /// What it runs.
    pub part: Part,
    /// Its part of each port's interface.
    pub interfaces: Vec<(u16, Interface)>,
    /// What is told what comes out.
    pub output: O,
}

/// What is known of a worker's thread.
struct Worker<O: Output> {
    orders: Sender<Order>,
    bell: Arc<Bell>,
    thread: JoinHandle<Result<Option<Ended<O>>, WorkersError>>,
}

/// What a worker leaves.
struct Ended<O> {
    seen: Seen,
    output: O,
}

/// What a worker has counted.
struct Seen {
    /// The worker's number.
    number: usize,
    report: Report,
    latency: Histogram<u64>,
    busy_s: f64,
    worker: WorkerReport,
}

/// What a worker is to do, and whom to tell.
enum Order {
    /// Tell what it has counted.
    Report(SyncSender<Box<Seen>>),
    /// Carry out a command to the function with this number in the graph.
    Control(usize, Box<str>, SyncSender<Result<(), ControlError>>),
    /// Receive nothing more.
    Stop,
    /// Tell how many packets it has handed over, and how many it has taken and dealt with.
    Count(SyncSender<(u64, u64)>),
    /// End all flows.
    Finish,
}

/// What comes out cannot be taken.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Workers cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WorkersError {
    /// What comes out cannot be taken.
    #[error(transparent)]
    Output(Failure),
    /// A function does not know a command.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// An interface does not tell what it is like.
    #[error("cannot learn what the interfaces are like: {0}")]
    Interface(std::io::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread for a worker: {0}")]
    Thread(#[from] std::io::Error),
}

impl<O: Output<Error: Into<Failure>> + Send + 'static> Workers<O> {
    /// Has each part work on a thread of its own.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(parts: impl IntoIterator<Item = Place<O>>) -> Result<Workers<O>, WorkersError> {
        let (told, changes) = channel();
        let mut workers = Vec::new();
        for (number, Place { part, interfaces, output }) in parts.into_iter().enumerate() {
            let (orders, ordered) = channel();
            let bell = Arc::clone(part.shard.bell());
            // All see the same changes of an interface: one tells.
            let told = (number == 0).then(|| told.clone());
            let thread = std::thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || work(part, interfaces, output, &ordered, told.as_ref()))?;
            workers.push(Some(Worker { orders, bell, thread }));
        }
        Ok(Workers { workers, changes })
    }

    /// Waits for up to so long until an interface has changed, and says what has.
    ///
    /// # Errors
    /// If a worker could not go on.
    pub fn wait(&mut self, timeout: Duration) -> Result<Vec<Change>, WorkersError> {
        let mut changes = match self.changes.recv_timeout(timeout) {
            Ok(change) => vec![change],
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Vec::new(),
        };
        changes.extend(self.changes.try_iter());
        let is_over = |worker: &Option<Worker<O>>| worker.as_ref().is_some_and(|w| w.thread.is_finished());
        if let Some(number) = self.workers.iter().position(is_over) {
            self.join(number)?;
        }
        Ok(changes)
    }

    /// What all have counted so far.
    ///
    /// # Errors
    /// If a worker could not go on.
    pub fn report(&mut self) -> Result<Report, WorkersError> {
        Ok(together(self.ask(Order::Report)?.into_iter().map(|seen| *seen).collect()))
    }

    /// Carries out an operator's command to the function with this number in the graph: at all
    /// workers.
    ///
    /// # Errors
    /// If the function does not know it, or there is no such function; or if a worker could not go
    /// on.
    pub fn control(&mut self, stage: usize, command: &str) -> Result<(), WorkersError> {
        for number in 0..self.workers.len() {
            // One after the other: what the first one refuses, the others do not hear of.
            let answer = self.ask_one(number, |to| Order::Control(stage, command.into(), to))?;
            answer.unwrap_or(Ok(()))?;
        }
        Ok(())
    }

    /// Ends the run: what is under way is processed and sent, all flows end. The report, and what
    /// took what came out.
    ///
    /// # Errors
    /// If a worker could not go on.
    pub fn finish(mut self) -> Result<(Report, Vec<O>), WorkersError> {
        self.order_all(|| Order::Stop);
        let end = std::time::Instant::now() + SETTLING;
        loop {
            // All that was handed over when the second sum was made was dealt with when the first
            // one was.
            let taken: u64 = self.ask(Order::Count)?.iter().map(|&(_, taken)| taken).sum();
            let handed: u64 = self.ask(Order::Count)?.iter().map(|&(handed, _)| handed).sum();
            if taken == handed || std::time::Instant::now() > end {
                break;
            }
        }
        let mut ended = Vec::new();
        // The first one shared what functions share: it is the last one to end.
        for number in (0..self.workers.len()).rev() {
            if let Some(worker) = &self.workers[number] {
                worker.order(Order::Finish);
            }
            ended.extend(self.join(number)?);
        }
        ended.reverse();
        let (seen, outputs) = ended.into_iter().map(|Ended { seen, output }| (seen, output)).unzip();
        Ok((together(seen), outputs))
    }

    fn order_all(&self, order: impl Fn() -> Order) {
        self.workers.iter().flatten().for_each(|worker| worker.order(order()));
    }

    /// Asks all, at once, and waits for what they say.
    fn ask<T>(&mut self, order: fn(SyncSender<T>) -> Order) -> Result<Vec<T>, WorkersError> {
        let (to, answers) = sync_channel(self.workers.len().max(1));
        let mut said = Vec::new();
        self.order_all(|| order(to.clone()));
        drop(to);
        while let Ok(answer) = answers.recv() {
            said.push(answer);
        }
        if said.len() < self.workers.len() {
            self.wait(Duration::ZERO)?;
        }
        Ok(said)
    }

    fn ask_one<T>(
        &mut self,
        number: usize,
        order: impl FnOnce(SyncSender<T>) -> Order,
    ) -> Result<Option<T>, WorkersError> {
        let (to, answer) = sync_channel(1);
        if let Some(worker) = &self.workers[number] {
            worker.order(order(to));
        }
        match answer.recv() {
            Ok(answer) => Ok(Some(answer)),
            Err(_) => self.wait(Duration::ZERO).map(|_| None),
        }
    }

    /// Waits for a worker's end.
    fn join(&mut self, number: usize) -> Result<Option<Ended<O>>, WorkersError> {
        let Some(worker) = self.workers[number].take() else { return Ok(None) };
        match worker.thread.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl<O: Output> Worker<O> {
    fn order(&self, order: Order) {
        // One that is over is found to be when it is waited for.
        let _ = self.orders.send(order);
        self.bell.ring();
    }
}

/// Works until it is told to finish, or nobody is left to tell it.
fn work<O: Output<Error: Into<Failure>>>(
    part: Part,
    interfaces: Vec<(u16, Interface)>,
    mut output: O,
    orders: &Receiver<Order>,
    changes: Option<&Sender<Change>>,
) -> Result<Option<Ended<O>>, WorkersError> {
    let mut live = Live::new(Runner::of_part(part), interfaces).map_err(WorkersError::Interface)?;
    loop {
        // Who asks may be gone; then nobody wants to know.
        match orders.try_recv() {
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(None),
            Ok(Order::Report(to)) => {
                let _ = to.send(Box::new(Seen::of(&mut live)));
            }
            Ok(Order::Control(stage, command, to)) => {
                let _ = to.send(live.runner_mut().control(stage, &command));
            }
            Ok(Order::Stop) => live.receive_no_more(),
            Ok(Order::Count(to)) => {
                let counters = live.runner().shard().map(Shard::counters).unwrap_or_default();
                let _ = to.send((counters.handed_over, counters.taken));
            }
            Ok(Order::Finish) => {
                let report = live.finish(&mut output).map_err(failed)?;
                return Ok(Some(Ended { seen: Seen { report, ..Seen::of(&mut live) }, output }));
            }
        }
        live.round(&mut output).map_err(failed)?;
        for change in live.look() {
            if let Some(changes) = changes {
                let _ = changes.send(change);
            }
        }
    }
}

fn failed(error: impl Into<Failure>) -> WorkersError {
    WorkersError::Output(error.into())
}

impl Seen {
    fn of(live: &mut Live) -> Seen {
        let report = live.report();
        let runner = live.runner();
        Seen {
            number: runner.shard().map_or(0, |shard| shard.place().0),
            report,
            latency: runner.latency().clone(),
            busy_s: runner.busy_s(),
            worker: WorkerReport {
                counters: runner.shard().map(Shard::counters).unwrap_or_default(),
                asleep_share: live.asleep(),
            },
        }
    }
}

/// One report of all. The first worker's is what the others' are added to: it has what functions
/// share.
fn together(mut seen: Vec<Seen>) -> Report {
    seen.sort_by_key(|seen| seen.number);
    let (mut workers, mut busy_s, mut latency) = (Vec::new(), 0.0, crate::report::new_histogram());
    let mut all: Option<Report> = None;
    for seen in seen {
        workers.push(seen.worker);
        busy_s += seen.busy_s;
        let added = latency.add(&seen.latency);
        debug_assert!(added.is_ok(), "all have the same bounds");
        match &mut all {
            None => all = Some(seen.report),
            Some(all) => all.add_worker(seen.report),
        }
    }
    let mut all = all.unwrap_or_default();
    all.workers = workers;
    all.set_latency(&latency);
    if busy_s > 0.0 {
        all.timing.packets_per_second = all.packets_in as f64 / busy_s;
    }
    all
}
