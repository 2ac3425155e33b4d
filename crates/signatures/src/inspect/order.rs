//! Dependencies between matches.
//!
//! A match that does not depend on the places of earlier matches begins a *group*. If one of a
//! group fails at all places, no other place of an earlier group can help, and none is tried.
//! Within a group, the matches after a content depend on its end and possibly on variables set
//! before it. If they do not depend on such a variable, places from which they failed once are not
//! tried again.

use crate::{ByteVariable, ContentPosition, NumberField, Operand, PayloadMatch};

/// The dependencies of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// True for the first match of a group.
    pub begins_group: bool,
    /// True if other matches of its group follow: when they fail, its other places are tried.
    pub goes_back: bool,
    /// True if those depend only on its end.
    pub remembers: bool,
}

impl Order {
    /// Returns the dependencies of each match.
    pub fn of(matches: &[PayloadMatch]) -> Vec<Self> {
        let uncertain = uncertain_variables(matches);
        // Whether a match from `at` on uses a variable, set before `at`, that may have another
        // value.
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

/// Returns, for each match, the variable that it sets if the value depends on the place of an
/// earlier match.
fn uncertain_variables(matches: &[PayloadMatch]) -> Vec<Option<ByteVariable>> {
    let mut uncertain: Vec<Option<ByteVariable>> = Vec::with_capacity(matches.len());
    for one in matches {
        let depends =
            reads_cursor(one) || uses(one).iter().flatten().any(|used| uncertain.contains(&Some(*used)));
        uncertain.push(sets(one).filter(|_| depends));
    }
    uncertain
}

fn variables(uncertain: &[Option<ByteVariable>]) -> impl Iterator<Item = ByteVariable> + Clone {
    uncertain.iter().flatten().copied()
}

/// Returns whether the cursor is read before it is set.
fn reads_cursor_before(matches: &[PayloadMatch]) -> bool {
    let first = matches.iter().find(|one| reads_cursor(one) || moves_cursor(one));
    first.is_some_and(reads_cursor)
}

fn reads_cursor(one: &PayloadMatch) -> bool {
    match one {
        PayloadMatch::Content(content) => matches!(content.position, ContentPosition::Relative { .. }),
        PayloadMatch::Pcre(pcre) => pcre.relative,
        PayloadMatch::DataAt(test) => test.relative,
        PayloadMatch::Base64Decode(decode) => decode.relative,
        _ => number(one).is_some_and(|number| number.relative),
    }
}

fn moves_cursor(one: &PayloadMatch) -> bool {
    match one {
        PayloadMatch::Content(content) => !content.negated,
        PayloadMatch::Pcre(pcre) => !pcre.negated,
        PayloadMatch::ByteJump(_) | PayloadMatch::ByteExtract(_) | PayloadMatch::ByteMath(_) => true,
        _ => false,
    }
}

fn number(one: &PayloadMatch) -> Option<&NumberField> {
    match one {
        PayloadMatch::ByteTest(test) => Some(&test.number),
        PayloadMatch::ByteJump(jump) => Some(&jump.number),
        PayloadMatch::ByteExtract(extract) => Some(&extract.number),
        PayloadMatch::ByteMath(math) => Some(&math.number),
        _ => None,
    }
}

fn sets(one: &PayloadMatch) -> Option<ByteVariable> {
    match one {
        PayloadMatch::ByteExtract(extract) => Some(extract.result),
        PayloadMatch::ByteMath(math) => Some(math.result),
        _ => None,
    }
}

/// Returns the variables that a match uses.
fn uses(one: &PayloadMatch) -> [Option<ByteVariable>; 3] {
    fn variable<N>(operand: &Operand<N>) -> Option<ByteVariable> {
        match operand {
            Operand::Variable(variable) => Some(*variable),
            Operand::Value(_) => None,
        }
    }
    let own = match one {
        PayloadMatch::Content(content) => {
            return match &content.position {
                ContentPosition::Absolute { offset, depth } => {
                    [variable(offset), depth.as_ref().and_then(variable), None]
                }
                ContentPosition::Relative { distance, within } => {
                    [variable(distance), within.as_ref().and_then(variable), None]
                }
            };
        }
        PayloadMatch::DataAt(test) => variable(&test.offset),
        PayloadMatch::ByteTest(test) => variable(&test.value),
        PayloadMatch::ByteJump(jump) => variable(&jump.post_offset),
        PayloadMatch::ByteMath(math) => variable(&math.value),
        _ => None,
    };
    let number = number(one);
    [
        own,
        number.and_then(|number| variable(&number.bytes)),
        number.and_then(|number| variable(&number.offset)),
    ]
}
