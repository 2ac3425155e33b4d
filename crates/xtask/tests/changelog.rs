//! The form of `CHANGELOG.md`: versions, areas in one order, and a line per entry.

use std::collections::BTreeSet;

/// The areas in their order; a version has those in which something changed.
const AREAS: [&str; 15] = [
    "Policy",
    "Flows",
    "Fast path",
    "TCP streams",
    "Functions",
    "External nodes",
    "Interfaces",
    "Units",
    "Cluster",
    "Control API",
    "Reports, metrics and logs",
    "Captures and tools",
    "Simulator and lab",
    "Tests",
    "Speed",
];
/// Characters of an entry, without the address of a link.
const ENTRY_CHARS_MAX: usize = 100;

#[test]
fn versions_areas_and_entries_have_their_form() {
    let faults = faults(include_str!("../../../CHANGELOG.md"));
    assert!(faults.is_empty(), "CHANGELOG.md:\n{}", faults.join("\n"));
}

#[test]
fn faults_are_found() {
    let page = |sections: &str| format!("# Changelog\n\n## [Unreleased]\n\n{sections}");
    let found = |sections: &str| faults(&page(sections)).join("\n");
    assert_eq!(found("### Policy\n\n- a: b [c](d.md).\n\n### Units\n\n- d: e.\n"), "");
    for (sections, fault) in [
        ("### Units\n\n- d: e.\n\n### Policy\n\n- a: b.\n", "order"),
        ("### Odd\n\n- a: b.\n", "unknown area"),
        ("### Policy\n\n### Units\n\n- d: e.\n", "empty"),
        ("### Policy\n\n", "empty"),
        ("### Policy\n\n- a: b\n", "full stop"),
        ("### Policy\n\n- a.\n", "topic"),
        ("### Policy\n\n- a: b,\n  and c.\n", "neither"),
        ("### Policy\n\n- a: b.\n- a: b.\n", "twice"),
    ] {
        assert!(found(sections).contains(fault), "{sections}: {}", found(sections));
    }
    assert!(found(&format!("### Policy\n\n- a: {}.\n", "b".repeat(100))).contains("long"));
    assert!(faults("# Changelog\n\n## 0.1\n").join("\n").contains("version"));
}

/// Returns what is wrong with the page, a line each.
fn faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut entries = BTreeSet::new();
    let (mut area, mut size, mut is_in_version) = (None, 1, false);
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    for (number, line) in lines.chain([(text.lines().count(), "## end")]) {
        let mut fault = |what: &str| faults.push(format!("{number}: {what}: {line}"));
        if line.starts_with('#') && size == 0 {
            fault("the section before is empty");
        }
        if let Some(name) = line.strip_prefix("### ") {
            let found = AREAS.iter().position(|area| *area == name);
            if found.is_none() {
                fault("unknown area");
            } else if found <= area {
                fault("not in the order of areas");
            }
            (area, size) = (found.or(area), 0);
        } else if let Some(version) = line.strip_prefix("## ") {
            (area, size, is_in_version) = (None, 1, true);
            if line != "## end" && !is_version(version) {
                fault("expected a version, as `[0.1.0] - 2026-01-31`");
            }
        } else if let Some(entry) = line.strip_prefix("- ") {
            size += 1;
            entry_fault(entry).map(&mut fault);
            if !entries.insert(entry) {
                fault("this entry is there twice");
            }
        } else if is_in_version && area.is_some() && !line.is_empty() {
            fault("neither an entry of one line nor a heading");
        }
    }
    faults
}

fn entry_fault(entry: &str) -> Option<&'static str> {
    let shown: usize = entry
        .split("](")
        .enumerate()
        .map(|(at, part)| if at == 0 { part } else { after_address(part) }.chars().count())
        .sum();
    match entry {
        _ if !entry.ends_with('.') => Some("no full stop at the end"),
        _ if !entry.contains(": ") => Some("no topic before a colon"),
        _ if shown + "- ".len() > ENTRY_CHARS_MAX => Some("too long"),
        _ => None,
    }
}

/// Returns the text after the address of a link.
fn after_address(part: &str) -> &str {
    part.split_once(')').map_or(part, |(_, rest)| rest)
}

/// Checks for `[Unreleased]` or `[1.2.3] - 2026-01-31`.
fn is_version(text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((version, date)) = text.split_once(" - ") else { return text == "[Unreleased]" };
    let version = version.strip_prefix('[').and_then(|version| version.strip_suffix(']'));
    version.is_some_and(|version| version.split('.').count() == 3 && version.split('.').all(is_number))
        && date.split('-').map(str::len).eq([4, 2, 2])
        && date.split('-').all(is_number)
}
