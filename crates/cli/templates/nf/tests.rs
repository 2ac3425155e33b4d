//! Packets in, packets out: a row for each behaviour of the function.

use conformance::{CompareOptions, FunctionSpec, compare};
use graph::{Graph, Options};
use nf::stage::load;
use packet::{Packet, PacketPool, Side};

use super::*;

/// Input and expected output.
struct Row {
    what: &'static str,
    /// The configuration, as JSON.
    config: &'static str,
    /// The side of entry of each packet of the flow.
    packets: &'static [Side],
    /// Passing packets.
    pass: &'static [bool],
    /// DSCP of the passing packets.
    dscp: u8,
}

const ROWS: &[Row] = &[
    Row {
        what: "without a configuration, packets pass as they are",
        config: "{}",
        packets: &[Side::Inside, Side::Outside, Side::Inside],
        pass: &[true, true, true],
        dscp: 0,
    },
    Row {
        what: "both directions count together, and packets beyond the limit are dropped",
        config: r#"{ "packets_max": 2 }"#,
        packets: &[Side::Inside, Side::Outside, Side::Inside, Side::Outside],
        pass: &[true, true, false, false],
        dscp: 0,
    },
    Row {
        what: "passing packets are marked",
        config: r#"{ "packets_max": 1, "dscp": 46 }"#,
        packets: &[Side::Inside, Side::Inside],
        pass: &[true, false],
        dscp: 46,
    },
];

#[test]
fn every_row_holds() {
    for row in ROWS {
        let mut graph = graph(row.config);
        let mut pool = PacketPool::new(8);
        let mut passed = Vec::new();
        for &side in row.packets {
            let mut packet = pool.take(&frame(side)).unwrap();
            packet.meta_mut().transit.side = side;
            let mut out = Vec::new();
            graph.process(&mut vec![packet], &mut out, &mut pool);
            for packet in &out {
                assert_eq!(dscp(packet), row.dscp, "{}", row.what);
            }
            passed.push(!out.is_empty());
            out.drain(..).for_each(|packet| pool.give(packet));
        }
        assert_eq!(passed, row.pass, "{}", row.what);
        assert!(graph.counters().add_up(), "{}", row.what);
        let counted = &graph.stages()[0].shared().counters;
        let count = |passed: bool| row.pass.iter().filter(|&&pass| pass == passed).count() as u64;
        assert_eq!(counted.get("passed"), Some(count(true)), "{}", row.what);
        assert_eq!(counted.get("over_limit"), Some(count(false)), "{}", row.what);
    }
}

/// In random graphs with random traffic, the fast path equals the slow path.
#[test]
fn fast_path_equals_slow_path() {
    let subject = FunctionSpec::new("{{name}}", r#"{ "packets_max": 6, "dscp": 46 }"#).unwrap();
    let options = CompareOptions { packets: 20_000, ..CompareOptions::default() };
    if let Err(wrong) = compare(&crate::registry(), &[subject], &options, |_| {}) {
        panic!("{wrong}");
    }
}

#[test]
fn invalid_configurations_are_refused() {
    for wrong in [r#"{ "packets_max": 0 }"#, r#"{ "dscp": 64 }"#] {
        let config = serde_json::from_str(wrong).unwrap();
        assert!({{Type}}::new(config, &mut Setup::new(1, 16)).is_err(), "{wrong}");
    }
    assert!(serde_json::from_str::<Config>(r#"{ "colour": 1 }"#).is_err());
}

fn graph(config: &str) -> Graph {
    let config = serde_json::from_str(config).unwrap();
    let stage = load::<{{Type}}>(config, Setup::new(1, 16)).unwrap();
    Graph::new(vec![stage], Options { flows_max: 16, ..Options::default() }).unwrap()
}

/// Builds a UDP packet of one flow that arrives from this side.
fn frame(side: Side) -> Vec<u8> {
    let (client, server) = ([10, 0, 0, 1, 0x30, 0x39], [192, 0, 2, 1, 0, 53]);
    let (from, to) = if side == Side::Inside { (client, server) } else { (server, client) };
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    frame.extend([0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0]);
    frame.extend([&from[..4], &to[..4], &from[4..], &to[4..], &[0, 8, 0, 0]].concat());
    frame
}

fn dscp(packet: &Packet) -> u8 {
    packet.data()[15] >> 2
}
