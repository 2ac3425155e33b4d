//! Flow records and NAT events as IPFIX, to a file or a collector.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use io::ipfix::{Exporter, NatRecord, Options};
use nf::FlowReport;
use runtime::report::OutputReport;

use crate::error::SinkError;
use crate::notice::Notices;
use crate::spool::writer::{Chunk, OutputWriter, Target};
use crate::spool::{OutputOutcome, OutputState};

/// Timeout of a message that the socket's buffer cannot take, after which it is given up.
const SEND_TIMEOUT: Duration = Duration::from_millis(100);

/// Records buffered before messages are encoded.
const GATHERED: usize = 256;

/// An output of flow records.
#[derive(Clone, Copy)]
pub struct FlowOutput<'a> {
    /// The file or collector.
    pub destination: &'a Destination,
    /// The observation domain (RFC 7011 3.1).
    pub domain: u32,
}

/// Destination of flow records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A file of IPFIX messages (RFC 5655).
    File(PathBuf),
    /// A collector, as `HOST:PORT`, over UDP.
    Udp(String),
}

impl Destination {
    /// Returns the file, unless the destination is a collector.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Destination::File(path) => Some(path),
            Destination::Udp(_) => None,
        }
    }
}

impl std::str::FromStr for Destination {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Destination, Self::Err> {
        Ok(match text.strip_prefix("udp:") {
            Some(collector) => Destination::Udp(collector.to_owned()),
            None => Destination::File(text.into()),
        })
    }
}

/// An exporter of flow records.
pub struct FlowExport {
    options: Options,
    exporter: Exporter,
    messages: Chunk,
    output: OutputState,
    gathered: Vec<FlowReport>,
    gathered_nat: Vec<NatRecord>,
    now_s: u32,
}

impl FlowExport {
    /// Opens the file or socket. Writing begins with [`FlowExport::begin`].
    ///
    /// # Errors
    /// The file cannot be created, or the collector has no address.
    pub fn new(to: FlowOutput<'_>) -> Result<FlowExport, SinkError> {
        let options = Options { observation_domain: to.domain, ..Options::default() };
        let exporter = Exporter::new(options)?;
        let output = match to.destination {
            Destination::File(path) => {
                let name = path.display().to_string();
                let target = Target {
                    path: path.clone(),
                    keeps: false,
                    gzip: false,
                    preamble: Vec::new(),
                    repeats: true,
                };
                OutputState::open(name, target)?
            }
            Destination::Udp(collector) => {
                let address = resolve(collector)?;
                let socket = connect(address)
                    .map_err(|source| SinkError::Connect { collector: collector.clone(), source })?;
                let writer = Box::new(OutputWriter::to_collector(socket));
                OutputState::Opened { name: collector.clone(), writer }
            }
        };
        let gathered = Vec::with_capacity(GATHERED);
        Ok(FlowExport {
            options,
            exporter,
            messages: Chunk::default(),
            output,
            gathered,
            gathered_nat: Vec::new(),
            now_s: 0,
        })
    }

    /// Starts to write: on a thread that sends notices, or without them directly.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn begin(self, notices: Option<&Notices>) -> Result<FlowExport, SinkError> {
        Ok(FlowExport { output: self.output.begin(notices)?, ..self })
    }

    /// Adds a NAT event.
    pub fn add_nat(&mut self, record: NatRecord) {
        // RFC 7011 3.1, as for flow records.
        self.now_s = (record.time_ms / 1_000) as u32;
        self.gathered_nat.push(record);
        if self.gathered_nat.len() == GATHERED {
            self.send();
        }
    }

    /// Adds a flow record; `now_ns` is the time of the run.
    pub fn add(&mut self, report: &FlowReport, now_ns: u64) {
        // RFC 7011 3.1: seconds since 1970, modulo 2^32.
        self.now_s = (now_ns / 1_000_000_000) as u32;
        self.gathered.push(*report);
        if self.gathered.len() == GATHERED {
            self.send();
        }
    }

    /// Sends the buffered records.
    pub fn send(&mut self) {
        let mut reports = &self.gathered[..];
        while let Some(message) = self.exporter.next_message(&mut reports, self.now_s) {
            self.messages.push(message);
        }
        self.gathered.clear();
        let mut events = &self.gathered_nat[..];
        while let Some(message) = self.exporter.next_nat_message(&mut events, self.now_s) {
            self.messages.push(message);
        }
        self.gathered_nat.clear();
        if let Some(spool) = self.output.spool() {
            spool.records(&self.messages);
            spool.flush();
        }
        self.messages.bytes.clear();
        self.messages.ends.clear();
    }

    /// Reopens the file by name. A new file is a session of its own and starts with the templates.
    pub fn reopen(&mut self) {
        let Some(spool) = self.output.spool() else { return };
        spool.reopen();
        if let Ok(exporter) = Exporter::new(self.options) {
            self.exporter = exporter;
        }
    }

    /// Returns whether nothing more can be written.
    pub fn has_failed(&self) -> bool {
        matches!(&self.output, OutputState::Begun(spool) if spool.has_failed())
    }

    /// Returns the counts of the messages so far.
    pub fn counts(&self) -> OutputReport {
        match &self.output {
            OutputState::Begun(spool) => spool.counts(),
            OutputState::Opened { .. } => OutputReport::default(),
        }
    }

    /// Sends the buffered records, and completes the file.
    pub fn finish(mut self) -> OutputOutcome {
        self.send();
        self.output.into_spool().finish()
    }
}

/// Creates a socket that sends to this collector, which need not be up.
fn connect(collector: SocketAddr) -> std::io::Result<UdpSocket> {
    let any: SocketAddr = match collector {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(collector)?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    Ok(socket)
}

fn resolve(collector: &str) -> Result<SocketAddr, SinkError> {
    let mut addresses = collector
        .to_socket_addrs()
        .map_err(|source| SinkError::NotACollector { collector: collector.to_owned(), source })?;
    addresses.next().ok_or_else(|| SinkError::NoAddress(collector.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_a_file_unless_it_starts_with_udp() {
        assert_eq!("flows.ipfix".parse(), Ok(Destination::File("flows.ipfix".into())));
        assert_eq!("udp:[::1]:4739".parse(), Ok(Destination::Udp("[::1]:4739".to_owned())));
    }

    #[test]
    fn a_file_holds_whole_messages() {
        let path = std::env::temp_dir().join(format!("rivulet-export-{}.ipfix", std::process::id()));
        let destination = Destination::File(path.clone());
        let export = FlowExport::new(FlowOutput { destination: &destination, domain: 9 }).unwrap();
        let mut export = export.begin(None).unwrap();
        let report = FlowReport { version: 4, packets: [1, 0], bytes: [84, 0], ..FlowReport::default() };
        for _ in 0..600 {
            export.add(&report, 1_700_000_000_000_000_000);
        }
        let outcome = export.finish();
        assert_eq!((outcome.complaint, outcome.counts.not_written), (None, 0));
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            assert_eq!((&rest[..2], &rest[12..16]), (&[0, 10][..], &[0, 0, 0, 9][..]));
            rest = &rest[usize::from(u16::from_be_bytes([rest[2], rest[3]]))..];
        }
    }
}
