//! Two gateways that face each other, with tunnels of all kinds.

use packet::{Addr, Endpoint, Side};
use serde_json::{Value, json};

use crate::meter_support::{Bench, stage};
use crate::meter_support::{options, v4};

pub const NOW_NS: u64 = 1_700_000_000_000_000_000;

pub const PROTOCOLS: [&str; 4] = ["ah", "esp_null", "esp", "esp256"];

/// Returns the outer addresses of this and the other end, by IP version.
pub fn outer(version: u8) -> [&'static str; 2] {
    if version == 4 { ["192.0.2.1", "198.51.100.1"] } else { ["2001:db8:a::1", "2001:db8:b::1"] }
}

/// Returns the key of one direction, as written in a policy.
pub fn key(protocol: &str, direction: u8) -> String {
    let len = match protocol {
        "esp" => 20,
        "esp256" => 36,
        _ => 32,
    };
    (0..len).map(|i: u8| format!("{:02x}", i ^ direction << 7)).collect()
}

/// Returns the configuration of one tunnel, at site 1 or 2.
pub fn tunnel(protocol: &str, version: u8, site: usize) -> Value {
    let [here, there] = if site == 1 { [0, 1] } else { [1, 0] };
    let addresses = outer(version);
    json!({
        "name": "t",
        "protocol": protocol.trim_end_matches("256"),
        "local": addresses[here],
        "remote": addresses[there],
        "local_networks": [format!("10.{site}.0.0/16"), format!("2001:db8:{site}::/48")],
        "remote_networks": [format!("10.{}.0.0/16", 3 - site), format!("2001:db8:{}::/48", 3 - site)],
        "outbound": { "spi": 0x1001 + here, "key": key(protocol, here as u8) },
        "inbound": [{ "spi": 0x1001 + there, "key": key(protocol, there as u8) }],
    })
}

/// Creates a gateway with one tunnel and some settings replaced.
pub fn gateway(protocol: &str, version: u8, site: usize, settings: &Value) -> Bench {
    let mut tunnel = tunnel(protocol, version, site);
    for (key, value) in settings.as_object().unwrap() {
        tunnel[key] = value.clone();
    }
    with(&json!({ "tunnels": [tunnel] }))
}

pub fn with(config: &Value) -> Bench {
    Bench::new(vec![stage("vpn", config)], options())
}

/// Creates the gateways of both sites.
pub fn pair(protocol: &str, version: u8) -> [Bench; 2] {
    [1, 2].map(|site| gateway(protocol, version, site, &json!({})))
}

/// Returns a host of a site, of an IP version.
pub fn host(version: u8, site: u8, port: u16) -> Endpoint {
    match version {
        4 => v4(10, site, 0, 7, port),
        _ => Endpoint::new(Addr::from_u128(0x2001_0db8 << 96 | u128::from(site) << 80 | 7), port),
    }
}

/// Returns a packet after forwarding: each gateway counts as a router and decrements the TTL.
pub fn routed(network: &[u8], hops: u8) -> Vec<u8> {
    let mut network = network.to_vec();
    if network[0] >> 4 == 6 {
        network[7] -= hops;
        return network;
    }
    network[8] -= hops;
    network[10..12].fill(0);
    let sum = network[..20].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    network[10..12].copy_from_slice(&sum.to_be_bytes());
    network
}

/// Returns the drop reason of a run's only packet.
pub fn dropped(bench: &mut Bench, side: Side, network: &[u8]) -> &'static str {
    let before = bench.drops();
    assert!(bench.one(NOW_NS, side, network).is_empty(), "it is dropped");
    let count = |name| before.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count);
    let after = bench.drops();
    after.iter().find(|&&(name, now)| now > count(name)).unwrap().0
}

/// Returns one of the tunnel's counters.
pub fn counted(bench: &Bench, name: &str) -> u64 {
    bench.graph.stages()[0].shared().counters.get(&format!("t.{name}")).unwrap()
}
