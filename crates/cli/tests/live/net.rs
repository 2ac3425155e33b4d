//! Test networks: namespaces with Rivulet between them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, mpsc};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::underlay::Underlay;
use crate::wire::Wire;

/// Two hosts, `inside` and `outside`, each with one interface `eth0`, and the box in the middle
/// with the other ends, also called `inside` and `outside`.
pub struct Network {
    io: Io,
    pub inside: Host,
    pub middle: Host,
    pub outside: Host,
    pub dir: TempDir,
    /// Addresses between the hosts of a cluster.
    pub underlay: Underlay,
    wire: Option<Wire>,
}

/// The driver of Rivulet's interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    PacketSocket,
    Xdp,
    /// Rivulet's choice.
    Auto,
}

impl Io {
    /// Returns the value of `--driver`.
    pub fn option(self) -> &'static str {
        match self {
            Io::PacketSocket => "packet",
            Io::Xdp => "xdp",
            Io::Auto => "auto",
        }
    }
}

/// Makes each of these functions two tests: with packet sockets and with AF_XDP.
macro_rules! by_each_way {
    ($($name:ident),+ $(,)?) => {
        mod packet_sockets {
            $(#[test] fn $name() { super::$name(crate::net::Io::PacketSocket); })+
        }
        mod xdp {
            $(#[test] fn $name() { super::$name(crate::net::Io::Xdp); })+
        }
    };
}
pub(crate) use by_each_way;

/// A network namespace.
pub struct Host {
    name: String,
}

/// The interfaces of the middle as ports.
pub const PORTS: [&str; 2] = ["inside=inside", "outside=outside"];

/// The last byte of the MAC addresses of further hosts.
const THIRD: u8 = 3;

/// Rounds without a frame before a thread sleeps.
const AWAKE_ROUNDS: u64 = 64;

/// Wake-ups per second that the report does not count: orders to workers, signals. A spinning
/// thread has a thousand times as many.
const WAKEUPS_PER_SECOND_MAX: f64 = 250.0;

/// Timeout of everything that must happen. Only failures take this long.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Programs used by the tests, in addition to `ip`.
const TOOLS: [&str; 20] = [
    "ping",
    "traceroute",
    "curl",
    "dig",
    "iperf3",
    "python3",
    "nc",
    "tcpdump",
    "turnserver",
    "prometheus",
    "tshark",
    "nmap",
    "nping",
    "nghttpd",
    "ssh",
    "sshd",
    "nft",
    "ethtool",
    "nsenter",
    "pgrep",
];

impl Network {
    /// Creates hosts on one network: 10.7.0.1 and fd07::1 inside, 10.7.0.2 and fd07::2 outside. If
    /// namespaces or tools are missing, prints a message and returns `None`; fails in CI.
    pub fn new(io: Io) -> Option<Network> {
        let network = Network::unconnected(io)?;
        network.connect("inside");
        network.connect("outside");
        Some(network)
    }

    /// Creates hosts on two networks: 10.7.0.1 and fd07::1 inside, with default routes by
    /// 10.7.0.254 and fd07::254; 203.0.113.2 and fd08::2 outside, with a route to fd07::/64 by
    /// fd08::254.
    pub fn routed(io: Io) -> Option<Network> {
        let network = Network::unconnected(io)?;
        network.connect_with("inside", &["10.7.0.1/24", "fd07::1/64"]);
        network.connect_with("outside", &["203.0.113.2/24", "fd08::2/64"]);
        network.inside.ip("route add default via 10.7.0.254");
        network.inside.ip("-6 route add default via fd07::254");
        network.outside.ip("-6 route add fd07::/64 via fd08::254");
        Some(network)
    }

    /// Creates the hosts without connections.
    pub fn unconnected(io: Io) -> Option<Network> {
        static MISSING: LazyLock<Option<String>> = LazyLock::new(missing);
        static XDP_MISSING: LazyLock<Option<String>> = LazyLock::new(xdp_missing);
        let xdp_missing = || if io == Io::Xdp { XDP_MISSING.as_ref() } else { None };
        if let Some(why) = MISSING.as_ref().or_else(xdp_missing) {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
            println!("SKIPPED: {why}");
            return None;
        }
        Some(Network::of(io))
    }

    fn of(io: Io) -> Network {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let host = |end: &str| Host::new(format!("rvl{}-{number}{end}", std::process::id()));
        Network {
            io,
            inside: host("i"),
            middle: host("m"),
            outside: host("o"),
            dir: tempfile::tempdir().unwrap(),
            underlay: Underlay::default(),
            wire: None,
        }
    }

    /// Has frames between the middle and each later [third](Network::third) host take a time in
    /// milliseconds, and up to this much more or less.
    pub fn delay(&mut self, delay_ms: [u32; 2]) {
        self.wire = Some(Wire::new(Host::new(format!("{}-wire", self.middle.name)), delay_ms));
    }

    /// Connects a host with the middle, and assigns its addresses on the one network.
    pub fn connect(&self, name: &str) {
        let last = if name == "inside" { 1 } else { 2 };
        self.connect_with(name, &[&format!("10.7.0.{last}/24"), &format!("fd07::{last}/64")]);
    }

    /// Connects a host with the middle, and assigns these addresses.
    pub fn connect_with(&self, name: &str, addresses: &[&str]) {
        self.connect_by(name, addresses, "");
    }

    /// Does so by an interface of this kind.
    pub fn connect_by(&self, name: &str, addresses: &[&str], kind: &str) {
        let (end, last) = if name == "inside" { (&self.inside, 1) } else { (&self.outside, 2) };
        self.link(end, name, last, addresses, kind);
    }

    /// Creates one more host, connects it with the middle, and assigns these addresses.
    pub fn third(&self, name: &str, addresses: &[&str]) -> Host {
        let host = Host::new(format!("{}-{name}", self.middle.name));
        self.link(&host, name, THIRD, addresses, "");
        host
    }

    /// Creates one more host of a cluster, on this network of its own with the middle.
    pub fn join(&self, name: &str, network: usize) -> Host {
        let [middle, own] = [1, 2].map(|host| self.underlay.interface(network, host));
        let host = self.third(name, &[&own]);
        let nodad = if middle.contains(':') { "nodad" } else { "" };
        self.middle.ip(&format!("addr add {middle} dev {name} {nodad}"));
        host.ip(&format!("route add default via {}", self.underlay.host(network, 1)));
        if let Some(names) = self.underlay.names() {
            [&self.middle, &host].iter().for_each(|host| host.set_names(&names));
        }
        host
    }

    /// Connects another box to both hosts, in parallel to the one in the middle: through their
    /// interfaces `eth1`, with the MAC addresses of `eth0`.
    pub fn connect_beside(&self, beside: &Host) {
        for (end, name, last) in [(&self.inside, "inside", 1), (&self.outside, "outside", 2)] {
            ip(&format!("link add {name} netns {} type veth peer name eth1 netns {}", beside.name, end.name));
            end.ip(&format!("link set eth1 address 02:07:00:00:00:0{last}"));
            beside.ip(&format!("link set {name} up"));
            end.ip("link set eth1 up");
            // Packets arrive at another interface than their answers leave by.
            end.run("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0");
            end.run("sysctl -qw net.ipv4.conf.eth1.rp_filter=0");
        }
    }

    fn link(&self, end: &Host, name: &str, last: u8, addresses: &[&str], kind: &str) {
        let (middle, end_name) = (&self.middle.name, &end.name);
        match &self.wire {
            Some(wire) if last == THIRD => wire.join(self, end, name),
            _ => ip(&format!(
                "link add {name} netns {middle} {kind} type veth peer name eth0 netns {end_name} {kind}"
            )),
        }
        // The same address as before, so that neighbours find it after a reconnect.
        end.ip(&format!("link set eth0 address 02:07:00:00:00:0{last}"));
        self.middle.ip(&format!("link set {name} up"));
        end.ip("link set eth0 up");
        for address in addresses {
            let nodad = if address.contains(':') { "nodad" } else { "" };
            end.ip(&format!("addr add {address} dev eth0 {nodad}"));
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a policy in the middle, and returns once it is up.
    pub fn up(&self, policy: &str, options: &str) -> Rivulet {
        self.up_on(PORTS, policy, options)
    }

    /// Runs a policy in the middle for a supervisor with this socket.
    pub fn up_for(&self, supervisor: &Path, policy: &str) -> Rivulet {
        let mut command = self.middle.command(env!("CARGO_BIN_EXE_rivulet"));
        command.env("NOTIFY_SOCKET", supervisor);
        self.start(command, PORTS, policy, "up -o json")
    }

    /// Runs a dispatcher at another box, as a configuration says.
    pub fn node_at(&self, host: &Host, file: &str) -> Rivulet {
        let mut command = host.command(env!("CARGO_BIN_EXE_rivulet"));
        command.args(["node", "--config", file]);
        self.launch(command, PORTS)
    }

    /// Runs a policy on these interfaces.
    pub fn up_on<const N: usize>(&self, ports: [&str; N], policy: &str, options: &str) -> Rivulet {
        let command = self.middle.command(env!("CARGO_BIN_EXE_rivulet"));
        self.start(command, ports, policy, &format!("up -o json {options}"))
    }

    /// Runs a policy with `rivulet capture`.
    pub fn capture(&self, policy: &str, options: &str) -> Rivulet {
        let command = self.middle.command(env!("CARGO_BIN_EXE_rivulet"));
        self.start(command, PORTS, policy, &format!("capture {options}"))
    }

    /// Runs a policy on these interfaces with only these capabilities.
    pub fn up_with(&self, capabilities: &str, ports: [&str; 2], policy: &str, options: &str) -> Rivulet {
        let mut command = self.middle.command("setpriv");
        command.arg(bounding_set(capabilities)).arg(env!("CARGO_BIN_EXE_rivulet"));
        self.start(command, ports, policy, &format!("up -o json {options}"))
    }

    fn start<const N: usize>(
        &self,
        mut command: Command,
        ports: [&str; N],
        policy: &str,
        line: &str,
    ) -> Rivulet {
        std::fs::write(self.path("policy.rvl"), policy).unwrap();
        // The policy comes first: the last option may take a value.
        let mut words = line.split_whitespace();
        command
            .args(words.next())
            .arg("policy.rvl")
            .args(ports.iter().flat_map(|port| ["--port", *port]))
            .args(["--driver", self.io.option()])
            .args(words);
        self.launch(command, ports)
    }

    fn launch<const N: usize>(&self, mut command: Command, ports: [&str; N]) -> Rivulet {
        command.current_dir(self.dir.path()).env("STATE_DIRECTORY", self.path("state"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.starts_with("rivulet: up"), "{line}");
        // Ports of external nodes are not given.
        let is_given =
            |part: &&str| ![".inside on ", ".outside on ", ".streams on "].iter().any(|of| part.contains(of));
        let given: Vec<&str> = line.split(", ").filter(is_given).collect();
        let count = |way: &str| given.iter().filter(|part| part.contains(way)).count();
        let taps = ports.iter().filter(|port| port.contains("=tap:")).count();
        let devices = ports.iter().filter(|port| port.contains("=dpdk:")).count();
        let shared = ports.iter().filter(|port| port.contains("=memif:")).count();
        let others = (count("(tap)"), count("(dpdk)"), count("(memif)"));
        assert_eq!(others, (taps, devices, shared), "{line}");
        let rest = N - taps - devices - shared;
        match self.io {
            Io::PacketSocket => assert_eq!(count("(packet)"), rest, "{line}"),
            Io::Xdp => assert_eq!(count("(xdp_"), rest, "{line}"),
            Io::Auto => {}
        }
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                // The rest is part of the test's own output.
                println!("{line}");
                let _ = tell.send(line);
            }
        });
        Rivulet { child: Some(child), told }
    }
}

/// Returns the option of `setpriv` that leaves only these capabilities.
pub fn bounding_set(capabilities: &str) -> String {
    let short = capabilities.to_ascii_lowercase().replace("cap_", "+");
    format!("--bounding-set=-all,{short}").trim_end_matches(',').to_owned()
}

/// Returns why live tests cannot run here.
fn missing() -> Option<String> {
    let is_there =
        |tool: &&str| Command::new("which").arg(tool).output().is_ok_and(|out| out.status.success());
    if let Some(tool) = ["ip"].iter().chain(&TOOLS).find(|tool| !is_there(tool)) {
        return Some(format!("{tool} is not installed"));
    }
    let probe = format!("rvl{}-probe", std::process::id());
    let made = Command::new("ip").args(["netns", "add", &probe]).output().unwrap();
    let _ = Command::new("ip").args(["netns", "del", &probe]).output();
    (!made.status.success()).then(|| "network namespaces cannot be made: it takes root".to_owned())
}

/// Returns why AF_XDP cannot be tested here.
fn xdp_missing() -> Option<String> {
    let network = Network::of(Io::Xdp);
    network.connect("inside");
    network.connect("outside");
    std::fs::write(network.path("policy.rvl"), "Port<0> a;\nPort<1> b;\npipelet { a <-> b; }\n").unwrap();
    let policy = network.path("policy.rvl");
    let rivulet = env!("CARGO_BIN_EXE_rivulet");
    let options = "--port a=inside --port b=outside --driver xdp --duration 1ms";
    let output = network.middle.output(&format!("{rivulet} up {} {options}", policy.display()));
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Runs `ip`, which must succeed.
pub fn ip(line: &str) {
    let output = Command::new("ip").args(line.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Host {
    pub fn new(name: String) -> Host {
        let _ = Command::new("ip").args(["netns", "del", &name]).output();
        ip(&format!("netns add {name}"));
        ip(&format!("-n {name} link set lo up"));
        Host { name }
    }

    /// Returns the name of its namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Has programs that start on this host from now on know these names, a line each as in
    /// `/etc/hosts`. Later names replace them, also for running programs.
    pub fn set_names(&self, lines: &str) {
        let folder = self.names_folder();
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("hosts"), format!("127.0.0.1 localhost\n{lines}")).unwrap();
    }

    /// Returns the folder of files that `ip netns exec` puts in the place of those of `/etc`.
    fn names_folder(&self) -> PathBuf {
        Path::new("/etc/netns").join(&self.name)
    }

    /// Prepares a program on this host.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]).stdin(Stdio::null());
        command
    }

    /// Runs `ip` on this host.
    pub fn ip(&self, line: &str) {
        ip(&format!("-n {} {line}", self.name));
    }

    /// Runs a program on this host.
    pub fn output(&self, line: &str) -> Output {
        let mut words = line.split_whitespace();
        self.command(words.next().unwrap()).args(words).output().unwrap()
    }

    /// Runs a program on this host, which must succeed, and returns its output.
    pub fn run(&self, line: &str) -> String {
        printed(line, &self.output(line))
    }

    /// Pings with these options until all pings of a run are answered. A busy machine may lose one;
    /// Rivulet's report shows whether Rivulet lost it.
    pub fn ping(&self, options: &str) {
        wait_until(&format!("all pings of `{options}` are answered"), || {
            String::from_utf8_lossy(&self.output(&format!("ping {options}")).stdout)
                .contains(" 0% packet loss")
        });
    }

    /// Runs iperf3's client, which must succeed, and returns its output. Between two tests its
    /// server refuses clients for a moment, or resets clients not accepted yet; then the client
    /// retries.
    pub fn iperf3(&self, options: &str) -> String {
        let line = format!("iperf3 {options}");
        let mut output = self.output(&line);
        for _ in 0..10 {
            let said = [&output.stdout[..], &output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            let refusals = ["unable to connect", "control message: Connection reset by peer"];
            if output.status.success() || !refusals.iter().any(|refusal| said.contains(refusal)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            output = self.output(&line);
        }
        printed(&line, &output)
    }

    /// Starts a server program, and waits until the TCP port is open.
    pub fn serve(&self, line: &str, port: u16) -> Server {
        self.serve_with_log(line, port, Stdio::null())
    }

    /// Does so, and sends its standard error to `log`.
    pub fn serve_with_log(&self, line: &str, port: u16, log: impl Into<Stdio>) -> Server {
        let mut words = line.split_whitespace();
        let mut command = self.command(words.next().unwrap());
        let server = Server(command.args(words).stdout(Stdio::null()).stderr(log).spawn().unwrap());
        wait_until("a server listens", || self.run("ss -Hltn").contains(&format!(":{port} ")));
        server
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.names_folder());
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

/// Returns the output of a program, which must have succeeded.
fn printed(line: &str, output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {}\n{said}{errors}", output.status);
    said
}

/// A server program, which is killed on drop.
pub struct Server(Child);

impl Server {
    /// Wraps a process.
    pub fn of(child: Child) -> Server {
        Server(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running Rivulet.
pub struct Rivulet {
    child: Option<Child>,
    told: mpsc::Receiver<String>,
}

impl Rivulet {
    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Waits for the next line that contains these words.
    pub fn wait_for_line(&self, words: &str) {
        while !self.told.recv_timeout(PATIENCE).unwrap().contains(words) {}
    }

    /// Returns the lines printed since the last call.
    pub fn said_so_far(&self) -> Vec<String> {
        self.told.try_iter().collect()
    }

    /// Leaves it idle for a moment, ends it, and asserts that its threads slept: rounds without a
    /// sleep are bounded by the received frames, and sleeps lasted until something happened.
    /// Returns its report.
    pub fn end_after_rest(self) -> Value {
        std::thread::sleep(Duration::from_secs(2));
        let report = self.end();
        let count = |value: &Value| value.as_u64().unwrap_or(0);
        let received =
            report["interfaces"].as_object().unwrap().values().map(|port| count(&port["received"]));
        let workers = report["workers"].as_array().map_or(&[][..], Vec::as_slice);
        let handed_over = workers.iter().map(|worker| count(&worker["handed_over"]));
        let polling = &report["timing"]["polling"];
        let orders = WAKEUPS_PER_SECOND_MAX * report["timing"]["seconds"].as_f64().unwrap();
        let news = count(&polling["link_news"]);
        let events = received.sum::<u64>() + handed_over.sum::<u64>() + news + orders as u64;
        let awake = count(&polling["rounds"]) - count(&polling["sleeps"]);
        assert!(count(&polling["sleeps"]) > 0, "{polling}");
        assert!(awake <= events * (AWAKE_ROUNDS + 1), "{polling} for {events} events");
        assert!(count(&polling["wakeups"]) <= events, "{polling} for {events} events");
        report
    }

    /// Ends it, and returns its report, which must account for every packet.
    pub fn end(self) -> Value {
        let report: Value = serde_json::from_slice(&self.stop().stdout).unwrap();
        assert_adds_up(&report);
        report
    }

    /// Ends it, which must succeed, and returns its output.
    pub fn stop(mut self) -> Output {
        let child = self.child.take().unwrap();
        // `ip netns exec` has become the program, so the signal reaches it.
        let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", output.status);
        output
    }
}

impl Drop for Rivulet {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn assert_adds_up(report: &Value) {
    let count = |value: &Value| value.as_u64().unwrap();
    let drops: u64 = report["drops"].as_object().unwrap().values().map(count).sum();
    let among_dispatchers = |what: &str| report["units"][what].as_u64().unwrap_or(0);
    let came = count(&report["packets_in"])
        + count(&report["packets_generated"])
        + among_dispatchers("packets_taken_over");
    let went = count(&report["packets_out"])
        + among_dispatchers("packets_passed_on")
        + among_dispatchers("packets_unaccounted");
    assert_eq!(came, went + drops + count(&report["packets_pending"]), "{report}");
    for (port, counted) in report["ports"].as_object().unwrap() {
        let interface = &report["interfaces"][port];
        let host = |what: &str| interface["host"][what].as_u64().unwrap_or(0);
        let node = port.split_once('.').map_or(&Value::Null, |(node, _)| &report["programs"][node]);
        let past_node = node["bypassed"].as_u64().unwrap_or(0);
        let arrived = count(&interface["received"]) + host("returned");
        let entered = count(&counted["packets_in"]) + host("consumed");
        assert!((arrived..=arrived + past_node).contains(&entered), "{port}: {report}");
        let gone: u64 =
            ["sent", "too_long", "no_room", "down"].iter().map(|&way| count(&interface[way])).sum();
        let (left, sent) = (count(&counted["packets_out"]) + host("generated"), gone + host("withheld"));
        assert!((sent..=sent + past_node).contains(&left), "{port}: {report}");
    }
}

/// Waits for up to [`PATIENCE`].
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "timeout while waiting until {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
