//! EVE against Suricata: the fields of its schema, and its own events about the same captures.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value};

use crate::traces::{self, Capture};

/// Captures with DNS, HTTP, TLS up to 1.3, pings, tags and SCTP.
const CAPTURES: [&str; 9] = [
    "small/wikipedia.pcap",
    "small/dns_long-connection.pcap",
    "small/dns-edns-ecs.pcap",
    "small/sites.pcapng",
    "small/tls13-ech.pcap",
    "small/http_chunk.pcap",
    "small/icmp_5-pings.pcap",
    "small/q-in-q.pcap",
    "small/sctp.cap",
];

const RULES: &str = r#"
alert http any any -> any any (msg:"request"; flow:to_server; http.method; content:"GET"; metadata:tag a, tag b; sid:1; rev:3;)
alert http any any -> any any (msg:"response"; flow:to_client; http.stat_code; content:"200"; sid:2;)
alert dns any any -> any any (msg:"query"; dns.query; content:"."; sid:3;)
alert dns any any -> any any (msg:"answer"; flow:to_client; dns.opcode:0; sid:4;)
alert tls any any -> any any (msg:"name"; tls.sni; content:"."; sid:5;)
alert tls any any -> any any (msg:"certificate"; tls.cert_subject; content:"CN"; sid:6;)
alert icmp any any -> any any (msg:"ping"; itype:8; sid:7;)
"#;

/// Functions that Suricata lacks, with events and alerts of each other form.
const OTHERS: &str = r#"
Firewall f { tcp: loose, rules: "allow any from any to any log as \"all\"" };
RedundancyMeter r { window: 16, sample: 64, events_from: 1B };
NAT n { external: [198.18.0.1-198.18.0.4], untranslated: pass, tcp_opens_with: any, log: mappings,
        events: [sessions, mappings] };
"#;

/// Returns a policy with the functions that Suricata has, too, then `others` on this path.
fn policy(others: &str, path: &str) -> String {
    format!(
        r#"
Port<0> inside;
Port<1> outside;
settings {{ flows: 128k, seed: 7 }};
Ids i {{ rules: file("i.rules"), mode: detect, events: [dns, tls] }};
HTTP h {{ anomalies: alert }};
Monitor m;
{others}
pipelet {{ inside <-> i <-> h <-> m {path}<-> outside; }}
"#
    )
}

/// Fields outside the object `rivulet`, with their types. All except [`BEYOND_SCHEMA`] are in the
/// schema of Suricata 7.0.10. Items of arrays have their array's path.
const FIELDS: &str = "
    timestamp string, flow_id number, pcap_cnt number, in_iface string, event_type string, vlan number,
    src_ip string, src_port number, dest_ip string, dest_port number, proto string, tx_id number,
    app_proto string, direction string, payload string, payload_printable string, stream number,
    icmp_type number, icmp_code number, response_icmp_type number, response_icmp_code number,

    alert.action string, alert.gid number, alert.signature_id number, alert.rev number,
    alert.signature string, alert.category string, alert.severity number, alert.metadata.tag string,

    flow.pkts_toserver number, flow.pkts_toclient number, flow.bytes_toserver number,
    flow.bytes_toclient number, flow.start string, flow.end string, flow.age number,
    flow.state string, flow.reason string, flow.alerted boolean,
    flow.src_ip string, flow.src_port number, flow.dest_ip string, flow.dest_port number,

    tcp.tcp_flags string, tcp.tcp_flags_ts string, tcp.tcp_flags_tc string, tcp.state string,
    tcp.syn boolean, tcp.ack boolean, tcp.fin boolean, tcp.rst boolean, tcp.psh boolean,
    tcp.urg boolean, tcp.ecn boolean, tcp.cwr boolean,

    dns.version number, dns.type string, dns.id number, dns.flags string, dns.qr boolean,
    dns.aa boolean, dns.tc boolean, dns.rd boolean, dns.ra boolean, dns.z boolean,
    dns.opcode number, dns.rcode string, dns.rrname string, dns.rrtype string, dns.tx_id number,
    dns.answers.rrname string, dns.answers.rrtype string, dns.answers.ttl number,
    dns.answers.rdata string,
    dns.query.type string, dns.query.id number, dns.query.opcode number, dns.query.rrname string,
    dns.query.rrtype string, dns.query.tx_id number,
    dns.answer.version number, dns.answer.type string, dns.answer.id number,
    dns.answer.flags string, dns.answer.qr boolean, dns.answer.aa boolean, dns.answer.tc boolean,
    dns.answer.rd boolean, dns.answer.ra boolean, dns.answer.z boolean, dns.answer.opcode number,
    dns.answer.rcode string, dns.answer.rrname string, dns.answer.rrtype string,

    http.hostname string, http.http_port number, http.url string, http.http_user_agent string,
    http.http_content_type string, http.http_refer string, http.http_method string,
    http.protocol string, http.status number, http.length number, http.redirect string,

    tls.sni string, tls.version string, tls.subject string, tls.issuerdn string, tls.serial string,
    tls.fingerprint string, tls.notbefore string, tls.notafter string, tls.session_resumed boolean,

    stats.uptime number, stats.capture.kernel_packets number, stats.capture.kernel_drops number,
    stats.decoder.pkts number, stats.decoder.bytes number, stats.flow.total number,
    stats.flow.active number, stats.detect.alert number, stats.detect.alerts_suppressed number,
    stats.detect.alert_queue_overflow number, stats.ips.accepted number, stats.ips.blocked number";

/// Fields that Suricata 7.0.10 writes although its schema lacks them.
const BEYOND_SCHEMA: [&str; 4] = ["dns.tc", "dns.answer.aa", "dns.answer.tc", "dns.answer.z"];

/// A folder for runs.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place { folder: tempfile::tempdir().unwrap() };
        std::fs::write(place.path("i.rules"), RULES).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns our events about a capture.
    fn ours(&self, policy: &str, capture: &Capture) -> Vec<Value> {
        std::fs::write(self.path("p.rvl"), policy).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_rivulet"))
            .args(["run", "p.rvl", "-q", "--alerts", "ours.json"])
            .args(["--events", "http,dns,tls,redundancy,nat,flow,stats", "--read"])
            .arg(&capture.path)
            .current_dir(self.folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        events(&self.path("ours.json"))
    }

    /// Returns Suricata's events about a capture.
    fn suricatas(&self, capture: &Capture) -> Vec<Value> {
        let log = self.path("suricata");
        std::fs::create_dir_all(&log).unwrap();
        let eve = log.join("eve.json");
        std::fs::write(&eve, "").unwrap();
        std::fs::write(self.path("suricata.yaml"), SURICATA).unwrap();
        let mut command = Command::new("suricata");
        command.arg("-c").arg(self.path("suricata.yaml")).arg("-S").arg(self.path("i.rules"));
        command.args(["--runmode", "single", "-k", "none", "-l"]).arg(&log).arg("-r").arg(&capture.path);
        for file in ["classification-file", "reference-config-file"] {
            command.args(["--set", &format!("{file}=/dev/null")]);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        events(&eve)
    }
}

const SURICATA: &str = "%YAML 1.1
---
outputs:
  - eve-log:
      enabled: yes
      filename: eve.json
      types:
        - alert: { payload: yes, payload-printable: yes }
        - http: { extended: yes }
        - dns: { version: 2 }
        - tls: { extended: yes }
        - flow
stream: { checksum-validation: no }
app-layer:
  protocols:
    tls: { enabled: yes, detection-ports: { dp: 443 } }
    http: { enabled: yes }
    dns:
      tcp: { enabled: yes, detection-ports: { dp: 53 } }
      udp: { enabled: yes, detection-ports: { dp: 53 } }
";

fn events(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Adds the path of each value that is no object or array, with its type.
fn walk(path: &str, value: &Value, all: &mut BTreeSet<String>) {
    let kind = match value {
        Value::Object(object) => {
            let joined = |key: &String| if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            return object.iter().for_each(|(key, value)| walk(&joined(key), value, all));
        }
        Value::Array(items) => return items.iter().for_each(|item| walk(path, item, all)),
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "boolean",
        Value::Null => "null",
    };
    all.insert(format!("{path} {kind}"));
}

/// Returns an event without our own fields.
fn shared(event: &Value) -> Value {
    let mut event = event.clone();
    event.as_object_mut().unwrap().remove("rivulet");
    event
}

#[test]
fn fields_of_our_own_are_in_one_object() {
    let (place, mut kinds, mut own) = (Place::new(), BTreeSet::new(), BTreeSet::new());
    let known: BTreeSet<String> =
        FIELDS.split(',').map(|field| field.trim().to_owned()).filter(|field| !field.is_empty()).collect();
    let schema = schema();
    for name in CAPTURES {
        let Some(capture) = traces::one(name) else { return };
        for event in place.ours(&policy(OTHERS, "<-> f <-> r <-> n "), &capture) {
            let mut seen = BTreeSet::new();
            walk("", &shared(&event), &mut seen);
            let unknown: Vec<_> = seen.difference(&known).collect();
            assert!(unknown.is_empty(), "{name}: {unknown:?} in {event}");
            if let Some(schema) = &schema {
                let faults = faults("", &shared(&event), schema, schema);
                let faults: Vec<_> = faults.iter().filter(|fault| !is_beyond(fault)).collect();
                assert!(faults.is_empty(), "{name}: {faults:?} in {event}");
            }
            kinds.insert(event["event_type"].as_str().unwrap().to_owned());
            own.extend(event["rivulet"].as_object().into_iter().flat_map(Map::keys).cloned());
        }
    }
    let all = ["alert", "dns", "flow", "http", "nat", "redundancy", "stats", "tls"];
    assert_eq!(kinds.iter().map(String::as_str).collect::<Vec<_>>(), all);
    let all = ["drops", "function", "icmp_id", "nat", "place", "redundancy"];
    assert_eq!(own.iter().map(String::as_str).collect::<Vec<_>>(), all);
}

/// Returns Suricata's schema of EVE, if it is found: Debian's package does not have it.
fn schema() -> Option<Value> {
    let named = std::env::var_os("SURICATA_SCHEMA").map(PathBuf::from);
    let usual = ["/etc/suricata/schema.json", "/usr/share/suricata/schema.json"].map(PathBuf::from);
    let Some(path) = named.or_else(|| usual.into_iter().find(|path| path.is_file())) else {
        println!("SKIPPED: no schema of Suricata; SURICATA_SCHEMA may name etc/schema.json of its source");
        return None;
    };
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(serde_json::from_slice(&text).unwrap())
}

/// Returns whether a field is missing in the schema that Suricata writes anyway.
fn is_beyond(fault: &str) -> bool {
    BEYOND_SCHEMA.iter().any(|field| fault == format!("{field}: unknown"))
}

/// Returns the faults of a value by the part of JSON Schema that Suricata's file uses, except
/// patterns.
fn faults(path: &str, value: &Value, schema: &Value, root: &Value) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str() {
        return faults(path, value, &root["$defs"][name.trim_start_matches("#/$defs/")], root);
    }
    let is_of_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some(other) => panic!("{path}: the schema has a type {other}"),
        None => true,
    };
    if !is_of_type {
        return vec![format!("{path}: not {}", schema["type"])];
    }
    let mut all = Vec::new();
    if let Value::Object(object) = value {
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let missing = required.filter(|name| !object.contains_key(*name));
        all.extend(missing.map(|name| format!("{path}: without {name}")));
        for (key, value) in object {
            let place = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            match schema["properties"].get(key) {
                Some(known) => all.extend(faults(&place, value, known, root)),
                None if schema["additionalProperties"] == false => all.push(format!("{place}: unknown")),
                None => {}
            }
        }
    }
    if let Value::Array(items) = value {
        if (items.len() as u64) < schema["minItems"].as_u64().unwrap_or(0) {
            all.push(format!("{path}: too few items"));
        }
        items.iter().for_each(|item| all.extend(faults(path, item, &schema["items"], root)));
    }
    all
}

/// Fields of an event by their paths, such as `dns.id`. Arrays are values.
type Flat = BTreeMap<String, Value>;

fn flatten(path: &str, value: &Value, all: &mut Flat) {
    match value {
        Value::Object(object) => object.iter().for_each(|(key, value)| {
            let place = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            flatten(&place, value, all);
        }),
        _ => drop(all.insert(path.to_owned(), value.clone())),
    }
}

/// Returns the events of a kind by the values of these fields; of several, the first.
fn by(events: &[Value], kind: &str, fields: &[&str]) -> BTreeMap<String, Flat> {
    let mut all = BTreeMap::new();
    for event in events.iter().filter(|event| event["event_type"] == kind) {
        let mut flat = Flat::new();
        flatten("", &shared(event), &mut flat);
        for end in ["src_ip", "dest_ip", "flow.src_ip", "flow.dest_ip"] {
            // Suricata writes all digits of IPv6 addresses.
            if let Some(address) = flat.get_mut(end) {
                *address = address.as_str().unwrap().parse::<IpAddr>().unwrap().to_string().into();
            }
        }
        let key =
            fields.iter().map(|field| format!("{} ", flat.get(*field).unwrap_or(&Value::Null))).collect();
        all.entry(key).or_insert(flat);
    }
    all
}

const ENDS: [&str; 5] = ["proto", "src_ip", "src_port", "dest_ip", "dest_port"];

/// Kinds of events, the fields that distinguish two of a kind in addition to the ends, and the
/// fields that differ from Suricata's; docs/alerts.md has the reasons.
const KINDS: [(&str, &[&str], &[&str]); 5] = [
    ("dns", &["dns.type", "dns.id"], &["dns.answers", "dns.authorities", "dns.grouped."]),
    ("http", &["http.url"], &["timestamp", "pcap_cnt", "tx_id"]),
    ("tls", &[], &["timestamp", "pcap_cnt"]),
    ("flow", &[], &["timestamp", "flow.bytes_", "flow.reason", "tcp.state", "tcp.ts_", "tcp.tc_"]),
    (
        "alert",
        &["alert.signature_id", "tx_id"],
        &[
            "timestamp",
            "pcap_cnt",
            "alert.metadata.",
            "dns.answer.authorities",
            "files",
            "flow.pkts_",
            "flow.bytes_",
            "http.",
            "payload",
            "stream",
            "tls.",
            "tunnel.",
        ],
    ),
];

/// Returns the fields that differ between our event and Suricata's.
fn differing(kind: &str, ours: &Flat, theirs: &Flat, except: &[&str]) -> Vec<String> {
    // TCP without a visible beginning is no connection for Suricata, and answers alone are no DNS.
    let is_followed = theirs.get("flow.state").is_none_or(|state| state != "new" || ours["proto"] != "TCP")
        && !["failed", "quic"].iter().any(|other| theirs.get("app_proto").is_some_and(|app| app == other));
    let is_compared = |path: &str, value: &Value| match path {
        "flow_id" | "pkt_src" => false,
        _ if except.iter().any(|except| path.starts_with(except)) => false,
        "flow.state" | "app_proto" | "flow.alerted" => is_followed,
        // It logs some handshakes before the server's answer.
        "tls.version" => value != "UNDETERMINED",
        _ => is_followed || !path.starts_with("tcp."),
    };
    let differs =
        |(path, value): &(&String, &Value)| is_compared(path, value) && ours.get(*path) != Some(value);
    let of = |path: &str| ours.get(path).cloned().unwrap_or_default();
    let differing = theirs.iter().filter(differs);
    differing.map(|(path, value)| format!("{kind} {path}: {} for {value}", of(path))).collect()
}

#[test]
fn events_are_those_of_suricata() {
    if !traces::has_tool("suricata", "-V") {
        return;
    }
    let (place, mut compared) = (Place::new(), BTreeMap::<&str, usize>::new());
    // The others have fragments, tunnels, and answers without queries.
    for name in CAPTURES.into_iter().filter(|name| !name.contains("edns")) {
        let Some(capture) = traces::one(name) else { return };
        let (ours, theirs) = (place.ours(&policy("", ""), &capture), place.suricatas(&capture));
        for (kind, fields, except) in KINDS {
            let fields = [&ENDS[..], fields].concat();
            let (ours, theirs) = (by(&ours, kind, &fields), by(&theirs, kind, &fields));
            for (key, theirs) in &theirs {
                // Timeouts differ, so that some flows are two for one of both.
                let packets = ["flow.pkts_toserver", "flow.pkts_toclient"];
                let is_same = |ours: &&Flat| {
                    kind != "flow" || packets.iter().all(|count| ours.get(*count) == theirs.get(*count))
                };
                let Some(ours) = ours.get(key).filter(is_same) else { continue };
                let differing = differing(kind, ours, theirs, except);
                assert!(differing.is_empty(), "{name}: {key}: {differing:?}");
                if kind == "flow" {
                    check_bytes(ours, theirs);
                }
                *compared.entry(kind).or_default() += 1;
            }
        }
    }
    println!("compared: {compared:?}");
    for (kind, least) in [("alert", 100), ("dns", 40), ("flow", 90), ("http", 15), ("tls", 45)] {
        assert!(compared[kind] >= least, "{compared:?}");
    }
}

/// Compares byte counts. Suricata counts the bytes of frames: link layers and, of short packets,
/// padding.
fn check_bytes(ours: &Flat, theirs: &Flat) {
    for side in ["toserver", "toclient"] {
        let of = |flat: &Flat, what: &str| flat[&format!("flow.{what}_{side}")].as_u64().unwrap();
        let link = of(theirs, "bytes") - of(ours, "bytes");
        assert!(link >= 14 * of(ours, "pkts"), "{ours:?} {theirs:?}");
    }
}
