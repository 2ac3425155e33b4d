//! The HTTP server of metrics and the report. Each of a few threads serves one client at a time,
//! and deadlines bound how long.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use runtime::Report;

use super::metrics;

/// Maximum length of a request, in bytes.
const REQUEST_MAX: usize = 8 * 1024;

/// Clients that are served at once; others wait in the kernel's queue.
const CLIENTS_MAX: usize = 8;

/// Timeout of a request, from its first byte to its last.
const ASKING: Duration = Duration::from_secs(2);

/// Timeout of a response.
const ANSWERING: Duration = Duration::from_secs(5);

/// Time to read on after a refused request, so that the client can read the reason.
const DRAINING: Duration = Duration::from_millis(100);

/// The latest report, shared between the run and the server's threads.
#[derive(Clone)]
pub struct LatestReport(Arc<Mutex<Arc<Report>>>);

impl LatestReport {
    /// Creates a board with this report.
    pub fn new(report: Report) -> LatestReport {
        LatestReport(Arc::new(Mutex::new(Arc::new(report))))
    }

    /// Replaces the report.
    pub fn put(&self, report: Report) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(report);
    }

    fn get(&self) -> Arc<Report> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Listens on an address, before privileges are dropped.
pub fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address)
}

/// Serves the latest report until the process ends.
pub fn serve(listener: TcpListener, board: LatestReport) -> Result<()> {
    let address = listener.local_addr()?;
    for _ in 0..CLIENTS_MAX {
        let (listener, board) = (listener.try_clone()?, board.clone());
        let work = move || {
            loop {
                match listener.accept() {
                    // A client that disconnects or is too slow gets no answer.
                    Ok((client, _)) => drop(answer(client, address, &board)),
                    // The next attempt would fail as well, for example without descriptors.
                    Err(_) => std::thread::sleep(DRAINING),
                }
            }
        };
        std::thread::Builder::new().name("metrics".to_owned()).spawn(work)?;
    }
    Ok(())
}

fn answer(client: TcpStream, address: SocketAddr, board: &LatestReport) -> Result<()> {
    let mut client = TimedClient { client, deadline: Instant::now() + ASKING };
    let (response, is_head) = match read_request(&mut client)? {
        RequestResult::For(request) if !is_ours(request.host.as_deref(), address) => {
            let why = "the Host header names another machine; use an address or localhost\n";
            (Response::plain("421 Misdirected Request", why), request.is_head)
        }
        RequestResult::For(request) => (respond(&request, board), request.is_head),
        RequestResult::OtherMethod => {
            (Response::plain("405 Method Not Allowed", "expected GET or HEAD\n"), false)
        }
        RequestResult::TooLong => {
            (Response::plain("431 Request Header Fields Too Large", "the request is too long\n"), false)
        }
        RequestResult::Unclear => (Response::plain("400 Bad Request", "expected GET or HEAD\n"), false),
    };
    let Response { status, kind, body } = response;
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    );
    client.deadline = Instant::now() + ANSWERING;
    client.write_all(head.as_bytes())?;
    if !is_head {
        client.write_all(body.as_bytes())?;
    }
    if !status.starts_with("200") {
        client.drain()?;
    }
    Ok(())
}

/// A client with a deadline, which a byte now and then does not extend.
struct TimedClient {
    client: TcpStream,
    deadline: Instant,
}

impl TimedClient {
    fn left(&self) -> Result<Option<Duration>> {
        match self.deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(Error::from(ErrorKind::TimedOut)),
            left => Ok(Some(left)),
        }
    }

    /// Reads on for a moment: closing with unread bytes would reset the connection, and the client
    /// would lose the answer.
    fn drain(&mut self) -> Result<()> {
        self.client.shutdown(std::net::Shutdown::Write)?;
        self.deadline = Instant::now() + DRAINING;
        let mut part = [0; 4096];
        while self.read(&mut part)? > 0 {}
        Ok(())
    }
}

impl Read for TimedClient {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        self.client.set_read_timeout(self.left()?)?;
        self.client.read(bytes)
    }
}

impl Write for TimedClient {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.client.set_write_timeout(self.left()?)?;
        self.client.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.client.flush()
    }
}

struct Request {
    is_head: bool,
    path: String,
    host: Option<String>,
    /// It accepts the OpenMetrics format.
    wants_open: bool,
}

/// The result of reading a request.
enum RequestResult {
    For(Request),
    OtherMethod,
    TooLong,
    Unclear,
}

fn read_request(client: &mut impl Read) -> Result<RequestResult> {
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    while bytes.len() < REQUEST_MAX {
        let count = client.read(&mut part)?;
        bytes.extend_from_slice(&part[..count]);
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&bytes) {
            Ok(httparse::Status::Complete(_)) => {
                let (Some(method), Some(path)) = (request.method, request.path) else {
                    return Ok(RequestResult::Unclear);
                };
                if !matches!(method, "GET" | "HEAD") {
                    return Ok(RequestResult::OtherMethod);
                }
                let header = |name: &str| {
                    let header = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
                    header.map(|header| String::from_utf8_lossy(header.value).trim().to_owned())
                };
                let host = header("host");
                let wants_open =
                    header("accept").is_some_and(|kinds| kinds.contains("application/openmetrics-text"));
                let path = path.split('?').next().unwrap_or_default().to_owned();
                return Ok(RequestResult::For(Request { is_head: method == "HEAD", path, host, wants_open }));
            }
            Ok(httparse::Status::Partial) if count > 0 => {}
            Err(httparse::Error::TooManyHeaders) => return Ok(RequestResult::TooLong),
            _ => return Ok(RequestResult::Unclear),
        }
    }
    Ok(RequestResult::TooLong)
}

/// Returns whether a Host header means this server. A web page with a name that resolves to this
/// machine (DNS rebinding) makes browsers send that name, and is refused. Where the server listens
/// beyond this machine, any name is accepted.
fn is_ours(host: Option<&str>, address: SocketAddr) -> bool {
    let Some(host) = host else { return true };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !name.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    // Only a name with a dot can be pointed here by anybody.
    !bare.contains('.') || bare.parse::<IpAddr>().is_ok() || !address.ip().is_loopback()
}

struct Response {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl Response {
    fn plain(status: &'static str, body: &str) -> Response {
        Response { status, kind: "text/plain; charset=utf-8", body: body.to_owned() }
    }
}

fn respond(request: &Request, board: &LatestReport) -> Response {
    let made = match &*request.path {
        "/metrics" if request.wants_open => metrics::open_text(&board.get())
            .ok()
            .map(|text| ("application/openmetrics-text; version=1.0.0; charset=utf-8", text)),
        "/metrics" => metrics::plain_text(&board.get())
            .ok()
            .map(|text| ("text/plain; version=0.0.4; charset=utf-8", text)),
        "/report" => serde_json::to_string(&*board.get()).ok().map(|text| ("application/json", text)),
        "/" => {
            return Response::plain(
                "200 OK",
                "Rivulet\n/metrics: for Prometheus\n/report: as rivulet up --report\n",
            );
        }
        _ => return Response::plain("404 Not Found", "not found; see /metrics and /report\n"),
    };
    match made {
        Some((kind, body)) => Response { status: "200 OK", kind, body },
        None => Response::plain("500 Internal Server Error", "the report cannot be written\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> SocketAddr {
        let listener = listen(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        serve(listener, LatestReport::new(Report::default())).unwrap();
        address
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn slow_clients_do_not_delay_others() {
        let address = server();
        // All threads but one have a client that sends nothing, or never ends its request.
        let slow: Vec<_> = (1..CLIENTS_MAX)
            .map(|number| {
                let mut client = TcpStream::connect(address).unwrap();
                client.write_all(&b"GET / HTTP/1.1\r\nX: "[..if number % 2 == 0 { 0 } else { 19 }]).unwrap();
                client
            })
            .collect();
        for _ in 0..20 {
            assert!(ask(address, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 OK"));
        }
        // Those are disconnected, whatever they send.
        for mut client in slow {
            client.set_nonblocking(false).unwrap();
            let mut rest = Vec::new();
            while client.write_all(b"a").is_ok() {
                client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
                match client.read_to_end(&mut rest) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    _ => break,
                }
            }
            assert!(!rest.starts_with(b"HTTP/1.1 200"));
        }
    }

    #[test]
    fn requests_get_the_status_that_http_names() {
        let address = server();
        let status = |request: &str| ask(address, request)[9..12].to_owned();
        for (request, expected) in [
            ("GET /metrics HTTP/1.1\r\n\r\n", "200"),
            ("HEAD /report HTTP/1.0\r\nHost: localhost\r\n\r\n", "200"),
            ("GET /report HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n\r\n", "421"),
            ("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello", "405"),
            ("nonsense\r\n\r\n", "400"),
        ] {
            assert_eq!(status(request), expected, "{request}");
        }
        assert!(ask(address, "DELETE / HTTP/1.1\r\n\r\n").contains("\r\nAllow: GET, HEAD\r\n"));
        assert_eq!(status(&format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(9_000))), "431");
    }

    #[test]
    fn a_host_is_an_address_or_this_machine() {
        let here: SocketAddr = ([127, 0, 0, 1], 9600).into();
        for (host, expected) in [
            ("127.0.0.1:9600", true),
            ("localhost", true),
            ("LOCALHOST:9600", true),
            ("[::1]:9600", true),
            ("192.0.2.7", true),
            ("evil.example", false),
            ("evil.example:9600", false),
            ("localhost.evil.example", false),
            ("gateway:9600", true),
            ("", true),
        ] {
            assert_eq!(is_ours(Some(host), here), expected, "{host}");
        }
        assert!(is_ours(None, here), "HTTP/1.0");
        assert!(is_ours(Some("gateway.example:9600"), ([192, 0, 2, 7], 9600).into()));
    }
}
