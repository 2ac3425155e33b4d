//! The nodes that a node has links with.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use link::{Config, LinkEvent, LinkKeys, MtuChange, PeerLink, SendError, connection_of};
use runtime::report::LinksReport;
use telemetry::event;

use crate::identity::Session;
use crate::links::{LinkInfo, LinkTotals, mtu_of};
use crate::network::{Handover, Network};

/// The time without any datagram after which a node counts as dead is at least this.
pub const DEAD_AFTER: Duration = Duration::from_millis(1_000);
/// A node sends something at least this often.
const HEARTBEAT: Duration = Duration::from_millis(25);

/// Silence after which a link may have failed.
const SOUND_NS: u64 = 4 * HEARTBEAT.as_nanos() as u64;

/// Datagrams that fill a call of the kernel.
const FULL: u64 = 40;

/// A node with a link, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PeerId(usize);

impl PeerId {
    /// Returns the place, which a later link may have once this one has ended.
    pub fn index(self) -> usize {
        self.0
    }

    #[cfg(test)]
    pub fn at(place: usize) -> PeerId {
        PeerId(place)
    }
}

/// A change of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerEvent {
    /// Nothing more is heard from it.
    Dead(PeerId),
}

/// Nodes, and the links to them.
pub(crate) struct Peers<N> {
    network: N,
    config: Config,
    peers: Vec<Option<Peer>>,
    /// By the number that datagrams from them carry.
    connections: HashMap<u64, PeerId>,
    /// The peer whose messages are taken next.
    next: usize,
    /// A message.
    frame: Vec<u8>,
    /// Datagrams to be sent.
    datagrams: Vec<u8>,
    dead: VecDeque<PeerId>,
    totals: LinkTotals,
}

struct Peer {
    link: PeerLink,
    address: SocketAddr,
    name: String,
    /// Messages for which the link had no room.
    waiting: VecDeque<(u16, Vec<u8>)>,
    /// Its messages wait in the link.
    is_held: bool,
}

impl<N: Network> Peers<N> {
    /// Creates a node without links.
    pub fn new(network: N) -> Peers<N> {
        let heartbeat_ns = HEARTBEAT.as_nanos() as u64;
        let config = Config {
            heartbeat_ns,
            heartbeats_missed: (DEAD_AFTER.as_nanos() / HEARTBEAT.as_nanos()) as u32,
            silence_max_ns: 4 * DEAD_AFTER.as_nanos() as u64,
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
            dead: VecDeque::new(),
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
        let Session { peer, address, secrets, .. } = session;
        let keys = LinkKeys { send: secrets.send, receive: secrets.receive };
        let place = self.peers.iter().position(Option::is_none).unwrap_or(self.peers.len());
        let id = PeerId(place);
        if place == self.peers.len() {
            self.peers.push(None);
        }
        match PeerLink::new(self.config.clone(), &keys, now_ns) {
            Ok(link) => {
                self.connections.insert(link.receive_id(), id);
                self.totals.started += 1;
                let (name, waiting) = (peer.name, VecDeque::new());
                self.peers[place] = Some(Peer { link, address, name, waiting, is_held: false });
            }
            // The settings are constant, and TLS exports no equal keys.
            Err(_) => self.dead.push_back(id),
        }
        id
    }

    /// Ends a link.
    pub fn remove(&mut self, peer: PeerId) {
        if let Some(peer) = self.peers[peer.0].take() {
            self.connections.remove(&peer.link.receive_id());
            self.totals.ended.add(peer.link.counters());
        }
    }

    /// Returns the links to a node but this one, of an earlier process or a second handshake.
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

    /// Sends a message, which `write` appends to the bytes that it gets. It waits here as long as
    /// the link has no room.
    pub fn send(&mut self, peer: PeerId, stream: u16, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(peer) = &mut self.peers[peer.0] else { return };
        let (network, address) = (&mut self.network, peer.address);
        let write = |out: &mut Vec<u8>| {
            let start = out.len();
            write(out);
            network.note_message(address, &out[start..]);
        };
        if peer.waiting.is_empty() && peer.link.has_room() {
            // A link that has ended is about to be removed.
            let _ = peer.link.write_message(stream, write);
            return;
        }
        self.frame.clear();
        write(&mut self.frame);
        if !peer.waiting.is_empty() || peer.link.send_message(stream, &self.frame) == Err(SendError::Full) {
            peer.waiting.push_back((stream, self.frame.clone()));
        }
    }

    /// Lets a node's messages wait, or no longer: they stay in the link, which is bounded.
    pub fn hold(&mut self, peer: PeerId, is_held: bool) {
        if let Some(peer) = &mut self.peers[peer.0] {
            peer.is_held = is_held;
        }
    }

    /// Returns the next message that has been [received](Peers::receive), and its sender.
    pub fn poll(&mut self) -> Option<(PeerId, &[u8])> {
        let count = self.peers.len();
        let has_message = |at: &usize| {
            self.peers[*at].as_ref().is_some_and(|peer| !peer.is_held && peer.link.has_message())
        };
        let at = (self.next..count).chain(0..self.next.min(count)).find(has_message)?;
        self.next = at;
        let message = self.peers[at].as_mut()?.link.poll_message()?;
        Some((PeerId(at), message.bytes))
    }

    /// Takes datagrams from the socket, some of them if there are many. Returns false if there were
    /// none.
    pub fn receive(&mut self) -> bool {
        let now_ns = self.now_ns();
        let (peers, connections, strange) = (&mut self.peers, &self.connections, &mut self.totals.strange);
        self.network.receive(&mut |from, datagram| {
            let peer = connection_of(datagram).and_then(|connection| connections.get(&connection));
            let Some(peer) = peer.and_then(|peer| peers[peer.0].as_mut()) else {
                *strange += 1;
                return;
            };
            if peer.link.handle_datagram(now_ns, datagram).is_ok() {
                peer.address = from; // It may have moved: the datagram is authentic.
            }
        })
    }

    /// Returns the next node that has died.
    pub fn poll_event(&mut self) -> Option<PeerEvent> {
        self.dead.pop_front().map(PeerEvent::Dead)
    }

    /// Handles deadlines, and sends everything that may be sent now. All datagrams must have been
    /// received before: a process that was suspended would take its peers for dead.
    pub fn flush(&mut self) {
        let now_ns = self.now_ns();
        for peer in self.peers.iter_mut().flatten() {
            if peer.link.next_timeout_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                peer.link.handle_timeout(now_ns);
            }
        }
        self.transmit();
    }

    /// Sends everything that may be sent now.
    pub fn transmit(&mut self) {
        self.transmit_if(|_| true);
    }

    /// Sends what fills a call of the kernel, because more follows at once.
    pub fn transmit_full(&mut self) {
        self.transmit_if(|link| link.unsent_datagrams() >= FULL);
    }

    fn transmit_if(&mut self, is_ready: impl Fn(&PeerLink) -> bool) {
        let now_ns = self.now_ns();
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
                match self.network.send(peer.address, &self.datagrams[..transmit.len], transmit.segment) {
                    Handover::Taken => {}
                    Handover::Busy => break, // The link takes the datagrams for lost, and sends them again.
                    Handover::TooLarge(sent) if peer.link.handle_too_large(&transmit, sent) => {}
                    Handover::TooLarge(_) => break,
                }
            }
            while let Some(event) = peer.link.poll_event() {
                match event {
                    LinkEvent::Dead(_) => {
                        self.totals.dead += 1;
                        self.dead.push_back(PeerId(at));
                    }
                    LinkEvent::Mtu { size, change } => note_mtu(peer, size, change),
                    LinkEvent::TooNarrow => {
                        let mtu = mtu_of(peer.address, self.config.mtu_base) as u64;
                        event::link_too_narrow(&peer.name, mtu);
                    }
                    LinkEvent::Up | LinkEvent::Room => {}
                }
            }
        }
    }

    /// Returns the links of now.
    pub fn links(&self) -> Vec<LinkInfo> {
        let info = |peer: &Peer| LinkInfo {
            peer: peer.name.clone(),
            address: peer.address,
            rtt_ns: peer.link.rtt_ns(),
            mtu: mtu_of(peer.address, peer.link.mtu()),
            counters: *peer.link.counters(),
        };
        self.peers.iter().flatten().map(info).collect()
    }

    /// Returns the counts of all links so far, and of handshakes.
    pub fn links_report(&self) -> LinksReport {
        self.totals.report(&self.links(), self.network.handshakes())
    }

    /// Returns the number of messages for which a link has no room.
    pub fn backlog(&self, peer: PeerId) -> usize {
        self.peers[peer.0].as_ref().map_or(0, |peer| peer.waiting.len())
    }

    /// Returns true if a node has acknowledged everything.
    pub fn is_flushed(&self, peer: PeerId) -> bool {
        self.peers[peer.0].as_ref().is_none_or(|peer| peer.waiting.is_empty() && peer.link.is_flushed())
    }

    /// Returns true if a node has acknowledged everything, and was heard of lately.
    pub fn is_sound(&self, peer: PeerId) -> bool {
        let heard_ns = self.peers[peer.0].as_ref().map_or(0, |peer| peer.link.heard_ns());
        self.is_flushed(peer) && self.now_ns().saturating_sub(heard_ns) < SOUND_NS
    }

    /// Returns the time until a link has something to do.
    pub fn sleep_ns(&self) -> u64 {
        let due = self.peers.iter().flatten().filter_map(|peer| peer.link.next_timeout_ns());
        due.min().unwrap_or(u64::MAX).saturating_sub(self.now_ns())
    }

    /// Returns what becomes readable when a datagram arrives.
    pub fn event(&self) -> Option<BorrowedFd<'_>> {
        self.network.event()
    }

    /// Waits until a datagram arrives.
    pub fn wait(&mut self, timeout: Duration) {
        self.network.wait(timeout);
    }
}

/// Logs a change of the size that the path to a node carries.
fn note_mtu(peer: &Peer, size: usize, change: MtuChange) {
    let mtu = mtu_of(peer.address, size) as u64;
    match change {
        MtuChange::Found => event::link_mtu_found(&peer.name, mtu),
        MtuChange::Lowered => event::link_mtu_lowered(&peer.name, mtu),
        MtuChange::Raised => event::link_mtu_raised(&peer.name, mtu),
    }
}
