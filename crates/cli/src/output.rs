//! Output: tables as text, JSON, and progress bars.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use telemetry::shown;

/// `-o`: the format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables as text
    Table,
    /// JSON
    Json,
}

/// A text table with numbers aligned right.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these column heads.
    pub fn new(head: &[&str]) -> Table {
        Table { rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// Adds a row. Escapes control characters.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(|cell| shown(cell).to_string()).collect());
    }

    /// Renders the table; each line ends with a newline.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let numeric = |column: usize| {
            self.rows[1..].iter().filter_map(|row| row.get(column)).all(|cell| {
                cell.chars().all(|c| c.is_ascii_digit() || ",.-% ".contains(c)) && !cell.is_empty()
            })
        };
        let right: Vec<bool> = (0..columns).map(|column| self.rows.len() > 1 && numeric(column)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let padding = " ".repeat(widths[column] - cell.chars().count());
                match right[column] {
                    true => line.extend([&padding, cell.as_str(), "  "]),
                    false => line.extend([cell.as_str(), &padding, "  "]),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Formats a rate in bits per second with a suitable unit.
pub fn rate(bps: f64) -> String {
    let (factor, unit) = match bps {
        1e9.. => (1e-9, "Gbit/s"),
        1e6.. => (1e-6, "Mbit/s"),
        _ => (1e-3, "kbit/s"),
    };
    format!("{:.2} {unit}", bps * factor)
}

/// Formats a number with thousands separators: `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a time with a suitable unit: `850 ns`, `1.2 us`, `30 ms`, `2.5 s`.
pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["name", "count"]);
        table.row(vec!["nat".into(), thousands(1_234_567)]);
        table.row(vec!["firewall".into(), "9".into()]);
        assert_eq!(table.render(), "name          count\nnat       1,234,567\nfirewall          9\n");
    }

    #[test]
    fn numbers_have_separators_and_units() {
        assert_eq!([thousands(0), thousands(999), thousands(1000)], ["0", "999", "1,000"]);
        assert_eq!(duration(850), "850 ns");
        assert_eq!(duration(1_250), "1.2 us");
        assert_eq!(duration(2_500_000_000), "2.5 s");
    }
}
