//! `http` reports the same however its streams are segmented, batched, reordered or moved.

use functions::http::State;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::http_support::conversations::{in_segments, turns};
use crate::http_support::moving::moved;
use crate::http_support::*;

fn config() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => Just(json!({ "anomalies": "alert" })),
        1 => Just(json!({ "smuggling": "off", "methods": ["GET"] })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn segmentation_changes_no_transaction(
        turns in turns(), config in config(), lens in prop::collection::vec(1usize..40, 1..8),
    ) {
        let whole = run(config.clone(), &in_segments(&turns, &[10_000]).segments);
        let cut = run(config, &in_segments(&turns, &lens).segments);
        // One packet reports its alerts before its events; several packets report their own each.
        let by_kind = |reported: &[String]| reported.iter().cloned().partition::<Vec<_>, _>(|line| line.starts_with("! "));
        prop_assert_eq!(by_kind(&cut.reported), by_kind(&whole.reported));
        prop_assert_eq!(cut.counters(), whole.counters());
    }

    #[test]
    fn batching_changes_nothing(turns in turns(), config in config(), lens in prop::collection::vec(1usize..40, 1..8)) {
        let segments = in_segments(&turns, &lens).segments;
        let alone = run(config.clone(), &segments);
        for batch in [2, 7, 64] {
            let mut bench = bench("http", &config);
            segments.chunks(batch).for_each(|segments| bench.batch(segments));
            let together = end(bench);
            prop_assert_eq!(&together.bench.told, &alone.bench.told);
            prop_assert_eq!(together.counters(), alone.counters());
        }
    }

    /// All state of a flow is in its record and its buffers.
    #[test]
    fn moving_changes_nothing(turns in turns(), config in config(), lens in prop::collection::vec(1usize..40, 1..8)) {
        let talk = in_segments(&turns, &lens);
        prop_assert_eq!(moved::<State>("http", &config, &talk, true), moved::<State>("http", &config, &talk, false));
    }
}
