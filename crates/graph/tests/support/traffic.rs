//! Random traffic between few ends, so that flows meet, collide, are answered and rewritten.

use packet::{Addr, Endpoint, Side};
use proptest::prelude::*;

use super::bench::Arrival;
use super::functions::{VIRTUAL, masquerade_end, server};
use super::packets::{echo, fragments, tcp, tcp_segment, udp, unreachable, v4};

/// When random traffic begins, in nanoseconds.
pub const START_NS: u64 = 1_700_000_000_000_000_000;

/// Up to `packets` packets or datagrams, fragments counted as one.
pub fn traffic(packets: usize) -> impl Strategy<Value = Vec<Arrival>> {
    let byte = prop_oneof![3 => Just(0u8), 2 => Just(0x20u8), 1 => Just(4u8), 2 => any::<u8>()];
    let packet = (gap(), any::<bool>(), 0usize..4, 0usize..6, byte, kind());
    prop::collection::vec(packet, 1..packets).prop_map(|steps| {
        let mut at_ns = START_NS;
        let mut arrivals = vec![];
        for (gap, inside, near, far, byte, kind) in steps {
            at_ns = at_ns.saturating_add_signed(gap);
            let side = if inside { Side::Inside } else { Side::Outside };
            let (source, destination) = ends(side, near, far);
            for network in networks(source, destination, byte, kind) {
                arrivals.push(Arrival { at_ns, side, network });
            }
        }
        arrivals
    })
}

/// Time between packets: mostly little, now and then much, and backwards.
fn gap() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => Just(0i64),
        6 => 0i64..2_000_000,
        3 => 0i64..10_000_000,
        3 => 0i64..40_000_000,
        2 => 0i64..2_000_000_000,
        1 => 0i64..200_000_000_000,
        1 => -3_000_000_000i64..0,
    ]
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Udp,
    Tcp(u8),
    /// Flags, sequence and acknowledgment numbers, bytes of payload.
    Segment(u8, [u32; 2], usize),
    Echo,
    Error,
    Fragments(bool),
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        6 => Just(Kind::Udp),
        4 => prop_oneof![Just(0x02u8), Just(0x12), Just(0x10), Just(0x11), Just(0x04)].prop_map(Kind::Tcp),
        6 => (prop_oneof![12 => Just(0x10u8), 1 => Just(0x11u8)], 0u32..60, 0u32..60, 0usize..20)
            .prop_map(|(flags, sequence, acknowledged, len)| Kind::Segment(flags, [2 + sequence, 2 + acknowledged], len)),
        1 => Just(Kind::Echo),
        2 => Just(Kind::Error),
        1 => any::<bool>().prop_map(Kind::Fragments),
    ]
}

fn ends(side: Side, near: usize, far: usize) -> (Endpoint, Endpoint) {
    let virtual_end = Endpoint::new(Addr::from_v4_bytes(VIRTUAL), 53);
    let inside = [v4(10, 0, 0, 1, 1000), v4(10, 0, 0, 1, 1001), v4(10, 0, 0, 2, 1000), v4(10, 0, 0, 3, 53)];
    match side {
        Side::Inside => {
            let hosts = [v4(192, 0, 2, 1, 53), v4(192, 0, 2, 2, 53), v4(10, 0, 0, 3, 53), virtual_end];
            (inside[near], hosts[far % 4])
        }
        Side::Outside => {
            let hosts = [v4(192, 0, 2, 1, 53), v4(192, 0, 2, 2, 53), Endpoint::new(server(0), 53)];
            let servers = [Endpoint::new(server(1), 53), Endpoint::new(server(near as u32), 53)];
            let to = [
                masquerade_end(near as u32),
                v4(203, 0, 113, 1, 1000),
                v4(203, 0, 113, 2, 1000),
                inside[near],
                v4(192, 0, 2, 9, 53),
                virtual_end,
            ];
            let from = if far == 4 { servers[near % 2] } else { hosts[near % 3] };
            (from, to[far])
        }
    }
}

fn networks(source: Endpoint, destination: Endpoint, byte: u8, kind: Kind) -> Vec<Vec<u8>> {
    match kind {
        Kind::Udp => vec![udp(source, destination, &[byte, 1, 2])],
        Kind::Tcp(flags) => vec![tcp(source, destination, flags, &[byte])],
        Kind::Segment(flags, numbers, len) => {
            let mut payload = vec![9; len];
            payload.iter_mut().take(1).for_each(|first| *first = byte);
            vec![tcp_segment(source, destination, flags, numbers, &payload)]
        }
        Kind::Echo => vec![echo(source.addr, destination.addr, 1000, byte & 1 == 1, &[byte, 2])],
        Kind::Error => vec![unreachable(source.addr, &udp(destination, source, &[byte]))],
        Kind::Fragments(in_order) => {
            let mut payload = vec![7u8; 60];
            payload[0] = byte;
            let mut pieces = fragments(&udp(source, destination, &payload), u16::from(byte), 24);
            if !in_order {
                pieces.reverse();
            }
            pieces
        }
    }
}
