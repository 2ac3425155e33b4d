//! Y7: what events cost: servers that go and come back. Measured, not simulated.

use super::common::{at_most_of, below, series_at};
use super::rounds::{BATCH, Contender, Rounds, rounds};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, ChartMark, FigureChart};
use crate::paths::{Functions, Player, Sent, Shortcut, Tape, differing};
use crate::runs::{Lab, RunLength};
use crate::table::{FigureTable, FigureUnit, RowKind, TableMetric};
use crate::verdict::{Claim, ClaimFinding};

/// Published claims about events (B25).
pub const Y7: Experiment = Experiment {
    id: "Y7",
    title: "Events",
    question: "Are events honoured at once?",
    published: "B25: the loss of a server is an event, which changes the recorded action before \
                the flow's next packet (no figures)",
    workload: "load balancer with 32 servers, monitor and firewall, on this machine; 64-byte \
               packets of 1,024 flows, in batches of 32, at a simulated million per second; 0 to \
               10,000 servers per second that go or come back",
    matches: &[],
    beats: &[
        Claim {
            text: "at 1,000 and 10,000 events per second, a packet costs less than if every event \
                   ends all rules",
            test: |f| {
                Ok(ClaimFinding::all([
                    below(f, &row(CONSOLIDATED, 1_000), &row(FLUSH, 1_000), "packet", 1.0)?,
                    below(f, &row(CONSOLIDATED, 10_000), &row(FLUSH, 10_000), "packet", 1.0)?,
                ]))
            },
        },
        Claim {
            text: "at 1,000 events per second, a packet costs at most 1.1 times as much as \
                   without events, round by round",
            test: |f| at_most_of(f, &row(CONSOLIDATED, 1_000), &row(CONSOLIDATED, 0), "packet", 1.1),
        },
    ],
    checks: &[Claim {
        text: "at every rate, the consolidated chain sends the packets of the plain chain: none \
               is stale",
        test: |f| {
            let rates = RATES.map(|rate| {
                let stale = f.get(&row(CONSOLIDATED, rate), "stale packets")?;
                Ok(ClaimFinding::new(
                    stale.is_at_most(0.0),
                    format!("{rate}/s: {} stale packets", stale.median),
                ))
            });
            Ok(ClaimFinding::all(rates.into_iter().collect::<Result<Vec<_>, _>>()?))
        },
    }],
    real: &[],
    summary: OverviewRow {
        published: "no figures: before the next packet",
        found: "{0|consolidated, 10000/s|stale packets} stale packets at 10,000 events/s",
        caveat: "{0|consolidated, 1000/s|packet} in place of {0|consolidated, 0/s|packet} at 1,000 \
                 events/s",
    },
    measure,
    picture: Picture::Charts(charts),
};

const METRICS: [TableMetric; 5] = [
    TableMetric { name: "packet", unit: FigureUnit::Ns },
    TableMetric { name: "x plain", unit: FigureUnit::Ratio },
    TableMetric { name: "followed", unit: FigureUnit::Share },
    TableMetric { name: "command", unit: FigureUnit::Ns },
    TableMetric { name: "stale packets", unit: FigureUnit::Count },
];

const PLAIN: &str = "plain";
const CONSOLIDATED: &str = "consolidated";
const FLUSH: &str = "full flush";
const CACHE: &str = "cache";

/// Events a second.
const RATES: [u32; 4] = [0, 100, 1_000, 10_000];

/// Packets per second, the base for counting events.
const PACKETS_PER_SECOND: u32 = 1_000_000;

const FLOWS: u32 = 1_024;

const SERVERS: u32 = 32;

/// Places in the chain.
const BALANCER: usize = 0;
const FLUSHER: usize = 3;

fn row(path: &str, rate: u32) -> String {
    format!("{path}, {rate}/s")
}

fn functions() -> Functions {
    let servers: Vec<_> =
        (0..SERVERS).map(|i| format!("{{ name: s{i}, address: 172.16.0.{} }}", i + 1)).collect();
    Functions::new(4 * FLOWS)
        .with(
            "LB",
            format!(
                "services: [ {{ name: web, vip: 198.18.0.1, protocol: udp, servers: [{}] }} ]",
                servers.join(", ")
            ),
        )
        .with("Monitor", "report: []")
        .with("Firewall", "rules: \"allow\"")
        .with("Flush", "")
}

fn contenders() -> Result<[Contender; 4], String> {
    let functions = functions();
    Ok([
        Contender::new(PLAIN, RowKind::Baseline, functions.graph(false)?),
        Contender::new(CONSOLIDATED, RowKind::Faithful, functions.graph(true)?),
        Contender::new(FLUSH, RowKind::Baseline, functions.graph(true)?),
        Contender::new(CACHE, RowKind::Baseline, Shortcut::cache(functions.graph(false)?)),
    ])
}

/// Results of a tape.
struct Played {
    /// Nanoseconds of a packet, and of an event.
    packet_ns: f64,
    command_ns: f64,
    /// Share of packets that did not have to walk.
    followed: f64,
    /// Its output, if requested.
    sent: Vec<Vec<Sent>>,
}

/// Plays a tape with events, each about another server: it goes down, then comes back.
fn play(
    player: &mut Player,
    contender: &mut Contender,
    tape: &Tape,
    rate: u32,
    keep: bool,
) -> Result<Played, String> {
    let path = &mut *contender.path;
    player.end_flows(path);
    player.play(path, tape, 0..WARM_UP);
    let every = PACKETS_PER_SECOND.checked_div(rate).map_or(tape.len(), |every| every as usize);
    let (mut ns, mut packets, mut command_ns, mut events) = (0, 0, 0, 0);
    let (before, mut sent, mut at) = (path.followed(), Vec::new(), WARM_UP);
    while at < tape.len() {
        let part = at..(at + every).min(tape.len());
        at = part.end;
        if keep {
            sent.extend(player.sent(path, tape, part));
        } else {
            let played = player.play(path, tape, part);
            ns += played.ns;
            packets += played.packets;
        }
        if rate > 0 {
            let (server, what) = (events / 2 % SERVERS, ["down", "up"][events as usize % 2]);
            let start = std::time::Instant::now();
            path.command(BALANCER, &format!("server s{server} {what}"))?;
            if contender.name == FLUSH {
                path.command(FLUSHER, "flush")?;
            }
            command_ns += start.elapsed().as_nanos() as u64;
            events += 1;
        }
    }
    if events % 2 == 1 {
        path.command(BALANCER, &format!("server s{} up", events / 2 % SERVERS))?;
    }
    Ok(Played {
        packet_ns: ns as f64 / packets as f64,
        command_ns: command_ns as f64 / f64::from(events),
        followed: (path.followed() - before) as f64 / (tape.len() - WARM_UP) as f64,
        sent,
    })
}

/// Packets before events come: all flows' rules are made.
const WARM_UP: usize = 4 * FLOWS as usize;

fn measure(lab: &mut Lab<'_>) -> Measured {
    let (mut measured, length) = (Rounds::default(), lab.length());
    if let Err(why) = measure_all(&mut measured, length) {
        measured.fail(&row(PLAIN, 0), RowKind::Baseline, why);
    }
    let table = measured.table("time of a packet in the functions, and of a command", &METRICS);
    Measured { tables: vec![table], notes: notes() }
}

fn measure_all(measured: &mut Rounds, length: RunLength) -> Result<(), String> {
    let passes = length.pick(12, 100);
    let tape = Tape::passes(FLOWS, passes + WARM_UP / FLOWS as usize, 1_000)?;
    let mut player = Player::new(BATCH);
    let mut contenders = contenders()?;
    let mut stale = Vec::new();
    for rate in RATES {
        let of_plain = play(&mut player, &mut contenders[0], &tape, rate, true)?.sent;
        for contender in &mut contenders {
            let sent = play(&mut player, contender, &tape, rate, true)?.sent;
            stale.push(differing(&sent, &of_plain));
        }
    }
    for _ in 0..rounds(length).div_ceil(4) {
        let mut stale = stale.iter();
        for rate in RATES {
            let mut plain_ns = f64::NAN;
            for contender in &mut contenders {
                let played = play(&mut player, contender, &tape, rate, false)?;
                if contender.name == PLAIN {
                    plain_ns = played.packet_ns;
                }
                let Played { packet_ns, command_ns, followed, .. } = played;
                let stale = stale.next().map_or(f64::NAN, |&stale| stale as f64);
                let values = [packet_ns, packet_ns / plain_ns, followed, command_ns, stale];
                measured.add(&row(contender.name, rate), contender.kind, &values);
            }
        }
    }
    Ok(())
}

/// Charts of the tables.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let series = |name: &str| {
        let rows = (0..).zip(RATES).map(|(at, rate)| (f64::from(at), row(name, rate)));
        series_at(table, (name, ChartMark::Line), ("packet", 1.0), rows)
    };
    vec![FigureChart {
        title: "time of a packet, with events".to_owned(),
        x: ChartAxis::names("events a second", RATES.map(|rate| rate.to_string())),
        y: ChartAxis::linear("ns"),
        series: [PLAIN, CONSOLIDATED, FLUSH, CACHE].map(series).into(),
    }]
}

fn notes() -> Vec<String> {
    [
        "Times cover processing only. Commands are measured separately; most of their time is the \
         load balancer's new table of servers, the same for all.",
        "Events: a server goes and, with the next event, comes back. Flows of a lost server get \
         another one. Stale packets differ from those of the plain chain in a run with the same \
         events.",
        "Full flush: the same chain with a function that ends every rule at each event, so that \
         all flows are recorded again. In the other chains this function does nothing.",
        "Cache: a table of header actions in front of the plain chain, emptied by each event \
         (B35).",
        "An outdated rule is predicted again at its flow's next packet, which is the cost of \
         events for other flows. A flow with a new server stays on the slow path until that \
         server answers. Here no server answers, so these flows are the packets that do not \
         follow.",
    ]
    .map(str::to_owned)
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_packet_is_stale_and_a_flush_ends_all_rules() {
        let tape = Tape::passes(FLOWS, 8, 1_000).unwrap();
        let mut player = Player::new(BATCH);
        let mut all = contenders().unwrap();
        let plain = play(&mut player, &mut all[0], &tape, 10_000, true).unwrap();
        let to = |sent: &Sent| sent.1[30..32] == [172, 16];
        assert!(plain.sent.iter().flatten().all(to), "servers get all packets");
        let others = [1, 2, 3].map(|at| play(&mut player, &mut all[at], &tape, 10_000, true).unwrap());
        assert_eq!(others.each_ref().map(|played| differing(&played.sent, &plain.sent)), [0; 3]);
        let [ours, flush, _] = others.map(|played| played.followed);
        assert!(ours > 0.9 && flush < 0.1, "{ours} {flush}");
    }

    /// A table that forgets nothing sends packets to servers that are gone: the count of stale
    /// packets can be other than none.
    #[test]
    fn what_forgets_nothing_is_stale() {
        let tape = Tape::passes(FLOWS, 8, 1_000).unwrap();
        let mut player = Player::new(BATCH);
        let mut plain = Contender::new(PLAIN, RowKind::Baseline, functions().graph(false).unwrap());
        let synthesis = Shortcut::synthesis(functions().graph(false).unwrap());
        let mut synthesis = Contender::new("synthesis", RowKind::Baseline, synthesis);
        let [plain, synthesis] =
            [&mut plain, &mut synthesis].map(|way| play(&mut player, way, &tape, 10_000, true).unwrap().sent);
        assert!(differing(&synthesis, &plain) > 0);
    }
}
