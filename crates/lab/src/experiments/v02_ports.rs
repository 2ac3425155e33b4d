//! V2: ports of shared memory against ports of the kernel. Measured, not simulated.

use super::common::{at_least, series_at};
use super::links::{Link, PortPair, frame, frame_ns, turn_ns};
use super::rounds::{Rounds, rounds};
use super::veth::{ENDS, VethPair};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, ChartMark, FigureChart};
use crate::runs::{Lab, RunLength};
use crate::table::{FigureTable, FigureUnit, RowKind, TableMetric};
use crate::verdict::{Claim, ClaimFinding};

/// Published claims about native and legacy ports (E22).
pub const V2: Experiment = Experiment {
    id: "V2",
    title: "Native against legacy ports",
    question: "What do ports of shared memory gain over those of the kernel?",
    published: "E22: 2.5 times lower latency, 26 times the throughput",
    workload: "ports of shared memory (memif) against packet sockets on both ends of a pair of \
               virtual Ethernet interfaces (veth), on this machine, both ends in one thread: frames \
               there and back, and bursts of 32 frames there",
    matches: &[
        Claim {
            text: "a frame takes at least 2.5 times as long there and back through the kernel, at \
                   every length",
            test: |f| {
                let findings =
                    SIZES.map(|size| at_least(f, &row(LEGACY, size), "x native, there and back", 2.5, 1.0));
                Ok(ClaimFinding::all(findings.into_iter().collect::<Result<Vec<_>, _>>()?))
            },
        },
        Claim {
            text: "of the longest frames, at least 26 times as many pass through shared memory",
            test: |f| at_least(f, &row(LEGACY, LONGEST), "x native, bursts", 26.0, 1.0),
        },
    ],
    beats: &[],
    checks: &[],
    real: &[],
    summary: OverviewRow {
        published: "2.5 times lower latency, 26 times the throughput",
        found: "{0|veth and packet sockets, 1514 bytes|x native, there and back} to {0|veth and \
                packet sockets, 60 bytes|x native, there and back} times lower; {0|veth and packet \
                sockets, 60 bytes|x native, bursts} times the throughput at 60 bytes, {0|veth and \
                packet sockets, 1514 bytes|x native, bursts} times at 1,514",
        caveat: "15 to 32 times at 1,514 bytes in three other runs",
    },
    measure,
    picture: Picture::Charts(charts),
};

const METRICS: [TableMetric; 4] = [
    TableMetric { name: "there and back", unit: FigureUnit::Ns },
    TableMetric { name: "x native, there and back", unit: FigureUnit::Ratio },
    TableMetric { name: "frame of a burst", unit: FigureUnit::Ns },
    TableMetric { name: "x native, bursts", unit: FigureUnit::Ratio },
];

const NATIVE: &str = "memif";
const LEGACY: &str = "veth and packet sockets";

/// Bytes of frames without checksums.
const SIZES: [usize; 5] = [60, 128, 512, 1_024, LONGEST];
const LONGEST: usize = 1_514;

fn row(way: &str, size: usize) -> String {
    format!("{way}, {size} bytes")
}

/// Charts with the axes of the published figure.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let chart = |(title, metric): (&str, &str)| {
        let rows = (0..).zip(SIZES).map(|(at, size)| (f64::from(at), row(LEGACY, size)));
        FigureChart {
            title: title.to_owned(),
            x: ChartAxis::names("bytes", SIZES.map(|size| size.to_string())),
            y: ChartAxis::linear("ratio"),
            series: vec![series_at(
                table,
                ("kernel's ports / shared memory", ChartMark::Bars),
                (metric, 1.0),
                rows,
            )],
        }
    };
    [
        ("time of a frame there and back", "x native, there and back"),
        ("time of a frame of a burst", "x native, bursts"),
    ]
    .map(chart)
    .into()
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let pair = match VethPair::new() {
        Ok(pair) => pair,
        Err(why) => {
            let note =
                format!("Not measured, for want of a pair of virtual interfaces, which root has: {why}");
            return Measured { tables: Vec::new(), notes: vec![note] };
        }
    };
    let (mut measured, length) = (Rounds::default(), lab.length());
    if let Err(why) = pair.run(|| measure_all(&mut measured, length)) {
        measured.fail(&row(LEGACY, LONGEST), RowKind::Baseline, why);
    }
    let table = measured.table("time of frames between two ports", &METRICS);
    let table = table.paper(&row(LEGACY, LONGEST), "x native, there and back", 2.5).paper(
        &row(LEGACY, LONGEST),
        "x native, bursts",
        26.0,
    );
    Measured { tables: vec![table], notes: notes() }
}

fn measure_all(measured: &mut Rounds, length: RunLength) -> Result<(), String> {
    let (turns, bursts) = match length {
        RunLength::Smoke => (20, 5),
        RunLength::Quick | RunLength::Full => (500, 50),
    };
    let [here, there] = ENDS;
    let native = PortPair::memif()?;
    let legacy = PortPair::open(&format!("packet:{here}"), &format!("packet:{there}"))?;
    let mut links = [(NATIVE, RowKind::Faithful, native), (LEGACY, RowKind::Baseline, legacy)];
    for (.., link) in &mut links {
        // Rings are touched for the first time.
        frame_ns(link, &frame(LONGEST), bursts)?;
    }
    for _ in 0..rounds(length) {
        for size in SIZES {
            let frame = frame(size);
            let mut of_native = [f64::NAN; 2];
            for (name, kind, link) in &mut links {
                let link: &mut dyn Link = link;
                let of = [turn_ns(link, &frame, turns)?, frame_ns(link, &frame, bursts)?];
                if *name == NATIVE {
                    of_native = of;
                }
                let values = [of[0], of[0] / of_native[0], of[1], of[1] / of_native[1]];
                measured.add(&row(name, size), *kind, &values);
            }
        }
    }
    Ok(())
}

fn notes() -> Vec<String> {
    [
        "Both ends in one thread: the processor's whole time for a frame, that of the kernel \
         included, without waiting for another core.",
        "Ports of shared memory copy each frame in and out, so that the other end cannot change it \
         later. Packet sockets copy it twice as well, and hand it to the kernel by a system call.",
        "The talk's legacy ports are those of virtual machines or of libpcap on its own data plane; \
         these are packet sockets, 64 frames a call.",
    ]
    .map(str::to_owned)
    .into()
}
