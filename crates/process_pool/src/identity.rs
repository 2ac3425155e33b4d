//! The identity of a process: its number and its start time.

use std::fmt;
use std::io::{Error, ErrorKind};

/// A process: another one may get its number later, but not with this start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessIdentity {
    pub id: u32,
    /// Start time, in ticks since the system's start.
    started: u64,
}

impl ProcessIdentity {
    /// Returns the identity of the process that has this number.
    pub fn of(id: u32) -> std::io::Result<ProcessIdentity> {
        let text = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
        let invalid = || Error::new(ErrorKind::InvalidData, format!("/proc/{id}/stat: no start time"));
        Ok(ProcessIdentity { id, started: start_in(&text).ok_or_else(invalid)? })
    }

    /// Reads the text of [`fmt::Display`].
    pub fn parse(text: &str) -> Option<ProcessIdentity> {
        let (id, started) = text.trim_end().split_once(' ')?;
        Some(ProcessIdentity { id: id.parse().ok()?, started: started.parse().ok()? })
    }
}

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.id, self.started)
    }
}

/// Returns the start time in the text of `/proc/PID/stat`: field 22. The name of the program,
/// field 2, is in parentheses and may contain anything.
fn start_in(text: &str) -> Option<u64> {
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test fails by panicking.

    use super::*;

    #[test]
    fn identity_is_read_as_it_was_written() {
        let own = ProcessIdentity::of(std::process::id()).unwrap();
        assert_eq!(ProcessIdentity::parse(&own.to_string()), Some(own));
        assert!(ProcessIdentity::parse("12").is_none() && ProcessIdentity::parse("a b").is_none());
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 10 11";
        assert_eq!(start_in(stat), Some(98_765));
        assert_eq!(start_in("7 (a) S 1"), None);
    }
}
