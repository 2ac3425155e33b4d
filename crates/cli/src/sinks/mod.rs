//! Where the output of a run goes: captures, alerts, flow records.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use io::capture::{Format, Notes, Record, Writer};
use nf::{Alert, Event, FlowReport};
use node::{Output, Ports};
use packet::{LinkType, Packet};
use serde::Serialize;

use crate::eve::{EveAlert, EveEvent};
use crate::export::{Destination, Export};
use crate::sources::{PortFile, port_named};

/// The files that a run writes.
#[derive(Default)]
pub struct Sinks {
    captures: Vec<Capture>,
    alerts: Option<(String, BufWriter<File>)>,
    flows: Option<Export>,
}

/// A capture with an interface for each port.
pub struct Capture {
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
            captures
                .push(Capture { port, ..Capture::create(&file.path, Format::of_path(&file.path), ports)? });
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

    /// Whether packets are written somewhere.
    pub fn take_packets(&self) -> bool {
        !self.captures.is_empty()
    }

    /// Writes a line of the EVE file, if there is to be one.
    fn eve_line(&mut self, line: &impl Serialize) -> anyhow::Result<()> {
        if let Some((name, file)) = &mut self.alerts {
            serde_json::to_writer(&mut *file, line)?;
            file.write_all(b"\n").with_context(|| format!("cannot write {name}"))?;
        }
        Ok(())
    }

    /// Lets readers of the files see what was written so far.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        for capture in &mut self.captures {
            capture.flush()?;
        }
        if let Some((name, alerts)) = &mut self.alerts {
            alerts.flush().with_context(|| format!("cannot write {name}"))?;
        }
        self.flows.as_mut().map_or(Ok(()), Export::send)
    }

    /// Completes the files.
    pub fn finish(self) -> anyhow::Result<()> {
        for capture in self.captures {
            capture.finish()?;
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
            capture.write(port, packet, &Notes::default())?;
        }
        Ok(())
    }

    fn alert(&mut self, function: &str, alert: &Alert) -> anyhow::Result<()> {
        self.eve_line(&EveAlert::new(function, alert))
    }

    fn event(&mut self, function: &str, event: Event<'_>) -> anyhow::Result<()> {
        self.eve_line(&EveEvent::new(function, event))
    }

    fn flow(&mut self, report: &FlowReport, now_ns: u64) -> anyhow::Result<()> {
        match &mut self.flows {
            Some(flows) => flows.add(report, now_ns),
            None => Ok(()),
        }
    }
}

impl Capture {
    /// Creates the file; `-` is standard output.
    pub fn create(path: &Path, format: Format, ports: &Ports) -> anyhow::Result<Capture> {
        let name = path.display().to_string();
        let writer = Writer::create(path, format).with_context(|| format!("cannot write {name}"))?;
        let names = ports.all().iter().map(|port| (port.number, port.name.clone())).collect();
        Ok(Capture { name, port: None, writer, interfaces: BTreeMap::new(), names })
    }

    /// Lets readers see what was written so far.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        self.writer.flush().with_context(|| format!("cannot write {}", self.name))
    }

    /// Completes the file.
    pub fn finish(self) -> anyhow::Result<()> {
        self.writer.finish().with_context(|| format!("cannot write {}", self.name))
    }

    /// Adds a packet of this port.
    pub fn write(&mut self, port: u16, packet: &Packet, notes: &Notes<'_>) -> anyhow::Result<()> {
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
            timestamp_ns: meta.transit.timestamp_ns,
            interface,
            link_type: meta.link,
            wire_len: meta.wire_len,
            data: packet.data(),
        };
        self.writer.write_noted(&record, notes).with_context(|| format!("cannot write {}", self.name))
    }
}
