//! D2: what distribution costs. Measured, not simulated.

use super::common::{at_least, bars_of, series_of_rows, show};
use super::moves::{FAULTS, chain, fault_values, without_faults};
use super::rounds::Rounds;
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, ChartMark, FigureChart};
use crate::hosts::{Hosts, write_frame};
use crate::link_parts::{LinkParts, PartTimes};
use crate::runs::{Lab, RunLength};
use crate::table::{FigureTable, FigureUnit, RowKind, TableMetric};
use crate::thread_accounts::ThreadAccount;
use crate::verdict::{Claim, ClaimFinding, MeasuredFigures, MissingFigure};

/// Claims about the CPU time of packets at a dispatcher and at a unit.
pub const D2: Experiment = Experiment {
    id: "D2",
    title: "The cost of distribution",
    question: "What does a packet cost at a dispatcher and at a unit?",
    published: "nothing comparable; the aim is 1.5 million packets per second of a dispatcher's core",
    workload: "a dispatcher and a unit, a thread each, over loopback on this machine, and the same \
               policy on one thread: 1,024 flows, packets of 60 bytes, and a mix of 60, 590 and 1,514 \
               bytes (7, 4 and 1 of 12, as in RFC 6985)",
    matches: &[],
    beats: &[],
    checks: &[
        Claim {
            text: "packets of 60 bytes: a dispatcher dispatches at least 1.5 million in a second of \
                   CPU time",
            test: |f| at_least(f, SMALL.dispatcher, "per CPU-second", 1.5e6, 1e6),
        },
        Claim {
            text: "the mix: the same",
            test: |f| at_least(f, MIX.dispatcher, "per CPU-second", 1.5e6, 1e6),
        },
        Claim {
            text: "nothing is lost, reordered, duplicated or broken",
            test: |f| {
                let rows = [SMALL, MIX].map(|sizes| without_faults(f, sizes.dispatcher));
                Ok(ClaimFinding::all(rows.into_iter().collect::<Result<Vec<_>, _>>()?))
            },
        },
        Claim {
            text: "packets of 60 bytes: a dispatcher takes less time than these three functions take \
                   on one thread, so that units add throughput",
            test: |f| takes_at_most(f, SMALL.dispatcher, 1.0),
        },
        Claim {
            text: "packets of 60 bytes: a unit takes at most twice that time",
            test: |f| takes_at_most(f, SMALL.unit, 2.0),
        },
    ],
    real: &[],
    summary: OverviewRow {
        published: "none; aim: 1.5 million packets/s of a dispatcher's core",
        found: "{0|60 bytes, dispatcher|per CPU-second} of 60 bytes, {0|mix, dispatcher|per \
                CPU-second} of a mix; {0|60 bytes, dispatcher|x one thread} and {0|mix, \
                dispatcher|x one thread} times the time of three short functions on one thread",
        caveat: "two threads, beside other work",
    },
    measure,
    picture: Picture::Charts(charts),
};

/// Packets of some sizes, and their rows.
struct Sizes {
    lengths: &'static [usize],
    inline: &'static str,
    dispatcher: &'static str,
    unit: &'static str,
}

const SMALL: Sizes = Sizes {
    lengths: &[60],
    inline: "60 bytes, on one thread",
    dispatcher: "60 bytes, dispatcher",
    unit: "60 bytes, unit",
};

const MIX: Sizes = Sizes {
    lengths: &[60, 590, 60, 60, 590, 60, 1_514, 60, 590, 60, 590, 60],
    inline: "mix, on one thread",
    dispatcher: "mix, dispatcher",
    unit: "mix, unit",
};

const METRICS: [TableMetric; 7] = [
    TableMetric { name: "CPU of a packet", unit: FigureUnit::Ns },
    TableMetric { name: "per CPU-second", unit: FigureUnit::Count },
    TableMetric { name: "x one thread", unit: FigureUnit::Ratio },
    TableMetric { name: "lost", unit: FigureUnit::Count },
    TableMetric { name: "reordered", unit: FigureUnit::Count },
    TableMetric { name: "duplicated", unit: FigureUnit::Count },
    TableMetric { name: "broken", unit: FigureUnit::Count },
];

const PARTS: [TableMetric; 9] = [
    TableMetric { name: "classify", unit: FigureUnit::Ns },
    TableMetric { name: "number", unit: FigureUnit::Ns },
    TableMetric { name: "receive", unit: FigureUnit::Ns },
    TableMetric { name: "open", unit: FigureUnit::Ns },
    TableMetric { name: "read", unit: FigureUnit::Ns },
    TableMetric { name: "process", unit: FigureUnit::Ns },
    TableMetric { name: "seal", unit: FigureUnit::Ns },
    TableMetric { name: "send", unit: FigureUnit::Ns },
    TableMetric { name: "rest", unit: FigureUnit::Ns },
];

const ACCOUNTS: [TableMetric; 2] = [
    TableMetric { name: "in the kernel", unit: FigureUnit::Ns },
    TableMetric { name: "waits per 1,000 packets", unit: FigureUnit::Ratio },
];

const FLOWS: u32 = 1_024;

/// A row's time is at most this multiple of that on one thread, round by round.
fn takes_at_most(f: &MeasuredFigures<'_>, row: &str, limit: f64) -> Result<ClaimFinding, MissingFigure> {
    let ratio = f.get(row, "x one thread")?;
    let why = format!("{row}: {} times, asked is at most {limit}", show(ratio, 1.0, ""));
    Ok(ClaimFinding::new(ratio.is_at_most(limit), why))
}

/// Charts of the whole time, and of its parts.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let whole = |table: &FigureTable| {
        let series = |name, rows: [&str; 2]| bars_of(table, name, (METRICS[0].name, 1.0), rows);
        FigureChart {
            title: "processor's time of a packet".to_owned(),
            x: ChartAxis::names("packets", ["60 bytes", "mix"]),
            y: ChartAxis::linear("ns"),
            series: vec![
                series("all on one thread, without links", [SMALL.inline, MIX.inline]),
                series("dispatcher", [SMALL.dispatcher, MIX.dispatcher]),
                series("unit", [SMALL.unit, MIX.unit]),
            ],
        }
    };
    let parts = |table: &FigureTable| {
        let columns = PARTS.map(|part| part.name);
        FigureChart {
            title: "its parts".to_owned(),
            x: ChartAxis::names("part", columns),
            y: ChartAxis::linear("ns"),
            series: series_of_rows(table, &columns, 1.0, ChartMark::Bars),
        }
    };
    tables.first().map(whole).into_iter().chain(tables.get(1).map(parts)).collect()
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let (rounds, packets) = match lab.length() {
        RunLength::Smoke => (1, 2_048),
        RunLength::Quick => (21, 32_768),
        RunLength::Full => (101, 32_768),
    };
    let mut tables = D2Rounds::default();
    for sizes in [SMALL, MIX] {
        if let Err(why) = measure_sizes(&sizes, &mut tables, rounds, packets) {
            tables.whole.fail(sizes.dispatcher, RowKind::Faithful, why);
        }
    }
    let D2Rounds { whole, parts, accounts } = tables;
    let whole = whole.table("CPU time of a packet", &METRICS);
    let parts = parts.table("its parts, each timed on its own", &PARTS);
    let accounts = accounts.table("of which, by the kernel's accounts", &ACCOUNTS);
    let notes = [
        "CPU time, not wall time: of the dispatcher's thread, and of all others. Ports are not \
         included: frames are made and counted in memory, and the time of that, measured in turn, is \
         subtracted. 1,024 packets are on their way at once.",
        "One thread: the same policy, a monitor, a firewall and an HTTP parser, without links.",
        "Parts: bursts of 1,024 packets go there and back between two sockets of one thread. Classify: \
         into a buffer, parsed, hashed. Number: the flow found, numbered, stamped. Receive and send: the \
         kernel's; on loopback, the sender's call does the work of both network stacks. Open: decrypted, \
         put in order, acknowledged. Read: taken from the link and put into a buffer; at the unit also \
         parsed. Process: one thread's time without classification. Seal: written as a message, put into \
         datagrams, encrypted.",
        "The rest: passing packets and reports on, metering, timers, calls of the kernel that find \
         nothing, and waking up.",
        "The kernel counts its time in ticks of 10 ms: one figure for all rounds. A wait: a thread gives \
         up its processor until something arrives.",
        FAULTS,
    ];
    Measured { tables: vec![whole, parts, accounts], notes: notes.map(str::to_owned).into() }
}

/// The tables in the making.
#[derive(Default)]
struct D2Rounds {
    whole: Rounds,
    parts: Rounds,
    accounts: Rounds,
}

/// Runs one thread, hosts and parts in turn, round by round.
fn measure_sizes(sizes: &Sizes, tables: &mut D2Rounds, rounds: u32, packets: u32) -> Result<(), String> {
    let (mut inline, mut hosts) = (Hosts::inline(FLOWS, chain)?, Hosts::start(1, FLOWS, chain)?);
    let mut links = LinkParts::open(chain)?;
    for hosts in [&mut inline, &mut hosts] {
        hosts.set_lengths(sizes.lengths);
        hosts.send_some(packets); // Caches and links warm up.
        hosts.settle();
    }
    let (mut of_dispatcher, mut of_units) = (ThreadAccount::default(), ThreadAccount::default());
    for _ in 0..rounds {
        let send = |hosts: &mut Hosts| {
            hosts.send_some(packets);
            hosts.settle();
            Ok(())
        };
        let made = inline.timed(|hosts| {
            hosts.make_some(packets);
            Ok(())
        })?;
        let alone = inline.timed(send)?;
        let before = accounts()?;
        let spread = hosts.timed(send)?;
        let after = accounts()?;
        of_dispatcher = of_dispatcher.and(after[0].since(before[0]));
        of_units = of_units.and(after[1].since(before[1]));
        let per_packet = |ns: f64| ns / f64::from(packets);
        let one = per_packet(alone.dispatcher_ns - made.dispatcher_ns);
        let dispatcher = per_packet(spread.dispatcher_ns - made.dispatcher_ns);
        let unit = per_packet(spread.units_ns());
        let [lost, reordered, duplicated, broken] = fault_values(hosts.faults()?);
        let none = f64::NAN;
        let alone = [one, 1e9 / one, 1.0, none, none, none, none];
        let whole = &mut tables.whole;
        whole.add(sizes.inline, RowKind::Bound, &alone);
        let row = [dispatcher, 1e9 / dispatcher, dispatcher / one, lost, reordered, duplicated, broken];
        whole.add(sizes.dispatcher, RowKind::Faithful, &row);
        whole.add(sizes.unit, RowKind::Faithful, &[unit, 1e9 / unit, unit / one, none, none, none, none]);

        let mut sent = 0;
        let ends = links.run((packets as usize / 4_096).max(1), |frame| {
            frame.resize(sizes.lengths[sent as usize % sizes.lengths.len()], 0);
            write_frame(frame, 0, sent % FLOWS, sent);
            sent += 1;
        })?;
        let rows = [(sizes.dispatcher, dispatcher, none), (sizes.unit, unit, one - ends[0].classify)];
        for ((row, all, process), times) in rows.into_iter().zip(ends) {
            let PartTimes { classify, number, seal, send, receive, open, read } = times;
            let values = [classify, number, receive, open, read, process, seal, send];
            let known: f64 = values.iter().filter(|value| !value.is_nan()).sum();
            let [classify, number] = [classify, number].map(|at| if row == sizes.unit { none } else { at });
            let values = [classify, number, receive, open, read, process, seal, send, all - known];
            tables.parts.add(row, RowKind::Faithful, &values);
        }
    }
    for (row, account) in [(sizes.dispatcher, of_dispatcher), (sizes.unit, of_units)] {
        let sent = f64::from(rounds) * f64::from(packets);
        let values = [account.kernel_ns / sent, account.waits * 1e3 / sent];
        tables.accounts.add(row, RowKind::Faithful, &values);
    }
    Ok(())
}

/// Returns the accounts of the dispatcher's thread, which is this one, and of all others.
fn accounts() -> Result<[ThreadAccount; 2], String> {
    let read = || -> std::io::Result<[ThreadAccount; 2]> {
        let own = ThreadAccount::of_this_thread()?;
        Ok([own, ThreadAccount::of_all_threads()?.since(own)])
    };
    read().map_err(|error| error.to_string())
}
