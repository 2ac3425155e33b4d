//! Links between the workspace's Markdown files resolve, anchors included, and decision records
//! stay one page.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Words of a decision record.
const DECISION_WORDS_MAX: usize = 450;

#[test]
fn relative_links_resolve() {
    let pages = pages();
    assert!(pages.len() > 50, "only {} pages found", pages.len());
    let anchors: HashMap<&PathBuf, HashSet<String>> =
        pages.iter().map(|(path, text)| (path, anchors(text))).collect();
    let mut broken = Vec::new();
    for (path, text) in &pages {
        for link in links(text) {
            if let Some(reason) = fault(path, &link, &anchors) {
                broken.push(format!("{}: {link}: {reason}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{} broken links:\n{}", broken.len(), broken.join("\n"));
}

/// `crates/...` and its like in prose name files that exist.
#[test]
fn paths_in_code_spans_exist() {
    const FOLDERS: [&str; 7] = ["crates/", "bench/", "docs/", "examples/", "ops/", "fuzz/", ".ci/"];
    let mut missing = Vec::new();
    for (path, text) in pages() {
        for span in code_spans(&text) {
            let word = span.split_whitespace().next().unwrap_or_default();
            let is_path = FOLDERS.iter().any(|folder| word.starts_with(folder));
            // A placeholder, or the NF of `docs/write-your-first-nf.md`.
            let is_pattern =
                word.contains(['*', '{', '<']) || word.contains("NAME") || word.contains("flow_limit");
            if is_path && !is_pattern && !root().join(word.trim_end_matches(':')).exists() {
                missing.push(format!("{}: {word}", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{} files are missing:\n{}", missing.len(), missing.join("\n"));
}

#[test]
fn decision_records_are_one_page_of_three_parts() {
    let mut records = 0;
    for (path, text) in pages() {
        let is_record = path.parent().is_some_and(|folder| folder.ends_with("docs/decisions"))
            && !path.ends_with("README.md");
        if !is_record {
            continue;
        }
        records += 1;
        let words = text.split_whitespace().count();
        assert!(words <= DECISION_WORDS_MAX, "{}: {words} words", path.display());
        let parts: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(parts, ["## Context", "## Decision", "## Consequences"], "{}", path.display());
    }
    assert!(records > 20, "only {records} records found");
}

#[test]
fn the_index_of_decisions_has_their_titles() {
    let folder = Path::new("docs/decisions");
    let pages: HashMap<PathBuf, String> = pages().into_iter().collect();
    let index = pages.iter().find(|(path, _)| path.ends_with(folder.join("README.md")));
    let (_, index) = index.expect("there is an index");
    let mut rows: Vec<&str> = index.lines().filter(|line| line.starts_with("| [")).collect();
    for (path, text) in &pages {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if path.parent().is_some_and(|parent| parent.ends_with(folder)) && name != "README.md" {
            let (number, title) =
                text.lines().next().and_then(|line| line.split_once(". ")).expect("a title");
            let number: u32 = number.trim_start_matches("# ").parse().expect("a number");
            let row = format!("| [{number:04}]({name}) | {title} | ");
            assert!(rows.iter().any(|line| line.starts_with(&row)), "the index lacks: {row}");
            rows.retain(|line| !line.starts_with(&row));
        }
    }
    assert!(rows.is_empty(), "{rows:?}");
}

#[test]
fn links_and_anchors_are_found() {
    let text = "# A `b` page, (one)\n\n[x](a.md#b) `[no](c.md)` ![y](d.svg \"title\")\n\n```\n[no](e.md)\n# no\n```\n";
    assert_eq!(links(text), ["a.md#b", "d.svg"]);
    assert_eq!(anchors(text), HashSet::from(["a-b-page-one".to_owned()]));
    assert_eq!(anchors("## Two\n## Two\n"), HashSet::from(["two".to_owned(), "two-1".to_owned()]));
}

/// Returns the reason why `link` on the page `from` leads nowhere.
fn fault(from: &Path, link: &str, anchors: &HashMap<&PathBuf, HashSet<String>>) -> Option<&'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target = if file.is_empty() {
        from.to_owned()
    } else {
        normal(&from.parent().expect("a page has a folder").join(file))
    };
    if !target.exists() {
        return Some("no such file");
    }
    let anchor = anchor?;
    match anchors.get(&target) {
        Some(known) if known.contains(anchor) => None,
        Some(_) => Some("no such heading"),
        None => Some("an anchor in a file that is not a page"),
    }
}

/// The workspace's folder.
fn root() -> PathBuf {
    normal(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

/// The Markdown files of the workspace, without templates.
fn pages() -> Vec<(PathBuf, String)> {
    let mut pages = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the workspace") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && !["target", "templates", "corpus", "artifacts"].contains(&&*name)
                {
                    folders.push(path);
                }
            } else if name.ends_with(".md") {
                let text = fs::read_to_string(&path).expect("UTF-8");
                pages.push((path, text));
            }
        }
    }
    pages.sort();
    pages
}

/// Removes `.` and `..` without asking the file system.
fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts
}

/// Lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

/// Targets of inline links and images, outside of code.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    let joined: Vec<&str> = prose(text).collect();
    let joined = joined.join("\n");
    // Every second piece between backquotes is code. It is replaced, since a link's text may be
    // code.
    let plain: String = joined
        .split('`')
        .enumerate()
        .map(|(index, piece)| if index % 2 == 0 { piece } else { "code" })
        .collect();
    let mut rest = plain.as_str();
    while let Some(start) = rest.find("](") {
        rest = &rest[start + 2..];
        let Some(end) = rest.find(')') else { break };
        links.extend(rest[..end].split_whitespace().next().map(str::to_owned));
    }
    links
}

/// Code spans of the prose.
fn code_spans(text: &str) -> Vec<String> {
    let joined: Vec<&str> = prose(text).collect();
    joined.join("\n").split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Anchors of the headings, as GitHub makes them.
fn anchors(text: &str) -> HashSet<String> {
    let mut anchors = HashSet::new();
    for line in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let slug: String = title
            .trim()
            .to_lowercase()
            .chars()
            .filter_map(|c| match c {
                ' ' => Some('-'),
                c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
                _ => None,
            })
            .collect();
        let mut unique = slug.clone();
        let mut number = 0;
        while !anchors.insert(unique.clone()) {
            number += 1;
            unique = format!("{slug}-{number}");
        }
    }
    anchors
}
