//! The workspace's sources: citations of requirements, tests, and verdicts of experiments.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::citations;

/// The citations of one requirement, as `file:line`.
#[derive(Debug, Default)]
pub struct Places {
    pub code: Vec<String>,
    pub tests: Vec<String>,
}

/// Facts that a judgement rests on.
#[derive(Default)]
pub struct Sources {
    /// By identifier.
    pub cited: BTreeMap<String, Places>,
    /// Each `path::name`.
    pub tests: BTreeSet<String>,
    /// Experiments; true if one matches the published figure or, without one, passes its checks.
    pub experiments: BTreeMap<String, bool>,
}

impl Sources {
    /// Reads all Rust sources below `crates`, and the pages of experiments.
    pub fn read(root: &Path) -> io::Result<Sources> {
        let mut found = Sources::default();
        for path in files(&root.join("crates"), "rs")? {
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            found.add(&name, &fs::read_to_string(&path)?);
        }
        for path in files(&root.join("docs/evaluation"), "md")? {
            let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if let Some(matches) = verdict(&fs::read_to_string(&path)?) {
                found.experiments.insert(id, matches);
            }
        }
        Ok(found)
    }

    /// Adds a file's citations and tests.
    fn add(&mut self, name: &str, text: &str) {
        self.tests.extend(tests(text).map(|test| format!("{name}::{test}")));
        if name.starts_with("crates/xtask/") {
            return; // Its examples are no citations.
        }
        let mut in_tests = is_test_file(name);
        for (number, line) in text.lines().enumerate() {
            // By our custom a file's tests stand at its end.
            in_tests |= line.trim_start().starts_with("mod tests {");
            for id in citations::of_line(line) {
                let places = self.cited.entry(id).or_default();
                let list = if in_tests { &mut places.tests } else { &mut places.code };
                list.push(format!("{name}:{}", number + 1));
            }
        }
    }
}

/// Returns the names of functions after `#[test]`, and of functions listed in `by_each_way!`.
fn tests(text: &str) -> impl Iterator<Item = &str> {
    let (mut is_test, mut in_macro) = (false, false);
    text.lines().map(str::trim).filter_map(move |line| {
        is_test |= line == "#[test]";
        in_macro = (in_macro || line == "by_each_way!(") && line != ");";
        match line.strip_prefix("fn ") {
            Some(function) => std::mem::take(&mut is_test).then(|| function.split(['(', '<']).next())?,
            None => line.strip_suffix(',').filter(|_| in_macro),
        }
    })
}

/// Returns true if an experiment matches the published figure or, without one, passes its checks;
/// `None` if the page is no experiment's.
fn verdict(page: &str) -> Option<bool> {
    let line = page.lines().find(|line| line.starts_with("**match: "))?;
    let is = |verdict: &str| line.contains(&format!("**{verdict}**"));
    Some(is("match: yes") || is("match: none") && is("check: yes"))
}

/// Returns all files with an extension under a folder, in order.
fn files(folder: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
    entries.sort();
    let mut found = Vec::new();
    for path in entries {
        if path.is_dir() {
            found.extend(files(&path, extension)?);
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    Ok(found)
}

fn is_test_file(name: &str) -> bool {
    let path = Path::new(name);
    path.components().any(|part| part.as_os_str() == "tests")
        || path.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| stem.starts_with("tests"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_and_helpers_are_not() {
        let text = "fn a() {}\n#[test]\n// why\n#[ignore]\nfn b() {}\n    #[test]\n    fn c(x in 0..3) {}\nfn d() {}";
        assert_eq!(tests(text).collect::<Vec<_>>(), ["b", "c"]);
        let text = "by_each_way!(\n    a,\n    b,\n);\nlet c = d,\nfn a() {}\n";
        assert_eq!(tests(text).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn citations_of_code_and_of_tests_are_told_apart() {
        let mut found = Sources::default();
        found.add("crates/a/src/lib.rs", "// S1\nmod tests {\n// S2\n");
        found.add("crates/a/tests/one.rs", "// S1\n#[test]\nfn holds() {}\n");
        let places = &found.cited["S1"];
        assert_eq!(
            (&places.code[..], &places.tests[..]),
            (&["crates/a/src/lib.rs:1".to_owned()][..], &["crates/a/tests/one.rs:1".to_owned()][..])
        );
        assert_eq!(found.cited["S2"].tests, ["crates/a/src/lib.rs:3"]);
        assert!(found.tests.contains("crates/a/tests/one.rs::holds"));
    }

    #[test]
    fn verdicts_are_read() {
        assert_eq!(verdict("# X1\n\n**match: yes**\n"), Some(true));
        assert_eq!(verdict("**match: by fit**"), Some(false));
        assert_eq!(verdict("**match: none**, **beat: no**, **check: yes**"), Some(true));
        assert_eq!(verdict("**match: none**, **beat: yes**, **check: no**"), Some(false));
        assert_eq!(verdict("**match: no**, **beat: yes**, **check: yes**"), Some(false));
        assert_eq!(verdict("# Method"), None);
    }
}
