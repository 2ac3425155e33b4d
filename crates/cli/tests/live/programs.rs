//! Programs that scan, attack, download, and stay connected find what the policy says.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::net::{Host, Io, Network, Server, by_each_way, wait_until};
use crate::ssh::{Session, ssh_options, sshd};

by_each_way!(
    a_scanner_finds_the_ports_that_rules_leave_open,
    an_attack_is_stopped_and_harmless_requests_pass,
    large_downloads_over_http_1_and_2_arrive_whole_through_the_nat,
    a_session_survives_an_interface_that_goes_down,
    ssh_sessions_and_file_copies_pass_the_nat,
);

fn a_scanner_finds_the_ports_that_rules_leave_open(io: Io) {
    let Some(network) = Network::new(io) else { return };
    let policy = r#"
        Port<0> inside;
        Port<1> outside;
        Firewall gate {
          rules: [
            "allow out tcp to any port {80, 443}",
            "reject out tcp to any port 22",
            "allow out udp to any port {53, 123}",
            "reject out udp to any port 69",
          ],
          pickup: drop,
        };
        pipelet { inside <-> gate <-> outside; }"#;
    let rivulet = network.up(policy, "");
    let _listens = network.outside.serve("python3 -m http.server 80", 80);
    let _shut = network.outside.serve("python3 -m http.server 25", 25);
    let _echoes = echo(&network.outside, 53);
    // The port of each line, and the scanner's verdict.
    let scan = |kind: &str, ports: &str| {
        let times = "--max-retries 2 --initial-rtt-timeout 500ms --max-rtt-timeout 1s --max-scan-delay 0";
        let said = network.inside.run(&format!("nmap -n -Pn {kind} -p {ports} {times} -oG - 10.7.0.2"));
        let line = said.lines().find(|line| line.contains("Ports: ")).unwrap_or_else(|| panic!("{said}"));
        let (_, ports) = line.split_once("Ports: ").unwrap();
        let port = |text: &str| text.trim().split('/').take(2).collect::<Vec<_>>().join(" ");
        ports.split('\t').next().unwrap().split(',').map(port).collect::<Vec<_>>()
    };
    // 443 is allowed but closed; 22 is rejected on behalf of the server; 25, which is open, is
    // silently dropped.
    assert_eq!(scan("-sS", "22,25,80,443"), ["22 closed", "25 filtered", "80 open", "443 closed"]);
    // 69 is rejected as "administratively prohibited"; 161 is silently dropped.
    let udp = scan("-sU", "53,69,123,161");
    assert_eq!(udp, ["53 open", "69 filtered", "123 closed", "161 open|filtered"]);
    // Segments of no connection do not reach the server, which would answer them.
    assert_eq!(scan("-sA", "80,443"), ["80 filtered", "443 filtered"]);
    let report = rivulet.end();
    let drops = &report["drops"];
    for reason in ["firewall-default", "firewall-rejected", "firewall-invalid"] {
        assert!(drops[reason].as_u64().is_some_and(|count| count > 0), "{reason}: {drops}");
    }
}

/// Starts a server that echoes each datagram.
fn echo(host: &Host, port: u16) -> Server {
    let code = format!(
        "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', {port}))
while True:
    data, who = s.recvfrom(2000)
    s.sendto(data, who)
"
    );
    let server = Server::of(host.command("python3").args(["-c", &code]).spawn().unwrap());
    wait_until("the server listens", || host.run("ss -Hlun").contains(&format!(":{port} ")));
    server
}

fn an_attack_is_stopped_and_harmless_requests_pass(io: Io) {
    let Some(network) = Network::new(io) else { return };
    let rules = "\
drop http any any -> any 8080 (msg:\"A path leads out\"; flow:established,to_server; \
http.uri.raw; content:\"/../../\"; classtype:web-application-attack; sid:1001; rev:2;)
drop http any any -> any 8080 (msg:\"A scanner\"; flow:established,to_server; \
http.user_agent; content:\"sqlmap/\"; startswith; sid:1002; rev:1;)
alert http any any -> any 8080 (msg:\"The list is read\"; flow:established,to_server; \
http.uri; content:\"/list\"; sid:1003; rev:1;)
";
    fs::write(network.path("own.rules"), rules).unwrap();
    fs::create_dir(network.path("www")).unwrap();
    fs::write(network.path("www/list"), "a\nb\n").unwrap();
    let policy = "
        Port<0> inside;
        Port<1> outside;
        IDS watch { rules: file(\"own.rules\"), mode: prevent };
        pipelet { inside <-> watch <-> outside; }";
    let rivulet = network.up(policy, "--alerts eve.json");
    let log = network.path("log");
    let folder = network.path("www");
    let serve = format!("python3 -m http.server --directory {} 8080", folder.display());
    let server = network.outside.serve_with_log(&serve, 8080, File::create(&log).unwrap());
    let get = |options: &str, path: &str| {
        network.inside.output(&format!("curl -sS {options} http://10.7.0.2:8080/{path}"))
    };
    assert_eq!(get("-m 10", "list").stdout, b"a\nb\n");
    assert_eq!(get("-m 2 -A sqlmap/1.7", "harmless").status.code(), Some(28));
    assert_eq!(get("-m 2 --path-as-is", "../../etc/shadow").status.code(), Some(28));
    // In two segments, with the pattern across both.
    let pieces = "(printf 'GET /pieces/..'; sleep 0.3; printf '/../x HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'; sleep 1) \
                  | nc -w 2 10.7.0.2 8080";
    let output = network.inside.command("sh").args(["-c", pieces]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert_eq!(get("-m 10 -A harmless/1.0", "list").stdout, b"a\nb\n");
    rivulet.end();
    drop(server);
    // The server has seen only the harmless requests.
    let log = fs::read_to_string(log).unwrap();
    assert_eq!(log.matches("GET /list").count(), 2, "{log}");
    for attack in ["harmless", "shadow", "pieces"] {
        assert!(!log.contains(attack), "{log}");
    }
    let eve = fs::read_to_string(network.path("eve.json")).unwrap();
    let alerts = eve.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut told: Vec<_> = alerts
        .filter(|event| event["event_type"] == "alert")
        .map(|event| {
            assert_eq!(
                (event["src_ip"].as_str(), event["dest_ip"].as_str(), event["dest_port"].as_u64()),
                (Some("10.7.0.1"), Some("10.7.0.2"), Some(8080)),
                "{event}"
            );
            let alert = &event["alert"];
            (alert["signature_id"].as_u64().unwrap(), alert["action"].as_str().unwrap().to_owned())
        })
        .collect();
    told.sort();
    let expected =
        [(1001, "blocked"), (1001, "blocked"), (1002, "blocked"), (1003, "allowed"), (1003, "allowed")];
    assert_eq!(told, expected.map(|(id, action)| (id, action.to_owned())), "{eve}");
}

/// A router with a NAT on the port's own address.
const GATEWAY: &str = "
Port<0> inside { address: \"10.7.0.254/24\" };
Port<1> outside { address: \"203.0.113.1/24\" };
NAT translate { external: [203.0.113.1] };
pipelet { inside <-> translate <-> outside; }
";

fn large_downloads_over_http_1_and_2_arrive_whole_through_the_nat(io: Io) {
    let Some(network) = Network::routed(io) else { return };
    let rivulet = network.up(GATEWAY, "");
    // Incompressible bytes.
    let mut state = 1u64;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(48 << 20)
    .collect();
    fs::create_dir(network.path("www")).unwrap();
    fs::write(network.path("www/file"), &bytes).unwrap();
    let sum = |name: &str| {
        let line = format!("sha256sum {}", network.path(name).display());
        network.middle.run(&line).split_whitespace().next().unwrap().to_owned()
    };
    let sent = sum("www/file");
    let folder = network.path("www");
    let line = format!("python3 -m http.server --protocol HTTP/1.1 --directory {} 8080", folder.display());
    let _first = network.outside.serve(&line, 8080);
    let line = format!("nghttpd --no-tls -d {} 8082", folder.display());
    let _second = network.outside.serve(&line, 8082);
    for (options, port, version) in [("--http1.1", 8080, "1.1"), ("--http2-prior-knowledge", 8082, "2")] {
        // Two at a time, each on its own connection: curl 7.88 fails at a second HTTP/2 download on
        // the same one.
        let [one, two] = ["one", "two"].map(|name| network.path(name).display().to_string());
        let url = format!("http://203.0.113.2:{port}/file");
        let line = format!(
            "curl -sS -m 60 {options} -Z --parallel-immediate -w %{{http_version}},%{{num_connects}}; -o {one} {url} -o {two} {url}"
        );
        let said = network.inside.run(&line);
        assert_eq!(said.matches(&format!("{version},")).count(), 2, "{said}");
        for name in ["one", "two"] {
            assert_eq!(sum(name), sent, "{name} by HTTP/{version}");
            fs::remove_file(network.path(name)).unwrap();
        }
    }
    let report = rivulet.end();
    assert_eq!(report["drops"], serde_json::json!({}));
}

fn a_session_survives_an_interface_that_goes_down(io: Io) {
    let Some(network) = Network::routed(io) else { return };
    let rivulet = network.up(GATEWAY, "");
    let mut server = nc(&network, &network.outside, "-l 9000", "at the server");
    wait_until("nc listens", || network.outside.run("ss -Hltn").contains(":9000 "));
    let mut client = nc(&network, &network.inside, "203.0.113.2 9000", "at the client");
    let say = |child: &mut Child, line: &str| writeln!(child.stdin.as_mut().unwrap(), "{line}").unwrap();
    let heard = |name: &str| fs::read_to_string(network.path(name)).unwrap();
    let mut all = [String::new(), String::new()];
    let mut both_say = |client: &mut Child, server: &mut Child, line: &str| {
        say(client, &format!("{line} from the client"));
        say(server, &format!("{line} from the server"));
        all[0] += &format!("{line} from the client\n");
        all[1] += &format!("{line} from the server\n");
        all.clone()
    };
    let arrives = |all: &[String; 2]| heard("at the server") == all[0] && heard("at the client") == all[1];
    let all = both_say(&mut client, &mut server, "before");
    wait_until("lines arrive", || arrives(&all));
    let connection = network.outside.run("ss -Htn sport = :9000");
    for interface in ["outside", "inside"] {
        network.middle.ip(&format!("link set {interface} down"));
        let all = both_say(&mut client, &mut server, &format!("while {interface} is down"));
        std::thread::sleep(std::time::Duration::from_millis(700));
        assert!(!arrives(&all));
        network.middle.ip(&format!("link set {interface} up"));
        wait_until("the data sent in the meantime arrives", || arrives(&all));
        let all = both_say(&mut client, &mut server, "and after");
        wait_until("lines arrive", || arrives(&all));
    }
    // The same connection, from the same port of the NAT.
    let peer = |text: &str| text.split_whitespace().nth(4).unwrap().to_owned();
    assert_eq!(peer(&network.outside.run("ss -Htn sport = :9000")), peer(&connection));
    assert!(peer(&connection).starts_with("203.0.113.1:"), "{connection}");
    for mut child in [client, server] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    rivulet.end();
}

/// Starts `nc` with these arguments, and writes what it receives to a file.
fn nc(network: &Network, host: &Host, line: &str, name: &str) -> Child {
    let mut command = host.command("nc");
    command.args(line.split(' ')).stdin(Stdio::piped()).stdout(File::create(network.path(name)).unwrap());
    command.spawn().unwrap()
}

fn ssh_sessions_and_file_copies_pass_the_nat(io: Io) {
    let Some(network) = Network::routed(io) else { return };
    let rivulet = network.up(GATEWAY, "");
    let server = sshd(&network, &network.outside, 2222);
    // On a terminal, an answer precedes the next typed line.
    let mut session = Session::open(&network, ("203.0.113.2", 2222), "terminal");
    session.say("echo $((6 * 7))-is-it", "42-is-it");
    // The server sees the NAT's address.
    session.say("echo from ${SSH_CONNECTION%% *}.", "from 203.0.113.1.");

    let mut state = 1u64;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(8 << 20)
    .collect();
    fs::write(network.path("file"), &bytes).unwrap();
    let folder = network.dir.path().display();
    let options = ssh_options(&network, "-P", 2222);
    network.inside.run(&format!("scp -q {options} {folder}/file root@203.0.113.2:{folder}/there"));
    fs::write(network.path("batch"), format!("get {folder}/there {folder}/back\n")).unwrap();
    network.inside.run(&format!("sftp -q {options} -b {folder}/batch root@203.0.113.2"));
    for name in ["there", "back"] {
        assert!(fs::read(network.path(name)).unwrap() == bytes, "the copy {name} differs");
    }

    session.say("echo still-$((1 + 1))-here", "still-2-here");
    session.end();
    drop(server);
    let report = rivulet.end();
    assert_eq!(report["drops"], serde_json::json!({}));
}
