//! Real rules: the share that loads, the reasons for the others, and that the printed rule equals
//! the parsed one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use signatures::{Classifications, PayloadMatch, RuleVariables, Ruleset, RulesetReport};

use crate::plain;
/// Returns the rule files outside the repository, if there are any.
fn shared() -> Option<PathBuf> {
    let shared = std::env::var_os("RIVULET_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let rules = shared.join("rules");
    if rules.is_dir() {
        return Some(rules);
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "no rules at {}", rules.display());
    println!("SKIPPED: no rules at {}", rules.display());
    None
}

fn files(folder: &Path) -> Vec<(String, String)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "rules"))
        .collect();
    files.sort();
    files
        .iter()
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect()
}

fn classes(folder: &Path) -> Classifications {
    let text = std::fs::read_to_string(folder.join("classification.config")).unwrap();
    let (classes, faults) = Classifications::read("classification.config", &text);
    assert_eq!(faults, []);
    classes
}

fn read(files: &[(String, String)], classes: &Classifications) -> RulesetReport {
    let variables = RuleVariables::default();
    let mut report = RulesetReport::default();
    for (name, text) in files {
        report.append(Ruleset::read(name, text, &variables, classes));
    }
    report
}

/// Counts the active rules of the files without the parser: lines that are neither empty nor
/// comments.
fn active(files: &[(String, String)]) -> usize {
    let lines = files.iter().flat_map(|(_, text)| text.lines());
    lines.filter(|line| !line.trim().is_empty() && !line.starts_with('#')).count()
}

#[test]
fn active_rules_load() {
    let Some(folder) = shared() else { return };
    let (files, classes) = (files(&folder), classes(&folder));
    let report = read(&files, &classes);
    let (active, loaded) = (active(&files), report.ruleset.rules().len());

    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for fault in &report.faults {
        let keyword = fault.keyword.as_deref().unwrap_or("(rule)");
        *reasons.entry(format!("{keyword}: {}", fault.error)).or_default() += 1;
    }
    println!("{loaded} of {active} active rules load");
    for (reason, count) in &reasons {
        println!("{count:>6}  {reason}");
    }
    println!("{report}");
    assert_eq!(loaded + report.faults.len() + report.replaced.len(), active);
    assert!(loaded * 100 >= active * 95, "only {loaded} of {active} load");
}

#[test]
fn printed_rules_are_the_same_rules() {
    let Some(folder) = shared() else { return };
    let (files, classes) = (files(&folder), classes(&folder));
    let variables = RuleVariables::default();
    for loaded in read(&files, &classes).ruleset.rules() {
        let printed = loaded.rule.to_string();
        let again = Ruleset::read("printed", &printed, &variables, &classes);
        assert_eq!(again.faults, [], "{printed}");
        assert_eq!(again.ruleset.rules()[0].rule, loaded.rule, "{printed}");
    }
}

#[test]
fn rules_are_those_of_a_second_reader() {
    let Some(folder) = shared() else { return };
    let (files, classes) = (files(&folder), classes(&folder));
    let homes = [plain::HOME, "[198.51.100.0/24,2001:db8::/32]"]
        .map(|home| (home, RuleVariables::read("home", &format!("HOME_NET = {home}")).0));
    let mut compared = 0;
    for (name, text) in &files {
        // Disabled rules, too.
        for line in text.lines().map(|line| line.trim_start_matches(['#', ' '])) {
            for (home, variables) in &homes {
                for loaded in Ruleset::read(name, line, variables, &classes).ruleset.rules() {
                    plain::check_at(home, line, &loaded.rule);
                    compared += 1;
                }
            }
        }
    }
    println!("{compared} rules compared");
    assert!(compared > 5_000);
}

/// Disabled rules are still rules.
#[test]
fn commented_rules_load_too() {
    let Some(folder) = shared() else { return };
    let classes = classes(&folder);
    let variables = RuleVariables::default();
    let (mut loaded, mut refused) = (0, BTreeMap::<String, usize>::new());
    for (name, text) in files(&folder) {
        let commented = text.lines().filter_map(|line| line.strip_prefix('#')).map(str::trim_start);
        for rule in commented.filter(|line| line.starts_with("alert ") && line.contains("sid:")) {
            let report = Ruleset::read(&name, rule, &variables, &classes);
            loaded += report.ruleset.rules().len();
            for fault in report.faults {
                *refused.entry(fault.to_string()).or_default() += 1;
            }
        }
    }
    let sum: usize = refused.values().sum();
    println!("{loaded} of {} commented rules load", loaded + sum);
    refused.iter().for_each(|(reason, count)| println!("{count:>6}  {reason}"));
    assert!(loaded * 100 >= (loaded + sum) * 90);
}

#[test]
fn needs_are_counted() {
    let Some(folder) = shared() else { return };
    let report = read(&files(&folder), &classes(&folder));
    let mut needs: BTreeMap<_, usize> = BTreeMap::new();
    let mut without_content = 0;
    for loaded in report.ruleset.rules() {
        loaded.rule.needs().into_iter().for_each(|need| *needs.entry(need).or_default() += 1);
        let searched = loaded.rule.fast_pattern();
        without_content += usize::from(searched.is_none());
        if let Some((b, m)) = searched {
            assert!(matches!(&loaded.rule.buffers[b].matches[m], PayloadMatch::Content(c) if !c.negated));
        }
    }
    needs.iter().for_each(|(need, count)| println!("{count:>6}  {need:?}"));
    println!("{without_content} rules have no content to search for");
    assert!(needs.len() > 40);
}
