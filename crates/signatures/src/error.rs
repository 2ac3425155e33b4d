//! What can be wrong with a rule.

/// Why a rule was refused. It says what stood there and what was expected; the place is in the
/// [`crate::Fault`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// A keyword that is not in the table of keywords.
    #[error("keyword `{keyword}` is unknown{}", hint(.similar))]
    UnknownKeyword {
        /// As written.
        keyword: String,
        /// The known keyword that is most like it, if one is.
        similar: Option<&'static str>,
    },
    /// A keyword that the language has and this reader refuses.
    #[error("keyword `{keyword}` is not supported: {reason}")]
    UnsupportedKeyword {
        /// Its name.
        keyword: &'static str,
        /// What it would need.
        reason: &'static str,
    },
    /// An argument of a keyword, or a part of the header, that cannot be read.
    #[error("found `{}`, expected {expected}", shorten(.found))]
    Value {
        /// What stands there.
        found: String,
        /// What may stand there.
        expected: String,
    },
    /// A keyword of which the language has one meaning and the reader supports another.
    #[error("{what} is not supported")]
    Unsupported {
        /// What it is.
        what: &'static str,
    },
    /// A keyword without an argument that it needs.
    #[error("keyword `{keyword}` needs an argument")]
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
    /// A keyword that may stand once only stands again.
    #[error("keyword `{keyword}` stands a second time")]
    Repeated {
        /// Its name.
        keyword: &'static str,
    },
    /// Two things that exclude each other.
    #[error("{one} and {other} exclude each other")]
    Conflict {
        /// The one.
        one: &'static str,
        /// The other.
        other: &'static str,
    },
    /// A keyword that modifies or continues something that is not there.
    #[error("keyword `{keyword}` needs {what} before it")]
    NothingBefore {
        /// Its name.
        keyword: &'static str,
        /// What has to come before.
        what: &'static str,
    },
    /// A buffer that is named, and then nothing is asked of it.
    #[error("nothing is asked of the buffer `{name}`")]
    UnusedBuffer {
        /// The buffer.
        name: &'static str,
    },
    /// The rule lacks a part.
    #[error("the rule has no {what}")]
    Missing {
        /// The part.
        what: &'static str,
    },
    /// A `$NAME` that is not defined, or not of that kind.
    #[error("variable `${name}` is not defined as {kind}")]
    UnknownVariable {
        /// Its name.
        name: String,
        /// "a group of addresses" or "a group of ports".
        kind: &'static str,
    },
    /// A variable that is defined by itself.
    #[error("variable `${name}` is defined by itself")]
    CyclicVariable {
        /// Its name.
        name: String,
    },
    /// A class that the classification file does not have.
    #[error("classtype `{name}` is not in the classifications")]
    UnknownClass {
        /// Its name.
        name: String,
    },
    /// A condition that nothing can meet.
    #[error("can never match: {why}")]
    NeverMatches {
        /// Why not.
        why: String,
    },
    /// More of something than the reader takes.
    #[error("more than {limit} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many are taken.
        limit: usize,
    },
    /// The text of the rule is malformed.
    #[error("{what}")]
    Malformed {
        /// How.
        what: &'static str,
    },
    /// Another rule has this group and number.
    #[error("gid {gid}, sid {sid} is taken, with rev {rev}, by the rule at {place}")]
    Duplicate {
        /// The group.
        gid: u32,
        /// The number in it.
        sid: u32,
        /// The revision of the rule that stays.
        rev: u32,
        /// Where that stands, `file:line`.
        place: String,
    },
}

/// The most characters of a value that a message repeats.
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
