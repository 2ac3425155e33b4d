//! Flows with the same addresses and ports that enter by different ports, on several nodes: the
//! output is that of one machine, even when the flows move.
#![allow(clippy::unwrap_used)] // A test fails by panicking.

mod common;

use packet::Endpoint;
use protocol::dispatcher::Granularity;
use runtime::Runner;

use common::support::packets::{frame, udp, v4};
use common::support::{Arriving, assembly_of, play};
use common::{Cluster, assert_same, assert_same_counts, config, end};

const WIRES: &str = r#"
    Port<0> a0; Port<1> a1; Port<2> b0; Port<3> b1;
    Monitor first { report: [] };
    Firewall second { rules: "deny out udp to any port 23\nallow out", default: deny };
    pipelet one { a0 <-> first <-> a1; }
    pipelet two { b0 <-> second <-> b1; }"#;

const CUSTOMERS: &str = r#"
    settings { affinity_groups: 16 }
    Port<0> a { tenant: 1 }; Port<1> b { tenant: 2 }; Port<2> wan;
    NAT na { external: [203.0.113.10] };
    NAT nb { external: [203.0.113.20] };
    pipelet one { a <-> na <-> wan; }
    pipelet two { b <-> nb <-> wan; }"#;

fn frames(of_round: &[(u16, Endpoint, Endpoint)]) -> Vec<Arriving> {
    let all = (0..50).flat_map(|round| of_round.iter().map(move |of| (round, of)));
    all.enumerate()
        .map(|(number, (round, &(port, from, to)))| Arriving {
            timestamp_ns: 1_700_000_000_000_000_000 + number as u64 * 1_000_000,
            port,
            data: frame(&udp(from, to, &[round, port as u8])),
        })
        .collect()
}

fn same_on_nodes(policy: &str, mode: Granularity, frames: &[Arriving], started: u64) {
    let cluster = Cluster::new(policy);
    let (expected, single) = play(Runner::new(assembly_of("test.rvl", policy), "test"), frames);
    assert_eq!(single.flows.started, started);
    let units = cluster.units(2);
    let (runner, _) = cluster.runner(config(mode, 2), &units);
    let (got, report) = play(runner, frames);
    assert_same_counts(&report, &single);
    assert_same(&got, &expected);
    end(units);
}

#[test]
fn wires_have_flows_of_their_own() {
    let (host, server, telnet) = (v4(10, 0, 0, 5, 4000), v4(192, 0, 2, 53, 53), v4(192, 0, 2, 53, 23));
    let round = [
        (0, host, server),
        (2, host, server),
        (3, server, host),
        (1, server, host),
        (0, host, telnet),
        (2, host, telnet),
    ];
    // A rejected flow begins again with each packet.
    same_on_nodes(WIRES, Granularity::Packet, &frames(&round), 3 + 50);
}

#[test]
fn tenants_keep_their_nats() {
    let (host, server) = (v4(10, 0, 0, 5, 4000), v4(192, 0, 2, 53, 53));
    // The first packet of a customer takes the port that the replies are sent to.
    let round = [(0, host, server), (1, host, server)];
    same_on_nodes(CUSTOMERS, Granularity::Flow, &frames(&round), 2);
}
