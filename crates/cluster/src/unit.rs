//! A unit as a process: it waits for dispatchers, processes their packets, and hands flows over to
//! other units directly (S11, S14; A4-A7).
//!
//! Each dispatcher has the unit to itself, as far as it can see: a graph, a number and links to its
//! other units. What the dispatchers share is the process and its time.

mod details;
mod employer;
mod others;
mod policy;
mod running;
mod scope;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use nf::Effects;
use runtime::report::{LinksReport, Report};
use telemetry::{event, refuse_peer};

use self::employer::Employer;
use self::others::EarlyPeer;
use self::policy::UnitPolicy;
use self::running::{Order, Refused, handle};
use self::scope::Scope;
use crate::identity::Identity;
use crate::network::{HostNetwork, Network, NodeSelf};
use crate::peers::{PeerEvent, PeerId, Peers};
use crate::policies::{AppliedPolicy, GraphMaker, PolicyReader, PolicyShelf};
use crate::wire::{FrameError, Role, UnitAddress, UnitFigures};

/// The longest sleep.
const SLEEP_NS: u64 = 20_000_000;

/// Period in which a unit is shown, in nanoseconds.
const SHOW_NS: u64 = 1_000_000_000;

/// Limit on the dispatchers of a unit. It refuses others.
pub const DISPATCHERS_MAX: usize = 16;

/// An order to a unit that works on another thread, and what is seen of it.
#[derive(Debug, Default)]
pub struct UnitOrder {
    /// It gives its flows away, and ends.
    pub leaves: AtomicBool,
    /// It ends at once, as in a crash.
    pub aborts: AtomicBool,
    /// It outlives the runs of its dispatchers, and waits for the next one.
    pub stays: AtomicBool,
    /// The number of dispatchers that the unit works for, which it shows.
    pub dispatchers: AtomicUsize,
}

/// Takes alerts, events and flow reports, with the time of the run in nanoseconds.
pub type EffectsTaker = Box<dyn FnMut(Effects, u64)>;

/// The settings of a unit.
pub struct UnitOptions {
    /// The socket of its handshakes.
    pub listening: TcpListener,
    /// Certificate and key.
    pub identity: Identity,
    /// The policy that it starts with.
    pub policy: AppliedPolicy,
    /// Keeps policies of the cluster.
    pub shelf: Box<dyn PolicyShelf>,
    /// Counts restarts of the process.
    pub incarnation: u64,
    /// Makes its graph.
    pub make: GraphMaker,
    /// Reads policies that dispatchers send.
    pub reader: Box<dyn PolicyReader>,
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
    /// Frames of other units about flows of a dispatcher's process before, or of the next one.
    pub frames_stale: u64,
    /// Packets for which there was no buffer, or which could not be parsed.
    pub packets_refused: u64,
}

/// A unit as a process.
pub struct UnitProcess<N = HostNetwork> {
    peers: Peers<N>,
    make: GraphMaker,
    policy: UnitPolicy,
    effects: EffectsTaker,
    /// The dispatchers that it has, or has had.
    employers: Vec<Employer>,
    /// By link: whom it is for, and the incarnation of that dispatcher.
    of_peers: Vec<(usize, u64)>,
    counters: UnitProcessCounters,
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
    /// Waits for dispatchers at a socket.
    ///
    /// # Errors
    /// If the socket of links, or a thread, cannot be had.
    pub fn start(options: UnitOptions) -> std::io::Result<UnitProcess> {
        let UnitOptions { listening, identity, policy, shelf, incarnation, make, reader, effects } = options;
        let node = NodeSelf { identity, policy: policy.id, incarnation, role: Role::Unit };
        Ok(UnitProcess::over(
            HostNetwork::open(node, Some(listening))?,
            (make, reader),
            (policy, shelf),
            effects,
        ))
    }

    /// Returns the address at which it listens.
    pub fn address(&mut self) -> SocketAddr {
        self.peers.network().address()
    }

    /// Works until a dispatcher ends the run and no other one has the unit, unless it
    /// [stays](UnitOrder::stays), or the order to leave is carried out: the unit gives its flows
    /// away before it ends. Returns what it counted, for each dispatcher.
    pub fn run(&mut self, order: &UnitOrder) -> Vec<UnitFigures> {
        self.run_shown(order, |_| {})
    }

    /// The same, and shows the unit each `SHOW_NS`.
    pub fn run_shown(&mut self, order: &UnitOrder, mut show: impl FnMut(&UnitProcess)) -> Vec<UnitFigures> {
        let mut shown_ns = 0;
        loop {
            let now_ns = self.peers.now_ns();
            if now_ns.saturating_sub(shown_ns) >= SHOW_NS {
                shown_ns = now_ns;
                show(self);
            }
            match self.turn(order) {
                Turn::More => {}
                Turn::Wait(ns) => self.peers.wait(Duration::from_nanos(ns)),
                Turn::Over => {
                    if !order.aborts.load(Ordering::Relaxed) {
                        // Who hears of the end connects again at once, and is to find the next one.
                        self.peers.network().close();
                        self.peers.remove_all();
                    }
                    return self.figures().collect();
                }
            }
        }
    }
}

impl<N: Network> UnitProcess<N> {
    /// Creates a unit's process on a network.
    pub(crate) fn over(
        network: N,
        (make, reader): (GraphMaker, Box<dyn PolicyReader>),
        (present, shelf): (AppliedPolicy, Box<dyn PolicyShelf>),
        effects: EffectsTaker,
    ) -> UnitProcess<N> {
        UnitProcess {
            peers: Peers::new(network),
            make,
            policy: UnitPolicy::new(present, reader, shelf),
            effects,
            employers: Vec::new(),
            of_peers: Vec::new(),
            counters: UnitProcessCounters::default(),
        }
    }

    /// Returns what the unit waits for, for the report of a fault.
    pub(crate) fn description(&self) -> String {
        let of_each: Vec<String> = self.employers.iter().map(Employer::description).collect();
        if of_each.is_empty() { "no unit".to_owned() } else { of_each.join("; ") }
    }

    /// Returns what the unit has counted, for each dispatcher that has assigned it.
    pub(crate) fn figures(&self) -> impl Iterator<Item = UnitFigures> {
        self.employers.iter().filter_map(Employer::figures)
    }

    /// Returns the counters.
    pub fn counters(&self) -> UnitProcessCounters {
        self.counters
    }

    /// Returns the report of the unit's graphs, whose functions have these names; none before it is
    /// assigned.
    pub fn report(&self, policy: &str, names: &[String]) -> Option<Report> {
        let reports = self.employers.iter().filter_map(|employer| employer.report(policy, names));
        let mut report = reports.reduce(|mut all, report| {
            all.add(&report);
            all
        })?;
        let UnitProcessCounters { frames_refused, frames_unknown, frames_stale, .. } = self.counters;
        let messages_refused = frames_refused + frames_unknown + frames_stale;
        report.links = Some(LinksReport { messages_refused, ..self.peers.links_report() });
        Some(report)
    }

    /// Handles everything that has arrived, and deadlines that have passed.
    pub(crate) fn turn(&mut self, order: &UnitOrder) -> Turn {
        if order.aborts.load(Ordering::Relaxed) {
            return Turn::Over;
        }
        let has_worked = self.step();
        let peers = &mut self.peers;
        if order.leaves.load(Ordering::Relaxed) {
            // Each is asked.
            let left = self.employers.iter_mut().map(|employer| employer.has_left(peers));
            if left.fold(true, |all, has_left| all & has_left) {
                return Turn::Over;
            }
        }
        self.renew();
        let working = self.employers.iter().filter(|employer| employer.is_at_work()).count();
        order.dispatchers.store(working, Ordering::Relaxed);
        let stays = order.stays.load(Ordering::Relaxed);
        if stays {
            self.end_runs();
        }
        let peers = &mut self.peers;
        let has_ended = |employer: &Employer| !stays && employer.has_ended(peers);
        let is_employed = |employer: &Employer| employer.dispatcher.is_some() && !employer.has_ended(peers);
        if self.employers.iter().any(has_ended) && !self.employers.iter().any(is_employed) {
            return Turn::Over;
        }
        if has_worked {
            return Turn::More;
        }
        let due_ns = self.employers.iter().map(Employer::sleep_ns).min().unwrap_or(u64::MAX);
        Turn::Wait(due_ns.min(self.peers.sleep_ns()).min(SLEEP_NS))
    }

    /// Handles what has arrived, and sends what follows from it. Returns true if anything was
    /// there.
    fn step(&mut self) -> bool {
        self.greet();
        self.set_clock();
        let mut worked = false;
        loop {
            let has_received = self.peers.receive();
            self.handle_events();
            worked |= self.handle_frames();
            if !has_received {
                break;
            }
            // Other units may wait for it, while more keeps arriving.
            self.send();
            self.peers.transmit();
        }
        self.handle_events();
        self.take_policy();
        self.set_clock();
        for unit in self.employers.iter_mut().filter_map(|employer| employer.unit.as_mut()) {
            worked |= unit.handle_timeouts();
        }
        self.send();
        self.peers.flush();
        worked
    }

    /// Handles changes of links.
    fn handle_events(&mut self) {
        while let Some(event) = self.peers.poll_event() {
            match event {
                PeerEvent::Up(peer) => self.seat(peer),
                PeerEvent::Dead(peer) => self.lose(peer),
                // Its flows stay, and what they send waits in the link.
                PeerEvent::Suspect(_) | PeerEvent::Heard(_) => {}
            }
        }
    }

    /// The link of a node that has connected is in use. A dispatcher's takes the place of the one
    /// before: the dispatcher has lost that one, although this end may not know yet.
    fn seat(&mut self, peer: PeerId) {
        let (at, _) = self.of_peers[peer.index()];
        let Some(incarnation) = self.employers[at].take_candidate(peer) else {
            return self.seat_early(at);
        };
        let employer = &mut self.employers[at];
        let former = employer.dispatcher.replace(peer);
        let is_another = std::mem::replace(&mut employer.incarnation, incarnation) != incarnation;
        if let Some(former) = former {
            if is_another && !self.peers.is_suspect(former) {
                event::peer_replaced(&self.employers[at].name);
            }
            self.employers[at].dispatcher = Some(former);
            self.lose(former);
            self.employers[at].dispatcher = Some(peer);
        }
        self.employers[at].begin_run();
        self.peers.hold(peer, false);
    }

    /// Handles the frames that have been received. Returns true if there were any.
    fn handle_frames(&mut self) -> bool {
        let mut has_worked = false;
        while let Some((peer, frame)) = self.peers.poll() {
            has_worked = true;
            let (at, incarnation) = self.of_peers[peer.index()];
            let employer = &mut self.employers[at];
            let is_dispatcher = employer.dispatcher == Some(peer);
            if !is_dispatcher && incarnation != employer.incarnation {
                self.counters.frames_stale += 1;
                continue; // The other unit is that of a dispatcher's process before, or is to be.
            }
            match handle(&mut employer.unit, (peer, is_dispatcher), frame) {
                Ok(Some(Order::Assign(assignment))) => {
                    employer.assign(&assignment, &mut self.make, self.peers.network().stopwatch());
                }
                Ok(Some(order @ (Order::Read(..) | Order::Renew(_) | Order::Show | Order::Number(_)))) => {
                    self.follow_policy_order(at, order);
                }
                Ok(Some(Order::Part)) => employer.begin_renewal(),
                Ok(Some(Order::Connect { own, connect, forget })) => {
                    let network = self.peers.network();
                    for UnitAddress { unit, name, .. } in forget {
                        network.forget(&employer.scope(own, unit).to_string(), &name);
                    }
                    for UnitAddress { unit, name, address } in connect {
                        network.connect(&employer.scope(own, unit).to_string(), &name, &address);
                    }
                    self.seat_early(at);
                }
                Ok(None) => {}
                Err(Refused::Frame(FrameError::UnknownKind(_))) => self.counters.frames_unknown += 1,
                Err(Refused::Frame(_)) => self.counters.frames_refused += 1,
                Err(Refused::Packet) => self.counters.packets_refused += 1,
            }
            let employer = &mut self.employers[at];
            if let Some(unit) = &mut employer.unit {
                unit.process_batch(employer.dispatcher, &mut self.peers, &mut self.effects);
            }
        }
        has_worked
    }

    /// Has all units process their packets, and hand over what they send.
    fn send(&mut self) {
        for Employer { dispatcher, unit, .. } in &mut self.employers {
            if let Some(unit) = unit {
                unit.end.report();
                unit.send(*dispatcher, &mut self.peers, &mut self.effects);
            }
        }
    }

    /// Ends the links for dispatchers whose flows are gone, so that they come back.
    fn renew(&mut self) {
        for at in 0..self.employers.len() {
            if self.employers[at].has_parted(&mut self.peers) {
                self.end_renewal(at);
            }
        }
    }

    /// Ends the links for dispatchers that have ended their runs. What the units have counted stays
    /// until the next dispatcher's process connects.
    fn end_runs(&mut self) {
        for at in 0..self.employers.len() {
            let employer = &self.employers[at];
            if employer.dispatcher.is_some() && employer.has_ended(&self.peers) {
                let is_of_run = |peer: &PeerId| {
                    let of = self.of_peers.get(peer.index());
                    of.is_some_and(|of| *of == (at, employer.incarnation))
                };
                let links: Vec<PeerId> = self.peers.ids().filter(is_of_run).collect();
                links.into_iter().for_each(|peer| self.peers.remove(peer));
                self.employers[at].end_run();
            }
        }
    }

    fn end_renewal(&mut self, at: usize) {
        let is_of_it = |peer: &PeerId| self.of_peers.get(peer.index()).is_some_and(|of| of.0 == at);
        let links: Vec<PeerId> = self.peers.ids().filter(is_of_it).collect();
        links.into_iter().for_each(|peer| self.peers.remove(peer));
        self.employers[at].end_renewal();
    }

    fn set_clock(&mut self) {
        let now_ns = self.peers.now_ns();
        for unit in self.employers.iter_mut().filter_map(|employer| employer.unit.as_mut()) {
            unit.clock_ns = now_ns;
        }
    }

    /// Takes nodes that have connected, or to which this one has.
    fn greet(&mut self) {
        while let Some(session) = self.peers.network().poll_session() {
            let is_client = session.is_client;
            let (role, name, incarnation) =
                (session.peer.role, session.peer.name.clone(), session.peer.incarnation);
            let scope = session.scope.clone();
            let scope = Scope::read(&scope);
            let employer = match role {
                Role::Dispatcher => self.employer(&name).map(|at| (at, None)),
                Role::Unit => scope
                    .and_then(|scope| Some((self.position(scope.dispatcher)?, Some(scope))))
                    .ok_or_else(|| format!("this unit knows nothing of `{}`", session.scope)),
            };
            let (at, scope) = match employer {
                Ok(place) => place,
                Err(reason) => {
                    refuse_peer("place", &format_args!("{name} at {}", session.ends.remote), &reason);
                    continue;
                }
            };
            event::peer_connected(&name, &session.ends.remote);
            let peer = self.peers.add(session);
            if self.of_peers.len() <= peer.index() {
                self.of_peers.resize(peer.index() + 1, (0, 0));
            }
            let incarnation = scope.map_or(incarnation, |scope| scope.incarnation);
            self.of_peers[peer.index()] = (at, incarnation);
            match scope {
                None => {
                    // It may have given the handshake up: only a datagram shows that it has not.
                    self.peers.hold(peer, true);
                    self.employers[at].candidates.push((peer, incarnation));
                }
                Some(Scope { from, to, .. }) => {
                    // What it asks for could not be answered yet.
                    self.peers.hold(peer, true);
                    let units = (from, to);
                    self.employers[at].early.push(EarlyPeer { peer, incarnation, units, is_client });
                    self.seat_early(at);
                }
            }
        }
    }

    fn position(&self, dispatcher: &str) -> Option<usize> {
        self.employers.iter().position(|employer| employer.name == dispatcher)
    }

    /// Returns the place of a dispatcher that has connected, or why it may not have the unit. One
    /// that it has already was restarted, or has lost its link: then nobody knows the flows any
    /// more.
    fn employer(&mut self, name: &str) -> Result<usize, String> {
        let position = self.position(name);
        if let Some(at) = position.filter(|&at| self.employers[at].is_parting()) {
            self.end_renewal(at); // The dispatcher has heard the last word.
        }
        match position {
            Some(at) => Ok(at),
            None if self.employers.len() >= DISPATCHERS_MAX => {
                Err(format!("this unit has had {DISPATCHERS_MAX} dispatchers, which is the limit"))
            }
            None => {
                self.employers.push(Employer::new(name));
                Ok(self.employers.len() - 1)
            }
        }
    }

    /// Gives units that have connected their numbers, once these are known.
    fn seat_early(&mut self, at: usize) {
        for seated in self.employers[at].seat_early(&mut self.peers) {
            self.peers.hold(seated, false);
            for other in self.peers.besides(seated) {
                if self.of_peers[other.index()].0 != at {
                    continue;
                }
                match self.peers.incarnation(other) == self.peers.incarnation(seated) {
                    true => self.part(other, true), // It has connected twice.
                    false => self.lose(other),
                }
            }
        }
    }

    fn lose(&mut self, peer: PeerId) {
        let employer = &mut self.employers[self.of_peers[peer.index()].0];
        let is_in_order = match employer.dispatcher == Some(peer) {
            true => employer.is_parting() || employer.has_finished(), // It has heard the last word.
            false => employer.has_parted_with(peer) || self.peers.has_ended(peer),
        };
        self.part(peer, is_in_order);
    }

    /// A link has ended, or makes way for another one.
    fn part(&mut self, peer: PeerId, is_in_order: bool) {
        match is_in_order {
            true => event::peer_left(&self.peers.name(peer)),
            false => event::peer_lost(&self.peers.name(peer)),
        }
        self.peers.remove(peer);
        let employer = &mut self.employers[self.of_peers[peer.index()].0];
        let again = employer.lose(peer, &mut self.peers, &mut self.effects);
        if let Some((own, UnitAddress { unit, name, address })) = again {
            let scope = employer.scope(own, unit).to_string();
            self.peers.network().connect(&scope, &name, &address);
        }
    }
}
