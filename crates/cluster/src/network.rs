//! A node's access to other nodes and to the time: all of its input and output outside the state
//! machines.
//!
//! | network | nodes |
//! |---|---|
//! | [`HostNetwork`] | processes: a UDP socket, handshakes on threads, the system's clock |
//! | [`SimulatedNetwork`](crate::simulated::SimulatedNetwork) | of one thread, on virtual time, with faulty links |

mod attempts;
mod connector;
mod socket;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use self::connector::Connector;
pub use self::socket::{DatagramSocket, Handover};
use crate::addresses::{Endpoints, canonical};
use crate::identity::{Identity, Listener, Session};
use crate::links::HandshakeCounters;
use crate::policies::{KnownPolicies, NumberedDigest};
use crate::wire::{Hello, Role, VERSION, VERSION_MIN};

/// A failed attempt to connect to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectFault {
    /// The common dispatcher of two units, see [`Hello::scope`].
    pub scope: String,
    /// The node's name.
    pub name: String,
    /// Why it failed.
    pub reason: String,
    /// Addresses whose hosts refused the connection, at this attempt and at the one before: no
    /// process listens there.
    pub refused_at: Vec<IpAddr>,
}

/// A node's access to other nodes and to the time.
pub trait Network: 'static {
    /// Returns the time in nanoseconds, with any origin.
    fn now_ns(&self) -> u64;

    /// Returns a clock to measure durations.
    fn stopwatch(&self) -> fn() -> u64;

    /// Returns the policies that the node knows.
    fn policies(&self) -> &KnownPolicies;

    /// Connects to a node of this name, and retries until it succeeds. Cancels attempts at another
    /// address of this node. `scope`: the common dispatcher of two units, see
    /// [`Hello::scope`].
    fn connect(&mut self, scope: &str, name: &str, address: &str);

    /// Stops connecting to a node of this name in this scope.
    fn forget(&mut self, scope: &str, name: &str);

    /// Returns the next session, initiated by either end.
    fn poll_session(&mut self) -> Option<Session>;

    /// Returns the next failed attempt to connect.
    fn poll_fault(&mut self) -> Option<ConnectFault> {
        None
    }

    /// Passes each received datagram to `take`, with the endpoints of a reply. Returns false if
    /// there is none.
    fn receive(&mut self, take: &mut dyn FnMut(Endpoints, &mut [u8])) -> bool;

    /// Notes a message for a node before its link has it. Simulated faults use it to hit chosen
    /// messages.
    fn note_message(&mut self, _to: SocketAddr, _message: &[u8]) {}

    /// Sends datagrams of `segment` bytes each; the last may be shorter.
    fn send(&mut self, ends: Endpoints, datagrams: &[u8], segment: usize) -> Handover;

    /// Returns the counters of handshakes; zero if the network has none.
    fn handshakes(&self) -> HandshakeCounters {
        HandshakeCounters::default()
    }

    /// Returns the end of the certificate's validity, in seconds since 1970, if there is one.
    fn certificate_expiry_s(&self) -> Option<u64> {
        None
    }

    /// Waits until a datagram arrives, up to a timeout.
    fn wait(&mut self, timeout: Duration);

    /// Returns the descriptor that becomes readable when a datagram arrives, if there is one.
    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The network of a process.
pub struct HostNetwork {
    policies: KnownPolicies,
    socket: DatagramSocket,
    address: SocketAddr,
    connector: Connector,
    listener: Option<Listener>,
    identity: Identity,
}

/// A node's description of itself for others.
pub(crate) struct NodeSelf {
    /// Certificate and key.
    pub identity: Identity,
    /// The policy in use.
    pub policy: NumberedDigest,
    /// Number of restarts of the process.
    pub incarnation: u64,
    /// The role.
    pub role: Role,
}

impl HostNetwork {
    /// Opens a socket for links; accepts handshakes at `listening`, if given.
    pub(crate) fn open(node: NodeSelf, listening: Option<TcpListener>) -> std::io::Result<HostNetwork> {
        let socket = DatagramSocket::open()?;
        let address = socket.address()?;
        let NodeSelf { identity, policy, incarnation, role } = node;
        let hello = Hello {
            versions: (VERSION, VERSION_MIN),
            name: identity.name().to_owned(),
            incarnation,
            policy: policy.digest,
            role,
            port: address.port(),
            scope: String::new(),
            runs: Some(policy),
        };
        let policies = KnownPolicies::new(policy);
        identity.watch()?;
        let listener = listening
            .map(|tcp| Listener::start(identity.clone(), tcp, hello.clone(), policies.clone()))
            .transpose()?;
        let connector = Connector::new(identity.clone(), hello, policies.clone());
        Ok(HostNetwork { policies, socket, address, connector, listener, identity })
    }

    /// Returns the address of handshakes; of links, if no handshakes are accepted.
    pub(crate) fn address(&self) -> SocketAddr {
        canonical(self.listener.as_ref().map_or(self.address, Listener::address))
    }

    /// Stops accepting handshakes.
    pub(crate) fn close(&self) {
        self.listener.iter().for_each(Listener::close);
    }
}

fn clock_ns() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

impl Network for HostNetwork {
    fn policies(&self) -> &KnownPolicies {
        &self.policies
    }

    fn now_ns(&self) -> u64 {
        clock_ns()
    }

    fn stopwatch(&self) -> fn() -> u64 {
        clock_ns
    }

    fn connect(&mut self, scope: &str, name: &str, address: &str) {
        self.connector.connect(scope, name, address);
    }

    fn forget(&mut self, scope: &str, name: &str) {
        self.connector.forget(scope, name);
    }

    fn poll_session(&mut self) -> Option<Session> {
        let accepted = self.listener.as_ref().and_then(Listener::poll);
        accepted.or_else(|| self.connector.poll())
    }

    fn poll_fault(&mut self) -> Option<ConnectFault> {
        self.connector.poll_fault()
    }

    fn receive(&mut self, take: &mut dyn FnMut(Endpoints, &mut [u8])) -> bool {
        self.socket.receive(take)
    }

    fn send(&mut self, ends: Endpoints, datagrams: &[u8], segment: usize) -> Handover {
        self.socket.send(ends, datagrams, segment)
    }

    fn handshakes(&self) -> HandshakeCounters {
        let own = self.connector.counters();
        self.listener.as_ref().map_or(own, |listener| own.with_listener(listener.counters()))
    }

    fn certificate_expiry_s(&self) -> Option<u64> {
        self.identity.valid().1.try_into().ok()
    }

    fn wait(&mut self, timeout: Duration) {
        self.socket.wait(timeout);
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}
