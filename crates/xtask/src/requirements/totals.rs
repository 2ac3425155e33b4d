//! The totals of each family, and the page that shows them.

use std::fmt::Write;

use super::list::{List, Requirement, Status};

/// The page with the table of totals.
pub const PAGE: &str = "SPECIFICATION.md";

const BEGIN: &str = "<!-- requirements: written by cargo run -p xtask -- requirements -->\n";
const END: &str = "<!-- end of requirements -->";

/// Families by the first word of their identifiers, with their source.
const FAMILIES: [(&str, &str); 5] =
    [("S", "SNF"), ("B", "SpeedyBox"), ("A", "NFActor"), ("E", "E2"), ("RFC", "RFC 4787, 5382, 5508, 7857")];

/// Returns the table in Markdown: a line for each family, then the sum.
pub fn table(list: &List) -> String {
    let mut text = "| family | source |".to_owned();
    Status::ALL.iter().for_each(|status| text += &format!(" {} |", status.name()));
    text += " all |\n|---|---|---|---|---|---|---|\n";
    for (family, source) in FAMILIES {
        line(&mut text, &format!("{family} | {source}"), list, |row| {
            row.family().split(' ').next() == Some(family)
        });
    }
    line(&mut text, "all |", list, |_| true);
    text
}

fn line(text: &mut String, head: &str, list: &List, is_counted: impl Fn(&Requirement) -> bool) {
    let rows: Vec<&Requirement> = list.rows.iter().filter(|row| is_counted(row)).collect();
    let count = |status| rows.iter().filter(|row| row.status == status).count();
    let [works, partly, no, out] = Status::ALL.map(count);
    let _ = writeln!(text, "| {head} | {works} | {partly} | {no} | {out} | {} |", rows.len());
}

/// Returns the page's fault: its table is missing, or differs from the list.
pub fn fault(page: &str, list: &List) -> Option<String> {
    match update(page, list) {
        Ok(right) if right == page => None,
        Ok(_) => Some(format!(
            "{PAGE}: the table of requirements is stale; \
             run RIVULET_BLESS=1 cargo run -p xtask -- requirements"
        )),
        Err(fault) => Some(fault),
    }
}

/// Returns the page with the table of the list.
pub fn update(page: &str, list: &List) -> Result<String, String> {
    let parts = page.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let (head, tail) =
        parts.ok_or_else(|| format!("{PAGE}: `{}` or `{END}` is missing", BEGIN.trim_end()))?;
    Ok(format!("{head}{BEGIN}{}{END}{tail}", table(list)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> List {
        List::parse("S1\tT\tworks\ta\t\nS2\tT\tno\t\tn\nRFC 1 REQ-1\tT\tout\t\tn\n")
    }

    #[test]
    fn each_status_of_each_family_is_counted() {
        let table = table(&list());
        for line in ["| S | SNF | 1 | 0 | 1 | 0 | 2 |", "| all | | 1 | 0 | 1 | 1 | 3 |"] {
            assert!(table.lines().any(|it| it == line), "{table}");
        }
        assert!(table.contains("7857 | 0 | 0 | 0 | 1 | 1 |"), "{table}");
    }

    #[test]
    fn a_page_has_the_table_or_a_fault() {
        assert!(fault("no table", &list()).is_some_and(|fault| fault.contains("is missing")));
        let stale = format!("head\n{BEGIN}old\n{END}\ntail\n");
        assert!(fault(&stale, &list()).is_some_and(|fault| fault.contains("is stale")));
        let Ok(right) = update(&stale, &list()) else { unreachable!("it has both marks") };
        assert!(right.starts_with("head\n") && right.ends_with("\ntail\n"));
        assert_eq!(fault(&right, &list()), None);
    }
}
