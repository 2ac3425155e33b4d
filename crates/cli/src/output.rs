//! Output: tables as text, JSON, and progress bars.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};

pub use observe::text::{Table, duration, rate, thousands};

/// `-o`: the format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables as text
    Table,
    /// JSON
    Json,
}

/// Prints to standard output.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Prints a value as JSON.
pub fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))?;
    Ok(())
}

/// Returns whether to use colours on standard error: a terminal, and `NO_COLOR` is not set.
pub fn colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Returns whether the error is a closed pipe, as after `| head`.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
    })
}

/// Creates a progress bar on standard error; hidden unless that is a terminal.
pub fn progress(total: Option<u64>, unit: &'static str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            if unit == "bytes" {
                "{bar:30} {percent}%  {bytes}/{total_bytes}  {binary_bytes_per_sec}  {eta} left  {msg}"
            } else {
                "{bar:30} {percent}%  {human_pos}/{human_len}  {per_sec}  {eta} left  {msg}"
            },
        ),
        None => (ProgressBar::new_spinner(), "{spinner}  {human_pos}  {per_sec}  {elapsed}  {msg}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
