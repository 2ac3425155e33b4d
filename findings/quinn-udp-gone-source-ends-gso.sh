#!/usr/bin/env bash
# quinn-udp 0.6.3 (Rust crate): a datagram that is to leave from an IPv6 address which the host has lost ends segmentation
# offload (GSO) for the whole socket, for good.
#
# Expected: that send fails, as the kernel refuses the source (IPV6_PKTINFO), and nothing else changes.
# Seen: it fails with EINVAL (22), and from then on `max_gso_segments()` is 1, although batches from other addresses would
# work: the crate takes EINVAL and EIO for the sign of a way out without GSO. With a socket of IPv4 the kernel says
# ENETUNREACH, and GSO stays. So a server that answers from the address to which the question came, on a host whose IPv6
# addresses change, sends datagram by datagram after the first change. A new `UdpSocketState` for the socket has GSO again.
#
# Needs cargo, and root or user namespaces. Seen with Linux 6.18.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/src"
cat >"$work/Cargo.toml" <<'TOML'
[package]
name = "gone-source"
version = "0.0.0"
edition = "2021"

[dependencies]
quinn-udp = { version = "=0.6.3", default-features = false }
TOML
cat >"$work/src/main.rs" <<'RUST'
use std::net::UdpSocket;

use quinn_udp::{Transmit, UdpSockRef, UdpSocketState};

fn main() {
    let receiver = UdpSocket::bind("[::1]:0").unwrap();
    let socket = UdpSocket::bind("[::]:0").unwrap();
    let state = UdpSocketState::new(UdpSockRef::from(&socket)).unwrap();
    let send = |state: &UdpSocketState, source: &str, segment_size| {
        let source = source.parse().unwrap();
        let destination = receiver.local_addr().unwrap();
        let contents = &[0; 300];
        let transmit = Transmit { destination, ecn: None, contents, segment_size, src_ip: Some(source) };
        let outcome = state.try_send(UdpSockRef::from(&socket), &transmit);
        outcome.map_err(|error| error.raw_os_error()).err()
    };
    let more = |state: &UdpSocketState| state.max_gso_segments() > 1;
    println!("at first: batch {:?}, gso {}", send(&state, "::1", Some(100)), more(&state));
    println!("one datagram from a lost address: {:?}", send(&state, "2001:db8::1", None));
    println!("then: gso {}", more(&state));
    let again = UdpSocketState::new(UdpSockRef::from(&socket)).unwrap();
    println!("another state: batch {:?}, gso {}", send(&again, "::1", Some(100)), more(&again));
}
RUST
cargo build --quiet --manifest-path "$work/Cargo.toml" --target-dir "$work/target"
seen=$(unshare --net --map-root-user sh -c "ip link set lo up && '$work/target/debug/gone-source'")
expected="at first: batch None, gso true
one datagram from a lost address: Some(Some(22))
then: gso false
another state: batch None, gso true"
echo "$seen"
[[ $seen == "$expected" ]] || { echo "this has changed; expected:"; echo "$expected"; exit 1; }
echo "as described"
