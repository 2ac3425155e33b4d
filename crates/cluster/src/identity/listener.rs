//! Accepts connections of other nodes, on a thread.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::Identity;
use super::handshake::{Session, accept};
use crate::wire::Hello;

/// Limit on handshakes at a time. Further connections are closed, and counted.
pub const HANDSHAKES_MAX: usize = 64;

/// Counts of connections.
#[derive(Debug, Default)]
pub struct ListenerCounters {
    /// Handshakes that succeeded.
    pub accepted: AtomicU64,
    /// Handshakes that failed: no certificate of the authority, another policy or version.
    pub refused: AtomicU64,
    /// Connections that were closed because there were too many at a time.
    pub too_many: AtomicU64,
}

/// A listening node.
pub struct Listener {
    sessions: Receiver<Session>,
    counters: Arc<ListenerCounters>,
    address: SocketAddr,
}

impl Listener {
    /// Listens at an address. Each node that connects gets this hello.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub fn start(identity: Identity, address: SocketAddr, hello: Hello) -> std::io::Result<Listener> {
        let tcp = TcpListener::bind(address)?;
        let address = tcp.local_addr()?;
        let (sender, sessions) = sync_channel(HANDSHAKES_MAX);
        let counters = Arc::new(ListenerCounters::default());
        let counted = Arc::clone(&counters);
        let serve = move || serve(&tcp, &identity, &hello, &sender, &counted);
        std::thread::Builder::new().name("listener".to_owned()).spawn(serve)?;
        Ok(Listener { sessions, counters, address })
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters.
    pub fn counters(&self) -> &ListenerCounters {
        &self.counters
    }

    /// Returns the next node that has connected.
    pub fn poll(&self) -> Option<Session> {
        self.sessions.try_recv().ok()
    }
}

/// Accepts connections until nobody takes sessions.
fn serve(
    tcp: &TcpListener,
    identity: &Identity,
    hello: &Hello,
    sessions: &SyncSender<Session>,
    counters: &Arc<ListenerCounters>,
) {
    let under_way = Arc::new(AtomicUsize::new(0));
    for connection in tcp.incoming() {
        let Ok(connection) = connection else { continue };
        if under_way.load(Ordering::Relaxed) >= HANDSHAKES_MAX {
            counters.too_many.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let (identity, hello, sessions) = (identity.clone(), hello.clone(), sessions.clone());
        let (counters, number) = (Arc::clone(counters), Arc::clone(&under_way));
        number.fetch_add(1, Ordering::Relaxed);
        let ended = Arc::clone(&under_way);
        let work = move || {
            greet(&identity, connection, &hello, &sessions, &counters);
            number.fetch_sub(1, Ordering::Relaxed);
        };
        if std::thread::Builder::new().name("handshake".to_owned()).spawn(work).is_err() {
            ended.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn greet(
    identity: &Identity,
    connection: TcpStream,
    hello: &Hello,
    sessions: &SyncSender<Session>,
    counters: &ListenerCounters,
) {
    let counter = match accept(identity, connection, hello) {
        Ok(session) => match sessions.send(session) {
            Ok(()) => &counters.accepted,
            Err(_) => return, // The node has ended.
        },
        Err(error) => {
            telemetry::event::peer_refused(&error);
            &counters.refused
        }
    };
    counter.fetch_add(1, Ordering::Relaxed);
}
