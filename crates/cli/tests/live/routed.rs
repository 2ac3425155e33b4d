//! Ports with addresses: a router between two networks, with functions in it.

use std::fs;
use std::process::Stdio;

use crate::net::{Io, Network, Server, by_each_way, wait_until};

by_each_way!(
    pings_reach_the_router_and_hosts_behind_it,
    neighbours_resolve_the_addresses_of_functions,
    downloads_pass_the_nat,
    traceroute_shows_the_router,
    senders_learn_the_mtu_of_the_next_link,
    absent_hosts_and_closed_ports_are_reported,
    a_neighbour_may_change_its_card,
    its_own_card_and_mtu_may_change,
    a_stun_client_determines_the_configured_behaviour,
);

/// A router for IPv6 and a NAT for IPv4, with the port's own address.
const GATEWAY: &str = "
Port<0> inside { address: [\"10.7.0.254/24\", \"fd07::254/64\"] };
Port<1> outside { address: [\"203.0.113.1/24\", \"fd08::254/64\"], gateway: \"203.0.113.2\" };
NAT translate { external: [203.0.113.1, 203.0.113.7] };
Monitor watch;
pipelet { inside <-> translate <-> watch <-> outside; }
";

fn pings_reach_the_router_and_hosts_behind_it(io: Io) {
    let Some(network) = Network::routed(io) else { return };
    let rivulet = network.up(GATEWAY, "");
    for target in ["10.7.0.254", "fd07::254", "203.0.113.2", "fd08::2", "fd08::254"] {
        network.inside.ping(&format!("-c 4 -i 0.05 -W 2 {target}"));
    }
    for target in ["203.0.113.1", "fd08::254", "fd07::1"] {
        network.outside.run(&format!("ping -c 3 -i 0.05 -W 2 {target}"));
    }
    // Through the router, with one hop less.
    let said = network.inside.run("ping -c 1 -W 2 fd08::2");
    assert!(said.contains("ttl=63"), "{said}");
    // In fragments, through the router.
    network.inside.run("ping -c 3 -i 0.05 -W 2 -s 4000 203.0.113.2");
    network.inside.run("ping -c 3 -i 0.05 -W 2 -s 4000 fd08::2");
    rivulet.end();
}

fn neighbours_resolve_the_addresses_of_functions(io: Io) {
    let Some(network) = Network::routed(io) else { return };
    let rivulet = network.up(GATEWAY, "");
    let mac = network.middle.run("cat /sys/class/net/outside/address");
    // 203.0.113.7 is the NAT's alone: pings are not answered, but ARP is.
    network.outside.output("ping -c 1 -W 1 203.0.113.7");
    let neighbours = network.outside.run("ip neigh show");
    let found = neighbours.lines().find(|line| line.starts_with("203.0.113.7 "));
    assert!(found.is_some_and(|line| line.contains(mac.trim())), "{neighbours}");
    rivulet.end();
}

fn downloads_pass_the_nat(io: Io) {
    let Some(network) = Network::routed(io) else { return };
    let rivulet = network.up(GATEWAY, "");
    let bytes: Vec<u8> = (0..8 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::create_dir(network.path("www")).unwrap();
    fs::write(network.path("www/file"), &bytes).unwrap();
    let log = network.path("log");
    let folder = network.path("www");
    let serve = format!("python3 -m http.server --bind :: --directory {} 8080", folder.display());
    let server = network.outside.serve_with_log(&serve, 8080, fs::File::create(&log).unwrap());
    for host in ["203.0.113.2", "[fd08::2]"] {
        let copy = network.path("copy");
        let line = format!("curl -sS -m 60 -o {} http://{host}:8080/file", copy.display());
        network.inside.run(&line);
        assert!(fs::read(copy).unwrap() == bytes, "the file from {host} differs");
    }
    rivulet.end();
    drop(server);
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("203.0.113.") && log.contains("fd07::1") && !log.contains("10.7.0.1"), "{log}");
}

#[test]
fn the_gateway_example_is_a_gateway() {
    let Some(network) = Network::unconnected(Io::Auto) else { return };
    network.connect_with("inside", &["10.0.0.9/24", "fd00::9/64"]);
    network.connect_with("outside", &["203.0.113.1/24", "2001:db8:1::1/64"]);
    network.inside.ip("route add default via 10.0.0.1");
    network.inside.ip("-6 route add default via fd00::1");
    network.outside.ip("-6 route add fd00::/64 via 2001:db8:1::2");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/gateway.rvl");
    let rivulet = network.up(&fs::read_to_string(example).unwrap(), "");
    let _server = network.outside.serve("python3 -m http.server --bind :: 8080", 8080);
    for host in ["203.0.113.1", "[2001:db8:1::1]"] {
        network.inside.run(&format!("curl -sS -m 5 -o /dev/null http://{host}:8080/"));
    }
    let _inside = network.inside.serve("python3 -m http.server --bind :: 8080", 8080);
    let stranger = network.outside.output("curl -sS -m 2 http://[fd00::9]:8080/");
    assert_eq!(stranger.status.code(), Some(28));
    rivulet.end();
}

fn traceroute_shows_the_router(io: Io) {
    let Some(network) = Network::routed(io) else { return };
    let rivulet = network.up(GATEWAY, "");
    for (options, target, router) in [("-I", "203.0.113.2", "10.7.0.254"), ("-6 -I", "fd08::2", "fd07::254")]
    {
        let said = network.inside.run(&format!("traceroute -n -q 1 -w 2 {options} {target}"));
        let hops: Vec<_> = said.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(hops, [router, target], "{said}");
    }
    rivulet.end();
}

fn senders_learn_the_mtu_of_the_next_link(io: Io) {
    let Some(network) = Network::routed(io) else { return };
    network.middle.ip("link set outside mtu 1400");
    network.outside.ip("link set eth0 mtu 1400");
    let rivulet = network.up(GATEWAY, "");
    for (target, payload) in [("203.0.113.2", 1472), ("fd08::2", 1452)] {
        // The first packet is lost, and triggers an error; `-M do` forbids fragmentation.
        let said = network.inside.output(&format!("ping -c 3 -i 0.2 -W 1 -M do -s {payload} {target}"));
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("1400"), "{said}");
    }
    // Other packets are fragmented.
    network.inside.run("ip route flush cache");
    network.inside.run("ping -c 3 -i 0.05 -W 2 -M dont -s 1472 203.0.113.2");
    // And connections work.
    let _server = network.outside.serve("iperf3 -s", 5201);
    network.inside.iperf3("-c 203.0.113.2 -n 2M");
    network.inside.iperf3("-6 -c fd08::2 -n 2M");
    let report = rivulet.end();
    assert!(
        report["interfaces"]["outside"]["host"]["too_big"].as_u64().unwrap() >= 2,
        "{}",
        report["interfaces"]
    );
}

fn absent_hosts_and_closed_ports_are_reported(io: Io) {
    let Some(network) = Network::routed(io) else { return };
    let rivulet = network.up(GATEWAY, "");
    for target in ["203.0.113.99", "fd08::99"] {
        let said = network.inside.output(&format!("ping -c 1 -W 6 {target}"));
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("Unreachable") || said.contains("unreachable"), "{said}");
    }
    // Also closed ports of the router itself.
    let refused = network.inside.output("curl -sS -m 3 http://10.7.0.254:80/");
    assert_eq!(refused.status.code(), Some(7), "{}", String::from_utf8_lossy(&refused.stderr));
    let report = rivulet.end();
    assert!(report["interfaces"]["outside"]["host"]["unreachable"].as_u64().unwrap() >= 2);
}

fn a_neighbour_may_change_its_card(io: Io) {
    let Some(network) = Network::routed(io) else { return };
    let rivulet = network.up(GATEWAY, "");
    network.inside.run("ping -c 2 -i 0.05 -W 2 203.0.113.2");
    network.outside.ip("link set eth0 down");
    network.outside.ip("link set eth0 address 02:07:00:00:00:99");
    network.outside.ip("link set eth0 up");
    // Like a host that has just started: it sends, and is learned.
    network.outside.run("ping -c 1 -W 2 203.0.113.1");
    network.inside.run("ping -c 2 -i 0.05 -W 2 203.0.113.2");
    rivulet.end();
}

fn its_own_card_and_mtu_may_change(io: Io) {
    let Some(network) = Network::routed(io) else { return };
    let rivulet = network.up(GATEWAY, "");
    network.inside.run("ping -c 2 -i 0.05 -W 2 203.0.113.2");
    network.middle.ip("link del outside");
    network.connect_with("outside", &["203.0.113.2/24"]);
    network.middle.ip("link set outside address 02:07:00:00:00:77");
    let arrives = || network.inside.output("ping -c 1 -W 1 203.0.113.2").status.success();
    wait_until("a ping arrives again", arrives);
    network.outside.ip("link set eth0 mtu 1300");
    network.middle.ip("link set outside mtu 1300");
    wait_until("the new MTU is reported", || {
        let said = network.inside.output("ping -c 2 -i 0.2 -W 1 -M do -s 1400 203.0.113.2");
        String::from_utf8_lossy(&said.stdout).contains("1300")
    });
    rivulet.end();
}

/// RFC 4787 names the behaviours of a NAT, and RFC 5780 how a client determines them with a server
/// with two addresses.
fn a_stun_client_determines_the_configured_behaviour(io: Io) {
    let Some(network) = Network::routed(io) else { return };
    network.outside.ip("addr add 203.0.113.3/24 dev eth0");
    let serve = "turnserver -n -L 203.0.113.2 -L 203.0.113.3 --no-auth --no-tls --no-dtls --no-cli --log-file stdout \
                 --pidfile pid --db turndb";
    let mut words = serve.split_whitespace();
    let mut command = network.outside.command(words.next().unwrap());
    command.args(words).stdout(Stdio::null()).stderr(Stdio::null()).current_dir(network.dir.path());
    let _server = Server::of(command.spawn().unwrap());
    wait_until("the server listens", || network.outside.run("ss -Hlun").contains("203.0.113.3:3479 "));
    for (mapping, filtering, told) in [
        ("endpoint_independent", "endpoint_independent", ["Independent Mapping", "Independent Filtering"]),
        ("endpoint_independent", "address_dependent", ["Independent Mapping", "Address Dependent Filtering"]),
        ("address_dependent", "endpoint_independent", ["Address Dependent Mapping", "Independent Filtering"]),
    ] {
        let policy = GATEWAY.replace(
            "NAT translate { external: [203.0.113.1, 203.0.113.7] };",
            &format!(
                "NAT translate {{ external: [203.0.113.1], mapping: {mapping}, filtering: {filtering} }};"
            ),
        );
        let rivulet = network.up(&policy, "");
        network.inside.run("ping -c 1 -W 2 203.0.113.2");
        let said = network.inside.run("turnutils_natdiscovery -m -f 203.0.113.2");
        for told in told {
            assert!(said.contains(told), "{mapping}, {filtering}: {said}");
        }
        rivulet.end();
    }
}
