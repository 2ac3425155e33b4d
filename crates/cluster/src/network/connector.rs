//! Connection attempts on a few threads: handshakes may take long, and nodes may be missing.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use telemetry::event;
use values::HostPort;

use super::ConnectFault;
use super::attempts::{Attempt, AttemptQueue, KNOWN_MAX, Key, Next, THREADS_MAX, key_of};
use crate::addresses::{ADDRESSES_MAX, resolve};
use crate::identity::{Identity, Session, connect};
use crate::links::HandshakeCounters;
use crate::policies::KnownPolicies;
use crate::wire::Hello;

/// Limit on warnings about unreachable nodes in a [`PERIOD`]; further nodes are counted.
const WARNINGS_MAX: u32 = 16;
const PERIOD: Duration = Duration::from_secs(60);

/// Limit on reported failures that the node has not taken yet. Further ones are not shown.
const FAULTS_MAX: usize = 256;

/// Least lifetime of a link that counts as lasting. It exceeds the delays of two processes with one
/// name that take the link from each other.
const LASTING: Duration = Duration::from_secs(20);

/// Delay of an attempt after two short links to the node; doubled for each further one.
const PAUSE: Duration = Duration::from_millis(200);
/// Limit on that delay.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Number of consecutive short links to a node after which operators are notified.
const SHORT_LINKS_REPORTED: u32 = 4;

/// Connects to nodes until it succeeds.
pub(crate) struct Connector {
    shared: Arc<Shared>,
    sessions: Receiver<(Session, Attempt)>,
    /// Failed attempts.
    faults: Receiver<ConnectFault>,
    /// No thread could be started, for want of memory.
    has_no_thread: bool,
}

/// The part shared with the threads.
struct Shared {
    identity: Identity,
    hello: Hello,
    policies: KnownPolicies,
    sender: Mutex<Sender<(Session, Attempt)>>,
    failing: SyncSender<ConnectFault>,
    state: Mutex<State>,
    /// Signals a change of the queue.
    changed: Condvar,
    began: Instant,
    connected: AtomicU64,
    failed: AtomicU64,
    no_room: AtomicU64,
}

#[derive(Default)]
struct State {
    queue: AttemptQueue,
    /// The latest handshakes, at most [`KNOWN_MAX`].
    reached: HashMap<Key, Reached>,
    threads: usize,
    is_over: bool,
    warnings: Warnings,
}

/// The latest handshake with a node.
struct Reached {
    address: IpAddr,
    at: Duration,
    /// Consecutive short links before it.
    short_links: u32,
}

/// Limits warnings about unreachable nodes.
#[derive(Default)]
struct Warnings {
    since: Duration,
    logged: u32,
    withheld: u64,
}

impl Connector {
    pub fn new(identity: Identity, hello: Hello, policies: KnownPolicies) -> Connector {
        let (sender, sessions) = channel();
        let (failing, faults) = sync_channel(FAULTS_MAX);
        let shared = Shared {
            identity,
            hello,
            policies,
            sender: Mutex::new(sender),
            failing,
            state: Mutex::default(),
            changed: Condvar::new(),
            began: Instant::now(),
            connected: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            no_room: AtomicU64::new(0),
        };
        Connector { shared: Arc::new(shared), sessions, faults, has_no_thread: false }
    }

    /// Connects to a node, and retries until it succeeds. Cancels earlier attempts at a node of
    /// this name in this scope.
    pub fn connect(&mut self, scope: &str, name: &str, address: &str) {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        let short_links = state.short_links(now, &key_of(scope, name));
        if short_links == SHORT_LINKS_REPORTED {
            let peer = format!("{name} at {address}");
            let reason = "links to it end soon after they begin, as if two processes had one name";
            state.warnings.log(now, &peer, &reason);
        }
        if !state.queue.add(now + pause_after(short_links), scope, name, address) {
            self.shared.no_room.fetch_add(1, Ordering::Relaxed);
            let peer = format!("{name} at {address}");
            state.warnings.log(now, &peer, &"too many nodes are named");
        }
        self.has_no_thread = !self.start_thread(&mut state);
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Starts another thread if more nodes wait than threads exist. Returns false if nodes wait and
    /// there is no thread, because the system refused it.
    fn start_thread(&self, state: &mut State) -> bool {
        if state.threads < THREADS_MAX.min(state.queue.len()) {
            let shared = Arc::clone(&self.shared);
            let work = move || shared.work();
            // Without a new thread, the node waits for an existing one.
            let thread = std::thread::Builder::new().name("connector".to_owned()).spawn(work);
            state.threads += usize::from(thread.is_ok());
        }
        state.threads > 0 || state.queue.len() == 0
    }

    /// Returns the counters of its handshakes.
    pub fn counters(&self) -> HandshakeCounters {
        HandshakeCounters {
            connected: self.shared.connected.load(Ordering::Relaxed),
            failed: self.shared.failed.load(Ordering::Relaxed),
            no_room: self.shared.no_room.load(Ordering::Relaxed),
            ..HandshakeCounters::default()
        }
    }

    /// Stops connecting to a node.
    pub fn forget(&mut self, scope: &str, name: &str) {
        self.shared.lock().queue.forget(scope, name);
    }

    /// Returns the next failed attempt.
    pub fn poll_fault(&self) -> Option<ConnectFault> {
        self.faults.try_recv().ok()
    }

    /// Returns the next session.
    pub fn poll(&mut self) -> Option<Session> {
        if self.has_no_thread {
            let shared = Arc::clone(&self.shared);
            self.has_no_thread = !self.start_thread(&mut shared.lock());
        }
        loop {
            let (session, attempt) = self.sessions.try_recv().ok()?;
            if self.shared.lock().queue.take(&attempt) {
                return Some(session);
            }
        }
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs attempts until none is left.
    fn work(&self) {
        let mut state = self.lock();
        while !state.is_over {
            let wait = match state.queue.next(self.now()) {
                Next::Now(attempt) => {
                    drop(state);
                    self.make(attempt);
                    state = self.lock();
                    continue;
                }
                Next::After(wait) => wait,
                // A thread that runs an attempt also handles its retry.
                Next::Never => break,
            };
            let waited = self.changed.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.threads -= 1;
    }

    fn make(&self, mut attempt: Attempt) {
        // The other node may run a former policy, or the next one.
        let known = self.policies.all();
        let policy = known[attempt.failures % known.len()];
        let hello =
            Hello { policy, scope: attempt.scope.clone(), ..self.hello.with_policy(self.policies.own()) };
        match self.try_addresses(&attempt, &hello) {
            Ok(session) => {
                self.connected.fetch_add(1, Ordering::Relaxed);
                self.note_success(&attempt, session.ends.remote.ip());
                // If this fails, the node has ended.
                let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = sender.send((session, attempt));
            }
            Err((reason, refused_at)) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                let now = self.now();
                let mut state = self.lock();
                if attempt.failures == 0 {
                    let peer = format!("{} at {}", attempt.name, attempt.address);
                    state.warnings.log(now, &peer, &reason);
                }
                // If the queue is full, the failure is not shown.
                let (scope, name) = (attempt.scope.clone(), attempt.name.clone());
                let refused = std::mem::replace(&mut attempt.refused_at, refused_at);
                let refused_at = attempt.refused_at.iter().copied().filter(|at| refused.contains(at));
                let fault = ConnectFault { scope, name, reason, refused_at: refused_at.collect() };
                let _ = self.failing.try_send(fault);
                state.queue.failed(now, attempt);
            }
        }
    }

    /// Connects to the first address of a node that completes the handshake. The name is resolved
    /// each time, because its addresses may have changed. The address of a short link is tried
    /// last: datagrams may be lost there.
    ///
    /// # Errors
    /// The reason, and the addresses whose hosts have refused the connection.
    fn try_addresses(&self, attempt: &Attempt, hello: &Hello) -> Result<Session, (String, Vec<IpAddr>)> {
        let unknown = |reason: String| (reason, Vec::new());
        let address: HostPort = attempt.address.parse().map_err(unknown)?;
        let addresses = resolve(&address).map_err(|error| unknown(error.to_string()))?;
        let now = self.now();
        let key = key_of(&attempt.scope, &attempt.name);
        let to_avoid = self.lock().last(now, &key).map(|last| last.address);
        let addresses = in_turn(addresses, attempt.failures, to_avoid);
        let (mut reasons, mut refused_at) = (Vec::new(), Vec::new());
        for at in &addresses {
            match connect(&self.identity, *at, &attempt.name, hello) {
                Ok(session) => return Ok(session),
                Err(error) => {
                    if error.is_no_listener() {
                        refused_at.push(at.ip().to_canonical());
                    }
                    reasons.push(match addresses.len() {
                        1 => error.to_string(),
                        _ => format!("{}: {error}", at.ip()),
                    });
                }
            }
        }
        Err((reasons.join("; "), refused_at))
    }

    fn note_success(&self, attempt: &Attempt, address: IpAddr) {
        let now = self.now();
        let mut state = self.lock();
        state.queue.succeeded(attempt);
        let key = key_of(&attempt.scope, &attempt.name);
        let short_links = state.short_links(now, &key);
        if state.reached.len() < KNOWN_MAX || state.reached.contains_key(&key) {
            state.reached.insert(key, Reached { address, at: now, short_links });
        }
    }
}

impl Warnings {
    fn log(&mut self, now: Duration, peer: &str, reason: &dyn Display) {
        if now >= self.since + PERIOD {
            (self.since, self.logged) = (now, 0);
        }
        if self.logged == WARNINGS_MAX {
            self.withheld += 1;
            return;
        }
        self.logged += 1;
        match std::mem::take(&mut self.withheld) {
            0 => event::peer_refused(&peer, reason),
            withheld => {
                event::peer_refused(&peer, &format_args!("{reason} ({withheld} nodes more were not named)"));
            }
        }
    }
}

impl State {
    /// Returns the number of consecutive short links to a node, given that another one is wanted
    /// now.
    fn short_links(&self, now: Duration, key: &Key) -> u32 {
        self.last(now, key).map_or(0, |last| last.short_links.saturating_add(1))
    }

    /// Returns the latest handshake with a node, if its link was short.
    fn last(&self, now: Duration, key: &Key) -> Option<&Reached> {
        self.reached.get(key).filter(|last| now < last.at + LASTING)
    }
}

fn pause_after(short_links: u32) -> Duration {
    match short_links.checked_sub(2) {
        None => Duration::ZERO,
        Some(more) => PAUSE.saturating_mul(1 << more.min(8)).min(PAUSE_MAX),
    }
}

/// Returns the addresses of this attempt, in order.
fn in_turn(mut addresses: Vec<SocketAddr>, failures: usize, to_avoid: Option<IpAddr>) -> Vec<SocketAddr> {
    if addresses.len() > ADDRESSES_MAX {
        let tried = failures * ADDRESSES_MAX % addresses.len();
        addresses.rotate_left(tried);
    }
    addresses.sort_by_key(|address| Some(address.ip()) == to_avoid);
    addresses.truncate(ADDRESSES_MAX);
    addresses
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test fails by panicking.

    use super::*;

    #[test]
    fn all_addresses_have_their_turn() {
        let all: Vec<SocketAddr> = (1..=20).map(|last| ([10, 0, 0, last], 7_400).into()).collect();
        let turn = |failures, to_avoid: Option<usize>| -> Vec<usize> {
            let to_avoid = to_avoid.map(|at| all[at - 1].ip());
            let tried = in_turn(all.clone(), failures, to_avoid).into_iter();
            tried.map(|address| 1 + all.iter().position(|one| *one == address).unwrap()).collect()
        };
        assert_eq!(turn(0, None), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(turn(0, Some(1)), [2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(turn(2, None), [17, 18, 19, 20, 1, 2, 3, 4]);
        let few = in_turn(all[..2].to_vec(), 3, Some(all[0].ip()));
        assert_eq!(few, [all[1], all[0]]);
    }

    #[test]
    fn nodes_whose_links_do_not_last_are_tried_less_often() {
        let pauses = [0, 1, 2, 3, 5, 50].map(|links| pause_after(links).as_millis());
        assert_eq!(pauses, [0, 0, 200, 400, 1_600, 5_000]);
        let (mut state, key) = (State::default(), key_of("", "unit-1"));
        let mut links = Vec::new();
        for at_s in [0, 1, 2, 11, 12, 40] {
            let now = Duration::from_secs(at_s);
            let short_links = state.short_links(now, &key);
            links.push(short_links);
            let address = [10, 0, 0, 1].into();
            state.reached.insert(key.clone(), Reached { address, at: now, short_links });
        }
        assert_eq!(links, [0, 1, 2, 3, 4, 0]);
    }
}
