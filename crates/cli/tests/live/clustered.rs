//! A dispatcher between real hosts, and units on hosts of their own, which are restarted one by one
//! or get another policy while connections go on, and an operator moves flows to and fro.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use crate::net::{Host, Io, Network, PATIENCE, Server, wait_until};
use crate::operator::Operator;

/// Functions whose flows share no state.
const POLICY: &str = "Port<0> inside; Port<1> outside;
    Firewall f { rules: \"allow out from any\", default: deny, tcp: strict };
    Monitor m { report: [] };
    pipelet { inside <-> f <-> m <-> outside; }";

/// Bytes of a download, and its rate: it goes on while a unit is restarted.
const FILE_LEN: usize = 4 << 20;
const RATE: &str = "1M";
/// Pings beside the downloads, 20 a second.
const PINGS: &str = "200";

const UNITS: [&str; 3] = ["u1", "u2", "u3"];

/// A unit on a host of its own.
struct UnitHost {
    name: &'static str,
    host: Host,
    process: Option<Child>,
    said: Option<Receiver<String>>,
}

impl UnitHost {
    fn new(network: &Network, number: usize, name: &'static str, is_found: bool) -> UnitHost {
        let host = network.third(name, &[&format!("10.9.{number}.2/24")]);
        network.middle.ip(&format!("addr add 10.9.{number}.1/24 dev {name}"));
        host.ip(&format!("route add default via 10.9.{number}.1"));
        let address = match is_found {
            true => format!(
                "listen = \"0.0.0.0:7400\"\naddress = \"10.9.{number}.2:7400\"\n{}",
                store(&format!("10.9.{number}.1"))
            ),
            false => format!("listen = \"10.9.{number}.2:7400\"\n"),
        };
        let config = format!(
            "name = \"{name}\"\nrole = \"unit\"\npolicy = \"policy.rvl\"\ncertificates = \"ca\"\n{address}"
        );
        std::fs::write(network.path(&format!("{name}.toml")), config).unwrap();
        UnitHost { name, host, process: None, said: None }
    }

    /// Starts the unit, and waits until it listens.
    fn start(&mut self, network: &Network) {
        let mut process = self
            .host
            .command(env!("CARGO_BIN_EXE_rivulet"))
            .args(["node", "--config", &format!("{}.toml", self.name)])
            .env("RIVULET_LOG", "info")
            .current_dir(network.path(""))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, said) = channel();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        self.process = Some(process);
        self.said = Some(said);
        self.wait_for_line(" listens at ");
    }

    fn wait_for_line(&self, words: &str) {
        while !self.said.as_ref().unwrap().recv_timeout(PATIENCE).unwrap().contains(words) {}
    }

    /// Ends the unit as an operator does.
    fn end(&mut self) {
        let mut process = self.process.take().unwrap();
        assert!(Command::new("kill").args(["-TERM", &process.id().to_string()]).status().unwrap().success());
        assert!(process.wait().unwrap().success());
    }
}

impl Drop for UnitHost {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A store in etcd at a host.
fn store(host: &str) -> String {
    format!("[store]\netcd = [\"http://{host}:2379\"]\n")
}

/// Starts etcd in the middle, where the dispatcher is.
fn start_etcd(network: &Network) -> Server {
    let folder = network.path("etcd").display().to_string();
    let urls = "--listen-client-urls http://0.0.0.0:2379 --advertise-client-urls http://127.0.0.1:2379";
    network.middle.serve(&format!("etcd --data-dir {folder} {urls}"), 2379)
}

/// Starts units on hosts of their own, and writes the dispatcher's configuration. `is_found`: it
/// finds them in the store.
fn start_units(network: &Network, policy: &str, is_found: bool) -> Vec<UnitHost> {
    network.middle.run("sysctl -qw net.ipv4.ip_forward=1");
    let rivulet = env!("CARGO_BIN_EXE_rivulet");
    let issued = network.middle.run(&format!(
        "{rivulet} cluster init {} dispatcher {}",
        network.path("ca").display(),
        UNITS.join(" ")
    ));
    assert_eq!(issued.lines().count(), 4, "{issued}");
    std::fs::write(network.path("policy.rvl"), policy).unwrap();
    let mut units: Vec<_> =
        (1..).zip(UNITS).map(|(number, name)| UnitHost::new(network, number, name, is_found)).collect();
    units.iter_mut().for_each(|unit| unit.start(network));
    let addresses = (1..).zip(UNITS).map(|(number, name)| format!("{name} = \"10.9.{number}.2:7400\"\n"));
    let units_of = match is_found {
        true => format!("units_min = {}\n{}", UNITS.len(), store("127.0.0.1")),
        false => format!("[units]\n{}", addresses.collect::<String>()),
    };
    let config = format!("name = \"dispatcher\"\ncertificates = \"ca\"\n{units_of}");
    std::fs::write(network.path("dispatcher.toml"), config).unwrap();
    units
}

/// Serves a file at the outside host's port 8000, as `/file`.
fn serve_file(network: &Network) -> (Vec<u8>, Server) {
    let file: Vec<u8> = (0..FILE_LEN).map(|at| ((at * at) >> 7) as u8).collect();
    std::fs::create_dir(network.path("www")).unwrap();
    std::fs::write(network.path("www/file"), &file).unwrap();
    let folder = network.path("www").display().to_string();
    let server = network.outside.serve(&format!("python3 -m http.server -d {folder} 8000"), 8000);
    (file, server)
}

#[test]
fn units_are_restarted_one_by_one_while_connections_go_on() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let etcd = start_etcd(&network);
    let mut units = start_units(&network, POLICY, true);
    let up = network.up(POLICY, "--cluster dispatcher.toml --mode flow --api api.sock");
    let (file, _server) = serve_file(&network);
    wait_until("the first download succeeds", || {
        network.inside.output("curl -sf -m 5 -o /dev/null -r 0-99 http://10.7.0.2:8000/file").status.success()
    });
    let fetched = network.path("fetched").display().to_string();
    let mut pings = network.inside.command("ping");
    let pings = pings.args(["-q", "-i", "0.05", "-c", PINGS, "-w", "60", "fd07::2"]);
    let pings = pings.stdout(Stdio::piped()).spawn().unwrap();
    let socket = network.path("api.sock");
    let curl = |path: &str| -> serde_json::Value {
        let line = format!("curl -sf --unix-socket {} http://localhost{path}", socket.display());
        serde_json::from_str(&network.middle.run(&line)).unwrap()
    };
    assert!(curl("/v1/status")["dispatcher"]["flows"].as_u64() > Some(0));
    wait_until("all units are found", || {
        let nodes = curl("/v1/nodes");
        let nodes = nodes["items"].as_array().unwrap();
        nodes.len() == UNITS.len() && nodes.iter().all(|node| node["status"] == "active")
    });
    let operator = Operator::start(socket.clone());
    let download = || {
        let args = ["-sSf", "--limit-rate", RATE, "-o", &fetched, "http://10.7.0.2:8000/file"];
        network.inside.command("curl").args(args).spawn().unwrap()
    };
    let check = |mut download: Child| {
        assert!(download.wait().unwrap().success());
        assert!(std::fs::read(&fetched).unwrap() == file, "the file is damaged");
    };
    // Traffic does not need the store.
    drop(etcd);
    check(download());
    let _etcd = start_etcd(&network);
    for unit in &mut units {
        let download = download();
        unit.end();
        unit.start(&network);
        // The dispatcher has found it again; it is another unit now.
        unit.wait_for_line("node connected");
        check(download);
    }
    let pings = pings.wait_with_output().unwrap();
    let pings = String::from_utf8_lossy(&pings.stdout).into_owned();
    assert!(pings.contains(" 0% packet loss"), "{pings}");
    let by_operator = operator.end();
    let report = up.end();
    assert!(by_operator > 100, "{by_operator}");
    assert!(report["units"]["flows_migrated"].as_u64() >= Some(by_operator), "{report}");
    assert_eq!(report["drops"].get("unit-lost"), None, "{report}");
    let moved = report["units"]["states_moved"].as_u64().unwrap();
    assert!(moved > 0, "{report}");
}

/// A NAT, beside functions whose flows share nothing, and a load balancer before it.
const NAT_POLICY: &str = "Port<0> inside; Port<1> outside;
    Firewall f { rules: \"allow out from any\", default: deny, tcp: strict };
    LoadBalancer lb { services: [{ name: web, vip: 10.7.0.200, port: 80, servers: [
        { name: one, address: 10.7.0.2, port: 8000 },
    ] }] };
    NAT n { external: [10.7.0.100, 10.7.0.101] };
    IDS watch { rules: \"alert http any any -> any any (msg:\\\"a file\\\"; http.uri; content:\\\"/file\\\"; sid:1; rev:1;)\" };
    pipelet { inside <-> f <-> lb <-> n <-> watch <-> outside; }";

#[test]
fn another_policy_is_applied_while_connections_go_on() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let policy = NAT_POLICY.replace("rules: \"allow out from any\"", "rules: file(\"site.rules\")");
    std::fs::write(network.path("site.rules"), "allow out from any").unwrap();
    let units = start_units(&network, &policy, false);
    let up = network.up(&policy, "--cluster dispatcher.toml --mode flow --api api.sock");
    let mac = |host: &Host| host.run("cat /sys/class/net/eth0/address").trim().to_owned();
    for external in ["10.7.0.100", "10.7.0.101"] {
        network.outside.ip(&format!("neigh add {external} lladdr {} dev eth0", mac(&network.inside)));
    }
    let (file, _server) = serve_file(&network);
    let _denied = network.outside.serve("python3 -m http.server 8001", 8001);
    let get = |port: u16, options: &str| {
        network.inside.output(&format!("curl -sf -m 5 -o /dev/null {options} http://10.7.0.2:{port}/"))
    };
    for port in [8000, 8001] {
        wait_until("the first downloads succeed", || get(port, "").status.success());
    }
    let fetched = network.path("fetched").display().to_string();
    let args = ["-sSf", "--limit-rate", RATE, "-o", &fetched, "http://10.7.0.2:8000/file"];
    let mut download = network.inside.command("curl").args(args).spawn().unwrap();
    wait_until("the download has begun", || network.path("fetched").exists());

    let folder = network.path("");
    let apply = |policy: &str, rules: &str| {
        std::fs::write(network.path("site.rules"), rules).unwrap();
        std::fs::write(network.path("next.rvl"), policy).unwrap();
        let program = env!("CARGO_BIN_EXE_rivulet");
        let mut command = network.middle.command(program);
        command.args(["apply", "next.rvl", "--api", "api.sock"]).current_dir(&folder).output().unwrap()
    };
    let said = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = apply(&policy, "allow out from any\npermit in");
    assert!(said(&refused).contains("site.rules:2:1"), "{}", said(&refused));
    let refused = apply(&policy.replace("10.7.0.101]", "10.7.0.102]"), "allow out from any");
    assert!(said(&refused).contains("leases items of a pool"), "{}", said(&refused));
    let applied = apply(&policy, "deny out tcp to any port 8001\nallow out from any");
    assert!(applied.status.success(), "{}", said(&applied));

    assert!(download.wait().unwrap().success());
    assert!(std::fs::read(&fetched).unwrap() == file, "the file is damaged");
    assert!(get(8000, "").status.success());
    assert!(!get(8001, "-m 2").status.success());
    let report = up.end();
    assert_eq!(report["drops"].get("unit-lost"), None, "{report}");
    assert!(report["units"]["groups_moved"].as_u64() > Some(0), "{report}");
    drop(units);
}

/// Further addresses of the inside host: subscribers in several affinity groups.
const SUBSCRIBERS: std::ops::Range<u8> = 11..19;

/// Answers each datagram with the address that it came from.
const MIRROR: &str = "import socket, select
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
for port, s in zip(range(9001, 9004), sockets): s.bind(('10.7.0.2', port))
listening = socket.socket()
listening.bind(('10.7.0.2', 9000))
listening.listen()
while True:
    for s in select.select(sockets, [], [])[0]:
        data, peer = s.recvfrom(100)
        s.sendto(('%s:%d' % peer).encode(), peer)
";

/// Asks three ports from one endpoint of each subscriber, until a file is there. Prints the answers
/// of each, and unanswered questions.
const ASKING: &str = "import os, socket, sys, time
asking = {}
for host in range(11, 19):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(('10.7.0.%d' % host, 5555))
    s.settimeout(2)
    asking[host] = (s, set())
lost = asked = 0
while not os.path.exists(sys.argv[1]):
    for s, answers in asking.values():
        for port in (9001, 9002, 9003):
            asked += 1
            s.sendto(b'?', ('10.7.0.2', port))
            try: answers.add(s.recv(100).decode())
            except TimeoutError: lost += 1
    time.sleep(0.02)
print(asked, lost, *('+'.join(sorted(answers)) for _, answers in asking.values()))
";

// RFC 4787 REQ-1
#[test]
fn nat_keeps_its_mappings_while_its_units_are_restarted() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let mut units = start_units(&network, NAT_POLICY, false);
    let up = network.up(NAT_POLICY, "--cluster dispatcher.toml --mode flow");
    let mac = |host: &Host| host.run("cat /sys/class/net/eth0/address").trim().to_owned();
    for external in ["10.7.0.100", "10.7.0.101"] {
        network.outside.ip(&format!("neigh add {external} lladdr {} dev eth0", mac(&network.inside)));
    }
    network.inside.ip(&format!("neigh add 10.7.0.200 lladdr {} dev eth0", mac(&network.outside)));
    SUBSCRIBERS.for_each(|host| network.inside.ip(&format!("addr add 10.7.0.{host}/24 dev eth0")));
    let (file, _server) = serve_file(&network);
    let _iperf3 = network.outside.serve("iperf3 -s", 5201);
    std::fs::write(network.path("mirror.py"), MIRROR).unwrap();
    std::fs::write(network.path("asking.py"), ASKING).unwrap();
    let [mirror, asking, stop] = ["mirror.py", "asking.py", "stop"].map(|name| network.path(name));
    let _mirror = network.outside.serve(&format!("python3 {}", mirror.display()), 9000);
    wait_until("the first download succeeds", || {
        network.inside.output("curl -sf -m 5 -o /dev/null -r 0-99 http://10.7.0.200/file").status.success()
    });
    let spawn = |program: &str, args: &[&str]| {
        network.inside.command(program).args(args).stdout(Stdio::piped()).spawn().unwrap()
    };
    let (asking, stop) = (asking.display().to_string(), stop.display().to_string());
    let asking = spawn("python3", &[&asking, &stop]);
    let stream = spawn("iperf3", &["-c", "10.7.0.2", "-B", "10.7.0.18", "-u", "-b", "1M", "-t", "12", "-J"]);
    for unit in &mut units {
        let downloads: Vec<_> = SUBSCRIBERS
            .map(|host| {
                let to = network.path(&format!("fetched-{host}")).display().to_string();
                let from = format!("10.7.0.{host}");
                let server = if host % 2 == 0 { "10.7.0.2:8000" } else { "10.7.0.200" };
                let url = format!("http://{server}/file");
                let args = ["-sSf", "--interface", &from, "--limit-rate", RATE, "-o", &to, &url];
                (spawn("curl", &args), to)
            })
            .collect();
        unit.end();
        unit.start(&network);
        unit.wait_for_line("node connected");
        for (mut download, to) in downloads {
            assert!(download.wait().unwrap().success(), "{to}");
            assert!(std::fs::read(&to).unwrap() == file, "{to} is damaged");
        }
    }
    std::fs::write(&stop, "").unwrap();
    let asked = String::from_utf8(asking.wait_with_output().unwrap().stdout).unwrap();
    let answers: Vec<&str> = asked.split_whitespace().collect();
    assert!(answers[0].parse::<u32>().unwrap() > 300 && answers[1] == "0", "{asked}");
    assert_eq!(answers.len(), 2 + SUBSCRIBERS.len());
    assert!(answers[2..].iter().all(|all| all.starts_with("10.7.0.10") && !all.contains('+')), "{asked}");
    let stream = stream.wait_with_output().unwrap().stdout;
    let stream: serde_json::Value = serde_json::from_slice(&stream).unwrap();
    assert_eq!(stream["end"]["sum"]["lost_packets"], 0, "{stream}");
    let report = up.end();
    assert_eq!(report["drops"].get("unit-lost"), None, "{report}");
    let moved = report["units"]["groups_moved"].as_u64().unwrap();
    assert!(moved >= 3, "{report}");
}
