//! Two tunnel ends that face each other, with tunnels of all kinds.

use graph::Options;
use packet::{Addr, Endpoint};
use serde_json::{Value, json};

use crate::meter_support::{Bench, options, stage, v4};

pub const NOW_NS: u64 = 1_700_000_000_000_000_000;

pub const PROTOCOLS: [&str; 4] = ["gre", "ipip", "vxlan", "geneve"];

/// Returns the outer addresses of both ends, by IP version.
pub fn outer(version: u8) -> [&'static str; 2] {
    if version == 4 { ["192.0.2.1", "198.51.100.1"] } else { ["2001:db8:a::1", "2001:db8:b::1"] }
}

/// Returns the configuration of one end, 1 or 2.
pub fn config(protocol: &str, version: u8, site: usize) -> Value {
    let addresses = outer(version);
    let mut config = json!({
        "protocol": protocol,
        "local": addresses[site - 1],
        "remote": addresses[2 - site],
    });
    match protocol {
        "gre" => config["key"] = json!(0x1234_5678),
        "vxlan" | "geneve" => {
            config["vni"] = json!(0x12_3456);
            config["local_mac"] = json!(format!("02:00:00:00:00:0{site}"));
            config["remote_mac"] = json!(format!("02:00:00:00:00:0{}", 3 - site));
        }
        _ => {}
    }
    config
}

/// Creates one end with some settings replaced; null removes a setting.
pub fn end(protocol: &str, version: u8, site: usize, settings: Value) -> Bench {
    let mut config = config(protocol, version, site);
    for (key, value) in settings.as_object().unwrap() {
        config[key] = value.clone();
    }
    config.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    Bench::new(vec![stage("tunnel", &config)], Options { inner: true, ..options() })
}

/// Creates both ends.
pub fn pair(protocol: &str, version: u8) -> [Bench; 2] {
    [1, 2].map(|site| end(protocol, version, site, json!({})))
}

/// Returns a host of a site, of an IP version.
pub fn host(version: u8, site: u8, port: u16) -> Endpoint {
    match version {
        4 => v4(10, site, 0, 7, port),
        _ => Endpoint::new(Addr::from_u128(0x2001_0db8 << 96 | u128::from(site) << 80 | 7), port),
    }
}

/// Sets the traffic class of a packet.
pub fn with_class(network: &[u8], class: u8) -> Vec<u8> {
    let mut network = network.to_vec();
    if network[0] >> 4 == 6 {
        network[0] = 0x60 | class >> 4;
        network[1] = network[1] & 0x0f | class << 4;
        return network;
    }
    network[1] = class;
    summed(network)
}

/// Returns the packet with the right checksum in its IPv4 header without options.
pub fn summed(mut network: Vec<u8>) -> Vec<u8> {
    network[10..12].fill(0);
    let sum = packet::checksum::checksum(&network[..20]);
    network[10..12].copy_from_slice(&sum.to_be_bytes());
    network
}

/// Returns the traffic class of a packet.
pub fn class(network: &[u8]) -> u8 {
    if network[0] >> 4 == 4 { network[1] } else { network[0] << 4 | network[1] >> 4 }
}

/// Returns the length of a tunnel's outer headers.
pub fn headers(protocol: &str, version: u8) -> usize {
    let ip = if version == 4 { 20 } else { 40 };
    ip + match protocol {
        "gre" => 8,
        "ipip" => 0,
        _ => 8 + 8 + 14,
    }
}
