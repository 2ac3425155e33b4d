use std::ops::RangeInclusive;
use std::time::Instant;

use packet::{Addr, split_mix};
use proptest::prelude::*;

use super::*;
use crate::firewall::rule::{ConnectionStates, FlagMatch, RuleAddresses, RuleDirections, has_ports, join};

/// Compares one rule after another, field by field: the reference for the classifier.
fn linear(rules: &[RulePattern], headers: &FilterHeaders) -> Option<usize> {
    fn within<T: PartialOrd>(ranges: &[RangeInclusive<T>], value: T) -> bool {
        ranges.iter().any(|range| range.contains(&value))
    }
    let address = |set: &RuleAddresses, addr: Addr| {
        if headers.version == 4 {
            within(&set.v4, u32::from_be_bytes(addr.v4_bytes()))
        } else {
            within(&set.v6, addr.to_u128())
        }
    };
    rules.iter().position(|rule| {
        address(&rule.destinations, headers.destination)
            && address(&rule.sources, headers.source)
            && within(&rule.protocols, headers.protocol)
            && within(&rule.destination_ports, headers.destination_port)
            && within(&rule.source_ports, headers.source_port)
            && rule.ways.has(headers.way)
            && rule.states.has(headers.state)
            && headers.tcp_flags & rule.flags.mask == rule.flags.value
    })
}

fn any_rule() -> RulePattern {
    RulePattern {
        ways: RuleDirections::BOTH,
        protocols: vec![0..=255],
        sources: RuleAddresses::any(),
        source_ports: vec![0..=u16::MAX],
        destinations: RuleAddresses::any(),
        destination_ports: vec![0..=u16::MAX],
        states: ConnectionStates::VALID,
        flags: FlagMatch::default(),
    }
}

/// Ranges in a tiny universe at both ends of the number space, so that rules often overlap, nest
/// and touch.
fn ranges<T: Copy + Ord + std::fmt::Debug + From<u8>>(
    most: T,
    minus: fn(T, T) -> T,
) -> impl Strategy<Value = Ranges<T>> {
    let range = (0u8..12, 0u8..12, any::<bool>()).prop_map(move |(a, b, high)| {
        let (a, b) = (T::from(a.min(b)), T::from(a.max(b)));
        if high { minus(most, b)..=minus(most, a) } else { a..=b }
    });
    prop_oneof![
        2 => Just(vec![T::from(0)..=most]),
        5 => prop::collection::vec(range, 1..4).prop_map(move |ranges| join(ranges, move |n| minus(n, T::from(1)))),
    ]
}

fn addresses() -> impl Strategy<Value = RuleAddresses> {
    let v4 = prop_oneof![4 => ranges(u32::MAX, |a, b| a - b), 1 => Just(vec![])];
    let v6 = prop_oneof![4 => ranges(u128::MAX, |a, b| a - b), 1 => Just(vec![])];
    (v4, v6).prop_map(|(v4, v6)| RuleAddresses { v4, v6 })
}

fn rules() -> impl Strategy<Value = Vec<RulePattern>> {
    let rule = (
        (addresses(), addresses(), ranges(u16::MAX, |a, b| a - b), ranges(u16::MAX, |a, b| a - b)),
        (ranges(255u8, |a, b| a - b), 1u8..4, 1u8..16, any::<(u8, u8)>()),
    );
    let rule = rule.prop_map(|((sources, destinations, source_ports, destination_ports), rest)| {
        let (protocols, ways, states, (mask, value)) = rest;
        let mask = if mask % 3 == 0 { mask & 0x3f } else { 0 };
        let flags = FlagMatch { mask, value: value & mask };
        let (ways, states) = (RuleDirections(ways), ConnectionStates(states));
        let ports = (source_ports, destination_ports);
        RulePattern {
            sources,
            destinations,
            source_ports: ports.0,
            destination_ports: ports.1,
            protocols,
            ways,
            states,
            flags,
        }
    });
    prop::collection::vec(rule, 0..150)
}

fn headers() -> impl Strategy<Value = FilterHeaders> {
    fn near<T: Copy + std::fmt::Debug>(numbers: fn(u8, bool) -> T) -> impl Strategy<Value = T> {
        (0u8..14, any::<bool>()).prop_map(move |(n, high)| numbers(n, high))
    }
    let port = || near(|n, high| if high { u16::MAX - u16::from(n) } else { u16::from(n) });
    let address = || near(|n, high| if high { u128::MAX - u128::from(n) } else { u128::from(n) });
    let protocol = near(|n, high| if high { 255 - n } else { n });
    (any::<bool>(), address(), address(), port(), port(), protocol, any::<u8>(), any::<bool>(), 0usize..4)
        .prop_map(
            |(v4, source, destination, source_port, destination_port, protocol, tcp_flags, way, state)| {
                let addr = |number: u128| {
                    if v4 {
                        Addr::from_v4_bytes((number as u32).to_be_bytes())
                    } else {
                        Addr::from_u128(number)
                    }
                };
                FilterHeaders {
                    version: if v4 { 4 } else { 6 },
                    protocol,
                    source: addr(source),
                    destination: addr(destination),
                    source_port,
                    destination_port,
                    tcp_flags,
                    way: if way { RuleDirection::In } else { RuleDirection::Out },
                    state: ConnectionState::ALL[state],
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn classifier_matches_the_linear_scan(
        rules in rules(),
        headers in prop::collection::vec(headers(), 200),
        disabled in prop::collection::vec(0usize..150, 0..20),
    ) {
        let mut classifier = RuleClassifier::new(&rules).unwrap();
        for headers in &headers {
            prop_assert_eq!(classifier.first_match(headers), linear(&rules, headers), "{:?}", headers);
        }
        let mut fewer = rules.clone();
        for &rule in disabled.iter().filter(|&&rule| rule < rules.len()) {
            classifier.enable(rule, false);
            fewer[rule].ways = RuleDirections(0);
        }
        for headers in &headers {
            prop_assert_eq!(classifier.first_match(headers), linear(&fewer, headers), "{:?}", headers);
        }
        for rule in 0..rules.len() {
            classifier.enable(rule, true);
        }
        for headers in &headers {
            prop_assert_eq!(classifier.first_match(headers), linear(&rules, headers));
        }
    }
}

/// A seeded random number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        split_mix(&mut self.0) % limit
    }

    fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

/// Kinds of rule sets that ClassBench (Taylor and Turner, 2005) found in use.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Routers: specific destinations, source prefixes, services by exact port.
    Acl,
    /// Firewalls: one end unrestricted, port ranges on both ends.
    Fw,
    /// Chains of IP tables: a mixture of both.
    Ipc,
}

fn generate(shape: Shape, count: usize, seed: u64) -> Vec<RulePattern> {
    let mut random = Random(seed);
    // Prefixes share their first bits, as prefixes of a site do.
    let sites: Vec<u128> = (0..64).map(|_| u128::from(split_mix(&mut random.0)) << 64).collect();
    let prefix = |random: &mut Random, open_in_ten: u64, lens: &[u32]| {
        if random.below(10) < open_in_ten {
            return RuleAddresses::any();
        }
        let low = u128::from(random.below(1 << 20)) << random.below(100);
        let base = random.of(&sites) ^ low ^ u128::from(random.below(1 << 16)) << 96;
        let len = random.of(lens);
        if random.one_in(4) {
            let hosts = u128::MAX.checked_shr(len * 4).unwrap_or(0);
            RuleAddresses { v4: vec![], v6: vec![base & !hosts..=base | hosts] }
        } else {
            let (base, hosts) = ((base >> 96) as u32, u32::MAX.checked_shr(len).unwrap_or(0));
            RuleAddresses { v4: vec![base & !hosts..=base | hosts], v6: vec![] }
        }
    };
    let ports = |random: &mut Random, open_in_ten: u64| -> Ranges<u16> {
        if random.below(10) < open_in_ten {
            return vec![0..=u16::MAX];
        }
        match random.below(4) {
            0 => vec![1024..=u16::MAX],
            1 => {
                let first = random.below(60_000) as u16;
                vec![first..=first + random.below(5_000) as u16]
            }
            _ => {
                let port = random.below(1024) as u16;
                vec![port..=port]
            }
        }
    };
    (0..count)
        .map(|_| {
            let (source, destination, from_port, to_port) = match shape {
                Shape::Acl => ((2, [16, 24, 28, 32]), (0, [24, 28, 32, 32]), 10, 3),
                Shape::Fw => ((5, [8, 16, 24, 32]), (5, [16, 24, 32, 32]), 5, 3),
                Shape::Ipc => ((3, [8, 20, 24, 32]), (2, [16, 24, 30, 32]), 7, 5),
            };
            let mut rule = RulePattern {
                sources: prefix(&mut random, source.0, &source.1),
                destinations: prefix(&mut random, destination.0, &destination.1),
                source_ports: ports(&mut random, from_port),
                destination_ports: ports(&mut random, to_port),
                protocols: random
                    .of(&[vec![6..=6], vec![6..=6], vec![17..=17], vec![0..=255]].each_ref())
                    .clone(),
                ways: random.of(&[RuleDirections::BOTH, RuleDirections(1), RuleDirections(2)]),
                ..any_rule()
            };
            if rule.protocols == [6..=6] && random.one_in(8) {
                rule.flags = FlagMatch { mask: 0x12, value: 2 };
            }
            rule
        })
        .collect()
}

/// Headers at the corners of a rule, with one field possibly elsewhere.
fn near(random: &mut Random, rules: &[RulePattern]) -> FilterHeaders {
    fn corner<T: Copy>(random: &mut Random, ranges: &[RangeInclusive<T>], other: T) -> T {
        match (random.below(10), ranges.first()) {
            (0, _) | (_, None) => other,
            (1..=4, Some(range)) => *range.start(),
            (_, Some(range)) => *range.end(),
        }
    }
    let rule = &rules[random.below(rules.len() as u64) as usize];
    let v4 = !rule.sources.v4.is_empty() && !rule.destinations.v4.is_empty();
    let mut addr = |set: &RuleAddresses| {
        let other = u128::from(split_mix(&mut random.0)) << 64;
        if v4 {
            Addr::from_v4_bytes(corner(random, &set.v4, (other >> 96) as u32).to_be_bytes())
        } else {
            Addr::from_u128(corner(random, &set.v6, other))
        }
    };
    let (source, destination) = (addr(&rule.sources), addr(&rule.destinations));
    let (a, b) = (random.below(1 << 16) as u16, random.below(1 << 16) as u16);
    let protocol = random.of(&[6, 6, 17, *rule.protocols[0].start()]);
    FilterHeaders {
        version: if v4 { 4 } else { 6 },
        protocol,
        source,
        destination,
        source_port: if has_ports(protocol) { corner(random, &rule.source_ports, a) } else { 0 },
        destination_port: if has_ports(protocol) { corner(random, &rule.destination_ports, b) } else { 0 },
        tcp_flags: if protocol == 6 { random.of(&[2, 0x10, 0x12]) } else { 0 },
        way: random.of(&WAYS),
        state: random.of(&[ConnectionState::New, ConnectionState::New, ConnectionState::Invalid]),
    }
}

/// Compares 10,000 rules of the shape with the linear scan.
fn compare(shape: Shape) {
    let rules = generate(shape, 10_000, 7);
    let started = Instant::now();
    let classifier = RuleClassifier::new(&rules).unwrap();
    println!("{shape:?}: built in {:?}, {} KiB", started.elapsed(), classifier.len_bytes() >> 10);
    let mut random = Random(11);
    let mut matched = 0;
    for _ in 0..34_000 {
        let headers = near(&mut random, &rules);
        let found = classifier.first_match(&headers);
        assert_eq!(found, linear(&rules, &headers), "{headers:?}");
        matched += u32::from(found.is_some());
    }
    assert!((5_000..33_000).contains(&matched), "{matched} of 34,000 matched: the headers test too little");
}

#[test]
fn router_lists_match_the_linear_scan() {
    compare(Shape::Acl);
}

#[test]
fn firewall_lists_match_the_linear_scan() {
    compare(Shape::Fw);
}

#[test]
fn ip_chains_match_the_linear_scan() {
    compare(Shape::Ipc);
}

/// Measurement, not a test: `cargo test --release -p functions lookup_cost -- --nocapture`.
#[test]
fn lookup_cost() {
    for shape in [Shape::Acl, Shape::Fw, Shape::Ipc] {
        for count in [100, 1_000, 10_000] {
            let rules = generate(shape, count, 3);
            let started = Instant::now();
            let classifier = RuleClassifier::new(&rules).unwrap();
            let built = started.elapsed();
            let mut random = Random(5);
            let headers: Vec<FilterHeaders> = (0..20_000).map(|_| near(&mut random, &rules)).collect();
            let started = Instant::now();
            let matched = headers.iter().filter(|headers| classifier.first_match(headers).is_some()).count();
            let ns = started.elapsed().as_nanos() / headers.len() as u128;
            let kib = classifier.len_bytes() >> 10;
            println!("{shape:?} {count}: {ns} ns, {kib} KiB, built in {built:?}, {matched} matched");
        }
    }
}

/// Returns the number of table words that lookups read, on average and at most.
fn reads(shape: Shape, count: usize) -> (usize, usize) {
    let rules = generate(shape, count, 3);
    let classifier = RuleClassifier::new(&rules).unwrap();
    let mut random = Random(5);
    let (mut total, mut most) = (0, 0);
    for _ in 0..20_000 {
        let mut reads = 0;
        classifier.search(&near(&mut random, &rules), &mut || reads += 1);
        total += reads;
        most = most.max(reads);
    }
    (total / 20_000, most)
}

#[test]
fn lookup_reads_grow_slower_than_the_rules() {
    for shape in [Shape::Acl, Shape::Fw, Shape::Ipc] {
        let [few, many] = [100, 10_000].map(|count| reads(shape, count));
        println!("{shape:?}: {few:?} at 100 rules, {many:?} at 10,000");
        // A linear scan reads a hundred times as much, and bit vectors without summaries ten times.
        assert!(many.0 <= 3 * few.0, "{shape:?}: {} and {} on average", few.0, many.0);
        assert!(many.1 <= 250, "{shape:?}: {} at most", many.1);
    }
}

#[test]
fn worst_case_rules_stay_within_the_memory_limit() {
    // Nested ranges on every axis: all intervals differ, and each has half of all blocks.
    let rules: Vec<RulePattern> = (0..10_000u32)
        .map(|n| RulePattern {
            sources: RuleAddresses { v4: vec![n * 1000..=u32::MAX - n * 1000], v6: vec![] },
            destinations: RuleAddresses { v4: vec![n * 1000..=u32::MAX - n * 1000], v6: vec![] },
            ..any_rule()
        })
        .collect();
    let started = Instant::now();
    let classifier = RuleClassifier::new(&rules).unwrap();
    println!("nested: {} MiB in {:?}", classifier.len_bytes() >> 20, started.elapsed());
    assert!(classifier.len_bytes() <= TABLES_BYTES_MAX);
    // Lists of ranges of all lengths: tables beyond the limit are refused before they are built.
    let mut random = Random(1);
    let rules: Vec<RulePattern> = (0..RULES_MAX as u32)
        .map(|n| {
            let mut range = |i: u32| i << 20 | n..=(i << 20 | n) + (1 << 16) + random.below(1 << 19) as u32;
            RulePattern {
                sources: RuleAddresses { v4: (0..20).map(&mut range).collect(), v6: vec![] },
                ..any_rule()
            }
        })
        .collect();
    let started = Instant::now();
    assert_eq!(RuleClassifier::new(&rules).err(), Some(ClassifierTooLarge));
    println!("refused after {:?}", started.elapsed());
}

#[test]
fn no_rules_match_nothing() {
    let headers = near(&mut Random(1), &[any_rule()]);
    assert_eq!(RuleClassifier::new(&[]).unwrap().first_match(&headers), None);
}
