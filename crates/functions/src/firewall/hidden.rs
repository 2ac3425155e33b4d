//! Hidden rules: one rule above matches all packets of such a rule, so it decides nothing.

use std::ops::RangeInclusive;

use packet::Addr;

use super::classify::RuleClassifier;
use super::rule::{
    ConnectionState, FilterHeaders, FilterRule, Ranges, RuleAddresses, RuleDirection, RulePattern,
};

/// Returns a warning for each hidden rule.
pub(super) fn warnings(rules: &[FilterRule], classifier: &RuleClassifier) -> Vec<String> {
    let warning = |(at, rule): (usize, &FilterRule)| {
        let above = hiding(rules, classifier, at)?;
        Some(format!(
            "{}: `{}` decides nothing: `{}` ({}) matches all its packets; move it up, or remove it",
            rule.place, rule.name, above.name, above.place
        ))
    };
    rules.iter().enumerate().filter_map(warning).collect()
}

/// Returns the first rule above rule `at` that matches all its packets.
fn hiding<'r>(rules: &'r [FilterRule], classifier: &RuleClassifier, at: usize) -> Option<&'r FilterRule> {
    let pattern = &rules[at].pattern;
    // Rules above the first match of one of its packets do not match that packet.
    let first = classifier.first_match(&example(pattern)?)?;
    rules.get(first..at)?.iter().find(|above| covers(&above.pattern, pattern))
}

/// Returns headers that a pattern matches, if there are any.
fn example(pattern: &RulePattern) -> Option<FilterHeaders> {
    let of_v4 = pattern.sources.v4.first().zip(pattern.destinations.v4.first());
    let (version, source, destination) = match of_v4 {
        Some((source, destination)) => {
            let [source, destination] =
                [source, destination].map(|range| Addr::from_v4_bytes(range.start().to_be_bytes()));
            (4, source, destination)
        }
        None => {
            let (source, destination) = pattern.sources.v6.first().zip(pattern.destinations.v6.first())?;
            let [source, destination] = [source, destination].map(|range| Addr::from_u128(*range.start()));
            (6, source, destination)
        }
    };
    Some(FilterHeaders {
        version,
        protocol: *pattern.protocols.first()?.start(),
        source,
        destination,
        source_port: *pattern.source_ports.first()?.start(),
        destination_port: *pattern.destination_ports.first()?.start(),
        tcp_flags: pattern.flags.value,
        way: [RuleDirection::In, RuleDirection::Out].into_iter().find(|&way| pattern.ways.has(way))?,
        state: ConnectionState::ALL.into_iter().find(|&state| pattern.states.has(state))?,
    })
}

/// Returns whether `above` matches all packets of `pattern`.
fn covers(above: &RulePattern, pattern: &RulePattern) -> bool {
    pattern.ways.0 & !above.ways.0 == 0
        && pattern.states.0 & !above.states.0 == 0
        && above.flags.mask & !pattern.flags.mask == 0
        && pattern.flags.value & above.flags.mask == above.flags.value
        && has_all(&above.protocols, &pattern.protocols)
        && has_all(&above.destination_ports, &pattern.destination_ports)
        && has_all(&above.source_ports, &pattern.source_ports)
        && has_all_addresses((&above.sources, &above.destinations), (&pattern.sources, &pattern.destinations))
}

/// Compares sources and destinations. A packet has both of one IP version.
fn has_all_addresses(
    (sources, destinations): (&RuleAddresses, &RuleAddresses),
    (from, to): (&RuleAddresses, &RuleAddresses),
) -> bool {
    let has_v4 = || has_all(&sources.v4, &from.v4) && has_all(&destinations.v4, &to.v4);
    let has_v6 = || has_all(&sources.v6, &from.v6) && has_all(&destinations.v6, &to.v6);
    (from.v4.is_empty() || to.v4.is_empty() || has_v4())
        && (from.v6.is_empty() || to.v6.is_empty() || has_v6())
}

/// Returns whether each of these ranges is inside one of `all`, which do not touch each other.
fn has_all<T: Copy + Ord>(all: &Ranges<T>, ranges: &Ranges<T>) -> bool {
    let is_inside = |range: &RangeInclusive<T>| {
        let after = all.partition_point(|other| other.start() <= range.start());
        all[..after].last().is_some_and(|other| range.end() <= other.end())
    };
    ranges.iter().all(is_inside)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::firewall::parse;

    fn read(text: &str) -> (Vec<FilterRule>, RuleClassifier) {
        let rules = parse::rules(&[text.to_owned().into()], &BTreeMap::new()).unwrap();
        let classifier = RuleClassifier::new(rules.iter().map(|rule| &rule.pattern)).unwrap();
        (rules, classifier)
    }

    /// Returns pairs of lines: a hidden rule and the rule that hides it.
    fn hidden(text: &str) -> Vec<(usize, usize)> {
        let (rules, classifier) = read(text);
        let at = |rule: &FilterRule| rules.iter().position(|other| std::ptr::eq(other, rule)).unwrap();
        (0..rules.len()).filter_map(|of| Some((of, at(hiding(&rules, &classifier, of)?)))).collect()
    }

    #[test]
    fn rules_below_one_for_all_their_packets_are_hidden() {
        for (above, rule, is_hidden) in [
            ("allow out", "deny out tcp to any port 25", true),
            ("allow out", "deny in tcp to any port 25", false),
            ("allow out", "deny tcp to any port 25", false),
            ("deny tcp to any port 20-30", "allow in tcp to 192.0.2.1 port {22, 25}", true),
            ("deny tcp to any port 20-30", "allow in tcp to 192.0.2.1 port {22, 80}", false),
            ("deny tcp to any port 20-30", "allow in {tcp, udp} to 192.0.2.1 port 22", false),
            ("allow from 10.0.0.0/8", "deny from {10.1.0.0/16, 10.2.0.0/16}", true),
            ("allow from {10.0.0.0/9, 10.128.0.0/9}", "deny from 10.0.0.0/8", true),
            ("allow from 10.0.0.0/8", "deny from {10.1.0.0/16, fd00::1} to fd00::/8", false),
            ("allow from 10.0.0.0/8", "deny from {10.1.0.0/16, fd00::/8}", false),
            ("allow from {10.0.0.0/8, fd00::/8}", "deny from {10.1.0.0/16, fd00::/8}", true),
            ("allow state {new, established}", "deny state new", true),
            ("allow", "deny state invalid", false),
            ("allow tcp flags SYN", "deny tcp flags SYN,!ACK", true),
            ("allow tcp flags SYN,!ACK", "deny tcp flags SYN", false),
            ("allow icmp icmp_type {8, 0}", "deny icmp icmp_type 8", true),
        ] {
            let expected = if is_hidden { vec![(1, 0)] } else { Vec::new() };
            // A rule that matches some of the packets before both changes nothing.
            assert_eq!(hidden(&format!("{above}\n{rule}")), expected, "{above}; {rule}");
        }
        let between = "deny in tcp to any port 22\nallow in\ndeny in tcp to any port 20-30";
        assert_eq!(hidden(between), [(2, 1)]);
    }

    #[test]
    fn warnings_name_both_rules() {
        let (rules, classifier) = read("allow out as \"all\"\n\ndeny out tcp");
        let expected = "line 3: `rule 2` decides nothing: `all` (line 1) matches all its packets; move it up, \
                        or remove it";
        assert_eq!(warnings(&rules, &classifier), [expected]);
    }

    fn rule() -> impl Strategy<Value = String> {
        let way = prop_oneof![Just(""), Just("in"), Just("out")];
        let protocol = prop_oneof![Just("any"), Just("tcp"), Just("{tcp, udp}")];
        let place =
            prop_oneof![Just("any"), Just("10.0.0.0-10.0.0.2"), Just("{10.0.0.1, ::1-::2}"), Just("::1")];
        let port = prop_oneof![Just(""), Just("port 1-2"), Just("port {0, 2}")];
        (way, protocol, place.clone(), place, port)
            .prop_map(|(way, protocol, from, to, port)| {
                format!("allow {way} {protocol} from {from} to {to} {port}")
            })
            .prop_filter("of one version", |text| {
                parse::rules(&[text.clone().into()], &BTreeMap::new()).is_ok()
            })
    }

    proptest! {
        /// All headers of a small world are tried: a rule is hidden if one rule above matches all
        /// that it matches.
        #[test]
        fn trying_all_packets_agrees(texts in proptest::collection::vec(rule(), 1..6)) {
            let found = hidden(&texts.join("\n"));
            let v4 = (0..4).map(|last| (4, Addr::from_v4_bytes([10, 0, 0, last])));
            let ends: Vec<_> = v4.chain((0..4).map(|last| (6, Addr::from_u128(last)))).collect();
            let mut worlds = Vec::new();
            for &(version, source) in &ends {
                for &(_, destination) in ends.iter().filter(|(of, _)| *of == version) {
                    for (protocol, port) in [(6, 0), (6, 1), (6, 2), (6, 3), (17, 0), (17, 1), (17, 2), (17, 3), (132, 1), (132, 2), (1, 0)] {
                        for way in [RuleDirection::In, RuleDirection::Out] {
                            let (source_port, destination_port, tcp_flags) = (7, port, 0);
                            let state = ConnectionState::New;
                            worlds.push(FilterHeaders {
                                version, protocol, source, destination, source_port, destination_port,
                                tcp_flags, way, state,
                            });
                        }
                    }
                }
            }
            let matched: Vec<Vec<bool>> = texts.iter().map(|text| {
                let (_, alone) = read(text);
                worlds.iter().map(|headers| alone.first_match(headers).is_some()).collect()
            }).collect();
            let mut expected = Vec::new();
            for (at, own) in matched.iter().enumerate() {
                let has_all = |above: &Vec<bool>| own.iter().zip(above).all(|(own, above)| *above || !own);
                if let Some(above) = matched[..at].iter().position(has_all) {
                    expected.push((at, above));
                }
            }
            prop_assert_eq!(found, expected, "{:?}", texts);
        }
    }
}
