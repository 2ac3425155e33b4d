//! Units on hosts of their own, and a file to be fetched through them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

use crate::net::{Host, Network, PATIENCE, Server};
use crate::underlay::Underlay;

/// Bytes of a download, and its rate: it lasts longer than the restart of a unit.
const FILE_LEN: usize = 4 << 20;
pub const RATE: &str = "1M";
/// The units of most tests.
pub const UNITS: [&str; 3] = ["u1", "u2", "u3"];

/// Functions without state shared by flows.
pub const POLICY: &str = "Port<0> inside; Port<1> outside;
    Firewall f { rules: \"allow out from any\", default: deny, tcp: strict };
    Monitor m { report: [] };
    pipelet { inside <-> f <-> m <-> outside; }";

/// A NAT, a load balancer before it, and functions without state shared by flows.
pub const NAT_POLICY: &str = "Port<0> inside; Port<1> outside;
    Firewall f { rules: \"allow out from any\", default: deny, tcp: strict };
    LoadBalancer lb { services: [{ name: web, vip: 10.7.0.200, port: 80, servers: [
        { name: one, address: 10.7.0.2, port: 8000 },
    ] }] };
    NAT n { external: [10.7.0.100, 10.7.0.101] };
    IDS watch { rules: \"alert http any any -> any any (msg:\\\"a file\\\"; http.uri; content:\\\"/file\\\"; sid:1; rev:1;)\" };
    pipelet { inside <-> f <-> lb <-> n <-> watch <-> outside; }";

/// A unit on a host of its own.
pub struct UnitHost {
    pub name: &'static str,
    host: Host,
    process: Option<Child>,
    said: Option<Receiver<String>>,
    /// Processes so far.
    starts: u32,
}

impl UnitHost {
    fn new(network: &Network, number: usize, name: &'static str, is_found: bool) -> UnitHost {
        let underlay = network.underlay;
        let host = network.join(name, number);
        let reached = underlay.unit(name, number);
        let address = match (is_found, underlay) {
            (true, _) => format!(
                "listen = \"[::]:7400\"\naddress = \"{reached}\"\n{}",
                store(&underlay.socket(number, 1, 2379))
            ),
            (false, Underlay::Names) => "listen = \"[::]:7400\"\n".to_owned(),
            (false, _) => format!("listen = \"{reached}\"\n"),
        };
        let config = format!(
            "name = \"{name}\"\nrole = \"unit\"\npolicy = \"policy.rvl\"\ncertificates = \"ca\"\n{address}"
        );
        std::fs::write(network.path(&format!("{name}.toml")), config).unwrap();
        UnitHost { name, host, process: None, said: None, starts: 0 }
    }

    /// Starts the unit, and waits until it listens.
    pub fn start(&mut self, network: &Network) {
        let mut process = self
            .host
            .command(env!("CARGO_BIN_EXE_rivulet"))
            .args(["node", "--config", &format!("{}.toml", self.name)])
            .args(["--report", &format!("{}-{}.json", self.name, self.starts)])
            .env("RIVULET_LOG", "info")
            .env("STATE_DIRECTORY", network.path("state"))
            .current_dir(network.path(""))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, said) = channel();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        self.process = Some(process);
        self.starts += 1;
        self.said = Some(said);
        self.wait_for_line(" listens at ");
    }

    pub fn wait_for_line(&self, words: &str) {
        while !self.said.as_ref().unwrap().recv_timeout(PATIENCE).unwrap().contains(words) {}
    }

    /// Returns the lines printed since the last call.
    pub fn said_so_far(&self) -> Vec<String> {
        self.said.iter().flat_map(Receiver::try_iter).collect()
    }

    /// Ends the unit as an operator does.
    pub fn end(&mut self) {
        self.signal("TERM");
        self.wait_for_end();
    }

    /// Sends a signal to the unit's process.
    pub fn signal(&self, signal: &str) {
        let process = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &process]).status().unwrap().success());
    }

    /// Kills the unit's process.
    pub fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    /// Returns the host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Waits until the unit has ended by itself.
    pub fn wait_for_end(&mut self) {
        assert!(self.process.take().unwrap().wait().unwrap().success());
    }

    /// Returns the reports of all its processes, which have ended.
    pub fn reports(&self, network: &Network) -> Vec<Value> {
        let files = (0..self.starts).map(|start| network.path(&format!("{}-{start}.json", self.name)));
        files.map(|file| serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()).collect()
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

/// Returns a store in etcd at an address.
fn store(at: &str) -> String {
    format!("[store]\netcd = [\"http://{at}\"]\n")
}

/// Starts etcd in the middle, where the dispatcher is.
pub fn start_etcd(network: &Network) -> Server {
    let folder = network.path("etcd").display().to_string();
    let urls = "--listen-client-urls http://[::]:2379 --advertise-client-urls http://127.0.0.1:2379";
    network.middle.serve(&format!("etcd --data-dir {folder} {urls}"), 2379)
}

/// Starts units on hosts of their own, and writes the dispatcher's configuration. `is_found`: it
/// finds them in the store.
pub fn start_units(network: &Network, policy: &str, is_found: bool) -> Vec<UnitHost> {
    let units = start_nodes(network, policy, (&UNITS, is_found), &["dispatcher"]);
    let units_of = match is_found {
        true => format!("units_min = {}\n{}", UNITS.len(), store("127.0.0.1:2379")),
        false => network.underlay.units(&UNITS),
    };
    let config = format!("name = \"dispatcher\"\ncertificates = \"ca\"\n{units_of}");
    std::fs::write(network.path("dispatcher.toml"), config).unwrap();
    units
}

/// Issues certificates for these nodes, and starts the units among them.
pub fn start_nodes(
    network: &Network,
    policy: &str,
    (units, are_found): (&[&'static str], bool),
    dispatchers: &[&str],
) -> Vec<UnitHost> {
    network.middle.run(&format!("sysctl -qw {}=1", network.underlay.forwarding()));
    let dispatchers = dispatchers.iter().map(|name| format!("dispatcher:{name}"));
    let names: Vec<String> = dispatchers.chain(units.iter().map(|name| format!("unit:{name}"))).collect();
    let issued = network.middle.run(&format!(
        "{} cluster init {} {}",
        env!("CARGO_BIN_EXE_rivulet"),
        network.path("ca").display(),
        names.join(" ")
    ));
    assert_eq!(issued.lines().count(), names.len(), "{issued}");
    std::fs::write(network.path("policy.rvl"), policy).unwrap();
    let mut units: Vec<_> =
        (1..).zip(units).map(|(number, name)| UnitHost::new(network, number, name, are_found)).collect();
    units.iter_mut().for_each(|unit| unit.start(network));
    units
}

/// Serves a file at the outside host's port 8000, as `/file`.
pub fn serve_file(network: &Network) -> (Vec<u8>, Server) {
    let file: Vec<u8> = (0..FILE_LEN).map(|at| ((at * at) >> 7) as u8).collect();
    std::fs::create_dir(network.path("www")).unwrap();
    std::fs::write(network.path("www/file"), &file).unwrap();
    let folder = network.path("www").display().to_string();
    let server = network.outside.serve(&format!("python3 -m http.server --bind :: -d {folder} 8000"), 8000);
    (file, server)
}
