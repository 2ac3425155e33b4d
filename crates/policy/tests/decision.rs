//! Compiled filters against the filters as they are written.
#![allow(clippy::unwrap_used)] // A test fails by panicking.

use std::net::IpAddr;
use std::sync::Arc;

use policy::ast::{FilterComparison, FilterSide};
use policy::{Fields, Filter, FilterAddressSet, FilterNumberField, FilterTable, NumberSet, Scalar};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// Few addresses, some of them at the ends of their families.
fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        (0u8..4).prop_map(|last| IpAddr::from([10, 0, 0, last])),
        Just(IpAddr::from([255; 4])),
        (0u16..4).prop_map(|last| IpAddr::from([0x2001, 0, 0, 0, 0, 0, 0, last])),
        Just(IpAddr::from([0xffff_u16; 8])),
        Just(IpAddr::from([0_u16; 8])),
    ]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..6, Just(63), Just(65_535)]
}

fn scalar() -> impl Strategy<Value = Scalar> {
    prop_oneof![
        (0u64..3).prop_map(Scalar::Number),
        Just(Scalar::Number(u64::MAX)),
        select(vec!["", "GET", "POST"]).prop_map(|text| Scalar::Text(text.into())),
    ]
}

fn field() -> impl Strategy<Value = FilterNumberField> {
    select(FilterNumberField::ALL.to_vec())
}

fn test() -> impl Strategy<Value = Filter> {
    use FilterComparison::{Eq, Ge, Gt, Le, Lt, Ne};
    prop_oneof![
        any::<bool>().prop_map(Filter::Always),
        (select(vec![FilterSide::Src, FilterSide::Dst]), vec((address(), address()), 0..3))
            .prop_map(|(side, ranges)| Filter::Address { side, set: FilterAddressSet::new(ranges) }),
        (field(), vec((number(), number()), 0..3))
            .prop_map(|(field, ranges)| Filter::Number { field, set: NumberSet::new(ranges) }),
        (any::<u8>(), any::<u8>())
            .prop_map(|(set, clear)| Filter::TcpFlags { set: set & 3, clear: clear & 6 }),
        (vec(0usize..3, 1..3), option::of((select(vec![Eq, Ne, Lt, Le, Gt, Ge]), scalar())))
            .prop_map(|(nfs, test)| Filter::Attribute { nfs: Arc::from(nfs), name: "a".into(), test }),
    ]
}

fn filter() -> impl Strategy<Value = Filter> {
    test().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|inner| Filter::Not(Box::new(inner))),
            vec(inner.clone(), 0..4).prop_map(Filter::All),
            vec(inner, 0..4).prop_map(Filter::Any),
        ]
    })
}

fn packet() -> impl Strategy<Value = Fields> {
    let numbers = btree_map(field(), number(), 0..6);
    let attributes = btree_map((0usize..3).prop_map(|nf| (nf, "a".to_owned())), scalar(), 0..3);
    (option::of(address()), option::of(address()), numbers, option::of(0u8..8), attributes).prop_map(
        |(src_ip, dst_ip, numbers, tcp_flags, attributes)| Fields {
            src_ip,
            dst_ip,
            numbers,
            tcp_flags,
            attributes,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn table_equals_a_linear_search(filters in vec(filter(), 0..12), packets in vec(packet(), 1..40)) {
        let table = FilterTable::new(&filters);
        for packet in &packets {
            prop_assert_eq!(table.first(packet), filters.iter().position(|filter| filter.matches(packet)));
        }
    }
}

/// More terms than a block has, and a filter of too many terms.
#[test]
fn long_lists_are_searched_in_blocks() {
    let port = |port: u64| Filter::Number {
        field: FilterNumberField::DstPort,
        set: NumberSet::new(vec![(port, port)]),
    };
    let mut filters: Vec<Filter> = (0..5_000).map(port).collect();
    let flag = |bit: u8| Filter::TcpFlags { set: 1 << bit, clear: 0 };
    let many = (0..7).map(|bit| Filter::Any(vec![flag(bit), flag(bit + 1), port(bit.into())])).collect();
    filters.insert(100, Filter::All(many));
    let table = FilterTable::new(&filters);
    for (number, flags) in [
        (0, None),
        (99, Some(0)),
        (100, Some(0xff)),
        (101, Some(0)),
        (4_321, None),
        (4_999, Some(1)),
        (5_000, None),
    ] {
        let mut packet = Fields { tcp_flags: flags, ..Fields::default() };
        packet.numbers.insert(FilterNumberField::DstPort, number);
        assert_eq!(
            table.first(&packet),
            filters.iter().position(|filter| filter.matches(&packet)),
            "{number}"
        );
    }
}
