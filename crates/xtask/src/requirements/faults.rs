//! The faults of the list: a judgement that nothing holds, a test that does not exist, an unknown
//! citation.

use std::collections::BTreeSet;

use super::list::{List, Requirement, Status};
use super::sources::Sources;

/// Words of a note.
const NOTE_WORDS_MAX: usize = 12;

/// Returns one line for each fault.
pub fn of_list(list: &List, sources: &Sources) -> Vec<String> {
    let mut faults = list.faults.clone();
    let mut known = BTreeSet::new();
    for row in &list.rows {
        if !known.insert(row.id.as_str()) {
            faults.push(format!("{}: on the list twice", row.id));
        }
        faults.extend(of_row(row, sources).into_iter().map(|fault| format!("{}: {fault}", row.id)));
    }
    faults.extend(unknown_citations(list, sources));
    faults
}

fn of_row(row: &Requirement, sources: &Sources) -> Vec<String> {
    let mut faults = Vec::new();
    if row.status == Status::Works && row.tests.is_empty() {
        faults.push("works, but names no test; name one that would fail without it".to_owned());
    }
    if row.status != Status::Works && row.note.is_empty() {
        faults.push(format!("{}, but has no note; say what is missing, or why it is out", row.status.name()));
    }
    let words = row.note.split_whitespace().count();
    if words > NOTE_WORDS_MAX {
        faults.push(format!("a note of {words} words; at most {NOTE_WORDS_MAX}"));
    }
    for test in &row.tests {
        match test.strip_prefix("lab:") {
            Some(id) => match sources.experiments.get(id) {
                None => faults.push(format!("no experiment {id} in docs/evaluation")),
                Some(false) if row.status == Status::Works => {
                    faults.push(format!("works, but experiment {id} does not match"));
                }
                Some(_) => {}
            },
            None if !sources.tests.contains(test) => faults.push(format!("no test {test}")),
            None => {}
        }
    }
    faults
}

fn unknown_citations(list: &List, sources: &Sources) -> Vec<String> {
    let known = |id: &str| list.rows.iter().any(|row| row.id == id);
    // Requirements of RFCs that have no list here may be cited freely.
    let rfc = |id: &str| id.split(' ').nth(1).map(str::to_owned);
    let ours = |id: &str| {
        !id.starts_with("RFC")
            || list.rows.iter().any(|row| row.id.starts_with("RFC") && rfc(&row.id) == rfc(id))
    };
    let unknown = sources.cited.iter().filter(|(id, _)| ours(id) && !known(id));
    let fault = |(id, places): (&String, &super::Places)| {
        let all: Vec<&str> = places.code.iter().chain(&places.tests).map(String::as_str).collect();
        format!("{id}: not on the list, cited in {}", all.join(", "))
    };
    unknown.map(fault).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sources::Places;
    use super::*;

    fn sources() -> Sources {
        let mut sources = Sources::default();
        sources.tests.insert("a.rs::holds".to_owned());
        sources.experiments.extend([("X1".to_owned(), true), ("X2".to_owned(), false)]);
        sources
    }

    fn faults(line: &str) -> Vec<String> {
        of_list(&List::parse(line), &sources())
    }

    #[test]
    fn right_lines_have_none() {
        for line in [
            "S1\tT\tworks\ta.rs::holds lab:X1\t",
            "S1\tT\tpartly\tlab:X2\tone host only",
            "S1\tT\tno\t\tnothing is there",
            "S1\tT\tout\t\tthe paper's own hardware",
        ] {
            assert_eq!(faults(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn each_fault_is_found() {
        for (line, fault) in [
            ("S1\tT", "S1\tT` has 2 columns"),
            ("S1\tT\tworks\t\t", "S1: works, but names no test"),
            ("S1\tT\tno\t\t", "S1: no, but has no note"),
            ("S1\tT\tout\t\t", "S1: out, but has no note"),
            ("S1\tT\tno\t\ta b c d e f g h i j k l m", "S1: a note of 13 words"),
            ("S1\tT\tworks\ta.rs::gone\t", "S1: no test a.rs::gone"),
            ("S1\tT\tpartly\ta.rs::holds b.rs::holds\tn", "S1: no test b.rs::holds"),
            ("S1\tT\tpartly\tlab:X3\tn", "S1: no experiment X3"),
            ("S1\tT\tworks\tlab:X2\t", "S1: works, but experiment X2 does not match"),
            ("S1\tT\tno\t\tn\nS1\tT\tno\t\tn", "S1: on the list twice"),
        ] {
            let found = faults(line);
            assert!(found.len() == 1 && found[0].contains(fault), "{line}: {found:?}");
        }
    }

    #[test]
    fn unknown_citations_are_faults_unless_an_rfc_has_no_list() {
        let mut sources = sources();
        for id in ["S1", "S2", "RFC 1 REQ-1", "RFC 1 REQ-2", "RFC 2 REQ-1"] {
            let code = vec!["a.rs:1".to_owned()];
            sources.cited.insert(id.to_owned(), Places { code, tests: Vec::new() });
        }
        let found = of_list(&List::parse("S1\tT\tno\t\tn\nRFC 1 REQ-1\tT\tno\t\tn"), &sources);
        assert_eq!(
            found,
            ["RFC 1 REQ-2: not on the list, cited in a.rs:1", "S2: not on the list, cited in a.rs:1"]
        );
    }
}
