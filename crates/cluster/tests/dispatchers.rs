//! Several dispatchers: packets of a flow may arrive at any of them, and are dispatched by one.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

mod common;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use packet::{Endpoint, Packet};
use protocol::dispatcher::Granularity;
use runtime::Report;
use runtime::elastic::UnitsConfig;

use common::support::packets::{frame, tcp_segment, udp, v4};
use common::support::{Arriving, Sink, receive};
use common::{Cluster, Unit, config, end};

const INSIDE: u16 = 0;
const OUTSIDE: u16 = 1;
/// Limit on the time for a packet to leave.
const PATIENCE: Duration = Duration::from_secs(20);

/// A dispatcher on a thread.
struct Host {
    frames: Sender<Arriving>,
    thread: JoinHandle<Report>,
    /// Packets that it has dispatched.
    handled: Arc<AtomicU64>,
    /// Packets that it dropped because their home was unreachable.
    lost: Arc<AtomicU64>,
}

/// Two dispatchers that share units.
struct Pair {
    hosts: Vec<Host>,
    units: Vec<Unit>,
    /// Dispatcher, port and bytes of each packet that leaves.
    sent: Receiver<(usize, u16, Vec<u8>)>,
    /// Number of packets that have arrived at each.
    arrived: [u64; 2],
    at_ns: u64,
}

impl Pair {
    fn start(policy: &str) -> Pair {
        let cluster = Cluster::new(policy);
        let units = cluster.units(2);
        let mut listening: Vec<_> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let all: Vec<(String, String)> = (0..)
            .zip(&listening)
            .map(|(number, at)| (format!("dispatcher-{number}"), at.local_addr().unwrap().to_string()))
            .collect();
        let config = UnitsConfig { is_live: true, ..config(Granularity::Flow, 2) };
        let (sender, sent) = channel();
        let hosts = (0..2).map(|number| {
            let listening = Some(listening.remove(0));
            let start = cluster.dispatcher(&all[number].0, &all, listening, config, &units);
            let (frames, arriving) = channel();
            let sender = sender.clone();
            let lost = Arc::new(AtomicU64::new(0));
            let dropped = Arc::clone(&lost);
            let handled = Arc::new(AtomicU64::new(0));
            let counted = Arc::clone(&handled);
            let thread = std::thread::spawn(move || {
                let (mut runner, mut sink, mut count) = (start(), Sink::default(), 0);
                loop {
                    match arriving.recv_timeout(Duration::from_micros(50)) {
                        Ok(frame) => {
                            receive(&mut runner, &frame, &mut sink);
                            count += 1;
                        }
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => break,
                    }
                    runner.flush(&mut sink).unwrap();
                    let drops = runner.report().drops;
                    dropped.store(drops.get("dispatcher-lost").copied().unwrap_or(0), Ordering::Relaxed);
                    counted.store(count, Ordering::Release);
                    for (port, _, data) in sink.sent.drain(..) {
                        let _ = sender.send((number, port, data));
                    }
                }
                runner.finish(&mut sink).unwrap()
            });
            Host { frames, thread, handled, lost }
        });
        Pair { hosts: hosts.collect(), units, sent, arrived: [0; 2], at_ns: 1_000_000_000 }
    }

    fn arrive(&mut self, at: usize, port: u16, network: &[u8]) {
        self.at_ns += 1_000_000;
        let frame = Arriving { timestamp_ns: self.at_ns, port, data: frame(network) };
        self.hosts[at].frames.send(frame).unwrap();
        self.arrived[at] += 1;
    }

    /// Waits until a dispatcher has dispatched all packets that have arrived at it.
    fn await_dispatched(&self, at: usize) {
        let began = Instant::now();
        while self.hosts[at].handled.load(Ordering::Acquire) < self.arrived[at] {
            assert!(began.elapsed() < PATIENCE, "packets are not dispatched");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets a packet arrive at a dispatcher. Returns the dispatcher that sends it, its source and
    /// its destination. It leaves by the other port.
    fn pass(&mut self, at: usize, port: u16, network: &[u8]) -> (usize, Endpoint, Endpoint) {
        self.arrive(at, port, network);
        let (by, left_by, data) = self.sent.recv_timeout(PATIENCE).unwrap();
        assert_eq!(left_by, 1 - port);
        let mut packet = Packet::from_bytes(&data);
        packet::Parser::new(packet::FlowHasher::new(0)).parse(&mut packet).unwrap();
        let (source, destination) = packet.meta().key.ends(packet.meta().reversed);
        (by, source, destination)
    }

    /// Sends probes until both dispatchers are connected.
    fn await_links(&mut self, probe: impl Fn(u16) -> Vec<u8>, port: u16) {
        let mut homes = BTreeMap::new();
        for number in 0.. {
            assert!(number < 2_000, "the dispatchers have not found each other: {homes:?}");
            self.arrive(usize::from(number % 2), port, &probe(number));
            if let Ok((by, ..)) = self.sent.recv_timeout(Duration::from_millis(20)) {
                *homes.entry((number % 2, by)).or_insert(0) += 1;
            }
            if homes.len() == 4 {
                break;
            }
        }
        while self.sent.recv_timeout(Duration::from_millis(200)).is_ok() {}
    }

    /// Ends both dispatchers. Every packet is accounted for.
    fn end(self) -> Vec<Report> {
        let (frames, threads): (Vec<_>, Vec<_>) =
            self.hosts.into_iter().map(|host| (host.frames, host.thread)).unzip();
        drop(frames);
        let reports: Vec<Report> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let counts = |count: fn(&runtime::elastic::UnitsReport) -> u64| -> u64 {
            reports.iter().map(|report| count(report.units.as_ref().unwrap())).sum()
        };
        assert_eq!(counts(|units| units.packets_passed_on), counts(|units| units.packets_taken_over));
        assert!(counts(|units| units.packets_passed_on) > 0);
        assert!(reports.iter().all(Report::adds_up), "{reports:?}");
        for unit in self.units {
            assert_eq!(unit.thread.join().unwrap().len(), 2, "a unit works for both");
        }
        reports
    }
}

#[test]
fn answers_find_their_flows_at_the_other_dispatcher() {
    let mut pair = Pair::start(
        "settings { flows: 20k }
        Port<0> inside; Port<1> outside;
        Firewall f { rules: \"allow out from any\", default: deny };
        pipelet { inside <-> f <-> outside; }",
    );
    let (inside, outside) = (|port| v4(10, 0, 0, 1, port), v4(198, 51, 100, 1, 53));
    pair.await_links(|number| udp(inside(20_000 + number), outside, &[0]), INSIDE);
    for port in 1000..1200 {
        let at = usize::from(port % 2);
        let (home, ..) = pair.pass(at, INSIDE, &udp(inside(port), outside, &[1]));
        let (by, source, destination) = pair.pass(1 - at, OUTSIDE, &udp(outside, inside(port), &[2]));
        assert_eq!((by, source, destination), (home, outside, inside(port)));
    }
    pair.end();
}

/// RFC 4787 REQ-1, across dispatchers: a flow's group has its ports and one home.
#[test]
fn endpoint_is_mapped_once_whichever_dispatcher_gets_its_packets() {
    let mut pair = Pair::start(
        "settings { flows: 20k, affinity_groups: 16 }
        Port<0> inside; Port<1> outside;
        NAT n { external: [203.0.113.0/30] };
        pipelet { inside <-> n <-> outside; }",
    );
    let inside = |host: u16| v4(10, 0, 0, host as u8, 5000);
    let outside = |number: u16| v4(198, 51, 100, number as u8 + 1, 53);
    pair.await_links(|number| udp(v4(10, 0, 1, number as u8, 7), outside(0), &[0]), INSIDE);
    let mut externals = BTreeMap::new();
    for host in 1..80 {
        for turn in 0..4 {
            let at = usize::from((host + turn) % 2);
            let (home, source, _) = pair.pass(at, INSIDE, &udp(inside(host), outside(turn), &[1]));
            assert_eq!(*externals.entry(host).or_insert(source), source, "{host}");
            // From a host without a packet to it, and as a reply.
            for from in [turn, turn + 100] {
                let (by, _, destination) = pair.pass(1 - at, OUTSIDE, &udp(outside(from), source, &[2]));
                assert_eq!((by, destination), (home, inside(host)));
            }
        }
    }
    let distinct: std::collections::BTreeSet<_> =
        externals.values().map(|external| (external.addr.to_u128(), external.port)).collect();
    assert_eq!(distinct.len(), externals.len(), "an external endpoint was handed out twice");
    pair.end();
}

/// Only the claim of the alias leads the servers' replies to the flows.
#[test]
fn aliases_are_known_everywhere_before_packets_leave() {
    let mut pair = Pair::start(
        "settings { flows: 20k }
        Port<0> inside; Port<1> outside;
        LoadBalancer lb { services: [{ name: web, vip: 203.0.113.9, port: 80, servers: [
            { name: one, address: 10.0.0.1, port: 8000 }, { name: two, address: 10.0.0.2, port: 8000 },
        ] }] };
        pipelet { inside <-> lb <-> outside; }",
    );
    let (vip, client) = (v4(203, 0, 113, 9, 80), |port| v4(198, 51, 100, 1, port));
    let syn = |port| tcp_segment(client(port), vip, 0x02, [100, 0], &[]);
    pair.await_links(|number| syn(20_000 + number), OUTSIDE);
    for port in 1000..1200 {
        let at = usize::from(port % 2);
        let (home, _, server) = pair.pass(at, OUTSIDE, &syn(port));
        assert_ne!(server, vip);
        for answers_at in [1 - at, at] {
            let answer = tcp_segment(server, client(port), 0x12, [200, 101], &[]);
            let (by, source, destination) = pair.pass(answers_at, INSIDE, &answer);
            assert_eq!((by, source, destination), (home, vip, client(port)), "{port}");
        }
    }
    pair.end();
}

#[test]
fn lost_dispatcher_keeps_its_share() {
    let mut pair = Pair::start(
        "settings { flows: 20k }
        Port<0> inside; Port<1> outside;
        Monitor m { report: [] };
        pipelet { inside <-> m <-> outside; }",
    );
    let probe = |number| udp(v4(10, 0, 0, 1, number), v4(198, 51, 100, 1, 53), &[0]);
    pair.await_links(probe, INSIDE);
    let lost = pair.hosts.pop().unwrap();
    drop(lost.frames);
    assert!(lost.thread.join().unwrap().adds_up());
    // Until the link is known to be dead, packets are sent on it and lost.
    let left = pair.hosts[0].lost.clone();
    // Some were dropped before the two were connected.
    pair.await_dispatched(0);
    let first = left.load(Ordering::Relaxed);
    let began = Instant::now();
    for number in 0.. {
        pair.arrive(0, INSIDE, &probe(number % 10_000));
        while pair.sent.recv_timeout(Duration::from_millis(1)).is_ok() {}
        if left.load(Ordering::Relaxed) > first {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "no packet was dropped");
    }
    pair.await_dispatched(0);
    let before = left.load(Ordering::Relaxed);
    for number in 0..200 {
        pair.arrive(0, INSIDE, &probe(30_000 + number));
    }
    let left = pair.hosts.pop().unwrap();
    drop(left.frames);
    let report = left.thread.join().unwrap();
    assert!(report.adds_up(), "{report:?}");
    let dropped = report.drops["dispatcher-lost"] - before;
    assert!((50..150).contains(&dropped), "{dropped}");
    drop(end(pair.units));
}
