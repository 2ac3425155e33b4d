//! Translation of rules' regular expressions, which are Perl's, to those of finite automata, and of
//! a backtracking matcher.

mod class;
mod escape;
mod reader;

use std::fmt;

use crate::pcre::{Pcre, PcreFlags};
use reader::{Mode, NESTING_MAX, Reader};

/// A feature that finite automata lack, or the fault of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ExpressionFeature {
    /// A lookahead or lookbehind: `(?=`, `(?!`, `(?<=`, `(?<!`.
    LookAround,
    /// A lookbehind with an alternative of no fixed length: `(?<=a*)`.
    VariableLookbehind,
    /// A reference to a group's match: `\1`, `\k<name>`, `(?P=name)`.
    BackReference,
    /// An atomic group or possessive repetition: `(?>..)`, `a++`.
    Atomic,
    /// A recursion into a group by number or name: `(?R)`, `(?1)`, `(?&name)`.
    Recursion,
    /// A conditional: `(?(1)..|..)`.
    Conditional,
    /// A changed start of the match: `\K`, `\G`.
    Restart,
    /// A verb or callout: `(*..)`, `(?C)`.
    Verb,
    /// Characters that are not bytes: `\p{..}`, `\X`, `\x{100}`.
    Unicode,
    /// Another feature without an equivalent: a branch reset, a repetition that is too large.
    Other,
    /// The expression is not well formed.
    Malformed,
}

impl ExpressionFeature {
    /// Returns whether the backtracking matcher has this feature.
    pub const fn backtracks(self) -> bool {
        matches!(self, Self::LookAround | Self::BackReference | Self::Atomic)
    }
}

impl fmt::Display for ExpressionFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LookAround => "look-around (`(?=`, `(?<=`)",
            Self::VariableLookbehind => "a look-behind of no fixed length",
            Self::BackReference => "a reference to a group (`\\1`)",
            Self::Atomic => "an atomic group or possessive repetition (`(?>`, `a++`)",
            Self::Recursion => "a recursion (`(?R)`, `(?1)`)",
            Self::Conditional => "a conditional (`(?(1)`)",
            Self::Restart => "a start that is set (`\\K`, `\\G`)",
            Self::Verb => "a verb or callout (`(*`, `(?C)`)",
            Self::Unicode => "a character that is no byte (`\\p`, `\\X`, `\\x{100}`)",
            Self::Other => "a branch reset, too large a repetition or the like",
            Self::Malformed => "a malformed expression",
        })
    }
}

/// An expression with look-around, references or atomic groups.
///
/// In the syntax of automata, each of these is a group; its number leads to its meaning.
pub(crate) struct BacktrackingSyntax {
    /// The expression.
    pub regex: String,
    /// The meanings of its groups, from group 1 on.
    pub groups: Vec<Group>,
}

/// The meaning of a group in a [`BacktrackingSyntax`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// A captured group, by its number from 0 on.
    Capture(usize),
    /// A look-around.
    Look { behind: bool, negated: bool },
    /// An atomic group.
    Atomic,
    /// A reference to the match of a captured group, in place of any byte.
    Reference { to: usize, caseless: bool },
    /// The same by name, until all names are known.
    Name { name: Vec<u8>, caseless: bool },
    /// Nothing. It begins an alternative, so that alternatives with the same beginning are not
    /// merged: that would change their order.
    Alternative,
}

impl Group {
    /// Returns the captured group that it refers to.
    pub fn refers_to(&self) -> Option<usize> {
        match self {
            Self::Reference { to, .. } => Some(*to),
            _ => None,
        }
    }
}

impl Pcre {
    /// Returns the fault or unsupported feature of the expression, if any.
    pub(crate) fn check(&self) -> Result<(), ExpressionFeature> {
        match self.regex() {
            Err(feature) if feature.backtracks() => self.backtracking().map(|_| ()),
            other => other.map(|_| ()),
        }
    }

    /// Returns an equivalent expression for the crates `regex` and `regex-automata`, over bytes
    /// (`utf8(false)`), with the same flags inline and the same groups.
    ///
    /// It matches where this expression matches. If `$` or `\Z` precedes a final line ending, the
    /// match includes that line ending.
    ///
    /// # Errors
    /// The feature that prevents it.
    pub fn regex(&self) -> Result<String, ExpressionFeature> {
        self.translate(false).map(|syntax| syntax.regex)
    }

    /// Returns the equivalent expression for the backtracking matcher.
    pub(crate) fn backtracking(&self) -> Result<BacktrackingSyntax, ExpressionFeature> {
        self.translate(true)
    }

    fn translate(&self, backtracks: bool) -> Result<BacktrackingSyntax, ExpressionFeature> {
        let mut flags = String::from("(?");
        let letters = [('i', self.flags.caseless), ('s', self.flags.dot_all), ('U', self.flags.ungreedy)];
        flags.extend(letters.iter().filter(|(_, set)| *set).map(|(letter, _)| letter));
        flags.push_str("-u)");
        if self.flags.anchored {
            flags.push_str(r"\A");
        }
        flags.push_str("(?:");
        let PcreFlags { multiline, extended, caseless, ungreedy, .. } = self.flags;
        let reader = Reader {
            rest: self.pattern.as_bytes(),
            out: flags,
            mode: Mode { multiline, extended, caseless, ungreedy },
            dollar_end_only: self.flags.dollar_end_only,
            backtracks,
            ..Reader::default()
        };
        let syntax = reader.whole()?;
        let mut parser =
            regex_syntax::ParserBuilder::new().utf8(false).nest_limit(2 * NESTING_MAX as u32).build();
        match parser.parse(&syntax.regex) {
            Ok(_) => Ok(syntax),
            Err(_) => Err(ExpressionFeature::Other),
        }
    }
}

#[cfg(test)]
mod tests;
