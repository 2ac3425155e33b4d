//! Eviction from a full table.

use super::*;
use nf::record::RecordLayout;
use packet::{Addr, Endpoint, FlowKey, Scope};

struct Table {
    records: FlowRecords,
    classes: Classes,
    now_ns: u64,
}

impl Table {
    fn new(flows: u32) -> Table {
        Table {
            records: FlowRecords::new(flows, RecordLayout::default()).unwrap(),
            classes: Classes::new(flows, &Shares::default(), 7).unwrap(),
            now_ns: 0,
        }
    }

    fn add(&mut self, source: u32, protocol: u8, connection: Connection, at_ns: u64) -> u32 {
        self.now_ns = self.now_ns.max(at_ns);
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

    /// The flow gets n more packets, the last at this time.
    fn see(&mut self, record: u32, packets: u64, at_ns: u64) {
        self.now_ns = self.now_ns.max(at_ns);
        let header = self.records.header_mut(record);
        header.seq += packets;
        header.last_seen_ns = at_ns;
    }

    fn evict(&mut self) -> Victim {
        let victim = self.classes.victim(&self.records, self.now_ns).unwrap();
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
    // Of the first 16, the flow of time 0 has the longest silence.
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
    // Within its share it is treated like all others.
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
    assert_eq!(table.evict(), Victim { record: records[7], class: FlowClass::Closed, over_source: false });
    assert_eq!(table.classes.live(), [0, 0, 0, 0, 0, 9]);
}

#[test]
fn a_conversation_outlives_queries() {
    let mut table = Table::new(100);
    let tunnel = table.add(5, 17, Connection::REPLIED, 1);
    table.see(tunnel, 97, 5);
    (1..100).for_each(|i| {
        table.add(0x0a00_0000 + i, 17, Connection::REPLIED, u64::from(i) + 10);
    });
    for i in 0..1000 {
        assert_ne!(table.evict().record, tunnel);
        table.add(0x0b00_0000 + i, 17, Connection::REPLIED, 1000 + u64::from(i));
    }
}

/// Short flows one after another, with half of the table live at any time: only finished flows give
/// way, however many packets a flow has.
#[test]
fn flows_that_are_over_give_way_to_live_ones() {
    for length in [1, 2, 3, 4, 5, 6, 16, 64] {
        for (protocol, connection) in [(17, Connection::UNREPLIED), (17, Connection::REPLIED), (6, IDLE)] {
            let mut table = Table::new(200);
            let (mut random, mut begun, mut evicted_live) = (1, 0, 0);
            let mut next = |n: u64| packet::split_mix(&mut random) % n;
            // For each flow, its record, if it has one, and the number of its later packets.
            let mut flows: Vec<(Option<u32>, u64)> = (0..100).map(|_| (None, 1 + next(length))).collect();
            let mut order: Vec<usize> = (0..flows.len()).collect();
            for round in 0..10 * length.max(20) {
                (1..order.len()).for_each(|i| order.swap(i, next(i as u64 + 1) as usize));
                for (i, &at) in order.iter().enumerate() {
                    let now_ns = (round * 100 + i as u64) * 1000;
                    let record = flows[at].0.unwrap_or_else(|| {
                        if table.records.live() == 200 {
                            table.now_ns = now_ns;
                            let victim = Some(table.evict().record);
                            if let Some(live) = flows.iter_mut().find(|flow| flow.0 == victim) {
                                (live.0, evicted_live) = (None, evicted_live + 1);
                            }
                        }
                        begun += 1;
                        let record = table.add(begun, protocol, connection, now_ns);
                        table.records.header_mut(record).seq = 0;
                        record
                    });
                    table.see(record, 1, now_ns);
                    let left = flows[at].1 - 1;
                    flows[at] = if left > 0 { (Some(record), left) } else { (None, length) };
                }
            }
            assert!(evicted_live * 50 <= begun, "{evicted_live} of {begun} flows of {length} packets");
        }
    }
}

/// Finished conversations are kept up to half of their class's share; a flood of queries does not
/// take it.
#[test]
fn conversations_are_kept_up_to_half_their_share() {
    let mut table = Table::new(1000);
    for i in 0..1000 {
        let record = table.add(i, 17, Connection::REPLIED, u64::from(i));
        table.see(record, 20, 1000 + u64::from(i));
    }
    let mut old: Vec<u32> = (0..1000).collect();
    for i in 0..20_000 {
        let victim = table.evict().record;
        old.retain(|&record| record != victim);
        table.add(0x0b00_0000 + i, 17, Connection::REPLIED, 5000 + u64::from(i));
    }
    assert_eq!(old.len(), 100, "half of 20 % of 1,000");
}
