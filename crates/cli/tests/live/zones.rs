//! A router with three ports: clients, servers that the Internet may reach, and the Internet.

use std::fs;

use crate::net::{Host, Io, Network, Rivulet, Server, by_each_way, wait_until};

by_each_way!(
    clients_and_servers_reach_each_other_directly,
    clients_reach_the_internet_through_the_nat,
    the_internet_reaches_published_ports_only,
    traceroute_shows_the_router_between_any_two_zones,
    absent_hosts_and_small_links_are_reported_in_any_zone,
    each_port_answers_for_its_own_addresses,
    networks_behind_a_router_are_reached_by_routes,
    live_rates_stand_beside_edges,
);

const POLICY: &str = r#"
let clients = [10.1.0.0/24, fd01::/64];
let servers = [198.51.100.0/24, fd02::/64];

Port<0> lan { address: ["10.1.0.254/24", "fd01::fe/64"] };
Port<1> dmz { address: ["198.51.100.254/24", "fd02::fe/64"] };
Port<2> wan { address: ["203.0.113.254/24", "fd03::fe/64"], gateway: ["203.0.113.2", "fd03::2"] };

Monitor between;
Firewall guard { rules: "allow in tcp to any port {80, 443}\nallow out" };
NAT nat { external: [203.0.113.7], inside: [10.1.0.0/24] };

pipelet internal {
  lan [src ip clients && dst ip servers] <-> between [src ip clients && dst ip servers] <-> dmz;
}
pipelet published { dmz <-> guard [src ip servers] <-> wan; }
pipelet outbound { lan <-> nat <-> wan; }
"#;

/// The router's ports on the interfaces of the middle.
const ZONES: [&str; 3] = ["lan=inside", "dmz=dmz", "wan=outside"];

/// A site with its servers, and hosts of the Internet: 192.0.2.80 and fd04::80 are beyond the
/// gateway 203.0.113.2 and fd03::2, which has a route to the servers.
struct Site {
    network: Network,
    dmz: Host,
}

impl Site {
    fn new(io: Io) -> Option<Site> {
        let network = Network::unconnected(io)?;
        network.connect_with("inside", &["10.1.0.1/24", "fd01::1/64"]);
        network.connect_with("outside", &["203.0.113.2/24", "fd03::2/64"]);
        let dmz = network.third("dmz", &["198.51.100.1/24", "fd02::1/64"]);
        for (host, v4, v6) in
            [(&network.inside, "10.1.0.254", "fd01::fe"), (&dmz, "198.51.100.254", "fd02::fe")]
        {
            host.ip(&format!("route add default via {v4}"));
            host.ip(&format!("-6 route add default via {v6}"));
        }
        network.outside.ip("addr add 192.0.2.80/32 dev lo");
        network.outside.ip("addr add fd04::80/128 dev lo nodad");
        network.outside.ip("route add 198.51.100.0/24 via 203.0.113.254");
        for inner in ["fd01::/64", "fd02::/64"] {
            network.outside.ip(&format!("-6 route add {inner} via fd03::fe"));
        }
        Some(Site { network, dmz })
    }

    fn up(&self) -> Rivulet {
        self.up_with(POLICY, "")
    }

    fn up_with(&self, policy: &str, options: &str) -> Rivulet {
        self.network.up_on(ZONES, policy, options)
    }

    /// Runs a web server on this port of a host, with its log.
    fn web(&self, host: &Host, port: u16) -> Server {
        let log = fs::File::create(self.network.path("log")).unwrap();
        host.serve_with_log(&format!("python3 -u -m http.server --bind :: {port}"), port, log)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.network.path("log")).unwrap()
    }
}

/// Sends a request to a web server, which must answer.
fn ask(host: &Host, url: &str) {
    host.run(&format!("curl -sS -m 10 -o /dev/null {url}"));
}

fn clients_and_servers_reach_each_other_directly(io: Io) {
    let Some(site) = Site::new(io) else { return };
    let rivulet = site.up();
    for (host, targets) in
        [(&site.network.inside, ["198.51.100.1", "fd02::1"]), (&site.dmz, ["10.1.0.1", "fd01::1"])]
    {
        for target in targets {
            host.ping(&format!("-c 4 -i 0.05 -W 2 {target}"));
            host.ping(&format!("-c 2 -i 0.05 -W 2 -s 4000 {target}"));
        }
    }
    let server = site.web(&site.dmz, 22);
    ask(&site.network.inside, "http://198.51.100.1:22/four");
    ask(&site.network.inside, "http://[fd02::1]:22/six");
    drop(server);
    let log = site.log();
    assert!(log.contains("10.1.0.1") && log.contains("fd01::1"), "{log}");
    rivulet.end();
}

fn clients_reach_the_internet_through_the_nat(io: Io) {
    let Some(site) = Site::new(io) else { return };
    let rivulet = site.up();
    for target in ["203.0.113.2", "192.0.2.80", "fd03::2", "fd04::80"] {
        site.network.inside.ping(&format!("-c 4 -i 0.05 -W 2 {target}"));
    }
    let server = site.web(&site.network.outside, 80);
    for host in ["203.0.113.2", "192.0.2.80", "[fd04::80]"] {
        ask(&site.network.inside, &format!("http://{host}/"));
    }
    drop(server);
    let log = site.log();
    assert!(log.contains("203.0.113.7") && log.contains("fd01::1") && !log.contains("10.1.0.1"), "{log}");
    rivulet.end();
}

fn the_internet_reaches_published_ports_only(io: Io) {
    let Some(site) = Site::new(io) else { return };
    let rivulet = site.up();
    let (world, client) = (&site.network.outside, &site.network.inside);
    let server = site.web(&site.dmz, 80);
    for (from, host) in [("192.0.2.80", "198.51.100.1"), ("fd04::80", "[fd02::1]")] {
        ask(world, &format!("--interface {from} http://{host}/"));
    }
    drop(server);
    assert!(site.log().contains("192.0.2.80") && site.log().contains("fd04::80"), "{}", site.log());
    let _hidden = site.web(&site.dmz, 22);
    let _inner = site.web(client, 80);
    world.ip("route add 10.1.0.0/24 via 203.0.113.254");
    for url in ["198.51.100.1:22", "[fd02::1]:22", "10.1.0.1:80"] {
        let denied = world.output(&format!("curl -sS -m 2 http://{url}/"));
        assert_eq!(denied.status.code(), Some(28), "{url}");
    }
    assert!(!world.output("ping -c 1 -W 1 198.51.100.1").status.success());
    // Servers reach the Internet by the same port as clients, and through the firewall.
    for target in ["192.0.2.80", "fd04::80"] {
        site.dmz.ping(&format!("-c 4 -i 0.05 -W 2 {target}"));
    }
    let report = rivulet.end();
    let dropped = |reason: &str| report["drops"][reason].as_u64().unwrap_or(0);
    assert!(dropped("firewall-default") >= 3 && dropped("nat-untranslated") >= 1, "{}", report["drops"]);
}

fn traceroute_shows_the_router_between_any_two_zones(io: Io) {
    let Some(site) = Site::new(io) else { return };
    let rivulet = site.up();
    let (client, server, world) = (&site.network.inside, &site.dmz, &site.network.outside);
    for (host, options, target, router) in [
        (client, "-I", "198.51.100.1", "10.1.0.254"),
        (client, "-I", "192.0.2.80", "10.1.0.254"),
        (client, "-6 -I", "fd02::1", "fd01::fe"),
        (client, "-6 -I", "fd04::80", "fd01::fe"),
        (server, "-I", "10.1.0.1", "198.51.100.254"),
        (server, "-I", "192.0.2.80", "198.51.100.254"),
        (server, "-6 -I", "fd04::80", "fd02::fe"),
        (world, "-T -p 80", "198.51.100.1", "203.0.113.254"),
        (world, "-6 -T -p 80", "fd02::1", "fd03::fe"),
    ] {
        let said = host.run(&format!("traceroute -n -q 1 -w 2 {options} {target}"));
        let hops: Vec<_> = said.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(hops, [router, target], "{said}");
    }
    rivulet.end();
}

fn absent_hosts_and_small_links_are_reported_in_any_zone(io: Io) {
    let Some(site) = Site::new(io) else { return };
    let (client, server, world) = (&site.network.inside, &site.dmz, &site.network.outside);
    site.network.middle.ip("link set dmz mtu 1400");
    server.ip("link set eth0 mtu 1400");
    let rivulet = site.up();
    for (host, target) in [
        (client, "198.51.100.99"),
        (client, "fd02::99"),
        (client, "203.0.113.99"),
        (client, "fd03::99"),
        (server, "10.1.0.99"),
        (server, "fd01::99"),
        (server, "203.0.113.99"),
    ] {
        let said = host.output(&format!("ping -c 1 -W 6 {target}"));
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("Unreachable") || said.contains("unreachable"), "{target}: {said}");
    }
    // The kernel gives up at once: no route to host.
    for host in ["198.51.100.99", "[fd02::99]"] {
        let refused = world.output(&format!("curl -sS -m 8 http://{host}/"));
        assert_eq!(refused.status.code(), Some(7), "{}", String::from_utf8_lossy(&refused.stderr));
    }
    for (target, payload) in [("198.51.100.1", 1472), ("fd02::1", 1452)] {
        // The first packet is lost, and triggers an error; `-M do` forbids fragmentation.
        let said = client.output(&format!("ping -c 3 -i 0.2 -W 1 -M do -s {payload} {target}"));
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("1400"), "{said}");
    }
    let report = rivulet.end();
    let host = &report["interfaces"]["dmz"]["host"];
    assert!(host["unreachable"].as_u64().unwrap() >= 4 && host["too_big"].as_u64().unwrap() >= 2, "{host}");
}

fn each_port_answers_for_its_own_addresses(io: Io) {
    let Some(site) = Site::new(io) else { return };
    let rivulet = site.up();
    let (client, server, world) = (&site.network.inside, &site.dmz, &site.network.outside);
    // Addresses of the port itself, and of the ports beyond it.
    for (host, targets) in [
        (client, &["10.1.0.254", "fd01::fe", "198.51.100.254", "fd02::fe", "203.0.113.254", "fd03::fe"][..]),
        (server, &["198.51.100.254", "fd02::fe", "10.1.0.254", "fd01::fe", "203.0.113.254"]),
        (world, &["203.0.113.254", "fd03::fe"]),
    ] {
        for target in targets {
            host.ping(&format!("-c 2 -i 0.05 -W 2 {target}"));
        }
    }
    // The NAT's address is the Internet's neighbour alone.
    world.output("ping -c 1 -W 1 203.0.113.7");
    server.ip("route add 203.0.113.7 dev eth0");
    assert!(!server.output("ping -c 1 -W 1 203.0.113.7").status.success());
    for (host, name, asked, is_there) in [
        (client, "inside", "10.1.0.254", true),
        (client, "inside", "fd01::fe", true),
        (server, "dmz", "198.51.100.254", true),
        (server, "dmz", "fd02::fe", true),
        (world, "outside", "203.0.113.254", true),
        (world, "outside", "fd03::fe", true),
        (world, "outside", "203.0.113.7", true),
        (server, "dmz", "203.0.113.7", false),
    ] {
        let mac = site.network.middle.run(&format!("cat /sys/class/net/{name}/address"));
        let neighbours = host.run("ip neigh show");
        let found = neighbours.lines().find(|line| line.starts_with(&format!("{asked} ")));
        assert_eq!(found.is_some_and(|line| line.contains(mac.trim())), is_there, "{asked}: {neighbours}");
    }
    // A neighbour may change its card.
    server.ip("link set eth0 down");
    server.ip("link set eth0 address 02:07:00:00:00:99");
    server.ip("link set eth0 up");
    server.ip("addr replace fd02::1/64 dev eth0 nodad");
    server.ip("route replace default via 198.51.100.254");
    let arrives = || server.output("ping -c 1 -W 1 10.1.0.1").status.success();
    wait_until("a ping arrives again", arrives);
    client.ping("-c 2 -i 0.05 -W 2 198.51.100.1");
    rivulet.end();
}

fn networks_behind_a_router_are_reached_by_routes(io: Io) {
    let Some(site) = Site::new(io) else { return };
    let client = &site.network.inside;
    for address in ["10.9.0.1/32", "10.9.1.1/32", "fd09::1/128"] {
        client.ip(&format!("addr add {address} dev lo"));
    }
    let routes = "routes: [{ to: 10.9.0.0/16, via: 10.1.0.99 }, { to: 10.9.0.0/24, via: 10.1.0.1 },
        { to: \"fd09::/64\", via: \"fd01::1\" }]";
    let policy = POLICY.replace("\"fd01::fe/64\"] }", &format!("\"fd01::fe/64\"], {routes} }}"));
    let policy = policy.replace("fd01::/64];", "fd01::/64, 10.9.0.0/16, fd09::/64];");
    let rivulet = site.up_with(&policy, "");
    for target in ["10.9.0.1", "fd09::1", "10.1.0.1"] {
        site.dmz.ping(&format!("-c 3 -i 0.05 -W 2 {target}"));
    }
    // The next hop of the wider route is absent.
    let said = site.dmz.output("ping -c 1 -W 6 10.9.1.1");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("Unreachable"), "{said}");
    rivulet.end();
}

/// Compares `rivulet policy graph --connect` with the program that runs the policy.
fn live_rates_stand_beside_edges(io: Io) {
    let Some(site) = Site::new(io) else { return };
    let rivulet = site.up_with(POLICY, "--metrics 127.0.0.1:9600");
    let rivulet_command = env!("CARGO_BIN_EXE_rivulet");
    let policy = site.network.path("policy.rvl");
    let graph = format!("{rivulet_command} policy graph {} --connect -i 500ms", policy.display());
    let mut pings = site.network.inside.command("ping");
    let pings = pings.args("-q -i 0.01 -c 5000 198.51.100.1".split(' ')).stdout(std::process::Stdio::null());
    let pings = Server::of(pings.spawn().unwrap());
    wait_until("edges show the pings' rates, and only theirs", || {
        let said = site.network.middle.run(&graph);
        let line = |edge: &str| said.lines().find(|line| line.contains(edge)).unwrap_or_default().to_owned();
        let (to, from) = (line("> between"), line("> dmz"));
        let is_idle = line("> nat").contains("  0 packets/s");
        let has_rates = |line: &str| line.contains(" packets/s") && !line.contains("  0 packets/s");
        has_rates(&to) && to.contains(", back ") && has_rates(&from) && is_idle
    });
    drop(pings);
    rivulet.end();
}
