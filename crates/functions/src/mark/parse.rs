//! The rule language: marks, then the firewall's conditions, one rule per line.
//!
//! ```text
//! rule = mark *mark [ "in" / "out" / "any_direction" ] [ protocol ] [ "from" place ] [ "to" place ] [ "as" STRING ]
//! mark = "keep"
//!      / "dscp" ( NUMBER / NAME )
//!      / "push_vlan" VID [ "pcp" PCP ] / "vlan" VID [ "pcp" PCP ] / "pcp" PCP / "pop_vlan"
//!      / "tenant" NUMBER
//! ```

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;

use nf::RuleLabel;
use packet::Tag;
use values::{ConfigError, Located};

use crate::firewall::parse::{RuleParser, rules_with};
use crate::firewall::rule::RulePattern;
use crate::policer::dscp::{self, Dscp};

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MarkRule {
    pub marks: Marks,
    pub pattern: RulePattern,
    pub label: RuleLabel,
}

/// The marks that a packet gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub dscp: Option<u8>,
    pub vlan: Option<VlanMark>,
    pub tenant: Option<u16>,
}

/// A change of a packet's VLAN tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VlanMark {
    /// A tag pushed in front of all others.
    Push(Tag),
    /// Identifier, priority or both of the outermost tag replaced.
    Rewrite { vid: Option<u16>, pcp: Option<u8> },
    /// The outermost tag popped.
    Pop,
}

/// Words that begin a mark.
const MARKS: [&str; 7] = ["dscp", "push_vlan", "vlan", "pcp", "pop_vlan", "tenant", "keep"];

/// Words that may follow the conditions.
const OPTIONS: [&str; 1] = ["as"];

/// VLAN identifiers; 0 is none, 4,095 is reserved (IEEE 802.1Q 9.6).
const VIDS: RangeInclusive<u16> = 1..=4_094;

/// Parses the rules of all texts, in order.
pub(super) fn rules(texts: &[Located]) -> Result<Vec<MarkRule>, ConfigError> {
    rules_with(texts, rule, |rule| &rule.label.name)
}

fn rule(parser: &mut RuleParser<'_>, mut label: RuleLabel) -> Result<MarkRule, ConfigError> {
    let (marks, pattern) = (marks(parser)?, parser.pattern(&OPTIONS)?);
    if parser.tokens.take("as").is_some() {
        label.name = Arc::from(parser.name()?);
    }
    let rest = parser.tokens.next();
    if !rest.is_end() {
        return Err(parser.tokens.expected("`from`, `to` or `as`", &rest));
    }
    Ok(MarkRule { marks, pattern, label })
}

fn marks(parser: &mut RuleParser<'_>) -> Result<Marks, ConfigError> {
    let (mut marks, mut seen) = (Marks::default(), Vec::new());
    let (mut pushed, mut rewritten, mut pcp) = (None, None, None);
    while let Some(&word) = MARKS.iter().find(|&&mark| parser.tokens.peek().word() == Some(mark)) {
        let token = parser.tokens.next();
        let excludes = |other: &&&str| {
            let pair = [word, **other];
            word == **other
                || pair.contains(&"keep")
                || CONTRARY.iter().any(|contrary| contrary.iter().all(|mark| pair.contains(mark)))
        };
        if let Some(other) = seen.iter().find(excludes) {
            return Err(parser.tokens.error(&token, format!("`{word}` cannot follow `{other}`")));
        }
        match word {
            "dscp" => marks.dscp = Some(code_point(parser)?),
            "push_vlan" => pushed = Some(number(parser, "a VLAN from 1 to 4094", VIDS)?),
            "vlan" => rewritten = Some(number(parser, "a VLAN from 1 to 4094", VIDS)?),
            "pcp" => pcp = Some(number(parser, "a priority from 0 to 7", 0..=7)?),
            "pop_vlan" => marks.vlan = Some(VlanMark::Pop),
            "tenant" => marks.tenant = Some(number(parser, "a tenant from 1 to 65535", 1..=u16::MAX)?),
            _ => {}
        }
        seen.push(word);
    }
    if seen.is_empty() {
        let token = parser.tokens.next();
        return Err(parser.tokens.expected(&format!("one of {}", quoted(&MARKS)), &token));
    }
    if let Some(vid) = pushed {
        marks.vlan = Tag::vlan(vid, pcp.unwrap_or(0), false).map(VlanMark::Push);
    } else if rewritten.is_some() || pcp.is_some() {
        marks.vlan = Some(VlanMark::Rewrite { vid: rewritten, pcp });
    }
    Ok(marks)
}

/// Marks that exclude each other.
const CONTRARY: [[&str; 2]; 4] =
    [["push_vlan", "vlan"], ["push_vlan", "pop_vlan"], ["vlan", "pop_vlan"], ["pcp", "pop_vlan"]];

fn code_point(parser: &mut RuleParser<'_>) -> Result<u8, ConfigError> {
    let token = parser.tokens.next();
    let number = |word: &str| word.parse().ok().and_then(Dscp::new);
    let dscp = token.word().and_then(|word| number(word).or_else(|| dscp::named(word)));
    let expected = || parser.tokens.expected("a DSCP from 0 to 63, or its name, such as `ef`", &token);
    dscp.map(Dscp::number).ok_or_else(expected)
}

fn number<T: std::str::FromStr + PartialOrd>(
    parser: &mut RuleParser<'_>,
    what: &str,
    range: RangeInclusive<T>,
) -> Result<T, ConfigError> {
    let token = parser.tokens.next();
    let number = token.word().and_then(|word| word.parse().ok()).filter(|number| range.contains(number));
    number.ok_or_else(|| parser.tokens.expected(what, &token))
}

fn quoted(words: &[impl Display]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
