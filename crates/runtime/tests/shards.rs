//! Several workers, each with a part of the flows: what comes out is what a single runner makes of
//! the same packets, whichever of them receives which.
#![allow(clippy::unwrap_used)] // A test fails by panicking.

mod support;

use io::traffic::Payload;
use packet::PacketClass;
use runtime::shards::{Counters, RING, parts};
use runtime::{Assembly, Report, Runner};

use support::packets::{fragments, frame, tcp, udp, unreachable, v4};
use support::{
    Arriving, SEED, Sink, WITHOUT_FUNCTIONS, assembly, assembly_of, by_flow, conversation, conversation_with,
    counted, frames_without_functions, play, profile, receive,
};

/// Creates the runners of `count` workers.
fn runners(assemble: &dyn Fn() -> Assembly, count: usize) -> Vec<Runner> {
    let assemblies = (0..count).map(|_| assemble()).collect();
    parts(assemblies, "parts").unwrap().into_iter().map(Runner::of_part).collect()
}

/// Until nothing is under way between them.
fn settle(runners: &mut [Runner], sink: &mut Sink) {
    while runners.iter().any(Runner::has_pending) {
        runners.iter_mut().for_each(|runner| runner.flush(sink).unwrap());
    }
}

/// The first one ends last.
fn finish(runners: Vec<Runner>, sink: &mut Sink) -> (Report, Vec<Counters>) {
    let counters = runners.iter().map(|runner| runner.worker_counters().unwrap()).collect();
    let reports = runners.into_iter().rev().map(|mut runner| runner.finish(sink).unwrap());
    let mut reports: Vec<_> = reports.collect();
    let mut all = reports.pop().unwrap();
    reports.into_iter().for_each(|report| all.add_worker(&report));
    sink.ends.sort();
    (all, counters)
}

/// Plays frames; `by` says which worker receives the one with this number.
fn play_parts(
    assemble: &dyn Fn() -> Assembly,
    count: usize,
    frames: &[Arriving],
    by: impl Fn(usize) -> usize,
) -> (Sink, Report, Vec<Counters>) {
    let (mut runners, mut sink) = (runners(assemble, count), Sink::default());
    for (number, arriving) in frames.iter().enumerate() {
        for runner in &mut runners {
            runner.handle_timeout(arriving.timestamp_ns, &mut sink).unwrap();
        }
        let runner = &mut runners[by(number)];
        receive(runner, arriving, &mut sink);
        runner.flush(&mut sink).unwrap();
        settle(&mut runners, &mut sink);
    }
    let (report, counters) = finish(runners, &mut sink);
    (sink, report, counters)
}

fn check(name: &str, assemble: &dyn Fn() -> Assembly, frames: &[Arriving]) {
    let (expected, single) = play(Runner::new(assemble(), name), frames);
    // All by one; in turn; both directions by different ones.
    let by: [fn(usize) -> usize; 3] = [|_| 0, |number| number, |number| number * 7 / 3];
    for (count, by) in [2, 3, 5].into_iter().zip(by) {
        let (got, report, counters) = play_parts(assemble, count, frames, |number| by(number) % count);
        let (flows, expected_flows) = (by_flow(&got), by_flow(&expected));
        for (flow, packets) in &expected_flows {
            assert_eq!(flows.get(flow), Some(packets), "{name}, {count}");
        }
        assert_eq!(flows.len(), expected_flows.len(), "{name}, {count}");
        assert_eq!(got.told.len(), expected.told.len(), "{name}, {count}");
        assert_eq!(got.ends.len(), expected.ends.len(), "{name}, {count}");
        assert_eq!(counted(&report), counted(&single), "{name}, {count}");
        assert!(report.adds_up());
        let sum = |of: fn(&Counters) -> u64| counters.iter().map(of).sum::<u64>();
        assert_eq!(sum(|c| c.received), frames.len() as u64);
        assert_eq!(sum(|c| c.processed), frames.len() as u64);
        assert_eq!(sum(|c| c.handed_over), sum(|c| c.taken));
        assert!(counters.iter().all(|c| c.processed > 0 && c.no_room == 0), "{counters:?}");
    }
}

fn check_example(name: &'static str, payload: Payload) {
    let frames = conversation(name, &profile(payload, 3_000, 20_000.0, SEED));
    check(name, &|| assembly(name), &frames);
}

#[test]
fn a_nat() {
    check_example("nat.rvl", Payload::Random);
}

#[test]
fn a_load_balancer() {
    check_example("lb.rvl", Payload::Random);
}

#[test]
fn a_firewall() {
    check_example("firewall.rvl", Payload::Random);
}

#[test]
fn a_policer() {
    check_example("policer.rvl", Payload::Random);
}

#[test]
fn a_whitelist() {
    check_example("whitelist.rvl", Payload::Random);
}

#[test]
fn marks_and_clamps() {
    check_example("mark.rvl", Payload::Random);
    check_example("tcp-mss.rvl", Payload::Random);
}

#[test]
fn what_reads_streams() {
    check_example("redundancy.rvl", Payload::Http);
    check_example("http.rvl", Payload::Http);
    check_example("ids.rvl", Payload::Http);
}

#[test]
fn all_functions_in_one_graph() {
    check_example("all.rvl", Payload::Http);
}

/// Branches by header fields, by an attribute and by the direction of a packet's first flow.
const FORK: &str = r#"
Port<0> in; Port<1> out;
NAT n { external: [203.0.113.1-203.0.113.4], untranslated: pass, tcp_opens_with: any };
Firewall f { rules: "allow out to any port 443 tag tls\nallow any", tags: { tls: 1 } };
HTTP w; Monitor a; Monitor b; Policer p { rate: 1Mbps, burst: 16KB, per: source };
pipelet {
  in [udp] <-> p <-> n;
  in [tcp && dst port 80] <-> w;
  w [w.method == "GET"] <-> a; w <-> b; a <-> n; b <-> n;
  in <-> f; f [f.tag == 1] <-> a; f <-> n;
  n <-> out;
}
"#;

// E2
#[test]
fn graphs_with_branches() {
    let assemble = || assembly_of("fork", FORK);
    let frames = conversation_with(assemble(), &profile(Payload::Http, 3_000, 20_000.0, SEED));
    check("fork", &assemble, &frames);
    let (_, report) = play(Runner::new(assemble(), "fork"), &frames);
    let visited = |name: &str| report.functions.iter().find(|of| of.name == name).map_or(0, |of| of.packets);
    assert!(["n", "f", "w", "a", "b", "p"].iter().all(|name| visited(name) > 50), "{:?}", report.functions);
}

#[test]
fn graphs_without_functions() {
    for (number, text) in WITHOUT_FUNCTIONS.into_iter().enumerate() {
        check("bare", &|| assembly_of("bare", text), &frames_without_functions(number).0);
    }
}

const NAT: &str =
    "Port<0> a; Port<1> b; NAT n { external: [203.0.113.1] }; Monitor m {}; pipelet { a <-> m <-> n <-> b; }";

fn arriving(number: u64, port: u16, data: &[u8]) -> Arriving {
    Arriving { timestamp_ns: 1_700_000_000_000_000_000 + number * 10_000, port, data: frame(data) }
}

/// The network packet of a frame that left.
fn network(sent: &[u8]) -> &[u8] {
    &sent[14..]
}

/// A packet's answer, ends exchanged.
fn answer(sent: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut packet = packet::Packet::from_bytes(sent);
    packet::Parser::new(packet::FlowHasher::new(0)).parse(&mut packet).unwrap();
    let (source, destination) = packet::parse::ends(&packet);
    udp(destination, source, payload)
}

/// Datagrams in fragments, in any order, by whichever worker; and what comes back to a NAT, also in
/// fragments, goes to the worker that has the flow, as do ICMP errors about what left.
#[test]
fn answers_fragments_and_errors_find_their_flows() {
    let assemble = || assembly_of("nat.rvl", NAT);
    let (mut runners, mut sink) = (runners(&assemble, 4), Sink::default());
    let mut number = 0;
    let mut send = |port: u16, data: &[u8], sink: &mut Sink| {
        number += 1;
        let runner = &mut runners[number * 5 / 3 % 4];
        receive(runner, &arriving(number as u64, port, data), sink);
        runner.flush(sink).unwrap();
        settle(&mut runners, sink);
        std::mem::take(&mut sink.sent)
    };
    for flow in 0..200u16 {
        let (client, server) = (v4(10, 0, 0, 1, 1_000 + flow), v4(198, 51, 100, 7, 53));
        let pieces = fragments(&udp(client, server, &[7; 64]), flow, 32);
        // The first one in the middle: those before it wait.
        let order = [2, 0, 1];
        let mut left = Vec::new();
        order.iter().for_each(|&piece| left.extend(send(0, &pieces[piece], &mut sink)));
        assert_eq!(left.len(), 3, "flow {flow}");
        let first = left.iter().find(|(_, _, sent)| network(sent)[6..8] == [0x20, 0]).unwrap();
        assert_eq!(network(&first.2)[12..16], [203, 0, 113, 1]);
        // What comes back, whole and in pieces.
        let whole = send(0, &udp(client, server, &[7; 20]), &mut sink);
        let back = answer(&whole[0].2, &[9; 64]);
        let mut came = send(1, &back, &mut sink);
        for piece in [1, 0, 2] {
            came.extend(send(1, &fragments(&back, flow, 32)[piece], &mut sink));
        }
        assert_eq!(came.len(), 4, "flow {flow}");
        assert!(came.iter().all(|(port, _, sent)| *port == 0 && network(sent)[16..20] == [10, 0, 0, 1]));
        // An error about a packet that left, and one about a packet that was never sent.
        let error = unreachable(v4(192, 0, 2, 1, 0).addr, network(&whole[0].2));
        let told = send(1, &error, &mut sink);
        assert_eq!(network(&told[0].2)[16..20], [10, 0, 0, 1], "flow {flow}");
        let stray = udp(v4(203, 0, 113, 9, flow), server, &[1; 8]);
        let error = unreachable(v4(192, 0, 2, 1, 0).addr, &stray);
        assert!(send(1, &error, &mut sink).is_empty());
    }
    let (report, counters) = finish(runners, &mut sink);
    assert!(report.adds_up() && report.packets_pending == 0);
    assert_eq!(report.drops.keys().copied().collect::<Vec<_>>(), ["icmp-error-unrelated"]);
    assert!(counters.iter().all(|c| c.processed > 100), "{counters:?}");
}

/// Errors about no flow that is known are of one flow, which their addresses make, whatever they
/// quote.
#[test]
fn strange_errors_are_of_one_flow() {
    let assemble =
        || assembly_of("monitor.rvl", "Port<0> a; Port<1> b; Monitor m {}; pipelet { a <-> m <-> b; }");
    let error = |number: u64| {
        let about = tcp(v4(10, 0, 0, 1, number as u16), v4(192, 0, 2, 1, 80), 0x10, &[]);
        arriving(number, 1, &unreachable(v4(192, 0, 2, 254, 0).addr, &about))
    };
    let frames: Vec<_> = (1..100).map(error).collect();
    let (sink, report, _) = play_parts(&assemble, 4, &frames, |number| number % 4);
    assert_eq!((sink.sent.len(), report.flows.started), (99, 1));
}

/// Two flows of two workers get the same key from the graph: the second one is refused, as in one
/// graph.
#[test]
fn an_alias_is_one_flows() {
    let balance = "Port<0> a; Port<1> b; LoadBalancer lb { services: [ \
           { name: one, vip: 203.0.113.1, port: 80, protocol: udp, servers: [ { name: s, address: 10.0.0.1 } ] }, \
           { name: two, vip: 203.0.113.2, port: 80, protocol: udp, servers: [ { name: s, address: 10.0.0.1 } ] } ] }; \
         pipelet { a <-> lb <-> b; }";
    let frame_to = |number: u64| {
        let client = v4(198, 51, 100, 1, 1_000 + (number / 2 % 50) as u16);
        arriving(number, 0, &udp(client, v4(203, 0, 113, 1 + (number % 2) as u8, 80), &[7; 100]))
    };
    let frames: Vec<Arriving> = (0..1_000).map(frame_to).collect();
    let assemble = || assembly_of("balance.rvl", balance);
    check("balance", &assemble, &frames);
    let (_, report, _) = play_parts(&assemble, 3, &frames, |number| number % 3);
    assert_eq!(report.drops["alias-conflict"], 500);
}

/// A worker that takes nothing loses what others have for it, and nothing else; and it is counted.
#[test]
fn what_finds_no_room_is_dropped() {
    let assemble =
        || assembly_of("monitor.rvl", "Port<0> a; Port<1> b; Monitor m {}; pipelet { a <-> m <-> b; }");
    let (mut runners, mut sink) = (runners(&assemble, 2), Sink::default());
    for number in 0..20_000u64 {
        let packet = udp(v4(10, 0, 0, 1, number as u16), v4(192, 0, 2, 1, 53), &[7; 64]);
        receive(&mut runners[0], &arriving(number, 0, &packet), &mut sink);
    }
    runners[0].flush(&mut sink).unwrap();
    let counters = runners[0].worker_counters().unwrap();
    assert_eq!((counters.received, counters.handed_over), (20_000, RING as u64));
    settle(&mut runners, &mut sink);
    let (report, _) = finish(runners, &mut sink);
    assert_eq!(report.drops["worker-behind"], counters.no_room);
    assert_eq!(report.packets_out + counters.no_room, 20_000);
    assert!(report.adds_up() && counters.no_room > 1_000);
}

/// Buffers that went to another worker come back: none has to make more and more of them, and none
/// runs out of large ones.
#[test]
fn buffers_come_back() {
    let assemble =
        || assembly_of("monitor.rvl", "Port<0> a; Port<1> b; Monitor m {}; pipelet { a <-> m <-> b; }");
    let frames = |size: usize| {
        (0..20_000u64).map(move |number| {
            let packet = udp(v4(10, 0, 0, 1, (number % 50) as u16), v4(192, 0, 2, 1, 53), &vec![7; size]);
            arriving(number, 0, &packet)
        })
    };
    let (mut runners, mut sink) = (runners(&assemble, 2), Sink::default());
    for (number, arriving) in frames(64).chain(frames(4_000)).enumerate() {
        receive(&mut runners[0], &arriving, &mut sink);
        if number % 64 == 63 {
            runners.iter_mut().for_each(|runner| runner.flush(&mut sink).unwrap());
            sink.sent.clear();
        }
    }
    settle(&mut runners, &mut sink);
    let (report, counters) = finish(runners, &mut sink);
    assert!(counters[1].taken > 10_000, "{counters:?}");
    assert_eq!((report.packets_out, report.drops.len()), (40_000, 0), "{:?}", report.drops);
}

/// A fragment without a first one is held, once.
#[test]
fn fragments_without_a_first_one_are_held() {
    let assemble = || assembly_of("nat.rvl", NAT);
    let later = |number: u64| {
        let whole = udp(v4(10, 0, 0, 1, 1_000), v4(192, 0, 2, 1, 53), &[7; 64]);
        arriving(number, 0, &fragments(&whole, number as u16, 32)[1])
    };
    let frames: Vec<_> = (0..100).map(later).collect();
    let (sink, report, _) = play_parts(&assemble, 3, &frames, |number| number % 3);
    assert!(sink.sent.is_empty() && report.adds_up());
    assert_eq!(report.packets_pending, 100);
    let mut packet = packet::Packet::from_bytes(&frames[0].data);
    packet::Parser::new(packet::FlowHasher::new(0)).parse(&mut packet).unwrap();
    assert_eq!(packet.meta().class, PacketClass::LaterFragment);
}
