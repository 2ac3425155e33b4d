//! Figures of a demonstration: current ones, one per second, and totals.

use std::time::Duration;

use runtime::Report;
use serde::Serialize;

use super::world::{DemoNetwork, START_NS};

/// Figures of a second. Replies count as packets in, too.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SecondSample {
    /// Number of the second, from 1.
    pub second: u64,
    pub packets_in: u64,
    pub packets_out: u64,
    pub dropped: u64,
    /// Received bits.
    pub bits_in: u64,
    /// Flows in the table.
    pub flows: u64,
    /// NAT ports in use.
    pub nat_ports: u64,
    /// Running units.
    pub units: usize,
}

/// A server of the load balancer.
#[derive(Clone, Debug, Serialize)]
pub struct Server {
    pub name: String,
    /// True if it went down halfway.
    pub went_down: bool,
    /// Connections assigned to it.
    pub connections: u64,
    /// Packets to it before and after halfway.
    pub packets_before: u64,
    pub packets_after: u64,
}

/// Content of the live view.
pub struct LiveSample<'a> {
    pub elapsed_ns: u64,
    pub report: Report,
    /// Rates since the last drawing.
    pub packets_per_second: f64,
    pub bits_per_second: f64,
    pub servers: Vec<Server>,
    /// Share of each server in the packets since the last drawing, 0 to 1.
    pub shares: Vec<f64>,
    pub nat_ports: u64,
    pub moved: u64,
    /// Running units: number, load as a share of capacity, flows.
    pub units: Vec<(u16, f64, u32)>,
    /// The latest event.
    pub event: &'a str,
    /// Packets per second at each drawing.
    pub throughput: &'a [f64],
}

/// Result of the demonstration.
#[derive(Serialize)]
pub struct Outcome {
    /// Duration of the traffic in seconds.
    pub seconds: f64,
    pub report: Report,
    pub servers: Vec<Server>,
    /// Flows that moved from the server that went down to another.
    pub flows_moved: u64,
    /// Replies that were not sent because too many were pending.
    pub answers_unsent: u64,
    pub each_second: Vec<SecondSample>,
    /// Wall-clock time. Longer than `seconds` if the machine is too slow.
    #[serde(skip)]
    pub took: Duration,
}

/// Earlier counters, to compute rates.
pub struct History {
    victim: &'static str,
    seconds: Vec<SecondSample>,
    /// Counters at the last full second, and at the last drawing.
    at_second: Totals,
    at_draw: Totals,
    drawn_ns: u64,
    servers_at_draw: Vec<u64>,
    servers_at_half: Vec<u64>,
    throughput: Vec<f64>,
}

#[derive(Clone, Copy, Default)]
struct Totals {
    packets_in: u64,
    packets_out: u64,
    dropped: u64,
    bytes_in: u64,
}

/// Values kept of the throughput.
const THROUGHPUT_MAX: usize = 60;

impl History {
    /// Creates an empty history; `victim` is the server that will go down.
    pub fn new(world: &DemoNetwork, victim: &'static str) -> History {
        let servers = servers(world).len();
        History {
            victim,
            seconds: Vec::new(),
            at_second: Totals::default(),
            at_draw: Totals::default(),
            drawn_ns: 0,
            servers_at_draw: vec![0; servers],
            servers_at_half: Vec::new(),
            throughput: Vec::new(),
        }
    }

    /// Remembers the counters before a server goes down.
    pub fn half_way(&mut self, world: &DemoNetwork) {
        self.servers_at_half = servers(world).iter().map(|server| server.packets).collect();
    }

    /// Ends a second, and returns its figures.
    pub fn second(&mut self, world: &DemoNetwork) -> SecondSample {
        let report = world.report();
        let (now, before) = (Totals::of(&report), self.at_second);
        let second = SecondSample {
            second: self.seconds.len() as u64 + 1,
            packets_in: now.packets_in - before.packets_in,
            packets_out: now.packets_out - before.packets_out,
            dropped: now.dropped - before.dropped,
            bits_in: 8 * (now.bytes_in - before.bytes_in),
            flows: report.flows.live,
            nat_ports: nat_ports(&report),
            units: units(world).len(),
        };
        self.at_second = now;
        self.seconds.push(second);
        second
    }

    /// Returns the content of the live view.
    pub fn now(&mut self, world: &DemoNetwork, elapsed_ns: u64) -> LiveSample<'_> {
        let event = self.event();
        let report = world.report();
        let (now, before) = (Totals::of(&report), self.at_draw);
        let seconds = (elapsed_ns - self.drawn_ns).max(1) as f64 / 1e9;
        let packets_per_second = (now.packets_in - before.packets_in) as f64 / seconds;
        let bits_per_second = 8.0 * (now.bytes_in - before.bytes_in) as f64 / seconds;
        if self.throughput.len() == THROUGHPUT_MAX {
            self.throughput.remove(0);
        }
        self.throughput.push(packets_per_second);
        let counted = servers(world);
        let recent: Vec<_> = counted
            .iter()
            .zip(&self.servers_at_draw)
            .map(|(server, before)| server.packets - before)
            .collect();
        let all = recent.iter().sum::<u64>().max(1) as f64;
        self.at_draw = now;
        self.drawn_ns = elapsed_ns;
        self.servers_at_draw = counted.iter().map(|server| server.packets).collect();
        LiveSample {
            elapsed_ns,
            nat_ports: nat_ports(&report),
            moved: moved(&report),
            report,
            units: units(world),
            packets_per_second,
            bits_per_second,
            servers: self.servers(counted),
            shares: recent.into_iter().map(|packets| packets as f64 / all).collect(),
            event,
            throughput: &self.throughput,
        }
    }

    /// Describes the latest event.
    pub fn event(&self) -> &'static str {
        match self.servers_at_half.is_empty() {
            true => "all servers are up; halfway, web2 will go down",
            false => "web2 went down; its flows continue on the other servers, and clients notice nothing",
        }
    }

    fn servers(&self, counted: Vec<Counted>) -> Vec<Server> {
        let half_way = !self.servers_at_half.is_empty();
        let mut servers = Vec::new();
        for (i, server) in counted.into_iter().enumerate() {
            let before = self.servers_at_half.get(i).copied().unwrap_or(server.packets);
            servers.push(Server {
                went_down: half_way && server.name == self.victim,
                name: server.name,
                connections: server.connections,
                packets_before: before,
                packets_after: server.packets - before,
            });
        }
        servers
    }
}

impl Outcome {
    /// Ends the demonstration, `elapsed_ns` after its start.
    pub fn new(
        history: History,
        world: DemoNetwork,
        elapsed_ns: u64,
        took: Duration,
    ) -> anyhow::Result<Outcome> {
        let servers = history.servers(servers(&world));
        let answers_unsent = world.unsent();
        let mut report = world.finish()?;
        for time in [&mut report.first_packet_ns, &mut report.last_packet_ns].into_iter().flatten() {
            *time = time.saturating_sub(START_NS);
        }
        Ok(Outcome {
            seconds: elapsed_ns as f64 / 1e9,
            flows_moved: moved(&report),
            report,
            servers,
            answers_unsent,
            each_second: history.seconds,
            took,
        })
    }
}

impl Totals {
    fn of(report: &Report) -> Totals {
        Totals {
            packets_in: report.packets_in,
            packets_out: report.packets_out,
            dropped: report.dropped(),
            bytes_in: report.bytes_in,
        }
    }
}

/// Counters of a server in the load balancer.
struct Counted {
    name: String,
    connections: u64,
    packets: u64,
}

/// Returns the counters of the servers, in the policy's order.
fn servers(world: &DemoNetwork) -> Vec<Counted> {
    let mut servers: Vec<Counted> = Vec::new();
    for stage in world.assembly().graph.stages() {
        for counter in stage.shared().counters.iter() {
            // `SERVICE/SERVER`
            let Some((_, server)) = counter.label.filter(|(of, _)| of.label == "server") else { continue };
            let server = server.rsplit('/').next().unwrap_or(server);
            if servers.last().is_none_or(|last| last.name != server) {
                servers.push(Counted { name: server.to_owned(), connections: 0, packets: 0 });
            }
            let Some(last) = servers.last_mut() else { continue };
            match counter.declared.name {
                "connections" => last.connections += counter.count,
                "packets" => last.packets += counter.count,
                _ => {}
            }
        }
    }
    servers
}

/// Returns the running units: number, load as a share of capacity, flows.
fn units(world: &DemoNetwork) -> Vec<(u16, f64, u32)> {
    world.unit_loads().into_iter().map(|(unit, load, flows)| (unit.0, load, flows)).collect()
}

fn moved(report: &Report) -> u64 {
    report
        .functions
        .iter()
        .filter_map(|function| function.counters.get("flows_moved"))
        .map(|counter| counter.count)
        .sum()
}

fn nat_ports(report: &Report) -> u64 {
    let pools = report.functions.iter().filter_map(|function| function.pools.get("ports"));
    pools.map(|pool| u64::from(pool.in_use)).sum()
}
