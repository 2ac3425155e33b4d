//! An operator who uses a control API while packets flow.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::asking::SUBSCRIBERS;
use crate::repeated::Repeated;

/// An operator who moves flows to and fro by the control API, until it is stopped.
pub struct Operator(Repeated<Moving>);

/// Flows that an operator moves, and the moves so far.
pub struct Moving {
    flows: Vec<String>,
    moved: u64,
}

/// Period of the operator's moves.
const MOVES: Duration = Duration::from_millis(10);

impl Operator {
    /// Starts one who moves all flows.
    pub fn start(socket: PathBuf) -> Operator {
        let start = Moving { flows: Vec::new(), moved: 0 };
        Operator(Repeated::start(start, MOVES, move |moving| {
            moving.flows = list(&socket).iter().map(id).collect();
            moving.move_all(&socket);
        }))
    }

    /// Starts one who moves these flows. It chooses others when one of them has ended.
    pub fn who_moves(flows: Moving, socket: PathBuf) -> Operator {
        Operator(Repeated::start(flows, MOVES, move |moving| {
            if !moving.move_all(&socket) {
                moving.flows = Moving::of_subscribers(&socket).flows;
            }
        }))
    }

    /// Stops it. Returns the number of flows that it has moved.
    pub fn end(self) -> u64 {
        self.0.end().moved
    }
}

impl Moving {
    /// Chooses one flow of each subscriber of a NAT, as the others move with it, and all flows over
    /// IPv6.
    pub fn of_subscribers(socket: &Path) -> Moving {
        let mut subscribers = HashSet::new();
        let mut flows = list(socket);
        flows.retain(|flow| subscriber(flow).is_none_or(|subscriber| subscribers.insert(subscriber)));
        Moving { flows: flows.iter().map(id).collect(), moved: 0 }
    }

    /// Moves each flow. Returns false if one has ended.
    fn move_all(&mut self, socket: &Path) -> bool {
        let mut are_there = true;
        for flow in &self.flows {
            let answer = ask(socket, "POST", &format!("/v1/flows/{flow}/move"), Some(json!({})));
            // Some have nowhere to go while a unit is restarted.
            self.moved += u64::from(answer["id"].is_string());
            are_there &= answer["code"] != "unknown_flow";
        }
        are_there
    }
}

fn list(socket: &Path) -> Vec<Value> {
    let flows = ask(socket, "GET", "/v1/flows?limit=1000", None)["items"].take();
    serde_json::from_value(flows).unwrap()
}

fn id(flow: &Value) -> String {
    flow["id"].as_str().unwrap().to_owned()
}

/// The number of owners that each flow has had so far, by its identity.
pub type Owners = HashMap<String, u64>;

/// Returns the number of owners that each live flow has had so far.
pub fn owners(socket: &Path) -> Owners {
    list(socket).iter().map(|flow| (id(flow), flow["epoch"].as_u64().unwrap())).collect()
}

/// Returns the subscriber of a flow, if it has one.
fn subscriber(flow: &Value) -> Option<u8> {
    let ends = flow["ends"].as_array().unwrap().iter();
    let mut hosts =
        ends.filter_map(|end| end.as_str()?.strip_prefix("10.7.0.")?.split_once(':')?.0.parse().ok());
    hosts.find(|host| SUBSCRIBERS.contains(host))
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
