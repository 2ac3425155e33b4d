//! Real rules: the share that is supported, the reasons for the others, and evaluation of matching
//! texts without a panic.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use signatures::inspect::{Inspection, InspectionScratch};
use signatures::{
    Buffer, BufferMatches, Classifications, ContentPosition, Operand, PayloadMatch, Rule, RuleVariables,
    Ruleset,
};

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

fn rules(folder: &Path) -> Vec<Rule> {
    let text = std::fs::read_to_string(folder.join("classification.config")).unwrap();
    let (classes, _) = Classifications::read("classification.config", &text);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let files = files.iter().filter(|path| path.extension().is_some_and(|e| e == "rules"));
    let reports = files.map(|path| {
        let text = std::fs::read_to_string(path).unwrap();
        Ruleset::read("shared", &text, &RuleVariables::default(), &classes)
    });
    reports.flat_map(|report| report.ruleset.into_rules()).map(|loaded| loaded.rule).collect()
}

#[test]
fn nearly_all_rules_are_supported() {
    let Some(folder) = shared() else { return };
    let rules = rules(&folder);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for unsupported in rules.iter().filter_map(|rule| Inspection::new(rule).err()) {
        *reasons.entry(unsupported.to_string()).or_default() += 1;
    }
    let unsupported: usize = reasons.values().sum();
    println!("{unsupported} of {} rules cannot be carried out", rules.len());
    reasons.iter().for_each(|(reason, count)| println!("{count:>6}  {reason}"));
    assert!(unsupported * 100 < rules.len() * 6);
}

#[test]
fn rules_match_texts_made_for_them() {
    let Some(folder) = shared() else { return };
    let mut scratch = InspectionScratch::new();
    let (mut plain, mut plain_hold, mut all, mut all_hold) = (0, 0, 0, 0);
    for rule in rules(&folder) {
        let Ok(inspection) = Inspection::new(&rule) else { continue };
        if rule.buffers.is_empty() {
            continue;
        }
        scratch.begin();
        let mut holds = true;
        for (one, matches) in inspection.buffers().iter().zip(&rule.buffers) {
            let text = made_for(matches);
            holds &= match one.buffer() {
                Buffer::Base64Data => one.holds_decoded(&mut scratch),
                _ => one.holds(&text, &mut scratch),
            };
            // Any part of it, from anywhere, does no harm.
            for cut in [1, text.len() / 2, text.len()] {
                one.holds_at(&text[cut.min(text.len())..], cut as u64, &mut scratch);
                one.holds(&text[..text.len() - cut.min(text.len())], &mut scratch);
            }
        }
        all += 1;
        all_hold += usize::from(holds);
        if rule.buffers.iter().all(is_plain) {
            plain += 1;
            plain_hold += usize::from(holds);
        }
    }
    println!(
        "{all_hold} of {all} rules hold for a text made for them; of those with contents only, {plain_hold} of {plain}"
    );
    println!("{} evaluations were given up", scratch.exhausted());
    assert_eq!(scratch.exhausted(), 0);
    // In the others, a negation, `within` or `endswith` of another content excludes the text of
    // one.
    assert!(plain_hold * 100 >= plain * 90);
}

/// Returns whether there are only positive contents and no transforms.
fn is_plain(matches: &BufferMatches) -> bool {
    matches.transforms.is_empty()
        && matches.matches.iter().all(|one| matches!(one, PayloadMatch::Content(content) if !content.negated))
}

/// Concatenates the positive contents of a buffer, each at its position if that is still free.
fn made_for(matches: &BufferMatches) -> Vec<u8> {
    let mut text = Vec::new();
    for one in &matches.matches {
        let PayloadMatch::Content(content) = one else { continue };
        if content.negated {
            continue;
        }
        let place = match content.position {
            ContentPosition::Absolute { offset: Operand::Value(offset), .. } => text.len().max(offset.into()),
            ContentPosition::Relative { distance: Operand::Value(distance), .. } => {
                text.len() + usize::try_from(distance).unwrap_or(0)
            }
            _ => text.len(),
        };
        text.resize(place, b'.');
        text.extend_from_slice(&content.pattern);
    }
    text
}
