//! Behaviour of each function, alone and with others, in a graph.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod consolidated;
mod dos;
mod firewall_batches;
mod firewall_cost;
mod firewall_decisions;
mod firewall_flows;
mod firewall_rejects;
mod firewall_rules;
mod firewall_sanity;
mod hairpins;
mod http;
mod http_memory;
mod http_properties;
mod lb_decisions;
mod lb_nat;
mod lb_properties;
mod lb_quic;
mod lb_servers;
mod lb_tunnel;
mod mark;
mod mirror;
mod monitor;
mod monitor_recount;
mod moved;
mod mptcp;
mod nat_carrier;
mod nat_events;
mod nat_nptv6;
mod nat_random;
mod nat_rfc;
mod policer;
mod reconfigured;
mod redundancy;
mod side_by_side;
mod tcp_mss;
mod whitelist;

#[path = "../consolidated_support/mod.rs"]
mod consolidated_support;
#[path = "../firewall_support/mod.rs"]
mod firewall_support;
#[path = "../flow_support/mod.rs"]
mod flow_support;
#[path = "../http_support/mod.rs"]
mod http_support;
#[path = "../lb_support/mod.rs"]
mod lb_support;
#[path = "../meter_support/mod.rs"]
mod meter_support;
#[path = "../monitor_support/mod.rs"]
mod monitor_support;
#[path = "../nat_oracle/mod.rs"]
mod nat_oracle;
#[path = "../nat_support/mod.rs"]
mod nat_support;
#[path = "../tshark_support/mod.rs"]
mod tshark_support;
