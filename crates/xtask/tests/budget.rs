//! A budget of words: how many words of a dialect the comments of a crate may have.
//!
//! A word that words.rs bans is always wrong. These words are right now and then, but good code of
//! this field has 4 to 11 of them in 10,000 words of comments. `LIMIT` holds for each crate; a crate
//! in `PENDING` has its own allowance, which can only fall.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;

use support::sources;

/// Counted words in 10,000 words of a crate's comments.
const LIMIT: usize = 20;

/// Crates above the limit, and their allowance: today's figure, rounded up. Lower it, and remove
/// the line of a crate that keeps the limit.
const PENDING: &[(&str, usize)] = &[];

/// A crate that is this far below its allowance must lower it.
const SLACK: usize = 10;

/// Words that are counted; `*` stands for any ending.
const COUNTED: &[&str] = &[
    "behind",
    "beside",
    "nobody",
    "whose",
    "as far as",
    "one that",
    "ones that",
    "those that",
    "of which",
    "in which",
    "by which",
    "for which",
    "to which",
    "from which",
    "asked",
    "asks",
    "told",
    "tells",
    "go on",
    "goes on",
    "going on",
    "went on",
    "come from",
    "come to",
    "come in",
    "comes from",
    "comes to",
    "comes in",
    "coming from",
    "coming to",
    "coming in",
    "came from",
    "came to",
    "came in",
    "hear",
    "hears",
    "heard",
    "employ*",
    "lend*",
    "lent",
];

/// Terms of the field, which are not counted.
const TERMS: &[&str] = &["behind a nat", "behind the nat"];

/// A counted word: its line and itself.
type Hit = (usize, &'static str);

/// Returns the text of a line's comment, if it has one.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim();
    let text = if line.starts_with("//") { line } else { line.split_once(" // ")?.1 };
    Some(text.trim_start_matches(['/', '!']).trim())
}

/// Removes names of the code (between backticks) and quotations.
fn without_quoted(block: &str) -> String {
    let mut kept = String::new();
    let mut rest = block;
    while let Some(begin) = rest.find(['`', '"']) {
        let (mark, from) = (&rest[begin..=begin], &rest[begin + 1..]);
        let Some(end) = from.find(mark) else { break };
        kept.push_str(&rest[..begin]);
        // The lines stay, so that each word keeps its own.
        kept.extend(std::iter::once('_').chain(from[..end].chars().filter(|&c| c == '\n')));
        rest = &from[end + 1..];
    }
    kept + rest
}

/// Returns whether the words of a phrase stand at the beginning of `rest`.
fn begins_with(rest: &[(usize, String)], phrase: &str) -> bool {
    let words: Vec<&str> = phrase.split(' ').collect();
    rest.len() >= words.len()
        && words.iter().zip(rest).all(|(&word, (_, found))| match word.strip_suffix('*') {
            Some(prefix) => found.starts_with(prefix),
            None => found == word,
        })
}

/// Adds the counted words of a block, one comment of several lines, that begins at this line.
fn add_hits(first: usize, block: &str, hits: &mut Vec<Hit>) {
    let mut words: Vec<(usize, String)> = Vec::new();
    for (offset, line) in without_quoted(block).lines().enumerate() {
        let split = line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'');
        let kept = split.filter(|word| !word.is_empty());
        words.extend(kept.map(|word| (first + offset, word.to_lowercase())));
    }
    for at in 0..words.len() {
        let rest = &words[at..];
        if !TERMS.iter().any(|term| begins_with(rest, term)) {
            let found = COUNTED.iter().find(|phrase| begins_with(rest, phrase));
            hits.extend(found.map(|&phrase| (words[at].0, phrase)));
        }
    }
}

/// Returns how many words the comments of a file have, and the counted ones among them. Examples
/// between fences are code.
fn count(text: &str) -> (usize, Vec<Hit>) {
    let (mut words, mut hits) = (0, Vec::new());
    let (mut first, mut block, mut is_fenced) = (0, String::new(), false);
    for (at, line) in text.lines().enumerate() {
        let text = comment(line);
        let is_whole_line = line.trim_start().starts_with("//");
        if !is_whole_line {
            add_hits(first, &block, &mut hits);
            block.clear();
            is_fenced = false;
        }
        let Some(text) = text else { continue };
        let is_fence = text.starts_with("```");
        is_fenced ^= is_fence;
        let text = if is_fenced || is_fence { "" } else { text };
        words += text.split_whitespace().count();
        if is_whole_line {
            if block.is_empty() {
                first = at + 1;
            }
            block.push_str(text);
            block.push('\n');
        } else {
            add_hits(at + 1, text, &mut hits);
        }
    }
    add_hits(first, &block, &mut hits);
    (words, hits)
}

/// Returns what is wrong with a crate that has this many counted words in 10,000, if anything is.
fn fault(name: &str, found: usize, pending: Option<usize>) -> Option<String> {
    let allowed = pending.unwrap_or(LIMIT);
    if found > allowed {
        let rule = "write it plainly (CONTRIBUTING.md, English)";
        return Some(format!("{name}: {found} counted words in 10,000, but {allowed} are allowed: {rule}"));
    }
    match pending {
        Some(_) if found <= LIMIT => Some(format!("{name}: keeps the limit: remove its line of PENDING")),
        Some(_) if found + SLACK < allowed => Some(format!("{name}: lower its line of PENDING to {found}")),
        _ => None,
    }
}

#[test]
fn crates_keep_their_budgets() {
    // `BUDGET=crates/io cargo test -p xtask --test budget` lists the counted words of a part.
    let listed = std::env::var("BUDGET").ok();
    let mut crates: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
    let mut list = Vec::new();
    // This file lists the words.
    for (path, text) in sources("rs").into_iter().filter(|(path, _)| !path.ends_with(file!())) {
        let Some(name) = path.strip_prefix("crates").ok().and_then(|path| path.iter().next()) else {
            continue;
        };
        let (words, hits) = count(&text);
        let total = crates.entry(name.to_string_lossy().into_owned()).or_default();
        total.0 += words;
        total.1.extend(hits.iter().map(|(line, word)| format!("{}:{line}: {word}", path.display())));
        if listed.as_ref().is_some_and(|part| path.starts_with(part)) {
            list.extend(hits.iter().map(|(line, word)| format!("{}:{line}: {word}", path.display())));
        }
    }
    assert!(list.is_empty(), "{} counted words:\n{}", list.len(), list.join("\n"));
    let mut faults = Vec::new();
    for (name, (words, hits)) in &crates {
        let found = (hits.len() * 10_000).div_ceil((*words).max(1));
        let pending = PENDING.iter().find(|(pending, _)| pending == name).map(|(_, allowed)| *allowed);
        faults.extend(fault(name, found, pending));
    }
    let unknown = PENDING.iter().filter(|(name, _)| !crates.contains_key(*name));
    faults.extend(unknown.map(|(name, _)| format!("{name}: no such crate")));
    assert!(PENDING.is_sorted(), "PENDING is in alphabetical order");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn faults_are_found() {
    assert_eq!(fault("a", LIMIT, None), None);
    assert!(fault("a", LIMIT + 1, None).unwrap().contains("20 are allowed"));
    assert_eq!(fault("a", 90, Some(90)), None);
    assert_eq!(fault("a", 80, Some(90)), None);
    assert!(fault("a", 91, Some(90)).unwrap().contains("90 are allowed"));
    assert!(fault("a", 79, Some(90)).unwrap().contains("to 79"));
    assert!(fault("a", LIMIT, Some(LIMIT + 1)).unwrap().contains("remove"));
}

#[test]
fn words_are_counted() {
    let text = "\
/// A peer whose packets come
///   from nobody.
fn whose() {
    let behind = 1; // Beside it.
    // Lending `whose` and \"nobody\",
    // behind a NAT; behind it.
    // A calendar.
}
//! ```
//! // whose
//! ```
//! Whose.";
    let (words, hits) = count(text);
    let expected = [
        (1, "whose"),
        (1, "come from"),
        (2, "nobody"),
        (4, "beside"),
        (5, "lend*"),
        (6, "behind"),
        (12, "whose"),
    ];
    assert_eq!(hits, expected);
    assert_eq!(words, 5 + 2 + 2 + 4 + 5 + 2 + 1);
}
