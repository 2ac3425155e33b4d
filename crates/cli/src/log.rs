//! The log on standard error: events of the system, as text, JSON or entries of the journal.

use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, bail};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::messages;

/// Variable with the filter, such as `info,rivulet::flow=debug`.
const FILTER: &str = "RIVULET_LOG";

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Journald if standard error is a stream of the journal, otherwise text
    Auto,
    /// Lines with time, level, target, message and fields
    Text,
    /// An object per line
    Json,
    /// Entries of the systemd journal, with the fields as fields
    Journald,
}

/// Starts the log.
///
/// # Errors
/// If the filter is invalid, or if the journal is requested but missing.
pub fn begin(format: LogFormat) -> anyhow::Result<()> {
    let is_journal = || is_journal_stream(std::env::var("JOURNAL_STREAM").ok().as_deref(), stderr_inode());
    let format = match format {
        LogFormat::Auto if is_journal() => LogFormat::Journald,
        LogFormat::Auto => LogFormat::Text,
        given => given,
    };
    let is_structured = format != LogFormat::Text;
    let filter = match std::env::var(FILTER) {
        Ok(text) if !text.is_empty() => {
            EnvFilter::try_new(&text).with_context(|| format!("{FILTER}: `{text}` is not a filter"))?
        }
        _ => EnvFilter::new(if is_structured { "info" } else { "warn" }),
    };
    let layer = match format {
        LogFormat::Auto | LogFormat::Text => fmt::layer().with_ansi(false).with_writer(StderrWriter).boxed(),
        LogFormat::Json => fmt::layer().json().flatten_event(true).with_writer(StderrWriter).boxed(),
        LogFormat::Journald => match tracing_journald::layer() {
            Ok(layer) => layer.with_syslog_identifier("rivulet".to_owned()).with_field_prefix(None).boxed(),
            Err(error) => bail!("--log-format journald: the journal does not answer: {error}"),
        },
    };
    messages::set_structured(is_structured);
    tracing_subscriber::registry().with(layer.with_filter(filter)).try_init().context("cannot start the log")
}

/// Returns device and inode of standard error.
fn stderr_inode() -> Option<(u64, u64)> {
    let file = std::fs::metadata("/proc/self/fd/2").ok()?;
    Some((file.dev(), file.ino()))
}

/// Compares `$JOURNAL_STREAM`, device and inode of the journal's stream, with those of standard
/// error, which may be redirected (systemd.exec(5)).
fn is_journal_stream(variable: Option<&str>, stderr: Option<(u64, u64)>) -> bool {
    let numbers = variable.and_then(|text| text.split_once(':'));
    let numbers = numbers.and_then(|(device, inode)| Some((device.parse().ok()?, inode.parse().ok()?)));
    numbers.is_some() && numbers == stderr
}

/// Writes whole lines to standard error; in commands that carry traffic, from their console thread.
struct StderrWriter;

impl<'a> MakeWriter<'a> for StderrWriter {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter(Vec::new())
    }
}

struct LineWriter(Vec<u8>);

impl Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LineWriter {
    fn drop(&mut self) {
        messages::log_line(String::from_utf8_lossy(&self.0).trim_end().to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_error_is_the_journal_if_device_and_inode_agree() {
        assert!(is_journal_stream(Some("8:1234"), Some((8, 1234))));
        for (variable, stderr) in [
            (None, Some((8, 1234))),
            (Some("8:1234"), Some((8, 1235))),
            (Some("8:1234"), None),
            (Some("8"), Some((8, 1234))),
            (Some("a:b"), None),
        ] {
            assert!(!is_journal_stream(variable, stderr), "{variable:?}");
        }
    }
}
