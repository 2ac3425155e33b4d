//! Standard error of a command that carries traffic: a thread of its own writes there, so that a
//! reader that is slow, stopped or gone never holds packets up.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Lines that wait to be written at most.
const LINES_MAX: usize = 1024;

/// How long what is left may take at the end.
const FINISHING: Duration = Duration::from_secs(1);

/// Writes a line to standard error. Unlike `eprintln!`, it takes no notice if nobody reads there.
macro_rules! say {
    ($($part:tt)*) => { $crate::messages::write_line(&format!($($part)*)) };
}
pub(crate) use say;

/// See [`say`].
pub fn write_line(line: &str) {
    write_text(&format!("{line}\n"));
}

/// The same for text with line ends of its own.
pub fn write_text(text: &str) {
    // There is nowhere else to say that this failed.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// What lines are handed to.
#[derive(Clone)]
pub struct Console {
    queue: SyncSender<Line>,
    lost: Arc<AtomicU64>,
}

/// The other end: ends with the command.
pub struct Ending {
    done: Receiver<()>,
    console: Console,
}

enum Line {
    Say(String),
    /// What goes through now, where standard error is a terminal.
    Rates(String),
    End,
}

impl Console {
    /// Begins; with a line about what goes through now, if `shows_rates` and standard error is a
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
        Ok((console.clone(), Ending { done, console }))
    }

    /// Says a line, or counts it if too many wait.
    pub fn say(&self, line: String) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Line::Say(line)) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Shows what goes through now.
    pub fn show_rates(&self, rates: String) {
        // The next one comes in a second.
        let _ = self.queue.try_send(Line::Rates(rates));
    }
}

impl Ending {
    /// Has what is left written, if that takes no longer than [`FINISHING`].
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
            Line::Rates(rates) => bar.set_message(rates),
            Line::End => break,
        }
        match lost.swap(0, Ordering::Relaxed) {
            0 => {}
            count => bar.suspend(|| say!("rivulet: {count} lines found no room here")),
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
