//! Z4: migration against controllers like those of OpenNF and Split/Merge.

use super::common::{number, series_at};
use super::moves::{
    LOSS_FREE, METRICS, MovesRow, ORDERED, OURS, SUSPENDED, THREE_EXCHANGES, by_filter, intact, named, rows,
    run, share_of, systems,
};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, ChartMark, FigureChart};
use crate::migration::MoveCosts;
use crate::runs::Lab;
use crate::table::{CostProfile, FigureTable};
use crate::verdict::{Claim, ClaimFinding};

/// Published claims about controllers (A35).
pub const Z4: Experiment = Experiment {
    id: "Z4",
    title: "Migration against controllers",
    question: "What does migration gain without a controller in its way?",
    published: "A35: over 50 % faster than OpenNF. A later version: 1,000 flows in 1.5 ms, OpenNF in \
                217 ms",
    workload: "100, 500 and 1,000 flows of 50 packets/s move from one unit to another while they \
               send, P-paper; a message takes 0.25 us where it is sent, and where it arrives, at \
               controllers too",
    matches: &[
        Claim {
            text: "three exchanges take at most half of the time of a controller with the published \
                   time per flow, and lose and reorder nothing",
            test: |f| {
                let ours = named(THREE_EXCHANGES, 1_000, PPS);
                let half = share_of(f, 1, (&ours, &named(LOSS_FREE, 1_000, PPS)), 0.5)?;
                let whole = intact(f, 0, FLOWS.map(|flows| named(THREE_EXCHANGES, flows, PPS)))?;
                Ok(ClaimFinding::all([half.by_fit("the controller's time"), whole]))
            },
        },
        Claim {
            text: "a controller as fast as the units, that moves flow by flow, takes twice as long, \
                   loss-free or order-preserving",
            test: |f| {
                let ours = named(THREE_EXCHANGES, 1_000, PPS);
                let of = |name| share_of(f, 0, (&ours, &named(name, 1_000, PPS)), 0.5);
                Ok(ClaimFinding::all([of(LOSS_FREE)?, of(ORDERED)?]))
            },
        },
    ],
    beats: &[
        Claim {
            text: "ownership takes at most half of the time of each controller that moves flow by \
                   flow, as fast as the units, and loses and reorders nothing",
            test: |f| {
                let ours = named(OURS, 1_000, PPS);
                let of = |name| share_of(f, 0, (&ours, &named(name, 1_000, PPS)), 0.5);
                let whole = intact(f, 0, FLOWS.map(|flows| named(OURS, flows, PPS)))?;
                Ok(ClaimFinding::all([of(LOSS_FREE)?, of(ORDERED)?, of(SUSPENDED)?, whole]))
            },
        },
        Claim {
            text: "it takes a tenth of the time of each controller with the published time per flow, \
                   and a 144th of the loss-free one",
            test: |f| {
                let ours = named(OURS, 1_000, PPS);
                let of = |name, limit| share_of(f, 1, (&ours, &named(name, 1_000, PPS)), limit);
                let all = [of(LOSS_FREE, 1.0 / 144.0)?, of(ORDERED, 0.1)?, of(SUSPENDED, 0.1)?];
                Ok(ClaimFinding::all(all).by_fit("the controller's time"))
            },
        },
        Claim {
            text: "it takes less time than a loss-free controller as fast as the units that moves all \
                   flows by one filter",
            test: |f| {
                let ours = named(OURS, 1_000, PPS);
                share_of(f, 0, (&ours, &named(&by_filter(LOSS_FREE), 1_000, PPS)), 1.0)
            },
        },
    ],
    checks: &[],
    real: &[],
    summary: OverviewRow {
        published: "twice as fast as OpenNF, later 144 times",
        found: "{0|plus: ownership, 1000 flows, 50 pps|total} against {0|controller, loss-free, \
                1000 flows, 50 pps|total} with a controller as fast as ours, {0|controller, \
                loss-free, one filter, 1000 flows, 50 pps|total} if one filter fits all flows; \
                {1|controller, loss-free, 1000 flows, 50 pps|total} at the published controller's \
                speed",
        caveat: "the last follows from that speed",
    },
    measure,
    picture: Picture::Charts(charts),
};

const FLOWS: [u32; 3] = [100, 500, 1_000];
const PPS: u32 = 50;

/// Time of OpenNF's controller for a flow: 217 ms for 1,000.
const CONTROLLER_NS: u64 = 217_000;

fn measure(lab: &mut Lab<'_>) -> Measured {
    let systems = systems();
    let systems: Vec<_> = systems.iter().map(|(name, system)| (name.as_str(), *system)).collect();
    let table = |title: String, rows: &[MovesRow]| FigureTable {
        title,
        profile: CostProfile::Paper,
        metrics: METRICS.to_vec(),
        rows: run(lab, rows),
    };
    let costs = MoveCosts::PAPER;
    let all = |flows: &[u32], costs| {
        let of = |&flows: &u32| rows(&systems, flows, PPS, costs);
        flows.iter().flat_map(of).collect::<Vec<MovesRow>>()
    };
    let equal = table("a controller as fast as the units".to_owned(), &all(&FLOWS, costs));
    let slow = MoveCosts { controller_ns: CONTROLLER_NS, ..costs };
    let title = format!("a controller that takes {} us for each flow, as published", number(217.0));
    let published = table(title, &all(&FLOWS[1..], slow))
        .paper(&named(LOSS_FREE, 500, PPS), "total", 101e6)
        .paper(&named(LOSS_FREE, 1_000, PPS), "total", 217e6)
        .paper(&named(THREE_EXCHANGES, 500, PPS), "total", 0.7e6)
        .paper(&named(THREE_EXCHANGES, 1_000, PPS), "total", 1.5e6);
    Measured { tables: vec![equal, published], notes: notes() }
}

/// Charts with the axes of the published figure.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let systems = [
        (THREE_EXCHANGES.to_owned(), "three exchanges (as published)"),
        (OURS.to_owned(), "ours: ownership"),
        (LOSS_FREE.to_owned(), "controller, loss-free"),
        (ORDERED.to_owned(), "controller, order-preserving"),
        (by_filter(LOSS_FREE), "controller, loss-free, one filter"),
    ];
    let chart = |table: &FigureTable| {
        let series = |(system, name): &(String, &str)| {
            let rows = (0..).zip(FLOWS).map(|(at, flows)| (f64::from(at), named(system, flows, PPS)));
            series_at(table, (name, ChartMark::Bars), ("total", 1e6), rows)
        };
        FigureChart {
            title: table.title.clone(),
            x: ChartAxis::names("flows", FLOWS.map(|flows| flows.to_string())),
            y: ChartAxis::logarithmic("time to move all flows, ms"),
            series: systems.iter().map(series).collect(),
        }
    };
    tables.iter().map(chart).collect()
}

fn notes() -> Vec<String> {
    [
        "Loss-free: the source raises an event with each packet of a moving flow; states, and then \
         these packets, go to the target through the controller, which changes the switch's rule at \
         the end. Order-preserving: in addition, the switch sends packets both ways for a while, and \
         the target holds those of the new way until it has had the last one of the old. For one flow \
         alone that takes until its next packet, 20 ms at 50 packets/s.",
        "Suspend and resume, as in Split/Merge: the switch sends packets to the controller, which \
         buffers them while it moves the state. Packets on their way to the source are lost.",
        "Controllers are our own, after the papers' descriptions. They move flow by flow, all at \
         once, or all flows by one filter, which needs flows that a filter can tell from others, and \
         is their best setting. Their nodes, links and costs are those of the others.",
        "With one filter, a controller has four messages a flow, each node at most three: it is as \
         fast as ownership, as long as one controller moves the flows of one unit. Its packets go \
         through the controller.",
        "In the second table the time per flow is that of a re-run of OpenNF by NFActor's authors: \
         the ratio follows from it, and shows nothing else.",
    ]
    .map(str::to_owned)
    .into()
}
