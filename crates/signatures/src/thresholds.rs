//! The operator's limits and suppressions of alerts, as in a `threshold.config`.

use std::net::IpAddr;
use std::sync::Arc;

use crate::fault::{Line, Lines, RuleFault, SourceLine};
use crate::group::AddressSet;
use crate::limit::{Threshold, ThresholdKind, TrackBy};
use crate::rule::{DEFAULT_GID, RejectTarget, RuleAction};
use crate::text::{ParseResult, Piece};
use crate::{RuleError, RuleVariables};

/// Maximum entries.
pub const THRESHOLDS_MAX: usize = 65_536;

/// The entries of a `threshold.config`: `suppress`, `threshold` (also `event_filter`) and
/// `rate_filter`.
#[derive(Clone, Debug, Default)]
pub struct Thresholds(Vec<ThresholdEntry>);

/// An entry of a `threshold.config`.
#[derive(Clone, Debug)]
pub struct ThresholdEntry {
    /// The gid; 0 for all.
    pub gid: u32,
    /// The sid; 0 for all of the gid.
    pub sid: u32,
    /// The effect.
    pub kind: ThresholdEntryKind,
    /// The position.
    pub place: SourceLine,
}

/// The effect of an entry.
#[derive(Clone, Debug)]
pub enum ThresholdEntryKind {
    /// `suppress`: no alerts; other effects of the rule remain.
    Suppress(Suppress),
    /// `threshold`: a limit of alerts.
    Threshold(Threshold),
    /// `rate_filter`: an alternative action above a rate.
    Rate(RateFilter),
}

/// The alerts that are suppressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Suppress {
    /// All.
    All,
    /// Those of packets with these addresses.
    Of {
        /// The endpoint.
        end: SuppressEnd,
        /// The addresses.
        addresses: Arc<AddressSet>,
    },
}

/// The endpoint that an address is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuppressEnd {
    /// `by_src`.
    Source,
    /// `by_dst`.
    Destination,
    /// `by_either`.
    Either,
}

/// `rate_filter`: above `count` matches in this time, the rule has an alternative action for a
/// while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RateFilter {
    /// The scope of the count.
    pub track: TrackBy,
    /// At least 1.
    pub count: u32,
    /// At least 1.
    pub seconds: u32,
    /// The alternative action.
    pub action: RuleAction,
    /// Its duration in seconds.
    pub timeout_seconds: u32,
}

impl Suppress {
    /// Returns whether alerts of a packet between these endpoints are suppressed.
    pub fn holds(&self, source: IpAddr, destination: IpAddr) -> bool {
        match self {
            Suppress::All => true,
            Suppress::Of { end, addresses } => match end {
                SuppressEnd::Source => addresses.contains(source),
                SuppressEnd::Destination => addresses.contains(destination),
                SuppressEnd::Either => addresses.contains(source) || addresses.contains(destination),
            },
        }
    }
}

impl ThresholdEntry {
    /// Returns whether it applies to this rule.
    pub fn is_about(&self, gid: u32, sid: u32) -> bool {
        let is_group = self.gid == gid || self.gid == 0;
        is_group && (self.sid == sid || self.sid == 0)
    }

    /// Returns whether it names one rule, not a group.
    pub fn is_of_one(&self) -> bool {
        self.sid != 0
    }
}

impl Thresholds {
    /// Parses a file. Valid lines count whatever the others contain; each invalid line is a fault.
    pub fn read(file: &str, text: &str, variables: &RuleVariables) -> (Self, Vec<RuleFault>) {
        let (mut all, mut faults) = (Self::default(), Vec::new());
        for line in Lines::continued(file, text) {
            match limit(&line, variables) {
                Ok(limit) if all.0.len() < THRESHOLDS_MAX => all.0.push(limit),
                Ok(_) => {
                    let error = RuleError::TooMany { what: "thresholds", limit: THRESHOLDS_MAX };
                    faults.push(line.fault(Piece::new(&line.text).error(error)));
                }
                Err(wrong) => faults.push(line.fault(wrong)),
            }
        }
        (all, faults)
    }

    /// Returns all entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = &ThresholdEntry> {
        self.0.iter()
    }
}

fn limit(line: &Line<'_>, variables: &RuleVariables) -> ParseResult<ThresholdEntry> {
    let text = Piece::new(&line.text).trim();
    let end = text.text.find(char::is_whitespace).unwrap_or(text.text.len());
    let (word, rest) = (text.part(0, end), text.from(end).trim());
    // Lists of addresses contain commas and come last.
    let (options, addresses) = match word.text {
        "suppress" => match rest.text.find(" ip ").or_else(|| rest.text.find(",ip ")) {
            Some(at) => (rest.part(0, at).trim(), Some(rest.from(at + 4).trim())),
            None => (rest, None),
        },
        _ => (rest, None),
    };
    let names: &[&str] = match word.text {
        "suppress" => &["gen_id", "sig_id", "track"],
        "threshold" | "event_filter" => &["gen_id", "sig_id", "type", "track", "count", "seconds"],
        "rate_filter" => &["gen_id", "sig_id", "track", "count", "seconds", "new_action", "timeout"],
        _ => return Err(word.wrong("`suppress`, `threshold`, `event_filter` or `rate_filter`")),
    };
    let values = values(options, names)?;
    let needed = |name: &str| {
        let at = names.iter().position(|known| *known == name);
        let value = at.and_then(|at| values[at]);
        value.ok_or_else(|| rest.wrong(format!("`{name}` too")))
    };
    let tracks = [
        ("by_src", TrackBy::Source),
        ("by_dst", TrackBy::Destination),
        ("by_both", TrackBy::Both),
        ("by_rule", TrackBy::Rule),
        ("by_flow", TrackBy::Flow),
    ];
    let kind = match word.text {
        "suppress" => {
            let ends = [
                ("by_src", SuppressEnd::Source),
                ("by_dst", SuppressEnd::Destination),
                ("by_either", SuppressEnd::Either),
            ];
            ThresholdEntryKind::Suppress(match (values[2], addresses) {
                (None, None) => Suppress::All,
                (Some(track), Some(addresses)) => Suppress::Of {
                    end: track.one_of(&ends)?,
                    addresses: variables.read_addresses(addresses)?,
                },
                (Some(_), None) => return Err(rest.wrong("`ip` too")),
                (None, Some(_)) => return Err(rest.wrong("`track` too")),
            })
        }
        "rate_filter" => ThresholdEntryKind::Rate(RateFilter {
            track: needed("track")?.one_of(&tracks)?,
            count: needed("count")?.number(1..=u32::MAX)?,
            seconds: needed("seconds")?.number(1..=u32::MAX)?,
            action: needed("new_action")?.one_of(&[
                ("alert", RuleAction::Alert),
                ("drop", RuleAction::Drop),
                ("pass", RuleAction::Pass),
                ("reject", RuleAction::Reject(RejectTarget::Source)),
            ])?,
            timeout_seconds: needed("timeout")?.number(1..=u32::MAX)?,
        }),
        _ => {
            let seconds = needed("seconds")?.number(1..=u32::MAX)?;
            ThresholdEntryKind::Threshold(Threshold {
                kind: needed("type")?.one_of(&[
                    ("limit", ThresholdKind::Limit { seconds }),
                    ("threshold", ThresholdKind::Each { seconds }),
                    ("both", ThresholdKind::Once { seconds }),
                ])?,
                track: needed("track")?.one_of(&tracks)?,
                count: needed("count")?.number(1..=u32::MAX)?,
            })
        }
    };
    let number = |value: Option<Piece<'_>>, otherwise: u32| match value {
        Some(value) => value.number(0..=u32::MAX),
        None => Ok(otherwise),
    };
    let sid = needed("sig_id")?.number(0..=u32::MAX)?;
    Ok(ThresholdEntry { gid: number(values[0], DEFAULT_GID)?, sid, kind, place: line.place() })
}

/// Parses options `name value, ...`, in the order of the names.
fn values<'a>(options: Piece<'a>, names: &[&str]) -> ParseResult<Vec<Option<Piece<'a>>>> {
    let mut values = vec![None; names.len()];
    for option in options.split(',').filter(|option| !option.is_empty()) {
        let words: Vec<_> = option.words().collect();
        let ([name, value], Some(place)) =
            (&words[..], words.first().and_then(|word| names.iter().position(|known| *known == word.text)))
        else {
            return Err(option.wrong(format!("one of `{}`, each with a value", names.join("`, `"))));
        };
        if values[place].replace(*value).is_some() {
            return Err(name.wrong("each option once"));
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<ThresholdEntry>, Vec<String>) {
        let (variables, _) = RuleVariables::read("v", "HOME_NET = [192.0.2.0/24]");
        let (all, faults) = Thresholds::read("threshold.config", text, &variables);
        (all.0, faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn lines_are_read() {
        let (all, faults) = read(
            "# comment\n\nsuppress gen_id 1, sig_id 7\n\
             suppress gen_id 1, sig_id 8, track by_src, ip [10.0.0.0/8,!10.1.0.0/16, $HOME_NET]\n\
             suppress gen_id 1,sig_id 8,track by_either,ip 10.0.0.1\n\
             threshold gen_id 1, sig_id 0, type limit, track by_dst, \\\n  count 2, seconds 60\n\
             event_filter gen_id 0, sig_id 0, type both, track by_src, count 5, seconds 10\n\
             rate_filter gen_id 1, sig_id 9, track by_rule, count 3, seconds 4, new_action drop, timeout 5\n",
        );
        assert_eq!(faults, [""; 0]);
        let ids: Vec<_> = all.iter().map(|one| (one.gid, one.sid, one.place.line)).collect();
        assert_eq!(ids, [(1, 7, 3), (1, 8, 4), (1, 8, 5), (1, 0, 6), (0, 0, 8), (1, 9, 9)]);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let (other, nobody) = (address("203.0.113.1"), address("203.0.113.2"));
        for (line, inside, outside) in [(1, "10.0.0.9", "10.1.0.9"), (1, "192.0.2.5", "192.0.3.5")] {
            let ThresholdEntryKind::Suppress(suppress) = &all[line].kind else { panic!("{:?}", all[line]) };
            assert!(suppress.holds(address(inside), other) && !suppress.holds(other, address(inside)));
            assert!(!suppress.holds(address(outside), other));
        }
        let ThresholdEntryKind::Suppress(either) = &all[2].kind else { panic!("{:?}", all[2]) };
        assert!(either.holds(address("10.0.0.1"), other) && either.holds(other, address("10.0.0.1")));
        assert!(!either.holds(other, nobody));
        let ThresholdEntryKind::Threshold(limit) = all[3].kind else { panic!("{:?}", all[3]) };
        let kind = ThresholdKind::Limit { seconds: 60 };
        assert_eq!(limit, Threshold { kind, track: TrackBy::Destination, count: 2 });
        let ThresholdEntryKind::Rate(rate) = all[5].kind else { panic!("{:?}", all[5]) };
        assert_eq!((rate.action, rate.timeout_seconds), (RuleAction::Drop, 5));
        assert!(all[3].is_about(1, 5) && !all[3].is_about(2, 5) && all[4].is_about(2, 5));
        assert!(all[0].is_about(1, 7) && !all[0].is_about(1, 8) && all[0].is_of_one());
    }

    #[test]
    fn faults_name_their_position() {
        let (all, faults) = read(
            "supress gen_id 1, sig_id 7\nsuppress gen_id 1\nsuppress gen_id 1, sig_id x\n\
             suppress gen_id 1, sig_id 7, track by_src\nsuppress gen_id 1, sig_id 7, track by_src, ip 10.0.0.300\n\
             threshold gen_id 1, sig_id 7, type often, track by_src, count 1, seconds 1\n\
             threshold gen_id 1, sig_id 7, type limit, track by_src, count 0, seconds 1\n\
             suppress gen_id 1, sig_id 7, track by_src, ip $NO_NET\n",
        );
        assert_eq!(all.len(), 0);
        let places: Vec<_> = faults.iter().map(|fault| fault.split(": ").next().unwrap()).collect();
        let expected = ["1:1", "2:10", "3:27", "4:10", "5:47", "6:36", "7:63", "8:48"];
        assert_eq!(places, expected.map(|place| format!("threshold.config:{place}")), "{faults:#?}");
    }
}
