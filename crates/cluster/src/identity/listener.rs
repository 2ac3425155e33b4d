//! Acceptance of connections of other nodes, on a thread.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::Identity;
use super::handshake::{Session, accept};
use crate::policies::KnownPolicies;
use crate::wire::Hello;

/// Limit on concurrent handshakes. Further connections are closed, and counted.
pub const HANDSHAKES_MAX: u64 = 64;

/// Polling period for the listener's end.
const LOOK: Duration = Duration::from_millis(100);

/// Counters of connections.
#[derive(Debug, Default)]
pub struct ListenerCounters {
    /// Successful handshakes.
    pub accepted: AtomicU64,
    /// Failed handshakes: no certificate of the authority, another policy or version.
    pub refused: AtomicU64,
    /// Connections closed because there were too many at a time.
    pub too_many: AtomicU64,
    /// Failures to accept a connection, as for want of descriptors.
    pub not_taken: AtomicU64,
    /// Handshakes in progress.
    pub under_way: AtomicU64,
}

/// A listening node.
pub struct Listener {
    sessions: Receiver<Session>,
    counters: Arc<ListenerCounters>,
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl Listener {
    /// Accepts nodes that connect to a socket. Each gets this hello, with the node's present
    /// policy, and must run a policy that fits.
    ///
    /// # Errors
    /// If the socket cannot be used or a thread cannot be started.
    pub fn start(
        identity: Identity,
        tcp: TcpListener,
        hello: Hello,
        policies: KnownPolicies,
    ) -> std::io::Result<Listener> {
        tcp.set_nonblocking(true)?;
        let (address, is_over) = (tcp.local_addr()?, Arc::new(AtomicBool::new(false)));
        let (sender, sessions) = sync_channel(HANDSHAKES_MAX as usize);
        let counters = Arc::new(ListenerCounters::default());
        let (counted, ended) = (Arc::clone(&counters), Arc::clone(&is_over));
        let serve = move || {
            while !ended.load(Ordering::Relaxed) {
                wait(&tcp);
                loop {
                    match tcp.accept() {
                        Ok(_) if ended.load(Ordering::Relaxed) => break,
                        Ok((connection, from)) => {
                            begin((connection, from), (&identity, &hello, &policies), &sender, &counted);
                        }
                        Err(error) if is_over_now(&error) => break,
                        Err(error) => {
                            // For example, no descriptor is free: the connection stays in the
                            // kernel's queue.
                            counted.not_taken.fetch_add(1, Ordering::Relaxed);
                            telemetry::refuse_peer("accept", &"any", &error);
                            std::thread::sleep(LOOK);
                            break;
                        }
                    }
                }
                telemetry::flush_repeats();
            }
        };
        std::thread::Builder::new().name("listener".to_owned()).spawn(serve)?;
        Ok(Listener { sessions, counters, address, is_over })
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters.
    pub fn counters(&self) -> &ListenerCounters {
        &self.counters
    }

    /// Stops accepting connections.
    pub fn close(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Returns the next session.
    pub fn poll(&self) -> Option<Session> {
        self.sessions.try_recv().ok()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns true if no connection waits.
fn is_over_now(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted)
}

/// Waits a little for a connection.
fn wait(tcp: &TcpListener) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
    // An interrupted wait is a short one.
    let _ = rustix::event::poll(&mut [PollFd::new(tcp, PollFlags::IN)], Some(&timeout));
}

/// Starts a handshake on a thread of its own.
fn begin(
    (connection, from): (TcpStream, SocketAddr),
    (identity, hello, policies): (&Identity, &Hello, &KnownPolicies),
    sessions: &SyncSender<Session>,
    counters: &Arc<ListenerCounters>,
) {
    let (identity, hello, policies) = (identity.clone(), hello.clone(), policies.clone());
    let sessions = sessions.clone();
    let (counted, counters) = (Arc::clone(counters), counters);
    if counters.under_way.fetch_add(1, Ordering::Relaxed) >= HANDSHAKES_MAX {
        counters.under_way.fetch_sub(1, Ordering::Relaxed);
        counters.too_many.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let work = move || {
        complete_handshake(&identity, (connection, from), (&hello, &policies), &sessions, &counted);
        counted.under_way.fetch_sub(1, Ordering::Relaxed);
    };
    if std::thread::Builder::new().name("handshake".to_owned()).spawn(work).is_err() {
        counters.under_way.fetch_sub(1, Ordering::Relaxed);
        counters.not_taken.fetch_add(1, Ordering::Relaxed);
    }
}

fn complete_handshake(
    identity: &Identity,
    (connection, from): (TcpStream, SocketAddr),
    own: (&Hello, &KnownPolicies),
    sessions: &SyncSender<Session>,
    counters: &ListenerCounters,
) {
    let connection = connection.set_nonblocking(false).map(|()| connection);
    let session = connection.map_err(Into::into).and_then(|tcp| accept(identity, tcp, own));
    let counter = match session {
        Ok(session) => match sessions.send(session) {
            Ok(()) => &counters.accepted,
            Err(_) => return, // The node has ended.
        },
        Err(error) => {
            telemetry::refuse_peer("handshake", &from.ip().to_canonical(), &error);
            &counters.refused
        }
    };
    counter.fetch_add(1, Ordering::Relaxed);
}
