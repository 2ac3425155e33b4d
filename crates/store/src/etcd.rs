//! A store in etcd 3.4 or later, by its JSON gateway.
//!
//! The gateway needs an HTTP client only; the gRPC clients bring an asynchronous runtime and a
//! compiler of protocol buffers.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::{
    CALL_MAX, ClusterStore, Expected, LIST_MAX, LeaseId, Listing, StoreChange, StoreEntry, StoreError,
    check_put,
};

/// Limit on the time to connect to an endpoint.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// Limit on the length of an answer.
const ANSWER_LEN_MAX: u64 = 1 << 30;
/// The code of gRPC for something that does not exist: here, a lease.
const NOT_FOUND: i64 = 5;

/// Files for etcd over TLS, in PEM.
#[derive(Clone, Copy, Debug)]
pub struct EtcdFiles<'a> {
    /// The authority of etcd's certificates.
    pub authority: &'a Path,
    /// The certificate to show to etcd, with those between it and its authority.
    pub certificate: &'a Path,
    /// Its key.
    pub key: &'a Path,
}

/// A store in etcd.
pub struct EtcdStore {
    endpoints: Vec<String>,
    /// The endpoint that answered last.
    preferred: AtomicUsize,
    agent: Agent,
}

/// Why an endpoint gave no result.
enum Fault {
    /// Another endpoint may answer.
    Unreachable(String),
    Error(StoreError),
    NotFound,
}

/// Reads the files of TLS.
fn tls(EtcdFiles { authority, certificate, key }: EtcdFiles<'_>) -> Result<TlsConfig, StoreError> {
    let refused =
        |file: &Path, reason: String| StoreError::Refused { place: file.display().to_string(), reason };
    let read = |file: &Path| std::fs::read(file).map_err(|error| refused(file, error.to_string()));
    let certificates = |file: &Path| {
        let read = read(file)?;
        let items = ureq::tls::parse_pem(&read);
        let found: Vec<Certificate<'static>> = items
            .filter_map(|item| match item {
                Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect();
        match found.is_empty() {
            true => Err(refused(file, "expected a certificate in PEM".to_owned())),
            false => Ok(found),
        }
    };
    let own_key = PrivateKey::from_pem(&read(key)?)
        .map_err(|_| refused(key, "expected a private key in PEM".to_owned()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&certificates(authority)?))
        .client_cert(Some(ClientCert::new_with_certs(&certificates(certificate)?, own_key)))
        .unversioned_rustls_crypto_provider(provider)
        .build())
}

impl EtcdStore {
    /// Uses etcd at these endpoints, such as `https://10.0.0.1:2379`; with `http` in place of
    /// `https`, the files are not used. Connects when it is needed.
    ///
    /// # Errors
    /// If there is no endpoint, one is not an address, or a file cannot be used.
    pub fn new(endpoints: &[String], files: Option<EtcdFiles<'_>>) -> Result<EtcdStore, StoreError> {
        let refused = |place: &str, reason: &str| {
            Err(StoreError::Refused { place: place.to_owned(), reason: reason.to_owned() })
        };
        if endpoints.is_empty() {
            return refused("etcd", "expected an endpoint, such as https://10.0.0.1:2379");
        }
        let has_tls = |endpoint: &&String| endpoint.starts_with("https://");
        let is_address = |endpoint: &&String| has_tls(endpoint) || endpoint.starts_with("http://");
        if let Some(other) = endpoints.iter().find(|endpoint| !is_address(endpoint)) {
            return refused(other, "expected https://HOST:PORT or http://HOST:PORT");
        }
        let mut config =
            Agent::config_builder().timeout_connect(Some(CONNECT_MAX)).http_status_as_error(false);
        if let Some(endpoint) = endpoints.iter().find(has_tls) {
            let Some(files) = files else {
                return refused(endpoint, "expected the files of an authority and of a certificate");
            };
            config = config.tls_config(tls(files)?);
        }
        let endpoints = endpoints.iter().map(|endpoint| endpoint.trim_end_matches('/').to_owned()).collect();
        Ok(EtcdStore { endpoints, preferred: AtomicUsize::new(0), agent: config.build().into() })
    }

    /// Sends a request to the endpoints in turn, until one answers.
    fn call<T>(&self, mut attempt: impl FnMut(&str) -> Result<T, Fault>) -> Result<T, Fault> {
        let (count, first) = (self.endpoints.len(), self.preferred.load(Ordering::Relaxed));
        let mut last = String::new();
        for at in (0..count).map(|at| (first + at) % count) {
            match attempt(&self.endpoints[at]) {
                Err(Fault::Unreachable(cause)) => last = cause,
                outcome => {
                    self.preferred.store(at, Ordering::Relaxed);
                    return outcome;
                }
            }
        }
        Err(Fault::Error(StoreError::Unreachable { place: self.endpoints.join(", "), cause: last }))
    }

    /// Sends a request that is answered at once.
    fn request(&self, path: &str, body: &Value) -> Result<Value, Fault> {
        self.call(|endpoint| {
            let (status, mut reader) = self.post(endpoint, path, body, CALL_MAX, Some(CALL_MAX))?;
            let mut text = String::new();
            reader.read_to_string(&mut text).map_err(|error| Fault::Unreachable(error.to_string()))?;
            let answer: Value = serde_json::from_str(text.trim()).map_err(|_| damaged(endpoint, "JSON"))?;
            if status == 200 {
                return Ok(answer);
            }
            Err(refusal(endpoint, &answer))
        })
    }

    /// Sends a request. Each read of the answer takes up to `read_max`, all of it up to `all_max`.
    fn post(
        &self,
        endpoint: &str,
        path: &str,
        body: &Value,
        read_max: Duration,
        all_max: Option<Duration>,
    ) -> Result<(u16, BufReader<impl Read + use<>>), Fault> {
        let request = self.agent.post(format!("{endpoint}/v3/{path}"));
        let limited = request.config().timeout_global(all_max).timeout_per_read(Some(read_max)).build();
        let sent = limited.content_type("application/json").send(body.to_string());
        let response = sent.map_err(|error| Fault::Unreachable(error.to_string()))?;
        let status = response.status().as_u16();
        Ok((status, BufReader::new(response.into_body().into_reader().take(ANSWER_LEN_MAX))))
    }

    fn result(&self, outcome: Result<Value, Fault>) -> Result<Value, StoreError> {
        outcome.map_err(|fault| self.error(fault, None))
    }

    fn error(&self, fault: Fault, lease: Option<LeaseId>) -> StoreError {
        match (fault, lease) {
            (Fault::Error(error), _) => error,
            (Fault::Unreachable(cause), _) => {
                StoreError::Unreachable { place: self.endpoints.join(", "), cause }
            }
            (Fault::NotFound, Some(lease)) => StoreError::LeaseExpired(lease),
            (Fault::NotFound, None) => {
                StoreError::Refused { place: self.endpoints.join(", "), reason: "not found".to_owned() }
            }
        }
    }

    fn range(&self, body: &Value) -> Result<Listing, StoreError> {
        let answer = self.result(self.request("kv/range", body))?;
        let entries = answer["kvs"].as_array().map_or(&[][..], Vec::as_slice);
        let entries = entries.iter().map(|entry| self.entry(entry)).collect::<Result<_, _>>()?;
        Ok(Listing { revision: number(&answer["header"]["revision"]), entries })
    }

    fn entry(&self, value: &Value) -> Result<StoreEntry, StoreError> {
        let damaged = |reason: &str| StoreError::Damaged {
            place: self.endpoints.join(", "),
            reason: format!("expected {reason}"),
        };
        let key = bytes(&value["key"]).and_then(|key| String::from_utf8(key).ok());
        Ok(StoreEntry {
            key: key.ok_or_else(|| damaged("a key of UTF-8"))?,
            value: bytes(&value["value"]).ok_or_else(|| damaged("a value in base64"))?,
            revision: number(&value["mod_revision"]),
        })
    }

    /// Executes `operation` if the key is as expected. Returns the answer, or none.
    fn transact(
        &self,
        key: &str,
        expected: Expected,
        operation: &Value,
        lease: Option<LeaseId>,
    ) -> Result<Value, StoreError> {
        let revision = match expected {
            Expected::Any => None,
            Expected::Absent => Some(0),
            Expected::Revision(revision) => Some(revision),
        };
        let compare = revision.map(|revision| {
            json!({ "key": encode(key), "target": "MOD", "result": "EQUAL",
                    "mod_revision": revision.to_string() })
        });
        let compare: Vec<Value> = compare.into_iter().collect();
        let body = json!({ "compare": compare, "success": [operation] });
        let answer = self.request("kv/txn", &body).map_err(|fault| self.error(fault, lease))?;
        match answer["succeeded"].as_bool() {
            Some(true) => Ok(answer),
            _ => Err(StoreError::Conflict { key: key.to_owned() }),
        }
    }

    /// Reads messages of a watch until one has changes, or the time has passed.
    fn watch(
        &self,
        endpoint: &str,
        body: &Value,
        until: Instant,
    ) -> Result<Result<Vec<StoreChange>, StoreError>, Fault> {
        let wait = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let (status, mut reader) = self.post(endpoint, "watch", body, wait, Some(wait + CALL_MAX))?;
        let mut line = String::new();
        let mut is_created = false;
        loop {
            line.clear();
            match reader.read_line(&mut line) {
                Ok(0) => return Err(Fault::Unreachable("the watch ended".to_owned())),
                Ok(_) => {}
                // Silence is an answer, once the watch exists.
                Err(_) if is_created && Instant::now() >= until => return Ok(Ok(Vec::new())),
                Err(error) => return Err(Fault::Unreachable(error.to_string())),
            }
            let answer: Value = serde_json::from_str(line.trim()).map_err(|_| damaged(endpoint, "JSON"))?;
            if status != 200 || !answer["error"].is_null() {
                return Err(refusal(endpoint, &answer));
            }
            let result = &answer["result"];
            is_created |= result["created"].as_bool() == Some(true);
            let oldest = number(&result["compact_revision"]);
            if oldest > 0 {
                return Ok(Err(StoreError::Compacted { oldest }));
            }
            if result["canceled"].as_bool() == Some(true) {
                return Err(Fault::Unreachable("the watch was canceled".to_owned()));
            }
            let changes = result["events"].as_array().map_or(&[][..], Vec::as_slice);
            if !changes.is_empty() {
                return Ok(changes.iter().map(|change| self.change(change)).collect());
            }
        }
    }

    fn change(&self, value: &Value) -> Result<StoreChange, StoreError> {
        let entry = self.entry(&value["kv"])?;
        // The default, PUT, is left out.
        Ok(match value["type"].as_str() {
            Some("DELETE") => StoreChange::Deleted { key: entry.key, revision: entry.revision },
            _ => StoreChange::Put(entry),
        })
    }
}

impl ClusterStore for EtcdStore {
    fn get(&self, key: &str) -> Result<Option<StoreEntry>, StoreError> {
        self.range(&json!({ "key": encode(key) })).map(|mut listing| listing.entries.pop())
    }

    fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        let body = json!({
            "key": encode_start(prefix),
            "range_end": encode_bytes(&prefix_end(prefix)),
            "sort_order": "ASCEND",
            "sort_target": "KEY",
            "limit": (LIST_MAX + 1).to_string(),
        });
        let listing = self.range(&body)?;
        if listing.entries.len() > LIST_MAX {
            return Err(StoreError::TooMany(prefix.to_owned()));
        }
        Ok(listing)
    }

    fn put(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
        lease: Option<LeaseId>,
    ) -> Result<u64, StoreError> {
        check_put(key, value)?;
        let mut put = json!({ "key": encode(key), "value": encode_bytes(value) });
        if let Some(lease) = lease {
            put["lease"] = lease.0.to_string().into();
        }
        let answer = self.transact(key, expected, &json!({ "request_put": put }), lease)?;
        Ok(number(&answer["header"]["revision"]))
    }

    fn delete(&self, key: &str, expected: Expected) -> Result<bool, StoreError> {
        let operation = json!({ "request_delete_range": { "key": encode(key) } });
        let answer = self.transact(key, expected, &operation, None)?;
        Ok(number(&answer["responses"][0]["response_delete_range"]["deleted"]) > 0)
    }

    fn changes(&self, prefix: &str, after: u64, wait: Duration) -> Result<Vec<StoreChange>, StoreError> {
        let until = Instant::now() + wait;
        let body = json!({ "create_request": {
            "key": encode_start(prefix),
            "range_end": encode_bytes(&prefix_end(prefix)),
            "start_revision": (after + 1).to_string(),
        } });
        let outcome = self.call(|endpoint| self.watch(endpoint, &body, until));
        outcome.map_err(|fault| self.error(fault, None))?
    }

    fn grant(&self, time_to_live: Duration) -> Result<LeaseId, StoreError> {
        let seconds = time_to_live.as_millis().div_ceil(1_000).max(1);
        let body = json!({ "TTL": seconds.to_string() });
        let answer = self.result(self.request("lease/grant", &body))?;
        Ok(LeaseId(answer["ID"].as_str().and_then(|id| id.parse().ok()).unwrap_or_default()))
    }

    fn keep_alive(&self, lease: LeaseId) -> Result<Duration, StoreError> {
        let body = json!({ "ID": lease.0.to_string() });
        let answer =
            self.request("lease/keepalive", &body).map_err(|fault| self.error(fault, Some(lease)))?;
        match number(&answer["result"]["TTL"]) {
            0 => Err(StoreError::LeaseExpired(lease)),
            seconds => Ok(Duration::from_secs(seconds)),
        }
    }

    fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        let body = json!({ "ID": lease.0.to_string() });
        self.request("lease/revoke", &body).map(drop).map_err(|fault| self.error(fault, Some(lease)))
    }

    fn compact(&self, through: u64) -> Result<(), StoreError> {
        let body = json!({ "revision": through.to_string(), "physical": true });
        self.result(self.request("kv/compaction", &body)).map(drop)
    }
}

fn damaged(endpoint: &str, expected: &str) -> Fault {
    let reason = format!("expected {expected}");
    Fault::Error(StoreError::Damaged { place: endpoint.to_owned(), reason })
}

/// Returns the fault of an answer with an error.
fn refusal(endpoint: &str, answer: &Value) -> Fault {
    let error = if answer["error"].is_object() { &answer["error"] } else { answer };
    if error["code"].as_i64().or(error["grpc_code"].as_i64()) == Some(NOT_FOUND) {
        return Fault::NotFound;
    }
    let reason = error["message"].as_str().or(error["error"].as_str()).unwrap_or("no reason given");
    // No leader, or too slow: another member may know better.
    if reason.contains("no leader") || reason.contains("timed out") || reason.contains("leader changed") {
        return Fault::Unreachable(reason.to_owned());
    }
    Fault::Error(StoreError::Refused { place: endpoint.to_owned(), reason: reason.to_owned() })
}

/// Reads a number, which the gateway writes as text; 0 if it is left out.
fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).or_else(|| value.as_u64()).unwrap_or_default()
}

/// Reads bytes; none are left out.
fn bytes(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map_or(Some(Vec::new()), |text| STANDARD.decode(text).ok())
}

fn encode(key: &str) -> String {
    encode_bytes(key.as_bytes())
}

fn encode_bytes(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Encodes the first key of a range. A zero byte stands for the beginning.
fn encode_start(prefix: &str) -> String {
    encode_bytes(if prefix.is_empty() { &[0] } else { prefix.as_bytes() })
}

/// Returns the first key after those with a prefix. UTF-8 has no byte 0xff.
fn prefix_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        Some(last) => *last += 1,
        None => end.push(0),
    }
    end
}
