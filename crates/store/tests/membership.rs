//! Units register themselves, and dispatchers find them, in a file and in etcd.
#![allow(clippy::unwrap_used, clippy::panic)] // A test that cannot go on has failed.

mod common;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::{Bench, EtcdBench, FileBench};
use store::membership::{MemberChange, Registration, TIME_TO_LIVE, UNITS, UnitMember, watch};
use store::{ClusterStore, Expected};

const SECOND: Duration = Duration::from_secs(1);

fn member(port: u16) -> UnitMember {
    UnitMember { address: format!("10.0.0.1:{port}"), incarnation: 7 }
}

fn shared(bench: &dyn Bench) -> Arc<dyn ClusterStore> {
    Arc::from(bench.open())
}

fn watched(bench: &dyn Bench) -> Receiver<MemberChange> {
    let (sender, changes) = channel();
    watch(shared(bench), move |change| sender.send(change).is_ok()).unwrap();
    changes
}

fn next(changes: &Receiver<MemberChange>) -> MemberChange {
    changes.recv_timeout(3 * TIME_TO_LIVE).unwrap()
}

fn joined(name: &str, port: u16) -> MemberChange {
    MemberChange::Joined { name: name.to_owned(), member: member(port) }
}

fn left(name: &str) -> MemberChange {
    MemberChange::Left { name: name.to_owned() }
}

fn suite(bench: &mut dyn Bench) {
    let store = shared(bench);
    let first = Registration::begin(shared(bench), "unit-1", &member(1));
    let changes = watched(bench);
    assert_eq!(next(&changes), joined("unit-1", 1));
    let second = Registration::begin(shared(bench), "unit-2", &member(2));
    assert_eq!(next(&changes), joined("unit-2", 2));
    // A unit that ends leaves at once.
    let began = Instant::now();
    drop(second);
    assert_eq!(next(&changes), left("unit-2"));
    assert!(began.elapsed() < 3 * SECOND);
    // One that crashed does not renew its lease.
    let lease = store.grant(2 * SECOND).unwrap();
    let value = serde_json::to_vec(&member(3)).unwrap();
    store.put(&format!("{UNITS}unit-3"), &value, Expected::Any, Some(lease)).unwrap();
    assert_eq!(next(&changes), joined("unit-3", 3));
    assert_eq!(next(&changes), left("unit-3"));
    // What is no unit is passed over.
    store.put(&format!("{UNITS}other"), b"text", Expected::Any, None).unwrap();
    // The store restarts, and its history is discarded: the watch goes on.
    bench.restart(&mut || std::thread::sleep(2 * SECOND));
    let store = shared(bench);
    for at in 0..10 {
        store.put("elsewhere", &[at], Expected::Any, None).unwrap();
    }
    store.compact(store.list("").unwrap().revision).unwrap();
    std::thread::sleep(6 * SECOND);
    let _fourth = Registration::begin(shared(bench), "unit-4", &member(4));
    assert_eq!(next(&changes), joined("unit-4", 4));
    // All the time, the first one was there.
    assert!(changes.try_recv().is_err());
    drop(first);
    assert_eq!(next(&changes), left("unit-1"));
}

#[test]
fn units_are_found_in_a_file() {
    suite(&mut FileBench::new());
}

#[test]
fn units_are_found_in_etcd() {
    if let Some(mut etcd) = EtcdBench::start() {
        suite(&mut etcd);
    }
}

#[test]
fn units_stay_while_etcd_is_down() {
    let Some(mut etcd) = EtcdBench::start() else { return };
    let _unit = Registration::begin(shared(&etcd), "unit-1", &member(1));
    let changes = watched(&etcd);
    assert_eq!(next(&changes), joined("unit-1", 1));
    etcd.stop();
    assert!(changes.recv_timeout(TIME_TO_LIVE + SECOND).is_err(), "silence of the store is no news");
    let _second = Registration::begin(shared(&etcd), "unit-2", &member(2));
    etcd.run();
    assert_eq!(next(&changes), joined("unit-2", 2));
    // A registration that somebody deletes is renewed.
    shared(&etcd).delete(&format!("{UNITS}unit-1"), Expected::Any).unwrap();
    assert_eq!([next(&changes), next(&changes)], [left("unit-1"), joined("unit-1", 1)]);
}
