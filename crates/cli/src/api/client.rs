//! A client of the control API: one request per connection.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use control::{ANSWER_TIMEOUT, Page, Problem};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::remote::RemoteServer;

/// Timeout of a change, or of an answer that requires nodes or many flows.
const PATIENCE: Duration = Duration::from_secs(15);
/// Timeout of all other answers: a longer wait of the server is an error.
const LOOK_PATIENCE: Duration = Duration::from_secs(ANSWER_TIMEOUT.as_secs() + 1);
/// Maximum length of an answer, in bytes.
const ANSWER_MAX: u64 = 16 << 20;
/// Items of a page.
const PAGE: usize = 1000;

/// Names and values of a query.
pub type Query<'a> = Vec<(&'a str, String)>;

/// A client of a dispatcher.
pub struct Client(Server);

/// Address at which the dispatcher listens.
enum Server {
    Socket(PathBuf),
    Remote(Box<RemoteServer>),
}

impl Client {
    /// Creates a client of the dispatcher that listens on this socket; each request connects.
    pub fn new(socket: PathBuf) -> Client {
        Client(Server::Socket(socket))
    }

    /// Creates a client of a dispatcher over TCP; each request connects.
    pub fn remote(server: RemoteServer) -> Client {
        Client(Server::Remote(Box::new(server)))
    }

    fn place(&self) -> String {
        match &self.0 {
            Server::Socket(path) => path.display().to_string(),
            Server::Remote(server) => format!("https://{}", server.address),
        }
    }

    /// Requests a resource.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.request("GET", path, "")
    }

    /// Sends a command.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> anyhow::Result<T> {
        self.request("POST", path, &serde_json::to_string(body)?)
    }

    /// Replaces a resource.
    pub fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> anyhow::Result<T> {
        self.request("PUT", path, &serde_json::to_string(body)?)
    }

    /// Sends a command without a body.
    pub fn act<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.request("POST", path, "")
    }

    /// Requests the first `count` items of a list, page by page.
    pub fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query<'_>,
        count: usize,
    ) -> anyhow::Result<Vec<T>> {
        let (mut items, mut after) = (Vec::new(), None::<String>);
        while items.len() < count {
            let limit = PAGE.min(count - items.len()).to_string();
            let own = [("limit", Some(limit)), ("after", after)];
            let own = own.into_iter().filter_map(|(name, value)| Some((name, value?)));
            let parts =
                query.iter().cloned().chain(own).map(|(name, value)| format!("{name}={}", encode(&value)));
            let page: Page<T> = self.get(&format!("{path}?{}", parts.collect::<Vec<_>>().join("&")))?;
            items.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(items)
    }

    fn request<T: DeserializeOwned>(&self, method: &str, path: &str, body: &str) -> anyhow::Result<T> {
        let bytes = self
            .exchange(method, path, body)
            .map_err(|error| anyhow!("cannot reach the control API at {}: {error}", self.place()))?;
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(at) = response.parse(&bytes).context("the answer is not HTTP")? else {
            bail!("the answer is incomplete");
        };
        let body = &bytes[at..];
        if response.code.is_none_or(|code| code >= 300) {
            let problem = serde_json::from_slice(body).map(|problem: Problem| problem.detail);
            bail!(
                "{}",
                problem.unwrap_or_else(|_| response.reason.unwrap_or("the request failed").to_owned())
            );
        }
        serde_json::from_slice(body).context("the answer is not of this version of the API")
    }

    fn exchange(&self, method: &str, path: &str, body: &str) -> Result<Vec<u8>> {
        let is_look = method == "GET" && !path.starts_with("/v1/flows?");
        let patience = if is_look { LOOK_PATIENCE } else { PATIENCE };
        let (host, token) = match &self.0 {
            Server::Socket(_) => ("localhost".to_owned(), None),
            Server::Remote(server) => (server.address.to_string(), server.token.as_deref()),
        };
        let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             {token}Content-Length: {}\r\n\r\n",
            body.len()
        );
        match &self.0 {
            Server::Socket(path) => connect(path, patience).and_then(|server| ask(server, &head, body)),
            Server::Remote(server) => server.connect(patience).and_then(|server| ask(server, &head, body)),
        }
        .map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let seconds = patience.as_secs();
                Error::other(format!("no answer within {seconds} s; the process is stopped or busy"))
            }
            _ => error,
        })
    }
}

/// Connects to a socket, and bounds all waiting: the queue of a stopped process may be full.
fn connect(path: &Path, patience: Duration) -> Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(patience))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Sends a request, and returns the answer.
fn ask(mut server: impl Read + Write, head: &str, body: &str) -> Result<Vec<u8>> {
    server.write_all(head.as_bytes())?;
    server.write_all(body.as_bytes())?;
    let mut bytes = Vec::new();
    server.take(ANSWER_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Encodes a part of a path or query (RFC 3986 2.1).
pub fn encode(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match is_plain(byte) {
            true => encoded.push(byte.into()),
            false => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unreserved_letters_stay() {
        assert_eq!(encode("dst port 443 && a/b~"), "dst%20port%20443%20%26%26%20a%2Fb~");
    }

    #[test]
    fn a_full_queue_does_not_hold_a_client() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stopped.sock");
        let server =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&server, &SocketAddrUnix::new(&*path).unwrap()).unwrap();
        rustix::net::listen(&server, 0).unwrap();
        let patience = Duration::from_millis(50);
        let _first = connect(&path, patience).unwrap();
        assert_eq!(connect(&path, patience).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}
