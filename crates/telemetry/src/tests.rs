use std::collections::BTreeMap;

use crate::{Family, Kind, Merge, MetricUnit, Record, Sample, help, record, replace_tables, report_table};

static LOST: Family = Family {
    name: "lost",
    kind: Kind::Counter,
    unit: MetricUnit::Own,
    help: "Losses, by reason.",
    outer_labels: &["port"],
    label: Some("reason"),
    known: &[],
};

record! {
    /// Counters of a door.
    #[derive(Clone, Default)]
    pub struct Door [port] {
        /// Openings of the [door](door.md). And more.
        pub opened: u64 = counter("door_opened"),
        /// By `visitor`.
        pub visits: BTreeMap<&'static str, u64> = counter("door_visits", visitor),
        /// Lost keys.
        pub keys: u64 = part(LOST, "keys"),
        /// Width.
        pub width: f64 = level("door_width"),
        /// Time open.
        pub open_ns: u64 = level_ns("door_open_seconds"),
        /// A name.
        pub name: String,
        /// Not shown.
        pub inner: u64 = hidden_sum(),
    }
}

fn samples(door: &Door) -> Vec<(&'static str, Option<String>, Sample)> {
    let mut all = Vec::new();
    door.visit(&mut |field, label, sample| {
        let family = field.family.unwrap();
        all.push((family.name, label.map(str::to_owned), sample.in_unit(family.unit)));
    });
    all
}

#[test]
fn samples_have_the_labels_of_their_declaration() {
    let door = Door {
        opened: 3,
        visits: [("cat", 2), ("dog", 1)].into(),
        keys: 4,
        width: 0.5,
        open_ns: 1_500_000_000,
        ..Door::default()
    };
    let label = |text: &str| Some(text.to_owned());
    assert_eq!(
        samples(&door),
        [
            ("door_opened", None, Sample::Count(3)),
            ("door_visits", label("cat"), Sample::Count(2)),
            ("door_visits", label("dog"), Sample::Count(1)),
            ("lost", label("keys"), Sample::Count(4)),
            ("door_width", None, Sample::Real(0.5)),
            ("door_open_seconds", None, Sample::Real(1.5)),
        ]
    );
    assert_eq!((door.count("keys"), door.count("name"), door.count("inner")), (Some(4), None, None));
    let labels: Vec<Vec<_>> =
        Door::FIELDS.iter().filter_map(|field| Some(field.family?.labels().collect())).collect();
    assert_eq!(labels[..3], [vec!["port"], vec!["port", "visitor"], vec!["port", "reason"]]);
}

#[test]
fn counters_are_added_and_levels_are_not() {
    let mut door = Door {
        opened: 1,
        visits: [("cat", 2)].into(),
        width: 0.5,
        name: "front".to_owned(),
        inner: 1,
        ..Door::default()
    };
    door.merge(&Door {
        opened: 2,
        visits: [("cat", 1), ("dog", 1)].into(),
        keys: 1,
        width: 9.0,
        open_ns: 7,
        inner: 2,
        ..Door::default()
    });
    assert_eq!((door.opened, door.keys, door.inner, door.open_ns), (3, 1, 3, 0));
    assert_eq!(door.visits, [("cat", 3), ("dog", 1)].into());
    assert_eq!((door.width, &*door.name), (0.5, "front"));
}

#[test]
fn texts_are_made_from_the_declaration() {
    assert_eq!(help(Door::FIELDS[0].help), "Openings of the door");
    assert_eq!(
        help("Frames not sent: `down`, or see [a](b) and [c](d.md)"),
        "Frames not sent: down, or see a and c"
    );
    let table = report_table(Door::FIELDS);
    assert!(table.contains("| `keys` | Lost keys. | `rivulet_lost_total{reason=\"keys\"}` |\n"), "{table}");
    assert!(table.contains("| `name` | A name. |  |\n") && !table.contains("inner"), "{table}");
    let page = "a\n<!-- table: x -->\nold\n<!-- end -->\nb\n";
    let replaced = replace_tables(page, |name| (name == "x").then(|| "new\n".to_owned())).unwrap();
    assert_eq!(replaced, "a\n<!-- table: x -->\n\nnew\n\n<!-- end -->\nb\n");
    assert_eq!(replace_tables(page, |_| None).unwrap_err(), "no table has the name x");
    assert_eq!(replace_tables("<!-- table: x -->", |_| None).unwrap_err(), "table x has no end");
}
