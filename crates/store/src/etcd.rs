//! A store in etcd 3.4 or later, by its JSON gateway.
//!
//! The gateway needs an HTTP client only; the gRPC clients bring an asynchronous runtime and a
//! compiler of protocol buffers.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
/// Limit on the length of an answer, in bytes, and of a message of a watch. It has room for the
/// largest entry that etcd takes by default, 1.5 MiB.
pub const ANSWER_LEN_MAX: u64 = 8 << 20;
/// Keys per request.
const PAGE: usize = 1_000;
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

/// The files of a store, to be read again when one has changed.
struct OwnFiles {
    paths: [PathBuf; 3],
    /// Inode, length and time of change of each.
    stamps: Mutex<[Stamp; 3]>,
}

type Stamp = Option<(u64, u64, i64, i64)>;

impl OwnFiles {
    fn new(files: EtcdFiles<'_>) -> OwnFiles {
        let paths = [files.authority, files.certificate, files.key].map(Path::to_owned);
        let stamps = Mutex::new(OwnFiles::stamps(&paths));
        OwnFiles { paths, stamps }
    }

    fn files(&self) -> EtcdFiles<'_> {
        let [authority, certificate, key] = &self.paths;
        EtcdFiles { authority, certificate, key }
    }

    fn stamps(paths: &[PathBuf; 3]) -> [Stamp; 3] {
        paths.each_ref().map(|path| {
            let data = std::fs::metadata(path).ok()?;
            Some((data.ino(), data.len(), data.mtime(), data.mtime_nsec()))
        })
    }

    /// Returns whether a file has changed since the latest call.
    fn have_changed(&self) -> bool {
        let now = OwnFiles::stamps(&self.paths);
        let mut stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *stamps, now) != now
    }
}

/// A store in etcd.
pub struct EtcdStore {
    endpoints: Vec<String>,
    /// The endpoint that answered last.
    preferred: AtomicUsize,
    agent: Mutex<Agent>,
    /// The files of TLS.
    files: Option<OwnFiles>,
}

/// Why an endpoint gave no result.
enum Fault {
    /// Another endpoint may answer.
    Unreachable(String),
    Error(StoreError),
    NotFound,
    /// The answer exceeds [`ANSWER_LEN_MAX`].
    TooLong,
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

fn agent(files: Option<EtcdFiles<'_>>) -> Result<Agent, StoreError> {
    let mut config = Agent::config_builder().timeout_connect(Some(CONNECT_MAX)).http_status_as_error(false);
    if let Some(files) = files {
        config = config.tls_config(tls(files)?);
    }
    Ok(config.build().into())
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
        let endpoint = endpoints.iter().find(has_tls);
        let files = files.filter(|_| endpoint.is_some());
        if let (Some(endpoint), None) = (endpoint, files) {
            return refused(endpoint, "expected the files of an authority and of a certificate");
        }
        let own = files.map(OwnFiles::new);
        let agent = Mutex::new(agent(files)?);
        let endpoints = endpoints.iter().map(|endpoint| endpoint.trim_end_matches('/').to_owned()).collect();
        Ok(EtcdStore { endpoints, preferred: AtomicUsize::new(0), agent, files: own })
    }

    /// Returns the client of now: with the files of now, if they can be used.
    fn agent(&self) -> Agent {
        let mut current = self.agent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = self.files.as_ref().filter(|own| own.have_changed()) {
            match agent(Some(own.files())) {
                Ok(changed) => *current = changed,
                Err(error) => telemetry::event::store_failed(&error),
            }
        }
        current.clone()
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
            let (mut text, mut reader) = (String::new(), reader.by_ref().take(ANSWER_LEN_MAX + 1));
            reader.read_to_string(&mut text).map_err(|error| Fault::Unreachable(error.to_string()))?;
            if text.len() as u64 > ANSWER_LEN_MAX {
                return Err(Fault::TooLong);
            }
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
        let request = self.agent().post(format!("{endpoint}/v3/{path}"));
        let limited = request.config().timeout_global(all_max).timeout_per_read(Some(read_max)).build();
        let sent = limited.content_type("application/json").send(body.to_string());
        let response = sent.map_err(|error| Fault::Unreachable(error.to_string()))?;
        let status = response.status().as_u16();
        Ok((status, BufReader::new(response.into_body().into_reader())))
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
            (Fault::TooLong, _) => StoreError::Damaged {
                place: self.endpoints.join(", "),
                reason: format!("expected an answer of up to {ANSWER_LEN_MAX} bytes"),
            },
        }
    }

    /// Returns the keys of a range, up to one beyond [`LIST_MAX`]: page by page, all at the
    /// revision of the first.
    fn range(&self, mut start: Vec<u8>, end: &[u8]) -> Result<Listing, StoreError> {
        let mut listing = Listing { revision: 0, entries: Vec::new(), refused: 0 };
        let mut limit = PAGE;
        loop {
            let mut body = json!({
                "key": encode_bytes(&start),
                "range_end": encode_bytes(end),
                "limit": limit.to_string(),
            });
            if listing.revision > 0 {
                body["revision"] = listing.revision.to_string().into();
            }
            let answer = match self.request("kv/range", &body) {
                Err(Fault::TooLong) if limit > 1 => {
                    limit = limit.div_ceil(8);
                    continue;
                }
                // Its value alone is too long; its key may do.
                Err(Fault::TooLong) => {
                    body["keys_only"] = true.into();
                    self.result(self.request("kv/range", &body))?
                }
                outcome => self.result(outcome)?,
            };
            if listing.revision == 0 {
                listing.revision = number(&answer["header"]["revision"]);
            }
            let found = answer["kvs"].as_array().map_or(&[][..], Vec::as_slice);
            for entry in found {
                match self.entry(entry).filter(|_| body["keys_only"].is_null()) {
                    Some(entry) => listing.entries.push(entry),
                    None => listing.refused += 1,
                }
            }
            let last = found.last().and_then(|last| bytes(&last["key"]));
            let (Some(last), Some(true)) = (last, answer["more"].as_bool()) else { return Ok(listing) };
            if listing.entries.len() > LIST_MAX || listing.refused > LIST_MAX as u64 {
                return Ok(listing);
            }
            start = last;
            start.push(0);
        }
    }

    /// Reads an entry; none if it is longer than this program writes, or its key is no text.
    fn entry(&self, value: &Value) -> Option<StoreEntry> {
        let key = String::from_utf8(bytes(&value["key"])?).ok()?;
        let entry =
            StoreEntry { key, value: bytes(&value["value"])?, revision: number(&value["mod_revision"]) };
        check_put(&entry.key, &entry.value).is_ok().then_some(entry)
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
        (body, after): (&Value, u64),
        until: Instant,
    ) -> Result<Result<Vec<StoreChange>, StoreError>, Fault> {
        let wait = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let (status, mut reader) = self.post(endpoint, "watch", body, wait, Some(wait + CALL_MAX))?;
        let mut line = String::new();
        let mut is_created = false;
        loop {
            line.clear();
            match reader.by_ref().take(ANSWER_LEN_MAX).read_line(&mut line) {
                Ok(0) => return Err(Fault::Unreachable("the watch ended".to_owned())),
                // The listing passes over what is too long.
                Ok(_) if line.len() as u64 == ANSWER_LEN_MAX => {
                    return Ok(Err(StoreError::Compacted { oldest: after + 1 }));
                }
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
            if result["created"].as_bool() == Some(true) {
                is_created = true;
                // etcd waits in silence for a revision that it has not reached. Only the revision
                // shows that it was restored from a snapshot: cluster, member and term are as
                // before.
                let now = number(&result["header"]["revision"]);
                if now < after {
                    return Ok(Err(StoreError::Reverted { now, seen: after }));
                }
            }
            let oldest = number(&result["compact_revision"]);
            if oldest > 0 {
                return Ok(Err(StoreError::Compacted { oldest }));
            }
            if result["canceled"].as_bool() == Some(true) {
                return Err(Fault::Unreachable("the watch was canceled".to_owned()));
            }
            let changes = result["events"].as_array().map_or(&[][..], Vec::as_slice);
            if !changes.is_empty() {
                return Ok(Ok(changes.iter().map(|change| self.change(change)).collect()));
            }
        }
    }

    fn change(&self, value: &Value) -> StoreChange {
        let Some(entry) = self.entry(&value["kv"]) else {
            return StoreChange::Refused { revision: number(&value["kv"]["mod_revision"]) };
        };
        // The default, PUT, is left out.
        match value["type"].as_str() {
            Some("DELETE") => StoreChange::Deleted { key: entry.key, revision: entry.revision },
            _ => StoreChange::Put(entry),
        }
    }
}

impl ClusterStore for EtcdStore {
    fn get(&self, key: &str) -> Result<Option<StoreEntry>, StoreError> {
        let key = key.as_bytes();
        self.range(key.to_vec(), &[key, &[0]].concat()).map(|mut listing| listing.entries.pop())
    }

    fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        let listing = self.range(start_of(prefix), &prefix_end(prefix))?;
        if listing.entries.len() > LIST_MAX || listing.refused > LIST_MAX as u64 {
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
            "key": encode_bytes(&start_of(prefix)),
            "range_end": encode_bytes(&prefix_end(prefix)),
            // Messages of many changes are divided.
            "fragment": true,
            "start_revision": (after + 1).to_string(),
        } });
        let outcome = self.call(|endpoint| self.watch(endpoint, (&body, after), until));
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

/// Returns the first key of a range. A zero byte stands for the beginning.
fn start_of(prefix: &str) -> Vec<u8> {
    if prefix.is_empty() { vec![0] } else { prefix.as_bytes().to_vec() }
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
