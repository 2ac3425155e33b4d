//! The queue of an output. A thread writes it, so producers never wait for a disk or a reader.

pub mod pen;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use runtime::report::OutputReport;
use telemetry::event;

use crate::messages::Console;
use pen::{Chunk, OutputWriter};

/// Maximum number of queued bytes of an output. Records beyond are counted and not written.
pub const QUEUE_BYTES_MAX: usize = 8 << 20;

/// Bytes handed to the thread at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Delay before a failed write is retried.
const RETRY: Duration = Duration::from_millis(250);

/// Time for the rest of the queue at the end.
const FINISHING: Duration = Duration::from_secs(2);

/// An output with its queue.
pub struct Spool {
    name: String,
    chunk: Chunk,
    /// Records offered.
    offered: u64,
    /// Records refused by a full queue.
    refused: u64,
    is_collector: bool,
    way: SpoolMode,
}

enum SpoolMode {
    /// Written at once, and an error is final: for commands that may block.
    Direct { pen: Box<OutputWriter>, has_failed: bool },
    /// Written by a thread.
    Queued(Arc<Queue>),
}

/// A task of the thread.
enum SpoolTask {
    Write(Chunk),
    Reopen,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    /// A task was queued, or the thread has ended.
    changed: Condvar,
    /// Queued bytes, including those being written.
    bytes: AtomicU64,
    written: AtomicU64,
    lost: AtomicU64,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<SpoolTask>,
    /// Deadline after which the rest is given up.
    end: Option<Instant>,
    has_ended: bool,
    last_error: Option<String>,
}

/// Result of an output.
pub struct Outcome {
    /// Counts of its records.
    pub counts: OutputReport,
    /// Message about records that were not written.
    pub complaint: Option<String>,
    /// The file is incomplete.
    pub has_failed: bool,
}

impl Spool {
    /// Creates an output that writes directly; the first error is final.
    pub fn direct(name: String, mut pen: OutputWriter) -> Spool {
        let is_collector = pen.is_collector();
        let has_failed = !pen.begin(&mut |_| false);
        let way = SpoolMode::Direct { pen: Box::new(pen), has_failed };
        Spool { name, chunk: Chunk::default(), offered: 0, refused: 0, is_collector, way }
    }

    /// Creates an output that a thread writes, with retries and messages to `console`.
    pub fn queued(name: String, pen: OutputWriter, console: Console) -> io::Result<Spool> {
        let is_collector = pen.is_collector();
        let queue = Arc::new(Queue::default());
        let (shared, of) = (Arc::clone(&queue), name.clone());
        let work = move || {
            let mut clerk = SpoolThread { pen, name: of, console, queue: shared, has_failed: false };
            clerk.work();
        };
        std::thread::Builder::new().name("output".to_owned()).spawn(work)?;
        let way = SpoolMode::Queued(queue);
        Ok(Spool { name, chunk: Chunk::default(), offered: 0, refused: 0, is_collector, way })
    }

    /// Takes a record that `write` appends to the bytes, or counts it if the queue is full.
    pub fn record(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.makes_room() {
            return;
        }
        let before = self.chunk.bytes.len();
        write(&mut self.chunk.bytes);
        if self.chunk.bytes.len() > before {
            self.chunk.end_record();
        }
        self.hand_over(CHUNK_BYTES);
    }

    /// Takes bytes outside of any record.
    pub fn append(&mut self, bytes: &mut Vec<u8>) {
        self.chunk.bytes.append(bytes);
    }

    /// Takes whole records.
    pub fn records(&mut self, records: &Chunk) {
        let mut start = 0;
        for &end in &records.ends {
            let record = &records.bytes[start..end as usize];
            start = end as usize;
            self.record(|bytes| bytes.extend_from_slice(record));
        }
    }

    /// Counts a record, and returns whether there is room for it.
    fn makes_room(&mut self) -> bool {
        self.offered += 1;
        let has_room = match &self.way {
            SpoolMode::Direct { has_failed, .. } => !has_failed,
            SpoolMode::Queued(queue) => {
                queue.bytes.load(Ordering::Relaxed) as usize + self.chunk.bytes.len() < QUEUE_BYTES_MAX
            }
        };
        self.refused += u64::from(!has_room);
        has_room
    }

    /// Writes or queues the buffered records.
    pub fn flush(&mut self) {
        self.hand_over(1);
    }

    /// Reopens the file by name.
    pub fn reopen(&mut self) {
        self.flush();
        if let SpoolMode::Queued(queue) = &self.way {
            queue.lock().tasks.push_back(SpoolTask::Reopen);
            queue.changed.notify_all();
        }
    }

    fn hand_over(&mut self, least: usize) {
        if self.chunk.bytes.len() < least {
            return;
        }
        let chunk = std::mem::take(&mut self.chunk);
        match &mut self.way {
            SpoolMode::Direct { pen, has_failed } => {
                *has_failed = *has_failed || !pen.put(&chunk, &mut |_| false);
                self.chunk = chunk;
                self.chunk.bytes.clear();
                self.chunk.ends.clear();
            }
            SpoolMode::Queued(queue) => {
                queue.bytes.fetch_add(chunk.bytes.len() as u64, Ordering::Relaxed);
                queue.lock().tasks.push_back(SpoolTask::Write(chunk));
                queue.changed.notify_all();
            }
        }
    }

    /// Returns whether nothing more can be written.
    pub fn has_failed(&self) -> bool {
        matches!(self.way, SpoolMode::Direct { has_failed: true, .. })
    }

    /// Counts of the records so far.
    pub fn counts(&self) -> OutputReport {
        let (written, lost) = match &self.way {
            SpoolMode::Direct { pen, .. } => (pen.counts().written, pen.counts().lost),
            SpoolMode::Queued(queue) => {
                (queue.written.load(Ordering::Relaxed), queue.lost.load(Ordering::Relaxed))
            }
        };
        OutputReport { written, not_written: self.refused + lost, suppressed: 0 }
    }

    /// Writes the rest, on a thread within [`FINISHING`], and ends.
    pub fn finish(mut self) -> Outcome {
        self.flush();
        let (error, is_collector) = match &mut self.way {
            SpoolMode::Direct { pen, has_failed } => {
                *has_failed = *has_failed || !pen.finish(&mut |_| false);
                let failed = *has_failed || pen.counts().lost > 0;
                (pen.last_error().filter(|_| failed).map(ToString::to_string), self.is_collector)
            }
            SpoolMode::Queued(queue) => {
                queue.end();
                (queue.lock().last_error.clone(), self.is_collector)
            }
        };
        let mut counts = self.counts();
        counts.not_written = self.offered - counts.written.min(self.offered);
        let (name, lost, of) = (self.name, counts.not_written, self.offered);
        let why = error.as_deref().unwrap_or("the queue was full");
        let has_failed = !is_collector && (lost > 0 || error.is_some());
        let complaint = match lost {
            1.. if is_collector => Some(format!("{name}: lost {lost} of {of} IPFIX messages: {why}")),
            1.. => Some(format!("cannot write {name}: {why}; {lost} of {of} records are missing")),
            0 if has_failed => Some(format!("cannot write {name}: {why}")),
            0 => None,
        };
        Outcome { counts, complaint, has_failed }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the thread finish within the deadline, or abandons it.
    fn end(&self) {
        let end = Instant::now() + FINISHING;
        let mut state = self.lock();
        state.end = Some(end);
        self.changed.notify_all();
        // The thread may be blocked in a system call.
        let latest = end + 2 * RETRY;
        while !state.has_ended && Instant::now() < latest {
            let left = latest.saturating_duration_since(Instant::now());
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the next task; `None` at the end.
    fn next(&self) -> Option<SpoolTask> {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.tasks.pop_front() {
                return Some(task);
            }
            if state.end.is_some() {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits before a retry. Returns false if a retry makes no sense: the file will be reopened, or
    /// the deadline has passed.
    fn wait_to_retry(&self) -> bool {
        let until = Instant::now() + RETRY;
        let mut state = self.lock();
        loop {
            let reopens = state.tasks.iter().any(|task| matches!(task, SpoolTask::Reopen));
            if reopens || state.end.is_some_and(|end| Instant::now() >= end) {
                return false;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The writing thread.
struct SpoolThread {
    pen: OutputWriter,
    name: String,
    console: Console,
    queue: Arc<Queue>,
    /// The last attempt failed, and this was reported.
    has_failed: bool,
}

impl SpoolThread {
    fn work(&mut self) {
        self.write(&Chunk::default(), true);
        while let Some(task) = self.queue.next() {
            match task {
                SpoolTask::Write(chunk) => {
                    self.write(&chunk, false);
                    self.queue.bytes.fetch_sub(chunk.bytes.len() as u64, Ordering::Relaxed);
                }
                SpoolTask::Reopen => self.reopen(),
            }
        }
        let queue = Arc::clone(&self.queue);
        self.pen.finish(&mut |_| queue.wait_to_retry());
        self.queue.lock().has_ended = true;
        self.queue.changed.notify_all();
    }

    /// Writes a chunk, or the beginning of a file.
    fn write(&mut self, chunk: &Chunk, begins: bool) {
        let SpoolThread { pen, name, console, queue, has_failed } = self;
        let before = pen.counts();
        let mut try_again = |error: &io::Error| {
            queue.lock().last_error = Some(error.to_string());
            if !std::mem::replace(has_failed, true) {
                console.report(
                    || event::output_failed(name, error),
                    || format!("rivulet: cannot write {name}: {error}; retrying"),
                );
            }
            queue.wait_to_retry()
        };
        let done = if begins { pen.begin(&mut try_again) } else { pen.put(chunk, &mut try_again) };
        let after = pen.counts();
        queue.written.fetch_add(after.written - before.written, Ordering::Relaxed);
        queue.lost.fetch_add(after.lost - before.lost, Ordering::Relaxed);
        let sent_none = pen.is_collector() && after.lost > before.lost;
        if sent_none {
            let error = pen.last_error().map(ToString::to_string).unwrap_or_default();
            if !std::mem::replace(has_failed, true) {
                console.report(
                    || event::output_failed(name, &error),
                    || format!("rivulet: cannot send to {name}: {error}; retrying"),
                );
            }
            queue.lock().last_error = Some(error);
        } else if done && std::mem::replace(has_failed, false) {
            console.report(
                || event::output_recovered(name),
                || format!("rivulet: writing to {name} works again"),
            );
        }
    }

    fn reopen(&mut self) {
        match self.pen.reopen() {
            Ok(true) => self.write(&Chunk::default(), true),
            Ok(false) => {}
            Err(error) => {
                let name = &self.name;
                self.console.report(
                    || event::output_failed(name, &error),
                    || format!("rivulet: cannot reopen {name}: {error}"),
                );
            }
        }
    }
}
