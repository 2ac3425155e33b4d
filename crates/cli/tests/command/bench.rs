//! `rivulet bench`: what it cannot measure.

use super::*;

#[test]
fn flows_that_end_are_refused_where_they_make_no_sense_or_no_tape() {
    let place = Place::new();
    let said = place.refused(1, "bench nat --flows 1M --flow-length 10000");
    assert!(said.contains("1,000,000 flows of 10,000 packets make too long a tape"), "{said}");
    let said = place.refused(1, "bench http --flow-length 3");
    assert!(said.contains("`http` measures flows that go on"), "{said}");
    place.refused(2, "bench nat --flow-length 3 --zipf");
    place.refused(2, "bench nat --flow-length 0");
}
