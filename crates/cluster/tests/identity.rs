//! Handshakes: nodes of one cluster get the same keys, and all others are refused.
#![allow(clippy::unwrap_used, clippy::panic)] // A test that cannot go on has failed.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cluster::identity::{
    Authority, HandshakeError, Identity, IdentityError, KeyLog, Listener, Session, connect,
};
use cluster::policies::{KnownPolicies, NumberedDigest};
use cluster::wire::{Hello, Role, VERSION};
use tempfile::TempDir;

fn hello(name: &str) -> Hello {
    Hello {
        versions: (VERSION, VERSION),
        name: name.to_owned(),
        incarnation: 1,
        policy: [7; 32],
        runs: None,
        role: Role::Unit,
        port: 9,
        scope: String::new(),
    }
}

/// A cluster with its files.
struct Cluster {
    folder: TempDir,
    authority: Authority,
}

impl Cluster {
    fn new() -> Cluster {
        let folder = TempDir::new().unwrap();
        let authority = Authority::open(folder.path()).unwrap();
        Cluster { folder, authority }
    }

    fn identity(&self, name: &str) -> Identity {
        self.authority.issue_to(self.folder.path(), name).unwrap();
        self.read(name, name).unwrap()
    }

    /// Reads the certificate of a node as that of a name.
    fn read(&self, node: &str, name: &str) -> Result<Identity, IdentityError> {
        let file = |name: &str| self.folder.path().join(name);
        Identity::read(name, &file(&format!("{node}.pem")), &file(&format!("{node}.key")), &file("ca.pem"))
    }
}

fn listen(identity: Identity) -> Listener {
    let hello = hello(identity.name());
    let policies = KnownPolicies::new(hello.running());
    Listener::start(identity, TcpListener::bind("127.0.0.1:0").unwrap(), hello, policies).unwrap()
}

fn wait(listener: &Listener) -> Session {
    let began = Instant::now();
    loop {
        if let Some(session) = listener.poll() {
            return session;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "nobody connects");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn wait_for_refusals(listener: &Listener, count: u64) {
    let began = Instant::now();
    while listener.counters().refused.load(Ordering::Relaxed) < count {
        assert!(began.elapsed() < Duration::from_secs(20), "nobody is refused");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn both_ends_get_the_same_keys() {
    let cluster = Cluster::new();
    let listener = listen(cluster.identity("unit-1"));
    let dispatcher = cluster.identity("dispatcher");
    let client = connect(&dispatcher, listener.address(), "unit-1", &hello("dispatcher")).unwrap();
    let server = wait(&listener);
    assert_eq!((client.peer.name.as_str(), server.peer.name.as_str()), ("unit-1", "dispatcher"));
    assert_eq!(client.secrets.send, server.secrets.receive);
    assert_eq!(client.secrets.receive, server.secrets.send);
    assert_eq!(client.secrets.id, server.secrets.id);
    assert_ne!(client.secrets.send, client.secrets.receive);
    assert_eq!(server.address, SocketAddr::from(([127, 0, 0, 1], 9)));
    let again = connect(&dispatcher, listener.address(), "unit-1", &hello("dispatcher")).unwrap();
    assert_ne!(again.secrets.send, client.secrets.send);
    assert!(client.is_client && !server.is_client);
}

#[test]
fn others_are_refused() {
    let (cluster, strangers) = (Cluster::new(), Cluster::new());
    let listener = listen(cluster.identity("unit-1"));
    let address = listener.address();
    let dispatcher = cluster.identity("dispatcher");
    let try_as =
        |identity: &Identity, name: &str, hello: &Hello| connect(identity, address, name, hello).err();
    // A node of another cluster sees a certificate that it does not trust.
    let stranger = strangers.identity("dispatcher");
    assert!(matches!(try_as(&stranger, "unit-1", &hello("dispatcher")), Some(HandshakeError::Connection(_))));
    wait_for_refusals(&listener, 1);
    // It is another node than the one that was asked for.
    assert!(try_as(&dispatcher, "unit-2", &hello("dispatcher")).is_some());
    wait_for_refusals(&listener, 2);
    // It says that it is somebody else.
    assert!(try_as(&dispatcher, "unit-1", &hello("unit-7")).is_some());
    wait_for_refusals(&listener, 3);
    // It runs another policy, or speaks no common version.
    let other = Hello { policy: [8; 32], ..hello("dispatcher") };
    assert!(
        matches!(try_as(&dispatcher, "unit-1", &other), Some(HandshakeError::Policy { peer, .. }) if peer == "unit-1")
    );
    wait_for_refusals(&listener, 4);
    let later = Hello { versions: (VERSION + 3, VERSION + 2), ..hello("dispatcher") };
    let _ = try_as(&dispatcher, "unit-1", &later);
    wait_for_refusals(&listener, 5);
    // It does not speak TLS.
    TcpStream::connect(address).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    wait_for_refusals(&listener, 6);
    assert!(listener.poll().is_none());
    assert!(connect(&dispatcher, address, "unit-1", &hello("dispatcher")).is_ok());
}

/// A node of a version before, whose policies have no numbers, says the policy of the other end.
#[test]
fn nodes_meet_by_the_policy_of_the_one_that_listens() {
    let cluster = Cluster::new();
    let (identity, own) = (cluster.identity("unit-1"), hello("unit-1"));
    let policies = KnownPolicies::new(own.running());
    let listener =
        Listener::start(identity, TcpListener::bind("127.0.0.1:0").unwrap(), own, policies.clone()).unwrap();
    let dispatcher = cluster.identity("dispatcher");
    let try_as = |policy| {
        let hello = Hello { policy, ..hello("dispatcher") };
        connect(&dispatcher, listener.address(), "unit-1", &hello)
    };
    assert!(matches!(try_as([8; 32]), Err(HandshakeError::Policy { .. })));
    wait_for_refusals(&listener, 1);
    assert_eq!(try_as([7; 32]).unwrap().peer.policy, [7; 32]);
    policies.adopt(NumberedDigest { number: 1, digest: [8; 32] });
    assert!(matches!(try_as([7; 32]), Err(HandshakeError::Policy { .. })));
    wait_for_refusals(&listener, 2);
    assert_eq!(try_as([8; 32]).unwrap().peer.policy, [8; 32]);
}

/// Nobody is refused for an older policy; two that were never applied have to be the same.
#[test]
fn nodes_meet_with_an_older_policy() {
    let cluster = Cluster::new();
    let numbered = |number, digest: u8| NumberedDigest { number, digest: [digest; 32] };
    let (identity, own) = (cluster.identity("unit-1"), hello("unit-1"));
    let policies = KnownPolicies::new(numbered(0, 7));
    let listener =
        Listener::start(identity, TcpListener::bind("127.0.0.1:0").unwrap(), own, policies.clone()).unwrap();
    let dispatcher = cluster.identity("dispatcher");
    let try_with = |runs: NumberedDigest| {
        let hello = hello("dispatcher").with_policy(runs);
        connect(&dispatcher, listener.address(), "unit-1", &hello).map(|session| session.peer.runs)
    };
    let said = try_with(numbered(0, 8)).unwrap_err().to_string();
    let parts =
        ["the peer `unit-1` runs another policy, number 0 07070707", "number 0 08080808", "rivulet apply"];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    assert_eq!(try_with(numbered(2, 8)).unwrap(), Some(numbered(0, 7)));
    policies.adopt(numbered(3, 9));
    assert_eq!(try_with(numbered(2, 8)).unwrap(), Some(numbered(3, 9)));
    let said = try_with(numbered(3, 8)).unwrap_err().to_string();
    assert!(said.contains("under the same number"), "{said}");
}

#[test]
fn certificates_are_of_one_name_and_one_authority() {
    let cluster = Cluster::new();
    cluster.identity("unit-1");
    assert!(
        matches!(cluster.read("unit-1", "unit-2"), Err(IdentityError::OtherName(name)) if name == "unit-2")
    );
    let error = cluster.read("unit-9", "unit-9").unwrap_err().to_string();
    assert!(error.contains("unit-9.key") && error.contains("private key"), "{error}");
    assert!(cluster.authority.issue("not a name").is_err());
    // The authority of a folder stays the same.
    let again = Authority::open(cluster.folder.path()).unwrap();
    assert_eq!(again.certificate(), cluster.authority.certificate());
    again.issue_to(cluster.folder.path(), "unit-2").unwrap();
    let listener = listen(cluster.read("unit-2", "unit-2").unwrap());
    let unit = cluster.read("unit-1", "unit-1").unwrap();
    assert!(connect(&unit, listener.address(), "unit-2", &hello("unit-1")).is_ok());
}

#[test]
fn secrets_of_links_are_written_if_asked_for() {
    let cluster = Cluster::new();
    let listener = listen(cluster.identity("unit-1"));
    let path = cluster.folder.path().join("links.keys");
    let dispatcher = cluster.identity("dispatcher").with_key_log(KeyLog::open(&path).unwrap());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let session = connect(&dispatcher, listener.address(), "unit-1", &hello("dispatcher")).unwrap();
    let line = |secret: &[u8; 32], ends: &str| {
        let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("RIVULET_LINK_SECRET {:016x} {digits} {ends}\n", link::connection_id(secret))
    };
    let expected = line(&session.secrets.send, "dispatcher unit-1")
        + &line(&session.secrets.receive, "unit-1 dispatcher");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
}
