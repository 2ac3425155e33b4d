//! The built-in network functions.

mod answers;
pub mod dos;
pub mod firewall;
mod headers;
pub mod http;
pub mod ids;
pub mod lb;
mod lines;
pub mod mark;
mod masks;
pub mod mirror;
pub mod monitor;
pub mod mptcp;
pub mod nat;
mod networks;
mod numbers;
pub mod policer;
mod ports;
mod quoted;
mod rabin;
pub mod re;
pub mod redundancy;
pub mod tcp_mss;
pub mod texts;
pub mod tunnel;
pub mod vpn;
pub mod whitelist;

use nf::{ConfigSource, Registry};

/// Returns all functions of this crate, by the names that policies use.
pub fn registry<C: ConfigSource>() -> Registry<C> {
    let mut registry = Registry::new();
    registry.add(nf::loader!(nat::Nat), include_str!("nat/README.md"));
    registry.add(nf::loader!(lb::LoadBalancer), include_str!("lb/README.md"));
    registry.add(nf::loader!(firewall::Firewall), include_str!("firewall/README.md"));
    registry.add(nf::loader!(monitor::Monitor), include_str!("monitor/README.md"));
    registry.add(nf::loader!(policer::Policer), include_str!("policer/README.md"));
    registry.add(nf::loader!(whitelist::Whitelist), include_str!("whitelist/README.md"));
    registry.add(nf::loader!(dos::Dos), include_str!("dos/README.md"));
    registry.add(nf::loader!(ids::Ids), include_str!("ids/README.md"));
    registry.add(nf::loader!(vpn::Vpn), include_str!("vpn/README.md"));
    registry.add(nf::loader!(tunnel::Tunnel), include_str!("tunnel/README.md"));
    registry.add(nf::loader!(mark::PacketMarker), include_str!("mark/README.md"));
    registry.add(nf::loader!(mirror::TrafficMirror), include_str!("mirror/README.md"));
    registry.add(nf::loader!(tcp_mss::MssClamp), include_str!("tcp_mss/README.md"));
    registry.add(nf::loader!(mptcp::Mptcp), include_str!("mptcp/README.md"));
    registry.add(nf::loader!(re::Re), include_str!("re/README.md"));
    registry.add(nf::loader!(redundancy::Redundancy), include_str!("redundancy/README.md"));
    registry.add(nf::loader!(crate::http::Http), include_str!("http/README.md"));
    registry
}
