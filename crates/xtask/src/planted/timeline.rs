//! The events that must be in the timeline that a failure prints, so that a reader can find its
//! cause: `timelines.tsv` has one for each planted bug.

use std::fs;
use std::io;
use std::path::Path;

/// An event of a timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedEvent {
    /// The planted bug.
    pub bug: String,
    /// The kind.
    pub event: String,
    /// A part of its details; may be empty.
    pub details: String,
}

/// Reads the events of all bugs.
///
/// # Errors
/// If the file cannot be read, or a line of it has not three columns.
pub fn expected(folder: &Path) -> io::Result<Vec<ExpectedEvent>> {
    let text = fs::read_to_string(folder.join("timelines.tsv"))?;
    let read = |line: &str| {
        let columns: Vec<_> = line.split('\t').map(str::to_owned).collect();
        let [bug, event, details] = columns.try_into().ok()?;
        Some(ExpectedEvent { bug, event, details })
    };
    let events = text.lines().skip(1).map(read).collect::<Option<_>>();
    events.ok_or_else(|| io::Error::other("timelines.tsv: a line has not three columns"))
}

/// Returns the lines of the timeline in the output of a test that failed.
pub fn lines(output: &str) -> Vec<&str> {
    let is_heading = |line: &&str| line.trim_start().starts_with("time ") && line.ends_with("details");
    let lines = output.lines().skip_while(|line| !is_heading(line)).skip(1);
    lines.take_while(|line| line.starts_with(' ')).collect()
}

/// Returns the marked line of the timeline: the one that breaks a rule.
pub fn marked(output: &str) -> Option<&str> {
    lines(output).into_iter().find_map(|line| line.strip_suffix("  <-- here"))
}

/// Returns the rule that a failure names first.
pub fn violated(output: &str) -> Option<&str> {
    output.lines().find_map(|line| line.strip_prefix("violated: "))
}

impl ExpectedEvent {
    /// Returns true if a line has the event.
    pub fn is_in(&self, line: &str) -> bool {
        let after = line.split_whitespace().any(|word| word == self.event);
        after && line.split_once(&self.event).is_some_and(|(_, rest)| rest.contains(&self.details))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_in_the_output() {
        let output = "---- a stdout ----\n 3 earlier lines are not shown.\n   time  host event  details\n   \
                      0.1  test  sent    State, 8 bytes, to unit 1\n   0.2  test  received  State\n\nthread\n   x";
        let lines = lines(output);
        assert_eq!(lines.len(), 2);
        let expected = |details: &str| ExpectedEvent {
            bug: "b".to_owned(),
            event: "sent".to_owned(),
            details: details.to_owned(),
        };
        assert!(expected("State").is_in(lines[0]) && expected("").is_in(lines[0]));
        assert!(!expected("Release").is_in(lines[0]) && !expected("State").is_in(lines[1]));
    }
}
