//! The functions' manuals have one shape, and name what the descriptors declare. With
//! `RIVULET_BLESS` set, this test writes their tables of counters.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use nf::{CounterDeclaration, DeclaredCounters, Descriptor, Registry};
use serde_json::Value;

/// Sections of a manual, in this order; those with `true` are required.
const SECTIONS: [(&str, bool); 8] = [
    ("Example", true),
    ("Configuration", true),
    ("Behaviour", true),
    ("Commands", false),
    ("Counters and events", true),
    ("Limits", true),
    ("Performance", true),
    ("Standards", false),
];

#[test]
fn manuals_have_one_shape() {
    let registry: Registry<Value> = functions::registry();
    for entry in registry.entries() {
        let name = entry.descriptor.name;
        let lines: Vec<&str> = prose(entry.readme);
        assert_eq!(lines[0], format!("# {name}"), "{name}: the title");
        let purpose = lines[2];
        assert!(!purpose.is_empty() && !purpose.starts_with(['#', '|', '-']), "{name}: `{purpose}`");
        let mut expected = SECTIONS.iter();
        for section in lines.iter().filter_map(|line| line.strip_prefix("## ")) {
            let known = expected.any(|(title, _)| *title == section);
            assert!(known, "{name}: section `{section}` is unknown, or out of order");
        }
        for (title, _) in SECTIONS.iter().filter(|(_, required)| *required) {
            assert!(lines.contains(&format!("## {title}").as_str()), "{name}: no section `{title}`");
        }
        assert!(has_table(&lines, "## Configuration"), "{name}: no table of keys");
    }
}

#[test]
fn manuals_name_what_descriptors_declare() {
    let registry: Registry<Value> = functions::registry();
    let mut missing = Vec::new();
    for entry in registry.entries() {
        let Descriptor { name, aliases, attributes, .. } = entry.descriptor;
        let manual = entry.readme;
        let names = manual.lines().find(|line| line.starts_with("Names in policies:"));
        let names = names.unwrap_or_default().to_lowercase();
        for alias in aliases.iter() {
            if !names.contains(&format!("`{}`", alias.to_lowercase())) {
                missing.push(format!("{name}: the name {alias}"));
            }
        }
        for attribute in attributes.iter().map(|attribute| attribute.name) {
            if !manual.contains(&format!("`{attribute}`")) {
                missing.push(format!("{name}: `{attribute}`"));
            }
        }
    }
    assert!(missing.is_empty(), "manuals do not name:\n{}", missing.join("\n"));
}

#[test]
fn tables_of_counters_are_those_of_the_declarations() {
    let registry: Registry<Value> = functions::registry();
    for Descriptor { name, counters, .. } in registry.entries().iter().map(|entry| entry.descriptor) {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/{}/README.md", name.replace('-', "_")));
        let found = fs::read_to_string(&path).unwrap();
        let (before, rest) = found.split_once(HEAD).unwrap_or_else(|| panic!("{name}: no table of counters"));
        let (_, after) = rest.split_once("\n\n").unwrap();
        let manual = [before, HEAD, &rows(counters), "\n", after].concat();
        if std::env::var_os("RIVULET_BLESS").is_some() {
            fs::write(&path, &manual).unwrap();
        } else {
            assert_eq!(found, manual, "RIVULET_BLESS=1 cargo test -p functions --test manuals rewrites it");
        }
    }
}

#[test]
fn counters_have_unique_names_and_whole_sentences() {
    let registry: Registry<Value> = functions::registry();
    for Descriptor { name, counters, .. } in registry.entries().iter().map(|entry| entry.descriptor) {
        let mut names = BTreeSet::new();
        for CounterDeclaration { name: counter, unit, help } in all(counters) {
            assert!(names.insert(counter), "{name}: {counter} twice");
            for word in [counter, unit] {
                let is_plain = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
                assert!(word.bytes().all(is_plain) && !word.ends_with("_total"), "{name}: {word}");
            }
            let starts_well = help.starts_with(|first: char| first.is_ascii_uppercase());
            assert!(starts_well && help.ends_with('.') && !help.contains('|'), "{name}: {counter}: {help}");
        }
    }
}

/// Head of a table of counters.
const HEAD: &str = "| counter | unit | meaning |\n|---|---|---|\n";

/// Rows of a table of counters, by their keys in the report.
fn rows(counters: &DeclaredCounters) -> String {
    let row = |key: &str, of: &CounterDeclaration| format!("| `{key}` | {} | {} |\n", of.unit, of.help);
    let plain = counters.plain.iter().map(|counter| row(counter.name, counter));
    let labelled = counters.labelled.iter().flat_map(|label| {
        let value = label.label.to_uppercase();
        label.counters.iter().map(move |counter| row(&label.key(&value, counter), counter))
    });
    plain.chain(labelled).collect()
}

fn all(counters: &DeclaredCounters) -> impl Iterator<Item = &'static CounterDeclaration> {
    counters.plain.iter().chain(counters.labelled.iter().flat_map(|label| label.counters))
}

/// Lines outside of code blocks.
fn prose(text: &str) -> Vec<&str> {
    let mut in_code = false;
    text.lines()
        .filter(|line| {
            let fence = line.starts_with("```");
            in_code ^= fence;
            !in_code && !fence
        })
        .collect()
}

/// Returns whether the section `title` has a table.
fn has_table(lines: &[&str], title: &str) -> bool {
    let section = lines.iter().skip_while(|line| **line != title).skip(1);
    section.take_while(|line| !line.starts_with("## ")).any(|line| line.starts_with("|---|"))
}
