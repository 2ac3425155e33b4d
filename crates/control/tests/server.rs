//! The API over its socket, during a run on units of this process.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

mod support;

use std::sync::mpsc::channel;

use cluster::policies::POLICY_BYTES_MAX;
use cluster::remote::RemoteHandle;
use control::{BODY_MAX, MIGRATIONS_MAX, PAGE_MAX, WATCHERS_MAX};
use io::traffic::Payload;
use protocol::dispatcher::Granularity;
use runtime::Runner;
use runtime::elastic::UnitsConfig;
use serde_json::{Value, json};

use support::traffic::{Arriving, SEED, assembly, by_flow, conversation, play, profile};
use support::{Client, Playing, Served};

const POLICY: &str = "cluster.rvl";

fn frames(packets: u64) -> Vec<Arriving> {
    conversation(POLICY, &profile(Payload::Random, packets, 20_000.0, SEED))
}

fn config(mode: Granularity) -> UnitsConfig {
    UnitsConfig { mode, units_min: 3, units_max: 3, ..UnitsConfig::as_published() }
}

/// A run that receives these frames.
fn playing(mode: Option<Granularity>, frames: Vec<Arriving>) -> (Playing, Served) {
    let (sender, served) = channel();
    let make = move || {
        let mut runner = match mode {
            Some(mode) => Runner::on_units(assembly(POLICY), POLICY, config(mode)).unwrap(),
            None => Runner::new(assembly(POLICY), POLICY),
        };
        sender.send(Served::new(&mut runner, None)).unwrap();
        runner
    };
    let playing = Playing::start(make, frames, 64);
    (playing, served.recv().unwrap())
}

/// A run that has received its frames.
fn played(packets: u64) -> (Playing, Served, Client) {
    let frames = frames(packets);
    let count = frames.len();
    let (playing, served) = playing(Some(Granularity::Flow), frames);
    let client = served.client();
    client.wait_until("/v1/status", |status| status["packets_in"] == count);
    (playing, served, client)
}

fn finished(client: &Client, migration: &Value) -> Value {
    let path = format!("/v1/migrations/{}", migration["id"]);
    client
        .wait_until(&path, |migration| !matches!(migration["state"].as_str(), Some("running" | "reverting")))
}

#[test]
fn flows_migrate_while_packets_flow_and_nothing_is_lost() {
    let frames = frames(20_000);
    let (expected, single) = play(Runner::new(assembly(POLICY), POLICY), &frames);
    let count = frames.len();
    let (playing, served) = playing(Some(Granularity::Flow), frames);
    let client = served.client();
    let (mut moved, mut round) = (0, 0);
    // To and fro, as fast as the API answers.
    while client.get("/v1/status")["packets_in"].as_u64().unwrap() < count as u64 {
        let (from, to) = (round % 3, (round + 1) % 3);
        let migration = client.post("/v1/migrations", &json!({ "from": from, "to": to }).to_string());
        moved += finished(&client, &migration)["moved"].as_u64().unwrap();
        round += 1;
    }
    assert!(moved > 100, "{moved} of {round} rounds");
    let flows = client.get("/v1/status")["dispatcher"]["flows_migrated"].as_u64().unwrap();
    assert_eq!(flows, moved);
    let (sink, report) = playing.end();
    assert_eq!((report.packets_out, &report.drops), (single.packets_out, &single.drops));
    assert!(by_flow(&sink) == by_flow(&expected));
}

#[test]
fn lists_come_in_pages_and_filters_select() {
    let (playing, _served, client) = played(2_000);
    let all = client.list("/v1/flows", PAGE_MAX as usize);
    assert!(all.len() > 20, "{}", all.len());
    for limit in [1, 7, all.len()] {
        assert_eq!(client.list("/v1/flows", limit).len(), all.len());
    }
    let flow = &all[3];
    let shown = client.get(&format!("/v1/flows/{}", flow["id"].as_str().unwrap()));
    assert_eq!((&shown["ends"], &shown["packets"]), (&flow["ends"], &flow["packets"]));
    let unit = flow["unit"].as_u64().unwrap();
    let of_unit = client.list(&format!("/v1/flows?unit={unit}"), 10);
    assert_eq!(of_unit.len(), all.iter().filter(|flow| flow["unit"] == unit).count());
    let port = flow["ends"][0].as_str().unwrap().rsplit_once(':').unwrap().1;
    let by_port = client.list(&format!("/v1/flows?filter=port%20{port}"), 10);
    let has_port =
        |flow: &Value| (0..2).any(|end| flow["ends"][end].as_str().unwrap().ends_with(&format!(":{port}")));
    assert_eq!(by_port.len(), all.iter().filter(|&flow| has_port(flow)).count());
    assert!(!by_port.is_empty() && by_port.len() < all.len());
    let units = client.list("/v1/units", 2);
    assert_eq!(units.len(), 3);
    let flows: u64 = units.iter().map(|unit| unit["flows"].as_u64().unwrap()).sum();
    assert_eq!(flows as usize, all.len());
    playing.end();
}

// A16
#[test]
fn flows_move_one_by_one_and_migrations_are_undone() {
    let (playing, _served, client) = played(2_000);
    let flow = client.list("/v1/flows?unit=0", 10)[0].clone();
    let path = format!("/v1/flows/{}/move", flow["id"].as_str().unwrap());
    let moved = client.post(&path, r#"{"to": 2}"#);
    assert_eq!((moved["unit"].as_u64(), moved["epoch"].as_u64()), (Some(2), Some(2)));
    let (status, problem) = client.request("POST", &path, r#"{"to": 2}"#);
    assert_eq!((status, problem["code"].as_str()), (409, Some("owned")));
    assert_ne!(client.post(&path, "{}")["unit"], 2, "the dispatcher chooses another one");

    let before = client.list("/v1/flows", 100);
    let at = |flows: &[Value], unit: u64| flows.iter().filter(|flow| flow["unit"] == unit).count() as u64;
    let migration = client.post("/v1/migrations", r#"{"from": 0}"#);
    let done = finished(&client, &migration);
    assert_eq!((done["state"].as_str(), &done["moved"]), (Some("done"), &json!(at(&before, 0))));
    assert_eq!(at(&client.list("/v1/flows", 100), 0), 0, "it is evacuated");
    // One of them moves on, and is not moved back.
    let (_, problem) = client.request("POST", "/v1/migrations/99/undo", "");
    assert_eq!(problem["code"], "unknown_migration");
    let first = before.iter().find(|flow| flow["unit"] == 0).unwrap()["id"].as_str().unwrap();
    let now = client.get(&format!("/v1/flows/{first}"))["unit"].as_u64().unwrap();
    client.post(&format!("/v1/flows/{first}/move"), &json!({ "to": 3 - now }).to_string());
    client.post(&format!("/v1/migrations/{}/undo", done["id"]), "");
    let reverted = finished(&client, &done);
    assert_eq!(reverted["state"], "reverted");
    assert_eq!(reverted["reverted"].as_u64().unwrap() + 1, at(&before, 0));
    let (status, problem) = client.request("POST", &format!("/v1/migrations/{}/undo", done["id"]), "");
    assert_eq!((status, problem["code"].as_str()), (409, Some("reverted")));

    let some = json!({ "filter": "proto tcp || proto udp", "count": 5, "to": 1 }).to_string();
    let some = finished(&client, &client.post("/v1/migrations", &some));
    assert_eq!((&some["wanted"], &some["moved"], &some["refused"]), (&json!(5), &json!(5), &json!(0)));
    let named = json!({ "flows": [first, "4000000000.0"], "to": 0 }).to_string();
    let named = finished(&client, &client.post("/v1/migrations", &named));
    assert_eq!((&named["moved"], &named["failed"]), (&json!(1), &json!(1)), "{named}");
    assert_eq!(client.list("/v1/migrations", 2).len(), 3);
    for _ in 0..MIGRATIONS_MAX {
        let none = client.post("/v1/migrations", r#"{"count": 0}"#);
        assert_eq!(finished(&client, &none)["moved"], 0);
    }
    assert_eq!(client.list("/v1/migrations", 10).len(), MIGRATIONS_MAX, "old ones give way");
    playing.end();
}

#[test]
fn units_drain_resume_and_are_watched() {
    let (playing, _served, client) = played(2_000);
    let mut watch = client.watch("kinds=unit&period_ms=50");
    let mut next = |event: &str| {
        let is_event = |line: &String| *line == format!("event: {event}");
        assert!(watch.by_ref().take(50).any(|line| is_event(&line)), "there is no such event");
        watch.next().unwrap().strip_prefix("data: ").map(str::to_owned).unwrap()
    };
    let first: Vec<_> = (0..3).map(|_| serde_json::from_str::<Value>(&next("unit")).unwrap()).collect();
    assert!(first.iter().all(|unit| unit["status"] == "active"), "{first:?}");
    // One without flows would stop at once.
    let busiest = first.iter().max_by_key(|unit| unit["flows"].as_u64()).unwrap()["unit"].as_u64().unwrap();
    let post = |unit: u64, action: &str| client.request("POST", &format!("/v1/units/{unit}/{action}"), "");
    let (status, problem) = post(busiest, "resume");
    assert_eq!((status, problem["code"].as_str()), (409, Some("unit_not_draining")));
    assert_eq!(post(busiest, "drain").1["status"], "draining");
    // Time passes with packets only in this run: it drains until it is resumed.
    assert!(next("unit").contains("draining"));
    assert_eq!(post(busiest, "resume").1["status"], "active");
    assert!(next("unit").contains("active"));
    let [other, last] = [1, 2].map(|more| (busiest + more) % 3);
    assert_eq!(post(busiest, "drain").0, 202);
    assert_eq!(post(other, "drain").0, 202);
    let (status, problem) = post(last, "drain");
    assert_eq!((status, problem["code"].as_str()), (409, Some("last_unit")));
    playing.end();
}

#[test]
fn bad_requests_get_problems() {
    let (playing, served, client) = played(200);
    let long = format!(r#"{{"filter": "{}"}}"#, "a".repeat(BODY_MAX));
    for (method, path, body, status, code) in [
        ("GET", "/", "", 404, "unknown_path"),
        ("GET", "/v2/status", "", 404, "unknown_path"),
        ("POST", "/v1/status", "", 405, "method"),
        ("DELETE", "/v1/flows/0.0", "", 405, "method"),
        ("GET", "/v1/flows/4000000000.0", "", 404, "unknown_flow"),
        ("GET", "/v1/flows/0.7", "", 404, "unknown_flow"),
        ("GET", "/v1/flows/nonsense", "", 404, "unknown_flow"),
        ("POST", "/v1/flows/4000000000.0/move", "{}", 404, "unknown_flow"),
        ("POST", "/v1/flows/0.0/move", r#"{"to": 9}"#, 409, "unit_not_active"),
        ("POST", "/v1/flows/0.0/move", r#"{"to": "unit-1"}"#, 422, "invalid"),
        ("POST", "/v1/flows/0.0/move", r#"{"to": 65536}"#, 422, "body"),
        ("POST", "/v1/flows/0.0/move", r#"{"too": 1}"#, 422, "body"),
        ("POST", "/v1/flows/0.0/move", "{", 400, "body"),
        ("GET", "/v1/flows?limit=0", "", 422, "invalid"),
        ("GET", "/v1/flows?limit=1001", "", 422, "invalid"),
        ("GET", "/v1/flows?limit=many", "", 400, "query"),
        ("GET", "/v1/flows?after=x", "", 422, "invalid"),
        ("GET", "/v1/flows?filter=dst%20prt%2080", "", 422, "invalid"),
        ("GET", "/v1/flows?unit=unit-1", "", 422, "invalid"),
        ("GET", "/v1/flows?colour=red", "", 400, "query"),
        ("GET", "/v1/units/9", "", 404, "unknown_unit"),
        ("GET", "/v1/units/x", "", 400, "path"),
        ("POST", "/v1/units/9/drain", "", 404, "unknown_unit"),
        ("GET", "/v1/nodes/unit-1", "", 404, "unknown_node"),
        ("POST", "/v1/nodes/unit-1/drain", "", 404, "unknown_node"),
        ("POST", "/v1/nodes", r#"{"name": "a", "address": "b:1"}"#, 409, "no_cluster"),
        ("POST", "/v1/nodes", r#"{"name": "a", "address": "b"}"#, 422, "invalid"),
        ("POST", "/v1/nodes", r#"{"name": "a b", "address": "b:1"}"#, 422, "invalid"),
        ("POST", "/v1/nodes", r#"{"name": "../a", "address": "b:1"}"#, 422, "invalid"),
        ("POST", "/v1/nodes", r#"{"name": "a", "address": "b:0"}"#, 422, "invalid"),
        ("PUT", "/v1/policy", r#"{"name": "a", "text": "b"}"#, 409, "no_cluster"),
        ("PUT", "/v1/policy", r#"{"name": "a"}"#, 422, "body"),
        ("PUT", "/v1/policy?dry=true", r#"{"name": "a", "text": "b"}"#, 400, "query"),
        ("POST", "/v1/migrations", "{}", 422, "invalid"),
        ("POST", "/v1/migrations", "", 400, "body"),
        ("POST", "/v1/migrations", r#"{"from": 1, "to": 1}"#, 422, "invalid"),
        ("POST", "/v1/migrations", r#"{"flows": ["x"]}"#, 422, "invalid"),
        ("POST", "/v1/migrations", &long, 413, "body_too_long"),
        ("GET", "/v1/migrations/7", "", 404, "unknown_migration"),
        ("POST", "/v1/migrations/7/cancel", "", 404, "unknown_migration"),
        ("GET", "/v1/watch?kinds=flow", "", 422, "invalid"),
        ("GET", "/v1/watch?period_ms=1", "", 422, "invalid"),
    ] {
        let (found, problem) = client.request(method, path, body);
        assert_eq!((found, problem["code"].as_str()), (status, Some(code)), "{method} {path}: {problem}");
    }
    let plain = "POST /v1/migrations HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    assert_eq!(client.send(plain.as_bytes()).0, 415, "the media type is missing");
    assert_eq!(client.send(b"nonsense\r\n\r\n").0, 400);
    for hosts in ["", "Host: a\r\nHost: a\r\n"] {
        let request = format!("GET /v1/status HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n");
        assert_eq!(client.send(request.as_bytes()).0, 400, "{hosts}");
    }
    let document = client.get("/v1/openapi.json");
    assert!(document["paths"]["/v1/flows/{id}/move"].is_object());
    let watches: Vec<_> = (0..WATCHERS_MAX).map(|_| client.watch("kinds=migration")).collect();
    client.wait_until("/v1/status", |_| client.request("GET", "/v1/watch", "").0 == 503);
    drop(watches);
    playing.end();
    let (status, problem) = client.request("GET", "/v1/status", "");
    assert_eq!((status, problem["code"].as_str()), (503, Some("ended")), "the run has ended");
    let path = served.path();
    drop(served);
    assert!(!path.exists(), "the socket is removed");
}

/// Numbers beyond the document's ranges are refused, wherever a request may have one.
#[test]
fn integers_beyond_their_ranges_are_refused() {
    let (playing, _served, client) = played(200);
    let document = client.get("/v1/openapi.json");
    let beyond = |schema: &Value| {
        let max = schema["maximum"].as_u64()?;
        let is_integer = schema["type"] == "integer" || schema["type"][0] == "integer";
        is_integer.then(|| ["-1".to_owned(), "0.5".to_owned(), (u128::from(max) + 1).to_string()])
    };
    let mut refused = 0;
    let mut refuse = |method: &str, path: &str, body: &str| {
        let (status, problem) = client.request(&method.to_uppercase(), path, body);
        assert!([400, 422].contains(&status), "{method} {path} {body}: {problem}");
        refused += 1;
    };
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let name = parameter["name"].as_str().unwrap();
                for value in beyond(&parameter["schema"]).into_iter().flatten() {
                    match parameter["in"].as_str() {
                        Some("path") => refuse(method, &path.replace(&format!("{{{name}}}"), &value), ""),
                        _ => refuse(method, &format!("{path}?{name}={value}"), ""),
                    }
                }
            }
            let body = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
            let schema = body.as_str().and_then(|path| document.pointer(path.trim_start_matches('#')));
            for (field, schema) in
                schema.and_then(|schema| schema["properties"].as_object()).into_iter().flatten()
            {
                for value in beyond(schema).into_iter().flatten() {
                    refuse(method, path, &format!("{{\"{field}\": {value}}}"));
                }
            }
        }
    }
    assert!(refused >= 30, "{refused}");
    playing.end();
}

#[test]
fn policies_that_cannot_be_taken_over_are_refused() {
    let mut runner = Runner::new(assembly(POLICY), POLICY);
    let (nodes, _control) = RemoteHandle::new();
    let served = Served::new(&mut runner, Some(nodes));
    let apply = |text: &str| {
        let body = json!({ "name": "site.rvl", "text": text, "files": [{ "name": "rules", "text": "" }] });
        served.client().request("PUT", "/v1/policy", &body.to_string())
    };
    let (status, problem) = apply("Port<0>");
    assert_eq!((status, &problem["field"]), (422, &json!("text")));
    assert_eq!(problem["detail"], "site.rvl:1:1: error: Port<0>");
    let (status, problem) = apply(&"\n".repeat(POLICY_BYTES_MAX));
    assert_eq!((status, &problem["code"]), (422, &json!("invalid")), "with its name");
    let (status, problem) = apply(&"\u{1}".repeat(POLICY_BYTES_MAX));
    assert_eq!((status, &problem["code"]), (413, &json!("body_too_long")));
}

#[test]
fn a_run_without_units_has_a_status_and_no_flows() {
    let (playing, served) = playing(None, frames(100));
    let client = served.client();
    let status = client.get("/v1/status");
    assert_eq!((status["policy"].as_str(), status.get("dispatcher")), (Some(POLICY), None));
    for path in ["/v1/flows", "/v1/units", "/v1/flows/0.0"] {
        let (status, problem) = client.request("GET", path, "");
        assert_eq!((status, problem["code"].as_str()), (409, Some("no_units")), "{path}");
    }
    assert_eq!(client.request("POST", "/v1/migrations", r#"{"from": 0}"#).0, 409);
    playing.end();
}

#[test]
fn modes_that_choose_units_by_themselves_refuse_moves() {
    let frames = frames(200);
    let (playing, served) = playing(Some(Granularity::Packet), frames);
    let client = served.client();
    client.wait_until("/v1/flows?limit=1", |page| page["items"][0].is_object());
    let flow = client.list("/v1/flows", 10)[0]["id"].as_str().unwrap().to_owned();
    let (status, problem) = client.request("POST", &format!("/v1/flows/{flow}/move"), "{}");
    assert_eq!((status, problem["code"].as_str()), (409, Some("mode")));
    playing.end();
}
