//! The nodes that a node has links with.
//!
//! A silent node is *suspect* first: messages to it wait, but the link stays, and continues when a
//! datagram arrives. It is *given up* later, after a silence that depends on its earlier behaviour
//! ([`PeerLink::silence_ns`]). A node that gives a peer up ends the link; the peer finds out with
//! the first datagram that it sends. Stalls of this process do not count as silence. After a stall
//! of [`FENCE_NS`], peers may have given this process up: its links carry nothing until the other
//! ends confirm them. A node with a revoked certificate is given up at once.

mod stalls;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use link::ORDERED;
use link::{
    Config, DeadReason, EndedLink, LinkEvent, LinkKeys, MtuChange, PeerLink, SendError, connection_of,
};
use runtime::report::LinksReport;
use telemetry::event;

pub(crate) use self::stalls::FENCE_NS;
use self::stalls::Stalls;
use crate::addresses::Endpoints;
use crate::identity::{PeerCertificate, Session};
use crate::links::{LinkInfo, LinkTotals, mtu_of};
use crate::network::{Handover, Network};
use crate::wire::Role;

/// Least silence after which a node is given up.
pub const GIVE_UP_MIN: Duration = Duration::from_secs(2);
/// Silence after which a node is given up in any case.
pub const GIVE_UP_MAX: Duration = Duration::from_secs(10);
/// Least silence after which two units give their link up. No state is lost: they relay through the
/// dispatcher.
const APART_MIN: Duration = Duration::from_secs(1);
/// Longest time without a datagram from this node.
const HEARTBEAT: Duration = Duration::from_millis(25);
/// Round trips of silence after which a node is given up, if they take longer than [`GIVE_UP_MIN`].
const ROUND_TRIPS: u32 = 40;
/// Limit on ended links that still notify their other ends.
const ENDED_MAX: usize = 64;

/// Heartbeats, or round trips if these take longer, that a node may miss before it is suspect. It
/// keeps its flows, and new ones go elsewhere. A node that was silent for longer of late gets twice
/// that time.
const MISSED_MAX: u32 = 3;

/// Silence after which a node is suspect in any case.
pub const SUSPECT_NS: u64 = 300_000_000;

/// Silence after which a link is no longer considered sound.
const SOUND_NS: u64 = 4 * HEARTBEAT.as_nanos() as u64;

/// Datagrams that fill one system call.
const FULL: u64 = 40;

/// Stream of messages that may be reordered with packets: the time, and reports without
/// dependencies.
pub(crate) const ASIDE: u16 = u16::MAX;

/// Number of streams for flows.
const FLOW_STREAMS: u64 = 255;

/// Returns the stream of a flow, by its index or hash. Streams do not block each other.
#[inline]
pub(crate) fn stream_of(flow: u64) -> u16 {
    1 + (flow % FLOW_STREAMS) as u16
}

/// A peer's slot in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PeerId(usize);

impl PeerId {
    /// Returns the slot; a later link may reuse it.
    pub fn index(self) -> usize {
        self.0
    }

    #[cfg(test)]
    pub fn at(place: usize) -> PeerId {
        PeerId(place)
    }
}

/// A change of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerEvent {
    /// The first datagram has arrived: the other end uses the link.
    Up(PeerId),
    /// The node is silent.
    Suspect(PeerId),
    /// A suspect node has sent a datagram.
    Alive(PeerId),
    /// The node is given up, or has ended the link.
    Dead(PeerId),
}

impl PeerEvent {
    fn peer(self) -> PeerId {
        match self {
            PeerEvent::Up(peer)
            | PeerEvent::Suspect(peer)
            | PeerEvent::Alive(peer)
            | PeerEvent::Dead(peer) => peer,
        }
    }
}

/// All links of a node.
pub(crate) struct Peers<N> {
    network: N,
    config: Config,
    peers: Vec<Option<Peer>>,
    /// Links by the connection id of received datagrams.
    connections: HashMap<u64, PeerId>,
    /// The peer polled next.
    next: usize,
    /// Buffer for a message.
    frame: Vec<u8>,
    /// Buffer for datagrams to send.
    datagrams: Vec<u8>,
    events: VecDeque<PeerEvent>,
    /// Links that have ended here, latest last, with the addresses of their other ends.
    ended: VecDeque<(EndedLink, Endpoints)>,
    stalls: Stalls,
    totals: LinkTotals,
}

struct Peer {
    link: PeerLink,
    ends: Endpoints,
    name: String,
    /// Distinguishes processes of the node.
    incarnation: u64,
    /// Messages that wait because the link is full.
    waiting: VecDeque<(u16, Vec<u8>)>,
    /// Received messages stay in the link.
    is_held: bool,
    is_suspect: bool,
    /// Its certificate, until it is refused.
    certificate: Option<Arc<PeerCertificate>>,
}

impl Peer {
    fn may_be_polled(&self) -> bool {
        !self.is_held && self.link.is_confirmed() && self.link.has_message()
    }

    /// Follows the node to the addresses of its latest authentic datagram.
    fn follow(&mut self, ends: Endpoints) {
        let from = std::mem::replace(&mut self.ends, ends).remote;
        if from != ends.remote {
            event::link_moved(&self.name, &from, &ends.remote);
        }
    }

    /// Returns true, once, if the node's certificate is no longer accepted.
    fn ends_by_certificate(&mut self) -> bool {
        let Some(reason) = self.certificate.as_deref().and_then(PeerCertificate::refused) else {
            return false;
        };
        telemetry::refuse_peer("certificate", &self.name, &reason);
        self.certificate = None;
        true
    }

    fn is_silent(&self, now_ns: u64) -> bool {
        let limit_ns = || self.link.late_after_ns(now_ns, MISSED_MAX).min(SUSPECT_NS);
        self.link.is_up() && self.link.dead().is_none() && self.link.silent_ns(now_ns) >= limit_ns()
    }
}

impl<N: Network> Peers<N> {
    /// Creates a table without links.
    pub fn new(network: N) -> Peers<N> {
        let heartbeat_ns = HEARTBEAT.as_nanos() as u64;
        let config = Config {
            heartbeat_ns,
            heartbeats_missed: ROUND_TRIPS,
            silence_min_ns: GIVE_UP_MIN.as_nanos() as u64,
            silence_max_ns: GIVE_UP_MAX.as_nanos() as u64,
            ..Config::default()
        };
        Peers {
            network,
            config,
            peers: Vec::new(),
            connections: HashMap::new(),
            next: 0,
            frame: Vec::new(),
            datagrams: Vec::new(),
            events: VecDeque::new(),
            ended: VecDeque::new(),
            stalls: Stalls::default(),
            totals: LinkTotals::default(),
        }
    }

    /// Returns the network.
    pub fn network(&mut self) -> &mut N {
        &mut self.network
    }

    /// Returns the time.
    pub fn now_ns(&self) -> u64 {
        self.network.now_ns()
    }

    /// Begins a link.
    pub fn add(&mut self, session: Session) -> PeerId {
        let now_ns = self.now_ns();
        let Session { peer, ends, secrets, scope, certificate, .. } = session;
        let mut config = self.config.clone();
        if peer.role == Role::Unit && !scope.is_empty() {
            config.silence_min_ns = APART_MIN.as_nanos() as u64;
        }
        let keys = LinkKeys { send: secrets.send, receive: secrets.receive };
        let place = self.peers.iter().position(Option::is_none).unwrap_or(self.peers.len());
        let id = PeerId(place);
        if place == self.peers.len() {
            self.peers.push(None);
        }
        match PeerLink::new(config, &keys, now_ns) {
            Ok(link) => {
                self.connections.insert(link.receive_id(), id);
                self.totals.started += 1;
                let (name, incarnation, waiting) = (peer.name, peer.incarnation, VecDeque::new());
                let (is_held, is_suspect) = (false, false);
                self.peers[place] =
                    Some(Peer { link, ends, name, incarnation, waiting, is_held, is_suspect, certificate });
            }
            // The settings are constant, and TLS exports no equal keys.
            Err(_) => self.events.push_back(PeerEvent::Dead(id)),
        }
        id
    }

    /// Ends a link, and notifies the other end.
    pub fn remove(&mut self, peer: PeerId) {
        self.events.retain(|event| event.peer() != peer);
        let Some(Peer { link, ends, .. }) = self.peers[peer.0].take() else { return };
        self.connections.remove(&link.receive_id());
        self.totals.ended.add(link.counters());
        if link.dead() == Some(DeadReason::Closed) {
            return; // The other end has closed it first.
        }
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((link.into_ended(), ends));
        self.notify_ended(self.ended.len() - 1);
    }

    /// Returns true if the node has ended the link.
    pub fn has_ended(&self, peer: PeerId) -> bool {
        self.peers[peer.0].as_ref().is_some_and(|peer| peer.link.dead() == Some(DeadReason::Closed))
    }

    /// Ends all links, and notifies the other ends, which need not wait for a timeout.
    pub fn remove_all(&mut self) {
        let all: Vec<PeerId> = self.ids().collect();
        all.into_iter().for_each(|peer| self.remove(peer));
    }

    /// Notifies the other end of a link that it has ended here.
    fn notify_ended(&mut self, at: usize) {
        let now_ns = self.now_ns();
        let Some((link, ends)) = self.ended.get_mut(at) else { return };
        if link.notify(now_ns, &mut self.datagrams) {
            // If this one is lost, the other end's next datagram triggers another.
            let _ = self.network.send(*ends, &self.datagrams, self.datagrams.len());
        }
    }

    /// Returns the other links to the same node: of a former process or a second handshake.
    pub fn besides(&self, kept: PeerId) -> Vec<PeerId> {
        let name = self.name(kept);
        let is_other =
            |at: &usize| *at != kept.0 && self.peers[*at].as_ref().is_some_and(|peer| peer.name == name);
        (0..self.peers.len()).filter(is_other).map(PeerId).collect()
    }

    /// Returns all links.
    pub fn ids(&self) -> impl Iterator<Item = PeerId> {
        (0..self.peers.len()).filter(|&at| self.peers[at].is_some()).map(PeerId)
    }

    /// Returns the name of a node.
    pub fn name(&self, peer: PeerId) -> String {
        self.peers[peer.0].as_ref().map_or_else(String::new, |peer| peer.name.clone())
    }

    /// Sends a message, which `write` appends to its buffer. The message waits here while the link
    /// is full. It keeps its order within its stream; in stream [`ORDERED`], relative to all
    /// messages.
    pub fn send(&mut self, peer: PeerId, stream: u16, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(peer) = &mut self.peers[peer.0] else { return };
        let (network, address) = (&mut self.network, peer.ends.remote);
        let write = |out: &mut Vec<u8>| {
            let start = out.len();
            write(out);
            network.note_message(address, &out[start..]);
        };
        if peer.waiting.is_empty() && peer.link.has_room() {
            // A link that has ended will be removed soon.
            let _ = peer.link.write_message(stream, write);
            return;
        }
        self.frame.clear();
        write(&mut self.frame);
        if !peer.waiting.is_empty() || peer.link.send_message(stream, &self.frame) == Err(SendError::Full) {
            peer.waiting.push_back((stream, self.frame.clone()));
        }
    }

    /// Holds a node's received messages in the link, which is bounded, or releases them.
    pub fn hold(&mut self, peer: PeerId, is_held: bool) {
        if let Some(peer) = &mut self.peers[peer.0] {
            peer.is_held = is_held;
        }
    }

    /// Returns the next [received](Peers::receive) message, and its sender.
    pub fn poll(&mut self) -> Option<(PeerId, &[u8])> {
        let count = self.peers.len();
        let has_message = |at: &usize| self.peers[*at].as_ref().is_some_and(Peer::may_be_polled);
        let at = (self.next..count).chain(0..self.next.min(count)).find(has_message)?;
        self.next = at;
        let message = self.peers[at].as_mut()?.link.poll_message()?;
        Some((PeerId(at), message.bytes))
    }

    /// Receives a bounded number of datagrams from the socket. Returns false if there were none.
    pub fn receive(&mut self) -> bool {
        let now_ns = self.begin_round();
        let (peers, connections, strange) = (&mut self.peers, &self.connections, &mut self.totals.strange);
        let (events, ended) = (&mut self.events, &self.ended);
        let mut unaware = None;
        let has_received = self.network.receive(&mut |ends, datagram| {
            let Some(connection) = connection_of(datagram) else {
                *strange += 1;
                return;
            };
            let id = connections.get(&connection);
            let Some((id, peer)) = id.and_then(|id| Some((*id, peers[id.0].as_mut()?))) else {
                *strange += 1;
                let is_it = |(link, _): &(EndedLink, Endpoints)| link.receive_id() == connection;
                unaware = ended.iter().position(is_it).or(unaware);
                return;
            };
            let was_up = peer.link.is_up();
            let silent_ns = peer.link.silent_ns(now_ns);
            if peer.link.handle_datagram(now_ns, datagram).is_err() {
                return;
            }
            peer.follow(ends); // Only an authentic datagram changes the address.
            if !was_up {
                events.push_back(PeerEvent::Up(id));
            }
            if std::mem::take(&mut peer.is_suspect) {
                event::peer_heard(&peer.name, silent_ns / 1_000_000);
                events.push_back(PeerEvent::Alive(id));
            }
        });
        if let Some(at) = unaware {
            self.notify_ended(at);
        }
        has_received
    }

    /// Returns the next change of a node.
    pub fn poll_event(&mut self) -> Option<PeerEvent> {
        self.events.pop_front()
    }

    /// Handles deadlines, and sends everything that may be sent now. The caller must have received
    /// all datagrams before, or a process that was suspended would give its peers up.
    pub fn flush(&mut self) {
        let now_ns = self.begin_round();
        for at in 0..self.peers.len() {
            let Some(peer) = self.peers[at].as_mut() else { continue };
            if peer.link.next_timeout_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                peer.link.handle_timeout(now_ns);
            }
            if peer.ends_by_certificate() {
                self.totals.dead += 1;
                self.events.push_back(PeerEvent::Dead(PeerId(at)));
                continue;
            }
            if !peer.is_suspect && peer.is_silent(now_ns) {
                peer.is_suspect = true;
                self.totals.suspected += 1;
                event::peer_suspect(&peer.name, peer.link.silent_ns(now_ns) / 1_000_000);
                self.events.push_back(PeerEvent::Suspect(PeerId(at)));
            }
        }
        self.transmit();
    }

    /// Detects whether this process was stalled. Returns the time.
    fn begin_round(&mut self) -> u64 {
        let now_ns = self.now_ns();
        if let Some(stall_ns) = self.stalls.note_round(now_ns) {
            self.stalled(stall_ns, now_ns);
        }
        now_ns
    }

    #[cold]
    fn stalled(&mut self, stall_ns: u64, now_ns: u64) {
        for peer in self.peers.iter_mut().flatten() {
            peer.link.excuse(stall_ns, now_ns);
            if stall_ns >= FENCE_NS {
                peer.link.doubt();
            }
        }
        if stall_ns >= FENCE_NS {
            event::process_stalled(stall_ns / 1_000_000);
        }
    }

    /// Returns the number of stalls of [`FENCE_NS`] or more; peers may have given this process up
    /// at each.
    pub fn fences(&self) -> u64 {
        self.stalls.fences
    }

    /// Returns true if a datagram of the node has arrived.
    pub fn is_up(&self, peer: PeerId) -> bool {
        self.peers[peer.0].as_ref().is_some_and(|peer| peer.link.is_up())
    }

    /// Returns the incarnation of the process at the other end.
    pub fn incarnation(&self, peer: PeerId) -> u64 {
        self.peers[peer.0].as_ref().map_or(0, |peer| peer.incarnation)
    }

    /// Returns true if a session is with the process at the other end of this link. If the link is
    /// suspect, the process may have moved: the link continues at the session's address.
    pub fn is_of(&mut self, peer: PeerId, session: &Session) -> bool {
        let Some(peer) = &mut self.peers[peer.0] else { return false };
        let is_it = peer.incarnation == session.peer.incarnation;
        if is_it && peer.is_suspect {
            peer.follow(session.ends);
        }
        is_it
    }

    /// Counts a node that is given up because its process has ended.
    pub fn count_dead(&mut self) {
        self.totals.dead += 1;
    }

    /// Returns true if the node is suspect, and its link leads to one of these addresses.
    pub fn is_suspect_at(&self, peer: PeerId, addresses: &[IpAddr]) -> bool {
        let is_there = |peer: &Peer| addresses.contains(&peer.ends.remote.ip().to_canonical());
        self.is_suspect(peer) && self.peers[peer.0].as_ref().is_some_and(is_there)
    }

    /// Returns true if the node is suspect.
    pub fn is_suspect(&self, peer: PeerId) -> bool {
        self.peers[peer.0].as_ref().is_some_and(|peer| peer.is_suspect)
    }

    /// Sends everything that may be sent now.
    pub fn transmit(&mut self) {
        self.transmit_if(|_| true);
    }

    /// Sends links that can fill a system call, because more follows at once.
    pub fn transmit_full(&mut self) {
        self.transmit_if(|link| link.unsent_datagrams() >= FULL);
    }

    fn transmit_if(&mut self, is_ready: impl Fn(&PeerLink) -> bool) {
        let now_ns = self.begin_round();
        for at in 0..self.peers.len() {
            let Some(peer) = self.peers[at].as_mut().filter(|peer| is_ready(&peer.link)) else { continue };
            while let Some((stream, frame)) = peer.waiting.front() {
                if peer.link.send_message(*stream, frame) == Err(SendError::Full) {
                    break;
                }
                peer.waiting.pop_front();
            }
            loop {
                self.datagrams.clear();
                let Some(transmit) = peer.link.poll_transmit(now_ns, &mut self.datagrams) else { break };
                match self.network.send(peer.ends, &self.datagrams[..transmit.len], transmit.segment) {
                    Handover::Taken => {}
                    Handover::Busy => break, // The link treats the datagrams as lost, and retransmits them.
                    Handover::TooLarge(sent) if peer.link.handle_too_large(&transmit, sent) => {}
                    Handover::TooLarge(_) => break,
                }
            }
            while let Some(event) = peer.link.poll_event() {
                match event {
                    LinkEvent::Dead(_) => {
                        self.totals.dead += 1;
                        self.events.push_back(PeerEvent::Dead(PeerId(at)));
                    }
                    LinkEvent::Mtu { size, change } => note_mtu(peer, size, change),
                    LinkEvent::TooNarrow => {
                        let mtu = mtu_of(peer.ends.remote, self.config.mtu_base) as u64;
                        event::link_too_narrow(&peer.name, mtu);
                    }
                    LinkEvent::Up | LinkEvent::Room => {}
                }
            }
        }
    }

    /// Returns the present links.
    pub fn links(&self) -> Vec<LinkInfo> {
        let info = |peer: &Peer| LinkInfo {
            peer: peer.name.clone(),
            address: peer.ends.remote,
            rtt_ns: peer.link.rtt_ns(),
            mtu: mtu_of(peer.ends.remote, peer.link.mtu()),
            counters: *peer.link.counters(),
        };
        self.peers.iter().flatten().map(info).collect()
    }

    /// Returns the counters of all links so far, and of handshakes.
    pub fn links_report(&self) -> LinksReport {
        let report = self.totals.report(&self.links(), self.network.handshakes());
        LinksReport {
            stalls: self.stalls.count,
            stalled_ms: self.stalls.sum_ns / 1_000_000,
            certificate_expiry_seconds: self.network.certificate_expiry_s(),
            ..report
        }
    }

    /// Returns the number of messages that wait because the link is full.
    pub fn backlog(&self, peer: PeerId) -> usize {
        self.peers[peer.0].as_ref().map_or(0, |peer| peer.waiting.len())
    }

    /// Returns true if the node has acknowledged everything.
    pub fn is_flushed(&self, peer: PeerId) -> bool {
        self.peers[peer.0].as_ref().is_none_or(|peer| peer.waiting.is_empty() && peer.link.is_flushed())
    }

    /// Returns true if the node has acknowledged everything and is not silent.
    pub fn is_sound(&self, peer: PeerId) -> bool {
        let heard_ns = self.peers[peer.0].as_ref().map_or(0, |peer| peer.link.heard_ns());
        self.is_flushed(peer) && self.now_ns().saturating_sub(heard_ns) < SOUND_NS
    }

    /// Returns the length of a suspect node's silence; `None` if it is not suspect.
    pub fn suspect_ns(&self, peer: PeerId) -> Option<u64> {
        let peer = self.peers[peer.0].as_ref().filter(|peer| peer.is_suspect)?;
        Some(peer.link.silent_ns(self.now_ns()))
    }

    /// Returns the time until the next deadline of a link.
    pub fn sleep_ns(&self) -> u64 {
        let due = self.peers.iter().flatten().filter_map(|peer| peer.link.next_timeout_ns());
        due.min().unwrap_or(u64::MAX).saturating_sub(self.now_ns())
    }

    /// Returns the descriptor that becomes readable when a datagram arrives.
    pub fn event(&self) -> Option<BorrowedFd<'_>> {
        self.network.event()
    }

    /// Waits until a datagram arrives.
    pub fn wait(&mut self, timeout: Duration) {
        self.network.wait(timeout);
    }
}

/// Logs a change of the path MTU to a node.
fn note_mtu(peer: &Peer, size: usize, change: MtuChange) {
    let mtu = mtu_of(peer.ends.remote, size) as u64;
    match change {
        MtuChange::Found => event::link_mtu_found(&peer.name, mtu),
        MtuChange::Lowered => event::link_mtu_lowered(&peer.name, mtu),
        MtuChange::Raised => event::link_mtu_raised(&peer.name, mtu),
    }
}
