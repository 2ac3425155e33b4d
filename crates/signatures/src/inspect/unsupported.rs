//! What cannot be carried out.

use crate::ExpressionFeature;

/// Why a rule is not carried out. It is refused whole: a rule is never applied in part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{keyword}`: {reason}")]
pub struct Unsupported {
    /// The keyword that cannot be carried out.
    pub keyword: &'static str,
    /// Which of [`Rule::buffers`](crate::Rule::buffers) it is in.
    pub buffer: usize,
    /// Why not.
    pub reason: Reason,
}

/// Why a keyword is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The expression has what finite automata have not.
    #[error("the expression needs more than a finite automaton: {0:?}")]
    Expression(ExpressionFeature),
    /// The automaton would be larger than [`crate::inspect::EXPRESSION_BYTES_MAX`].
    #[error("the expression is too large")]
    TooLarge,
    /// What groups match is to be kept under a name.
    #[error("what groups match is not kept")]
    Captures,
    /// A transform gives what its expression's first group matches, and there is no group.
    #[error("the expression has no group")]
    NoGroup,
    /// The order of bytes depends on a DCERPC header.
    #[error("the order of bytes that a DCERPC header gives is not known here")]
    Dce,
    /// There are several, or one behind the buffer that it fills.
    #[error("a rule may have one, before `base64_data`")]
    Decodes,
}
