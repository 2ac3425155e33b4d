//! Properties of all policies.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside the tests themselves")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use policy::ast::*;
use policy::{
    Colour, ConfigLiteral, Diagnostics, Fields, Filter as Checked, FilterAddressSet, FilterNumberField,
    NumberSet, Policy, Prefix, RESERVED, Scalar, SourceMap, Span,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use values::Quantity;

/// Any position: trees compare without positions.
static NOWHERE: LazyLock<Span> = LazyLock::new(|| {
    let source = SourceMap::default().add("", String::new()).unwrap();
    Span { source, start: 0, end: 0 }
});

fn at<T>(node: T) -> Spanned<T> {
    Spanned::new(node, *NOWHERE)
}

fn name() -> impl Strategy<Value = Name> {
    "[a-zA-Z_][a-zA-Z0-9_]{0,6}(-[a-z0-9]{1,3})?"
        .prop_filter("reserved", |n| !RESERVED.contains(&n.as_str()))
        .prop_map(at)
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|a| IpAddr::V4(Ipv4Addr::from_bits(a))),
        any::<u128>().prop_map(|a| IpAddr::V6(Ipv6Addr::from_bits(a))),
        (any::<u16>(), any::<u16>())
            .prop_map(|(a, b)| IpAddr::V6(Ipv6Addr::from_bits(u128::from(a) << 112 | u128::from(b)))),
    ]
}

fn literal() -> impl Strategy<Value = ConfigLiteral> {
    prop_oneof![
        any::<bool>().prop_map(ConfigLiteral::Bool),
        any::<u64>().prop_map(|n| ConfigLiteral::Integer(n.into())),
        any::<i64>().prop_map(|n| ConfigLiteral::Integer(n.into())),
        (-1e9f64..1e9).prop_map(ConfigLiteral::Float),
        select(vec!["10s", "2h4m", "1.5KB", "64KiB", "2500Mbps", "10Mpps", "500us"])
            .prop_map(|t| ConfigLiteral::Amount(Quantity::parse(t).unwrap(), t.to_owned())),
        address().prop_map(ConfigLiteral::Address),
        (address(), 0u8..=32).prop_map(|(a, length)| ConfigLiteral::Prefix(Prefix::new(a, length).unwrap())),
        (any::<u32>(), any::<u32>()).prop_map(|(a, b)| {
            ConfigLiteral::AddressRange(
                Ipv4Addr::from_bits(a.min(b)).into(),
                Ipv4Addr::from_bits(a.max(b)).into(),
            )
        }),
        (any::<u64>(), any::<u64>()).prop_map(|(a, b)| ConfigLiteral::NumberRange(a.min(b), a.max(b))),
        any::<[u8; 6]>().prop_map(ConfigLiteral::Mac),
    ]
}

fn text() -> impl Strategy<Value = TextExpr> {
    "\\PC{0,8}|[\\x00-\\x7f]{0,8}".prop_map(|text| TextExpr { text, escapes: Vec::new(), quotes: 1 })
}

fn value() -> impl Strategy<Value = ValueExpr> {
    let leaf = prop_oneof![
        4 => literal().prop_map(ValueExprKind::Literal),
        1 => text().prop_map(ValueExprKind::Text),
        1 => text().prop_map(|path| ValueExprKind::File(at(path))),
        1 => name().prop_map(|n| ValueExprKind::Word(n.node)),
        1 => name().prop_map(|n| ValueExprKind::Reference(n.node)),
    ];
    let key = prop_oneof![4 => name(), 1 => text().prop_map(|t| at(t.text))];
    leaf.prop_map(at).prop_recursive(3, 12, 4, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(ValueExprKind::List),
            vec((key.clone(), inner), 0..4).prop_map(ValueExprKind::Object),
        ]
        .prop_map(at)
    })
}

fn block() -> impl Strategy<Value = ValueExpr> {
    vec((name(), value()), 0..4).prop_map(|entries| at(ValueExprKind::Object(entries)))
}

fn compare() -> impl Strategy<Value = FilterComparison> {
    select(vec![
        FilterComparison::Eq,
        FilterComparison::Ne,
        FilterComparison::Lt,
        FilterComparison::Le,
        FilterComparison::Gt,
        FilterComparison::Ge,
    ])
}

fn filter() -> impl Strategy<Value = FilterExpr> {
    let side = select(vec![None, Some(FilterSide::Src), Some(FilterSide::Dst)]);
    let sided = select(vec![Field::Ip, Field::Ip6, Field::Net, Field::Port]);
    let plain = select(vec![Field::Proto, Field::Vlan, Field::Tenant, Field::Dscp]);
    let test = |side, field, compare, value| FilterExprKind::Test { side, field, compare, value };
    let leaf = prop_oneof![
        any::<bool>().prop_map(FilterExprKind::Always),
        (side, sided, compare(), value()).prop_map(move |(s, f, c, v)| test(s, f, c, v)),
        (plain, compare(), value()).prop_map(move |(f, c, v)| test(None, f, c, v)),
        vec((select(TcpFlag::ALL).prop_map(at), any::<bool>()), 1..4).prop_map(FilterExprKind::Flags),
        (name(), name(), proptest::option::of((compare(), value())))
            .prop_map(|(owner, name, test)| FilterExprKind::Attribute { owner, name, test }),
    ];
    leaf.prop_map(at).prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|f| FilterExprKind::Not(Box::new(f))),
            vec(inner.clone(), 2..4).prop_map(FilterExprKind::All),
            vec(inner, 2..4).prop_map(FilterExprKind::Any),
        ]
        .prop_map(at)
    })
}

fn chain() -> impl Strategy<Value = EdgeChain> {
    let arrow = select(vec![Arrow::Forward, Arrow::Both]).prop_map(at);
    let hop = (name(), proptest::option::of(filter()), arrow)
        .prop_map(|(node, filter, arrow)| EdgeChainHop { node, filter, arrow });
    (vec(hop, 1..4), name()).prop_map(|(hops, last)| EdgeChain { hops, last })
}

fn item() -> impl Strategy<Value = PolicyItem> {
    use proptest::option::of;
    prop_oneof![
        (name(), value()).prop_map(|(name, value)| PolicyItem::Let { name, value }),
        (any::<u64>(), of(any::<u64>()), name(), of(block())).prop_map(|(first, last, name, config)| {
            PolicyItem::Port { first: at(first), last: last.map(at), name, config }
        }),
        (name(), name(), of(block())).prop_map(|(type_name, name, config)| PolicyItem::Nf {
            type_name,
            name,
            config
        }),
        block().prop_map(|config| PolicyItem::Settings { keyword: at(()), config }),
        (of(name()), vec(chain(), 0..4)).prop_map(|(name, chains)| PolicyItem::Pipelet {
            keyword: at(()),
            name,
            chains
        }),
    ]
}

/// Reads a policy without files, and renders all diagnostics in every form.
fn read(text: &str) -> Result<Policy, Box<Diagnostics>> {
    let result = Policy::read("p.rvl", text, &mut |_| Err("there are no files".into()));
    let report = match &result {
        Ok(policy) => &policy.report,
        Err(report) => report,
    };
    let printed = [report.render(Colour::On), report.render(Colour::Off), report.to_string()];
    assert!(printed.iter().all(|p| p.is_empty() == report.diagnostics.is_empty()));
    result
}

/// A boolean expression over attributes `n.a0` to `n.a3`: the oracle for filters.
#[derive(Clone, Debug)]
enum Truth {
    Atom(u8),
    Not(Box<Truth>),
    And(Box<Truth>, Box<Truth>),
    Or(Box<Truth>, Box<Truth>),
}

impl Truth {
    fn holds(&self, atoms: u8) -> bool {
        match self {
            Self::Atom(n) => atoms >> n & 1 == 1,
            Self::Not(a) => !a.holds(atoms),
            Self::And(a, b) => a.holds(atoms) & b.holds(atoms),
            Self::Or(a, b) => a.holds(atoms) | b.holds(atoms),
        }
    }

    /// Writes it with no more parentheses than the documented precedence needs: `!` before `&&`
    /// before `||`.
    fn write(&self, binding: u8, words: bool) -> String {
        let (own, text) = match self {
            Self::Atom(n) => (3, format!("n.a{n}")),
            Self::Not(a) => (2, format!("{}{}", if words { "not " } else { "!" }, a.write(2, words))),
            Self::And(a, b) => {
                let and = if words { "and" } else { "&&" };
                (1, format!("{} {and} {}", a.write(1, words), b.write(1, words)))
            }
            Self::Or(a, b) => {
                let or = if words { "or" } else { "||" };
                (0, format!("{} {or} {}", a.write(0, words), b.write(0, words)))
            }
        };
        if own < binding { format!("({text})") } else { text }
    }
}

fn truth() -> impl Strategy<Value = Truth> {
    (0u8..4).prop_map(Truth::Atom).prop_recursive(5, 24, 2, |inner| {
        let pair = || (inner.clone().prop_map(Box::new), inner.clone().prop_map(Box::new));
        prop_oneof![
            inner.clone().prop_map(|a| Truth::Not(Box::new(a))),
            pair().prop_map(|(a, b)| Truth::And(a, b)),
            pair().prop_map(|(a, b)| Truth::Or(a, b)),
        ]
    })
}

fn edge_filter(filter: &str) -> Checked {
    let text = format!("Port<0> a; T n; pipelet {{ a [{filter}] -> n; n -> a; }}");
    match read(&text) {
        Ok(policy) => policy.pipelets[0].edges[0].filter.clone(),
        Err(report) => panic!("{report}"),
    }
}

const WORDS: &[&str] = &[
    "let",
    "settings",
    "pipelet",
    "Port",
    "Drop",
    "NAT",
    "n",
    "a",
    "x",
    "file",
    "src",
    "dst",
    "ip",
    "ip6",
    "net",
    "port",
    "proto",
    "tcp",
    "flags",
    "syn",
    "vlan",
    "and",
    "or",
    "not",
    "true",
    "=",
    "==",
    "!=",
    "<",
    ">",
    "<=",
    "->",
    "<->",
    "-",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ";",
    ":",
    ",",
    ".",
    "!",
    "&&",
    "||",
    "&",
    "$x",
    "$",
    "80",
    "0-7",
    "1M",
    "10s",
    "1.5",
    "10.0.0.0/8",
    "10.0.0.0/99",
    "1.2.3",
    "2001:db8::/32",
    "fe80::1",
    "\"text\"",
    "\"",
    "\"\"\"",
    "\"\\u{41}\"",
    "\\",
    "\n",
    "\r\n",
    "\t",
    "#",
    "//",
    "é",
    "漢字",
    "\u{feff}",
    "\0",
    "\u{202e}",
    "0x",
    "99999999999999999999999999",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn formatted_policies_parse_back(items in vec(item(), 0..5)) {
        let file = File { items };
        let text = file.to_string();
        match policy::syntax("printed.rvl", &text) {
            Ok(read) => prop_assert_eq!(&read, &file, "{}", text),
            Err(report) => prop_assert!(false, "{}\n{}", report, text),
        }
    }

    /// White space and comments come anywhere that a line may end.
    #[test]
    fn reformatted_policies_keep_their_meaning(items in vec(item(), 0..5), gaps in vec(0usize..6, 1..40)) {
        let file = File { items };
        let mut gaps = gaps.into_iter().cycle();
        let text: String = file
            .to_string()
            .split_inclusive('\n')
            .map(|line| match gaps.next() {
                Some(0) => format!("  {line}"),
                Some(1) => format!("{line}\n\n"),
                Some(2) => format!("# a  comment\n{line}"),
                Some(3) => line.replace('\n', " // one more\n"),
                _ => line.to_owned(),
            })
            .collect();
        let formatted = match policy::reformat("made.rvl", &text) {
            Ok(formatted) => formatted,
            Err(report) => return Err(TestCaseError::fail(format!("{report}\n{text}"))),
        };
        prop_assert_eq!(policy::syntax("made.rvl", &formatted).unwrap(), file, "{}", formatted);
        prop_assert_eq!(policy::reformat("made.rvl", &formatted).unwrap(), formatted);
    }

    #[test]
    fn filters_obey_the_truth_table(truth in truth(), words: bool) {
        let filter = edge_filter(&truth.write(0, words));
        for atoms in 0..16u8 {
            let mut packet = Fields::default();
            for n in 0..4 {
                // Absent and zero are both false.
                if atoms >> n & 1 == 1 || n % 2 == 0 {
                    packet.attributes.insert((0, format!("a{n}")), Scalar::Number((atoms >> n & 1).into()));
                }
            }
            prop_assert_eq!(filter.matches(&packet), truth.holds(atoms), "{:04b}", atoms);
            prop_assert_eq!(filter.mirrored().matches(&packet), truth.holds(atoms));
        }
    }

    #[test]
    fn comparisons_of_numbers(value in 0u16..70, found in proptest::option::of(0u16..70), near: bool) {
        let found = if near { Some(value) } else { found };
        let mut packet = Fields::default();
        packet.numbers.extend(found.map(|n| (FilterNumberField::DstPort, n.into())));
        let holds = |sign: &str| edge_filter(&format!("dst port {sign} {value}")).matches(&packet);
        let is = |test: fn(&u16, &u16) -> bool| found.is_some_and(|n| test(&n, &value));
        prop_assert_eq!(holds(""), is(u16::eq));
        prop_assert_eq!(holds("=="), is(u16::eq));
        prop_assert_eq!(holds("!="), !is(u16::eq));
        prop_assert_eq!(holds("<"), is(u16::lt));
        prop_assert_eq!(holds("<="), is(u16::le));
        prop_assert_eq!(holds(">"), is(u16::gt));
        prop_assert_eq!(holds(">="), is(u16::ge));
    }

    #[test]
    fn flags_and_addresses(set in 0u8..=255, clear in 0u8..=255, found: u8, a: u32, length in 0u8..=32, b: u32) {
        let clear = clear & !set;
        let flags: Vec<String> = TcpFlag::ALL
            .iter()
            .filter(|f| (set | clear) & f.bit() != 0)
            .map(|f| format!("{}{}", if clear & f.bit() != 0 { "!" } else { "" }, f.word()))
            .collect();
        if !flags.is_empty() {
            let filter = edge_filter(&format!("tcp flags {}", flags.join(",")));
            let packet = Fields { tcp_flags: Some(found), ..Fields::default() };
            prop_assert_eq!(filter.matches(&packet), (found ^ set) & (set | clear) == 0);
            prop_assert!(!filter.matches(&Fields::default()));
        }

        let mask = (u64::from(u32::MAX) << (32 - length)) as u32;
        // Near the prefix as often as anywhere.
        let b = if length % 2 == 0 { b } else { a & mask | b & !mask };
        let filter = edge_filter(&format!("src net {}/{length}", Ipv4Addr::from_bits(a & mask)));
        let packet = Fields { src_ip: Some(Ipv4Addr::from_bits(b).into()), ..Fields::default() };
        prop_assert_eq!(filter.matches(&packet), b & mask == a & mask);
        let mirrored = Fields { dst_ip: packet.src_ip, ..Fields::default() };
        prop_assert_eq!(filter.mirrored().matches(&mirrored), b & mask == a & mask);
        prop_assert!(!filter.matches(&mirrored));
    }

    #[test]
    fn sets_contain_what_their_ranges_contain(ranges in vec((0u8..40, 0u8..40), 0..8)) {
        let numbers = NumberSet::new(ranges.iter().map(|(a, b)| (u64::from(*a), u64::from(*b))).collect());
        let ip = |n: u8| IpAddr::from([10, 0, 0, n]);
        let addresses = FilterAddressSet::new(ranges.iter().map(|(a, b)| (ip(*a), ip(*b))).collect());
        for n in 0..41u8 {
            let held = ranges.iter().any(|(a, b)| (*a..=*b).contains(&n));
            prop_assert_eq!(numbers.contains(n.into()), held);
            prop_assert_eq!(addresses.contains(ip(n)), held);
        }
        prop_assert!(numbers.ranges().is_sorted_by(|a, b| a.1 + 1 < b.0));
    }

    // E2
    #[test]
    fn acyclic_graphs_are_accepted_and_cycles_refused(
        order in Just((0..10usize).collect::<Vec<_>>()).prop_shuffle(),
        pairs in vec((0usize..10, 0usize..10), 1..25),
        both: bool,
    ) {
        let arrow = if both { "<->" } else { "->" };
        let mut text = String::from("Port<0> p;\n");
        (0..10).for_each(|n| text += &format!("T n{n};\n"));
        text += "pipelet {\n";
        let edges: Vec<_> = pairs.iter().filter(|(a, b)| a != b).map(|(a, b)| (*a.min(b), *a.max(b))).collect();
        for (a, b) in &edges {
            text += &format!("n{} {arrow} n{};\n", order[*a], order[*b]);
        }
        let policy = read(&format!("{text}}}"));
        prop_assert!(policy.is_ok(), "{}", text);
        if let Some((a, b)) = edges.first() {
            let closed = format!("{text}n{} -> n{};\n}}", order[*b], order[*a]);
            let report = read(&closed).unwrap_err();
            prop_assert!(report.to_string().contains("error: packets would loop: "), "{}", report);
        }
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = read(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_tokens_cause_a_panic(words in vec(select(WORDS), 0..60), space in select(vec![" ", "", "\n"])) {
        let _ = read(&words.join(space));
    }

    #[test]
    fn no_broken_policy_causes_a_panic(items in vec(item(), 0..4), cut in any::<proptest::sample::Index>(), word in select(WORDS)) {
        let mut text = File { items }.to_string();
        let cut = cut.index(text.len() + 1);
        let cut = (0..=cut).rev().find(|at| text.is_char_boundary(*at)).unwrap();
        text.insert_str(cut, word);
        let _ = read(&text);
        text.truncate(cut);
        let _ = read(&text);
    }
}
