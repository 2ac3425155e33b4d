//! `rivulet up` between real hosts: the kernel's stack and common programs are clients and servers.
//!
//! Each test creates its own network namespaces, which takes root, iproute2 and some programs.
//! Without them a test prints `SKIPPED` and passes, except where `CI=true`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails by panicking.

mod applied;
mod asking;
mod balanced;
mod captured;
mod cluster_hosts;
mod clustered;
mod combined;
mod delivered;
mod dispatchers;
#[cfg(feature = "dpdk")]
mod dpdk;
mod duties;
mod ends;
mod enduring;
mod externals;
mod forwarders;
mod functions;
mod interfaces;
mod joined;
mod memif;
mod metrics;
mod multipath;
mod names;
mod net;
mod nodes;
mod operated;
mod operator;
mod path_mtu;
mod prefixes;
mod programs;
mod proxied;
mod repeated;
mod routed;
mod services;
mod sites;
mod ssh;
mod stalls;
mod stopped;
mod supervised;
mod tagged;
mod tap;
mod tracked;
mod traffic;
mod travelling;
mod tunnels;
mod two_dispatchers;
mod underlay;
mod underlays;
mod wire;
mod workers;
mod zones;
