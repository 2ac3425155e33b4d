//! Stalls of live traffic while flows move, and while units are drained and restarted, with those
//! of the machine itself. It measures, and asserts only that nothing is lost or reset:
//! `bench/stalls.sh moves` prints it.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::cluster_hosts::NAT_POLICY;
use crate::names::serve_names;
use crate::net::{Host, Network, wait_until};
use crate::operator::{Moving, Operator, Owners, owners};
use crate::ssh::{ssh_options, sshd};
use crate::two_dispatchers::{DISPATCHERS, TwoDispatchers};

const PROGRAM: &str = include_str!("stalls.py");

/// Variable with the seconds of traffic without moves, and of as much with moves.
const SECONDS: &str = "RIVULET_STALLS_SECONDS";
/// Time after which samples count: clients have begun, and after an event.
const SETTLES: Duration = Duration::from_secs(1);
/// A longer delay is listed.
const LONG_NS: u64 = 50_000_000;
/// Long delays closer than this are one stall.
const APART_NS: u64 = 500_000_000;

/// Something that happens, or not, under traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Nothing,
    Moves,
    Restarts,
}

const EVENTS: [Event; 3] = [Event::Nothing, Event::Moves, Event::Restarts];

/// The time of an event, in nanoseconds since 1970.
struct Phase {
    event: Event,
    since_ns: u64,
    until_ns: u64,
}

/// A question, or a packet of a stream: the time at which it was sent, its delay, and its number.
#[derive(Clone, Copy, Debug)]
struct Sample {
    sent_ns: u64,
    delay_ns: u64,
    number: u64,
}

/// Clients and servers, each with a file of samples by its name.
struct Clients<'a> {
    network: &'a Network,
    children: Vec<Child>,
    names: Vec<String>,
}

impl<'a> Clients<'a> {
    fn new(network: &'a Network) -> Clients<'a> {
        std::fs::write(network.path("stalls.py"), PROGRAM).unwrap();
        Clients { network, children: Vec::new(), names: Vec::new() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.network.path(&format!("{name}.samples"))
    }

    /// Starts a program of `stalls.py`; with a name, it writes samples.
    fn start(&mut self, host: &Host, program: &str, name: Option<&str>, args: &[&str]) {
        let mut command = host.command("python3");
        command.arg(self.network.path("stalls.py")).arg(program);
        command.args(name.map(|name| self.file(name))).args(args).stderr(Stdio::null());
        self.children.push(command.spawn().unwrap());
        self.names.extend(name.map(str::to_owned));
    }

    /// Starts a stream of datagrams each way.
    fn start_udp(&mut self, name: &str, from: (&Host, &str), to: (&Host, &str)) {
        self.start(to.0, "udp-server", Some(&format!("{name}, up")), &[to.1]);
        wait_until("the server listens", || {
            to.0.run("ss -Hlun").contains(&format!("{}:7001", bracketed(to.1)))
        });
        self.start(from.0, "udp", Some(&format!("{name}, down")), &[from.1, to.1]);
    }

    /// Ends all, and returns the samples of each.
    fn end(mut self) -> BTreeMap<String, Vec<Sample>> {
        for child in &mut self.children {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "a client or server has ended: {ended:?}");
        }
        for mut child in std::mem::take(&mut self.children) {
            let signalled = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
            assert!(signalled.success());
            child.wait().unwrap();
        }
        self.names.iter().map(|name| (name.clone(), read_samples(self.file(name)))).collect()
    }
}

impl Drop for Clients<'_> {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
        }
    }
}

fn bracketed(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}

fn read_samples(file: PathBuf) -> Vec<Sample> {
    let text = std::fs::read_to_string(file).unwrap();
    let sample = |line: &str| {
        let mut numbers = line.split(' ').map(|number| number.parse().ok());
        Some(Sample { sent_ns: numbers.next()??, delay_ns: numbers.next()??, number: numbers.next()?? })
    };
    text.lines().filter_map(sample).collect()
}

fn now_ns() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

#[test]
#[ignore = "measures for minutes: bench/stalls.sh moves"]
fn stalls_while_flows_move_and_units_are_restarted() {
    let Some((hosts, mut units)) = TwoDispatchers::start(NAT_POLICY) else { return };
    let network = &hosts.network;
    let (inside, outside) = (&network.inside, &network.outside);
    let _names = serve_names(network, &["10.7.0.2", "fd07::2"]);
    let _sshd = sshd(network, outside, 2222);
    let mut clients = Clients::new(network);
    // Through no network: the machine's own stalls.
    clients.start_udp("none (loopback)", (inside, "127.0.0.1"), (inside, "127.0.0.1"));
    clients.start(outside, "tcp-server", None, &[]);
    wait_until("the server listens", || outside.run("ss -Hltn").contains(":8000 "));
    wait_until("the first packets pass", || {
        let pings =
            ["10.7.0.2", "10.7.0.3", "fd07::2"].map(|to| inside.output(&format!("ping -c 1 -W 1 {to}")));
        pings.iter().all(|ping| ping.status.success())
    });
    clients.start_udp("UDP", (inside, "10.7.0.11"), (outside, "10.7.0.2"));
    clients.start_udp("UDP over IPv6", (inside, "fd07::1"), (outside, "fd07::2"));
    for (program, name, args) in [
        ("stream", "TCP download", &["10.7.0.13", "10.7.0.2", "8000"][..]),
        ("stream", "TCP download, balanced", &["10.7.0.14", "10.7.0.200", "80"]),
        ("stream", "TCP download over IPv6", &["fd07::1", "fd07::2", "8000"]),
        ("connect", "TCP connect and answer", &["10.7.0.15", "10.7.0.3", "8000"]),
        ("resolve", "dig", &["10.7.0.16", "10.7.0.2"]),
    ] {
        clients.start(inside, program, Some(name), args);
    }
    let session = format!("ssh {} -b 10.7.0.17 root@10.7.0.3 cat", ssh_options(network, "-p", 2222));
    clients.start(inside, "type", Some("ssh"), &session.split_whitespace().collect::<Vec<_>>());
    std::thread::sleep(3 * SETTLES);
    [inside, outside].into_iter().for_each(prefer);

    let seconds = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok()).unwrap_or(60.0);
    let of_round = Duration::from_secs_f64(seconds) / u32::try_from(units.len()).unwrap();
    let (mut phases, mut moves) = (Vec::new(), Vec::new());
    for unit in &mut units {
        for event in EVENTS {
            let sockets = DISPATCHERS.map(|name| network.path(&format!("{name}.sock")));
            let moved = sockets.each_ref().map(|socket| Moving::of_subscribers(socket));
            let owners_before = sockets.each_ref().map(|socket| owners(socket));
            std::thread::sleep(SETTLES);
            let since_ns = now_ns();
            match event {
                Event::Nothing => std::thread::sleep(of_round),
                Event::Moves => {
                    let operators: Vec<_> = moved
                        .into_iter()
                        .zip(&sockets)
                        .map(|(flows, socket)| Operator::who_moves(flows, socket.clone()))
                        .collect();
                    std::thread::sleep(of_round);
                    operators.into_iter().for_each(|operator| assert!(operator.end() > 0));
                }
                Event::Restarts => {
                    hosts.drain(unit);
                    hosts.restart(unit);
                }
            }
            phases.push(Phase { event, since_ns, until_ns: now_ns() });
            if event == Event::Moves {
                let owners_after = sockets.each_ref().map(|socket| owners(socket));
                moves.extend(owners_before.iter().zip(&owners_after).flat_map(new_owners));
            }
        }
    }
    std::thread::sleep(SETTLES);
    let samples = clients.end();
    moves.sort_unstable();
    let each = moves.len() as f64 * of_round.as_secs_f64() * 1e3;
    println!("A flow moved every {:.1} ms.\n", each / moves.iter().sum::<u64>() as f64);
    println!("Delays in ms: median / 99.9 % / longest.\n");
    println!("| client | samples | lost | nothing moves | all flows move | a unit is drained, restarted |");
    println!("|---|---|---|---|---|---|");
    for (name, samples) in &samples {
        let [nothing, moves, restarts] = EVENTS.map(|event| Delays::of(samples, &phases, event));
        let numbers = || samples.iter().map(|sample| sample.number);
        let sent = numbers().max().zip(numbers().min()).map_or(0, |(last, first)| last + 1 - first);
        let lost = sent - samples.len() as u64;
        println!("| {name} | {} | {lost} | {nothing} | {moves} | {restarts} |", samples.len());
    }
    println!();
    for (name, samples) in &samples {
        for (at, phase) in phases.iter().enumerate() {
            print_stalls(name, samples, phase, 1 + at / EVENTS.len());
        }
    }
    for report in hosts.end(units) {
        assert_eq!(report["drops"].get("unit-lost"), None, "{report}");
        println!("Drops: {}", report["drops"]);
    }
}

/// Gives the programs of a host real-time priority, where that is allowed: it is not Rivulet that
/// they wait for when other programs have the processor.
fn prefer(host: &Host) {
    let pids = Command::new("ip").args(["netns", "pids", host.name()]).output().unwrap().stdout;
    for pid in String::from_utf8(pids).unwrap().lines() {
        let _ = Command::new("chrt").args(["-a", "-r", "-p", "1", pid]).stderr(Stdio::null()).status();
    }
}

/// Returns the number of new owners of each flow that was there before and is there after.
fn new_owners((before, after): (&Owners, &Owners)) -> Vec<u64> {
    before.iter().filter_map(|(flow, owners)| Some(after.get(flow)? - owners)).collect()
}

/// The delays of a client during an event, sorted.
struct Delays(Vec<u64>);

impl Delays {
    fn of(samples: &[Sample], phases: &[Phase], event: Event) -> Delays {
        let mut ns = Vec::new();
        for phase in phases.iter().filter(|phase| phase.event == event) {
            let of_phase: Vec<_> = samples.iter().filter(|sample| phase.has(sample)).collect();
            ns.extend(of_phase.iter().map(|sample| sample.delay_ns));
        }
        ns.sort_unstable();
        Delays(ns)
    }
}

impl Display for Delays {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Some(last) = self.0.len().checked_sub(1) else { return write!(f, "-") };
        let at = |share: f64| self.0[(last as f64 * share).round() as usize] as f64 / 1e6;
        write!(f, "{:.2} / {:.1} / {:.1}", at(0.5), at(0.999), at(1.0))
    }
}

/// Prints the long stalls of a client during a phase of this round.
fn print_stalls(name: &str, samples: &[Sample], phase: &Phase, round: usize) {
    let mut until_ns = 0;
    for sample in samples.iter().filter(|sample| phase.has(sample) && sample.delay_ns > LONG_NS) {
        if sample.sent_ns > until_ns + APART_NS {
            let [at, delay] = [sample.sent_ns - phase.since_ns, sample.delay_ns].map(|ns| ns as f64 / 1e6);
            let event = phase.event;
            println!("{event:?}, round {round}: {name}: {delay:.1} ms, {at:.0} ms after the phase began");
        }
        until_ns = sample.sent_ns;
    }
}

impl Phase {
    fn has(&self, sample: &Sample) -> bool {
        (self.since_ns..self.until_ns).contains(&sample.sent_ns)
    }
}
