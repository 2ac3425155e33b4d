//! Reports of a run while it runs: Prometheus, dashboards, `rivulet top`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::net::{Io, Network, Server, wait_until};

const POLICY: &str = "
Port<0> inside { address: \"10.7.0.254/24\" };
Port<1> outside { address: \"203.0.113.1/24\" };
NAT translate { external: [203.0.113.1] };
Firewall gate { rules: \"allow out icmp\" };
pipelet { inside <-> translate <-> gate <-> outside; }
";

fn ops(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops").join(name)
}

/// Sends some packets that pass and some that are dropped.
fn traffic(network: &Network) {
    network.inside.run("ping -c 5 -i 0.05 -W 2 203.0.113.2");
    network.inside.output("curl -s -m 1 http://203.0.113.2:80/");
}

#[test]
fn prometheus_reads_all_metrics_of_dashboard_and_alert_rules() {
    let Some(network) = Network::routed(Io::Auto) else { return };
    let rivulet = network.up(POLICY, "--alerts eve.json --metrics 127.0.0.1:9600");
    traffic(&network);
    fs::copy(ops("prometheus/rivulet.rules.yml"), network.path("rules.yml")).unwrap();
    fs::write(
        network.path("prometheus.yml"),
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\n\
         scrape_configs: [{job_name: rivulet, static_configs: [{targets: ['127.0.0.1:9600']}]}]\n",
    )
    .unwrap();
    let mut command = network.middle.command("prometheus");
    command.args([
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        "--web.listen-address=127.0.0.1:9090",
    ]);
    command.current_dir(network.dir.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let _prometheus = Server::of(command.spawn().unwrap());
    let query = |expression: &str| -> Vec<Value> {
        let mut curl = network.middle.command("curl");
        curl.args(["-s", "-m", "5", "--data-urlencode", &format!("query={expression}")]);
        let said = curl.arg("http://127.0.0.1:9090/api/v1/query").output().unwrap();
        // Until it is ready, it answers with plain text.
        let Ok(answer) = serde_json::from_slice::<Value>(&said.stdout) else { return Vec::new() };
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    };
    let value = |of: &[Value]| {
        of.first().map_or(0.0, |first| first["value"][1].as_str().unwrap().parse::<f64>().unwrap())
    };
    wait_until("Prometheus has read the metrics", || value(&query("up{job=\"rivulet\"}")) == 1.0);
    wait_until("drops are there", || value(&query("sum(rivulet_packets_dropped_total)")) > 0.0);
    assert_eq!(value(&query("rivulet_port_packets_received_total{port=\"outside\"}")), 5.0);
    assert_eq!(query("rivulet_function_packets_total").len(), 2);
    let rule = |what: &str, number: u32| {
        query(&format!("rivulet_rule_{what}{{function=\"gate\",rule=\"{number}\"}}"))
    };
    assert_eq!(value(&rule("flows_total", 1)), 1.0);
    assert!(value(&rule("last_hit_timestamp_seconds", 1)) > 1.7e9);
    assert!(rule("packets_total", 0).iter().any(|series| {
        series["metric"]["name"] == "default" && value(std::slice::from_ref(series)) > 0.0
    }));

    // The plain format passes `promtool`.
    let check = network
        .middle
        .command("sh")
        .args(["-c", "curl -s http://127.0.0.1:9600/metrics | promtool check metrics"])
        .output();
    let check = check.unwrap();
    let said = [check.stdout, check.stderr].concat();
    assert!(check.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));

    // Every metric of a panel or an alert rule exists, or would exist with units.
    let dashboard: Value = serde_json::from_slice(&fs::read(ops("grafana/rivulet.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let asked = panels.flat_map(|panel| panel["targets"].as_array().unwrap().iter());
    let mut expressions: Vec<_> = asked.map(|target| target["expr"].as_str().unwrap().to_owned()).collect();
    let rules = fs::read_to_string(ops("prometheus/rivulet.rules.yml")).unwrap();
    expressions.extend(rules.lines().filter_map(|line| Some(line.trim().strip_prefix("expr: ")?.to_owned())));
    assert!(expressions.len() > 15);
    network.middle.run(&format!("promtool check rules {}", ops("prometheus/rivulet.rules.yml").display()));
    let mut told: Vec<String> = query("count by (__name__) ({job=\"rivulet\"})")
        .iter()
        .map(|series| series["metric"]["__name__"].as_str().unwrap().to_owned())
        .collect();
    // Those of a cluster.
    let of_cluster = ["units", "nodes", "units_lost_total", "store_reachable", "certificate_expiry_seconds"];
    told.extend(of_cluster.map(|name| format!("rivulet_{name}")));
    for expression in expressions {
        query(&expression.replace("$__rate_interval", "1m").replace("$instance", ".*"));
        let names = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        for name in names.filter(|name| name.starts_with("rivulet_")) {
            assert!(told.iter().any(|known| known == name), "{name} of {expression}: {told:?}");
        }
    }
    let rules = network.middle.run("curl -s http://127.0.0.1:9090/api/v1/rules");
    let rules: Value = serde_json::from_str(&rules).unwrap();
    let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap();
    assert!(rules.len() >= 7 && rules.iter().all(|rule| rule["health"] != "err"), "{rules:?}");
    rivulet.end();
}

#[test]
fn top_shows_current_traffic() {
    let Some(network) = Network::routed(Io::Auto) else { return };
    let rivulet = network.up(POLICY, "--metrics");
    let pings = "ping -i 0.02 -W 2 203.0.113.2";
    let mut words = pings.split_whitespace();
    let mut command = network.inside.command(words.next().unwrap());
    let _pings = Server::of(command.args(words).stdout(Stdio::null()).spawn().unwrap());
    let top =
        || network.middle.run(&format!("{} top --once --interval 1500ms", env!("CARGO_BIN_EXE_rivulet")));
    wait_until("packets are seen", || {
        let shown = top();
        let packets = shown.lines().nth(1).unwrap().split(' ').next().unwrap().replace(',', "");
        let shows_rule = shown.lines().any(|line| line.contains("gate") && line.contains("policy.rvl:5"));
        shown.contains("translate") && shows_rule && packets.parse::<u64>().unwrap() > 50
    });
    rivulet.end();
    let gone = network.middle.output(&format!("{} top --once", env!("CARGO_BIN_EXE_rivulet")));
    assert_eq!(gone.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("expected --metrics of `rivulet up`"));
}

/// Counters of units on threads are reported while they run.
#[test]
fn figures_of_units_are_live() {
    let Some(network) = Network::routed(Io::Auto) else { return };
    for options in ["--units-max 4 --threads", "--units-max 4"] {
        let rivulet = network.up(POLICY, &format!("{options} --metrics"));
        network.inside.run("ping -c 5 -i 0.05 -W 2 203.0.113.2");
        let rivulet_bin = env!("CARGO_BIN_EXE_rivulet");
        let report = || -> Value {
            serde_json::from_str(&network.middle.run(&format!("{rivulet_bin} top -o json localhost:9600")))
                .unwrap()
        };
        wait_until("functions and flows are reported", || {
            let report = report();
            let count = |pointer: &str| report.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
            count("/functions/0/packets") >= 10
                && count("/flows/started") >= 1
                && count("/units/units_running") >= 1
        });
        let metrics = network.middle.run("curl -s http://127.0.0.1:9600/metrics");
        assert!(metrics.contains("\nrivulet_units 1.0\n"), "{metrics}");
        rivulet.end();
    }
}

#[test]
fn malformed_requests_are_answered_and_stop_nothing() {
    let Some(network) = Network::new(Io::Auto) else { return };
    let policy = "Port<0> inside;\nPort<1> outside;\npipelet { inside <-> outside; }\n";
    let rivulet = network.up(policy, "--metrics 127.0.0.1:9600");
    let ask = |request: &str| {
        let line = format!("printf '{request}' | nc -N -w 5 127.0.0.1 9600");
        let output = network.middle.command("sh").args(["-c", &line]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("").to_owned()
    };
    assert_eq!(ask("GET /nothing HTTP/1.1\\r\\n\\r\\n"), "HTTP/1.1 404 Not Found");
    assert_eq!(ask("POST /metrics HTTP/1.1\\r\\n\\r\\n"), "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(ask("nonsense\\r\\n\\r\\n"), "HTTP/1.1 400 Bad Request");
    assert_eq!(ask("GET /met"), "HTTP/1.1 400 Bad Request");
    assert_eq!(ask("HEAD /metrics HTTP/1.1\\r\\n\\r\\n"), "HTTP/1.1 200 OK");
    assert_eq!(ask("GET /report?x=1 HTTP/1.1\\r\\n\\r\\n"), "HTTP/1.1 200 OK");
    rivulet.end();
}
