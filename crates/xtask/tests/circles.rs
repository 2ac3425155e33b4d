//! Modules of a crate do not import each other in a circle.
//!
//! A parent may use its children and they may use it: together they tell one story. So a circle is
//! looked for twice: among modules without these imports, and among families, where a module and
//! all that is within it count as one. Tests are left out. A name that a module re-exports counts
//! as an import from where it is defined.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use support::sources;

/// A module's path in its crate; empty for the crate's head.
type Module = Vec<String>;

/// A crate's modules, each with its text: without comments and tests.
type Modules = BTreeMap<Module, String>;

/// The modules that each module imports from.
type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// Returns the crate and the module of a source file below `crates`.
fn place(path: &Path) -> Option<(String, Module)> {
    let mut parts = path.components().map(|part| match part {
        Component::Normal(part) => part.to_str().unwrap().to_owned(),
        _ => String::new(),
    });
    if parts.next()? != "crates" {
        return None;
    }
    let (name, folder) = (parts.next()?, parts.next()?);
    let mut module: Module = parts.collect();
    let last = module.pop()?;
    match last.strip_suffix(".rs")? {
        "lib" | "main" if module.is_empty() => {}
        "mod" => {}
        "tests" => return None,
        last => module.push(last.to_owned()),
    }
    (folder == "src" && module.first().is_none_or(|first| first != "bin")).then_some((name, module))
}

/// Returns the text without comments and without what follows `#[cfg(test)]`.
fn code(text: &str) -> String {
    let lines = text.lines().take_while(|line| *line != "#[cfg(test)]");
    lines
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |all, line| all + line + "\n")
}

/// Returns the paths that a `use` names: `a::{b, c::{d, e}}` names `a::b`, `a::c::d`, `a::c::e`.
fn expand(tree: &str, paths: &mut Vec<String>) {
    let Some((prefix, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree);
        return paths.push(path.trim().to_owned());
    };
    let (mut depth, mut item) = (0, String::new());
    for c in rest.chars() {
        match c {
            '}' if depth == 0 => break,
            ',' if depth == 0 => expand(&(prefix.to_owned() + std::mem::take(&mut item).trim()), paths),
            _ => {
                depth += i32::from(c == '{') - i32::from(c == '}');
                item.push(c);
            }
        }
    }
    if !item.trim().is_empty() {
        expand(&(prefix.to_owned() + item.trim()), paths);
    }
}

/// Splits code into the paths of its `use` statements, each with whether it is a re-export, and
/// the rest.
fn uses(code: &str) -> (Vec<(String, bool)>, String) {
    let (mut paths, mut rest, mut lines) = (Vec::new(), String::new(), code.lines());
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        let public = trimmed.strip_prefix("pub").map(|it| match it.strip_prefix('(') {
            Some(it) => it.split_once(')').map_or("", |(_, it)| it),
            None => it,
        });
        let Some(first) = public.unwrap_or(trimmed).trim_start().strip_prefix("use ") else {
            rest += line;
            rest.push('\n');
            continue;
        };
        let mut statement = first.to_owned();
        while !statement.contains(';') {
            let Some(next) = lines.next() else { break };
            statement += next.trim();
        }
        let mut expanded = Vec::new();
        expand(statement.split(';').next().unwrap_or(""), &mut expanded);
        paths.extend(expanded.into_iter().map(|path| (path, public.is_some())));
    }
    (paths, rest)
}

/// Returns the paths in code that begin with `crate`, `self` or `super`.
fn inline(code: &str) -> Vec<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = code.split(|c: char| !is_word(c));
    let begins = |word: &&str| ["crate::", "self::", "super::"].iter().any(|it| word.starts_with(it));
    words.filter(begins).map(|word| word.trim_end_matches(':').to_owned()).collect()
}

/// Returns the module that a path leads to from `from`, and the name there; none for another crate.
fn resolve(modules: &Modules, from: &Module, path: &str) -> Option<(Module, Option<String>)> {
    let mut parts: Vec<&str> = path.split("::").map(str::trim).collect();
    let mut at = from.clone();
    match *parts.first()? {
        "crate" => at.clear(),
        "self" | "super" => {
            for part in &parts {
                match *part {
                    "self" => {}
                    "super" => drop(at.pop()),
                    _ => break,
                }
            }
        }
        first => {
            let child = [from.as_slice(), &[first.to_owned()]].concat();
            if !modules.contains_key(&child) {
                return None;
            }
        }
    }
    parts.retain(|part| !matches!(*part, "crate" | "self" | "super"));
    for (number, part) in parts.iter().enumerate() {
        at.push((*part).to_owned());
        if !modules.contains_key(&at) {
            at.pop();
            return Some((at, parts.get(number).map(|it| (*it).to_owned())));
        }
    }
    Some((at, None))
}

/// Returns what each module of a crate imports from.
fn imports(modules: &Modules) -> Imports {
    let parsed: BTreeMap<&Module, _> = modules.iter().map(|(module, code)| (module, uses(code))).collect();
    // By module and name: the module that it is re-exported from.
    let mut exports: BTreeMap<(Module, String), Module> = BTreeMap::new();
    for (module, (paths, _)) in &parsed {
        for (path, _) in paths.iter().filter(|(_, is_public)| *is_public) {
            if let Some((target, Some(name))) = resolve(modules, module, path) {
                exports.insert(((*module).clone(), name), target);
            }
        }
    }
    let mut found = Imports::new();
    for (module, (paths, rest)) in &parsed {
        let inline = inline(rest);
        for path in paths.iter().map(|(path, _)| path).chain(&inline) {
            let Some((mut target, name)) = resolve(modules, module, path) else { continue };
            while let Some(name) = &name
                && let Some(next) = exports.get(&(target.clone(), name.clone()))
                && *next != target
            {
                target.clone_from(next);
            }
            if target != **module {
                found.entry((*module).clone()).or_default().insert(target);
            }
        }
    }
    found
}

/// Returns true if one of two modules is within the other.
fn are_kin(one: &Module, other: &Module) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Returns the imports between modules, except from a module to one within it or around it.
fn of_strangers(imports: &Imports) -> Imports {
    let strangers = |(module, targets): (&Module, &BTreeSet<Module>)| {
        let far = targets.iter().filter(|target| !are_kin(module, target)).cloned();
        (module.clone(), far.collect())
    };
    imports.iter().map(strangers).collect()
}

/// Returns the imports between the modules right below each module, each with all that is within
/// it.
fn of_families(imports: &Imports) -> Imports {
    let mut found = Imports::new();
    for (module, targets) in imports {
        for target in targets {
            let common = module.iter().zip(target).take_while(|(one, other)| one == other).count();
            if common < module.len() && common < target.len() {
                let family = |of: &Module| of[..=common].to_vec();
                found.entry(family(module)).or_default().insert(family(target));
            }
        }
    }
    found
}

/// Returns all modules that can be reached from one.
fn reached(imports: &Imports, from: &Module) -> BTreeSet<Module> {
    let (mut found, mut todo) = (BTreeSet::new(), vec![from.clone()]);
    while let Some(module) = todo.pop() {
        for next in imports.get(&module).into_iter().flatten() {
            if found.insert(next.clone()) {
                todo.push(next.clone());
            }
        }
    }
    found
}

/// Returns the circles of a crate: in each, every module can be reached from every other.
fn circles(imports: &Imports) -> BTreeSet<BTreeSet<String>> {
    let all: BTreeMap<&Module, _> = imports.keys().map(|module| (module, reached(imports, module))).collect();
    let circle = |module: &&Module| {
        let reached = all.get(*module)?;
        let both = reached.iter().filter(|other| all.get(other).is_some_and(|it| it.contains(*module)));
        let circle: BTreeSet<String> = both.map(|other| other.join("::")).collect();
        (!circle.is_empty()).then_some(circle)
    };
    all.keys().filter_map(circle).collect()
}

#[test]
fn modules_do_not_import_each_other_in_a_circle() {
    let mut crates: BTreeMap<String, Modules> = BTreeMap::new();
    for (path, text) in sources("rs") {
        if let Some((name, module)) = place(&path) {
            crates.entry(name).or_default().insert(module, code(&text));
        }
    }
    assert!(crates.len() > 10, "the search is broken: {} crates", crates.len());
    let mut found: BTreeMap<&str, _> = BTreeMap::new();
    for (name, modules) in &crates {
        let imports = imports(modules);
        let mut circles_of_both = circles(&of_strangers(&imports));
        circles_of_both.extend(circles(&of_families(&imports)));
        if !circles_of_both.is_empty() {
            found.insert(name, circles_of_both);
        }
    }
    assert!(found.is_empty(), "circles: {found:#?}");
}

#[test]
fn circles_are_found_through_re_exports() {
    let modules: Modules = [
        ("", "pub use a::{A, deep::B};\npub mod a;\nmod c;"),
        ("a", "mod deep;\nuse super::c::{\n    C,\n    D as E,\n};"),
        ("a::deep", "use super::A;"),
        ("c", "use std::fmt;\nfn f() -> crate::A {}"),
        ("d", "use crate::{c::C, B};"),
    ]
    .into_iter()
    .map(|(module, code)| {
        (module.split("::").filter(|it| !it.is_empty()).map(str::to_owned).collect(), code.to_owned())
    })
    .collect();
    let found: Vec<Vec<String>> = circles(&of_strangers(&imports(&modules)))
        .into_iter()
        .map(|circle| circle.into_iter().collect())
        .collect();
    assert_eq!(found, [["a", "c"]]);
}
