//! What is around the chain: clients that send, servers that answer what reaches them, and the time
//! between.

use std::collections::VecDeque;

use anyhow::Context;
use io::traffic::{Generator, Responder, TrafficProfile};
use nf::{Alert, Event, FlowReport};
use packet::{LinkType, Packet};
use protocol::message::UnitId;
use runtime::elastic::UnitsConfig;
use runtime::{Assembly, Frame, Ingress, Output, Report, Runner};

use crate::sinks::Sinks;

/// The time of the first packet.
pub const START_NS: u64 = 1_000_000_000;

/// From a packet's arrival at a server to its answer's arrival at the chain.
const ROUND_TRIP_NS: u64 = 2_000_000;

/// The chain is flushed at least this often, so that an answer's time is always ahead.
const FLUSH_NS: u64 = ROUND_TRIP_NS / 2;

/// Answers under way at most; further ones are not sent, and counted.
pub const PENDING_MAX: usize = 65_536;

/// Ports of the demonstration's policy.
const INSIDE: u16 = 0;
const OUTSIDE: u16 = 1;

/// Clients, the chain, and servers.
pub struct World {
    clients: Generator,
    tide: Tide,
    /// The client frame that comes next.
    next: Option<Next>,
    runner: Runner,
    outside: Outside,
    flushed_ns: u64,
}

struct Next {
    timestamp_ns: u64,
    data: Vec<u8>,
}

/// Takes what leaves the chain: to servers, which answer, or to clients.
struct Outside {
    servers: Responder,
    /// Answers under way, in order of time: all are under way for as long.
    pending: VecDeque<(u64, Vec<u8>)>,
    /// Buffers of answers that have arrived.
    spare: Vec<Vec<u8>>,
    unsent: u64,
    sinks: Sinks,
}

impl World {
    /// Clients with this traffic before a chain on units; what leaves it goes to `sinks` too.
    pub fn new(
        profile: &TrafficProfile,
        tide: Tide,
        assembly: Assembly,
        config: UnitsConfig,
        sinks: Sinks,
    ) -> anyhow::Result<World> {
        let outside = Outside {
            servers: Responder::new(profile.answer),
            pending: VecDeque::new(),
            spare: Vec::new(),
            unsent: 0,
            sinks,
        };
        let mut world = World {
            clients: Generator::new(profile)?,
            tide,
            next: Some(Next { timestamp_ns: 0, data: Vec::new() }),
            runner: Runner::on_units(assembly, "demo.rvl", config)?,
            outside,
            flushed_ns: START_NS,
        };
        world.fetch();
        Ok(world)
    }

    /// Lets time pass to `until_ns`: everything before it happens.
    pub fn advance(&mut self, until_ns: u64) -> anyhow::Result<()> {
        loop {
            let client_ns = self.next.as_ref().map_or(u64::MAX, |next| next.timestamp_ns);
            let server_ns = self.outside.pending.front().map_or(u64::MAX, |&(at_ns, _)| at_ns);
            let now_ns = client_ns.min(server_ns);
            let flush_ns = self.flushed_ns + FLUSH_NS;
            if now_ns.min(until_ns) >= flush_ns {
                // What is flushed may bring answers, but none before the next flush.
                self.runner.flush(&mut self.outside)?;
                self.flushed_ns = flush_ns;
                continue;
            }
            if now_ns >= until_ns {
                return self.runner.flush(&mut self.outside);
            }
            if client_ns <= server_ns {
                self.receive_client()?;
            } else {
                self.receive_server()?;
            }
        }
    }

    /// Carries out an operator's command to a function of the chain.
    pub fn command(&mut self, function: &str, command: &str) -> anyhow::Result<()> {
        let stage = self.runner.assembly().names.iter().position(|name| name == function);
        let stage = stage.with_context(|| format!("the chain has no function `{function}`"))?;
        Ok(self.runner.control(stage, command)?)
    }

    /// What the chain has done so far.
    pub fn report(&self) -> Report {
        self.runner.report()
    }

    /// Returns each running unit with its load, as a share of its capacity, and its flows.
    pub fn unit_loads(&self) -> Vec<(UnitId, f64, u32)> {
        self.runner.unit_loads()
    }

    /// The chain.
    pub fn assembly(&self) -> &Assembly {
        self.runner.assembly()
    }

    /// Answers that were not sent because too many were under way.
    pub fn unsent(&self) -> u64 {
        self.outside.unsent
    }

    /// Ends it: all flows end, and the capture is completed.
    pub fn finish(mut self) -> anyhow::Result<Report> {
        let report = self.runner.finish(&mut self.outside)?;
        let ended = self.outside.sinks.finish(report.last_packet_ns.unwrap_or(0))?;
        match ended.complaints.into_iter().next() {
            Some(complaint) => anyhow::bail!("{complaint}"),
            None => Ok(report),
        }
    }

    fn receive_client(&mut self) -> anyhow::Result<()> {
        let Some(next) = &self.next else { return Ok(()) };
        self.runner.receive(
            frame(next.timestamp_ns, &next.data),
            Ingress::Port(INSIDE),
            &mut self.outside,
        )?;
        self.fetch();
        Ok(())
    }

    fn receive_server(&mut self) -> anyhow::Result<()> {
        let Some((at_ns, data)) = self.outside.pending.pop_front() else { return Ok(()) };
        self.runner.receive(frame(at_ns, &data), Ingress::Port(OUTSIDE), &mut self.outside)?;
        self.outside.spare.push(data);
        Ok(())
    }

    /// Asks the clients for their next frame.
    fn fetch(&mut self) {
        let Some(frame) = self.clients.next() else {
            self.next = None;
            return;
        };
        if let Some(next) = &mut self.next {
            next.timestamp_ns = self.tide.at(frame.timestamp_ns);
            next.data.clear();
            next.data.extend_from_slice(frame.data);
        }
    }
}

/// How what clients send comes and goes: a tenth of their rate at first, all of it half way, and a
/// tenth again in the end.
pub struct Tide {
    length_ns: f64,
    /// The frame before: when the generator sent it, and when it came.
    sent_ns: f64,
    came_ns: f64,
}

/// The share of the rate at low tide.
const LOW: f64 = 0.1;

/// How much of the time the tide is neither coming nor going.
const HIGH_FOR: f64 = 0.2;

impl Tide {
    /// One that takes so long.
    pub fn new(length_ns: u64) -> Tide {
        Tide { length_ns: length_ns as f64, sent_ns: 0.0, came_ns: 0.0 }
    }

    /// When a frame comes that was to be sent at this time; none was to be sent later before.
    fn at(&mut self, at_ns: u64) -> u64 {
        let sent_ns = at_ns.saturating_sub(START_NS) as f64;
        self.came_ns += (sent_ns - self.sent_ns) / self.level();
        self.sent_ns = sent_ns;
        START_NS + self.came_ns as u64
    }

    /// The share of the rate that is sent now.
    fn level(&self) -> f64 {
        let from_end = 1.0 - (2.0 * self.came_ns / self.length_ns - 1.0).abs();
        let risen = (from_end / (1.0 - HIGH_FOR)).clamp(0.0, 1.0);
        LOW + (1.0 - LOW) * risen
    }
}

fn frame(timestamp_ns: u64, data: &[u8]) -> Frame<'_> {
    // The longest frame is below 10,000 bytes.
    Frame { timestamp_ns, link: LinkType::Ethernet, wire_len: data.len() as u32, data }
}

impl Output for Outside {
    type Error = anyhow::Error;

    fn packet(&mut self, port: u16, packet: &Packet) -> anyhow::Result<()> {
        if port == OUTSIDE
            && let Ok(answer) = self.servers.respond(packet.data())
        {
            if self.pending.len() == PENDING_MAX {
                self.unsent += 1;
            } else {
                let mut data = self.spare.pop().unwrap_or_default();
                data.clear();
                data.extend_from_slice(answer);
                self.pending.push_back((packet.meta().transit.timestamp_ns + ROUND_TRIP_NS, data));
            }
        }
        self.sinks.packet(port, packet)
    }

    fn alert(&mut self, function: &str, alert: &Alert) -> anyhow::Result<()> {
        self.sinks.alert(function, alert)
    }

    fn event(&mut self, function: &str, event: Event<'_>) -> anyhow::Result<()> {
        self.sinks.event(function, event)
    }

    fn flow(&mut self, report: &FlowReport, now_ns: u64) -> anyhow::Result<()> {
        self.sinks.flow(report, now_ns)
    }
}
