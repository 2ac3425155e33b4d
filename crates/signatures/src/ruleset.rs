//! Files of rules and what came of them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use crate::classification::Classifications;
use crate::fault::{Fault, Lines, Place, RULE_BYTES_MAX};
use crate::reader;
use crate::text::Piece;
use crate::variables::Variables;
use crate::{Rule, RuleError};

/// The most rules of a ruleset.
pub const RULES_MAX: usize = 1 << 20;

/// Rules, no two of which have the same group and number.
#[derive(Clone, Debug, Default)]
pub struct Ruleset {
    rules: Vec<Loaded>,
    /// Where the rule of a group and number is in `rules`.
    places: HashMap<(u32, u32), usize>,
}

/// A rule and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The rule.
    pub rule: Rule,
    /// Where it stands.
    pub place: Place,
}

/// What came of reading rules: those that loaded, and why others did not.
///
/// Its [`fmt::Display`] is what a check of rule files shows: a line for each rule that was refused
/// or replaced, then the sum.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The rules that loaded.
    pub ruleset: Ruleset,
    /// The rules that were refused, each for the first thing that is wrong with it, in the order of
    /// the files.
    pub faults: Vec<Fault>,
    /// The rules that gave way to a higher revision of themselves, in the order in which that was
    /// found.
    pub replaced: Vec<Replaced>,
}

/// A rule that loaded and then gave way to another with the same group and number and a higher
/// revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The group.
    pub gid: u32,
    /// The number in it.
    pub sid: u32,
    /// Which gave way: its place and revision.
    pub old: (Place, u32),
    /// Which stays.
    pub new: (Place, u32),
}

impl Ruleset {
    /// Reads the text of a file. A rule loads whole or, with a [`Fault`], not at all; the other
    /// rules load whatever is wrong with one.
    ///
    /// A rule is a line; a `\` at its end makes the next line a part of it. Empty lines and lines
    /// that begin with `#`, rules that were taken out of use among them, do not count. Of two rules
    /// with the same group and number the one with the higher revision stays; of two with the same
    /// revision the first, and the other is a fault.
    ///
    /// Neither more rules than [`RULES_MAX`] load nor longer ones than [`RULE_BYTES_MAX`]; such a
    /// rule is a fault.
    pub fn read(file: &str, text: &str, variables: &Variables, classes: &Classifications) -> Report {
        let mut report = Report::default();
        for line in Lines::continued(file, text) {
            if line.text.len() > RULE_BYTES_MAX {
                let error = RuleError::TooMany { what: "bytes in a rule", limit: RULE_BYTES_MAX };
                report.faults.push(line.fault(Piece::new(&line.text).error(error)));
                continue;
            }
            match reader::rule(Piece::new(&line.text), variables, classes) {
                Ok(rule) => report.add(Loaded { rule, place: line.place() }),
                Err(refused) => report.faults.push(Fault {
                    sid: refused.sid,
                    keyword: refused.keyword,
                    ..line.fault(refused.wrong)
                }),
            }
        }
        report
    }

    /// The rules, in the order of the files; one that replaced another has its place.
    pub fn rules(&self) -> &[Loaded] {
        &self.rules
    }

    /// The rule of a group and number.
    pub fn get(&self, gid: u32, sid: u32) -> Option<&Loaded> {
        self.places.get(&(gid, sid)).map(|place| &self.rules[*place])
    }

    /// The rules, in order.
    pub fn into_rules(self) -> Vec<Loaded> {
        self.rules
    }
}

impl Report {
    /// Adds what came of another file, by the same rule for revisions.
    pub fn append(&mut self, other: Report) {
        for loaded in other.ruleset.rules {
            self.add(loaded);
        }
        self.faults.extend(other.faults);
        self.replaced.extend(other.replaced);
    }

    fn add(&mut self, new: Loaded) {
        let Ruleset { rules, places } = &mut self.ruleset;
        let (gid, sid, rev) = (new.rule.gid, new.rule.sid, new.rule.rev);
        let error = match places.entry((gid, sid)) {
            Entry::Vacant(_) if rules.len() >= RULES_MAX => {
                RuleError::TooMany { what: "rules", limit: RULES_MAX }
            }
            Entry::Vacant(place) => {
                place.insert(rules.len());
                return rules.push(new);
            }
            Entry::Occupied(place) => {
                let old = &mut rules[*place.get()];
                if rev > old.rule.rev {
                    let old = std::mem::replace(old, new.clone());
                    return self.replaced.push(Replaced {
                        gid,
                        sid,
                        old: (old.place, old.rule.rev),
                        new: (new.place, rev),
                    });
                }
                RuleError::Duplicate { gid, sid, rev: old.rule.rev, place: old.place.to_string() }
            }
        };
        self.faults.push(Fault { place: new.place, column: 1, sid: Some(sid), keyword: None, error });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.faults {
            writeln!(f, "{fault}")?;
        }
        for replaced in &self.replaced {
            writeln!(f, "{replaced}")?;
        }
        let (loaded, refused, replaced) = (self.ruleset.rules.len(), self.faults.len(), self.replaced.len());
        write!(f, "{loaded} rules loaded, {refused} refused, {replaced} replaced by a higher revision")
    }
}

impl fmt::Display for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self { gid, sid, .. }, (old, old_rev), (new, new_rev)) = (self, &self.old, &self.new);
        write!(f, "{old}: gid {gid}, sid {sid}: rev {old_rev} is replaced by rev {new_rev} at {new}")
    }
}
