//! The generator: assembles flows, attacks and time into frames.

use super::attack::Attacker;
use super::contents::Contents;
use super::error::ProfileError;
use super::flow::{Segment, Step};
use super::frame::{AddressPair, BUFFER_BYTES, Buffer, Echo, Envelope, Tcp};
use super::generated::{Counters, FrameKind, GeneratedFrame};
use super::population::Population;
use super::profile::{Popularity, ServerAnswer, TrafficProfile};
use super::random::{Random, Zipf};
use super::schedule::Schedule;

/// The port on the clients' side.
const CLIENT_PORT: u16 = 0;
/// The port on the servers' side.
const SERVER_PORT: u16 = 1;

/// Yields the frames of a [`TrafficProfile`]. It does not allocate after the first flows have
/// begun.
#[derive(Debug)]
pub struct Generator {
    schedule: Schedule,
    limits: Limits,
    population: Population,
    popularity: FlowPicker,
    contents: Contents,
    attacker: Attacker,
    to_server: Envelope,
    replies: bool,
    answer: ServerAnswer,
    counters: Counters,
    buffer: Box<Buffer>,
}

impl Generator {
    /// Prepares the traffic of a profile.
    ///
    /// # Errors
    /// [`ProfileError`] if the profile contradicts itself or a limit.
    pub fn new(profile: &TrafficProfile) -> Result<Generator, ProfileError> {
        profile.check()?;
        let stream = |number| Random::stream(profile.seed, number);
        let to_server = Envelope {
            source_mac: profile.addresses.client_mac,
            destination_mac: profile.addresses.server_mac,
            vlan: profile.vlan,
            addresses: AddressPair::V4 { source: [0; 4], destination: [0; 4] },
            ident: 0,
        };
        Ok(Generator {
            schedule: Schedule::new(profile, stream(0)),
            limits: Limits::new(profile),
            population: Population::new(profile, stream(1), stream(2))?,
            popularity: FlowPicker::new(profile, stream(3)),
            contents: Contents::new(profile, stream(4)),
            attacker: Attacker::new(profile.attacks, stream(5)),
            to_server,
            replies: profile.replies,
            answer: profile.answer,
            counters: Counters::default(),
            buffer: Box::new([0; BUFFER_BYTES]),
        })
    }

    /// Returns the next frame, or `None` when the profile's packets or time are used up.
    #[expect(clippy::should_implement_trait, reason = "an Iterator's items cannot borrow from it")]
    pub fn next(&mut self) -> Option<GeneratedFrame<'_>> {
        if self.counters.frames >= self.limits.frames {
            return None;
        }
        self.population.admit(&mut self.schedule, &mut self.counters);
        let timestamp_ns = self.schedule.now_ns();
        if timestamp_ns >= self.limits.end_ns {
            return None;
        }
        let (port, kind, length) = match self.attacker.choose() {
            Some(kind) => {
                let endpoints = &self.population.endpoints;
                (CLIENT_PORT, kind, self.attacker.write(kind, self.to_server, endpoints, &mut self.buffer))
            }
            None => self.write_flow_packet(),
        };
        self.schedule.advance(length);
        self.counters.frames += 1;
        self.counters.bytes += length as u64;
        Some(GeneratedFrame { timestamp_ns, port, kind, data: &self.buffer[..length] })
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Writes the next packet of some flow; returns its port, kind and length.
    fn write_flow_packet(&mut self) -> (u16, FrameKind, usize) {
        let index = self.popularity.index(self.population.flows.len());
        let flow = &mut self.population.flows[index];
        let step = flow.take(&mut self.contents, self.answer);
        while !self.replies && flow.awaits_server() {
            flow.take(&mut self.contents, self.answer);
        }
        let ends = flow.ends;
        let is_over = flow.is_over();
        let addresses = self.population.endpoints.addresses(&ends);
        let (port, envelope, ports) = match step.from_client {
            true => {
                let envelope = Envelope { addresses, ident: step.ident, ..self.to_server };
                (CLIENT_PORT, envelope, (ends.client_port, ends.server_port))
            }
            false => {
                let envelope = Envelope {
                    source_mac: self.to_server.destination_mac,
                    destination_mac: self.to_server.source_mac,
                    addresses: addresses.swapped(),
                    ident: step.ident,
                    ..self.to_server
                };
                (SERVER_PORT, envelope, (ends.server_port, ends.client_port))
            }
        };
        let (kind, length) =
            write_step(&step, &envelope, ports, ends.client_port, &self.contents, &mut self.buffer);
        if is_over {
            self.population.end(index, &mut self.counters);
        }
        (port, kind, length)
    }
}

fn write_step(
    step: &Step,
    envelope: &Envelope,
    (source_port, destination_port): (u16, u16),
    echo_ident: u16,
    contents: &Contents,
    buffer: &mut Buffer,
) -> (FrameKind, usize) {
    let payload = contents.bytes(step.payload);
    match step.segment {
        Segment::Tcp { sequence, acknowledgement, flags } => {
            let tcp = Tcp { source_port, destination_port, sequence, acknowledgement, flags };
            (FrameKind::Tcp, envelope.tcp(buffer, &tcp, payload))
        }
        Segment::Udp => (FrameKind::Udp, envelope.udp(buffer, source_port, destination_port, payload)),
        Segment::UdpFragment { offset } => {
            let length = envelope.udp_fragment(buffer, source_port, destination_port, payload, offset);
            (FrameKind::Fragment, length)
        }
        Segment::Echo { sequence } => {
            let echo = Echo { is_reply: !step.from_client, ident: echo_ident, sequence };
            (FrameKind::Icmp, envelope.echo(buffer, &echo, payload))
        }
    }
}

/// The end of the traffic.
#[derive(Debug)]
struct Limits {
    frames: u64,
    end_ns: u64,
}

impl Limits {
    fn new(profile: &TrafficProfile) -> Limits {
        let end_ns =
            profile.duration_ns.map_or(u64::MAX, |duration| profile.start_ns.saturating_add(duration));
        Limits { frames: profile.packets.unwrap_or(u64::MAX), end_ns }
    }
}

/// Chooses the flow of the next packet.
#[derive(Debug)]
struct FlowPicker {
    zipf: Option<Zipf>,
    random: Random,
}

impl FlowPicker {
    fn new(profile: &TrafficProfile, random: Random) -> FlowPicker {
        let zipf = match profile.popularity {
            Popularity::Uniform => None,
            Popularity::Zipf(exponent) => Some(Zipf::new(exponent, u64::from(profile.flows))),
        };
        FlowPicker { zipf, random }
    }

    fn index(&mut self, count: usize) -> usize {
        let count = count as u64;
        match &mut self.zipf {
            Some(zipf) => zipf.rank(count, &mut self.random) as usize,
            None => self.random.below(count) as usize,
        }
    }
}
