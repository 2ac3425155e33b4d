//! A run with its control API, and a client of it.
#![allow(dead_code)] // Not every test needs all of it.

#[path = "../../../runtime/tests/support/mod.rs"]
pub mod traffic;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cluster::policies::PolicyTexts;
use cluster::remote::{NewPolicy, RemoteHandle};
use control::{ApiListener, ClusterControl, ControlOptions, ControlServer, socket};
use runtime::{Report, Runner};
use serde_json::Value;
use tempfile::TempDir;

use traffic::{Arriving, Sink, receive};

/// Time within which everything must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// The control API of a runner.
pub struct Served {
    folder: TempDir,
    _server: ControlServer,
}

impl Served {
    pub fn new(runner: &mut Runner, nodes: Option<RemoteHandle>) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.sock");
        let options = ControlOptions {
            name: "test".to_owned(),
            version: "0.0.0".to_owned(),
            operator: runner.open_to_operators(),
            cluster: nodes.map(|nodes| ClusterControl { nodes, make_policy: Arc::new(refuse) }),
        };
        let listener = ApiListener::Unix(socket::bind(&path).unwrap(), path);
        let server = ControlServer::start(vec![listener], options).unwrap();
        Served { folder, _server: server }
    }

    pub fn client(&self) -> Client {
        Client { path: self.path() }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("test.sock")
    }
}

/// Reads no policy: the reason is its text.
fn refuse(texts: PolicyTexts) -> Result<NewPolicy, String> {
    Err(format!("{}:1:1: error: {}", texts.name, texts.text))
}

/// A client that speaks plain HTTP.
#[derive(Clone)]
pub struct Client {
    path: PathBuf,
}

impl Client {
    /// Sends a request as it is; returns the status and the whole answer.
    pub fn send(&self, request: &[u8]) -> (u16, String) {
        let mut server = UnixStream::connect(&self.path).unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        // The server may refuse it before it has read all.
        let _ = server.write_all(request);
        let mut answer = Vec::new();
        let _ = server.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        let status = answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, answer)
    }

    pub fn request(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let (status, answer) = self.send(request.as_bytes());
        let (head, body) =
            answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {path}: {answer:?}"));
        let is_problem = head.to_lowercase().contains("content-type: application/problem+json");
        assert_eq!(is_problem, status >= 400, "{method} {path}: {answer}");
        let body: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
        if is_problem {
            assert_eq!(body["status"], status, "{body}");
            assert!(!body["detail"].as_str().unwrap().is_empty(), "{body}");
        }
        (status, body)
    }

    pub fn get(&self, path: &str) -> Value {
        let (status, body) = self.request("GET", path, "");
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub fn post(&self, path: &str, body: &str) -> Value {
        let (status, body) = self.request("POST", path, body);
        assert!((200..300).contains(&status), "{path}: {body}");
        body
    }

    /// Returns all items of a list, in pages of this size.
    pub fn list(&self, path: &str, limit: usize) -> Vec<Value> {
        let (mut items, mut after) = (Vec::new(), String::new());
        let sign = if path.contains('?') { '&' } else { '?' };
        loop {
            let page = self.get(&format!("{path}{sign}limit={limit}{after}"));
            let found = page["items"].as_array().unwrap();
            assert!(found.len() <= limit);
            items.extend(found.iter().cloned());
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return items,
            }
        }
    }

    /// Begins a watch; returns its lines.
    pub fn watch(&self, query: &str) -> impl Iterator<Item = String> + use<> {
        let mut server = UnixStream::connect(&self.path).unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("GET /v1/watch?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        server.write_all(request.as_bytes()).unwrap();
        BufReader::new(server).lines().map(Result::unwrap)
    }

    pub fn wait_until(&self, path: &str, is_expected: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let value = self.get(path);
            if is_expected(&value) {
                return value;
            }
            assert!(began.elapsed() < PATIENCE, "{path}: {value}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A run on a thread of its own: it receives frames, a few at a time, until it is stopped or has
/// received all.
pub struct Playing {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(Sink, Report)>,
}

impl Playing {
    /// Receives the frames, with a pause after each `burst`; and then waits.
    pub fn start(
        make: impl FnOnce() -> Runner + Send + 'static,
        frames: Vec<Arriving>,
        burst: usize,
    ) -> Playing {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut runner, mut sink) = (make(), Sink::default());
            for frames in frames.chunks(burst) {
                frames.iter().for_each(|frame| receive(&mut runner, frame, &mut sink));
                runner.flush(&mut sink).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
            while !stopped.load(Ordering::Relaxed) {
                runner.flush(&mut sink).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
            let report = runner.finish(&mut sink).unwrap();
            (sink, report)
        });
        Playing { stop, thread }
    }

    /// Waits for the end of the frames, and ends the run.
    pub fn end(self) -> (Sink, Report) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }

    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }
}
