//! A site with three zones and its web traffic through Squid, and E2's talk with HAProxy.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::externals::{alone, is_installed, kill, processes};
use crate::net::{Host, Io, Network, Rivulet, Server, wait_until};
use crate::ssh::{Session, ssh_options, sshd};

/// A name server that knows one name, over UDP and TCP, IPv4 and IPv6.
const NAMES: &str = "import socket, struct, threading
ANSWERS = {1: socket.inet_pton(socket.AF_INET, '192.0.2.80'), 28: socket.inet_pton(socket.AF_INET6, '2001:db8:e::80')}
def answer(query):
    end = query.index(b'\\0', 12) + 5
    kind, = struct.unpack('!H', query[end - 4:end - 2])
    found = ANSWERS.get(kind) if query[12:end - 4] == b'\\3www\\7example\\0' else None
    head = query[:2] + struct.pack('!HHHHH', 0x8580, 1, 1 if found else 0, 0, 0)
    return head + query[12:end] + (struct.pack('!HHHIH', 0xc00c, kind, 1, 60, len(found)) + found if found else b'')
def stream(server):
    while True:
        client, _ = server.accept()
        query = client.recv(2000)
        reply = answer(query[2:])
        client.sendall(struct.pack('!H', len(reply)) + reply)
        client.close()
threads = []
for address in ('192.0.2.53', '2001:db8:e::53'):
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    datagrams = socket.socket(family, socket.SOCK_DGRAM)
    datagrams.bind((address, 53))
    def serve(datagrams=datagrams):
        while True:
            query, client = datagrams.recvfrom(2000)
            datagrams.sendto(answer(query), client)
    listener = socket.create_server((address, 53), family=family)
    threads += [threading.Thread(target=serve), threading.Thread(target=stream, args=(listener,))]
for thread in threads:
    thread.start()
";

/// A web server that logs its port, the client's address and the proxy's header. It sends `slow`
/// until the client has gone.
const WEB: &str = "import http.server, os, socket, sys, time
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
class Handler(http.server.SimpleHTTPRequestHandler):
    def address(self):
        return self.client_address[0].removeprefix('::ffff:')
    def do_GET(self):
        print(self.server.server_port, self.address(), self.headers.get('Via'), file=sys.stderr, flush=True)
        if self.path != '/slow':
            return super().do_GET()
        self.send_response(200)
        self.end_headers()
        while True:
            self.wfile.write(b'slow' * 100)
            time.sleep(0.05)
    def log_message(self, *_):
        pass
os.chdir(os.path.dirname(sys.argv[0]))
Server(('::', int(sys.argv[1])), Handler).serve_forever()
";

/// The router's ports on the interfaces of the middle.
const ZONES: [&str; 3] = ["lan=inside", "dmz=dmz", "wan=outside"];

/// The hosts of the Internet, beyond the gateway.
const INTERNET: [&str; 4] = ["192.0.2.53", "192.0.2.80", "2001:db8:e::53", "2001:db8:e::80"];

/// Hosts around the example of a site.
struct Site {
    network: Network,
    dmz: Host,
    _servers: Vec<Server>,
}

impl Site {
    fn new() -> Option<Site> {
        if !is_installed("squid") {
            return None;
        }
        let network = Network::unconnected(Io::PacketSocket)?;
        network.connect_with("inside", &["10.1.0.1/24", "2001:db8:1::1/64"]);
        network.connect_with("outside", &["203.0.113.2/24", "2001:db8:f::2/64"]);
        let dmz = network.third("dmz", &["198.51.100.1/24", "2001:db8:2::1/64"]);
        for (host, v4, v6) in
            [(&network.inside, "10.1.0.254", "2001:db8:1::fe"), (&dmz, "198.51.100.254", "2001:db8:2::fe")]
        {
            host.ip(&format!("route add default via {v4}"));
            host.ip(&format!("-6 route add default via {v6}"));
        }
        for address in INTERNET {
            network.outside.ip(&format!("addr add {address} dev lo"));
        }
        network.outside.ip("route add 198.51.100.0/24 via 203.0.113.254");
        for site in ["2001:db8:1::/64", "2001:db8:2::/64", "2001:db8:3::/48"] {
            network.outside.ip(&format!("-6 route add {site} via 2001:db8:f::fe"));
        }
        write_files(&network);
        let mut servers = vec![names(&network)];
        for (host, ports) in [(&network.outside, &[80, 81, 443][..]), (&dmz, &[80, 443])] {
            servers.extend(ports.iter().map(|&port| web(&network, host, port)));
        }
        Some(Site { network, dmz, _servers: servers })
    }

    /// Runs the example, with files of its own, and one restart of Squid later than there.
    fn up(&self, options: &str) -> Rivulet {
        let folder = self.network.dir.path().display().to_string();
        let policy = example("site.rvl").replace("/etc/rivulet", &folder);
        let policy = policy.replace("  command: ", "  restart: 6s\n  command: ");
        let squid = example("squid.conf").replace("/var/log/squid", &folder);
        fs::write(self.network.path("squid.conf"), squid).unwrap();
        fs::write(self.network.path("redirect.nft"), example("redirect.nft")).unwrap();
        let rivulet = self.network.up_on(ZONES, &policy, options);
        rivulet.wait_for_line("squid: started");
        wait_until("Squid listens", || self.get("-m 5", "http://192.0.2.80/page").status.success());
        rivulet
    }

    fn get(&self, options: &str, url: &str) -> Output {
        get(&self.network.inside, options, url)
    }

    /// Downloads the page, which must arrive whole. Returns the headers of the reply.
    fn download(&self, host: &Host, options: &str, url: &str) -> String {
        let copy = self.network.path("copy");
        let headers = host.run(&format!("curl -sSf -m 60 {options} -D - -o {} {url}", copy.display()));
        assert_eq!(sum(&self.network, "copy"), sum(&self.network, "page"), "{url}");
        headers
    }

    fn squids(&self) -> Vec<String> {
        processes(&format!("^squid -N -f {}", self.network.dir.path().display()))
    }
}

fn example(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/external/");
    fs::read_to_string(format!("{folder}{name}")).unwrap()
}

fn get(host: &Host, options: &str, url: &str) -> Output {
    host.output(&format!("curl -sSf {options} -o /dev/null {url}"))
}

fn sum(network: &Network, name: &str) -> String {
    let said = network.middle.run(&format!("sha256sum {}", network.path(name).display()));
    said.split_whitespace().next().unwrap().to_owned()
}

/// Writes the servers' programs and their page, where the user of a proxy may read and write.
fn write_files(network: &Network) {
    let page: String = (0..40_000).map(|line| format!("line {line}\n")).collect();
    fs::write(network.path("page"), page).unwrap();
    fs::write(network.path("web.py"), WEB).unwrap();
    fs::write(network.path("names.py"), NAMES).unwrap();
    fs::set_permissions(network.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
}

/// Starts a web server on this port of a host.
fn web(network: &Network, host: &Host, port: u16) -> Server {
    let line = format!("python3 {} {port}", network.path("web.py").display());
    let log = File::options().create(true).append(true).open(network.path("web.log")).unwrap();
    host.serve_with_log(&line, port, log)
}

/// Starts the name server outside.
fn names(network: &Network) -> Server {
    network.outside.serve(&format!("python3 {}", network.path("names.py").display()), 53)
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn lines_of(network: &Network, name: &str) -> Vec<String> {
    fs::read_to_string(network.path(name)).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn web_of_a_site_goes_through_squid_and_the_rest_passes_by() {
    let _alone = alone();
    let Some(site) = Site::new() else { return };
    let (client, world) = (&site.network.inside, &site.network.outside);
    let rivulet = site.up("");
    for (options, host) in [
        ("", "192.0.2.80"),
        ("", "[2001:db8:e::80]"),
        ("", "198.51.100.1"),
        ("", "[2001:db8:2::1]"),
        // Squid queries the name server, through NAT and firewall.
        ("--resolve www.example:80:192.0.2.80", "www.example"),
    ] {
        let headers = site.download(client, options, &format!("http://{host}/page"));
        assert!(headers.contains("Via: ") && headers.contains("proxy.example"), "{host}: {headers}");
    }
    for (from, host) in [
        (client, "192.0.2.80:443"),
        (client, "[2001:db8:e::80]:443"),
        (client, "198.51.100.1:443"),
        (world, "198.51.100.1:80"),
        (world, "[2001:db8:2::1]:80"),
    ] {
        let headers = site.download(from, "", &format!("http://{host}/page"));
        assert!(!headers.contains("Via: "), "{host}: {headers}");
    }
    let lines = lines_of(&site.network, "web.log");
    for expected in [
        "80 203.0.113.7 1.1 proxy.example",
        "80 2001:db8:3:2::2 1.1 proxy.example",
        "80 100.127.0.6 1.1 proxy.example",
        "443 203.0.113.7 None",
        "443 2001:db8:1::1 None",
        "443 10.1.0.1 None",
        "80 203.0.113.2 None",
    ] {
        assert!(lines.iter().any(|line| line.starts_with(expected)), "{expected}: {lines:?}");
    }
    for (server, more) in [("192.0.2.53", ""), ("2001:db8:e::53", ""), ("192.0.2.53", "+tcp")] {
        for (kind, address) in [("A", "192.0.2.80"), ("AAAA", "2001:db8:e::80")] {
            let said = client.run(&format!("dig +short +tries=5 {more} @{server} www.example {kind}"));
            assert_eq!(said.trim(), address, "{server} {more}");
        }
    }
    assert_other_programs_pass(&site);
    assert_unsafe_is_dropped(&site);
    let squid_has_served =
        || lines_of(&site.network, "access.log").iter().filter(|line| line.contains("TCP_")).count() >= 5;
    wait_until("Squid has logged its clients", squid_has_served);
    let report = rivulet.end();
    assert_eq!(report["programs"]["squid"]["restarts"], 0);
    for reason in ["policy", "policy-unmatched", "firewall-default"] {
        assert!(count(&report["drops"][reason]) > 0, "{reason}: {}", report["drops"]);
    }
    assert!(site.squids().is_empty());
}

/// Asserts that iperf3 and ssh pass between the zones.
fn assert_other_programs_pass(site: &Site) {
    let (client, world) = (&site.network.inside, &site.network.outside);
    let _inner = site.dmz.serve("iperf3 -s", 5201);
    for target in ["198.51.100.1", "2001:db8:2::1"] {
        client.iperf3(&format!("-c {target} -n 8M"));
        client.iperf3(&format!("-c {target} -n 8M -R"));
    }
    let servers = [
        (world, "192.0.2.80"),
        (world, "2001:db8:e::80"),
        (&site.dmz, "198.51.100.1"),
        (&site.dmz, "2001:db8:2::1"),
    ];
    for (host, target) in servers {
        let _server = sshd(&site.network, host, 22);
        for from in [client, world].into_iter().filter(|from| from.name() != host.name()) {
            let options = ssh_options(&site.network, "-p", 22);
            let said = from.run(&format!("ssh {options} root@{target} echo hello"));
            assert_eq!(said, "hello\n", "{target}");
        }
    }
}

/// Tries traffic that no rule allows.
fn assert_unsafe_is_dropped(site: &Site) {
    let (client, world) = (&site.network.inside, &site.network.outside);
    for url in ["http://192.0.2.80:81/page", "http://[2001:db8:e::80]:81/page"] {
        assert_eq!(site.get("-m 2", url).status.code(), Some(28), "{url}");
    }
    for target in ["192.0.2.80", "2001:db8:e::80"] {
        assert!(!client.output(&format!("ping -c 1 -W 1 {target}")).status.success());
    }
    // No outside host can open a connection to a client, or to another port of a server.
    let _hidden = web(&site.network, client, 443);
    world.ip("route add 10.1.0.0/24 via 203.0.113.254");
    for url in ["http://10.1.0.1:443/", "http://[2001:db8:1::1]:443/", "http://198.51.100.1:5201/"] {
        assert_eq!(get(world, "-m 2", url).status.code(), Some(28), "{url}");
    }
    assert_eq!(get(&site.dmz, "-m 2", "http://10.1.0.1:443/").status.code(), Some(28));
}

/// A program that ends its flows, while other flows continue.
#[test]
fn squid_is_killed_and_started_again_while_other_flows_go_on() {
    let _alone = alone();
    let Some(site) = Site::new() else { return };
    let (client, world) = (&site.network.inside, &site.network.outside);
    let rivulet = site.up("--alerts eve.json --events flow");
    let _ssh = sshd(&site.network, world, 22);
    let _iperf3 = site.dmz.serve("iperf3 -s", 5201);
    let mut session = Session::open(&site.network, ("192.0.2.80", 22), "terminal");
    session.say("echo before-$((1 + 1))", "before-2");
    let mut load = client.command("iperf3");
    let load =
        load.args("-c 198.51.100.1 -t 12 -b 20M -J".split(' ')).stdout(Stdio::piped()).spawn().unwrap();
    let slow = site.network.path("slow.copy");
    let mut through = client.command("curl");
    through.args("-sS -N -m 60 --local-port 40001 http://192.0.2.80/slow -o".split(' ')).arg(&slow);
    let through = through.stderr(Stdio::null()).spawn().unwrap();
    wait_until("a download goes through Squid", || fs::metadata(&slow).is_ok_and(|file| file.len() > 2_000));
    let killed = site.squids();
    kill(&killed);
    rivulet.wait_for_line("squid: ended: signal 9");
    // The kernel of the namespace ends the connections of the program at once.
    let through = through.wait_with_output().unwrap();
    assert!(![Some(0), Some(28)].contains(&through.status.code()), "{}", through.status);
    assert_eq!(site.get("-m 2", "http://192.0.2.80/page").status.code(), Some(28));
    session.say("echo while-down-$((1 + 1))", "while-down-2");
    rivulet.wait_for_line("squid: started");
    wait_until("Squid listens again", || site.get("-m 5", "http://192.0.2.80/page").status.success());
    let headers = site.download(client, "", "http://192.0.2.80/page");
    assert!(headers.contains("proxy.example"), "{headers}");
    assert_ne!(site.squids(), killed);
    session.say("echo after-$((1 + 1))", "after-2");
    session.end();
    let load = load.wait_with_output().unwrap();
    let said: Value = serde_json::from_slice(&load.stdout).unwrap();
    assert!(load.status.success() && said["error"].is_null(), "{said}");
    let report = rivulet.end();
    let node = &report["programs"]["squid"];
    assert_eq!((&node["restarts"], &node["last_end"]), (&1.into(), &"signal 9".into()));
    assert!(count(&node["dropped"]) > 0, "{node}");
    assert_eq!(report["drops"], serde_json::json!({ "node-down": node["dropped"] }));
    let events = lines_of(&site.network, "eve.json").into_iter();
    let events = events.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let ended = events.filter(|event| event["src_port"] == 40_001).collect::<Vec<_>>();
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert_eq!(
        (&ended[0]["flow"]["state"], &ended[0]["flow"]["reason"]),
        (&"closed".into(), &"timeout".into())
    );
}

const HAPROXY: &str = "defaults
  mode http
  timeout connect 20s
  timeout client 60s
  timeout server 60s
frontend web
  bind :8080
  http-request set-header Via haproxy
  default_backend outside
backend outside
  server only 192.0.2.80:80
";

const REDIRECT: &str = "table ip proxy {
  chain prerouting {
    type nat hook prerouting priority dstnat
    iifname eth0 tcp dport 80 redirect to :8080
  }
}";

#[test]
fn the_policy_of_the_talk_runs_with_haproxy() {
    if !is_installed("haproxy") {
        return;
    }
    let _alone = alone();
    let Some(network) = Network::unconnected(Io::PacketSocket) else { return };
    network.connect_with("inside", &["10.0.0.9/8"]);
    network.connect_with("outside", &["198.51.100.254/24"]);
    network.inside.ip("route add default via 10.0.0.1");
    for address in INTERNET {
        network.outside.ip(&format!("addr add {address} dev lo"));
    }
    network.outside.ip("route add 203.0.113.0/24 via 198.51.100.1");
    write_files(&network);
    let folder = network.dir.path().display().to_string();
    fs::write(network.path("haproxy.cfg"), HAPROXY).unwrap();
    fs::write(network.path("redirect.nft"), REDIRECT).unwrap();
    let policy = example("talk.rvl").replace("/etc/rivulet", &folder).replace("/etc/haproxy", &folder);
    let rivulet = network.up_on(["int=inside", "ext=outside"], &policy, "");
    rivulet.wait_for_line("p: started");
    let mut servers = vec![names(&network)];
    servers.extend([80, 81, 443].map(|port| web(&network, &network.outside, port)));
    let client = &network.inside;
    let page = fs::read_to_string(network.path("page")).unwrap();
    wait_until("the proxy listens", || get(client, "-m 5", "http://192.0.2.80/page").status.success());
    for port in [80, 443] {
        assert_eq!(client.run(&format!("curl -sSf -m 60 http://192.0.2.80:{port}/page")), page);
    }
    let said = client.run("dig +short +tries=5 @192.0.2.53 www.example A");
    assert_eq!(said.trim(), "192.0.2.80");
    // Not safe; safe, but the host is in a network that no edge takes packets to.
    for url in ["http://192.0.2.80:81/page", "http://198.51.100.254:443/page"] {
        assert_eq!(get(client, "-m 2", url).status.code(), Some(28), "{url}");
    }
    let report = rivulet.end();
    let lines = lines_of(&network, "web.log");
    let of_port = |port: &str| lines.iter().filter(|line| line.starts_with(port)).collect::<Vec<_>>();
    let is_nat = |line: &str| (1..=4).any(|last| line.contains(&format!(" 203.0.113.{last} ")));
    assert!(of_port("80 ").len() >= 2 && of_port("443 ").len() == 1, "{lines:?}");
    assert!(lines.iter().all(|line| is_nat(line)), "{lines:?}");
    assert!(of_port("80 ").iter().all(|line| line.ends_with("haproxy")), "{lines:?}");
    assert!(of_port("443 ").iter().all(|line| line.ends_with("None")), "{lines:?}");
    for reason in ["policy", "policy-unmatched"] {
        assert!(count(&report["drops"][reason]) > 0, "{reason}: {}", report["drops"]);
    }
}
