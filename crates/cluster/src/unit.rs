//! A unit as a process: it accepts dispatchers, processes their packets, and hands flows over to
//! other units directly (S11, S14; A4-A7).
//!
//! Each dispatcher sees a unit of its own, with a graph, a number and links to its other units.
//! Dispatchers share only the process and its time.

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

/// Longest sleep between two rounds.
const SLEEP_NS: u64 = 20_000_000;

/// Period of calls to `show` in [`UnitProcess::run_shown`], in nanoseconds.
const SHOW_NS: u64 = 1_000_000_000;

/// Limit on the dispatchers of a unit; it refuses further ones.
pub const DISPATCHERS_MAX: usize = 16;

/// Orders to a unit on another thread, and its visible state.
#[derive(Debug, Default)]
pub struct UnitOrder {
    /// Hand all flows over, then end.
    pub leaves: AtomicBool,
    /// End at once, as in a crash.
    pub aborts: AtomicBool,
    /// Outlive the runs of its dispatchers, and wait for the next one.
    pub stays: AtomicBool,
    /// Number of dispatchers that the unit works for, written by the unit.
    pub dispatchers: AtomicUsize,
}

/// Takes alerts, events and flow reports, with the time of the run in nanoseconds.
pub type EffectsTaker = Box<dyn FnMut(Effects, u64)>;

/// The settings of a unit.
pub struct UnitOptions {
    /// Socket that accepts handshakes.
    pub listening: TcpListener,
    /// Certificate and key.
    pub identity: Identity,
    /// Policy at start.
    pub policy: AppliedPolicy,
    /// Storage for the cluster's policies.
    pub shelf: Box<dyn PolicyShelf>,
    /// Number of restarts of the process.
    pub incarnation: u64,
    /// Factory of its graphs.
    pub make: GraphMaker,
    /// Reader of policies that dispatchers send.
    pub reader: Box<dyn PolicyReader>,
    /// Sink of alerts, events and flow reports, which stay at the unit.
    pub effects: EffectsTaker,
}

/// Counters of a unit process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitProcessCounters {
    /// Malformed frames, and frames that their sender may not send.
    pub frames_refused: u64,
    /// Frames of an unknown kind.
    pub frames_unknown: u64,
    /// Frames of other units that concern another incarnation of the dispatcher.
    pub frames_stale: u64,
    /// Packets that found no buffer or could not be parsed.
    pub packets_refused: u64,
}

/// A unit as a process.
pub struct UnitProcess<N = HostNetwork> {
    peers: Peers<N>,
    make: GraphMaker,
    policy: UnitPolicy,
    effects: EffectsTaker,
    /// Present and former dispatchers.
    employers: Vec<Employer>,
    /// By link: the index of its dispatcher, and that dispatcher's incarnation.
    of_peers: Vec<(usize, u64)>,
    counters: UnitProcessCounters,
}

/// The next step of a unit's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Call again at once.
    More,
    /// Sleep up to this many nanoseconds, or until something arrives.
    Wait(u64),
    /// The unit has ended.
    Over,
}

impl UnitProcess {
    /// Waits for dispatchers at a socket.
    ///
    /// # Errors
    /// If the links' socket cannot be opened or a thread cannot be started.
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

    /// Runs until a dispatcher ends its run and no other one uses the unit, unless it
    /// [stays](UnitOrder::stays), or until the order to leave is carried out. Returns the unit's
    /// figures for each dispatcher.
    pub fn run(&mut self, order: &UnitOrder) -> Vec<UnitFigures> {
        self.run_shown(order, |_| {})
    }

    /// As [`run`](UnitProcess::run); calls `show` each `SHOW_NS`.
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
                        // A peer that is notified reconnects at once, and must find the next
                        // process.
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

    /// Describes what the unit waits for, for an error report.
    pub(crate) fn description(&self) -> String {
        let of_each: Vec<String> = self.employers.iter().map(Employer::description).collect();
        if of_each.is_empty() { "no unit".to_owned() } else { of_each.join("; ") }
    }

    /// Returns the unit's figures for each dispatcher that has assigned it.
    pub(crate) fn figures(&self) -> impl Iterator<Item = UnitFigures> {
        self.employers.iter().filter_map(Employer::figures)
    }

    /// Returns the counters.
    pub fn counters(&self) -> UnitProcessCounters {
        self.counters
    }

    /// Returns the report of the unit's graphs, with these names for their functions; `None` before
    /// it is assigned.
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

    /// Runs one round: handles arrived frames and expired deadlines.
    pub(crate) fn turn(&mut self, order: &UnitOrder) -> Turn {
        if order.aborts.load(Ordering::Relaxed) {
            return Turn::Over;
        }
        let has_worked = self.step();
        let peers = &mut self.peers;
        if order.leaves.load(Ordering::Relaxed) {
            // Each dispatcher gets the request, so this must not stop at the first.
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

    /// Handles what has arrived, and sends the results. Returns true if there was anything.
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
            // Other units may wait for the results while more arrives.
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
                // Its flows stay, and frames to it wait in the link.
                PeerEvent::Suspect(_) | PeerEvent::Heard(_) => {}
            }
        }
    }

    /// Puts the link of a connected node into use. A dispatcher's new link replaces its former one,
    /// which the dispatcher has lost, although this end may not know it yet.
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
                continue; // It concerns a former or a future incarnation of the dispatcher.
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

    /// Flushes the output of all units to the links.
    fn send(&mut self) {
        for Employer { dispatcher, unit, .. } in &mut self.employers {
            if let Some(unit) = unit {
                unit.end.report();
                unit.send(*dispatcher, &mut self.peers, &mut self.effects);
            }
        }
    }

    /// Ends the links of dispatchers after a renewal, so that they connect again.
    fn renew(&mut self) {
        for at in 0..self.employers.len() {
            if self.employers[at].has_parted(&mut self.peers) {
                self.end_renewal(at);
            }
        }
    }

    /// Ends the links of dispatchers that have ended their runs. The units' figures stay until the
    /// dispatcher's next process connects.
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

    /// Accepts new sessions, of either direction.
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
                    // The dispatcher may have abandoned the handshake; its first datagram proves
                    // that it has not.
                    self.peers.hold(peer, true);
                    self.employers[at].candidates.push((peer, incarnation));
                }
                Some(Scope { from, to, .. }) => {
                    // Its messages cannot be answered before its unit is known.
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

    /// Returns the index of a dispatcher that connects, or the reason for a refusal. A dispatcher
    /// that is already known was restarted or has lost its link; its flows are unknown by now.
    fn employer(&mut self, name: &str) -> Result<usize, String> {
        let position = self.position(name);
        if let Some(at) = position.filter(|&at| self.employers[at].is_parting()) {
            self.end_renewal(at); // The dispatcher has acknowledged the last message.
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

    /// Attaches connected units to their numbers, once these are known.
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
            true => employer.is_parting() || employer.has_finished(), // It has acknowledged the last message.
            false => employer.has_parted_with(peer) || self.peers.has_ended(peer),
        };
        self.part(peer, is_in_order);
    }

    /// Removes a link that has ended, or that is replaced.
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
