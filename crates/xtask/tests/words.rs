//! Words: what people read is plain English, and comments and pages fit 100 columns.
//!
//! The rules are those of CONTRIBUTING.md. A machine can hold only a few of them: the first word of
//! an item's documentation, a list of words that have plainer ones, and the width.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use support::sources;

/// Columns of a comment or of a page.
const WIDTH: usize = 100;

/// First words of a documentation that promise a relative clause in place of a noun.
const BAD_BEGINNINGS: &[&str] =
    &["What", "Whether", "Which", "Who", "Whose", "How", "That", "Where", "Wherever", "Whatever", "Whoever"];

/// Words that are not used, and what to write.
const BAD_WORDS: &[(&str, &str)] = &[
    ("anew", "again"),
    ("so many", "n, or up to n"),
    ("so much", "n, or up to n"),
    ("that which", "the noun"),
    ("those which", "the noun"),
    ("is to be", "must be, will be"),
    ("are to be", "must be, will be"),
    ("whoever", "the noun"),
    ("whosoever", "the noun"),
    ("he who", "the noun"),
    ("who has not", "the noun"),
    ("by which way", "how"),
    ("said again", "retransmitted"),
    ("says again", "retransmits"),
    ("is told", "is reported, is notified"),
    ("are told", "are reported, are notified"),
    ("was told", "was reported, was notified"),
    ("were told", "were reported, were notified"),
    ("tells", "reports, returns"),
    ("be it", "whether"),
    ("in the midst", "within"),
    ("lest", "so that ... not"),
    ("nevertheless", "anyway"),
    ("meanwhile", "in the meantime"),
    ("has not got", "lacks"),
    ("all the same", "anyway"),
    ("as it were", "nothing"),
    ("thereof", "of it"),
    ("is over", "has ended, has expired"),
    ("is due", "has expired, the deadline"),
];

/// Whether the text has these words, as words.
fn has(text: &str, words: &str) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    text.match_indices(words).any(|(at, _)| {
        !is_word(text[..at].chars().next_back()) && !is_word(text[at + words.len()..].chars().next())
    })
}

/// What a line of a Rust file shows to readers: the text of a comment, or a literal.
fn readable(line: &str) -> Option<&str> {
    let trimmed = line.trim_start();
    if trimmed.starts_with("//") { Some(trimmed) } else { line.contains('"').then_some(trimmed) }
}

/// Lines that cannot be wrapped: tables, links, and words longer than a line.
fn is_unbreakable(line: &str) -> bool {
    let text = line.trim_start().trim_start_matches(['/', '!']).trim_start();
    text.starts_with('|') || text.starts_with('[') || text.starts_with("![") || !text.contains(' ')
}

fn bad_words(text: &str) -> Option<String> {
    let text = text.to_lowercase();
    let (bad, good) = BAD_WORDS.iter().find(|(bad, _)| has(&text, bad))?;
    Some(format!("`{bad}`: write {good}"))
}

/// Calls `fault` with the number and the fault of each line that breaks a rule.
fn check_rust(text: &str, mut fault: impl FnMut(usize, String)) {
    let mut fenced = false;
    let mut before = "";
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let is_comment = trimmed.starts_with("//");
        if !is_comment {
            fenced = false;
        } else if trimmed.trim_start_matches(['/', '!', ' ']).starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            before = trimmed;
            continue;
        }
        if is_comment && line.chars().count() > WIDTH && !is_unbreakable(line) {
            fault(number + 1, format!("{} columns", line.chars().count()));
        }
        if let Some(doc) = trimmed.strip_prefix("/// ").or(trimmed.strip_prefix("//! ")) {
            let begins = !before.starts_with("///") && !before.starts_with("//!");
            let first = doc.split([' ', ',']).next().unwrap_or("");
            if begins && BAD_BEGINNINGS.contains(&first) {
                fault(
                    number + 1,
                    format!("documentation begins with `{first}`: begin with a noun or a verb"),
                );
            }
        }
        if let Some(wrong) = readable(line).and_then(bad_words) {
            fault(number + 1, wrong);
        }
        before = trimmed;
    }
}

fn check_page(text: &str, mut fault: impl FnMut(usize, String)) {
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        if line.chars().count() > WIDTH && !is_unbreakable(line) {
            fault(number + 1, format!("{} columns", line.chars().count()));
        }
        if let Some(wrong) = bad_words(line) {
            fault(number + 1, wrong);
        }
    }
}

#[test]
fn comments_and_pages_keep_the_rules() {
    // `WORDS=crates/io cargo test -p xtask --test words` checks a part, pending or not.
    let only = std::env::var("WORDS").ok();
    let mut faults = Vec::new();
    for (path, text) in sources("rs").into_iter().chain(sources("md")) {
        let is_checked = only.as_ref().is_none_or(|only| path.to_string_lossy().starts_with(only.as_str()));
        let lists_words = ["xtask/tests/words.rs", "xtask/tests/budget.rs", "CONTRIBUTING.md"]
            .iter()
            .any(|name| path.ends_with(name));
        if !is_checked || lists_words {
            continue;
        }
        let fault = |line: usize, what: String| faults.push(format!("{}:{line}: {what}", path.display()));
        if path.extension().is_some_and(|extension| extension == "md") {
            check_page(&text, fault);
        } else {
            check_rust(&text, fault);
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn faults_are_found() {
    let mut found = Vec::new();
    let text = "/// What it is.\nstruct A;\n// It is to be\n/// Fine\n/// What goes on.\nlet x = \"anew\";\n";
    check_rust(text, |line, _| found.push(line));
    assert_eq!(found, [1, 3, 6]);
    found.clear();
    check_page(
        &format!("{}\n| {} |\n```\nanew\n```\nrenewed\n", "word ".repeat(30), "x ".repeat(90)),
        |line, _| {
            found.push(line);
        },
    );
    assert_eq!(found, [1]);
}
