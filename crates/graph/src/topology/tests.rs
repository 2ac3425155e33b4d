//! Tests of topologies.

use policy::{AttributeValue, FilterNumberField, FilterSide};

use super::*;

/// A packet to this TCP port.
struct To(u16);

impl FilterInput for To {
    fn address(&self, _: FilterSide) -> Option<std::net::IpAddr> {
        None
    }
    fn number(&self, field: FilterNumberField) -> Option<u64> {
        (field == FilterNumberField::DstPort).then_some(self.0.into())
    }
    fn tcp_flags(&self) -> Option<u8> {
        Some(2)
    }
    fn attribute(&self, _: usize, _: &str) -> Option<AttributeValue<'_>> {
        None
    }
}

fn topology(text: &str) -> Topology {
    let policy = Policy::read("test", text, &mut |_: &str| Err(String::new())).unwrap();
    Topology::new(&policy).unwrap()
}

const SITE: &str = "Port<0> lan; Port<1> dmz; Port<2> wan; A a; B b; C c;
    pipelet { lan [dst port 80] -> b -> Drop; lan <-> a <-> c <-> wan; lan <-> dmz; }
    pipelet { dmz [tcp flags syn] -> b; }";

#[test]
fn first_edge_of_the_text_takes_the_packet() {
    let site = topology(SITE);
    assert_eq!(site.nfs(), [0, 1, 2]);
    assert!(!site.is_line());
    let hop = |port, to| site.enter(port, &To(to)).map(|(side, hop, _)| (side, hop));
    assert_eq!(hop(0, 80), Some((Side::Inside, Hop::Stage(1))));
    assert_eq!(hop(0, 81), Some((Side::Inside, Hop::Stage(0))));
    assert_eq!(hop(2, 80), Some((Side::Outside, Hop::Stage(2))));
    assert_eq!(hop(1, 80), Some((Side::Outside, Hop::End(RouteEnd::Port(0)))));
    assert_eq!(site.next(1, Side::Inside, &To(80)).0, Hop::End(RouteEnd::Drop));
    assert_eq!(site.next(1, Side::Outside, &To(80)).0, Hop::End(RouteEnd::Unmatched));
    assert_eq!(
        [0, 1, 2].map(|port| site.side_of_port(port)),
        [Some(Side::Inside), None, Some(Side::Outside)]
    );
    assert_eq!(site.edges().iter().filter(|edge| edge.to.is_some()).count(), 11);
    let leads = |port| [0, 1, 2].map(|stage| site.leads(port, stage));
    assert_eq!([0, 1, 2].map(leads), [[true, true, true], [false, true, false], [true, false, true]]);
}

#[test]
fn replies_need_edges_all_the_way_back() {
    let site = topology(SITE);
    let mut path = NfSet::default();
    path.add(0);
    path.add(2);
    assert!(site.is_answerable(path, Side::Inside, (0, 2)));
    path.add(1);
    assert!(!site.is_answerable(path, Side::Inside, (0, 2)));
    assert!(site.is_answerable(NfSet::default(), Side::Inside, (0, 1)));
}

#[test]
fn exclusive_functions_are_no_companions() {
    let of = |text| topology(text).companions().iter().map(|set| set.iter().collect()).collect();
    let companions: Vec<Vec<usize>> = of(SITE);
    assert_eq!(companions, [vec![0, 2], vec![1], vec![0, 2]]);
    let by_flags = "Port<0> lan; Port<1> wan; A a; B b;
        pipelet { lan [tcp flags syn] -> a -> wan; lan -> b -> wan; }";
    let companions: Vec<Vec<usize>> = of(by_flags);
    assert_eq!(companions, [vec![0, 1], vec![0, 1]]);
}

#[test]
fn lines_are_recognised() {
    let ports = "Port<0> lan; Port<1> wan; A a; B b;";
    for (text, is_line) in [
        ("lan <-> a <-> b <-> wan;", true),
        ("lan -> a -> b -> wan;", true),
        ("lan <-> wan;", true),
        ("lan -> a <-> b -> wan;", false),
        ("lan [tcp flags syn] -> a -> wan;", false),
        ("lan -> a -> Drop;", false),
        ("lan -> a -> wan; wan -> b -> lan;", false),
    ] {
        assert_eq!(topology(&format!("{ports} pipelet {{ {text} }}")).is_line(), is_line, "{text}");
    }
}

#[test]
fn sets_are_walked_in_either_direction() {
    let mut set = NfSet::default();
    [0, 5, 63].into_iter().for_each(|stage| set.add(stage));
    assert_eq!(set.first(Side::Inside), Some(0));
    assert_eq!(set.first(Side::Outside), Some(63));
    assert_eq!(set.after(0, Side::Inside).first(Side::Inside), Some(5));
    assert_eq!(set.after(63, Side::Outside).first(Side::Outside), Some(5));
    assert_eq!(set.after(63, Side::Inside), NfSet::default());
    assert_eq!(set.up_to(5, Side::Inside).iter().collect::<Vec<_>>(), [0, 5]);
    assert_eq!(set.up_to(5, Side::Outside).iter().collect::<Vec<_>>(), [5, 63]);
    assert_eq!(set.after(0, Side::Outside).first(Side::Outside), None);
    assert!(NfSet::ALL.has(100) && !set.has(4));
}
