//! A graph of the witness and `ids`: the oracle judges the witness's packets, and its reports are
//! compared with those of `ids`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};

use graph::{Graph, Options};
use nf::Setup;
use nf::stage::{Stage, load};
use signatures::LoadedRule;

use crate::ids_oracle::reassembly::{self, Agreement};
use crate::ids_oracle::whole::Whole;
use crate::ids_oracle::witness::{FLOWS_MAX, Frame, Witness, pass};
use crate::ids_oracle::{Alerted, Findings, Oracle};

/// Returns the function under test with these rules, with variables resolved.
fn ids_stage(rules_text: &str, flows_max: u32) -> Box<dyn Stage> {
    // Packets that hosts would not accept are inspected anyway.
    let config = serde_json::json!({ "rules": rules_text, "mode": "detect" });
    load::<functions::ids::Ids>(serde_json::from_value(config).unwrap(), Setup::new(1, flows_max)).unwrap()
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Compared {
    /// Reports of both.
    pub same: usize,
    /// Reports of the oracle alone, and of the function alone.
    pub differing: [Vec<Alerted>; 2],
    /// Packets, and the excluded ones.
    pub packets: usize,
    pub vague: usize,
    /// Agreement of the graph's streams with the oracle's.
    pub streams: Agreement,
    /// Matches of whole streams, against windows of them.
    pub whole: Whole,
    /// Excluded rules.
    pub unsupported: usize,
}

/// Both, with the same rules.
pub struct Both {
    text: String,
    oracle: Oracle,
    unsupported: BTreeSet<(u32, u32)>,
}

impl Both {
    pub fn new(rules: &[LoadedRule]) -> Both {
        let oracle = Oracle::new(rules);
        let unsupported = oracle.unsupported().iter().map(|(gid, sid, _)| (*gid, *sid)).collect();
        Both { text: rules.iter().map(|loaded| format!("{}\n", loaded.rule)).collect(), oracle, unsupported }
    }

    /// Compares them on these frames.
    pub fn compare(&self, frames: &[Frame]) -> Compared {
        let flows_max = FLOWS_MAX.min(16 + frames.len() as u32);
        let witness = load::<Witness>((), Setup::new(1, flows_max)).unwrap();
        let options = Options { flows_max, ..Options::default() };
        let mut graph = Graph::new(vec![witness, ids_stage(&self.text, flows_max)], options).unwrap();
        drop(Witness::take());
        pass(&mut graph, frames);
        assert_eq!(graph.effects().alerts_lost, 0);
        let reported = std::mem::take(&mut graph.effects_mut().alerts);
        let reported = reported.iter().map(|alert| Alerted {
            packet: alert.sequence,
            gid: alert.detail.as_ref().map_or(1, |detail| detail.group),
            sid: alert.signature_id,
        });
        let judged = |alert: &Alerted| !self.unsupported.contains(&(alert.gid, alert.sid));
        let reported: Vec<Alerted> = reported.filter(judged).collect();
        let packets = Witness::take();
        let findings = self.oracle.findings(&packets);
        let mut compared = Compared::new(&findings, &reported, self.unsupported.len());
        compared.packets = frames.len();
        compared.streams = reassembly::check(&packets);
        compared
    }
}

impl Compared {
    fn new(findings: &Findings, reported: &[Alerted], unsupported: usize) -> Compared {
        let mut difference = BTreeMap::<Alerted, i64>::new();
        findings.alerts.iter().for_each(|alert| *difference.entry(*alert).or_default() += 1);
        reported.iter().for_each(|alert| *difference.entry(*alert).or_default() -= 1);
        difference.retain(|alert, _| !findings.vague.contains(&alert.packet));
        let of = |is: fn(i64) -> bool| -> Vec<Alerted> {
            difference.iter().filter(|(_, count)| is(**count)).map(|(alert, _)| *alert).collect()
        };
        Compared {
            same: of(|count| count == 0).len(),
            differing: [of(|count| count > 0), of(|count| count < 0)],
            packets: 0,
            streams: Agreement::default(),
            whole: findings.whole.clone(),
            vague: findings.vague.len(),
            unsupported,
        }
    }
}

/// The sum of many comparisons.
#[derive(Debug, Default)]
pub struct Sum {
    pub not_planted: usize,
    compared: usize,
    same: usize,
    packets: usize,
    vague: usize,
    unsupported: usize,
    /// Equal stream pieces, and packets of unspecified streams.
    pieces: usize,
    unsaid: usize,
    whole: Whole,
    differing: Vec<String>,
}

impl Sum {
    pub fn add(&mut self, name: &str, one: Compared) {
        self.compared += 1;
        self.same += one.same;
        self.packets += one.packets;
        self.vague += one.vague;
        self.unsupported = self.unsupported.max(one.unsupported);
        self.pieces += one.streams.pieces;
        self.unsaid += one.streams.vague;
        if !one.streams.differing.is_empty() {
            self.differing.push(format!("{name}: streams {:?}", &one.streams.differing[..1]));
        }
        self.whole.same += one.whole.same;
        self.whole.far += one.whole.far;
        if !one.whole.wrong.is_empty() {
            self.differing.push(format!("{name}: windows {:?}", one.whole.wrong));
        }
        let [oracle, ids] = one.differing;
        if !oracle.is_empty() || !ids.is_empty() {
            self.differing.push(format!("{name}: oracle alone {oracle:?}, ids alone {ids:?}"));
        }
    }

    /// Checks that nothing differs, at least `least` reports agree, and at most this per mille of
    /// packets is excluded.
    pub fn check(&self, least: usize, vague_max: usize) {
        println!(
            "{} compared, {} reports the same, {} of {} packets vague, {} rules not planted, {} unsupported by the oracle at a time",
            self.compared, self.same, self.vague, self.packets, self.not_planted, self.unsupported
        );
        println!("{} pieces of streams the same, {} packets of streams vague", self.pieces, self.unsaid);
        println!(
            "{} rules in windows and in whole streams, {} in these alone",
            self.whole.same, self.whole.far
        );
        let shown: Vec<&String> = self.differing.iter().take(40).collect();
        assert!(self.differing.is_empty(), "{} differ: {shown:#?}", self.differing.len());
        assert!(self.same >= least, "nothing was reported");
        assert!(self.whole.far * 100 <= self.whole.same, "windows see too little");
        assert_eq!(self.unsaid, 0, "streams are not said");
        assert!(self.vague * 1000 <= self.packets * vague_max, "too much is not said");
    }
}
