//! A capture file with an interface for each port.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::io::capture::{CaptureFormat, CaptureRecord, CaptureWriter, FormatKind, Notes};
use packet::{LinkType, Packet};
use runtime::Ports;

use crate::error::SinkError;
use crate::notice::Notices;
use crate::spool::writer::Target;
use crate::spool::{OutputOutcome, OutputState, Spool};

/// A capture and its output.
pub struct Capture {
    name: String,
    /// Writes only the packets of this port; `None`: of all ports.
    pub port: Option<u16>,
    writer: CaptureWriter,
    /// Output of the writer.
    tape: SharedBuffer,
    /// Interface in the file for each port and link type.
    interfaces: BTreeMap<(u16, LinkType), u32>,
    names: BTreeMap<u16, String>,
    output: OutputState,
    /// The error after which nothing more is written.
    failed: Option<SinkError>,
}

/// A shared buffer that takes a writer's output.
#[derive(Clone, Default)]
pub struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl SharedBuffer {
    /// Takes the buffered bytes.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Capture {
    /// Creates the file; `-` is standard output. Writing begins with [`Capture::begin`].
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(
        path: &Path,
        format: CaptureFormat,
        ports: &Ports,
        is_live: bool,
    ) -> Result<Capture, SinkError> {
        Capture::by(path, format, ports, is_live, |writer| writer)
    }

    /// Creates a sink of arriving and departing packets, each with its direction.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn with_directions(
        path: &Path,
        format: CaptureFormat,
        ports: &Ports,
        is_live: bool,
    ) -> Result<Capture, SinkError> {
        Capture::by(path, format, ports, is_live, CaptureWriter::with_directions)
    }

    fn by(
        path: &Path,
        format: CaptureFormat,
        ports: &Ports,
        is_live: bool,
        prepare: fn(CaptureWriter) -> CaptureWriter,
    ) -> Result<Capture, SinkError> {
        let name = path.display().to_string();
        let (tape, gzip) = (SharedBuffer::default(), format.gzip);
        let mut writer = prepare(CaptureWriter::new(tape.clone(), CaptureFormat { gzip: false, ..format }));
        let names: BTreeMap<_, _> = ports.all().iter().map(|port| (port.number, port.name.clone())).collect();
        let mut interfaces = BTreeMap::new();
        if is_live {
            // Each file that is begun while the run is live starts with all interfaces. Ports carry
            // Ethernet.
            for (&port, name) in &names {
                let next = interfaces.len() as u32;
                writer.add_interface(next, name, LinkType::Ethernet)?;
                interfaces.insert((port, LinkType::Ethernet), next);
            }
            writer.flush()?;
        }
        let preamble = std::mem::take(&mut *tape.lock());
        let repeats = format.kind == FormatKind::Pcapng;
        let target = Target { path: path.to_owned(), keeps: false, gzip, preamble, repeats };
        let output = OutputState::open(name.clone(), target)?;
        Ok(Capture { name, port: None, writer, tape, interfaces, names, output, failed: None })
    }

    /// Starts to write: on a thread that sends notices, or without them directly.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn begin(self, notices: Option<&Notices>) -> Result<Capture, SinkError> {
        Ok(Capture { output: self.output.begin(notices)?, ..self })
    }

    /// Returns the output, after [`Capture::begin`].
    pub fn spool(&mut self) -> Option<&mut Spool> {
        self.output.spool()
    }

    /// Writes a packet of this port.
    pub fn write(&mut self, port: u16, packet: &Packet, notes: &Notes<'_>) {
        if self.failed.is_none()
            && let Err(error) = self.add(port, packet, notes)
        {
            self.failed = Some(error);
        }
    }

    fn add(&mut self, port: u16, packet: &Packet, notes: &Notes<'_>) -> Result<(), SinkError> {
        let meta = packet.meta();
        let next = self.interfaces.len() as u32;
        let interface = match self.interfaces.get(&(port, meta.link)) {
            Some(&interface) => interface,
            None => {
                let name = self.names.get(&port).map_or("", String::as_str);
                self.writer.add_interface(next, name, meta.link)?;
                self.interfaces.insert((port, meta.link), next);
                next
            }
        };
        let record = CaptureRecord {
            timestamp_ns: meta.transit.timestamp_ns,
            interface,
            link_type: meta.link,
            wire_len: meta.wire_len,
            data: packet.data(),
        };
        let (Some(spool), writer) = (self.output.spool(), &mut self.writer) else { return Ok(()) };
        let mut result = Ok(());
        spool.record(|bytes| {
            result = writer.write_noted(&record, notes).and_then(|()| writer.flush());
            bytes.append(&mut self.tape.lock());
        });
        Ok(result?)
    }

    /// Completes the file.
    ///
    /// # Errors
    /// A capture without packets cannot be completed.
    pub fn finish(self) -> Result<OutputOutcome, SinkError> {
        let mut spool = self.output.into_spool();
        if self.interfaces.is_empty() {
            // A capture without packets is valid, too.
            self.writer.finish()?;
            spool.append(&mut self.tape.lock());
        }
        let mut outcome = spool.finish();
        if let Some(error) = self.failed {
            outcome.has_failed = true;
            outcome.complaint.get_or_insert(format!("cannot write {}: {error}", self.name));
        }
        Ok(outcome)
    }
}
