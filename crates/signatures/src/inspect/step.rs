//! The compiled matches of a buffer.

use crate::{
    Base64Decode, ByteExtract, ByteJump, ByteMath, ByteTest, Comparison, ContentPosition, DataAt,
    NumberField, NumberFormat, PayloadMatch,
};

use crate::inspect::expression::Expression;
use crate::inspect::literal::Literal;
use crate::inspect::order::Order;
use crate::inspect::unsupported::UnsupportedReason;

/// A compiled match with its dependencies.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub test: Test,
    pub order: Order,
}

#[derive(Clone, Debug)]
pub(crate) enum Test {
    Content(Content),
    Lacks(Content),
    Pcre { expression: Expression, relative: bool },
    LacksPcre { expression: Expression, relative: bool },
    DataAt(DataAt),
    Size(Comparison<u64>),
    ByteTest(ByteTest),
    ByteJump(ByteJump),
    ByteExtract(ByteExtract),
    ByteMath(ByteMath),
    Decode(Base64Decode),
}

#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub literal: Literal,
    pub position: ContentPosition,
    pub ends: bool,
}

/// Compiles the matches of a buffer, in order, except `absent`. An error names its keyword.
pub(crate) fn steps(matches: &[PayloadMatch]) -> Result<Vec<Step>, (&'static str, UnsupportedReason)> {
    let orders = Order::of(matches);
    let mut steps = Vec::with_capacity(matches.len());
    for (one, mut order) in matches.iter().zip(orders) {
        let Some(test) = Test::new(one).map_err(|reason| (one.keyword(), reason))? else { continue };
        if let Test::Pcre { expression, relative } = &test {
            order.remembers &= expression.looks_forward_only || !relative;
        }
        steps.push(Step { test, order });
    }
    Ok(steps)
}

impl Test {
    /// Returns how many bytes of a budget it takes to read one byte.
    pub fn bytes_per_byte(&self) -> usize {
        match self {
            Self::Pcre { expression, .. } | Self::LacksPcre { expression, .. } => expression.bytes_per_byte(),
            _ => 1,
        }
    }

    fn new(one: &PayloadMatch) -> Result<Option<Self>, UnsupportedReason> {
        Ok(Some(match one {
            PayloadMatch::Content(content) => {
                let literal = Literal::new(&content.pattern, content.nocase);
                let ready = Content { literal, position: content.position, ends: content.ends };
                if content.negated { Self::Lacks(ready) } else { Self::Content(ready) }
            }
            PayloadMatch::Pcre(pcre) => {
                let (expression, relative) = (Expression::new(pcre)?, pcre.relative);
                match pcre.negated {
                    true => Self::LacksPcre { expression, relative },
                    false => Self::Pcre { expression, relative },
                }
            }
            PayloadMatch::DataAt(test) => Self::DataAt(*test),
            PayloadMatch::Size(size) => Self::Size(*size),
            PayloadMatch::ByteTest(test) => {
                known_order(&test.number)?;
                Self::ByteTest(*test)
            }
            PayloadMatch::ByteJump(jump) => {
                known_order(&jump.number)?;
                Self::ByteJump(*jump)
            }
            PayloadMatch::ByteExtract(extract) => {
                known_order(&extract.number)?;
                Self::ByteExtract(*extract)
            }
            PayloadMatch::ByteMath(math) => {
                known_order(&math.number)?;
                Self::ByteMath(*math)
            }
            PayloadMatch::Base64Decode(decode) => Self::Decode(*decode),
            PayloadMatch::Absent { .. } => return Ok(None),
        }))
    }
}

fn known_order(number: &NumberField) -> Result<(), UnsupportedReason> {
    match number.format {
        NumberFormat::Dce => Err(UnsupportedReason::Dce),
        _ => Ok(()),
    }
}
