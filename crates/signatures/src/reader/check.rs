//! Consistency of a rule's parts.

use crate::buffer::Buffer;
use crate::payload::{ByteVariable, ContentPosition, FastPattern, Operand, PayloadMatch};
use crate::{PacketTest, Rule, RuleError, RuleProtocol, RuleTransport};

/// Checks the rule as a whole, and numbers its variables in the order of its matches.
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

/// Checks that `dsize` is not combined with reassembled input.
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
        RuleProtocol::Transport(RuleTransport::TcpStream) => "the protocol `tcp-stream`",
        _ if rule.buffers.iter().any(|b| !of_packets(b.buffer)) => "a buffer of an application protocol",
        _ => return Ok(()),
    };
    Err(RuleError::Conflict { one: "`dsize`, which is about packets,", other })
}

fn lone_absence(matches: &[PayloadMatch]) -> Result<(), RuleError> {
    let absent = matches.iter().any(|m| matches!(m, PayloadMatch::Absent { or_else: false }));
    match absent && matches.len() > 1 {
        true => Err(RuleError::Conflict { one: "`absent`", other: "a match in the same buffer" }),
        false => Ok(()),
    }
}

/// Checks that no match is relative to a content with `fast_pattern:only`, which has no place.
fn fast_patterns(matches: &[PayloadMatch]) -> Result<(), RuleError> {
    let mut only = false;
    for one in matches {
        let PayloadMatch::Content(content) = one else { continue };
        if only && matches!(content.position, ContentPosition::Relative { .. }) {
            let other = "`distance` or `within` right after it";
            return Err(RuleError::Conflict { one: "`fast_pattern:only`", other });
        }
        only = content.fast_pattern == Some(FastPattern::Only);
        if content.position == ContentPosition::ANYWHERE && !(only && (content.ends || content.negated)) {
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

/// Checks that contents in a host name, which is in lower case, are too.
fn lower_case(matches: &[PayloadMatch]) -> Result<(), RuleError> {
    let upper = matches.iter().any(|m| match m {
        PayloadMatch::Content(c) => !c.nocase && c.pattern.iter().any(u8::is_ascii_uppercase),
        _ => false,
    });
    match upper {
        true => Err(RuleError::NeverMatches {
            why: "`http.host` is in lower case; write the content so, or give it `nocase`".into(),
        }),
        false => Ok(()),
    }
}

/// Numbers the variables in the order of their definitions, which must precede their uses.
fn order_variables(rule: &mut Rule) -> Result<(), RuleError> {
    let mut order: Vec<ByteVariable> = Vec::new();
    let mut early = None;
    for one in rule.buffers.iter_mut().flat_map(|buffer| &mut buffer.matches) {
        each_variable(one, &mut |variable, defines| {
            match order.iter().position(|old| old == variable) {
                // There are at most VARIABLES_MAX of them.
                Some(place) => *variable = ByteVariable(place as u8),
                None if defines => {
                    order.push(*variable);
                    *variable = ByteVariable((order.len() - 1) as u8);
                }
                None => early = Some(*variable),
            }
        });
    }
    if let Some(ByteVariable(index)) = early {
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

/// Visits each variable of a match: first the used ones, then the defined one.
fn each_variable(one: &mut PayloadMatch, see: &mut dyn FnMut(&mut ByteVariable, bool)) {
    fn used<N>(operand: &mut Operand<N>, see: &mut dyn FnMut(&mut ByteVariable, bool)) {
        if let Operand::Variable(variable) = operand {
            see(variable, false);
        }
    }
    if let PayloadMatch::ByteTest(_)
    | PayloadMatch::ByteJump(_)
    | PayloadMatch::ByteExtract(_)
    | PayloadMatch::ByteMath(_) = one
    {
        let number = match one {
            PayloadMatch::ByteTest(test) => &mut test.number,
            PayloadMatch::ByteJump(jump) => &mut jump.number,
            PayloadMatch::ByteExtract(extract) => &mut extract.number,
            PayloadMatch::ByteMath(math) => &mut math.number,
            _ => return,
        };
        used(&mut number.bytes, see);
        used(&mut number.offset, see);
    }
    match one {
        PayloadMatch::Content(content) => match &mut content.position {
            ContentPosition::Absolute { offset, depth } => {
                used(offset, see);
                depth.iter_mut().for_each(|depth| used(depth, see));
            }
            ContentPosition::Relative { distance, within } => {
                used(distance, see);
                within.iter_mut().for_each(|within| used(within, see));
            }
        },
        PayloadMatch::DataAt(test) => used(&mut test.offset, see),
        PayloadMatch::ByteTest(test) => used(&mut test.value, see),
        PayloadMatch::ByteJump(jump) => used(&mut jump.post_offset, see),
        PayloadMatch::ByteExtract(extract) => see(&mut extract.result, true),
        PayloadMatch::ByteMath(math) => {
            used(&mut math.value, see);
            see(&mut math.result, true);
        }
        _ => {}
    }
}
