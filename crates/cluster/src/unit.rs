//! A unit as a process: it accepts dispatchers, processes their packets, and hands flows over to
//! other units directly (S11, S14; A4-A7).
//!
//! Each dispatcher sees a unit of its own, with a graph, a number and links to its other units.
//! Dispatchers share only the process and its time.

mod details;
mod others;
mod policy;
mod running;
mod scope;
mod session;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use nf::Effects;
use runtime::report::{LinksReport, Report};
use telemetry::{event, refuse_peer};

use self::others::EarlyPeer;
use self::policy::UnitPolicy;
use self::running::{Order, Refused, handle};
use self::scope::Scope;
use self::session::DispatcherSession;
use crate::identity::Identity;
use crate::network::{HostNetwork, Network, NodeSelf};
use crate::peers::{ASIDE, PeerEvent, PeerId, Peers};
use crate::policies::{AppliedPolicy, GraphMaker, PolicyReader, PolicyShelf};
use crate::wire::{FrameError, Role, UnitAddress, UnitFigures, write_timeline};

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
    sessions: Vec<DispatcherSession>,
    /// By link: the index of its dispatcher, and that dispatcher's incarnation.
    owner_of_peer: Vec<(usize, u64)>,
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
            sessions: Vec::new(),
            owner_of_peer: Vec::new(),
            counters: UnitProcessCounters::default(),
        }
    }

    /// Describes what the unit waits for, for an error report.
    pub(crate) fn description(&self) -> String {
        let of_each: Vec<String> = self.sessions.iter().map(DispatcherSession::description).collect();
        if of_each.is_empty() { "no unit".to_owned() } else { of_each.join("; ") }
    }

    /// Returns the unit's figures for each dispatcher that has assigned it.
    pub(crate) fn figures(&self) -> impl Iterator<Item = UnitFigures> {
        self.sessions.iter().filter_map(DispatcherSession::figures)
    }

    /// Returns the counters.
    pub fn counters(&self) -> UnitProcessCounters {
        self.counters
    }

    /// Returns the report of the unit's graphs, with these names for their functions; `None` before
    /// it is assigned.
    pub fn report(&self, policy: &str, names: &[String]) -> Option<Report> {
        let reports = self.sessions.iter().filter_map(|session| session.report(policy, names));
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
            let left = self.sessions.iter_mut().map(|session| session.has_left(peers));
            if left.fold(true, |all, has_left| all & has_left) {
                return Turn::Over;
            }
        }
        self.renew();
        let working = self.sessions.iter().filter(|session| session.is_at_work()).count();
        order.dispatchers.store(working, Ordering::Relaxed);
        let stays = order.stays.load(Ordering::Relaxed);
        if stays {
            self.end_runs();
        }
        let peers = &mut self.peers;
        let has_ended = |session: &DispatcherSession| !stays && session.has_ended(peers);
        let is_in_use =
            |session: &DispatcherSession| session.dispatcher.is_some() && !session.has_ended(peers);
        if self.sessions.iter().any(has_ended) && !self.sessions.iter().any(is_in_use) {
            return Turn::Over;
        }
        if has_worked {
            return Turn::More;
        }
        let due_ns = self.sessions.iter().map(DispatcherSession::sleep_ns).min().unwrap_or(u64::MAX);
        Turn::Wait(due_ns.min(self.peers.sleep_ns()).min(SLEEP_NS))
    }

    /// Handles what has arrived, and sends the results. Returns true if there was anything.
    fn step(&mut self) -> bool {
        self.accept_sessions();
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
        for unit in self.sessions.iter_mut().filter_map(|session| session.unit.as_mut()) {
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
                PeerEvent::Up(peer) => self.activate_link(peer),
                PeerEvent::Dead(peer) => self.disconnect(peer),
                // Its flows stay, and frames to it wait in the link.
                PeerEvent::Suspect(_) | PeerEvent::Alive(_) => {}
            }
        }
    }

    /// Puts the link of a connected node into use. A dispatcher's new link replaces its former one,
    /// which the dispatcher has lost, although this end may not know it yet.
    fn activate_link(&mut self, peer: PeerId) {
        let (at, _) = self.owner_of_peer[peer.index()];
        let Some(incarnation) = self.sessions[at].take_candidate(peer) else {
            return self.attach_early_peers(at);
        };
        let session = &mut self.sessions[at];
        let former = session.dispatcher.replace(peer);
        let is_another = std::mem::replace(&mut session.incarnation, incarnation) != incarnation;
        if let Some(former) = former {
            if is_another && !self.peers.is_suspect(former) {
                event::peer_replaced(&self.sessions[at].name);
            }
            self.sessions[at].dispatcher = Some(former);
            self.disconnect(former);
            self.sessions[at].dispatcher = Some(peer);
        }
        self.sessions[at].begin_run(is_another);
        self.peers.hold(peer, false);
    }

    /// Handles the frames that have been received. Returns true if there were any.
    fn handle_frames(&mut self) -> bool {
        let mut has_worked = false;
        while let Some((peer, frame)) = self.peers.poll() {
            has_worked = true;
            let (at, incarnation) = self.owner_of_peer[peer.index()];
            let session = &mut self.sessions[at];
            let is_dispatcher = session.dispatcher == Some(peer);
            if !is_dispatcher && incarnation != session.incarnation {
                self.counters.frames_stale += 1;
                continue; // It concerns a former or a future incarnation of the dispatcher.
            }
            match handle(&mut session.unit, (peer, is_dispatcher), frame) {
                Ok(Some(Order::Assign(assignment))) => {
                    session.assign(&assignment, &mut self.make, self.peers.network().stopwatch());
                }
                Ok(Some(order @ (Order::Read(..) | Order::Renew(_) | Order::Show | Order::Number(_)))) => {
                    self.follow_policy_order(at, order);
                }
                Ok(Some(Order::Trace(question))) => {
                    let timeline = session.timeline_of(&question);
                    self.peers.send(peer, ASIDE, |out| write_timeline(out, question.number, &timeline));
                }
                Ok(Some(Order::Part)) => session.begin_renewal(),
                Ok(Some(Order::Connect { own, connect, forget })) => {
                    let network = self.peers.network();
                    for UnitAddress { unit, name, .. } in forget {
                        network.forget(&session.scope(own, unit).to_string(), &name);
                    }
                    for UnitAddress { unit, name, address } in connect {
                        network.connect(&session.scope(own, unit).to_string(), &name, &address);
                    }
                    self.attach_early_peers(at);
                }
                Ok(None) => {}
                Err(Refused::Frame(FrameError::UnknownKind(_))) => self.counters.frames_unknown += 1,
                Err(Refused::Frame(_)) => self.counters.frames_refused += 1,
                Err(Refused::Packet) => self.counters.packets_refused += 1,
            }
            let session = &mut self.sessions[at];
            if let Some(unit) = &mut session.unit {
                unit.process_batch(session.dispatcher, &mut self.peers, &mut self.effects);
            }
        }
        has_worked
    }

    /// Flushes the output of all units to the links.
    fn send(&mut self) {
        for DispatcherSession { dispatcher, unit, .. } in &mut self.sessions {
            if let Some(unit) = unit {
                unit.end.report();
                unit.send(*dispatcher, &mut self.peers, &mut self.effects);
            }
        }
    }

    /// Ends the links of dispatchers after a renewal, so that they connect again.
    fn renew(&mut self) {
        for at in 0..self.sessions.len() {
            if self.sessions[at].has_parted(&mut self.peers) {
                self.end_renewal(at);
            }
        }
    }

    /// Ends the links of dispatchers that have ended their runs. The units' figures stay until the
    /// dispatcher's next process connects.
    fn end_runs(&mut self) {
        for at in 0..self.sessions.len() {
            let session = &self.sessions[at];
            if session.dispatcher.is_some() && session.has_ended(&self.peers) {
                let is_of_run = |peer: &PeerId| {
                    let of = self.owner_of_peer.get(peer.index());
                    of.is_some_and(|of| *of == (at, session.incarnation))
                };
                let links: Vec<PeerId> = self.peers.ids().filter(is_of_run).collect();
                links.into_iter().for_each(|peer| self.peers.remove(peer));
                self.sessions[at].end_run();
            }
        }
    }

    fn end_renewal(&mut self, at: usize) {
        let is_of_it = |peer: &PeerId| self.owner_of_peer.get(peer.index()).is_some_and(|of| of.0 == at);
        let links: Vec<PeerId> = self.peers.ids().filter(is_of_it).collect();
        links.into_iter().for_each(|peer| self.peers.remove(peer));
        self.sessions[at].end_renewal();
    }

    fn set_clock(&mut self) {
        let now_ns = self.peers.now_ns();
        for unit in self.sessions.iter_mut().filter_map(|session| session.unit.as_mut()) {
            unit.clock_ns = now_ns;
        }
    }

    /// Accepts new sessions, of either direction.
    fn accept_sessions(&mut self) {
        while let Some(session) = self.peers.network().poll_session() {
            let is_client = session.is_client;
            let (role, name, incarnation) =
                (session.peer.role, session.peer.name.clone(), session.peer.incarnation);
            let scope = session.scope.clone();
            let scope = Scope::read(&scope);
            let found = match role {
                Role::Dispatcher => self.session_of(&name).map(|at| (at, None)),
                Role::Unit => scope
                    .and_then(|scope| Some((self.position(scope.dispatcher)?, Some(scope))))
                    .ok_or_else(|| format!("this unit knows nothing of `{}`", session.scope)),
            };
            let (at, scope) = match found {
                Ok(place) => place,
                Err(reason) => {
                    refuse_peer("place", &format_args!("{name} at {}", session.ends.remote), &reason);
                    continue;
                }
            };
            event::peer_connected(&name, &session.ends.remote);
            let peer = self.peers.add(session);
            if self.owner_of_peer.len() <= peer.index() {
                self.owner_of_peer.resize(peer.index() + 1, (0, 0));
            }
            let incarnation = scope.map_or(incarnation, |scope| scope.incarnation);
            self.owner_of_peer[peer.index()] = (at, incarnation);
            match scope {
                None => {
                    // The dispatcher may have abandoned the handshake; its first datagram proves
                    // that it has not.
                    self.peers.hold(peer, true);
                    self.sessions[at].candidates.push((peer, incarnation));
                }
                Some(Scope { from, to, .. }) => {
                    // Its messages cannot be answered before its unit is known.
                    self.peers.hold(peer, true);
                    let units = (from, to);
                    self.sessions[at].early.push(EarlyPeer { peer, incarnation, units, is_client });
                    self.attach_early_peers(at);
                }
            }
        }
    }

    fn position(&self, dispatcher: &str) -> Option<usize> {
        self.sessions.iter().position(|session| session.name == dispatcher)
    }

    /// Returns the index of a dispatcher that connects, or the reason for a refusal. A dispatcher
    /// that is already known was restarted or has lost its link; its flows are unknown by now.
    fn session_of(&mut self, name: &str) -> Result<usize, String> {
        let position = self.position(name);
        if let Some(at) = position.filter(|&at| self.sessions[at].is_parting()) {
            self.end_renewal(at); // The dispatcher has acknowledged the last message.
        }
        match position {
            Some(at) => Ok(at),
            None if self.sessions.len() >= DISPATCHERS_MAX => {
                Err(format!("this unit has had {DISPATCHERS_MAX} dispatchers, which is the limit"))
            }
            None => {
                self.sessions.push(DispatcherSession::new(name));
                Ok(self.sessions.len() - 1)
            }
        }
    }

    /// Attaches connected units to their numbers, once these are known.
    fn attach_early_peers(&mut self, at: usize) {
        for attached in self.sessions[at].attach_early_peers(&mut self.peers) {
            self.peers.hold(attached, false);
            for other in self.peers.besides(attached) {
                if self.owner_of_peer[other.index()].0 != at {
                    continue;
                }
                match self.peers.incarnation(other) == self.peers.incarnation(attached) {
                    true => self.part(other, true), // It has connected twice.
                    false => self.disconnect(other),
                }
            }
        }
    }

    fn disconnect(&mut self, peer: PeerId) {
        let session = &mut self.sessions[self.owner_of_peer[peer.index()].0];
        let is_in_order = match session.dispatcher == Some(peer) {
            true => session.is_parting() || session.has_finished(), // It has acknowledged the last message.
            false => session.has_parted_with(peer) || self.peers.has_ended(peer),
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
        let session = &mut self.sessions[self.owner_of_peer[peer.index()].0];
        let again = session.disconnect(peer, &mut self.peers, &mut self.effects);
        if let Some((own, UnitAddress { unit, name, address })) = again {
            let scope = session.scope(own, unit).to_string();
            self.peers.network().connect(&scope, &name, &address);
        }
    }
}
