//! Time: when flows end, and clocks that jump.

use graph::{Options, Timeouts};
use nf::EndReason;
use packet::Side;
use proptest::prelude::*;

use crate::support::bench::Bench;
use crate::support::functions::*;
use crate::support::packets::*;

const T: u64 = 1_700_000_000_000_000_000;
const MS: u64 = 1_000_000;
const YEAR: u64 = 31_536_000_000_000_000;

fn request(host: u8, byte: u8) -> Vec<u8> {
    udp(v4(10, 0, 0, host, 1000), v4(192, 0, 2, 1, 53), &[byte])
}

fn reply(host: u8, byte: u8) -> Vec<u8> {
    udp(v4(192, 0, 2, 1, 53), v4(10, 0, 0, host, 1000), &[byte])
}

fn witness() -> Bench {
    Bench::new(vec![stage::<Witness>(8)], Options::default())
}

/// The last packet's clock: 1 if it began a flow.
fn clock(bench: &Bench) -> u32 {
    bench.alerts.last().unwrap().signature_id
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// A packet sees its flow's end to the nanosecond; the counters show it soon after.
    #[test]
    fn a_flow_is_kept_as_long_as_was_said(
        start in prop_oneof![Just(0u64), 0u64..1 << 60],
        protocol in 0usize..5,
        by in prop_oneof![Just(0u64), 0u64..100 * MS],
    ) {
        let (inside, peer) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
        let t = Timeouts::default();
        type Exchange = (Vec<(Side, Vec<u8>)>, u32);
        let exchanges: [Exchange; 5] = [
            (vec![(Side::Inside, request(1, 0))], t.udp_unreplied_ms),
            (vec![(Side::Inside, request(1, 0)), (Side::Outside, reply(1, 0))], t.udp_ms),
            (vec![(Side::Inside, tcp(inside, peer, 2, b""))], t.tcp_transitory_ms),
            (
                vec![
                    (Side::Inside, tcp(inside, peer, 2, b"")),
                    (Side::Outside, tcp(peer, inside, 0x12, b"")),
                    (Side::Inside, tcp(inside, peer, 0x10, b"")),
                ],
                t.tcp_established_ms,
            ),
            (vec![(Side::Inside, echo(inside.addr, peer.addr, 7, false, b""))], t.icmp_ms),
        ];
        let (exchange, timeout_ms) = &exchanges[protocol];
        let timeout_ns = u64::from(*timeout_ms) * MS;
        let (side, last) = exchange.last().unwrap();
        for (late, starts) in [(timeout_ns - by.min(timeout_ns), 1), (timeout_ns + 1 + by, 2)] {
            let mut bench = witness();
            for (side, network) in exchange {
                bench.through(start, *side, network);
            }
            bench.through(start + late, *side, last);
            prop_assert_eq!(bench.graph.counters().flows_started, starts, "{} ns later", late);
        }
        let mut bench = witness();
        for (side, network) in exchange {
            bench.through(start, *side, network);
        }
        bench.advance(start + timeout_ns - by.min(timeout_ns));
        prop_assert_eq!(bench.graph.counters().flows_live, 1);
        bench.advance(start + timeout_ns + 17 * MS);
        prop_assert_eq!(bench.graph.counters().flows_live, 0);
        prop_assert_eq!(bench.graph.counters().ended(EndReason::Idle), 1);
    }
}

#[test]
fn a_closed_connection_ends_as_closed() {
    let mut bench = witness();
    let (inside, peer) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 80));
    bench.through(T, Side::Inside, &tcp(inside, peer, 2, b""));
    bench.through(T, Side::Outside, &tcp(peer, inside, 0x14, b""));
    bench.advance(T + 241_000 * MS);
    assert_eq!(bench.graph.counters().ended(EndReason::Closed), 1);
}

/// A packet may shorten the timeout that an earlier one requested; a packet without a request
/// changes nothing.
#[test]
fn functions_say_how_long() {
    let (five_ms, nothing, long) = (0x20, 0x10, 0x30);
    let mut bench = Bench::new(vec![stage::<Keeper>(8), stage::<Witness>(8)], Options::default());
    bench.through(T, Side::Inside, &request(1, long));
    bench.through(T + 99_000 * MS, Side::Inside, &request(1, nothing));
    bench.through(T + 99_999 * MS, Side::Inside, &request(1, five_ms));
    assert_eq!(clock(&bench), 3);
    bench.through(T + 100_005 * MS, Side::Inside, &request(1, 0));
    assert_eq!(clock(&bench), 1, "5 ms were over");
    bench.advance(T + 101_022 * MS);
    assert_eq!(bench.graph.counters().flows_live, 0);
}

/// Time is the latest timestamp of any packet; an earlier timestamp does not turn time back.
#[test]
fn time_that_goes_backwards_ends_nothing() {
    let mut bench = witness();
    bench.through(T, Side::Inside, &request(1, 0));
    bench.through(T - 3_600_000 * MS, Side::Inside, &request(2, 0));
    bench.through(T - 3_600_000 * MS, Side::Inside, &request(2, 0));
    assert_eq!(clock(&bench), 2, "a flow that begins late is a flow");
    bench.through(T + 1, Side::Inside, &request(2, 0));
    assert_eq!(clock(&bench), 3);
    bench.through(0, Side::Outside, &reply(1, 0));
    assert_eq!(clock(&bench), 2);
    assert_eq!(bench.graph.counters().flows_live, 2);
}

#[test]
fn time_that_jumps_by_years_ends_everything_at_once() {
    let mut bench = Bench::new(vec![stage::<Masquerade>(8), stage::<Witness>(8)], Options::default());
    for host in 1..=8 {
        bench.through(T, Side::Inside, &request(host, 0));
    }
    bench.through(T + 50 * YEAR, Side::Inside, &request(9, 0));
    assert_eq!(bench.graph.counters().ended(EndReason::Idle), 8);
    assert_eq!(bench.graph.stages()[0].shared().pools[0].in_use(), 1);
    bench.advance(u64::MAX);
    assert_eq!(bench.graph.counters().flows_live, 0);
    bench.through(u64::MAX, Side::Inside, &request(1, 0));
    bench.through(u64::MAX, Side::Inside, &request(1, 0));
    assert_eq!(clock(&bench), 2);
}
