//! Messages on standard error. In commands that carry traffic a thread writes them, so a slow,
//! stopped or closed reader never delays packets.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use observe::notice::Notices;
use sd_notify::NotifyState;
use telemetry::shown_lines;

use crate::notify::notify;

/// Maximum number of queued lines.
const LINES_MAX: usize = 1024;

/// Time for the rest of the queue at the end.
const FINISHING: Duration = Duration::from_secs(1);

/// Writes a line to standard error. Unlike `eprintln!`, ignores errors.
macro_rules! say {
    ($($part:tt)*) => { $crate::messages::write_line(&format!($($part)*)) };
}
pub(crate) use say;

/// Implements [`say`]. Escapes control characters.
pub fn write_line(line: &str) {
    write_text(&format!("{}\n", shown_lines(line)));
}

/// Writes text that contains its own newlines.
pub fn write_text(text: &str) {
    // An error has nowhere to be reported.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

static IS_STRUCTURED: AtomicBool = AtomicBool::new(false);

/// Returns true if messages for operators are events of the log; as text they are lines of their
/// own.
pub fn is_structured() -> bool {
    IS_STRUCTURED.load(Ordering::Relaxed)
}

/// Sets [`is_structured`].
pub fn set_structured(is_structured: bool) {
    IS_STRUCTURED.store(is_structured, Ordering::Relaxed);
}

/// Reports a transition: by its event if the log is structured, otherwise by a line.
pub fn report(event: impl FnOnce(), line: impl FnOnce() -> String) {
    match is_structured() {
        true => event(),
        false => log_line(line()),
    }
}

/// The console of a command that carries traffic.
static CONSOLE: OnceLock<Console> = OnceLock::new();

/// Writes a line of the log, through the console if there is one.
pub fn log_line(line: String) {
    match CONSOLE.get() {
        Some(console) => console.queue_line(line),
        None => write_line(&line),
    }
}

/// A queue of lines.
#[derive(Clone)]
pub struct Console {
    queue: SyncSender<Line>,
    lost: Arc<AtomicU64>,
}

/// The writing thread's end of the queue.
pub struct Ending {
    done: Receiver<()>,
    console: Console,
}

enum Line {
    Say(String),
    /// The current rates, for a terminal and for the service manager.
    Rates(String),
    /// The object that the process waits for, for the service manager.
    Waiting(String),
    /// Traffic begins; for the service manager.
    Ready,
    /// Traffic ends; for the service manager.
    Stopping,
    End,
}

impl Console {
    /// Starts the thread, with a line of current rates if `shows_rates` and standard error is a
    /// terminal.
    pub fn begin(shows_rates: bool) -> std::io::Result<(Console, Ending)> {
        let (queue, lines) = sync_channel(LINES_MAX);
        let (tell, done) = sync_channel(1);
        let console = Console { queue, lost: Arc::new(AtomicU64::new(0)) };
        let lost = Arc::clone(&console.lost);
        let bar =
            if shows_rates && std::io::stderr().is_terminal() { rates_bar() } else { ProgressBar::hidden() };
        let work = move || {
            write_lines(&lines, &lost, &bar);
            let _ = tell.send(());
        };
        std::thread::Builder::new().name("console".to_owned()).spawn(work)?;
        // Of several consoles, the first one has the log.
        let _ = CONSOLE.set(console.clone());
        Ok((console.clone(), Ending { done, console }))
    }

    /// Queues a message for the operator, or an event if the log is structured.
    pub fn say(&self, line: String) {
        match is_structured() {
            true => line.lines().for_each(|line| tracing::info!("{}", line.trim_start_matches("rivulet: "))),
            false => self.queue_line(line),
        }
    }

    /// Does the same as [`report`], on this console.
    pub fn report(&self, event: impl FnOnce(), line: impl FnOnce() -> String) {
        match is_structured() {
            true => event(),
            false => self.queue_line(line()),
        }
    }

    /// Returns a receiver of outputs' notices that reports them on this console.
    pub fn notices(&self) -> Notices {
        let console = self.clone();
        Arc::new(move |notice| console.report(|| notice.emit(), || format!("rivulet: {notice}")))
    }

    /// Queues a line, or counts it if the queue is full.
    fn queue_line(&self, line: String) {
        match self.queue.try_send(Line::Say(line)) {
            Err(TrySendError::Full(_)) => _ = self.lost.fetch_add(1, Ordering::Relaxed),
            // The thread has ended, and so has the traffic.
            Err(TrySendError::Disconnected(Line::Say(line))) => write_line(&line),
            Err(TrySendError::Disconnected(_)) | Ok(()) => {}
        }
    }

    /// Lets the service manager know that traffic begins.
    pub fn ready(&self) {
        // The thread does not end before.
        let _ = self.queue.send(Line::Ready);
    }

    /// Notifies operator and service manager that the process is up, and of the reason that traffic
    /// waits.
    pub fn waiting(&self, text: String) {
        self.say(format!("rivulet: {text}"));
        let _ = self.queue.try_send(Line::Waiting(text));
    }

    /// Lets the service manager know that traffic ends.
    pub fn stopping(&self) {
        // Without it, the service manager sees the process end.
        let _ = self.queue.try_send(Line::Stopping);
    }

    /// Shows the current rates.
    pub fn show_rates(&self, rates: String) {
        // A lost update is replaced by the next one in a second.
        let _ = self.queue.try_send(Line::Rates(rates));
    }
}

impl Ending {
    /// Writes the rest of the queue, within [`FINISHING`].
    pub fn finish(self) {
        if self.console.queue.try_send(Line::End).is_ok() {
            let _ = self.done.recv_timeout(FINISHING);
        }
    }
}

fn write_lines(lines: &Receiver<Line>, lost: &AtomicU64, bar: &ProgressBar) {
    while let Ok(line) = lines.recv() {
        match line {
            Line::Say(line) => bar.suspend(|| write_line(&line)),
            Line::Rates(rates) => {
                notify(&[NotifyState::Status(&rates)]);
                bar.set_message(rates);
            }
            Line::Waiting(text) => notify(&[NotifyState::Ready, NotifyState::Status(&text)]),
            Line::Ready => notify(&[NotifyState::Ready]),
            Line::Stopping => notify(&[NotifyState::Stopping]),
            Line::End => break,
        }
        match lost.swap(0, Ordering::Relaxed) {
            0 => {}
            count => bar.suspend(|| say!("rivulet: {count} messages lost: the queue was full")),
        }
    }
    bar.finish_and_clear();
}

fn rates_bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed}  {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
