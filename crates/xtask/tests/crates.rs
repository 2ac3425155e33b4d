//! The section of `docs/design.md` about crates follows from their `Cargo.toml` files: its picture
//! is generated (`RIVULET_BLESS=1` rewrites it), and its table has a row for each crate.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

mod support;

/// The page.
const PAGE: &str = "docs/design.md";
/// Names that the source of a crate without effects does not contain, except in tests.
const EFFECTS: [&str; 8] = [
    "std::fs",
    "std::net::UdpSocket",
    "std::net::TcpStream",
    "Instant::now",
    "SystemTime::now",
    "thread::spawn",
    "thread::Builder",
    "MmapMut",
];

/// The crates that each crate of the workspace uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

#[test]
fn the_picture_of_crates_is_current() {
    let path = support::root().join(PAGE);
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once("```mermaid\n").unwrap();
    let (shown, after) = rest.split_once("```\n").unwrap();
    let drawn = picture(&uses());
    if std::env::var_os("RIVULET_BLESS").is_some() {
        fs::write(&path, format!("{before}```mermaid\n{drawn}```\n{after}")).unwrap();
    } else {
        assert!(shown == drawn, "{PAGE} is out of date; `RIVULET_BLESS=1` rewrites it:\n{drawn}");
    }
}

#[test]
fn the_table_names_each_crate_and_its_effects() {
    let page = fs::read_to_string(support::root().join(PAGE)).unwrap();
    let rows: BTreeMap<&str, &str> = rows(&page).into_iter().collect();
    let crates = uses();
    assert!(rows.keys().copied().eq(crates.keys().map(String::as_str)), "{:?}", rows.keys());
    let without = crates.keys().filter(|name| rows[name.as_str()].starts_with("none"));
    let folders: Vec<_> = without.map(|name| Path::new("crates").join(name).join("src")).collect();
    let mut wrong = Vec::new();
    for (path, text) in support::sources("rs") {
        if folders.iter().any(|folder| path.starts_with(folder)) && !path.ends_with("tests.rs") {
            let found = EFFECTS.iter().filter(|effect| untested(&text).contains(**effect));
            wrong.extend(found.map(|effect| format!("{}: {effect}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "crates without effects have some:\n{}", wrong.join("\n"));
}

#[test]
fn floors_and_arrows_follow_from_uses() {
    let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let uses = Uses::from([
        ("top".to_owned(), of(&["middle", "low"])),
        ("middle".to_owned(), of(&["low"])),
        ("low".to_owned(), of(&[])),
        ("alone".to_owned(), of(&[])),
    ]);
    assert_eq!(floor("top", &uses), 2);
    let drawn = picture(&uses);
    assert!(drawn.contains("    top --> middle\n    middle --> low\n"), "{drawn}");
    assert!(!drawn.contains("top --> low") && !drawn.contains("alone"), "{drawn}");
}

/// Returns the part of a source before its tests.
fn untested(text: &str) -> &str {
    text.split_once("#[cfg(test)]").map_or(text, |(code, _)| code)
}

/// Reads which crates of the workspace each one uses, apart from its tests.
fn uses() -> Uses {
    let mut found = Uses::new();
    for (path, text) in support::manifests() {
        let mut is_used = false;
        let mut used = BTreeSet::new();
        for line in text.lines() {
            if line.starts_with('[') {
                is_used = line == "[dependencies]";
            } else if is_used && let Some((name, _)) = line.split_once(['.', ' ', '=']) {
                used.insert(name.to_owned());
            }
        }
        found.insert(path, used);
    }
    let names: BTreeSet<String> = found.keys().cloned().collect();
    found.values_mut().for_each(|used| used.retain(|name| names.contains(name)));
    found
}

/// Returns the crates of the table and their effects.
fn rows(page: &str) -> Vec<(&str, &str)> {
    let (_, table) = page.split_once("| crate | contents | effects |\n").unwrap();
    let lines = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let cells = lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    cells
        .map(|cells| {
            let [name, _, effects] = cells[..] else { panic!("three columns expected: {cells:?}") };
            (name.trim_matches('`'), effects)
        })
        .collect()
}

/// Returns a crate's floor: 0 if it uses no other, else one above the highest that it uses.
fn floor(name: &str, uses: &Uses) -> usize {
    uses[name].iter().map(|used| floor(used, uses) + 1).max().unwrap_or(0)
}

/// Returns all crates that a crate uses, directly or through others.
fn reached(name: &str, uses: &Uses) -> BTreeSet<String> {
    uses[name].iter().flat_map(|used| reached(used, uses).into_iter().chain([used.clone()])).collect()
}

/// Draws crates by floor, the top one first, and which use which. An arrow is left out if others
/// lead there, and a crate if it uses none and none uses it.
fn picture(uses: &Uses) -> String {
    let is_used = |name: &String| uses.values().any(|used| used.contains(name));
    let mut floors: BTreeMap<usize, Vec<&String>> = BTreeMap::new();
    for name in uses.keys().filter(|name| !uses[*name].is_empty() || is_used(name)) {
        floors.entry(floor(name, uses)).or_default().push(name);
    }
    let mut drawn = "flowchart TD\n".to_owned();
    for (number, names) in floors.iter().rev() {
        drawn += &format!("    subgraph floor{number}[\" \"]\n");
        drawn.extend(names.iter().map(|name| format!("        {name}\n")));
        drawn += "    end\n";
    }
    for name in floors.values().rev().flatten() {
        let through: BTreeSet<String> = uses[*name].iter().flat_map(|used| reached(used, uses)).collect();
        drawn.extend(uses[*name].difference(&through).map(|used| format!("    {name} --> {used}\n")));
    }
    drawn
}
