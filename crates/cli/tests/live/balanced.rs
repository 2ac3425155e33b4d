//! Two web servers with a common virtual address, and a client.

use std::fs;
use std::time::Instant;

use crate::net::{Network, PATIENCE, Server, wait_until};

/// A balancer that owns 10.7.0.100 and has two servers.
pub const BALANCER: &str = "
    Port<0> inside { address: \"10.7.0.254/24\" };
    Port<1> outside { address: \"203.0.113.1/24\" };
    LoadBalancer balancer {
      services: [{ name: web, vip: 10.7.0.100, port: 80, servers: [
        { name: one, address: 203.0.113.2, port: 8080 },
        { name: two, address: 203.0.113.3, port: 8080 },
      ] }],
    };
    pipelet { inside <-> balancer <-> outside; }";

/// Starts the two servers, which have a route to the client.
pub fn servers(network: &Network) -> [Server; 2] {
    network.outside.ip("addr add 203.0.113.3/24 dev eth0");
    network.outside.ip("route add 10.7.0.0/24 via 203.0.113.1");
    [("one", "203.0.113.2"), ("two", "203.0.113.3")].map(|(name, address)| {
        fs::create_dir(network.path(name)).unwrap();
        fs::write(network.path(name).join("name"), name).unwrap();
        let folder = network.path(name);
        let line = format!("python3 -m http.server --bind {address} --directory {} 8080", folder.display());
        // Both listen on the same port number, so each must be waited for.
        let server = network.outside.serve(&line, 8080);
        wait_until("it answers", || {
            network.outside.output(&format!("curl -s -m 1 http://{address}:8080/name")).status.success()
        });
        server
    })
}

/// Requests this virtual address `times` times, and returns the server of each answer. The balancer
/// answers ARP for the address.
pub fn answers(network: &Network, vip: &str, times: usize) -> Vec<String> {
    let ask = || network.inside.output(&format!("curl -s -m 2 http://{vip}/name"));
    (0..times).map(|_| String::from_utf8_lossy(&ask().stdout).into_owned()).collect()
}

/// Asserts that both servers answer until a command takes the second one down, and then only the
/// first.
pub fn assert_second_goes_down(network: &Network, vip: &str) {
    let (end, mut seen) = (Instant::now() + PATIENCE, Vec::new());
    loop {
        let last = answers(network, vip, 20);
        if last.iter().all(|answer| answer == "one") {
            break;
        }
        seen.extend(last);
        assert!(Instant::now() < end, "the second one still answers: {seen:?}");
    }
    for server in ["one", "two"] {
        assert!(seen.iter().any(|answer| answer == server), "{server}: {seen:?}");
    }
}
