//! Two dispatchers between real hosts, on different ways of the same connections, and four units on
//! hosts of their own.

use std::process::Output;

use serde_json::Value;

use crate::asking::SUBSCRIBERS;
use crate::cluster_hosts::{UnitHost, start_nodes};
use crate::net::{Host, Io, Network, PORTS, Rivulet, wait_until};
use crate::underlay;

const UNITS: [&str; 4] = ["u1", "u2", "u3", "u4"];
pub const DISPATCHERS: [&str; 2] = ["d1", "d2"];

/// The hosts of a cluster with two dispatchers.
pub struct TwoDispatchers {
    pub network: Network,
    dispatchers: [Rivulet; 2],
    second: Host,
    /// Frames that the ports' interfaces had received and sent before.
    frames: [u64; 2],
}

impl TwoDispatchers {
    /// Starts dispatchers and units. If namespaces or tools are missing, prints a message and
    /// returns `None`.
    pub fn start(policy: &str) -> Option<(TwoDispatchers, Vec<UnitHost>)> {
        Some(TwoDispatchers::start_on(Network::new(Io::PacketSocket)?, policy))
    }

    /// Does so on a network.
    pub fn start_on(network: Network, policy: &str) -> (TwoDispatchers, Vec<UnitHost>) {
        let units = start_nodes(&network, policy, (&UNITS, false), &DISPATCHERS);
        let second = network.join("d2", underlay::DISPATCHERS);
        network.connect_beside(&second);
        cut(&network);
        for (host, interfaces) in [
            (&network.inside, ["eth0", "eth1"]),
            (&network.outside, ["eth0", "eth1"]),
            (&network.middle, ["inside", "outside"]),
            (&second, ["inside", "outside"]),
        ] {
            for interface in interfaces {
                // As many frames as packets.
                host.run(&format!("ethtool -K {interface} tso off gso off"));
            }
        }
        for host in [&network.middle, &second] {
            // The kernel sends nothing by itself.
            host.run("sysctl -qw net.ipv6.conf.inside.disable_ipv6=1 net.ipv6.conf.outside.disable_ipv6=1");
        }
        let frames = frames(&[&network.middle, &second]);
        let at = |host: u8| network.underlay.socket(underlay::DISPATCHERS, host, 7401);
        let all: String =
            DISPATCHERS.iter().zip(1..).map(|(name, host)| format!("{name} = \"{}\"\n", at(host))).collect();
        for (name, at) in DISPATCHERS.into_iter().zip([at(1), at(2)]) {
            let own = format!("name = \"{name}\"\nlisten = \"{at}\"\ncertificates = \"ca\"\n");
            let ports = PORTS.map(|port| port.replace('=', " = \"") + "\"\n").concat();
            let options = "output = \"json\"\ndriver = \"packet\"\nmode = \"flow\"\napi = \"d2.sock\"\n";
            let role = format!(
                "role = \"dispatcher\"\npolicy = \"policy.rvl\"\n[ports]\n{ports}[options]\n{options}"
            );
            let config = format!("{own}{role}[dispatchers]\n{all}{}", network.underlay.units(&UNITS));
            std::fs::write(network.path(&format!("{name}.toml")), config).unwrap();
        }
        // One by the command, the other by its configuration.
        let first = network.up(policy, "--cluster d1.toml --mode flow --api d1.sock");
        let dispatchers = [first, network.node_at(&second, "d2.toml")];
        let hosts = TwoDispatchers { network, dispatchers, second, frames };
        for (name, other) in [("d1", "d2"), ("d2", "d1")] {
            wait_until("the dispatchers have found each other", || {
                let status = hosts.rivulet(&["status", "--api", &format!("{name}.sock")]).stdout;
                String::from_utf8(status).unwrap().contains(&format!("others      {other} connected"))
            });
        }
        spread(&hosts.network);
        SUBSCRIBERS.for_each(|host| hosts.network.inside.ip(&format!("addr add 10.7.0.{host}/24 dev eth0")));
        (hosts, units)
    }

    /// Returns the dispatchers' process IDs.
    pub fn ids(&self) -> [u32; 2] {
        self.dispatchers.each_ref().map(Rivulet::id)
    }

    /// Returns the hosts of the cluster's members, with the interfaces between them.
    pub fn underlay<'a>(&'a self, units: &'a [UnitHost]) -> Vec<(&'a Host, String)> {
        let at_middle = ["d2"].into_iter().chain(units.iter().map(|unit| unit.name));
        let at_middle = at_middle.map(|name| (&self.network.middle, name.to_owned()));
        let others = std::iter::once(&self.second).chain(units.iter().map(UnitHost::host));
        at_middle.chain(others.map(|host| (host, "eth0".to_owned()))).collect()
    }

    /// Runs a command of an operator.
    pub fn rivulet(&self, args: &[&str]) -> Output {
        let mut command = self.network.middle.command(env!("CARGO_BIN_EXE_rivulet"));
        command.args(args).current_dir(self.network.path("")).output().unwrap()
    }

    /// Returns the process IDs of the dispatchers.
    pub fn processes(&self) -> [u32; 2] {
        self.dispatchers.each_ref().map(Rivulet::id)
    }

    /// Returns what both dispatchers have said so far.
    pub fn said_so_far(&self) -> Vec<String> {
        self.dispatchers.iter().flat_map(Rivulet::said_so_far).collect()
    }

    /// Drains a unit at both dispatchers, one after the other.
    pub fn drain(&self, unit: &UnitHost) {
        for name in DISPATCHERS {
            let output = self.rivulet(&["drain", unit.name, "--api", &format!("{name}.sock")]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }

    /// Restarts a unit, which gives its flows away before it ends, and waits until both dispatchers
    /// have it again.
    pub fn restart(&self, unit: &mut UnitHost) {
        unit.end();
        unit.start(&self.network);
        unit.wait_for_line("node connected");
        unit.wait_for_line("node connected");
    }

    /// Ends all processes, and returns the dispatchers' reports. They must account for every packet
    /// received at the ports, and agree with the reports of all units, and with the kernel.
    pub fn end(self, mut units: Vec<UnitHost>) -> [Value; 2] {
        cut(&self.network);
        let reports = self.dispatchers.map(Rivulet::end);
        units.iter_mut().for_each(UnitHost::end);
        let of_units: Vec<Value> = units.iter().flat_map(|unit| unit.reports(&self.network)).collect();
        let sum = |reports: &[Value], pointer: &str| -> u64 {
            reports.iter().map(|report| report.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)).sum()
        };
        let passed = |what: &str| sum(&reports, &format!("/units/packets_{what}"));
        assert_eq!(passed("passed_on"), passed("taken_over"));
        let counts = |reports: &[Value]| -> Vec<Value> {
            let names = ["packets_out", "not_ip_passed", "drops", "interfaces"];
            reports.iter().map(|report| names.iter().map(|name| report[name].clone()).collect()).collect()
        };
        let all = [counts(&reports), counts(&of_units)];
        // Units have sent the packets that dispatchers have sent, except frames that are not IP,
        // and packets that arrived at a stalled dispatcher.
        let (not_ip, sent) = (sum(&reports, "/not_ip_passed"), sum(&reports, "/packets_out"));
        let of_units_and_ports = sum(&of_units, "/packets_out") + not_ip;
        let stalled = sum(&reports, "/drops/process-stalled");
        assert!((sent..=sent + stalled).contains(&of_units_and_ports), "{all:?}");
        // They have dropped the same packets. Some of the reasons are those of dispatchers.
        let own = ["dispatcher-lost", "dispatcher-behind", "group-moving", "no-unit", "process-stalled"];
        for reason in reports.iter().flat_map(|report| report["drops"].as_object().unwrap().keys()) {
            let [at_dispatchers, at_units] =
                [&reports[..], &of_units].map(|all| sum(all, &format!("/drops/{reason}")));
            match own.contains(&reason.as_str()) {
                true => assert_eq!(at_units, 0, "{reason}: {all:?}"),
                false => assert_eq!(at_units, at_dispatchers, "{reason}: {all:?}"),
            }
        }
        let ports = |what: &str| -> u64 {
            PORTS
                .map(|port| sum(&reports, &format!("/interfaces/{}/{what}", port.split_once('=').unwrap().0)))
                .iter()
                .sum()
        };
        let frames = frames(&[&self.network.middle, &self.second]);
        let received = ports("received") + ports("missed") + ports("unreadable");
        assert_eq!(frames[0] - self.frames[0], received, "frames received: {all:?}");
        // Of frames to a host that was taken away, the kernel may say that there is no room.
        let (sent, no_room) = (ports("sent"), ports("no_room"));
        assert!((sent..=sent + no_room).contains(&(frames[1] - self.frames[1])), "frames sent: {all:?}");
        reports
    }
}

/// Spreads traffic: packets to 10.7.0.2 go by the first dispatcher, packets to 10.7.0.3 and to the
/// balanced service by the second one; packets back go by the other one, or by the same, as their
/// external address says.
fn spread(network: &Network) {
    let (inside, outside) = ("02:07:00:00:00:01", "02:07:00:00:00:02");
    for end in [&network.inside, &network.outside] {
        for interface in ["eth0", "eth1"] {
            end.ip(&format!("link set {interface} up"));
        }
    }
    network.inside.ip("addr add fd07::1/64 dev eth0 nodad");
    network.outside.ip("addr add fd07::2/64 dev eth0 nodad");
    network.outside.ip("addr add 10.7.0.3/24 dev eth0");
    for (host, mac, ways) in [
        (&network.inside, outside, &[("10.7.0.2", "eth0"), ("10.7.0.3", "eth1"), ("10.7.0.200", "eth1")][..]),
        (&network.outside, inside, &[("10.7.0.100", "eth1"), ("10.7.0.101", "eth0")]),
    ] {
        for (to, by) in ways {
            host.ip(&format!("route add {to}/32 dev {by}"));
            host.ip(&format!("neigh add {to} lladdr {mac} dev {by}"));
        }
    }
    for (host, mac, to, by) in
        [(&network.inside, outside, "fd07::2", "eth0"), (&network.outside, inside, "fd07::1", "eth1")]
    {
        host.ip(&format!("-6 route add {to}/128 dev {by}"));
        host.ip(&format!("neigh add {to} lladdr {mac} dev {by}"));
    }
}

/// Takes the hosts from their network, so that no frame is on its way while frames are counted.
fn cut(network: &Network) {
    for end in [&network.inside, &network.outside] {
        ["eth0", "eth1"].iter().for_each(|interface| end.ip(&format!("link set {interface} down")));
    }
}

/// Returns the frames that the ports' interfaces at these hosts have received and sent, by the
/// kernel's count.
fn frames(hosts: &[&Host]) -> [u64; 2] {
    let count = |counters: &[&str]| {
        let files = PORTS.map(|port| port.split_once('=').unwrap().1).map(|interface| {
            counters
                .iter()
                .map(|counter| format!("/sys/class/net/{interface}/statistics/{counter} "))
                .collect::<String>()
        });
        let lines = hosts.iter().map(|host| host.run(&format!("cat {}", files.concat()))).collect::<String>();
        lines.lines().map(|line| line.parse::<u64>().unwrap()).sum()
    };
    [count(&["rx_packets"]), count(&["tx_packets", "tx_dropped"])]
}
