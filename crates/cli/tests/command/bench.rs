//! `rivulet bench`: refused measurements.

use super::*;

#[test]
fn ending_flows_are_refused_where_the_workload_or_the_tape_forbids_them() {
    let place = Place::new();
    let said = place.refused(1, "bench nat --flows 1M --flow-length 10000");
    assert!(said.contains("1,000,000 flows of 10,000 packets are too many"), "{said}");
    let said = place.refused(1, "bench http --flow-length 3");
    assert!(said.contains("`http` has endless flows"), "{said}");
    place.refused(2, "bench nat --flow-length 3 --zipf");
    place.refused(2, "bench nat --flow-length 0");
}
