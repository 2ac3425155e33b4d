//! `docs/design.md` lists all timers of the protocol; with `RIVULET_BLESS` set, this test writes
//! the table.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use protocol::timer::timers_table;

#[test]
fn page_lists_all_timers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/design.md");
    let page = fs::read_to_string(&path).unwrap();
    let start = page.find("| timer of |").expect("the table begins with its head");
    let end = start + page[start..].find("\n\n").expect("a blank line follows the table") + 1;
    let table = timers_table();
    if std::env::var_os("RIVULET_BLESS").is_some() {
        fs::write(&path, format!("{}{table}{}", &page[..start], &page[end..])).unwrap();
        return;
    }
    assert_eq!(page[start..end], table, "RIVULET_BLESS=1 cargo test -p protocol --test timers writes it");
}
