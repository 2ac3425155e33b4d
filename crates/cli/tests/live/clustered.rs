//! A dispatcher between real hosts, and units on hosts of their own, which are restarted one by one
//! while connections go on.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use crate::net::{Host, Io, Network, PATIENCE, wait_until};

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
    fn new(network: &Network, number: usize, name: &'static str) -> UnitHost {
        let host = network.third(name, &[&format!("10.9.{number}.2/24")]);
        network.middle.ip(&format!("addr add 10.9.{number}.1/24 dev {name}"));
        host.ip(&format!("route add default via 10.9.{number}.1"));
        let config = format!(
            "name = \"{name}\"\nrole = \"unit\"\nlisten = \"10.9.{number}.2:7400\"\npolicy = \"policy.rvl\"\ncertificates = \"ca\"\n"
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

#[test]
fn units_are_restarted_one_by_one_while_connections_go_on() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    network.middle.run("sysctl -qw net.ipv4.ip_forward=1");
    let rivulet = env!("CARGO_BIN_EXE_rivulet");
    let issued = network.middle.run(&format!(
        "{rivulet} cluster init {} dispatcher {}",
        network.path("ca").display(),
        UNITS.join(" ")
    ));
    assert_eq!(issued.lines().count(), 4, "{issued}");
    std::fs::write(network.path("policy.rvl"), POLICY).unwrap();
    let mut units: Vec<_> =
        (1..).zip(UNITS).map(|(number, name)| UnitHost::new(&network, number, name)).collect();
    units.iter_mut().for_each(|unit| unit.start(&network));
    let addresses = (1..).zip(UNITS).map(|(number, name)| format!("{name} = \"10.9.{number}.2:7400\"\n"));
    let config =
        format!("name = \"dispatcher\"\ncertificates = \"ca\"\n[units]\n{}", addresses.collect::<String>());
    std::fs::write(network.path("dispatcher.toml"), config).unwrap();
    let up = network.up(POLICY, "--cluster dispatcher.toml --mode flow");

    let file: Vec<u8> = (0..FILE_LEN).map(|at| ((at * at) >> 7) as u8).collect();
    std::fs::create_dir(network.path("www")).unwrap();
    std::fs::write(network.path("www/file"), &file).unwrap();
    let folder = network.path("www").display().to_string();
    let _server = network.outside.serve(&format!("python3 -m http.server -d {folder} 8000"), 8000);
    wait_until("the first download succeeds", || {
        network.inside.output("curl -sf -m 5 -o /dev/null -r 0-99 http://10.7.0.2:8000/file").status.success()
    });
    let fetched = network.path("fetched").display().to_string();
    let mut pings = network.inside.command("ping");
    let pings = pings.args(["-q", "-i", "0.05", "-c", PINGS, "-w", "60", "fd07::2"]);
    let pings = pings.stdout(Stdio::piped()).spawn().unwrap();
    for unit in &mut units {
        let mut download = network
            .inside
            .command("curl")
            .args(["-sSf", "--limit-rate", RATE, "-o", &fetched, "http://10.7.0.2:8000/file"])
            .spawn()
            .unwrap();
        unit.end();
        unit.start(&network);
        // The dispatcher has found it again; it is another unit now.
        unit.wait_for_line("node connected");
        assert!(download.wait().unwrap().success());
        assert!(std::fs::read(&fetched).unwrap() == file, "the file is damaged");
    }
    let pings = pings.wait_with_output().unwrap();
    let pings = String::from_utf8_lossy(&pings.stdout).into_owned();
    assert!(pings.contains(" 0% packet loss"), "{pings}");
    let report = up.end();
    assert_eq!(report["drops"].get("unit-lost"), None, "{report}");
    let moved = report["units"]["states_moved"].as_u64().unwrap();
    assert!(moved > 0, "{report}");
}
