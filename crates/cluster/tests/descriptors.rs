//! A listener without free descriptors waits for one, counts that, and continues. The test has a
//! process of its own, because the limit applies to the process.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

use std::fs::File;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cluster::identity::{Authority, Identity, IdentityFiles, Listener};
use cluster::policies::KnownPolicies;
use cluster::wire::{Hello, Role, VERSION};
use rustix::net::{AddressFamily, SocketType, connect, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limit on descriptors.
const DESCRIPTORS: u64 = 64;

fn wait_for(counter: &AtomicU64, count: u64) {
    let began = Instant::now();
    while counter.load(Ordering::Relaxed) < count {
        assert!(began.elapsed() < Duration::from_secs(20), "{counter:?} is below {count}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn connections_wait_for_descriptors() {
    let folder = tempfile::TempDir::new().unwrap();
    Authority::open(folder.path(), None).unwrap().issue_named(folder.path(), "unit-1").unwrap();
    let identity = Identity::read("unit-1", &IdentityFiles::in_folder(folder.path(), "unit-1")).unwrap();
    let hello = Hello {
        versions: (VERSION, VERSION),
        name: "unit-1".to_owned(),
        incarnation: 1,
        policy: [7; 32],
        role: Role::Unit,
        port: 9,
        scope: String::new(),
        runs: None,
    };
    let policies = KnownPolicies::new(hello.running());
    let listener =
        Listener::start(identity, TcpListener::bind("127.0.0.1:0").unwrap(), hello, policies).unwrap();
    let client = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), ..limit }).unwrap();
    let taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(!taken.is_empty());
    connect(&client, &listener.address()).unwrap();
    wait_for(&listener.counters().not_taken, 2);
    assert_eq!(listener.counters().refused.load(Ordering::Relaxed), 0);
    drop(taken);
    drop(client);
    // It was accepted, and has sent no hello.
    wait_for(&listener.counters().refused, 1);
}
