//! The same calls give the same bytes.

use proptest::prelude::*;

use crate::bench::{Faults, Pair, Random, small};

fn sent(seed: u64) -> Vec<u8> {
    let mut pair = Pair::new(&small(1_452), seed);
    pair.is_recording = true;
    let faults = Faults {
        until_ns: u64::MAX,
        lost_permille: 100,
        reordered_permille: 100,
        reordered_by_ns: 500_000,
        ..Faults::default()
    };
    pair.faults = [faults.clone(), faults];
    let mut random = Random::new(seed);
    for _ in 0..300 {
        let end = random.below(2) as usize;
        let bytes = vec![1; random.below(2_000) as usize];
        let _ = pair.links[end].send_message(random.below(4) as u16, &bytes);
        let _ = pair.links[end].send_packet(&bytes[..bytes.len() / 2]);
        pair.step();
    }
    pair.run_until(1_000_000_000);
    std::mem::take(&mut pair.sent)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn one_seed_gives_the_same_bytes(seed: u64) {
        prop_assert!(sent(seed) == sent(seed));
        prop_assert!(sent(seed) != sent(!seed));
    }
}
