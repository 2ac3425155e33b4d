//! V4: edges that read an attribute against edges that read a header field. Measured, not
//! simulated.

use io::traffic::{FlowLength, FrameBytes, Protocols, TrafficAddresses, TrafficProfile};

use super::common::{at_most, bars_of};
use super::rounds::{BATCH, Contender, Rounds, differences, rounds};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, FigureChart};
use crate::paths::{Player, Tape, compiled};
use crate::runs::{Lab, RunLength};
use crate::table::{FigureTable, FigureUnit, RowKind, TableMetric};
use crate::verdict::{Claim, ClaimFinding};

/// Published claims about metadata (E24).
pub const V4: Experiment = Experiment {
    id: "V4",
    title: "Attributes against header fields",
    question: "What does it cost if an edge reads an attribute?",
    published: "E24: 5.7 % less throughput than with the header field",
    workload: "a firewall that tags one of two ports, two branches with a monitor each, on this \
               machine; packets of 64 bytes of known UDP flows, half of them to each port, in \
               batches of 32",
    matches: &[Claim {
        text: "a packet takes at most 1.057 of its time with a header field, round by round",
        test: |f| at_most(f, TAG, "x header", 1.057, 1.0),
    }],
    beats: &[Claim {
        text: "a packet takes at most 1.02 of its time without a filter, round by round, and so it \
               does on the fast path",
        test: |f| {
            let slow = at_most(f, TAG, "x none", 1.02, 1.0)?;
            Ok(ClaimFinding::all([slow, at_most(f, FAST_TAG, "x none", 1.02, 1.0)?]))
        },
    }],
    checks: &[],
    real: &[],
    summary: OverviewRow {
        published: "5.7 % over a header field",
        found: "{0|attribute|x header} of the time, {0|fast path, plus: attribute|x header} on the \
                fast path; {0|attribute|x none} and {0|fast path, plus: attribute|x none} of that \
                without a filter",
        caveat: "an attribute is read for each packet",
    },
    measure,
    picture: Picture::Charts(charts),
};

const METRICS: [TableMetric; 3] = [
    TableMetric { name: "packet", unit: FigureUnit::Ns },
    TableMetric { name: "x header", unit: FigureUnit::Ratio },
    TableMetric { name: "x none", unit: FigureUnit::Ratio },
];

const LINE: &str = "a line";
const NONE: &str = "no filter";
const HEADER: &str = "header field";
const TAG: &str = "attribute";
const FAST_LINE: &str = "fast path: a line";
const FAST_NONE: &str = "fast path: no filter";
const FAST_HEADER: &str = "fast path: header field";
const FAST_TAG: &str = "fast path, plus: attribute";

/// Each with the filter of its first edge; the line has one branch only.
const WAYS: [(&str, &str, RowKind, Option<&str>); 4] = [
    (NONE, FAST_NONE, RowKind::Baseline, Some("[true]")),
    (HEADER, FAST_HEADER, RowKind::Baseline, Some("[dst port 80]")),
    (TAG, FAST_TAG, RowKind::Faithful, Some("[f.tag == 1]")),
    (LINE, FAST_LINE, RowKind::Bound, None),
];

const FLOWS: u32 = 1_024;

/// Share of the tape that is played before measuring, as a divisor.
const WARM_UP: usize = 3;

fn policy(filter: Option<&str>, consolidate: bool) -> String {
    let line = match filter {
        Some(filter) => format!("inside <-> f; f {filter} <-> a <-> outside; f <-> b <-> outside;"),
        None => "inside <-> f <-> a <-> outside;".to_owned(),
    };
    format!(
        "settings {{ flows: {}, seed: 1, consolidate: {consolidate} }} Port<0> inside; Port<1> outside;
         Firewall f {{ rules: \"allow udp from any to any port 80 tag web\\nallow any\", tags: {{ web: 1 }} }};
         Monitor a {{ report: [] }}; Monitor b {{ report: [] }}; pipelet main {{ {line} }}",
        4 * FLOWS
    )
}

/// Both paths of each way, the slow path first.
fn contenders() -> Result<[Vec<Contender>; 2], String> {
    let of = |consolidate: bool| {
        let contender =
            |&(slow, fast, kind, filter): &(&'static str, &'static str, RowKind, Option<&str>)| {
                let (name, kind) = match (consolidate, kind) {
                    (false, kind) => (slow, kind),
                    (true, RowKind::Faithful) => (fast, RowKind::Plus),
                    (true, kind) => (fast, kind),
                };
                Ok(Contender::new(name, kind, compiled(&policy(filter, consolidate))?))
            };
        WAYS.iter().map(contender).collect::<Result<Vec<_>, String>>()
    };
    Ok([of(false)?, of(true)?])
}

fn tape(length: RunLength) -> Result<Tape, String> {
    let talk = Tape::talk(1);
    Tape::generated(&TrafficProfile {
        packets: Some(match length {
            RunLength::Smoke => 3_000,
            RunLength::Quick | RunLength::Full => 30_000,
        }),
        flows: FLOWS,
        flow_length: FlowLength::Endless,
        frame_bytes: FrameBytes::Fixed(60),
        protocols: Protocols { tcp: 0.0, udp: 1.0, icmp: 0.0, fragments: 0.0 },
        addresses: TrafficAddresses { server_ports: vec![80, 8080], ..talk.addresses.clone() },
        ..talk
    })
}

/// A chart of what filters cost.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let series = |name, rows: [&str; WAYS.len()]| bars_of(table, name, ("x header", 1.0), rows);
    vec![FigureChart {
        title: "time of a packet by the filter of an edge".to_owned(),
        x: ChartAxis::names("filter", WAYS.map(|way| way.0)),
        y: ChartAxis::linear("of the time with a header field"),
        series: vec![
            series("function by function", WAYS.map(|way| way.0)),
            series("fast path", WAYS.map(|way| way.1)),
        ],
    }]
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let mut measured = Rounds::default();
    if let Err(why) = measure_all(&mut measured, lab.length()) {
        measured.fail(TAG, RowKind::Faithful, why);
    }
    let table = measured.table("time of a packet in the functions", &METRICS).paper(TAG, "x header", 1.057);
    Measured { tables: vec![table], notes: notes() }
}

fn measure_all(measured: &mut Rounds, length: RunLength) -> Result<(), String> {
    let tape = tape(length)?;
    let mut player = Player::new(BATCH);
    let mut paths = contenders()?;
    for contenders in &mut paths {
        let differ = differences(&mut player, contenders, &tape);
        for (contender, differ) in contenders.iter().zip(differ).filter(|(_, differ)| *differ > 0) {
            measured.fail(contender.name, contender.kind, format!("{differ} packets differ"));
        }
        contenders.iter_mut().for_each(|way| {
            player.play(&mut *way.path, &tape, 0..tape.len() / WARM_UP);
        });
    }
    for _ in 0..rounds(length) {
        for contenders in &mut paths {
            let mut of_round = Vec::new();
            for Contender { name, kind, path } in contenders {
                let played = player.play(&mut **path, &tape, tape.len() / WARM_UP..tape.len());
                of_round.push((*name, *kind, played.per_packet()));
            }
            let of = |place: usize| of_round.get(place).map_or(f64::NAN, |row| row.2);
            let (none, header) = (of(0), of(1));
            for (name, kind, ns) in of_round {
                measured.add(name, kind, &[ns, ns / header, ns / none]);
            }
        }
    }
    Ok(())
}

fn notes() -> Vec<String> {
    [
        "Times cover processing only, of packets of known flows. The firewall is in every graph, \
         with the same rules and tags. No filter: all packets take the first of two edges.",
        "A filter over addresses and ports decides once for a flow; one over an attribute decides \
         again for each packet of the flow's first direction, because attributes may change. Then a \
         group has one packet of a flow only.",
        "With a filter, a group of packets comes apart into two, one for each monitor; this is part \
         of the cost, with a header field as with an attribute.",
        "The times of a line show what branches cost at all.",
    ]
    .map(str::to_owned)
    .into()
}
