//! Asks a running Rivulet for its report.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// Bytes of the longest answer.
const ANSWER_MAX: u64 = 64 << 20;

/// The report of the Rivulet that answers at one of these addresses, which `host` stands for.
pub fn report(addresses: &[SocketAddr], host: &str) -> anyhow::Result<Value> {
    let mut server = connect(addresses)?;
    server.set_read_timeout(Some(PATIENCE))?;
    server.set_write_timeout(Some(PATIENCE))?;
    write!(server, "GET /report HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut bytes = Vec::new();
    server.take(ANSWER_MAX).read_to_end(&mut bytes)?;
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(at) = response.parse(&bytes).context("the answer is no HTTP")? else {
        bail!("the answer breaks off");
    };
    if response.code != Some(200) {
        bail!("it has no report: {}", response.reason.unwrap_or("no reason given"));
    }
    serde_json::from_slice(&bytes[at..]).context("the answer is no report")
}

/// The first of these that answers.
fn connect(addresses: &[SocketAddr]) -> std::io::Result<TcpStream> {
    let mut last = Err(std::io::ErrorKind::AddrNotAvailable.into());
    for address in addresses {
        last = TcpStream::connect_timeout(address, PATIENCE);
        if last.is_ok() {
            break;
        }
    }
    last
}
