//! The report: every requirement on the list, and where code and tests cite it.

mod citations;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;

/// Parts to print, and whether to judge.
#[derive(Clone, Copy, Default)]
pub struct Options {
    pub json: bool,
    pub missing: bool,
    pub check: bool,
}

/// The citations of one requirement, as `file:line`.
#[derive(Default)]
struct Places {
    code: Vec<String>,
    tests: Vec<String>,
}

/// Prints the report; false if `--check` found citations that are not on the list.
pub fn run(root: &Path, options: Options) -> io::Result<bool> {
    let listed = list(&root.join("docs/requirements.tsv"))?;
    let mut cited = BTreeMap::new();
    for file in sources(&root.join("crates"))? {
        cite(root, &file, &mut cited)?;
    }
    let none = Places::default();
    let rows = listed.iter().map(|(id, title)| (id, title, cited.get(id).unwrap_or(&none)));
    let rows: Vec<_> = rows
        .filter(|(_, _, places)| !options.missing || places.code.is_empty() || places.tests.is_empty())
        .collect();
    if options.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(id, title, places)| {
                json!({ "id": id, "title": title, "code": places.code, "tests": places.tests })
            })
            .collect();
        println!("{:#}", json!(rows));
    } else {
        for (id, title, places) in &rows {
            println!("{id:<16} {title}");
            println!("{:<16}   code:  {}", "", shown(&places.code));
            println!("{:<16}   tests: {}", "", shown(&places.tests));
        }
        summary(&listed, &cited);
    }
    let known = |id: &String| listed.iter().any(|(listed, _)| listed == id);
    // Requirements of RFCs that have no list here may be cited freely.
    let ours = |id: &String| !id.starts_with("RFC") || listed.iter().any(|(l, _)| same_rfc(l, id));
    let unknown: Vec<_> = cited.iter().filter(|(id, _)| ours(id) && !known(id)).collect();
    for (id, places) in &unknown {
        let all: Vec<&str> = places.code.iter().chain(&places.tests).map(String::as_str).collect();
        eprintln!("not on the list: {id}, cited in {}", all.join(", "));
    }
    Ok(!options.check || unknown.is_empty())
}

/// Identifiers and titles, in the order of the list.
fn list(path: &Path) -> io::Result<Vec<(String, String)>> {
    let text = fs::read_to_string(path)?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    Ok(lines.filter_map(|line| line.split_once('\t')).map(|(id, t)| (id.to_owned(), t.to_owned())).collect())
}

/// All Rust sources under a folder, in order.
fn sources(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
    entries.sort();
    let mut found = Vec::new();
    for path in entries {
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Adds a file's citations.
fn cite(root: &Path, file: &Path, cited: &mut BTreeMap<String, Places>) -> io::Result<()> {
    let text = fs::read_to_string(file)?;
    let name = file.strip_prefix(root).unwrap_or(file).display().to_string();
    if name.starts_with("crates/xtask/") {
        return Ok(()); // Its examples are no citations.
    }
    let mut in_tests = is_test_file(&name);
    for (number, line) in text.lines().enumerate() {
        // By our custom a file's tests stand at its end.
        in_tests |= line.trim_start().starts_with("mod tests {");
        for id in citations::of_line(line) {
            let places = cited.entry(id).or_default();
            let list = if in_tests { &mut places.tests } else { &mut places.code };
            list.push(format!("{name}:{}", number + 1));
        }
    }
    Ok(())
}

fn is_test_file(name: &str) -> bool {
    let path = Path::new(name);
    path.components().any(|part| part.as_os_str() == "tests")
        || path.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| stem.starts_with("tests"))
}

fn same_rfc(listed: &str, id: &str) -> bool {
    let rfc = |id: &str| id.split(' ').nth(1).map(str::to_owned);
    listed.starts_with("RFC") && rfc(listed) == rfc(id)
}

fn shown(places: &[String]) -> String {
    if places.is_empty() { "-".to_owned() } else { places.join(" ") }
}

fn summary(listed: &[(String, String)], cited: &BTreeMap<String, Places>) {
    let count = |wanted: fn(&Places) -> bool| {
        listed.iter().filter(|(id, _)| cited.get(id).is_some_and(wanted)).count()
    };
    println!(
        "{} requirements: {} cited in code, {} in tests, {} in both",
        listed.len(),
        count(|places| !places.code.is_empty()),
        count(|places| !places.tests.is_empty()),
        count(|places| !places.code.is_empty() && !places.tests.is_empty()),
    );
}
