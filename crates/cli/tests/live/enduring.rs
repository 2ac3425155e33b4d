//! Clusters on slow networks and busy machines: connections last, and no member is lost. Short
//! here; `bench/endurance.sh` takes minutes, and prints what it saw.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::asking::SUBSCRIBERS;
use crate::cluster_hosts::{NAT_POLICY, UnitHost};
use crate::net::{Io, Network, Server, wait_until};
use crate::two_dispatchers::{DISPATCHERS, TwoDispatchers};
use crate::underlay::Underlay;

const PROGRAM: &str = include_str!("enduring.py");

/// Variable with the duration of the connections in seconds.
const SECONDS: &str = "RIVULET_ENDURANCE_SECONDS";
/// Duration of a short run.
const SHORT: Duration = Duration::from_secs(5);
/// Programs that take all the time they get, to make the machine busy.
const BUSY_PROGRAMS: usize = 8;
/// Minimum share of its time that each member must wait for a processor in a long run on a busy
/// machine; otherwise the run shows nothing.
const WAITED_SHARE: f64 = 0.1;

#[test]
fn endures_busy_machine() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let cluster = Cluster::start(network, None);
    let _busy: Vec<_> = (0..BUSY_PROGRAMS).map(|_| spin()).collect();
    let began = Instant::now();
    let waited_before = cluster.waited();
    cluster.hold();
    let took = began.elapsed();
    let waited = cluster.waited().into_iter().zip(waited_before);
    for ((name, after), (_, before)) in waited {
        let waited = after - before;
        println!("{name} waited for {waited:.1?} of {took:.1?} for a processor");
        let is_long = took > 4 * SHORT;
        assert!(!is_long || waited.as_secs_f64() >= WAITED_SHARE * took.as_secs_f64(), "not busy enough");
    }
    cluster.end();
}

#[test]
fn endures_small_mtu() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let cluster = Cluster::start(network, Some(1280));
    cluster.hold();
    cluster.end();
}

#[test]
fn endures_jitter() {
    let Some(mut network) = Network::new(Io::PacketSocket) else { return };
    network.delay([50, 10]);
    let cluster = Cluster::start(network, None);
    cluster.hold();
    cluster.end();
}

#[test]
fn endures_ipv6_alone() {
    let Some(mut network) = Network::new(Io::PacketSocket) else { return };
    network.underlay = Underlay::Ipv6;
    let cluster = Cluster::start(network, None);
    cluster.hold();
    // The hosts of units have no other addresses.
    for unit in &cluster.units {
        assert_eq!(unit.host().run("ip -4 -br addr show dev eth0").trim(), "");
    }
    cluster.end();
}

/// Two dispatchers, their units, and servers outside.
struct Cluster {
    hosts: TwoDispatchers,
    units: Vec<UnitHost>,
    _server: Server,
}

impl Cluster {
    /// Starts it. `mtu`: that of all links between members.
    fn start(network: Network, mtu: Option<u32>) -> Cluster {
        std::fs::write(network.path("enduring.py"), PROGRAM).unwrap();
        let (hosts, units) = TwoDispatchers::start_on(network, NAT_POLICY);
        if let Some(mtu) = mtu {
            for (host, interface) in hosts.underlay(&units) {
                host.ip(&format!("link set {interface} mtu {mtu}"));
            }
        }
        let outside = &hosts.network.outside;
        let program = hosts.network.path("enduring.py");
        let server = format!("python3 {} serve 10.7.0.2 10.7.0.3", program.display());
        let server = outside.serve(&server, 9100);
        wait_until("packets pass by both", || {
            ["10.7.0.2", "10.7.0.3"].iter().all(|to| {
                hosts.network.inside.output(&format!("ping -c 1 -W 2 -I 10.7.0.11 {to}")).status.success()
            })
        });
        Cluster { hosts, units, _server: server }
    }

    /// Holds connections; none may break.
    fn hold(&self) {
        let network = &self.hosts.network;
        let seconds = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok());
        let stop = network.path("stop");
        let sources: Vec<_> = SUBSCRIBERS.map(|host| format!("10.7.0.{host}")).collect();
        let mut client = network.inside.command("python3");
        client.arg(network.path("enduring.py")).arg("hold").arg(&stop).arg(sources.join(","));
        client.args(["10.7.0.2", "10.7.0.3"]).stdout(Stdio::piped());
        let client = client.spawn().unwrap();
        std::thread::sleep(seconds.map_or(SHORT, Duration::from_secs));
        std::fs::write(stop, "").unwrap();
        let held = String::from_utf8(client.wait_with_output().unwrap().stdout).unwrap();
        let counts: Vec<u64> = held.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let [connections, broken, lines, longest_ms] = counts[..] else { panic!("{held}") };
        println!(
            "{connections} connections, {broken} broken, {lines} lines echoed, the slowest after {longest_ms} ms"
        );
        assert!(broken == 0 && lines >= connections, "{held}");
        for dispatcher in DISPATCHERS {
            let status = self.hosts.rivulet(&["status", "--api", &format!("{dispatcher}.sock")]);
            println!("{dispatcher}:\n{}", String::from_utf8_lossy(&status.stdout));
        }
    }

    /// Returns the time that the threads of each member have waited for a processor so far.
    fn waited(&self) -> Vec<(&'static str, Duration)> {
        let dispatchers = DISPATCHERS.into_iter().zip(self.hosts.ids());
        let units = self.units.iter().map(|unit| (unit.name, unit.id()));
        dispatchers.chain(units).map(|(name, id)| (name, waited(id))).collect()
    }

    /// Ends it. No member may have been lost, and every packet is accounted for.
    fn end(self) {
        for report in self.hosts.end(self.units) {
            assert_eq!(report["drops"].get("unit-lost"), None, "{report}");
            println!("drops: {}", report["drops"]);
        }
    }
}

/// Starts a program that takes all the time that it gets.
fn spin() -> Server {
    let spin: Child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    Server::of(spin)
}

/// Returns the time that the threads of a process have waited for a processor.
fn waited(process: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of_thread = |thread: std::fs::DirEntry| -> Option<u64> {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse().ok()
    };
    Duration::from_nanos(threads.map_while(Result::ok).filter_map(of_thread).sum())
}
