//! EVE: alerts and events as lines of JSON, with the names that Suricata's consumers know.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use nf::{Alert, AlertDetail, Event, EventField, EventValue};
use packet::{Addr, Endpoint, FlowKey};
use serde::Serialize;
use serde::ser::SerializeMap;

/// An alert as one line of EVE JSON, with the names that Suricata's consumers know.
#[derive(Serialize)]
pub struct EveAlert<'a> {
    timestamp: String,
    flow_id: u64,
    pcap_cnt: u64,
    event_type: &'static str,
    src_ip: Addressed,
    src_port: u16,
    dest_ip: Addressed,
    dest_port: u16,
    proto: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    app_proto: Option<&'static str>,
    alert: EveSignature<'a>,
    #[serde(flatten)]
    excerpt: Option<Excerpt>,
    /// The function that raised it, by its name in the policy.
    function: &'a str,
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
}

/// What was looked at.
#[derive(Serialize)]
struct Excerpt {
    /// In Base64.
    payload: String,
    /// With a dot for each byte that is not printable.
    payload_printable: String,
    /// 1 if it is of a TCP stream, 0 if of the packet.
    stream: u8,
}

/// An event as one line of EVE JSON: its fields stand in an object that has the kind's name.
pub struct EveEvent<'a> {
    function: &'a str,
    event: Event<'a>,
}

/// The fields of an event, as an object.
pub struct Fields<'a>(pub &'a [EventField<'a>]);

struct Addressed(Addr);

impl Serialize for Addressed {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'a> EveAlert<'a> {
    /// The line about an alert of the function with this name.
    pub fn new(function: &'a str, alert: &'a Alert) -> EveAlert<'a> {
        let detail = alert.detail.as_deref();
        let (source, destination): (Endpoint, Endpoint) = alert.key.ends(alert.reversed);
        EveAlert {
            timestamp: timestamp(alert.timestamp_ns),
            flow_id: flow_id(&alert.key),
            pcap_cnt: alert.sequence + 1,
            event_type: "alert",
            src_ip: Addressed(source.addr),
            src_port: source.port,
            dest_ip: Addressed(destination.addr),
            dest_port: destination.port,
            proto: protocol(alert.key.protocol),
            alert: EveSignature {
                action: if alert.blocked { "blocked" } else { "allowed" },
                gid: detail.map_or(1, |detail| detail.group),
                signature_id: alert.signature_id,
                rev: detail.map_or(1, |detail| detail.revision),
                signature: alert.signature.as_ref(),
                category: &alert.category,
                severity: alert.severity,
            },
            app_proto: detail.and_then(|detail| detail.application),
            excerpt: detail.filter(|detail| !detail.payload.is_empty()).map(Excerpt::new),
            function,
        }
    }
}

impl<'a> EveEvent<'a> {
    /// The line about an event that the function with this name tells.
    pub fn new(function: &'a str, event: Event<'a>) -> EveEvent<'a> {
        EveEvent { function, event }
    }
}

impl Serialize for EveEvent<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let EveEvent { function, event } = self;
        let (source, destination): (Endpoint, Endpoint) = event.key.ends(event.reversed);
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("timestamp", &timestamp(event.timestamp_ns))?;
        line.serialize_entry("flow_id", &flow_id(&event.key))?;
        if let Some(number) = event.sequence {
            line.serialize_entry("pcap_cnt", &(number + 1))?;
        }
        line.serialize_entry("event_type", event.kind)?;
        line.serialize_entry("src_ip", &Addressed(source.addr))?;
        line.serialize_entry("src_port", &source.port)?;
        line.serialize_entry("dest_ip", &Addressed(destination.addr))?;
        line.serialize_entry("dest_port", &destination.port)?;
        line.serialize_entry("proto", &protocol(event.key.protocol))?;
        line.serialize_entry(event.kind, &Fields(&event.fields().collect::<Vec<_>>()))?;
        line.serialize_entry("function", function)?;
        line.end()
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(self.0.len()))?;
        for &(name, value) in self.0 {
            match value {
                EventValue::Number(number) => object.serialize_entry(name, &number)?,
                EventValue::Text(bytes) => object.serialize_entry(name, &text(bytes))?,
            }
        }
        object.end()
    }
}

/// Bytes as a text: those that are no UTF-8 as `\xff`, as Suricata writes them.
pub fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

/// A number for a flow, the same in every run and for both directions.
fn flow_id(key: &FlowKey) -> u64 {
    packet::FlowHasher::new(0).hash(key) >> 11
}

impl Excerpt {
    fn new(detail: &AlertDetail) -> Excerpt {
        let printable = |&byte: &u8| match byte {
            b' '..=b'~' | b'\n' | b'\r' | b'\t' => byte as char,
            _ => '.',
        };
        Excerpt {
            payload: BASE64_STANDARD.encode(&detail.payload),
            payload_printable: detail.payload.iter().map(printable).collect(),
            stream: u8::from(detail.stream),
        }
    }
}

/// A protocol as Suricata names it.
pub fn protocol(number: u8) -> String {
    match number {
        1 => "ICMP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        58 => "IPv6-ICMP".to_owned(),
        132 => "SCTP".to_owned(),
        other => other.to_string(),
    }
}

/// Nanoseconds since 1970 as RFC 3339 in UTC with microseconds, as Suricata writes it.
pub fn timestamp(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let micros = ns % 1_000_000_000 / 1_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+0000")
}

/// The Gregorian date of a day since 1970-01-01, counted in 400-year eras that begin in March.
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
    fn bytes_are_written_as_text() {
        assert_eq!(text("/ä".as_bytes()), "/ä");
        assert_eq!(text(b"/\xff\xc3("), "/\\xff\\xc3(");
    }

    #[test]
    fn times_are_written_as_suricata_does() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000000+0000");
        assert_eq!(timestamp(951_782_400_123_456_789), "2000-02-29T00:00:00.123456+0000");
        assert_eq!(timestamp(4_107_542_399_000_000_000), "2100-02-28T23:59:59.000000+0000");
    }
}
