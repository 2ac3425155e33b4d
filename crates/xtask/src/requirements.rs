//! The report: every requirement, the judgement of it, and the faults of the list.

mod citations;
mod faults;
mod list;
mod sources;
mod totals;

use std::fs;
use std::io;
use std::path::Path;

use serde_json::json;

use list::{List, Requirement};
use sources::{Places, Sources};

/// Parts to print, and whether faults fail the run.
#[derive(Clone, Copy, Default)]
pub struct Options {
    pub json: bool,
    pub missing: bool,
    pub check: bool,
}

/// Prints the report and the faults; false if `--check` found any.
///
/// With `RIVULET_BLESS=1`, the page with the totals is rewritten first.
pub fn run(root: &Path, options: Options) -> io::Result<bool> {
    let list = List::parse(&fs::read_to_string(root.join("docs/requirements.tsv"))?);
    let sources = Sources::read(root)?;
    let page = root.join(totals::PAGE);
    if std::env::var_os("RIVULET_BLESS").is_some() {
        fs::write(&page, totals::update(&fs::read_to_string(&page)?, &list).map_err(io::Error::other)?)?;
    }
    let rows: Vec<&Requirement> =
        list.rows.iter().filter(|row| !options.missing || row.status.is_missing()).collect();
    if options.json {
        println!("{:#}", as_json(&rows, &sources));
    } else {
        rows.iter().for_each(|row| println!("{row}"));
        println!("\n{}", totals::table(&list));
    }
    let mut faults = faults::of_list(&list, &sources);
    faults.extend(totals::fault(&fs::read_to_string(&page)?, &list));
    faults.iter().for_each(|fault| eprintln!("{fault}"));
    Ok(!options.check || faults.is_empty())
}

fn as_json(rows: &[&Requirement], sources: &Sources) -> serde_json::Value {
    let none = Places::default();
    let row = |row: &&Requirement| {
        let cited = sources.cited.get(&row.id).unwrap_or(&none);
        json!({
            "id": row.id, "title": row.title, "status": row.status.name(), "tests": row.tests,
            "note": row.note, "cited_in_code": cited.code, "cited_in_tests": cited.tests,
        })
    };
    rows.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_list_of_this_workspace_has_no_faults() {
        let options = super::Options { missing: true, check: true, ..Default::default() };
        assert!(super::run(&crate::workspace(), options).is_ok_and(|is_right| is_right));
    }
}
