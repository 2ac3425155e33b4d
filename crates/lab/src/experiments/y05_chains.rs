//! Y5: the two real chains. Measured, not simulated.

use std::path::{Path as FilePath, PathBuf};

use io::traffic::FlowLength;

use super::common::{at_most, bars_of};
use super::rounds::{BATCH, Rounds, rounds};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, FigureChart};
use crate::paths::{Functions, Path, Player, Series, Shortcut, Tape, differing};
use crate::runs::{Lab, RuleFiles, RunLength};
use crate::table::{FigureTable, FigureUnit, RowKind, TableMetric};
use crate::verdict::{Claim, ClaimFinding, MeasuredFigures, MissingFigure};

/// Published claims about real chains (B34), and their baselines (B35).
pub const Y5: Experiment = Experiment {
    id: "Y5",
    title: "Two real chains and their alternatives",
    question: "What does consolidation save in two real chains?",
    published: "B34: NAT, load balancer, monitor, firewall; and firewall, intrusion detection, \
                monitor (no figures)",
    workload: "both chains on this machine, with 32 servers, 100 firewall rules, and a few \
               detection rules unless others are given; synthetic conversations from both sides, \
               long ones and ones of two packets, 64 bytes each; captures, if given; batches of \
               32",
    matches: &[],
    beats: &[Claim {
        text: "both chains: the same with flows of 1 and 2 packets",
        test: |f| Ok(ClaimFinding::all([is_faster(f, FIRST, true)?, is_faster(f, SECOND, true)?])),
    }],
    checks: &[
        Claim {
            text: "NAT, load balancer, monitor, firewall: with flows of 3 packets and more, p50 and p99 are below those of the plain chain, round by round",
            test: |f| is_faster(f, FIRST, false),
        },
        Claim {
            text: "firewall, intrusion detection, monitor: the same",
            test: |f| is_faster(f, SECOND, false),
        },
    ],
    real: &[],
    summary: OverviewRow {
        published: "no figures",
        found: "p50 {0|consolidated, chain 1, long flows|p50 x plain} (NAT to firewall), \
                {0|consolidated, chain 2, long flows|p50 x plain} (with intrusion detection)",
        caveat: "p99 is that of new flows",
    },
    measure,
    picture: Picture::Charts(charts),
};

const METRICS: [TableMetric; 9] = [
    TableMetric { name: "packet", unit: FigureUnit::Ns },
    TableMetric { name: "x plain", unit: FigureUnit::Ratio },
    TableMetric { name: "packets/s", unit: FigureUnit::Count },
    TableMetric { name: "p50", unit: FigureUnit::Ns },
    TableMetric { name: "p99", unit: FigureUnit::Ns },
    TableMetric { name: "p50 x plain", unit: FigureUnit::Ratio },
    TableMetric { name: "p99 x plain", unit: FigureUnit::Ratio },
    TableMetric { name: "followed", unit: FigureUnit::Share },
    TableMetric { name: "packets that differ", unit: FigureUnit::Count },
];

const PLAIN: &str = "plain";
const APART: &str = "apart";
const CONSOLIDATED: &str = "consolidated";
const STATIC: &str = "synthesis";
const CACHE: &str = "cache";

/// The chains.
const FIRST: &str = "chain 1";
const SECOND: &str = "chain 2";

/// Made-up traffic.
const LONG: &str = "long flows";
const MICE: &str = "mice";

/// Flows of fewer packets are mice.
const MOUSE: usize = 3;

/// Of a capture's flows of either kind, fewer packets say nothing.
const PACKETS_MIN: usize = 1_000;

const FLOWS_MAX: u32 = 32_768;

/// Parts of the traffic. One is a warm-up (R7): a new chain touches its memory for the first time.
const WARM_UP: usize = 4;

fn row(path: &str, chain: &str, traffic: &str) -> String {
    format!("{path}, {chain}, {traffic}")
}

/// Decides over all traffic of this chain that has rows.
fn is_faster(f: &MeasuredFigures<'_>, chain: &str, mice: bool) -> Result<ClaimFinding, MissingFigure> {
    let begin = format!("{CONSOLIDATED}, {chain}, ");
    let rows = f.0.iter().flat_map(|table| &table.rows).map(|row| row.name.as_str());
    let rows = rows.filter(|name| name.starts_with(&begin) && name.contains(MICE) == mice);
    let both =
        rows.flat_map(|row| ["p50 x plain", "p99 x plain"].map(|metric| at_most(f, row, metric, 1.0, 1.0)));
    let both = both.collect::<Result<Vec<_>, _>>()?;
    if both.is_empty() {
        return at_most(f, &begin, "p50 x plain", 1.0, 1.0); // Which is missing.
    }
    Ok(ClaimFinding::all(both))
}

fn nat() -> (&'static str, String) {
    ("NAT", "external: [203.0.113.1-203.0.113.4]".to_owned())
}

/// One service by TCP, and one by UDP.
fn balancer() -> (&'static str, String) {
    let servers: Vec<_> = (1..=32).map(|i| format!("{{ name: s{i}, address: 172.16.0.{i} }}")).collect();
    let service = |protocol| {
        format!(
            "{{ name: {protocol}, vip: 198.18.0.1, protocol: {protocol}, servers: [{}] }}",
            servers.join(", ")
        )
    };
    ("LB", format!("services: [ {}, {} ]", service("tcp"), service("udp")))
}

/// The monitor, which reports no flows.
pub(super) fn monitor() -> (&'static str, String) {
    ("Monitor", "report: []".to_owned())
}

/// 99 rules that do not match, and a rule that matches.
fn firewall() -> (&'static str, String) {
    let never = (0..99).map(|i| format!("deny tcp from 192.0.2.{i} to 203.0.113.{i} port {}", 1000 + i));
    let rules: Vec<_> = never.chain(["allow any from any to any".to_owned()]).collect();
    ("Firewall", format!("rules: \"{}\"", rules.join("\\n")))
}

/// By these rules, or by the few of an example, if there are none.
pub(super) fn detection(files: &RuleFiles) -> (&'static str, String) {
    let RuleFiles { rules, variables, classification } = files;
    let file = |file: &PathBuf| format!("file({:?})", file.display().to_string());
    let rules = match &rules[..] {
        [] => format!("{:?}", include_str!("../../../../examples/ids.rules")),
        rules => rules.iter().map(file).collect::<Vec<_>>().join(", "),
    };
    let anywhere = || format!("{:?}", "HOME_NET = any\nEXTERNAL_NET = any");
    let variables = variables.as_ref().map_or_else(anywhere, file);
    let classes =
        classification.as_ref().map_or(String::new(), |one| format!(", classification: {}", file(one)));
    ("IDS", format!("rules: [{rules}], variables: {variables}{classes}, mode: detect"))
}

fn functions<const N: usize>(list: [(&'static str, String); N]) -> Functions {
    list.into_iter().fold(Functions::new(FLOWS_MAX), |functions, (name, config)| functions.with(name, config))
}

fn chain(chain: &str, rules: &RuleFiles) -> Functions {
    match chain {
        FIRST => functions([nat(), balancer(), monitor(), firewall()]),
        _ => functions([firewall(), detection(rules), monitor()]),
    }
}

/// The ways that there are for a chain. What looks into streams can be in no table of headers.
const WAYS: [(&str, &str, RowKind); 9] = [
    (FIRST, PLAIN, RowKind::Baseline),
    (FIRST, APART, RowKind::Baseline),
    (FIRST, CONSOLIDATED, RowKind::Faithful),
    (FIRST, STATIC, RowKind::Baseline),
    (FIRST, CACHE, RowKind::Baseline),
    (SECOND, PLAIN, RowKind::Baseline),
    (SECOND, APART, RowKind::Baseline),
    (SECOND, CONSOLIDATED, RowKind::Faithful),
    (SECOND, CACHE, RowKind::Baseline),
];

/// Creates a path. A synthesis made in advance has seen the tape.
fn path(
    (name, way): (&str, &str),
    rules: &RuleFiles,
    player: &mut Player,
    tape: &Tape,
) -> Result<Box<dyn Path>, String> {
    let functions_of = chain(name, rules);
    Ok(match (name, way) {
        (_, PLAIN) => Box::new(functions_of.graph(false)?),
        (_, APART) => Box::new(functions_of.apart()?),
        (_, CONSOLIDATED) => Box::new(functions_of.graph(true)?),
        (_, STATIC) => {
            let mut synthesis = Shortcut::synthesis(functions_of.graph(false)?);
            player.play(&mut synthesis, tape, 0..tape.len());
            Box::new(synthesis)
        }
        (FIRST, _) => Box::new(Shortcut::cache(functions_of.graph(false)?)),
        _ => {
            let front = Shortcut::cache(functions([firewall()]).graph(false)?);
            let rest = functions([detection(rules), monitor()]).graph(false)?;
            Box::new(Series::new(vec![Box::new(front), Box::new(rest)]))
        }
    })
}

/// Returns the traffic of a chain, with rewritten addresses if its functions rewrite.
fn traffic(lab: &Lab<'_>, name: &str) -> Result<Vec<(String, Tape)>, String> {
    let packets: usize = match lab.length() {
        RunLength::Smoke => 2_000,
        RunLength::Quick => 40_000,
        RunLength::Full => 200_000,
    };
    let long = Tape::conversations(packets as u64, 256, FlowLength::Fixed(40), 0.5)?;
    let mice = Tape::conversations(packets as u64, 256, FlowLength::Fixed(1), 0.0)?;
    let mut tapes = vec![(LONG.to_owned(), long), (MICE.to_owned(), mice)];
    for file in lab.captures() {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (long, short) = Tape::captured(FilePath::new(file), packets)?.by_length(MOUSE);
        tapes.push((stem.clone(), long));
        tapes.push((format!("{MICE} of {stem}"), short));
    }
    let mut translated = Vec::new();
    for (traffic, tape) in tapes.into_iter().filter(|(_, tape)| tape.len() >= PACKETS_MIN) {
        let tape = tape.translated(&mut *chain(name, lab.rules()).graph(false)?);
        translated.push((traffic, tape));
    }
    Ok(translated)
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let mut measured = Rounds::default();
    for name in [FIRST, SECOND] {
        if let Err(why) = measure_chain(&mut measured, name, lab) {
            measured.fail(&row(PLAIN, name, LONG), RowKind::Baseline, why);
        }
    }
    let table = measured.table("time of packets in the functions", &METRICS);
    let notes = notes(lab);
    Measured { tables: vec![table], notes }
}

fn measure_chain(measured: &mut Rounds, name: &str, lab: &Lab<'_>) -> Result<(), String> {
    let mut player = Player::new(BATCH);
    let ways: Vec<_> = WAYS.into_iter().filter(|way| way.0 == name).collect();
    for (traffic, tape) in traffic(lab, name)? {
        let mut differ = Vec::new();
        let mut of_plain = Vec::new();
        for &(_, way, kind) in &ways {
            let mut path = path((name, way), lab.rules(), &mut player, &tape)?;
            let sent = player.sent(&mut *path, &tape, 0..tape.len());
            if way == PLAIN {
                of_plain = sent.clone();
            }
            differ.push(differing(&sent, &of_plain));
            if kind == RowKind::Faithful && differ.last().is_some_and(|&differ| differ > 0) {
                measured.fail(
                    &row(way, name, &traffic),
                    kind,
                    format!("{differ:?} packets differ from those of the plain chain"),
                );
            }
        }
        for _ in 0..rounds(lab.length()).div_ceil(2) {
            let mut plain = vec![f64::NAN; 3];
            for (&(_, way, kind), &differ) in ways.iter().zip(&differ) {
                let mut path = path((name, way), lab.rules(), &mut player, &tape)?;
                let warm = tape.len() / WARM_UP;
                player.play(&mut *path, &tape, 0..warm);
                let before = path.followed();
                let (played, latency) = player.latency(&mut *path, &tape, warm..tape.len(), &[50.0, 99.0])?;
                let followed = (path.followed() - before) as f64 / played.packets as f64;
                let (ns, p50, p99) = (played.per_packet(), latency[0], latency[1]);
                if way == PLAIN {
                    plain = vec![ns, p50, p99];
                }
                let values = [
                    ns,
                    ns / plain[0],
                    1e9 / ns,
                    p50,
                    p99,
                    p50 / plain[1],
                    p99 / plain[2],
                    followed,
                    differ as f64,
                ];
                measured.add(&row(way, name, &traffic), kind, &values);
            }
        }
    }
    Ok(())
}

/// Charts of both chains, with made-up traffic.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let places = [(FIRST, LONG), (FIRST, MICE), (SECOND, LONG), (SECOND, MICE)];
    let chart = |(metric, title): (&str, &str)| {
        let series =
            |way| bars_of(table, way, (metric, 1e3), places.map(|(chain, traffic)| row(way, chain, traffic)));
        FigureChart {
            title: title.to_owned(),
            x: ChartAxis::names(
                "chain and traffic",
                places.map(|(chain, traffic)| format!("{chain}, {traffic}")),
            ),
            y: ChartAxis::logarithmic("latency of a batch, us"),
            series: [PLAIN, APART, CONSOLIDATED, STATIC, CACHE].map(series).into(),
        }
    };
    [("p50", "median"), ("p99", "tail (99th percentile)")].map(chart).into()
}

/// Describes the rules that inspect packets.
pub(super) fn which_rules(files: &RuleFiles) -> String {
    match files.rules.len() {
        0 => "Detection rules: those of examples/ids.rules, unless `--rules` gives others.".to_owned(),
        count => format!("Detection rules: all that load from {count} files (`rivulet rules` lists them)."),
    }
}

fn notes(lab: &Lab<'_>) -> Vec<String> {
    let played = match !lab.captures().is_empty() {
        true => {
            "Captures: whole IPv4 packets of TCP and UDP. The first speaker is inside. Servers \
             get the service's address, and each pair of addresses is a client, so that the load \
             balancer has work. Answers go to the plain chain's source addresses. All else is as \
             captured, at full speed."
        }
        false => "No captures were given (`--captures`): synthetic traffic only.",
    };
    [
        "Chain 1: NAT, load balancer, monitor, firewall. Chain 2: firewall, intrusion detection, \
         monitor.",
        "Times cover processing only. A packet's latency is that of its batch of 32. Each round \
         has new chains; the first quarter of the traffic is a warm-up. Flows begin and end all \
         the time.",
        "Long flows: 40 packets with data and answers, half of them TCP connections. Mice: a \
         question and an answer by UDP. A flow's first packet takes the slow path, so the rule of \
         a mouse serves one packet.",
        "Cache: a table of header actions by flow in front of the plain chain, like OVS's \
         exact-match cache. Functions do not see the packets that hit it: monitor and load \
         balancer do not count them, no flow is refreshed, and the firewall sees only begin and \
         end of connections. A command empties it. In chain 2 only the firewall can be cached, \
         because the other functions see every packet.",
        "Synthesis: the same table, learned in advance, with counts per flow. Connections begin \
         and end in the chain, which has seen them before, so new flows cost nothing. Chain 2 has \
         none, because it inspects streams. Packets that differ: from those of the plain chain, \
         in one whole run.",
        "Intrusion detection reads streams and sees every packet in the consolidated chain. In \
         chain 2 no two other functions are adjacent, so it has no rules: they would cost more \
         than they save.",
        played,
        &which_rules(lab.rules()),
    ]
    .map(str::to_owned)
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_send_what_the_plain_chain_sends() {
        let mut player = Player::new(BATCH);
        let lab = Lab::new(RunLength::Smoke, 1, |_| {});
        for name in [FIRST, SECOND] {
            for (traffic, tape) in traffic(&lab, name).unwrap() {
                let mut sent = |way| {
                    let mut path = path((name, way), lab.rules(), &mut player, &tape).unwrap();
                    (player.sent(&mut *path, &tape, 0..tape.len()), path.followed())
                };
                let (plain, none) = sent(PLAIN);
                assert_eq!(none, 0);
                assert!(plain.iter().map(Vec::len).sum::<usize>() * 10 > tape.len() * 9, "{traffic}");
                for way in [APART, CONSOLIDATED, CACHE] {
                    let (others, followed) = sent(way);
                    assert_eq!(differing(&others, &plain), 0, "{name}, {traffic}, {way}");
                    let has_rules = way == CACHE || (way, name) == (CONSOLIDATED, FIRST);
                    assert!(!has_rules || traffic == MICE || followed > 0, "{name}, {traffic}, {way}");
                    assert!(has_rules || followed == 0, "{name}, {traffic}, {way}");
                }
            }
        }
    }

    /// A synthesis counts the same as the monitor.
    #[test]
    fn a_synthesis_counts_all_packets() {
        let tape = Tape::conversations(2_000, 32, FlowLength::Fixed(20), 0.5).unwrap();
        let tape = tape.translated(&mut chain(FIRST, &RuleFiles::default()).graph(false).unwrap());
        let mut synthesis = Shortcut::synthesis(chain(FIRST, &RuleFiles::default()).graph(false).unwrap());
        Player::new(BATCH).play(&mut synthesis, &tape, 0..tape.len());
        assert_eq!(synthesis.counted(), tape.len() as u64);
        assert!(synthesis.followed() > 0);
    }
}
