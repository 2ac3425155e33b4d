use proptest::prelude::*;

use super::*;

/// Executes the pseudo-code of the paper (Eisenbud et al., section 3.4, figure "Population of
/// Maglev hashing lookup table"): all permutations written out, with `next` as each backend's
/// position in its own.
fn as_in_the_paper(backends: &[(u16, &str)], m: usize, seed: u64) -> Vec<u16> {
    let n = backends.len();
    let permutation: Vec<Vec<usize>> = backends
        .iter()
        .map(|(_, name)| {
            let (offset, skip) = permutation(name, m as u32, seed);
            (0..m).map(|j| (offset as usize + j * skip as usize) % m).collect()
        })
        .collect();
    let mut next = vec![0; n];
    let mut entry: Vec<i64> = vec![-1; m];
    let mut filled = 0;
    loop {
        for i in 0..n {
            let mut c = permutation[i][next[i]];
            while entry[c] >= 0 {
                next[i] += 1;
                c = permutation[i][next[i]];
            }
            entry[c] = i as i64;
            next[i] += 1;
            filled += 1;
            if filled == m {
                return entry.iter().map(|&i| backends[i as usize].0).collect();
            }
        }
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("server-{i:03}")).collect()
}

fn candidates<'a>(names: &'a [String], weight: impl Fn(usize) -> u16) -> Vec<Candidate<'a>> {
    names
        .iter()
        .enumerate()
        .map(|(i, name)| Candidate { number: i as u16, name, weight: weight(i) })
        .collect()
}

fn shares(table: &MaglevTable, count: usize) -> Vec<usize> {
    let mut shares = vec![0; count];
    table.slots().iter().for_each(|&number| shares[number as usize] += 1);
    shares
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_table_equals_that_of_the_paper(count in 1usize..20, size in prop::sample::select(vec![23u32, 251, 1009]), seed: u64) {
        let names = names(count);
        let table = MaglevTable::maglev(&candidates(&names, |_| 1), size, seed);
        let backends: Vec<_> = names.iter().enumerate().map(|(i, name)| (i as u16, name.as_str())).collect();
        prop_assert_eq!(table.slots(), &as_in_the_paper(&backends, size as usize, seed)[..]);
    }

    #[test]
    fn order_and_scale_of_weights_do_not_matter(
        weights in prop::collection::vec(0u16..20, 1..12),
        turn in 0usize..12,
        seed: u64,
    ) {
        let names = names(weights.len());
        let plain = candidates(&names, |i| weights[i]);
        let mut other = candidates(&names, |i| weights[i] * 7);
        other.rotate_left(turn % weights.len());
        prop_assert_eq!(MaglevTable::maglev(&plain, 1009, seed), MaglevTable::maglev(&other, 1009, seed));
        prop_assert_eq!(MaglevTable::modulo(&plain), MaglevTable::modulo(&other));
    }
}

#[test]
fn servers_have_nearly_equal_shares() {
    // The paper's figure 12: with 65537 slots the fullest server stays within a few percent of the
    // mean.
    let names = names(40);
    let shares = shares(&MaglevTable::maglev(&candidates(&names, |_| 1), 65_537, 1), 40);
    let (most, least) = (shares.iter().max().unwrap(), shares.iter().min().unwrap());
    assert!(most - least <= 1, "turns are taken in rounds: {shares:?}");
    let flows = 200_000u64;
    let table = MaglevTable::maglev(&candidates(&names, |_| 1), 65_537, 1);
    let mut loads = vec![0u64; 40];
    let mut state = 9;
    for _ in 0..flows {
        loads[table.pick(split_mix(&mut state)).unwrap() as usize] += 1;
    }
    let most = *loads.iter().max().unwrap() as f64;
    assert!(most / (flows as f64 / 40.0) <= 1.15, "{loads:?}");
}

#[test]
fn when_a_server_goes_few_slots_of_the_others_change() {
    let names = names(30);
    let before = MaglevTable::maglev(&candidates(&names, |_| 1), 65_537, 5);
    for gone in [0, 7, 29] {
        let after = MaglevTable::maglev(&candidates(&names, |i| u16::from(i != gone)), 65_537, 5);
        let kept = before.slots().iter().zip(after.slots()).filter(|&(&b, _)| b as usize != gone);
        let changed = kept.clone().filter(|(b, a)| b != a).count();
        let fraction = changed as f64 / kept.count() as f64;
        assert!(fraction < 0.04, "{fraction} of the other servers' slots changed");
        assert!(after.slots().iter().all(|&a| a as usize != gone));
    }
}

#[test]
fn shares_follow_weights() {
    let names = names(6);
    let weights = [1u16, 2, 3, 10, 0, 100];
    let total: u16 = weights.iter().sum();
    for table in [
        MaglevTable::maglev(&candidates(&names, |i| weights[i]), 65_537, 3),
        MaglevTable::modulo(&candidates(&names, |i| weights[i])),
    ] {
        let shares = shares(&table, 6);
        let slots = table.slots().len() as f64;
        for (share, weight) in shares.iter().zip(weights) {
            let wanted = f64::from(weight) / f64::from(total);
            assert!((*share as f64 / slots - wanted).abs() <= 0.02 * wanted + 1e-4, "{shares:?}");
        }
    }
}

#[test]
fn a_table_without_servers_returns_none() {
    assert_eq!(MaglevTable::maglev(&[], 251, 0).pick(7), None);
    assert_eq!(MaglevTable::modulo(&[]).pick(7), None);
    let names = names(2);
    assert_eq!(MaglevTable::maglev(&candidates(&names, |_| 0), 251, 0).pick(7), None);
}

#[test]
fn the_slots_of_a_name_are_stable_across_versions() {
    // Machines of different versions may share a service: a change here changes the server of every
    // flow.
    assert_eq!(permutation("web1", 65_537, 7), permutation("web1", 65_537, 7));
    assert_ne!(permutation("web1", 65_537, 7), permutation("web1", 65_537, 8));
    assert_ne!(permutation("web1", 65_537, 7), permutation("web2", 65_537, 7));
    assert_ne!(permutation("a", 65_537, 7), permutation("a\0", 65_537, 7));
}
