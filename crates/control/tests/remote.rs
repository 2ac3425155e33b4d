//! The API over TCP: clients with a certificate or a token are served, and all others are refused
//! and counted.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

#[path = "../../runtime/tests/support/mod.rs"]
mod traffic;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::identity::Authority;
use control::access::{AccessError, AccessFiles, ApiAccess, certificates, read_authority};
use control::{
    ApiListener, BODY_MAX, ControlOptions, ControlServer, HEAD_LEN_MAX, HEADERS_MAX, REMOTE_CLIENTS_MAX,
    STRANGERS_PER_SOURCE_MAX,
};
use runtime::Runner;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivateKeyDer, ServerName};
use serde_json::Value;
use tempfile::TempDir;

use traffic::{Sink, assembly};

const TOKEN: &str = "3f1c8e0a9d7b5c2e4f6a8b0c1d3e5f70";
/// Time within which everything must happen.
const PATIENCE: Duration = Duration::from_secs(60);

type TlsClient = StreamOwned<ClientConnection, TcpStream>;

/// The API of a runner, over TCP.
struct Remote {
    folder: TempDir,
    address: SocketAddr,
    runner: Runner,
    _server: ControlServer,
}

fn issue(folder: &Path, name: &str) {
    Authority::open(folder, None).unwrap().issue_named(folder, name).unwrap();
}

fn write_token(folder: &Path, mode: u32) -> PathBuf {
    let path = folder.join("token");
    std::fs::write(&path, format!("{TOKEN}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

impl Remote {
    fn start(takes_certificates: bool, takes_token: bool) -> Remote {
        let folder = tempfile::tempdir().unwrap();
        issue(folder.path(), "dispatcher");
        issue(folder.path(), "operator");
        let token = write_token(folder.path(), 0o600);
        let file = |name: &str| folder.path().join(name);
        let access = ApiAccess::read(AccessFiles {
            certificate: file("dispatcher.pem"),
            key: file("dispatcher.key"),
            authority: takes_certificates.then(|| file("ca.pem")),
            revoked: Some(file("crl.pem")),
            roles: Some(file("roles.toml")),
            token: takes_token.then_some(token),
        })
        .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut runner = Runner::new(assembly("cluster.rvl"), "cluster.rvl");
        let options = ControlOptions {
            name: "test".to_owned(),
            version: "0.0.0".to_owned(),
            operator: runner.open_to_operators(),
            cluster: None,
        };
        let server = ControlServer::start(vec![ApiListener::Tls(listener, access)], options).unwrap();
        Remote { folder, address, runner, _server: server }
    }

    /// Connects as a client with a certificate of this folder's authority, or with none.
    fn connect(&self, own: Option<&Path>) -> TlsClient {
        self.connect_to("dispatcher", self.folder.path(), own.map(|folder| (folder, "operator")))
    }

    /// Connects as this holder of a certificate.
    fn connect_as(&self, holder: &str) -> TlsClient {
        self.connect_to("dispatcher", self.folder.path(), Some((self.folder.path(), holder)))
    }

    fn connect_to(&self, name: &str, trusted: &Path, own: Option<(&Path, &str)>) -> TlsClient {
        let roots = read_authority(&trusted.join("ca.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        let config = match own {
            Some((folder, holder)) => {
                let file = |end: &str| folder.join(format!("{holder}.{end}"));
                let key = PrivateKeyDer::from_pem_file(file("key")).unwrap();
                builder.with_client_auth_cert(certificates(&file("pem")).unwrap(), key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        let name = ServerName::try_from(name.to_owned()).unwrap();
        StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), self.tcp())
    }

    fn tcp(&self) -> TcpStream {
        let tcp = TcpStream::connect(self.address).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        tcp
    }

    /// Requests the status, with these lines in the head; returns the status and the answer.
    fn status(&mut self, own: Option<&Path>, lines: &str) -> (u16, String) {
        let mut client = self.connect(own);
        write!(client, "GET /v1/status HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n").unwrap();
        self.answer(client)
    }

    /// Reads an answer, while the runner answers operators.
    fn answer(&mut self, client: impl Read + Send + 'static) -> (u16, String) {
        let reading = std::thread::spawn(move || read_all(client));
        let mut sink = Sink::default();
        while !reading.is_finished() {
            self.runner.flush(&mut sink).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        let answer = reading.join().unwrap();
        (answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0), answer)
    }

    /// Returns the counts of clients.
    fn clients(&mut self) -> Value {
        let (status, answer) = self.status(None, &format!("Authorization: Bearer {TOKEN}\r\n"));
        assert_eq!(status, 200, "{answer}");
        body(&answer)["clients"].clone()
    }

    fn wait_for(&mut self, counter: &str, count: u64) {
        let began = Instant::now();
        loop {
            let clients = self.clients();
            if clients[counter] == count {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{counter}: {clients}");
        }
    }
}

/// Reads until the server ends the connection, in whichever way.
fn read_all(mut client: impl Read) -> String {
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn body(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

// A16
#[test]
fn certificate_or_token_opens_the_api() {
    let mut remote = Remote::start(true, true);
    let (status, answer) = remote.status(None, &format!("Authorization: Bearer {TOKEN}\r\n"));
    assert_eq!((status, body(&answer)["name"].as_str()), (200, Some("test")), "{answer}");
    let own = remote.folder.path().to_owned();
    assert_eq!(remote.status(Some(&own), "").0, 200);
    assert_eq!(remote.status(Some(&own), "Authorization: Bearer wrong\r\n").0, 200, "the certificate counts");
    for lines in [
        String::new(),
        format!("Authorization: Bearer {}\r\n", TOKEN.replace('f', "e")),
        format!("Authorization: Basic {TOKEN}\r\n"),
        format!("Authorization: Bearer {TOKEN}\r\nAuthorization: Bearer {TOKEN}\r\n"),
    ] {
        let (status, answer) = remote.status(None, &lines);
        let head = answer.to_lowercase();
        assert_eq!(
            (status, body(&answer)["code"].as_str()),
            (401, Some("unauthorized")),
            "{lines}: {answer}"
        );
        assert!(head.contains("content-type: application/problem+json"), "{answer}");
        assert!(head.contains("www-authenticate: bearer"), "{answer}");
        assert_eq!(head.contains("invalid_token"), !lines.is_empty(), "{answer}");
    }
    let clients = remote.clients();
    assert_eq!((&clients["unauthorized"], &clients["open"]), (&4.into(), &1.into()), "{clients}");
    // What there is stays hidden, too.
    let mut client = remote.connect(None);
    write!(client, "GET /v2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    assert_eq!(remote.answer(client).0, 401);
}

#[test]
fn token_alone_and_certificate_alone_are_enough() {
    let mut remote = Remote::start(false, true);
    let own = remote.folder.path().to_owned();
    assert_eq!(remote.status(Some(&own), "").0, 401, "no certificate is asked for");
    assert_eq!(remote.status(None, &format!("Authorization: Bearer {TOKEN}\r\n")).0, 200);
    let mut remote = Remote::start(true, false);
    let own = remote.folder.path().to_owned();
    assert_eq!(remote.status(Some(&own), "").0, 200);
    assert_eq!(remote.status(None, &format!("Authorization: Bearer {TOKEN}\r\n")).0, 401);
}

#[test]
fn strangers_and_plain_http_are_refused_and_counted() {
    let mut remote = Remote::start(true, true);
    let strangers = tempfile::tempdir().unwrap();
    issue(strangers.path(), "operator");
    // A certificate of another authority.
    let mut client = remote.connect(Some(strangers.path()));
    let request = format!("GET /v1/status HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    let _ = client.write_all(request.as_bytes());
    assert_eq!(read_all(client), "", "it gets no answer, even with the token");
    remote.wait_for("handshakes_failed", 1);
    // A client that trusts another authority, or wants another server.
    for (name, trusted) in [("dispatcher", strangers.path()), ("unit-1", remote.folder.path())] {
        let mut client = remote.connect_to(name, trusted, None);
        assert!(client.write_all(request.as_bytes()).is_err(), "{name}");
    }
    remote.wait_for("handshakes_failed", 3);
    let mut plain = remote.tcp();
    plain.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    remote.wait_for("handshakes_failed", 4);
    assert_eq!(remote.clients()["unauthorized"], 0);
}

#[test]
fn slow_handshakes_and_heads_are_cut_off() {
    let mut remote = Remote::start(true, true);
    let (mut silent, mut slow) = (remote.tcp(), remote.connect(None));
    slow.write_all(b"GET /v1/status HTTP/1.1\r\nHo").unwrap();
    assert_eq!(silent.read(&mut [0; 64]).unwrap_or(0), 0, "the server ends it");
    remote.wait_for("handshakes_late", 1);
    assert!(!read_all(slow).starts_with("HTTP/1.1 2"));
    remote.wait_for("heads_late", 1);
}

#[test]
fn oversized_requests_are_refused() {
    let mut remote = Remote::start(true, true);
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    let long = format!("X: {}\r\n", "a".repeat(HEAD_LEN_MAX));
    let many = "X: a\r\n".repeat(HEADERS_MAX);
    for lines in [long, many] {
        let mut client = remote.connect(None);
        // The server may end the connection before all is written.
        let _ = write!(client, "GET /v1/status HTTP/1.1\r\nHost: a\r\n{token}{lines}\r\n");
        let (status, answer) = remote.answer(client);
        assert!([0, 431].contains(&status), "{answer}");
    }
    remote.wait_for("heads_refused", 2);
    let body = "a".repeat(BODY_MAX + 1);
    for (token, expected) in [(&*token, 413), ("", 401)] {
        let mut client = remote.connect(None);
        let head = format!("POST /v1/migrations HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{token}");
        let _ = write!(client, "{head}Content-Length: {}\r\n\r\n{body}", body.len());
        let (status, answer) = remote.answer(client);
        assert!([0, expected].contains(&status), "{answer}");
    }
}

/// However many connections have shown no credentials, the operator gets in.
#[test]
fn silent_connections_give_their_places_to_others() {
    let mut remote = Remote::start(true, true);
    let own = remote.folder.path().to_owned();
    let mut held: Vec<_> = (0..STRANGERS_PER_SOURCE_MAX + 4).map(|_| remote.tcp()).collect();
    // The server ends the first at once, not after a time.
    assert_eq!(held[0].read(&mut [0; 64]).unwrap_or(0), 0);
    assert_eq!(remote.status(Some(&own), "").0, 200);
    held.extend((0..STRANGERS_PER_SOURCE_MAX).map(|_| remote.tcp()));
    let clients = remote.clients();
    assert!(clients["displaced"].as_u64() >= Some(4) && clients["too_many"] == 0, "{clients}");
}

/// Operators themselves are bounded.
#[test]
fn clients_with_a_certificate_are_bounded() {
    let mut remote = Remote::start(true, true);
    let own = remote.folder.path().to_owned();
    let hold = |own: Option<&Path>| {
        let mut client = remote.connect(own);
        let lines = format!("Host: a\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
        write!(client, "GET /v1/openapi.json HTTP/1.1\r\n{lines}")?;
        let mut head = [0; 12];
        client.read_exact(&mut head)?;
        std::io::Result::Ok((client, String::from_utf8_lossy(&head).into_owned()))
    };
    let held: Vec<_> = (0..REMOTE_CLIENTS_MAX).map(|_| hold(Some(&own)).unwrap()).collect();
    assert!(held.iter().all(|(_, head)| head == "HTTP/1.1 200"));
    for own in [Some(&*own), None] {
        assert_eq!(hold(own).unwrap().1, "HTTP/1.1 503", "one more is closed");
    }
    drop(held);
    let began = Instant::now();
    // The places are free once the server has noticed.
    while remote.status(Some(&own), "").0 != 200 {
        assert!(began.elapsed() < PATIENCE, "the places stay taken");
    }
    assert!(remote.clients()["too_many"].as_u64() >= Some(2));
}

/// A request names its host once (RFC 9112 3.2), and is refused as soon as its body is too long.
#[test]
fn hosts_and_lengths_are_checked() {
    let mut remote = Remote::start(true, true);
    let own = remote.folder.path().to_owned();
    let mut ask = |head: &str| {
        let mut client = remote.connect(Some(&own));
        write!(client, "{head}Connection: close\r\n\r\n").unwrap();
        let (status, answer) = remote.answer(client);
        (status, body(&answer)["code"].as_str().map(str::to_owned))
    };
    for (hosts, expected) in [
        ("Host: a\r\n", 200),
        ("Host: 10.0.0.1:7500\r\n", 200),
        ("Host:\r\n", 200),
        ("", 400),
        ("Host: a\r\nHost: a\r\n", 400),
        ("Host: a b\r\n", 400),
        ("Host: u@a\r\n", 400),
    ] {
        let (status, code) = ask(&format!("GET /v1/status HTTP/1.1\r\n{hosts}"));
        assert_eq!(status, expected, "{hosts}");
        assert_eq!(code.as_deref(), (expected == 400).then_some("host"), "{hosts}");
    }
    assert_eq!(ask("GET /v1/status HTTP/1.0\r\n").0, 200);
    // Nothing of the body is ever sent.
    let long = ask("POST /v1/migrations HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n");
    assert_eq!(long, (413, Some("body_too_long".to_owned())));
}

impl Remote {
    /// Makes a request with no body on a connection that stays; returns its status and problem.
    fn ask(&mut self, client: &mut TlsClient, request: &str) -> (u16, Value) {
        write!(client, "{request} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").unwrap();
        let (mut head, mut byte) = (Vec::new(), [0]);
        client.sock.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let began = Instant::now();
        let mut read = |bytes: &mut Vec<u8>, is_over: &dyn Fn(&[u8]) -> bool| {
            while !is_over(bytes) {
                assert!(began.elapsed() < PATIENCE, "{}", String::from_utf8_lossy(bytes));
                match client.read(&mut byte) {
                    Ok(1) => bytes.push(byte[0]),
                    Ok(_) => panic!("it is closed: {}", String::from_utf8_lossy(bytes)),
                    Err(_) => self.runner.flush(&mut Sink::default()).unwrap(),
                }
            }
        };
        read(&mut head, &|bytes| bytes.ends_with(b"\r\n\r\n"));
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let len = head.split("content-length: ").nth(1).unwrap().split('\r').next().unwrap();
        let (len, mut body): (usize, _) = (len.parse().unwrap(), Vec::new());
        read(&mut body, &|bytes| bytes.len() == len);
        (head[9..12].parse().unwrap(), serde_json::from_slice(&body).unwrap())
    }
}

/// The role in a client's certificate decides about each request: a unit's key does not open the
/// API, and a viewer may not change anything.
#[test]
fn roles_open_the_api_or_not() {
    let mut remote = Remote::start(true, true);
    let folder = remote.folder.path().to_owned();
    let (read, change) = ("GET /v1/status", "POST /v1/units/7/drain");
    let holders = ["unit-1", "dispatcher-2", "manager:host", "operator:jane", "viewer:board", "etcd-1"];
    for holder in holders {
        issue(&folder, holder);
        let name = holder.split(':').next_back().unwrap();
        let mut client = remote.connect_as(name);
        // An operator's answer is that there is no such unit.
        let (may_read, may_change) = match name {
            "jane" => (200, 409),
            "board" => (200, 403),
            _ => (403, 403),
        };
        assert_eq!(remote.ask(&mut client, read).0, may_read, "{holder}");
        let (status, problem) = remote.ask(&mut client, change);
        assert_eq!(status, may_change, "{holder}: {problem}");
        if status == 403 {
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains("role"), "{detail}");
            assert_eq!(problem["code"], "forbidden");
        }
    }
    assert_eq!(remote.clients()["forbidden"], 9);
}

/// Files are read again while clients are connected: a revoked operator is refused at the next
/// request, and its watch ends; another token counts, and roles of a company's certificates are
/// those of the file.
#[test]
fn changed_files_count_for_connections_that_live() {
    let mut remote = Remote::start(true, true);
    let folder = remote.folder.path().to_owned();
    issue(&folder, "operator:jane");
    let (mut jane, mut other) = (remote.connect_as("jane"), remote.connect_as("operator"));
    let read = "GET /v1/status";
    assert_eq!(remote.ask(&mut jane, read).0, 200);
    let mut watching = remote.connect_as("jane");
    watching
        .write_all(b"GET /v1/watch?period_ms=50 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    Authority::read(&folder).unwrap().revoke(&folder, &[folder.join("jane.pem")], &[]).unwrap();
    let (status, problem) = remote.ask(&mut jane, read);
    assert_eq!(status, 403, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("Revoked"), "{problem}");
    assert_eq!(remote.ask(&mut other, read).0, 200);
    let mut again = remote.connect_as("jane");
    let _ = again.write_all(b"GET /v1/status HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(read_all(again), "", "nor does it come in again");
    let watched = read_all(watching);
    assert!(watched.starts_with("HTTP/1.1 200") && watched.ends_with("\r\n0\r\n\r\n"), "{watched}");

    // A certificate without a role, as a company's.
    let pem = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    let key = rcgen::KeyPair::from_pem(&pem("ca.key")).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(&pem("ca.pem"), key).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["board.example".to_owned()]).unwrap();
    std::fs::write(folder.join("board.pem"), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
    std::fs::write(folder.join("board.key"), key.serialize_pem()).unwrap();
    let mut board = remote.connect_as("board");
    let (status, problem) = remote.ask(&mut board, read);
    assert_eq!(status, 403);
    assert!(problem["detail"].as_str().unwrap().contains("has no role"), "{problem}");
    std::fs::write(folder.join("roles.toml"), "[roles]\nviewer = [\"board.example\"]\n").unwrap();
    assert_eq!(remote.ask(&mut board, read).0, 200);
    assert_eq!(remote.ask(&mut board, "POST /v1/units/7/drain").0, 403);

    let next = TOKEN.replace('f', "e");
    std::fs::write(folder.join("token"), format!("{next}\n")).unwrap();
    assert_eq!(remote.status(None, &format!("Authorization: Bearer {TOKEN}\r\n")).0, 401);
    assert_eq!(remote.status(None, &format!("Authorization: Bearer {next}\r\n")).0, 200);
}

#[test]
fn server_without_credentials_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    issue(folder.path(), "dispatcher");
    issue(folder.path(), "operator");
    let file = |name: &str| folder.path().join(name);
    let (certificate, key, authority) = (file("dispatcher.pem"), file("dispatcher.key"), file("ca.pem"));
    let with = |key: &Path, authority: Option<&Path>, token: Option<&Path>| {
        let [authority, token] = [authority, token].map(|file| file.map(Path::to_owned));
        let (certificate, key) = (certificate.clone(), key.to_owned());
        ApiAccess::read(AccessFiles { certificate, key, authority, revoked: None, roles: None, token }).err()
    };
    assert!(matches!(with(&key, None, None), Some(AccessError::Nobody)));
    assert!(with(&key, Some(&authority), None).is_none());
    let readable = write_token(folder.path(), 0o644);
    let error = with(&key, None, Some(&readable)).unwrap().to_string();
    assert!(error.contains("only its owner") && error.contains("100644"), "{error}");
    assert!(matches!(with(&file("operator.key"), Some(&authority), None), Some(AccessError::Unusable(_))));
    let error = with(&file("none.key"), Some(&authority), None).unwrap().to_string();
    assert!(error.contains("none.key") && error.contains("private key"), "{error}");
    assert!(matches!(with(&key, Some(&readable), None), Some(AccessError::Certificates(_))));
}
