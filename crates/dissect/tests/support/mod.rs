//! The collection of captures, and what tshark and openssl say of them.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test uses a part, and may fail by panicking"
)]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// A capture's path, and its name in the collection.
pub struct Capture {
    pub name: String,
    pub path: PathBuf,
}

/// A TCP connection as tshark follows it: which of two nodes sent what, in the order of arrival.
pub struct Connection {
    pub stream: u32,
    pub ports: [u16; 2],
    pub pieces: Vec<(usize, Vec<u8>)>,
}

/// The connections of captures that speak any of the protocols, as tshark says; it is asked once.
pub fn connections() -> Option<&'static [(Capture, Vec<Connection>)]> {
    static CONNECTIONS: OnceLock<Option<Vec<(Capture, Vec<Connection>)>>> = OnceLock::new();
    let followed = CONNECTIONS.get_or_init(|| {
        let followed = captures()?.into_iter().map(|capture| {
            let filter = "tcp && (tls || ssh || smtp || ftp || smb || smb2 || http || http2 || dns)";
            let rows = capture.fields(filter, ["tcp.stream"]);
            let streams: BTreeSet<u32> =
                rows.iter().flat_map(|[stream]| stream).filter_map(|stream| stream.parse().ok()).collect();
            let connections = capture.follow(&streams);
            (capture, connections)
        });
        Some(followed.filter(|(_, connections)| !connections.is_empty()).collect())
    });
    followed.as_deref()
}

/// The captures, if they and tshark are there.
pub fn captures() -> Option<Vec<Capture>> {
    let shared = std::env::var_os("RIVULET_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let traces = shared.join("traces");
    let Ok(manifest) = std::fs::read_to_string(traces.join("MANIFEST.tsv")) else {
        return skip(&format!("no captures at {}", traces.display()));
    };
    if Command::new("tshark").arg("-v").output().is_err() {
        return skip("tshark is not installed");
    }
    let names = manifest.lines().skip(1).filter_map(|line| line.split('\t').next());
    // Headers only, and echoes of random bytes: nothing to dissect.
    let names = names.filter(|name| !name.contains("auckland") && !name.contains("echo_500"));
    Some(names.map(|name| Capture { name: name.to_owned(), path: traces.join(name) }).collect())
}

pub fn skip<T>(why: &str) -> Option<T> {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
    println!("SKIPPED: {why}");
    None
}

impl Capture {
    pub fn tshark<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> String {
        let output = Command::new("tshark").arg("-r").arg(&self.path).args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Fields of the packets that pass a filter: a row a packet, each field's values in a list.
    pub fn fields<const N: usize>(&self, filter: &str, fields: [&str; N]) -> Vec<[Vec<String>; N]> {
        let mut arguments = vec!["-Y", filter, "-T", "fields", "-E", "aggregator=|"];
        arguments.extend(fields.iter().flat_map(|field| ["-e", *field]));
        let text = self.tshark(&arguments);
        let rows = text.lines().map(|line| {
            let mut columns = line.split('\t');
            fields.map(|_| {
                let column = columns.next().unwrap_or_default();
                column.split('|').filter(|value| !value.is_empty()).map(str::to_owned).collect()
            })
        });
        rows.collect()
    }

    /// The connections of these numbers.
    fn follow(&self, streams: &BTreeSet<u32>) -> Vec<Connection> {
        let mut arguments = vec!["-q".to_owned()];
        arguments
            .extend(streams.iter().flat_map(|stream| ["-z".to_owned(), format!("follow,tcp,raw,{stream}")]));
        if streams.is_empty() {
            return Vec::new();
        }
        let text = self.tshark(&arguments);
        text.split("Filter: tcp.stream eq ").skip(1).map(connection).collect()
    }
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
    /// The node that is taken for the server: that with the lower port.
    pub fn server(&self) -> usize {
        usize::from(self.ports[1] < self.ports[0])
    }
}

/// Whether all of `some` are in `all`, in order.
pub fn is_within<T: PartialEq>(some: &[T], all: &[T]) -> bool {
    let mut all = all.iter();
    some.iter().all(|one| all.any(|other| other == one))
}

/// How tshark writes a gap into what it follows.
pub fn is_gap(bytes: &[u8]) -> bool {
    bytes.ends_with(b" bytes missing in capture file]\0")
}

pub fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks_exact(2).map(pair).collect()
}

/// What `openssl x509` says of a certificate.
pub fn openssl(der: &[u8], arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("openssl");
    command.args(["x509", "-inform", "DER", "-noout"]).args(arguments);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    child.stdin.take().unwrap().write_all(der).unwrap();
    let output = child.wait_with_output().unwrap();
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
