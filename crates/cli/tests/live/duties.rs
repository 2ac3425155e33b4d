//! Duties of a router and of a wire: announcing addresses, answering for them, and link-local
//! traffic.

use std::fs;

use crate::net::{Io, Network, by_each_way, wait_until};

by_each_way!(
    the_first_example_of_the_readme_works,
    a_silent_host_behind_a_wire_is_found,
    addresses_of_functions_are_announced,
);

/// Returns the policy of the README's tour.
fn site() -> String {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let (_, tour) = readme.split_once("A policy, `site.rvl`:").unwrap();
    let policy = tour.split("```").nth(1).unwrap();
    assert!(policy.contains("NAT") && policy.contains("deny in"), "{policy}");
    policy.to_owned()
}

/// Returns a site inside. Its gateway is beyond the wire and also has an address in the NAT's
/// network.
fn on_a_wire(io: Io) -> Option<Network> {
    let network = Network::unconnected(io)?;
    network.connect_with("inside", &["10.0.0.5/8", "fd07::1/64"]);
    network.connect_with("outside", &["10.0.0.1/8", "203.0.113.254/24", "fd07::2/64"]);
    network.inside.ip("route add default via 10.0.0.1");
    Some(network)
}

fn the_first_example_of_the_readme_works(io: Io) {
    let Some(network) = on_a_wire(io) else { return };
    let rivulet = network.up(&site(), "");
    let log = network.path("log");
    let serve = "python3 -m http.server --bind 203.0.113.254 8080";
    let server = network.outside.serve_with_log(serve, 8080, fs::File::create(&log).unwrap());
    for _ in 0..3 {
        network.inside.run("curl -sS -m 5 -o /dev/null http://203.0.113.254:8080/");
    }
    network.inside.run("ping -c 3 -i 0.05 -W 2 203.0.113.254");
    drop(server);
    let log = fs::read_to_string(log).unwrap();
    let is_translated = |line: &str| (1..=4).any(|host| line.starts_with(&format!("203.0.113.{host} ")));
    assert!(log.lines().filter(|line| is_translated(line)).count() == 3, "{log}");
    // IPv6 passes as on a wire, and neighbours are found from both ends, although the firewall
    // denies everything from outside.
    network.inside.run("ping -c 3 -i 0.05 -W 2 fd07::2");
    network.inside.ip("neigh flush dev eth0");
    network.outside.ip("neigh flush dev eth0");
    network.inside.run("ping -c 3 -i 0.05 -W 2 fd07::2");
    let stranger = network.outside.output("ping -c 1 -W 1 fd07::1");
    assert!(!stranger.status.success(), "the firewall denies connections from outside");
    let report = rivulet.end();
    let host = &report["interfaces"]["outside"]["host"];
    assert!(host["announced"].as_u64().unwrap() >= 4 && host["consumed"].as_u64().unwrap() > 0, "{host}");
    let firewall =
        report["functions"].as_array().unwrap().iter().find(|of| of["type"] == "firewall").unwrap();
    assert!(firewall["counters"]["link_control"].as_u64().unwrap() > 0, "{firewall}");
}

fn a_silent_host_behind_a_wire_is_found(io: Io) {
    let Some(network) = on_a_wire(io) else { return };
    let policy = "
        Port<0> inside;
        Port<1> outside;
        NAT n { forwards: [{ protocol: tcp, external: \"203.0.113.7:80\", internal: \"10.0.0.5:8080\" }] };
        pipelet { inside <-> n <-> outside; }";
    let rivulet = network.up(policy, "");
    let _server = network.inside.serve("python3 -m http.server 8080", 8080);
    network.outside.run("curl -sS -m 5 -o /dev/null http://203.0.113.7/");
    // No other address is answered for.
    let mac = network.middle.run("cat /sys/class/net/outside/address");
    network.outside.output("ping -c 1 -W 1 203.0.113.8");
    let neighbours = network.outside.run("ip neigh show");
    let with_mac: Vec<_> = neighbours.lines().filter(|line| line.contains(mac.trim())).collect();
    assert!(with_mac.len() == 1 && with_mac[0].starts_with("203.0.113.7 "), "{neighbours}");
    rivulet.end();
}

fn addresses_of_functions_are_announced(io: Io) {
    let Some(network) = Network::routed(io) else { return };
    let policy = "
        Port<0> inside { address: [\"10.7.0.254/24\", \"fd07::254/64\"] };
        Port<1> outside { address: [\"203.0.113.1/24\", \"fd08::254/64\"], gateway: \"203.0.113.2\" };
        NAT n { external: [203.0.113.7],
            forwards: [{ protocol: tcp, external: \"203.0.113.12:80\", internal: \"10.7.0.1:80\" }] };
        pipelet { inside <-> n <-> outside; }";
    // The neighbour has cached these addresses for the machine that had them before, and will not
    // ask for a long time.
    let mac = network.middle.run("cat /sys/class/net/outside/address").trim().to_owned();
    let addresses = ["203.0.113.1", "203.0.113.7", "203.0.113.12"];
    network.outside.run(
        "sysctl -qw net.ipv4.neigh.eth0.base_reachable_time_ms=3600000 net.ipv4.neigh.eth0.delay_first_probe_time=3600 \
         net.ipv4.neigh.eth0.locktime=0",
    );
    let forget = || {
        for address in addresses {
            network
                .outside
                .ip(&format!("neigh replace {address} lladdr 02:de:ad:00:00:01 dev eth0 nud reachable"));
        }
    };
    let all_are_known = || {
        let neighbours = network.outside.run("ip neigh show");
        let is_known = |address: &&str| {
            neighbours.lines().any(|line| line.starts_with(&format!("{address} ")) && line.contains(&mac))
        };
        addresses.iter().all(is_known)
    };
    forget();
    let rivulet = network.up(policy, "");
    wait_until("they are announced at the start", all_are_known);
    network.inside.run("ping -c 3 -i 0.05 -W 2 203.0.113.2");
    network.middle.ip("link set outside down");
    rivulet.wait_for_line("outside is down");
    // Both rounds of announcements at the start have ended, or end with the link.
    network.middle.ip("link set outside up");
    rivulet.wait_for_line("outside is up");
    forget();
    wait_until("they are announced when the link is back", all_are_known);
    network.inside.run("ping -c 3 -i 0.05 -W 2 203.0.113.2");
    let report = rivulet.end();
    let host = &report["interfaces"]["outside"]["host"];
    assert!(host["announced"].as_u64().unwrap() >= 4 && host["unannounced"] == 0, "{host}");
}
