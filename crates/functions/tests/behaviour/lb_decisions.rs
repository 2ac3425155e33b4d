//! Effects of a command about a server on connections in each state.

use crate::lb_support::*;
use packet::DropReason;
use packet::Side::Inside;
use serde_json::{Value, json};

const VIP: &str = "203.0.113.80:443";
const FIN_ACK: u8 = 0x11;
const SYN_ACK: u8 = 0x12;

fn config(on_down: &str) -> Value {
    let servers: Vec<_> =
        (1..=4).map(|i| json!({ "name": format!("s{i}"), "address": format!("10.0.0.{i}") })).collect();
    json!({ "services": [{ "name": "web", "vip": "203.0.113.80", "port": 443, "on_down": on_down,
                           "table_size": 1009, "servers": servers }] })
}

/// Destination of the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Same,
    Other,
    Refused,
}

use Next::{Other, Refused, Same};

/// Packets of the connection so far (from the client or not, flags), and the client's next one.
type Connection = (&'static str, &'static [(bool, u8)], u8);

const OPEN: [(bool, u8); 3] = [(true, SYN), (false, SYN_ACK), (true, ACK)];

const CONNECTIONS: [Connection; 9] = [
    ("new", &[], SYN),
    ("half-open", &[(true, SYN)], SYN),
    ("half-open, answered", &[(true, SYN), (false, SYN_ACK)], ACK),
    ("open", &OPEN, ACK),
    ("open, and the client begins again", &OPEN, SYN),
    ("half-closed", &[(true, SYN), (false, SYN_ACK), (true, ACK), (true, FIN_ACK)], ACK),
    ("closed, a straggler", &[(true, SYN), (false, SYN_ACK), (true, FIN_ACK), (false, FIN_ACK)], ACK),
    ("closed, the ports again", &[(true, SYN), (false, SYN_ACK), (true, FIN_ACK), (false, FIN_ACK)], SYN),
    ("reset, the ports again", &[(true, SYN), (false, SYN_ACK), (false, RST)], SYN),
];

/// Per connection: weight 0, drain, and down with `move`, `finish`, `reset`.
const TABLE: [[Next; 5]; 9] = [
    [Other, Other, Other, Other, Other],
    [Same, Same, Other, Other, Other],
    [Same, Same, Other, Same, Refused],
    [Same, Same, Other, Same, Refused],
    [Same, Same, Other, Same, Refused],
    [Same, Same, Other, Same, Refused],
    [Same, Same, Other, Same, Refused],
    [Other, Other, Other, Other, Other],
    [Other, Other, Other, Other, Other],
];

const DECISIONS: [(&str, &str); 5] = [
    ("weight s2 0", "move"),
    ("server s2 drain", "move"),
    ("server s2 down", "move"),
    ("server s2 down", "finish"),
    ("server s2 down", "reset"),
];

#[test]
fn commands_apply_to_connections_in_each_state() {
    for ((what, before, next), row) in CONNECTIONS.into_iter().zip(TABLE) {
        for ((command, on_down), want) in DECISIONS.into_iter().zip(row) {
            let mut bench = Bench::new(&config(on_down));
            // A client with connections to the second server.
            let goes_to_second = |port: &u16| {
                let mut probe = Bench::new(&config(on_down));
                probe.pass(&tcp(&format!("198.51.100.7:{port}"), VIP, SYN, b""))[33] == 2
            };
            let client = format!("198.51.100.7:{}", (20_000..).find(goes_to_second).unwrap());
            for &(from_client, flags) in before {
                if from_client {
                    assert_eq!(bench.pass(&tcp(&client, VIP, flags, b""))[33], 2);
                } else {
                    bench.reply(&tcp("10.0.0.2:443", &client, flags, b""));
                }
            }
            bench.control(command);
            let packet = tcp(&client, VIP, next, b"");
            let what = format!("{what}: {command}, {on_down}");
            if want == Refused {
                assert_eq!(bench.drop(Inside, &packet), DropReason::LbServerDown, "{what}");
                continue;
            }
            let server = bench.pass(&packet)[33];
            assert_eq!(if server == 2 { Same } else { Other }, want, "{what}");
            let answer = tcp(&format!("10.0.0.{server}:443"), &client, SYN_ACK, b"");
            assert_eq!(bench.reply(&answer)[26..30], [203, 0, 113, 80], "{what}");
        }
    }
}

#[test]
fn weight_zero_keeps_udp_flows_and_sends_new_ones_elsewhere() {
    let mut config = config("move");
    config["services"][0]["protocol"] = json!("udp");
    for command in ["weight s2 0", "server s2 drain"] {
        let mut bench = Bench::new(&config);
        let clients: Vec<_> = (0..40).map(|i| format!("198.51.100.7:{}", 20_000 + i)).collect();
        let servers: Vec<_> = clients.iter().map(|client| bench.pass(&udp(client, VIP, b"x"))[33]).collect();
        assert!(servers.contains(&2));
        bench.control(command);
        for (client, server) in clients.iter().zip(servers) {
            assert_eq!(bench.pass(&udp(client, VIP, b"x"))[33], server);
        }
        assert!((100..200).all(|i| bench.pass(&udp(&format!("198.51.100.8:{i}"), VIP, b"x"))[33] != 2));
    }
}
