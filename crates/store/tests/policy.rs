//! The policy of a cluster in its store: one of two with the same number is kept.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

use store::policy::{KeepError, StoredPolicy, keep, load, present_number};
use store::{ClusterStore, Expected, FileStore, VALUE_LEN_MAX};

fn policy(number: u64, name: &str, node: &str, len: usize) -> StoredPolicy {
    let contents = (0..len).map(|at| (at % 251) as u8 ^ number as u8).collect();
    let digest = format!("{name}-{number}");
    StoredPolicy { number, digest, name: name.to_owned(), node: node.to_owned(), contents }
}

#[test]
fn the_present_policy_is_the_last_one_that_was_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::open(&folder.path().join("cluster.redb")).unwrap();
    assert_eq!((present_number(&store), load(&store)), (Ok(0), Ok(None)));
    for (number, len) in [(1, 10), (2, 3 * VALUE_LEN_MAX + 1), (3, VALUE_LEN_MAX), (4, 0)] {
        let next = policy(number, "site.rvl", "dispatcher", len);
        assert_eq!(keep(&store, &next), Ok(()));
        assert_eq!(keep(&store, &next), Ok(()), "again");
        assert_eq!((present_number(&store), load(&store)), (Ok(number), Ok(Some(next))));
    }
    let parts = store.list("rivulet/policy/parts/").unwrap();
    assert_eq!(parts.entries.len(), 0, "parts of those before are gone: {parts:?}");
}

#[test]
fn of_two_policies_with_a_number_the_first_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.redb");
    let stores = [(); 2].map(|()| FileStore::open(&file).unwrap());
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = stores
            .iter()
            .enumerate()
            .map(|(at, store)| {
                let own = policy(1, &format!("n{at}.rvl"), &format!("dispatcher-{at}"), 100_000);
                scope.spawn(move || keep(store, &own))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let winner = outcomes.iter().position(Result::is_ok).unwrap();
    let Err(KeepError::Overtaken { node, name, number }) = &outcomes[1 - winner] else {
        panic!("{outcomes:?}")
    };
    assert_eq!((node, name, number), (&format!("dispatcher-{winner}"), &format!("n{winner}.rvl"), &1));
    let present = load(&stores[0]).unwrap().unwrap();
    assert_eq!((present.number, &present.name), (1, name));
    let late = keep(&stores[0], &policy(1, "late.rvl", "dispatcher-7", 10)).unwrap_err().to_string();
    assert!(late.contains("has applied") && late.contains("as policy 1"), "{late}");
}

#[test]
fn damaged_entries_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::open(&folder.path().join("cluster.redb")).unwrap();
    keep(&store, &policy(1, "site.rvl", "dispatcher", 10)).unwrap();
    store.delete("rivulet/policy/parts/site.rvl-1/0000", Expected::Any).unwrap();
    assert!(load(&store).unwrap_err().to_string().contains("all parts of the policy site.rvl-1"));
    store.put("rivulet/policy/present", b"[]", Expected::Any, None).unwrap();
    assert!(load(&store).unwrap_err().to_string().contains("as JSON"));
}
