//! `docs/drop-reasons.md` is generated from [`DropReason::ALL`]; with `RIVULET_BLESS` set, this
//! test writes it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write;
use std::fs;
use std::path::Path;

use packet::DropReason;

#[test]
fn page_lists_all_reasons() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/drop-reasons.md");
    let page = page();
    if std::env::var_os("RIVULET_BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, page, "RIVULET_BLESS=1 cargo test -p packet --test drop_reasons writes it");
}

fn page() -> String {
    let mut page = String::from(
        "# Drop reasons\n\n\
         The closed list of reasons under which Rivulet counts dropped packets: in `drops` of the\n\
         [report](report.md), in the summary of `rivulet run`, and, packet by packet, in\n\
         `rivulet explain`. A test writes this page (`crates/packet/tests/drop_reasons.rs`).\n\n\
         | reason | meaning |\n|---|---|\n",
    );
    for reason in DropReason::ALL {
        writeln!(page, "| `{}` | {} |", reason.name(), reason.meaning()).unwrap();
    }
    page
}
