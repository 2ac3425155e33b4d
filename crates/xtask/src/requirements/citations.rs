//! Finds citations of requirements in comments: `S29`, `B15`, `A17`, `E4`, `RFC 4787 REQ-1`,
//! `RFC 7857 2`.
//!
//! Only comments count, so that names in code are no citations. After an RFC's number further
//! requirements of it may follow: `RFC 5508 REQ-4, REQ-5`.

use std::collections::BTreeSet;

/// RFCs that are cited by section, not by requirement.
const BY_SECTION: [&str; 1] = ["RFC 7857"];

/// Returns the identifiers that the comment of this source line cites.
pub fn of_line(line: &str) -> BTreeSet<String> {
    comment(line).map(of_text).unwrap_or_default()
}

/// Returns the comment of a line, if it has one.
fn comment(line: &str) -> Option<&str> {
    // A `//` within an address such as `https://` begins no comment.
    let at = line.match_indices("//").map(|(at, _)| at).find(|&at| at == 0 || !line[..at].ends_with(':'))?;
    Some(&line[at..])
}

fn of_text(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut rfc: Option<String> = None;
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || "(),;:`[]".contains(c)).collect();
    let words: Vec<&str> =
        words.into_iter().map(|w| w.trim_end_matches('.')).filter(|w| !w.is_empty()).collect();
    let mut i = 0;
    while i < words.len() {
        let word = words[i];
        if word == "RFC" && words.get(i + 1).is_some_and(|number| is_number(number)) {
            let name = format!("RFC {}", words[i + 1]);
            let section = words.get(i + 2).filter(|_| BY_SECTION.contains(&name.as_str()));
            if let Some(section) = section.filter(|section| is_section(section)) {
                found.insert(format!("{name} {section}"));
            }
            rfc = Some(name);
            i += 2;
            continue;
        }
        match (&rfc, word.strip_prefix("REQ-")) {
            // REQ-10A and the like are parts of REQ-10.
            (Some(rfc), Some(number)) => {
                let number: String = number.chars().take_while(char::is_ascii_digit).collect();
                if !number.is_empty() {
                    found.insert(format!("{rfc} REQ-{number}"));
                }
            }
            _ if is_own(word) => {
                found.insert(word.to_owned());
            }
            _ => {}
        }
        i += 1;
    }
    found
}

/// Returns true for one of our own identifiers: a letter and up to three digits.
fn is_own(word: &str) -> bool {
    match word.split_at_checked(1) {
        Some(("S" | "B" | "A" | "E", number)) => is_number(number) && number.len() <= 3 && number != "0",
        _ => false,
    }
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_section(word: &str) -> bool {
    word.split('.').all(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cited(line: &str) -> Vec<String> {
        of_line(line).into_iter().collect()
    }

    #[test]
    fn comments_of_all_forms_are_read() {
        assert_eq!(cited("let x = 1; // S29"), ["S29"]);
        assert_eq!(cited("/// Merged like this (B15), see A17."), ["A17", "B15"]);
        assert_eq!(
            cited("//! (RFC 5508 REQ-4, REQ-5; RFC 4787 REQ-10A)"),
            ["RFC 4787 REQ-10", "RFC 5508 REQ-4", "RFC 5508 REQ-5"]
        );
        assert_eq!(cited("// RFC 7857 2.1"), ["RFC 7857 2.1"]);
    }

    #[test]
    fn nothing_else_is_taken_for_a_citation() {
        assert!(cited("const S29: u8 = 1;").is_empty());
        assert!(cited("let url = \"https://example.org/S1\";").is_empty());
        assert!(cited("// RFC 791 3.1, SHA1, S3cret, A4096").is_empty());
        assert!(cited("// REQ-1 of nothing").is_empty());
    }
}
