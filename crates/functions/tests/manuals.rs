//! The functions' manuals have one shape, and name what the descriptors declare.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use nf::{Descriptor, Registry, Shared};
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
        let Descriptor { name, aliases, attributes, shared, .. } = entry.descriptor;
        let manual = entry.readme;
        let names = manual.lines().find(|line| line.starts_with("Names in policies:"));
        let names = names.unwrap_or_default().to_lowercase();
        for alias in aliases.iter() {
            if !names.contains(&format!("`{}`", alias.to_lowercase())) {
                missing.push(format!("{name}: the name {alias}"));
            }
        }
        let attributes = attributes.iter().map(|attribute| attribute.name);
        let counters = shared.iter().filter_map(|shared| match shared {
            Shared::Counter(counter) => Some(*counter),
            _ => None,
        });
        for word in attributes.chain(counters) {
            if !manual.contains(&format!("`{word}`")) {
                missing.push(format!("{name}: `{word}`"));
            }
        }
    }
    assert!(missing.is_empty(), "manuals do not name:\n{}", missing.join("\n"));
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
