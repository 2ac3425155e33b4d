//! The pages of the evaluation agree with the experiments; with `RIVULET_BLESS` set, this test
//! rewrites them from the results that they hold.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use lab::page::{ResultPage, overview};
use lab::{Experiment, experiments, svg};

/// Lines around the overview.
const BEGIN: &str = "<!-- table: overview -->\n";
const END: &str = "<!-- end -->";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn path(experiment: &Experiment) -> PathBuf {
    docs().join("evaluation").join(format!("{}.md", experiment.id))
}

fn compare(path: &Path, wanted: &str) {
    if std::env::var_os("RIVULET_BLESS").is_some() {
        fs::write(path, wanted).unwrap();
    }
    let found = fs::read_to_string(path).unwrap();
    let name = path.display();
    assert!(found == wanted, "RIVULET_BLESS=1 cargo test -p lab --test pages writes {name}");
}

fn read(experiment: &Experiment) -> ResultPage {
    let text = fs::read_to_string(path(experiment)).unwrap();
    ResultPage::read(experiment.id, &text).unwrap_or_else(|error| panic!("{}: {error}", experiment.id))
}

#[test]
fn pages_and_overview_are_those_of_the_experiments() {
    let pages: Vec<(&Experiment, ResultPage)> =
        experiments().iter().map(|experiment| (experiment, read(experiment))).collect();
    let hosts = pages.iter().find(|(experiment, _)| experiment.id == "U4").map(|(_, page)| page);
    for (experiment, page) in &pages {
        let charts = experiment.charts(&page.figures());
        let picture = path(experiment).with_extension("svg");
        if !charts.is_empty() {
            compare(&picture, &svg(&charts));
        }
        let wanted = page.write(experiment, hosts);
        let wanted = wanted.unwrap_or_else(|error| panic!("{}: {error}", experiment.id));
        compare(&path(experiment), &wanted);
    }
    let page = docs().join("evaluation.md");
    let text = fs::read_to_string(&page).unwrap();
    let (head, rest) = text.split_once(BEGIN).unwrap();
    let (_, tail) = rest.split_once(END).unwrap();
    compare(&page, &format!("{head}{BEGIN}{}{END}{tail}", overview(&pages, hosts).unwrap()));
}

#[test]
fn a_page_that_was_read_is_written_as_it_was() {
    for experiment in experiments() {
        let page = read(experiment);
        let text = page.write(experiment, None).unwrap();
        let again = ResultPage::read(experiment.id, &text).unwrap();
        assert_eq!((&again.tables, &again.notes, &again.options), (&page.tables, &page.notes, &page.options));
        assert_eq!(again.verdicts(experiment), page.verdicts(experiment), "{}", experiment.id);
        assert!(page.tables.iter().all(|table| !table.rows.is_empty()), "{}", experiment.id);
    }
}
