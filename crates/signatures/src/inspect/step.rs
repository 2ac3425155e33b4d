//! The matches of a buffer, made ready to be tried.

use crate::{
    Base64Decode, ByteExtract, ByteJump, ByteMath, ByteTest, Comparison, DataAt, Match, Number, NumberFormat,
    Position,
};

use crate::inspect::expression::Expression;
use crate::inspect::literal::Literal;
use crate::inspect::order::Order;
use crate::inspect::unsupported::Reason;

/// A match, and how it stands to those before and behind it.
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
    pub position: Position,
    pub ends: bool,
}

/// The steps of a buffer's matches, in order. What is said of the buffer's absence is not among
/// them. The error comes with its keyword.
pub(crate) fn steps(matches: &[Match]) -> Result<Vec<Step>, (&'static str, Reason)> {
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
    fn new(one: &Match) -> Result<Option<Self>, Reason> {
        Ok(Some(match one {
            Match::Content(content) => {
                let literal = Literal::new(&content.pattern, content.nocase);
                let ready = Content { literal, position: content.position, ends: content.ends };
                if content.negated { Self::Lacks(ready) } else { Self::Content(ready) }
            }
            Match::Pcre(pcre) => {
                let (expression, relative) = (Expression::new(pcre)?, pcre.relative);
                match pcre.negated {
                    true => Self::LacksPcre { expression, relative },
                    false => Self::Pcre { expression, relative },
                }
            }
            Match::DataAt(test) => Self::DataAt(*test),
            Match::Size(size) => Self::Size(*size),
            Match::ByteTest(test) => {
                known_order(&test.number)?;
                Self::ByteTest(*test)
            }
            Match::ByteJump(jump) => {
                known_order(&jump.number)?;
                Self::ByteJump(*jump)
            }
            Match::ByteExtract(extract) => {
                known_order(&extract.number)?;
                Self::ByteExtract(*extract)
            }
            Match::ByteMath(math) => {
                known_order(&math.number)?;
                Self::ByteMath(*math)
            }
            Match::Base64Decode(decode) => Self::Decode(*decode),
            Match::Absent { .. } => return Ok(None),
        }))
    }
}

fn known_order(number: &Number) -> Result<(), Reason> {
    match number.format {
        NumberFormat::Dce => Err(Reason::Dce),
        _ => Ok(()),
    }
}
