//! Servers that come and go, and their connections (S24, B25).

use std::collections::BTreeMap;

use crate::lb_support::*;
use nf::{Context, Descriptor, NetworkFunction, PacketView, Recording, Setup, Verdict};
use packet::DropReason::{LbNoServer, LbServerDown};
use packet::Side::{Inside, Outside};
use packet::{DropReason, Packet};
use serde_json::{Value, json};

const VIP: &str = "203.0.113.80:443";

fn config(on_down: &str, scheduler: &str) -> Value {
    let servers: Vec<_> = (1..=4)
        .map(|i| json!({ "name": format!("s{i}"), "address": format!("10.0.0.{i}"), "port": 8443 }))
        .collect();
    json!({ "services": [{ "name": "web", "vip": "203.0.113.80", "port": 443, "on_down": on_down,
                           "scheduler": scheduler, "table_size": 1009, "servers": servers }] })
}

fn client(i: u16) -> String {
    format!("198.51.100.7:{}", 20_000 + i)
}

/// Returns the server that an output packet goes to.
fn server_of(frame: &[u8]) -> u8 {
    assert_eq!(frame[30..33], [10, 0, 0]);
    frame[33]
}

/// Opens connections; returns the server of each.
fn open(bench: &mut Bench, count: u16) -> BTreeMap<u16, u8> {
    (0..count).map(|i| (i, server_of(&bench.pass(&tcp(&client(i), VIP, SYN, b""))))).collect()
}

fn data(i: u16) -> Ip {
    tcp(&client(i), VIP, ACK, b"data")
}

fn reply(server: u8, i: u16) -> Ip {
    tcp(&format!("10.0.0.{server}:8443"), &client(i), ACK, b"reply")
}

fn from_vip(i: u16) -> Vec<u8> {
    tcp(VIP, &client(i), ACK, b"reply").frame()
}

#[test]
fn connections_keep_their_server_when_the_table_changes() {
    for scheduler in ["maglev", "hash"] {
        let mut bench = Bench::new(&config("move", scheduler));
        let servers = open(&mut bench, 200);
        for command in ["server s2 drain", "weight web/s3 100", "weight s1 0"] {
            bench.control(command);
            for (&i, &server) in &servers {
                assert_eq!(server_of(&bench.pass(&data(i))), server, "{command}");
                assert_eq!(bench.reply(&reply(server, i)), from_vip(i));
            }
        }
        let later: Vec<_> =
            (500..700).map(|i| server_of(&bench.pass(&tcp(&client(i), VIP, SYN, b"")))).collect();
        assert!(later.iter().all(|s| ![1, 2].contains(s)), "drained and weightless servers get nothing new");
        assert!(later.iter().filter(|&&s| s == 3).count() > 150, "{later:?}");
    }
}

#[test]
fn move_sends_each_flow_of_a_lost_server_to_another() {
    let mut bench = Bench::new(&config("move", "maglev"));
    let servers = open(&mut bench, 200);
    bench.control("server s2 down");
    let lost: Vec<_> = servers.iter().filter(|&(_, &s)| s == 2).map(|(&i, _)| i).collect();
    assert!(lost.len() > 20);
    let mut now = BTreeMap::new();
    for (&i, &server) in &servers {
        let to = server_of(&bench.pass(&data(i)));
        assert!(to != 2 && (server == 2 || to == server));
        assert_eq!(bench.reply(&reply(to, i)), from_vip(i), "the new server's answers are the service's");
        now.insert(i, to);
    }
    assert_eq!(bench.counter("flows_moved"), lost.len() as u64);
    let alerts = &bench.graph.effects_mut().alerts;
    assert_eq!(alerts.len(), lost.len());
    // Packets from the lost server belong to no flow.
    let late = reply(2, lost[0]);
    assert_eq!(bench.reply(&late), late.frame());
    // The server comes back: flows stay where they are.
    bench.control("server s2 up");
    for (&i, &server) in &now {
        assert_eq!(server_of(&bench.pass(&data(i))), server);
    }
    let total = |what: &str| (1..=4).map(|s| bench.counter(&format!("web/s{s}.{what}"))).sum::<u64>();
    assert_eq!(total("connections") - total("ended"), 200);
    assert_eq!(bench.counter("web/s2.ended"), lost.len() as u64);
    assert_eq!(total("packets"), 600);
}

/// Drops packets that end in `lost`.
struct Lossy;

static LOSSY: Descriptor = Descriptor {
    name: "lossy",
    summary: "Drops packets that end in `lost`",
    maturity: nf::Maturity::Experimental,
    state_version: 1,
    payload: nf::Access::Read,
    affinity: nf::Affinity::None,
    scaling: nf::Scaling::Servers,
    cycles_per_packet: 1,
    ..Descriptor::DEFAULT
};

impl NetworkFunction for Lossy {
    const DESCRIPTOR: &'static Descriptor = &LOSSY;
    type Config = ();
    type State = [u8; 0];

    fn new((): (), _: &mut Setup) -> Result<Lossy, values::ConfigError> {
        Ok(Lossy)
    }

    fn process(&self, packet: &mut PacketView<'_>, _: &mut [u8; 0], _: &mut Context<'_>) -> Verdict {
        if packet.payload().ends_with(b"lost") {
            Verdict::Drop(DropReason::Function)
        } else {
            Verdict::Forward
        }
    }
}

#[test]
fn a_move_takes_effect_even_if_the_first_packet_after_it_is_lost() {
    let lossy = nf::stage::load::<Lossy>((), Setup::new(7, 4096)).unwrap();
    let mut bench = Bench::with(&config("move", "maglev"), vec![lossy], false);
    let servers = open(&mut bench, 50);
    let (&i, _) = servers.iter().find(|&(_, &s)| s == 2).unwrap();
    bench.control("server s2 down");
    assert_eq!(bench.drop(Inside, &tcp(&client(i), VIP, ACK, b"lost")), DropReason::Function);
    let to = server_of(&bench.pass(&data(i)));
    assert_ne!(to, 2);
    assert_eq!(bench.reply(&reply(to, i)), from_vip(i));
    assert_eq!(server_of(&bench.pass(&data(i))), to);
    assert_eq!(bench.counter("flows_moved"), 1, "moved once");
}

#[test]
fn packets_of_a_lost_server_are_strays_even_in_the_batch_of_the_move() {
    for (strays, passes) in [("forward", true), ("drop", false)] {
        let mut config = config("move", "maglev");
        config["strays"] = json!(strays);
        for together in [true, false] {
            let mut bench = Bench::new(&config);
            let servers = open(&mut bench, 50);
            let (&i, _) = servers.iter().find(|&(_, &s)| s == 2).unwrap();
            bench.control("server s2 down");
            let (moving, late) = ((Inside, data(i).frame()), (Outside, reply(2, i).frame()));
            let out = if together {
                bench.batch(&[moving, late.clone()])
            } else {
                [bench.batch(&[moving]), bench.batch(std::slice::from_ref(&late))].concat()
            };
            let to = server_of(&out[0].1);
            assert_ne!(to, 2);
            assert_eq!(out[1..], if passes { vec![(Inside, late.1)] } else { vec![] }, "{strays} {together}");
            assert_eq!(bench.reply(&reply(to, i)), from_vip(i));
        }
    }
}

#[test]
fn finish_keeps_flows_and_takes_no_new_ones() {
    let mut bench = Bench::new(&config("finish", "maglev"));
    let servers = open(&mut bench, 100);
    bench.control("server s2 down");
    for (&i, &server) in &servers {
        assert_eq!(server_of(&bench.pass(&data(i))), server);
        assert_eq!(bench.reply(&reply(server, i)), from_vip(i));
    }
    assert!((500..600).all(|i| server_of(&bench.pass(&tcp(&client(i), VIP, SYN, b""))) != 2));
    // A client that reuses the ports of a reset connection gets a server that is up.
    let (&i, _) = servers.iter().find(|&(_, &s)| s == 2).unwrap();
    bench.pass(&tcp(&client(i), VIP, RST, b""));
    let to = server_of(&bench.pass(&tcp(&client(i), VIP, SYN, b"")));
    assert_ne!(to, 2);
    assert_eq!(bench.reply(&reply(to, i)), from_vip(i));
}

#[test]
fn reset_ends_the_flows_of_a_lost_server() {
    let mut bench = Bench::new(&config("reset", "maglev"));
    let servers = open(&mut bench, 100);
    bench.control("server s2 down");
    let mut resets = 0;
    for (&i, &server) in &servers {
        if server != 2 {
            assert_eq!(server_of(&bench.pass(&data(i))), server);
            continue;
        }
        let out = bench.batch(&[(Inside, data(i).frame())]);
        assert_eq!(out.len(), 1, "the client is notified");
        assert_eq!(out[0].0, Inside);
        assert_eq!(out[0].1[47], RST, "by a reset");
        assert_eq!(out[0].1[26..30], [203, 0, 113, 80]);
        assert_eq!(bench.drop(packet::Side::Outside, &reply(2, i)), LbServerDown);
        resets += 1;
    }
    assert_eq!(bench.counter("errors_sent"), resets);
    assert_eq!(bench.graph.counters().drops[LbServerDown.index()], 2 * resets);
    bench.control("server s2 up");
    assert!(servers.iter().all(|(&i, &server)| server_of(&bench.pass(&data(i))) == server), "it is back");
}

#[test]
fn flows_are_refused_while_no_server_is_up() {
    let mut bench = Bench::new(&config("move", "hash"));
    open(&mut bench, 1);
    for i in 1..=4 {
        bench.control(&format!("server s{i} down"));
    }
    assert_eq!(bench.drop(Inside, &data(0)), LbNoServer);
    assert_eq!(bench.drop(Inside, &tcp(&client(1), VIP, SYN, b"")), LbNoServer);
    bench.control("server s4 up");
    assert_eq!(server_of(&bench.pass(&data(0))), 4);
    assert_eq!(server_of(&bench.pass(&tcp(&client(1), VIP, SYN, b""))), 4);
}

#[test]
fn source_affinity_sends_all_connections_of_a_client_to_one_server() {
    let mut config = config("move", "maglev");
    config["services"][0]["affinity"] = json!("source");
    let mut bench = Bench::new(&config);
    let servers: std::collections::BTreeSet<_> = open(&mut bench, 100).into_values().collect();
    assert_eq!(servers.len(), 1);
    let others: std::collections::BTreeSet<_> =
        (1..100).map(|i| server_of(&bench.pass(&tcp(&format!("198.51.{i}.9:1"), VIP, SYN, b"")))).collect();
    assert_eq!(others.len(), 4);
}

#[test]
fn invalid_commands_change_nothing() {
    let mut bench = Bench::new(&config("move", "maglev"));
    let stage = bench.graph.stage_mut(0).unwrap();
    for wrong in [
        "",
        "server",
        "server s9 down",
        "server other/s1 down",
        "server s1 sideways",
        "weight s1 -1",
        "weight s1 1001",
    ] {
        assert!(stage.control(wrong).is_err(), "{wrong}");
    }
    for right in ["server s1 down", "server web/s1 up", "weight s1 1000", "weight web/s1 1"] {
        stage.control(right).unwrap();
    }
}

#[test]
fn a_lost_server_is_a_recorded_event() {
    #[derive(Default)]
    struct Seen(Vec<Recording>);
    impl graph::Observer for Seen {
        fn arrived(&mut self, _: &Packet) {}
        fn before(&mut self, _: usize, _: &Packet) {}
        fn after(&mut self, _: usize, _: &Packet, _: Verdict, recording: &Recording) {
            self.0.push(recording.clone());
        }
        fn sent(&mut self, _: &Packet) {}
        fn dropped(&mut self, _: &Packet, _: DropReason) {}
    }
    let mut bench = Bench::new(&config("move", "maglev"));
    let (mut seen, mut out, mut pool) = (Seen::default(), Vec::new(), packet::PacketPool::new(8));
    let mut packet = pool.take(&tcp(&client(0), VIP, SYN, b"").frame()).unwrap();
    packet.meta_mut().transit.timestamp_ns = bench.now_ns;
    bench.graph.observe(packet, &mut out, &mut pool, &mut seen);
    let record = out[0].meta().transit.flow;
    let recording = &seen.0[0];
    assert_eq!(recording.actions.len(), 1, "one header action: {recording:?}");
    assert_eq!((recording.functions.len(), recording.events.len(), recording.lost), (1, 1, 0));
    let event = recording.events[0];
    let server = server_of(out[0].data());
    let holds =
        |bench: &Bench| bench.graph.stages()[0].event_holds(event, record, bench.graph.flows().records());
    assert!(!holds(&bench));
    bench.control(&format!("server s{} down", server % 4 + 1));
    assert!(!holds(&bench), "another server");
    bench.control(&format!("server s{server} drain"));
    assert!(!holds(&bench));
    bench.control(&format!("server s{server} down"));
    assert!(holds(&bench));
    bench.pass(&data(0));
    assert!(!holds(&bench), "the flow has moved");
}
