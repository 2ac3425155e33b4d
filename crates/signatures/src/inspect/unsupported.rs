//! Keywords that cannot be evaluated.

use crate::ExpressionFeature;

/// Maximum bytes of an expression's automaton. Each clone of an inspection may use the same amount
/// again for its cache of states.
pub const EXPRESSION_BYTES_MAX: usize = 2 << 20;

/// The reason why a rule is refused by the evaluator: a rule is never applied in part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{keyword}`: {reason}")]
pub struct UnsupportedKeyword {
    /// The unsupported keyword.
    pub keyword: &'static str,
    /// The index in [`Rule::buffers`](crate::Rule::buffers).
    pub buffer: usize,
    /// The reason.
    pub reason: UnsupportedReason,
}

/// The reason why a keyword is unsupported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum UnsupportedReason {
    /// The expression has a feature that neither matcher has.
    #[error("{0} is not supported")]
    Expression(ExpressionFeature),
    /// The automaton or program would exceed [`crate::inspect::EXPRESSION_BYTES_MAX`].
    #[error("the expression is too large")]
    TooLarge,
    /// The match of a group would be stored under a name.
    #[error("what groups match is not kept")]
    Captures,
    /// A transform outputs the first group of its expression, but there is none.
    #[error("the expression has no group")]
    NoGroup,
    /// The byte order depends on a DCERPC header.
    #[error("the order of bytes that a DCERPC header gives is not known here")]
    Dce,
    /// There are several, or one after the buffer that it fills.
    #[error("a rule may have one, before `base64_data`")]
    Decodes,
}
