//! Any frames at a router's port, incoming and outgoing, at any times, and a link that goes down
//! and changes: nothing panics, pending packets are bounded, and sent frames fit the link.

#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use l3::{Config, EgressAction, IngressAction, NEIGHBOURS_MAX, PENDING_PER_NEIGHBOUR_MAX, RouterPort};
use libfuzzer_sys::fuzz_target;
use packet::Addr;
use packet::wire::MacAddress;

const ETHERNET: usize = 14;

// Input: a byte that chooses the port, then steps: event, time that passes, length, and that many
// bytes.
fuzz_target!(|data: &[u8]| {
    let [choice, rest @ ..] = data else { return };
    let mut rest = rest;
    let mut mtu = 1_500;
    let mut port = RouterPort::new(config(*choice, mtu));
    let mut now_ns = 1_000_000_000;
    while let [what, step, length, bytes @ ..] = rest {
        let (frame, after) = bytes.split_at(usize::from(*length).min(bytes.len()));
        rest = after;
        now_ns += u64::from(step >> 4) << (2 * (step & 15));
        match what % 8 {
            0..=2 => {
                let action = port.handle_ingress(frame, now_ns);
                assert!(matches!(action, IngressAction::Forward | IngressAction::Consumed | IngressAction::Drop(_)));
            }
            3 | 4 => {
                let mut frame = frame.to_vec();
                if frame.len() >= ETHERNET {
                    let action = port.handle_egress(&mut frame, now_ns);
                    assert!(matches!(action, EgressAction::Transmit | EgressAction::Consumed));
                }
            }
            5 => port.snoop(frame, now_ns),
            6 => port.handle_timeout(now_ns),
            _ => {
                mtu = 1_280 + u32::from(*step) * 8;
                port.set_link(MacAddress([2, 0, 0, 0, 0, *step]), mtu);
                port.handle_link_up(now_ns);
            }
        }
        for frame in port.take_frames() {
            assert!(frame.len() >= ETHERNET, "{frame:02x?}");
        }
        for frame in port.take_returned() {
            assert!(frame.len() > ETHERNET, "{frame:02x?}");
        }
        port.take_snooped();
        assert!(port.pending() <= (NEIGHBOURS_MAX * PENDING_PER_NEIGHBOUR_MAX) as u64);
    }
});

fn config(choice: u8, mtu: u32) -> Config {
    let v4: IpAddr = Ipv4Addr::new(10, 0, 0, 1).into();
    let v6: IpAddr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into();
    let networks: &[&str] = match choice % 3 {
        0 => &["10.0.0.254/24", "fd00::fe/64"],
        1 => &["10.0.0.254/24"],
        _ => &["fd00::fe/64"],
    };
    let owned = |text: &str| Addr::from(text.parse::<IpAddr>().unwrap());
    Config {
        mac: MacAddress([2, 0, 0, 0, 0, 0xfe]),
        mtu,
        addresses: networks.iter().map(|network| network.parse().unwrap()).collect(),
        routes: Vec::new(),
        gateways: if choice & 4 == 0 { vec![v4, v6] } else { Vec::new() },
        nf_addresses: vec![(owned("10.0.0.100"), owned("10.0.0.103")), (owned("fd00::100"), owned("fd00::1ff"))],
        nf_addresses_in_use: match choice & 32 {
            0 => Vec::new(),
            _ => vec![(owned("10.0.0.101"), owned("10.0.0.102")), (owned("fd00::180"), owned("fd00::1ff"))],
        },
        shard: if choice & 8 == 0 { (0, 1) } else { (1, 2) },
        router_addresses: vec![owned("203.0.113.1")],
        is_at_program: choice & 64 != 0,
        drop_martians: choice & 16 == 0,
    }
}
