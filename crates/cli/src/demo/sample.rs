//! The numbers of a demonstration: now, second by second, and in the end.

use std::time::Duration;

use runtime::Report;
use serde::Serialize;

use super::world::{START_NS, World};

/// What a second was like. Answers count as packets in, too.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Second {
    /// How many seconds were over.
    pub second: u64,
    pub packets_in: u64,
    pub packets_out: u64,
    pub dropped: u64,
    /// Bits that came in.
    pub bits_in: u64,
    /// Flows in the table.
    pub flows: u64,
    /// NAT ports in use.
    pub nat_ports: u64,
    /// Units that run.
    pub units: usize,
}

/// A server of the load balancer.
#[derive(Clone, Debug, Serialize)]
pub struct Server {
    pub name: String,
    /// Whether it went down half way.
    pub went_down: bool,
    /// Connections that it was given.
    pub connections: u64,
    /// Packets to it before and after half way.
    pub packets_before: u64,
    pub packets_after: u64,
}

/// What the live view shows.
pub struct Now<'a> {
    pub elapsed_ns: u64,
    pub report: Report,
    /// Since the view was drawn last.
    pub packets_per_second: f64,
    pub bits_per_second: f64,
    pub servers: Vec<Server>,
    /// Share of each server's packets since the view was drawn last, 0 to 1.
    pub shares: Vec<f64>,
    pub nat_ports: u64,
    pub moved: u64,
    /// Each unit that runs: its number, its load as a share of what it can do, and its flows.
    pub units: Vec<(u16, f64, u32)>,
    /// What happened last.
    pub event: &'a str,
    /// Packets per second, a value for each time that the view was drawn.
    pub throughput: &'a [f64],
}

/// What the demonstration came to.
#[derive(Serialize)]
pub struct Outcome {
    /// How much traffic there was, in seconds.
    pub seconds: f64,
    pub report: Report,
    pub servers: Vec<Server>,
    /// Flows that moved from the server that went down to another.
    pub flows_moved: u64,
    /// Answers that were not sent, because too many were under way.
    pub answers_unsent: u64,
    pub each_second: Vec<Second>,
    /// How long it took, in seconds: more than `seconds` if the machine is too slow. Depends on the
    /// machine.
    #[serde(skip)]
    pub took: Duration,
}

/// Remembers what was, to tell what has changed.
pub struct History {
    victim: &'static str,
    seconds: Vec<Second>,
    /// Counters at the last full second, and when the view was drawn last.
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

/// Values of the throughput's history that are kept.
const THROUGHPUT_MAX: usize = 60;

impl History {
    /// Nothing has happened yet; `victim` is the server that will go down.
    pub fn new(world: &World, victim: &'static str) -> History {
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

    /// Half of the time is over: a server is about to go down.
    pub fn half_way(&mut self, world: &World) {
        self.servers_at_half = servers(world).iter().map(|server| server.packets).collect();
    }

    /// Another second is over.
    pub fn second(&mut self, world: &World) -> Second {
        let report = world.report();
        let (now, before) = (Totals::of(&report), self.at_second);
        let second = Second {
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

    /// How things stand, for the live view.
    pub fn now(&mut self, world: &World, elapsed_ns: u64) -> Now<'_> {
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
        Now {
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

    /// What happened last, in words.
    pub fn event(&self) -> &'static str {
        match self.servers_at_half.is_empty() {
            true => "all servers are up; half way, web2 will go down",
            false => "web2 went down: its flows went on with the other servers, and clients notice nothing",
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
    /// Ends the demonstration, `elapsed_ns` into it.
    pub fn new(history: History, world: World, elapsed_ns: u64, took: Duration) -> anyhow::Result<Outcome> {
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

/// What the load balancer has counted of a server.
struct Counted {
    name: String,
    connections: u64,
    packets: u64,
}

/// What the load balancer has counted of its servers, in the policy's order.
fn servers(world: &World) -> Vec<Counted> {
    let mut servers: Vec<Counted> = Vec::new();
    for stage in world.assembly().chain.stages() {
        for group in &stage.shared().groups {
            for (name, &value) in group.names.iter().zip(&group.values) {
                // `SERVICE/SERVER.COUNTER`
                let Some((server, counter)) = name.rsplit_once('.') else { continue };
                let server = server.rsplit('/').next().unwrap_or(server);
                if servers.last().is_none_or(|last| last.name != server) {
                    servers.push(Counted { name: server.to_owned(), connections: 0, packets: 0 });
                }
                let Some(last) = servers.last_mut() else { continue };
                match counter {
                    "connections" => last.connections += value,
                    "packets" => last.packets += value,
                    _ => {}
                }
            }
        }
    }
    servers
}

/// Each unit that runs: its number, its load as a share of what it can do, and its flows.
fn units(world: &World) -> Vec<(u16, f64, u32)> {
    world.unit_loads().into_iter().map(|(unit, load, flows)| (unit.0, load, flows)).collect()
}

fn moved(report: &Report) -> u64 {
    report.functions.iter().filter_map(|function| function.counters.get("flows_moved")).sum()
}

fn nat_ports(report: &Report) -> u64 {
    let pools = report.functions.iter().filter_map(|function| function.pools.get("ports"));
    pools.map(|pool| u64::from(pool.in_use)).sum()
}
