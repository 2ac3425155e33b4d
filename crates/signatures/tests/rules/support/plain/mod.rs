//! A second reader of rules that knows nothing of the first, but for the names of buffers: it takes
//! a rule that loads apart by plain means and says of each part, with its values, what must have
//! come of it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test uses a part; a test fails by panicking"
)]

use signatures::{Action, Rule};

mod fast;
mod header;
#[path = "../options.rs"]
pub mod options;
mod reader;
mod text;
mod told;
mod values;

use reader::{Part, Reader};

/// `$HOME_NET` where no file says otherwise.
pub const HOME: &str = "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]";

/// What a rule asks of one buffer: its name, what is done to it first, and the matches.
type Slot = (&'static str, Vec<String>, Vec<String>);

/// That a rule is what its text says: its header, its numbers and texts, its marks, all that it
/// asks of buffers, and which content is to be searched for first.
pub fn check(text: &str, rule: &Rule) {
    check_at(HOME, text, rule);
}

/// The same with another `$HOME_NET`.
pub fn check_at(home: &str, text: &str, rule: &Rule) {
    let (header, _) = text.split_once('(').unwrap();
    header::check(header, home, rule);
    let mut reader = Reader::default();
    for (name, value) in text::options(text) {
        reader.option(&name.to_ascii_lowercase(), value);
    }
    let first = fast::fast_pattern(&reader).map(|(buffer, said)| (buffer, said.show()));
    assert_eq!(told::fast_pattern_of(rule), first, "{text}");
    let Reader { mut meta, alerts, parts, .. } = reader;
    let mut told = told::meta_of(rule, &meta);
    // What is said of one kind stays in its order, but for `flow`.
    for words in [&mut meta, &mut told] {
        words.sort_by_key(|one| match one.split_once(' ') {
            Some(("flow", _)) => one.clone(),
            kind => kind.map_or_else(|| one.clone(), |(kind, _)| kind.to_owned()),
        });
    }
    assert_eq!(told, meta, "{text}");
    assert_eq!(rule.alerts, alerts.unwrap_or(rule.action != Action::Pass), "{text}");
    let shown = |part: &Part| match part {
        Part::Content(said) => said.show(),
        Part::Other(other) => other.clone(),
    };
    let slots =
        parts.into_iter().map(|(name, steps, parts)| (name, steps, parts.iter().map(shown).collect()));
    let mut slots: Vec<Slot> = slots.collect();
    slots.retain(|slot| !slot.2.is_empty());
    let mut told: Vec<_> = rule.buffers.iter().map(|buffer| told::slot_of(rule, buffer)).collect();
    // Several namings of one buffer stay in their order; that of different ones is where they were
    // named first.
    slots.sort_by_key(|slot| slot.0);
    told.sort_by_key(|slot| slot.0);
    assert_eq!(told, slots, "{text}");
}
