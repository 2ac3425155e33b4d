//! `--ipfix`: flow records to a file or a collector.

use std::fs::File;
use std::io::BufWriter;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use io::ipfix::{FileWriter, Options, UdpCollector};
use nf::FlowReport;

/// Reports that are gathered before messages are made of them.
const GATHERED: usize = 256;

/// Where flow records go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A file of IPFIX messages (RFC 5655).
    File(PathBuf),
    /// A collector, as `HOST:PORT`, over UDP.
    Udp(String),
}

impl Destination {
    /// The file, if it is one.
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

/// Exports flow records.
pub struct Export {
    name: String,
    session: Session,
    gathered: Vec<FlowReport>,
    now_s: u32,
}

enum Session {
    File(Box<FileWriter<BufWriter<File>>>),
    Udp(Box<UdpCollector>),
}

impl Export {
    /// Begins to export to `to`.
    pub fn new(to: &Destination) -> anyhow::Result<Export> {
        let options = Options::default();
        let (name, session) = match to {
            Destination::File(path) => {
                let name = path.display().to_string();
                let file =
                    FileWriter::create(path, options).with_context(|| format!("cannot write {name}"))?;
                (name, Session::File(Box::new(file)))
            }
            Destination::Udp(collector) => {
                let address = resolve(collector)?;
                let session = UdpCollector::connect(address, options)
                    .with_context(|| format!("cannot send to {collector}"))?;
                (collector.clone(), Session::Udp(Box::new(session)))
            }
        };
        Ok(Export { name, session, gathered: Vec::with_capacity(GATHERED), now_s: 0 })
    }

    /// Takes a flow's report; `now_ns` is the time of the run.
    pub fn add(&mut self, report: &FlowReport, now_ns: u64) -> anyhow::Result<()> {
        // RFC 7011 3.1: seconds since 1970, modulo 2^32.
        self.now_s = (now_ns / 1_000_000_000) as u32;
        self.gathered.push(*report);
        if self.gathered.len() == GATHERED { self.send() } else { Ok(()) }
    }

    /// Sends what is gathered, and completes the file.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.send()?;
        match self.session {
            Session::File(file) => {
                file.finish().with_context(|| format!("cannot write {}", self.name))?;
            }
            Session::Udp(collector) => {
                if let Some(error) = collector.last_error() {
                    let (lost, sent) = (collector.messages_lost(), collector.messages_sent());
                    let of = lost + sent;
                    eprintln!("rivulet: {}: {lost} of {of} IPFIX messages were lost: {error}", self.name);
                }
            }
        }
        Ok(())
    }

    /// Sends what is gathered.
    pub fn send(&mut self) -> anyhow::Result<()> {
        match &mut self.session {
            Session::File(file) => {
                file.write(&self.gathered, self.now_s)
                    .with_context(|| format!("cannot write {}", self.name))?;
            }
            Session::Udp(collector) => collector.send(&self.gathered, self.now_s),
        }
        self.gathered.clear();
        Ok(())
    }
}

fn resolve(collector: &str) -> anyhow::Result<SocketAddr> {
    let mut addresses = collector
        .to_socket_addrs()
        .with_context(|| format!("`{collector}` is no collector: expected udp:HOST:PORT"))?;
    match addresses.next() {
        Some(address) => Ok(address),
        None => bail!("`{collector}` has no address"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_a_file_unless_it_says_udp() {
        assert_eq!("flows.ipfix".parse(), Ok(Destination::File("flows.ipfix".into())));
        assert_eq!("udp:[::1]:4739".parse(), Ok(Destination::Udp("[::1]:4739".to_owned())));
    }

    #[test]
    fn files_hold_whole_messages() {
        let path = std::env::temp_dir().join(format!("rivulet-export-{}.ipfix", std::process::id()));
        let mut export = Export::new(&Destination::File(path.clone())).unwrap();
        let report = FlowReport { version: 4, packets: [1, 0], bytes: [84, 0], ..FlowReport::default() };
        for _ in 0..600 {
            export.add(&report, 1_700_000_000_000_000_000).unwrap();
        }
        export.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            assert_eq!(rest[..2], [0, 10]);
            rest = &rest[usize::from(u16::from_be_bytes([rest[2], rest[3]]))..];
        }
    }
}
