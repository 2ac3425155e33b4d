//! EVE: alerts as lines of JSON, with the names that Suricata's consumers know.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use nf::{Alert, AlertDetail};
use packet::{Addr, Endpoint};
use serde::Serialize;

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
            flow_id: packet::FlowHasher::new(0).hash(&alert.key) >> 11,
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
    fn times_are_written_as_suricata_does() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000000+0000");
        assert_eq!(timestamp(951_782_400_123_456_789), "2000-02-29T00:00:00.123456+0000");
        assert_eq!(timestamp(4_107_542_399_000_000_000), "2100-02-28T23:59:59.000000+0000");
    }
}
