//! Requests the report of a running Rivulet.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

/// Timeout of an answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Maximum length of an answer, in bytes.
const ANSWER_MAX: u64 = 64 << 20;

/// Requests the report from the first of these addresses that accepts; `host` is their name.
pub fn report(addresses: &[SocketAddr], host: &str) -> anyhow::Result<Value> {
    let mut server = connect(addresses)?;
    server.set_read_timeout(Some(PATIENCE))?;
    server.set_write_timeout(Some(PATIENCE))?;
    let request = format!("GET /report HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    server.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    server.take(ANSWER_MAX).read_to_end(&mut bytes)?;
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(at) = response.parse(&bytes).context("the answer is not HTTP")? else {
        bail!("the answer is incomplete");
    };
    if response.code != Some(200) {
        bail!("the server has no report: {}", response.reason.unwrap_or("no reason given"));
    }
    serde_json::from_slice(&bytes[at..]).context("the answer is not a report")
}

/// Connects to the first of these addresses that accepts.
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
