//! An output's queue: what is written waits here for a thread that writes it, and whoever fills it
//! never waits for a disk or a reader.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use runtime::report::OutputReport;

use super::pen::{Chunk, Pen};
use crate::messages::Console;

/// Bytes that wait to be written at most, for each output; what comes when it is full is counted
/// and not written.
pub const QUEUE_BYTES_MAX: usize = 8 << 20;

/// Bytes that are handed to the thread together.
const CHUNK_BYTES: usize = 64 << 10;

/// How long the thread waits after a failure until it tries again.
const RETRY: Duration = Duration::from_millis(250);

/// How long what is left may take at the end.
const FINISHING: Duration = Duration::from_secs(2);

/// An output, and what waits for it.
pub struct Spool {
    name: String,
    chunk: Chunk,
    /// Records that were offered.
    offered: u64,
    /// Records that found no room.
    refused: u64,
    is_collector: bool,
    way: Way,
}

enum Way {
    /// Chunks are written at once, and a failure is final: for commands that have time.
    Direct {
        /// Who writes.
        pen: Box<Pen>,
        /// Nothing more is written.
        has_failed: bool,
    },
    /// A thread writes them.
    Queued(Arc<Queue>),
}

/// What the thread is to do.
enum Task {
    Write(Chunk),
    Reopen,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    /// Something was queued, or the thread has ended.
    changed: Condvar,
    /// Bytes that wait, those that are being written among them.
    bytes: AtomicU64,
    written: AtomicU64,
    lost: AtomicU64,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    /// When the thread is to end: what is not written by then is given up.
    end: Option<Instant>,
    has_ended: bool,
    last_error: Option<String>,
}

/// How an output ended.
pub struct Outcome {
    /// What became of its records.
    pub counts: OutputReport,
    /// What is to be said of records that were not written.
    pub complaint: Option<String>,
    /// The file is not what was asked for.
    pub has_failed: bool,
}

impl Spool {
    /// Writes by itself; the first failure is final.
    pub fn direct(name: String, mut pen: Pen) -> Spool {
        let is_collector = pen.is_collector();
        let has_failed = !pen.begin(&mut |_| false);
        let way = Way::Direct { pen: Box::new(pen), has_failed };
        Spool { name, chunk: Chunk::default(), offered: 0, refused: 0, is_collector, way }
    }

    /// Has a thread write, which tries again as long as it fails; what it has to say, `console`
    /// says.
    pub fn queued(name: String, pen: Pen, console: Console) -> io::Result<Spool> {
        let is_collector = pen.is_collector();
        let queue = Arc::new(Queue::default());
        let (shared, of) = (Arc::clone(&queue), name.clone());
        let work = move || {
            let mut clerk = Clerk { pen, name: of, console, queue: shared, has_failed: false };
            clerk.work();
        };
        std::thread::Builder::new().name("output".to_owned()).spawn(work)?;
        let way = Way::Queued(queue);
        Ok(Spool { name, chunk: Chunk::default(), offered: 0, refused: 0, is_collector, way })
    }

    /// Takes a record that `write` appends to the bytes; or counts it, if there is no room.
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

    /// Takes bytes that are no record.
    pub fn append(&mut self, bytes: &mut Vec<u8>) {
        self.chunk.bytes.append(bytes);
    }

    /// Takes whole records, each of which ends where `records` says.
    pub fn records(&mut self, records: &Chunk) {
        let mut start = 0;
        for &end in &records.ends {
            let record = &records.bytes[start..end as usize];
            start = end as usize;
            self.record(|bytes| bytes.extend_from_slice(record));
        }
    }

    /// Whether there is room for a record; it is counted.
    fn makes_room(&mut self) -> bool {
        self.offered += 1;
        let has_room = match &self.way {
            Way::Direct { has_failed, .. } => !has_failed,
            Way::Queued(queue) => {
                queue.bytes.load(Ordering::Relaxed) as usize + self.chunk.bytes.len() < QUEUE_BYTES_MAX
            }
        };
        self.refused += u64::from(!has_room);
        has_room
    }

    /// Writes what was taken, or has it written.
    pub fn flush(&mut self) {
        self.hand_over(1);
    }

    /// Opens the file again by its name.
    pub fn reopen(&mut self) {
        self.flush();
        if let Way::Queued(queue) = &self.way {
            queue.lock().tasks.push_back(Task::Reopen);
            queue.changed.notify_all();
        }
    }

    fn hand_over(&mut self, least: usize) {
        if self.chunk.bytes.len() < least {
            return;
        }
        let chunk = std::mem::take(&mut self.chunk);
        match &mut self.way {
            Way::Direct { pen, has_failed } => {
                *has_failed = *has_failed || !pen.put(&chunk, &mut |_| false);
                self.chunk = chunk;
                self.chunk.bytes.clear();
                self.chunk.ends.clear();
            }
            Way::Queued(queue) => {
                queue.bytes.fetch_add(chunk.bytes.len() as u64, Ordering::Relaxed);
                queue.lock().tasks.push_back(Task::Write(chunk));
                queue.changed.notify_all();
            }
        }
    }

    /// Whether nothing more can be written.
    pub fn has_failed(&self) -> bool {
        matches!(self.way, Way::Direct { has_failed: true, .. })
    }

    /// What became of records so far.
    pub fn counts(&self) -> OutputReport {
        let (written, lost) = match &self.way {
            Way::Direct { pen, .. } => (pen.counts().written, pen.counts().lost),
            Way::Queued(queue) => (queue.written.load(Ordering::Relaxed), queue.lost.load(Ordering::Relaxed)),
        };
        OutputReport { written, not_written: self.refused + lost, suppressed: 0 }
    }

    /// Has what is left written, and ends: within [`FINISHING`], where a thread writes.
    pub fn finish(mut self) -> Outcome {
        self.flush();
        let (error, is_collector) = match &mut self.way {
            Way::Direct { pen, has_failed } => {
                *has_failed = *has_failed || !pen.finish(&mut |_| false);
                let failed = *has_failed || pen.counts().lost > 0;
                (pen.last_error().filter(|_| failed).map(ToString::to_string), self.is_collector)
            }
            Way::Queued(queue) => {
                queue.end();
                (queue.lock().last_error.clone(), self.is_collector)
            }
        };
        let mut counts = self.counts();
        counts.not_written = self.offered - counts.written.min(self.offered);
        let (name, lost, of) = (self.name, counts.not_written, self.offered);
        let why = error.as_deref().unwrap_or("there was no room for more");
        let has_failed = !is_collector && (lost > 0 || error.is_some());
        let complaint = match lost {
            1.. if is_collector => Some(format!("{name}: {lost} of {of} IPFIX messages were lost: {why}")),
            1.. => Some(format!("cannot write {name}: {why}; {lost} of {of} records are not in it")),
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

    /// Lets the thread end, or gives it up.
    fn end(&self) {
        let end = Instant::now() + FINISHING;
        let mut state = self.lock();
        state.end = Some(end);
        self.changed.notify_all();
        // It may be in a call that does not return.
        let latest = end + 2 * RETRY;
        while !state.has_ended && Instant::now() < latest {
            let left = latest.saturating_duration_since(Instant::now());
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The next task; none when all is done at the end.
    fn next(&self) -> Option<Task> {
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

    /// Waits to try again; returns false if there is no point: the file is to be opened again, or
    /// the time is up.
    fn wait_to_retry(&self) -> bool {
        let until = Instant::now() + RETRY;
        let mut state = self.lock();
        loop {
            let reopens = state.tasks.iter().any(|task| matches!(task, Task::Reopen));
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

/// The thread that writes.
struct Clerk {
    pen: Pen,
    name: String,
    console: Console,
    queue: Arc<Queue>,
    /// The last attempt failed, and that was said.
    has_failed: bool,
}

impl Clerk {
    fn work(&mut self) {
        self.write(&Chunk::default(), true);
        while let Some(task) = self.queue.next() {
            match task {
                Task::Write(chunk) => {
                    self.write(&chunk, false);
                    self.queue.bytes.fetch_sub(chunk.bytes.len() as u64, Ordering::Relaxed);
                }
                Task::Reopen => self.reopen(),
            }
        }
        let queue = Arc::clone(&self.queue);
        self.pen.finish(&mut |_| queue.wait_to_retry());
        self.queue.lock().has_ended = true;
        self.queue.changed.notify_all();
    }

    /// Writes a chunk, or the beginning of a file.
    fn write(&mut self, chunk: &Chunk, begins: bool) {
        let Clerk { pen, name, console, queue, has_failed } = self;
        let before = pen.counts();
        let mut try_again = |error: &io::Error| {
            queue.lock().last_error = Some(error.to_string());
            if !std::mem::replace(has_failed, true) {
                console.say(format!("rivulet: cannot write {name}: {error}; trying again"));
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
                console.say(format!("rivulet: cannot send to {name}: {error}; trying again"));
            }
            queue.lock().last_error = Some(error);
        } else if done && std::mem::replace(has_failed, false) {
            console.say(format!("rivulet: {name} takes what is written again"));
        }
    }

    fn reopen(&mut self) {
        match self.pen.reopen() {
            Ok(true) => self.write(&Chunk::default(), true),
            Ok(false) => {}
            Err(error) => {
                self.console.say(format!("rivulet: cannot open {} again: {error}", self.name));
            }
        }
    }
}
