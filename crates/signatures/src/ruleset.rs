//! Rule files and the result of loading them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use crate::classification::Classifications;
use crate::fault::{Lines, RULE_BYTES_MAX, RuleFault, SourceLine};
use crate::parser;
use crate::text::Piece;
use crate::variables::RuleVariables;
use crate::{Rule, RuleError};

/// Maximum rules of a ruleset.
pub const RULES_MAX: usize = 1 << 20;

/// Rules with unique gid and sid.
#[derive(Clone, Debug, Default)]
pub struct Ruleset {
    rules: Vec<LoadedRule>,
    /// Index in `rules` by gid and sid.
    places: HashMap<(u32, u32), usize>,
}

/// A rule and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedRule {
    /// The rule.
    pub rule: Rule,
    /// Its position.
    pub place: SourceLine,
}

/// The result of loading rules: the loaded ones, and the faults of the others.
///
/// Its [`fmt::Display`] is the output of a check of rule files: a line for each refused or replaced
/// rule, then the total.
#[derive(Clone, Debug, Default)]
pub struct RulesetReport {
    /// The loaded rules.
    pub ruleset: Ruleset,
    /// The refused rules, each with its first fault, in the order of the files.
    pub faults: Vec<RuleFault>,
    /// The rules replaced by a higher revision, in the order of discovery.
    pub replaced: Vec<ReplacedRule>,
}

/// A rule replaced by another with the same gid and sid and a higher revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedRule {
    /// The gid.
    pub gid: u32,
    /// The sid.
    pub sid: u32,
    /// Position and revision of the replaced rule.
    pub old: (SourceLine, u32),
    /// Position and revision of the rule that is kept.
    pub new: (SourceLine, u32),
}

impl Ruleset {
    /// Parses a rule file. A rule loads whole, or is refused with a [`RuleFault`]; faults do not
    /// affect other rules.
    ///
    /// A rule is a line; a final `\` continues it. Empty lines and lines that begin with `#` are
    /// ignored, including disabled rules. Of two rules with the same gid and sid the higher
    /// revision is kept; of two with the same revision the first is kept, and the other is a fault.
    ///
    /// Rules beyond [`RULES_MAX`], and rules longer than [`RULE_BYTES_MAX`], are faults.
    pub fn read(
        file: &str,
        text: &str,
        variables: &RuleVariables,
        classes: &Classifications,
    ) -> RulesetReport {
        let mut report = RulesetReport::default();
        for line in Lines::continued(file, text) {
            if line.text.len() > RULE_BYTES_MAX {
                let error = RuleError::TooMany { what: "bytes in a rule", limit: RULE_BYTES_MAX };
                let text = Piece::new(&line.text);
                report
                    .faults
                    .push(RuleFault { action: parser::action(text), ..line.fault(text.error(error)) });
                continue;
            }
            match parser::rule(Piece::new(&line.text), variables, classes) {
                Ok(rule) => report.add(LoadedRule { rule, place: line.place() }),
                Err(refused) => report.faults.push(RuleFault {
                    sid: refused.sid,
                    action: parser::action(Piece::new(&line.text)),
                    keyword: refused.keyword,
                    ..line.fault(refused.wrong)
                }),
            }
        }
        report
    }

    /// Returns the rules in the order of the files. A rule that replaced another has its place.
    pub fn rules(&self) -> &[LoadedRule] {
        &self.rules
    }

    /// Returns the rule with this gid and sid.
    pub fn get(&self, gid: u32, sid: u32) -> Option<&LoadedRule> {
        self.places.get(&(gid, sid)).map(|place| &self.rules[*place])
    }

    /// Returns the rules, in order.
    pub fn into_rules(self) -> Vec<LoadedRule> {
        self.rules
    }
}

impl RulesetReport {
    /// Appends the result of another file, with the same rule for revisions.
    pub fn append(&mut self, other: RulesetReport) {
        for loaded in other.ruleset.rules {
            self.add(loaded);
        }
        self.faults.extend(other.faults);
        self.replaced.extend(other.replaced);
    }

    fn add(&mut self, new: LoadedRule) {
        let Ruleset { rules, places } = &mut self.ruleset;
        let (gid, sid, rev, action) = (new.rule.gid, new.rule.sid, new.rule.rev, Some(new.rule.action));
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
                    return self.replaced.push(ReplacedRule {
                        gid,
                        sid,
                        old: (old.place, old.rule.rev),
                        new: (new.place, rev),
                    });
                }
                RuleError::Duplicate { gid, sid, rev: old.rule.rev, place: old.place.to_string() }
            }
        };
        let sid = Some(sid);
        self.faults.push(RuleFault { place: new.place, column: 1, sid, action, keyword: None, error });
    }
}

impl fmt::Display for RulesetReport {
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

impl fmt::Display for ReplacedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self { gid, sid, .. }, (old, old_rev), (new, new_rev)) = (self, &self.old, &self.new);
        write!(f, "{old}: gid {gid}, sid {sid}: rev {old_rev} is replaced by rev {new_rev} at {new}")
    }
}
