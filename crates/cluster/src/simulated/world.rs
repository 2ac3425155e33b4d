//! The world of simulated nodes: the queue of events by time, and the nodes.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use protocol::trace::EventTimeline;
use protocol::trace::audit::DISPATCHER_RESTARTS;
use protocol::trace::failure::simulated_timeline;

use super::faults::{MessageFault, MessageFaultKind, NodeFault, NodeFaultKind, SimulatedFaults};
use super::messages::carries;
use super::{Random, SimulatedNetwork, SimulatedUnit, TICK_NS};
use crate::addresses::Endpoints;
use crate::identity::{LinkSecrets, Session};
use crate::policies::{AppliedPolicy, GraphMaker, KnownPolicies, NoShelf, NumberedDigest, PolicyReader};
use crate::unit::{Turn, UnitOrder, UnitProcess};
use crate::wire::{Hello, Role, UnitFigures, VERSION, VERSION_MIN};

/// Delay before an attempt to connect is repeated, in nanoseconds.
const RETRY_NS: u64 = 200_000_000;

/// Length of the longest datagram on a narrow path.
const NARROW: usize = 1_300;
/// Limit on datagrams that wait at a node; further ones are lost.
const INBOX_MAX: usize = 4096;
/// Limit on the time that the dispatcher waits for units, in nanoseconds.
const PATIENCE_NS: u64 = 60_000_000_000;
/// Duration of a unit's round, in nanoseconds.
const TURN_NS: u64 = 2_000;
/// Limit on datagrams that a node receives at once.
const TAKEN_AT_ONCE: usize = 64;

/// Runs a dispatcher, at a time of the run in nanoseconds.
pub(super) type Driver = Box<dyn FnMut(u64)>;

/// Makes the graph maker and the policy reader of a unit's process.
pub(super) type UnitMaker = Rc<dyn Fn() -> (GraphMaker, Box<dyn PolicyReader>)>;

/// A node, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeId(pub usize);

/// Counters of the simulated network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimulatedCounters {
    /// Sent datagrams.
    pub datagrams: u64,
    /// Lost datagrams.
    pub lost: u64,
    /// Duplicated datagrams.
    pub repeated: u64,
    /// Reordered datagrams.
    pub overtaken: u64,
    /// Faults of nodes.
    pub node_faults: u64,
    /// Faults at messages.
    pub message_faults: u64,
}

/// An event with its time.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Scheduled {
    at_ns: u64,
    number: u64,
    event: Event,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival { to: NodeId, from: NodeId, datagram: Vec<u8> },
    Handshake { from: NodeId, attempt: u64, to: NodeId, scope: String },
    Fault { number: usize },
    Crash { unit: NodeId, restart_ns: u64 },
    Start(NodeId),
}

/// A node.
pub(super) struct Node {
    pub name: String,
    /// Makes graphs and policy readers; `None` for a dispatcher.
    make: Option<UnitMaker>,
    policies: KnownPolicies,
    order: UnitOrder,
    incarnation: u64,
    /// The latest attempts to connect, by node and scope; earlier ones are void.
    attempts: BTreeMap<(NodeId, String), u64>,
    is_up: bool,
    inbox: VecDeque<(SocketAddr, Vec<u8>)>,
    sessions: VecDeque<Session>,
    /// Time of its next round.
    wake_ns: u64,
    /// End of its pause, during which it sends and receives nothing.
    paused_ns: u64,
    mute_ns: u64,
    deaf_ns: u64,
    /// Time until which long datagrams from it and to it are lost.
    narrow_ns: u64,
    /// Time until which datagrams between it and this node are lost.
    apart: (NodeId, u64),
    /// Share by which its clock is faster than the world's.
    skew: f64,
    /// Delay of its next process after an orderly end; `None` if there is none.
    restart_ns: Option<u64>,
}

/// The world.
pub(super) struct World {
    faults: SimulatedFaults,
    random: Random,
    pub now_ns: Cell<u64>,
    /// Time at which the dispatcher was last idle.
    driven_ns: Cell<u64>,
    /// Attempts to connect so far.
    attempts: Cell<u64>,
    /// Time at which the run began.
    began_ns: Cell<u64>,
    events: RefCell<BinaryHeap<Reverse<Scheduled>>>,
    scheduled: Cell<u64>,
    pub nodes: RefCell<Vec<Node>>,
    /// Drivers of dispatchers by node index, without the one that runs at the moment.
    drivers: RefCell<BTreeMap<usize, Driver>>,
    /// Processes of units, by node index.
    units: RefCell<BTreeMap<usize, Box<SimulatedUnit>>>,
    counters: Cell<SimulatedCounters>,
    has_faults: Cell<bool>,
    /// Faults at messages that are still to come.
    message_faults: RefCell<Vec<MessageFault>>,
    /// The fault of the last message that a link has taken: sender, receiver and kind.
    message_fault: Cell<Option<(NodeId, NodeId, MessageFaultKind)>>,
    /// Nodes that have crashed.
    crashed: RefCell<Vec<NodeId>>,
    itself: RefCell<std::rc::Weak<World>>,
    ended: RefCell<Vec<UnitFigures>>,
    pub timeline: Arc<EventTimeline>,
}

impl World {
    pub fn new(faults: SimulatedFaults, seed: u64) -> Rc<World> {
        let message_faults = RefCell::new(faults.messages.clone());
        let world = Rc::new(World {
            faults,
            message_faults,
            random: Random(RefCell::new(seed ^ 0x6c69_6e6b_7300)),
            now_ns: Cell::new(0),
            driven_ns: Cell::new(0),
            attempts: Cell::new(0),
            began_ns: Cell::new(0),
            events: RefCell::default(),
            scheduled: Cell::new(0),
            nodes: RefCell::default(),
            drivers: RefCell::default(),
            units: RefCell::default(),
            counters: Cell::default(),
            has_faults: Cell::new(false),
            message_fault: Cell::default(),
            crashed: RefCell::default(),
            itself: RefCell::default(),
            ended: RefCell::default(),
            timeline: simulated_timeline(),
        });
        *world.itself.borrow_mut() = Rc::downgrade(&world);
        world
    }

    /// Adds a node. A node with a maker is a unit; the first nodes are dispatchers.
    pub fn add(&self, name: &str, make: Option<UnitMaker>) -> NodeId {
        let skew = self.faults.clock_skew * (self.random.below(2_001) as f64 / 1_000.0 - 1.0);
        let mut nodes = self.nodes.borrow_mut();
        nodes.push(Node {
            name: name.to_owned(),
            make,
            policies: KnownPolicies::new(NumberedDigest::default()),
            order: UnitOrder::default(),
            incarnation: 0,
            attempts: BTreeMap::new(),
            is_up: true,
            inbox: VecDeque::new(),
            sessions: VecDeque::new(),
            wake_ns: u64::MAX,
            paused_ns: 0,
            mute_ns: 0,
            deaf_ns: 0,
            narrow_ns: 0,
            apart: (NodeId(0), 0),
            skew,
            restart_ns: None,
        });
        NodeId(nodes.len() - 1)
    }

    /// Returns a node's end of the network.
    pub fn network(self: &Rc<World>, node: NodeId) -> SimulatedNetwork {
        let policies = self.nodes.borrow()[node.0].policies.clone();
        SimulatedNetwork { world: Rc::clone(self), node, policies }
    }

    /// Starts the units.
    pub fn begin(&self) {
        (0..self.nodes.borrow().len()).for_each(|node| self.schedule(0, Event::Start(NodeId(node))));
    }

    /// Runs a dispatcher when something arrives, and each [`TICK_NS`].
    pub fn drive(&self, dispatcher: NodeId, driver: Driver) {
        self.drivers.borrow_mut().insert(dispatcher.0, driver);
        self.nodes.borrow_mut()[dispatcher.0].wake_ns = self.now_ns.get();
    }

    /// Stops running a dispatcher.
    pub fn drive_no_longer(&self, dispatcher: usize) {
        self.drivers.borrow_mut().remove(&dispatcher);
    }

    /// Enables faults from now on, and restarts the time of the run.
    pub fn begin_faults(&self) {
        self.has_faults.set(true);
        self.began_ns.set(self.now_ns.get());
        for (number, fault) in self.faults.nodes.iter().enumerate() {
            self.schedule(self.now_ns.get() + fault.at_ns, Event::Fault { number });
        }
    }

    /// Ends all faults: paused nodes continue.
    pub fn end_faults(&self) {
        self.has_faults.set(false);
        for node in self.nodes.borrow_mut().iter_mut() {
            (node.paused_ns, node.mute_ns, node.deaf_ns, node.apart.1) = (0, 0, 0, 0);
            node.narrow_ns = 0;
            node.wake_ns = node.wake_ns.min(self.now_ns.get());
        }
    }

    pub fn dispatcher(&self) -> NodeId {
        NodeId(0)
    }

    /// Returns the node with this index: dispatchers come first.
    pub fn place(&self, number: usize) -> NodeId {
        NodeId(number)
    }

    /// Drops all processes, which hold references to the world.
    pub fn clear(&self) {
        self.units.borrow_mut().clear();
        self.drivers.borrow_mut().clear();
        self.nodes.borrow_mut().clear();
        self.events.borrow_mut().clear();
    }

    pub fn counters(&self) -> SimulatedCounters {
        self.counters.get()
    }

    /// Returns the figures of units, including ended ones.
    pub fn figures(&self) -> Vec<UnitFigures> {
        let running = self.units.borrow();
        let running = running.values().flat_map(|unit| unit.figures());
        self.ended.borrow_mut().drain(..).chain(running).collect()
    }

    /// Returns true if the dispatcher has waited for [`PATIENCE_NS`] since it was last idle or a
    /// packet arrived.
    pub fn is_stuck(&self) -> bool {
        self.now_ns.get() - self.driven_ns.get() >= PATIENCE_NS
    }

    /// Describes the states of units, for an error report.
    pub fn states(&self) -> Vec<String> {
        let units = self.units.borrow();
        units.iter().map(|(at, unit)| format!("node {at}: {}", unit.description())).collect()
    }

    /// Returns the time since the run began.
    pub fn run_time_ns(&self) -> u64 {
        self.now_ns.get() - self.began_ns.get()
    }

    /// Returns the time of a node's own clock.
    pub fn clock_ns(&self, node: NodeId) -> u64 {
        let skew = self.nodes.borrow()[node.0].skew;
        let now_ns = self.now_ns.get();
        now_ns.saturating_add_signed((now_ns as f64 * skew) as i64)
    }

    /// Connects to a node, and retries until it succeeds.
    pub fn connect(&self, from: NodeId, scope: &str, name: &str) {
        let Some(to) = self.named(name) else { return };
        let attempt = self.attempts.get() + 1;
        self.attempts.set(attempt);
        self.nodes.borrow_mut()[from.0].attempts.insert((to, dispatcher_of(scope)), attempt);
        let at_ns = self.now_ns.get() + 4 * self.faults.links.latency_ns;
        self.schedule(at_ns, Event::Handshake { from, attempt, to, scope: scope.to_owned() });
    }

    /// Stops connecting to a node.
    pub fn forget(&self, from: NodeId, scope: &str, name: &str) {
        if let Some(to) = self.named(name) {
            self.nodes.borrow_mut()[from.0].attempts.remove(&(to, dispatcher_of(scope)));
        }
    }

    fn named(&self, name: &str) -> Option<NodeId> {
        self.nodes.borrow().iter().position(|node| node.name == name).map(NodeId)
    }

    pub fn poll_session(&self, node: NodeId) -> Option<Session> {
        self.nodes.borrow_mut()[node.0].sessions.pop_front()
    }

    /// Passes datagrams that have arrived at a node to `take`.
    pub fn receive(&self, node: NodeId, take: &mut dyn FnMut(Endpoints, &mut [u8])) -> bool {
        let mut taken: Vec<_> = {
            let inbox = &mut self.nodes.borrow_mut()[node.0].inbox;
            let count = inbox.len().min(TAKEN_AT_ONCE);
            inbox.drain(..count).collect()
        };
        taken.iter_mut().for_each(|(from, datagram)| take(Endpoints::new(None, *from), datagram));
        !taken.is_empty()
    }

    /// Sends a datagram, or loses it.
    pub fn send(&self, from: NodeId, to: SocketAddr, datagram: &[u8]) {
        let mut counters = self.counters.get();
        counters.datagrams += 1;
        let links = self.faults.links;
        let to = node_at(to);
        let (now_ns, has_faults) = (self.now_ns.get(), self.has_faults.get());
        let fault = self.take_fault(from, to);
        if let Some(MessageFaultKind::SenderCrashesBefore(_)) = fault {
            self.nodes.borrow_mut()[from.0].mute_ns = u64::MAX; // Nothing else of its turn leaves.
        }
        let is_cut = {
            let nodes = self.nodes.borrow();
            let is_narrow = nodes[from.0].narrow_ns.max(nodes[to.0].narrow_ns) > now_ns;
            nodes[from.0].mute_ns > now_ns
                || is_narrow && datagram.len() > NARROW
                || nodes[to.0].deaf_ns > now_ns
                || are_apart(&nodes, (from, to), now_ns)
        };
        match fault {
            Some(
                MessageFaultKind::SenderCrashesBefore(restart_ns)
                | MessageFaultKind::SenderCrashesAfter(restart_ns),
            ) => self.schedule(now_ns, Event::Crash { unit: from, restart_ns }),
            Some(MessageFaultKind::ReceiverCrashesBefore(restart_ns)) => {
                self.schedule(now_ns, Event::Crash { unit: to, restart_ns });
            }
            _ => {}
        }
        let is_lost = fault == Some(MessageFaultKind::Lose);
        if is_cut || is_lost || has_faults && self.random.happens(links.loss) {
            counters.lost += 1;
            return self.counters.set(counters);
        }
        let way_ns = || links.latency_ns + self.random.below(links.jitter_ns + 1);
        let mut at_ns = now_ns + way_ns();
        if has_faults && self.random.happens(links.reordering) {
            counters.overtaken += 1;
            at_ns += self.random.below(links.reordered_by_ns + 1);
        }
        if has_faults && self.random.happens(links.duplication) {
            counters.repeated += 1;
            let again_ns = now_ns + way_ns() + self.random.below(links.reordered_by_ns + 1);
            self.schedule(again_ns, Event::Arrival { to, from, datagram: datagram.to_vec() });
        }
        self.counters.set(counters);
        match fault {
            Some(MessageFaultKind::Delay(ns)) => at_ns += ns,
            Some(MessageFaultKind::Repeat(ns)) => {
                self.schedule(at_ns + ns, Event::Arrival { to, from, datagram: datagram.to_vec() });
            }
            Some(MessageFaultKind::ReceiverCrashesAfter(restart_ns)) => {
                self.schedule(at_ns + 1, Event::Crash { unit: to, restart_ns });
            }
            _ => {}
        }
        self.schedule(at_ns, Event::Arrival { to, from, datagram: datagram.to_vec() });
    }

    /// Notes a message that a node passes to its link, which sends it in its next datagram.
    pub fn note_message(&self, from: NodeId, to: SocketAddr, message: &[u8]) {
        let mut faults = self.message_faults.borrow_mut();
        let is_at = |fault: &MessageFault| {
            self.has_faults.get() && fault.from_ns <= self.run_time_ns() && carries(message, fault.message)
        };
        let Some(at) = faults.iter().position(is_at) else { return };
        let kind = faults.remove(at).kind;
        self.message_fault.set(Some((from, node_at(to), kind)));
        let mut counters = self.counters.get();
        counters.message_faults += 1;
        self.counters.set(counters);
    }

    /// Takes the fault of a message in the next datagram between these nodes.
    fn take_fault(&self, from: NodeId, to: NodeId) -> Option<MessageFaultKind> {
        let (.., kind) = self.message_fault.get().filter(|&(one, other, _)| (one, other) == (from, to))?;
        self.message_fault.set(None);
        Some(kind)
    }

    /// Crashes a unit. A new process starts after this time.
    fn crash(&self, id: NodeId, restart_ns: u64) {
        let is_unit = |node: &&mut Node| node.is_up && node.make.is_some();
        if let Some(node) = self.nodes.borrow_mut().get_mut(id.0).filter(is_unit) {
            self.note_fault(node, "crash");
            node.end();
            self.units.borrow_mut().remove(&id.0);
            self.crashed.borrow_mut().push(id);
            self.schedule(self.now_ns.get() + restart_ns, Event::Start(id));
        }
    }

    /// Replaces the dispatcher's process by another one.
    pub fn restart_dispatcher(&self) {
        let mut nodes = self.nodes.borrow_mut();
        let node = &mut nodes[self.dispatcher().0];
        self.note_fault(node, DISPATCHER_RESTARTS);
        node.end();
        node.is_up = true;
        node.incarnation += 1;
        node.attempts.clear();
        node.policies = KnownPolicies::new(NumberedDigest::default());
    }

    /// Returns the number of flows in the tables of units.
    pub fn flows_at_units(&self) -> u64 {
        let units = self.units.borrow();
        units.values().flat_map(|unit| unit.figures()).map(|figures| figures.flows[1]).sum()
    }

    /// Returns the units that have crashed, by number of their nodes, in order of time.
    pub fn crashed(&self) -> Vec<usize> {
        self.crashed.borrow().iter().map(|node| node.0 - 1).collect()
    }

    /// Returns the end of a node's pause, in the time of the run, if it is paused.
    pub fn paused_until_ns(&self, node: NodeId) -> Option<u64> {
        let paused_ns = self.nodes.borrow()[node.0].paused_ns;
        (paused_ns > self.now_ns.get()).then(|| paused_ns - self.began_ns.get())
    }

    /// Runs up to this time of the run, or until something arrives at a node. Returns true if it
    /// has.
    pub fn run_to(&self, node: NodeId, until_ns: u64) -> bool {
        self.driven_ns.set(self.now_ns.get());
        self.run(Some(node), self.began_ns.get() + until_ns)
    }

    /// Runs up to this time of the run.
    pub fn run_on(&self, until_ns: u64) {
        self.driven_ns.set(self.now_ns.get());
        self.run(None, self.began_ns.get() + until_ns);
    }

    /// Runs for this time, or until something arrives at a node.
    pub fn run_until_arrival(&self, node: NodeId, timeout_ns: u64) {
        self.run(Some(node), self.now_ns.get() + timeout_ns);
    }

    fn run(&self, node: Option<NodeId>, until_ns: u64) -> bool {
        let has_something = || {
            let nodes = self.nodes.borrow();
            let node = node.map(|node| &nodes[node.0]);
            let is_there = |node: &Node| !node.inbox.is_empty() || !node.sessions.is_empty();
            node.is_some_and(|node| node.paused_ns <= self.now_ns.get() && is_there(node))
        };
        loop {
            if has_something() {
                return true;
            }
            let event_ns = self.events.borrow().peek().map(|Reverse(next)| next.at_ns);
            let woken = self.next_to_wake();
            let wake_ns = woken.map_or(u64::MAX, |(at_ns, _)| at_ns);
            let next_ns = event_ns.unwrap_or(u64::MAX).min(wake_ns);
            if next_ns > until_ns {
                self.set_now_ns(self.now_ns.get().max(until_ns));
                return false;
            }
            self.set_now_ns(self.now_ns.get().max(next_ns));
            self.timeline.set_in_flight(self.events.borrow().len());
            match woken.filter(|_| wake_ns <= event_ns.unwrap_or(u64::MAX)) {
                Some((_, unit)) => self.work(unit),
                None => {
                    let next = self.events.borrow_mut().pop();
                    next.into_iter().for_each(|Reverse(next)| self.happen(next.event));
                }
            }
        }
    }

    /// Returns the node with the next round, and its time.
    fn next_to_wake(&self) -> Option<(u64, usize)> {
        let nodes = self.nodes.borrow();
        let running = nodes.iter().enumerate().filter(|(_, node)| node.is_up && node.wake_ns < u64::MAX);
        running.map(|(at, node)| (node.wake_ns.max(node.paused_ns), at)).min()
    }

    /// Runs a dispatcher's round.
    fn work_at_dispatcher(&self, at: usize) {
        let driver = self.drivers.borrow_mut().remove(&at);
        self.nodes.borrow_mut()[at].wake_ns = u64::MAX;
        let Some(mut driver) = driver else { return };
        driver(self.run_time_ns());
        self.drivers.borrow_mut().insert(at, driver);
        let node = &mut self.nodes.borrow_mut()[at];
        let again_ns = if node.inbox.is_empty() && node.sessions.is_empty() { TICK_NS } else { TURN_NS };
        node.wake_ns = self.now_ns.get() + again_ns;
    }

    /// Runs a unit's round.
    fn work(&self, at: usize) {
        if self.nodes.borrow()[at].make.is_none() {
            return self.work_at_dispatcher(at);
        }
        let Some(mut unit) = self.units.borrow_mut().remove(&at) else {
            self.nodes.borrow_mut()[at].wake_ns = u64::MAX;
            return;
        };
        let order = std::mem::take(&mut self.nodes.borrow_mut()[at].order);
        let turn = self.recorded(NodeId(at), || unit.turn(&order));
        let mut nodes = self.nodes.borrow_mut();
        let node = &mut nodes[at];
        node.order = order;
        match turn {
            Turn::More => node.wake_ns = self.now_ns.get() + TURN_NS,
            Turn::Wait(ns) => node.wake_ns = self.now_ns.get() + ns.max(TURN_NS),
            Turn::Over => {
                let restart_ns = node.restart_ns.take();
                self.ended.borrow_mut().extend(unit.figures());
                node.end();
                drop(nodes);
                if let Some(after_ns) = restart_ns {
                    self.schedule(self.now_ns.get() + after_ns, Event::Start(NodeId(at)));
                }
                return;
            }
        }
        drop(nodes);
        self.units.borrow_mut().insert(at, unit);
    }

    fn happen(&self, event: Event) {
        let now_ns = self.now_ns.get();
        match event {
            Event::Arrival { to, from, datagram } => {
                let mut nodes = self.nodes.borrow_mut();
                let node = &mut nodes[to.0];
                if node.is_up && node.inbox.len() < INBOX_MAX {
                    node.inbox.push_back((address_of(from), datagram));
                    node.wake_ns = node.wake_ns.min(now_ns);
                }
            }
            Event::Handshake { from, attempt, to, scope } => self.meet(from, attempt, to, scope),
            Event::Fault { number } if self.has_faults.get() => self.fail(self.faults.nodes[number]),
            Event::Fault { .. } => {}
            Event::Crash { unit, restart_ns } => self.crash(unit, restart_ns),
            Event::Start(node) => self.start(node),
        }
    }

    /// Completes a handshake of two nodes, if both are up.
    fn meet(&self, from: NodeId, attempt: u64, to: NodeId, scope: String) {
        let now_ns = self.now_ns.get();
        let mut nodes = self.nodes.borrow_mut();
        let goal = (to, dispatcher_of(&scope));
        if !nodes[from.0].is_up || nodes[from.0].attempts.get(&goal) != Some(&attempt) {
            return;
        }
        let is_over = |until_ns: u64| until_ns <= now_ns;
        let hears =
            |node: &Node| node.is_up && [node.paused_ns, node.mute_ns, node.deaf_ns].into_iter().all(is_over);
        if !(hears(&nodes[from.0]) && hears(&nodes[to.0])) || are_apart(&nodes, (from, to), now_ns) {
            drop(nodes);
            let again = Event::Handshake { from, attempt, to, scope };
            return self.schedule(now_ns + RETRY_NS, again);
        }
        let hellos = [from, to].map(|node| nodes[node.0].hello(node));
        let [of_from, of_to] = hellos;
        if !of_from.fits(&of_to) {
            drop(nodes);
            let again = Event::Handshake { from, attempt, to, scope };
            return self.schedule(now_ns + RETRY_NS, again);
        }
        nodes[from.0].attempts.remove(&goal);
        let key = || {
            let words = [(); 4].map(|()| self.random.bits().to_be_bytes());
            let mut key = [0; 32];
            key.chunks_exact_mut(8).zip(words).for_each(|(chunk, word)| chunk.copy_from_slice(&word));
            key
        };
        let (first, second, id) = (key(), key(), self.random.bits());
        let session = |peer, at, send, receive, is_client| Session {
            peer,
            ends: Endpoints::new(None, address_of(at)),
            secrets: LinkSecrets { send, receive, id },
            is_client,
            scope: scope.clone(),
            certificate: None,
        };
        nodes[from.0].sessions.push_back(session(of_to, to, first, second, true));
        nodes[to.0].sessions.push_back(session(of_from, from, second, first, false));
        for node in [from, to] {
            nodes[node.0].wake_ns = nodes[node.0].wake_ns.min(now_ns);
        }
    }

    fn start(&self, id: NodeId) {
        let Some(world) = self.itself.borrow().upgrade() else { return };
        let mut nodes = self.nodes.borrow_mut();
        let node = &mut nodes[id.0];
        let Some(make) = node.make.clone() else { return };
        node.policies = KnownPolicies::new(NumberedDigest::default());
        node.incarnation += 1;
        node.attempts.clear();
        node.is_up = true;
        node.order = UnitOrder::default();
        node.wake_ns = self.now_ns.get();
        drop(nodes);
        let applied = (AppliedPolicy::default(), Box::<NoShelf>::default() as _);
        let unit = UnitProcess::over(world.network(id), make(), applied, Box::new(|_, _| {}));
        self.units.borrow_mut().insert(id.0, Box::new(unit));
    }

    fn fail(&self, NodeFault { unit, kind, .. }: NodeFault) {
        let now_ns = self.now_ns.get();
        let mut nodes = self.nodes.borrow_mut();
        let first = nodes.iter().take_while(|node| node.make.is_none()).count();
        let at = if matches!(kind, NodeFaultKind::PauseDispatcher(_)) { unit } else { first + unit };
        let is_last = at + 1 == nodes.len();
        let Some(node) = nodes.get_mut(at).filter(|node| node.is_up) else { return };
        let mut counters = self.counters.get();
        counters.node_faults += 1;
        self.counters.set(counters);
        if !matches!(kind, NodeFaultKind::Crash(_)) {
            self.note_fault(node, kind.name());
        }
        match kind {
            NodeFaultKind::Pause(ns) | NodeFaultKind::PauseDispatcher(ns) => node.paused_ns = now_ns + ns,
            NodeFaultKind::Mute(ns) => node.mute_ns = now_ns + ns,
            NodeFaultKind::Deaf(ns) => node.deaf_ns = now_ns + ns,
            NodeFaultKind::Narrow(ns) => node.narrow_ns = now_ns + ns,
            NodeFaultKind::Apart(ns) => {
                let next = if is_last { first } else { at + 1 };
                node.apart = (NodeId(next), now_ns + ns);
            }
            NodeFaultKind::DispatchersApart(ns) => nodes[0].apart = (NodeId(1), now_ns + ns),
            NodeFaultKind::Restart(ns) => {
                node.restart_ns = Some(ns);
                node.order.leaves.store(true, Ordering::Relaxed);
                node.wake_ns = now_ns;
            }
            NodeFaultKind::Crash(ns) => {
                drop(nodes);
                self.crash(NodeId(at), ns);
            }
        }
    }

    fn schedule(&self, at_ns: u64, event: Event) {
        let number = self.scheduled.get() + 1;
        self.scheduled.set(number);
        self.events.borrow_mut().push(Reverse(Scheduled { at_ns, number, event }));
    }
}

/// Returns true if datagrams between two nodes are lost.
fn are_apart(nodes: &[Node], (one, other): (NodeId, NodeId), now_ns: u64) -> bool {
    let keeps_off = |from: NodeId, to: NodeId| {
        let (apart, until_ns) = nodes[from.0].apart;
        apart == to && until_ns > now_ns
    };
    keeps_off(one, other) || keeps_off(other, one)
}

impl Node {
    /// Ends the node's process.
    fn end(&mut self) {
        self.is_up = false;
        self.wake_ns = u64::MAX;
        (self.paused_ns, self.mute_ns, self.deaf_ns) = (0, 0, 0);
        self.inbox.clear();
        self.sessions.clear();
    }

    fn hello(&self, id: NodeId) -> Hello {
        Hello {
            versions: (VERSION, VERSION_MIN),
            name: self.name.clone(),
            incarnation: self.incarnation,
            scope: String::new(),
            policy: self.policies.own().digest,
            runs: Some(self.policies.own()),
            role: if self.make.is_some() { Role::Unit } else { Role::Dispatcher },
            port: address_of(id).port(),
        }
    }
}

/// Returns the dispatcher of a scope. A node has one unit per dispatcher.
fn dispatcher_of(scope: &str) -> String {
    scope.split('/').next().unwrap_or_default().to_owned()
}

/// Returns the node at an address.
fn node_at(address: SocketAddr) -> NodeId {
    NodeId(usize::from(address.port()) - 1)
}

/// Returns the address of a node.
fn address_of(node: NodeId) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], node.0 as u16 + 1))
}
