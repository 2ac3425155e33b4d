//! Which matches depend on which.
//!
//! Matches that hold or not wherever the earlier ones were found begin a *group*: if one of a group
//! fails in all places, no other place of an earlier group can help, and none is tried. Within a
//! group, what follows a content depends on where the content ends, and perhaps on variables that
//! were set before it; where it does not depend on such a variable, places from which it failed
//! once need not be tried again.

use crate::{Match, Number, Operand, Position, Variable};

/// How a match stands to those before and behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// It is the first of a group.
    pub begins_group: bool,
    /// Others of its group follow it: if they fail, its other places are tried.
    pub goes_back: bool,
    /// Whether those succeed depends on its end only.
    pub remembers: bool,
}

impl Order {
    /// One for each match.
    pub fn of(matches: &[Match]) -> Vec<Self> {
        let uncertain = uncertain_variables(matches);
        // Whether a match from `at` on uses a variable, one of those set before `at`, that may have
        // another value.
        let depends = |at: usize, from: usize| {
            let set = variables(&uncertain[..at]);
            matches[from..].iter().flat_map(uses).flatten().any(|used| set.clone().any(|one| one == used))
        };
        let begins = |at: usize| !reads_cursor_before(&matches[at..]) && !depends(at, at);
        (0..matches.len())
            .map(|at| Self {
                begins_group: begins(at),
                goes_back: at + 1 < matches.len() && !begins(at + 1),
                remembers: !depends(at, at + 1),
            })
            .collect()
    }
}

/// For each match the variable that it sets, if its value depends on the place of an earlier match.
fn uncertain_variables(matches: &[Match]) -> Vec<Option<Variable>> {
    let mut uncertain: Vec<Option<Variable>> = Vec::with_capacity(matches.len());
    for one in matches {
        let depends =
            reads_cursor(one) || uses(one).iter().flatten().any(|used| uncertain.contains(&Some(*used)));
        uncertain.push(sets(one).filter(|_| depends));
    }
    uncertain
}

fn variables(uncertain: &[Option<Variable>]) -> impl Iterator<Item = Variable> + Clone {
    uncertain.iter().flatten().copied()
}

/// Whether the cursor is read before it is moved by something that does not read it.
fn reads_cursor_before(matches: &[Match]) -> bool {
    let first = matches.iter().find(|one| reads_cursor(one) || moves_cursor(one));
    first.is_some_and(reads_cursor)
}

fn reads_cursor(one: &Match) -> bool {
    match one {
        Match::Content(content) => matches!(content.position, Position::Relative { .. }),
        Match::Pcre(pcre) => pcre.relative,
        Match::DataAt(test) => test.relative,
        Match::Base64Decode(decode) => decode.relative,
        _ => number(one).is_some_and(|number| number.relative),
    }
}

fn moves_cursor(one: &Match) -> bool {
    match one {
        Match::Content(content) => !content.negated,
        Match::Pcre(pcre) => !pcre.negated,
        Match::ByteJump(_) | Match::ByteExtract(_) | Match::ByteMath(_) => true,
        _ => false,
    }
}

fn number(one: &Match) -> Option<&Number> {
    match one {
        Match::ByteTest(test) => Some(&test.number),
        Match::ByteJump(jump) => Some(&jump.number),
        Match::ByteExtract(extract) => Some(&extract.number),
        Match::ByteMath(math) => Some(&math.number),
        _ => None,
    }
}

fn sets(one: &Match) -> Option<Variable> {
    match one {
        Match::ByteExtract(extract) => Some(extract.result),
        Match::ByteMath(math) => Some(math.result),
        _ => None,
    }
}

/// The variables that a match uses.
fn uses(one: &Match) -> [Option<Variable>; 3] {
    fn variable<N>(operand: &Operand<N>) -> Option<Variable> {
        match operand {
            Operand::Variable(variable) => Some(*variable),
            Operand::Value(_) => None,
        }
    }
    let own = match one {
        Match::Content(content) => {
            return match &content.position {
                Position::Absolute { offset, depth } => {
                    [variable(offset), depth.as_ref().and_then(variable), None]
                }
                Position::Relative { distance, within } => {
                    [variable(distance), within.as_ref().and_then(variable), None]
                }
            };
        }
        Match::DataAt(test) => variable(&test.offset),
        Match::ByteTest(test) => variable(&test.value),
        Match::ByteJump(jump) => variable(&jump.post_offset),
        Match::ByteMath(math) => variable(&math.value),
        _ => None,
    };
    let number = number(one);
    [
        own,
        number.and_then(|number| variable(&number.bytes)),
        number.and_then(|number| variable(&number.offset)),
    ]
}
