//! The capture collection, and the output of tshark and openssl.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test uses a part, and may fail by panicking"
)]

mod all_cores;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use all_cores::on_all_cores;

/// A capture, and tshark's output.
pub struct Capture {
    pub name: String,
    /// Packets of a tested protocol.
    pub rows: Vec<Row>,
    /// The TCP connections of these packets.
    pub connections: Vec<Connection>,
}

/// A packet's values of [`FIELDS`].
pub struct Row(Vec<Vec<String>>);

const FILTER: &str =
    "tcp && (tls || ssh || smtp || ftp || smb || smb2 || http || http2 || dns) || udp && dns";

const FIELDS: [&str; 17] = [
    "frame.number",
    "frame.protocols",
    "tcp.stream",
    "udp.payload",
    "dns.flags.opcode",
    "dns.flags.rcode",
    "dns.qry.name",
    "dns.qry.type",
    "dns.resp.name",
    "dns.resp.type",
    "_ws.malformed",
    "tls.handshake.extensions_server_name",
    "tls.handshake.extensions_alpn_str",
    "tls.handshake.version",
    "tls.handshake.ciphersuite",
    "tls.handshake.certificate",
    "ssh.protocol",
];

impl Row {
    /// Returns the values of a field.
    pub fn get(&self, field: &str) -> &[String] {
        &self.0[FIELDS.iter().position(|name| *name == field).unwrap()]
    }

    /// Returns the number of the packet's connection, if it has exactly one.
    pub fn stream(&self) -> Option<u32> {
        match self.get("tcp.stream") {
            [stream] => stream.parse().ok(),
            _ => None,
        }
    }
}

/// A TCP connection as followed by tshark: the bytes of either node in order of arrival.
pub struct Connection {
    pub stream: u32,
    pub ports: [u16; 2],
    pub pieces: Vec<(usize, Vec<u8>)>,
}

/// Returns the captures, if they and tshark are available; tshark runs once.
pub fn captures() -> Option<&'static [Capture]> {
    static CAPTURES: OnceLock<Option<Vec<Capture>>> = OnceLock::new();
    CAPTURES.get_or_init(read_captures).as_deref()
}

fn read_captures() -> Option<Vec<Capture>> {
    let shared = std::env::var_os("RIVULET_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let traces = shared.join("traces");
    let Ok(manifest) = fs::read_to_string(traces.join("MANIFEST.tsv")) else {
        return skip(&format!("no captures at {}", traces.display()));
    };
    if Command::new("tshark").arg("-v").output().is_err() {
        return skip("tshark is not installed");
    }
    let names = manifest.lines().skip(1).filter_map(|line| line.split('\t').next());
    // Headers only, and echoes of random bytes: nothing to dissect.
    let names = names.filter(|name| !name.contains("auckland") && !name.contains("echo_500"));
    let mut captures: Vec<_> = names.map(|name| (name, traces.join(name))).collect();
    captures.sort_by_key(|(_, path)| Reverse(fs::metadata(path).unwrap().len()));
    Some(on_all_cores(&captures, |(name, path)| read_capture(name, path)))
}

fn skip<T>(why: &str) -> Option<T> {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
    println!("SKIPPED: {why}");
    None
}

fn read_capture(name: &str, path: &Path) -> Capture {
    let mut arguments = vec!["-Y", FILTER, "-T", "fields", "-E", "aggregator=|"];
    arguments.extend(FIELDS.iter().flat_map(|field| ["-e", *field]));
    let rows: Vec<_> = tshark(path, &arguments).lines().map(row).collect();
    let streams: BTreeSet<u32> = rows.iter().filter_map(Row::stream).collect();
    Capture { name: name.to_owned(), rows, connections: follow(path, &streams) }
}

fn row(line: &str) -> Row {
    let values =
        |column: &str| column.split('|').filter(|value| !value.is_empty()).map(str::to_owned).collect();
    let mut columns: Vec<_> = line.split('\t').map(values).collect();
    columns.resize(FIELDS.len(), Vec::new());
    Row(columns)
}

fn follow(path: &Path, streams: &BTreeSet<u32>) -> Vec<Connection> {
    if streams.is_empty() {
        return Vec::new();
    }
    let mut arguments = vec!["-q".to_owned()];
    arguments.extend(streams.iter().flat_map(|stream| ["-z".to_owned(), format!("follow,tcp,raw,{stream}")]));
    let text = tshark(path, &arguments);
    text.split("Filter: tcp.stream eq ").skip(1).map(connection).collect()
}

fn tshark<S: AsRef<OsStr>>(path: &Path, arguments: &[S]) -> String {
    let output = Command::new("tshark").arg("-r").arg(path).args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn connection(text: &str) -> Connection {
    let mut lines = text.lines();
    let stream = lines.next().unwrap().trim().parse().unwrap();
    let mut port = || lines.next().unwrap().rsplit(':').next().unwrap().trim().parse().unwrap();
    let ports = [port(), port()];
    let lines = lines.take_while(|line| !line.starts_with('='));
    let pieces = lines.map(|line| (usize::from(line.starts_with('\t')), unhex(line.trim()))).collect();
    Connection { stream, ports, pieces }
}

impl Connection {
    /// Returns the presumed server: the node with the lower port.
    pub fn server(&self) -> usize {
        usize::from(self.ports[1] < self.ports[0])
    }
}

/// Returns whether `some` is a subsequence of `all`.
pub fn is_within<T: PartialEq>(some: &[T], all: &[T]) -> bool {
    let mut all = all.iter();
    some.iter().all(|one| all.any(|other| other == one))
}

/// Returns whether this is tshark's notation of a gap.
pub fn is_gap(bytes: &[u8]) -> bool {
    bytes.ends_with(b" bytes missing in capture file]\0")
}

pub fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks_exact(2).map(pair).collect()
}

/// Returns the output of `openssl x509` for a certificate.
pub fn openssl(der: &[u8], arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("openssl");
    command.args(["x509", "-inform", "DER", "-noout"]).args(arguments);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    child.stdin.take().unwrap().write_all(der).unwrap();
    let output = child.wait_with_output().unwrap();
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
