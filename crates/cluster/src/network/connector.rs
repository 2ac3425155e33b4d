//! Connects to nodes, on threads: handshakes may take long, and nodes may not be there yet.

use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use telemetry::event;

use crate::identity::{Identity, Session, connect};
use crate::links::HandshakeCounters;
use crate::policies::KnownPolicies;
use crate::wire::Hello;

/// Delay before another attempt.
const RETRY: Duration = Duration::from_millis(200);

/// Connects to nodes until they are there.
pub(crate) struct Connector {
    identity: Identity,
    hello: Hello,
    policies: KnownPolicies,
    sender: Sender<(Session, Arc<AtomicBool>)>,
    sessions: Receiver<(Session, Arc<AtomicBool>)>,
    /// By dispatcher of the scope and the node's name: whether attempts to connect have ended.
    attempts: HashMap<(String, String), Arc<AtomicBool>>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    connected: AtomicU64,
    failed: AtomicU64,
}

/// A node has one unit for a dispatcher: an attempt at another one ends that at the one before.
fn key_of(scope: &str, name: &str) -> (String, String) {
    (scope.split('/').next().unwrap_or_default().to_owned(), name.to_owned())
}

impl Connector {
    pub fn new(identity: Identity, hello: Hello, policies: KnownPolicies) -> Connector {
        let (sender, sessions) = channel();
        let (attempts, counts) = (HashMap::new(), Arc::default());
        Connector { identity, hello, policies, sender, sessions, attempts, counts }
    }

    /// Connects to a node, and tries again until it is there. Earlier attempts to connect to a node
    /// of this name in this scope are over.
    pub fn connect(&mut self, scope: &str, name: &str, address: &str) {
        self.forget(scope, name);
        let is_over = Arc::new(AtomicBool::new(false));
        self.attempts.insert(key_of(scope, name), Arc::clone(&is_over));
        let hello = Hello { scope: scope.to_owned(), ..self.hello.clone() };
        let (identity, sender) = (self.identity.clone(), self.sender.clone());
        let (name, address) = (name.to_owned(), address.to_owned());
        let (counts, policies) = (Arc::clone(&self.counts), self.policies.clone());
        let work = move || {
            let mut has_failed = false;
            for number in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // The other node may run a policy from before, or the next one.
                let known = policies.all();
                let hello = Hello { policy: known[number % known.len()], ..hello.clone() };
                match attempt(&identity, &name, &address, &hello) {
                    Ok(session) => {
                        counts.connected.fetch_add(1, Ordering::Relaxed);
                        // Nobody waits for it any more if this fails.
                        let _ = sender.send((session, is_over));
                        return;
                    }
                    Err(reason) if !has_failed => {
                        event::peer_refused(&format!("{name} at {address}: {reason}"))
                    }
                    Err(_) => {}
                }
                counts.failed.fetch_add(1, Ordering::Relaxed);
                has_failed = true;
                std::thread::sleep(RETRY);
            }
        };
        // Without a thread, the node stays out.
        let _ = std::thread::Builder::new().name("connector".to_owned()).spawn(work);
    }

    /// Returns counts of its handshakes.
    pub fn counters(&self) -> HandshakeCounters {
        HandshakeCounters {
            connected: self.counts.connected.load(Ordering::Relaxed),
            failed: self.counts.failed.load(Ordering::Relaxed),
            ..HandshakeCounters::default()
        }
    }

    /// Stops connecting to a node.
    pub fn forget(&mut self, scope: &str, name: &str) {
        if let Some(is_over) = self.attempts.remove(&key_of(scope, name)) {
            is_over.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the next node that is there.
    pub fn poll(&mut self) -> Option<Session> {
        loop {
            let (session, is_over) = self.sessions.try_recv().ok()?;
            if !is_over.load(Ordering::Relaxed) {
                self.attempts.remove(&key_of(&session.scope, &session.peer.name));
                return Some(session);
            }
        }
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        self.attempts.values().for_each(|is_over| is_over.store(true, Ordering::Relaxed));
    }
}

fn attempt(identity: &Identity, name: &str, address: &str, hello: &Hello) -> Result<Session, String> {
    let addresses: Vec<SocketAddr> = address.to_socket_addrs().map_err(|error| error.to_string())?.collect();
    let mut reason = "the name has no address".to_owned();
    for address in addresses {
        match connect(identity, address, name, hello) {
            Ok(session) => return Ok(session),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(reason)
}
