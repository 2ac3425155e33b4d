//! Classifications and their priorities.

use std::collections::BTreeMap;

use crate::RuleError;
use crate::fault::{Lines, RuleFault};
use crate::text::{ParseResult, Piece};

/// Maximum classifications.
pub const CLASSES_MAX: usize = 4096;

/// The classifications that rules name with `classtype`, from a `classification.config`.
///
/// A line is `config classification: NAME,DESCRIPTION,PRIORITY`. Empty lines and lines that begin
/// with `#` are ignored. Names are case-insensitive. The first definition of a name counts, as in
/// Suricata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classifications(BTreeMap<String, Classification>);

/// A classification.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Classification {
    /// The name as written.
    pub name: String,
    /// The description for people.
    pub description: String,
    /// The default priority of its rules: 1, the highest, to 255.
    pub priority: u8,
}

impl Classifications {
    /// Parses a file. Valid lines count whatever the others contain; each invalid line is a fault.
    pub fn read(file: &str, text: &str) -> (Self, Vec<RuleFault>) {
        let (mut classes, mut faults) = (Self::default(), Vec::new());
        for line in Lines::plain(file, text) {
            match class(Piece::new(&line.text)) {
                Ok(class) if classes.0.len() < CLASSES_MAX => {
                    classes.0.entry(class.name.to_ascii_lowercase()).or_insert(class);
                }
                Ok(_) => {
                    let error = RuleError::TooMany { what: "classes", limit: CLASSES_MAX };
                    faults.push(line.fault(Piece::new(&line.text).error(error)));
                }
                Err(wrong) => faults.push(line.fault(wrong)),
            }
        }
        (classes, faults)
    }

    /// Returns the classification of this name, ignoring case.
    pub fn get(&self, name: &str) -> Option<&Classification> {
        match self.0.get(name) {
            Some(class) => Some(class),
            None => self.0.get(&name.to_ascii_lowercase()),
        }
    }

    /// Returns all classifications, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Classification> {
        self.0.values()
    }
}

fn class(line: Piece<'_>) -> ParseResult<Classification> {
    const EXPECTED: &str = "`config classification: NAME,DESCRIPTION,PRIORITY`";
    let words = line.trim().strip("config").map(Piece::trim).and_then(|rest| rest.strip("classification:"));
    let Some((name, rest)) = words.and_then(|rest| rest.cut(",")) else {
        return Err(line.trim().wrong(EXPECTED));
    };
    // A description may contain commas.
    let Some(comma) = rest.text.rfind(',') else { return Err(rest.wrong(EXPECTED)) };
    let name = name.trim();
    if name.is_empty() || name.text.contains(char::is_whitespace) {
        return Err(name.wrong("a name without spaces"));
    }
    Ok(Classification {
        name: name.text.to_owned(),
        description: rest.part(0, comma).trim().text.to_owned(),
        priority: rest.from(comma + 1).trim().number(1..=u8::MAX)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_read() {
        let text = "# comment\n\nconfig classification: a-b,Some, text ,3\n config  classification:C,,1\n\
                    config classification: a-b,Again,4\nconfig classification: d,D,0\nclass x\n";
        let (classes, faults) = Classifications::read("c.config", text);
        let a = classes.get("A-B").unwrap();
        assert_eq!((&a.name[..], &a.description[..], a.priority), ("a-b", "Some, text", 3));
        assert_eq!(classes.get("c").unwrap().priority, 1);
        assert_eq!(classes.iter().count(), 2);
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            faults,
            [
                "c.config:6:28: found `0`, expected a number from 1 to 255",
                "c.config:7:1: found `class x`, expected `config classification: NAME,DESCRIPTION,PRIORITY`",
            ]
        );
    }
}
