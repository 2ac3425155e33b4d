//! One suite that the store in a file and the one in etcd pass.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

mod common;

use std::time::{Duration, Instant};

use common::{Bench, EtcdBench, FileBench, issue, wait_until};
use store::{
    ClusterStore, EtcdFiles, EtcdStore, Expected, FileStore, HISTORY_MAX, KEY_LEN_MAX, LeaseId, StoreChange,
    StoreEntry, StoreError, VALUE_LEN_MAX,
};

const SECOND: Duration = Duration::from_secs(1);

fn suite(bench: &mut dyn Bench) {
    let store = bench.open();
    keys_have_revisions(&*store);
    prefixes_are_listed_in_order(&*store);
    changes_follow_a_listing(&*store, &*bench.open());
    history_is_compacted(&*store);
    leases_expire(&*store);
    limits_hold(&*store);
    drop(store);
    everything_survives_a_restart(bench);
}

fn conflict(key: &str) -> StoreError {
    StoreError::Conflict { key: key.to_owned() }
}

fn keys_have_revisions(store: &dyn ClusterStore) {
    assert_eq!(store.get("a/1"), Ok(None));
    let first = store.put("a/1", b"one", Expected::Absent, None).unwrap();
    assert_eq!(store.put("a/1", b"two", Expected::Absent, None), Err(conflict("a/1")));
    assert_eq!(store.put("a/1", b"two", Expected::Revision(first + 1), None), Err(conflict("a/1")));
    let entry = StoreEntry { key: "a/1".to_owned(), value: b"one".to_vec(), revision: first };
    assert_eq!(store.get("a/1"), Ok(Some(entry)));
    let second = store.put("a/1", b"", Expected::Revision(first), None).unwrap();
    assert!(second > first);
    assert_eq!(store.get("a/1").unwrap().map(|entry| (entry.value, entry.revision)), Some((vec![], second)));
    assert_eq!(store.delete("a/1", Expected::Revision(first)), Err(conflict("a/1")));
    assert_eq!(store.delete("a/1", Expected::Revision(second)), Ok(true));
    assert_eq!(store.delete("a/1", Expected::Any), Ok(false));
    assert_eq!(store.get("a/1"), Ok(None));
}

fn prefixes_are_listed_in_order(store: &dyn ClusterStore) {
    for key in ["b/2", "b/10", "b/", "b", "c/1", "b0"] {
        store.put(key, key.as_bytes(), Expected::Any, None).unwrap();
    }
    let keys = |prefix| -> Vec<String> {
        store.list(prefix).unwrap().entries.into_iter().map(|entry| entry.key).collect()
    };
    assert_eq!(keys("b/"), ["b/", "b/10", "b/2"]);
    assert_eq!(keys("none/"), Vec::<String>::new());
    assert_eq!(keys(""), ["b", "b/", "b/10", "b/2", "b0", "c/1"]);
}

fn changes_follow_a_listing(store: &dyn ClusterStore, other: &dyn ClusterStore) {
    let revision = store.list("w/").unwrap().revision;
    let began = Instant::now();
    assert_eq!(store.changes("w/", revision, SECOND / 2), Ok(vec![]));
    assert!(began.elapsed() >= SECOND / 2 && began.elapsed() < 3 * SECOND);
    let first = other.put("w/1", b"1", Expected::Any, None).unwrap();
    other.put("elsewhere", b"", Expected::Any, None).unwrap();
    other.delete("w/1", Expected::Any).unwrap();
    let mut changes = store.changes("w/", revision, 5 * SECOND).unwrap();
    while changes.len() < 2 {
        let after = changes.last().map(revision_of).unwrap();
        changes.extend(store.changes("w/", after, 5 * SECOND).unwrap());
    }
    let entry = StoreEntry { key: "w/1".to_owned(), value: b"1".to_vec(), revision: first };
    assert_eq!(changes[0], StoreChange::Put(entry));
    assert!(
        matches!(&changes[1], StoreChange::Deleted { key, revision } if key == "w/1" && *revision > first)
    );
    // A call that waits returns soon after the change.
    let after = revision_of(&changes[1]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let changes = store.changes("w/", after, 20 * SECOND);
            (changes, Instant::now())
        });
        std::thread::sleep(SECOND / 2);
        let written = Instant::now();
        other.put("w/2", b"2", Expected::Any, None).unwrap();
        let (changes, at) = waiting.join().unwrap();
        assert_eq!(changes.unwrap().len(), 1);
        assert!(at.saturating_duration_since(written) < SECOND, "{:?}", at - written);
    });
}

fn revision_of(change: &StoreChange) -> u64 {
    match change {
        StoreChange::Put(entry) => entry.revision,
        StoreChange::Deleted { revision, .. } | StoreChange::Refused { revision } => *revision,
    }
}

fn history_is_compacted(store: &dyn ClusterStore) {
    let before = store.list("").unwrap().revision;
    for value in 0..5 {
        store.put("h/1", &[value], Expected::Any, None).unwrap();
    }
    let last = store.put("h/1", b"last", Expected::Any, None).unwrap();
    store.compact(last - 1).unwrap();
    assert!(matches!(
        store.changes("h/", before, SECOND),
        Err(StoreError::Compacted { oldest }) if oldest > before
    ));
    // A watch continues after another listing.
    let listing = store.list("h/").unwrap();
    assert_eq!(listing.entries[0].value, b"last");
    store.put("h/1", b"later", Expected::Any, None).unwrap();
    assert_eq!(store.changes("h/", listing.revision, SECOND).unwrap().len(), 1);
    assert!(matches!(store.compact(last + 1_000), Err(StoreError::Refused { .. })));
}

fn leases_expire(store: &dyn ClusterStore) {
    let lease = store.grant(2 * SECOND).unwrap();
    let revision = store.put("l/1", b"", Expected::Any, Some(lease)).unwrap();
    store.put("l/2", b"", Expected::Any, Some(lease)).unwrap();
    // Written again without the lease, a key stays.
    store.put("l/2", b"", Expected::Any, None).unwrap();
    for _ in 0..4 {
        std::thread::sleep(SECOND);
        assert!(store.keep_alive(lease).unwrap() >= SECOND);
        assert!(store.get("l/1").unwrap().is_some());
    }
    let mut changes = store.changes("l/1", revision, 20 * SECOND).unwrap();
    assert!(matches!(changes.pop(), Some(StoreChange::Deleted { key, .. }) if key == "l/1"));
    assert!(store.get("l/1").unwrap().is_none() && store.get("l/2").unwrap().is_some());
    let expired = StoreError::LeaseExpired(lease);
    assert_eq!(store.keep_alive(lease), Err(expired.clone()));
    assert_eq!(store.put("l/3", b"", Expected::Any, Some(lease)), Err(expired.clone()));
    assert_eq!(store.revoke(lease), Err(expired));
    assert!(store.put("l/3", b"", Expected::Any, Some(LeaseId(12_345))).is_err());
    let lease = store.grant(60 * SECOND).unwrap();
    store.put("l/4", b"", Expected::Any, Some(lease)).unwrap();
    store.revoke(lease).unwrap();
    assert_eq!(store.get("l/4"), Ok(None));
}

fn limits_hold(store: &dyn ClusterStore) {
    let key = "k".repeat(KEY_LEN_MAX);
    store.put(&key, &vec![0; VALUE_LEN_MAX], Expected::Any, None).unwrap();
    assert_eq!(store.get(&key).unwrap().unwrap().value.len(), VALUE_LEN_MAX);
    let long_key = store.put(&format!("{key}k"), b"", Expected::Any, None);
    let long_value = store.put("v", &vec![0; VALUE_LEN_MAX + 1], Expected::Any, None);
    for outcome in [long_key, long_value] {
        assert!(matches!(outcome, Err(StoreError::TooLong { .. })), "{outcome:?}");
    }
}

fn everything_survives_a_restart(bench: &mut dyn Bench) {
    let (revision, lease) = {
        let store = bench.open();
        let lease = store.grant(5 * SECOND).unwrap();
        store.put("r/leased", b"", Expected::Any, Some(lease)).unwrap();
        (store.put("r/1", b"kept", Expected::Any, None).unwrap(), lease)
    };
    bench.restart(&mut || {});
    let store = bench.open();
    assert_eq!(store.get("r/1").unwrap().unwrap().revision, revision);
    assert!(store.keep_alive(lease).is_ok());
    assert!(store.put("r/1", b"", Expected::Revision(revision), None).unwrap() > revision);
    assert_eq!(store.changes("r/", revision, SECOND).unwrap().len(), 1);
    wait_until("the lease expires", || store.get("r/leased") == Ok(None));
}

#[test]
fn file_conforms() {
    suite(&mut FileBench::new());
}

#[test]
fn etcd_conforms() {
    if let Some(mut etcd) = EtcdBench::start() {
        suite(&mut etcd);
    }
}

#[test]
fn etcd_with_tls_conforms() {
    if let Some(mut etcd) = EtcdBench::start_with_tls() {
        suite(&mut etcd);
    }
}

/// Neither end trusts certificates of another authority.
#[test]
fn etcd_of_another_authority_is_refused() {
    let Some(etcd) = EtcdBench::start_with_tls() else { return };
    let other = tempfile::TempDir::new().unwrap();
    issue(other.path());
    let there = [(other.path().join("ca.pem"), "node"), (etcd.file("ca.pem"), "stranger")];
    for end in ["pem", "key"] {
        std::fs::copy(other.path().join(format!("node.{end}")), etcd.file(&format!("stranger.{end}")))
            .unwrap();
    }
    for (authority, node) in there {
        let error = etcd.store_with(&authority, node).get("u/1").unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
        println!("{error}");
    }
    assert_eq!(etcd.store().get("u/1"), Ok(None));
}

/// A node shows its renewed certificate without a restart.
#[test]
fn changed_certificates_are_read_again() {
    let Some(etcd) = EtcdBench::start_with_tls() else { return };
    let other = tempfile::TempDir::new().unwrap();
    issue(other.path());
    let take = |from: &std::path::Path| {
        for end in ["pem", "key"] {
            std::fs::copy(from.join(format!("node.{end}")), etcd.file(&format!("changed.{end}"))).unwrap();
        }
    };
    take(other.path());
    let store = etcd.store_with(&etcd.file("ca.pem"), "changed");
    assert!(matches!(store.get("u/1"), Err(StoreError::Unreachable { .. })));
    take(&etcd.file(""));
    assert_eq!(store.get("u/1"), Ok(None));
}

#[test]
fn unreachable_etcd_is_an_error_within_a_bound() {
    let Some(mut etcd) = EtcdBench::start() else { return };
    let store = etcd.store();
    let revision = store.put("u/1", b"", Expected::Any, None).unwrap();
    etcd.stop();
    let began = Instant::now();
    for error in [store.get("u/1").unwrap_err(), store.changes("u/", revision, SECOND).unwrap_err()] {
        assert!(
            matches!(&error, StoreError::Unreachable { place, .. } if *place == etcd.endpoint()),
            "{error}"
        );
    }
    assert!(began.elapsed() < 8 * SECOND);
    etcd.run();
    assert_eq!(store.get("u/1").unwrap().unwrap().revision, revision);
    // Endpoints that are missing, or never answer, are skipped.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_endpoint = format!("http://{}", silent.local_addr().unwrap());
    let endpoints = ["http://127.0.0.1:1".to_owned(), silent_endpoint, etcd.endpoint()];
    let store = EtcdStore::new(&endpoints, None).unwrap();
    let began = Instant::now();
    assert!(store.get("u/1").unwrap().is_some());
    assert!(began.elapsed() < 8 * SECOND);
    let began = Instant::now();
    assert!(store.get("u/1").unwrap().is_some());
    assert!(began.elapsed() < SECOND, "the endpoint that answered is asked first");
}

#[test]
fn endpoints_and_files_that_cannot_be_used_are_refused() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("text");
    let files = EtcdFiles { authority: &file, certificate: &file, key: &file };
    let refused = |endpoints: &[&str], files| {
        let endpoints: Vec<_> = endpoints.iter().map(|&endpoint| endpoint.to_owned()).collect();
        EtcdStore::new(&endpoints, files).err().unwrap().to_string()
    };
    let address = "https://10.0.0.1:2379";
    assert!(refused(&[], None).contains("https://"));
    assert!(refused(&["10.0.0.1:2379"], None).contains("https://HOST:PORT"));
    assert!(refused(&[address], None).contains("expected the files"));
    assert!(refused(&[address], Some(files)).contains(&file.display().to_string()), "it is not there");
    std::fs::write(&file, "not a store, but longer than a header of one".repeat(100)).unwrap();
    assert!(refused(&[address], Some(files)).contains("in PEM"));
    for path in [file, folder.path().join("none/cluster.redb")] {
        let error = FileStore::open(&path).err().unwrap();
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}

#[test]
fn history_of_a_file_is_bounded() {
    let bench = FileBench::new();
    let store = bench.open();
    let first = store.put("k", b"", Expected::Any, None).unwrap();
    for _ in 0..HISTORY_MAX {
        store.put("k", b"", Expected::Any, None).unwrap();
    }
    assert_eq!(store.changes("k", first, Duration::ZERO).unwrap().len() as u64, HISTORY_MAX);
    store.put("k", b"", Expected::Any, None).unwrap();
    let oldest = first + 2;
    assert_eq!(store.changes("k", first, Duration::ZERO), Err(StoreError::Compacted { oldest }));
    assert_eq!(store.changes("k", oldest - 1, Duration::ZERO).unwrap().len() as u64, HISTORY_MAX);
}
