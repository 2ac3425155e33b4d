//! Outputs of a run: captures, alerts, flow records.

mod capture;
mod limit;

use std::collections::BTreeMap;
use std::path::Path;

use io::capture::{CaptureFormat, Notes};
use nf::{Alert, Event, FlowReport};
use packet::Packet;
use runtime::report::OutputReport;
use runtime::{Output, Ports, Report};
use serde::Serialize;
use telemetry::Merge;

use crate::error::SinkError;
use crate::eve::{EveAlert, EveEvent, EveFlow, EveStats, EventKinds};
use crate::export::{FlowExport, FlowOutput};
use crate::nat_record::nat_record;
use crate::notice::Notices;
use crate::port_file::{PortFile, port_named};
use crate::spool::writer::Target;
use crate::spool::{OutputOutcome, OutputState, Spool};

pub use capture::{Capture, SharedBuffer};
pub use limit::PER_SOURCE;
use limit::{EveSuppressed, Limiter};

/// Names of outputs in reports. Captures are counted together: a report does not depend on the
/// names of their files.
const CAPTURES: &str = "captures";
const ALERTS: &str = "alerts";
const IPFIX: &str = "ipfix";

/// The outputs of a run.
#[derive(Default)]
pub struct Sinks {
    captures: Vec<Capture>,
    alerts: Option<OutputState>,
    limiter: Option<Limiter>,
    flows: Option<FlowExport>,
    events: EventKinds,
    /// Names of the ports, by number.
    names: BTreeMap<u16, String>,
    /// Start of the run, for `stats`.
    began_ns: Option<u64>,
}

/// The outputs of a run, as its options name them.
pub struct Outputs<'a> {
    /// Captures of departing packets.
    pub writes: &'a [PortFile],
    /// The file of alerts and events.
    pub alerts: Option<&'a Path>,
    /// Kinds of events to write to it.
    pub events: &'a EventKinds,
    /// Destination of flow records.
    pub flows: Option<FlowOutput<'a>>,
    /// For a live run, the limit of alerts per signature and source. Writing a live run's outputs
    /// never blocks it.
    pub live: Option<u32>,
}

impl Outputs<'_> {
    /// Returns whether there are files, which may be reopened.
    pub fn have_files(&self) -> bool {
        !self.writes.is_empty()
            || self.alerts.is_some()
            || self.flows.is_some_and(|to| to.destination.file().is_some())
    }
}

impl Sinks {
    /// Creates the files.
    ///
    /// # Errors
    /// A file cannot be created, a port is not the policy's, or a collector has no address.
    pub fn create(outputs: &Outputs<'_>, ports: &Ports) -> Result<Sinks, SinkError> {
        let is_live = outputs.live.is_some();
        let mut captures: Vec<Capture> = Vec::new();
        for file in outputs.writes {
            let port = file.port.as_ref().map(|name| port_named(ports, name)).transpose()?;
            let mut capture =
                Capture::create(&file.path, CaptureFormat::of_path(&file.path), ports, is_live)?;
            capture.port = port;
            captures.push(capture);
        }
        let alerts = match outputs.alerts {
            Some(path) => {
                let name = path.display().to_string();
                // After a restart, a live run keeps earlier alerts; a run over captures has only
                // their own.
                let target = Target {
                    path: path.to_owned(),
                    keeps: is_live,
                    gzip: false,
                    preamble: Vec::new(),
                    repeats: false,
                };
                Some(OutputState::open(name, target)?)
            }
            None => None,
        };
        let flows = outputs.flows.map(FlowExport::new).transpose()?;
        let limiter = outputs.live.filter(|&limit| limit > 0).map(Limiter::new);
        let names = ports.all().iter().map(|port| (port.number, port.name.clone())).collect();
        let events = outputs.events.clone();
        Ok(Sinks { captures, alerts, limiter, flows, events, names, began_ns: None })
    }

    /// Starts to write: on threads that send notices, or without them directly.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn begin(mut self, notices: Option<&Notices>) -> Result<Sinks, SinkError> {
        let captures = std::mem::take(&mut self.captures).into_iter();
        self.captures = captures.map(|capture| capture.begin(notices)).collect::<Result<_, _>>()?;
        self.alerts = self.alerts.take().map(|alerts| alerts.begin(notices)).transpose()?;
        self.flows = self.flows.take().map(|flows| flows.begin(notices)).transpose()?;
        Ok(self)
    }

    /// Returns whether packets are written.
    pub fn take_packets(&self) -> bool {
        !self.captures.is_empty()
    }

    /// Writes a line to the EVE file, if there is one.
    fn eve_line(&mut self, line: &impl Serialize) -> Result<(), SinkError> {
        if let Some(alerts) = self.alerts.as_mut().and_then(OutputState::spool) {
            let mut result = Ok(());
            alerts.record(|bytes| {
                let before = bytes.len();
                result = serde_json::to_writer(&mut *bytes, line);
                match result {
                    Ok(()) => bytes.push(b'\n'),
                    Err(_) => bytes.truncate(before),
                }
            });
            result?;
        }
        Ok(())
    }

    /// Writes the counters of the whole run, if `stats` is among the events.
    ///
    /// # Errors
    /// A record has no JSON.
    pub fn stats(&mut self, report: &Report, now_ns: u64) -> Result<(), SinkError> {
        if !self.events.has("stats") {
            return Ok(());
        }
        let began_ns = *self.began_ns.get_or_insert(report.first_packet_ns.unwrap_or(now_ns).min(now_ns));
        self.eve_line(&EveStats::new(report, began_ns, now_ns))
    }

    /// Makes the records written so far visible to readers of the files.
    ///
    /// # Errors
    /// A record has no JSON.
    pub fn flush(&mut self, now_ns: u64) -> Result<(), SinkError> {
        let suppressed = self.limiter.as_mut().map(|limiter| limiter.roll(now_ns)).unwrap_or_default();
        suppressed.iter().try_for_each(|of| self.eve_line(&EveSuppressed::new(of)))?;
        self.spools().for_each(Spool::flush);
        self.flows.iter_mut().for_each(FlowExport::send);
        Ok(())
    }

    /// Reopens the files by name, after they were renamed.
    pub fn reopen(&mut self) {
        self.spools().for_each(Spool::reopen);
        self.flows.iter_mut().for_each(FlowExport::reopen);
    }

    /// Returns whether all outputs have failed.
    pub fn have_all_failed(&mut self) -> bool {
        let flows = self.flows.as_ref().is_some_and(|flows| !flows.has_failed());
        let mut others = self.spools().peekable();
        !flows && others.peek().is_some() && others.all(|spool| spool.has_failed())
    }

    /// Counts the records of each output.
    pub fn counts(&mut self) -> BTreeMap<String, OutputReport> {
        let mut counts = BTreeMap::new();
        for spool in self.captures.iter_mut().filter_map(Capture::spool) {
            counts.entry(CAPTURES.to_owned()).or_insert_with(OutputReport::default).merge(&spool.counts());
        }
        let suppressed = self.limiter.as_ref().map_or(0, Limiter::suppressed);
        let alerts = self.alerts.as_mut().and_then(OutputState::spool).map(|alerts| alerts.counts());
        counts.extend(alerts.map(|alerts| (ALERTS.to_owned(), OutputReport { suppressed, ..alerts })));
        counts.extend(self.flows.as_ref().map(|flows| (IPFIX.to_owned(), flows.counts())));
        counts
    }

    /// Completes the files that can be completed.
    ///
    /// # Errors
    /// A record has no JSON, or a capture without packets cannot be completed.
    pub fn finish(mut self, now_ns: u64) -> Result<Ended, SinkError> {
        let suppressed = self.limiter.as_mut().map(|limiter| limiter.end_window(now_ns)).unwrap_or_default();
        suppressed.iter().try_for_each(|of| self.eve_line(&EveSuppressed::new(of)))?;
        let suppressed = self.limiter.as_ref().map_or(0, Limiter::suppressed);
        let mut ended = Ended::default();
        for capture in self.captures {
            ended.add(CAPTURES, capture.finish()?, 0);
        }
        if let Some(alerts) = self.alerts {
            ended.add(ALERTS, alerts.into_spool().finish(), suppressed);
        }
        if let Some(flows) = self.flows {
            ended.add(IPFIX, flows.finish(), 0);
        }
        Ok(ended)
    }

    fn spools(&mut self) -> impl Iterator<Item = &mut Spool> {
        self.captures
            .iter_mut()
            .filter_map(Capture::spool)
            .chain(self.alerts.as_mut().and_then(OutputState::spool))
    }
}

/// Results of the outputs.
#[derive(Default)]
pub struct Ended {
    /// Counts of each output's records.
    pub counts: BTreeMap<String, OutputReport>,
    /// Messages about records that were not written.
    pub complaints: Vec<String>,
    /// A file is incomplete.
    pub has_failed: bool,
}

impl Ended {
    fn add(&mut self, output: &str, outcome: OutputOutcome, suppressed: u64) {
        self.counts
            .entry(output.to_owned())
            .or_default()
            .merge(&OutputReport { suppressed, ..outcome.counts });
        self.complaints.extend(outcome.complaint);
        self.has_failed |= outcome.has_failed;
    }
}

impl Output for Sinks {
    type Error = SinkError;

    fn packet(&mut self, port: u16, packet: &Packet) -> Result<(), SinkError> {
        for capture in self.captures.iter_mut().filter(|c| c.port.is_none_or(|wanted| wanted == port)) {
            capture.write(port, packet, &Notes::default());
        }
        Ok(())
    }

    fn alert(&mut self, function: &str, alert: &Alert) -> Result<(), SinkError> {
        if let (Some(limiter), Some(_)) = (&mut self.limiter, &self.alerts)
            && !limiter.admits(function, alert)
        {
            return Ok(());
        }
        let name = self.names.get(&alert.ingress).cloned();
        self.eve_line(&EveAlert::new(function, name.as_deref(), alert))
    }

    fn event(&mut self, function: &str, event: Event<'_>) -> Result<(), SinkError> {
        if let Some(flows) = &mut self.flows
            && let Some(record) = nat_record(&event)
        {
            flows.add_nat(record);
        }
        if !self.events.has(event.kind) {
            return Ok(());
        }
        let name = self.names.get(&event.ingress).cloned();
        self.eve_line(&EveEvent::new(function, name.as_deref(), event))
    }

    fn flow(&mut self, report: &FlowReport, now_ns: u64) -> Result<(), SinkError> {
        if self.events.has("flow") {
            self.eve_line(&EveFlow::new(report))?;
        }
        if let Some(flows) = &mut self.flows {
            flows.add(report, now_ns);
        }
        Ok(())
    }
}
