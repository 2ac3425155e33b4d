//! The pages about the report and the metrics agree with the catalogue; with `RIVULET_BLESS` set,
//! this test writes their tables.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use runtime::Report;
use runtime::report::{
    CommandsReport, EdgeReport, FastPathReport, HostReport, InterfaceReport, LinksReport, OutputReport,
    PollingReport, PortReport, ProgramReport, RECORDS, WorkerReport, families,
};
use telemetry::event::EVENTS;
use telemetry::{Kind, events_table, help, metrics_table, replace_tables, report_table};

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

fn compare(name: &str, table: impl Fn(&str) -> Option<String>) {
    let path = page(name);
    let found = fs::read_to_string(&path).unwrap();
    let page = replace_tables(&found, table).unwrap();
    if std::env::var_os("RIVULET_BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    } else {
        assert_eq!(found, page, "RIVULET_BLESS=1 cargo test -p runtime --test catalogue writes {name}");
    }
}

#[test]
fn pages_have_all_fields_and_metrics() {
    let record = |name: &str| RECORDS.iter().find(|(record, _)| *record == name);
    compare("report.md", |name| Some(report_table(record(name)?.1.iter().copied().flatten())));
    let report = fs::read_to_string(page("report.md")).unwrap();
    for (name, _) in RECORDS {
        assert!(report.contains(&format!("<!-- table: {name} -->")), "report.md lacks {name}");
    }
    compare("logging.md", |name| (name == "events").then(|| events_table(EVENTS)));
    compare("timeline.md", |name| (name == "timeline").then(protocol::trace::events_table));
    compare("metrics.md", |name| (name == "metrics").then(|| metrics_table(families())));
}

#[test]
fn names_are_those_of_open_metrics() {
    let mut names = BTreeSet::new();
    for family in families() {
        let name = family.name;
        assert!(name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_')), "{name}");
        assert!(names.insert(name) && !name.ends_with("_total") && !name.ends_with("_ns"), "{name}");
        let (help, labels): (_, Vec<_>) = (help(family.help), family.labels().collect());
        assert!(help.len() > 10 && !help.contains(['`', '[', '|']), "{name}: {help}");
        assert_eq!(labels.iter().collect::<BTreeSet<_>>().len(), labels.len(), "{name}: {labels:?}");
    }
    // Fields that share a metric agree about it, and differ in their value of its label.
    let fields = || RECORDS.iter().flat_map(|(_, parts)| parts.iter().copied().flatten());
    let mut parts: BTreeMap<&str, BTreeSet<_>> = BTreeMap::new();
    for (field, family) in fields().filter_map(|field| Some((field, field.family?))) {
        assert!(parts.entry(family.name).or_default().insert(field.part), "{}", family.name);
        assert!(family.known.is_empty() || family.kind == Kind::Counter, "{}", family.name);
    }
}

/// The report has the keys of the catalogue, and no others.
#[test]
fn keys_are_those_of_the_report() {
    let report = Report {
        seed: Some(1),
        restarts: 1,
        streams: Some(<_>::default()),
        programs: [("squid".to_owned(), ProgramReport::default())].into(),
        nodes: [("squid".to_owned(), ProgramReport::default())].into(),
        interfaces: [(
            "outside".to_owned(),
            InterfaceReport { host: Some(HostReport::default()), ..<_>::default() },
        )]
        .into(),
        edges: [("lan -> wan".to_owned(), EdgeReport::default())].into(),
        ports: [("outside".to_owned(), PortReport::default())].into(),
        tunnels_not_looked_into: [("vxlan", 1)].into(),
        fragments_displaced: [("table", 1)].into(),
        workers: vec![WorkerReport::default()],
        outputs: [("alerts".to_owned(), OutputReport::default())].into(),
        commands: Some(CommandsReport::default()),
        links: Some(LinksReport::default()),
        time_jumps: runtime::TimeJumps { back: 1, ..<_>::default() },
        timing: runtime::report::Timing {
            fast_path: Some(FastPathReport { cycles_per_packet: Some(1.0), ..<_>::default() }),
            polling: Some(PollingReport::default()),
            panics: vec![runtime::panics::Panicked {
                message: String::new(),
                place: String::new(),
                count: 1,
            }],
            ..<_>::default()
        },
        ..Report::default()
    };
    let json = serde_json::to_value(&report).unwrap();
    for (name, at) in [
        ("Report", ""),
        ("TimeJumps", "/time_jumps"),
        ("FlowsReport", "/flows"),
        ("StreamCounters", "/streams"),
        ("EdgeReport", "/edges/lan -> wan"),
        ("PortReport", "/ports/outside"),
        ("ProgramReport", "/programs/squid"),
        ("InterfaceReport", "/interfaces/outside"),
        ("HostReport", "/interfaces/outside/host"),
        ("WorkerReport", "/workers/0"),
        ("OutputReport", "/outputs/alerts"),
        ("CommandsReport", "/commands"),
        ("LinksReport", "/links"),
        ("Timing", "/timing"),
        ("FastPathReport", "/timing/fast_path"),
        ("PollingReport", "/timing/polling"),
    ] {
        let found: BTreeSet<_> = json.pointer(at).unwrap().as_object().unwrap().keys().cloned().collect();
        let (_, parts) = RECORDS.iter().find(|(record, _)| *record == name).unwrap();
        let fields = parts.iter().copied().flatten();
        let mut declared: BTreeSet<_> = fields.filter_map(|field| Some(field.key?.to_owned())).collect();
        // Units need a run on units.
        declared.retain(|key| name != "Report" || key != "units");
        assert_eq!(found, declared, "{name}");
    }
}
