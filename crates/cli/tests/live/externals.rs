//! External nodes: unmodified programs in a namespace of their own, and programs at memif ports.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::net::{Host, Io, Network, Server, wait_until};

/// Returns the ports of a router that has a node `box`, with these keys, between two monitors.
fn router(keys: &str) -> String {
    format!(
        "Port<0> inside {{ address: [\"10.7.0.254/24\", \"fd07::254/64\"] }};
         Port<1> outside {{ address: [\"203.0.113.254/24\", \"fd08::254/64\"] }};
         Monitor before; Monitor behind;
         Legacy box {{ {keys} }};
         pipelet {{ inside <-> before <-> box <-> behind <-> outside; }}"
    )
}

/// Waits until no other test of this machine has a legacy node: networks of tests share the names
/// of namespaces.
pub fn alone() -> (MutexGuard<'static, ()>, File) {
    static NODE: Mutex<()> = Mutex::new(());
    let first = NODE.lock().unwrap_or_else(PoisonError::into_inner);
    let file = std::env::temp_dir().join("rivulet-tests-of-nodes");
    let file = File::options().create(true).append(true).open(file).unwrap();
    file.lock().unwrap();
    (first, file)
}

/// Hosts on both sides of a router, with routes to each other.
pub fn routed() -> Option<Network> {
    let network = Network::routed(Io::PacketSocket)?;
    network.outside.ip("route add 10.7.0.0/24 via 203.0.113.254");
    Some(network)
}

/// Returns the duration of a waiting program, different from those of all other processes.
fn sleeper(network: &Network) -> String {
    format!(
        "3600.{}",
        network.middle.name().bytes().map(u32::from).fold(0, |sum, byte| sum * 31 % 999_983 + byte)
    )
}

/// Returns the processes with these words in their command line.
pub fn processes(words: &str) -> Vec<String> {
    let found = Command::new("pgrep").args(["-f", "--", words]).output().unwrap();
    String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Kills these processes. There must be at least one.
pub fn kill(processes: &[String]) {
    assert!(!processes.is_empty());
    assert!(Command::new("kill").arg("-KILL").args(processes).status().unwrap().success());
}

fn answers(host: &Host, target: &str) -> bool {
    host.output(&format!("ping -c 1 -W 1 {target}")).status.success()
}

/// Returns whether a program is there. If it is not, prints a message; fails in CI.
pub fn is_installed(program: &str) -> bool {
    let found = Command::new("which").arg(program).output();
    let is_there = found.is_ok_and(|output| output.status.success());
    if !is_there {
        let why = format!("{program} is not installed");
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
        println!("SKIPPED: {why}");
    }
    is_there
}

/// Checks that nothing is left of a node.
fn assert_removed(network: &Network, sleeper: &str) {
    wait_until("the program has ended", || processes(sleeper).is_empty());
    let links = network.middle.run("ip -br link");
    assert!(!links.contains("box-"), "{links}");
    assert!(!Path::new("/run/rivulet-node-rivulet-box-box").exists());
}

#[test]
fn nftables_filters_between_two_segments() {
    let _alone = alone();
    let Some(network) = routed() else { return };
    let rules = "table inet box {
        counter refused { }
        chain forward { type filter hook forward priority 0; tcp dport 81 counter name refused reject with tcp reset; }
    }";
    fs::write(network.path("rules.nft"), rules).unwrap();
    let (rules, sleeper) = (network.path("rules.nft"), sleeper(&network));
    let keys = format!(
        "setup: \"nft -f {}\", command: [sh, \"-c\", \"echo guards; exec sleep {sleeper}\"]",
        rules.display()
    );
    let rivulet = network.up(&router(&keys), "");
    rivulet.wait_for_line("box: guards");
    for target in ["203.0.113.2", "fd08::2"] {
        network.inside.ping(&format!("-c 3 -i 0.05 -W 2 {target}"));
        // A datagram in fragments.
        network.inside.ping(&format!("-c 2 -i 0.05 -W 2 -s 4000 {target}"));
    }
    let _open = network.outside.serve("python3 -m http.server --bind :: 80", 80);
    let _closed = network.outside.serve("python3 -m http.server --bind :: 81", 81);
    for host in ["203.0.113.2", "[fd08::2]"] {
        network.inside.run(&format!("curl -sS -m 20 -o /dev/null http://{host}/"));
        let refused = network.inside.output(&format!("curl -sS -m 20 -o /dev/null http://{host}:81/"));
        assert_eq!(refused.status.code(), Some(7), "refused by a reset");
    }
    let program = processes(&format!("sleep {sleeper}")).pop().unwrap();
    let listed =
        Command::new("nsenter").args(["--net", "--target", &program, "nft", "list", "counters"]).output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    assert!(listed.contains("packets 2 "), "{listed}");
    let report = rivulet.end();
    assert_eq!(report["programs"]["box"]["up"], 1);
    assert_eq!(report["programs"]["box"]["restarts"], 0);
    assert_eq!(report["drops"], serde_json::json!({}));
    // Flows continue as other flows after the program, except those refused by it.
    let count = |port: &str, way: &str| report["ports"][port][way].as_u64().unwrap();
    assert!(count("box.outside", "packets_in") > 0 && count("box.outside", "packets_out") > 0, "{report}");
    assert!(count("box.inside", "packets_out") > count("box.outside", "packets_in"), "{report}");
    assert_removed(&network, &sleeper);
}

#[test]
fn killed_program_is_started_again() {
    let _alone = alone();
    let Some(network) = routed() else { return };
    let sleeper = sleeper(&network);
    let rivulet = network.up(&router(&format!("command: \"sleep {sleeper}\", restart: 4s")), "");
    rivulet.wait_for_line("box: started");
    network.inside.ping("-c 2 -i 0.05 -W 2 203.0.113.2");
    kill(&processes(&format!("^sleep {sleeper}")));
    rivulet.wait_for_line("box: ended: signal 9");
    let passed_while_down = answers(&network.inside, "203.0.113.2");
    rivulet.wait_for_line("box: started");
    network.inside.ping("-c 2 -i 0.05 -W 2 203.0.113.2");
    let report = rivulet.end();
    let node = &report["programs"]["box"];
    assert_eq!(node["restarts"], 1);
    assert_eq!(node["last_end"], "signal 9");
    assert!(passed_while_down || node["dropped"].as_u64().unwrap() > 0, "{node}");
    assert_eq!(report["drops"]["node-down"].as_u64().unwrap_or(0), node["dropped"].as_u64().unwrap());
    assert_removed(&network, &sleeper);
}

#[test]
fn packets_pass_by_a_node_that_is_down() {
    let _alone = alone();
    let Some(network) = routed() else { return };
    let keys = "command: \"false\", restart: 1h, when_down: bypass";
    let rivulet = network.up(&router(keys), "");
    rivulet.wait_for_line("box: ended: exit code 1");
    for target in ["203.0.113.2", "fd08::2"] {
        network.inside.ping(&format!("-c 3 -i 0.05 -W 2 {target}"));
    }
    let report = rivulet.end();
    assert!(report["programs"]["box"]["bypassed"].as_u64().unwrap() >= 12, "{report}");
    assert_eq!(report["programs"]["box"]["up"], 0);
}

#[test]
fn workers_share_a_node() {
    let _alone = alone();
    let Some(network) = routed() else { return };
    let sleeper = sleeper(&network);
    let rivulet = network.up(&router(&format!("command: \"sleep {sleeper}\"")), "--workers 2");
    rivulet.wait_for_line("box: started");
    let _server = network.outside.serve("python3 -m http.server --bind :: 80", 80);
    for _ in 0..10 {
        network.inside.run("curl -sS -m 20 -o /dev/null http://203.0.113.2/");
        network.inside.run("curl -sS -m 20 -o /dev/null http://[fd08::2]/");
    }
    let report = rivulet.end();
    assert_eq!(report["programs"]["box"]["up"], 1);
    assert_eq!(report["programs"]["box"]["restarts"], 0);
    assert_removed(&network, &sleeper);
}

#[test]
fn traffic_may_pass_by_the_node_on_other_edges() {
    let _alone = alone();
    let Some(network) = routed() else { return };
    let sleeper = sleeper(&network);
    let policy = router(&format!("command: \"sleep {sleeper}\""))
        .replace("inside <-> before <-> box", "inside [dst port 80] <-> before <-> box")
        .replace("outside; }", "outside; inside <-> outside; }");
    let rivulet = network.up(&policy, "");
    rivulet.wait_for_line("box: started");
    network.inside.ping("-c 3 -i 0.05 -W 2 203.0.113.2");
    let _one = network.outside.serve("python3 -m http.server --bind :: 80", 80);
    let _other = network.outside.serve("python3 -m http.server --bind :: 81", 81);
    for port in [80, 81, 80] {
        network.inside.run(&format!("curl -sS -m 20 -o /dev/null http://203.0.113.2:{port}/"));
    }
    let report = rivulet.end();
    let through = report["ports"]["box.outside"]["packets_in"].as_u64().unwrap();
    let all = report["ports"]["inside"]["packets_in"].as_u64().unwrap();
    assert!(through > 0 && through < all, "{report}");
    assert_removed(&network, &sleeper);
}

#[test]
fn remains_of_a_killed_run_are_removed() {
    let _alone = alone();
    let Some(network) = routed() else { return };
    let sleeper = sleeper(&network);
    let policy = router(&format!("command: \"sleep {sleeper}\", stop_timeout: 1s"));
    let rivulet = network.up(&policy, "");
    rivulet.wait_for_line("box: started");
    drop(rivulet); // By SIGKILL.
    assert_removed_by_supervisor(&network, &sleeper);
    let rivulet = network.up(&policy, "");
    rivulet.wait_for_line("box: started");
    network.inside.ping("-c 2 -i 0.05 -W 2 203.0.113.2");
    rivulet.end();
    assert_removed(&network, &sleeper);
}

fn assert_removed_by_supervisor(network: &Network, sleeper: &str) {
    wait_until("the supervisor has ended the program", || processes(sleeper).is_empty());
    wait_until("its interfaces are gone", || !network.middle.run("ip -br link").contains("box-"));
}

#[test]
fn node_of_the_same_name_in_another_network_is_left_alone() {
    let _alone = alone();
    let Some(network) = routed() else { return };
    let sleeper = sleeper(&network);
    let policy = router(&format!("command: \"sleep {sleeper}\", stop_timeout: 1s"));
    let rivulet = network.up(&policy, "");
    rivulet.wait_for_line("box: started");
    fs::write(network.path("policy.rvl"), policy).unwrap();
    let line = format!(
        "{} up {} --port inside=eth0 --port outside=lo",
        env!("CARGO_BIN_EXE_rivulet"),
        network.path("policy.rvl").display()
    );
    let output = network.outside.output(&line);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = "another Rivulet runs a node of this name in the namespace rivulet-box";
    assert!(!output.status.success() && said.contains(expected), "{said}");
    // The first one's namespace is still there.
    kill(&processes(&format!("^sleep {sleeper}")));
    rivulet.wait_for_line("box: started");
    network.inside.ping("-c 2 -i 0.05 -W 2 203.0.113.2");
    rivulet.end();
    assert_removed(&network, &sleeper);
}

#[test]
fn unknown_programs_are_named() {
    let _alone = alone();
    let Some(network) = routed() else { return };
    let rivulet = network.up(&router("command: \"no-such-program -x\", restart: 1h"), "");
    rivulet.wait_for_line("there is no program `no-such-program`");
    rivulet.end();
    fs::write(network.path("policy.rvl"), router("setup: \"nft -f /no/such/file\"")).unwrap();
    let line = format!(
        "{} up {} --port inside=inside --port outside=outside",
        env!("CARGO_BIN_EXE_rivulet"),
        network.path("policy.rvl").display()
    );
    let output = network.middle.output(&line);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("`nft -f /no/such/file` failed"), "{said}");
    assert!(!network.middle.run("ip -br link").contains("box-"));
}

const SURICATA: &str = "%YAML 1.1
---
default-log-dir: DIR
default-rule-path: DIR
rule-files: [box.rules]
app-layer: { protocols: { http: { enabled: yes } } }
outputs:
  - eve-log: { enabled: yes, filetype: regular, filename: eve.json, types: [alert] }
af-packet:
  - { interface: eth0, copy-mode: ips, copy-iface: eth1, cluster-id: 98, cluster-type: cluster_flow, threads: 1, defrag: no }
  - { interface: eth1, copy-mode: ips, copy-iface: eth0, cluster-id: 97, cluster-type: cluster_flow, threads: 1, defrag: no }
";

#[test]
fn suricata_inspects_a_wire() {
    if !is_installed("suricata") {
        return;
    }
    let _alone = alone();
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let folder = network.dir.path().display().to_string();
    let rules = "alert http any any -> any any (msg:\"a secret\"; http.uri; content:\"secret\"; sid:1;)
drop tcp any any -> any 81 (msg:\"closed\"; sid:2;)\n";
    fs::write(network.path("box.rules"), rules).unwrap();
    fs::write(network.path("suricata.yaml"), SURICATA.replace("DIR", &folder)).unwrap();
    let policy = format!(
        "Port<0> inside; Port<1> outside; Monitor before; Monitor behind;
         Legacy box {{
           command: \"suricata -c {folder}/suricata.yaml --af-packet -l {folder} --pidfile {folder}/box.pid\";
         }};
         pipelet {{ inside <-> before <-> box <-> behind <-> outside; }}"
    );
    let rivulet = network.up(&policy, "");
    let _open = network.outside.serve("python3 -m http.server --bind :: 80", 80);
    let _closed = network.outside.serve("python3 -m http.server --bind :: 81", 81);
    wait_until("Suricata passes packets", || answers(&network.inside, "10.7.0.2"));
    network.inside.run("curl -sS -m 30 -o /dev/null http://10.7.0.2/?secret");
    let closed = network.inside.output("curl -sS -m 2 -o /dev/null http://10.7.0.2:81/");
    assert!(!closed.status.success());
    let logged = || fs::read_to_string(network.path("eve.json")).unwrap_or_default();
    wait_until("Suricata has raised both alerts", || {
        logged().contains("a secret") && logged().contains("closed")
    });
    let report = rivulet.end();
    assert_eq!(report["programs"]["box"]["up"], 1);
    assert!(!network.middle.run("ip -br link").contains("box-"));
}

#[test]
fn native_program_is_reached_by_memif() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let socket = |side: &str| network.path(&format!("{side}.sock")).display().to_string();
    let policy = format!(
        "Port<0> inside; Port<1> outside; Monitor before; Monitor behind;
         Native box {{ ports: {{ inside: \"memif:{}\", outside: \"memif:{}\" }} }};
         pipelet {{ inside <-> before <-> box <-> behind <-> outside; }}",
        socket("in"),
        socket("out"),
    );
    let rivulet = network.up(&policy, "");
    // No program is connected.
    assert!(!answers(&network.inside, "10.7.0.2"));
    let program = second_rivulet(&network, [&socket("in"), &socket("out")]);
    wait_until("the program passes packets", || answers(&network.inside, "10.7.0.2"));
    network.inside.ping("-c 5 -i 0.05 -W 2 fd07::2");
    let _server = network.outside.serve("python3 -m http.server --bind :: 80", 80);
    network.inside.run("curl -sS -m 20 -o /dev/null http://10.7.0.2/");
    drop(program);
    wait_until("the program's end is seen", || !answers(&network.inside, "10.7.0.2"));
    let program = second_rivulet(&network, [&socket("in"), &socket("out")]);
    wait_until("it passes packets again", || answers(&network.inside, "10.7.0.2"));
    let report = rivulet.end();
    drop(program);
    let node = &report["programs"]["box"];
    assert_eq!(node["up"], 1, "{node}");
    assert!(node["dropped"].as_u64().unwrap() > 0, "{node}");
    assert_eq!(report["drops"]["node-down"], node["dropped"]);
}

/// Starts another Rivulet as the program of a native node, between these sockets.
fn second_rivulet(network: &Network, [inside, outside]: [&str; 2]) -> Server {
    fs::write(network.path("program.rvl"), "Port<0> a; Port<1> b; pipelet { a <-> b; }").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rivulet"));
    command.arg("up").arg(network.path("program.rvl"));
    for (port, socket) in [("a", inside), ("b", outside)] {
        command.args(["--port", &format!("{port}=memif:{socket},role=client")]);
    }
    Server::of(command.arg("--quiet").stdout(Stdio::null()).spawn().unwrap())
}
