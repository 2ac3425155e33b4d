//! Classes of rules and their priorities.

use std::collections::BTreeMap;

use crate::RuleError;
use crate::fault::{Fault, Lines};
use crate::text::{Piece, Read};

/// The most classes.
pub const CLASSES_MAX: usize = 4096;

/// The classes that rules name by `classtype`, as a `classification.config` lists them.
///
/// A line is `config classification: NAME,DESCRIPTION,PRIORITY`; empty lines and lines that begin
/// with `#` do not count. Names are told apart without case. Where a name comes twice the first
/// counts, as in Suricata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classifications(BTreeMap<String, Classification>);

/// A class of rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Classification {
    /// The name as the list has it.
    pub name: String,
    /// What to tell people.
    pub description: String,
    /// The priority of its rules unless they say another: 1, the highest, to 255.
    pub priority: u8,
}

impl Classifications {
    /// Reads a list. What is right in it counts whatever else is in it; the faults say what does
    /// not.
    pub fn read(file: &str, text: &str) -> (Self, Vec<Fault>) {
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

    /// The class of a name, whatever its case.
    pub fn get(&self, name: &str) -> Option<&Classification> {
        match self.0.get(name) {
            Some(class) => Some(class),
            None => self.0.get(&name.to_ascii_lowercase()),
        }
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Classification> {
        self.0.values()
    }
}

fn class(line: Piece<'_>) -> Read<Classification> {
    const EXPECTED: &str = "`config classification: NAME,DESCRIPTION,PRIORITY`";
    let words = line.trim().strip("config").map(Piece::trim).and_then(|rest| rest.strip("classification:"));
    let Some((name, rest)) = words.and_then(|rest| rest.cut(",")) else {
        return Err(line.trim().wrong(EXPECTED));
    };
    // A description may have commas.
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
