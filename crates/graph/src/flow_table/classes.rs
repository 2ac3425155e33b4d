//! Classes of flows: which flow gives way when the table is full.
//!
//! While there is room, any flow may begin. In a full table the least useful class that holds more
//! than its share gives way, its flows in the order in which they entered the class: so a flood of
//! new flows, spoofed or not, displaces itself and not the connections of others. Within a class,
//! flows go first whose source holds more than its own share of the table, then those with few
//! packets, then those silent longest.

use nf::record::{FlowRecords, RecordHeader};
use nf::{Connection, SourceAccounts};
use packet::memory::OutOfMemory;
use packet::parse::protocol;

/// Usefulness of a flow when the table is full, the least useful class first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FlowClass {
    /// TCP connections that were closed or reset, and wait for stragglers.
    Closed = 0,
    /// UDP of which only one side was seen.
    UdpUnanswered = 1,
    /// TCP connections before the end of their handshake.
    TcpHalfOpen = 2,
    /// Anything else: ICMP, SCTP, tunnels.
    Other = 3,
    /// UDP of which both sides were seen.
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
    /// UDP of which only one side was seen.
    pub udp_unanswered: u8,
    /// TCP connections before the end of their handshake.
    pub tcp_half_open: u8,
    /// Anything but TCP and UDP.
    pub other: u8,
    /// UDP of which both sides were seen.
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
}

/// No record.
const NONE: u32 = u32::MAX;

/// A flow's place in the queue of its class.
#[derive(Clone, Copy)]
struct Place {
    next: u32,
    previous: u32,
    /// The class's number; [`FlowClass::COUNT`] if the record is in none.
    class: u8,
}

const NOWHERE: Place = Place { next: NONE, previous: NONE, class: FlowClass::COUNT as u8 };

/// Flows of a class that are compared when one has to go.
const SAMPLE: u32 = 16;

/// Samples that are taken to find a flow of a source above its share, while there is such a source.
const SAMPLES_MAX: u32 = 4;

/// A flow with up to this many packets is taken for a query and its answer, not for a conversation.
const FEW_PACKETS: u64 = 4;

/// The flow to be evicted, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub record: u32,
    pub class: FlowClass,
    /// Its source holds more than its share.
    pub over_source: bool,
}

/// The flows of a table by class, each class as a queue, and how many each source has.
pub(crate) struct Classes {
    /// By record; grows with the records in use.
    places: Vec<Place>,
    /// First and last of each class.
    ends: [(u32, u32); FlowClass::COUNT],
    live: [u32; FlowClass::COUNT],
    quotas: [u32; FlowClass::COUNT],
    sources: SourceAccounts,
}

impl Classes {
    /// Creates the classes for a table of up to `flows_max` flows.
    pub fn new(flows_max: u32, shares: &Shares, seed: u64) -> Result<Classes, OutOfMemory> {
        let share = Shares::of(shares.per_source, flows_max);
        let mut sources = SourceAccounts::new(u64::from(flows_max) * 2, share, seed)?;
        sources.prefault(); // Reached at random.
        Ok(Classes {
            places: Vec::with_capacity(flows_max as usize),
            ends: [(NONE, NONE); FlowClass::COUNT],
            live: [0; FlowClass::COUNT],
            quotas: shares.quotas(flows_max),
            sources,
        })
    }

    /// Returns the number of flows in each class.
    pub fn live(&self) -> [u32; FlowClass::COUNT] {
        self.live
    }

    /// A flow is in the table from now on.
    pub fn enter(&mut self, record: u32, header: &RecordHeader) {
        let at = record as usize;
        if self.places.len() <= at {
            self.places.resize(at + 1, NOWHERE);
        }
        self.push(record, FlowClass::of(header.key.protocol, header.connection));
        self.sources.add(self.sources.account(header.source()), 1);
    }

    /// A packet changed the flow's connection.
    #[cold]
    #[inline(never)]
    pub fn follow(&mut self, record: u32, header: &RecordHeader) {
        let class = FlowClass::of(header.key.protocol, header.connection);
        let moves = self.places.get(record as usize).is_some_and(|place| place.class != class as u8);
        if moves && self.unlink(record) {
            self.push(record, class);
        }
    }

    /// The flow is no longer in the table.
    pub fn leave(&mut self, record: u32, header: &RecordHeader) {
        if self.unlink(record) {
            self.sources.remove(self.sources.account(header.source()), 1);
        }
    }

    /// A flow to give up for a new one in a full table. Those that were compared and found more
    /// useful are compared again only when all others of their class were.
    pub fn victim(&mut self, records: &FlowRecords) -> Option<Victim> {
        let class = self.class_to_give_way()?;
        let samples = if self.sources.is_any_over() { SAMPLES_MAX } else { 1 };
        let mut victim = None;
        for sample in 1..=samples {
            victim = self.least_useful(class, records);
            if sample == samples || victim.is_none_or(|victim: Victim| victim.over_source) {
                break;
            }
            self.pass_over(class, NONE);
        }
        let victim = victim?;
        self.pass_over(class, victim.record);
        Some(victim)
    }

    /// The first class above its share. Of a table without any (they sum up to less than all of
    /// it), the open connections; of one without those, the class with most flows.
    fn class_to_give_way(&self) -> Option<FlowClass> {
        let live = |class: FlowClass| self.live[class as usize];
        let is_over = |class: &FlowClass| live(*class) > self.quotas[*class as usize];
        let over = FlowClass::ALL.into_iter().find(is_over);
        over.or_else(|| FlowClass::ALL.into_iter().max_by_key(|class| live(*class)))
            .filter(|class| live(*class) > 0)
    }

    /// The least useful of the first flows of a class.
    fn least_useful(&self, class: FlowClass, records: &FlowRecords) -> Option<Victim> {
        let first = self.ends[class as usize].0;
        let next = |&record: &u32| self.places.get(record as usize).map(|place| place.next);
        let queue = std::iter::successors(Some(first), next).take_while(|&record| record != NONE);
        let sample = queue.take(SAMPLE as usize);
        let (any_over, mut least) = (self.sources.is_any_over(), None);
        for record in sample {
            let header = records.header(record);
            let over_source = any_over && self.sources.is_over(self.sources.account(header.source()));
            let few = header.seq <= FEW_PACKETS;
            if few && !any_over && class != FlowClass::TcpEstablished {
                // Of those with few packets, the first in the queue is about the one silent
                // longest.
                return Some(Victim { record, class, over_source });
            }
            let usefulness = (!over_source, !few, header.last_seen_ns);
            if least.is_none_or(|(least, _)| usefulness < least) {
                least = Some((usefulness, record));
            }
        }
        let ((within, ..), record) = least?;
        Some(Victim { record, class, over_source: !within })
    }

    /// Moves the flows of a sample that come before this one to the end of their class; all if it
    /// is not among them.
    fn pass_over(&mut self, class: FlowClass, until: u32) {
        for _ in 0..SAMPLE.min(self.live[class as usize]) {
            let first = self.ends[class as usize].0;
            if first == until || first == NONE {
                return;
            }
            self.unlink(first);
            self.push(first, class);
        }
    }

    fn push(&mut self, record: u32, class: FlowClass) {
        let ends = &mut self.ends[class as usize];
        let last = std::mem::replace(&mut ends.1, record);
        match last {
            NONE => ends.0 = record,
            last => self.places[last as usize].next = record,
        }
        self.places[record as usize] = Place { next: NONE, previous: last, class: class as u8 };
        self.live[class as usize] += 1;
    }

    /// Takes a record out of its queue; whether it was in one.
    fn unlink(&mut self, record: u32) -> bool {
        let Some(place) = self.places.get_mut(record as usize) else { return false };
        let Place { next, previous, class } = std::mem::replace(place, NOWHERE);
        let Some(ends) = self.ends.get_mut(usize::from(class)) else { return false };
        match previous {
            NONE => ends.0 = next,
            previous => self.places[previous as usize].next = next,
        }
        match next {
            NONE => ends.1 = previous,
            next => self.places[next as usize].previous = previous,
        }
        self.live[usize::from(class)] -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nf::record::RecordLayout;
    use packet::{Addr, Endpoint, FlowKey, Scope};

    struct Table {
        records: FlowRecords,
        classes: Classes,
    }

    impl Table {
        fn new(flows: u32) -> Table {
            Table {
                records: FlowRecords::new(flows, RecordLayout::default()).unwrap(),
                classes: Classes::new(flows, &Shares::default(), 7).unwrap(),
            }
        }

        fn add(&mut self, source: u32, protocol: u8, connection: Connection, at_ns: u64) -> u32 {
            let record = self.records.allocate().unwrap();
            let end = |addr: u32| Endpoint::new(Addr::from_v4_bytes(addr.to_be_bytes()), record as u16);
            let (key, reversed) = FlowKey::new(end(source), end(1), protocol, 4, Scope::default(), 0);
            let header = self.records.header_mut(record);
            header.flags = RecordHeader::FLAG_LIVE;
            header.set_key(key, reversed);
            (header.connection, header.last_seen_ns, header.seq) = (connection, at_ns, 3);
            self.classes.enter(record, self.records.header(record));
            record
        }

        fn evict(&mut self) -> Victim {
            let victim = self.classes.victim(&self.records).unwrap();
            self.classes.leave(victim.record, self.records.header(victim.record));
            self.records.release(victim.record);
            victim
        }
    }

    const IDLE: Connection = Connection::ESTABLISHED;

    #[test]
    fn a_flood_displaces_itself() {
        for (protocol, connection, class) in [
            (17, Connection::REPLIED, FlowClass::UdpAnswered),
            (17, Connection::UNREPLIED, FlowClass::UdpUnanswered),
            (6, Connection::SYN_SENT, FlowClass::TcpHalfOpen),
            (6, Connection::SYN_RECEIVED, FlowClass::TcpHalfOpen),
            (1, Connection::REPLIED, FlowClass::Other),
        ] {
            let mut table = Table::new(1000);
            let idle: Vec<u32> = (0..300).map(|i| table.add(0x0a00_0000 + i, 6, IDLE, 1)).collect();
            for i in 300..5000 {
                if i >= 1000 {
                    assert_eq!(table.evict().class, class);
                }
                table.add(0x2000_0000 + i, protocol, connection, u64::from(i));
            }
            assert!(idle.iter().all(|&record| table.records.header(record).has(RecordHeader::FLAG_LIVE)));
            assert_eq!(table.classes.live()[class as usize], 700);
        }
    }

    #[test]
    fn open_connections_give_way_to_each_other_only_and_the_silent_first() {
        let mut table = Table::new(100);
        let records: Vec<u32> = (0..100).map(|i| table.add(i, 6, IDLE, u64::from(i % 16))).collect();
        // Of the first 16, that of time 0 is the one silent longest.
        assert_eq!(table.evict().record, records[0]);
        // A handshake takes its place: its class may have 20.
        table.add(500, 6, Connection::SYN_SENT, 999);
        assert_eq!(table.evict().class, FlowClass::TcpEstablished);
    }

    #[test]
    fn of_a_class_the_source_above_its_share_gives_way() {
        let mut table = Table::new(1000);
        let others: Vec<u32> = (0..500).map(|i| table.add(0x0a00_0000 + i, 6, IDLE, 1)).collect();
        (0..500).for_each(|_| {
            table.add(0x0b00_0000, 6, IDLE, 100);
        });
        // The others, silent longer, are 500 at the head of the queue: the search passes them over.
        let victims: Vec<Victim> = (0..300).map(|_| table.evict()).collect();
        let of_others = victims.iter().filter(|victim| others.contains(&victim.record)).count();
        assert!(of_others <= 1 + 500 / (SAMPLE * (SAMPLES_MAX - 1)) as usize, "{of_others}");
        // Within its share it is one like all others.
        (0..100).for_each(|_| {
            table.evict();
        });
        assert!(!table.classes.sources.is_any_over() || table.evict().over_source);
    }

    #[test]
    fn closed_connections_go_first_and_classes_follow_connections() {
        let mut table = Table::new(10);
        let records: Vec<u32> = (0..10).map(|i| table.add(i, 6, IDLE, 1)).collect();
        table.records.header_mut(records[7]).connection = Connection::RESET;
        table.classes.follow(records[7], table.records.header(records[7]));
        assert_eq!(table.classes.live(), [1, 0, 0, 0, 0, 9]);
        assert_eq!(
            table.evict(),
            Victim { record: records[7], class: FlowClass::Closed, over_source: false }
        );
        assert_eq!(table.classes.live(), [0, 0, 0, 0, 0, 9]);
    }

    #[test]
    fn a_conversation_outlives_queries() {
        let mut table = Table::new(100);
        let tunnel = table.add(5, 17, Connection::REPLIED, 1);
        table.records.header_mut(tunnel).seq = 100;
        (1..100).for_each(|i| {
            table.add(0x0a00_0000 + i, 17, Connection::REPLIED, u64::from(i) + 10);
        });
        for i in 0..1000 {
            assert_ne!(table.evict().record, tunnel);
            table.add(0x0b00_0000 + i, 17, Connection::REPLIED, 1000 + u64::from(i));
        }
    }
}
