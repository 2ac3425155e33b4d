//! Units on other machines: the dispatcher's end of a transport over links.
//!
//! Everything from the dispatcher to a unit goes in one stream, in order. A node that connects is
//! spare until the dispatcher starts a unit; then it gets the unit's number. A node that is lost
//! takes its unit's flows with it; if it comes back, it is another unit.

mod nodes;

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nf::stage::Stage;
use packet::{DropReason, FlowKey, Packet};
use protocol::dispatcher::NumberedPacket;
use protocol::message::{FromDispatcher, Stamp, UnitId};
use protocol::unit::Counters;
use runtime::elastic::{ElasticError, UnitsConfig};
use runtime::report::Report;
use runtime::transport::{LocalGraph, Return, Started, ToUnit, Transport, UnitChange};
use runtime::{Assembly, Core, Runner};
use telemetry::event;

use self::nodes::Nodes;
use crate::connector::Connector;
use crate::identity::Identity;
use crate::peers::{PeerEvent, PeerId, Peers};
use crate::wire::{
    ArrivedFrame, Assignment, Hello, PriorReport, Reader, Role, UnitFigures, VERSION, VERSION_MIN,
    read_frame, read_output, write_assignment, write_input, write_stopped, write_units,
};

pub use nodes::{NodeInfo, NodeStatus};

/// Limit on packets in flight to units; at the limit the dispatcher waits.
pub const IN_FLIGHT_MAX: u64 = 4096;
/// Period in which units are notified of the time.
const TIME_NS: u64 = 1_000_000;
/// Sleep while the dispatcher waits for units.
const WAIT: Duration = Duration::from_micros(200);
/// Period of the status that others see.
const STATUS: Duration = Duration::from_millis(50);
/// Limit on the time for the first units to be there.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The settings of a cluster's dispatcher.
pub struct RemoteOptions {
    /// Certificate and key.
    pub identity: Identity,
    /// Digest of the policy.
    pub policy: [u8; 32],
    /// Counts restarts of the process.
    pub incarnation: u64,
    /// Nodes with units: name and address.
    pub nodes: Vec<(String, String)>,
}

/// An operator's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeCommand {
    /// A node joins: its name and address.
    Add {
        /// The name.
        name: String,
        /// The address.
        address: String,
    },
    /// The node of this name gives its flows away and gets no more.
    Drain {
        /// The name.
        name: String,
    },
}

/// The way to a running dispatcher, for operators.
#[derive(Clone)]
pub struct RemoteHandle {
    commands: Sender<NodeCommand>,
    status: Arc<Mutex<Vec<NodeInfo>>>,
}

impl RemoteHandle {
    /// Sends a command. Nothing happens if the dispatcher has ended.
    pub fn send(&self, command: NodeCommand) {
        let _ = self.commands.send(command);
    }

    /// Returns the nodes, in the order in which they were named.
    pub fn status(&self) -> Vec<NodeInfo> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A report on its way.
struct PartialReport {
    report: Box<Return>,
    /// Reports of other units that must take effect before.
    priors: Vec<PriorReport>,
    /// Packets that have not come.
    left: usize,
}

/// A unit at a node.
struct RemoteUnit {
    peer: PeerId,
    node: usize,
    is_ready: bool,
    is_alive: bool,
    /// Packets sent to it, and those that it has finished.
    sent: u64,
    through: u64,
    /// Packets that it has returned, and their bytes.
    packets_out: u64,
    bytes_out: u64,
    /// A report whose packets have not all come.
    partial: Option<PartialReport>,
    /// Reports that wait for those of other units.
    waiting: VecDeque<PartialReport>,
    /// It has not answered.
    is_behind: bool,
    figures: UnitFigures,
}

/// The dispatcher's end of units at other nodes.
pub struct RemoteUnits {
    config: UnitsConfig,
    seed: u64,
    local: LocalGraph,
    peers: Peers,
    connector: Connector,
    nodes: Nodes,
    /// By number.
    units: Vec<Option<RemoteUnit>>,
    /// Units that the dispatcher wants, and for which there is no node yet.
    wanted: VecDeque<UnitId>,
    reports: VecDeque<Box<Return>>,
    changes: VecDeque<UnitChange>,
    commands: Receiver<NodeCommand>,
    status: Arc<Mutex<Vec<NodeInfo>>>,
    shown: Instant,
    began: Instant,
    now_ns: u64,
    told_ns: u64,
    /// Commands to functions so far.
    controls: Vec<(usize, String)>,
    has_failed: bool,
    is_finishing: bool,
    refused: u64,
    /// Packets that units returned, and for which there was no buffer.
    outputs_lost: u64,
}

/// Why the dispatcher of a cluster cannot start.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The socket cannot be opened.
    #[error("cannot open a socket: {0}")]
    Socket(#[from] std::io::Error),
    /// The configuration of units is invalid, or memory for tables is missing.
    #[error(transparent)]
    Units(#[from] ElasticError),
    /// Functions share state between flows, which units cannot have in common yet.
    #[error("{0}: flows share state (pools, sets, meters or contents), which nodes cannot share yet")]
    Shared(String),
    /// Too few nodes are there.
    #[error("{there} of {wanted} units are there after {} s", START_TIMEOUT.as_secs())]
    Missing {
        /// Those that are there.
        there: usize,
        /// Those that must be.
        wanted: u16,
    },
}

/// Creates a runner of a policy on units at other nodes, and waits for the first ones.
///
/// # Errors
/// If the configuration is invalid, or the first units do not come.
pub fn remote_runner(
    assembly: Assembly,
    name: &str,
    config: UnitsConfig,
    options: RemoteOptions,
) -> Result<(Runner, RemoteHandle), RemoteError> {
    let RemoteOptions { identity, policy, incarnation, nodes } = options;
    let shares = |stage: &dyn Stage| {
        let shared = stage.shared();
        (!shared.pools.is_empty() || shared.is_order_sensitive()) && !stage.descriptor().is_shared_per_node
    };
    let named = assembly.names.iter().zip(assembly.graph.stages());
    let sharing: Vec<&str> =
        named.filter(|(_, stage)| shares(&***stage)).map(|(name, _)| name.as_str()).collect();
    if !sharing.is_empty() {
        return Err(RemoteError::Shared(sharing.join(", ")));
    }
    let peers = Peers::bind(([0, 0, 0, 0], 0).into())?;
    let hello = Hello {
        versions: (VERSION, VERSION_MIN),
        name: identity.name().to_owned(),
        incarnation,
        policy,
        role: Role::Dispatcher,
        port: peers.address()?.port(),
    };
    let (sender, commands) = channel();
    let status = Arc::new(Mutex::new(Vec::new()));
    let handle = RemoteHandle { commands: sender, status: Arc::clone(&status) };
    let mut remote = RemoteUnits {
        config,
        seed: assembly.seed,
        local: LocalGraph::placeholder(&assembly.graph)?,
        peers,
        connector: Connector::new(identity, hello),
        nodes: Nodes::default(),
        units: Vec::new(),
        wanted: (0..config.units_min).map(UnitId).collect(),
        reports: VecDeque::new(),
        changes: VecDeque::new(),
        commands,
        status,
        shown: Instant::now(),
        began: Instant::now(),
        now_ns: 0,
        told_ns: 0,
        controls: Vec::new(),
        has_failed: false,
        is_finishing: false,
        refused: 0,
        outputs_lost: 0,
    };
    for (name, address) in nodes {
        remote.add_node(name, address);
    }
    remote.await_first_units()?;
    Ok((Runner::on_transport(assembly, name, config, remote)?, handle))
}

impl RemoteUnits {
    fn add_node(&mut self, name: String, address: String) {
        self.connector.connect(&name, &address);
        self.nodes.add(name, address);
    }

    /// Waits until the units are there that run from the beginning.
    fn await_first_units(&mut self) -> Result<(), RemoteError> {
        let began = Instant::now();
        let wanted = self.config.units_min;
        loop {
            self.work();
            let there = self.units.iter().flatten().filter(|unit| unit.is_ready).count();
            if there >= usize::from(wanted) {
                // The dispatcher takes them for ready already.
                self.reports.clear();
                return Ok(());
            }
            if began.elapsed() >= START_TIMEOUT {
                return Err(RemoteError::Missing { there, wanted });
            }
            self.peers.wait(WAIT);
        }
    }

    fn clock_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Sends and receives everything that can be now.
    fn work(&mut self) {
        self.greet();
        let now_ns = self.clock_ns();
        self.peers.transmit(now_ns);
        while let Some((peer, frame)) = self.peers.poll(now_ns) {
            let graph = &self.local.graph;
            let hash = |key: &FlowKey| graph.classifier().hash_of(key);
            match read_frame(frame, self.now_ns, hash) {
                Ok(ArrivedFrame::Report(report, priors, left)) => {
                    self.take_report(peer, PartialReport { report, priors, left });
                }
                Ok(ArrivedFrame::Output(mut rest)) => {
                    let packet = output(&mut rest, &mut self.local);
                    self.take_output(peer, packet);
                }
                Ok(ArrivedFrame::Figures(figures)) => {
                    if let Some(unit) = unit_at(&mut self.units, peer) {
                        unit.figures = *figures;
                    }
                }
                Ok(ArrivedFrame::Leave) => {
                    self.changes.extend(self.nodes.leave(peer).map(UnitChange::Leave));
                }
                Ok(_) | Err(_) => self.refused += 1,
            }
        }
        while let Some(PeerEvent::Dead(peer)) = self.peers.poll_event() {
            self.lose(peer);
            while self.release_reports() {}
        }
        self.peers.flush(self.clock_ns());
    }

    /// Takes nodes that are there now, and commands.
    fn greet(&mut self) {
        while let Some(session) = self.connector.poll() {
            let (name, address) = (session.peer.name.clone(), session.address);
            let is_unit = session.peer.role == Role::Unit;
            let peer = self.peers.add(session, self.clock_ns());
            match self.nodes.connected(&name, peer, address).filter(|_| is_unit) {
                Some(_) => {
                    event::peer_connected(&name, &address);
                    match self.wanted.pop_front() {
                        Some(unit) => _ = self.assign(unit),
                        None => self.changes.push_back(UnitChange::Join),
                    }
                }
                None => self.peers.remove(peer),
            }
        }
        while let Ok(command) = self.commands.try_recv() {
            match command {
                NodeCommand::Add { name, address } => self.add_node(name, address),
                NodeCommand::Drain { name } => {
                    if let Some(unit) = self.nodes.drain(&name) {
                        self.changes.push_back(UnitChange::Leave(unit));
                    }
                }
            }
        }
        if self.shown.elapsed() >= STATUS {
            self.show_status();
        }
    }

    fn show_status(&mut self) {
        self.shown = Instant::now();
        let packets = |unit: UnitId| self.units.get(unit.index())?.as_ref().map(|unit| unit.sent);
        let infos = self.nodes.infos(packets);
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = infos;
    }

    /// Gives a spare node a unit's number. Returns false if there is no such node.
    fn assign(&mut self, unit: UnitId) -> bool {
        let Some((node, peer)) = self.nodes.assign(unit) else { return false };
        if self.units.len() <= unit.index() {
            self.units.resize_with(unit.index() + 1, || None);
        }
        self.units[unit.index()] = Some(RemoteUnit {
            peer,
            node,
            is_ready: false,
            is_alive: true,
            sent: 0,
            through: 0,
            packets_out: 0,
            bytes_out: 0,
            partial: None,
            waiting: VecDeque::new(),
            is_behind: false,
            figures: UnitFigures::default(),
        });
        let assignment = Assignment {
            unit,
            seed: self.seed,
            gap_ns: self.config.gap_ns,
            copies: self.config.copies,
            deltas: self.config.deltas,
        };
        self.peers.send(peer, 0, |out| write_assignment(out, &assignment));
        for (stage, command) in &self.controls {
            let input = ToUnit::Control(*stage, command.as_str().into());
            self.peers.send(peer, 0, |out| write_input(out, &input));
        }
        self.tell_units();
        true
    }

    /// Sends all units the addresses of the others. Each hears of a unit before it can hear from
    /// it.
    fn tell_units(&mut self) {
        let addresses = self.nodes.addresses();
        for unit in self.units.iter().flatten().filter(|unit| unit.is_alive) {
            self.peers.send(unit.peer, 0, |out| write_units(out, &addresses));
        }
    }

    /// A node is not there any more.
    fn lose(&mut self, peer: PeerId) {
        let name = self.peers.name(peer);
        event::peer_lost(&name);
        self.peers.remove(peer);
        let (address, unit) = self.nodes.lost(peer);
        if let Some(of_node) = unit_at(&mut self.units, peer) {
            of_node.is_alive = false;
            of_node.is_behind = false;
            of_node.partial = None;
            of_node.waiting.clear();
            if unit.is_some() {
                of_node.figures.lose(of_node.sent, (of_node.packets_out, of_node.bytes_out));
            }
            of_node.through = of_node.sent;
        }
        if let Some(unit) = unit {
            self.changes.push_back(UnitChange::Crash(unit));
            self.tell_units();
        }
        // It may come back.
        if let Some(address) = address.filter(|_| !self.is_finishing) {
            self.connector.connect(&name, &address);
        }
    }

    fn take_report(&mut self, peer: PeerId, partial: PartialReport) {
        let Some(unit) = unit_at(&mut self.units, peer) else { return };
        match partial.left {
            0 => self.finish_report(peer, partial),
            _ => unit.partial = Some(partial),
        }
    }

    fn take_output(&mut self, peer: PeerId, packet: Option<Packet>) {
        let Some(unit) = unit_at(&mut self.units, peer) else { return };
        let Some(mut partial) = unit.partial.take() else {
            self.refused += 1;
            return;
        };
        match packet {
            Some(packet) => {
                unit.packets_out += 1;
                unit.bytes_out += packet.len() as u64;
                partial.report.out.push(packet);
            }
            None => self.outputs_lost += 1,
        }
        partial.left -= 1;
        match partial.left {
            0 => self.finish_report(peer, partial),
            _ => unit.partial = Some(partial),
        }
    }

    /// All of a report is here. It takes effect once those before it have.
    fn finish_report(&mut self, peer: PeerId, report: PartialReport) {
        let Some(unit) = unit_at(&mut self.units, peer) else { return };
        unit.waiting.push_back(report);
        while self.release_reports() {}
    }

    /// Releases reports that wait for no other. Returns true if there were any.
    fn release_reports(&mut self) -> bool {
        let mut has_released = false;
        for at in 0..self.units.len() {
            let has_come = |&(unit, through): &PriorReport| {
                let cause = self.units.get(unit.index()).and_then(Option::as_ref);
                cause.is_none_or(|unit| !unit.is_alive || unit.through >= through)
            };
            let next = self.units[at].as_ref().and_then(|unit| unit.waiting.front());
            if !next.is_some_and(|next| next.priors.iter().all(has_come)) {
                continue;
            }
            let next = self.units[at].as_mut().and_then(|unit| unit.waiting.pop_front());
            if let Some(PartialReport { report, .. }) = next {
                has_released = true;
                self.release_report(at, report);
            }
        }
        has_released
    }

    fn release_report(&mut self, at: usize, report: Box<Return>) {
        let Some(unit) = &mut self.units[at] else { return };
        unit.through = unit.through.max(report.through);
        unit.is_ready |= report.is_ready;
        unit.is_behind &= !report.has_answered;
        self.has_failed |= report.has_failed;
        self.reports.push_back(report);
    }

    fn send(&mut self, unit: UnitId, input: &ToUnit) -> bool {
        let unit = self.units.get(unit.index()).and_then(Option::as_ref).filter(|unit| unit.is_alive);
        let Some(unit) = unit else { return false };
        self.peers.send(unit.peer, 0, |out| write_input(out, input));
        true
    }

    /// Sends all units something that they answer.
    fn ask(&mut self, question: &ToUnit) {
        for unit in self.units.iter_mut().flatten().filter(|unit| unit.is_alive && unit.is_ready) {
            unit.is_behind = true;
            self.peers.send(unit.peer, 0, |out| write_input(out, question));
        }
    }

    fn tell(&mut self, input: &ToUnit) {
        for unit in self.units.iter().flatten().filter(|unit| unit.is_alive) {
            self.peers.send(unit.peer, 0, |out| write_input(out, input));
        }
    }

    fn in_flight(&self) -> u64 {
        // A packet that a unit forwarded is finished by another one.
        let units = || self.units.iter().flatten();
        let sent: u64 = units().map(|unit| unit.sent).sum();
        sent.saturating_sub(units().map(|unit| unit.through).sum())
    }
}

fn unit_at(units: &mut [Option<RemoteUnit>], peer: PeerId) -> Option<&mut RemoteUnit> {
    units.iter_mut().flatten().find(|unit| unit.peer == peer && unit.is_alive)
}

/// Makes a packet that leaves. `None` if it is damaged, or there is no buffer: it is counted.
fn output(rest: &mut Reader<'_>, local: &mut LocalGraph) -> Option<Packet> {
    let pool = &mut local.pool;
    read_output(rest, |frame| pool.take(frame)).ok()
}

impl Transport for RemoteUnits {
    const IS_LOCAL: bool = false;

    const UNITS_HAVE_CLOCKS: bool = true;

    type Access<'a> = &'a mut LocalGraph;

    fn lend(&mut self, core: &mut Core<'_>) {
        self.local.swap(core);
    }

    fn core(&mut self) -> &mut LocalGraph {
        &mut self.local
    }

    fn continue_flowlet(&mut self, now_ns: u64, numbered: &NumberedPacket, stamp: Stamp, packet: Packet) {
        self.packet(now_ns, numbered.unit, stamp, packet);
    }

    fn packet(&mut self, now_ns: u64, unit: UnitId, stamp: Stamp, packet: Packet) {
        self.now_ns = now_ns;
        let input = ToUnit::Packet(now_ns, stamp, packet);
        let is_sent = self.send(unit, &input);
        let ToUnit::Packet(.., packet) = input else { return };
        if !is_sent {
            // The dispatcher does not know of its loss yet.
            return self.local.drop_packet(packet, DropReason::UnitLost);
        }
        self.local.pool.give(packet);
        if let Some(Some(unit)) = self.units.get_mut(unit.index()) {
            unit.sent += 1;
        }
    }

    fn message(&mut self, now_ns: u64, unit: UnitId, message: FromDispatcher) {
        self.now_ns = now_ns;
        self.send(unit, &ToUnit::Message(now_ns, message));
    }

    fn start(&mut self, unit: UnitId) -> Started {
        match self.units.get(unit.index()).and_then(Option::as_ref) {
            Some(unit) if unit.is_alive && unit.is_ready => return Started::Ready,
            Some(_) => return Started::Unchanged,
            None => {}
        }
        if self.assign(unit) {
            return Started::Pending;
        }
        if !self.wanted.contains(&unit) {
            self.wanted.push_back(unit);
        }
        Started::Unchanged
    }

    fn stopped(&mut self, unit: UnitId) {
        let Some(Some(stopped)) = self.units.get(unit.index()) else { return };
        if self.nodes.has_drained(stopped.node) {
            self.peers.send(stopped.peer, 0, write_stopped);
            self.changes.push_back(UnitChange::Retire(unit));
        }
    }

    fn control(&mut self, stage: usize, command: &str) {
        self.controls.push((stage, command.to_owned()));
        self.tell(&ToUnit::Control(stage, command.into()));
    }

    fn end_batch(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.local.graph.handle_timeout(now_ns, &mut self.local.pool);
        if now_ns >= self.told_ns.saturating_add(TIME_NS) {
            self.told_ns = now_ns;
            self.tell(&ToUnit::Time(now_ns));
        }
        self.work();
    }

    fn receive(&mut self) -> Option<Box<Return>> {
        if self.reports.is_empty() {
            self.work();
        }
        let mut report = self.reports.pop_front()?;
        self.local.out.append(&mut report.out);
        Some(report)
    }

    fn poll_change(&mut self) -> Option<UnitChange> {
        self.changes.pop_front()
    }

    fn has_pending(&self) -> bool {
        self.in_flight() > 0
    }

    fn is_full(&self) -> bool {
        self.in_flight() >= IN_FLIGHT_MAX
    }

    fn wait(&mut self) {
        self.peers.transmit(self.clock_ns());
        if self.reports.is_empty() {
            self.peers.wait(WAIT);
        }
        self.work();
    }

    fn drain_messages(&mut self) {
        self.ask(&ToUnit::Answer);
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.tell(&ToUnit::Time(now_ns));
        self.work();
    }

    /// Units have clocks of their own.
    fn next_timeout_ns(&self) -> u64 {
        u64::MAX
    }

    fn has_unanswered(&self) -> bool {
        self.units.iter().flatten().any(|unit| unit.is_behind)
    }

    fn has_failed(&self) -> bool {
        self.has_failed
    }

    fn reset_units(&mut self) {
        self.has_failed = false;
        self.ask(&ToUnit::Reset);
    }

    fn resume_units(&mut self) {
        self.ask(&ToUnit::Resume);
    }

    fn finish(&mut self) {
        self.is_finishing = true;
        self.ask(&ToUnit::Finish);
    }

    fn has_finished(&mut self) -> bool {
        self.work();
        let has_finished = self.reports.is_empty() && !self.has_unanswered();
        if has_finished {
            self.show_status();
            self.local.graph.part();
        }
        has_finished
    }

    fn ask_for_figures(&mut self) {
        self.tell(&ToUnit::Figures);
        self.work();
    }

    fn unit_counters(&self) -> Vec<Counters> {
        self.units.iter().flatten().map(|unit| unit.figures.counters).collect()
    }

    fn add_to_report(&self, report: &mut Report, _names: &[String]) {
        self.units.iter().flatten().for_each(|unit| unit.figures.add_to(report));
        if self.outputs_lost > 0 {
            // Their units count them as sent.
            report.packets_out = report.packets_out.saturating_sub(self.outputs_lost);
            *report.drops.entry(DropReason::NoBuffer.name()).or_default() += self.outputs_lost;
        }
    }
}
