//! The list: `docs/requirements.tsv`, one requirement a line.
//!
//! Columns, separated by tabs: id, title, status, tests, note. Tests are separated by spaces, each
//! `path::name` of a test in the workspace, or `lab:ID` of an experiment.

use std::fmt;

/// The judgement of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// Met, and a test would fail if it were not.
    Works,
    /// Met in part, or held by no test.
    Partly,
    /// Not met.
    No,
    /// Withdrawn, or not for this project.
    Out,
}

impl Status {
    pub const ALL: [Status; 4] = [Status::Works, Status::Partly, Status::No, Status::Out];

    pub fn name(self) -> &'static str {
        match self {
            Status::Works => "works",
            Status::Partly => "partly",
            Status::No => "no",
            Status::Out => "out",
        }
    }

    /// Returns true if something is left to do.
    pub fn is_missing(self) -> bool {
        matches!(self, Status::Partly | Status::No)
    }

    fn parse(text: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.name() == text)
    }
}

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub id: String,
    pub title: String,
    pub status: Status,
    /// The tests or experiments that hold it.
    pub tests: Vec<String>,
    /// The part that is missing, or the reason why it is out.
    pub note: String,
}

impl Requirement {
    fn parse(line: &str) -> Result<Requirement, String> {
        let columns: Vec<&str> = line.split('\t').collect();
        let [id, title, status, tests, note] = columns[..] else {
            return Err(format!(
                "`{line}` has {} columns; expected id, title, status, tests, note",
                columns.len()
            ));
        };
        let status = Status::parse(status)
            .ok_or_else(|| format!("{id}: status `{status}`; expected works, partly, no or out"))?;
        let tests = tests.split(' ').filter(|test| !test.is_empty()).map(str::to_owned).collect();
        Ok(Requirement { id: id.to_owned(), title: title.to_owned(), status, tests, note: note.to_owned() })
    }

    /// Returns the letter or the RFC of the identifier: `S`, `RFC 4787`.
    pub fn family(&self) -> &str {
        match self.id.strip_prefix("RFC ").and_then(|rest| rest.find(' ')) {
            Some(at) => &self.id[.."RFC ".len() + at],
            None => &self.id[..self.id.len().min(1)],
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<16} {:<7} {}", self.id, self.status.name(), self.title)?;
        if !self.note.is_empty() {
            write!(f, ": {}", self.note)?;
        }
        self.tests.iter().try_for_each(|test| write!(f, "\n{:<25}{test}", ""))
    }
}

/// All requirements in their order, and the faults of lines that are none.
#[derive(Default)]
pub struct List {
    pub rows: Vec<Requirement>,
    pub faults: Vec<String>,
}

impl List {
    pub fn parse(text: &str) -> List {
        let mut list = List::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match Requirement::parse(line) {
                Ok(row) => list.rows.push(row),
                Err(fault) => list.faults.push(fault),
            }
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read() {
        let list = List::parse(
            "# about\nS1\tA title\tpartly\ta.rs::b lab:X1\tno hosts\nRFC 1 REQ-2\tB\tno\t\tall\n",
        );
        assert_eq!(list.faults, [""; 0]);
        let [first, second] = &list.rows[..] else { unreachable!("two lines") };
        assert_eq!((first.status, first.tests.len(), first.family()), (Status::Partly, 2, "S"));
        assert_eq!((second.status, second.tests.len(), second.family()), (Status::No, 0, "RFC 1"));
        assert_eq!(second.note, "all");
    }

    #[test]
    fn lines_without_a_status_are_faults() {
        let list = List::parse("S1\tA title\nS2\tA title\t\t\t\nS3\tA title\tdone\t\t\n");
        assert_eq!(list.faults.len(), 3);
        assert!(
            list.faults[0].contains("2 columns") && list.faults[2].contains("`done`"),
            "{:?}",
            list.faults
        );
    }
}
