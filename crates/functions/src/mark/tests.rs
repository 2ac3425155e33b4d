//! Tests of the rules' syntax.

use packet::Tag;
use values::{Located, Origin};

use super::parse::{MarkRule, Marks, VlanMark, rules};

fn read(text: &str) -> Result<Vec<MarkRule>, String> {
    let origin = Origin { source: "x.rules".to_owned(), line: 1, column: 1, escapes: Vec::new() };
    rules(&[Located::with_origin(text, origin)]).map_err(|error| error.to_string())
}

#[test]
fn marks_are_read() {
    let vlan = |vlan| Marks { vlan: Some(vlan), ..Marks::default() };
    for (text, marks) in [
        ("keep", Marks::default()),
        ("dscp 46", Marks { dscp: Some(46), ..Marks::default() }),
        ("dscp AF21 tenant 7", Marks { dscp: Some(18), tenant: Some(7), ..Marks::default() }),
        ("push_vlan 1", vlan(VlanMark::Push(Tag::vlan(1, 0, false).unwrap()))),
        ("pcp 7 push_vlan 4094", vlan(VlanMark::Push(Tag::vlan(4_094, 7, false).unwrap()))),
        ("vlan 5", vlan(VlanMark::Rewrite { vid: Some(5), pcp: None })),
        ("vlan 5 pcp 0", vlan(VlanMark::Rewrite { vid: Some(5), pcp: Some(0) })),
        ("pcp 3", vlan(VlanMark::Rewrite { vid: None, pcp: Some(3) })),
        ("pop_vlan", vlan(VlanMark::Pop)),
    ] {
        for rest in ["", " in tcp from 10.0.0.0/8 to any port 80", " as \"name\"", " # why"] {
            assert_eq!(read(&format!("{text}{rest}")).unwrap()[0].marks, marks, "{text}{rest}");
        }
    }
}

#[test]
fn labels_are_numbers_names_and_places() {
    let rules = read("# head\ndscp ef out\n\nkeep as \"rest\"").unwrap();
    let labels: Vec<String> = rules.iter().map(|rule| rule.label.to_string()).collect();
    assert_eq!(labels, ["rule 1 (x.rules:2)", "rule 2 `rest` (x.rules:4)"]);
}

#[test]
fn errors_have_their_position() {
    for (text, message) in [
        (
            "allow out",
            "1:1: expected one of `dscp`, `push_vlan`, `vlan`, `pcp`, `pop_vlan`, `tenant`, `keep`, found `allow`",
        ),
        ("\nin tcp", "2:1: expected one of `dscp`"),
        ("dscp 64 out", "1:6: expected a DSCP from 0 to 63, or its name, such as `ef`, found `64`"),
        ("dscp", "1:5: expected a DSCP from 0 to 63, or its name, such as `ef`, found the end of the line"),
        ("push_vlan 0", "1:11: expected a VLAN from 1 to 4094, found `0`"),
        ("vlan 4095", "1:6: expected a VLAN from 1 to 4094, found `4095`"),
        ("pcp 8", "1:5: expected a priority from 0 to 7, found `8`"),
        ("tenant 65536", "1:8: expected a tenant from 1 to 65535, found `65536`"),
        ("dscp 1 dscp 2", "1:8: `dscp` cannot follow `dscp`"),
        ("push_vlan 1 pop_vlan", "1:13: `pop_vlan` cannot follow `push_vlan`"),
        ("vlan 1 push_vlan 2", "1:8: `push_vlan` cannot follow `vlan`"),
        ("pop_vlan pcp 1", "1:10: `pcp` cannot follow `pop_vlan`"),
        ("dscp 1 keep", "1:8: `keep` cannot follow `dscp`"),
        ("dscp 1 out tcp state new", "1:16: expected `from`, `to` or `as`, found `state`"),
        ("dscp 1 gre to any port 80", "1:19: `port` needs a protocol with ports, such as `tcp`"),
        ("keep as \"a\"\nkeep as \"a\"", "2:1: duplicate rule name `a`"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(message), "{text}: {error}");
    }
}
