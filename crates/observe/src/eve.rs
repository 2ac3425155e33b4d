//! EVE: alerts and events as JSON lines with Suricata's field names. Fields that Suricata does not
//! have are in an object `rivulet`, so that the rest keeps to its schema.

mod records;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use nf::{
    Alert, AlertDetail, AlertFlow, AlertMessage, AlertValue, Event, EventField, EventValue, Translation,
};
use packet::parse::protocol;
use packet::{Addr, Endpoint, FlowKey};
use serde::Serialize;
use serde::ser::SerializeMap;

pub use records::{EveFlow, EveStats, EventKinds};

/// An alert as a line of EVE.
#[derive(Serialize)]
pub struct EveAlert<'a> {
    timestamp: String,
    flow_id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_iface: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pcap_cnt: Option<u64>,
    event_type: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    vlan: Vec<u16>,
    #[serde(flatten)]
    ends: EveEnds,
    proto: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp_type: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tx_id: Option<u64>,
    alert: EveSignature<'a>,
    #[serde(flatten)]
    message: Option<NamedFields<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    app_proto: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    direction: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flow: Option<FlowSoFar>,
    #[serde(flatten)]
    excerpt: Option<EvePayload>,
    rivulet: AlertExtension<'a>,
}

/// Fields of an alert that Suricata does not have.
#[derive(Serialize)]
struct AlertExtension<'a> {
    /// Name of the function in the policy.
    function: &'a str,
    /// Source position of the rule that raised it.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<&'a str>,
    /// Identifier of an ICMP query.
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp_id: Option<u16>,
    /// Translation by a NAT.
    #[serde(skip_serializing_if = "Option::is_none")]
    nat: Option<EveTranslation>,
}

#[derive(Serialize)]
struct EveSignature<'a> {
    action: &'static str,
    gid: u32,
    signature_id: u32,
    rev: u32,
    signature: &'a str,
    category: &'a str,
    severity: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Metadata<'a>>,
}

/// Metadata of a rule: all values of each key.
struct Metadata<'a>(&'a [(String, String)]);

impl Serialize for Metadata<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        for (at, (key, _)) in self.0.iter().enumerate() {
            if self.0[..at].iter().all(|(before, _)| before != key) {
                let values = self.0.iter().filter(|(other, _)| other == key).map(|(_, value)| value);
                object.serialize_entry(key, &values.collect::<Vec<_>>())?;
            }
        }
        object.end()
    }
}

/// Fields as an object in an object: of a message or an event, by the name of its kind.
struct NamedFields<'a> {
    name: &'static str,
    fields: Vec<EventField<'a>>,
}

impl<'a> From<&'a AlertMessage> for NamedFields<'a> {
    fn from(message: &'a AlertMessage) -> NamedFields<'a> {
        let fields = message.fields.iter().map(|(name, value)| (*name, borrowed(value))).collect();
        NamedFields { name: message.kind, fields }
    }
}

impl Serialize for NamedFields<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(1))?;
        object.serialize_entry(self.name, &EveFields(&self.fields))?;
        object.end()
    }
}

fn borrowed(value: &AlertValue) -> EventValue<'_> {
    match value {
        AlertValue::Number(number) => EventValue::Number(*number),
        AlertValue::Text(text) => EventValue::Text(text),
        AlertValue::Flag(flag) => EventValue::Flag(*flag),
        AlertValue::Json(text) => EventValue::Json(text),
    }
}

/// A flow's counters at the time of an alert, and its endpoints, the client first.
#[derive(Serialize)]
struct FlowSoFar {
    pkts_toserver: u64,
    pkts_toclient: u64,
    bytes_toserver: u64,
    bytes_toclient: u64,
    start: String,
    #[serde(flatten)]
    ends: EveEnds,
}

impl FlowSoFar {
    fn new(flow: AlertFlow, ends: EveEnds) -> FlowSoFar {
        FlowSoFar {
            pkts_toserver: flow.packets[0],
            pkts_toclient: flow.packets[1],
            bytes_toserver: flow.bytes[0],
            bytes_toclient: flow.bytes[1],
            start: timestamp(flow.start_ns),
            ends,
        }
    }
}

/// Two endpoints. As in Suricata, protocols without ports have none.
#[derive(Clone, Copy, Serialize)]
struct EveEnds {
    src_ip: EveAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    src_port: Option<u16>,
    dest_ip: EveAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    dest_port: Option<u16>,
}

impl EveEnds {
    fn new(number: u8, (source, destination): (Endpoint, Endpoint)) -> EveEnds {
        let port = |end: Endpoint| has_ports(number).then_some(end.port);
        EveEnds {
            src_ip: EveAddr(source.addr),
            src_port: port(source),
            dest_ip: EveAddr(destination.addr),
            dest_port: port(destination),
        }
    }

    /// Returns them in the other direction.
    fn turned(self) -> EveEnds {
        EveEnds {
            src_ip: self.dest_ip,
            src_port: self.dest_port,
            dest_ip: self.src_ip,
            dest_port: self.src_port,
        }
    }
}

/// Returns whether the ports of a flow's key are ports.
fn has_ports(number: u8) -> bool {
    matches!(number, protocol::TCP | protocol::UDP | protocol::SCTP | protocol::DCCP | protocol::UDP_LITE)
}

/// Returns the identifier of a flow of ICMP queries, which is in the key in the place of ports.
fn icmp_id(key: &FlowKey) -> Option<u16> {
    let (source, destination) = key.ends(false);
    let is_icmp = matches!(key.protocol, protocol::ICMP | protocol::ICMPV6);
    Some(source.port.max(destination.port)).filter(|id| is_icmp && *id != 0)
}

/// An internal host and its external address and ports.
#[derive(Serialize)]
struct EveTranslation {
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'static str>,
    internal_ip: EveAddr,
    /// Absent if all ports of the host are translated.
    #[serde(skip_serializing_if = "Option::is_none")]
    internal_port: Option<u16>,
    external_ip: EveAddr,
    external_port: u16,
    /// Last port of a block.
    #[serde(skip_serializing_if = "Option::is_none")]
    external_port_last: Option<u16>,
}

impl EveTranslation {
    fn new(translation: &Translation) -> EveTranslation {
        let Translation { protocol, internal, external, ports: (first, last) } = *translation;
        EveTranslation {
            protocol,
            internal_ip: EveAddr(internal.addr),
            internal_port: protocol.map(|_| internal.port),
            external_ip: EveAddr(external),
            external_port: first,
            external_port_last: protocol.is_none().then_some(last),
        }
    }
}

/// The inspected bytes.
#[derive(Serialize)]
struct EvePayload {
    /// Base64.
    payload: String,
    /// Non-printable bytes are dots.
    payload_printable: String,
    /// 1 for bytes of a TCP stream, 0 for bytes of the packet.
    stream: u8,
}

/// An event as a line of EVE: its fields are in an object named after its kind, or in `rivulet` for
/// kinds that Suricata lacks.
#[derive(Serialize)]
pub struct EveEvent<'a> {
    timestamp: String,
    flow_id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pcap_cnt: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_iface: Option<&'a str>,
    event_type: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    vlan: Vec<u16>,
    #[serde(flatten)]
    ends: EveEnds,
    proto: String,
    #[serde(flatten)]
    shared: Option<NamedFields<'a>>,
    rivulet: EventExtension<'a>,
}

/// Fields of an event that Suricata does not have.
#[derive(Serialize)]
struct EventExtension<'a> {
    /// Name of the function in the policy.
    function: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp_id: Option<u16>,
    #[serde(flatten)]
    own: Option<NamedFields<'a>>,
}

/// Kinds of events that Suricata has.
const SHARED_KINDS: [&str; 3] = ["http", "dns", "tls"];

/// Fields of an event, as an object.
pub struct EveFields<'a>(pub &'a [EventField<'a>]);

#[derive(Clone, Copy)]
struct EveAddr(Addr);

impl Serialize for EveAddr {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'a> EveAlert<'a> {
    /// Creates the line of an alert of `function`. `interface` is the port that its packet arrived
    /// on.
    pub fn new(function: &'a str, interface: Option<&'a str>, alert: &'a Alert) -> EveAlert<'a> {
        let detail = alert.detail.as_deref();
        let icmp = detail.and_then(|detail| detail.icmp);
        let ends = EveEnds::new(alert.key.protocol, alert.key.ends(alert.reversed));
        EveAlert {
            timestamp: timestamp(alert.timestamp_ns),
            flow_id: flow_id(&alert.key),
            in_iface: interface.filter(|_| alert.has_packet),
            pcap_cnt: alert.has_packet.then_some(alert.sequence + 1),
            event_type: "alert",
            vlan: vlans(&alert.key),
            ends,
            proto: protocol_name(alert.key.protocol),
            alert: EveSignature {
                action: if alert.blocked { "blocked" } else { "allowed" },
                gid: detail.map_or(1, |detail| detail.group),
                signature_id: alert.signature_id,
                rev: detail.map_or(1, |detail| detail.revision),
                signature: alert.signature.as_ref(),
                category: &alert.category,
                severity: alert.severity,
                metadata: detail
                    .and_then(|detail| detail.metadata.as_deref())
                    .filter(|metadata| !metadata.is_empty())
                    .map(Metadata),
            },
            icmp_type: icmp.map(|[kind, _]| kind),
            icmp_code: icmp.map(|[_, code]| code),
            tx_id: detail.and_then(|detail| detail.transaction),
            message: detail.and_then(|detail| detail.message.as_ref()).map(NamedFields::from),
            direction: detail.map(|detail| if detail.to_server { "to_server" } else { "to_client" }),
            flow: detail.and_then(|detail| detail.flow).map(|flow| {
                let to_server = detail.is_some_and(|detail| detail.to_server);
                FlowSoFar::new(flow, if to_server { ends } else { ends.turned() })
            }),
            app_proto: detail.and_then(|detail| detail.application),
            excerpt: detail.filter(|detail| !detail.payload.is_empty()).map(EvePayload::new),
            rivulet: AlertExtension {
                function,
                place: alert.place.as_deref(),
                icmp_id: icmp_id(&alert.key),
                nat: detail.and_then(|detail| detail.translation.as_ref()).map(EveTranslation::new),
            },
        }
    }
}

impl<'a> EveEvent<'a> {
    /// Creates the line of an event of `function`.
    pub fn new(function: &'a str, interface: Option<&'a str>, event: Event<'a>) -> EveEvent<'a> {
        let (is_shared, has_packet) = (SHARED_KINDS.contains(&event.kind), event.sequence.is_some());
        let fields = NamedFields { name: event.kind, fields: event.fields().collect() };
        let (shared, own) = if is_shared { (Some(fields), None) } else { (None, Some(fields)) };
        EveEvent {
            timestamp: timestamp(event.timestamp_ns),
            flow_id: flow_id(&event.key),
            pcap_cnt: event.sequence.map(|number| number + 1),
            in_iface: interface.filter(|_| has_packet),
            event_type: event.kind,
            vlan: vlans(&event.key),
            ends: EveEnds::new(event.key.protocol, event.key.ends(event.reversed)),
            proto: protocol_name(event.key.protocol),
            shared,
            rivulet: EventExtension { function, icmp_id: icmp_id(&event.key), own },
        }
    }
}

impl Serialize for EveFields<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(self.0.len()))?;
        for &(name, value) in self.0 {
            match value {
                EventValue::Number(number) => object.serialize_entry(name, &number)?,
                EventValue::Text(bytes) => object.serialize_entry(name, &text(bytes))?,
                EventValue::Flag(flag) => object.serialize_entry(name, &flag)?,
                EventValue::Json(bytes) => match raw(bytes) {
                    Some(value) => object.serialize_entry(name, &value)?,
                    None => object.serialize_entry(name, &text(bytes))?,
                },
            }
        }
        object.end()
    }
}

/// Parses a value that is JSON already.
fn raw(bytes: &[u8]) -> Option<serde_json::Value> {
    serde_json::from_slice(bytes).ok()
}

/// Returns the VLAN IDs of a flow, the outermost first.
fn vlans(key: &FlowKey) -> Vec<u16> {
    key.scope.vlan().into_iter().chain(key.scope.inner_vlan()).collect()
}

/// Returns bytes as text; invalid UTF-8 becomes `\xff`, as in Suricata.
pub fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

/// Returns the number of a flow: the same in every run and in both directions.
fn flow_id(key: &FlowKey) -> u64 {
    packet::FlowHasher::new(0).hash(key) >> 11
}

impl EvePayload {
    fn new(detail: &AlertDetail) -> EvePayload {
        let printable = |&byte: &u8| match byte {
            b' '..=b'~' | b'\n' | b'\r' | b'\t' => byte as char,
            _ => '.',
        };
        EvePayload {
            payload: BASE64_STANDARD.encode(&detail.payload),
            payload_printable: detail.payload.iter().map(printable).collect(),
            stream: u8::from(detail.stream),
        }
    }
}

/// Returns the name of a protocol in Suricata's EVE.
fn protocol_name(number: u8) -> String {
    match number {
        1 => "ICMP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        58 => "IPv6-ICMP".to_owned(),
        132 => "SCTP".to_owned(),
        other => other.to_string(),
    }
}

/// Formats nanoseconds since 1970 in UTC with microseconds, as Suricata does.
pub fn timestamp(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let micros = ns % 1_000_000_000 / 1_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+0000")
}

/// Returns the Gregorian date of a day since 1970-01-01, by 400-year eras that begin in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_utf8_are_escaped() {
        assert_eq!(text("/ä".as_bytes()), "/ä");
        assert_eq!(text(b"/\xff\xc3("), "/\\xff\\xc3(");
    }

    #[test]
    fn times_have_suricatas_format() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000000+0000");
        assert_eq!(timestamp(951_782_400_123_456_789), "2000-02-29T00:00:00.123456+0000");
        assert_eq!(timestamp(4_107_542_399_000_000_000), "2100-02-28T23:59:59.000000+0000");
    }
}
