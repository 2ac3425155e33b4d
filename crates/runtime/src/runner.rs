//! The runner: frames in, packets out; run to completion on one thread, or with units on threads of
//! their own.

use std::collections::BTreeMap;
use std::time::Instant;

use hdrhistogram::Histogram;
use nf::{Alert, ControlError, Effects, Event, FlowReport};
use packet::{DropReason, LinkType, Packet, PacketPool, parse};
use protocol::message::UnitId;

use crate::assembly::Assembly;
use crate::backend::{Backend, Core, Inline};
use crate::elastic::{Elastic, ElasticError, Threads, Units, UnitsConfig};
use crate::panics::Processing;
use crate::ports::{Port, Ports};
use crate::report::{PortReport, Report, new_histogram};
use crate::shards::{Part, Shard};
use crate::transport::{Maker, Transport};

/// Frames that are processed together.
pub const BATCH: usize = 64;

/// Buffers of the runner: batches, and what may be held inside.
const BUFFERS: usize = 8 * 1024;

/// A frame that was received.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// When, in nanoseconds.
    pub timestamp_ns: u64,
    /// How its first header is to be read.
    pub link: LinkType,
    /// Its length on the wire.
    pub wire_len: u32,
    /// Its bytes.
    pub data: &'a [u8],
}

/// Which port a frame came in by.
#[derive(Clone, Copy, Debug)]
pub enum Ingress {
    /// This one.
    Port(u16),
    /// The one that its source address or else its interface in the capture says.
    Interface(u32),
}

impl Ingress {
    /// The port that this packet came in by.
    pub fn port<'a>(self, ports: &'a Ports, packet: &mut Packet) -> Option<&'a Port> {
        let port = match self {
            Ingress::Port(number) => ports.number(number),
            Ingress::Interface(interface) => {
                let prefixed = ports.all().iter().any(|port| !port.prefixes.is_empty());
                let source = if prefixed { source_of(packet) } else { None };
                ports.of_captured(interface, source)
            }
        };
        port.or(ports.all().first())
    }
}

/// Is handed what comes out.
pub trait Output {
    /// What can go wrong.
    type Error;
    /// A packet leaves by a port.
    fn packet(&mut self, port: u16, packet: &Packet) -> Result<(), Self::Error>;
    /// An alert was raised, by the function with this name.
    fn alert(&mut self, function: &str, alert: &Alert) -> Result<(), Self::Error>;
    /// The function with this name tells of something that happened in a flow.
    fn event(&mut self, function: &str, event: Event<'_>) -> Result<(), Self::Error>;
    /// A monitor reports a flow; `now_ns` is the time of the run.
    fn flow(&mut self, report: &FlowReport, now_ns: u64) -> Result<(), Self::Error>;
}

/// Runs an assembly over frames.
pub struct Runner {
    assembly: Assembly,
    backend: Box<dyn Backend>,
    name: String,
    pool: PacketPool,
    batch: Vec<Packet>,
    out: Vec<Packet>,
    latency: Histogram<u64>,
    ports: Vec<(u16, PortReport)>,
    alerts: u64,
    events: u64,
    /// Frames that never reached the graph.
    refused: Refused,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    /// How far time has come.
    now_ns: u64,
    busy_s: f64,
    started: Instant,
}

/// Frames that the graph never saw: they are packets in, and drops.
#[derive(Default)]
struct Refused {
    too_big: u64,
    no_buffer: u64,
    one_way: u64,
    /// By a router's port, by reason.
    by_port: BTreeMap<DropReason, u64>,
    bytes: u64,
}

impl Runner {
    /// A runner of this assembly, which reports under `name`.
    pub fn new(assembly: Assembly, name: &str) -> Runner {
        let ports = assembly.ports.all().iter().map(|port| (port.number, PortReport::default())).collect();
        Runner {
            assembly,
            backend: Box::new(Inline),
            name: name.to_owned(),
            pool: PacketPool::new(BUFFERS),
            batch: Vec::with_capacity(BATCH),
            out: Vec::with_capacity(2 * BATCH),
            latency: new_histogram(),
            ports,
            alerts: 0,
            events: 0,
            refused: Refused::default(),
            first_ns: None,
            last_ns: None,
            now_ns: 0,
            busy_s: 0.0,
            started: Instant::now(),
        }
    }

    /// The same on units that come and go with the traffic.
    ///
    /// # Errors
    /// If the configuration makes no sense, or there is no memory for the units' tables.
    pub fn on_units(assembly: Assembly, name: &str, config: UnitsConfig) -> Result<Runner, ElasticError> {
        let mut runner = Runner::new(assembly, name);
        runner.backend = Box::new(Units::new(config, &runner.assembly.graph)?);
        Ok(runner)
    }

    /// The same on units that have threads of their own, with graphs that `make` makes: of the same
    /// policy, with the same seed.
    ///
    /// # Errors
    /// If the configuration makes no sense, or threads or graphs cannot be made.
    pub fn on_threads(
        assembly: Assembly,
        name: &str,
        config: UnitsConfig,
        make: Maker,
    ) -> Result<Runner, ElasticError> {
        let mut runner = Runner::new(assembly, name);
        runner.backend = Box::new(Threads::new(config, &mut runner.assembly.graph, make)?);
        Ok(runner)
    }

    /// Creates a runner on units that are reached through this transport.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn on_transport<T: Transport + 'static>(
        assembly: Assembly,
        name: &str,
        config: UnitsConfig,
        transport: T,
    ) -> Result<Runner, ElasticError> {
        let mut runner = Runner::new(assembly, name);
        let dispatcher = config.router_of_threads(runner.assembly.graph.options());
        runner.backend = Box::new(Elastic::with_transport(config, dispatcher, transport)?);
        Ok(runner)
    }

    /// The runner of one part of several, for a thread of its own: what it receives of another
    /// part's flows goes there.
    pub fn of_part(part: Part) -> Runner {
        let Part { assembly, name, shard } = part;
        let mut runner = Runner::new(assembly, &name);
        runner.backend = shard;
        runner
    }

    /// Its part of the flows, if others have other parts.
    pub fn shard(&self) -> Option<&Shard> {
        self.backend.shard()
    }

    pub(crate) fn shard_mut(&mut self) -> Option<&mut Shard> {
        self.backend.shard_mut()
    }

    /// Times from the start of packets' batches until those were done.
    pub(crate) fn latency(&self) -> &Histogram<u64> {
        &self.latency
    }

    /// How long packets were processed, in seconds.
    pub(crate) fn busy_s(&self) -> f64 {
        self.busy_s
    }

    /// Returns each running unit with its load, as a share of its capacity, and its flows.
    pub fn unit_loads(&self) -> Vec<(UnitId, f64, u32)> {
        self.backend.unit_loads()
    }

    /// What is run.
    pub fn assembly(&self) -> &Assembly {
        &self.assembly
    }

    /// Carries out an operator's command to the function with this number in the graph.
    ///
    /// # Errors
    /// If the function does not know it, or there is no such function.
    pub fn control(&mut self, stage: usize, command: &str) -> Result<(), ControlError> {
        let _processing = Processing::begin();
        let Some(function) = self.assembly.graph.stage_mut(stage) else {
            return Err(ControlError(format!("the graph has no function {stage}")));
        };
        function.control(command)?;
        self.backend.control(stage, command);
        Ok(())
    }

    /// Takes a frame in; it is processed with its batch.
    pub fn receive<O: Output>(
        &mut self,
        frame: Frame<'_>,
        from: Ingress,
        output: &mut O,
    ) -> Result<(), O::Error> {
        self.note(frame, output)?;
        if let Some(packet) = self.admit(frame, from) {
            self.batch.push(packet);
        }
        if self.batch.len() == BATCH { self.flush(output) } else { Ok(()) }
    }

    /// A frame has come: time has, too, and there may have to be room for it.
    fn note<O: Output>(&mut self, frame: Frame<'_>, output: &mut O) -> Result<(), O::Error> {
        self.first_ns.get_or_insert(frame.timestamp_ns);
        self.last_ns = self.last_ns.max(Some(frame.timestamp_ns));
        self.now_ns = self.now_ns.max(frame.timestamp_ns);
        if self.pool.has_room(frame.data.len()) {
            return Ok(());
        }
        self.pass_time(frame.timestamp_ns, output)
    }

    /// A packet of a frame, placed at its port; or none, counted.
    pub fn admit(&mut self, frame: Frame<'_>, from: Ingress) -> Option<Packet> {
        let Some(mut packet) = self.pool.take(frame.data) else {
            self.refused.bytes += frame.data.len() as u64;
            let too_big = frame.data.len() + packet::HEADROOM > packet::LARGE_ROOM;
            *(if too_big { &mut self.refused.too_big } else { &mut self.refused.no_buffer }) += 1;
            return None;
        };
        let meta = packet.meta_mut();
        meta.transit.timestamp_ns = frame.timestamp_ns;
        meta.wire_len = frame.wire_len.max(frame.data.len() as u32);
        meta.link = frame.link;
        let port = from.port(&self.assembly.ports, &mut packet)?;
        let meta = packet.meta_mut();
        meta.transit.ingress = port.number;
        meta.transit.side = port.side;
        let counted = port_report(&mut self.ports, port.number);
        counted.packets_in += 1;
        counted.bytes_in += frame.data.len() as u64;
        if !self.assembly.both_ways && port.side == packet::Side::Outside {
            self.refused.one_way += 1;
            self.refused.bytes += frame.data.len() as u64;
            self.pool.give(packet);
            return None;
        }
        Some(packet)
    }

    /// A frame of this length came in by the port, which drops it.
    pub(crate) fn refuse(&mut self, port: u16, len: usize, reason: DropReason) {
        let counted = port_report(&mut self.ports, port);
        counted.packets_in += 1;
        counted.bytes_in += len as u64;
        self.refused.bytes += len as u64;
        *self.refused.by_port.entry(reason).or_default() += 1;
        self.backend.count_refused();
    }

    /// Processes what was received, and hands out what comes of it.
    pub fn flush<O: Output>(&mut self, output: &mut O) -> Result<(), O::Error> {
        let processing = Processing::begin();
        let count = self.batch.len() as u64;
        let start = Instant::now();
        let core = Core { graph: &mut self.assembly.graph, out: &mut self.out, pool: &mut self.pool };
        self.backend.process(&mut self.batch, core);
        drop(processing);
        let took = start.elapsed();
        self.busy_s += took.as_secs_f64();
        if count > 0 && !self.backend.is_deferred() {
            // Above the histogram's bound it saturates, so this cannot fail.
            self.latency.saturating_record_n(took.as_nanos().min(u128::from(u64::MAX)) as u64, count);
        }
        self.emit(output)
    }

    /// Processes one packet alone, on the assembly's graph whatever it runs on else, and tells
    /// `observer` all about it.
    pub fn observe<O: Output>(
        &mut self,
        frame: Frame<'_>,
        from: Ingress,
        observer: &mut dyn graph::Observer,
        output: &mut O,
    ) -> Result<(), O::Error> {
        self.note(frame, output)?;
        if let Some(packet) = self.admit(frame, from) {
            self.assembly.graph.observe(packet, &mut self.out, &mut self.pool, observer);
        }
        self.emit(output)
    }

    /// Processes what was received, and lets time pass to `now_ns`, beyond which nothing has come:
    /// flows end that were idle for too long, and buffers come back of fragments that have waited
    /// too long. Else a flood of fragments that took all buffers would keep them, as time passes in
    /// the graph only with packets.
    pub fn pass_time<O: Output>(&mut self, now_ns: u64, output: &mut O) -> Result<(), O::Error> {
        self.flush(output)?;
        self.now_ns = self.now_ns.max(now_ns);
        let processing = Processing::begin();
        let core = Core { graph: &mut self.assembly.graph, out: &mut self.out, pool: &mut self.pool };
        self.backend.handle_timeout(now_ns, core);
        drop(processing);
        self.emit(output)
    }

    /// Whether packets are on their way through units of other threads, or come from other workers:
    /// they come out with what is received next, or is processed.
    pub fn has_under_way(&self) -> bool {
        self.backend.has_pending()
    }

    /// Processes what was received, waits until it is through, and hands out what comes of it.
    pub fn settle<O: Output>(&mut self, output: &mut O) -> Result<(), O::Error> {
        self.flush(output)?;
        let core = Core { graph: &mut self.assembly.graph, out: &mut self.out, pool: &mut self.pool };
        self.backend.settle(core);
        self.emit(output)
    }

    /// Ends the run: what is under way is processed, all flows end, and the report is made. Of
    /// several parts the first one ends last: it has what functions shared for itself then, and
    /// reports it.
    pub fn finish<O: Output>(&mut self, output: &mut O) -> Result<Report, O::Error> {
        self.flush(output)?;
        let live = self.assembly.graph.counters().flows_live;
        let mut is_over = false;
        while !is_over {
            let core = Core { graph: &mut self.assembly.graph, out: &mut self.out, pool: &mut self.pool };
            is_over = self.backend.finish(core);
            self.emit(output)?;
        }
        is_over = false;
        while !is_over {
            let processing = Processing::begin();
            is_over = self.assembly.graph.finish(&mut self.pool);
            drop(processing);
            self.emit(output)?;
        }
        let mut report = self.report();
        report.flows.live += live;
        Ok(report)
    }

    /// A panic ended what this was doing: it goes on with what comes next. Buffers that were lost
    /// with packets are made again.
    pub(crate) fn recover(&mut self) {
        self.pool.fill(BUFFERS);
    }

    /// The report so far, with what functions share with those of other parts, if this is the first
    /// part; the others wait meanwhile.
    pub(crate) fn report_with_shared(&mut self) -> Report {
        self.ask_for_figures();
        let is_first = self.shard().is_some_and(|shard| shard.place().0 == 0);
        if is_first {
            self.assembly.graph.fetch_shared();
        }
        let report = self.report();
        if is_first {
            self.assembly.graph.give_shared_back();
        }
        report
    }

    /// The report so far.
    pub fn report(&self) -> Report {
        let seed = self.assembly.shows_seed.then_some(self.assembly.seed);
        let mut report = Report::of(&self.name, seed, &self.assembly.graph, &self.assembly.names);
        let refused = [
            (DropReason::TooBig, self.refused.too_big),
            (DropReason::NoBuffer, self.refused.no_buffer),
            (DropReason::Policy, self.refused.one_way),
        ];
        let by_port = self.refused.by_port.iter().map(|(&reason, &count)| (reason, count));
        for (reason, count) in refused.into_iter().chain(by_port).filter(|&(_, count)| count > 0) {
            report.packets_in += count;
            *report.drops.entry(reason.name()).or_default() += count;
        }
        report.bytes_in += self.refused.bytes;
        for (number, counted) in &self.ports {
            let name = self.assembly.ports.number(*number).map_or_else(String::new, |port| port.name.clone());
            report.ports.insert(name, counted.clone());
        }
        report.alerts = self.alerts;
        report.events = self.events;
        report.first_packet_ns = self.first_ns;
        report.last_packet_ns = self.last_ns;
        report.timing.seconds = self.started.elapsed().as_secs_f64();
        if self.busy_s > 0.0 {
            report.timing.packets_per_second = report.packets_in as f64 / self.busy_s;
        }
        self.backend.add_to_report(&mut report, &self.assembly.names);
        report.set_latency(&self.latency);
        report
    }

    /// Asks units on threads of their own for what they have counted, which a report a little later
    /// has.
    pub fn ask_for_figures(&mut self) {
        self.backend.ask_for_figures();
    }

    /// Hands out what the graph put out.
    fn emit<O: Output>(&mut self, output: &mut O) -> Result<(), O::Error> {
        self.backend.record_latency(&self.out, &mut self.latency);
        let mut result = Ok(());
        for mut packet in self.out.drain(..) {
            let port = self.assembly.ports.egress(&packet);
            packet.meta_mut().transit.egress = port;
            let counted = port_report(&mut self.ports, port);
            counted.packets_out += 1;
            counted.bytes_out += packet.len() as u64;
            if result.is_ok() {
                result = output.packet(port, &packet);
            }
            self.pool.give(packet);
        }
        result?;
        self.backend.return_buffers(&mut self.pool, BUFFERS);
        self.pool.trim(BUFFERS);
        let mut told = Told {
            names: &self.assembly.names,
            now_ns: self.now_ns,
            alerts: &mut self.alerts,
            events: &mut self.events,
        };
        if let Some(effects) = self.backend.effects_mut() {
            effects.drain(..).try_for_each(|mut effects| told.tell(&mut effects, output))?;
        }
        told.tell(self.assembly.graph.effects_mut(), output)
    }
}

/// What is told of beside packets.
struct Told<'a> {
    names: &'a [String],
    now_ns: u64,
    alerts: &'a mut u64,
    events: &'a mut u64,
}

impl Told<'_> {
    /// Hands out alerts, events and flow reports.
    fn tell<O: Output>(&mut self, effects: &mut Effects, output: &mut O) -> Result<(), O::Error> {
        let name = |stage: u16| self.names.get(stage as usize).map_or("", String::as_str);
        *self.alerts += effects.alerts.len() as u64;
        *self.events += effects.events.len() as u64;
        let mut alerts_given = 0;
        for event in effects.events.iter() {
            let before = effects.alerts.get(alerts_given..event.alerts_before).unwrap_or_default();
            before.iter().try_for_each(|alert| output.alert(name(alert.stage), alert))?;
            alerts_given = alerts_given.max(event.alerts_before);
            output.event(name(event.stage), event)?;
        }
        let rest = effects.alerts.get(alerts_given..).unwrap_or_default();
        rest.iter().try_for_each(|alert| output.alert(name(alert.stage), alert))?;
        effects.alerts.clear();
        effects.events.clear();
        effects.reports.drain(..).try_for_each(|report| output.flow(&report, self.now_ns))
    }
}

fn port_report(ports: &mut [(u16, PortReport)], number: u16) -> &mut PortReport {
    let at = ports.iter().position(|&(port, _)| port == number).unwrap_or(0);
    &mut ports[at].1
}

/// The source address of a packet that has not been parsed yet, if it has one.
fn source_of(packet: &mut Packet) -> Option<packet::Addr> {
    let parser = packet::Parser::new(packet::FlowHasher::new(0));
    parser.parse(packet).ok()?;
    (packet.meta().version != 0).then(|| parse::ends(packet).0.addr)
}
