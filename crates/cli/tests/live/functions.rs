//! Functions between real hosts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::balanced::{self, BALANCER};
use crate::net::{Io, Network};

#[test]
fn a_policer_limits_iperf_to_its_rate() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let policy = "
        Port<0> inside;
        Port<1> outside;
        Policer limit { rate: 20Mbps, burst: 64KiB, per: inside };
        pipelet { inside <-> limit <-> outside; }";
    let rivulet = network.up(policy, "");
    let _server = network.outside.serve("iperf3 -s", 5201);
    network.inside.iperf3("-c 10.7.0.2 -u -b 40M -l 1000 -t 4 -J");
    let report = rivulet.end();
    let count = |value: &Value| value.as_u64().unwrap();
    let port = &report["ports"]["outside"];
    // The rate counts IP packets. In any time, at most the burst and the refill pass.
    let passed_bytes = count(&port["bytes_out"]) - 14 * count(&port["packets_out"]);
    let span_ns = count(&report["last_packet_ns"]) - count(&report["first_packet_ns"]);
    let allowed_bytes = (64 << 10) + u128::from(span_ns) * 20_000_000 / 8 / 1_000_000_000;
    println!("{passed_bytes} of {allowed_bytes} bytes; {}", report["drops"]);
    assert!(u128::from(passed_bytes) <= allowed_bytes, "{report}");
    assert!(count(&report["drops"]["policer-rate"]) > 0, "{report}");
    // The server received more than the initial burst.
    assert!(passed_bytes > 64 << 10, "{report}");
}

#[test]
fn a_firewall_passes_what_its_rules_allow() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let policy = "
        Port<0> inside;
        Port<1> outside;
        Firewall gate { rules: \"allow out icmp\\nallow out tcp to any port 8080\\nreject out tcp\" };
        pipelet { inside <-> gate <-> outside; }";
    let rivulet = network.up(policy, "");
    let _open = network.outside.serve("python3 -m http.server 8080", 8080);
    let _shut = network.outside.serve("python3 -m http.server 8081", 8081);
    let _back = network.inside.serve("python3 -m http.server 8080", 8080);
    network.inside.run("ping -c 1 -W 2 10.7.0.2");
    network.inside.run("curl -sS -m 5 -o /dev/null http://10.7.0.2:8080/");
    // Rejected: the client is notified at once and does not wait.
    let rejected = network.inside.output("curl -sS -m 5 http://10.7.0.2:8081/");
    assert_eq!(rejected.status.code(), Some(7), "{}", String::from_utf8_lossy(&rejected.stderr));
    // Denied: nothing comes back.
    let denied = network.outside.output("curl -sS -m 2 http://10.7.0.1:8080/");
    assert_eq!(denied.status.code(), Some(28));
    assert!(!network.outside.output("ping -c 1 -W 1 10.7.0.1").status.success());
    rivulet.end();
}

#[test]
fn a_nat_hides_the_client() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let policy = "
        Port<0> inside;
        Port<1> outside;
        NAT translate { external: [10.7.0.100] };
        pipelet { inside <-> translate <-> outside; }";
    let rivulet = network.up(policy, "");
    // The outside host has the pool's address in its neighbour cache.
    let address = network.inside.run("cat /sys/class/net/eth0/address");
    network.outside.ip(&format!("neigh add 10.7.0.100 lladdr {} dev eth0", address.trim()));
    let log = network.path("log");
    let file = fs::File::create(&log).unwrap();
    let server = network.outside.serve_with_log("python3 -m http.server 8080", 8080, file);
    network.inside.run("ping -c 3 -i 0.05 -W 2 10.7.0.2");
    network.inside.run("curl -sS -m 5 -o /dev/null http://10.7.0.2:8080/");
    rivulet.end();
    drop(server);
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("10.7.0.100") && !log.contains("10.7.0.1 "), "{log}");
}

#[test]
fn an_attack_is_reported_and_stopped() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let rules = "drop http any any -> any 8080 (msg:\"A shell is asked for\"; \
                 flow:established,to_server; http.uri; content:\"/bin/sh\"; sid:1; rev:1;)\n";
    fs::write(network.path("own.rules"), rules).unwrap();
    let policy = "
        Port<0> inside;
        Port<1> outside;
        IDS watch { rules: file(\"own.rules\"), mode: prevent };
        pipelet { inside <-> watch <-> outside; }";
    let rivulet = network.up(policy, "--alerts eve.json");
    let _server = network.outside.serve("python3 -m http.server 8080", 8080);
    network.inside.run("curl -sS -m 5 -o /dev/null http://10.7.0.2:8080/");
    let attacked = network.inside.output("curl -sS -m 3 http://10.7.0.2:8080/?/bin/sh");
    assert!(!attacked.status.success());
    rivulet.end();
    let eve = fs::read_to_string(network.path("eve.json")).unwrap();
    assert!(eve.lines().any(|line| line.contains("A shell is asked for")), "{eve}");
}

#[test]
fn a_balancer_uses_all_servers_but_one_that_is_down() {
    let Some(network) = Network::routed(Io::Auto) else { return };
    let [_one, two] = balanced::servers(&network);
    fs::write(network.path("commands"), "10s balancer server two down\n").unwrap();
    let rivulet = network.up(BALANCER, "--control commands");
    balanced::assert_second_goes_down(&network, "10.7.0.100");
    // Release the lock on the interfaces.
    drop(two);
    let answers = balanced::answers(&network, "10.7.0.100", 5);
    assert!(answers.iter().all(|answer| answer == "one"), "{answers:?}");
    rivulet.end();
}

/// Returns the maximum segment size of the next connection's SYN as it arrives outside.
fn offered_mss(network: &Network, target: &str) -> String {
    let mut tcpdump = network.outside.command("tcpdump");
    let filter = "(ip or ip6) and dst port 9"; // In `tcp[...]`, tcpdump takes IPv4 only.
    tcpdump.args(["-nn", "-l", "-c", "1", "-i", "eth0", filter]);
    let mut tcpdump = tcpdump.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    let mut said = BufReader::new(tcpdump.stderr.take().unwrap());
    while !ready.contains("listening on") {
        assert!(said.read_line(&mut ready).unwrap() > 0, "{ready}");
    }
    network.inside.output(&format!("curl -sS -m 2 http://{target}:9/"));
    let output = tcpdump.wait_with_output().unwrap();
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, mss) = line.split_once("mss ").unwrap_or_else(|| panic!("no option: {line}"));
    mss.split(',').next().unwrap().to_owned()
}

/// TcpMss clamps as the kernel's router does with nftables, `tcp option maxseg size set rt mtu`.
#[test]
fn segments_are_as_long_as_those_behind_nftables() {
    let Some(network) = Network::routed(Io::Auto) else { return };
    let router = &network.middle;
    if !Command::new("which").arg("nft").output().is_ok_and(|out| out.status.success()) {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "nft is not installed");
        return println!("SKIPPED: nft is not installed");
    }
    let targets = ["203.0.113.2", "[fd08::2]"];
    for mtu in [1_492, 1_300] {
        router.ip(&format!("link set outside mtu {mtu}"));
        for (end, addresses) in
            [("inside", ["10.7.0.254/24", "fd07::254/64"]), ("outside", ["203.0.113.1/24", "fd08::254/64"])]
        {
            addresses.iter().for_each(|address| router.ip(&format!("addr add {address} dev {end} nodad")));
        }
        network.outside.ip("route replace 10.7.0.0/24 via 203.0.113.1");
        router.run("sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        let table = "table inet clamp { chain forward { type filter hook forward priority 0; \
                     tcp flags syn tcp option maxseg size set rt mtu; }; }";
        fs::write(network.path("clamp.nft"), table).unwrap();
        router.run(&format!("nft -f {}", network.path("clamp.nft").display()));
        let by_kernel = targets.map(|target| offered_mss(&network, target));
        router.run("nft delete table inet clamp");
        router.run("sysctl -q -w net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0");
        ["inside", "outside"].iter().for_each(|end| router.ip(&format!("addr flush dev {end} scope global")));

        let policy = format!(
            "Port<0> inside {{ address: [\"10.7.0.254/24\", \"fd07::254/64\"] }};
             Port<1> outside {{ address: [\"203.0.113.1/24\", \"fd08::254/64\"] }};
             TcpMss clamp {{ to_path_mtu: {{ inside: 1500, outside: {mtu} }} }};
             pipelet {{ inside <-> clamp <-> outside; }}"
        );
        let rivulet = network.up(&policy, "");
        let by_rivulet = targets.map(|target| offered_mss(&network, target));
        rivulet.end();
        assert_eq!(by_rivulet, by_kernel);
        assert_eq!(by_kernel, [mtu - 40, mtu - 60].map(|mss| mss.to_string()));
    }
}
