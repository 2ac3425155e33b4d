//! The rule language: one rule per line, comments from `#` or `//` to the line's end.
//!
//! ```text
//! rule     = action [ "in" / "out" / "any_direction" ] [ protocol ] [ "from" place ] [ "to" place ] *option
//! action   = "allow" / "deny" / "reject"
//! protocol = item "tcp" / "udp" / "icmp" / "icmp6" / "sctp" / "gre" / "esp" / NUMBER, or "any"
//! place    = item ADDRESS / PREFIX / ADDRESS "-" ADDRESS, or "any"; then [ "port" item NUMBER / NUMBER "-" NUMBER ]
//! option   = "state" item "new" / "established" / "related" / "invalid"
//!          / "flags" flag *( "," flag )          ; flag = [ "!" ] "FIN" / "SYN" / "RST" / "PSH" / "ACK" / "URG" / "ECE" / "CWR"
//!          / "icmp_type" item NUMBER / NUMBER "-" NUMBER
//!          / "tag" NUMBER / NAME
//!          / "log"
//!          / "as" STRING
//! item X   = X / "{" X *( "," X ) "}"
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;

use nf::RuleLabel;
use packet::parse::protocol;
use values::{ConfigError, Located};

use super::classify::RULES_MAX;
use super::rule::{
    ConnectionState, ConnectionStates, FilterAction, FilterRule, FlagMatch, PORT_PROTOCOLS, Ranges,
    RuleAddresses, RuleDirection, RuleDirections, RulePattern, has_ports, is_icmp, join,
};

mod token;
mod value;

pub(crate) use token::{Token, Tokens};

/// Maximum number of errors shown for a set of rules; the others are counted.
pub const ERRORS_SHOWN: usize = 10;

/// Number of errors after which parsing stops: locating each error takes time proportional to the
/// text.
pub const ERRORS_MAX: usize = 100;

/// Parses the rules of all texts, in order.
///
/// # Errors
/// The first error with its position, followed by up to [`ERRORS_SHOWN`] - 1 others.
pub fn rules(texts: &[Located], tags: &BTreeMap<String, u8>) -> Result<Vec<FilterRule>, ConfigError> {
    rules_with(texts, |parser, label| filter_rule(parser, tags, label), |rule| &rule.name)
}

/// Parses the rules of all texts, in order, each line that has any by `parse`. It gets a label with
/// the default name. `name_of` returns a rule's own one.
///
/// # Errors
/// As [`rules`].
pub(crate) fn rules_with<R>(
    texts: &[Located],
    parse: impl Fn(&mut RuleParser<'_>, RuleLabel) -> Result<R, ConfigError>,
    name_of: impl Fn(&R) -> &Arc<str>,
) -> Result<Vec<R>, ConfigError> {
    let mut rules = Vec::new();
    let mut names = BTreeSet::new();
    let mut errors = Vec::new();
    for text in texts {
        let (mut start, mut places) = (0, LineNumbers::of(text));
        for line in text.split_inclusive('\n') {
            if errors.len() == ERRORS_MAX {
                return Err(together(errors));
            }
            let read = |tokens: Tokens<'_>| {
                let number = rules.len() as u32 + 1; // At most `RULES_MAX`.
                let label = RuleLabel { number, name: format!("rule {number}").into(), place: places.here() };
                (!tokens.is_at_end()).then(|| parse(&mut RuleParser { tokens }, label)).transpose()
            };
            match Tokens::read(text, start..start + line.len()).and_then(read) {
                Ok(Some(rule)) if !names.insert(Arc::clone(name_of(&rule))) => {
                    errors.push(text.error(
                        start..start + line.trim_end().len(),
                        format!("duplicate rule name `{}`", name_of(&rule)),
                    ));
                }
                Ok(Some(_)) if rules.len() == RULES_MAX => {
                    errors.push(
                        text.error(start..start + 1, format!("too many rules: the maximum is {RULES_MAX}")),
                    );
                    return Err(together(errors));
                }
                Ok(Some(rule)) => rules.push(rule),
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
            start += line.len();
            places.pass(line, start);
        }
    }
    if errors.is_empty() { Ok(rules) } else { Err(together(errors)) }
}

/// Line numbers in the source of a text.
struct LineNumbers<'t> {
    text: &'t Located,
    line: u32,
}

impl LineNumbers<'_> {
    fn of(text: &Located) -> LineNumbers<'_> {
        LineNumbers { text, line: text.origin().map_or(1, |origin| origin.line) }
    }

    /// Advances past a line that ends at this offset.
    fn pass(&mut self, line: &str, end: usize) {
        // A line break written as an escape sequence does not begin a new source line.
        let is_escaped = self.text.origin().is_some_and(|origin| {
            origin.escapes.binary_search_by_key(&(end - 1), |&(at, _)| at as usize).is_ok()
        });
        self.line += u32::from(line.ends_with('\n') && !is_escaped);
    }

    fn here(&self) -> Arc<str> {
        match self.text.origin() {
            Some(origin) => format!("{}:{}", origin.source, self.line).into(),
            None => format!("line {}", self.line).into(),
        }
    }
}

/// Merges errors into one: a configuration error has one position.
fn together(errors: Vec<ConfigError>) -> ConfigError {
    let count = errors.len();
    let mut errors = errors.into_iter();
    let mut first = errors.next().unwrap_or_else(|| ConfigError::new("no error"));
    for error in errors.by_ref().take(ERRORS_SHOWN - 1) {
        first.message.push_str(&format!("; {error}"));
    }
    if count >= ERRORS_MAX {
        first.message.push_str("; and more errors");
    } else if count > ERRORS_SHOWN {
        first.message.push_str(&format!("; and {} more errors", count - ERRORS_SHOWN));
    }
    first
}

/// Parses a rule of the firewall.
fn filter_rule(
    parser: &mut RuleParser<'_>,
    tags: &BTreeMap<String, u8>,
    RuleLabel { name, place, .. }: RuleLabel,
) -> Result<FilterRule, ConfigError> {
    let (action, pattern) = (parser.action()?, parser.pattern(&OPTIONS)?);
    let mut rule = FilterRule { action, pattern, tag: None, log: false, name, place };
    parser.options(&mut rule, tags)?;
    Ok(rule)
}

/// A parser of one rule.
pub(crate) struct RuleParser<'t> {
    pub(crate) tokens: Tokens<'t>,
}

/// Addresses and ports of one end of a packet.
#[derive(Default)]
struct EndpointPattern<'t> {
    addresses: Option<RuleAddresses>,
    ports: Option<(Token<'t>, Ranges<u16>)>,
}

impl<'t> RuleParser<'t> {
    /// Parses direction, protocols and both ends; each may be missing. `options`: words that may
    /// follow.
    pub(crate) fn pattern(&mut self, options: &[&str]) -> Result<RulePattern, ConfigError> {
        let ways = self.ways();
        let protocols = self.protocols(options)?;
        let (mut from, mut to) = (EndpointPattern::default(), EndpointPattern::default());
        if self.tokens.take("from").is_some() {
            from = self.place()?;
        }
        let to_word = self.tokens.take("to");
        if to_word.is_some() {
            to = self.place()?;
        }
        let sources = from.addresses.unwrap_or_else(RuleAddresses::any);
        let destinations = to.addresses.unwrap_or_else(RuleAddresses::any);
        if let Some(word) = to_word
            && (sources.v4.is_empty() || destinations.v4.is_empty())
            && (sources.v6.is_empty() || destinations.v6.is_empty())
        {
            return Err(self.tokens.error(&word, "source and destination have no IP version in common"));
        }
        let ports = from.ports.as_ref().or(to.ports.as_ref()).map(|(word, _)| *word);
        let protocols = match (protocols, ports) {
            (None, None) => vec![0..=u8::MAX],
            (None, Some(_)) => PORT_PROTOCOLS.map(|number| number..=number).to_vec(),
            (Some(named), Some(word)) if !all(&named, has_ports) => {
                return Err(self.tokens.error(&word, "`port` needs a protocol with ports, such as `tcp`"));
            }
            (Some(named), _) => named,
        };
        let ports_of =
            |end: Option<(Token<'_>, _)>| end.map_or_else(|| vec![0..=u16::MAX], |(_, ports)| ports);
        Ok(RulePattern {
            ways,
            protocols,
            sources,
            source_ports: ports_of(from.ports),
            destinations,
            destination_ports: ports_of(to.ports),
            states: ConnectionStates::VALID,
            flags: FlagMatch::default(),
        })
    }

    fn action(&mut self) -> Result<FilterAction, ConfigError> {
        let token = self.tokens.next();
        match token.word() {
            Some("allow") => Ok(FilterAction::Allow),
            Some("deny") => Ok(FilterAction::Deny),
            Some("reject") => Ok(FilterAction::Reject),
            _ => Err(self.tokens.expected("`allow`, `deny` or `reject`", &token)),
        }
    }

    fn ways(&mut self) -> RuleDirections {
        if self.tokens.take("in").is_some() {
            return RuleDirections::only(RuleDirection::In);
        }
        if self.tokens.take("out").is_some() {
            return RuleDirections::only(RuleDirection::Out);
        }
        let _ = self.tokens.take("any_direction");
        RuleDirections::BOTH
    }

    /// Parses protocols; none if the rule matches any protocol.
    fn protocols(&mut self, options: &[&str]) -> Result<Option<Ranges<u8>>, ConfigError> {
        if self.tokens.take("any").is_some() {
            return Ok(None);
        }
        let next = self.tokens.peek();
        let is_option = |word: &str| word == "from" || word == "to" || options.contains(&word);
        if next.is_end() || next.word().is_some_and(is_option) {
            return Ok(None);
        }
        let numbers = self.items("a protocol, `from`, `to` or an option", |word| {
            let number = match word {
                "tcp" => protocol::TCP,
                "udp" => protocol::UDP,
                "icmp" => protocol::ICMP,
                "icmp6" => protocol::ICMPV6,
                "sctp" => protocol::SCTP,
                "gre" => protocol::GRE,
                "esp" => 50,
                _ => word.parse().ok()?,
            };
            Some(Ok(number..=number))
        })?;
        Ok(Some(join(numbers, |number| number - 1)))
    }

    fn place(&mut self) -> Result<EndpointPattern<'t>, ConfigError> {
        let mut place = EndpointPattern::default();
        if self.tokens.take("any").is_none() {
            let ranges = self.items("an address, a prefix, a range or `any`", value::addresses)?;
            let mut addresses = RuleAddresses { v4: Vec::new(), v6: Vec::new() };
            for range in ranges {
                match range {
                    value::AddressRange::V4(range) => addresses.v4.push(range),
                    value::AddressRange::V6(range) => addresses.v6.push(range),
                }
            }
            addresses.v4 = join(addresses.v4, |number| number - 1);
            addresses.v6 = join(addresses.v6, |number| number - 1);
            place.addresses = Some(addresses);
        }
        if let Some(word) = self.tokens.take("port") {
            let ports = self.items("a port or a range of ports", value::numbers::<u16>)?;
            place.ports = Some((word, join(ports, |number| number - 1)));
        }
        Ok(place)
    }

    fn options(&mut self, rule: &mut FilterRule, tags: &BTreeMap<String, u8>) -> Result<(), ConfigError> {
        let mut seen = BTreeSet::new();
        loop {
            let token = self.tokens.next();
            if token.is_end() {
                return Ok(());
            }
            let Some(&option) = OPTIONS.iter().find(|&&option| token.word() == Some(option)) else {
                return Err(self.tokens.expected(&format!("one of {}", quoted(&OPTIONS)), &token));
            };
            if !seen.insert(option) {
                return Err(self.tokens.error(&token, format!("duplicate option `{option}`")));
            }
            match option {
                "state" => rule.pattern.states = self.states()?,
                "flags" => rule.pattern.flags = self.flags(&rule.pattern, &token)?,
                "icmp_type" => rule.pattern.destination_ports = self.icmp_types(&rule.pattern, &token)?,
                "tag" => rule.tag = Some(self.tag(tags)?),
                "log" => rule.log = true,
                _ => rule.name = self.name()?.into(),
            }
        }
    }

    fn states(&mut self) -> Result<ConnectionStates, ConfigError> {
        let states = self.items("`new`, `established`, `related` or `invalid`", |word| {
            let state = ConnectionState::ALL.into_iter().find(|state| state.name() == word)?;
            Some(Ok(1 << state as u8))
        })?;
        Ok(ConnectionStates(states.into_iter().fold(0, |all, state| all | state)))
    }

    fn flags(&mut self, rule: &RulePattern, option: &Token<'t>) -> Result<FlagMatch, ConfigError> {
        if !all(&rule.protocols, |number| number == protocol::TCP) {
            return Err(self.tokens.error(option, "`flags` needs the protocol `tcp`"));
        }
        let mut flags = FlagMatch::default();
        loop {
            let token = self.tokens.next();
            let word = token.word().unwrap_or("");
            let (set, name) = word.strip_prefix('!').map_or((true, word), |name| (false, name));
            let Some(bit) = FLAGS.iter().position(|flag| flag.eq_ignore_ascii_case(name)) else {
                return Err(self
                    .tokens
                    .expected(&format!("a flag ({}), optionally with `!`", FLAGS.join(", ")), &token));
            };
            if flags.mask >> bit & 1 == 1 {
                return Err(self.tokens.error(&token, format!("duplicate flag `{name}`")));
            }
            flags.mask |= 1 << bit;
            flags.value |= u8::from(set) << bit;
            if self.tokens.take(",").is_none() {
                return Ok(flags);
            }
        }
    }

    fn icmp_types(&mut self, rule: &RulePattern, option: &Token<'t>) -> Result<Ranges<u16>, ConfigError> {
        if !all(&rule.protocols, is_icmp) {
            return Err(self.tokens.error(option, "`icmp_type` needs the protocol `icmp` or `icmp6`"));
        }
        let types = self.items("an ICMP type or a range of them", value::numbers::<u8>)?;
        let types = types.into_iter().map(|range| u16::from(*range.start())..=u16::from(*range.end()));
        Ok(join(types.collect(), |number| number - 1))
    }

    fn tag(&mut self, tags: &BTreeMap<String, u8>) -> Result<u8, ConfigError> {
        let token = self.tokens.next();
        let known = |word: &str| tags.get(word).copied();
        match token.word().and_then(|word| known(word).or_else(|| word.parse().ok())) {
            Some(tag) if tag > 0 => Ok(tag),
            _ => {
                let names: Vec<&str> = tags.keys().map(String::as_str).collect();
                let or =
                    if names.is_empty() { String::new() } else { format!(" or one of {}", quoted(&names)) };
                Err(self.tokens.expected(&format!("a tag from 1 to 255{or}"), &token))
            }
        }
    }

    /// Parses a name in quotes.
    pub(crate) fn name(&mut self) -> Result<&'t str, ConfigError> {
        let token = self.tokens.next();
        match token.string() {
            Some(name) if !name.is_empty() => Ok(name),
            _ => Err(self.tokens.expected("a name in quotes", &token)),
        }
    }

    /// Parses one item, or several in braces. `read` returns none for a word of another kind, and
    /// an error for an invalid item.
    fn items<T>(
        &mut self,
        what: &str,
        read: impl Fn(&str) -> Option<Result<T, String>>,
    ) -> Result<Vec<T>, ConfigError> {
        let item = |tokens: &mut Tokens<'t>| {
            let token = tokens.next();
            match token.word().and_then(&read) {
                Some(Ok(item)) => Ok(item),
                Some(Err(wrong)) => Err(tokens.error(&token, wrong)),
                None => Err(tokens.expected(what, &token)),
            }
        };
        if self.tokens.take("{").is_none() {
            return Ok(vec![item(&mut self.tokens)?]);
        }
        let mut items = Vec::new();
        loop {
            items.push(item(&mut self.tokens)?);
            if self.tokens.take("}").is_some() {
                return Ok(items);
            }
            if self.tokens.take(",").is_none() {
                let next = self.tokens.next();
                return Err(self.tokens.expected("`,` or `}`", &next));
            }
        }
    }
}

const OPTIONS: [&str; 6] = ["state", "flags", "icmp_type", "tag", "log", "as"];

/// TCP flags by bit (RFC 9293 3.1).
const FLAGS: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];

/// Returns whether all protocols of these ranges satisfy `so`. Each range is a single number.
fn all(protocols: &[RangeInclusive<u8>], so: impl Fn(u8) -> bool) -> bool {
    protocols.iter().cloned().flatten().all(so)
}

fn quoted(words: &[impl Display]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
