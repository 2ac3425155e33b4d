//! `rivulet capture` on interfaces: traffic continues, and each packet is written with comments.

use std::process::Stdio;

use crate::externals::{alone, routed};
use crate::net::{Io, Network, Server, by_each_way};

by_each_way!(packets_are_written_with_the_decisions);

const POLICY: &str = "
Port<0> inside { address: \"10.7.0.254/24\" };
Port<1> outside { address: \"203.0.113.1/24\" };
NAT translate { external: [203.0.113.1] };
Firewall gate { rules: \"allow out tcp to any port 8080\\nallow out icmp\" };
pipelet { inside <-> translate <-> gate <-> outside; }
";

fn packets_are_written_with_the_decisions(io: Io) {
    let Some(network) = Network::routed(io) else { return };
    let rivulet = network.capture(POLICY, "--write out.pcapng");
    let _server = network.outside.serve("python3 -m http.server 8080", 8080);
    network.inside.run("ping -c 2 -i 0.05 -W 2 203.0.113.2");
    network.inside.run("curl -sS -m 5 -o /dev/null http://203.0.113.2:8080/");
    let denied = network.inside.output("curl -sS -m 1 http://203.0.113.2:8081/");
    assert_eq!(denied.status.code(), Some(28));
    rivulet.stop();
    let read = |filter: &str| {
        let line = "tshark -n -T fields -e frame.interface_name -e ip.src -e ip.dst -e frame.comment -r";
        let mut words = line.split(' ');
        let mut command = network.middle.command(words.next().unwrap());
        let output = command.args(words).arg(network.path("out.pcapng")).args(["-Y", filter]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    // The first packet of a connection on arrival and departure.
    let first = read("tcp.flags.syn == 1 && tcp.flags.ack == 0 && tcp.dstport == 8080");
    assert_eq!(first.len(), 2, "{first:?}");
    let passed = "translate: forward; gate: forward, by rule 1 (policy.rvl:5) |";
    assert!(first[0].starts_with(&format!("inside\t10.7.0.1\t203.0.113.2\t{passed}")), "{first:?}");
    assert!(first[1].starts_with(&format!("outside\t203.0.113.1\t203.0.113.2\t{passed}")), "{first:?}");
    assert!(first.iter().all(|line| line.contains("| sent by outside | flow ")), "{first:?}");
    // Its reply takes the reverse direction of the same flow.
    let answer = read("tcp.flags.syn == 1 && tcp.flags.ack == 1 && tcp.srcport == 8080");
    assert_eq!(answer.len(), 2, "{answer:?}");
    assert!(answer[0].starts_with("outside\t203.0.113.2\t203.0.113.1\t"), "{answer:?}");
    assert!(answer[1].starts_with("inside\t203.0.113.2\t10.7.0.1\t"), "{answer:?}");
    assert!(
        answer.iter().all(|line| line.contains("| sent by inside |") && line.contains("reply direction"))
    );
    // A refused packet is written once, with the reason.
    let denied = read("tcp.dstport == 8081");
    assert!(!denied.is_empty());
    for line in denied {
        assert!(line.starts_with("inside\t10.7.0.1\t"), "{line}");
        assert!(
            line.contains("gate: drop (firewall-default), by default")
                && line.contains("| dropped (firewall-"),
            "{line}"
        );
    }
    assert_eq!(read("icmp").len(), 8);
}

#[test]
fn it_stops_after_the_requested_number_of_packets() {
    let Some(network) = Network::routed(Io::Auto) else { return };
    std::fs::write(network.path("policy.rvl"), POLICY).unwrap();
    let mut ping = network.inside.command("ping");
    let ping = ping.args(["-i", "0.05", "-W", "2", "203.0.113.2"]).stdout(Stdio::null());
    let _ping = Server::of(ping.spawn().unwrap());
    let capture = |options: &str| {
        let mut command = network.middle.command(env!("CARGO_BIN_EXE_rivulet"));
        command.args(["capture", "policy.rvl", "--port", "inside=inside", "--port", "outside=outside"]);
        command.args(options.split(' ')).current_dir(network.dir.path());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    };
    let said = capture("--count 5 --write out.pcapng");
    assert!(said.contains(" 5 of them written to out.pcapng"), "{said}");
    let said = capture("--duration 500ms --filter tcp --write none.pcapng");
    assert!(said.contains(" 0 of them written to none.pcapng"), "{said}");
}

/// A client of a running Rivulet gets each packet on arrival and departure, without any effect on
/// forwarding.
#[test]
fn a_running_rivulet_is_captured() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let policy = "Port<0> inside;\nPort<1> outside;\npipelet { inside <-> outside; }\n";
    let listen = |options: &str| {
        let mut command = network.middle.command(env!("CARGO_BIN_EXE_rivulet"));
        command.args(["capture", "--connect"]).args(options.split(' ')).current_dir(network.dir.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
        command
    };
    let failed = |mut command: std::process::Command| {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        said
    };
    let said = failed(listen("inside --write none.pcapng"));
    assert!(said.contains("no Rivulet runs on the interface inside"), "{said}");
    let rivulet = network.up(policy, "");
    // Another user is refused.
    let mut stranger = network.middle.command("setpriv");
    stranger.args(["--reuid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_rivulet")]);
    stranger.args(["capture", "--connect", "inside", "--write", "-"]).stdin(Stdio::null());
    let said = failed(stranger);
    assert!(said.contains("only root and the user that runs Rivulet"), "{said}");
    let listener = listen("inside --write seen.pcapng.gz --count 16").spawn().unwrap();
    crate::net::wait_until("it listens", || {
        std::fs::metadata(network.path("seen.pcapng.gz")).is_ok_and(|found| found.len() > 0)
    });
    let said = failed(listen("outside --write none.pcapng"));
    assert!(said.contains("another `rivulet capture --connect` is running"), "{said}");
    let pings = network.inside.run("ping -c 8 -i 0.05 -W 2 10.7.0.2");
    assert!(pings.contains("8 received") && !pings.contains("DUP"), "{pings}");
    let output = listener.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("16 packets written to seen.pcapng.gz"), "{said}");
    let read = |filter: &str| {
        let line = "tshark -n -T fields -e frame.interface_name -e frame.packet_flags_direction -r";
        let mut words = line.split(' ');
        let mut command = network.middle.command(words.next().unwrap());
        let output = command.args(words).arg(network.path("seen.pcapng.gz")).args(["-Y", filter]).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let ways: Vec<_> =
        read("icmp.type == 8").lines().map(|line| line.trim().to_lowercase()).take(2).collect();
    assert_eq!(ways.len(), 2);
    assert!(ways[0].starts_with("inside\t") && ways[1].starts_with("outside\t"), "{ways:?}");
    assert_ne!(ways[0].split('\t').next_back(), ways[1].split('\t').next_back(), "{ways:?}");
    // The next client is accepted, until the run ends.
    let listener = listen("inside --write - --quiet").spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    network.inside.run("ping -c 2 -i 0.05 -W 2 10.7.0.2");
    let report = rivulet.end();
    assert_eq!(report["packets_in"], report["packets_out"]);
    let output = listener.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("has ended"), "{said}");
    assert!(output.stdout.len() > 8 * 100, "{} bytes", output.stdout.len());
}

/// Units may have threads of their own; with several workers there is no single place to capture.
#[test]
fn units_are_captured_and_workers_refuse_with_a_reason() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let policy = "Port<0> inside;\nPort<1> outside;\nMonitor m;\npipelet { inside <-> m <-> outside; }\n";
    let mut command = network.middle.command(env!("CARGO_BIN_EXE_rivulet"));
    command.args(["capture", "--connect", "inside", "--write", "seen.pcapng", "--count", "8"]);
    command.current_dir(network.dir.path()).stdin(Stdio::null()).stderr(Stdio::piped());
    for options in ["--units-max 2 --threads", "--units-max 2"] {
        let rivulet = network.up(policy, options);
        let listener = command.spawn().unwrap();
        crate::net::wait_until("it listens", || {
            std::fs::metadata(network.path("seen.pcapng")).is_ok_and(|found| found.len() > 0)
        });
        let pings = network.inside.run("ping -c 5 -i 0.05 -W 2 10.7.0.2");
        assert!(pings.contains("5 received") && !pings.contains("DUP"), "{pings}");
        let output = listener.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && said.contains("8 packets written to seen.pcapng"),
            "{options}: {said}"
        );
        std::fs::remove_file(network.path("seen.pcapng")).unwrap();
        rivulet.end();
    }
    let rivulet = network.up(policy, "--workers 2");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("several workers") && said.contains("tcpdump -i inside"), "{said}");
    rivulet.end();
}

/// The programs of external nodes run, also with `rivulet capture`; their ports are in the files.
#[test]
fn packets_are_captured_at_the_ports_of_external_nodes() {
    let _alone = alone();
    let Some(network) = routed() else { return };
    let end = network.path("end");
    let command = format!("until test -e {}; do sleep 0.1; done; exit 3", end.display());
    let policy = format!(
        "Port<0> inside {{ address: 10.7.0.254/24 }};
         Port<1> outside {{ address: 203.0.113.254/24 }};
         Monitor m;
         Legacy box {{ command: [sh, \"-c\", \"{command}\"], restart: 1h }};
         pipelet {{ inside <-> m <-> box <-> outside; }}"
    );
    let fields = |file: &str, filter: &str| {
        let line =
            "tshark -n -T fields -e frame.interface_name -e frame.packet_flags_direction -e frame.comment -r";
        let mut words = line.split(' ');
        let mut command = network.middle.command(words.next().unwrap());
        let output = command.args(words).arg(network.path(file)).args(["-Y", filter]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let rivulet = network.capture(&policy, "--write noted.pcapng");
    rivulet.wait_for_line("box: started");
    network.inside.ping("-c 2 -i 0.05 -W 2 203.0.113.2");
    std::fs::write(&end, "").unwrap();
    rivulet.wait_for_line("box: ended: exit code 3");
    network.inside.output("ping -c 2 -i 0.05 -W 1 203.0.113.2");
    rivulet.stop();
    let requests = fields("noted.pcapng", "icmp.type == 8");
    for port in ["inside", "box.inside", "box.outside", "outside"] {
        assert!(requests.iter().any(|line| line.starts_with(&format!("{port}\t"))), "{port}: {requests:?}");
    }
    let passed = "inside -> m -> box.inside | m: forward | sent by box.inside | flow ";
    let dropped = "inside -> m -> box.inside | m: forward | dropped (node-down) | flow ";
    for comment in [passed, dropped] {
        assert!(requests.iter().any(|line| line.contains(comment)), "{comment}: {requests:?}");
    }
    assert!(requests.iter().all(|line| !line.contains("assumed")), "{requests:?}");

    // The same for a live run.
    std::fs::remove_file(&end).unwrap();
    let rivulet = network.up(&policy, "");
    rivulet.wait_for_line("box: started");
    let mut command = network.middle.command(env!("CARGO_BIN_EXE_rivulet"));
    command.args(["capture", "--connect", "inside", "--write", "seen.pcapng", "--count", "8"]);
    let listener = command.current_dir(network.dir.path()).stderr(Stdio::null()).spawn().unwrap();
    crate::net::wait_until("it listens", || {
        std::fs::metadata(network.path("seen.pcapng")).is_ok_and(|found| found.len() > 0)
    });
    network.inside.ping("-c 4 -i 0.05 -W 2 203.0.113.2");
    assert!(listener.wait_with_output().unwrap().status.success());
    rivulet.end();
    let requests = fields("seen.pcapng", "icmp.type == 8");
    let ports: Vec<_> = requests.iter().take(4).map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(ports, ["inside", "box.inside", "box.outside", "outside"], "{requests:?}");
}
