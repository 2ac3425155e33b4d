//! A unit as a process: it waits for a dispatcher, processes its packets, and hands flows over to
//! other units directly (S11, S14; A4-A7).

mod others;
mod running;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use graph::Graph;
use nf::Effects;
use runtime::report::{LinksReport, Report};
use telemetry::event;

use self::running::{Order, Refused, Running, handle};
use crate::identity::Identity;
use crate::network::{HostNetwork, Network, NodeSelf};
use crate::peers::{PeerEvent, PeerId, Peers};
use crate::wire::{Assignment, FrameError, Role, UnitFigures, write_leave};

/// The longest sleep.
const SLEEP_NS: u64 = 20_000_000;

/// Limit on the time that a unit takes to give its flows away before it ends.
const LEAVE_MAX_NS: u64 = 10_000_000_000;
/// Time for which a unit without flows forwards packets that were on their way to it.
const LINGER_NS: u64 = 500_000_000;

/// An order to a unit that works on another thread.
#[derive(Debug, Default)]
pub struct UnitOrder {
    /// It gives its flows away, and ends.
    pub leaves: AtomicBool,
    /// It ends at once, as in a crash.
    pub aborts: AtomicBool,
}

/// Takes alerts, events and flow reports, with the time of the run in nanoseconds.
pub type EffectsTaker = Box<dyn FnMut(Effects, u64)>;

/// Makes a graph of the policy with this seed.
pub type GraphMaker = Box<dyn FnMut(u64) -> Result<Box<Graph>, String>>;

/// The settings of a unit.
pub struct UnitOptions {
    /// Address of its handshakes, and of its links.
    pub listen: SocketAddr,
    /// Certificate and key.
    pub identity: Identity,
    /// Digest of the policy.
    pub policy: [u8; 32],
    /// Counts restarts of the process.
    pub incarnation: u64,
    /// Makes its graph.
    pub make: GraphMaker,
    /// Takes alerts, events and flow reports. They stay at the unit.
    pub effects: EffectsTaker,
}

/// Counts of a unit process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitProcessCounters {
    /// Frames that could not be read, or that their sender may not send.
    pub frames_refused: u64,
    /// Frames of a kind that is not known.
    pub frames_unknown: u64,
    /// Packets for which there was no buffer, or which could not be parsed.
    pub packets_refused: u64,
}

/// A unit as a process.
pub struct UnitProcess<N = HostNetwork> {
    peers: Peers<N>,
    make: GraphMaker,
    effects: EffectsTaker,
    dispatcher: Option<PeerId>,
    /// Name and incarnation of the dispatcher that it had last.
    last_dispatcher: Option<(String, u64)>,
    unit: Option<Running>,
    /// Nodes that have connected, and whose units are not known yet.
    early: Vec<EarlyPeer>,
    counters: UnitProcessCounters,
}

/// A node that has connected.
struct EarlyPeer {
    name: String,
    peer: PeerId,
    /// This node has begun the connection.
    is_client: bool,
}

/// The next task of a unit's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// There may be more to do.
    More,
    /// Nothing happens for this time, or until something arrives.
    Wait(u64),
    /// The unit has ended.
    Over,
}

impl UnitProcess {
    /// Listens for a dispatcher.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub fn start(options: UnitOptions) -> std::io::Result<UnitProcess> {
        let UnitOptions { listen, identity, policy, incarnation, make, effects } = options;
        let node = NodeSelf { identity, policy, incarnation, role: Role::Unit };
        Ok(UnitProcess::over(HostNetwork::open(node, Some(listen))?, make, effects))
    }

    /// Returns the address at which it listens.
    pub fn address(&mut self) -> SocketAddr {
        self.peers.network().address()
    }

    /// Works until the dispatcher ends the run, or the order to leave is carried out: the unit
    /// gives its flows away before it ends. Returns what it counted.
    pub fn run(&mut self, order: &UnitOrder) -> Option<UnitFigures> {
        loop {
            match self.turn(order) {
                Turn::More => {}
                Turn::Wait(ns) => self.peers.wait(Duration::from_nanos(ns)),
                Turn::Over => return self.figures(),
            }
        }
    }
}

impl<N: Network> UnitProcess<N> {
    /// Creates a unit's process on a network.
    pub(crate) fn over(network: N, make: GraphMaker, effects: EffectsTaker) -> UnitProcess<N> {
        UnitProcess {
            peers: Peers::new(network),
            make,
            effects,
            dispatcher: None,
            last_dispatcher: None,
            unit: None,
            early: Vec::new(),
            counters: UnitProcessCounters::default(),
        }
    }

    /// Returns what the unit waits for, for the report of a fault.
    pub(crate) fn description(&self) -> String {
        let Some(unit) = &self.unit else { return "no unit".to_owned() };
        let counters = unit.end.counters();
        format!(
            "{:?}, {:?}, processed: {}, pulls: {}, taken: {}, lost: {}",
            unit.id,
            unit.others,
            counters.processed,
            counters.pulls_sent,
            counters.states_taken,
            counters.states_lost
        )
    }

    /// Returns what the unit has counted; none before it is assigned.
    pub(crate) fn figures(&self) -> Option<UnitFigures> {
        self.unit.as_ref().map(Running::figures)
    }

    /// Returns the counters.
    pub fn counters(&self) -> UnitProcessCounters {
        self.counters
    }

    /// Returns the report of the unit's graph, whose functions have these names; none before it is
    /// assigned.
    pub fn report(&self, policy: &str, names: &[String]) -> Option<Report> {
        let unit = self.unit.as_ref()?;
        let mut report = Report::of(policy, None, unit.end.graph(), names);
        // The dispatcher counts what arrives; here, packets come from it.
        report.packets_in = report.packets_out + report.dropped() + report.packets_pending;
        report.packets_in = report.packets_in.saturating_sub(report.packets_generated);
        let messages_refused = self.counters.frames_refused + self.counters.frames_unknown;
        report.links = Some(LinksReport { messages_refused, ..self.peers.links_report() });
        Some(report)
    }

    /// Handles everything that has arrived, and deadlines that have passed.
    pub(crate) fn turn(&mut self, order: &UnitOrder) -> Turn {
        if order.aborts.load(Ordering::Relaxed) {
            return Turn::Over;
        }
        let has_worked = self.step();
        if order.leaves.load(Ordering::Relaxed) && self.has_left() {
            return Turn::Over;
        }
        let is_heard = self.dispatcher.is_none_or(|dispatcher| self.peers.is_flushed(dispatcher));
        if is_heard && self.unit.as_ref().is_some_and(|unit| unit.has_finished) {
            return Turn::Over;
        }
        if has_worked {
            return Turn::More;
        }
        let due_ns = self.unit.as_ref().map_or(u64::MAX, |unit| unit.sleep_ns());
        Turn::Wait(due_ns.min(self.peers.sleep_ns()).min(SLEEP_NS))
    }

    /// Asks the dispatcher to take the unit's flows. Returns true once they are gone, if there is
    /// no dispatcher, or if it takes too long.
    fn has_left(&mut self) -> bool {
        let now_ns = self.peers.now_ns();
        let (Some(dispatcher), Some(unit)) = (self.dispatcher, &mut self.unit) else { return true };
        let Some(since_ns) = unit.leaving_ns else {
            unit.leaving_ns = Some(now_ns);
            self.peers.send(dispatcher, 0, write_leave);
            return false;
        };
        // Packets that were on their way are forwarded for a while.
        let has_drained = unit.drained_ns.is_some_and(|at_ns| now_ns - at_ns >= LINGER_NS);
        has_drained && self.peers.is_flushed(dispatcher) || now_ns - since_ns >= LEAVE_MAX_NS
    }

    /// Handles what has arrived. Returns true if there was anything.
    fn step(&mut self) -> bool {
        self.greet();
        self.set_clock();
        let mut worked = false;
        while let Some((peer, frame)) = self.peers.poll() {
            worked = true;
            let is_dispatcher = self.dispatcher == Some(peer);
            match handle(&mut self.unit, (peer, is_dispatcher), frame) {
                Ok(Some(Order::Assign(assignment))) => self.assign(&assignment),
                Ok(Some(Order::Connect(units))) => {
                    let network = self.peers.network();
                    units.iter().for_each(|(name, address)| network.connect(name, address));
                    self.seat_early();
                }
                Ok(None) => {}
                Err(Refused::Frame(FrameError::UnknownKind(_))) => self.counters.frames_unknown += 1,
                Err(Refused::Frame(_)) => self.counters.frames_refused += 1,
                Err(Refused::Packet) => self.counters.packets_refused += 1,
            }
            if let Some(unit) = &mut self.unit {
                unit.keep_buffers(self.dispatcher, &mut self.peers, &mut self.effects);
            }
        }
        while let Some(PeerEvent::Dead(peer)) = self.peers.poll_event() {
            self.lose(peer);
        }
        self.set_clock();
        if let Some(unit) = &mut self.unit {
            worked |= unit.handle_timeouts();
            unit.end.report();
            unit.send(self.dispatcher, &mut self.peers, &mut self.effects);
        }
        self.peers.flush();
        worked
    }

    fn set_clock(&mut self) {
        if let Some(unit) = &mut self.unit {
            unit.clock_ns = self.peers.now_ns();
        }
    }

    /// Takes nodes that have connected, or to which this one has.
    fn greet(&mut self) {
        while let Some(session) = self.peers.network().poll_session() {
            let is_client = session.is_client;
            let (role, name, incarnation) =
                (session.peer.role, session.peer.name.clone(), session.peer.incarnation);
            if role == Role::Dispatcher && !self.may_follow(&name, incarnation) {
                event::peer_refused(&format!("{name}: this unit has another dispatcher"));
                continue;
            }
            event::peer_connected(&name, &session.address);
            let peer = self.peers.add(session);
            match role {
                Role::Dispatcher => {
                    self.last_dispatcher = Some((name, incarnation));
                    if let Some(former) = self.dispatcher {
                        self.lose(former);
                    }
                    self.dispatcher = Some(peer);
                }
                Role::Unit => {
                    self.early.push(EarlyPeer { name, peer, is_client });
                    self.seat_early();
                }
            }
        }
    }

    /// Returns true if this dispatcher may have the unit: it has none, or this is the same one
    /// after a restart, whose flows nobody knows any more.
    fn may_follow(&self, name: &str, incarnation: u64) -> bool {
        let is_restarted = |(last, before): &(String, u64)| last == name && incarnation > *before;
        self.dispatcher.is_none() || self.last_dispatcher.as_ref().is_some_and(is_restarted)
    }

    /// Gives units that have connected their numbers, once these are known.
    fn seat_early(&mut self) {
        let Some(unit) = &mut self.unit else { return };
        let peers = &mut self.peers;
        let seated: Vec<EarlyPeer> =
            self.early.extract_if(.., |early| unit.others.connected(early, peers)).collect();
        for early in seated {
            self.peers.besides(early.peer).into_iter().for_each(|other| self.lose(other));
        }
    }

    fn assign(&mut self, assignment: &Assignment) {
        let stopwatch = self.peers.network().stopwatch();
        match Running::new(assignment, &mut self.make, stopwatch) {
            Ok(unit) => self.unit = Some(unit),
            Err(reason) => event::peer_refused(&format!("cannot make the unit's graph: {reason}")),
        }
    }

    fn lose(&mut self, peer: PeerId) {
        event::peer_lost(&self.peers.name(peer));
        self.peers.remove(peer);
        if self.dispatcher == Some(peer) {
            // Its successor does not know this unit's flows.
            self.dispatcher = None;
            if let Some(mut unit) = self.unit.take_if(|unit| !unit.has_finished) {
                while !unit.end.end_flows() {}
                unit.send(None, &mut self.peers, &mut self.effects);
            }
            return;
        }
        self.early.retain(|early| early.peer != peer);
        if let Some(unit) = &mut self.unit {
            for mail in unit.others.lose(peer) {
                unit.end.handle_mail(mail);
            }
        }
    }
}
