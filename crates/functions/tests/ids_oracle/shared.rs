//! Rules and captures outside the repository.
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::path::{Path, PathBuf};

use signatures::{Classifications, LoadedRule, RuleVariables, Ruleset, RulesetReport};

use super::witness::Frame;

/// The home network of planted traffic.
pub const HOME: &str = "HOME_NET = [10.0.0.0/8]";
/// The home network of captures: anything.
pub const ANYWHERE: &str = "HOME_NET = any\nEXTERNAL_NET = any";

/// Returns all active rules that load with these variables; prints a line and returns `None`
/// without any.
pub fn rules(variables: &str) -> Option<Vec<LoadedRule>> {
    let folder = folder("rules")?;
    let text = std::fs::read_to_string(folder.join("classification.config")).unwrap();
    let (classes, _) = Classifications::read("classification.config", &text);
    let (variables, _) = RuleVariables::read("variables", variables);
    let mut report = RulesetReport::default();
    for path in files(&folder, "rules") {
        let text = std::fs::read_to_string(&path).unwrap();
        report.append(Ruleset::read(&path.display().to_string(), &text, &variables, &classes));
    }
    Some(report.ruleset.into_rules())
}

/// Returns the path of the classifications.
pub fn classification() -> PathBuf {
    folder("rules").unwrap_or_default().join("classification.config")
}

/// Returns the text of all rule files.
pub fn text() -> Option<String> {
    let folder = folder("rules")?;
    Some(files(&folder, "rules").iter().map(|path| std::fs::read_to_string(path).unwrap()).collect())
}

/// Returns the frames of each readable capture, by name; prints a line and returns none without
/// any.
pub fn captures() -> Vec<(String, Vec<Frame>)> {
    let Some(folder) = folder("traces") else { return Vec::new() };
    let paths = ["small", "workload"].into_iter().flat_map(|part| files(&folder.join(part), "cap"));
    paths
        .filter_map(|path| Some((path.file_name()?.to_string_lossy().into_owned(), frames(&path)?)))
        .collect()
}

fn frames(path: &Path) -> Option<Vec<Frame>> {
    let mut reader = io::capture::CaptureReader::open(path).ok()?;
    let mut frames = Vec::new();
    while let Some(record) = reader.next().ok()? {
        frames.push(Frame {
            time_ns: record.timestamp_ns,
            link: record.link_type,
            wire_len: record.wire_len,
            bytes: record.data.to_vec(),
        });
    }
    Some(frames)
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e.to_string_lossy().contains(extension)));
    paths.sort();
    paths
}

fn folder(part: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("RIVULET_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let folder = shared.join(part);
    if folder.is_dir() {
        return Some(folder);
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "no {part} at {}", shared.display());
    println!("SKIPPED: no {part} at {}", shared.display());
    None
}
