//! A second rule parser, independent of the first except for the names of buffers. It takes a
//! loaded rule apart by simple means, and derives the expected value of each part.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test uses a part; a test fails by panicking"
)]

use signatures::{Rule, RuleAction};

mod fast;
mod header;
mod loaded;
#[path = "../options.rs"]
pub mod options;
mod reader;
mod text;
mod values;

use reader::{Part, Reader};

/// The default `$HOME_NET`.
pub const HOME: &str = "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]";

/// The tests of one buffer: its name, its transforms, and its matches.
type Slot = (&'static str, Vec<String>, Vec<String>);

/// Checks that a rule equals its text: header, numbers and texts, flowbits, all tests of buffers,
/// and the fast pattern.
pub fn check(text: &str, rule: &Rule) {
    check_at(HOME, text, rule);
}

/// Does the same with another `$HOME_NET`.
pub fn check_at(home: &str, text: &str, rule: &Rule) {
    let (header, _) = text.split_once('(').unwrap();
    header::check(header, home, rule);
    let mut reader = Reader::default();
    for (name, value) in text::options(text) {
        reader.option(&name.to_ascii_lowercase(), value);
    }
    let first = fast::fast_pattern(&reader).map(|(buffer, said)| (buffer, said.show()));
    assert_eq!(loaded::fast_pattern_of(rule), first, "{text}");
    let Reader { mut meta, alerts, parts, .. } = reader;
    let mut loaded = loaded::meta_of(rule, &meta);
    // Options of one kind keep their order, except for `flow`.
    for words in [&mut meta, &mut loaded] {
        words.sort_by_key(|one| match one.split_once(' ') {
            Some(("flow", _)) => one.clone(),
            kind => kind.map_or_else(|| one.clone(), |(kind, _)| kind.to_owned()),
        });
    }
    assert_eq!(loaded, meta, "{text}");
    assert_eq!(rule.alerts, alerts.unwrap_or(rule.action != RuleAction::Pass), "{text}");
    let shown = |part: &Part| match part {
        Part::Content(said) => said.show(),
        Part::Other(other) => other.clone(),
    };
    let slots =
        parts.into_iter().map(|(name, steps, parts)| (name, steps, parts.iter().map(shown).collect()));
    let mut slots: Vec<Slot> = slots.collect();
    slots.retain(|slot| !slot.2.is_empty());
    let mut loaded: Vec<_> = rule.buffers.iter().map(|buffer| loaded::slot_of(rule, buffer)).collect();
    // Several namings of one buffer keep their order; different buffers are in the order of their
    // first naming.
    slots.sort_by_key(|slot| slot.0);
    loaded.sort_by_key(|slot| slot.0);
    assert_eq!(loaded, slots, "{text}");
}
