//! EVE records that are not about a packet: flows, and counters of the whole run.

use std::fmt;
use std::str::FromStr;

use nf::{Connection, FlowReport};
use packet::Endpoint;
use packet::parse::protocol;
use runtime::Report;
use serde::Serialize;

use super::{EveEnds, flow_id, icmp_id, protocol_name, timestamp, vlans};

/// Kinds of events to write, such as `flow,dns,tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventKinds(Vec<String>);

/// Kinds that `--events` accepts.
const KINDS: [&str; 7] = ["http", "dns", "tls", "redundancy", "nat", "flow", "stats"];

impl Default for EventKinds {
    /// Returns the kinds that functions report by themselves.
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    vlan: Vec<u16>,
    #[serde(flatten)]
    ends: EveEnds,
    proto: String,
    #[serde(flatten)]
    icmp: Option<IcmpTypes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    app_proto: Option<&'static str>,
    flow: FlowCounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp: Option<TcpState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rivulet: Option<FlowExtension>,
}

/// Type and code of the first messages.
#[derive(Serialize)]
struct IcmpTypes {
    icmp_type: u8,
    icmp_code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_icmp_type: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_icmp_code: Option<u8>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    alerted: Option<bool>,
}

#[derive(Serialize)]
struct TcpState {
    tcp_flags: String,
    tcp_flags_ts: String,
    tcp_flags_tc: String,
    #[serde(flatten)]
    seen: TcpFlags,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

/// The flags that were seen, each `true`.
struct TcpFlags(u8);

/// Fields of a flow that Suricata does not have.
#[derive(Serialize)]
struct FlowExtension {
    icmp_id: u16,
}

impl EveFlow {
    /// Creates the line of a monitor's flow report.
    pub fn new(report: &FlowReport) -> EveFlow {
        let source = Endpoint { addr: report.source, port: report.source_port };
        let destination = Endpoint { addr: report.destination, port: report.destination_port };
        let start_ns = report.first_ns.into_iter().filter(|ns| *ns > 0).min().unwrap_or_default();
        let end_ns = report.last_ns.into_iter().max().unwrap_or_default();
        let seconds = |ns: u64| ns / 1_000_000_000;
        let is_tcp = report.protocol == protocol::TCP;
        EveFlow {
            timestamp: timestamp(end_ns),
            flow_id: flow_id(&report.key),
            event_type: "flow",
            vlan: vlans(&report.key),
            ends: EveEnds::new(report.protocol, (source, destination)),
            proto: protocol_name(report.protocol),
            icmp: matches!(report.protocol, protocol::ICMP | protocol::ICMPV6)
                .then(|| IcmpTypes::new(report)),
            app_proto: report.findings.and_then(|findings| findings.application),
            flow: FlowCounts {
                pkts_toserver: report.packets[0],
                pkts_toclient: report.packets[1],
                bytes_toserver: report.bytes[0],
                bytes_toclient: report.bytes[1],
                start: timestamp(start_ns),
                end: timestamp(end_ns),
                age: seconds(end_ns).saturating_sub(seconds(start_ns)),
                state: state(report),
                reason: match report.end_reason {
                    // Suricata, too, keeps a connection for a while after it has closed.
                    1 | 3 => "timeout",
                    2 => "active",
                    4 => "shutdown",
                    _ => "forced",
                },
                alerted: report.findings.map(|findings| findings.alerted),
            },
            tcp: is_tcp.then(|| TcpState::new(report)),
            rivulet: icmp_id(&report.key).map(|icmp_id| FlowExtension { icmp_id }),
        }
    }
}

/// Returns the state of a flow: `new`, `established` or `closed`.
fn state(report: &FlowReport) -> &'static str {
    let is_open = match report.protocol {
        protocol::TCP => {
            !matches!(report.connection, Connection::NEW | Connection::SYN_SENT | Connection::SYN_RECEIVED)
        }
        _ => report.packets[1] > 0,
    };
    match is_open {
        _ if report.end_reason == 3 || report.connection.is_over() => "closed",
        true => "established",
        false => "new",
    }
}

impl IcmpTypes {
    fn new(report: &FlowReport) -> IcmpTypes {
        let [[icmp_type, icmp_code], [kind, code]] = report.icmp.map(u16::to_be_bytes);
        let is_answered = report.packets[1] > 0;
        IcmpTypes {
            icmp_type,
            icmp_code,
            response_icmp_type: is_answered.then_some(kind),
            response_icmp_code: is_answered.then_some(code),
        }
    }
}

impl TcpState {
    fn new(report: &FlowReport) -> TcpState {
        let [to_server, to_client] = report.tcp_flags;
        let all = to_server | to_client;
        TcpState {
            tcp_flags: format!("{all:02x}"),
            tcp_flags_ts: format!("{to_server:02x}"),
            tcp_flags_tc: format!("{to_client:02x}"),
            seen: TcpFlags(all),
            state: match report.connection {
                Connection::SYN_SENT => Some("syn_sent"),
                Connection::SYN_RECEIVED => Some("syn_recv"),
                Connection::ESTABLISHED | Connection::PICKED_UP => Some("established"),
                Connection::FIN_ORIGINAL => Some("close_wait"),
                Connection::FIN_REPLY => Some("fin_wait1"),
                Connection::CLOSED | Connection::RESET => Some("closed"),
                _ => None,
            },
        }
    }
}

impl Serialize for TcpFlags {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const NAMES: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"];
        let seen = NAMES.iter().enumerate().filter(|(bit, _)| self.0 >> bit & 1 != 0);
        serializer.collect_map(seen.map(|(_, name)| (name, true)))
    }
}

/// Counters of a run as a line of EVE: `event_type` `stats`.
#[derive(Serialize)]
pub struct EveStats<'a> {
    timestamp: String,
    event_type: &'static str,
    stats: Stats,
    rivulet: StatsExtension<'a>,
}

/// Counters that Suricata does not have.
#[derive(Serialize)]
struct StatsExtension<'a> {
    /// Packets dropped, by reason.
    drops: &'a std::collections::BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct Stats {
    /// Seconds since the first packet, or since the start of a live run.
    uptime: u64,
    capture: CaptureStats,
    decoder: DecoderStats,
    flow: FlowStats,
    detect: DetectStats,
    ips: IpsStats,
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
            },
            rivulet: StatsExtension { drops: &report.drops },
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
            ..FlowReport::default()
        };
        let line = serde_json::to_value(EveFlow::new(&report)).unwrap();
        assert_eq!((&line["event_type"], &line["proto"]), (&"flow".into(), &"TCP".into()));
        assert_eq!((&line["flow"]["pkts_toclient"], &line["flow"]["age"]), (&2.into(), &7.into()));
        assert_eq!((&line["flow"]["state"], &line["flow"]["reason"]), (&"closed".into(), &"timeout".into()));
        assert_eq!((&line["tcp"]["tcp_flags"], &line["tcp"]["fin"]), (&"1b".into(), &true.into()));
        assert_eq!(line["flow"]["start"], "1970-01-01T00:00:02.000000+0000");
    }

    #[test]
    fn unknown_kinds_of_events_are_refused() {
        let kinds: EventKinds = "flow, dns".parse().unwrap();
        assert!(kinds.has("flow") && kinds.has("dns") && !kinds.has("http"));
        assert!("flow,alert".parse::<EventKinds>().unwrap_err().contains("`alert`"));
        assert!(EventKinds::default().has("http") && !EventKinds::default().has("flow"));
    }
}
