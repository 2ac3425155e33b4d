//! Errors in rules.

/// The reason why a rule was refused: what was found, and what was expected. The position is in the
/// [`crate::RuleFault`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// An unknown keyword.
    #[error("keyword `{keyword}` is unknown{}", hint(.similar))]
    UnknownKeyword {
        /// The keyword as written.
        keyword: String,
        /// A similar known keyword, if any.
        similar: Option<&'static str>,
    },
    /// A keyword of the language that is not supported.
    #[error("keyword `{keyword}` is not supported: {reason}")]
    UnsupportedKeyword {
        /// Its name.
        keyword: &'static str,
        /// The missing capability.
        reason: &'static str,
    },
    /// An invalid argument or part of the header.
    #[error("found `{}`, expected {expected}", shorten(.found))]
    Value {
        /// The text found.
        found: String,
        /// The values expected.
        expected: String,
    },
    /// An unsupported use of a supported keyword.
    #[error("{what} is not supported")]
    Unsupported {
        /// The use.
        what: &'static str,
    },
    /// A keyword without its required argument.
    #[error("keyword `{keyword}` requires an argument")]
    NoArgument {
        /// Its name.
        keyword: &'static str,
    },
    /// A keyword with an argument that it does not take.
    #[error("keyword `{keyword}` takes no argument")]
    UnexpectedArgument {
        /// Its name.
        keyword: &'static str,
    },
    /// A repeated keyword that must be unique.
    #[error("keyword `{keyword}` is repeated")]
    Repeated {
        /// Its name.
        keyword: &'static str,
    },
    /// Two mutually exclusive parts.
    #[error("{one} and {other} exclude each other")]
    Conflict {
        /// The first part.
        one: &'static str,
        /// The second part.
        other: &'static str,
    },
    /// A keyword that modifies or continues something that is missing.
    #[error("keyword `{keyword}` requires {what} before it")]
    NothingBefore {
        /// Its name.
        keyword: &'static str,
        /// The missing part.
        what: &'static str,
    },
    /// A named buffer without a match.
    #[error("buffer `{name}` is selected, but no match follows")]
    UnusedBuffer {
        /// The buffer.
        name: &'static str,
    },
    /// A missing part of the rule.
    #[error("the rule has no {what}")]
    Missing {
        /// The part.
        what: &'static str,
    },
    /// A `$NAME` that is undefined or of another kind.
    #[error("variable `${name}` is not defined as {kind}")]
    UnknownVariable {
        /// Its name.
        name: String,
        /// "a group of addresses" or "a group of ports".
        kind: &'static str,
    },
    /// A circular definition of a variable.
    #[error("variable `${name}` is defined in terms of itself")]
    CyclicVariable {
        /// Its name.
        name: String,
    },
    /// A class that is not in the classification file.
    #[error("classtype `{name}` is not in the classifications")]
    UnknownClass {
        /// Its name.
        name: String,
    },
    /// A contradictory condition.
    #[error("can never match: {why}")]
    NeverMatches {
        /// The contradiction.
        why: String,
    },
    /// A limit is exceeded.
    #[error("more than {limit} {what}")]
    TooMany {
        /// The limited quantity.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The text of the rule is malformed.
    #[error("{what}")]
    Malformed {
        /// The fault.
        what: &'static str,
    },
    /// Another rule has this gid and sid.
    #[error("gid {gid}, sid {sid} is taken, with rev {rev}, by the rule at {place}")]
    Duplicate {
        /// The gid.
        gid: u32,
        /// The sid.
        sid: u32,
        /// The revision of the rule that is kept.
        rev: u32,
        /// The position of the rule that is kept, `file:line`.
        place: String,
    },
}

/// Maximum characters of a value in a message.
const SHOWN_CHARS: usize = 60;

fn hint(similar: &Option<&str>) -> String {
    similar.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((at, _)) => format!("{}...", text[..at].escape_debug()),
        None => text.to_owned(),
    }
}
