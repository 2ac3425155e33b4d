//! The queue of an output. A thread writes it, so producers never wait for a disk or a reader.

pub mod writer;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use runtime::report::OutputReport;
use writer::{Chunk, OutputWriter, Target};

use crate::error::SinkError;
use crate::notice::{Notices, OutputNotice};

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
    Direct { writer: Box<OutputWriter>, has_failed: bool },
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

/// An output before and after writing begins.
pub enum OutputState {
    /// Opened; records are lost until writing begins.
    Opened {
        /// Name for messages.
        name: String,
        /// The open file or socket.
        writer: Box<OutputWriter>,
    },
    /// Written.
    Begun(Spool),
}

impl OutputState {
    /// Opens a file.
    ///
    /// # Errors
    /// The file cannot be opened or created.
    pub fn open(name: String, target: Target) -> Result<OutputState, SinkError> {
        match OutputWriter::open(target) {
            Ok(writer) => Ok(OutputState::Opened { name, writer: Box::new(writer) }),
            Err(source) => Err(SinkError::Open { name, source }),
        }
    }

    /// Starts to write: on a thread that sends notices, or without them directly.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn begin(self, notices: Option<&Notices>) -> Result<OutputState, SinkError> {
        let (name, writer) = match self {
            OutputState::Opened { name, writer } => (name, *writer),
            begun @ OutputState::Begun(_) => return Ok(begun),
        };
        let spool = match notices {
            Some(notices) => Spool::queued(name, writer, Arc::clone(notices)).map_err(SinkError::Thread)?,
            None => Spool::direct(name, writer),
        };
        Ok(OutputState::Begun(spool))
    }

    /// Returns the queue, once writing has begun.
    pub fn spool(&mut self) -> Option<&mut Spool> {
        match self {
            OutputState::Begun(spool) => Some(spool),
            OutputState::Opened { .. } => None,
        }
    }

    /// Returns the queue to finish it; an output that was not begun is written directly.
    pub fn into_spool(self) -> Spool {
        match self {
            OutputState::Opened { name, writer } => Spool::direct(name, *writer),
            OutputState::Begun(spool) => spool,
        }
    }
}

/// Result of an output.
pub struct OutputOutcome {
    /// Counts of its records.
    pub counts: OutputReport,
    /// Message about records that were not written.
    pub complaint: Option<String>,
    /// The file is incomplete.
    pub has_failed: bool,
}

impl Spool {
    /// Creates an output that writes directly; the first error is final.
    pub fn direct(name: String, mut writer: OutputWriter) -> Spool {
        let is_collector = writer.is_collector();
        let has_failed = !writer.begin(&mut |_| false);
        let way = SpoolMode::Direct { writer: Box::new(writer), has_failed };
        Spool { name, chunk: Chunk::default(), offered: 0, refused: 0, is_collector, way }
    }

    /// Creates an output that a thread writes, with retries and messages to `notices`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn queued(name: String, writer: OutputWriter, notices: Notices) -> io::Result<Spool> {
        let is_collector = writer.is_collector();
        let queue = Arc::new(Queue::default());
        let (shared, of) = (Arc::clone(&queue), name.clone());
        let work = move || {
            let mut thread = SpoolThread { writer, name: of, notices, queue: shared, has_failed: false };
            thread.work();
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
            SpoolMode::Direct { writer, has_failed } => {
                *has_failed = *has_failed || !writer.put(&chunk, &mut |_| false);
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

    /// Returns the counts of the records so far.
    pub fn counts(&self) -> OutputReport {
        let (written, lost) = match &self.way {
            SpoolMode::Direct { writer, .. } => (writer.counts().written, writer.counts().lost),
            SpoolMode::Queued(queue) => {
                (queue.written.load(Ordering::Relaxed), queue.lost.load(Ordering::Relaxed))
            }
        };
        OutputReport { written, not_written: self.refused + lost, suppressed: 0 }
    }

    /// Writes the rest, on a thread within two seconds, and ends.
    pub fn finish(mut self) -> OutputOutcome {
        self.flush();
        let (error, is_collector) = match &mut self.way {
            SpoolMode::Direct { writer, has_failed } => {
                *has_failed = *has_failed || !writer.finish(&mut |_| false);
                let failed = *has_failed || writer.counts().lost > 0;
                (writer.last_error().filter(|_| failed).map(ToString::to_string), self.is_collector)
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
        OutputOutcome { counts, complaint, has_failed }
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
    writer: OutputWriter,
    name: String,
    notices: Notices,
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
        self.writer.finish(&mut |_| queue.wait_to_retry());
        self.queue.lock().has_ended = true;
        self.queue.changed.notify_all();
    }

    /// Writes a chunk, or the beginning of a file.
    fn write(&mut self, chunk: &Chunk, begins: bool) {
        let SpoolThread { writer, name, notices, queue, has_failed } = self;
        let before = writer.counts();
        let mut try_again = |error: &io::Error| {
            queue.lock().last_error = Some(error.to_string());
            if !std::mem::replace(has_failed, true) {
                notices(&OutputNotice::CannotWrite { name, error });
            }
            queue.wait_to_retry()
        };
        let done = if begins { writer.begin(&mut try_again) } else { writer.put(chunk, &mut try_again) };
        let after = writer.counts();
        queue.written.fetch_add(after.written - before.written, Ordering::Relaxed);
        queue.lost.fetch_add(after.lost - before.lost, Ordering::Relaxed);
        let sent_none = writer.is_collector() && after.lost > before.lost;
        if sent_none {
            let error = writer.last_error().map(ToString::to_string).unwrap_or_default();
            if !std::mem::replace(has_failed, true) {
                notices(&OutputNotice::CannotSend { name, error: &error });
            }
            queue.lock().last_error = Some(error);
        } else if done && std::mem::replace(has_failed, false) {
            notices(&OutputNotice::Recovered { name });
        }
    }

    fn reopen(&mut self) {
        match self.writer.reopen() {
            Ok(true) => self.write(&Chunk::default(), true),
            Ok(false) => {}
            Err(error) => {
                (self.notices)(&OutputNotice::CannotReopen { name: &self.name, error: &error });
            }
        }
    }
}
