//! Units on other machines: the dispatcher's end of a transport over links.
//!
//! Packets and messages about one flow share a stream, in order. Messages that concern more than
//! one flow are ordered relative to all streams. A node that connects is spare until the dispatcher
//! starts a unit; then it gets the unit's number. A lost node loses its unit's flows; if it comes
//! back, it becomes another unit.

mod accounts;
mod desk;
mod handle;
mod homes;
mod inquiries;
mod nodes;
mod orders;
mod others;
mod rollout;
mod sharing;
mod start;
mod streams;
mod transport;
mod units;

use std::collections::VecDeque;
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::Duration;

use graph::Graph;
use packet::{FlowKey, Packet};
use protocol::message::UnitId;
use protocol::trace::{EventSink, FlowPlace, Machine, TimelineEvent};
use runtime::elastic::{ElasticError, UnitsConfig};
use runtime::report::{Figures, LinksReport};
use runtime::transport::{LocalGraph, ToUnit, UnitChange};
use runtime::{Assembly, Runner, timeline};
use telemetry::{event, refuse_peer};

use self::handle::RemoteStatus;
pub(crate) use self::homes::HomeTable;
use self::inquiries::{Inquiries, InquiryOrder};
use self::nodes::{Nodes, ResumedNode};
use self::rollout::Rollout;
use self::start::Start;
use self::streams::Streams;
use self::units::{UnitTable, WaitingReport};
use crate::identity::Identity;
use crate::network::{ConnectFault, HostNetwork, Network, NodeSelf};
use crate::peers::{ASIDE, ORDERED, PeerEvent, PeerId, Peers};
use crate::wire::{
    ArrivedFrame, Assignment, FrameError, Reader, Role, TimelineQuestion, read_frame, read_output,
    write_assignment, write_granted, write_input, write_part, write_relayed, write_stopped,
    write_timeline_asked, write_units,
};

pub use desk::{BenchThread, NewPolicy, NoBench, PolicyBench, PolicyDesk, PolicyMaker};
pub use handle::{NodeCommand, RemoteControl, RemoteHandle, StoreStatus};
pub use homes::{HOMES_MAX, OtherDispatcher};
pub use inquiries::{INQUIRIES_MAX, INQUIRY_MAX, InquiryReply, UnitTimelines};
pub use nodes::{NodeInfo, NodeStatus};
pub use orders::{FailedOrder, OrderReply};
pub use rollout::{RolloutState, RolloutStatus};
pub use sharing::{SharingError, check_sharing};
pub use start::{START_GRACE, StartStatus};

/// Limit on packets in flight to all units; at the limit the dispatcher waits.
pub const IN_FLIGHT_MAX: u64 = 4096;
/// Limit on packets in flight to one unit. Further packets of its flows are dropped if they arrived
/// at an interface, so that a slow unit does not block the others.
pub const UNIT_IN_FLIGHT_MAX: u64 = IN_FLIGHT_MAX / 2;
/// Buffers that are allocated at once when outgoing packets find none.
const BUFFERS_MORE: usize = 256;
/// Period of time messages to units.
const TIME_NS: u64 = 1_000_000;
/// Limit on the time that packets wait for others to fill a datagram, or a system call, while more
/// arrive.
const HOLD_NS: u64 = 100_000;
/// Sleep while the dispatcher waits for units.
const WAIT: Duration = Duration::from_micros(200);
/// Period of the published status.
const STATUS_NS: u64 = 50_000_000;
/// Limit on the time for a drained unit to end its link before it is assigned again; longer than it
/// forwards packets if it cannot reach all others.
const PART_NS: u64 = 3 * crate::peers::GIVE_UP_MIN.as_nanos() as u64;
/// Limit on commands between two batches of packets; others wait.
const COMMANDS_MAX: usize = 16;

/// The settings of a cluster's dispatcher.
pub struct RemoteOptions {
    /// Certificate and key.
    pub identity: Identity,
    /// The policy at start, and how others are made.
    pub policy: PolicyDesk,
    /// Counts restarts of the process.
    pub incarnation: u64,
    /// Commands about nodes; the first ones add the nodes of the units.
    pub control: RemoteControl,
    /// All dispatchers of the cluster, this one included, by name and address; empty if it is the
    /// only one. All dispatchers need the same list and the same seed.
    pub dispatchers: Vec<(String, String)>,
    /// Socket that accepts links of other dispatchers.
    pub listening: Option<TcpListener>,
}

/// The dispatcher's end of units at other nodes.
pub struct RemoteUnits<N> {
    config: UnitsConfig,
    seed: u64,
    local: LocalGraph,
    peers: Peers<N>,
    nodes: Nodes,
    units: UnitTable,
    homes: HomeTable,
    desk: PolicyDesk,
    rollout: Option<Rollout>,
    failed_orders: VecDeque<FailedOrder>,
    inquiries: Inquiries,
    trace: EventSink,
    /// Units and packets for which the dispatcher waits, as last noted.
    awaited: Vec<(UnitId, u64)>,
    /// Graphs of former policies, for their counters.
    former_graphs: Vec<Box<Graph>>,
    /// Units that wait for a node.
    wanted: VecDeque<UnitId>,
    streams: Streams,
    start: Start,
    changes: VecDeque<UnitChange>,
    control: RemoteControl,
    shown_ns: u64,
    now_ns: u64,
    clock_sent_ns: u64,
    /// A packet was sent since the last batch.
    is_busy: bool,
    /// A unit has [`UNIT_IN_FLIGHT_MAX`] packets in flight; further ones are dropped.
    has_full_units: bool,
    /// Time since which packets wait to be sent.
    unsent_since_ns: Option<u64>,
    /// Commands to functions so far, repeated to new units.
    controls: Vec<(usize, String)>,
    is_finishing: bool,
    /// Stalls at which others may have given this process up, already handled.
    fences: u64,
    refused: u64,
    /// Frames relayed between units that could not reach each other.
    relayed: u64,
}

/// The reason why the dispatcher of a cluster cannot start.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The socket cannot be opened.
    #[error("cannot open a socket: {0}")]
    Socket(#[from] std::io::Error),
    /// The configuration of units is invalid, or memory for tables is missing.
    #[error(transparent)]
    Units(#[from] ElasticError),
    /// A function's flows share state that cannot span nodes.
    #[error(transparent)]
    Shared(#[from] SharingError),
    /// Stopped before a unit was ready.
    #[error("stopped while waiting for units: {0}")]
    Stopped(StartStatus),
}

/// Returns true if a dispatcher that waits for units must stop.
pub type IsStopped<'a> = &'a dyn Fn(&StartStatus) -> bool;

/// Creates a runner of a policy on units at other nodes. With `is_stopped`, waits until all units
/// that it wants are ready, or at least one for [`START_GRACE`]. Without it, the caller waits until
/// [`RemoteHandle::start`] reports the start, before it passes packets.
///
/// # Errors
/// If the configuration is invalid, or the wait was stopped.
pub fn remote_runner(
    assembly: Assembly,
    name: &str,
    config: UnitsConfig,
    options: RemoteOptions,
    is_stopped: Option<IsStopped<'_>>,
) -> Result<Runner, RemoteError> {
    let RemoteOptions { identity, policy, incarnation, control, dispatchers, listening } = options;
    let homes = HomeTable::new(identity.name(), &dispatchers);
    let node = NodeSelf { identity, policy: policy.present.id, incarnation, role: Role::Dispatcher };
    let open = || Ok(HostNetwork::open(node, listening)?);
    runner_over(assembly, name, config, open, (control, homes, policy), is_stopped)
}

/// Creates a runner of a policy on units over a network.
pub(crate) fn runner_over<N: Network>(
    assembly: Assembly,
    name: &str,
    config: UnitsConfig,
    open: impl FnOnce() -> Result<N, RemoteError>,
    (control, homes, desk): (RemoteControl, HomeTable, PolicyDesk),
    is_stopped: Option<IsStopped<'_>>,
) -> Result<Runner, RemoteError> {
    check_sharing(&assembly)?;
    if homes.has_others() {
        sharing::check_dispatchers(&assembly)?;
    }
    let mut remote = RemoteUnits {
        config,
        seed: assembly.seed,
        local: LocalGraph::placeholder(&assembly.graph)?,
        peers: Peers::new(open()?),
        nodes: Nodes::default(),
        units: UnitTable::default(),
        homes,
        desk,
        rollout: None,
        failed_orders: VecDeque::new(),
        inquiries: Inquiries::default(),
        former_graphs: Vec::new(),
        trace: timeline::trace(Machine::Dispatcher),
        awaited: Vec::new(),
        wanted: (0..config.units_min).map(UnitId).collect(),
        streams: Streams::default(),
        start: Start::new(config.units_min),
        changes: VecDeque::new(),
        control,
        shown_ns: 0,
        now_ns: 0,
        clock_sent_ns: 0,
        is_busy: false,
        has_full_units: false,
        unsent_since_ns: None,
        controls: Vec::new(),
        is_finishing: false,
        fences: 0,
        refused: 0,
        relayed: 0,
    };
    remote.units.know_figures(Figures::of(&assembly.graph));
    remote.connect_to_others();
    if let Some(is_stopped) = is_stopped {
        remote.await_first_units(is_stopped)?;
    }
    Ok(Runner::on_transport(assembly, name, config, remote)?)
}

impl<N: Network> RemoteUnits<N> {
    /// Waits until the run can begin.
    fn await_first_units(&mut self, is_stopped: IsStopped<'_>) -> Result<(), RemoteError> {
        self.start.is_awaited = true;
        loop {
            self.work();
            if self.start.has_begun {
                // The dispatcher knows already that these units are ready.
                self.start.is_awaited = false;
                self.units.discard_reports();
                return Ok(());
            }
            let status = self.start_status();
            if is_stopped(&status) {
                return Err(RemoteError::Stopped(status));
            }
            self.peers.wait(WAIT);
        }
    }

    /// Sends and receives everything that is possible now.
    fn work(&mut self) {
        self.peers.transmit();
        self.receive_frames();
        self.unsent_since_ns = None;
        self.peers.flush();
    }

    /// Receives, and sends what fills system calls or has waited for [`HOLD_NS`], because more
    /// packets follow at once.
    fn work_on(&mut self) {
        let now_ns = self.peers.now_ns();
        let since_ns = *self.unsent_since_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(since_ns) >= HOLD_NS {
            return self.work();
        }
        self.peers.transmit_full();
        self.receive_frames();
    }

    /// Receives everything that has arrived.
    fn receive_frames(&mut self) {
        self.accept_sessions();
        loop {
            let has_received = self.peers.receive();
            self.handle_frames();
            if !has_received {
                break;
            }
        }
        while let Some(event) = self.peers.poll_event() {
            match event {
                PeerEvent::Up(peer) => self.activate_other(peer),
                PeerEvent::Suspect(peer) => self.suspect(peer, true),
                PeerEvent::Alive(peer) => self.suspect(peer, false),
                PeerEvent::Dead(peer) => self.disconnect(peer),
            }
        }
        self.acknowledge_taken();
    }

    /// Marks a silent node as suspect, or as alive again. It may have been restarted: then another
    /// process of it shows that the former one has ended.
    fn suspect(&mut self, peer: PeerId, is_suspect: bool) {
        self.look_for_another(peer, is_suspect);
        let Some(unit) = self.units.number_at(peer) else { return };
        if let Some(known) = self.units.alive_mut(unit) {
            known.is_suspect = is_suspect;
        }
        let change = if is_suspect { UnitChange::Suspect } else { UnitChange::Alive };
        self.changes.push_back(change(unit));
    }

    fn handle_frames(&mut self) {
        while let Some((peer, frame)) = self.peers.poll() {
            let graph = &self.local.graph;
            let hash = |key: &FlowKey| graph.classifier().hash_of(key);
            match read_frame(frame, self.now_ns, hash) {
                Ok(ArrivedFrame::Report(report, context)) => {
                    self.units.take_report(peer, WaitingReport::new(report, context));
                }
                Ok(ArrivedFrame::Output(mut rest)) => {
                    let packet = output(&mut rest, &mut self.local);
                    self.units.take_output(peer, packet);
                }
                Ok(ArrivedFrame::Figures(figures)) => {
                    if let Some(unit) = self.units.at_mut(peer) {
                        unit.figures = *figures;
                    }
                }
                Ok(ArrivedFrame::FiguresChanged(changes)) => self.units.take_figures(peer, changes),
                Ok(ArrivedFrame::Timeline(question, timeline)) => {
                    self.inquiries.take_answer(peer, question, timeline);
                }
                Ok(ArrivedFrame::Relay(to, frame)) => {
                    let frame = frame.to_vec();
                    self.relay(peer, to, &frame);
                }
                Ok(ArrivedFrame::PolicyRead { asked, read }) => self.policy_read(peer, asked, read),
                Ok(ArrivedFrame::OfPolicies(frame)) => {
                    if !self.take_policy_frame(peer, frame) {
                        self.refused += 1;
                    }
                }
                Ok(ArrivedFrame::Gone) => {
                    event::peer_left(&self.peers.name(peer));
                    self.part(peer);
                }
                Ok(ArrivedFrame::Leave) => {
                    let change = self.nodes.leave(peer);
                    self.change_unit(change);
                }
                Ok(ArrivedFrame::Taken(taken, is_last)) => self.receive_taken_ack(peer, taken, is_last),
                Ok(frame @ (ArrivedFrame::Passed(..) | ArrivedFrame::Claim(..)))
                | Ok(frame @ (ArrivedFrame::Granted(_) | ArrivedFrame::Released(_))) => {
                    let (homes, local) = (&mut self.homes, &mut self.local);
                    let answer = others::take(homes, local, self.now_ns, (peer, frame));
                    match answer {
                        Ok(None) => {}
                        Ok(Some(count)) => self.peers.send(peer, ORDERED, |out| write_granted(out, count)),
                        Err(_) => self.refused += 1,
                    }
                }
                // A kind of a later version.
                Err(FrameError::UnknownKind(_)) => {}
                Ok(_) | Err(_) => self.refused += 1,
            }
        }
    }

    /// Relays a frame to a unit that the sender cannot reach. If the unit is lost, the sender will
    /// learn that from the list of units.
    fn relay(&mut self, from: PeerId, to: UnitId, frame: &[u8]) {
        let Some(from) = self.units.number_at(from) else {
            self.refused += 1;
            return;
        };
        self.relayed += 1;
        if let Some(to) = self.units.alive_mut(to) {
            self.peers.send(to.peer, ORDERED, |out| write_relayed(out, from, frame));
        }
    }

    /// Accepts new sessions, and executes commands.
    fn accept_sessions(&mut self) {
        while let Some(session) = self.peers.network().poll_session() {
            let (name, address) = (session.peer.name.clone(), session.ends.remote);
            let policy = session.peer.running();
            let is_unit = session.peer.role == Role::Unit;
            if !is_unit {
                self.meet(session);
                continue;
            }
            if let Some(former) = self.nodes.link_of(&name) {
                if self.peers.is_of(former, &session) {
                    continue; // It is the same process; its link continues.
                }
                self.disconnect(former);
                self.peers.network().forget("", &name);
            }
            let peer = self.peers.add(session);
            match self.nodes.connected(&name, peer, policy) {
                Some(_) => {
                    event::peer_connected(&name, &address);
                    self.offer_policy(peer);
                    if policy.digest == self.desk.present.id.digest {
                        self.activate_spare();
                    }
                    self.meet_policy(peer, policy);
                }
                None => {
                    let reason = "no node of this name is awaited: one is there, or was removed";
                    refuse_peer("name", &format_args!("{name} at {address}"), &reason);
                    self.peers.remove(peer);
                }
            }
        }
        while let Some(ConnectFault { scope, name, reason, refused_at }) = self.peers.network().poll_fault() {
            let peer = match (&*scope, self.homes.number_of(&name)) {
                ("", _) => {
                    self.nodes.failed(&name, reason);
                    self.nodes.peer_of(&name)
                }
                (_, Some(number)) => {
                    self.homes.get_mut(number).fault = reason;
                    None
                }
                _ => None,
            };
            // The unit is silent, and its host says that no process listens there. A host may be
            // wrong, as while its packet filter is reloaded: without replicas, that would cost
            // flows that waiting saves.
            let has_replicas = self.config.copies > 0;
            let is_gone = |&peer: &PeerId| has_replicas && self.peers.is_suspect_at(peer, &refused_at);
            if let Some(peer) = peer.filter(is_gone) {
                event::process_gone(&name);
                self.peers.count_dead();
                self.disconnect(peer);
            }
        }
        while let Ok(order) = self.control.policies.try_recv() {
            self.take_order(order);
        }
        self.advance_policies();
        while let Ok(order) = self.control.inquiries.try_recv() {
            self.inquire(order);
        }
        self.inquiries.expire(self.peers.now_ns());
        for _ in 0..COMMANDS_MAX {
            let Some(command) = self.control.poll_command() else { break };
            match command {
                NodeCommand::Add { name, address } => {
                    if self.nodes.add(&name, &address) {
                        self.peers.network().connect("", &name, &address);
                    }
                }
                NodeCommand::Remove { name } => {
                    self.nodes.remove(&name);
                    self.peers.network().forget("", &name);
                }
                NodeCommand::Drain { name } => {
                    let change = self.nodes.drain(&name);
                    self.change_unit(change);
                }
                NodeCommand::Resume { name } => match self.nodes.resume(self.peers.now_ns(), &name) {
                    ResumedNode::Spare => self.activate_spare(),
                    ResumedNode::Parting(peer) => self.peers.send(peer, ORDERED, write_part),
                    ResumedNode::Awaited(address) => self.peers.network().connect("", &name, &address),
                    ResumedNode::Unchanged => {}
                },
            }
        }
        while let Some(peer) = self.nodes.late_to_part(self.peers.now_ns().saturating_sub(PART_NS)) {
            self.disconnect(peer);
        }
        if self.look_at_start() || self.peers.now_ns().saturating_sub(self.shown_ns) >= STATUS_NS {
            self.show_status();
        }
    }

    /// Asks all units for the lines of a flow.
    fn inquire(&mut self, InquiryOrder { flow, lines_max, reply }: InquiryOrder) {
        let peers = &self.peers;
        let asked = self.units.alive().map(|unit| (unit.peer, peers.name(unit.peer))).collect();
        let Some((number, asked)) = self.inquiries.begin(peers.now_ns(), asked, reply) else { return };
        let question = TimelineQuestion { number, flow, lines_max };
        for peer in asked {
            self.peers.send(peer, ASIDE, |out| write_timeline_asked(out, &question));
        }
    }

    /// Passes a change of a node to the dispatcher. A unit without flows will get none.
    fn change_unit(&mut self, change: Option<UnitChange>) {
        if let Some(UnitChange::Retire(unit)) = change
            && let Some(unit) = self.units.alive_mut(unit)
        {
            self.peers.send(unit.peer, ORDERED, write_stopped);
        }
        self.changes.extend(change);
    }

    /// Makes a spare node a unit that the dispatcher waits for, or offers it as an additional one.
    fn activate_spare(&mut self) {
        match self.wanted.pop_front() {
            Some(unit) if !self.assign(unit) => self.wanted.push_front(unit),
            Some(_) => {}
            None => self.changes.push_back(UnitChange::Join),
        }
    }

    fn show_status(&mut self) {
        self.shown_ns = self.peers.now_ns();
        for (name, other, address) in self.nodes.take_doubled(self.shown_ns) {
            event::name_taken(&name, &address, &other);
        }
        let packets = |unit: UnitId| self.units.get(unit).map(|unit| unit.sent);
        let silent_ns = |peer: PeerId| self.peers.suspect_ns(peer);
        let (nodes, mut links) = (self.nodes.infos(packets, silent_ns), self.peers.links());
        links.sort_by(|one, other| one.peer.cmp(&other.peer));
        let (totals, rollout) = (self.links_report(), self.rollout_status());
        let (policy, policy_name) = (self.desk.present.id, self.desk.present.texts.name.clone());
        let (others, failed) = (
            self.homes.others(|peer| self.peers.suspect_ns(peer)),
            self.failed_orders.iter().cloned().collect(),
        );
        let start = self.start_status();
        self.control.show(RemoteStatus {
            nodes,
            others,
            links,
            totals,
            policy,
            policy_name,
            rollout,
            failed,
            start,
        });
    }

    fn links_report(&self) -> LinksReport {
        let (messages_refused, messages_relayed) = (self.refused, self.relayed);
        let store_entries_refused = self.control.entries_refused.load(Ordering::Relaxed);
        LinksReport { messages_refused, messages_relayed, store_entries_refused, ..self.peers.links_report() }
    }

    /// Assigns a unit's number to a spare node. Returns false if there is none.
    fn assign(&mut self, unit: UnitId) -> bool {
        let Some((node, peer)) = self.nodes.assign(unit, &self.desk.present.id.digest) else { return false };
        self.units.add(unit, node, peer);
        let incarnation = self.peers.incarnation(peer);
        self.note(TimelineEvent::UnitAssigned { unit, incarnation });
        let assignment = Assignment {
            unit,
            seed: self.seed,
            gap_ns: self.config.gap_ns,
            copies: self.config.copies,
            deltas: self.config.deltas,
            keeps_timeline: timeline::is_kept(),
        };
        self.peers.send(peer, ORDERED, |out| write_assignment(out, &assignment));
        for (stage, command) in &self.controls {
            let input = ToUnit::Control(*stage, command.as_str().into());
            self.peers.send(peer, ORDERED, |out| write_input(out, &input));
        }
        self.broadcast_addresses();
        true
    }

    /// Notes in the timeline the packets in flight for which the dispatcher waits, if they are
    /// others than before.
    fn note_awaited(&mut self) {
        if !self.trace.has_packets() {
            return;
        }
        let awaited: Vec<(UnitId, u64)> = self.units.awaited().collect();
        if awaited != self.awaited {
            for &(unit, packets) in &awaited {
                self.note(TimelineEvent::Awaited { packets, unit });
            }
            self.awaited = awaited;
        }
    }

    fn note(&self, event: TimelineEvent) {
        self.trace.note(self.now_ns, FlowPlace::NONE, None, event);
    }

    /// Sends all units the addresses of the others. A unit learns of another one before it can
    /// receive its frames.
    fn broadcast_addresses(&mut self) {
        let addresses = self.nodes.addresses();
        for unit in self.units.alive() {
            self.peers.send(unit.peer, ORDERED, |out| write_units(out, &addresses));
        }
    }

    /// Handles the loss of a node.
    fn disconnect(&mut self, peer: PeerId) {
        if let Some(at) = self.homes.parting.iter().position(|&parting| parting == peer) {
            self.homes.parting.swap_remove(at);
            return self.peers.remove(peer);
        }
        if self.homes.forget_early(peer) {
            return self.peers.remove(peer);
        }
        let name = self.peers.name(peer);
        match self.nodes.is_drained(peer) {
            true => event::peer_left(&name),
            false => event::peer_lost(&name),
        }
        self.part(peer);
    }

    /// Removes a node's link, which has ended.
    fn part(&mut self, peer: PeerId) {
        let name = self.peers.name(peer);
        self.forget_policies_of(peer);
        self.inquiries.lose(peer);
        self.peers.remove(peer);
        if self.homes.at(peer).is_some() {
            return self.disconnect_other(peer);
        }
        let (address, unit) = self.nodes.lost(peer);
        // A unit that has ended its flows at the end of the run has reported them all.
        let is_over = self.is_finishing && self.units.at_mut(peer).is_some_and(|unit| !unit.is_behind);
        self.units.mark_lost(peer, unit.is_some() && !is_over);
        if let Some(unit) = unit {
            self.changes.push_back(UnitChange::Crash(unit));
            self.want_another(unit);
        }
        // Others may wait for its messages, even if it was drained before.
        self.broadcast_addresses();
        // It may come back.
        if let Some(address) = address.filter(|_| !self.is_finishing) {
            self.peers.network().connect("", &name, &address);
        }
    }

    /// Sends a request to all ready units, and notes that they have to answer it. Units that are
    /// starting get it only at the end of the run.
    fn ask(&mut self, question: &ToUnit) {
        let is_end = matches!(question, ToUnit::Finish);
        for unit in self.units.alive().filter(|unit| unit.is_ready || is_end && !unit.is_suspect) {
            unit.is_behind = true;
            self.peers.send(unit.peer, ORDERED, |out| write_input(out, question));
        }
    }

    fn broadcast(&mut self, input: &ToUnit) {
        for unit in self.units.alive() {
            self.peers.send(unit.peer, ORDERED, |out| write_input(out, input));
        }
    }

    /// Sends all units the time. In a live run units also have clocks of their own, so it may be
    /// reordered with packets.
    fn broadcast_time(&mut self, now_ns: u64) {
        let stream = if self.config.is_live { ASIDE } else { ORDERED };
        for unit in self.units.alive() {
            self.peers.send(unit.peer, stream, |out| write_input(out, &ToUnit::Time(now_ns)));
        }
    }
}

/// Parses an output packet. Returns `None`, which is counted, if it is damaged or there is no
/// buffer.
fn output(rest: &mut Reader<'_>, local: &mut LocalGraph) -> Option<Packet> {
    let pool = &mut local.pool;
    let buffer = |frame: &[u8]| {
        if pool.free() == 0 {
            pool.fill(BUFFERS_MORE); // Bounded by the limit on packets in flight.
        }
        pool.take(frame)
    };
    read_output(rest, buffer).ok()
}
