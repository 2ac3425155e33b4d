//! Handshakes: nodes of one cluster agree on keys, and all others are refused.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cluster::identity::{
    Authority, CertifiedRole, CredentialError, HandshakeError, Identity, IdentityError, IdentityFiles,
    KeyLog, Listener, Session, connect, holders,
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
        role: if name.starts_with("dispatcher") { Role::Dispatcher } else { Role::Unit },
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
        let authority = Authority::open(folder.path(), None).unwrap();
        Cluster { folder, authority }
    }

    fn issue(&self, subject: &str) {
        self.authority.issue_named(self.folder.path(), subject).unwrap();
    }

    fn identity(&self, name: &str) -> Identity {
        self.issue(name);
        self.read(name, name).unwrap()
    }

    /// Reads the files of one node as the identity of another name.
    fn read(&self, node: &str, name: &str) -> Result<Identity, IdentityError> {
        Identity::read(name, &IdentityFiles::in_folder(self.folder.path(), node))
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
    assert_eq!(server.ends.remote, SocketAddr::from(([127, 0, 0, 1], 9)));
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
    // The node has another name than expected.
    assert!(try_as(&dispatcher, "unit-2", &hello("dispatcher")).is_some());
    wait_for_refusals(&listener, 2);
    // The client states another name than its certificate.
    assert!(try_as(&dispatcher, "unit-1", &hello("unit-7")).is_some());
    wait_for_refusals(&listener, 3);
    // The client runs another policy, or has no common version.
    let other = Hello { policy: [8; 32], ..hello("dispatcher") };
    assert!(
        matches!(try_as(&dispatcher, "unit-1", &other), Some(HandshakeError::Policy { peer, .. }) if peer == "unit-1")
    );
    wait_for_refusals(&listener, 4);
    let later = Hello { versions: (VERSION + 3, VERSION + 2), ..hello("dispatcher") };
    let _ = try_as(&dispatcher, "unit-1", &later);
    wait_for_refusals(&listener, 5);
    // The client does not speak TLS.
    TcpStream::connect(address).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    wait_for_refusals(&listener, 6);
    assert!(listener.poll().is_none());
    assert!(connect(&dispatcher, address, "unit-1", &hello("dispatcher")).is_ok());
}

/// A node of an earlier version, without numbers of policies, states the policy of the other end.
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

/// An older policy is no reason for a refusal. Two policies that were never applied must be the
/// same.
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
    assert!(cluster.authority.issue_named(cluster.folder.path(), "unit:not a name").is_err());
    // The authority of a folder stays the same.
    let again = Authority::open(cluster.folder.path(), None).unwrap();
    assert_eq!(again.certificate(), cluster.authority.certificate());
    again.issue_named(cluster.folder.path(), "unit-2").unwrap();
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

/// Returns the reason why a handshake was refused by a certificate.
fn cause_of(outcome: Result<Session, HandshakeError>) -> CredentialError {
    match outcome {
        Err(HandshakeError::Credential { cause, .. }) => cause,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is taken"),
    }
}

/// A key for one role is useless in another, at either end, whatever its holder states.
#[test]
fn roles_are_those_of_certificates() {
    let cluster = Cluster::new();
    let other = cluster.identity("dispatcher");
    let door = listen(other.clone());
    let mut refused = 0;
    for role in CertifiedRole::ALL.into_iter().filter(|role| role.is_issued()) {
        for said in [CertifiedRole::Unit, CertifiedRole::Dispatcher] {
            let name = format!("{said}-by-{role}");
            cluster.issue(&format!("{role}:{name}"));
            let identity = cluster.read(&name, &name).unwrap();
            // As the connecting end.
            let taken = connect(&identity, door.address(), "dispatcher", &hello(&name)).is_ok();
            assert_eq!(taken, role == said, "{name}");
            refused += u64::from(!taken);
            wait_for_refusals(&door, refused);
            // As the listening end.
            let listener = listen(identity.clone());
            match connect(&other, listener.address(), &name, &hello("dispatcher")) {
                Ok(_) => assert_eq!(role, said),
                outcome => {
                    let cause = cause_of(outcome).to_string();
                    let expected =
                        format!("the certificate of `{name}` is for the role {role}, and not for {said}");
                    assert_eq!(cause, expected);
                }
            }
            assert_eq!(identity.check_role(said).is_ok(), role == said);
        }
    }
    assert_eq!(refused, 10);
}

/// Clusters of one authority do not connect, and both ends report the reason.
#[test]
fn nodes_of_another_cluster_are_refused() {
    let cluster = Cluster::new();
    let listener = listen(cluster.identity("unit-1"));
    let other = TempDir::new().unwrap();
    // The same key, another name.
    std::fs::copy(cluster.folder.path().join("ca.key"), other.path().join("ca.key")).unwrap();
    std::fs::copy(cluster.folder.path().join("ca.pem"), other.path().join("ca.pem")).unwrap();
    std::fs::write(
        other.path().join("roles.toml"),
        "cluster = \"elsewhere\"\n[roles]\ndispatcher = [\"d\"]\n",
    )
    .unwrap();
    issue_without_role(other.path(), "d");
    let dispatcher = Identity::read("d", &IdentityFiles::in_folder(other.path(), "d")).unwrap();
    let said = Hello { role: Role::Dispatcher, ..hello("d") };
    let cause = cause_of(connect(&dispatcher, listener.address(), "unit-1", &said));
    assert_eq!(cause.to_string(), "the certificate is for the cluster `rivulet`, and not for `elsewhere`");
    wait_for_refusals(&listener, 1);
}

/// Issues a certificate of a folder's authority without a role, as other programs do.
fn issue_without_role(folder: &std::path::Path, name: &str) {
    issue_with(folder, name, |_| {});
}

/// Issues a certificate; `change` sets its parameters.
fn issue_with(folder: &std::path::Path, name: &str, change: impl FnOnce(&mut rcgen::CertificateParams)) {
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    let key = rcgen::KeyPair::from_pem(&read("ca.key")).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(&read("ca.pem"), key).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    change(&mut params);
    let certificate = params.signed_by(&key, &issuer).unwrap();
    std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
    std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

/// Certificates of other programs have the roles of a file, or none.
#[test]
fn certificates_without_a_role_are_refused_unless_a_file_has_it() {
    let cluster = Cluster::new();
    let folder = cluster.folder.path();
    issue_without_role(folder, "u1.example");
    let error = cluster.read("u1.example", "u1.example").err().unwrap().to_string();
    assert!(error.contains("has no role") && error.contains("rivulet cluster init"), "{error}");
    // A node with a role refuses it, too.
    let listener = listen(cluster.identity("unit-1"));
    let stranger = TempDir::new().unwrap();
    for file in ["ca.pem", "u1.example.pem", "u1.example.key"] {
        std::fs::copy(folder.join(file), stranger.path().join(file)).unwrap();
    }
    let roles = "[roles]\nunit = [\"u1.example\", \"unit-1\"]\n";
    std::fs::write(stranger.path().join("roles.toml"), roles).unwrap();
    let unit =
        Identity::read("u1.example", &IdentityFiles::in_folder(stranger.path(), "u1.example")).unwrap();
    let meet = || connect(&unit, listener.address(), "unit-1", &hello("u1.example"));
    assert!(meet().is_err());
    wait_for_refusals(&listener, 1);
    // Now it has the file as well, and needs no restart.
    std::fs::write(folder.join("roles.toml"), roles).unwrap();
    meet().unwrap();
    // A fault in the file is reported, and its former content stays in force.
    std::fs::write(folder.join("roles.toml"), "[roles]\nboss = [\"u1.example\"]\n").unwrap();
    meet().unwrap();
    let fault = cluster.read("unit-1", "unit-1").unwrap_err().to_string();
    assert!(fault.contains("roles.toml:2: `boss` is no role"), "{fault}");
}

/// An expired certificate gets no new links: no former session is resumed.
#[test]
fn ended_certificates_get_no_new_links() {
    let cluster = Cluster::new();
    let listener = listen(cluster.identity("unit-1"));
    issue_with(cluster.folder.path(), "unit-2", |params| {
        let role = "rivulet://rivulet/unit/unit-2".try_into().unwrap();
        params.subject_alt_names.push(rcgen::SanType::URI(role));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + now + Duration::from_secs(2);
    });
    let unit = cluster.read("unit-2", "unit-2").unwrap();
    let meet = || connect(&unit, listener.address(), "unit-1", &hello("unit-2")).is_ok();
    assert!(meet() && meet());
    let began = Instant::now();
    while meet() {
        assert!(began.elapsed() < Duration::from_secs(20), "it is let in after its end");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// New certificates and revocation lists are used without a restart; bad files are not.
#[test]
fn files_are_read_again_at_handshakes() {
    let cluster = Cluster::new();
    let folder = cluster.folder.path();
    let listener = listen(cluster.identity("unit-1"));
    let dispatcher = cluster.identity("dispatcher");
    let meet = |identity: &Identity| connect(identity, listener.address(), "unit-1", &hello(identity.name()));
    let before = dispatcher.valid();
    meet(&dispatcher).unwrap();
    // The listening end's certificate is unusable, so the former one stays.
    std::fs::write(folder.join("unit-1.pem"), "nothing").unwrap();
    meet(&dispatcher).unwrap();
    // Neither an expired certificate is used, nor a certificate that other nodes would refuse.
    cluster.authority.issue_to(folder, &"unit-1".parse().unwrap(), 0).unwrap();
    std::thread::sleep(Duration::from_millis(1_100));
    meet(&dispatcher).unwrap();
    let authority = std::fs::read(folder.join("ca.pem")).unwrap();
    Authority::new("rivulet").unwrap().issue_named(folder, "unit-1").unwrap();
    meet(&dispatcher).unwrap();
    cluster.issue("unit-1");
    meet(&dispatcher).unwrap();
    let other = Authority::new("rivulet").unwrap();
    std::fs::write(folder.join("ca.pem"), other.certificate()).unwrap();
    meet(&dispatcher).unwrap();
    std::fs::write(folder.join("ca.pem"), authority).unwrap();
    cluster.authority.issue_to(folder, &"dispatcher".parse().unwrap(), 10).unwrap();
    meet(&dispatcher).unwrap();
    assert!(dispatcher.valid().1 < before.1, "{:?}", dispatcher.valid());
    // Another certificate with that name is revoked, but not this one.
    let revoke = |names: &[&str]| {
        let files: Vec<_> = names.iter().map(|name| folder.join(format!("{name}.pem"))).collect();
        cluster.authority.revoke(folder, &files, &[]).unwrap();
    };
    cluster.issue("unit-2");
    let unit = cluster.read("unit-2", "unit-2").unwrap();
    revoke(&["unit-2"]);
    assert!(meet(&unit).is_err());
    meet(&dispatcher).unwrap();
    revoke(&["dispatcher"]);
    assert!(meet(&dispatcher).is_err() && meet(&unit).is_err(), "the list keeps its first certificate");
    cluster.issue("dispatcher");
    meet(&dispatcher).unwrap();
}

/// Files that are no revocation list of the authority lift no revocation.
#[test]
fn damaged_lists_lift_no_revocation() {
    let cluster = Cluster::new();
    let folder = cluster.folder.path();
    let listener = listen(cluster.identity("unit-1"));
    let (unit, dispatcher) = (cluster.identity("unit-2"), cluster.identity("dispatcher"));
    let meet = |identity: &Identity| {
        let outcome = connect(identity, listener.address(), "unit-1", &hello(identity.name()));
        outcome.is_ok()
    };
    assert!(meet(&unit) && meet(&dispatcher));
    let list = folder.join("crl.pem");
    cluster.authority.revoke(folder, &[], &["unit-2"]).unwrap();
    let good = std::fs::read(&list).unwrap();
    assert!(!meet(&unit) && meet(&dispatcher));
    let other = TempDir::new().unwrap();
    let stranger = Authority::open(other.path(), None).unwrap();
    stranger.issue_named(other.path(), "unit-9").unwrap();
    stranger.revoke(other.path(), &[], &["unit-9"]).unwrap();
    let others = std::fs::read(other.path().join("crl.pem")).unwrap();
    let certificate = std::fs::read(folder.join("unit-1.pem")).unwrap();
    let half = good[..good.len() / 2].to_vec();
    for content in [Vec::new(), vec![0xaa; 300], half, certificate, others.clone()] {
        std::fs::write(&list, &content).unwrap();
        assert!(!meet(&unit), "{}", String::from_utf8_lossy(&content));
        assert!(meet(&dispatcher), "{}", String::from_utf8_lossy(&content));
    }
    std::fs::remove_file(&list).unwrap();
    assert!(!meet(&unit) && meet(&dispatcher));
    // Nor does a process start with such a file.
    std::fs::write(&list, "").unwrap();
    let fault = cluster.read("unit-1", "unit-1").unwrap_err().to_string();
    assert!(fault.contains("crl.pem"), "{fault}");
    // With two authorities, each has its own list.
    let own = std::fs::read(folder.join("ca.pem")).unwrap();
    std::fs::write(folder.join("ca.pem"), [own, stranger.certificate().into()].concat()).unwrap();
    for lists in [[&others[..], &good], [&good, &others]] {
        std::fs::write(&list, lists.concat()).unwrap();
        assert!(!meet(&unit) && meet(&dispatcher));
    }
}

/// A node's folder, which lacks the authority's key, creates no other authority; and a revocation
/// covers all certificates of a name, including former ones.
#[test]
fn authorities_are_not_replaced_and_know_what_they_have_issued() {
    let cluster = Cluster::new();
    let folder = cluster.folder.path();
    let listener = listen(cluster.identity("unit-1"));
    let copied = TempDir::new().unwrap();
    cluster.issue("dispatcher");
    for file in ["ca.pem", "dispatcher.pem", "dispatcher.key"] {
        std::fs::copy(folder.join(file), copied.path().join(file)).unwrap();
    }
    let fault = Authority::open(copied.path(), None).err().unwrap().to_string();
    assert!(fault.contains("ca.key"), "{fault}");
    for name in ["unit:ca", "unit:crl"] {
        assert!(cluster.authority.issue_named(folder, name).is_err());
    }
    assert!(cluster.authority.revoke(folder, &[folder.join("ca.pem")], &[]).is_err());
    // The former certificate.
    let files = IdentityFiles::in_folder(copied.path(), "dispatcher");
    let before = Identity::read("dispatcher", &files).unwrap();
    let now = cluster.identity("dispatcher");
    let meet = |identity: &Identity| {
        let outcome = connect(identity, listener.address(), "unit-1", &hello(identity.name()));
        outcome.is_ok()
    };
    assert!(meet(&before) && meet(&now));
    assert_eq!(cluster.authority.revoke(folder, &[], &["dispatcher"]).unwrap(), 2);
    assert!(!meet(&before) && !meet(&now));
}

/// Reissued certificates keep role and hosts; old authorities stay usable.
#[test]
fn certificates_are_issued_again() {
    let cluster = Cluster::new();
    let folder = cluster.folder.path();
    for subject in ["unit:u1", "dispatcher=10.0.0.1,a.example"] {
        cluster.issue(subject);
    }
    issue_without_role(folder, "old");
    issue_without_role(folder, "unit-7");
    let held = holders(folder).unwrap();
    let of = |name: &str| held.iter().find(|holder| holder.name == name).unwrap();
    assert_eq!((of("u1").subject.clone(), of("u1").is_due()), (Some("unit:u1".parse().unwrap()), false));
    let mut hosts = of("dispatcher").subject.clone().unwrap().hosts;
    hosts.sort();
    assert_eq!(hosts, ["10.0.0.1", "a.example"]);
    // Former certificates are due, and the name may imply the role.
    assert!(of("old").subject.is_none() && of("old").is_due());
    assert_eq!(
        (of("unit-7").subject.clone(), of("unit-7").is_due()),
        (Some("unit-7".parse().unwrap()), true)
    );
    cluster.authority.issue_to(folder, &"unit:u1".parse().unwrap(), 0).unwrap();
    let held = holders(folder).unwrap();
    assert!(held.iter().find(|holder| holder.name == "u1").unwrap().is_due());
    // The authority's certificate has another end, and former certificates stay valid.
    let listener = listen(cluster.identity("unit-1"));
    let dispatcher = cluster.read("dispatcher", "dispatcher").unwrap();
    let before = std::fs::read(folder.join("ca.pem")).unwrap();
    Authority::read(folder).unwrap().renew(folder).unwrap();
    assert_ne!(std::fs::read(folder.join("ca.pem")).unwrap(), before);
    connect(&dispatcher, listener.address(), "unit-1", &hello("dispatcher")).unwrap();
}
