//! The runner: frames in, packets out, through a backend.

mod ingress;
mod nodes;
mod operate;
mod output;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use hdrhistogram::Histogram;
use nf::ControlError;
use packet::{DropReason, Packet, PacketPool};
use protocol::message::UnitId;

pub use self::ingress::{Frame, Ingress};
pub use self::nodes::ForwardedPacket;
use self::nodes::Nodes;
use self::output::EffectsWriter;
pub use self::output::{Output, raised, write_effects};
use crate::assembly::Assembly;
use crate::backend::{AnyBackend, Inline};
use crate::batch::{BATCH, Core};
use crate::elastic::{Elastic, ElasticError, Threads, Units};
use crate::operator::OperatorDesk;
use crate::panics::Processing;
use crate::report::{PortReport, Report, new_histogram};
use crate::transport::{Maker, Transport, UnitReports};
use crate::two_cores::{SecondCore, SecondCoreError};
use crate::units_config::UnitsConfig;
use crate::worker::counters::Counters;
use crate::worker::{SnoopedFrame, WorkerPlace};

/// Buffers of a runner, for batches and for packets that the graph holds.
const BUFFERS: usize = 8 * 1024;

/// Runs an assembly over frames.
pub struct Runner {
    assembly: Assembly,
    backend: AnyBackend,
    name: String,
    pool: PacketPool,
    /// Packets that were received and not processed yet.
    received: Vec<Packet>,
    batch: Vec<Packet>,
    out: Vec<Packet>,
    latency: Histogram<u64>,
    ports: Vec<(u16, PortReport)>,
    nodes: Nodes,
    operator: Option<OperatorDesk>,
    alerts: u64,
    events: u64,
    /// Frames that did not reach the graph.
    refused: Refused,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    /// The time of the run: it never goes back.
    now_ns: u64,
    busy_s: f64,
    started: Instant,
}

/// Frames that did not reach the graph. Reports count them as received and dropped.
#[derive(Default)]
struct Refused {
    too_big: u64,
    no_buffer: u64,
    one_way: u64,
    /// Dropped by L3 of a port.
    by_port: BTreeMap<DropReason, u64>,
    bytes: u64,
}

impl Runner {
    /// Creates a runner on the calling thread; its reports carry `name`.
    pub fn new(assembly: Assembly, name: &str) -> Runner {
        let is_program = |number: u16| assembly.stream_nodes.iter().any(|node| node.port == number);
        let ports = assembly.ports.all().iter().filter(|port| !is_program(port.number));
        let ports = ports.map(|port| (port.number, PortReport::default())).collect();
        let nodes = Nodes::of(&assembly);
        Runner {
            assembly,
            backend: AnyBackend::Inline(Inline),
            name: name.to_owned(),
            pool: PacketPool::new(BUFFERS),
            received: Vec::with_capacity(BATCH),
            batch: Vec::with_capacity(BATCH),
            out: Vec::with_capacity(2 * BATCH),
            latency: new_histogram(),
            ports,
            nodes,
            operator: None,
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

    /// Runs state functions of different functions in parallel, on this thread and a second core,
    /// where their work is longer than a handover (B18). The output stays the same. For a runner
    /// that does not run on units.
    ///
    /// # Errors
    /// No thread can be started, or memory lacks.
    pub fn use_second_core(&mut self) -> Result<SecondCore, SecondCoreError> {
        SecondCore::start(&mut self.assembly.graph)
    }

    /// Creates a runner on units that come and go with the traffic, on the calling thread.
    ///
    /// # Errors
    /// If the configuration is invalid, or memory for the units' tables is missing.
    pub fn on_units(assembly: Assembly, name: &str, config: UnitsConfig) -> Result<Runner, ElasticError> {
        let mut runner = Runner::new(assembly, name);
        runner.backend = AnyBackend::Units(Box::new(Units::new(config, &runner.assembly.graph)?));
        Ok(runner)
    }

    /// Creates a runner on units with threads of their own. `make` creates their graphs, of the
    /// same policy with the same seed.
    ///
    /// # Errors
    /// If the configuration is invalid, or a thread or graph cannot be created.
    pub fn on_threads(
        assembly: Assembly,
        name: &str,
        config: UnitsConfig,
        make: Maker,
    ) -> Result<Runner, ElasticError> {
        let mut runner = Runner::new(assembly, name);
        let units = Threads::new(config, &mut runner.assembly.graph, make)?;
        runner.backend = AnyBackend::Units(Box::new(units));
        Ok(runner)
    }

    /// Creates a runner on units that are reached through this transport.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn on_transport<T: Transport + UnitReports + 'static>(
        assembly: Assembly,
        name: &str,
        config: UnitsConfig,
        transport: T,
    ) -> Result<Runner, ElasticError> {
        let mut runner = Runner::new(assembly, name);
        let graph = &runner.assembly.graph;
        let dispatcher = config.dispatcher_of_nodes(graph.options());
        let connections = graph.connection_groups();
        let elastic = Elastic::with_transport(config, dispatcher, transport)?;
        runner.backend = AnyBackend::Units(Box::new(elastic.group_connections(connections)));
        Ok(runner)
    }

    /// Creates a runner on this backend.
    pub(crate) fn on(backend: AnyBackend, assembly: Assembly, name: &str) -> Runner {
        Runner { backend, ..Runner::new(assembly, name) }
    }

    /// Leaves packets to the programs of external nodes, and drops packets to a node that is down.
    /// Without this call nodes have no programs, and forward packets unchanged.
    pub(crate) fn watch_nodes(&mut self) {
        self.nodes.watch();
    }

    /// Returns the external node that a port belongs to, if the node has no program and forwards
    /// all.
    pub fn assumed_node(&self, port: u16) -> Option<&str> {
        self.nodes.assumed(port)
    }

    /// Returns true if the latest [`observe`](Runner::observe) dropped this packet, by its sequence
    /// number, because the external node on its path is down.
    pub fn has_dropped_at_node(&self, sequence: u64) -> bool {
        self.nodes.has_dropped(sequence)
    }

    /// Returns packets that [`observe`](Runner::observe) has brought to external nodes without
    /// programs. Other packets continue after the nodes at once.
    pub fn take_forwarded(&mut self) -> Vec<ForwardedPacket> {
        self.nodes.take_forwarded()
    }

    /// Returns the place among workers, if there are several.
    pub(crate) fn worker(&self) -> Option<&WorkerPlace> {
        self.backend.place()
    }

    /// Returns the counters of the worker, if there are several.
    pub fn worker_counters(&self) -> Option<Counters> {
        self.backend.worker().map(|worker| worker.counters())
    }

    /// Shares a received frame about a neighbour of this port with all other workers.
    pub(crate) fn share_snooped(&mut self, port: u16, frame: &[u8]) {
        if let Some(worker) = self.backend.worker_mut() {
            worker.share_snooped(port, frame);
        }
    }

    /// Returns frames about neighbours that other workers have received.
    pub(crate) fn take_snooped(&mut self) -> Vec<SnoopedFrame> {
        self.backend.worker_mut().map_or_else(Vec::new, |worker| worker.take_snooped())
    }

    /// Returns the latency of packets: the processing time of their batches.
    pub(crate) fn latency(&self) -> &Histogram<u64> {
        &self.latency
    }

    /// Returns the time spent processing, in seconds.
    pub(crate) fn busy_s(&self) -> f64 {
        self.busy_s
    }

    /// Returns each running unit with its load, as a share of its capacity, and its flows.
    pub fn unit_loads(&self) -> Vec<(UnitId, f64, u32)> {
        self.backend.units().map_or_else(Vec::new, |units| units.unit_loads())
    }

    /// Returns the assembly.
    pub fn assembly(&self) -> &Assembly {
        &self.assembly
    }

    /// Executes an operator's command at the NF with this number in the graph.
    ///
    /// # Errors
    /// If the NF refuses the command, or there is no such NF.
    pub fn control(&mut self, stage: usize, command: &str) -> Result<(), ControlError> {
        let _processing = Processing::begin();
        let Some(function) = self.assembly.graph.stage_mut(stage) else {
            return Err(ControlError(format!("the graph has no function {stage}")));
        };
        function.control(command)?;
        if let Some(units) = self.backend.units_mut() {
            units.control(stage, command);
        }
        Ok(())
    }

    /// Receives a frame, and processes the batch once it is full.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn receive<O: Output>(
        &mut self,
        frame: Frame<'_>,
        from: Ingress,
        output: &mut O,
    ) -> Result<(), O::Error> {
        self.make_room(frame, output)?;
        self.enqueue(frame, from);
        if self.nodes.are_assumed() {
            // The next packet may answer this one, which has passed nodes before.
            return self.settle(output);
        }
        if self.received.len() == BATCH { self.flush(output) } else { Ok(()) }
    }

    /// Receives a frame; [`flush`](Runner::flush) processes it.
    pub fn enqueue(&mut self, frame: Frame<'_>, from: Ingress) {
        if let Some(packet) = self.admit(frame, from) {
            self.received.push(packet);
        }
    }

    /// Advances the time if there is no buffer for the frame: pending packets may return theirs.
    fn make_room<O: Output>(&mut self, frame: Frame<'_>, output: &mut O) -> Result<(), O::Error> {
        if self.pool.has_room(frame.data.len()) {
            return Ok(());
        }
        self.handle_timeout(frame.timestamp_ns, output)
    }

    /// Makes a packet of a frame, at its port. Returns `None` if the frame is dropped; it is
    /// counted.
    pub fn admit(&mut self, frame: Frame<'_>, from: Ingress) -> Option<Packet> {
        self.first_ns.get_or_insert(frame.timestamp_ns);
        self.last_ns = self.last_ns.max(Some(frame.timestamp_ns));
        self.now_ns = self.now_ns.max(frame.timestamp_ns);
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
        meta.transit.tags = from.tags();
        meta.transit.side = port.side.unwrap_or_default();
        meta.key.place = port.place;
        let counted = port_report(&mut self.ports, port.number);
        counted.packets_in += 1;
        counted.bytes_in += frame.data.len() as u64;
        if !self.assembly.both_ways && port.side == Some(packet::Side::Outside) {
            self.refused.one_way += 1;
            self.refused.bytes += frame.data.len() as u64;
            self.pool.give(packet);
            return None;
        }
        Some(packet)
    }

    /// Counts a frame of this length that the port has dropped.
    pub(crate) fn refuse(&mut self, port: u16, len: usize, reason: DropReason) {
        let counted = port_report(&mut self.ports, port);
        counted.packets_in += 1;
        counted.bytes_in += len as u64;
        self.refused.bytes += len as u64;
        *self.refused.by_port.entry(reason).or_default() += 1;
        if let Some(worker) = self.backend.worker_mut() {
            worker.count_refused();
        }
    }

    /// Processes received packets in batches, and passes the results to `output`.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn flush<O: Output>(&mut self, output: &mut O) -> Result<(), O::Error> {
        self.process_received(output)?;
        self.process_forwarded(output)
    }

    /// Processes packets forwarded by external nodes without programs. A packet keeps its
    /// direction, and a graph has no loops, so it visits each node once at most.
    fn process_forwarded<O: Output>(&mut self, output: &mut O) -> Result<(), O::Error> {
        while self.nodes.has_forwarded() {
            for packet in self.nodes.take_forwarded() {
                self.enqueue(packet.frame(), packet.from);
            }
            self.process_received(output)?;
        }
        Ok(())
    }

    fn process_received<O: Output>(&mut self, output: &mut O) -> Result<(), O::Error> {
        while self.received.len() > BATCH {
            self.batch.extend(self.received.drain(..BATCH));
            self.process_batch(output)?;
        }
        std::mem::swap(&mut self.batch, &mut self.received);
        self.process_batch(output)
    }

    fn process_batch<O: Output>(&mut self, output: &mut O) -> Result<(), O::Error> {
        self.answer_operator();
        let processing = Processing::begin();
        let count = self.batch.len() as u64;
        let start = Instant::now();
        let core = Core { graph: &mut self.assembly.graph, out: &mut self.out, pool: &mut self.pool };
        self.backend.any_mut().process(&mut self.batch, core);
        drop(processing);
        let took = start.elapsed();
        self.busy_s += took.as_secs_f64();
        if count > 0 && !self.backend.units().is_some_and(|units| units.is_deferred()) {
            // Above the histogram's bound it saturates, so this cannot fail.
            self.latency.saturating_record_n(took.as_nanos().min(u128::from(u64::MAX)) as u64, count);
        }
        self.emit(output)
    }

    /// Processes one packet alone, always on the assembly's graph, and reports each step to
    /// `observer`.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn observe<O: Output>(
        &mut self,
        frame: Frame<'_>,
        from: Ingress,
        observer: &mut dyn graph::Observer,
        output: &mut O,
    ) -> Result<(), O::Error> {
        self.make_room(frame, output)?;
        self.nodes.observe();
        if let Some(packet) = self.admit(frame, from) {
            self.assembly.graph.observe(packet, &mut self.out, &mut self.pool, observer);
        }
        self.emit(output)
    }

    /// Processes received packets, and advances the time to `now_ns`: idle flows expire, and
    /// fragments that have waited too long return their buffers.
    ///
    /// Must be called periodically, as only packets advance the graph's time otherwise: a flood of
    /// fragments could keep all buffers.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn handle_timeout<O: Output>(&mut self, now_ns: u64, output: &mut O) -> Result<(), O::Error> {
        self.flush(output)?;
        self.now_ns = self.now_ns.max(now_ns);
        let processing = Processing::begin();
        let core = Core { graph: &mut self.assembly.graph, out: &mut self.out, pool: &mut self.pool };
        self.backend.any_mut().handle_timeout(now_ns, core);
        drop(processing);
        self.emit(output)?;
        self.process_forwarded(output)
    }

    /// Returns whether packets are pending at units on other threads, or at other workers. They
    /// leave during a later [`flush`](Runner::flush).
    pub fn has_pending(&self) -> bool {
        self.backend.any().has_pending()
    }

    /// Returns whether packets that have waited at ports while this process did not run are still
    /// wanted, however long that was.
    pub(crate) fn takes_stale(&self) -> bool {
        self.backend.units().is_none_or(|units| units.takes_stale())
    }

    /// Returns what becomes readable when something arrives from other machines.
    pub(crate) fn event(&self) -> Option<BorrowedFd<'_>> {
        self.backend.units()?.event()
    }

    /// Processes received packets, and waits until no packet is pending.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn settle<O: Output>(&mut self, output: &mut O) -> Result<(), O::Error> {
        loop {
            self.flush(output)?;
            let core = Core { graph: &mut self.assembly.graph, out: &mut self.out, pool: &mut self.pool };
            if let Some(units) = self.backend.units_mut() {
                units.settle(core);
            }
            self.emit(output)?;
            if !self.nodes.has_forwarded() {
                return Ok(());
            }
        }
    }

    /// Ends the run: processes pending packets, ends all flows, and returns the report. The first
    /// of several workers must end last: it then has the NFs' shared state to itself, and reports
    /// it.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn finish<O: Output>(&mut self, output: &mut O) -> Result<Report, O::Error> {
        // Packets at units may still be forwarded by nodes without programs.
        if self.nodes.are_assumed() { self.settle(output) } else { self.flush(output) }?;
        let live = self.assembly.graph.counters().flows_live;
        let mut is_over = false;
        while !is_over {
            let core = Core { graph: &mut self.assembly.graph, out: &mut self.out, pool: &mut self.pool };
            is_over = self.backend.any_mut().finish(core);
            self.emit(output)?;
        }
        is_over = false;
        while !is_over {
            let processing = Processing::begin();
            is_over = self.assembly.graph.finish(&mut self.pool);
            drop(processing);
            self.emit(output)?;
        }
        // Nothing is forwarded after the end.
        self.nodes.take_forwarded();
        let mut report = self.report();
        report.flows.live += live;
        Ok(report)
    }

    /// Continues after a panic: replaces buffers that were lost with their packets.
    pub(crate) fn recover(&mut self) {
        self.pool.fill(BUFFERS);
    }

    /// Returns the report so far. The first of several workers includes the NFs' shared state; the
    /// others wait for it.
    pub(crate) fn report_with_shared(&mut self) -> Report {
        self.ask_for_figures();
        let is_first = self.worker().is_some_and(|worker| worker.number == 0);
        if is_first {
            self.assembly.graph.sharing().fetch();
        }
        let report = self.report();
        if is_first {
            self.assembly.graph.sharing().give_back();
        }
        report
    }

    /// Returns the report so far.
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
        // Workers share the state of nodes; the first one reports it.
        if self.worker().is_none_or(|worker| worker.number == 0) {
            let nodes = self.assembly.node_states().iter();
            report.programs = nodes.map(|state| (state.name().to_owned(), state.report())).collect();
            let streams = self.assembly.stream_nodes.iter();
            report.programs.extend(streams.map(|node| (node.name.clone(), node.report())));
            report.nodes = report.programs.clone();
        }
        report.alerts = self.alerts;
        report.events = self.events;
        report.first_packet_ns = self.first_ns;
        report.last_packet_ns = self.last_ns;
        report.timing.seconds = self.started.elapsed().as_secs_f64();
        if self.busy_s > 0.0 {
            report.timing.packets_per_second = report.packets_in as f64 / self.busy_s;
        }
        if let Some(units) = self.backend.units() {
            units.add_to_report(&mut report, &self.assembly.names);
        }
        self.nodes.add_to_report(&mut report);
        report.set_latency(&self.latency);
        report
    }

    /// Requests the counters of units on other threads; a report shortly after has them.
    pub fn ask_for_figures(&mut self) {
        if let Some(units) = self.backend.units_mut() {
            units.ask_for_figures();
        }
    }

    /// Passes what has left the graph to `output`.
    fn emit<O: Output>(&mut self, output: &mut O) -> Result<(), O::Error> {
        if let Some(units) = self.backend.units_mut() {
            units.record_latency(&self.out, &mut self.latency);
        }
        let mut result = Ok(());
        for mut packet in self.out.drain(..) {
            let port = self.assembly.ports.egress(&packet);
            packet.meta_mut().transit.egress = port;
            if self.nodes.drop(port, &packet) {
                self.pool.give(packet);
                continue;
            }
            let counted = port_report(&mut self.ports, port);
            counted.packets_out += 1;
            counted.bytes_out += packet.len() as u64;
            if result.is_ok() {
                result = output.packet(port, &packet);
            }
            self.nodes.pass(port, &packet, &self.assembly);
            self.pool.give(packet);
        }
        result?;
        if let Some(worker) = self.backend.worker_mut() {
            worker.return_buffers(&mut self.pool, BUFFERS);
        }
        self.pool.trim(BUFFERS);
        let mut writer = EffectsWriter {
            names: &self.assembly.names,
            now_ns: self.now_ns,
            alerts: &mut self.alerts,
            events: &mut self.events,
        };
        if let Some(units) = self.backend.units_mut() {
            units.effects_mut().drain(..).try_for_each(|mut effects| writer.write(&mut effects, output))?;
        }
        writer.write(self.assembly.graph.effects_mut(), output)
    }
}

fn port_report(ports: &mut [(u16, PortReport)], number: u16) -> &mut PortReport {
    let at = ports.iter().position(|&(port, _)| port == number).unwrap_or(0);
    &mut ports[at].1
}
