//! External nodes that are a proxy, a bridge, and a namespace that somebody else made.

use std::fs::{self, File};

use crate::externals::{alone, is_installed, kill, processes, routed};
use crate::net::{Host, Io, Network, Server, wait_until};

/// Sends TCP port 80 to the proxy, which has another port.
const REDIRECT: &str = "table ip proxy {
  chain prerouting { type nat hook prerouting priority dstnat; iifname eth0 tcp dport 80 redirect to :8080; }
}";

const HAPROXY: &str = "defaults
  mode http
  timeout connect 20s
  timeout client 60s
  timeout server 60s
frontend web
  bind :8080
  http-request set-header X-Proxy haproxy
  default_backend outside
backend outside
  server only 203.0.113.2:80
";

/// A web server that logs its port, the client's address and the header of the proxy.
const SERVER: &str = "import http.server, os, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        print(self.server.server_port, self.client_address[0], self.headers.get('X-Proxy'), file=sys.stderr, flush=True)
        super().do_GET()
    def log_message(self, *_):
        pass
os.chdir(os.path.dirname(sys.argv[0]))
http.server.ThreadingHTTPServer(('', int(sys.argv[1])), Handler).serve_forever()
";

/// Starts web servers outside, at ports 80 and 81, with a file `page`. They write to `log`.
fn serve(network: &Network) -> [Server; 2] {
    let page: String = (0..20_000).map(|line| format!("line {line}\n")).collect();
    fs::write(network.path("page"), page).unwrap();
    fs::write(network.path("server.py"), SERVER).unwrap();
    let line = format!("python3 {}", network.path("server.py").display());
    let log = File::options().create(true).append(true).open(network.path("log")).unwrap();
    [80, 81]
        .map(|port| network.outside.serve_with_log(&format!("{line} {port}"), port, log.try_clone().unwrap()))
}

#[test]
fn proxy_takes_web_traffic_and_a_nat_follows() {
    if !is_installed("haproxy") {
        return;
    }
    let _alone = alone();
    let Some(network) = routed() else { return };
    let folder = network.dir.path().display().to_string();
    fs::write(network.path("redirect.nft"), REDIRECT).unwrap();
    fs::write(network.path("haproxy.cfg"), HAPROXY).unwrap();
    let policy = format!(
        "Port<0> inside {{ address: 10.7.0.254/24 }};
         Port<1> outside {{ address: 203.0.113.254/24 }};
         NAT n {{ external: [203.0.113.7] }};
         Legacy box {{ setup: \"nft -f {folder}/redirect.nft\", command: \"haproxy -f {folder}/haproxy.cfg -db\" }};
         pipelet {{ inside <-> box <-> n <-> outside; }}"
    );
    let rivulet = network.up(&policy, "");
    rivulet.wait_for_line("box: started");
    let _servers = serve(&network);
    let page = fs::read_to_string(network.path("page")).unwrap();
    let curl = |port: u16| format!("curl -sSf -m 60 http://203.0.113.2:{port}/page");
    let is_served = || network.inside.output(&curl(80)).status.success();
    wait_until("the proxy listens", is_served);
    // Others than the web pass by the proxy, not by the NAT.
    for port in [80, 81] {
        assert_eq!(network.inside.run(&curl(port)), page);
    }
    let proxies = processes(&format!("^haproxy -f {folder}"));
    kill(&proxies);
    rivulet.wait_for_line("box: ended: signal 9");
    rivulet.wait_for_line("box: started");
    wait_until("the proxy listens again", is_served);
    assert_eq!(network.inside.run(&curl(80)), page);
    assert_ne!(processes(&format!("^haproxy -f {folder}")), proxies);
    let report = rivulet.end();
    let log = fs::read_to_string(network.path("log")).unwrap();
    let is_expected = |line: &str| ["80 203.0.113.7 haproxy", "81 203.0.113.7 None"].contains(&line);
    assert!(log.lines().all(is_expected), "{log}");
    for (port, least) in [("80 ", 4), ("81 ", 1)] {
        assert!(log.lines().filter(|line| line.starts_with(port)).count() >= least, "{log}");
    }
    assert_eq!(report["programs"]["box"]["restarts"], 1);
    assert!(processes(&format!("^haproxy -f {folder}")).is_empty());
}

/// Returns rules that count pings and refuse TCP port 81, of this family.
fn rules(network: &Network, family: &str) -> String {
    let rules = format!(
        "table {family} box {{
           chain forward {{
             type filter hook forward priority 0;
             icmp type echo-request counter
             tcp dport 81 drop
           }}
         }}"
    );
    fs::write(network.path("rules.nft"), rules).unwrap();
    format!("nft -f {}", network.path("rules.nft").display())
}

fn is_refused(host: &Host, url: &str) -> bool {
    host.output(&format!("curl -sS -m 2 -o /dev/null {url}")).status.code() == Some(28)
}

#[test]
fn bridge_filters_between_two_segments() {
    let _alone = alone();
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let listed = network.path("listed").display().to_string();
    let policy = format!(
        "Port<0> inside; Port<1> outside; Monitor before; Monitor behind;
         Legacy box {{
           mode: bridged,
           setup: \"{}\",
           command: [sh, \"-c\", \"while sleep 0.2; do nft list ruleset > {listed}.new && mv {listed}.new {listed}; done\"]
         }};
         pipelet {{ inside <-> before <-> box <-> behind <-> outside; }}",
        rules(&network, "bridge")
    );
    let rivulet = network.up(&policy, "");
    rivulet.wait_for_line("box: started");
    let _servers = serve(&network);
    network.inside.ping("-c 3 -i 0.05 -W 2 fd07::2");
    network.inside.ping("-c 3 -i 0.05 -W 2 10.7.0.2");
    let page = fs::read_to_string(network.path("page")).unwrap();
    assert_eq!(network.inside.run("curl -sSf -m 60 http://10.7.0.2/page"), page);
    assert!(is_refused(&network.inside, "http://10.7.0.2:81/page"));
    wait_until("the bridge has counted the pings", || {
        let listed = fs::read_to_string(&listed).unwrap_or_default();
        listed.contains("echo-request counter packets") && !listed.contains("counter packets 0 ")
    });
    let report = rivulet.end();
    assert_eq!(report["programs"]["box"]["restarts"], 0);
    let count = |port: &str| report["ports"][port]["packets_in"].as_u64().unwrap();
    assert!(count("box.outside") > 0 && count("box.inside") > 0, "{report}");
}

#[test]
fn namespace_of_somebody_else_stays() {
    let _alone = alone();
    let Some(network) = routed() else { return };
    let given = network.third("given", &[]);
    let mut resident = given.command("sleep").arg("3600").spawn().unwrap();
    given.run(&rules(&network, "inet"));
    let policy = |netns: &str| {
        format!(
            "Port<0> inside {{ address: 10.7.0.254/24 }};
             Port<1> outside {{ address: 203.0.113.254/24 }};
             Legacy box {{ netns: \"{netns}\", ports: {{ inside: near, outside: far }} }};
             pipelet {{ inside <-> box <-> outside; }}"
        )
    };
    let rivulet = network.up(&policy(given.name()), "");
    let _servers = serve(&network);
    network.inside.ping("-c 3 -i 0.05 -W 2 203.0.113.2");
    let page = fs::read_to_string(network.path("page")).unwrap();
    assert_eq!(network.inside.run("curl -sSf -m 60 http://203.0.113.2/page"), page);
    assert!(is_refused(&network.inside, "http://203.0.113.2:81/page"));
    let listed = given.run("nft list ruleset");
    assert!(!listed.contains("counter packets 0 "), "{listed}");
    let links = || given.run("ip -br link");
    assert!(links().contains("near") && links().contains("far"), "{}", links());
    rivulet.end();
    // Its interfaces are removed, and nothing else.
    assert!(links().contains("eth0") && !links().contains("near") && !links().contains("far"), "{}", links());
    assert!(given.run("nft list ruleset").contains("table inet box"));
    assert!(resident.try_wait().unwrap().is_none());
    resident.kill().unwrap();
    resident.wait().unwrap();

    fs::write(network.path("policy.rvl"), policy("rivulet-none")).unwrap();
    let line = format!(
        "{} up {} --port inside=inside --port outside=outside",
        env!("CARGO_BIN_EXE_rivulet"),
        network.path("policy.rvl").display()
    );
    let output = network.middle.output(&line);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = "there is no network namespace rivulet-none; make it: `ip netns add rivulet-none`";
    assert!(!output.status.success() && said.contains(expected), "{said}");
}
