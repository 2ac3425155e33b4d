//! Destinations of messages: a collector or a file, each a transport session with an exporter of
//! its own.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use nf::FlowReport;

use crate::files;

use super::{Exporter, MessageLimitError, Options};

/// Longest wait for room in the socket's buffer, after which a message is lost.
const SEND_TIMEOUT: Duration = Duration::from_millis(100);

/// Sends reports to a collector over UDP (RFC 7011 10.3). Never waits for the collector; messages
/// that cannot be sent are counted.
#[derive(Debug)]
pub struct UdpCollector {
    socket: UdpSocket,
    exporter: Exporter,
    messages_sent: u64,
    messages_lost: u64,
    last_error: Option<io::Error>,
}

impl UdpCollector {
    /// Opens a session with the collector at this address, which need not be up.
    ///
    /// # Errors
    /// If the options are invalid ([`io::ErrorKind::InvalidInput`]), or the system has no socket or
    /// no route.
    pub fn connect(collector: SocketAddr, options: Options) -> io::Result<UdpCollector> {
        let exporter = exporter(options)?;
        let any: SocketAddr = match collector {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(collector)?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(UdpCollector { socket, exporter, messages_sent: 0, messages_lost: 0, last_error: None })
    }

    /// Sends reports; `now_s` is the time in seconds since 1970.
    pub fn send(&mut self, mut reports: &[FlowReport], now_s: u32) {
        while let Some(message) = self.exporter.next_message(&mut reports, now_s) {
            // The system reports an unreachable collector at the next message.
            match self.socket.send(message) {
                Ok(_) => self.messages_sent += 1,
                Err(error) => {
                    self.messages_lost += 1;
                    self.last_error = Some(error);
                }
            }
        }
    }

    /// Returns the number of messages that the system took.
    pub fn messages_sent(&self) -> u64 {
        self.messages_sent
    }

    /// Returns the number of messages that the system refused.
    pub fn messages_lost(&self) -> u64 {
        self.messages_lost
    }

    /// Returns the error of the last one of them.
    pub fn last_error(&self) -> Option<&io::Error> {
        self.last_error.as_ref()
    }
}

/// Writes reports as a file of messages (RFC 5655).
#[derive(Debug)]
pub struct FileWriter<W: Write> {
    out: W,
    exporter: Exporter,
}

impl FileWriter<BufWriter<File>> {
    /// Creates or truncates the file; see [`files::create`].
    ///
    /// # Errors
    /// If that fails, or the options are invalid ([`io::ErrorKind::InvalidInput`]).
    pub fn create(path: impl AsRef<Path>, options: Options) -> io::Result<Self> {
        FileWriter::new(BufWriter::new(files::create(path.as_ref())?), options)
    }
}

impl<W: Write> FileWriter<W> {
    /// Writes to `out`.
    ///
    /// # Errors
    /// If the options are invalid ([`io::ErrorKind::InvalidInput`]).
    pub fn new(out: W, options: Options) -> io::Result<FileWriter<W>> {
        Ok(FileWriter { out, exporter: exporter(options)? })
    }

    /// Writes reports; `now_s` is the time in seconds since 1970.
    ///
    /// # Errors
    /// If writing fails; the file is then incomplete and must not be written further.
    pub fn write(&mut self, mut reports: &[FlowReport], now_s: u32) -> io::Result<()> {
        while let Some(message) = self.exporter.next_message(&mut reports, now_s) {
            self.out.write_all(message)?;
        }
        Ok(())
    }

    /// Writes buffered data, and returns the output.
    ///
    /// # Errors
    /// If that fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

fn exporter(options: Options) -> io::Result<Exporter> {
    Exporter::new(options)
        .map_err(|error: MessageLimitError| io::Error::new(io::ErrorKind::InvalidInput, error))
}
