//! The faults of a simulated run.

use std::cell::RefCell;

use protocol::trace::failure::Faults;

use super::Random;

/// The faults of all links, in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkFaults {
    /// One-way delay of a datagram, in nanoseconds.
    pub latency_ns: u64,
    /// Limit on a random additional delay, in nanoseconds.
    pub jitter_ns: u64,
    /// Share of lost datagrams, 0 to 1.
    pub loss: f64,
    /// Share of duplicated datagrams.
    pub duplication: f64,
    /// Share of reordered datagrams.
    pub reordering: f64,
    /// Limit on the additional delay of reordered datagrams, in nanoseconds.
    pub reordered_by_ns: u64,
}

impl LinkFaults {
    /// Links of a data centre: 20 us, without faults.
    pub const NONE: LinkFaults = LinkFaults {
        latency_ns: 20_000,
        jitter_ns: 5_000,
        loss: 0.0,
        duplication: 0.0,
        reordering: 0.0,
        reordered_by_ns: 0,
    };
}

/// A fault of a node at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeFault {
    /// Time of the fault, in nanoseconds since the first packet.
    pub at_ns: u64,
    /// The unit, by number of its node; the dispatcher, for [`NodeFaultKind::PauseDispatcher`].
    pub unit: usize,
    /// The kind.
    pub kind: NodeFaultKind,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeFaultKind {
    /// The process is paused for this time, in nanoseconds.
    Pause(u64),
    /// The process of the dispatcher is paused for this time, in nanoseconds.
    PauseDispatcher(u64),
    /// The process crashes, and a new one starts after this time, in nanoseconds.
    Crash(u64),
    /// The process ends in order, and a new one starts this time after its end, in nanoseconds.
    Restart(u64),
    /// Datagrams from the unit to all others are lost for this time, in nanoseconds.
    Mute(u64),
    /// Datagrams to the unit are lost for this time, in nanoseconds.
    Deaf(u64),
    /// Datagrams of more than 1,300 bytes from and to the unit are lost for this time, in
    /// nanoseconds: the path MTU has become smaller.
    Narrow(u64),
    /// Datagrams between the unit and the next one, or the first, are lost for this time, in
    /// nanoseconds.
    Apart(u64),
    /// Datagrams between the first two dispatchers are lost for this time, in nanoseconds.
    DispatchersApart(u64),
}

impl NodeFaultKind {
    /// Returns the name, for timelines.
    pub(super) fn name(self) -> &'static str {
        match self {
            NodeFaultKind::Pause(_) => "pause",
            NodeFaultKind::PauseDispatcher(_) => "pause of the dispatcher",
            NodeFaultKind::Crash(_) => "crash",
            NodeFaultKind::Restart(_) => "restart",
            NodeFaultKind::Mute(_) => "mute",
            NodeFaultKind::Deaf(_) => "deaf",
            NodeFaultKind::Narrow(_) => "narrow path",
            NodeFaultKind::Apart(_) => "apart from the next unit",
            NodeFaultKind::DispatchersApart(_) => "dispatchers apart",
        }
    }
}

/// A fault at a message of the ownership protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageFault {
    /// The kind of message.
    pub message: MessageKind,
    /// Time from which the first such message is hit, in nanoseconds since the first packet.
    pub from_ns: u64,
    /// The kind of fault.
    pub kind: MessageFaultKind,
}

/// A kind of message of the ownership protocol, or of packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MessageKind {
    /// A packet that names the previous owner of its flow.
    FirstPacket,
    /// Message of the dispatcher to the previous owner.
    Release,
    /// Message of the dispatcher to the owner, without a packet.
    Adopt,
    /// Message of the owner to the previous one.
    Pull,
    /// Message of the previous owner to the owner.
    State,
    /// Message of the owner to the previous one.
    StateAck,
    /// Request of the dispatcher to the owner for a replica.
    Copy,
    /// A replica.
    Replicate,
    /// A replica as a delta.
    Delta,
    /// Message of the owner to the dispatcher.
    Arrived,
}

/// A kind of fault at a message. It affects the whole datagram that carries the message. A
/// dispatcher does not crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFaultKind {
    /// The message is lost.
    Lose,
    /// It is duplicated after this time, in nanoseconds.
    Repeat(u64),
    /// It is delayed by this time, in nanoseconds, so that others overtake it.
    Delay(u64),
    /// Its sender crashes before it leaves. A new process starts after this time, in nanoseconds.
    SenderCrashesBefore(u64),
    /// Its sender crashes after it has left, with everything else that it sends at once.
    SenderCrashesAfter(u64),
    /// Its receiver crashes before it arrives.
    ReceiverCrashesBefore(u64),
    /// Its receiver crashes after it has handled it.
    ReceiverCrashesAfter(u64),
}

/// The faults of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedFaults {
    /// Faults of links.
    pub links: LinkFaults,
    /// Faults of nodes, in order of time.
    pub nodes: Vec<NodeFault>,
    /// Faults at messages.
    pub messages: Vec<MessageFault>,
    /// Limit on the difference of clock rates, as a share, 0 to 1.
    pub clock_skew: f64,
}

impl SimulatedFaults {
    /// No faults.
    pub const NONE: SimulatedFaults =
        SimulatedFaults { links: LinkFaults::NONE, nodes: Vec::new(), messages: Vec::new(), clock_skew: 0.0 };

    /// Returns random faults for a run of this duration with this number of units. Unless
    /// `may_lose`, they are of kinds that must not lose a packet.
    pub fn random(seed: u64, duration_ns: u64, units: usize, may_lose: bool) -> SimulatedFaults {
        let random = Random(RefCell::new(seed ^ 0x6661_756c_7473));
        let share = |most: f64| most * random.below(1_001) as f64 / 1_000.0;
        let links = LinkFaults {
            latency_ns: 2_000 + random.below(200_000),
            jitter_ns: random.below(100_000),
            loss: share(0.05),
            duplication: share(0.05),
            reordering: share(0.1),
            reordered_by_ns: random.below(1_000_000),
        };
        let kind = || {
            let ns = random.below(400_000_000);
            match random.below(if may_lose { 6 } else { 4 }) {
                0 => NodeFaultKind::Pause(ns),
                1 => NodeFaultKind::Restart(ns),
                2 => NodeFaultKind::Mute(ns),
                3 => NodeFaultKind::Deaf(ns),
                4 => NodeFaultKind::Crash(ns),
                _ => NodeFaultKind::Mute(10 * ns),
            }
        };
        let fault = |_| NodeFault {
            at_ns: random.below(duration_ns),
            unit: random.below(units as u64) as usize,
            kind: kind(),
        };
        let mut nodes: Vec<_> = (0..random.below(6)).map(fault).collect();
        let clock_skew = share(0.002);
        if random.below(2) == 0 {
            let apart = NodeFaultKind::Apart(random.below(4_000_000_000));
            nodes.push(NodeFault { kind: apart, ..fault(0) });
        }
        nodes.sort_by_key(|fault| fault.at_ns);
        SimulatedFaults { links, nodes, messages: Vec::new(), clock_skew }
    }
}

impl Faults for SimulatedFaults {
    fn without_one(&self) -> Vec<SimulatedFaults> {
        let mut fewer = Vec::new();
        for at in 0..self.nodes.len() {
            let mut faults = self.clone();
            faults.nodes.remove(at);
            fewer.push(faults);
        }
        for at in 0..self.messages.len() {
            let mut faults = self.clone();
            faults.messages.remove(at);
            fewer.push(faults);
        }
        let LinkFaults { jitter_ns, loss, duplication, reordering, .. } = self.links;
        let mut with = |is_there: bool, links: LinkFaults| {
            if is_there {
                fewer.push(SimulatedFaults { links, ..self.clone() });
            }
        };
        with(loss > 0.0, LinkFaults { loss: 0.0, ..self.links });
        with(duplication > 0.0, LinkFaults { duplication: 0.0, ..self.links });
        with(reordering > 0.0, LinkFaults { reordering: 0.0, ..self.links });
        with(jitter_ns > 0, LinkFaults { jitter_ns: 0, ..self.links });
        if self.clock_skew > 0.0 {
            fewer.push(SimulatedFaults { clock_skew: 0.0, ..self.clone() });
        }
        fewer
    }
}
