//! X5 with a real store: packets through a NAT with the states of flows in a Redis of this machine,
//! or at another unit on its own thread. Measured, not simulated.

use std::collections::HashMap;
use std::fmt::Display;
use std::hint::{black_box, spin_loop};
use std::time::Instant;

use crate::stored::{Accesses, Habit, Peer, Store, Stored};
use hdrhistogram::Histogram;
use io::traffic::{FrameRate, Generator, Protocols, Responder, TrafficProfile as Traffic};
use packet::{LinkType, Packet, PacketPool, Side};
use policy::{Colour, Policy};
use runtime::{Assembly, Frame, Ingress, Output, Runner};

use super::{AHEAD, NAIVE, ON_DEMAND, STORE, row, times_as_long};
use crate::runs::RunLength;
use crate::store::{PROGRAM, Server, ServerError};
use crate::table::{CostProfile, FigureTable, FigureUnit, RowKind, TableMetric, TableRow};
use crate::verdict::Claim;

/// Claims of S93 about measurements, as ratios, because the machine is another one.
pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        text: "NAT: the tail (p99) with replicas is a 12th of that with states fetched on demand \
               from another thread",
        test: |f| times_as_long(f, TABLE, "NAT", (AHEAD, ON_DEMAND), 12.0),
    },
    Claim {
        text: "NAT: the tail is a 15th of that with a Redis, read when a flowlet begins and \
               written when its flow falls silent",
        test: |f| times_as_long(f, TABLE, "NAT", (AHEAD, STORE), 15.0),
    },
];

/// The table, among those of the experiment.
const TABLE: usize = 2;

/// States that do not leave the unit: what all others are compared with.
const LOCAL: &str = "in the unit";

const PERCENTILES: [(&str, f64); 6] =
    [("p1", 1.0), ("p25", 25.0), ("p50", 50.0), ("p75", 75.0), ("p99", 99.0), ("p99.9", 99.9)];

/// The metrics other than percentiles.
const OTHERS: [TableMetric; 4] = [
    TableMetric { name: "mean", unit: FigureUnit::Ns },
    TableMetric { name: "seamless", unit: FigureUnit::Share },
    TableMetric { name: "requests a packet", unit: FigureUnit::Ratio },
    TableMetric { name: "bytes a packet", unit: FigureUnit::Ratio },
];

/// Times that each is measured, in turn with the others.
const ROUNDS: usize = 10;

/// T, in nanoseconds (S30).
const GAP_NS: u64 = 500_000;

/// Longer latencies count as this, in nanoseconds.
const LATENCY_NS_MAX: u64 = 10_000_000_000;

/// A NAT for TCP and UDP.
const POLICY: &str = "settings { flows: 4096 } Port<0> inside; Port<1> outside; \
     NAT n { external: [203.0.113.1-203.0.113.4] }; pipelet main { inside <-> n <-> outside; }";

/// The table; none if no server is installed.
pub(super) fn measure(length: RunLength) -> Option<FigureTable> {
    let rows = match Server::start() {
        Ok(server) => rows(&server, length),
        Err(ServerError::NotInstalled) => return None,
        Err(error) => Err(error.to_string()),
    };
    let failed = |why| {
        let row = TableRow::of(
            row("NAT", STORE),
            RowKind::Baseline,
            vec![Vec::new(); PERCENTILES.len() + OTHERS.len()],
        );
        vec![TableRow { failures: vec![why], ..row }]
    };
    let percentiles = PERCENTILES.map(|(name, _)| TableMetric { name, unit: FigureUnit::Ns });
    Some(FigureTable {
        title: format!("time of a packet at the unit; intervals over {ROUNDS} rounds in turn"),
        profile: CostProfile::Real,
        metrics: percentiles.into_iter().chain(OTHERS).collect(),
        rows: rows.unwrap_or_else(failed),
    })
}

/// Returns the note below the table, or the reason for its absence.
pub(super) fn note(is_there: bool) -> String {
    match is_there {
        true => "REAL: generated packets of both directions pass a NAT in sequence, each at its \
                 time or after the one before it. A packet's time is that of the NAT and of its \
                 own waiting, without that of earlier packets. The Redis is on the same machine, \
                 behind a Unix socket. On demand and ahead: as if every flowlet came from another \
                 unit, on its own thread, which sleeps when idle."
            .to_owned(),
        false => format!(
            "REAL is left out, because `{PROGRAM}` is not installed; Debian's \
                          package `redis-server` has it."
        ),
    }
}

/// Returns its rows.
///
/// # Errors
///
/// If a measurement fails, or the NAT's output is wrong.
fn rows(server: &Server, length: RunLength) -> Result<Vec<TableRow>, String> {
    let packets = match length {
        RunLength::Smoke => 500,
        RunLength::Quick => 5_000,
        RunLength::Full => 20_000,
    };
    let trace = Trace::new(packets)?;
    let mut rows: Vec<(&str, RowKind, Vec<Vec<f64>>)> = vec![
        (NAIVE, RowKind::Baseline, Vec::new()),
        (STORE, RowKind::Baseline, Vec::new()),
        (ON_DEMAND, RowKind::Baseline, Vec::new()),
        (AHEAD, RowKind::Faithful, Vec::new()),
        (LOCAL, RowKind::Bound, Vec::new()),
    ];
    for _ in 0..ROUNDS {
        for (manner, _, values) in &mut rows {
            let figures = trace.measure(manner, server).map_err(|why| format!("{manner}: {why}"))?;
            values.resize(figures.len(), Vec::new());
            values.iter_mut().zip(figures).for_each(|(values, figure)| values.extend(figure));
        }
    }
    Ok(rows
        .into_iter()
        .map(|(manner, kind, values)| TableRow::of(row("NAT", manner), kind, values))
        .collect())
}

/// Packets from both sides, and what is to become of them.
struct Trace {
    frames: Vec<Arriving>,
    /// The bytes of the packets that leave, in order.
    expected: Vec<Vec<u8>>,
}

/// An arriving packet.
struct Arriving {
    at_ns: u64,
    port: u16,
    data: Vec<u8>,
}

impl Trace {
    /// Creates traffic of a few flows from inside: packets, the NAT's output for them, and the
    /// servers' answers.
    fn new(packets: u64) -> Result<Trace, String> {
        let traffic = Traffic {
            packets: Some(packets),
            flows: 16,
            rate: FrameRate::PacketsPerSecond(50_000.0),
            protocols: Protocols { tcp: 0.75, udp: 0.25, icmp: 0.0, fragments: 0.0 },
            ipv6_share: 0.0,
            replies: false,
            ..Traffic::default()
        };
        let mut generator = Generator::new(&traffic).map_err(|error| error.to_string())?;
        let mut responder = Responder::new(traffic.answer);
        let mut runner = Runner::new(assembly()?, "NAT");
        let mut trace = Trace { frames: Vec::new(), expected: Vec::new() };
        while let Some(frame) = generator.next() {
            let mut arriving =
                Some(Arriving { at_ns: frame.timestamp_ns, port: 0, data: frame.data.to_vec() });
            while let Some(Arriving { at_ns, port, data }) = arriving.take() {
                let mut sent = Sent::default();
                let frame = Frame {
                    timestamp_ns: at_ns,
                    link: LinkType::Ethernet,
                    wire_len: data.len() as u32,
                    data: &data,
                };
                let Ok(()) = runner.receive(frame, Ingress::Port(port), &mut sent);
                let Ok(()) = runner.flush(&mut sent);
                let to_servers = sent.packets.iter().find(|(port, _)| *port == 1);
                let answer = to_servers.and_then(|(_, sent)| responder.respond(sent).ok());
                arriving = answer.map(|answer| Arriving { at_ns, port: 1, data: answer.to_vec() });
                trace.expected.extend(sent.packets.into_iter().map(|(_, data)| data));
                trace.frames.push(Arriving { at_ns, port, data });
            }
        }
        Ok(trace)
    }

    /// Plays it once, with states where this manner has them: a value for each metric, if there is
    /// one.
    fn measure(&self, manner: &str, server: &Server) -> Result<Vec<Option<f64>>, String> {
        let graph = assembly()?.graph;
        let states = || server.states().map_err(|error| error.to_string());
        let peer = |is_ahead| Peer::start(assembly()?.graph, is_ahead).map_err(|error| error.to_string());
        let (latency, accesses) = match manner {
            NAIVE => self.play(stored(graph, states()?, Habit::EveryPacket)?),
            STORE => self.play(stored(graph, states()?, Habit::EveryFlowlet)?),
            ON_DEMAND => self.play(stored(graph, peer(false)?, Habit::EveryFlowlet)?),
            AHEAD => self.play(stored(graph, peer(true)?, Habit::EveryFlowlet)?),
            _ => self.play(stored(graph, HashMap::new(), Habit::Never)?),
        }?;
        let Accesses { reads, at_hand, writes, bytes } = accesses;
        let packets = self.frames.len() as f64;
        let percentiles =
            PERCENTILES.map(|(_, percentile)| Some(latency.value_at_percentile(percentile) as f64));
        let seamless = (reads > 0).then(|| at_hand as f64 / reads as f64);
        let others = [
            Some(latency.mean()),
            seamless,
            Some((reads + writes) as f64 / packets),
            Some(bytes as f64 / packets),
        ];
        Ok(percentiles.into_iter().chain(others).collect())
    }

    /// Plays it once through a unit, each packet at its time, or after the previous one. Returns
    /// each packet's time in the unit, and the accesses to the store.
    fn play<S: Store<Error: Display>>(
        &self,
        mut unit: Stored<S>,
    ) -> Result<(Histogram<u64>, Accesses), String> {
        let mut latency =
            Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).map_err(|error| error.to_string())?;
        let (mut pool, mut out) = (PacketPool::new(64), Vec::new());
        let mut expected = self.expected.iter();
        let first_ns = self.frames.first().map_or(0, |frame| frame.at_ns);
        let began = Instant::now();
        for frame in &self.frames {
            loop {
                let now_ns = first_ns + began.elapsed().as_nanos() as u64;
                unit.pass_time(now_ns.min(frame.at_ns)).map_err(|error| error.to_string())?;
                if now_ns >= frame.at_ns {
                    break;
                }
                spin_loop();
            }
            let packet = frame.packet(&mut pool).ok_or("there is no buffer for a packet")?;
            let start = Instant::now();
            unit.process(packet, &mut out, &mut pool).map_err(|error| error.to_string())?;
            latency.saturating_record(black_box(start.elapsed()).as_nanos() as u64);
            for packet in out.drain(..) {
                if expected.next().is_none_or(|expected| expected != packet.data()) {
                    return Err("a packet leaves that the chain alone does not send".to_owned());
                }
                pool.give(packet);
            }
        }
        match expected.next() {
            None => Ok((latency, unit.accesses())),
            Some(_) => Err("a packet does not leave that the chain alone sends".to_owned()),
        }
    }
}

impl Arriving {
    /// It is received.
    fn packet(&self, pool: &mut PacketPool) -> Option<Packet> {
        let mut packet = pool.take(&self.data)?;
        let meta = packet.meta_mut();
        meta.transit.timestamp_ns = self.at_ns;
        meta.transit.ingress = self.port;
        meta.transit.side = if self.port == 0 { Side::Inside } else { Side::Outside };
        meta.wire_len = self.data.len() as u32;
        meta.link = LinkType::Ethernet;
        Some(packet)
    }
}

fn stored<S: Store>(graph: Box<graph::Graph>, store: S, habit: Habit) -> Result<Stored<S>, String> {
    Stored::new(graph, store, habit, GAP_NS).map_err(|error| error.to_string())
}

fn assembly() -> Result<Assembly, String> {
    let policy = Policy::read("nat", POLICY, &mut |_| Err(String::new()));
    let policy = policy.map_err(|report| report.render(Colour::Off))?;
    runtime::assemble(&policy, &functions::registry(), 1, None).map_err(|wrong| format!("{wrong:?}"))
}

/// Packets that left, with their ports.
#[derive(Default)]
struct Sent {
    packets: Vec<(u16, Vec<u8>)>,
}

impl Output for Sent {
    type Error = std::convert::Infallible;

    fn packet(&mut self, port: u16, packet: &Packet) -> Result<(), Self::Error> {
        self.packets.push((port, packet.data().to_vec()));
        Ok(())
    }

    fn alert(&mut self, _function: &str, _alert: &nf::Alert) -> Result<(), Self::Error> {
        Ok(())
    }

    fn event(&mut self, _function: &str, _event: nf::Event<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    fn flow(&mut self, _report: &nf::FlowReport, _now_ns: u64) -> Result<(), Self::Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each measurement compares its output with that of the chain alone, so a failure is a wrong
    /// output.
    #[test]
    fn states_in_a_real_store_change_nothing() {
        let Some(table) = measure(RunLength::Smoke) else {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{}", note(false));
            return println!("SKIPPED: {}", note(false));
        };
        assert_eq!(table.rows.len(), 5, "{table:?}");
        assert!(table.rows.iter().all(|row| row.failures.is_empty()), "{table:?}");
        let get = |manner: &str, metric: &str| table.get(&row("NAT", manner), metric).unwrap();
        let requests = [NAIVE, STORE, ON_DEMAND, LOCAL].map(|manner| get(manner, "requests a packet").median);
        assert_eq!((requests[0], requests[3]), (2.0, 0.0));
        assert_eq!(requests[1], requests[2], "the same flowlets");
        assert!(0.0 < requests[1] && requests[1] < 1.0, "{requests:?}");
        assert_eq!(get(STORE, "seamless").median, 0.0);
        // Two requests to another process take more than a microsecond, whatever the machine.
        let naive = ["p1", "p50", "p99", "mean"].map(|metric| get(NAIVE, metric).low);
        assert!(naive.iter().all(|&ns| ns > 1e3), "{naive:?}");
        let slowest = get(STORE, "p99.9").low;
        assert!(slowest > get(LOCAL, "p50").high && slowest > 1e3, "{slowest}");
    }

    #[test]
    fn what_leaves_is_compared() {
        let mut trace = Trace::new(50).unwrap();
        let play = |trace: &Trace| {
            let unit = stored(assembly().unwrap().graph, HashMap::new(), Habit::EveryPacket).unwrap();
            trace.play(unit).map(|(latency, _)| latency.len())
        };
        assert_eq!(play(&trace), Ok(trace.frames.len() as u64));
        let last = trace.expected.pop().unwrap();
        assert!(play(&trace).unwrap_err().contains("does not send"));
        trace.expected.extend([last.clone(), last]);
        assert!(play(&trace).unwrap_err().contains("does not leave"));
    }
}
