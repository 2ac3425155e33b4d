//! `--ipfix`: flow records and NAT events to a file or a collector.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use io::ipfix::{Exporter, NatRecord, Options};
use nf::FlowReport;
use packet::split_mix;
use runtime::report::OutputReport;

use crate::messages::Console;
use crate::spool::pen::{Chunk, OutputWriter, Target};
use crate::spool::{Outcome, Spool};

/// Timeout of a message that the socket's buffer cannot take, after which it is given up.
const SEND_TIMEOUT: Duration = Duration::from_millis(100);

/// Records buffered before messages are encoded.
const GATHERED: usize = 256;

/// Options of flow records.
#[derive(Clone, Debug, clap::Args)]
pub struct ExportArgs {
    /// Send flow records as IPFIX to a file or a collector, `udp:HOST:PORT`; requires a Monitor in
    /// the policy, or a NAT with `events`
    #[arg(long, value_name = "DEST")]
    pub ipfix: Option<Destination>,
    /// Observation domain of these records, from 1 on: collectors tell processes of one address
    /// apart by it [default: derived from ports, node or seed]
    #[arg(long, value_name = "NUMBER", requires = "ipfix")]
    pub ipfix_domain: Option<NonZeroU32>,
}

impl ExportArgs {
    /// Returns the file that is written, if there is one.
    pub fn file(&self) -> Option<&Path> {
        self.ipfix.as_ref().and_then(Destination::file)
    }

    /// Returns the output of the process that `identity` distinguishes from others of its address.
    pub fn output(&self, identity: impl fmt::Display) -> Option<FlowOutput<'_>> {
        let domain = self.ipfix_domain.map_or_else(|| domain_of(&identity.to_string()), NonZeroU32::get);
        self.ipfix.as_ref().map(|destination| FlowOutput { destination, domain })
    }
}

/// An output of flow records.
#[derive(Clone, Copy)]
pub struct FlowOutput<'a> {
    pub destination: &'a Destination,
    /// The observation domain (RFC 7011 3.1).
    pub domain: u32,
}

/// Derives an observation domain; 0 would mean none.
fn domain_of(identity: &str) -> u32 {
    let mixed = identity.bytes().fold(0, |mixed: u64, byte| split_mix(&mut (mixed ^ u64::from(byte))));
    ((mixed >> 32) as u32).max(1)
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
pub struct Export {
    name: String,
    options: Options,
    exporter: Exporter,
    messages: Chunk,
    place: OutputState,
    gathered: Vec<FlowReport>,
    gathered_nat: Vec<NatRecord>,
    now_s: u32,
}

/// State of the output.
enum OutputState {
    /// Opened; writing has not begun.
    Opened(Box<OutputWriter>),
    Begun(Spool),
}

impl Export {
    /// Opens the file or socket. Writing begins with [`Export::begin`].
    pub fn new(to: FlowOutput<'_>) -> anyhow::Result<Export> {
        let options = Options { observation_domain: to.domain, ..Options::default() };
        let exporter = Exporter::new(options)?;
        let (name, pen) = match to.destination {
            Destination::File(path) => {
                let name = path.display().to_string();
                let target = Target {
                    path: path.clone(),
                    keeps: false,
                    gzip: false,
                    preamble: Vec::new(),
                    repeats: true,
                };
                let pen = OutputWriter::open(target).with_context(|| format!("cannot write {name}"))?;
                (name, pen)
            }
            Destination::Udp(collector) => {
                let address = resolve(collector)?;
                let socket = connect(address).with_context(|| format!("cannot send to {collector}"))?;
                (collector.clone(), OutputWriter::to_collector(socket))
            }
        };
        let gathered = Vec::with_capacity(GATHERED);
        Ok(Export {
            name,
            options,
            exporter,
            messages: Chunk::default(),
            place: OutputState::Opened(Box::new(pen)),
            gathered,
            gathered_nat: Vec::new(),
            now_s: 0,
        })
    }

    /// Starts to write: on a thread that reports to `console`, or without it directly.
    pub fn begin(self, console: Option<&Console>) -> anyhow::Result<Export> {
        let place = match (self.place, console) {
            (OutputState::Opened(pen), Some(console)) => {
                OutputState::Begun(Spool::queued(self.name.clone(), *pen, console.clone())?)
            }
            (OutputState::Opened(pen), None) => OutputState::Begun(Spool::direct(self.name.clone(), *pen)),
            (begun @ OutputState::Begun(_), _) => begun,
        };
        Ok(Export { place, ..self })
    }

    /// Adds a NAT event.
    pub fn add_nat(&mut self, record: NatRecord) -> anyhow::Result<()> {
        // RFC 7011 3.1, as for flow records.
        self.now_s = (record.time_ms / 1_000) as u32;
        self.gathered_nat.push(record);
        if self.gathered_nat.len() == GATHERED { self.send() } else { Ok(()) }
    }

    /// Adds a flow record; `now_ns` is the time of the run.
    pub fn add(&mut self, report: &FlowReport, now_ns: u64) -> anyhow::Result<()> {
        // RFC 7011 3.1: seconds since 1970, modulo 2^32.
        self.now_s = (now_ns / 1_000_000_000) as u32;
        self.gathered.push(*report);
        if self.gathered.len() == GATHERED { self.send() } else { Ok(()) }
    }

    /// Sends the buffered records.
    pub fn send(&mut self) -> anyhow::Result<()> {
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
        if let OutputState::Begun(spool) = &mut self.place {
            spool.records(&self.messages);
            spool.flush();
        }
        self.messages.bytes.clear();
        self.messages.ends.clear();
        Ok(())
    }

    /// Reopens the file by name. A new file is a session of its own and starts with the templates.
    pub fn reopen(&mut self) {
        let OutputState::Begun(spool) = &mut self.place else { return };
        spool.reopen();
        if let Ok(exporter) = Exporter::new(self.options) {
            self.exporter = exporter;
        }
    }

    /// Returns whether nothing more can be written.
    pub fn has_failed(&self) -> bool {
        matches!(&self.place, OutputState::Begun(spool) if spool.has_failed())
    }

    /// Counts of the messages so far.
    pub fn counts(&self) -> OutputReport {
        match &self.place {
            OutputState::Begun(spool) => spool.counts(),
            OutputState::Opened(_) => OutputReport::default(),
        }
    }

    /// Sends the buffered records, and completes the file.
    pub fn finish(mut self) -> anyhow::Result<Outcome> {
        self.send()?;
        match self.place {
            OutputState::Begun(spool) => Ok(spool.finish()),
            OutputState::Opened(_) => bail!("the export was never begun"),
        }
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

fn resolve(collector: &str) -> anyhow::Result<SocketAddr> {
    let mut addresses = collector
        .to_socket_addrs()
        .with_context(|| format!("`{collector}` is not a collector; expected udp:HOST:PORT"))?;
    match addresses.next() {
        Some(address) => Ok(address),
        None => bail!("`{collector}` has no address"),
    }
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
    fn domains_are_given_or_derived() {
        let args = |ipfix_domain| ExportArgs { ipfix: Some(Destination::File("f".into())), ipfix_domain };
        let domain = |args: ExportArgs, identity: &str| args.output(identity).map(|output| output.domain);
        assert_eq!(domain(args(NonZeroU32::new(7)), "a"), Some(7));
        assert_eq!(domain(args(None), "a"), domain(args(None), "a"));
        assert_ne!(domain(args(None), "a"), domain(args(None), "b"));
        assert!(domain(ExportArgs { ipfix: None, ipfix_domain: None }, "a").is_none());
    }

    #[test]
    fn a_file_holds_whole_messages() {
        let path = std::env::temp_dir().join(format!("rivulet-export-{}.ipfix", std::process::id()));
        let destination = Destination::File(path.clone());
        let export = Export::new(FlowOutput { destination: &destination, domain: 9 }).unwrap();
        let mut export = export.begin(None).unwrap();
        let report = FlowReport { version: 4, packets: [1, 0], bytes: [84, 0], ..FlowReport::default() };
        for _ in 0..600 {
            export.add(&report, 1_700_000_000_000_000_000).unwrap();
        }
        let outcome = export.finish().unwrap();
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
