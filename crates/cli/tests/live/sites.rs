//! Functions at the edge of a site: two at the ends of a link, and functions that block floods and
//! tricks.

use std::fs;

use serde_json::Value;

use crate::net::{Host, Io, Network, Rivulet, Server, ip, wait_until};

/// Returns a counter of a report's first function.
fn counted(report: &Value, name: &str) -> u64 {
    report["functions"][0]["counters"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// Runs two gateways with a link between them, each with its own site inside.
fn two_sites(network: &Network, policies: [String; 2]) -> [Rivulet; 2] {
    let middle = network.middle.name();
    ip(&format!("-n {middle} link add here type veth peer name there"));
    // The link has room for the headers of the tunnel.
    for end in ["here", "there"] {
        ip(&format!("-n {middle} link set {end} mtu 1600 up"));
    }
    let [here, there] = policies;
    [
        network.up_on(["site=inside", "link=here"], &here, "--write link=link.pcapng"),
        network.up_on(["site=outside", "link=there"], &there, ""),
    ]
}

/// Pings whole and in fragments, and uses TCP in both directions between the hosts.
fn assert_connected(network: &Network) {
    for size in [56, 4000] {
        network.inside.ping(&format!("-c 4 -i 0.05 -W 2 -s {size} 10.7.0.2"));
    }
    let _server = network.outside.serve("iperf3 -s", 5201);
    for direction in ["", "-R"] {
        network.inside.iperf3(&format!("-c 10.7.0.2 -n 4M {direction}"));
    }
}

#[test]
fn a_tunnel_hides_and_carries_traffic_of_two_sites_with_each_protocol() {
    for protocol in ["esp", "esp_null", "ah"] {
        let Some(network) = Network::new(Io::Auto) else { return };
        let key = |digit: &str| digit.repeat(if protocol == "esp" { 72 } else { 64 });
        let end = |n: usize| {
            let (local, remote) = (n, 3 - n);
            format!(
                "Port<0> site;
                 Port<1> link;
                 VPN gateway {{
                   tunnels: [ {{
                     name: other, protocol: {protocol}, local: 192.0.2.{local}, remote: 192.0.2.{remote},
                     local_networks: [10.7.0.{local}/32], remote_networks: [10.7.0.{remote}/32],
                     outbound: {{ spi: \"0x100{local}\", key: \"{}\" }},
                     inbound: [ {{ spi: \"0x100{remote}\", key: \"{}\" }} ],
                     mtu: 1586,
                   }} ],
                   others: pass,
                 }};
                 pipelet tunnels {{ site <-> gateway <-> link; }}",
                key(&local.to_string()),
                key(&remote.to_string()),
            )
        };
        let gateways = two_sites(&network, [end(1), end(2)]);
        assert_connected(&network);
        let [here, there] = gateways.map(Rivulet::end);
        for report in [&here, &there] {
            let counts = ["packets_out", "packets_in"].map(|name| counted(report, &format!("other.{name}")));
            assert!(counts.into_iter().all(|count| count > 1_000), "{protocol}: {counts:?}");
            assert_eq!(counted(report, "other.forged"), 0);
        }
        // On the link nothing bypasses the tunnel.
        let link = network.path("link.pcapng");
        let read = network.middle.run(&format!("tcpdump -nnr {} ip", link.display()));
        let outer = if protocol == "ah" { "AH(spi=" } else { "ESP(spi=" };
        let bare: Vec<_> = read.lines().filter(|line| !line.contains(outer)).collect();
        assert!(bare.is_empty(), "{protocol}: {bare:?}");
        assert_eq!(read.lines().count() as u64, counted(&here, "other.packets_out"), "{protocol}");
    }
}

#[test]
fn repeated_content_does_not_cross_a_link_twice() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let end = |local: u32, remote: u32| {
        format!(
            "Port<0> site;
             Port<1> link;
             Re end {{ local_networks: [10.7.0.{local}/32], remote_networks: [10.7.0.{remote}/32], cache: 16MiB }};
             pipelet sites {{ site <-> end <-> link; }}"
        )
    };
    let ends = two_sites(&network, [end(1, 2), end(2, 1)]);
    assert_connected(&network);
    // Incompressible bytes, so only the file itself repeats.
    let mut bytes = vec![0_u8; 2 << 20];
    let mut x = 1_u64;
    bytes.iter_mut().for_each(|byte| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (x >> 56) as u8;
    });
    fs::create_dir(network.path("www")).unwrap();
    fs::write(network.path("www/file"), &bytes).unwrap();
    let folder = network.path("www");
    let serve = format!("python3 -m http.server --directory {} 8080", folder.display());
    let _server = network.outside.serve(&serve, 8080);
    let on_link = || -> u64 {
        let said = network.middle.run("cat /sys/class/net/here/statistics/rx_bytes");
        said.trim().parse().unwrap()
    };
    let mut took = Vec::new();
    for _ in 0..3 {
        let before = on_link();
        let copy = network.path("copy");
        network.inside.run(&format!("curl -sS -m 30 -o {} http://10.7.0.2:8080/file", copy.display()));
        assert!(fs::read(copy).unwrap() == bytes, "the copy differs");
        took.push(on_link() - before);
    }
    println!("{took:?} bytes for {} each", bytes.len());
    assert!(took[0] > bytes.len() as u64, "{took:?}");
    assert!(took[1] * 4 < took[0] && took[2] * 4 < took[0], "{took:?}");
    for end in ends {
        end.end();
    }
}

#[test]
fn a_flood_is_blocked_and_others_continue() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let policy = "
        Port<0> site { prefixes: [10.7.0.1/32, \"fd07::1/128\"] };
        Port<1> world;
        DosPreventer guard {
          protect: inside, flow_rate: 2kpps, flow_burst: 1k, connections: 20, connections_burst: 40, syns: 8,
        };
        pipelet edge { site <-> guard <-> world; }";
    let rivulet = network.up_on(["site=inside", "world=outside"], policy, "--alerts eve.json");
    let _quiet = network.inside.serve("iperf3 -s", 5201);
    // 10,000 packets per second in a flow that may have 2,000.
    let said = network.outside.iperf3("-c 10.7.0.1 -u -b 8M -l 100 -t 2 -J");
    let said: Value = serde_json::from_str(&said).unwrap();
    let bytes = |end: &str| said["end"][end]["bytes"].as_u64().unwrap();
    let (sent, received) = (bytes("sum_sent"), bytes("sum_received"));
    assert!(received * 5 < sent, "{received} of {sent} bytes");
    // 1,200 connections opened in three seconds, where 100 are permitted.
    network.outside.run("nping -q --tcp --flags syn -p 1001-2200 --rate 400 -c 1 10.7.0.1");
    // The protected side may open any number.
    network.inside.run("ping -c 4 -i 0.05 -W 2 10.7.0.2");
    let _server = network.outside.serve("iperf3 -s", 5201);
    network.inside.iperf3("-c 10.7.0.2 -n 2M");
    let report = rivulet.end();
    println!("{}", report["drops"]);
    let dropped = |reason: &str| report["drops"][reason].as_u64().unwrap_or(0);
    assert!(dropped("dos-flow") > 10_000, "{}", report["drops"]);
    assert!(dropped("dos-source") > 900, "{}", report["drops"]);
}

#[test]
fn unsolicited_datagrams_are_blocked() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let policy = "
        Port<0> site { prefixes: [10.7.0.1/32, \"fd07::1/128\"] };
        Port<1> world;
        Whitelist asked { strict: address_port, services: [5300] };
        pipelet edge { site <-> asked <-> world; }";
    let rivulet = network.up_on(["site=inside", "world=outside"], policy, "");
    let echo = "import socket,sys
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)
s.bind(('',int(sys.argv[1])))
while True:
    data,sender=s.recvfrom(2000)
    s.sendto(data,sender)
";
    let ask = "import socket,sys
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)
s.settimeout(1)
s.sendto(b'?',(sys.argv[1],int(sys.argv[2])))
s.recvfrom(2000)
";
    fs::write(network.path("echo.py"), echo).unwrap();
    fs::write(network.path("ask.py"), ask).unwrap();
    let script = |name: &str| format!("python3 {}", network.path(name).display());
    let bound = |port: u16| format!(":{port} ");
    let serve = |host: &Host, port: u16| {
        let mut command = host.command("python3");
        let server = Server::of(command.arg(network.path("echo.py")).arg(port.to_string()).spawn().unwrap());
        wait_until("a server listens", || host.run("ss -Hlun").contains(&bound(port)));
        server
    };
    let _servers =
        [serve(&network.outside, 5301), serve(&network.inside, 5300), serve(&network.inside, 5301)];
    let asks = |host: &Host, target: &str, port: u16| {
        host.output(&format!("{} {target} {port}", script("ask.py"))).status.success()
    };
    assert!(asks(&network.inside, "10.7.0.2", 5301), "a reply was blocked");
    assert!(asks(&network.outside, "10.7.0.1", 5300), "a request to a service was blocked");
    assert!(!asks(&network.outside, "10.7.0.1", 5301), "an unsolicited datagram passed");
    let report = rivulet.end();
    assert_eq!(report["drops"]["whitelist-unsolicited"].as_u64(), Some(1), "{}", report["drops"]);
}

#[test]
fn a_request_with_two_ends_is_stopped() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let policy = "
        Port<0> world;
        Port<1> servers { prefixes: [10.7.0.2/32] };
        HTTP web { smuggling: drop, methods: [GET, HEAD, POST], method_policy: drop };
        pipelet site { world <-> web <-> servers; }";
    let rivulet = network.up_on(["world=inside", "servers=outside"], policy, "--alerts eve.json");
    let log = network.path("log");
    let file = fs::File::create(&log).unwrap();
    let server = network.outside.serve_with_log("python3 -u -m http.server 8080", 8080, file);
    network.inside.run("curl -sS -m 5 -o /dev/null http://10.7.0.2:8080/harmless");
    let options = "-H Transfer-Encoding:chunked -H Content-Length:4 --data-binary 0";
    let smuggled = network.inside.output(&format!("curl -sS -m 2 {options} http://10.7.0.2:8080/smuggled"));
    assert!(!smuggled.status.success(), "{}", String::from_utf8_lossy(&smuggled.stdout));
    let strange = network.inside.output("curl -sS -m 2 -X DELETE http://10.7.0.2:8080/deleted");
    assert!(!strange.status.success());
    rivulet.end();
    drop(server);
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("/harmless"), "{log}");
    assert!(!log.contains("/smuggled") && !log.contains("/deleted"), "{log}");
    let eve = fs::read_to_string(network.path("eve.json")).unwrap();
    assert!(eve.to_lowercase().contains("smuggl"), "{eve}");
}

#[test]
fn all_functions_in_line_pass_permitted_traffic() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let example = |name: &str| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/");
        fs::read_to_string(format!("{path}{name}")).unwrap()
    };
    fs::write(network.path("ids.rules"), example("ids.rules")).unwrap();
    // Addresses of functions have static neighbour entries: no port here answers for them.
    let (inside, outside) = ("02:07:00:00:00:01", "02:07:00:00:00:02");
    for last in 1..=4 {
        network.outside.ip(&format!("neigh add 203.0.113.{last} lladdr {inside} dev eth0"));
    }
    network.outside.ip("route add 203.0.113.0/24 dev eth0");
    network.outside.ip("addr add 198.51.100.1/32 dev eth0");
    network.outside.ip("addr add 198.51.100.2/32 dev eth0");
    network.inside.ip("route add 192.0.2.80 dev eth0");
    network.inside.ip(&format!("neigh add 192.0.2.80 lladdr {outside} dev eth0"));
    let log = network.path("log");
    let file = fs::File::create(&log).unwrap();
    let rivulet = network.up(&example("all.rvl"), "--alerts eve.json --ipfix flows.ipfix");
    let server = network.outside.serve_with_log("python3 -u -m http.server 8080", 8080, file);
    network.inside.run("ping -c 3 -i 0.05 -W 2 10.7.0.2");
    for host in ["10.7.0.2", "192.0.2.80"] {
        network.inside.run(&format!("curl -sS -m 5 -o /dev/null http://{host}:8080/{host}"));
    }
    let _server = network.outside.serve("iperf3 -s", 5201);
    for direction in ["", "-R"] {
        network.inside.iperf3(&format!("-c 10.7.0.2 -n 8M {direction}"));
    }
    let report = rivulet.end();
    drop(server);
    let log = fs::read_to_string(log).unwrap();
    let from_nat = |path: &str| log.lines().any(|line| line.starts_with("203.0.113.") && line.contains(path));
    assert!(from_nat("/10.7.0.2") && from_nat("/192.0.2.80"), "{log}");
    assert!(!log.contains("10.7.0.1 "), "{log}");
    let functions = report["functions"].as_array().unwrap();
    assert!(functions.len() > 8, "{report}");
    assert!(functions.iter().all(|function| function["packets"].as_u64().unwrap() > 5_000), "{report}");
    assert!(fs::metadata(network.path("flows.ipfix")).unwrap().len() > 0);
}
