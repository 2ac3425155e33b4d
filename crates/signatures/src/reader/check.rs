//! Whether the parts of a rule go together.

use crate::buffer::Buffer;
use crate::payload::{FastPattern, Match, Operand, Position, Variable};
use crate::{PacketTest, Protocol, Rule, RuleError, Transport};

/// Checks what can only be told of the whole rule, and brings the order of its variables to that of
/// its matches.
pub(super) fn together(rule: &mut Rule) -> Result<(), RuleError> {
    size_and_streams(rule)?;
    for buffer in &rule.buffers {
        lone_absence(&buffer.matches)?;
        fast_patterns(&buffer.matches)?;
        if buffer.buffer == Buffer::HttpHost && buffer.transforms.is_empty() {
            lower_case(&buffer.matches)?;
        }
    }
    order_variables(rule)
}

/// `dsize` is about packets, not about what is put together from several.
fn size_and_streams(rule: &Rule) -> Result<(), RuleError> {
    if !rule.packet.iter().any(|test| matches!(test, PacketTest::PayloadBytes(_))) {
        return Ok(());
    }
    let of_packets = |buffer| {
        use Buffer::*;
        matches!(
            buffer,
            Payload
                | Base64Data
                | EthernetHeader
                | Ipv4Header
                | Ipv6Header
                | TcpHeader
                | UdpHeader
                | Icmpv4Header
                | Icmpv6Header
        )
    };
    let other = match rule.protocol {
        Protocol::Transport(Transport::TcpStream) => "the protocol `tcp-stream`",
        _ if rule.buffers.iter().any(|b| !of_packets(b.buffer)) => "a buffer of an application protocol",
        _ => return Ok(()),
    };
    Err(RuleError::Conflict { one: "`dsize`, which is about packets,", other })
}

fn lone_absence(matches: &[Match]) -> Result<(), RuleError> {
    let absent = matches.iter().any(|m| matches!(m, Match::Absent { or_else: false }));
    match absent && matches.len() > 1 {
        true => Err(RuleError::Conflict { one: "`absent`", other: "a match in the same buffer" }),
        false => Ok(()),
    }
}

/// A content that is only searched for has no place that others could be relative to.
fn fast_patterns(matches: &[Match]) -> Result<(), RuleError> {
    let mut only = false;
    for one in matches {
        let Match::Content(content) = one else { continue };
        if only && matches!(content.position, Position::Relative { .. }) {
            let other = "`distance` or `within` right after it";
            return Err(RuleError::Conflict { one: "`fast_pattern:only`", other });
        }
        only = content.fast_pattern == Some(FastPattern::Only);
        if content.position == Position::ANYWHERE && !(only && (content.ends || content.negated)) {
            continue;
        }
        if only {
            let other = "`offset`, `depth`, `distance`, `within`, `endswith` or `!`";
            return Err(RuleError::Conflict { one: "`fast_pattern:only`", other });
        }
        if content.fast_pattern.is_some() && content.negated {
            let other = "`!` with `offset`, `depth`, `distance` or `within`";
            return Err(RuleError::Conflict { one: "`fast_pattern`", other });
        }
    }
    Ok(())
}

/// A host name is in lower case when it is looked at.
fn lower_case(matches: &[Match]) -> Result<(), RuleError> {
    let upper = matches.iter().any(|m| match m {
        Match::Content(c) => !c.nocase && c.pattern.iter().any(u8::is_ascii_uppercase),
        _ => false,
    });
    match upper {
        true => Err(RuleError::NeverMatches {
            why: "`http.host` is in lower case; write the content so, or give it `nocase`".into(),
        }),
        false => Ok(()),
    }
}

/// Numbers the variables in the order in which an engine meets their definitions, which must come
/// before their uses.
fn order_variables(rule: &mut Rule) -> Result<(), RuleError> {
    let mut order: Vec<Variable> = Vec::new();
    let mut early = None;
    for one in rule.buffers.iter_mut().flat_map(|buffer| &mut buffer.matches) {
        each_variable(one, &mut |variable, defines| {
            match order.iter().position(|old| old == variable) {
                // There are at most VARIABLES_MAX of them.
                Some(place) => *variable = Variable(place as u8),
                None if defines => {
                    order.push(*variable);
                    *variable = Variable((order.len() - 1) as u8);
                }
                None => early = Some(*variable),
            }
        });
    }
    if let Some(Variable(index)) = early {
        let name = &rule.variables[usize::from(index)];
        return Err(RuleError::NeverMatches {
            why: format!(
                "variable `{name}` is used in a buffer that is looked at before the one that sets it"
            ),
        });
    }
    rule.variables =
        order.iter().map(|old| std::mem::take(&mut rule.variables[usize::from(old.0)])).collect();
    Ok(())
}

/// Shows each variable of a match: those that it uses, then the one that it defines.
fn each_variable(one: &mut Match, see: &mut dyn FnMut(&mut Variable, bool)) {
    fn used<N>(operand: &mut Operand<N>, see: &mut dyn FnMut(&mut Variable, bool)) {
        if let Operand::Variable(variable) = operand {
            see(variable, false);
        }
    }
    if let Match::ByteTest(_) | Match::ByteJump(_) | Match::ByteExtract(_) | Match::ByteMath(_) = one {
        let number = match one {
            Match::ByteTest(test) => &mut test.number,
            Match::ByteJump(jump) => &mut jump.number,
            Match::ByteExtract(extract) => &mut extract.number,
            Match::ByteMath(math) => &mut math.number,
            _ => return,
        };
        used(&mut number.bytes, see);
        used(&mut number.offset, see);
    }
    match one {
        Match::Content(content) => match &mut content.position {
            Position::Absolute { offset, depth } => {
                used(offset, see);
                depth.iter_mut().for_each(|depth| used(depth, see));
            }
            Position::Relative { distance, within } => {
                used(distance, see);
                within.iter_mut().for_each(|within| used(within, see));
            }
        },
        Match::DataAt(test) => used(&mut test.offset, see),
        Match::ByteTest(test) => used(&mut test.value, see),
        Match::ByteJump(jump) => used(&mut jump.post_offset, see),
        Match::ByteExtract(extract) => see(&mut extract.result, true),
        Match::ByteMath(math) => {
            used(&mut math.value, see);
            see(&mut math.result, true);
        }
        _ => {}
    }
}
