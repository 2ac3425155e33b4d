//! Units register themselves, and dispatchers find them, in a file and in etcd.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::{Bench, EtcdBench, FileBench, wait_until};
use store::membership::{MEMBERS_MAX, MemberChange, Registration, TIME_TO_LIVE, UNITS, UnitMember, watch};
use store::{ClusterStore, Expected};

const SECOND: Duration = Duration::from_secs(1);

fn member(port: u16) -> UnitMember {
    UnitMember { address: format!("10.0.0.1:{port}"), incarnation: 7 }
}

fn shared(bench: &dyn Bench) -> Arc<dyn ClusterStore> {
    Arc::from(bench.open())
}

fn watched(bench: &dyn Bench) -> Receiver<MemberChange> {
    counted(bench).0
}

/// Watches the members; also counts entries that are passed over.
fn counted(bench: &dyn Bench) -> (Receiver<MemberChange>, Arc<AtomicU64>) {
    let ((sender, changes), refused) = (channel(), Arc::<AtomicU64>::default());
    let counts = Arc::clone(&refused);
    watch(shared(bench), counts, move |change| sender.send(change).is_ok(), |_| {}).unwrap();
    (changes, refused)
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
    // A crashed unit does not renew its lease.
    let lease = store.grant(2 * SECOND).unwrap();
    let value = serde_json::to_vec(&member(3)).unwrap();
    store.put(&format!("{UNITS}unit-3"), &value, Expected::Any, Some(lease)).unwrap();
    assert_eq!(next(&changes), joined("unit-3", 3));
    assert_eq!(next(&changes), left("unit-3"));
    // What is no unit is passed over.
    store.put(&format!("{UNITS}other"), b"text", Expected::Any, None).unwrap();
    // The store restarts, and its history is discarded: the watch continues.
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

/// A store that is at an earlier revision than before is listed again, and the watch continues.
#[test]
fn units_are_found_after_etcd_is_restored() {
    let Some(mut etcd) = EtcdBench::start() else { return };
    let first = Registration::begin(shared(&etcd), "unit-1", &member(1));
    let changes = watched(&etcd);
    assert_eq!(next(&changes), joined("unit-1", 1));
    etcd.save_snapshot();
    // The watch is far beyond the snapshot.
    for port in 0..50 {
        let value = serde_json::to_vec(&member(port)).unwrap();
        shared(&etcd).put(&format!("{UNITS}other"), &value, Expected::Any, None).unwrap();
    }
    while next(&changes) != joined("other", 49) {}
    drop(first);
    assert_eq!(next(&changes), left("unit-1"));
    etcd.restore_snapshot();
    // The state of the snapshot counts.
    let mut both = [next(&changes), next(&changes)];
    both.sort_by_key(|change| matches!(change, MemberChange::Left { .. }));
    assert_eq!(both, [joined("unit-1", 1), left("other")]);
    let _second = Registration::begin(shared(&etcd), "unit-2", &member(2));
    while next(&changes) != joined("unit-2", 2) {}
    etcd.recreate();
    // Registrations come back by themselves.
    let _third = Registration::begin(shared(&etcd), "unit-3", &member(3));
    let mut news = Vec::new();
    while !(news.contains(&joined("unit-3", 3))
        && news.iter().filter(|&news| *news == joined("unit-2", 2)).count() == 1)
    {
        news.push(next(&changes));
    }
}

/// Entries that other programs have written do no harm.
#[test]
fn what_is_no_unit_is_passed_over() {
    let Some(etcd) = EtcdBench::start() else { return };
    let good = serde_json::to_string(&member(1)).unwrap();
    let (changes, refused) = counted(&etcd);
    let put = |name: &[u8], value: &[u8]| etcd.put_raw(&[UNITS.as_bytes(), name].concat(), value);
    let hostile: [(&[u8], String); 10] = [
        (b"", good.clone()),
        (b"../../etc/passwd", good.clone()),
        (b"\x1b[2Jname", good.clone()),
        (b"\xff\xfe", good.clone()),
        (&[b'x'; 4_000], good.clone()),
        (b"a", "A".repeat(1_400_000)),
        (b"b", good.replace(":1", "")),
        (b"c", good.replace("10.0.0.1", "a\\u001b[2J")),
        (b"d", good.replace("10.0.0.1", &"a".repeat(2_000))),
        (b"e", "[]".to_owned()),
    ];
    for (name, value) in &hostile {
        put(name, value.as_bytes());
    }
    for at in 0..12 {
        put(format!("long-{at}").as_bytes(), &vec![b'A'; 1_400_000]);
    }
    put(b"unit-1", good.as_bytes());
    assert_eq!(next(&changes), joined("unit-1", 1));
    // What was listed after a long message of the watch is counted again.
    wait_until("all are counted", || refused.load(Ordering::Relaxed) >= 22);
    // Another dispatcher lists them: they exceed an answer together.
    let (listed, refused) = counted(&etcd);
    assert_eq!(next(&listed), joined("unit-1", 1));
    wait_until("all are counted", || refused.load(Ordering::Relaxed) == 22);
    assert!(changes.try_recv().is_err() && listed.try_recv().is_err());
    // A unit writes its entry again when somebody has changed it.
    let _unit = Registration::begin(shared(&etcd), "unit-2", &member(2));
    assert_eq!(next(&changes), joined("unit-2", 2));
    put(b"unit-2", serde_json::to_string(&member(9)).unwrap().as_bytes());
    assert_eq!([next(&changes), next(&changes)], [joined("unit-2", 9), joined("unit-2", 2)]);
}

/// More units than there may be: known ones stay, and others are added when there is room.
#[test]
fn units_are_bounded() {
    let Some(etcd) = EtcdBench::start() else { return };
    let (changes, refused) = counted(&etcd);
    let store = shared(&etcd);
    let value = serde_json::to_vec(&member(1)).unwrap();
    store.put(&format!("{UNITS}z"), &value, Expected::Any, None).unwrap();
    assert_eq!(next(&changes), joined("z", 1));
    let names: Vec<String> = (0..MEMBERS_MAX + 5).map(|at| format!("g{at:05}")).collect();
    // Entries of one transaction are as late as each other.
    let (latest, others) = names.split_last().unwrap();
    etcd.put_all(others.iter().map(|name| format!("{UNITS}{name}")), &value);
    store.put(&format!("{UNITS}{latest}"), &value, Expected::Any, None).unwrap();
    let known: Vec<MemberChange> = (1..MEMBERS_MAX).map(|_| next(&changes)).collect();
    assert!(known.iter().all(|change| matches!(change, MemberChange::Joined { .. })));
    assert!(changes.recv_timeout(SECOND).is_err());
    assert_eq!(refused.load(Ordering::Relaxed), 6);
    // The first gives its place to the latest.
    store.delete(&format!("{UNITS}{}", names[0]), Expected::Any).unwrap();
    assert_eq!(next(&changes), left(&names[0]));
    assert_eq!(next(&changes), joined(latest, 1));
    assert!(changes.recv_timeout(SECOND).is_err());
}
