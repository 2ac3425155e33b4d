//! A classifier alone, as a dispatcher has it: it names flows, and knows no function.

use graph::{Classifier, FlowLookup, NotIp, Options};
use packet::{Addr, DropReason, Packet, PacketClass, PacketPool, Side};

use crate::support::packets::*;

const T: u64 = 1_000_000_000_000;
const BUFFERS: usize = 16;

struct Front {
    classifier: Classifier,
    pool: PacketPool,
    out: Vec<Packet>,
}

impl Front {
    fn new(options: Options) -> Front {
        Front { classifier: Classifier::new(&options), pool: PacketPool::new(BUFFERS), out: vec![] }
    }

    fn classify(&mut self, at_ns: u64, frames: &[Vec<u8>]) -> Vec<Packet> {
        let take = |frame: &Vec<u8>| {
            let mut packet = self.pool.take(frame).unwrap();
            packet.meta_mut().transit.timestamp_ns = at_ns;
            packet.meta_mut().transit.side = Side::Inside;
            packet
        };
        let mut batch: Vec<Packet> = frames.iter().map(take).collect();
        self.classifier.classify(&mut batch, |_| {});
        batch
    }

    fn one(&mut self, at_ns: u64, network: &[u8]) -> (Packet, FlowLookup) {
        let mut packet = self.classify(at_ns, &[frame(network)]).remove(0);
        let lookup = self.classifier.flow_of(&mut packet, &mut self.pool);
        (packet, lookup)
    }

    fn aside(&mut self, packet: Packet) {
        self.classifier.process_aside(packet, &mut self.out, &mut self.pool);
    }
}

fn request() -> Vec<u8> {
    udp(v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53), &[7; 100])
}

#[test]
fn packets_are_numbered_in_order_of_arrival() {
    let mut front = Front::new(Options::default());
    for first in [0, 3] {
        let batch = front.classify(T, &[frame(&request()), vec![0; 5], frame(&request())]);
        let sequences: Vec<u64> = batch.iter().map(|packet| packet.meta().transit.sequence).collect();
        assert_eq!(sequences, [first, first + 1, first + 2]);
        let refused: Vec<bool> = batch.iter().map(|packet| front.classifier.is_refused(packet)).collect();
        assert_eq!(refused, [false, true, false]);
        front.aside(batch.into_iter().nth(1).unwrap());
    }
    let counters = front.classifier.counters();
    assert_eq!((counters.packets_in, counters.dropped()), (6, 2));
    assert!(front.out.is_empty());
}

#[test]
fn later_fragments_wait_and_follow_their_first_one() {
    let mut front = Front::new(Options::default());
    let pieces = fragments(&request(), 9, 48);
    for piece in &pieces[1..] {
        let (packet, lookup) = front.one(T, piece);
        assert_eq!(lookup, FlowLookup::Aside);
        front.aside(packet);
    }
    let held = pieces.len() as u64 - 1;
    assert_eq!(front.classifier.counters().packets_pending, held);
    let (first, lookup) = front.one(T, &pieces[0]);
    assert_eq!(lookup, FlowLookup::Flow { key: first.meta().key, hash: first.meta().hash });
    let mut waited = vec![];
    front.classifier.learn_elsewhere(&first, &mut waited);
    assert_eq!(waited.len() as u64, held);
    for mut packet in waited {
        assert_eq!(front.classifier.datagram_hash(&packet), front.classifier.datagram_hash(&first));
        assert_eq!(front.classifier.flow_of(&mut packet, &mut front.pool), lookup);
        assert_eq!(packet.meta().key, first.meta().key);
    }
    assert_eq!(front.classifier.counters().packets_pending, 0);
    assert_eq!(front.one(T, &pieces[1]).1, lookup, "one that comes later");
}

#[test]
fn fragments_that_wait_in_vain_are_dropped() {
    let options = Options { fragment_timeout_ns: 1000, ..Options::default() };
    let mut front = Front::new(options);
    assert_eq!(front.classifier.next_timeout_ns(), u64::MAX);
    let pieces = fragments(&request(), 9, 48);
    let (packet, _) = front.one(T, &pieces[1]);
    front.aside(packet);
    assert_eq!(front.classifier.next_timeout_ns(), T + 1000);
    front.classifier.handle_timeout(T + 999, &mut front.pool);
    assert_eq!(front.classifier.counters().dropped(), 0);
    front.classifier.handle_timeout(T + 1000, &mut front.pool);
    let counters = front.classifier.counters();
    assert_eq!(counters.drops[DropReason::FragmentTimeout.index()], 1);
    assert!(counters.add_up(), "{counters:?}");
    assert_eq!((front.pool.free(), front.classifier.next_timeout_ns()), (BUFFERS, u64::MAX));
}

#[test]
fn those_that_wait_are_dropped_with_their_first_one() {
    let mut front = Front::new(Options::default());
    let pieces = fragments(&request(), 9, 48);
    let (packet, _) = front.one(T, &pieces[1]);
    front.aside(packet);
    let (first, _) = front.one(T, &pieces[0]);
    front.classifier.discard(first, DropReason::FlowTableFull, &mut front.pool);
    let (packet, lookup) = front.one(T, &pieces[2]);
    assert_eq!(lookup, FlowLookup::Aside);
    front.aside(packet);
    let counters = front.classifier.counters();
    assert_eq!(counters.drops[DropReason::FragmentOfDropped.index()], 2);
    assert_eq!(counters.drops[DropReason::FlowTableFull.index()], 1);
    assert_eq!((counters.packets_in, counters.dropped(), front.pool.free()), (3, 3, BUFFERS));
}

#[test]
fn an_icmp_error_is_of_the_flow_that_it_quotes_or_of_its_own() {
    let mut front = Front::new(Options::default());
    let (first, _) = front.one(T, &request());
    let router = Addr::from_v4_bytes([192, 0, 2, 254]);
    let (error, lookup) = front.one(T, &unreachable(router, &request()));
    assert_eq!((error.meta().class, error.meta().key), (PacketClass::IcmpError, first.meta().key));
    assert!(matches!(lookup, FlowLookup::Either { key, .. } if key.protocol == 1), "{lookup:?}");
}

#[test]
fn frames_that_are_not_ip_pass_or_are_dropped() {
    let unknown = [&[2; 12][..], &[0x88, 0xb5], &[0; 46]].concat();
    for (not_ip, forwards_unclassified, passes) in [
        (NotIp::Pass, false, true),
        (NotIp::Drop, true, false),
        (NotIp::AsFunctions, true, true),
        (NotIp::AsFunctions, false, false),
    ] {
        let mut front = Front::new(Options { not_ip, ..Options::default() });
        front.classifier.set_passes_unjudged(forwards_unclassified);
        let packet = front.classify(T, std::slice::from_ref(&unknown)).remove(0);
        front.aside(packet);
        let counters = front.classifier.counters();
        assert_eq!(front.out.len(), usize::from(passes), "{not_ip:?} {forwards_unclassified}");
        assert_eq!(counters.drops[DropReason::NotIp.index()], u64::from(!passes));
        assert!(counters.add_up(), "{counters:?}");
    }
}
