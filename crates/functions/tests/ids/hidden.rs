//! The function `ids` against the oracle on traffic of somebody who hides an attack.

use functions::ids::CANDIDATES_MAX;
use packet::LinkType;
use rules::{Classifications, Ruleset, Variables};

use crate::compare::Both;
use crate::ids_oracle::Frame;
use crate::ids_support::*;

/// Both see the same, and how many reports.
fn same(rules: &str, talk: &Talk) -> usize {
    let report = Ruleset::read("table", rules, &Variables::default(), &Classifications::default());
    assert!(report.faults.is_empty(), "{report}");
    let frame = |segment: &Arrival| Frame {
        time_ns: segment.at_ns,
        link: LinkType::RawIp,
        wire_len: segment.network.len() as u32,
        bytes: segment.network.clone(),
    };
    let frames: Vec<Frame> = talk.segments.iter().map(frame).collect();
    let compared = Both::new(report.ruleset.rules()).compare(&frames);
    assert_eq!((compared.vague, compared.unsupported), (0, 0));
    assert_eq!(compared.differing, [vec![], vec![]], "oracle alone, ids alone");
    compared.same
}

/// A rule for each decoy, of which some share an anchor, and some are of other ports, ways or protocols.
fn decoy_rules() -> String {
    let rule = |number: usize| {
        let (protocol, port, flow) = match number % 10 {
            7 => ("tcp", "81", ""),
            8 => ("tcp", "any", "flow:to_client;"),
            9 => ("tls", "any", ""),
            _ => ("tcp", "any", ""),
        };
        format!(
            r#"alert {protocol} any any -> any {port} (msg:"{number}"; {flow} content:"<{:03}>"; content:"rest"; distance:0; sid:{};)"#,
            number / 3,
            1 + number
        )
    };
    (0..3 * DECOYS).map(rule).collect::<Vec<_>>().join("\n")
}

/// Decoys that are told apart: enough of them that not all rules about them may wait.
const DECOYS: usize = CANDIDATES_MAX;

fn decoys(range: std::ops::Range<usize>) -> String {
    range.map(|number| format!("<{number:03}>")).collect()
}

#[test]
fn behind_decoys_it_sees_what_the_oracle_sees() {
    let rules = decoy_rules();
    for (first, second) in [(0..DECOYS, 0..0), (0..20, 20..DECOYS), (10..40, 0..20), (0..5, 0..DECOYS)] {
        for filler in [0, 1_500, 2_100] {
            let mut talk = Talk::open(80);
            talk.says(Client, decoys(first.clone())).says(Client, decoys(second.clone()));
            talk.says(Client, "x".repeat(filler)).says(Client, "rest").says(Client, "rest");
            let least = if filler > 2_000 { 0 } else { (CANDIDATES_MAX / 2).min(first.len() + second.len()) };
            let reports = same(&rules, &talk);
            assert!(
                reports >= least && (filler < 2_000 || reports == 0),
                "{first:?} {second:?} {filler}: {reports}"
            );
            let mut talk = Talk::open(80);
            talk.says(Client, decoys(first.clone())).says(Client, decoys(second.clone()) + "rest");
            assert!(same(&rules, &talk) > 2 * second.len(), "{first:?} {second:?}");
        }
    }
}
