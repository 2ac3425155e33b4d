//! The place of the play: a client, which is the test itself on a TAP device, a router, and a
//! server with the kernel's TCP.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use io::port::{Interface, TransmitBurst};
use tempfile::TempDir;

use crate::wire::{CLIENT_MAC, CLIENT6, SERVER4, SERVER6};

/// Ports of the server: one reads at once; one reads late, with a small buffer; one accepts data in
/// SYNs.
pub const READS: u16 = 8080;
pub const FULL: u16 = 8082;
pub const FAST_OPEN: u16 = 8083;

/// The server. It appends the data of each connection to a file named after the client's port and
/// address family.
const SERVER: &str = r"
import os, socket, sys, threading, time
def serve(family, port):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    if port == 8081: s.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    if port == 8082: s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    if port == 8083: s.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 64)
    s.bind(('', port)); s.listen(512)
    while True:
        c, peer = s.accept()
        threading.Thread(target=read, args=(c, peer, port, family), daemon=True).start()
def read(c, peer, port, family):
    name = ('4' if family == socket.AF_INET else '6') + '-' + str(peer[1])
    f = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    if port == 8082: time.sleep(0.25)
    try:
        while True:
            b = c.recv(65536)
            if not b: break
            os.write(f, b)
    except OSError: pass
    os.close(f); c.close()
threading.stack_size(131072)
for family in (socket.AF_INET, socket.AF_INET6):
    for port in (8080, 8081, 8082, 8083):
        threading.Thread(target=serve, args=(family, port), daemon=True).start()
time.sleep(3600)
";

/// Returns the time since the start, in all places.
pub fn now_ns() -> u64 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGAN.elapsed().as_nanos() as u64
}

/// Namespaces of a router and a server, and optionally of Rivulet in line.
pub struct Place {
    names: Vec<String>,
    children: Vec<Child>,
    interface: Interface,
    pub dir: TempDir,
}

/// Runs `ip`, which must succeed.
fn ip(line: &str) {
    let output = Command::new("ip").args(line.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns why the tests cannot run here.
pub fn missing() -> Option<String> {
    for tool in ["ip", "python3"] {
        if !Command::new("which").arg(tool).output().is_ok_and(|out| out.status.success()) {
            return Some(format!("{tool} is not installed"));
        }
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("there is no /dev/net/tun".to_owned());
    }
    let probe = format!("rve{}-probe", std::process::id());
    let made = Command::new("ip").args(["netns", "add", &probe]).output().unwrap();
    let _ = Command::new("ip").args(["netns", "del", &probe]).output();
    (!made.status.success()).then(|| "network namespaces cannot be made: it takes root".to_owned())
}

impl Place {
    /// Creates a place. With a policy, `rivulet up` stands between client and router.
    pub fn new(number: usize, policy: Option<&str>) -> Place {
        let line = if policy.is_some() { "p" } else { "" };
        let tag = format!("rve{}{line}{number}", std::process::id());
        let [router, server, middle] = ["r", "s", "m"].map(|end| format!("{tag}{end}"));
        let mut names = vec![router.clone(), server.clone()];
        names.extend(policy.map(|_| middle.clone()));
        for name in &names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
            ip(&format!("netns add {name}"));
            ip(&format!("-n {name} link set lo up"));
        }
        let dir = tempfile::tempdir().unwrap();
        let interface = Interface::open(&format!("tap:{tag}").parse().unwrap()).unwrap();
        // The router's route to the client.
        let client_side = if policy.is_some() {
            ip(&format!("link set {tag} netns {middle}"));
            ip(&format!("link add near netns {router} type veth peer name far netns {middle}"));
            ip(&format!("-n {middle} link set {tag} up"));
            ip(&format!("-n {middle} link set far up"));
            "near".to_owned()
        } else {
            ip(&format!("link set {tag} netns {router}"));
            tag.clone()
        };
        ip(&format!("-n {router} link set {client_side} address 02:09:00:00:00:02"));
        ip(&format!("-n {router} link set {client_side} up"));
        ip(&format!("link add server netns {router} type veth peer name eth0 netns {server}"));
        ip(&format!("-n {router} link set server up"));
        ip(&format!("-n {server} link set eth0 up"));
        for address in ["10.9.0.254/24", "fd09::254/64"] {
            ip(&format!("-n {router} addr add {address} dev {client_side} {}", nodad(address)));
        }
        for address in ["10.9.1.254/24", "fd09:1::254/64"] {
            ip(&format!("-n {router} addr add {address} dev server {}", nodad(address)));
        }
        for address in ["10.9.1.2/24", "fd09:1::2/64"] {
            ip(&format!("-n {server} addr add {address} dev eth0 {}", nodad(address)));
        }
        ip(&format!("-n {server} route add default via 10.9.1.254"));
        ip(&format!("-n {server} -6 route add default via fd09:1::254"));
        let mac = CLIENT_MAC.map(|byte| format!("{byte:02x}")).join(":");
        for client in ["10.9.0.1", CLIENT6] {
            ip(&format!("-n {router} neigh add {client} lladdr {mac} dev {client_side}"));
        }
        let mut place = Place { names, children: Vec::new(), interface, dir };
        let set = |name: &str, what: &str| {
            let output = place.run(name, &format!("sysctl -q -w {what}"));
            assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        };
        set(&router, "net.ipv4.ip_forward=1");
        set(&router, "net.ipv6.conf.all.forwarding=1");
        set(&router, "net.ipv4.icmp_ratelimit=0");
        set(&server, "net.ipv4.tcp_fastopen=514");
        set(&server, "net.ipv4.tcp_invalid_ratelimit=0");
        set(&server, "net.ipv4.tcp_syncookies=0");
        std::fs::create_dir(place.path("read")).unwrap();
        let mut command = place.command(&server, "python3");
        command.args(["-c", SERVER]).current_dir(place.path("read"));
        place.children.push(command.spawn().unwrap());
        wait_until("the server listens", || {
            let said = place.run(&server, "ss -Hltn");
            String::from_utf8_lossy(&said.stdout).lines().count() >= 8
        });
        // The router has a static entry for the server, so nothing waits for ARP.
        let _ = place.run(&router, "ping -c 1 -W 2 10.9.1.2");
        let _ = place.run(&router, "ping -c 1 -W 2 fd09:1::2");
        if let Some(policy) = policy {
            place.up(&middle, &tag, policy);
        }
        assert_eq!((SERVER4, SERVER6), ([10, 9, 1, 2], "fd09:1::2"));
        place
    }

    /// Runs a policy in line.
    fn up(&mut self, middle: &str, tap: &str, policy: &str) {
        std::fs::write(self.path("policy.rvl"), policy).unwrap();
        let mut command = self.command(middle, env!("CARGO_BIN_EXE_rivulet"));
        command.args(["up", "policy.rvl", "--driver", "packet", "--alerts", "eve.json"]);
        command.args(["--port", &format!("inside={tap}"), "--port", "outside=far"]);
        command.current_dir(self.dir.path()).stderr(std::fs::File::create(self.path("up.log")).unwrap());
        self.children.push(command.spawn().unwrap());
        wait_until("rivulet is up", || {
            std::fs::read_to_string(self.path("up.log")).is_ok_and(|said| said.contains("rivulet: up"))
        });
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, name: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", name, program]).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn run(&self, name: &str, line: &str) -> Output {
        let mut words = line.split_whitespace();
        let mut command = self.command(name, words.next().unwrap());
        command.args(words).stdout(Stdio::piped()).output().unwrap()
    }

    /// Sends a frame at once.
    pub fn send(&mut self, frame: &[u8]) {
        let mut outbox = TransmitBurst::default();
        outbox.push(frame);
        self.interface.send(&mut outbox);
    }

    /// Returns the frames that have arrived.
    pub fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        self.interface.receive(|frame| frames.push(frame.to_vec())).unwrap();
        frames
    }

    /// Returns what the application read of a client's connection.
    pub fn read(&self, family: &str, port: u16) -> Vec<u8> {
        std::fs::read(self.path("read").join(format!("{family}-{port}"))).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

fn nodad(address: &str) -> &str {
    if address.contains(':') { "nodad" } else { "" }
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within 20 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}
