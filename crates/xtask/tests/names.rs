//! Names: a public type's name is used once in the workspace, and nothing shadows the prelude.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use support::{root, sources};

/// Names that are used with their module's path, and would mean nothing without it.
const BEHIND_PATH: &[&str] = &["Config", "Counters", "Error", "Options", "Repr", "State"];

/// Names that are in scope everywhere, or as good as.
const PRELUDE: &[&str] = &[
    "AsMut",
    "AsRef",
    "Box",
    "Clone",
    "Copy",
    "Debug",
    "Default",
    "Display",
    "Drop",
    "Eq",
    "Err",
    "Fn",
    "FnMut",
    "FnOnce",
    "From",
    "Future",
    "Into",
    "IntoIterator",
    "Iterator",
    "None",
    "Ok",
    "Option",
    "Ord",
    "Ordering",
    "PartialEq",
    "PartialOrd",
    "Result",
    "Send",
    "Sized",
    "Some",
    "String",
    "Sync",
    "ToOwned",
    "ToString",
    "TryFrom",
    "TryInto",
    "Vec",
];

/// A module's file, and the folder of its children.
struct Module {
    text: String,
    children: PathBuf,
}

impl Module {
    fn read(file: &Path, children: PathBuf) -> Module {
        Module { text: fs::read_to_string(file).unwrap(), children }
    }

    fn child(&self, name: &str) -> Option<Module> {
        let file = self.children.join(format!("{name}.rs"));
        file.is_file().then(|| Module::read(&file, self.children.join(name)))
    }

    /// Statements that begin in the first column with `pub`: the rest of each, to `;` or `{`.
    fn public(&self) -> impl Iterator<Item = String> {
        let mut lines = self.text.lines();
        std::iter::from_fn(move || {
            let first = lines.find_map(|line| line.strip_prefix("pub "))?;
            let mut statement = first.to_owned();
            while statement.starts_with("use ") && !statement.contains(';') {
                statement += lines.next()?.trim();
            }
            Some(statement)
        })
    }

    /// Adds the types that are public here, each with where it is defined.
    fn types(&self, at: &str, found: &mut BTreeMap<String, BTreeSet<String>>) {
        for statement in self.public() {
            let (keyword, rest) = statement.split_once(' ').unwrap_or((&statement, ""));
            let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
            match keyword {
                "struct" | "enum" | "trait" | "type" | "union" => add(found, name, at.to_owned()),
                "mod" => {
                    if let Some(child) = self.child(name) {
                        child.types(&format!("{at}::{name}"), found);
                    }
                }
                "use" => {
                    let path = rest.trim_end_matches(';');
                    let (module, names) = path.rsplit_once("::").map_or(("", path), |(module, name)| {
                        path.split_once("::{").map_or((module, name), |(m, n)| (m, n.trim_end_matches('}')))
                    });
                    // What public modules have is found there, and other crates' types are theirs.
                    let first = module.split("::").next().unwrap_or("");
                    let is_public = self.text.contains(&format!("\npub mod {first};"));
                    let inside = self.child(first).is_some() && !is_public;
                    for one in names.split(',').map(str::trim).filter(|one| inside && !one.is_empty()) {
                        let name = one.rsplit_once(" as ").map_or(one, |(_, name)| name);
                        let is_type =
                            name.starts_with(char::is_uppercase) && name.chars().any(char::is_lowercase);
                        if is_type {
                            add(found, name, format!("{at}::{module}"));
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

fn add(found: &mut BTreeMap<String, BTreeSet<String>>, name: &str, place: String) {
    found.entry(name.to_owned()).or_default().insert(place);
}

#[test]
fn public_type_names_are_unique() {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let source = entry.unwrap().path().join("src");
        let library = source.join("lib.rs");
        if library.is_file() {
            let name = source.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
            let mut own = BTreeMap::new();
            Module::read(&library, source).types(&name, &mut own);
            for (one, places) in own {
                found.entry(one).or_default().extend(places);
            }
        }
    }
    assert!(found.len() > 300, "the search is broken: {} types", found.len());
    let twice: Vec<String> = found
        .iter()
        .filter(|(name, places)| places.len() > 1 && !BEHIND_PATH.contains(&name.as_str()))
        .map(|(name, places)| {
            format!("{name}: {}", Vec::from_iter(places.iter().map(String::as_str)).join(", "))
        })
        .collect();
    assert!(twice.is_empty(), "public names that are used more than once:\n{}", twice.join("\n"));
}

#[test]
fn nothing_shadows_the_prelude() {
    let mut shadows = Vec::new();
    for (path, text) in sources("rs") {
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_start();
            let line = line.strip_prefix("pub ").or(line.strip_prefix("pub(crate) ")).unwrap_or(line);
            let Some((keyword, rest)) = line.split_once(' ') else { continue };
            let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or("");
            let defines = ["struct", "enum", "trait", "union"].contains(&keyword);
            if defines && PRELUDE.contains(&name) {
                shadows.push(format!("{}:{}: {name}", path.display(), number + 1));
            }
        }
    }
    assert!(shadows.is_empty(), "names of the prelude:\n{}", shadows.join("\n"));
}
