//! Operation of a gateway under traffic: full disks, rotated logs, signals, commands, a second
//! Rivulet. None of these costs a packet.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::net::{Io, Network, PATIENCE, wait_until};

/// A wire that logs each denied datagram.
const LOGGED: &str = "
Port<0> inside;
Port<1> outside;
Firewall guard { rules: [\"deny in udp log\"], default: allow };
Monitor watch { active_timeout: 1s };
pipelet { inside <-> guard <-> watch <-> outside; }
";

/// A file system of a fixed size, unmounted on drop.
struct Disk(PathBuf);

impl Disk {
    fn mount(path: PathBuf, kib: u32) -> Disk {
        fs::create_dir(&path).unwrap();
        let options = format!("size={kib}k");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&path);
        assert!(mount.status().unwrap().success());
        Disk(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Sends datagrams from outside to this many ports of the inside host.
fn probe(network: &Network, count: u32) {
    let code = format!(
        "
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range({count}):
    s.sendto(b'12345678', ('10.7.0.1', 1024 + i % 60000))
    if i % 50 == 49: time.sleep(0.002)
"
    );
    let output = network.outside.command("python3").args(["-c", &code]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

fn alerts(lines: &[Value]) -> usize {
    lines.iter().filter(|line| line["event_type"] == "alert").count()
}

fn kill(signal: &str, id: u32) {
    assert!(Command::new("kill").args([signal, &id.to_string()]).status().unwrap().success());
}

const PING: &str = "ping -c 5 -i 0.05 -W 2 10.7.0.2";

#[test]
fn full_disks_stop_no_packet_and_writing_resumes_with_space() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let disk = Disk::mount(network.path("tiny"), 2048);
    fs::write(disk.path("filler"), vec![0; 1800 << 10]).unwrap();
    let files = "--alerts tiny/eve.json --write inside=tiny/out.pcapng --ipfix tiny/f.ipfix";
    let rivulet = network.up(LOGGED, &format!("--alert-limit 0 {files}"));
    probe(&network, 2_000);
    rivulet.wait_for_line("cannot write tiny/eve.json: No space left on device");
    let pings = network.inside.run(PING);
    assert!(pings.contains("5 received") && !pings.contains("DUP"), "{pings}");
    fs::remove_file(disk.path("filler")).unwrap();
    // Queued records are written once there is space.
    rivulet.wait_for_line("works again");
    let report = rivulet.end();
    assert_eq!(report["alerts"], 2_000);
    for output in ["alerts", "captures", "ipfix"] {
        assert_eq!(report["outputs"][output]["not_written"], 0, "{report}");
    }
    assert_eq!(alerts(&lines(&network.path("tiny/eve.json"))), 2_000);
}

#[test]
fn a_disk_that_stays_full_loses_only_its_records() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let disk = Disk::mount(network.path("tiny"), 64);
    let rivulet = network.up(LOGGED, "--alert-limit 0 --alerts tiny/eve.json --report r.json");
    probe(&network, 3_000);
    rivulet.wait_for_line("cannot write tiny/eve.json: No space left on device");
    assert!(network.inside.run(PING).contains("5 received"));
    let report = rivulet.end();
    let alerts = &report["outputs"]["alerts"];
    let count = |name: &str| alerts[name].as_u64().unwrap();
    assert_eq!(count("written") + count("not_written"), report["alerts"].as_u64().unwrap(), "{report}");
    assert!(count("written") > 0 && count("not_written") > 0, "{report}");
    // No record is truncated.
    assert_eq!(lines(&disk.path("eve.json")).len() as u64, count("written"));
    assert_eq!(report, serde_json::from_slice::<Value>(&fs::read(network.path("r.json")).unwrap()).unwrap());
}

#[test]
fn a_scan_gives_a_few_lines_and_a_count() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let rivulet = network.up(LOGGED, "--alerts eve.json");
    probe(&network, 5_000);
    let report = rivulet.end();
    let raised = report["alerts"].as_u64().unwrap();
    assert_eq!(raised, 5_000);
    let said = lines(&network.path("eve.json"));
    let windows = said.iter().filter(|line| line["event_type"] == "suppressed");
    let suppressed: Vec<_> =
        windows.map(|line| line["rivulet"]["suppressed"]["alerts"].as_u64().unwrap()).collect();
    assert!(!suppressed.is_empty() && alerts(&said) <= 20 * suppressed.len(), "{}", alerts(&said));
    assert_eq!(alerts(&said) as u64 + suppressed.iter().sum::<u64>(), raised);
    assert_eq!(report["outputs"]["alerts"]["suppressed"].as_u64().unwrap(), suppressed.iter().sum::<u64>());
}

/// Neither a full pipe nor a closed one delays packets.
#[test]
fn unread_output_delays_nothing() {
    let Some(network) = Network::new(Io::Auto) else { return };
    fs::write(network.path("policy.rvl"), LOGGED).unwrap();
    for is_closed in [true, false] {
        let fifo = network.path(if is_closed { "closed" } else { "full" });
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let reader = fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
        let mut command = network.middle.command(env!("CARGO_BIN_EXE_rivulet"));
        command.args(["up", "policy.rvl", "--port", "inside=inside", "--port", "outside=outside"]);
        command.args(["--report", "r.json", "--alert-limit", "0", "--alerts"]).arg(&fifo);
        command.current_dir(network.dir.path()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let mut begun = [0; 11];
        stderr.read_exact(&mut begun).unwrap();
        assert_eq!(&begun, b"rivulet: up");
        if is_closed {
            drop((reader, stderr));
        } else {
            std::mem::forget((reader, stderr));
        }
        // More than the pipe and the queue hold.
        probe(&network, 3_000);
        network.outside.ip("link set eth0 down");
        network.outside.ip("link set eth0 up");
        wait_until("packets pass again", || {
            network.inside.output("ping -c 1 -W 1 10.7.0.2").status.success()
        });
        assert!(network.inside.run(PING).contains("5 received"));
        kill("-TERM", child.id());
        assert!(child.wait().unwrap().success(), "closed: {is_closed}");
        let report: Value = serde_json::from_slice(&fs::read(network.path("r.json")).unwrap()).unwrap();
        assert!(report["outputs"]["alerts"]["not_written"].as_u64().unwrap() > 0, "{report}");
    }
}

#[test]
fn files_are_rotated_by_name_and_by_copy_and_signals_end_the_run_with_a_report() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let (eve, capture) = (network.path("eve.json"), network.path("out.pcapng"));
    fs::write(&eve, "{\"event_type\":\"before\"}\n").unwrap();
    let rivulet =
        network.up(LOGGED, "--alerts eve.json --alert-limit 0 --write inside=out.pcapng --report r.json");
    let ping = || assert!(network.inside.run(PING).contains("5 received"));
    let is_written = |count: usize| alerts(&lines(&eve)) >= count;
    probe(&network, 10);
    ping();
    wait_until("alerts are written", || is_written(10));
    assert_eq!(lines(&eve)[0]["event_type"], "before", "the file is appended to");

    // By name, as logrotate does.
    for (signal, old) in [("-USR1", "1"), ("-HUP", "2")] {
        for file in [&eve, &capture] {
            fs::rename(file, format!("{}.{old}", file.display())).unwrap();
        }
        probe(&network, 10);
        // After these replies, the datagrams before them have passed.
        ping();
        kill(signal, rivulet.id());
        rivulet.wait_for_line("files reopened");
        wait_until("there is a new file", || eve.exists() && capture.exists());
        probe(&network, 10);
        ping();
        wait_until("alerts are written", || is_written(10));
        let old = lines(&network.path(&format!("eve.json.{old}")));
        assert!(alerts(&old) >= 20 && alerts(&lines(&eve)) == 10, "none is lost, none is in both");
    }
    // By copy and truncation.
    fs::write(&eve, "").unwrap();
    fs::write(&capture, "").unwrap();
    probe(&network, 10);
    ping();
    wait_until("alerts are written", || is_written(10));
    assert!(!fs::read(&eve).unwrap().contains(&0), "no hole");

    kill("-USR2", rivulet.id());
    rivulet.wait_for_line("packets/s");
    for signal in ["-PIPE", "-XFSZ", "-WINCH"] {
        kill(signal, rivulet.id());
    }
    ping();
    let id = rivulet.id();
    wait_until("packets are written", || fs::metadata(&capture).unwrap().len() > 1_000);
    kill("-QUIT", id);
    wait_until("it has ended", || fs::metadata(network.path("r.json")).unwrap().len() > 0);
    let report: Value = serde_json::from_slice(&fs::read(network.path("r.json")).unwrap()).unwrap();
    assert_eq!(report["outputs"]["alerts"]["not_written"], 0, "{report}");
    for file in ["out.pcapng.1", "out.pcapng.2", "out.pcapng"] {
        let output = Command::new("tshark").args(["-n", "-r"]).arg(network.path(file)).output().unwrap();
        assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
        let replies = String::from_utf8_lossy(&output.stdout).matches("Echo (ping) reply").count();
        assert!(replies >= 5, "{file}");
    }
}

#[test]
fn a_command_that_is_refused_at_its_time_does_not_end_the_run() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let policy = "
        Port<0> inside;
        Port<1> outside;
        Policer p { rate: 800Mbps, peak_rate: 900Mbps };
        pipelet { inside <-> p <-> outside; }";
    for workers in ["", " --workers 2"] {
        fs::write(network.path("script"), "10ms p rate 960Mbps\n20ms p rate 700Mbps\n").unwrap();
        let rivulet = network.up(policy, &format!("--control script{workers}"));
        rivulet.wait_for_line("script:1: refused: ");
        rivulet.wait_for_line("script:2: executed: ");
        assert!(network.inside.run(PING).contains("5 received"));
        assert_eq!(rivulet.end()["commands"], serde_json::json!({"executed": 1, "refused": 1}));
    }
}

/// Units of systemd have `Type=notify`.
#[test]
fn a_supervisor_learns_when_traffic_begins_and_ends() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let path = network.path("supervisor");
    let supervisor = UnixDatagram::bind(&path).unwrap();
    supervisor.set_read_timeout(Some(PATIENCE)).unwrap();
    let next = || {
        let mut text = [0; 512];
        let len = supervisor.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..len]).trim_end().to_owned()
    };
    let rivulet =
        network.up_for(&path, "Port<0> inside;\nPort<1> outside;\npipelet { inside <-> outside; }\n");
    assert_eq!(next(), "READY=1");
    let rates = next();
    assert!(rates.starts_with("STATUS=") && rates.contains(" packets/s"), "{rates}");
    rivulet.end();
    let last = std::iter::repeat_with(next).find(|text| !text.starts_with("STATUS="));
    assert_eq!(last.as_deref(), Some("STOPPING=1"));
}

#[test]
fn a_second_rivulet_on_an_interface_is_refused() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let rivulet = network.up("Port<0> inside;\nPort<1> outside;\npipelet { inside <-> outside; }\n", "");
    let second = |command: &str| {
        let mut program = network.middle.command(env!("CARGO_BIN_EXE_rivulet"));
        program.args(command.split(' ')).args([
            "policy.rvl",
            "--port",
            "inside=inside",
            "--port",
            "outside=outside",
        ]);
        let output = program.current_dir(network.dir.path()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for command in ["up --driver packet", "up --workers 2", "capture --write out.pcapng"] {
        let (code, said) = second(command);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("cannot open inside: another Rivulet"), "{said}");
        assert!(said.contains(&format!("process {}", rivulet.id())), "{said}");
    }
    let pings = network.inside.run(PING);
    assert!(pings.contains("5 received") && !pings.contains("DUP"), "{pings}");
    // Another namespace has its own interfaces of the same names.
    let Some(other) = Network::new(Io::Auto) else { return };
    other.up("Port<0> inside;\nPort<1> outside;\npipelet { inside <-> outside; }\n", "").end();
    kill("-KILL", rivulet.id());
    drop(rivulet);
    let (code, said) = second("up --duration 1ms");
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn without_memory_no_flow_begins_and_known_ones_go_on() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let policy =
        "Port<0> inside; Port<1> outside; Monitor watch {}; pipelet { inside <-> watch <-> outside; }";
    let rivulet = network.up(policy, "--assign flowlets");
    let known = network.outside.command("ping").args(["-c", "500", "-i", "0.01", "-q", "10.7.0.1"]).spawn();
    let mut known = known.unwrap();
    let limit_memory = |bytes: &str| {
        let process = rivulet.id().to_string();
        let limited = Command::new("prlimit").args(["--pid", &process, &format!("--as={bytes}:")]).status();
        assert!(limited.unwrap().success());
    };
    network.outside.ping("-c 1 10.7.0.1");
    let status = fs::read_to_string(format!("/proc/{}/status", rivulet.id())).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB")).unwrap();
    limit_memory(&(size.trim().parse::<u64>().unwrap() << 10).to_string());
    probe(&network, 60_000);
    rivulet.wait_for_line("memory used up");
    probe(&network, 60_000);
    limit_memory("unlimited");
    rivulet.wait_for_line("memory available again");
    network.outside.ping("-c 1 10.7.0.1");
    assert!(known.wait().unwrap().success(), "the known flow goes on");
    let report = rivulet.end();
    assert!(report["drops"]["no-memory"].as_u64() > Some(0), "{report}");
}

#[test]
fn frames_missed_by_an_interface_are_shown() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let policy = "Port<0> inside;\nPort<1> outside;\npipelet { inside <-> outside; }\n";
    let rivulet = network.up_on(crate::net::PORTS, policy, "--metrics");
    kill("-STOP", rivulet.id());
    // More than any receive buffer holds.
    let code = "
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('eth0', 0))
frame = bytes.fromhex('ffffffffffff02070000000288b5') + bytes(1400)
for i in range(60000):
    s.send(frame)
";
    let output = network.outside.command("python3").args(["-c", code]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    kill("-CONT", rivulet.id());
    let top = format!("{} top --once --interval 1100ms", env!("CARGO_BIN_EXE_rivulet"));
    let metrics = || network.middle.run("curl -s http://127.0.0.1:9600/metrics");
    let is_missed = |text: &str| {
        let missed = text.lines().find(|line| {
            line.contains("frames_lost_total") && line.contains("outside") && line.contains("missed")
        });
        missed.is_some_and(|line| !line.ends_with(" 0"))
    };
    wait_until("metrics have it", || is_missed(&metrics()));
    let shown = network.middle.run(&top);
    let report = rivulet.end();
    let missed = report["interfaces"]["outside"]["missed"].as_u64().unwrap();
    assert!(missed > 0, "{report}");
    assert!(shown.contains(" lost/s") && shown.contains("missed"), "{shown}");
}

/// Tunnels that hide inner packets from functions are reported when they appear, once per kind.
#[test]
fn tunnels_without_inspection_are_reported_at_once() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let policy = "Port<0> inside;\nPort<1> outside;\nMonitor m;\npipelet { inside <-> m <-> outside; }\n";
    let rivulet = network.up_on(crate::net::PORTS, policy, "--metrics");
    // VXLAN from several ports: several flows of one kind.
    let code = "
import socket
for port in range(40000, 40003):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(('0.0.0.0', port))
    s.sendto(bytes.fromhex('0800000000004d00') + bytes(12) + bytes.fromhex('0800') + b'E' + bytes(40), ('10.7.0.2', 4789))
";
    let output = network.inside.command("python3").args(["-c", code]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    rivulet.wait_for_line("tunnels not inspected: vxlan");
    let metrics = network.middle.run("curl -s http://127.0.0.1:9600/metrics");
    let has = |line: &str| metrics.lines().any(|one| one == line);
    assert!(has("rivulet_tunnels_not_looked_into_total{kind=\"vxlan\"} 3"), "{metrics}");
    assert!(has("rivulet_tunnels_not_looked_into_total{kind=\"gre\"} 0"), "{metrics}");
    // The next kind is reported separately.
    let code = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 47)
s.sendto(bytes.fromhex('00000800') + b'E' + bytes(40), ('10.7.0.2', 0))
";
    let output = network.inside.command("python3").args(["-c", code]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    rivulet.wait_for_line("tunnels not inspected: gre 1 flows");
    rivulet.stop();
}
