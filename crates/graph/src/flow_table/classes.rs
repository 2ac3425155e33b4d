//! Classes of flows: which flow gives way when the table is full.
//!
//! While there is room, any flow may begin. In a full table the least useful class above its share
//! gives way. So a flood of new flows, spoofed or not, displaces itself and not the connections of
//! others. Within a class, flows of sources above their share of the table go first, then silent
//! ones.
//!
//! Silence is checked only in a full table, so it costs packets nothing. A class has two queues.
//! The first flow in one of them is evicted if it has been silent for more than half of the time
//! since it was queued, else it is queued again. Flows with more than a few packets are
//! conversations: once first, they move to the other queue. While that queue has more than half of
//! the class's share, its oldest flow is treated in the same way. So idle conversations outlive
//! floods of short flows, and finished ones give way to active flows.

mod queues;

use nf::record::{FlowRecords, RecordHeader};
use nf::{Connection, FEW_PACKETS, SourceAccounts};
use packet::memory::OutOfMemory;
use packet::parse::protocol;

use queues::{QueueId, Queues};

/// Usefulness of a flow when the table is full, the least useful class first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FlowClass {
    /// TCP connections that were closed or reset, and wait for stragglers.
    Closed = 0,
    /// UDP flows without a reply.
    UdpUnanswered = 1,
    /// TCP connections before the end of their handshake.
    TcpHalfOpen = 2,
    /// Anything else: ICMP, SCTP, tunnels.
    Other = 3,
    /// UDP flows with packets of both sides.
    UdpAnswered = 4,
    /// TCP connections that are open.
    TcpEstablished = 5,
}

impl FlowClass {
    /// Number of classes.
    pub const COUNT: usize = 6;

    /// All classes, in the order of their eviction.
    pub const ALL: [FlowClass; FlowClass::COUNT] = [
        FlowClass::Closed,
        FlowClass::UdpUnanswered,
        FlowClass::TcpHalfOpen,
        FlowClass::Other,
        FlowClass::UdpAnswered,
        FlowClass::TcpEstablished,
    ];

    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            FlowClass::Closed => "closed",
            FlowClass::UdpUnanswered => "udp_unanswered",
            FlowClass::TcpHalfOpen => "tcp_half_open",
            FlowClass::Other => "other",
            FlowClass::UdpAnswered => "udp_answered",
            FlowClass::TcpEstablished => "tcp_established",
        }
    }

    /// Returns the class of a flow of this protocol in this phase of its connection.
    pub fn of(protocol: u8, connection: Connection) -> FlowClass {
        use Connection as C;
        match (protocol, connection) {
            (protocol::TCP, C::CLOSED | C::RESET) => FlowClass::Closed,
            (protocol::TCP, C::ESTABLISHED | C::FIN_ORIGINAL | C::FIN_REPLY) => FlowClass::TcpEstablished,
            (protocol::TCP, _) => FlowClass::TcpHalfOpen,
            (protocol::UDP, C::REPLIED) => FlowClass::UdpAnswered,
            (protocol::UDP, _) => FlowClass::UdpUnanswered,
            _ => FlowClass::Other,
        }
    }
}

/// The share of each class in a full table, in percent; beyond it, the class's flows are evicted.
/// Established TCP connections are evicted when no other class exceeds its share. Closed ones have
/// no share and are evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// UDP flows without a reply.
    pub udp_unanswered: u8,
    /// TCP connections before the end of their handshake.
    pub tcp_half_open: u8,
    /// Anything but TCP and UDP.
    pub other: u8,
    /// UDP flows with packets of both sides.
    pub udp_answered: u8,
    /// The share of one source, over all classes; beyond it, its flows are evicted first within
    /// their class. A source is the IPv4 address, or the IPv6 /64, that began the flow.
    pub per_source: u8,
}

impl Default for Shares {
    fn default() -> Shares {
        Shares { udp_unanswered: 10, tcp_half_open: 20, other: 10, udp_answered: 20, per_source: 10 }
    }
}

impl Shares {
    /// Returns this share of `flows_max`, at least one flow.
    fn of(percent: u8, flows_max: u32) -> u32 {
        (u64::from(flows_max) * u64::from(percent)).div_ceil(100).max(1) as u32
    }

    fn quotas(&self, flows_max: u32) -> [u32; FlowClass::COUNT] {
        let of = |percent| Shares::of(percent, flows_max);
        let Shares { udp_unanswered, tcp_half_open, other, udp_answered, per_source: _ } = *self;
        [0, of(udp_unanswered), of(tcp_half_open), of(other), of(udp_answered), 0]
    }

    /// Returns the number of conversations of each class that are kept apart from its other flows:
    /// half of its share. Open connections have the share that the others leave.
    fn conversations(&self, flows_max: u32) -> [u32; FlowClass::COUNT] {
        let mut shares = self.quotas(flows_max);
        let others = shares.iter().fold(0u32, |sum, share| sum.saturating_add(*share));
        shares[FlowClass::TcpEstablished as usize] = flows_max.saturating_sub(others);
        shares.map(|share| share / 2)
    }
}

/// Flows of a class that are checked when one must go.
const SAMPLE: u32 = 16;

/// Samples that are taken to find a flow of a source above its share, while there is such a source.
const SAMPLES_MAX: u32 = 4;

/// The flow to be evicted, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub record: u32,
    pub class: FlowClass,
    /// True if its source is above its share.
    pub over_source: bool,
}

/// A candidate for eviction; of two, the lesser is evicted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// True if its source is within its share.
    is_within_share: bool,
    /// It has been silent for less than half of its time in the queue.
    goes_on: bool,
    last_seen_ns: u64,
    record: u32,
    is_conversation: bool,
}

impl Candidate {
    /// Returns true if no other candidate must be checked. `any_over`: some source is above its
    /// share, so its flows are preferred.
    fn gives_way(self, any_over: bool) -> bool {
        !self.goes_on && self.is_within_share != any_over
    }
}

/// The flows of a table by class, with two queues for each class, and the number of flows of each
/// source.
pub(crate) struct Classes {
    queues: Queues,
    quotas: [u32; FlowClass::COUNT],
    /// Limits of conversations by class.
    conversations: [u32; FlowClass::COUNT],
    sources: SourceAccounts,
}

impl Classes {
    /// Creates the classes for a table of up to `flows_max` flows.
    pub fn new(flows_max: u32, shares: &Shares, seed: u64) -> Result<Classes, OutOfMemory> {
        let share = Shares::of(shares.per_source, flows_max);
        let mut sources = SourceAccounts::new(u64::from(flows_max) * 2, share, seed)?;
        sources.prefault(); // Reached at random.
        Ok(Classes {
            queues: Queues::new(flows_max),
            quotas: shares.quotas(flows_max),
            conversations: shares.conversations(flows_max),
            sources,
        })
    }

    /// Returns the number of flows in each class.
    pub fn live(&self) -> [u32; FlowClass::COUNT] {
        FlowClass::ALL.map(|class| self.live_of(class))
    }

    fn live_of(&self, class: FlowClass) -> u32 {
        self.queues.len(QueueId::of(class, false)) + self.queues.len(QueueId::of(class, true))
    }

    /// Adds a flow of the table.
    pub fn enter(&mut self, record: u32, header: &RecordHeader) {
        let class = FlowClass::of(header.key.protocol, header.connection);
        self.queues.push(record, QueueId::of(class, false), header.last_seen_ns);
        self.sources.add(self.sources.account(header.source()), 1);
    }

    /// Follows a change of the flow's connection.
    #[cold]
    #[inline(never)]
    pub fn follow(&mut self, record: u32, header: &RecordHeader) {
        let class = FlowClass::of(header.key.protocol, header.connection);
        if self.queues.is_of_other_class(record, class) && self.queues.unlink(record) {
            self.queues.push(record, QueueId::of(class, false), header.last_seen_ns);
        }
    }

    /// Removes a flow.
    pub fn leave(&mut self, record: u32, header: &RecordHeader) {
        if self.queues.unlink(record) {
            self.sources.remove(self.sources.account(header.source()), 1);
        }
    }

    /// Returns the flow to evict for a new one in a full table. More useful flows that were checked
    /// are checked again only after all others of their class.
    pub fn victim(&mut self, records: &FlowRecords, now_ns: u64) -> Option<Victim> {
        let class = self.class_to_give_way()?;
        let of = |candidate: Candidate| {
            let Candidate { record, is_within_share, .. } = candidate;
            Some(Victim { record, class, over_source: !is_within_share })
        };
        let any_over = self.sources.is_any_over();
        let samples = if any_over { SAMPLES_MAX } else { 1 };
        let [others, conversations] = [false, true].map(|of| QueueId::of(class, of));
        let mut least: Option<Candidate> = None;
        for looked_at in 1..=(samples * SAMPLE).min(self.queues.len(others)) {
            let Some(first) = self.queues.first(others) else { break };
            let first = self.candidate(first, records, now_ns);
            if first.gives_way(any_over) && (any_over || !first.is_conversation) {
                return of(first);
            }
            least = least.map_or(Some(first), |least| Some(least.min(first)));
            let queued_ns = self.queues.queued_ns(first.record);
            self.queues.unlink(first.record);
            if !first.is_conversation {
                self.queues.push(first.record, others, now_ns);
            } else {
                self.queues.push(first.record, conversations, queued_ns);
                let has_room = self.queues.len(conversations) <= self.conversations[class as usize];
                if !has_room && let Some(oldest) = self.queues.first(conversations) {
                    let oldest = self.candidate(oldest, records, now_ns);
                    if oldest.gives_way(any_over) {
                        return of(oldest);
                    }
                    least = least.map_or(Some(oldest), |least| Some(least.min(oldest)));
                    self.queues.unlink(oldest.record);
                    self.queues.push(oldest.record, others, now_ns);
                }
            }
            if looked_at % SAMPLE == 0 && least.is_some_and(|least| !least.is_within_share) {
                break;
            }
        }
        let oldest = || Some(self.candidate(self.queues.first(conversations)?, records, now_ns));
        of(least.or_else(oldest)?)
    }

    fn candidate(&self, record: u32, records: &FlowRecords, now_ns: u64) -> Candidate {
        let header = records.header(record);
        let silent_ns = now_ns.saturating_sub(header.last_seen_ns);
        let queued_for_ns = now_ns.saturating_sub(self.queues.queued_ns(record));
        Candidate {
            is_within_share: !self.sources.is_over(self.sources.account(header.source())),
            goes_on: silent_ns.saturating_mul(2) < queued_for_ns,
            last_seen_ns: header.last_seen_ns,
            record,
            is_conversation: header.seq > FEW_PACKETS,
        }
    }

    /// Returns the first class above its share; open connections are last, and have none. If no
    /// class is above its share, returns the class with most flows.
    fn class_to_give_way(&self) -> Option<FlowClass> {
        let is_over = |class: &FlowClass| self.live_of(*class) > self.quotas[*class as usize];
        let over = FlowClass::ALL.into_iter().find(is_over);
        over.or_else(|| FlowClass::ALL.into_iter().max_by_key(|class| self.live_of(*class)))
            .filter(|class| self.live_of(*class) > 0)
    }
}

#[cfg(test)]
mod tests;
