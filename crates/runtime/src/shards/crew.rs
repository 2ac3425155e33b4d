//! The threads of workers, and requests to all of them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use hdrhistogram::Histogram;
use io::port::Interface;
use nf::ControlError;

use super::WorkerPart;
use crate::doorbell::{Doorbell, EventWaker};
use crate::live::{LinkChange, Live};
use crate::report::{Report, WorkerReport};
use crate::runner::{Output, Runner};

/// Limit on the time that workers take for packets between them, once they receive no more.
const SETTLE_MAX: Duration = Duration::from_secs(5);

/// Workers on threads of their own, each with sockets of its own on the interfaces.
pub struct Workers<O: Output> {
    workers: Vec<Option<Worker<O>>>,
    changes: Receiver<LinkChange>,
}

/// The parts of a worker at its thread's start.
pub struct WorkerSetup<O> {
    /// Its graph and its share of the flows.
    pub part: WorkerPart,
    /// Its sockets on the interface of each port, by the port's number.
    pub interfaces: Vec<(u16, Interface)>,
    /// Receives its output.
    pub output: O,
}

/// A worker's thread.
struct Worker<O: Output> {
    requests: Sender<Request>,
    doorbell: Arc<Doorbell<EventWaker>>,
    thread: JoinHandle<Result<Option<Finished<O>>, WorkersError>>,
}

/// The result of a worker that has finished.
struct Finished<O> {
    figures: Figures,
    output: O,
}

/// The counters of a worker.
struct Figures {
    /// The worker's number.
    number: usize,
    report: Report,
    latency: Histogram<u64>,
    busy_s: f64,
    worker: WorkerReport,
}

/// A request to a worker, with the channel for its answer.
enum Request {
    /// Return the counters.
    Report(SyncSender<Box<Figures>>),
    /// Execute a command at the NF with this number in the graph.
    Control(usize, Box<str>, SyncSender<Result<(), ControlError>>),
    /// Receive no further frames.
    Stop,
    /// Return the numbers of packets handed over, and of those taken over and processed.
    Count(SyncSender<(u64, u64)>),
    /// End all flows.
    Finish,
}

/// Reason why an output cannot take more.
pub type OutputError = Box<dyn std::error::Error + Send + Sync>;

/// Workers cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum WorkersError {
    /// The output cannot take more.
    #[error(transparent)]
    Output(OutputError),
    /// An NF refused a command.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The state of an interface cannot be read.
    #[error("cannot read the state of the interfaces: {0}")]
    Interface(std::io::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread for a worker: {0}")]
    Thread(#[from] std::io::Error),
}

impl<O: Output<Error: Into<OutputError>> + Send + 'static> Workers<O> {
    /// Starts a thread for each worker.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(workers: impl IntoIterator<Item = WorkerSetup<O>>) -> Result<Workers<O>, WorkersError> {
        let (reported, changes) = channel();
        let mut threads = Vec::new();
        for (number, WorkerSetup { part, interfaces, output }) in workers.into_iter().enumerate() {
            let (requests, received) = channel();
            let doorbell = Arc::clone(&part.shard.doorbell);
            // All see the same changes of an interface; the first one reports them.
            let reported = (number == 0).then(|| reported.clone());
            let thread = std::thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || work(part, interfaces, output, &received, reported.as_ref()))?;
            threads.push(Some(Worker { requests, doorbell, thread }));
        }
        Ok(Workers { workers: threads, changes })
    }

    /// Waits for changes of interfaces, up to `timeout`, and returns them.
    ///
    /// # Errors
    /// If a worker has failed.
    pub fn wait(&mut self, timeout: Duration) -> Result<Vec<LinkChange>, WorkersError> {
        let mut changes = match self.changes.recv_timeout(timeout) {
            Ok(change) => vec![change],
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Vec::new(),
        };
        changes.extend(self.changes.try_iter());
        let has_finished =
            |worker: &Option<Worker<O>>| worker.as_ref().is_some_and(|w| w.thread.is_finished());
        if let Some(number) = self.workers.iter().position(has_finished) {
            self.join(number)?;
        }
        Ok(changes)
    }

    /// Returns the report of all workers so far.
    ///
    /// # Errors
    /// If a worker has failed.
    pub fn report(&mut self) -> Result<Report, WorkersError> {
        Ok(merge(self.request(Request::Report)?.into_iter().map(|figures| *figures).collect()))
    }

    /// Executes an operator's command at the NF with this number in the graphs of all workers.
    ///
    /// # Errors
    /// If the NF refuses the command, or there is no such NF; or if a worker has failed.
    pub fn control(&mut self, stage: usize, command: &str) -> Result<(), WorkersError> {
        for number in 0..self.workers.len() {
            // One after the other: a command that the first worker refuses does not reach the
            // others.
            let answer = self.request_one(number, |to| Request::Control(stage, command.into(), to))?;
            answer.unwrap_or(Ok(()))?;
        }
        Ok(())
    }

    /// Ends the run: workers process and transmit pending packets, and end all flows. Returns the
    /// report, and the workers' outputs.
    ///
    /// # Errors
    /// If a worker has failed.
    pub fn finish(mut self) -> Result<(Report, Vec<O>), WorkersError> {
        self.send_all(|| Request::Stop);
        let end = std::time::Instant::now() + SETTLE_MAX;
        loop {
            // If equal, all packets of the second sum had been processed at the first one.
            let taken: u64 = self.request(Request::Count)?.iter().map(|&(_, taken)| taken).sum();
            let handed: u64 = self.request(Request::Count)?.iter().map(|&(handed, _)| handed).sum();
            if taken == handed || std::time::Instant::now() > end {
                break;
            }
        }
        let mut finished = Vec::new();
        // The first worker has the shared state of NFs: it ends last.
        for number in (0..self.workers.len()).rev() {
            if let Some(worker) = &self.workers[number] {
                worker.send(Request::Finish);
            }
            finished.extend(self.join(number)?);
        }
        finished.reverse();
        let finished = finished.into_iter().map(|Finished { figures, output }| (figures, output));
        let (figures, outputs) = finished.unzip();
        Ok((merge(figures), outputs))
    }

    fn send_all(&self, request: impl Fn() -> Request) {
        self.workers.iter().flatten().for_each(|worker| worker.send(request()));
    }

    /// Sends a request to all workers, and waits for the answers.
    fn request<T>(&mut self, request: fn(SyncSender<T>) -> Request) -> Result<Vec<T>, WorkersError> {
        let (to, answers) = sync_channel(self.workers.len().max(1));
        let mut answered = Vec::new();
        self.send_all(|| request(to.clone()));
        drop(to);
        while let Ok(answer) = answers.recv() {
            answered.push(answer);
        }
        if answered.len() < self.workers.len() {
            self.wait(Duration::ZERO)?;
        }
        Ok(answered)
    }

    fn request_one<T>(
        &mut self,
        number: usize,
        request: impl FnOnce(SyncSender<T>) -> Request,
    ) -> Result<Option<T>, WorkersError> {
        let (to, answer) = sync_channel(1);
        if let Some(worker) = &self.workers[number] {
            worker.send(request(to));
        }
        match answer.recv() {
            Ok(answer) => Ok(Some(answer)),
            Err(_) => self.wait(Duration::ZERO).map(|_| None),
        }
    }

    /// Waits for a worker's thread.
    fn join(&mut self, number: usize) -> Result<Option<Finished<O>>, WorkersError> {
        let Some(worker) = self.workers[number].take() else { return Ok(None) };
        match worker.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl<O: Output> Worker<O> {
    fn send(&self, request: Request) {
        // `wait` finds a worker that has finished.
        let _ = self.requests.send(request);
        self.doorbell.ring();
    }
}

/// Runs a worker until it must finish, or the requests' sender is gone.
fn work<O: Output<Error: Into<OutputError>>>(
    part: WorkerPart,
    interfaces: Vec<(u16, Interface)>,
    mut output: O,
    requests: &Receiver<Request>,
    changes: Option<&Sender<LinkChange>>,
) -> Result<Option<Finished<O>>, WorkersError> {
    let mut live = Live::new(Runner::of_part(part), interfaces).map_err(WorkersError::Interface)?;
    loop {
        // If the sender of a request is gone, so is the need for an answer.
        match requests.try_recv() {
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(None),
            Ok(Request::Report(to)) => {
                let _ = to.send(Box::new(Figures::of(&mut live)));
            }
            Ok(Request::Control(stage, command, to)) => {
                let _ = to.send(live.runner_mut().control(stage, &command));
            }
            Ok(Request::Stop) => live.stop_receiving(),
            Ok(Request::Count(to)) => {
                let counters = live.runner().worker_counters().unwrap_or_default();
                let _ = to.send((counters.handed_over, counters.taken));
            }
            Ok(Request::Finish) => {
                let report = live.finish(&mut output).map_err(failed)?;
                return Ok(Some(Finished { figures: Figures { report, ..Figures::of(&mut live) }, output }));
            }
        }
        live.round(&mut output).map_err(failed)?;
        for change in live.check_links() {
            if let Some(changes) = changes {
                let _ = changes.send(change);
            }
        }
    }
}

fn failed(error: impl Into<OutputError>) -> WorkersError {
    WorkersError::Output(error.into())
}

impl Figures {
    fn of(live: &mut Live) -> Figures {
        let report = live.report();
        let runner = live.runner();
        Figures {
            number: runner.worker().map_or(0, |worker| worker.number),
            report,
            latency: runner.latency().clone(),
            busy_s: runner.busy_s(),
            worker: WorkerReport {
                counters: runner.worker_counters().unwrap_or_default(),
                asleep_share: live.asleep(),
            },
        }
    }
}

/// Merges the reports into the first worker's, which includes the shared state of NFs.
fn merge(mut figures: Vec<Figures>) -> Report {
    figures.sort_by_key(|figures| figures.number);
    let (mut workers, mut busy_s, mut latency) = (Vec::new(), 0.0, crate::report::new_histogram());
    let mut all: Option<Report> = None;
    for figures in figures {
        workers.push(figures.worker);
        busy_s += figures.busy_s;
        let added = latency.add(&figures.latency);
        debug_assert!(added.is_ok(), "all histograms have the same bounds");
        match &mut all {
            None => all = Some(figures.report),
            Some(all) => all.add_worker(&figures.report),
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
