//! Where the output of a run goes: captures, alerts, flow records.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, bail};
use io::capture::{Format, Record, Writer};
use nf::{Alert, FlowReport};
use node::{Output, Ports};
use packet::{Addr, Endpoint, LinkType, Packet};
use serde::Serialize;

use crate::export::{Destination, Export};
use crate::sources::{PortFile, port_named};

/// The files that a run writes.
#[derive(Default)]
pub struct Sinks {
    captures: Vec<Capture>,
    alerts: Option<(String, BufWriter<File>)>,
    flows: Option<Export>,
}

struct Capture {
    name: String,
    /// The port whose packets are written; none: all.
    port: Option<u16>,
    writer: Writer,
    /// The file's interface for each port and link type.
    interfaces: BTreeMap<(u16, LinkType), u32>,
    names: BTreeMap<u16, String>,
}

impl Sinks {
    /// Creates the files.
    pub fn create(
        writes: &[PortFile],
        alerts: Option<&Path>,
        flows: Option<&Destination>,
        ports: &Ports,
    ) -> anyhow::Result<Sinks> {
        let mut captures: Vec<Capture> = Vec::new();
        for file in writes {
            let port = file.port.as_ref().map(|name| port_named(ports, name)).transpose()?;
            let name = file.path.display().to_string();
            if captures.iter().any(|capture| capture.name == name) {
                bail!("{name} is to be written twice; without a port, all ports go into one pcapng file");
            }
            let writer = Writer::create(&file.path, Format::of_path(&file.path))
                .with_context(|| format!("cannot write {name}"))?;
            let names = ports.all().iter().map(|port| (port.number, port.name.clone())).collect();
            captures.push(Capture { name, port, writer, interfaces: BTreeMap::new(), names });
        }
        let alerts = match alerts {
            Some(path) => {
                let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
                Some((path.display().to_string(), BufWriter::new(file)))
            }
            None => None,
        };
        let flows = flows.map(Export::new).transpose()?;
        Ok(Sinks { captures, alerts, flows })
    }

    /// Completes the files.
    pub fn finish(self) -> anyhow::Result<()> {
        for capture in self.captures {
            capture.writer.finish().with_context(|| format!("cannot write {}", capture.name))?;
        }
        if let Some((name, mut alerts)) = self.alerts {
            alerts.flush().with_context(|| format!("cannot write {name}"))?;
        }
        if let Some(flows) = self.flows {
            flows.finish()?;
        }
        Ok(())
    }
}

impl Output for Sinks {
    type Error = anyhow::Error;

    fn packet(&mut self, port: u16, packet: &Packet) -> anyhow::Result<()> {
        for capture in self.captures.iter_mut().filter(|c| c.port.is_none_or(|wanted| wanted == port)) {
            capture.write(port, packet)?;
        }
        Ok(())
    }

    fn alert(&mut self, function: &str, alert: &Alert) -> anyhow::Result<()> {
        if let Some((name, file)) = &mut self.alerts {
            serde_json::to_writer(&mut *file, &EveAlert::new(function, alert))?;
            file.write_all(b"\n").with_context(|| format!("cannot write {name}"))?;
        }
        Ok(())
    }

    fn flow(&mut self, report: &FlowReport, now_ns: u64) -> anyhow::Result<()> {
        match &mut self.flows {
            Some(flows) => flows.add(report, now_ns),
            None => Ok(()),
        }
    }
}

impl Capture {
    fn write(&mut self, port: u16, packet: &Packet) -> anyhow::Result<()> {
        let meta = packet.meta();
        let next = self.interfaces.len() as u32;
        let interface = match self.interfaces.get(&(port, meta.link)) {
            Some(&interface) => interface,
            None => {
                let name = self.names.get(&port).map_or("", String::as_str);
                self.writer
                    .add_interface(next, name, meta.link)
                    .with_context(|| format!("cannot write {}", self.name))?;
                self.interfaces.insert((port, meta.link), next);
                next
            }
        };
        let record = Record {
            timestamp_ns: meta.timestamp_ns,
            interface,
            link_type: meta.link,
            wire_len: meta.wire_len,
            data: packet.data(),
        };
        self.writer.write(&record).with_context(|| format!("cannot write {}", self.name))
    }
}

/// An alert as one line of EVE JSON, with the names that Suricata's consumers know.
#[derive(Serialize)]
struct EveAlert<'a> {
    timestamp: String,
    flow_id: u64,
    pcap_cnt: u64,
    event_type: &'static str,
    src_ip: Addressed,
    src_port: u16,
    dest_ip: Addressed,
    dest_port: u16,
    proto: String,
    alert: EveSignature<'a>,
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

struct Addressed(Addr);

impl Serialize for Addressed {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'a> EveAlert<'a> {
    fn new(function: &'a str, alert: &'a Alert) -> EveAlert<'a> {
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
                gid: 1,
                signature_id: alert.signature_id,
                rev: 1,
                signature: alert.signature.as_ref(),
                category: alert.category,
                severity: alert.severity,
            },
            function,
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
