//! EVE records that are not about a packet: flows, and counters of the whole run.

use std::fmt;
use std::str::FromStr;

use nf::FlowReport;
use packet::{Endpoint, FlowKey, Scope};
use runtime::Report;
use serde::Serialize;

use super::{EveAddr, flow_id, protocol, timestamp};

/// Kinds of events to write, such as `flow,dns,tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventKinds(Vec<String>);

/// Kinds that `--events` accepts.
const KINDS: [&str; 7] = ["http", "dns", "tls", "redundancy", "nat", "flow", "stats"];

impl Default for EventKinds {
    /// The kinds that functions report by themselves.
    fn default() -> EventKinds {
        EventKinds(KINDS[..5].iter().map(|&kind| kind.to_owned()).collect())
    }
}

impl EventKinds {
    /// Returns whether events of this kind are written.
    pub fn has(&self, kind: &str) -> bool {
        self.0.iter().any(|one| one == kind)
    }
}

impl FromStr for EventKinds {
    type Err = String;

    fn from_str(text: &str) -> Result<EventKinds, String> {
        let kinds: Vec<String> = text.split(',').map(|kind| kind.trim().to_owned()).collect();
        match kinds.iter().find(|kind| !KINDS.contains(&kind.as_str())) {
            Some(wrong) => Err(format!("`{wrong}` is not a kind of event; expected {}", KINDS.join(", "))),
            None => Ok(EventKinds(kinds)),
        }
    }
}

impl fmt::Display for EventKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// A flow record as a line of EVE: `event_type` `flow`.
#[derive(Serialize)]
pub struct EveFlow {
    timestamp: String,
    flow_id: u64,
    event_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    vlan: Option<[u16; 1]>,
    src_ip: EveAddr,
    src_port: u16,
    dest_ip: EveAddr,
    dest_port: u16,
    proto: String,
    flow: FlowCounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp: Option<TcpFlags>,
}

#[derive(Serialize)]
struct FlowCounts {
    pkts_toserver: u64,
    pkts_toclient: u64,
    bytes_toserver: u64,
    bytes_toclient: u64,
    start: String,
    end: String,
    /// In seconds.
    age: u64,
    state: &'static str,
    reason: &'static str,
}

#[derive(Serialize)]
struct TcpFlags {
    tcp_flags: String,
    tcp_flags_ts: String,
    tcp_flags_tc: String,
    syn: bool,
    ack: bool,
    fin: bool,
    rst: bool,
    psh: bool,
}

impl EveFlow {
    /// Creates the line of a monitor's flow report.
    pub fn new(report: &FlowReport) -> EveFlow {
        let source = Endpoint { addr: report.source, port: report.source_port };
        let destination = Endpoint { addr: report.destination, port: report.destination_port };
        let scope = if report.vlan == 0 { Scope::default() } else { Scope::default().with_vlan(report.vlan) };
        let (key, _) = FlowKey::new(source, destination, report.protocol, report.version, scope, 0);
        let start_ns = report.first_ns.into_iter().filter(|ns| *ns > 0).min().unwrap_or_default();
        let end_ns = report.last_ns.into_iter().max().unwrap_or_default();
        let answered = report.packets[1] > 0;
        EveFlow {
            timestamp: timestamp(end_ns),
            flow_id: flow_id(&key),
            event_type: "flow",
            vlan: (report.vlan != 0).then_some([report.vlan]),
            src_ip: EveAddr(report.source),
            src_port: report.source_port,
            dest_ip: EveAddr(report.destination),
            dest_port: report.destination_port,
            proto: protocol(report.protocol),
            flow: FlowCounts {
                pkts_toserver: report.packets[0],
                pkts_toclient: report.packets[1],
                bytes_toserver: report.bytes[0],
                bytes_toclient: report.bytes[1],
                start: timestamp(start_ns),
                end: timestamp(end_ns),
                age: end_ns.saturating_sub(start_ns) / 1_000_000_000,
                state: match report.end_reason {
                    3 => "closed",
                    _ if answered => "established",
                    _ => "new",
                },
                reason: match report.end_reason {
                    1 => "timeout",
                    2 => "active",
                    3 => "closed",
                    4 => "shutdown",
                    _ => "forced",
                },
            },
            tcp: (report.protocol == 6).then(|| TcpFlags::new(report.tcp_flags)),
        }
    }
}

impl TcpFlags {
    fn new([to_server, to_client]: [u8; 2]) -> TcpFlags {
        let all = to_server | to_client;
        let has = |bit: u8| all & bit != 0;
        TcpFlags {
            tcp_flags: format!("{all:02x}"),
            tcp_flags_ts: format!("{to_server:02x}"),
            tcp_flags_tc: format!("{to_client:02x}"),
            syn: has(2),
            ack: has(16),
            fin: has(1),
            rst: has(4),
            psh: has(8),
        }
    }
}

/// Counters of a run as a line of EVE: `event_type` `stats`.
#[derive(Serialize)]
pub struct EveStats<'a> {
    timestamp: String,
    event_type: &'static str,
    stats: Stats<'a>,
}

#[derive(Serialize)]
struct Stats<'a> {
    /// Seconds since the first packet, or since the start of a live run.
    uptime: u64,
    capture: CaptureStats,
    decoder: DecoderStats,
    flow: FlowStats,
    detect: DetectStats,
    ips: IpsStats,
    /// Packets dropped, by reason. Not in Suricata.
    drops: &'a std::collections::BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct CaptureStats {
    kernel_packets: u64,
    kernel_drops: u64,
}

#[derive(Serialize)]
struct DecoderStats {
    pkts: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct FlowStats {
    total: u64,
    active: u64,
}

#[derive(Serialize)]
struct DetectStats {
    alert: u64,
    alerts_suppressed: u64,
    alert_queue_overflow: u64,
}

#[derive(Serialize)]
struct IpsStats {
    accepted: u64,
    blocked: u64,
}

impl<'a> EveStats<'a> {
    /// Creates the line of a report; `began_ns` is the start of the run.
    pub fn new(report: &'a Report, began_ns: u64, now_ns: u64) -> EveStats<'a> {
        let counted = |name: &str| {
            let counters = report.functions.iter().filter_map(|one| one.counters.get(name));
            counters.map(|counter| counter.count).sum()
        };
        let missed: u64 = report.interfaces.values().map(|interface| interface.counters.missed).sum();
        EveStats {
            timestamp: timestamp(now_ns),
            event_type: "stats",
            stats: Stats {
                uptime: now_ns.saturating_sub(began_ns) / 1_000_000_000,
                capture: CaptureStats { kernel_packets: report.packets_in + missed, kernel_drops: missed },
                decoder: DecoderStats { pkts: report.packets_in, bytes: report.bytes_in },
                flow: FlowStats { total: report.flows.started, active: report.flows.live },
                detect: DetectStats {
                    alert: report.alerts,
                    alerts_suppressed: counted("alerts_suppressed"),
                    alert_queue_overflow: report.alerts_lost,
                },
                ips: IpsStats { accepted: report.packets_out, blocked: report.drops.values().sum() },
                drops: &report.drops,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_record_has_suricatas_fields() {
        let address = |last: u8| packet::Addr::from(std::net::IpAddr::from([192, 0, 2, last]));
        let report = FlowReport {
            source: address(1),
            destination: address(2),
            source_port: 1025,
            destination_port: 80,
            protocol: 6,
            version: 4,
            tcp_flags: [0x1b, 0x12],
            first_ns: [2_000_000_000, 3_000_000_000],
            last_ns: [9_000_000_000, 7_000_000_000],
            packets: [3, 2],
            bytes: [180, 120],
            end_reason: 3,
            vlan: 7,
            ..FlowReport::default()
        };
        let line = serde_json::to_value(EveFlow::new(&report)).unwrap();
        assert_eq!(
            (&line["event_type"], &line["proto"], &line["vlan"][0]),
            (&"flow".into(), &"TCP".into(), &7.into())
        );
        assert_eq!((&line["flow"]["pkts_toclient"], &line["flow"]["age"]), (&2.into(), &7.into()));
        assert_eq!((&line["flow"]["reason"], &line["tcp"]["tcp_flags"]), (&"closed".into(), &"1b".into()));
        assert_eq!(line["flow"]["start"], "1970-01-01T00:00:02.000000+0000");
        // The same number as in alerts of the flow, in both directions.
        let turned = FlowReport {
            source: report.destination,
            destination: report.source,
            source_port: 80,
            destination_port: 1025,
            ..report
        };
        assert_eq!(line["flow_id"], serde_json::to_value(EveFlow::new(&turned)).unwrap()["flow_id"]);
    }

    #[test]
    fn unknown_kinds_of_events_are_refused() {
        let kinds: EventKinds = "flow, dns".parse().unwrap();
        assert!(kinds.has("flow") && kinds.has("dns") && !kinds.has("http"));
        assert!("flow,alert".parse::<EventKinds>().unwrap_err().contains("`alert`"));
        assert!(EventKinds::default().has("http") && !EventKinds::default().has("flow"));
    }
}
