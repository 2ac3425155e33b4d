//! An operator who uses a control API while packets flow.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::repeated::Repeated;

/// An operator who moves flows to and fro by the control API, until it is stopped.
pub struct Operator(Repeated<u64>);

/// Period of the operator's moves.
const MOVES: Duration = Duration::from_millis(10);

impl Operator {
    pub fn start(socket: PathBuf) -> Operator {
        Operator(Repeated::start(0, MOVES, move |moved| {
            for flow in ask(&socket, "GET", "/v1/flows?limit=1000", None)["items"].as_array().unwrap() {
                let path = format!("/v1/flows/{}/move", flow["id"].as_str().unwrap());
                // Some have ended, or have nowhere to go while a unit is restarted.
                *moved += u64::from(ask(&socket, "POST", &path, Some(json!({})))["id"].is_string());
            }
        }))
    }

    /// Stops it. Returns the number of flows that it has moved.
    pub fn end(self) -> u64 {
        self.0.end()
    }
}

/// Sends a request to a control API.
fn ask(socket: &Path, method: &str, path: &str, body: Option<Value>) -> Value {
    let body = body.map_or_else(String::new, |body| body.to_string());
    let mut server = UnixStream::connect(socket).unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    server.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    server.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}
