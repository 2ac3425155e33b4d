//! `rivulet node`, `rivulet cluster`, and policies on units at other nodes.

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::*;

/// Functions without state shared by flows.
const POLICY: &str = "settings { seed: 7, flows: 10k }
Port<0> inside; Port<1> outside;
Firewall f { rules: \"allow out from any\", default: deny };
Monitor m { report: [end] };
pipelet { inside <-> f <-> m <-> outside; }
";

/// A node as a process, which ends with the test.
struct Node {
    child: Child,
    address: String,
}

impl Node {
    /// Ends it as an operator does.
    fn end(&mut self) {
        signal(self.child.id() as i32, Signal::TERM);
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn unit(place: &Place, name: &str, policy: &str) -> Node {
    unit_with(place, name, policy, "")
}

/// Starts a unit with more lines in its configuration.
fn unit_with(place: &Place, name: &str, policy: &str, more: &str) -> Node {
    let config = format!(
        "name = \"{name}\"\nrole = \"unit\"\nlisten = \"127.0.0.1:0\"\npolicy = \"{policy}\"\ncertificates = \"ca\"\n{more}"
    );
    place.write(&format!("{name}.toml"), config);
    let mut child = place
        .command(&format!("node --config {name}.toml --report {name}.json --alerts {name}.eve --events flow"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address =
        line.trim_end().rsplit_once(" listens at ").unwrap_or_else(|| panic!("{line}")).1.to_owned();
    Node { child, address }
}

fn dispatcher(place: &Place, units: &[(&str, &Node)]) {
    let lines: String = units.iter().map(|(name, node)| format!("{name} = \"{}\"\n", node.address)).collect();
    let config = format!("name = \"dispatcher\"\ncertificates = \"ca\"\n[units]\n{lines}");
    place.write("dispatcher.toml", config);
}

#[test]
fn flows_move_between_processes_and_none_is_lost() {
    let place = Place::new();
    let outcome = place.json("demo --cluster --seconds 3 --rate 10kpps --unit-capacity 10Mbps -o json");
    assert_adds_up(&outcome["report"]);
    assert_eq!(outcome["packets_lost"], 0);
    assert!(outcome["report"]["units"]["states_moved"].as_u64().unwrap() > 0, "{outcome}");
    let nodes = outcome["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 4);
    assert_eq!((&nodes[0]["name"], &nodes[0]["status"]), (&"unit-1".into(), &"drained".into()));
    assert!(nodes.iter().all(|node| node["packets"].as_u64() > Some(0)), "{nodes:?}");
}

/// Nodes of a demonstration that is killed end, too.
#[test]
fn demonstration_that_is_killed_leaves_no_nodes() {
    let place = Place::new();
    let folder = place.path("tmp");
    std::fs::create_dir(&folder).unwrap();
    let mut command = place.command("demo --cluster --seconds 600 --rate 1kpps");
    let demo = command.env("TMPDIR", &folder).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let demo = Node { child: demo, address: String::new() };
    let nodes = || processes_with(&folder.display().to_string()).len();
    await_that("three units run", || nodes() == 3);
    drop(demo);
    await_that("they end", || nodes() == 0);
}

#[test]
fn capture_over_two_processes_is_that_of_one() {
    let place = Place::new();
    place.write("site.rvl", POLICY);
    place.stdout("traffic --packets 3000 --flows 200 --seed 3 --write in.pcap");
    place.stdout("cluster init ca dispatcher unit-1 unit-2");
    let units = ["unit-1", "unit-2"].map(|name| unit(&place, name, "site.rvl"));
    dispatcher(&place, &[("unit-1", &units[0]), ("unit-2", &units[1])]);
    let one = place.json("run site.rvl --read in.pcap --write one.pcap -o json");
    let two = place
        .json("run site.rvl --read in.pcap --write two.pcap --cluster dispatcher.toml --mode packet -o json");
    for field in ["packets_in", "packets_out", "drops"] {
        assert_eq!(one[field], two[field], "{field}");
    }
    assert_adds_up(&two);
    assert!(two["units"]["states_moved"].as_u64().unwrap() > 100, "{two}");
    // Each unit has written a report of its own.
    for (name, mut node) in ["unit-1", "unit-2"].into_iter().zip(units) {
        node.end();
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(place.path(&format!("{name}.json"))).unwrap()).unwrap();
        assert!(report["packets_out"].as_u64().unwrap() > 0, "{report}");
        let events = String::from_utf8(place.read(&format!("{name}.eve"))).unwrap();
        assert!(events.lines().count() > 10 && events.contains("\"event_type\":\"flow\""), "{events}");
    }
}

#[test]
fn units_are_found_in_the_store() {
    let place = Place::new();
    place.write("site.rvl", POLICY);
    place.stdout("traffic --packets 3000 --flows 200 --seed 3 --write in.pcap");
    place.stdout("cluster init ca dispatcher unit-1 unit-2");
    let store = "[store]\nfile = \"cluster.redb\"\n";
    place.write("dispatcher.toml", format!("name = \"dispatcher\"\ncertificates = \"ca\"\n{store}"));
    let first = unit_with(&place, "unit-1", "site.rvl", store);
    let run = "run site.rvl --read in.pcap --cluster dispatcher.toml --mode packet -o json";
    let one = place.json("run site.rvl --read in.pcap -o json");
    let two = place.json(run);
    assert_adds_up(&two);
    assert_eq!(one["packets_out"], two["packets_out"]);
    drop(first); // Its entry stays until its lease ends; another process takes its place.
    let mut units = ["unit-2", "unit-1"].map(|name| unit_with(&place, name, "site.rvl", store));
    assert_eq!(place.json(run)["packets_out"], one["packets_out"]);
    units.iter_mut().for_each(Node::end);
}

/// Returns the numbers of the processes that run with this text in their arguments.
fn processes_with(text: &str) -> Vec<i32> {
    let numbers = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let number = entry.unwrap().file_name().to_str()?.parse().ok()?;
        let arguments = std::fs::read(format!("/proc/{number}/cmdline")).ok()?;
        String::from_utf8_lossy(&arguments).contains(text).then_some(number)
    });
    numbers.collect()
}

/// Waits until something is so.
fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Time after which something that has not changed counts as settled.
const SETTLED: Duration = Duration::from_secs(1);

fn signal(process: i32, signal: Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(process).unwrap(), signal).unwrap();
}

/// A manager starts units as dispatchers need them, plus one spare. It restarts killed units, and
/// ends all units when it ends. If it is killed, they live on, and the next manager finds them.
#[test]
fn manager_keeps_a_spare_unit() {
    let place = Place::new();
    place.write("site.rvl", POLICY);
    place.stdout("traffic --packets 3000 --flows 200 --seed 3 --write in.pcap");
    // Names that no other test has.
    let names = [1, 2, 3].map(|number| format!("pooled-{}-{number}", std::process::id()));
    let units = names.each_ref().map(|name| format!("unit:{name}"));
    place.stdout(&format!("cluster init ca dispatcher {}", units.join(" ")));
    let store = "[store]\nfile = \"cluster.redb\"\n";
    let dispatcher = "name = \"dispatcher\"\ncertificates = \"ca\"\nunits_min = 2\n";
    place.write("dispatcher.toml", format!("{dispatcher}{store}"));
    let manager = "name = \"host\"\nrole = \"manager\"\nlisten = \"127.0.0.1:0\"\npolicy = \"site.rvl\"\n\
                   certificates = \"ca\"\n";
    let write = |units: &[String], spare| {
        let pool =
            format!("[pool]\nunits = {units:?}\nspare = {spare}\nidle = \"100ms\"\nfolder = \"units\"\n");
        place.write("manager.toml", format!("{manager}{pool}{store}"));
    };
    write(&names, 1);
    let running = |name: &str| processes_with(&format!("{name}.toml"));
    let all = || names.iter().map(|name| running(name).len()).collect::<Vec<_>>();
    let start = || Node {
        child: place
            .command("node --config manager.toml")
            .stderr(std::fs::File::options().create(true).append(true).open(place.path("said")).unwrap())
            .spawn()
            .unwrap(),
        address: String::new(),
    };
    let mut manager = start();
    await_that("one is spare", || all() == [1, 0, 0]);
    // A second one would end units of the first.
    let error = place.refused(1, "node --config manager.toml");
    assert!(error.contains("another manager runs"), "{error}");
    let one = place.json("run site.rvl --read in.pcap -o json");
    let two = place.json("run site.rvl --read in.pcap --cluster dispatcher.toml --mode packet -o json");
    assert_adds_up(&two);
    assert_eq!(two["packets_out"], one["packets_out"]);
    assert!(two["units"]["states_moved"].as_u64().unwrap() > 100, "the two exchange flows: {two}");
    // Without work, one is enough. Those of the run end with it, and the manager starts others.
    let processes = || names.iter().flat_map(|name| running(name)).collect::<Vec<_>>();
    let (mut alone, mut since) = (None, Instant::now());
    await_that("the others end", || {
        let left = Some(processes()).filter(|processes| processes.len() == 1);
        if left != alone {
            (alone, since) = (left, Instant::now());
        }
        alone.is_some() && since.elapsed() > SETTLED
    });
    let first = alone.unwrap()[0];
    signal(first, Signal::KILL);
    await_that("another one is spare", || processes().iter().any(|&process| process != first));
    manager.end();
    assert_eq!(all(), [0, 0, 0]);
    write(&names, 2);
    let manager = start();
    await_that("two are spare", || all() == [1, 1, 0]);
    let before = processes();
    // All have written their identities, and the manager knows them.
    let has_file = |name: &String| place.path(&format!("units/{name}.pid")).exists();
    await_that("two have files", || names[..2].iter().all(has_file));
    drop(manager); // It is killed.
    std::thread::sleep(SETTLED);
    assert_eq!(processes(), before, "they live on");
    place.write("said", "");
    write(&names[1..], 1);
    let mut manager = start();
    await_that("the one that is not in the list ends", || all() == [0, 1, 0]);
    assert_eq!(processes(), before[1..], "the other one is found");
    let said = || String::from_utf8(place.read("said")).unwrap();
    assert!(said().contains("has found 1 of its units"), "{}", said());
    // It notifies its state again: without that, it would be ended.
    signal(before[1], Signal::KILL);
    await_that("another one is spare", || processes().iter().any(|process| !before.contains(process)));
    assert_eq!(said().matches("starts again").count(), 1, "{}", said());
    manager.end();
    assert_eq!(all(), [0, 0, 0]);
}

#[test]
fn certificates_are_issued_renewed_and_revoked() {
    let place = Place::new();
    let list = |said: String| said.lines().map(str::to_owned).collect::<Vec<_>>();
    let said = list(place.stdout("cluster init ca --cluster site unit:u1 dispatcher=10.0.0.1 operator:jane"));
    assert_eq!(
        said,
        [
            "ca/u1.pem: certificate and key of u1, for the role unit",
            "ca/dispatcher.pem: certificate and key of dispatcher, for the role dispatcher",
            "ca/jane.pem: certificate and key of jane, for the role operator",
        ]
    );
    // What the certificate says, as another program reads it.
    let shown = std::process::Command::new("openssl")
        .args(["x509", "-noout", "-ext", "subjectAltName", "-in", "ca/dispatcher.pem"])
        .current_dir(place.path(""))
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains("URI:rivulet://site/dispatcher/dispatcher") && shown.contains("10.0.0.1"),
        "{shown}"
    );
    assert_eq!(place.stdout("cluster renew ca"), "no certificate needs renewal; --all renews everything\n");
    let before = place.read("ca/u1.pem");
    let said = place.stdout("cluster renew ca u1 --days 30");
    assert_eq!(said, "ca/u1.pem: new certificate and key of u1, for the role unit\n");
    assert_ne!(place.read("ca/u1.pem"), before);
    assert_eq!(list(place.stdout("cluster renew ca --all")).len(), 4, "the authority, too");
    let said = place.stdout("cluster revoke ca u1 ca/jane.pem");
    // All three of the one, and the present one of the other.
    assert_eq!(said, "ca/crl.pem: 4 more; copy it to the folder of each node\n");
    let said = place.refused(1, "cluster revoke ca nobody");
    assert!(said.contains("nobody.pem"), "{said}");
    let said = place.refused(1, "cluster renew none");
    assert!(said.contains("none/ca"), "{said}");
}

#[test]
fn nodes_that_do_not_fit_are_refused_with_a_reason() {
    let place = Place::new();
    place.write("site.rvl", POLICY);
    place.write(
        "re.rvl",
        "Port<0> a; Port<1> b; Re n { local_networks: [10.1.0.0/16], remote_networks: [10.2.0.0/16] };
        pipelet { a <-> n <-> b; }",
    );
    place.stdout("traffic --packets 10 --write in.pcap");
    place.stdout("cluster init ca dispatcher unit-1");
    let fails = |line: &str, expected: &str| {
        let said = place.refused(1, line);
        assert!(said.contains(expected), "{line}: {said}");
    };
    place.write("bad.toml", "name = \"unit-1\"\nrole = \"unit\"\nlissten = \"127.0.0.1:0\"\n");
    fails("node --config bad.toml", "lissten");
    for (line, place_of_it) in [
        ("name = \"unit 1\"", "line 1, column 8"),
        ("name = \"d\"\n[units]\n\"unit/1\" = \"10.0.0.1:1\"", "line 3, column 1"),
        ("name = \"d\"\n[dispatchers]\n\"\" = \"10.0.0.1:1\"", "line 3, column 1"),
        ("name = \"host\"\n[pool]\nunits = [\"u1\", \"../u2\"]", "line 3, column 9"),
    ] {
        place.write("name.toml", line);
        fails("node --config name.toml", place_of_it);
        fails("node --config name.toml", "is not a valid name of a node");
    }
    place.write("role.toml", "name = \"dispatcher\"\ncertificates = \"ca\"\n");
    fails("node --config role.toml", "unit, dispatcher or manager");
    let manager = "name = \"host\"\nrole = \"manager\"\ncertificates = \"ca\"\nlisten = \"127.0.0.1:0\"\n";
    for (more, expected) in [
        ("", "expected `[pool]`"),
        ("[pool]\nunits = []\n", "at least `spare` = 1"),
        ("[pool]\nunits = [\"unit-1\"]\nspare = 0\n", "spare"),
        ("[pool]\nunits = [\"unit-1\"]\n", "expected `[store]`"),
        ("[pool]\nunits = [\"unit-1\"]\n[store]\nfile = \"a.redb\"\n", "expected `policy`"),
    ] {
        place.write("manager.toml", format!("{manager}{more}"));
        fails("node --config manager.toml", expected);
    }
    let node = "name = \"dispatcher\"\nrole = \"dispatcher\"\npolicy = \"site.rvl\"\n";
    for (more, expected) in [
        ("", "expected `[ports]`"),
        ("[ports]\ninside = \"\"\n", "expected PORT=INTERFACE"),
        (
            "[ports]\ninside = \"lo\"\n[options]\nmetrix = true\n",
            "`[options]`: unexpected argument '--metrix'",
        ),
        ("[ports]\ninside = \"lo\"\n[options]\nmetrics = [1]\n", "expected text, a number"),
        ("[ports]\ninside = \"lo\"\n", "[units]"),
    ] {
        place.write("role.toml", format!("{node}{more}"));
        fails("node --config role.toml", expected);
    }
    place.write(
        "other.toml",
        "name = \"unit-9\"\nrole = \"unit\"\nlisten = \"127.0.0.1:0\"\npolicy = \"site.rvl\"\n",
    );
    fails("node --config other.toml", "unit-9.key");
    fails("cluster init ca ../unit", "not a valid name");
    fails("cluster init ca u1", "such as unit:u1");
    fails("cluster init ca tenant:a", "reserved");
    fails("cluster init ca --cluster other unit-1", "the authority of the cluster `rivulet`, not `other`");
    fails("cluster renew ca unit-7", "no certificate of `unit-7`");
    place.stdout("cluster init ca operator");
    place.write(
        "operator.toml",
        "name = \"operator\"\nrole = \"unit\"\nlisten = \"127.0.0.1:0\"\npolicy = \"site.rvl\"\ncertificates = \"ca\"\n",
    );
    fails("node --config operator.toml", "is for the role operator, and not for unit");
    place.write("ca/roles.toml", "# Ours\n[roles]\nboss = [\"unit-1\"]\n");
    fails("node --config operator.toml", "ca/roles.toml:3: `boss` is no role; expected one of unit,");
    std::fs::remove_file(place.path("ca/roles.toml")).unwrap();
    let node = unit(&place, "unit-1", "site.rvl");
    dispatcher(&place, &[("unit-1", &node)]);
    fails("run re.rvl --read in.pcap --cluster dispatcher.toml", "runs on one machine only");
    place.write("none.toml", "name = \"dispatcher\"\ncertificates = \"ca\"\n");
    fails("run site.rvl --read in.pcap --cluster none.toml", "[units]");
    place.write("stores.toml", "name = \"dispatcher\"\ncertificates = \"ca\"\n[store]\n");
    fails("run site.rvl --read in.pcap --cluster stores.toml", "either `etcd`");
    place.write("etcd.toml", "name = \"dispatcher\"\ncertificates = \"ca\"\n[store]\netcd = [\"ftp://a\"]\n");
    fails("run site.rvl --read in.pcap --cluster etcd.toml", "https://HOST:PORT");
    let several =
        "certificates = \"ca\"\n[units]\nunit-1 = \"127.0.0.1:1\"\n[dispatchers]\nb = \"127.0.0.1:2\"\n";
    place.write("several.toml", format!("name = \"a\"\n{several}"));
    fails("run site.rvl --read in.pcap --cluster several.toml", "`a` among `[dispatchers]`");
    place.write("several.toml", format!("name = \"a\"\n{several}a = \"127.0.0.1:3\"\n"));
    fails("run site.rvl --read in.pcap --cluster several.toml", "expected `listen`");
    place.write(
        "several.toml",
        format!("name = \"a\"\nlisten = \"127.0.0.1:3\"\n{several}a = \"127.0.0.1:3\"\n"),
    );
    fails("run site.rvl --read in.pcap --cluster several.toml", "captures have one");
    let unit = "role = \"unit\"\nlisten = \"0.0.0.0:0\"\npolicy = \"site.rvl\"\n[store]\nfile = \"a.redb\"\n";
    place.write("any.toml", format!("name = \"unit-1\"\ncertificates = \"ca\"\n{unit}"));
    fails("node --config any.toml", "expected `address`");
}
