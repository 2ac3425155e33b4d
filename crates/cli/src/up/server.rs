//! What is asked of a run from outside, by HTTP: metrics and the report. A thread of its own answers one after the other.

use std::io::{Read, Result, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use node::Report;

use super::metrics;

/// Bytes of the longest request that is read.
const REQUEST_MAX: usize = 8 * 1024;

/// How long a client may take to ask, and to take the answer: others wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where the run puts what there is to tell.
#[derive(Clone)]
pub struct Board(Arc<Mutex<Arc<Report>>>);

impl Board {
    /// With this on it.
    pub fn new(report: Report) -> Board {
        Board(Arc::new(Mutex::new(Arc::new(report))))
    }

    /// What is told from now on.
    pub fn put(&self, report: Report) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(report);
    }

    fn get(&self) -> Arc<Report> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Listens at an address, before privileges are given up.
pub fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address)
}

/// Answers from what is on the board, until the process ends.
pub fn serve(listener: TcpListener, board: Board) -> Result<()> {
    let work = move || {
        for client in listener.incoming().flatten() {
            // A client that goes away, or is too slow, has itself to blame.
            let _ = answer(client, &board);
        }
    };
    std::thread::Builder::new().name("metrics".to_owned()).spawn(work).map(drop)
}

fn answer(mut client: TcpStream, board: &Board) -> Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let response = match read_request(&mut client)? {
        Some(request) => (respond(&request.path, board), request.is_head),
        None => (Response::plain("400 Bad Request", "expected GET or HEAD\n"), false),
    };
    let (Response { status, kind, body }, is_head) = response;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes())?;
    if is_head { Ok(()) } else { client.write_all(body.as_bytes()) }
}

struct Request {
    is_head: bool,
    path: String,
}

/// What is asked for; none if it cannot be understood.
fn read_request(client: &mut TcpStream) -> Result<Option<Request>> {
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    while bytes.len() < REQUEST_MAX {
        let count = client.read(&mut part)?;
        bytes.extend_from_slice(&part[..count]);
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&bytes) {
            Ok(httparse::Status::Complete(_)) => {
                let (Some(method @ ("GET" | "HEAD")), Some(path)) = (request.method, request.path) else {
                    return Ok(None);
                };
                let path = path.split('?').next().unwrap_or_default().to_owned();
                return Ok(Some(Request { is_head: method == "HEAD", path }));
            }
            Ok(httparse::Status::Partial) if count > 0 => {}
            _ => return Ok(None),
        }
    }
    Ok(None)
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

fn respond(path: &str, board: &Board) -> Response {
    let made = match path {
        "/metrics" => metrics::text(&board.get())
            .ok()
            .map(|text| ("application/openmetrics-text; version=1.0.0; charset=utf-8", text)),
        "/report" => serde_json::to_string(&*board.get()).ok().map(|text| ("application/json", text)),
        "/" => {
            return Response::plain(
                "200 OK",
                "Rivulet\n/metrics: for Prometheus\n/report: as rivulet up --report\n",
            );
        }
        _ => return Response::plain("404 Not Found", "there are /metrics and /report\n"),
    };
    match made {
        Some((kind, body)) => Response { status: "200 OK", kind, body },
        None => Response::plain("500 Internal Server Error", "the report cannot be written\n"),
    }
}
