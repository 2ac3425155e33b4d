//! Functions between real hosts.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::net::{Io, Network, wait_until};

#[test]
fn a_policer_holds_iperf_to_its_rate() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let policy = "
        Port<0> inside;
        Port<1> outside;
        Policer limit { rate: 20Mbps, burst: 64KiB, per: inside };
        pipelet { inside <-> limit <-> outside; }";
    let rivulet = network.up(policy, "");
    let _server = network.outside.serve("iperf3 -s", 5201);
    let said = network.inside.run("iperf3 -c 10.7.0.2 -u -b 40M -l 1000 -t 6 -J");
    let report = rivulet.end();
    let said: Value = serde_json::from_str(&said).unwrap();
    // iperf3 counts UDP's payload; the policer's rate is that of IP packets.
    let payload_bps = said["end"]["sum_received"]["bits_per_second"].as_f64().unwrap();
    let rate_bps = payload_bps * 1028.0 / 1000.0;
    println!("{rate_bps:.0} bit/s; {}", report["drops"]);
    assert!((rate_bps / 20e6 - 1.0).abs() < 0.02, "{rate_bps:.0} bit/s");
}

#[test]
fn a_firewall_lets_through_what_its_rules_say() {
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
    // Rejected: the client is told so at once, and does not wait.
    let rejected = network.inside.output("curl -sS -m 5 http://10.7.0.2:8081/");
    assert_eq!(rejected.status.code(), Some(7), "{}", String::from_utf8_lossy(&rejected.stderr));
    // Denied: nothing comes back.
    let denied = network.outside.output("curl -sS -m 2 http://10.7.0.1:8080/");
    assert_eq!(denied.status.code(), Some(28));
    assert!(!network.outside.output("ping -c 1 -W 1 10.7.0.1").status.success());
    rivulet.end();
}

#[test]
fn nat_hides_the_client_whose_server_answers() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let policy = "
        Port<0> inside;
        Port<1> outside;
        NAT translate { external: [10.7.0.100] };
        pipelet { inside <-> translate <-> outside; }";
    let rivulet = network.up(policy, "");
    // Who has the pool's address, the outside knows.
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
fn an_attack_is_told_of_and_stopped() {
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
fn a_balancer_spreads_clients_over_web_servers_and_leaves_out_one_that_is_down() {
    let Some(network) = Network::routed(Io::Auto) else { return };
    let policy = "
        Port<0> inside { address: \"10.7.0.254/24\" };
        Port<1> outside { address: \"203.0.113.1/24\" };
        LoadBalancer balancer {
          services: [{ name: web, vip: 10.7.0.100, port: 80, servers: [
            { name: one, address: 203.0.113.2, port: 8080 },
            { name: two, address: 203.0.113.3, port: 8080 },
          ] }],
        };
        pipelet { inside <-> balancer <-> outside; }";
    network.outside.ip("addr add 203.0.113.3/24 dev eth0");
    network.outside.ip("route add 10.7.0.0/24 via 203.0.113.1");
    let serve = |name: &str, address: &str| {
        fs::create_dir(network.path(name)).unwrap();
        fs::write(network.path(name).join("name"), name).unwrap();
        let folder = network.path(name);
        let line = format!("python3 -m http.server --bind {address} --directory {} 8080", folder.display());
        // Two listen at the port: what the first one's line shows does not tell of the second.
        let server = network.outside.serve(&line, 8080);
        wait_until("it answers", || {
            network.outside.output(&format!("curl -s -m 1 http://{address}:8080/name")).status.success()
        });
        server
    };
    let _one = serve("one", "203.0.113.2");
    let two = serve("two", "203.0.113.3");
    fs::write(network.path("commands"), "10s balancer server two down\n").unwrap();
    let began = Instant::now();
    let rivulet = network.up(policy, "--control commands");
    // The client asks the virtual address, which the balancer owns: who has it is told by ARP.
    let ask = || {
        let output = network.inside.output("curl -s -m 2 http://10.7.0.100/name");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let answers: Vec<_> = (0..30).map(|_| ask()).collect();
    for server in ["one", "two"] {
        assert!(answers.iter().filter(|&answer| answer == server).count() >= 5, "{answers:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "the machine is too slow for this test");
    drop(two);
    std::thread::sleep(Duration::from_secs(11).saturating_sub(began.elapsed()));
    let answers: Vec<_> = (0..20).map(|_| ask()).collect();
    assert!(answers.iter().all(|answer| answer == "one"), "{answers:?}");
    rivulet.end();
}
