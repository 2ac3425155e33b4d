//! Objects are small: no type of the packet path and of the protocol has more than 40 methods.
//!
//! A type with more of them is several objects that share their fields. All blocks `impl Type` of a
//! crate count, in whichever file they stand; implementations of traits and tests do not.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use support::sources;

/// Crates with this limit.
const CRATES: &[&str] = &["graph", "protocol"];

/// Maximum number of methods of a type.
const METHODS_MAX: usize = 40;

/// Types with more methods, with their number. The numbers may only fall: lower one together with
/// its type, and remove it once its type has no more than [`METHODS_MAX`].
const EXCEPTIONS: &[(&str, usize)] = &[];

/// Methods by type, as `crate::module::Type`.
type Methods = BTreeMap<String, usize>;

/// Types by name: the modules that define one.
type Types = BTreeMap<String, Vec<String>>;

/// Returns the module of a source file below `crates`, with its crate first; `None` for tests.
fn module(path: &Path) -> Option<String> {
    let path = path.strip_prefix("crates").ok()?.to_str()?.replace('\\', "/");
    let (name, file) = path.strip_suffix(".rs")?.split_once("/src/")?;
    let mut parts: Vec<&str> = file.split('/').collect();
    if parts.contains(&"tests") {
        return None;
    }
    parts.retain(|part| !matches!(*part, "lib" | "main" | "mod"));
    parts.insert(0, name);
    Some(parts.join("::"))
}

/// Returns the tokens of code: words, and single other characters. Comments, literals, lifetimes,
/// and what follows `#[cfg(test)]` are left out.
fn tokens(text: &str) -> Vec<String> {
    let text = text.split("\n#[cfg(test)]").next().unwrap_or("");
    let mut tokens: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' {
            literal_len(rest, '"')
        } else if first == '\'' {
            // A lifetime has no second quotation mark right after its first character.
            let is_char = rest.starts_with("'\\") || rest.chars().nth(2) == Some('\'');
            if is_char { literal_len(rest, '\'') } else { 1 }
        } else if first.is_alphanumeric() || first == '_' {
            let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(rest[..len].to_owned());
            len
        } else {
            if !first.is_whitespace() {
                tokens.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[len..];
    }
    tokens
}

/// Returns the length of the literal at the beginning of a text, up to its second `quote`.
fn literal_len(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !is_escaped {
            return at + c.len_utf8();
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    text.len()
}

/// Returns the name of the type in the head of a block `impl`; `None` if it implements a trait.
fn type_of(head: &[String]) -> Option<&str> {
    let mut depth = 0;
    let mut name = None;
    for (at, token) in head.iter().enumerate() {
        match token.as_str() {
            "<" => depth += 1,
            // Not that of an arrow.
            ">" if at == 0 || head[at - 1] != "-" => depth -= 1,
            "where" if depth == 0 => break,
            "for" if depth == 0 => return None,
            word if depth == 0 && word.starts_with(|c: char| c.is_alphabetic()) => name = Some(word),
            _ => {}
        }
    }
    name
}

/// Adds the types that a module defines.
fn add_types(module: &str, tokens: &[String], types: &mut Types) {
    for pair in tokens.windows(2) {
        if let [keyword, name] = pair
            && matches!(keyword.as_str(), "struct" | "enum" | "union")
        {
            types.entry(name.clone()).or_default().push(module.to_owned());
        }
    }
}

/// Adds the methods in a module's blocks `impl Type`. Of several types of one name, a block is for
/// the one that shares most of its path.
fn add_methods(module: &str, tokens: &[String], types: &Types, methods: &mut Methods) {
    let mut at = 0;
    while let Some(begin) = tokens[at..].iter().position(|token| token == "impl") {
        let head = at + begin + 1;
        // `impl Trait` as the type of an argument or a result is no block.
        let is_block = head == 1 || matches!(tokens[head - 2].as_str(), "}" | ";" | "]" | "unsafe");
        let Some(brace) = tokens[head..].iter().position(|token| token == "{").filter(|_| is_block) else {
            at = head;
            continue;
        };
        let body = head + brace;
        let (mut depth, mut count) = (0, 0);
        at = body;
        for token in &tokens[body..] {
            match token.as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                "fn" if depth == 1 => count += 1,
                _ => {}
            }
            at += 1;
            if depth == 0 {
                break;
            }
        }
        if let Some(name) = type_of(&tokens[head..body]) {
            let shared =
                |of: &&String| of.split("::").zip(module.split("::")).take_while(|(a, b)| a == b).count();
            let place = types.get(name).and_then(|of| of.iter().max_by_key(shared));
            *methods.entry(format!("{}::{name}", place.map_or(module, String::as_str))).or_default() += count;
        }
    }
}

/// Returns the methods of all types of modules with their code.
fn methods<'a>(modules: impl Iterator<Item = (&'a str, &'a str)>) -> Methods {
    let modules: Vec<(&str, Vec<String>)> = modules.map(|(module, text)| (module, tokens(text))).collect();
    let (mut types, mut methods) = (Types::new(), Methods::new());
    modules.iter().for_each(|(module, tokens)| add_types(module, tokens, &mut types));
    modules.iter().for_each(|(module, tokens)| add_methods(module, tokens, &types, &mut methods));
    methods
}

/// Returns what is wrong with the numbers of methods.
fn faults(methods: &Methods, exceptions: &[(&str, usize)]) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, &count) in methods {
        match exceptions.iter().find(|(exception, _)| exception == name) {
            Some(&(_, before)) if count > before => faults.push(format!("{name}: {count}, before {before}")),
            Some(&(_, before)) if count < before || count <= METHODS_MAX => {
                faults.push(format!("{name}: {count}; write this, or remove the exception"));
            }
            None if count > METHODS_MAX => faults.push(format!("{name}: {count}, more than {METHODS_MAX}")),
            _ => {}
        }
    }
    let unknown = exceptions.iter().filter(|(name, _)| !methods.contains_key(*name));
    faults.extend(unknown.map(|(name, _)| format!("{name}: remove the exception")));
    faults
}

#[test]
fn no_type_has_too_many_methods() {
    let files: Vec<(String, String)> = sources("rs")
        .into_iter()
        .filter_map(|(path, text)| Some((module(&path)?, text)))
        .filter(|(module, _)| CRATES.contains(&module.split("::").next().unwrap()))
        .collect();
    let methods = methods(files.iter().map(|(module, text)| (module.as_str(), text.as_str())));
    assert!(methods.len() > 100, "the search is broken: {} types", methods.len());
    let faults = faults(&methods, EXCEPTIONS);
    assert!(faults.is_empty(), "types with too many methods:\n{}", faults.join("\n"));
}

#[test]
fn methods_are_counted_over_files() {
    let modules = [
        (
            "a::table",
            "pub struct Table<T> { f: Box<dyn Fn() -> T> }\n\
             impl<T: Clone, F: Fn() -> T> Table<T> where T: for<'a> Copy {\n\
             /// fn no() {}\n\
             fn one(&self, it: impl Iterator) -> &'static str { fn inner() {} \"} fn no() {\\\"\" }\n\
             pub(crate) async fn two(c: char) -> bool { c == '{' || c == '\\'' }\n}\n\
             impl<T> Drop for Table<T> { fn drop(&mut self) {} }\n\
             #[cfg(test)]\nmod tests { impl super::Table<u8> { fn test() {} } }",
        ),
        ("a::table::more", "impl super::Table<u8> {\n const fn three() {}\n}"),
        ("a::other", "struct Table;\n#[allow(unused)]\nimpl Table { fn one() {} }\nfn free() {}"),
    ];
    let found = methods(modules.into_iter());
    assert_eq!(Vec::from_iter(&found), [(&"a::other::Table".into(), &1), (&"a::table::Table".into(), &3)]);
}

#[test]
fn large_objects_are_found_and_exceptions_only_fall() {
    let methods: Methods = [("a", 41), ("b", 40), ("c", 50), ("d", 50), ("e", 50), ("f", 40)]
        .map(|(name, count)| (name.to_owned(), count))
        .into();
    let exceptions = [("c", 49), ("d", 50), ("e", 51), ("f", 40), ("g", 60)];
    let named: Vec<String> = faults(&methods, &exceptions)
        .iter()
        .map(|fault| fault.split(':').next().unwrap().to_owned())
        .collect();
    assert_eq!(named, ["a", "c", "e", "f", "g"]);
}

#[test]
fn tests_are_no_modules() {
    let module = |path| module(Path::new(path));
    assert_eq!(module("crates/graph/src/cache/rules.rs").as_deref(), Some("graph::cache::rules"));
    assert_eq!(module("crates/graph/src/lib.rs").as_deref(), Some("graph"));
    assert_eq!(module("crates/graph/tests/no_allocation.rs"), None);
    assert_eq!(module("crates/graph/src/flow_table/tests.rs"), None);
}
