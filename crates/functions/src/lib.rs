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

/// All functions of this crate, by the names that policies use.
pub fn registry<C: ConfigSource>() -> Registry<C> {
    let mut registry = Registry::new();
    registry.add::<nat::Nat>(include_str!("nat/README.md"));
    registry.add::<lb::LoadBalancer>(include_str!("lb/README.md"));
    registry.add::<firewall::Firewall>(include_str!("firewall/README.md"));
    registry.add::<monitor::Monitor>(include_str!("monitor/README.md"));
    registry.add::<policer::Policer>(include_str!("policer/README.md"));
    registry.add::<whitelist::Whitelist>(include_str!("whitelist/README.md"));
    registry.add::<dos::Dos>(include_str!("dos/README.md"));
    registry.add::<ids::Ids>(include_str!("ids/README.md"));
    registry.add::<vpn::Vpn>(include_str!("vpn/README.md"));
    registry.add::<tunnel::Tunnel>(include_str!("tunnel/README.md"));
    registry.add::<mark::PacketMarker>(include_str!("mark/README.md"));
    registry.add::<mirror::TrafficMirror>(include_str!("mirror/README.md"));
    registry.add::<tcp_mss::MssClamp>(include_str!("tcp_mss/README.md"));
    registry.add::<mptcp::Mptcp>(include_str!("mptcp/README.md"));
    registry.add::<re::Re>(include_str!("re/README.md"));
    registry.add::<redundancy::Redundancy>(include_str!("redundancy/README.md"));
    registry.add::<crate::http::Http>(include_str!("http/README.md"));
    registry
}
