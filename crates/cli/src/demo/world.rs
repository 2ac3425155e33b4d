//! The environment of the graph: clients, servers that answer, and the delay between them.

use std::collections::VecDeque;

use anyhow::Context;
use io::traffic::{Generator, Responder, TrafficProfile};
use nf::{Alert, Event, FlowReport};
use packet::{LinkType, Packet};
use protocol::message::UnitId;
use runtime::elastic::UnitsConfig;
use runtime::{Assembly, Frame, Ingress, Output, Report, Runner};

use observe::error::SinkError;
use observe::sinks::Sinks;

/// Time of the first packet.
pub const START_NS: u64 = 1_000_000_000;

/// Time from a packet's departure to the arrival of its reply.
const ROUND_TRIP_NS: u64 = 2_000_000;

/// Maximum time between flushes, shorter than the round trip, so that replies are never late.
const FLUSH_NS: u64 = ROUND_TRIP_NS / 2;

/// Maximum number of pending replies; further ones are counted and not sent.
pub const PENDING_MAX: usize = 65_536;

/// Ports of the demonstration's policy.
const INSIDE: u16 = 0;
const OUTSIDE: u16 = 1;

/// Clients, graph and servers.
pub struct DemoNetwork {
    clients: Generator,
    tide: LoadCurve,
    /// Next frame of the clients.
    next: Option<Next>,
    runner: Runner,
    outside: Outside,
    flushed_ns: u64,
}

struct Next {
    timestamp_ns: u64,
    data: Vec<u8>,
}

/// Receives the packets that leave the graph, and answers those to servers.
struct Outside {
    servers: Responder,
    /// Pending replies, ordered by arrival; all have the same delay.
    pending: VecDeque<(u64, Vec<u8>)>,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
    unsent: u64,
    sinks: Sinks,
}

impl DemoNetwork {
    /// Puts a graph on units between clients and servers; departing packets also go to `sinks`.
    pub fn new(
        profile: &TrafficProfile,
        tide: LoadCurve,
        assembly: Assembly,
        config: UnitsConfig,
        sinks: Sinks,
    ) -> anyhow::Result<DemoNetwork> {
        DemoNetwork::with_runner(profile, tide, Runner::on_units(assembly, "demo.rvl", config)?, sinks)
    }

    /// Puts a runner between clients and servers; departing packets also go to `sinks`.
    pub fn with_runner(
        profile: &TrafficProfile,
        tide: LoadCurve,
        runner: Runner,
        sinks: Sinks,
    ) -> anyhow::Result<DemoNetwork> {
        let outside = Outside {
            servers: Responder::new(profile.answer),
            pending: VecDeque::new(),
            spare: Vec::new(),
            unsent: 0,
            sinks,
        };
        let mut world = DemoNetwork {
            clients: Generator::new(profile)?,
            tide,
            next: Some(Next { timestamp_ns: 0, data: Vec::new() }),
            runner,
            outside,
            flushed_ns: START_NS,
        };
        world.fetch();
        Ok(world)
    }

    /// Advances the time to `until_ns`, and processes everything before it.
    pub fn advance(&mut self, until_ns: u64) -> anyhow::Result<()> {
        loop {
            let client_ns = self.next.as_ref().map_or(u64::MAX, |next| next.timestamp_ns);
            let server_ns = self.outside.pending.front().map_or(u64::MAX, |&(at_ns, _)| at_ns);
            let now_ns = client_ns.min(server_ns);
            let flush_ns = self.flushed_ns + FLUSH_NS;
            if now_ns.min(until_ns) >= flush_ns {
                // Flushed packets may lead to replies, but none before the next flush.
                self.runner.flush(&mut self.outside)?;
                self.flushed_ns = flush_ns;
                continue;
            }
            if now_ns >= until_ns {
                return Ok(self.runner.flush(&mut self.outside)?);
            }
            if client_ns <= server_ns {
                self.receive_client()?;
            } else {
                self.receive_server()?;
            }
        }
    }

    /// Sends a command to a function.
    pub fn command(&mut self, function: &str, command: &str) -> anyhow::Result<()> {
        let stage = self.runner.assembly().names.iter().position(|name| name == function);
        let stage = stage.with_context(|| format!("the policy has no function `{function}`"))?;
        Ok(self.runner.control(stage, command)?)
    }

    /// Returns the report so far.
    pub fn report(&self) -> Report {
        self.runner.report()
    }

    /// Returns each running unit with its load, as a share of its capacity, and its flows.
    pub fn unit_loads(&self) -> Vec<(UnitId, f64, u32)> {
        self.runner.unit_loads()
    }

    /// Returns the assembled policy.
    pub fn assembly(&self) -> &Assembly {
        self.runner.assembly()
    }

    /// Replies that were not sent because too many were pending.
    pub fn unsent(&self) -> u64 {
        self.outside.unsent
    }

    /// Ends all flows, and completes the capture.
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

    /// Generates the clients' next frame.
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

/// The load over time: it rises from a tenth of the rate to all of it, and falls again.
pub struct LoadCurve {
    length_ns: f64,
    /// The previous frame: its time by the generator, and its time of arrival.
    sent_ns: f64,
    came_ns: f64,
}

/// Lowest share of the rate.
const LOW: f64 = 0.1;

/// Share of the time at the full rate.
const HIGH_FOR: f64 = 0.2;

impl LoadCurve {
    /// Creates a curve of this length.
    pub fn new(length_ns: u64) -> LoadCurve {
        LoadCurve { length_ns: length_ns as f64, sent_ns: 0.0, came_ns: 0.0 }
    }

    /// Returns the arrival time of a frame that the generator sends at `at_ns`. Times ascend.
    fn at(&mut self, at_ns: u64) -> u64 {
        let sent_ns = at_ns.saturating_sub(START_NS) as f64;
        self.came_ns += (sent_ns - self.sent_ns) / self.level();
        self.sent_ns = sent_ns;
        START_NS + self.came_ns as u64
    }

    /// Returns the current share of the rate.
    fn level(&self) -> f64 {
        let from_end = 1.0 - (2.0 * self.came_ns / self.length_ns - 1.0).abs();
        let risen = (from_end / (1.0 - HIGH_FOR)).clamp(0.0, 1.0);
        LOW + (1.0 - LOW) * risen
    }
}

fn frame(timestamp_ns: u64, data: &[u8]) -> Frame<'_> {
    // The longest frame is shorter than 10,000 bytes.
    Frame { timestamp_ns, link: LinkType::Ethernet, wire_len: data.len() as u32, data }
}

impl Output for Outside {
    type Error = SinkError;

    fn packet(&mut self, port: u16, packet: &Packet) -> Result<(), SinkError> {
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

    fn alert(&mut self, function: &str, alert: &Alert) -> Result<(), SinkError> {
        self.sinks.alert(function, alert)
    }

    fn event(&mut self, function: &str, event: Event<'_>) -> Result<(), SinkError> {
        self.sinks.event(function, event)
    }

    fn flow(&mut self, report: &FlowReport, now_ns: u64) -> Result<(), SinkError> {
        self.sinks.flow(report, now_ns)
    }
}
