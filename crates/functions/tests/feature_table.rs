//! The README's table of functions is generated from their descriptors, except experimental ones;
//! with `RIVULET_BLESS` set, this test writes it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write;
use std::fs;
use std::path::Path;

use nf::{Maturity, Registry};
use serde_json::Value;

const BEGIN: &str = "<!-- functions: written by crates/functions/tests/feature_table.rs -->\n";
const END: &str = "<!-- end of functions -->\n";

#[test]
fn the_readmes_table_matches_the_descriptors() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(&path).unwrap();
    let (before, rest) = readme.split_once(BEGIN).expect("the README has a place for the table");
    let (found, after) = rest.split_once(END).expect("the table has an end");
    let table = table();
    if std::env::var_os("RIVULET_BLESS").is_some() {
        fs::write(&path, [before, BEGIN, &table, END, after].concat()).unwrap();
        return;
    }
    assert_eq!(found, table, "RIVULET_BLESS=1 cargo test -p functions --test feature_table rewrites it");
}

fn table() -> String {
    let registry: Registry<Value> = functions::registry();
    let mut table =
        String::from("| function | what it does | maturity | state of a flow |\n|---|---|---|---|\n");
    for entry in registry.entries() {
        let descriptor = entry.descriptor;
        let maturity = match descriptor.maturity {
            Maturity::Production => "production",
            Maturity::Preview => "preview",
            Maturity::Experimental => continue,
        };
        writeln!(
            table,
            "| [`{name}`](crates/functions/src/{folder}/README.md) | {} | {maturity} | {} bytes |",
            descriptor.summary.trim_end_matches('.'),
            entry.state_bytes,
            name = descriptor.name,
            folder = descriptor.name.replace('-', "_"),
        )
        .unwrap();
    }
    table
}
